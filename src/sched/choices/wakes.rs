//! Who is woken for work that its core cannot see to, or does not know of.

use super::*;
use crate::color::CoreId;
use crate::shared::idle::{Why, notify};

/// Whose bells are rung, of four cores, of which core 0 has something to steal.
fn rung(asleep: &[usize], wake: impl Fn(&mut Machine, &mut Vec<CoreId>)) -> Vec<usize> {
    let mut machine = Machine::flat(4, Stealing::ALL);
    machine.busy(0, &[(takes(20), 1)]);
    for &core in asleep {
        machine.sleep(core);
    }
    let mut bells = Vec::new();
    wake(&mut machine, &mut bells);
    bells.into_iter().map(CoreId::index).collect()
}

fn stuck_at(machine: &Machine, core: usize, bells: &mut Vec<CoreId>) {
    notify(&machine.shared, CoreId::of(core), Why::Stuck, bells);
}

#[test]
fn a_poke_to_a_core_in_a_long_handler_wakes_the_nearest_sleeper() {
    let poked = |long: bool, waker: Option<usize>| {
        move |machine: &mut Machine, bells: &mut Vec<CoreId>| {
            machine.shared.cores[0].progress.set_long(long);
            let by = waker.map(CoreId::of);
            notify(&machine.shared, CoreId::of(0), Why::Mail { by }, bells);
        }
    };
    for waker in [None, Some(1), Some(3)] {
        assert_eq!(rung(&[2, 3], poked(true, waker)), [2]);
        assert_eq!(rung(&[2, 3], poked(false, waker)), []);
        assert_eq!(rung(&[], poked(true, waker)), []);
    }
    // By itself: it looks before it begins the handler.
    assert_eq!(rung(&[2, 3], poked(true, Some(0))), []);
}

#[test]
fn a_core_that_is_stuck_has_somebody_take_what_waits() {
    let stuck = |machine: &mut Machine, bells: &mut Vec<CoreId>| {
        stuck_at(machine, 0, bells);
    };
    assert_eq!(rung(&[2, 3], stuck), [2]);
    assert_eq!(rung(&[], stuck), []);
    let idle = |machine: &mut Machine, bells: &mut Vec<CoreId>| {
        stuck_at(machine, 1, bells);
    };
    assert_eq!(rung(&[2, 3], idle), []);
    // Mail waits too.
    let mailed = |machine: &mut Machine, bells: &mut Vec<CoreId>| {
        let color = machine.color(1, 0);
        post(&mut machine.cores[0], takes(20), color);
        machine.cores[0].flush();
        stuck_at(machine, 1, bells);
    };
    assert_eq!(rung(&[2, 3], mailed), [2]);
}

/// One that is listed and is awake by now is passed over.
#[test]
fn who_was_woken_already_is_not_woken_again() {
    let stuck = |machine: &mut Machine, bells: &mut Vec<CoreId>| {
        assert!(machine.shared.cores[2].pokes.unpark());
        stuck_at(machine, 0, bells);
    };
    assert_eq!(rung(&[2, 3], stuck), [3]);
}

#[test]
fn a_post_to_a_core_in_a_long_handler_wakes_somebody_for_it() {
    let mut machine = Machine::flat(3, Stealing::ALL);
    machine.shared.cores[1].progress.set_long(true);
    machine.sleep(2);
    let color = machine.color(1, 0);
    machine.post(color, 20);
    machine.cores[0].flush();
    assert_eq!(machine.cores[0].own.stats.wakes.get(), 1);
    assert!(!machine.shared.cores[2].pokes.unpark(), "it was woken");
}

/// A thief that watches sees that something else runs.
#[test]
fn a_long_handler_counts_as_progress() {
    let machine = Machine::flat(2, Stealing::ALL);
    let progress = &machine.shared.cores[0].progress;
    let turns = progress.turns();
    progress.set_long(true);
    assert_eq!((progress.turns(), progress.is_long()), (turns + 1, true));
}

/// What is advertised where times do not count: anything, by the two-color rule if a single color
/// is not to go.
#[test]
fn a_single_color_is_not_advertised_where_it_may_not_go() {
    for (heuristics, cores, worth_ns) in [
        (without(false, true, false), 2, [0, u64::MAX]),
        (Stealing::ALL, 2, [20_000, 40_000]),
        (Stealing::ALL, 1, [0, 0]),
    ] {
        for (colors, worth_ns) in [1, 2].into_iter().zip(worth_ns) {
            let mut machine = Machine::flat(cores, heuristics);
            machine.busy(0, &vec![(takes(20_000), 1); colors]);
            assert_eq!(
                machine.shared.cores[0].hint.worth_ns(),
                worth_ns,
                "{heuristics:?}"
            );
        }
    }
}
