//! An event-coloring runtime: events of one color run one at a time and in order, events of
//! different colors run in parallel, and an idle core steals whole colors.
//!
//! A program is a set of event handlers. Every event carries a [`Color`], any 64-bit key: a
//! connection, a session, a document. State that belongs to a color is handed to its events as
//! `&mut T` ([`Colored`]), so user code has no locks.
//!
//! ```
//! use mely::{Color, Colored, Handler, Runtime};
//! use std::time::Duration;
//!
//! // Annotations are optional: the runtime measures handlers that have none.
//! static WITHDRAW: Handler = Handler::new("withdraw").time(Duration::from_micros(1));
//!
//! let left = Runtime::builder().build()?.run_until(|cx, finish| {
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
//! # Rules
//!
//! - Every post names its color; colors are not inherited. The first event of a run has
//!   [`Color::DEFAULT`], 0.
//! - *Exclusion.* Two events of one color never overlap.
//! - *Order* is FIFO per poster and color, where a poster is one event or one foreign thread, and
//!   causal: if a post to a color happened before another post to it, through program order in
//!   events, posts, and succession in a color, its event runs first, and its writes are visible to
//!   the later event. A signal past the runtime, by an atomic, a channel or an event of another
//!   runtime, counts only after [`Cx::flush`].
//! - Posting never runs user code and never waits for a handler or for room.
//! - Two large colors may share one of the color slots (65,536 by default): that costs parallelism,
//!   not correctness. The mapping differs from runtime to runtime, so clients who choose keys
//!   cannot choose them to collide.
//! - A panic ends its event, and the run goes on ([`OnPanic`](runtime::OnPanic)): state that the
//!   event had is poisoned, its connection is reset, its holds end.
//! - A run ends when it is asked to ([`Cx::stop`]), after a drain in stages that has a deadline.
//!   Posts after that give their closure back.
//!
//! # Posting
//!
//! In a handler, `cx.post(color, f)` and `state.post(cx, f)` return nothing; at the limit of queued
//! events they go into a reserve ([`Builder::events_max`]). From anything that can post ([`Post`]:
//! a `cx`, a [`Poster`], a [`Hold`]) methods with `try_` give the closure back in [`Rejected`],
//! with the [`Reason`]. An operation without a color of its own, such as a timer, takes a
//! [`Callback`]: handler, color and closure in one.
//!
//! # Modules
//!
//! | | |
//! |---|---|
//! | the root | [`Runtime`], [`Cx`], [`Poster`], [`Colored`], [`Handler`], [`Hold`], [`JoinHandle`] |
//! | [`state`] | bounded colors, weak handles, unique colors, several states at once |
//! | [`task`] | futures: the context inside of them, time, joining |
//! | [`net`] | addresses, connections, listeners, datagrams, timers, signals, framing |
//! | [`fs`] | files and directories |
//! | [`aio`] | connections for futures; with the feature `hyper`, for hyper 1 |
//! | `dns` | with the feature `dns`: host names looked up by mely's own sockets |
//! | [`runtime`] | settings, panics, the end of a run |
//! | [`metrics`] | counters and profiles |
//! | `sim` | with the feature `sim`: the runtime on virtual cores, an order for each seed |
//! | [`topology`] | cores, caches and distances of the machine |
//!
//! # Sources
//!
//! libasync-smp (Zeldovich, Yip, Dabek, Morris, Mazieres, Kaashoek: *Multiprocessor Support for
//! Event-Driven Programs*, USENIX 2003) has the colors, the queue a core and the idea of stealing.
//! Mely (Gaud, Geneves, Lachaize, Lepers, Mottet, Muller, Quema: *Efficient Workstealing for
//! Multicore Event-Driven Systems*, ICDCS 2010) has the queue a color, the stealing-queue and the
//! three heuristics. docs/papers.md in the repository says what differs here, and why.

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
#[cfg(all(feature = "dns", not(loom)))]
pub mod dns;
mod event;
#[cfg(not(loom))]
pub mod fs;
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
pub mod runtime;
mod sched;
mod shared;
#[cfg(not(loom))]
mod signal;
#[cfg(feature = "sim")]
pub mod sim;
mod sync;
pub mod task;
#[cfg(all(feature = "tls", not(loom)))]
pub mod tls;
mod together;

pub use crate::ask::JoinHandle;
pub use crate::callback::Callback;
pub use crate::color::Color;
pub use crate::colored::Colored;
pub use crate::cx::Cx;
pub use crate::handler::Handler;
pub use crate::hold::Hold;
pub use crate::host::poster::Poster;
pub use crate::post::Post;
/// The file of a recording, byte by byte: for the crate that reads it.
#[cfg(feature = "record")]
#[doc(hidden)]
pub use crate::record::format as recording;
pub use crate::rejected::{Reason, Rejected};
#[cfg(not(loom))]
pub use crate::runtime::builder::Builder;
#[cfg(not(loom))]
pub use crate::runtime::{RunError, Runtime};
pub use mely_topology as topology;

/// State of colors: bounds on the events that wait for it, weak handles, several states at once.
pub mod state {
    pub use crate::bounded::{Bounded, Permit};
    #[cfg(not(loom))]
    pub use crate::colored::weak::WeakColored;
    pub use crate::host::cx::UniqueColor;
    pub use crate::together::read_states::ReadStates;
    pub use crate::together::states::States;
}

/// Children, and signals: [`Cx::on_signal`].
#[cfg(not(loom))]
pub mod process {
    pub use crate::net::child::{Child, spawn, stdio};
    pub use crate::signal::Signal;
}

/// Counters of a run, and profiles of its handlers: [`Poster::stats`], [`Poster::profile`].
pub mod metrics {
    pub use crate::host::profile::{HandlerProfile, Profile, StealProfile};
    pub use crate::host::stats::{BlockingStats, ColorDepth, CoreStats, Stats, StealStats};
    #[cfg(feature = "record")]
    pub use crate::record::{RecordingState, RecordingStats};
}

/// For models: what `runtime` has without threads.
#[cfg(loom)]
pub mod runtime {
    pub use crate::host::panics::{OnPanic, PanicReport};
    pub use crate::host::stage::Stage;
    pub use crate::host::unfinished::{Obstacle, Unfinished};
    pub use crate::host::watchdog::SlowHandler;
    pub use crate::policy::Stealing;
}

/// The README's examples compile.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

/// And those of the pages.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../docs/guide.md")]
    struct Guide;
    #[doc = include_str!("../docs/coming-from.md")]
    struct ComingFrom;
    #[doc = include_str!("../docs/recording.md")]
    struct Recordings;
}
