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

/// Mely's three heuristics, each of which can be switched on separately.
///
/// With none of them, stealing is libasync-smp's algorithm on Mely's structures: the core with the
/// most queued events first, a victim needs two colors, the first color with fewer than half of the
/// events goes (Mely §II-B).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Heuristics {
    /// Victims by distance in the cache hierarchy instead of the fullest first (Mely §III-A).
    pub locality: bool,
    /// Only colors whose expected work outweighs the measured cost of stealing it (Mely §III-B),
    /// and those of a core that is stuck in a long handler.
    pub time_left: bool,
    /// Prefers colors of handlers that drag little memory along (Mely §III-C).
    pub penalty: bool,
}

impl Heuristics {
    /// The full algorithm.
    pub const ALL: Heuristics = Heuristics {
        locality: true,
        time_left: true,
        penalty: true,
    };
    /// The base algorithm.
    pub const NONE: Heuristics = Heuristics {
        locality: false,
        time_left: false,
        penalty: false,
    };

    /// Whether the stealing-queue is kept at all.
    pub(crate) fn uses_stealing_queue(self) -> bool {
        self.time_left || self.penalty
    }
}

/// Whether and how idle cores steal; see [`Builder::stealing`](crate::Builder::stealing).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stealing {
    /// Colors stay where they were placed.
    Off,
    /// Idle cores steal with these heuristics.
    On(Heuristics),
}

impl Stealing {
    /// The base algorithm of libasync-smp.
    pub const BASE: Stealing = Stealing::On(Heuristics::NONE);
}

impl Default for Stealing {
    /// All heuristics.
    fn default() -> Stealing {
        Stealing::On(Heuristics::ALL)
    }
}

/// The policy as the scheduler reads it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Policy {
    pub(crate) stealing: bool,
    pub(crate) heuristics: Heuristics,
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
        self.heuristics.time_left
            && self.heuristics.penalty
            && !without(Rule::Drag)
            && worth::drags(raw_ns, penalized_ns)
    }

    /// The two-color rule of the base algorithm: what runs cannot be stolen, so a victim needs
    /// another color besides. With the time-left heuristic a thief takes a lone queued color too,
    /// else that would starve behind a long handler.
    pub(crate) fn needs_two_colors(&self) -> bool {
        !self.heuristics.time_left
    }
}
