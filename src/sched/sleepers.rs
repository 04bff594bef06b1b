//! Which cores sleep, and the protocol of sleeping.
//!
//! **To sleep**, a core (1) turns its mailbox word from `EMPTY` to `PARKED`; mail that came first
//! makes this fail; (2) sets its bit here; (3) fences; (4) looks once more at what could be stolen
//! from the others; (5) waits in the kernel for its doorbell, a completion or a timer.
//!
//! **To make work known**, a core (1) publishes its hint; (2) fences; (3) looks for a set bit; (4)
//! turns that core's mailbox word from `PARKED` to `EMPTY`, and if it was the one who did, rings.
//!
//! The two fences are each between the own write and the look at the other's, so at least one of the
//! two sees the other: the sleeper finds the hint or the waker finds the sleeper. A poke needs
//! neither: it goes into the mailbox word itself, which says whether to ring. Doorbells ring after
//! unlocking, and a doorbell that rings before the wait makes the wait return at once.
//!
//! A wake-up costs the waker some 7 us here, more than a request: so the hint must promise more than
//! that, and one wake-up at a time is under way; who was woken wakes the next if there is still
//! more than it can do.

use crate::sync::atomic::{AtomicU64, Ordering};

/// A bit a core.
#[derive(Debug)]
pub(crate) struct Sleepers(Box<[AtomicU64]>);

impl Sleepers {
    pub(crate) fn new(cores: usize) -> Sleepers {
        Sleepers((0..cores.div_ceil(64)).map(|_| AtomicU64::new(0)).collect())
    }

    pub(crate) fn set(&self, core: u32) {
        self.0[core as usize / 64].fetch_or(1 << (core % 64), Ordering::AcqRel);
    }

    pub(crate) fn clear(&self, core: u32) {
        self.0[core as usize / 64].fetch_and(!(1 << (core % 64)), Ordering::AcqRel);
    }

    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.0.iter().any(|word| word.load(Ordering::Acquire) != 0)
    }

    pub(crate) fn contains(&self, core: u32) -> bool {
        self.0[core as usize / 64].load(Ordering::Acquire) & (1 << (core % 64)) != 0
    }
}
