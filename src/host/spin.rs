//! How long an idle core spins before it sleeps.
//!
//! To spin costs the core, and whoever shares the processor; to sleep costs the wake-up. What is
//! right depends on how long the core will be idle, which the program decides: so a core goes by
//! its last sleeps. One that was over before the longest spin would have been
//! ([`Builder::spin`](crate::Builder::spin)) says that spinning would have met it, and the core
//! spins for longer next time. One that lasted says that all spinning before it was in vain, and
//! the core spins for half as long; after some such sleeps it sleeps at once.

use crate::ablation::{Rule, without};

/// A first step, and the last one before nothing, is this part of the longest spin.
const STEPS: u64 = 8;

/// See the module text. All times are in ns.
#[derive(Debug)]
pub(super) struct Spin {
    longest_ns: u64,
    /// For how long it spins at present.
    limit_ns: u64,
    /// When its steps began to find nothing.
    idle_since_ns: Option<u64>,
}

impl Spin {
    pub(super) fn new(longest_ns: u64) -> Spin {
        Spin {
            longest_ns,
            limit_ns: longest_ns,
            idle_since_ns: None,
        }
    }

    /// A step has run something.
    #[inline]
    pub(super) fn has_run(&mut self) {
        self.idle_since_ns = None;
    }

    /// A step has found nothing. Whether to go on spinning.
    pub(super) fn goes_on(&mut self, now_ns: u64) -> bool {
        let since_ns = *self.idle_since_ns.get_or_insert(now_ns);
        now_ns - since_ns < self.limit_ns
    }

    /// When it does no longer, if nothing is found.
    #[cfg(feature = "machine")]
    pub(super) fn ends_ns(&self) -> u64 {
        self.idle_since_ns
            .map_or(u64::MAX, |since_ns| since_ns.saturating_add(self.limit_ns))
    }

    /// The core has slept.
    pub(super) fn has_slept(&mut self, now_ns: u64) {
        let Some(since_ns) = self.idle_since_ns.take() else {
            return;
        };
        if without(Rule::Spin) {
            return;
        }
        let step_ns = self.longest_ns / STEPS;
        self.limit_ns = if now_ns - since_ns <= self.longest_ns {
            self.limit_ns
                .saturating_mul(2)
                .clamp(step_ns, self.longest_ns)
        } else if self.limit_ns > step_ns {
            self.limit_ns / 2
        } else {
            0
        };
    }

    /// The core was about to sleep, and does not.
    pub(super) fn stays(&mut self) {
        self.idle_since_ns = None;
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Is idle for so long; for how much of that it spins.
    fn idle(spin: &mut Spin, idle_ns: u64) -> u64 {
        let began_ns = 1_000_000;
        let spun_ns = (0..idle_ns).take_while(|ns| spin.goes_on(began_ns + ns));
        let spun_ns = spun_ns.count() as u64;
        if spun_ns == idle_ns {
            spin.has_run();
        } else {
            spin.has_slept(began_ns + idle_ns);
        }
        spun_ns
    }

    #[test]
    fn who_sleeps_long_soon_sleeps_at_once_and_who_does_not_spins_again() {
        let mut spin = Spin::new(80);
        let spun: Vec<_> = (0..6).map(|_| idle(&mut spin, 1_000)).collect();
        assert_eq!(spun, [80, 40, 20, 10, 0, 0]);
        // The first two are met asleep.
        let spun: Vec<_> = (0..5).map(|_| idle(&mut spin, 30)).collect();
        assert_eq!(spun, [0, 10, 20, 30, 30]);
        // As long as the longest spin, and longer.
        let spun: Vec<_> = [80, 80, 81, 81].map(|ns| idle(&mut spin, ns)).into();
        assert_eq!(spun, [40, 80, 80, 40]);
    }

    #[test]
    fn who_never_spins_does_not_begin_to() {
        let mut spin = Spin::new(0);
        for idle_ns in [1, 1_000, 1] {
            assert_eq!(idle(&mut spin, idle_ns), 0);
        }
    }

    #[test]
    fn the_longest_spin_may_be_for_ever() {
        let mut spin = Spin::new(u64::MAX);
        assert!(spin.goes_on(1));
        spin.has_slept(2);
        assert!(spin.goes_on(3) && spin.goes_on(u64::MAX));
    }
}
