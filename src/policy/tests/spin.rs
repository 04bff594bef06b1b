//! How long an idle core searches.

use crate::policy::spin::Spin;

/// Is idle for so long; for how much of that it spins.
fn idle(spin: &mut Spin, idle_ns: u64) -> u64 {
    let began_ns = 1_000_000;
    let spun_ns = (0..idle_ns).take_while(|ns| spin.goes_on(began_ns + ns));
    let spun_ns = spun_ns.count() as u64;
    if spun_ns == idle_ns {
        spin.has_run();
    } else {
        spin.has_slept(began_ns + idle_ns);
    }
    spun_ns
}

#[test]
fn who_sleeps_long_soon_sleeps_at_once_and_who_does_not_spins_again() {
    let mut spin = Spin::new(40_000);
    let spun: Vec<_> = (0..6).map(|_| idle(&mut spin, 1_000_000)).collect();
    assert_eq!(spun, [40_000, 20_000, 10_000, 5_000, 0, 0]);
    // The first three are met asleep.
    let spun: Vec<_> = (0..5).map(|_| idle(&mut spin, 15_000)).collect();
    assert_eq!(spun, [0, 5_000, 10_000, 15_000, 15_000]);
    // As long as the longest spin, and longer.
    let idle_ns = [40_000, 40_000, 40_001, 40_001];
    let spun: Vec<_> = idle_ns.map(|ns| idle(&mut spin, ns)).into();
    assert_eq!(spun, [20_000, 40_000, 40_000, 20_000]);
}

#[test]
fn who_never_spins_does_not_begin_to() {
    let mut spin = Spin::new(0);
    for idle_ns in [1, 1_000, 1] {
        assert_eq!(idle(&mut spin, idle_ns), 0);
    }
}

#[test]
fn the_longest_spin_may_be_for_ever() {
    let mut spin = Spin::new(u64::MAX);
    assert!(spin.goes_on(1));
    spin.has_slept(2);
    assert!(spin.goes_on(3) && spin.goes_on(u64::MAX));
}

#[test]
fn who_stays_awake_after_all_spins_for_the_whole_time_again() {
    let mut spin = Spin::new(40_000);
    assert!(spin.goes_on(1_000) && !spin.goes_on(41_000));
    spin.stays();
    assert!(spin.goes_on(41_000) && spin.goes_on(80_999) && !spin.goes_on(81_000));
}
