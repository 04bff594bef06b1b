//! mely: an event-coloring runtime.
//!
//! See `DESIGN` below for the map of the crate.

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

mod callback;
mod color;
mod colored;
mod handler;
#[cfg(not(loom))]
pub mod io;
#[cfg(loom)]
#[doc(hidden)]
pub mod model;
mod runtime;
mod sched;
mod sync;

pub use crate::callback::Callback;
pub use crate::color::Color;
pub use crate::colored::{Colored, Refused};
pub use crate::handler::Handler;
pub use crate::runtime::builder::{BuildError, Builder, Cores};
pub use crate::runtime::cx::{Cx, UniqueColor};
pub use crate::runtime::panics::{OnPanic, PanicReport};
pub use crate::runtime::poster::{PostError, Poster};
pub use crate::runtime::stats::{CoreStats, Stats, StealStats};
pub use crate::runtime::{Finish, RunError, Runtime};
pub use crate::sched::policy::{Heuristics, Stealing};
pub use mely_topology as topology;
