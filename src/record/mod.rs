//! Recordings: what a run did, event by event, in a file of limited size. With the feature
//! `record`; without it [`off`] takes their place.
//!
//! A runtime is recorded if its builder says so ([`Builder::record`](crate::Builder::record)), and
//! a runtime that is not has nothing of it to ask or to count. How its events come to be recorded:
//!
//! - *Posts.* A thread that posts finds the profile of the closure in a front of what it found
//!   last ([`crate::event::profile_cache`]). While it records it leaves that front empty, so that
//!   each post comes by the slow way, which writes it down. The event gets the number of its post,
//!   in bits of its tag that nothing else uses ([`crate::event::tag`]).
//! - *Events.* A profile says by which function its events are run. In a runtime that is recorded
//!   it is one that writes down beginning and end around the event's own.
//! - *Steals, sleeps, wake-ups, holds* are seldom enough to ask whether there is a log.
//!
//! A thread writes into a [`Log`] of its own: a page in memory, which it appends to the file when
//! it is full. For each page a log has the [`Recorder`]'s promise that the file has room for it.
//! When no more can be promised the recording is *over*: each log writes what it has, and records
//! no more.

#[cfg(feature = "record")]
#[doc(hidden)]
pub mod format;
#[cfg(feature = "record")]
mod log;
#[cfg(not(feature = "record"))]
mod off;
#[cfg(feature = "record")]
mod recorder;
#[cfg(feature = "record")]
mod time;

#[cfg(feature = "record")]
pub(crate) use format::{Cause, Definition};
#[cfg(feature = "record")]
pub(crate) use log::Log;
#[cfg(all(not(feature = "record"), feature = "sim"))]
pub(crate) use off::Time;
#[cfg(not(feature = "record"))]
pub(crate) use off::{Cause, Definition, Log, Recorder};
#[cfg(feature = "record")]
pub(crate) use recorder::{Recorder, Setting};
#[cfg(feature = "record")]
pub use recorder::{RecordingState, RecordingStats};
#[cfg(all(feature = "record", feature = "sim"))]
pub(crate) use time::Time;

use crate::Color;

/// A color that was stolen.
#[derive(Debug)]
#[cfg_attr(
    not(feature = "record"),
    expect(dead_code, reason = "only a log reads it")
)]
pub(crate) struct Loot {
    pub(crate) color: Color,
    pub(crate) profile: usize,
    pub(crate) events: u64,
    pub(crate) left_ns: u64,
}
