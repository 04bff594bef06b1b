//! The file of a recording, byte by byte: written here, read by the crate `mely-recording`.
//!
//! `docs/recording.md` describes it on a page. In short: a header; then pages, each
//! of one log; at last a page that says how the recording ended. A *log* is what one thread wrote:
//! a core's, or that of threads outside that share what they make events with. Numbers are
//! little-endian; those of no fixed size are in groups of seven bits, the lowest first, with the
//! high bit set on all but the last byte (LEB128). Times are ns.

#![doc(hidden)]

use self::first::{
    ARRIVAL, BEGIN, COLOR_KIND_SHIFT, DEFINE, FINISH, HOLD, HOLD_OVER, KIND_BITS, OWN, PANICKED,
    PARK, POST, RARE, REFUSED, RISE, STEAL, STOLEN, TIMED, WAITS, WAKE, WIDE, WROTE,
};
use crate::topology::Distance;
use std::fmt;

/// What a recording begins with.
pub const MAGIC: [u8; 8] = *b"mely-rec";
/// The version that is written, and the only one that is read.
pub const VERSION: u32 = 1;
/// Bytes of a page without its header: at most these.
pub const PAGE_BYTES: usize = 32 * 1024;
/// Bytes of a page's header.
pub const PAGE_HEADER_BYTES: usize = 16;
/// Bytes that any record fits into, but for the definition of a handler.
pub const RECORD_BYTES_MAX: usize = 64;
/// Bytes of a name in a recording: a longer one is cut.
pub const NAME_BYTES_MAX: usize = 1_000;
/// Most cores of a recording.
pub const CORES_MAX: usize = 512;
/// Most logs of threads outside.
pub const OUTSIDE_MAX: usize = 64;
/// In the place of a log's number: the page that ends the recording.
pub const END: u16 = u16::MAX;

/// One of a recording's logs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogId(u16);

impl LogId {
    /// That of a core.
    pub const fn core(core: usize) -> LogId {
        assert!(core < CORES_MAX);
        LogId(core as u16)
    }

    /// The `n`-th of threads outside.
    pub const fn outside(n: usize) -> LogId {
        assert!(n < OUTSIDE_MAX);
        LogId((CORES_MAX + n) as u16)
    }

    /// The core, if it is one's.
    pub const fn as_core(self) -> Option<usize> {
        if (self.0 as usize) < CORES_MAX {
            Some(self.0 as usize)
        } else {
            None
        }
    }

    /// Of threads outside: its number among those.
    pub const fn as_outside(self) -> usize {
        (self.0 as usize).saturating_sub(CORES_MAX)
    }

    /// The log of this number, as in the header of a page.
    pub fn from_number(number: u16) -> Option<LogId> {
        (usize::from(number) < CORES_MAX + OUTSIDE_MAX).then_some(LogId(number))
    }
}

impl fmt::Display for LogId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.as_core() {
            Some(core) => write!(f, "core {core}"),
            None => write!(f, "outside {}", self.as_outside()),
        }
    }
}

/// The post that an event is of, as the event itself carries it: the log that the post is in, and
/// the post's number there, modulo [`Cause::POSTS`]. With the handler, the color and the order in
/// that color it is one post and no other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cause(u16);

impl Cause {
    /// Of an event whose post is in no log.
    pub const NONE: Cause = Cause(0);
    /// Bits of a cause.
    pub const BITS: u32 = 15;
    /// Posts of a log that are told apart.
    pub const POSTS: u64 = 1 << Cause::POST_BITS;
    const POST_BITS: u32 = 5;

    /// The `number`-th post of this log.
    #[inline]
    pub const fn new(log: LogId, number: u64) -> Cause {
        Cause((log.0 + 1) << Cause::POST_BITS | (number % Cause::POSTS) as u16)
    }

    /// As a number of [`BITS`](Self::BITS) bits.
    #[inline]
    pub const fn bits(self) -> u32 {
        self.0 as u32
    }

    /// What has these bits.
    #[inline]
    pub const fn from_bits(bits: u32) -> Cause {
        Cause((bits & ((1 << Cause::BITS) - 1)) as u16)
    }

    /// The log, unless there is none; and the post's number, modulo [`POSTS`](Self::POSTS).
    pub fn log(self) -> Option<(Option<LogId>, u64)> {
        let log = (self.0 >> Cause::POST_BITS).checked_sub(1)?;
        Some((LogId::from_number(log), u64::from(self.0) % Cause::POSTS))
    }
}

const _: () = assert!(
    (CORES_MAX + OUTSIDE_MAX + 1) << Cause::POST_BITS <= 1 << Cause::BITS,
    "every log has room in a cause"
);

/// A color, as the program knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Color {
    /// Who made it.
    pub kind: ColorKind,
    /// Its value.
    pub value: u64,
}

/// Who made a color.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum ColorKind {
    /// The program, from a value.
    Given = 0,
    /// The runtime, for the program.
    Unique = 1,
    /// The runtime, for itself: one for each core.
    Control = 2,
}

impl ColorKind {
    /// The kind of this number.
    #[inline]
    pub const fn new(number: u32) -> Option<ColorKind> {
        match number {
            0 => Some(ColorKind::Given),
            1 => Some(ColorKind::Unique),
            2 => Some(ColorKind::Control),
            _ => None,
        }
    }
}

impl fmt::Display for Color {
    /// As mely prints it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let own = self.value & !(1 << 63);
        match self.kind {
            ColorKind::Given => write!(f, "{}", self.value),
            ColorKind::Unique => write!(f, "unique {own}"),
            ColorKind::Control => write!(f, "control {own}"),
        }
    }
}

/// What a recording says of itself, before anything else.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// Cores of the runtime.
    pub cores: usize,
    /// It is a simulation's: times are virtual.
    pub simulated: bool,
    /// When it began, in seconds since 1970; 0 of a simulation.
    pub began_unix_s: u64,
    /// The limit of the file, in bytes.
    pub bytes_max: u64,
    /// What a wake-up was taken to cost (`Builder::wake_cost`), in ns; 0 if it was measured.
    pub wake_cost_ns: u64,
    /// The batch threshold.
    pub batch: u32,
    /// How the cores stole, as mely prints it.
    pub stealing: String,
}

/// How a recording ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct End {
    /// Why.
    pub why: Ended,
    /// When: since the beginning.
    pub at_ns: u64,
    /// Pages before this one.
    pub pages: u64,
    /// Cores that were left behind in a handler, with what they had not written yet.
    pub cores_left: u64,
}

/// Why a recording ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Ended {
    /// The run was over.
    WithTheRun = 0,
    /// The file has reached its limit.
    AtTheLimit = 1,
}

/// What the runtime knows of a handler, or of a closure without one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Definition {
    /// The handler's name, or the closure's type.
    pub name: String,
    /// Whether it is a handler's.
    pub is_handler: bool,
    /// `Handler::time`; 0: none.
    pub time_ns: u64,
    /// `Handler::penalty`.
    pub penalty: u64,
    /// `Handler::working_set_bytes`; none: the program does not say.
    pub working_set_bytes: Option<u64>,
}

/// One record of a log. `gap_ns` is the time since the time before in that log, which was a page's
/// beginning, or a record's with a gap, or the end of an event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    /// A profile, which is a number of a handler and closure type, before it is first named.
    Define {
        /// The number.
        profile: u32,
        /// What it stands for.
        definition: Definition,
    },
    /// An event begins.
    Begin {
        /// Its handler and closure type.
        profile: u32,
        /// Its color.
        color: Color,
        /// The post it is of.
        cause: Cause,
        /// See [`Record`].
        gap_ns: u64,
    },
    /// The event that began last is over.
    End {
        /// Since its beginning.
        took_ns: u64,
        /// It has panicked.
        panicked: bool,
        /// Its color was held by others: it has posted itself again, and done nothing else.
        waits: bool,
    },
    /// A post by the event that runs.
    Post {
        /// Of the event posted.
        profile: u32,
        /// Its color; none: the color of the event that runs.
        color: Option<Color>,
        /// Since the event that runs began; of most posts it is not known.
        after_ns: Option<u64>,
    },
    /// A post outside of events: what the network, a timer or another thread brought.
    Arrival {
        /// Of the event posted.
        profile: u32,
        /// Its color.
        color: Color,
        /// See [`Record`].
        gap_ns: u64,
    },
    /// The post before was refused.
    Refused,
    /// The core goes to sleep.
    Park {
        /// See [`Record`].
        gap_ns: u64,
    },
    /// It is awake again.
    Rise {
        /// See [`Record`].
        gap_ns: u64,
    },
    /// The core wakes another.
    Wake {
        /// Which one.
        core: u64,
        /// See [`Record`].
        gap_ns: u64,
    },
    /// The core has stolen colors, which are the next records.
    Steal {
        /// From this core.
        victim: u64,
        /// How far that is.
        distance: Distance,
        /// The victim was stuck: its colors were taken although they were not worth it.
        stuck: bool,
        /// What it took, the time before it being its beginning.
        cost_ns: u64,
        /// How many.
        colors: u64,
        /// See [`Record`].
        gap_ns: u64,
    },
    /// A color of the steal before.
    Stolen {
        /// That of the first event.
        color: Color,
        /// The first event's.
        profile: u32,
        /// How many came with it.
        events: u64,
        /// What they were expected to take.
        left_ns: u64,
    },
    /// The event that runs holds its color.
    Hold {
        /// The hold.
        id: u64,
        /// Others that read may run meanwhile.
        shared: bool,
        /// See [`Record`].
        gap_ns: u64,
    },
    /// A hold of the running event's color is over.
    HoldOver {
        /// The hold.
        id: u64,
        /// See [`Record`].
        gap_ns: u64,
    },
    /// The core has written a page to the file: time that is nobody else's.
    Wrote {
        /// What that took, the time before it being its beginning.
        took_ns: u64,
        /// See [`Record`].
        gap_ns: u64,
    },
}

/// The first bytes of records: the kind in the low three bits, the rest as the kind says.
#[allow(missing_docs, reason = "each is a kind or a bit of one")]
pub mod first {
    pub const KIND_BITS: u32 = 3;
    pub const RARE: u8 = 0;
    pub const BEGIN: u8 = 1;
    pub const FINISH: u8 = 2;
    pub const POST: u8 = 3;
    pub const ARRIVAL: u8 = 4;
    // Of those with a color: its value is eight bytes; the kind of the color.
    pub const WIDE: u8 = 1 << 3;
    pub const COLOR_KIND_SHIFT: u32 = 4;
    // Of posts.
    pub const OWN: u8 = 1 << 6;
    pub const TIMED: u8 = 1 << 7;
    // Of ends.
    pub const PANICKED: u8 = 1 << 3;
    pub const WAITS: u8 = 1 << 4;
    // Of rare ones: which.
    pub const DEFINE: u8 = 0;
    pub const REFUSED: u8 = 1;
    pub const PARK: u8 = 2;
    pub const RISE: u8 = 3;
    pub const WAKE: u8 = 4;
    pub const STEAL: u8 = 5;
    pub const STOLEN: u8 = 6;
    pub const HOLD: u8 = 7;
    pub const HOLD_OVER: u8 = 8;
    pub const WROTE: u8 = 9;
}

/// Values of colors from here on are written as eight bytes.
const WIDE_FROM: u64 = 1 << 49;

/// A page that is being filled.
#[derive(Debug)]
pub struct Page {
    bytes: Box<[u8; PAGE_HEADER_BYTES + PAGE_BYTES]>,
    len: usize,
}

impl Default for Page {
    fn default() -> Page {
        Page::new()
    }
}

impl Page {
    /// An empty one.
    pub fn new() -> Page {
        let bytes = vec![0; PAGE_HEADER_BYTES + PAGE_BYTES].into_boxed_slice();
        Page {
            bytes: bytes.try_into().expect("as many as asked for"),
            len: PAGE_HEADER_BYTES,
        }
    }

    /// Whether there is room for this many bytes.
    #[inline]
    pub fn has_room(&self, bytes: usize) -> bool {
        self.len + bytes <= PAGE_HEADER_BYTES + PAGE_BYTES
    }

    /// Closes it, as the page of `log` whose first gap is since `from_ns`; returns what is to be
    /// written, and leaves it empty once that is over.
    pub fn close(&mut self, log: LogId, from_ns: u64) -> &[u8] {
        let len = std::mem::replace(&mut self.len, PAGE_HEADER_BYTES);
        let header = page_header(len - PAGE_HEADER_BYTES, log.0, from_ns);
        self.bytes[..PAGE_HEADER_BYTES].copy_from_slice(&header);
        &self.bytes[..len]
    }

    #[inline(always)]
    fn byte(&mut self, byte: u8) {
        self.bytes[self.len] = byte;
        self.len += 1;
    }

    #[inline(always)]
    fn bytes(&mut self, bytes: &[u8]) {
        self.bytes[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
    }

    #[inline(always)]
    fn number(&mut self, mut number: u64) {
        while number >= 1 << 7 {
            self.byte(number as u8 | 1 << 7);
            number >>= 7;
        }
        self.byte(number as u8);
    }

    /// The first byte of a record with this color, and what is to follow for it.
    #[inline(always)]
    fn kind_of(kind: u8, color: Color) -> u8 {
        let wide = if color.value >= WIDE_FROM { WIDE } else { 0 };
        kind | wide | (color.kind as u8) << COLOR_KIND_SHIFT
    }

    #[inline(always)]
    fn color(&mut self, color: Color) {
        if color.value >= WIDE_FROM {
            self.bytes(&color.value.to_le_bytes());
        } else {
            self.number(color.value);
        }
    }

    #[inline(always)]
    fn rare(&mut self, which: u8) {
        self.byte(RARE | which << KIND_BITS);
    }

    /// Appends a record; see [`RECORD_BYTES_MAX`] for what there must be room for, and
    /// [`NAME_BYTES_MAX`] more for a definition.
    ///
    /// # Panics
    /// If there is no room.
    #[inline(always)]
    pub fn put(&mut self, record: &Record) {
        match *record {
            Record::Begin {
                profile,
                color,
                cause,
                gap_ns,
            } => {
                self.byte(Page::kind_of(BEGIN, color));
                self.number(profile.into());
                self.bytes(&cause.0.to_le_bytes());
                self.color(color);
                self.number(gap_ns);
            }
            Record::End {
                took_ns,
                panicked,
                waits,
            } => {
                let panicked = if panicked { PANICKED } else { 0 };
                self.byte(FINISH | panicked | if waits { WAITS } else { 0 });
                self.number(took_ns);
            }
            Record::Post {
                profile,
                color,
                after_ns,
            } => {
                let timed = if after_ns.is_some() { TIMED } else { 0 };
                let kind = color.map_or(POST | OWN, |color| Page::kind_of(POST, color));
                self.byte(kind | timed);
                self.number(profile.into());
                if let Some(color) = color {
                    self.color(color);
                }
                if let Some(after_ns) = after_ns {
                    self.number(after_ns);
                }
            }
            Record::Arrival {
                profile,
                color,
                gap_ns,
            } => {
                self.byte(Page::kind_of(ARRIVAL, color));
                self.number(profile.into());
                self.color(color);
                self.number(gap_ns);
            }
            _ => self.put_rare(record),
        }
    }

    #[cold]
    fn put_rare(&mut self, record: &Record) {
        match record {
            Record::Define {
                profile,
                definition,
            } => {
                self.rare(DEFINE);
                self.number((*profile).into());
                self.byte(definition.is_handler.into());
                self.number(definition.time_ns);
                self.number(definition.penalty);
                let touches = definition.working_set_bytes;
                self.number(touches.map_or(0, |bytes| bytes.saturating_add(1)));
                let name = cut(&definition.name);
                self.number(name.len() as u64);
                self.bytes(name.as_bytes());
            }
            Record::Refused => self.rare(REFUSED),
            Record::Park { gap_ns } => {
                self.rare(PARK);
                self.number(*gap_ns);
            }
            Record::Rise { gap_ns } => {
                self.rare(RISE);
                self.number(*gap_ns);
            }
            Record::Wake { core, gap_ns } => {
                self.rare(WAKE);
                self.number(*core);
                self.number(*gap_ns);
            }
            Record::Steal {
                victim,
                distance,
                stuck,
                cost_ns,
                colors,
                gap_ns,
            } => {
                self.rare(STEAL);
                self.number(*victim);
                self.byte(distance.index() as u8);
                self.byte((*stuck).into());
                self.number(*cost_ns);
                self.number(*colors);
                self.number(*gap_ns);
            }
            Record::Stolen {
                color,
                profile,
                events,
                left_ns,
            } => {
                self.rare(STOLEN);
                self.byte(Page::kind_of(0, *color));
                self.color(*color);
                self.number((*profile).into());
                self.number(*events);
                self.number(*left_ns);
            }
            Record::Hold { id, shared, gap_ns } => {
                self.rare(HOLD);
                self.number(*id);
                self.byte((*shared).into());
                self.number(*gap_ns);
            }
            Record::HoldOver { id, gap_ns } => {
                self.rare(HOLD_OVER);
                self.number(*id);
                self.number(*gap_ns);
            }
            Record::Wrote { took_ns, gap_ns } => {
                self.rare(WROTE);
                self.number(*took_ns);
                self.number(*gap_ns);
            }
            Record::Begin { .. }
            | Record::End { .. }
            | Record::Post { .. }
            | Record::Arrival { .. } => unreachable!("these are not rare"),
        }
    }
}

/// At most [`NAME_BYTES_MAX`] of a name.
fn cut(name: &str) -> &str {
    let mut end = name.len().min(NAME_BYTES_MAX);
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    &name[..end]
}

fn page_header(len: usize, log: u16, from_ns: u64) -> [u8; PAGE_HEADER_BYTES] {
    let mut header = [0; PAGE_HEADER_BYTES];
    header[..4].copy_from_slice(&(len as u32).to_le_bytes());
    header[4..6].copy_from_slice(&log.to_le_bytes());
    header[8..].copy_from_slice(&from_ns.to_le_bytes());
    header
}

fn put_number(bytes: &mut Vec<u8>, mut number: u64) {
    while number >= 1 << 7 {
        bytes.push(number as u8 | 1 << 7);
        number >>= 7;
    }
    bytes.push(number as u8);
}

impl Header {
    /// The beginning of a file.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut fields = Vec::new();
        let numbers = [
            self.cores as u64,
            self.simulated.into(),
            self.began_unix_s,
            self.bytes_max,
            self.wake_cost_ns,
            self.batch.into(),
            self.stealing.len() as u64,
        ];
        numbers.into_iter().for_each(|n| put_number(&mut fields, n));
        fields.extend_from_slice(self.stealing.as_bytes());
        let mut bytes = MAGIC.to_vec();
        bytes.extend_from_slice(&VERSION.to_le_bytes());
        bytes.extend_from_slice(&(fields.len() as u32).to_le_bytes());
        bytes.append(&mut fields);
        bytes
    }
}

impl End {
    /// Most bytes of the page.
    pub const BYTES_MAX: usize = PAGE_HEADER_BYTES + 32;

    /// The last page of a file.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut fields = vec![self.why as u8];
        put_number(&mut fields, self.pages);
        put_number(&mut fields, self.cores_left);
        let mut bytes = page_header(fields.len(), END, self.at_ns).to_vec();
        bytes.append(&mut fields);
        bytes
    }
}
