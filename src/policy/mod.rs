//! What the scheduler chooses, as functions of plain numbers: no atomics, no locks, no queues. The
//! scheduler looks at its queues and at the other cores, asks here, and does so. The sentences of
//! `docs/policy.md` are these functions.
//!
//! [`head`] says what goes first, [`quantum`] what is run at once, [`worth`] what a color is worth,
//! [`victim`] what a thief takes, [`wake`] which core is woken, [`spin`] how long an idle one
//! searches, and [`row`] whether posts of a long event wait. [`estimate`] is how means are learned.
//! All [`numbers`] are in one file. This one says which stealing algorithm runs: the papers' base
//! algorithm, each of Mely's heuristics alone, all of them, or none.

pub(crate) mod estimate;
pub(crate) mod head;
pub(crate) mod numbers;
pub(crate) mod quantum;
pub(crate) mod row;
pub(crate) mod spin;
#[cfg(all(test, not(loom)))]
mod tests;
pub(crate) mod victim;
pub(crate) mod wake;
pub(crate) mod worth;

use crate::ablation::{Rule, without};

/// Whether idle cores steal colors, and which of Mely's three heuristics they use; see
/// [`Builder::stealing`](crate::Builder::stealing).
///
/// Each heuristic can be switched on separately. With none of them, stealing is libasync-smp's
/// algorithm on Mely's structures: the core with the most queued events first, a victim needs two
/// colors, the first color with fewer than half of the events goes (Mely §II-B).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stealing {
    /// Whether idle cores steal at all. If not, colors stay where they were placed.
    pub enabled: bool,
    /// Victims by distance in the cache hierarchy instead of the fullest first (Mely §III-A).
    pub locality: bool,
    /// Only colors whose expected work outweighs the measured cost of stealing it (Mely §III-B),
    /// and those of a core that is stuck in a long handler.
    pub time_left: bool,
    /// Prefers colors of handlers that drag little memory along (Mely §III-C).
    pub penalty: bool,
}

impl Stealing {
    /// No stealing.
    pub const OFF: Stealing = Stealing {
        enabled: false,
        locality: false,
        time_left: false,
        penalty: false,
    };
    /// The base algorithm of libasync-smp: stealing without heuristics.
    pub const BASE: Stealing = Stealing {
        enabled: true,
        ..Stealing::OFF
    };
    /// The full algorithm: stealing with all heuristics.
    pub const ALL: Stealing = Stealing {
        enabled: true,
        locality: true,
        time_left: true,
        penalty: true,
    };

    /// Whether the stealing-queue is kept at all.
    pub(crate) fn uses_stealing_queue(self) -> bool {
        self.time_left || self.penalty
    }
}

impl Default for Stealing {
    /// [`ALL`](Self::ALL).
    fn default() -> Stealing {
        Stealing::ALL
    }
}

/// The policy as the scheduler reads it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Policy {
    pub(crate) stealing: Stealing,
    /// Most events of one color in a row (Mely §IV-A: 10).
    pub(crate) batch: u32,
    /// The least quantum while nobody is idle, in ns; see [`quantum`].
    pub(crate) quantum_busy_ns: u32,
}

impl Policy {
    /// Whether events that take this long together, and this long divided by their penalties, drag
    /// so much memory along that their color goes on, on the core that has it; see [`head`].
    #[inline(always)]
    pub(crate) fn drags(&self, raw_ns: u32, penalized_ns: u32) -> bool {
        self.stealing.time_left
            && self.stealing.penalty
            && !without(Rule::Drag)
            && worth::drags(raw_ns, penalized_ns)
    }

    /// The two-color rule of the base algorithm: what runs cannot be stolen, so a victim needs
    /// another color besides. With the time-left heuristic a thief takes a lone queued color too,
    /// else that would starve behind a long handler.
    pub(crate) fn needs_two_colors(&self) -> bool {
        !self.stealing.time_left
    }
}
