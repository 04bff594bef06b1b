//! Which stealing algorithm runs: the papers' base algorithm, each of Mely's heuristics alone, all
//! of them, or none.

use super::stealing_queue::Band;
use crate::ablation::{Rule, without};
use crate::event::times::Times;

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
    /// The least quantum while nobody is idle, in ns; see [`super::limits`].
    pub(crate) quantum_busy_ns: u32,
}

impl Policy {
    /// A color with less time-left than this is in no band, in ns.
    #[inline]
    pub(crate) fn worthy_ns(&self, steal_cost_ns: u64) -> u32 {
        if !self.stealing || !self.heuristics.uses_stealing_queue() {
            return u32::MAX;
        }
        if self.heuristics.time_left {
            u32::try_from(steal_cost_ns).unwrap_or(u32::MAX)
        } else {
            0
        }
    }

    /// The band of a color of this worth, if it is worth stealing.
    ///
    /// Worthy by its worth, banded by its penalized time and never below the lowest band: a
    /// penalty is a preference, not a veto. Bands are \[1, 4), \[4, 16) and \[16, inf) steal costs.
    #[inline]
    pub(crate) fn band(
        &self,
        worth_ns: u64,
        penalized_ns: u64,
        steal_cost_ns: u64,
    ) -> Option<Band> {
        if !self.stealing || !self.heuristics.uses_stealing_queue() {
            return None;
        }
        if self.heuristics.time_left && worth_ns < steal_cost_ns {
            return None;
        }
        let time_ns = if self.heuristics.penalty {
            penalized_ns
        } else {
            worth_ns
        };
        Some(if time_ns >= 16 * steal_cost_ns {
            Band::High
        } else if time_ns >= 4 * steal_cost_ns {
            Band::Middle
        } else {
            Band::Low
        })
    }

    /// Whether events that take this long together drag so much memory along that their color goes
    /// on, on the core that has it; see [`super::newest`].
    #[inline(always)]
    pub(crate) fn drags(&self, times: Times) -> bool {
        self.heuristics.time_left && self.heuristics.penalty && !without(Rule::Drag) && times.drag()
    }

    /// The two-color rule of the base algorithm: what runs cannot be stolen, so a victim needs
    /// another color besides. With the time-left heuristic a thief takes a lone queued color too,
    /// else that would starve behind a long handler.
    pub(crate) fn needs_two_colors(&self) -> bool {
        !self.heuristics.time_left
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bands_follow_the_penalized_time_and_worth_the_raw_time() {
        let policy = Policy {
            stealing: true,
            heuristics: Heuristics::ALL,
            batch: 10,
            quantum_busy_ns: 600,
        };
        assert_eq!(policy.band(99, 99, 100), None);
        assert_eq!(policy.band(100, 100, 100), Some(Band::Low));
        assert_eq!(policy.band(400, 400, 100), Some(Band::Middle));
        assert_eq!(policy.band(1_600, 1_600, 100), Some(Band::High));
        // Penalized a thousandfold: last choice, yet worthy.
        assert_eq!(policy.band(1_600, 1, 100), Some(Band::Low));
        let time_only = Policy {
            heuristics: Heuristics {
                penalty: false,
                ..Heuristics::ALL
            },
            ..policy
        };
        assert_eq!(time_only.band(1_600, 1, 100), Some(Band::High));
        let off = Policy {
            stealing: false,
            ..policy
        };
        assert_eq!(off.band(1_600, 1_600, 100), None);
    }
}
