//! What steals have cost a core, by the distance of the victim.
//!
//! Each core keeps the moving average of its own steals, on a line of its own: one for all would be
//! written by every thief for each steal. A thief goes by its own; who decides which of its colors
//! are worth a steal, by those of its nearest thief.

use crate::policy::estimate::{believed, nearer};
use crate::policy::numbers::{EVENT_NS, MEAN_SAMPLES, STEAL_NS, UNKNOWN_NS};
use crate::sync::relaxed::{AtomicU32, Ordering};
use mely_topology::Distance;

/// See the module text. One writer: the core.
#[derive(Debug)]
pub(crate) struct StealCosts([AtomicU32; Distance::COUNT]);

impl StealCosts {
    pub(crate) fn new() -> StealCosts {
        StealCosts(std::array::from_fn(|_| AtomicU32::new(STEAL_NS)))
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
        let ns = believed(old, ns).clamp(EVENT_NS, UNKNOWN_NS);
        cell.store(nearer(old, ns, MEAN_SAMPLES), Ordering::Relaxed);
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
        assert_eq!(cost(), 650);
        record(330);
        assert_eq!(cost(), 630);
        // One that lost its processor under way counts for little more.
        record(1 << 40);
        assert_eq!(cost(), 630 + (7 * 630 + 800_u64).div_ceil(16));
        (0..1_000).for_each(|_| record(1));
        assert_eq!(cost(), 100);
        (0..1_000).for_each(|_| record(1 << 40));
        assert_eq!(cost(), 50_000);
        assert_eq!(costs.ns(Distance::SharedL2), 600);
    }
}
