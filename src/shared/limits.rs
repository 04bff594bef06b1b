//! What a core's critical sections judge by: worked out now and then, because what steals cost
//! moves slowly.

use super::Shared;
use super::color_queue::Endurance;
use super::policy::Policy;
use super::wake_cost::WakeCost;
use crate::ablation::{Rule, without};
use crate::color::{ColorMap, SlotId};

/// The least quantum, in ns: some ten times what returning, flushing and checking out take.
pub(crate) const QUANTUM_MIN_NS: u32 = 600;
/// The least quantum while nobody would steal what it hides, because no core is idle or stealing is
/// off, in ns. A core that becomes idle during such a quantum waits for its end, which takes about
/// as long as one or two system calls.
pub(crate) const QUANTUM_BUSY_NS: u32 = 2_400;

/// See the module text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// What a steal by the nearest thief costs, in ns: bands are multiples of it.
    pub(crate) cost_ns: u64,
    /// What is worth less is in no band, in ns.
    pub(crate) worthy_ns: u32,
    /// What may be hidden from thieves at a time while there are any, in ns: what is not worth
    /// stealing, and at least enough to make up for taking the lock.
    pub(crate) quantum_ns: u32,
    /// The same while nobody is idle.
    pub(crate) quantum_busy_ns: u32,
    /// The most that [`Endurance`] counts up to.
    pub(crate) endurance_most: Endurance,
    /// The first control slot.
    pub(crate) controls_first: SlotId,
}

impl Limits {
    /// With steals by the nearest thief that cost this much.
    pub(crate) fn new(
        cost_ns: u64,
        policy: &Policy,
        wake_cost: &WakeCost,
        map: ColorMap,
    ) -> Limits {
        Limits {
            cost_ns,
            worthy_ns: policy.worthy_ns(cost_ns),
            quantum_ns: (cost_ns as u32).max(QUANTUM_MIN_NS),
            quantum_busy_ns: (cost_ns as u32).max(if without(Rule::BusyQuantum) {
                QUANTUM_MIN_NS
            } else {
                policy.quantum_busy_ns
            }),
            endurance_most: Endurance::most(wake_cost.ns()),
            controls_first: map.control_first(),
        }
    }

    /// For how long a quantum that begins now may last, in ns.
    #[inline(always)]
    pub(crate) fn quantum_ns(&self, shared: &Shared) -> u32 {
        // In models both are the same, and who is idle would only add to what there is to explore.
        if cfg!(loom) || shared.policy.stealing && shared.is_any_idle() {
            self.quantum_ns
        } else {
            self.quantum_busy_ns
        }
    }
}
