//! What a core's critical sections judge by: worked out now and then, because what steals cost
//! moves slowly.

use crate::color::{ColorMap, SlotId};
use crate::policy::Policy;
use crate::policy::quantum::Quantum;
use crate::policy::worth::Endurance;
use crate::shared::Shared;

/// See the module text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// What a steal by the nearest thief costs, in ns: bands are multiples of it.
    pub(crate) cost_ns: u64,
    /// What is worth less is in no band, in ns.
    pub(crate) worthy_ns: u32,
    pub(crate) quantum: Quantum,
    /// The most that [`Endurance`] counts up to.
    pub(crate) endurance_most: Endurance,
    /// The first control slot.
    pub(crate) controls_first: SlotId,
}

impl Limits {
    /// With steals by the nearest thief, and wake-ups, that cost this much.
    pub(crate) fn new(cost_ns: u64, wake_cost_ns: u64, policy: &Policy, map: ColorMap) -> Limits {
        Limits {
            cost_ns,
            worthy_ns: policy.worthy_ns(cost_ns),
            quantum: Quantum::new(cost_ns, policy),
            endurance_most: Endurance::most(wake_cost_ns),
            controls_first: map.control_first(),
        }
    }

    /// For how long a quantum that begins now may last, in ns.
    #[inline(always)]
    pub(crate) fn quantum_ns(&self, shared: &Shared) -> u32 {
        // In models both are the same, and which core is idle would only add to what there is to
        // explore.
        let idle = cfg!(loom) || shared.policy.stealing.enabled && shared.idle.any();
        self.quantum.ns(idle)
    }
}
