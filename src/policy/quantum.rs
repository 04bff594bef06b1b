//! How long a quantum is, what it takes from the core-queue, and how many events a turn has.

use super::Policy;
use super::numbers::{BAND_TIMES, BATCH_ALONE_EVENTS, STEAL_NS};
use crate::ablation::{Rule, without};

/// The least quantum while no core is idle, and how long a color has gone on that is taken to last:
/// as much as is worth a steal of the second band. A core that becomes idle during such a quantum
/// waits for its end, which takes about as long as one or two system calls.
pub(crate) const QUANTUM_BUSY_NS: u32 = BAND_TIMES as u32 * STEAL_NS;

/// How long a quantum is, in ns: what is not worth stealing may be hidden from thieves, and at
/// least enough to make up for taking the lock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Quantum {
    /// While a core is idle.
    pub(crate) least_ns: u32,
    /// While none is.
    busy_ns: u32,
}

impl Quantum {
    /// Where a steal by the nearest thief costs this much.
    pub(crate) fn new(steal_cost_ns: u64, policy: &Policy) -> Quantum {
        let least_ns = (steal_cost_ns as u32).max(STEAL_NS);
        let busy_ns = if without(Rule::BusyQuantum) {
            least_ns
        } else {
            least_ns.max(policy.quantum_busy_ns)
        };
        Quantum { least_ns, busy_ns }
    }

    /// For how long one that begins now may last. `idle`: a core would come for what it hides.
    #[inline(always)]
    pub(crate) fn ns(self, idle: bool) -> u32 {
        if idle { self.least_ns } else { self.busy_ns }
    }
}

/// What a quantum has taken from the core-queue so far.
#[derive(Debug, Default)]
pub(crate) struct Taking {
    pub(crate) quantum_ns: u64,
    /// Most colors.
    pub(crate) room: usize,
    pub(crate) colors: u32,
    /// What their next turns take, unpenalized, in ns.
    pub(crate) taken_ns: u64,
}

impl Taking {
    /// Whether the next color, whose turn takes so long, fits; then it is added. The first one does
    /// in any case. `alone`: it drags memory along and had events left after its last turn, so that
    /// its turn is to take the whole quantum.
    #[inline(always)]
    pub(crate) fn fits(&mut self, turn_ns: u64, alone: bool) -> bool {
        self.taken_ns += turn_ns;
        if self.colors > 0
            && (alone || self.taken_ns > self.quantum_ns || self.colors as usize == self.room)
        {
            return false;
        }
        if alone {
            self.taken_ns = self.quantum_ns + 1;
        }
        self.colors += 1;
        true
    }

    /// What is left of the quantum, in ns. Negative if it is over, or if others wait.
    #[inline(always)]
    pub(crate) fn left_ns(&self, waits: bool) -> i64 {
        if waits {
            return -1;
        }
        self.quantum_ns as i64 - self.taken_ns as i64
    }
}

/// How many of a core's colors that last a quantum takes at most: half of them while a core could
/// come for the rest, which thieves would never see if all fitted into one quantum.
pub(crate) fn lasting_max(lasting: u32, wanted: bool) -> u32 {
    if wanted && !without(Rule::HalfLasting) {
        lasting.div_ceil(2)
    } else {
        u32::MAX
    }
}

/// How many events the turn of the only color of a checkout has at most. `waits`: others are
/// queued; `drags`: what its next events work on is in the caches, see [`super::head`]. The quantum
/// ends the turn all the same, so that mail is not left for longer.
#[inline(always)]
pub(crate) fn turn_events(batch: u32, waits: bool, drags: bool) -> u32 {
    if (!waits || drags) && !without(Rule::Undisturbed) {
        batch.max(BATCH_ALONE_EVENTS)
    } else {
        batch
    }
}
