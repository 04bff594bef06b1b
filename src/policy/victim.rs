//! Whether a victim is worth a visit, and how much of what it has a thief takes.

use super::Policy;
use super::numbers::LEVEL_PART;
use crate::ablation::{Rule, without};

/// Why a victim is worth a visit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Temptation {
    /// It has worthy colors.
    Worth,
    /// It is in a long event, or has been in one turn for longer than a steal costs: each of its
    /// colors is worth taking, whatever its time. (Not to libasync-smp, which knows no time.)
    Stuck,
}

/// Whether anything waits for a victim that may be stuck: stealable colors are queued, or pokes
/// have come. By the two-color rule only pokes count: what is not worth it may not be taken, stuck
/// or not.
#[inline]
pub(crate) fn may_be_stuck(policy: &Policy, stealable: u32, poked: impl FnOnce() -> bool) -> bool {
    stealable > 0 && !policy.needs_two_colors() || poked()
}

/// For how long a victim may be seen in one turn before it is stuck, in ns. One that sleeps has
/// been rung, or is about to be, and is given the time to wake up: else it would for nothing.
#[inline]
pub(crate) fn patience_ns(steal_cost_ns: u64, asleep: bool, wake_cost_ns: u64) -> u64 {
    if asleep {
        steal_cost_ns.max(wake_cost_ns)
    } else {
        steal_cost_ns
    }
}

/// Whether a victim is stuck that something waits for, and that was seen in one turn for so long.
#[inline]
pub(crate) fn is_stuck(in_long: bool, seen_ns: u64, patience_ns: u64) -> bool {
    in_long || seen_ns > patience_ns && !without(Rule::Sighting)
}

/// Whether a thief that has `thief_ns` worth takes a worthy color of `color_ns` from a victim that
/// has `victim_ns`, this color included: until both have the same. The thief ends ahead by one
/// color at most, and the victim has what it runs besides. A thief with nothing takes one in any
/// case.
#[inline]
pub(crate) fn shares(thief_ns: u64, color_ns: u64, victim_ns: u64) -> bool {
    thief_ns == 0 || thief_ns + color_ns <= victim_ns
}

/// Whether a thief that has `taken` colors worth `taken_ns` from a stuck victim, which had
/// `stealable` ones and none worthy, takes another: until it has half of them, or a steal's worth.
/// What is shared out into less costs more than it saves.
#[inline]
pub(crate) fn takes_of_stuck(
    taken: u32,
    taken_ns: u64,
    stealable: u32,
    steal_cost_ns: u64,
) -> bool {
    let half = if without(Rule::Half) {
        1
    } else {
        stealable.div_ceil(2)
    };
    taken < half || taken_ns < steal_cost_ns
}

/// Whether a core with `theirs` colors that last is to give some to a busy one with `ours`: that
/// are more by a part, so that many do not change sides without an end. Of three such colors on two
/// cores one does each time.
#[inline]
pub(crate) fn levels(theirs: u32, ours: u32) -> bool {
    theirs > ours + ours / LEVEL_PART
}
