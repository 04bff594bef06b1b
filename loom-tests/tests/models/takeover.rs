//! A core takes over a color of a core that sleeps, because it posts to it.

use crate::support::{SHORT, settle, within};
use loom::thread;
use mely::Color;
use mely::model::{Plan, World};
use mely_loom_tests::{Model, Oracle, must_fail};
use std::sync::Arc;

/// Two colors of core 1, which sleeps.
const TAKEN: Color = Color::new(1);
const STAYS: Color = Color::new(3);

/// A foreign post to that color meets the takeover. The core that slept, and is rung for, is inside
/// a handler for good: whatever stays in its mailbox of pokes is lost.
#[test]
fn poke() {
    Model {
        name: "takeover::poke",
        preemptions_max: 3,
        iterations_min: 60,
    }
    .explore(|| {
        let oracle = Oracle::new();
        let world = World::new(Plan::cores(2));
        let mut awake = world.core(0);
        let mut sleeper = world.core(1);
        assert!(sleeper.lie_down());
        let (poster, event) = (world.poster(), oracle.event(1, 0));
        let seen = Arc::clone(&oracle);
        let posting = within(&world, &mut awake, &SHORT, move |cx| {
            let posting = thread::spawn(move || event.post_from(&poster, &SHORT, TAKEN));
            seen.event(0, 0).post(cx, &SHORT, TAKEN);
            cx.flush();
            posting
        });
        awake.step();
        posting.join().unwrap();
        let taken = world.owner(TAKEN) == 0;
        for events in 1..3 {
            if taken {
                settle(&mut [&mut awake]);
            } else {
                settle(&mut [&mut awake, &mut sleeper]);
            }
            oracle.assert_ran(TAKEN, &[(0, 1), (1, events)]);
            if events == 1 {
                // No poke is left with the old owner that keeps this one from being sent.
                let event = oracle.event(1, 1);
                event.post_from(&world.poster(), &SHORT, TAKEN);
            }
        }
        sleeper.rise();
        settle(&mut [&mut awake, &mut sleeper]);
        world.assert_at_rest();
        drop((awake, sleeper, world));
        oracle.assert_no_leak();
    });
}

/// The core that slept was woken for another of its colors, whose event posts to the one that is
/// taken over.
#[test]
fn sleeper_rises() {
    Model {
        name: "takeover::sleeper_rises",
        preemptions_max: 3,
        iterations_min: 60,
    }
    .explore(|| {
        let oracle = Oracle::new();
        let world = World::new(Plan::cores(2));
        let mut awake = world.core(0);
        let mut sleeper = world.core(1);
        assert!(sleeper.lie_down());
        let event = oracle.event(1, 0);
        let wakes = SHORT.on(STAYS, move |cx| event.post(cx, &SHORT, TAKEN));
        wakes.try_post(&world.poster()).unwrap();
        let seen = Arc::clone(&oracle);
        let rising = within(&world, &mut awake, &SHORT, move |cx| {
            let rising = thread::spawn(move || {
                sleeper.rise();
                sleeper.step();
                sleeper.step();
                sleeper
            });
            seen.event(0, 0).post(cx, &SHORT, TAKEN);
            cx.flush();
            rising
        });
        awake.step();
        let mut sleeper = rising.join().unwrap();
        settle(&mut [&mut awake, &mut sleeper]);
        oracle.assert_ran(TAKEN, &[(0, 1), (1, 1)]);
        world.assert_at_rest();
        drop((awake, sleeper, world));
        oracle.assert_no_leak();
    });
}

#[test]
fn finds_a_second_look_skipped() {
    must_fail(
        "takeover::poke",
        "second look after a takeover skipped",
        &["ORACLE"],
    );
}

#[test]
fn finds_a_color_taken_that_is_out() {
    must_fail(
        "takeover::sleeper_rises",
        "taken over while it is out",
        &["ORACLE", "Causality violation", "is returned and not out"],
    );
}
