//! What a color is worth: its *time-left* (Mely section III-B), what its past says of its future,
//! and the band of the stealing-queue in which it is.

use super::Policy;
use super::numbers::{BAND_TIMES, DRAGS_PENALTY, EVENT_NS};
use super::quantum::QUANTUM_BUSY_NS;

/// For how long a color has run without ever being finished: what its turns were estimated to take,
/// since it last had no events left.
///
/// What has lasted is expected to last as long again. A color that posts to itself has a single
/// event queued, of some nanoseconds, whenever it is looked at: by that it would never be worth
/// stealing, however long it goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Endurance(u16);

impl Endurance {
    pub(crate) const NONE: Endurance = Endurance(0);
    /// What one unit of it stands for.
    const UNIT_NS: u64 = 128;

    /// Beyond this, all that go on count the same: what is shared are colors and not their pasts.
    /// It is what a wake-up costs (up to 8 ms), or no core would ever be woken for them.
    pub(crate) fn most(wake_cost_ns: u64) -> Endurance {
        let most_ns = wake_cost_ns.max(QUANTUM_BUSY_NS.into());
        let units = most_ns.div_ceil(Endurance::UNIT_NS);
        Endurance(u16::try_from(units).unwrap_or(u16::MAX))
    }

    /// As it is after one more turn.
    #[inline]
    pub(crate) fn and(self, turn_ns: u64, most: Endurance) -> Endurance {
        let turn = turn_ns.div_ceil(Endurance::UNIT_NS);
        Endurance((u64::from(self.0) + turn).min(most.0.into()) as u16)
    }

    #[inline(always)]
    pub(crate) fn ns(self) -> u32 {
        u32::from(self.0) * Endurance::UNIT_NS as u32
    }

    /// Whether it has gone on for longer than a quantum, and is likely to keep a core busy for
    /// longer than a steal takes.
    #[inline(always)]
    pub(crate) fn lasts(self) -> bool {
        self.0 >= (QUANTUM_BUSY_NS as u64 / Endurance::UNIT_NS) as u16
    }
}

/// The worth of a color, in ns: what its events take, and what is expected besides.
#[inline(always)]
pub(crate) fn worth_ns(raw_ns: u32, endurance: Endurance) -> u32 {
    raw_ns.saturating_add(endurance.ns())
}

/// The same divided by penalties. Expected events are as penalized as the queued ones.
#[inline(always)]
pub(crate) fn penalized_ns(raw_ns: u32, penalized_ns: u32, endurance: Endurance) -> u32 {
    let expected_ns = endurance.ns();
    let expected_ns = if raw_ns == penalized_ns {
        expected_ns
    } else {
        (u64::from(expected_ns) * u64::from(penalized_ns) / u64::from(raw_ns.max(1))) as u32
    };
    penalized_ns.saturating_add(expected_ns)
}

/// What there is to do, in ns: what it is worth, and what the scheduler takes for its events.
#[inline]
pub(crate) fn load_ns(worth_ns: u64, events: u64) -> u64 {
    worth_ns + events * u64::from(EVENT_NS)
}

/// Number of bands: Mely's three time-left intervals.
pub(crate) const BANDS: usize = 3;

/// A band. None of them is zero, so that all-zero memory is in no band.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Band {
    Low = 1,
    Middle,
    High,
}

impl Band {
    /// The highest first: that is the order in which thieves look.
    pub(crate) const ALL: [Band; BANDS] = [Band::High, Band::Middle, Band::Low];

    #[inline(always)]
    pub(crate) fn index(self) -> usize {
        self as usize - 1
    }
}

impl Policy {
    /// A color with less time-left than this is in no band, in ns.
    #[inline]
    pub(crate) fn worthy_ns(&self, steal_cost_ns: u64) -> u32 {
        if !self.stealing.enabled || !self.stealing.uses_stealing_queue() {
            return u32::MAX;
        }
        if self.stealing.time_left {
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
        if !self.stealing.enabled || !self.stealing.uses_stealing_queue() {
            return None;
        }
        if self.stealing.time_left && worth_ns < steal_cost_ns {
            return None;
        }
        let time_ns = if self.stealing.penalty {
            penalized_ns
        } else {
            worth_ns
        };
        Some(if time_ns >= BAND_TIMES * BAND_TIMES * steal_cost_ns {
            Band::High
        } else if time_ns >= BAND_TIMES * steal_cost_ns {
            Band::Middle
        } else {
            Band::Low
        })
    }
}

/// Whether what takes this long, and this long divided by its penalty, drags memory along: its
/// penalty is [`DRAGS_PENALTY`] or more. Less than that in ns is too little to tell.
#[inline(always)]
pub(crate) const fn drags(raw_ns: u32, penalized_ns: u32) -> bool {
    raw_ns >= DRAGS_PENALTY && penalized_ns <= raw_ns / DRAGS_PENALTY
}
