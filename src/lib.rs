//! mely: an event-coloring runtime.
