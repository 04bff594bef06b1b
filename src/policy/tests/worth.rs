//! What a color is worth, and its band.

use super::{ALL, OFF, without};
use crate::policy::worth::{Band, Endurance, drags, load_ns, penalized_ns, worth_ns};

#[test]
fn endurance_is_counted_in_units_up_to_a_wake_up() {
    let most = Endurance::most(10_000);
    let after = |ns| Endurance::NONE.and(ns, most);
    assert_eq!(
        [0, 1, 128, 129].map(|ns| after(ns).ns()),
        [0, 128, 128, 256]
    );
    assert_eq!(after(129).and(1, most).ns(), 384);
    assert_eq!(
        [10_112, 10_113, 1 << 40].map(|ns| after(ns).ns()),
        [10_112; 3]
    );
    // From a quantum on.
    assert_eq!([2_176, 2_177].map(|ns| after(ns).lasts()), [false, true]);
    // Or no core would ever be woken for it.
    for wake_cost_ns in [0, 10_000, 50_000, 1_000_000] {
        let most = Endurance::most(wake_cost_ns);
        assert!(u64::from(most.ns()) >= wake_cost_ns && most.lasts());
    }
    assert!(Endurance::most(u64::MAX).ns() > 8_000_000);
}

#[test]
fn a_color_is_worth_what_is_queued_and_what_is_expected() {
    for (endurance_ns, raw_ns, penalized, worth, penalized_worth) in [
        (0, 100, 10, 100, 10),
        (1_280, 100, 100, 1_380, 1_380),
        (1_280, 1_000, 100, 2_280, 228),
        (1_280, 0, 0, 1_280, 1_280),
        (1_280, u32::MAX, u32::MAX, u32::MAX, u32::MAX),
    ] {
        let endurance = Endurance::NONE.and(endurance_ns, Endurance::most(10_000));
        assert_eq!(worth_ns(raw_ns, endurance), worth);
        assert_eq!(penalized_ns(raw_ns, penalized, endurance), penalized_worth);
    }
    assert_eq!(load_ns(138, 3), 438);
}

#[test]
fn bands_follow_the_penalized_time_and_worth_the_raw_time() {
    let (time_left, penalty) = (without(true, false, true), without(true, true, false));
    for (policy, worth_ns, penalized_ns, band) in [
        (ALL, 99, 99, None),
        (ALL, 100, 100, Some(Band::Low)),
        (ALL, 399, 399, Some(Band::Low)),
        (ALL, 400, 400, Some(Band::Middle)),
        (ALL, 1_599, 1_599, Some(Band::Middle)),
        (ALL, 1_600, 1_600, Some(Band::High)),
        // Penalized a thousandfold: last choice, yet worthy.
        (ALL, 1_600, 1, Some(Band::Low)),
        (time_left, 1_600, 1, Some(Band::High)),
        (penalty, 1, 1, Some(Band::Low)),
        (OFF, 1_600, 1_600, None),
        (without(true, true, true), 1_600, 1_600, None),
    ] {
        assert_eq!(policy.band(worth_ns, penalized_ns, 100), band);
    }
    let worthy = |policy: &crate::policy::Policy| policy.worthy_ns(100);
    assert_eq!([&ALL, &time_left].map(worthy), [100, 100]);
    assert_eq!((worthy(&penalty), worthy(&OFF)), (0, u32::MAX));
}

#[test]
fn a_penalty_of_ten_drags() {
    for (raw_ns, penalized_ns, does) in [
        (200, 20, true),
        (10, 0, true),
        (200, 21, false),
        // Nothing is known of those, or too little.
        (0, 0, false),
        (9, 0, false),
    ] {
        assert_eq!(drags(raw_ns, penalized_ns), does);
        assert_eq!(ALL.drags(raw_ns, penalized_ns), does);
        assert!(!without(false, true, false).drags(raw_ns, penalized_ns));
        assert!(!without(false, false, true).drags(raw_ns, penalized_ns));
    }
}
