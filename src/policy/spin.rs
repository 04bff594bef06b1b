//! How long an idle core spins before it sleeps.
//!
//! To spin costs the core, and whoever shares the processor; to sleep costs the wake-up. What is
//! right depends on how long the core will be idle, which the program decides: so a core goes by
//! its last sleeps. One that was over before the longest spin would have been
//! ([`Builder::spin`](crate::Builder::spin)) says that spinning would have met it, and the core
//! spins for longer next time. One that lasted says that all spinning before it was in vain, and
//! the core spins for half as long; below the shortest wake-up it sleeps at once.

use super::numbers::COARSE_NS;
use crate::ablation::{Rule, without};

/// See the module text. All times are in ns.
#[derive(Debug)]
pub(crate) struct Spin {
    longest_ns: u64,
    /// For how long it spins at present.
    pub(crate) limit_ns: u64,
    /// When its steps began to find nothing.
    pub(crate) idle_since_ns: Option<u64>,
}

impl Spin {
    pub(crate) fn new(longest_ns: u64) -> Spin {
        Spin {
            longest_ns,
            limit_ns: longest_ns,
            idle_since_ns: None,
        }
    }

    /// A step has run something.
    #[inline]
    pub(crate) fn has_run(&mut self) {
        self.idle_since_ns = None;
    }

    /// A step has found nothing. Whether to go on spinning.
    pub(crate) fn goes_on(&mut self, now_ns: u64) -> bool {
        let since_ns = *self.idle_since_ns.get_or_insert(now_ns);
        now_ns - since_ns < self.limit_ns
    }

    /// The core has slept.
    pub(crate) fn has_slept(&mut self, now_ns: u64) {
        let Some(since_ns) = self.idle_since_ns.take() else {
            return;
        };
        if without(Rule::Spin) {
            return;
        }
        let least_ns = self.longest_ns.min(COARSE_NS.into());
        self.limit_ns = if now_ns - since_ns <= self.longest_ns {
            self.limit_ns
                .saturating_mul(2)
                .clamp(least_ns, self.longest_ns)
        } else if self.limit_ns > least_ns {
            self.limit_ns / 2
        } else {
            0
        };
    }

    /// The core was about to sleep, and does not.
    pub(crate) fn stays(&mut self) {
        self.idle_since_ns = None;
    }
}
