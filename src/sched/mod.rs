//! The scheduler. No threads, no I/O, no clock of its own.
//!
//! Read in this order: [`step`] is one step of one core, and the heart of it all; [`core`] is that
//! core; [`exchange`] is what it does under its lock once a quantum: return, flush, take mail,
//! check out; [`checkout`] is what it runs without the lock; [`outbox`] what it has posted and not
//! published yet; [`ledger`] how much it has posted and executed; [`section`] is the critical
//! section, where colors are linked and change owner.
//!
//! [`steal`] and [`victim`] are what an idle core does, [`levelling`] what a busy one does beside a
//! busier; [`takeover`] takes from those that sleep, and [`waking`] wakes them; [`retiring`]
//! passes on what a core has that does not work. [`timing`] is how a core knows what its handlers
//! take, and what it does before a long one.
//! [`together`] posts to several colors at once. [`holding`] is how a color is held: its events
//! then ask a gate ([`crate::gate`]). [`depth`] is for reports, and [`recording`] for recordings.
//!
//! The papers' structures, and how cores reach each other, are in [`crate::shared`].
//!
//! What can never happen: two cores in one color; two events of a color out of the order of their
//! posts; published events that no list, checkout, loot, mailbox or gate leads to; a core asleep
//! while a poke is on its way to it; a lock held while user code runs.

pub(crate) mod checkout;
#[cfg(all(test, not(loom)))]
mod choices;
pub(crate) mod core;
pub(crate) mod depth;
mod exchange;
mod holding;
pub(crate) mod ledger;
mod levelling;
pub(crate) mod outbox;
mod recording;
mod retiring;
pub(crate) mod section;
pub(crate) mod steal;
pub(crate) mod step;
mod takeover;
mod timing;
pub(crate) mod together;
mod victim;
mod waking;
