//! mely: an event-coloring runtime.

pub mod io;
mod sync;
