//! Which work wakes a core.

use super::{ALL, OFF, without};
use crate::policy::wake::{Poster, is_worth_waking, searchers_max, takes_over};

#[test]
fn work_is_worth_a_wake_up_from_its_cost_on() {
    assert_eq!(
        [9_999, 10_000].map(|ns| is_worth_waking(ns, 10_000)),
        [false, true]
    );
}

#[test]
fn a_poster_with_little_to_do_takes_over() {
    const IDLE: Poster = Poster {
        load_ns: 9_999,
        in_long: false,
        is_retired: false,
    };
    let loaded = Poster {
        load_ns: 10_000,
        ..IDLE
    };
    let in_long = Poster {
        in_long: true,
        ..IDLE
    };
    let retired = Poster {
        is_retired: true,
        ..IDLE
    };
    for (policy, poster, takes) in [
        (ALL, IDLE, true),
        (ALL, loaded, false),
        (ALL, in_long, false),
        (ALL, retired, false),
        (OFF, IDLE, false),
        (without(false, true, false), IDLE, false),
        (without(true, false, true), IDLE, true),
    ] {
        assert_eq!(takes_over(&policy, poster, 10_000), takes, "{poster:?}");
    }
}

#[test]
fn half_of_the_cores_may_search_and_one_in_any_case() {
    assert_eq!([0, 1, 2, 3, 4, 16].map(searchers_max), [1, 1, 1, 1, 2, 8]);
}
