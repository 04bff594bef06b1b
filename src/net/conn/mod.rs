//! Connections: received on their home core, handled in their color, sent from wherever that runs.
//!
//! ```text
//!   home core                         the color, on any core
//!   recv completes --- event -------> on_data
//!                                     write -> queue -> send, at once; what the kernel
//!                                     |                 leaves, on this core's ring
//!   close, pause: events of the       sent  <--- event, or event from that ring
//!   home core's control color <------ close, pause, "so far I am"
//! ```
//!
//! | file | what |
//! |---|---|
//! | this one | a connection, its halves, and the way from one to the other |
//! | [`receiving`] | starting and resting, and what was received on its way to the color |
//! | [`sending`] | the output queue |
//! | [`closing`] | the end |
//! | [`lent`] | callbacks while they run |
//! | [`idle`] | the idle timeout |
//! | `secured` | TLS between the bytes and the application; `plain` without that feature |
//! | `records` | its protocol |
//!
//! A connection has two halves of state. The [*color half*](ColorHalf) (callbacks, output queue,
//! phase) belongs to the connection's color, and is reached by showing the context of an event of
//! that color. The [*home half*](HomeHalf) (the receive under way) belongs to the home core, and is
//! reached by showing the token of that core's driver. [`confined`](super::confined) checks both.

mod closing;
mod idle;
mod lent;
mod receiving;
#[cfg(feature = "tls")]
mod records;
#[cfg_attr(not(feature = "tls"), path = "plain.rs")]
mod secured;
mod sending;

pub(super) use self::lent::Doubt;
pub use self::receiving::AHEAD_BYTES_MAX;
#[cfg(feature = "tls")]
pub(crate) use self::records::Records;
pub(super) use self::sending::{Mark, Next, Queued};

use self::idle::Idle;
use self::lent::{AfterReceived, OnData, OnDrained};
use super::confined::AtHome;
use super::driver::{Driver, control};
use crate::color::CoreId;
use crate::host::poster::Poster;
use crate::host::unique::UniqueColor;
use crate::in_color::InColor;
use crate::io::{Fd, Op, Owner};
use crate::net::Stream;
use crate::net::registry::Registry;
use crate::sched::core::Core;
use crate::sync::CellMut;
use crate::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use crate::{Color, Cx, Handler};
use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, OnceLock};

/// How far a connection is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Open,
    /// To be closed when what is queued has been sent.
    Closing,
    /// The home core has been told to close.
    Closed,
}

/// The half that belongs to the connection's color.
pub(super) struct ColorHalf {
    pub(super) phase: Phase,
    on_data: Option<OnData>,
    on_drained: Option<OnDrained>,
    /// A callback for each of the home half's marks, in their order.
    pub(super) after_received: Vec<AfterReceived>,
    /// Called when all has been given to the application that had arrived when the runtime was
    /// asked to stop, if the connection is under way.
    pub(super) on_arrived: Option<AfterReceived>,
    /// It is closed at once.
    aborted: bool,
    pub(super) drained_handler: Option<&'static Handler>,
    pub(super) queue: VecDeque<Queued>,
    /// Bytes in `queue`, and in the send under way if the kernel has not taken all of it at once.
    pub(super) queued_bytes: usize,
    pub(super) queued_bytes_max: usize,
    /// All bytes that were ever written.
    pub(super) written_bytes: u64,
    /// Callbacks of `on_sent`, in the order of what they wait for.
    pub(super) marks: VecDeque<Mark>,
    /// A send is under way on a ring, or a gathered one is to come.
    pub(super) sending: bool,
    /// What is queued is sent when the event that runs is over.
    pub(super) gathers: bool,
    /// The event in which bytes were last sent at once.
    pub(super) sent_in: Option<(CoreId, u64)>,
    /// The event in which all was sent that was written, and nobody was there to be told.
    pub(super) untold_in: Option<(CoreId, u64)>,
    /// An event is on its way that tells that all is sent.
    telling: bool,
    /// `on_drained` is called after each send, and not only when all is sent.
    pub(super) tells_each_send: bool,
    /// The end of the stream is to be sent after what is queued.
    pub(super) shutdown: bool,
    /// Sending has failed, or what is queued was lost by a close. Then the peer is told by a reset,
    /// and never by an end, that what it has got is not all.
    pub(super) broken: bool,
    /// The application has panicked: its callbacks are dropped as that panic would drop them.
    panicked: bool,
    /// It is closed after the last call of `on_data`, unless it may be `half_open`.
    pub(super) closes_at_end: bool,
    pub(super) half_open: bool,
    /// A task reads it.
    pub(super) of_a_task: bool,
    /// `on_data` has had its last call.
    pub(super) ended: bool,
    /// The application has paused the stream, perhaps before it was served.
    pub(super) paused: bool,
    /// The application wants to receive.
    receives: bool,
    idle: Option<Box<Idle>>,
    secured: secured::OfColor,
}

impl ColorHalf {
    /// Whether nothing is left to begin on it: it is closed, ended or broken.
    pub(super) fn is_over(&self) -> bool {
        self.phase != Phase::Open || self.ended || self.broken
    }

    /// The color half of a connection that has just been made.
    fn new() -> ColorHalf {
        ColorHalf {
            phase: Phase::Open,
            on_data: None,
            on_drained: None,
            after_received: Vec::new(),
            on_arrived: None,
            aborted: false,
            drained_handler: None,
            queue: VecDeque::new(),
            queued_bytes: 0,
            queued_bytes_max: sending::QUEUED_MAX,
            written_bytes: 0,
            marks: VecDeque::new(),
            sending: false,
            gathers: false,
            sent_in: None,
            untold_in: None,
            telling: false,
            tells_each_send: false,
            shutdown: false,
            broken: false,
            panicked: false,
            closes_at_end: false,
            half_open: false,
            of_a_task: false,
            ended: false,
            paused: false,
            receives: false,
            idle: None,
            secured: None,
        }
    }
}

/// The half that belongs to the home core.
#[derive(Debug, Default)]
struct HomeHalf {
    recv: Option<Op>,
    /// The receive has been canceled and is not over yet.
    canceling: bool,
    /// The application wants to receive.
    wanted: bool,
    /// What is received is to have the color's next turn.
    urgent: bool,
    /// All bytes received.
    received_bytes: u64,
    /// Once this many bytes are received, an event under this handler is due.
    marks: Vec<(u64, Option<&'static Handler>)>,
    /// Bytes received that the color has not acknowledged.
    ahead_bytes: usize,
    /// Of these, those that it is not yet asked to acknowledge.
    unasked_bytes: usize,
    /// The application has been told the end of the stream, or an error.
    ended: bool,
    /// The application wants to receive, or has wanted to.
    was_wanted: bool,
    arrival: Arrival,
    /// The runtime is ending, and the application is told the end, once.
    tells_end: bool,
    closing: bool,
    /// It is being closed, and what it receives is thrown away.
    lingers: bool,
}

/// What becomes of a connection's receives after a stop, once all is received that had arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AtStop {
    /// They rest until the application is told the end.
    Rests,
    /// The application is told the end at once: a task, for which the stage drain would wait.
    Told,
    /// They go on: the connection is under way.
    GoesOn,
}

/// Whether all is received that had arrived when the runtime was asked to stop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Arrival {
    /// It was not asked to stop, or nothing has been received here.
    #[default]
    NotAsked,
    /// Once so many bytes are received, and `with_end` behind them the end of the stream, or an
    /// error. `is_late`: the connection was first received from after the stop.
    Until {
        bytes: u64,
        with_end: bool,
        is_late: bool,
    },
    Done,
}

/// A connection.
pub(super) struct Conn {
    pub(super) fd: Fd,
    /// An [`AtStop`]; set in its color.
    at_stop: AtomicU32,
    pub(super) owner: Owner,
    /// Set once by `on_data`, before the first receive starts.
    pub(super) read_handler: OnceLock<&'static Handler>,
    pub(super) colored: InColor<ColorHalf>,
    at_home: AtHome<HomeHalf>,
    /// The descriptor is no longer ours. Set by the home core, or once no core runs any more.
    closed: AtomicBool,
    /// It is closed or being closed. Set in its color; a [`Stream`](super::Stream) that is dropped
    /// then has nothing to say.
    is_ending: AtomicBool,
    /// Code of the application's that had it has panicked: whoever closes it resets it.
    in_doubt: AtomicBool,
    /// Calls on their way to the home core.
    under_way: AtomicU32,
    /// Where it is noted in the registry.
    key: usize,
    /// Keeps a color of the connection's own as long as the connection.
    _unique: Option<UniqueColor>,
}

impl Conn {
    /// A connection of this color that is at home on a core, noted in the registry under `key`.
    pub(super) fn new(
        fd: Fd,
        home: CoreId,
        key: usize,
        owner: Owner,
        poster: Poster,
        color: Color,
        unique: Option<UniqueColor>,
    ) -> Arc<Conn> {
        let conn = Arc::new(Conn {
            at_stop: AtomicU32::new(AtStop::Rests as u32),
            fd,
            owner,
            read_handler: OnceLock::new(),
            at_home: AtHome::new(Arc::clone(&poster.inner), home, HomeHalf::default()),
            closed: AtomicBool::new(false),
            is_ending: AtomicBool::new(false),
            in_doubt: AtomicBool::new(false),
            under_way: AtomicU32::new(0),
            key,
            colored: InColor::new(poster, color, ColorHalf::new()),
            _unique: unique,
        });
        let registry = Registry::of_runtime(&conn.poster().inner);
        if !registry.opened(home, key, Arc::downgrade(&conn)) {
            conn.closed.store(true, Ordering::Relaxed);
        }
        conn
    }

    pub(super) fn color(&self) -> Color {
        self.colored.color()
    }

    /// Code of the application's that had it has panicked. An event is to reset it; if the run ends
    /// before, the end does.
    pub(super) fn doubt(&self) {
        self.in_doubt.store(true, Ordering::Relaxed);
    }

    /// A stream of it that does not own it.
    pub(super) fn borrowed(self: &Arc<Conn>) -> Stream {
        Stream {
            conn: Arc::clone(self),
            owner: false,
        }
    }

    /// Whether it is closed or being closed.
    pub(super) fn is_ending(&self) -> bool {
        self.is_ending.load(Ordering::Relaxed)
    }

    /// The core that receives for it.
    pub(super) fn home(&self) -> CoreId {
        self.at_home.core()
    }

    pub(super) fn poster(&self) -> &Poster {
        self.colored.poster()
    }

    /// The color half, in an event that was posted to the color, or checked.
    #[inline(always)]
    fn in_color<'a>(&'a self, cx: &'a mut Cx) -> CellMut<'a, ColorHalf> {
        let colored = self.colored.borrow(cx);
        colored.expect("an event of the connection's color")
    }

    /// Calls `f`, which runs no user code, with the driver of the home core: now, if that can be
    /// had and nothing is on its way there that came before; else in an event of that core. What
    /// `f` posts to the connection's color it posts by [`Core::post_home`].
    pub(super) fn call_home<F>(self: Arc<Conn>, cx: &mut Cx, f: F)
    where
        F: FnOnce(Arc<Conn>, &mut Driver, &mut Core) + Send + 'static,
    {
        let mut both = (self, f);
        // Only the connection's color calls, so what is read as zero stays so.
        if both.0.under_way.load(Ordering::Acquire) == 0 {
            let home = both.0.home();
            let now = |driver: &mut Driver, core: &mut Core, (conn, f): (Arc<Conn>, F)| {
                f(conn, driver, core);
            };
            match Driver::with_home(cx.worker(), home, both, now) {
                Ok(()) => return,
                Err(back) => both = back,
            }
        }
        let (this, f) = both;
        this.under_way.fetch_add(1, Ordering::Relaxed);
        let home = control(this.home());
        cx.post_own(home, move |cx: &mut Cx| {
            Driver::with(cx.worker(), |driver, core| {
                this.under_way.fetch_sub(1, Ordering::Release);
                f(this, driver, core);
            });
        });
    }
}

impl fmt::Debug for Conn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Conn")
            .field("fd", &self.fd)
            .field("color", &self.color())
            .finish_non_exhaustive()
    }
}
