//! What the lock of a core guards: the paper's queues, and the colors that they link.
//!
//! [`core_queue`] is a core's colors in the order of their turns, [`stealing_queue`] those of them
//! that are worth a steal, by what [`crate::policy`] says and [`limits`] works out. [`color_queue`]
//! is a color with its events ([`crate::event::fifo`]). All link through the colors by the one
//! [`list`]. A color lies in one of the [`slots`]; beside its queue are words that any core writes,
//! the [`wish`] among them. [`queues`] is all that one lock guards.

pub(crate) mod color_queue;
pub(crate) mod core_queue;
pub(crate) mod limits;
mod list;
pub(crate) mod queues;
pub(crate) mod slots;
pub(crate) mod stealing_queue;
pub(crate) mod wish;
