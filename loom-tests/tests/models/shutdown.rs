//! The end: what was accepted is executed, what is refused comes back, and every core leaves.

use crate::support::{RUNS, SHORT, all_has_run};
use loom::thread;
use mely::model::{Ending, Plan, World};
use mely::runtime::Stealing;
use mely::{Color, Poster};
use mely_loom_tests::{Model, Oracle, must_fail};
use std::sync::Arc;

/// Colors of core 1 and, another one, of core 0.
const THERE: Color = Color::new(1);
const HERE: Color = Color::new(2);
const NEXT: Color = Color::new(4);
const LAST: Color = Color::new(6);
/// A color of core 2 of three.
const FAR: Color = Color::new(2);

/// Posts two events; how many were accepted. What is refused is refused for good.
fn post_two(poster: &Poster, oracle: &Arc<Oracle>) -> u32 {
    let mut accepted = 0;
    for number in 0..2 {
        if oracle.event(1, number).offer(poster, &SHORT, RUNS) {
            assert_eq!(accepted, number, "ORACLE: accepted after a refusal");
            accepted += 1;
        }
    }
    accepted
}

/// Foreign posts against a request to stop.
#[test]
fn stop() {
    Model {
        name: "shutdown::stop",
        preemptions_max: 3,
        iterations_min: 20_000,
    }
    .explore(|| {
        let oracle = Oracle::new();
        let world = World::new(Plan::cores(1));
        let mut core = world.core(0);
        let driven = thread::spawn(move || core.drive());
        let (poster, seen) = (world.poster(), Arc::clone(&oracle));
        let posting = thread::spawn(move || post_two(&poster, &seen));
        world.stop();
        let accepted = posting.join().unwrap();
        driven.join().unwrap();
        assert!(world.ended());
        oracle.assert_ran(RUNS, &[(1, accepted)]);
        all_has_run(world, (), &oracle);
    });
}

/// Foreign posts against a runtime that ends by itself.
#[test]
fn exit_when_idle() {
    Model {
        name: "shutdown::exit_when_idle",
        preemptions_max: 3,
        iterations_min: 300,
    }
    .explore(|| {
        let oracle = Oracle::new();
        let world = World::new(Plan {
            exit_when_idle: true,
            ..Plan::cores(1)
        });
        let mut core = world.core(0);
        let driven = thread::spawn(move || core.drive());
        let accepted = post_two(&world.poster(), &oracle);
        driven.join().unwrap();
        assert!(world.ended());
        oracle.assert_ran(RUNS, &[(1, accepted)]);
        all_has_run(world, (), &oracle);
    });
}

/// Two cores that keep posting to each other while the end is being decided.
#[test]
fn drain() {
    Model {
        name: "shutdown::drain",
        preemptions_max: 3,
        iterations_min: 10_000,
    }
    .explore(|| {
        let oracle = Oracle::new();
        let world = World::new(Plan {
            stealing: Stealing::OFF,
            ..Plan::cores(2)
        });
        let cores = [world.core(0), world.core(1)];
        let (there, last) = (oracle.event(0, 1), oracle.event(0, 0));
        let next = oracle.event(0, 0);
        let next = next.then(move |cx| last.post(cx, &SHORT, LAST));
        let third = oracle.event(0, 0);
        let third = third.then(move |cx| next.post(cx, &SHORT, NEXT));
        let second = oracle.event(0, 0).then(move |cx| {
            there.post(cx, &SHORT, THERE);
            third.post(cx, &SHORT, HERE);
        });
        let first = oracle.event(0, 0);
        let first = first.then(move |cx| second.post(cx, &SHORT, RUNS));
        first.post_from(&world.poster(), &SHORT, THERE);
        world.stop();
        let [mut zero, mut one] = cores;
        let driven = thread::spawn(move || one.drive());
        zero.drive();
        driven.join().unwrap();
        assert!(world.ended());
        oracle.assert_ran(RUNS, &[(0, 1)]);
        oracle.assert_ran(THERE, &[(0, 2)]);
        oracle.assert_ran(HERE, &[(0, 1)]);
        oracle.assert_ran(NEXT, &[(0, 1)]);
        oracle.assert_ran(LAST, &[(0, 1)]);
        all_has_run(world, zero, &oracle);
    });
}

/// Three cores that hand one event after another on to the next while the end is decided.
#[test]
fn three_cores() {
    Model {
        name: "shutdown::three_cores",
        preemptions_max: 1,
        iterations_min: 500,
    }
    .explore(|| {
        let oracle = Oracle::new();
        let world = World::new(Plan {
            stealing: Stealing::OFF,
            ..Plan::cores(3)
        });
        let [mut zero, mut one, mut two] = [0, 1, 2].map(|core| world.core(core));
        let third = oracle.event(0, 0);
        let second = oracle.event(0, 0);
        let second = second.then(move |cx| third.post(cx, &SHORT, RUNS));
        let first = oracle.event(0, 0);
        let first = first.then(move |cx| second.post(cx, &SHORT, FAR));
        first.post_from(&world.poster(), &SHORT, THERE);
        world.stop();
        let driven = [
            thread::spawn(move || one.drive()),
            thread::spawn(move || two.drive()),
        ];
        zero.drive();
        for thread in driven {
            thread.join().unwrap();
        }
        assert!(world.ended());
        for color in [RUNS, THERE, FAR] {
            oracle.assert_ran(color, &[(0, 1)]);
        }
        all_has_run(world, zero, &oracle);
    });
}

/// Of five cores all but these rest: four have a line for what they report, and the fifth another.
fn rest_but(resting: &[usize]) -> Arc<Ending> {
    let ending = Arc::new(Ending::of(5));
    for &core in resting {
        assert!(!ending.rest(core, 0, 0), "ORACLE: ends while others run");
    }
    ending
}

/// A core that rests is woken since the end was asked for: it drains, and runs this number of
/// events that its event source has posted. True: the run is over.
fn drain_core(ending: &Ending, core: usize, events: u64) -> bool {
    ending.run(core);
    assert!(!ending.is_over(), "ORACLE: ends before all drain");
    ending.drains(core);
    ending.rest(core, events, events)
}

/// One of the two who were the last to look has seen the end.
fn assert_over(ending: &Ending, ends: [bool; 2]) {
    let told = ends.contains(&true);
    assert!(told && ending.is_over(), "ORACLE: nobody ends it");
}

/// Two cores are the last to rest, at once, and report on different lines.
#[test]
fn two_last_to_rest() {
    Model {
        name: "shutdown::two_last_to_rest",
        preemptions_max: 3,
        iterations_min: 10,
    }
    .explore(|| {
        let ending = rest_but(&[1, 2, 3]);
        let other = Arc::clone(&ending);
        let other = thread::spawn(move || other.rest(4, 0, 0));
        let ends = ending.rest(0, 0, 0);
        assert_over(&ending, [ends, other.join().unwrap()]);
    });
}

/// The last of five cores begins to rest. Meanwhile a post from outside wakes the first, whose
/// event posts to the second, and goes on.
#[test]
fn last_to_rest() {
    Model {
        name: "shutdown::last_to_rest",
        preemptions_max: 3,
        iterations_min: 50,
    }
    .explore(|| {
        let ending = rest_but(&[0, 1, 2, 3]);
        let others = Arc::clone(&ending);
        let others = thread::spawn(move || {
            if !others.post() {
                return false;
            }
            others.run(0);
            others.run(1);
            let ends = others.rest(1, 0, 1);
            assert!(!ends && !others.is_over(), "ORACLE: ends while one runs");
            others.rest(0, 1, 1)
        });
        let ends = ending.rest(4, 0, 0);
        assert_over(&ending, [ends, others.join().unwrap()]);
    });
}

/// The last of five cores asks for the end in its event, and rests. The others rest since before
/// that: they are woken, and the event source of the first posts once more.
#[test]
fn last_to_drain() {
    Model {
        name: "shutdown::last_to_drain",
        preemptions_max: 3,
        iterations_min: 50,
    }
    .explore(|| {
        let ending = rest_but(&[0, 1, 2, 3]);
        // Its event.
        assert!(ending.post());
        let others = Arc::clone(&ending);
        ending.stop();
        let others = thread::spawn(move || {
            (1..4).for_each(|core| _ = drain_core(&others, core, 0));
            drain_core(&others, 0, 1)
        });
        ending.drains(4);
        let ends = ending.rest(4, 0, 1);
        assert_over(&ending, [ends, others.join().unwrap()]);
    });
}

/// The last of five cores begins to rest while another one asks for the end in its event. The
/// others rest since before that.
#[test]
fn stop_and_rest() {
    Model {
        name: "shutdown::stop_and_rest",
        preemptions_max: 3,
        iterations_min: 50,
    }
    .explore(|| {
        let ending = rest_but(&[1, 2, 3]);
        // The event of the first.
        assert!(ending.post());
        let others = Arc::clone(&ending);
        let others = thread::spawn(move || {
            others.stop();
            others.drains(0);
            let _ends = others.rest(0, 0, 1);
            (1..3).for_each(|core| _ = drain_core(&others, core, 0));
            drain_core(&others, 3, 0)
        });
        let ends = ending.rest(4, 0, 0) || drain_core(&ending, 4, 0);
        assert_over(&ending, [ends, others.join().unwrap()]);
    });
}

/// Two cores are the last to rest in a stage, at once, and report on different lines.
#[test]
fn two_end_a_stage() {
    Model {
        name: "shutdown::two_end_a_stage",
        preemptions_max: 3,
        iterations_min: 10,
    }
    .explore(|| {
        let ending = Arc::new(Ending::in_stages(5));
        for core in 1..4 {
            assert!(!ending.rest_in_stage(core, 0, 0), "ORACLE: others run");
        }
        let other = Arc::clone(&ending);
        let other = thread::spawn(move || other.rest_in_stage(4, 0, 0));
        let ends = ending.rest_in_stage(0, 0, 0);
        let ends = [ends, other.join().unwrap()];
        assert_eq!(ending.stage(), Some("close"), "ORACLE: not the next stage");
        let told = ends.iter().filter(|ends| **ends).count();
        assert_eq!(told, 1, "ORACLE: who begins a stage wakes all");
    });
}

/// A stage begins while its five cores rest. One follows and rests at once. The others are woken,
/// and the event source of the first posts once more.
#[test]
fn follow_and_rest() {
    Model {
        name: "shutdown::follow_and_rest",
        preemptions_max: 3,
        iterations_min: 50,
    }
    .explore(|| {
        let ending = Arc::new(Ending::in_stages(5));
        let ends = (0..5).filter(|&core| ending.rest_in_stage(core, 0, 0));
        assert_eq!(ends.count(), 1);
        let follow = |ending: &Ending, core: usize, events: u64| {
            ending.run(core);
            assert_eq!(
                ending.stage(),
                Some("close"),
                "ORACLE: ends before all follow"
            );
            ending.follows(core);
            ending.rest_in_stage(core, events, events)
        };
        let others = Arc::clone(&ending);
        let others = thread::spawn(move || {
            (1..4).for_each(|core| _ = follow(&others, core, 0));
            follow(&others, 0, 1)
        });
        let ends = [follow(&ending, 4, 0), others.join().unwrap()];
        assert!(ends.contains(&true), "ORACLE: nobody ends it");
        assert_eq!(ending.stage(), Some("flush"), "ORACLE: nobody ends it");
    });
}

/// Two cores go through all stages, of which each wakes both.
#[test]
fn all_stages() {
    Model {
        name: "shutdown::all_stages",
        preemptions_max: 1,
        iterations_min: 50,
    }
    .explore(|| {
        let oracle = Oracle::new();
        let world = World::new(Plan {
            stealing: Stealing::OFF,
            ..Plan::cores(2)
        });
        world.has_connections();
        let [mut zero, mut one] = [0, 1].map(|core| world.core(core));
        oracle.event(0, 0).post_from(&world.poster(), &SHORT, THERE);
        world.stop();
        let driven = thread::spawn(move || one.drive());
        zero.drive();
        driven.join().unwrap();
        assert!(world.ended());
        oracle.assert_ran(THERE, &[(0, 1)]);
        all_has_run(world, zero, &oracle);
    });
}

#[test]
fn finds_rests_undrained() {
    must_fail("shutdown::last_to_drain", "rests undrained", &["ORACLE"]);
    must_fail("shutdown::stop_and_rest", "rests undrained", &["ORACLE"]);
    must_fail("shutdown::follow_and_rest", "rests undrained", &["ORACLE"]);
}

#[test]
fn finds_a_stage_that_is_ended_twice() {
    must_fail(
        "shutdown::two_end_a_stage",
        "stage ended twice",
        &["ORACLE"],
    );
}

#[test]
fn finds_a_stage_at_which_nobody_is_woken() {
    must_fail(
        "shutdown::all_stages",
        "nobody woken at a stage",
        &["deadlock"],
    );
}

#[test]
fn finds_a_resting_cores_fence_skipped() {
    must_fail(
        "shutdown::two_last_to_rest",
        "resting core's fence skipped",
        &["ORACLE"],
    );
}

#[test]
fn finds_one_look_at_who_rests() {
    must_fail(
        "shutdown::last_to_rest",
        "one look at who rests",
        &["ORACLE"],
    );
}

#[test]
fn finds_only_one_woken() {
    must_fail("shutdown::three_cores", "only one woken", &["deadlock"]);
}

#[test]
fn finds_a_stop_not_looked_at() {
    must_fail("shutdown::stop", "stop not looked at", &["ORACLE"]);
}

#[test]
fn finds_a_stop_without_comparing() {
    must_fail(
        "shutdown::exit_when_idle",
        "stopped without comparing",
        &["ORACLE"],
    );
}

#[test]
fn finds_who_rests_while_it_runs() {
    must_fail(
        "shutdown::drain",
        "rests while it runs",
        &["ORACLE", "deadlock"],
    );
}

#[test]
fn finds_a_fence_before_waking_all_skipped() {
    must_fail(
        "shutdown::stop",
        "fence before waking all skipped",
        &["deadlock"],
    );
}
