//! Rings that are shared out, and those that are left to others.
//!
//! In each model cores sleep until they are rung, so that a ring that nobody gives is a deadlock,
//! which loom reports.

use crate::support::{Done, LONG, RUNS, SHORT, all_has_run, settle};
use loom::thread;
use mely::model::{Core, Plan, WAKE_COST_NS, World};
use mely::{Color, Cx};
use mely_loom_tests::{Model, Oracle, must_fail};
use std::sync::Arc;

/// Of three and of four cores, a color of each but the first one.
const THREES: [Color; 2] = [Color::new(4), Color::new(5)];
const FOURS: [Color; 3] = [Color::new(5), Color::new(6), Color::new(7)];

/// This core of the world, which sleeps.
fn asleep(world: &World, id: usize) -> Core {
    let mut core = world.core(id);
    assert!(core.lie_down());
    core
}

/// An event posts to two cores that sleep: the one that is rung first may ring the other.
#[test]
fn shared_out() {
    Model {
        name: "ringing::shared_out",
        preemptions_max: 3,
        iterations_min: 300,
    }
    .explore(|| {
        let oracle = Oracle::new();
        let world = World::new(Plan::cores(3));
        let (mut busy, mut first) = (world.core(0), asleep(&world, 1));
        let mut second = asleep(&world, 2);
        let events = THREES.map(|color| (color, oracle.event(0, 0)));
        let start = move |cx: &mut Cx| {
            for (color, event) in events {
                event.post(cx, &LONG, color);
            }
        };
        world.poster().post_callback(SHORT.on(RUNS, start)).unwrap();
        let rung = thread::spawn(move || {
            first.sleep();
            first
        });
        busy.step();
        busy.step();
        second.sleep();
        let mut first = rung.join().unwrap();
        loom::stop_exploring();
        settle(&mut [&mut busy, &mut first, &mut second]);
        for color in THREES {
            oracle.assert_ran(color, &[(0, 1)]);
        }
        all_has_run(world, (busy, first, second), &oracle);
    });
}

/// A long event wakes one core after the other, leaves the third one to the second, and waits for
/// what the third has to do. The second one may be up already, or sleep again.
#[test]
fn left_to_another() {
    Model {
        name: "ringing::left_to_another",
        preemptions_max: 2,
        iterations_min: 300,
    }
    .explore(|| {
        let oracle = Oracle::new();
        let world = Arc::new(World::new(Plan::cores(4)));
        let mut busy = world.core(0);
        let [mut first, mut second, mut third] = [1, 2, 3].map(|core| asleep(&world, core));
        let done = Done::of(1);
        let [one, two, three] = [0, 1, 2].map(|_| oracle.event(0, 0));
        let events = [one, two, done.after(three)];
        let clock = Arc::clone(&world);
        let start = move |cx: &mut Cx| {
            for (color, event) in FOURS.into_iter().zip(events) {
                event.post(cx, &LONG, color);
                clock.pass(WAKE_COST_NS);
            }
            done.wait();
        };
        world.poster().post_callback(LONG.on(RUNS, start)).unwrap();
        let second = thread::spawn(move || {
            second.sleep();
            second.step();
            let sleeps = second.lie_down();
            (second, sleeps)
        });
        let third = thread::spawn(move || {
            third.sleep();
            third.step();
            third
        });
        busy.step();
        let (mut second, sleeps) = second.join().unwrap();
        let mut third = third.join().unwrap();
        first.sleep();
        if sleeps {
            second.rise();
        }
        settle(&mut [&mut busy, &mut first, &mut second, &mut third]);
        for color in FOURS {
            oracle.assert_ran(color, &[(0, 1)]);
        }
        all_has_run(world, (busy, first, second, third), &oracle);
    });
}

#[test]
fn finds_a_core_taken_out_and_not_rung() {
    must_fail("ringing::shared_out", "taken and not rung", &["deadlock"]);
}

#[test]
fn finds_a_leavers_fence_skipped() {
    must_fail(
        "ringing::left_to_another",
        "leaver's fence skipped",
        &["deadlock"],
    );
}

#[test]
fn finds_a_helpers_fence_skipped() {
    must_fail(
        "ringing::left_to_another",
        "helper's fence skipped",
        &["deadlock"],
    );
}

#[test]
fn finds_rings_left_to_who_sleeps_again() {
    must_fail(
        "ringing::left_to_another",
        "left to any sleeper",
        &["deadlock"],
    );
}
