//! The end: what was accepted is executed, what is refused comes back, and every core leaves.

use crate::support::{RUNS, SHORT};
use loom::thread;
use mely::model::{Plan, World};
use mely::{Color, Cx, PostError, Poster, Stealing};
use mely_loom_tests::{Model, Oracle, must_fail};
use std::sync::Arc;

/// Colors of core 1 and, another one, of core 0.
const THERE: Color = Color::new(1);
const HERE: Color = Color::new(2);

/// Posts two events; how many were accepted. What is refused is refused for good.
fn post_two(poster: &Poster, oracle: &Arc<Oracle>) -> u32 {
    let mut accepted = 0;
    for number in 0..2 {
        match poster.post_callback(SHORT.on(RUNS, oracle.event(1, number))) {
            Ok(()) => {
                assert_eq!(accepted, number, "ORACLE: accepted after a refusal");
                accepted += 1;
            }
            Err(PostError::Ended(_event)) => {}
            Err(PostError::Full(_event)) => panic!("ORACLE: the world is not full"),
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
        assert_eq!(world.events_left(), 0);
        drop(world);
        oracle.assert_no_leak();
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
        assert_eq!(world.events_left(), 0);
        drop(world);
        oracle.assert_no_leak();
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
            stealing: Stealing::Off,
            ..Plan::cores(2)
        });
        let cores = [world.core(0), world.core(1)];
        let (there, here, last) = (oracle.event(0, 1), oracle.event(0, 0), oracle.event(0, 1));
        let third = oracle.event(0, 0);
        let third = move |cx: &mut Cx| {
            cx.post_callback(SHORT.on(RUNS, last));
            third(cx);
        };
        let seen = Arc::clone(&oracle);
        let second = move |cx: &mut Cx| {
            cx.post_callback(SHORT.on(THERE, there));
            cx.post_callback(SHORT.on(HERE, third));
            here(cx);
        };
        let first = move |cx: &mut Cx| {
            cx.post_callback(SHORT.on(RUNS, second));
            seen.event(0, 0)(cx);
        };
        world
            .poster()
            .post_callback(SHORT.on(THERE, first))
            .unwrap();
        world.stop();
        let [mut zero, mut one] = cores;
        let driven = thread::spawn(move || one.drive());
        zero.drive();
        driven.join().unwrap();
        assert!(world.ended());
        oracle.assert_ran(RUNS, &[(0, 2)]);
        oracle.assert_ran(THERE, &[(0, 2)]);
        oracle.assert_ran(HERE, &[(0, 1)]);
        assert_eq!(world.events_left(), 0);
        drop((zero, world));
        oracle.assert_no_leak();
    });
}

#[test]
fn finds_a_gate_not_checked() {
    must_fail("shutdown::stop", "gate not checked", &["ORACLE"]);
}

#[test]
fn finds_a_gate_closed_without_comparing() {
    must_fail(
        "shutdown::exit_when_idle",
        "gate closed without comparing",
        &["ORACLE"],
    );
}

#[test]
fn finds_one_wave() {
    must_fail("shutdown::drain", "one wave", &["ORACLE"]);
}

#[test]
fn finds_a_fence_before_waking_all_skipped() {
    must_fail(
        "shutdown::stop",
        "fence before waking all skipped",
        &["deadlock"],
    );
}
