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
use super::queues::EVENT_NS;
use super::stealing_queue::Band;
use crate::color::SlotId;
use crate::event::fifo::Fifo;

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

/// For how long a color has run without ever being finished: what its turns were estimated to take,
/// since it last had no events left.
///
/// What has lasted is expected to last as long again. A color that posts to itself has a single
/// event queued, of some nanoseconds, whenever it is looked at: by that it would never be worth
/// stealing, however long it goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Endurance(u16);

impl Endurance {
    pub(crate) const NONE: Endurance = Endurance(0);
    /// What one unit of it stands for.
    const UNIT_NS: u64 = 128;
    /// The least that is the [most](Self::most).
    const MOST_MIN_NS: u64 = 16_384;
    /// From here on it is likely to keep a core busy for longer than a steal takes.
    const LASTS: u64 = 2_048;

    /// Beyond this, all that go on count the same: what is shared are colors and not their pasts.
    /// It is at least what a wake-up costs (up to 8 ms), or nobody would ever be woken for them.
    pub(crate) fn most(wake_cost_ns: u64) -> Endurance {
        let units = wake_cost_ns
            .max(Endurance::MOST_MIN_NS)
            .div_ceil(Endurance::UNIT_NS);
        Endurance(u16::try_from(units).unwrap_or(u16::MAX))
    }

    /// As it is after one more turn.
    #[inline]
    pub(crate) fn and(self, turn_ns: u64, most: Endurance) -> Endurance {
        let turn = turn_ns.div_ceil(Endurance::UNIT_NS);
        Endurance((u64::from(self.0) + turn).min(most.0.into()) as u16)
    }

    #[inline(always)]
    pub(crate) fn ns(self) -> u32 {
        u32::from(self.0) * Endurance::UNIT_NS as u32
    }

    #[inline(always)]
    pub(crate) fn lasts(self) -> bool {
        self.0 >= (Endurance::LASTS / Endurance::UNIT_NS) as u16
    }
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
        self.fifo.raw_ns().saturating_add(self.endurance.ns())
    }

    /// What it has to do, in ns: the same, and what the scheduler takes for its events.
    pub(crate) fn load_ns(&self) -> u64 {
        u64::from(self.worth_ns()) + u64::from(self.fifo.len()) * EVENT_NS
    }

    /// [`worth_ns`](Self::worth_ns) divided by penalties, in ns.
    #[inline(always)]
    pub(crate) fn penalized_ns(&self) -> u32 {
        let times = self.fifo.times();
        let (raw_ns, penalized_ns) = (times.raw_ns(), times.penalized_ns());
        let expected_ns = self.endurance.ns();
        let expected_ns = if raw_ns == penalized_ns {
            expected_ns
        } else {
            (u64::from(expected_ns) * u64::from(penalized_ns) / u64::from(raw_ns.max(1))) as u32
        };
        penalized_ns.saturating_add(expected_ns)
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
            in_core_queue: Links::NONE,
            in_band: Links::NONE,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn endurance_is_counted_in_units_up_to_a_bound() {
        let after = |ns| Endurance::NONE.and(ns, Endurance::most(0));
        assert_eq!(
            [0, 1, 128, 129].map(|ns| after(ns).ns()),
            [0, 128, 128, 256]
        );
        assert_eq!(after(129).and(1, Endurance::most(0)).ns(), 384);
        assert_eq!(
            [16_384, 16_385, 1 << 40].map(|ns| after(ns).ns()),
            [16_384; 3]
        );
        assert_eq!([1_920, 1_921].map(|ns| after(ns).lasts()), [false, true]);
    }

    #[test]
    fn a_color_has_its_events_and_what_they_cost_to_do() {
        let mut queue = ColorQueue::new();
        queue.endurance = Endurance::NONE.and(128, Endurance::most(0));
        queue.fifo = Fifo::pretend(3, 10, 5);
        assert_eq!(queue.load_ns(), 10 + 128 + 3 * EVENT_NS);
    }

    #[test]
    fn a_color_is_worth_what_is_queued_and_what_is_expected() {
        let mut queue = ColorQueue::new();
        let mut worth = |endurance_ns, raw_ns, penalized_ns| {
            queue.endurance = Endurance::NONE.and(endurance_ns, Endurance::most(0));
            queue.fifo = Fifo::pretend(1, raw_ns, penalized_ns);
            (queue.worth_ns(), queue.penalized_ns())
        };
        assert_eq!(worth(0, 100, 10), (100, 10));
        assert_eq!(worth(1_280, 100, 100), (1_380, 1_380));
        // Expected events are as penalized as the queued ones.
        assert_eq!(worth(1_280, 1_000, 100), (2_280, 228));
        assert_eq!(worth(1_280, 0, 0), (1_280, 1_280));
        assert_eq!(worth(1_280, u32::MAX, u32::MAX), (u32::MAX, u32::MAX));
    }
}
