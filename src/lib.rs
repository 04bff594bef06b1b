//! An event-coloring runtime: per-key serial, across keys parallel, with cache-aware work stealing
//! over io_uring.
//!
//! A program is a set of event handlers. Every event carries a [`Color`]. Events of one color run
//! one at a time and in the order of their posts; events of different colors run in parallel. That
//! is the whole concurrency model: no locks in user code, no deadlock, and state that belongs to a
//! color is handed to its handlers as `&mut T` ([`Colored`]).
//!
//! ```
//! use mely::{Color, Colored, Handler, Runtime};
//! use std::time::Duration;
//!
//! // Annotations are optional: the runtime measures what it is not told.
//! static WITHDRAW: Handler = Handler::new("withdraw").time(Duration::from_micros(1));
//!
//! let left = Runtime::builder().build()?.run_until(|cx, finish| {
//!     // An account is a color: whoever posts, and wherever it runs, one event at a time.
//!     let account = Colored::new(cx, Color::from(4711), 100u64);
//!     for _ in 0..10 {
//!         account.via(&WITHDRAW).post(cx, |balance, _cx| *balance -= 7);
//!     }
//!     account.post(cx, move |balance, _cx| finish.finish(*balance));
//! })?;
//! assert_eq!(left, 30);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # The rules
//!
//! - Whatever is posted is given a color: colors are never inherited. The first event of a run has
//!   [`Color::DEFAULT`], 0.
//! - Two events of one color never overlap. Order is FIFO per poster and color (a poster is one
//!   event, or one foreign thread), and causal: if a post to a color happened before another post
//!   to it, through program order in events, posts, and succession in a color, its event runs
//!   first. What an event wrote is visible to every event that runs after it by these rules.
//!   Signaling past the runtime, by an atomic, a channel of your own or an event of another
//!   runtime, counts only after [`Cx::flush`], and not for what an event that is already running
//!   posts to its own color.
//! - Posting never runs user code, and waits neither for a handler nor for room: at most, for a
//!   moment, for a lock of the runtime. No user code, `Drop` included, runs under one. One call
//!   waits for room, and is refused inside of handlers: [`Bounded::post_wait`].
//! - Any 64-bit value is a color. Two large values may share one of the (by default 65,536) color
//!   slots: that costs parallelism, never correctness. Which do differs from runtime to runtime, so
//!   that peers who choose keys cannot choose them so that they all share one.
//! - A panic of a handler is caught, reported and counted. By default it ends its event, and the
//!   run goes on ([`OnPanic`]): the state that the event had is poisoned ([`Colored`]), its
//!   connection is reset, and holds that it had are over.
//! - `run` ends when asked to ([`Cx::stop`]), after draining under a deadline; what is left then is
//!   reported. A post after the end gives its closure back. A strong [`Poster`] puts the end off.
//! - Never promised: any order between colors, except the causal one above; when an event runs; on
//!   which core, beyond what [`Cx::place`] says.
//!
//! # The dialect
//!
//! - What has no color of its own, as a timer, is given a [`Callback`]: handler, color and closure
//!   in one. What has a color, a [`Colored`] or a [`net::Stream`], is given `&'static` [`Handler`]
//!   and a closure.
//! - Posting through a [`Cx`] returns nothing, and panics at the builder's limit of queued events;
//!   its `try_` twin gives the closure back. Posting through a [`Poster`]
//!   returns a `Result` with the closure, always. Asking is the same, with a [`JoinHandle`] instead
//!   of nothing. What posts through any of them takes `&P` with `P:` [`Post`]` + ?Sized`.
//! - Blocking work is refused by a `Result` also through a [`Cx`]: a full queue is an everyday
//!   matter there.
//! - What is asked of a run, before, during or after it, is asked a [`Poster`]; [`Runtime::run`]
//!   consumes its runtime.
//!
//! # The map
//!
//! | | |
//! |---|---|
//! | [`Runtime`], [`Builder`] | what runs events, and how it is configured |
//! | [`Cx`], [`Poster`], [`Post`] | posting from handlers, and from anywhere |
//! | [`Cx::ask`], [`Cx::spawn`], [`Cx::try_blocking`] | events that return something, futures, blocking work |
//! | [`JoinHandle`], [`join_all`] | their result, by a callback, a wait or `.await` |
//! | [`Color`], [`UniqueColor`], [`Colored`] | keys, keys of one's own, state that belongs to a key |
//! | [`Bounded`], [`Backlog`], [`Permit`] | a bound on what waits in a color, and what is shed |
//! | [`Handler`], [`Callback`] | names and annotations; handler, color and closure in one |
//! | [`Stealing`], [`Heuristics`] | libasync-smp's stealing, and Mely's three improvements of it |
//! | [`Stats`] | what every core has done |
//! | [`Profile`] | what every handler takes, and the annotation it should have |
//! | [`net`] | connections, timers, signals |
//! | [`aio`] | connections that tasks read and write; hyper on them |
//! | [`topology`] | the machine: caches, distances, victim orders |
//! | `sim` (with the feature `sim`) | the same runtime on virtual cores, one at a time, from one seed |
//! | [`promises`], [`checks`] | what holds, and what makes sure of it |
//!
//! The crate itself: `event` is an event in memory. `shared` has the papers' queues, and the words
//! that cores write to each other. `sched` is the scheduler, pure, without threads, I/O or a clock;
//! its `step` is the whole algorithm on one screen. `host` is a core's loop, `runtime` has the
//! threads, `io` the event sources behind one contract, and `net` turns their completions into
//! colored events. All atomics, cells and locks of the protocols come through `sync`, so that the
//! code which ships is the code that loom explores.
//!
//! # Where it comes from
//!
//! libasync-smp (Zeldovich, Yip, Dabek, Morris, Mazieres, Kaashoek: *Multiprocessor Support for
//! Event-Driven Programs*, USENIX 2003) has the colors, the per-core queues and the idea of
//! stealing. Mely (Gaud, Geneves, Lachaize, Lepers, Mottet, Muller, Quema: *Efficient Workstealing
//! for Multicore Event-Driven Systems*, ICDCS 2010) has the queue a color, the stealing-queue and
//! the three heuristics. What is different here, and why:
//!
//! - Mely takes a core's lock for each event it pushes or pops. Here a core takes its own lock once
//!   a quantum, and seldom besides, checks out colors worth about one steal cost, and runs them
//!   without: by Mely's own time-left rule, work shorter than the cost of stealing it is not worth
//!   stealing.
//! - Mely pushes into another core's queue under that core's lock, with a race against migration
//!   that the paper does not close. Here every color has a mailbox word that any core pushes onto,
//!   and only an order-free poke goes to the owner.
//! - A penalty orders thieves' choices and never vetoes one: an idle core costs more than a cold
//!   cache.
//! - Steal costs and handler times are measured, with annotations as priors; a lone color that
//!   waits behind a long handler can be stolen too.
//! - In the papers a color waits for all that are queued before it. Here what an event posts to a
//!   color of its own core goes first if it is worth a steal, within limits: what it works on is
//!   still in the caches, while thieves take what has waited longest.
//! - A core that posts a short event to a color of a core that sleeps takes that color over, which
//!   costs less than to wake its owner.
//! - There is no select callback of color 0: each core has a ring of its own.

#![cfg_attr(
    loom,
    allow(
        dead_code,
        unused_imports,
        reason = "threads and I/O are left out, and with them the users of some of the rest"
    )
)]

#[cfg(not(target_os = "linux"))]
compile_error!(
    "mely runs on Linux only: its event source is io_uring (or epoll) and its topology is sysfs"
);

mod ablation;
#[cfg(not(loom))]
pub mod aio;
mod ask;
mod bounded;
mod callback;
mod clock;
mod color;
mod colored;
mod cx;
mod event;
mod gate;
mod handler;
mod hold;
mod host;
mod in_color;
#[cfg(not(loom))]
mod io;
mod memory;
#[cfg(loom)]
#[doc(hidden)]
pub mod model;
#[cfg(not(loom))]
pub mod net;
#[cfg(feature = "tracing")]
mod notice;
mod policy;
mod post;
mod random;
mod record;
mod rejected;
#[cfg(not(loom))]
mod runtime;
mod sched;
mod shared;
#[cfg(feature = "sim")]
pub mod sim;
mod sync;
mod task;
mod together;

pub use crate::ask::{JoinError, JoinHandle, join_all};
pub use crate::bounded::backlog::{Backlog, Shed};
pub use crate::bounded::reserve::Reserve;
pub use crate::bounded::{Bounded, Permit};
pub use crate::callback::Callback;
pub use crate::color::Color;
pub use crate::colored::Colored;
#[cfg(not(loom))]
pub use crate::colored::weak::WeakColored;
pub use crate::cx::Cx;
pub use crate::handler::Handler;
pub use crate::hold::Hold;
pub use crate::host::cx::UniqueColor;
pub use crate::host::panics::{OnPanic, PanicReport};
#[cfg(not(loom))]
pub use crate::host::pool::SlowBlocking;
pub use crate::host::poster::Poster;
pub use crate::host::profile::{HandlerProfile, Learned, Profile, Recommendation, StealProfile};
pub use crate::host::stage::Stage;
pub use crate::host::stats::{BlockingStats, ColorDepth, CoreStats, Stats, StealStats};
pub use crate::host::unfinished::{Obstacle, Unfinished};
pub use crate::host::watchdog::SlowHandler;
pub use crate::policy::{Heuristics, Stealing};
pub use crate::post::Post;
#[cfg(feature = "record")]
pub use crate::record::{RecordingState, RecordingStats};
pub use crate::rejected::{Reason, Rejected};
#[cfg(not(loom))]
pub use crate::runtime::builder::{BuildError, Builder, Cores};
#[cfg(not(loom))]
pub use crate::runtime::{Finish, RunError, Runtime};
pub use crate::task::ambient::{try_with_cx, with_cx};
#[cfg(not(loom))]
pub use crate::task::time::{Elapsed, Sleep, Stopping, sleep, stopping, timeout, yield_now};
pub use crate::together::read_states::ReadStates;
pub use crate::together::states::States;
pub use mely_topology as topology;

#[doc = include_str!("../docs/promises.md")]
pub mod promises {}

#[doc = include_str!("../docs/checks.md")]
pub mod checks {}

#[doc = include_str!("../docs/recording.md")]
pub mod recordings {}

#[doc = include_str!("../docs/coming-from.md")]
pub mod coming_from {}

/// The README's examples compile.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
