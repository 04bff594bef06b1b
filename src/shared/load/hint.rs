//! What a core's critical sections tell those that look at it without its lock.

use crate::shared::queue::queues::Queues;
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::sync::relaxed;

/// What there is to steal: read plainly by thieves and would-be sleepers; written
/// under the lock, but for `asked`.
#[derive(Debug, Default)]
pub(crate) struct Hint {
    worth_ns: AtomicU64,
    stealable: AtomicU32,
    queued: AtomicU32,
    lasting: relaxed::AtomicU32,
    asked: relaxed::AtomicU32,
    events: relaxed::AtomicU64,
}

impl Hint {
    #[inline]
    pub(crate) fn write(&self, worth_ns: u64, queues: &Queues) {
        let (queued, events) = (queues.core_queue.len, queues.core_queue.events);
        let stealable = queues.core_queue.stealable();
        let lasting = queues.all_lasting();
        // What is unchanged is not stored: others poll this line, and a store takes it from them
        // and costs a transfer each way. One writer at a time, under the lock, so what it reads is
        // the latest.
        if self.queued.load(Ordering::Relaxed) != queued {
            self.queued.store(queued, Ordering::Relaxed);
        }
        if self.lasting.load(Ordering::Relaxed) != lasting {
            self.lasting.store(lasting, Ordering::Relaxed);
        }
        if self.events.load(Ordering::Relaxed) != events {
            self.events.store(events, Ordering::Relaxed);
        }
        if self.stealable.load(Ordering::Relaxed) != stealable {
            self.stealable.store(stealable, Ordering::Relaxed);
        }
        if self.worth_ns.load(Ordering::Relaxed) != worth_ns {
            self.worth_ns.store(worth_ns, Ordering::Release);
        }
    }

    /// Time-left of the worthy colors in ns, as of the last critical section.
    #[inline]
    pub(crate) fn worth_ns(&self) -> u64 {
        self.worth_ns.load(Ordering::Acquire)
    }

    #[inline]
    pub(crate) fn stealable(&self) -> u32 {
        self.stealable.load(Ordering::Relaxed)
    }

    /// Colors in the core-queue, as of the last critical section. A thief may remove some, or link
    /// some whose mail it took: then it nudges the owner.
    #[inline]
    pub(crate) fn queued(&self) -> u32 {
        self.queued.load(Ordering::Relaxed)
    }

    /// Stealable colors that last, checked out or not.
    pub(crate) fn lasting(&self) -> u32 {
        self.lasting.load(Ordering::Relaxed)
    }

    /// Asks the core to leave some of the colors that last in its core-queue, or no longer.
    pub(crate) fn ask(&self, asked: bool) {
        if self.is_asked() != asked {
            self.asked.store(asked.into(), Ordering::Relaxed);
        }
    }

    pub(crate) fn is_asked(&self) -> bool {
        self.asked.load(Ordering::Relaxed) != 0
    }

    /// Stealable events: for the base algorithm's fullest-first order, for levelling, for reports.
    #[inline]
    pub(crate) fn events(&self) -> u64 {
        self.events.load(Ordering::Relaxed)
    }
}
