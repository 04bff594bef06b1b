//! Whether a victim is visited, and what is taken from it.

use super::{ALL, without};
use crate::policy::victim::{is_stuck, levels, may_be_stuck, patience_ns, shares, takes_of_stuck};

#[test]
fn a_victim_may_be_stuck_if_anything_waits_for_it() {
    let two_colors = without(false, true, false);
    for (policy, stealable, poked, may) in [
        (&ALL, 0, false, false),
        (&ALL, 1, false, true),
        (&ALL, 0, true, true),
        (&two_colors, 1, false, false),
        (&two_colors, 1, true, true),
    ] {
        assert_eq!(may_be_stuck(policy, stealable, || poked), may);
    }
}

#[test]
fn a_victim_is_stuck_in_a_long_event_or_after_a_steal_or_a_wake_up() {
    for (asleep, wake_cost_ns, patience) in [
        (false, 10_000, 600),
        (true, 10_000, 10_000),
        (true, 500, 600),
    ] {
        assert_eq!(patience_ns(600, asleep, wake_cost_ns), patience);
    }
    for (in_long, seen_ns, stuck) in [(false, 600, false), (false, 601, true), (true, 0, true)] {
        assert_eq!(is_stuck(in_long, seen_ns, 600), stuck);
    }
}

#[test]
fn worthy_colors_are_taken_until_both_have_the_same() {
    for (thief_ns, color_ns, victim_ns, takes) in [
        (0, 5_000, 5_000, true),
        (1_000, 1_000, 2_000, true),
        (1_001, 1_000, 2_000, false),
        (5_000, 1_000, 5_000, false),
    ] {
        assert_eq!(shares(thief_ns, color_ns, victim_ns), takes);
    }
}

#[test]
fn of_a_stuck_victim_half_is_taken_or_a_steal_s_worth() {
    for (taken, taken_ns, stealable, takes) in [
        (0, 0, 1, true),
        (1, 599, 2, true),
        (1, 600, 2, false),
        (1, 600, 3, true),
        (2, 1_000, 4, false),
        (9, 100, 4, true),
    ] {
        assert_eq!(takes_of_stuck(taken, taken_ns, stealable, 600), takes);
    }
}

#[test]
fn a_busy_core_takes_from_one_that_has_a_quarter_more() {
    for (theirs, ours, takes) in [
        (1, 0, true),
        (0, 0, false),
        (2, 1, true),
        (4, 3, true),
        (5, 4, false),
        (6, 4, true),
        (10, 8, false),
        (11, 8, true),
    ] {
        assert_eq!(levels(theirs, ours), takes, "{theirs} {ours}");
    }
}
