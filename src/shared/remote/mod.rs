//! How a core is reached by others, without its lock.
//!
//! [`mail`] is how events reach a color on another core, also without an outbox, [`poke`] how that
//! core is told, [`wishes`] what else is asked of a color. [`working`] says which cores are
//! retired.

pub(crate) mod mail;
pub(crate) mod poke;
pub(crate) mod wishes;
pub(crate) mod working;
