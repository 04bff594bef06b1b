//! What a core lock guards: the core-queue and the stealing-queue, and what is known of the colors
//! that are checked out.

use super::core_queue::CoreQueue;
use super::limits::Limits;
use super::stealing_queue::StealingQueue;
use crate::color::SlotId;
use crate::policy::head::{Granted, Newest};
use crate::policy::worth;

/// See the module text.
#[derive(Debug)]
pub(crate) struct Queues {
    pub(crate) limits: Limits,
    pub(crate) core_queue: CoreQueue,
    pub(crate) stealing_queue: StealingQueue,
    /// Colors that last and are checked out: the core's part when colors are shared with a thief.
    pub(crate) lasting_out: u32,
    /// Events that are checked out, without the one that runs. Kept only where the two-color rule
    /// holds.
    pub(crate) events_out: u64,
    /// Pokes of colors that were checked out when they came: their mail is for the core's own
    /// thread, at its next exchange or flush. The oldest is the first.
    pub(crate) deferred: Vec<SlotId>,
    pub(crate) granted: Granted,
    pub(crate) newest: Newest,
}

impl Queues {
    pub(crate) fn new(limits: Limits) -> Queues {
        Queues {
            limits,
            core_queue: CoreQueue::default(),
            stealing_queue: StealingQueue::default(),
            lasting_out: 0,
            events_out: 0,
            deferred: Vec::new(),
            granted: Granted::default(),
            newest: Newest::default(),
        }
    }

    /// Colors of this core that last, its own part included.
    pub(crate) fn all_lasting(&self) -> u32 {
        self.core_queue.lasting + self.lasting_out
    }

    /// What the core has to do that a thief could, in ns: what its worthy colors are worth, some
    /// for each stealable event queued, and for the colors that it runs what those are taken to
    /// last.
    pub(crate) fn load_ns(&self) -> u64 {
        let worth_ns = self.stealing_queue.worth_ns + self.lasting_ns(self.lasting_out);
        worth::load_ns(worth_ns, self.core_queue.events)
    }

    /// What this many colors that last are taken to last together.
    pub(crate) fn lasting_ns(&self, colors: u32) -> u64 {
        u64::from(colors) * u64::from(self.limits.endurance_most.ns())
    }

    /// Stealable colors that have events queued, as libasync-smp counts them: what is checked out
    /// is one more, if it is more than the event that runs.
    pub(crate) fn colors_with_events(&self) -> u32 {
        self.core_queue.stealable() + u32::from(self.events_out > 0)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::color::{ColorMap, HashKey};
    use crate::policy::quantum::QUANTUM_BUSY_NS;
    use crate::policy::{Policy, Stealing};

    /// What is worth stealing, the events besides, and for each color of its own that lasts as much
    /// as is counted.
    #[test]
    fn the_load_is_what_a_thief_could_do() {
        let policy = Policy {
            stealing: Stealing::ALL,
            batch: 10,
            quantum_busy_ns: QUANTUM_BUSY_NS,
        };
        let map = ColorMap::new(4, 1, HashKey::from_seed(0));
        let mut queues = Queues::new(Limits::new(600, 20_480, &policy, map));
        queues.stealing_queue.worth_ns = 1_000;
        (queues.core_queue.events, queues.lasting_out) = (3, 2);
        assert_eq!(queues.load_ns(), 1_000 + 3 * 100 + 2 * 20_480);
    }
}
