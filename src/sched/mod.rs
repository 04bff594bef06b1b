//! The heart: pure scheduling. No threads, no I/O, no clock of its own.
//!
//! Read in this order: [`step`] is one step of one core; [`core`] is that core; [`exchange`] is
//! what it does under its lock once a quantum: return, flush, take mail, check out; [`checkout`] is
//! what it runs without the lock; [`section`] is the critical section, where colors are linked and
//! change owner.
//!
//! The papers' structures: [`color_queue`] is a color with its events ([`crate::event::fifo`]),
//! [`core_queue`] the colors of a core in the order of their turns, [`stealing_queue`] those of
//! them that are worth a steal; both link through the colors by the one [`list`], and [`colors`] is
//! the only way to a color's private part.
//!
//! [`mail`] and [`poke`] are how events reach a color on another core; [`steal`], [`victim`] and
//! [`sleepers`] are what an idle core does, and [`levelling`] what a busy one does beside a busier.
//!
//! [`together`] posts to several colors at once. [`waiting`] is how a color is held: its events
//! then ask a gate ([`crate::gate`]).
//!
//! What can never happen: two cores in one color; two events of a color out of the order of their
//! posts; a color with events that no list, mailbox or checkout leads to; a core asleep with mail;
//! a lock held while user code runs.

pub(crate) mod checkout;
#[cfg(all(test, not(loom)))]
mod choices;
pub(crate) mod color_queue;
mod colors;
pub(crate) mod core;
mod core_queue;
pub(crate) mod depth;
mod exchange;
pub(crate) mod foreign;
mod hint;
mod levelling;
pub(crate) mod limits;
mod list;
pub(crate) mod mail;
pub(crate) mod outbox;
pub(crate) mod poke;
pub(crate) mod policy;
mod progress;
pub(crate) mod queues;
pub(crate) mod section;
pub(crate) mod shared;
pub(crate) mod sleepers;
pub(crate) mod slots;
pub(crate) mod stats;
pub(crate) mod steal;
mod stealing_queue;
pub(crate) mod step;
mod timing;
pub(crate) mod together;
mod victim;
pub(crate) mod vigil;
mod waiting;
pub(crate) mod wish;
