//! What one thread records.

use super::Loot;
use super::format::{
    self, Cause, ColorKind, Definition, LogId, NAME_BYTES_MAX, Page, RECORD_BYTES_MAX, Record,
};
use super::recorder::Recorder;
use super::time::Time;
use crate::Color;
use crate::sync::Arc;
use mely_topology::Distance;

/// An event begins in a page that has room for it and for this many records besides, so that few
/// events have the writing of a page in them.
const RECORDS_AHEAD: usize = 8;
/// Of an event that is long, as far as is known, this many posts are told with their times, and
/// then one in [`TOLD_PERIOD`]: reading the clock takes as long as a short post.
const TOLD: u32 = 4;
const TOLD_PERIOD: u32 = 16;

/// See the module text.
#[derive(Debug)]
pub(crate) struct Log {
    recorder: Arc<Recorder>,
    id: LogId,
    time: Time,
    page: Page,
    /// The file has room for the page.
    promised: bool,
    /// The time with which the page began, and the one that was told last.
    from_ns: u64,
    now_ns: u64,
    /// Posts so far.
    posts: u64,
    /// A bit for each profile that the log has defined.
    defined: Vec<u64>,
    running: Option<Running>,
    sleeps: bool,
    /// What an event that does nothing seems to take.
    empty_ns: u64,
}

/// The event that runs.
#[derive(Debug)]
struct Running {
    color: format::Color,
    began_ns: u64,
    posts: u32,
    /// Known to be long.
    long: bool,
    waits: bool,
}

#[inline(always)]
fn recorded(color: Color) -> format::Color {
    let kind = match ColorKind::new(color.kind().bits()) {
        Some(kind) => kind,
        None => unreachable!("there are three kinds"),
    };
    format::Color {
        kind,
        value: color.value(),
    }
}

impl Log {
    /// That of a core.
    pub(crate) fn of_core(recorder: &Arc<Recorder>, core: usize) -> Log {
        Log::new(recorder, LogId::core(core))
    }

    /// The `n`-th of threads that are no cores.
    pub(crate) fn of_outside(recorder: &Arc<Recorder>, n: usize) -> Log {
        Log::new(recorder, LogId::outside(n))
    }

    fn new(recorder: &Arc<Recorder>, id: LogId) -> Log {
        let mut log = Log {
            time: recorder.time().clone(),
            recorder: Arc::clone(recorder),
            id,
            page: Page::new(),
            promised: false,
            from_ns: 0,
            now_ns: 0,
            posts: 0,
            defined: Vec::new(),
            running: None,
            sleeps: false,
            empty_ns: 0,
        };
        log.empty_ns = log.measure_empty();
        log.from_ns = log.time.now_ns();
        log.now_ns = log.from_ns;
        log
    }

    /// The least that an event takes which does nothing, by a page that is thrown away.
    fn measure_empty(&mut self) -> u64 {
        const EVENTS: usize = 64;
        let color = Color::DEFAULT;
        let page = std::mem::take(&mut self.page);
        self.promised = true;
        let one = |log: &mut Log| {
            log.put_begin(0, color, Cause::NONE, false);
            let began_ns = log.running.as_ref().map_or(0, |running| running.began_ns);
            log.put_end(false);
            log.now_ns - began_ns
        };
        let least_ns = (0..EVENTS).map(|_| one(self)).min();
        self.promised = false;
        self.page = page;
        least_ns.unwrap_or(0)
    }

    /// Whether it records no more. What it has is written when it is dropped.
    #[inline]
    pub(crate) fn is_over(&self) -> bool {
        self.recorder.is_over()
    }

    /// Whether there is room for this many bytes; if not, nothing more can be recorded.
    #[inline(always)]
    fn has_room(&mut self, bytes: usize) -> bool {
        self.promised && self.page.has_room(bytes) || self.turn_page()
    }

    #[cold]
    #[inline(never)]
    fn turn_page(&mut self) -> bool {
        let began_ns = self.time.now_ns();
        let wrote = self.write_page();
        if !self.recorder.promise_page() {
            return false;
        }
        self.promised = true;
        self.from_ns = self.now_ns;
        if wrote {
            let gap_ns = self.gap_to(began_ns);
            let took_ns = self.time.now_ns().saturating_sub(self.now_ns);
            self.now_ns += took_ns;
            self.page.put(&Record::Wrote { took_ns, gap_ns });
        }
        true
    }

    /// Writes what there is; whether there was anything.
    fn write_page(&mut self) -> bool {
        let promised = std::mem::replace(&mut self.promised, false);
        if promised {
            let page = self.page.close(self.id, self.from_ns);
            self.recorder.write_page(page);
        }
        promised
    }

    /// It is so late now; returns for how long it was not told.
    #[inline(always)]
    fn gap_to(&mut self, now_ns: u64) -> u64 {
        let gap_ns = now_ns.saturating_sub(self.now_ns);
        self.now_ns += gap_ns;
        gap_ns
    }

    fn gap(&mut self) -> u64 {
        let now_ns = self.time.now_ns();
        self.gap_to(now_ns)
    }

    /// Defines a profile unless it is; whether there was room.
    #[inline(always)]
    fn define(&mut self, profile: usize, definition: impl FnOnce() -> Definition) -> bool {
        let defined = self.defined.get(profile / 64);
        let is_defined = defined.is_some_and(|bits| bits >> (profile % 64) & 1 != 0);
        is_defined || self.define_new(profile, definition())
    }

    #[cold]
    fn define_new(&mut self, profile: usize, definition: Definition) -> bool {
        if !self.has_room(RECORD_BYTES_MAX + NAME_BYTES_MAX) {
            return false;
        }
        if self.defined.len() <= profile / 64 {
            self.defined.resize(profile / 64 + 1, 0);
        }
        self.defined[profile / 64] |= 1 << (profile % 64);
        self.page.put(&Record::Define {
            profile: profile as u32,
            definition,
        });
        true
    }

    /// An event begins. `long`: as far as is known.
    #[inline]
    pub(crate) fn begin(
        &mut self,
        profile: usize,
        definition: impl FnOnce() -> Definition,
        color: Color,
        cause: Cause,
        long: bool,
    ) {
        let room = self.has_room((1 + RECORDS_AHEAD) * RECORD_BYTES_MAX);
        if room && self.define(profile, definition) {
            self.put_begin(profile, color, cause, long);
        }
    }

    #[inline(always)]
    fn put_begin(&mut self, profile: usize, color: Color, cause: Cause, long: bool) {
        let color = recorded(color);
        let gap_ns = self.gap();
        self.running = Some(Running {
            color,
            began_ns: self.now_ns,
            posts: 0,
            long,
            waits: false,
        });
        self.page.put(&Record::Begin {
            profile: profile as u32,
            color,
            cause,
            gap_ns,
        });
    }

    /// The event that began last is over.
    #[inline]
    pub(crate) fn end(&mut self, panicked: bool) {
        if self.has_room(RECORD_BYTES_MAX) {
            self.put_end(panicked);
        }
    }

    #[inline(always)]
    fn put_end(&mut self, panicked: bool) {
        let now_ns = self.time.now_ns();
        let Some(running) = self.running.take() else {
            return;
        };
        let took_ns = now_ns.saturating_sub(running.began_ns + self.empty_ns);
        self.now_ns = self.now_ns.max(running.began_ns + took_ns);
        self.page.put(&Record::End {
            took_ns,
            panicked,
            waits: running.waits,
        });
    }

    /// The event that began has to wait for a hold: what it posts next is that event once more.
    pub(crate) fn waits(&mut self) {
        if let Some(running) = &mut self.running {
            running.waits = true;
        }
    }

    /// An event is posted; returns what it is to say of that.
    #[inline]
    pub(crate) fn post(
        &mut self,
        profile: usize,
        definition: impl FnOnce() -> Definition,
        color: Color,
    ) -> Cause {
        if !self.has_room(RECORD_BYTES_MAX) || !self.define(profile, definition) {
            return Cause::NONE;
        }
        let (profile, color) = (profile as u32, recorded(color));
        let record = match &mut self.running {
            Some(running) => {
                running.posts += 1;
                let told = running.posts <= TOLD || running.posts.is_multiple_of(TOLD_PERIOD);
                let after = || self.time.now_ns().saturating_sub(running.began_ns);
                Record::Post {
                    profile,
                    color: (color != running.color).then_some(color),
                    after_ns: (running.long && told).then(after),
                }
            }
            None => Record::Arrival {
                profile,
                color,
                gap_ns: self.gap(),
            },
        };
        self.page.put(&record);
        let cause = Cause::new(self.id, self.posts);
        self.posts += 1;
        cause
    }

    /// The post before was refused.
    pub(crate) fn refused(&mut self) {
        if self.has_room(RECORD_BYTES_MAX) {
            self.page.put(&Record::Refused);
        }
    }

    /// The core goes to sleep.
    pub(crate) fn park(&mut self) {
        if self.has_room(RECORD_BYTES_MAX) {
            let gap_ns = self.gap();
            self.page.put(&Record::Park { gap_ns });
            self.sleeps = true;
        }
    }

    /// The core is awake, if it slept.
    pub(crate) fn rise(&mut self) {
        if self.sleeps && self.has_room(RECORD_BYTES_MAX) {
            let gap_ns = self.gap();
            self.page.put(&Record::Rise { gap_ns });
            self.sleeps = false;
        }
    }

    /// The core rings another one's doorbell.
    pub(crate) fn wake(&mut self, core: usize) {
        if self.has_room(RECORD_BYTES_MAX) {
            let gap_ns = self.gap();
            let core = core as u64;
            self.page.put(&Record::Wake { core, gap_ns });
        }
    }

    /// The core has stolen these colors, just now.
    pub(crate) fn steal(
        &mut self,
        victim: usize,
        distance: Distance,
        stuck: bool,
        cost_ns: u64,
        loot: &[Loot],
        definition: impl Fn(usize) -> Definition,
    ) {
        for stolen in loot {
            if !self.define(stolen.profile, || definition(stolen.profile)) {
                return;
            }
        }
        // All in one page.
        if !self.has_room((1 + loot.len()) * RECORD_BYTES_MAX) {
            return;
        }
        let began_ns = self.time.now_ns().saturating_sub(cost_ns);
        let gap_ns = self.gap_to(began_ns);
        self.now_ns += cost_ns;
        self.page.put(&Record::Steal {
            victim: victim as u64,
            distance,
            stuck,
            cost_ns,
            colors: loot.len() as u64,
            gap_ns,
        });
        for stolen in loot {
            self.page.put(&Record::Stolen {
                color: recorded(stolen.color),
                profile: stolen.profile as u32,
                events: stolen.events,
                left_ns: stolen.left_ns,
            });
        }
    }

    /// The event that runs holds its color.
    pub(crate) fn hold(&mut self, id: u64, shared: bool) {
        if self.running.is_some() && self.has_room(RECORD_BYTES_MAX) {
            let gap_ns = self.gap();
            self.page.put(&Record::Hold { id, shared, gap_ns });
        }
    }

    /// A hold of the running event's color is over.
    pub(crate) fn hold_over(&mut self, id: u64) {
        if self.has_room(RECORD_BYTES_MAX) {
            let gap_ns = self.gap();
            self.page.put(&Record::HoldOver { id, gap_ns });
        }
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.write_page();
    }
}
