//! What steals have cost a core, by the distance of the victim.
//!
//! Each core keeps the moving average of its own steals, on a line of its own: one for all would be
//! written by every thief for each steal. A thief goes by its own; who decides which of its colors
//! are worth a steal, by those of its nearest thief.

use crate::sync::relaxed::{AtomicU32, Ordering};
use mely_topology::Distance;

/// Before anything was measured, in ns; and the bounds of what is believed.
pub(crate) const PRIOR_NS: u32 = 600;
const MIN_NS: u32 = 100;
const MAX_NS: u32 = 20_000;

/// See the module text. One writer: the core.
#[derive(Debug)]
pub(crate) struct StealCosts([AtomicU32; Distance::COUNT]);

impl StealCosts {
    pub(crate) fn new() -> StealCosts {
        StealCosts(std::array::from_fn(|_| AtomicU32::new(PRIOR_NS)))
    }

    /// What a steal over this distance costs, in ns for each color.
    #[inline]
    pub(crate) fn ns(&self, distance: Distance) -> u64 {
        self.0[distance.index()].load(Ordering::Relaxed).into()
    }

    /// The core has stolen: what each color of it took, in ns.
    pub(crate) fn record(&self, distance: Distance, ns: u64) {
        let cell = &self.0[distance.index()];
        let old = cell.load(Ordering::Relaxed);
        // A thief that lost its processor under way measured the system, not the steal.
        let ns = (ns.min(u64::from(old) * 8) as u32).clamp(MIN_NS, MAX_NS);
        let new = i64::from(old) + (i64::from(ns) - i64::from(old)) / 8;
        cell.store(new as u32, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn the_cost_follows_what_is_measured() {
        let costs = StealCosts::new();
        let cost = || costs.ns(Distance::SharedL1);
        assert_eq!(cost(), 600);
        let record = |ns| costs.record(Distance::SharedL1, ns);
        record(1_400);
        assert_eq!(cost(), 700, "by an eighth");
        record(300);
        assert_eq!(cost(), 650);
        // One that lost its processor under way counts no more than eight times.
        record(1 << 30);
        assert_eq!(cost(), 650 + (8 * 650 - 650) / 8);
        (0..1_000).for_each(|_| record(1));
        assert!((100..108).contains(&cost()), "{}", cost());
        (0..1_000).for_each(|_| record(1 << 40));
        assert!((19_900..=20_000).contains(&cost()), "{}", cost());
        assert_eq!(costs.ns(Distance::SharedL2), 600);
    }
}
