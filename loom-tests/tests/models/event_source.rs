//! A core is woken by its event source, a completion or a timer, while the scheduler wakes it too.

use crate::support::{Done, RUNS, SHORT, all_has_run};
use loom::thread;
use mely::Color;
use mely::model::{Plan, Wire, World};
use mely_loom_tests::{Model, Oracle, must_fail};
use std::sync::Arc;

/// Another color of the core.
const OTHER: Color = Color::new(1);

/// What wakes the core, besides a foreign post.
#[derive(Clone, Copy, PartialEq)]
enum Waker {
    Completion,
    Timer,
}

fn woken_by(waker: Waker) {
    let oracle = Oracle::new();
    let world = Arc::new(World::new(Plan::cores(1)));
    let wire = Wire::new(usize::from(waker == Waker::Completion));
    let mut core = world.core_with_wire(0, &wire);
    let done = Done::of(2);
    let own = done
        .after(oracle.event(0, 0))
        .callback_of_core(&SHORT, OTHER);
    let waking = match waker {
        Waker::Timer => {
            wire.at(1_000, own);
            let (world, wire) = (Arc::clone(&world), Arc::clone(&wire));
            thread::spawn(move || world.advance(1_000, &wire))
        }
        Waker::Completion => {
            let wire = Arc::clone(&wire);
            thread::spawn(move || wire.complete(own))
        }
    };
    let driven = thread::spawn(move || core.drive());
    let posted = done.after(oracle.event(1, 0));
    posted.post_from(&world.poster(), &SHORT, RUNS);
    done.wait();
    world.stop();
    waking.join().unwrap();
    driven.join().unwrap();
    oracle.assert_ran(RUNS, &[(1, 1)]);
    oracle.assert_ran(OTHER, &[(0, 1)]);
    all_has_run(world, wire, &oracle);
}

#[test]
fn completion_and_poke() {
    Model {
        name: "event_source::completion_and_poke",
        preemptions_max: 2,
        iterations_min: 500,
    }
    .explore(|| woken_by(Waker::Completion));
}

#[test]
fn timer_and_poke() {
    Model {
        name: "event_source::timer_and_poke",
        preemptions_max: 2,
        iterations_min: 500,
    }
    .explore(|| woken_by(Waker::Timer));
}

/// A runtime that ends by itself has an operation under way.
#[test]
fn end() {
    Model {
        name: "event_source::end",
        preemptions_max: 3,
        iterations_min: 6,
    }
    .explore(|| {
        let oracle = Oracle::new();
        let world = World::new(Plan {
            exit_when_idle: true,
            ..Plan::cores(1)
        });
        let wire = Wire::new(1);
        let mut core = world.core_with_wire(0, &wire);
        let effect = oracle.event(0, 0);
        let completed = oracle.event(0, 0);
        let completed = completed.then(move |cx| effect.post(cx, &SHORT, RUNS));
        let completed = completed.callback_of_core(&SHORT, OTHER);
        let driven = thread::spawn(move || core.drive());
        // However its core looks and reports, this comes before or after: a handful of ways.
        wire.complete(completed);
        driven.join().unwrap();
        assert!(world.ended());
        oracle.assert_ran(OTHER, &[(0, 1)]);
        oracle.assert_ran(RUNS, &[(0, 1)]);
        all_has_run(world, wire, &oracle);
    });
}

#[test]
fn finds_awake_stored_beside_a_completion() {
    must_fail(
        "event_source::completion_and_poke",
        "awake stored",
        &["deadlock"],
    );
}

#[test]
fn finds_awake_stored_beside_a_timer() {
    must_fail(
        "event_source::timer_and_poke",
        "awake stored",
        &["deadlock"],
    );
}

#[test]
fn finds_an_event_source_not_asked() {
    must_fail("event_source::end", "event source not asked", &["ORACLE"]);
}
