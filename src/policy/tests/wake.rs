//! Which work wakes a core.

use super::{ALL, OFF, without};
use crate::policy::numbers::WAKE_TALLY;
use crate::policy::wake::{
    Poster, Tally, is_worth_waking, looks_for_sleeper, searchers_max, takes_over,
};

#[test]
fn work_is_worth_a_wake_up_from_its_cost_on() {
    assert_eq!(
        [9_999, 10_000].map(|ns| is_worth_waking(ns, 10_000)),
        [false, true]
    );
}

#[test]
fn a_sleeper_is_looked_for_while_no_core_searches() {
    for (asleep, searching, looks) in [
        (false, false, false),
        (true, false, true),
        (true, true, false),
        (false, true, false),
    ] {
        assert_eq!(looks_for_sleeper(|| asleep, || searching), looks);
    }
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

#[test]
fn several_wake_ups_that_took_longer_move_what_is_thought() {
    let after = |ns, took_ns: &[u64]| {
        let mut tally = Tally::default();
        let moved: Vec<_> = took_ns
            .iter()
            .map(|&took_ns| tally.count(ns, took_ns))
            .collect();
        moved.last().copied().flatten()
    };
    let times = usize::from(WAKE_TALLY.unsigned_abs());
    assert_eq!(after(16_000, &vec![17_001; times - 1]), None);
    assert_eq!(after(16_000, &vec![17_001; times]), Some(17_000));
    assert_eq!(after(16_000, &vec![14_999; times]), Some(15_000));
    // Near enough.
    assert_eq!(after(16_000, &vec![17_000; times]), None);
    // By turns too long and too short, and once more.
    assert_eq!(after(16_000, &[1, 99_000, 99_000, 99_000, 99_000]), None);
    assert_eq!(
        after(16_000, &[1, 99_000, 99_000, 99_000, 99_000, 99_000]),
        Some(17_000)
    );
    // Within what is believed.
    assert_eq!(after(50_000, &vec![99_000; times]), Some(50_000));
    assert_eq!(after(5_000, &vec![1; times]), Some(5_000));
}
