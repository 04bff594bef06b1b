//! What is worth a wake-up, what is run by its poster instead, and how many cores search.

use super::Policy;
use super::numbers::{COARSE_NS, MEAN_SAMPLES, UNKNOWN_NS, WAKE_TALLY};
use crate::ablation::{Rule, without};

/// Whether work of this worth, or an event that takes so long, is worth a wake-up. Of an event: it
/// is *long*, and nothing is to wait behind it.
#[inline(always)]
pub(crate) fn is_worth_waking(ns: u64, wake_cost_ns: u64) -> bool {
    ns >= wake_cost_ns
}

/// Whether a core that makes work known looks for a sleeper: if there is any, and no core searches,
/// which looks for more when it has found something.
#[inline]
pub(crate) fn looks_for_sleeper(
    asleep: impl FnOnce() -> bool,
    searching: impl FnOnce() -> bool,
) -> bool {
    asleep() && !searching()
}

/// A core that posts to a color of a core that sleeps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Poster {
    /// What it has to do, the post included, in ns.
    pub(crate) load_ns: u64,
    /// It is inside a long event, which the color would wait for.
    pub(crate) in_long: bool,
    pub(crate) is_retired: bool,
}

/// Whether that core becomes the color's owner instead of waking the present one: if it has less to
/// do than a wake-up takes.
#[inline]
pub(crate) fn takes_over(policy: &Policy, poster: Poster, wake_cost_ns: u64) -> bool {
    policy.stealing.enabled
        && policy.stealing.time_left
        && !without(Rule::Takeover)
        && !poster.is_retired
        && !poster.in_long
        && !is_worth_waking(poster.load_ns, wake_cost_ns)
}

/// How many of this number of cores, which share a cache and work, may search: unbounded searching
/// made other runtimes several times slower on work that wakes often.
#[inline]
pub(crate) fn searchers_max(working: u32) -> u32 {
    (working / 2).max(1)
}

/// Of the wake-ups of one core: how many more took longer than was thought than did not.
#[derive(Debug, Default)]
pub(crate) struct Tally(i8);

impl Tally {
    /// A wake-up took `took_ns` where `ns` was thought. Returns what is to be thought now, if that
    /// is something else.
    ///
    /// It comes to be the median: a wake-up that waited for a processor takes milliseconds, and a
    /// mean would remember it for long. And it is told to all cores only while it is wrong.
    pub(crate) fn count(&mut self, ns: u64, took_ns: u64) -> Option<u64> {
        if !super::estimate::differs(ns, took_ns) {
            return None;
        }
        self.0 += if took_ns > ns { 1 } else { -1 };
        if self.0.abs() < WAKE_TALLY {
            return None;
        }
        let part_ns = ns / u64::from(MEAN_SAMPLES);
        let moved_ns = if self.0 > 0 {
            ns + part_ns
        } else {
            ns - part_ns
        };
        self.0 = 0;
        Some(moved_ns.clamp(COARSE_NS.into(), UNKNOWN_NS.into()))
    }
}
