//! Whether posts of a long event wait for each other.

use crate::policy::numbers::TRIAL_EVENTS;
use crate::policy::row::Row;

/// An event that owes `lone`, posts `posts` in `own_ns` after its first one, publishes them at
/// once, which takes a long time, and goes on for `tail_ns`.
fn owed(lone: u32, posts: u64, own_ns: u64, tail_ns: u64) -> u32 {
    let mut row = Row::begin(1_000_000, 7, lone);
    let began_ns = 1_000_000 + own_ns;
    row.publish(began_ns, began_ns + 5_000_000);
    row.end(began_ns + 5_000_000 + tail_ns, 7 + posts, 256)
}

#[test]
fn posts_in_a_row_are_owed_no_longer() {
    assert_eq!(owed(TRIAL_EVENTS, 10, 0, 0), 54);
    assert_eq!(owed(54, 54, 0, 0), 0);
    assert_eq!(owed(0, 1_000, 0, 0), 0);
    assert_eq!(owed(TRIAL_EVENTS, 0, 0, 600), 64);
    // At most 100 ns each, and a steal.
    assert_eq!(owed(20, 10, 1_600, 0), 10);
    assert_eq!(owed(20, 10, 0, 1_600), 10);
    assert_eq!(owed(20, 10, 600, 1_000), 10);
}

#[test]
fn who_goes_on_for_long_owes_more_than_the_next_event_posts() {
    assert_eq!(owed(20, 10, 1_601, 0), 84);
    assert_eq!(owed(0, 10, 601, 1_000), 84);
    assert_eq!(owed(0, 0, 0, 601), 64);
    // However fast it was before.
    assert_eq!(owed(0, 1_000, 0, 26_200), 0);
    assert_eq!(owed(0, 1_000, 0, 26_201), 2_064);
    assert_eq!(owed(0, 1_000, 30_000, 30_000), 0);
    assert_eq!(owed(0, 1_000, 30_000, 30_001), 2_064);
    assert_eq!(owed(2_064, 1_000, 0, 26_201), 2_064);
    assert_eq!(owed(0, 1 << 40, 0, 1 << 50), u32::MAX);
}

#[test]
fn posts_wait_for_each_other_beyond_the_lone_ones() {
    let mut row = Row::begin(500, 7, 3);
    assert_eq!(
        [7, 9, 10, 1_000].map(|posted| row.may_wait(posted)),
        [false, false, true, true]
    );
    row.publish(500 + 900, 9_000);
    assert!(row.may_wait(10));
    // Not while they are slow.
    row.publish(9_001, 10_000);
    assert!(!row.may_wait(10) && row.may_wait(11));
    assert!(Row::begin(500, 7, 0).may_wait(7));
}
