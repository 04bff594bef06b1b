//! An event, and what is known of its handler, without any scheduling.
//!
//! In memory: [`node`] is an event with its closure, [`fifo`] is events in a row, those of the
//! color that runs included, [`pool`] is where nodes come from, [`vtable`] runs and drops a closure
//! of each type, [`prefetch`] is what is asked for before its turn. What handlers take: [`profile`]
//! is learned of each handler and closure type, [`profile_cache`] is a thread's way to it,
//! [`times`] is what events add up to, [`counts`] is how many ran. [`maker`] puts the two together:
//! it makes the event of a post; [`makers`] are those of threads that are no cores.

pub(crate) mod counts;
pub(crate) mod fifo;
pub(crate) mod maker;
pub(crate) mod makers;
pub(crate) mod node;
pub(crate) mod pool;
pub(crate) mod prefetch;
pub(crate) mod profile;
pub(crate) mod profile_cache;
pub(crate) mod tag;
pub(crate) mod times;
pub(crate) mod vtable;
