//! The runtime from its settings to its end: limits, reports, panics, the drain.

#[path = "../common/mod.rs"]
mod common;

mod drain;
mod keep_alive;
mod limits;
mod panics;
mod profile;
mod shutdown;
mod watch;
