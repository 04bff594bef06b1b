//! A color's queue of events: the private part of its slot.
//!
//! ```text
//!            append (owner or thief, under the lock)         take (the same)
//!   Idle ---------------------------------------> Queued -------------------> CheckedOut
//!    ^                                              ^                              |
//!    |                    something left            +------------------------------+
//!    +-------------------------------- nothing left -------------------------------+
//! ```
//!
//! The private part belongs to whoever holds the lock of the owning core, always. Checking a color
//! out moves its events out of the slot and into the checkout of the thread that will run them, and
//! until it is returned the slot's FIFO stays empty: what comes meanwhile goes to the checkout or
//! stays in the mailbox ([`crate::sched::checkout`]). An `Idle` color may hold events for a moment:
//! one that was placed on another core is linked there when its poke arrives
//! ([`crate::sched::section`]).

use super::list::Links;
use crate::color::SlotId;
use crate::event::fifo::Fifo;
use crate::policy::worth::{self, Band, Endurance};

/// Where a color-queue is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum State {
    /// In no list.
    Idle = 0,
    /// In its owner's core-queue.
    Queued = 1,
    /// Taken out of its lists: by its owner's thread to be run without the lock, or by a thief.
    CheckedOut = 2,
}

/// A color that was taken out of its core's lists, to be run or by a thief; its events with it.
/// There is one for each color that is checked out, and it is given back under the owner's lock.
#[derive(Debug)]
#[must_use]
pub(crate) struct Taken {
    pub(crate) slot: SlotId,
    pub(crate) fifo: Fifo,
}

/// The private part of a color slot. All zero is an idle, empty queue.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct ColorQueue {
    pub(crate) fifo: Fifo,
    pub(crate) state: State,
    /// Where it is in the stealing-queue, if it is. Stored, because the steal cost that decided on
    /// it may have moved since.
    pub(crate) band: Option<Band>,
    /// See [`Endurance`].
    pub(crate) endurance: Endurance,
    /// Its place in the core-queue; while it is checked out, see [`ColorQueue::taken`].
    pub(crate) in_core_queue: Links,
    /// Its place in its band.
    pub(crate) in_band: Links,
}

impl ColorQueue {
    /// Time-left by which thieves judge, in ns: what is queued, and what is expected besides.
    #[inline(always)]
    pub(crate) fn worth_ns(&self) -> u32 {
        worth::worth_ns(self.fifo.raw_ns(), self.endurance)
    }

    /// What it has to do, in ns: the same, and what the scheduler takes for its events.
    pub(crate) fn load_ns(&self) -> u64 {
        worth::load_ns(self.worth_ns().into(), self.fifo.len().into())
    }

    /// [`worth_ns`](Self::worth_ns) divided by penalties, in ns.
    #[inline(always)]
    pub(crate) fn penalized_ns(&self) -> u32 {
        let times = self.fifo.times();
        worth::penalized_ns(times.raw_ns(), times.penalized_ns(), self.endurance)
    }

    /// Takes the events out of a color that is in no list any more, or that the caller is about to
    /// unlink.
    #[inline(always)]
    pub(crate) fn take_events(&mut self) -> Fifo {
        self.state = State::CheckedOut;
        self.in_core_queue = Links::note(self.fifo.len());
        self.fifo.take()
    }

    /// With how many events it was checked out, if it is. For reports: it may have run some of
    /// them.
    pub(crate) fn taken(&self) -> Option<u32> {
        (self.state == State::CheckedOut).then(|| self.in_core_queue.noted())
    }

    /// In no list and without events.
    #[inline(always)]
    pub(crate) fn is_unused(&self) -> bool {
        self.state == State::Idle && self.fifo.is_empty()
    }

    #[cfg_attr(not(loom), allow(dead_code))]
    pub(crate) fn new() -> ColorQueue {
        ColorQueue {
            fifo: Fifo::EMPTY,
            state: State::Idle,
            band: None,
            endurance: Endurance::NONE,
            in_core_queue: Links::default(),
            in_band: Links::default(),
        }
    }
}
