//! Which colors leave a victim, and how many.

use super::*;
use crate::color::CoreId;

#[test]
fn the_highest_band_goes_first() {
    let costs = |n: u64| takes(n * STEAL_COST_NS);
    for cores in [2, 8, 128] {
        // Bands of 1 to 4, 4 to 16 and more steal costs; in each the first in the queue.
        let queued = [
            costs(1),
            costs(5),
            costs(17),
            costs(2),
            costs(4),
            costs(16),
            costs(3),
            costs(15),
            costs(90),
        ];
        let bands = [[2, 5, 8], [1, 4, 7], [0, 3, 6]];
        for left in 0..3 {
            let mut machine = Machine::flat(cores, Stealing::ALL);
            // The higher bands may be empty.
            let of_higher = |i: &usize| bands[..left].iter().any(|band| band.contains(i));
            let queue: Vec<_> = (0..9).filter(|i| !of_higher(i)).collect();
            let queued: Vec<_> = queue.iter().map(|&i| (queued[i], 1)).collect();
            let colors = machine.busy(0, &queued);
            let stolen = machine.steal(1);
            let of_band = queue
                .iter()
                .zip(&colors)
                .filter(|(i, _)| bands[left].contains(i));
            let of_band: Vec<u64> = of_band.map(|(_, &color)| color).collect();
            assert!(
                !stolen.is_empty() && of_band.starts_with(&stolen),
                "{stolen:?} of {of_band:?}"
            );
        }
    }
}

#[test]
fn what_is_penalized_goes_last_and_goes() {
    let all = || {
        [
            (penalized(20_000, 1_000), 1),
            (penalized(20_000, 20), 1),
            (takes(20_000), 1),
        ]
    };
    for cores in [2, 8, 128] {
        // Worth 20 us each; judged as less than one steal cost, as 1,000 ns, and as all of it.
        for (left, first) in [(3, 2), (2, 0)] {
            let mut machine = Machine::flat(cores, Stealing::ALL);
            let colors = machine.busy(0, &all()[..left]);
            assert_eq!(machine.steal(1)[0], colors[first]);
        }
        // Without the heuristic in the order of the queue.
        let mut machine = Machine::flat(cores, without(false, false, true));
        let colors = machine.busy(0, &all());
        assert_eq!(machine.steal(1)[0], colors[0]);
        // A color in which all is penalized is still worth a steal.
        let mut machine = Machine::flat(cores, Stealing::ALL);
        let colors = machine.busy(0, &[(penalized(700, 1_000_000), 1)]);
        assert_eq!(machine.steal(1), colors);
    }
}

#[test]
fn thief_and_victim_come_to_have_the_same() {
    for (colors, stolen) in [(1, 1), (2, 1), (3, 2), (4, 2), (10, 5), (11, 6), (60, 30)] {
        let mut machine = Machine::flat(2, Stealing::ALL);
        let all = machine.busy(0, &vec![(takes(20_000), 1); colors]);
        assert_eq!(machine.steal(1), all[..stolen], "of {colors}");
        assert_eq!(machine.queued(0), colors - stolen);
    }
    // By time, not by number: what is more than the difference would only change sides.
    for (times_ns, stolen) in [
        ([90_000, 20_000, 20_000, 20_000], 1),
        ([20_000, 90_000, 20_000, 20_000], 2),
        ([20_000, 20_000, 20_000, 90_000], 3),
        ([10_000, 10_000, 10_000, 9_000_000], 3),
    ] {
        let mut machine = Machine::flat(2, Stealing::ALL);
        let queued = times_ns.map(|ns| (takes(ns), 1));
        let all = machine.busy(0, &queued);
        assert_eq!(machine.steal(1), all[..stolen], "{times_ns:?}");
    }
}

/// A core with few colors of many events each gets its share of another's many colors of one event,
/// though it has more to do already: all of them go on and on.
#[test]
fn colors_that_last_are_levelled_by_their_number() {
    let mut machine = Machine::flat(2, Stealing::ALL);
    let (few, many) = (takes(20), takes(20));
    machine.lasting(0, &[(few, 1); 20]);
    machine.lasting(1, &[(many, 10_000); 2]);
    let load_ns =
        |machine: &Machine, core| Section::enter(&machine.shared, core).queues().load_ns();
    assert!(
        load_ns(&machine, CoreId::of(1)) > load_ns(&machine, CoreId::of(0)),
        "the test's own premise"
    );
    machine.cores[1].level(0);
    assert_eq!((machine.queued(0), machine.queued(1)), (11, 11));
}

/// What is taken by a core that has other colors waiting has waited too: it goes before them, in
/// its order.
#[test]
fn what_a_busy_core_takes_does_not_wait_anew() {
    let mut machine = Machine::flat(2, Stealing::ALL);
    machine.lasting(1, &[(takes(20), 1); 10]);
    let theirs: Vec<u64> = (0..10).map(|i| machine.color(1, i)).collect();
    let ours = machine.busy(0, &[(takes(5_000), 1); 2]);
    machine.cores[0].level(0);
    assert_eq!(machine.queue(), [&theirs[..5], &ours[..]].concat());

    // Nor does it wait for what goes on.
    let mut machine = Machine::flat(2, Stealing::ALL);
    machine.cores[0].search.levels_at_ns = u64::MAX;
    machine.lasting(1, &[(takes(700), 1); 10]);
    let ours = machine.busy(0, &[(penalized(500, 10), 80), (takes(500), 2)]);
    machine.end_quantum();
    assert_eq!(machine.checked_out(), ours[..1]);
    machine.cores[0].level(0);
    machine.end_quantum();
    assert_eq!(machine.checked_out(), theirs[..1]);
}

/// As in libasync-smp, the running color's queued events count, and it is one of two colors.
#[test]
fn the_base_algorithm_counts_the_running_color() {
    for heuristics in [Stealing::BASE, without(false, true, false)] {
        let mut machine = Machine::flat(2, heuristics);
        let [giant, small] = [3, 4].map(|i| machine.color(0, i));
        let of = &mut machine.cores[0];
        (0..100).for_each(|_| post(of, takes(100), giant));
        of.exchange::<false>();
        assert!(of.next_color());
        let event = of.begin_event().unwrap();
        of.skip(event);
        (0..60).for_each(|_| post(of, takes(100), small));
        of.flush();
        // 60 of 159 events, of one of two colors.
        assert_eq!(machine.steal(1), [small], "{heuristics:?}");
    }
}

/// Those that have not begun: when a quantum begins, and anew at each flush.
#[test]
fn the_base_algorithm_counts_what_is_checked_out() {
    let mut machine = Machine::flat(2, Stealing::BASE);
    let [giant, small] = [3, 4].map(|i| machine.color(0, i));
    (0..100).for_each(|_| machine.post(giant, 100));
    (0..60).for_each(|_| machine.post(small, 100));
    machine.cores[0].exchange::<false>();
    assert_eq!(
        (machine.checked_out(), machine.queue()),
        (vec![giant], vec![small])
    );
    // 60 of 159.
    assert_eq!(machine.steal(1), [small]);
    for (events, stolen) in [(98, 1), (99, 0)] {
        let mut machine = Machine::flat(2, Stealing::BASE);
        (0..100).for_each(|_| machine.post(giant, 100));
        (0..events).for_each(|_| machine.post(small, 100));
        machine.cores[0].exchange::<false>();
        assert_eq!(machine.steal(1).len(), stolen, "{events} beside 99");
    }

    for (queued, stolen) in [(7, false), (5, true)] {
        let mut machine = Machine::flat(2, Stealing::BASE);
        let [runs, waits] = [3, 4].map(|i| machine.color(0, i));
        (0..10).for_each(|_| machine.post(runs, 20));
        machine.cores[0].exchange::<false>();
        (0..4).for_each(|_| assert_eq!(machine.step(), Some(runs)));
        (0..queued).for_each(|_| machine.post(waits, 20));
        machine.cores[0].flush();
        // 6 of the 9 that had not begun in the beginning have not begun now.
        assert_eq!(!machine.steal(1).is_empty(), stolen, "{queued} beside 6");
        machine.run();
    }
}

#[test]
fn at_most_a_round_is_taken_at_once() {
    let mut machine = Machine::flat(2, Stealing::ALL);
    machine.busy(0, &vec![(takes(20_000), 1); 200]);
    assert_eq!(machine.steal(1).len(), 32);
}

#[test]
fn of_a_stuck_victim_half_is_taken_or_as_much_as_a_steal_is_worth() {
    for cores in [2, 8, 128] {
        // With what the scheduler takes for each, 120 or 300 ns; a steal 600.
        let cases = [
            (20, 1, 1),
            (20, 2, 2),
            (20, 5, 5),
            (20, 6, 5),
            (20, 12, 6),
            (20, 100, 32),
            (200, 3, 2),
            (200, 10, 5),
        ];
        for (ns, colors, stolen) in cases {
            let mut machine = Machine::flat(cores, Stealing::ALL);
            let all = machine.busy(0, &vec![(takes(ns), 1); colors]);
            // Stuck is who made no progress for longer than a steal costs.
            assert!(machine.steal_after(1, STEAL_COST_NS).is_empty());
            machine.wait(1);
            assert_eq!(machine.steal(1), all[..stolen], "of {colors}");
        }
        // Or who says that it is inside a long handler.
        let mut machine = Machine::flat(cores, Stealing::ALL);
        let all = machine.busy(0, &[(takes(20), 1), (takes(20), 1)]);
        machine.shared.cores[0].progress.set_long(true);
        assert_eq!(machine.steal(1), all);
        // Not one that goes on.
        let mut machine = Machine::flat(cores, Stealing::ALL);
        machine.busy(0, &[(takes(20), 1), (takes(20), 1)]);
        for _ in 0..5 {
            assert!(machine.steal_after(1, STEAL_COST_NS).is_empty());
            machine.shared.cores[0].progress.advance();
        }
    }
}

/// It has been rung, and would wake up for nothing.
#[test]
fn a_sleeper_is_stuck_after_a_wake_up_only() {
    let mut machine = Machine::flat(2, Stealing::ALL);
    let all = machine.busy(0, &[(takes(20), 1)]);
    machine.shared.idle.sleepers.set(CoreId::of(0));
    assert!(machine.steal_after(1, WAKE_COST_NS).is_empty());
    machine.wait(1);
    assert_eq!(machine.steal(1), all);
}

/// What waited before is gone, with the victim still in the same turn: taken by another thief, and
/// seen by a look at nothing, or by this one.
#[test]
fn what_comes_after_a_steal_has_not_waited() {
    let posts = |machine: &mut Machine, core: usize, i: usize| {
        let color = machine.color(core, i);
        post(&mut machine.cores[core], takes(20), color);
        machine.cores[core].flush();
        color
    };
    let mut machine = Machine::flat(3, Stealing::ALL);
    let all = machine.busy(0, &[(takes(20), 1)]);
    assert!(machine.steal(1).is_empty());
    assert_eq!(machine.steal_after(2, STEAL_COST_NS + 1), all);
    assert!(machine.steal(1).is_empty());
    let next = posts(&mut machine, 0, 7);
    assert_eq!(machine.steal_after(1, STEAL_COST_NS + 1), [next]);

    let mut machine = Machine::flat(2, Stealing::ALL);
    let all = machine.busy(1, &[(takes(20), 1)]);
    assert_eq!(machine.steal_after(0, STEAL_COST_NS + 1), all);
    assert_eq!(machine.run(), all);
    machine.cores[0].exchange::<false>();
    let next = posts(&mut machine, 1, 7);
    assert_eq!(machine.steal_after(0, STEAL_COST_NS + 1), [next]);
}

#[test]
fn the_base_algorithm_takes_neither_a_lone_color_nor_the_majority() {
    let few = takes(20);
    type Case<'a> = (&'a [usize], Option<usize>);
    let cases: [Case<'_>; 8] = [
        (&[1], None),
        (&[1, 1], None),
        (&[100], None),
        (&[3, 1], Some(1)),
        (&[1, 3], Some(0)),
        (&[2, 2, 1], Some(0)),
        (&[5, 2, 2, 1], Some(1)),
        (&[50, 48, 1], Some(1)),
    ];
    for cores in [2, 8, 128] {
        for (queued, chosen) in cases {
            for stuck in [false, true] {
                let mut machine = Machine::flat(cores, Stealing::BASE);
                let queued: Vec<_> = queued.iter().map(|&events| (few, events)).collect();
                let colors = machine.busy(0, &queued);
                if stuck {
                    machine.shared.cores[0].progress.set_long(true);
                }
                let stolen = machine.steal(1);
                let expected: Vec<u64> = chosen.into_iter().map(|i| colors[i]).collect();
                assert_eq!(stolen, expected, "{queued:?}, stuck: {stuck}");
                // Where nothing may be taken nobody looks, nor stays awake.
                if expected.is_empty() {
                    assert!(!machine.cores[1].anything_to_do());
                    assert_eq!(machine.cores[1].own.stats.steals[1].tried.get(), 0);
                    // Until something comes.
                    let color = machine.color(0, 50);
                    (0..200).for_each(|_| post(&mut machine.cores[0], few, color));
                    machine.cores[0].flush();
                    assert_eq!(machine.steal(1), colors[..1]);
                }
            }
        }
    }
}

#[test]
fn the_two_color_rule_holds_without_time_left() {
    for stuck in [false, true] {
        let mut machine = Machine::flat(2, without(false, true, false));
        machine.busy(0, &[(takes(20_000), 1)]);
        machine.shared.cores[0].progress.set_long(stuck);
        assert!(machine.steal(1).is_empty());
        let mut machine = Machine::flat(2, without(false, true, false));
        let colors = machine.busy(0, &[(takes(20), 1), (takes(20_000), 1)]);
        machine.shared.cores[0].progress.set_long(stuck);
        // The other one stays, though it is nearly all there is.
        assert_eq!(machine.steal(1), colors[1..]);
        assert!(machine.queued(0) == 1);
    }
    // One that only its mail leads to, too.
    let mut machine = Machine::flat(3, without(false, true, false));
    machine.busy(0, &[]);
    machine.shared.cores[0].progress.set_long(true);
    let color = machine.color(0, 3);
    post(&mut machine.cores[2], takes(20_000), color);
    machine.cores[2].exchange::<false>();
    assert!(machine.steal(1).is_empty());
    assert_eq!(machine.queued(0), 1, "its mail was taken");
}

#[test]
fn what_has_run_is_not_worth_anything_any_more() {
    let mut machine = Machine::flat(2, Stealing::ALL);
    let color = machine.color(0, 3);
    let of = &mut machine.cores[0];
    (0..100).for_each(|_| post(of, takes(1_000), color));
    of.exchange::<false>();
    assert!(of.next_color());
    // One event of 1,000 ns is more than a quantum.
    let event = of.begin_event().unwrap();
    of.skip(event);
    assert!(of.is_turn_over() && !of.next_color());
    let _ = of.end_event();
    of.exchange::<false>();
    let slots: Vec<SlotId> = of.checkout.slots().collect();
    assert_eq!(slots, [slot(color)]);
    let fifo = of.checkout.fifo(slot(color));
    assert_eq!((fifo.len(), fifo.raw_ns()), (99, 99_000));
}

#[test]
fn control_colors_stay() {
    let mut machine = Machine::flat(2, Stealing::ALL);
    machine.busy(0, &[]);
    let control = Color::control(0);
    let of = &mut machine.cores[0];
    (0..10).for_each(|_| assert!(of.post(Some(takes(50_000)), control, |_cx| ()).is_ok()));
    of.flush();
    machine.shared.cores[0].progress.set_long(true);
    assert!(machine.steal(1).is_empty());
    // One behind it goes.
    let color = machine.color(0, 7);
    post(&mut machine.cores[0], takes(20), color);
    machine.cores[0].flush();
    assert_eq!(machine.steal(1), [color]);
    for heuristics in [Stealing::BASE, without(false, true, false)] {
        let mut machine = Machine::flat(2, heuristics);
        let colors = machine.busy(0, &[(takes(20), 2), (takes(20), 1)]);
        let of = &mut machine.cores[0];
        assert!(of.post(Some(takes(50_000)), control, |_cx| ()).is_ok());
        of.flush();
        assert!(colors.contains(&machine.steal(1)[0]));
    }
}

/// What is appended to a color that is queued already may make it worth a steal, and steals that
/// come to cost more may make it worth none.
#[test]
fn a_queued_color_that_grows_is_judged_anew() {
    let worthy = |machine: &Machine| {
        Section::enter(&machine.shared, CoreId::of(0))
            .queues()
            .stealing_queue
            .highest()
            .is_some()
    };
    let mut machine = Machine::flat(2, Stealing::ALL);
    machine.busy(0, &[(takes(20), 1)]);
    assert!(!worthy(&machine));
    let color = machine.color(0, 0);
    machine.post(color, 700);
    machine.cores[0].flush();
    assert!(worthy(&machine));
    machine.cost(Distance::SharedL1, 5_000);
    Section::enter(&machine.shared, CoreId::of(0)).renew_limits();
    machine.post(color, 20);
    machine.cores[0].flush();
    assert!(!worthy(&machine));
    // By mail too.
    post(&mut machine.cores[1], takes(9_000), color);
    machine.cores[1].flush();
    let mut section = Section::enter(&machine.shared, CoreId::of(0));
    take_mail(&mut section, &mut Vec::new());
    section.write_hint();
    drop(section);
    assert!(worthy(&machine));
    assert_eq!(machine.steal(1), [color]);
}
