//! What is worth a wake-up, what is run by its poster instead, and how many cores search.

use super::Policy;
use crate::ablation::{Rule, without};

/// Whether work of this worth, or an event that takes so long, is worth a wake-up. Of an event: it
/// is *long*, and nothing is to wait behind it.
#[inline(always)]
pub(crate) fn is_worth_waking(ns: u64, wake_cost_ns: u64) -> bool {
    ns >= wake_cost_ns
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
