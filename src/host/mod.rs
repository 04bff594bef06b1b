//! What drives [`crate::sched`] on each core, and what handlers and other threads reach it by.
//!
//! On a core: [`worker`] is its thread's loop, [`source`] what it waits for, [`cx`] the context
//! that handlers are given. [`sources`] has
//! what each core waits for, open to the others while it is inside an event. From elsewhere:
//! [`poster`] posts, [`quiesce`] ends, in the order of [`stage`], [`holding`] lets a color
//! wait, [`watchdog`] looks after cores that are in one handler for long. [`pool`] has the
//! threads for blocking work. [`inner`] is what they share, [`leftovers`] what
//! is dropped when all is over. [`stats`] and [`profile`] report, [`unfinished`] names the
//! obstacles to the end. [`panics`] ends events that panic, [`refused`] says why a state cannot be
//! had.

pub(crate) mod cx;
pub(crate) mod holding;
pub(crate) mod inner;
pub(crate) mod leftovers;
pub(crate) mod panics;
#[cfg(not(loom))]
pub(crate) mod pool;
pub(crate) mod poster;
pub(crate) mod profile;
mod profile_text;
pub(crate) mod quiesce;
pub(crate) mod source;
pub(crate) mod sources;
pub(crate) mod stage;
pub(crate) mod stats;
pub(crate) mod unfinished;
pub(crate) mod unique;
pub(crate) mod watchdog;
pub(crate) mod worker;
