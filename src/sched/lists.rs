//! What a core lock guards: the core-queue and the stealing-queue.
//!
//! Both are doubly linked through the slots' indices, so linking needs no pointers and no `unsafe`
//! of its own; access to the private parts comes from [`super::section`].

use super::poke::Chain;
use super::queue::{Endurance, NIL};

/// Number of bands of the stealing-queue: Mely's three time-left intervals (§IV-B).
pub(crate) const BANDS: usize = 3;

/// What an event takes that is not worth stealing, in ns, roughly: the scheduler's part included, and
/// memory that has gone cold.
pub(crate) const EVENT_NS: u64 = 100;

/// Ends of a doubly linked list of slots.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ends {
    pub(crate) head: u32,
    pub(crate) tail: u32,
}

impl Ends {
    const EMPTY: Ends = Ends {
        head: NIL,
        tail: NIL,
    };
}

/// What a core's critical sections judge by. Worked out now and then, because what steals cost moves
/// slowly.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// What a steal by the nearest thief costs, in ns: bands are multiples of it.
    pub(crate) cost_ns: u64,
    /// What is worth less is in no band, in ns.
    pub(crate) worthy_ns: u32,
    /// What may be hidden from thieves at a time, in ns: what is not worth stealing, and at least
    /// enough to make up for taking the lock.
    pub(crate) quantum_ns: u32,
    /// An event that may last longer than a wake-up takes is checked out alone, in ns: what would wait
    /// behind it could be run sooner by a core that sleeps.
    pub(crate) alone_ns: u32,
    /// What a color that goes on and on is taken to last.
    pub(crate) endurance_most: Endurance,
    /// The first control slot.
    pub(crate) controls_first: u32,
}

/// The lists of one core.
#[derive(Debug)]
pub(crate) struct Lists {
    pub(crate) limits: Limits,
    /// The non-empty color-queues of this core, the next to run first (Mely §IV-A).
    pub(crate) core_queue: Ends,
    /// The worthy ones among them by penalized time-left, unordered within a band.
    pub(crate) bands: [Ends; BANDS],
    /// Colors in the core-queue.
    pub(crate) queued: u32,
    /// Control colors among them, which no thief may take.
    pub(crate) controls: u32,
    /// Events of the stealable colors in the core-queue.
    pub(crate) events: u64,
    /// Colors in the stealing-queue.
    pub(crate) worthy: u32,
    /// Their summed time-left, in ns.
    pub(crate) worth_ns: u64,
    /// A color of the core-queue some way behind its head, or [`NIL`]: see `Section::scout`.
    pub(crate) scout: u32,
    /// Stealable colors that last ([`super::queue::Endurance::lasts`]), in the core-queue.
    pub(crate) lasting: u32,
    /// Those that are checked out: of what is shared with a thief, the core's own part.
    pub(crate) lasting_out: u32,
    /// Events that are checked out, without the one that runs. Kept only where the two-color rule holds.
    pub(crate) events_out: u64,
    /// Pokes of colors that were checked out when they came: their mail is for the core's own thread, at
    /// its next exchange or flush.
    pub(crate) left: Chain,
}

impl Lists {
    pub(crate) fn new(limits: Limits) -> Lists {
        Lists {
            limits,
            core_queue: Ends::EMPTY,
            bands: [Ends::EMPTY; BANDS],
            queued: 0,
            controls: 0,
            events: 0,
            worthy: 0,
            worth_ns: 0,
            scout: NIL,
            lasting: 0,
            lasting_out: 0,
            events_out: 0,
            left: Chain::EMPTY,
        }
    }

    /// Colors of this core that last, its own part included.
    pub(crate) fn all_lasting(&self) -> u32 {
        self.lasting + self.lasting_out
    }

    /// What the core has to do that a thief could, in ns, its own part included.
    pub(crate) fn load_ns(&self) -> u64 {
        self.worth_ns + self.events * EVENT_NS + self.lasting_ns(self.lasting_out)
    }

    /// What so many colors that last are taken to last together.
    pub(crate) fn lasting_ns(&self, colors: u32) -> u64 {
        u64::from(colors) * u64::from(self.limits.endurance_most.ns())
    }

    /// Stealable colors that have events queued, as libasync-smp counts them: that which runs too.
    pub(crate) fn colors(&self) -> u32 {
        self.stealable() + u32::from(self.events_out > 0)
    }

    /// Colors in the core-queue that a thief may take.
    #[inline]
    pub(crate) fn stealable(&self) -> u32 {
        self.queued - self.controls
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// What is worth stealing, the events besides, and for each color of its own that lasts as much as is counted.
    #[test]
    fn the_load_is_what_a_thief_could_do() {
        let mut lists = Lists::new(Limits {
            cost_ns: 600,
            worthy_ns: 600,
            quantum_ns: 600,
            alone_ns: 10_000,
            endurance_most: Endurance::most(10_000),
            controls_first: 16,
        });
        (lists.worth_ns, lists.events, lists.lasting_out) = (1_000, 3, 2);
        assert_eq!(lists.load_ns(), 1_000 + 3 * 100 + 2 * 16_384);
    }
}
