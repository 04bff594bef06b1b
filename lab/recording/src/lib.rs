//! Recordings of mely's runs: what they are in a file, and what they say.
//!
//! A runtime that is built with `Builder::record` writes down every event: its handler, its color,
//! its core, what it took, who had posted it and what it posted; and steals, sleeps, wake-ups and
//! holds. This crate reads that, for a summary ([`Recording::summary`]), for a timeline that
//! Perfetto opens ([`Recording::timeline`]), and for whoever wants to know what the same events
//! would do elsewhere: nothing is averaged. The program `mely-recording` prints both.
//!
//! mely writes by way of [`mod@format`], which is its own, so that the bytes are said once.

mod error;
mod input;
mod log;
mod model;
mod read;
mod summary;
mod table;
mod timeline;
mod together;

pub use crate::error::Error;
pub use crate::format::{Color, ColorKind};
pub use crate::model::{
    By, ColorId, Event, EventId, Handler, HandlerId, Hold, Post, PostId, Recording, Relation,
    Sleep, Steal, Stolen, Wake, Write,
};
pub use crate::summary::{
    CoreSummary, HandlerSummary, PostSummary, PostedBy, Quantiles, StealSummary, Summary,
};
pub use crate::timeline::Timeline;
/// The file, byte by byte.
pub use mely::recording as format;
