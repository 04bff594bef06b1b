//! Two wake one core at once, and who was woken by too much wakes the next.

use crate::support::{Done, LONG, RUNS, SHORT, all_has_run, within};
use loom::thread;
use mely::Color;
use mely::model::{Plan, World};
use mely_loom_tests::{Model, Oracle, must_fail};
use std::sync::Arc;

/// Another color of a lone core.
const OTHER: Color = Color::new(1);
/// Of two cores, a color of each.
const HERE: Color = Color::new(2);
const THERE: Color = Color::new(3);
/// Colors of core 0 of four.
const FOURS: [Color; 3] = [Color::new(4), Color::new(8), Color::new(12)];

/// Two foreign threads, who share what they make events with, poke a core that parks.
#[test]
fn two_pokers() {
    Model {
        name: "waking::two_pokers",
        preemptions_max: 2,
        iterations_min: 500,
    }
    .explore(|| {
        let oracle = Oracle::new();
        let world = World::new(Plan::cores(1));
        let mut core = world.core(0);
        let done = Done::of(2);
        let driven = thread::spawn(move || core.drive());
        let (poster, event) = (world.poster(), done.after(oracle.event(0, 0)));
        let posting = thread::spawn(move || event.post_from(&poster, &SHORT, RUNS));
        done.after(oracle.event(1, 0))
            .post_from(&world.poster(), &SHORT, OTHER);
        done.wait();
        world.stop();
        posting.join().unwrap();
        driven.join().unwrap();
        oracle.assert_ran(RUNS, &[(0, 1)]);
        oracle.assert_ran(OTHER, &[(1, 1)]);
        all_has_run(world, (), &oracle);
    });
}

/// A core makes a long event known to a core that parks, and a foreign thread pokes that core.
#[test]
fn poke_and_hint() {
    Model {
        name: "waking::poke_and_hint",
        preemptions_max: 1,
        iterations_min: 500,
    }
    .explore(|| {
        let oracle = Oracle::new();
        let world = World::new(Plan::cores(2));
        let mut busy = world.core(0);
        let mut sleeper = world.core(1);
        let done = Done::of(2);
        let (poster, poked) = (world.poster(), done.after(oracle.event(1, 0)));
        let seen = Arc::clone(&oracle);
        let posting = within(&world, &mut busy, &SHORT, move |cx| {
            let driven = thread::spawn(move || sleeper.drive());
            let posting = thread::spawn(move || poked.post_from(&poster, &SHORT, THERE));
            done.after(seen.event(0, 0)).post(cx, &LONG, HERE);
            cx.flush();
            done.wait();
            [driven, posting]
        });
        world.stop();
        busy.drive();
        for thread in posting {
            thread.join().unwrap();
        }
        oracle.assert_ran(HERE, &[(0, 1)]);
        oracle.assert_ran(THERE, &[(1, 1)]);
        all_has_run(world, busy, &oracle);
    });
}

/// A thief takes two long colors, and runs one that waits for the other: which must be seen by a
/// third core that is on its way to sleep.
#[test]
fn share_out() {
    Model {
        name: "waking::share_out",
        preemptions_max: 1,
        iterations_min: 150,
    }
    .explore(|| {
        let oracle = Oracle::new();
        let world = World::new(Plan {
            slot_bits: 5,
            ..Plan::cores(4)
        });
        let mut victim = world.core(0);
        let mut thief = world.core(1);
        let mut sleeper = world.core(2);
        let done = Done::of(1);
        let seen = Arc::clone(&oracle);
        let (mut thief, driven) = within(&world, &mut victim, &SHORT, move |cx| {
            let waits = done.clone();
            let [first, second, third] = FOURS;
            let event = seen.event(0, 0).then(move |_cx| waits.wait());
            event.post(cx, &LONG, first);
            done.after(seen.event(0, 0)).post(cx, &LONG, second);
            seen.event(0, 0).post(cx, &LONG, third);
            cx.flush();
            let driven = thread::spawn(move || sleeper.drive());
            thief.step();
            (thief, driven)
        });
        // The third may have stolen both. No core begins anything after the end by force.
        victim.step();
        thief.step();
        world.force();
        victim.drive();
        thief.drive();
        driven.join().unwrap();
        oracle.assert_ran(FOURS[0], &[(0, 1)]);
        oracle.assert_ran(FOURS[1], &[(0, 1)]);
        drop((victim, thief, world));
        oracle.assert_no_leak();
    });
}

#[test]
fn finds_earlier_pokes_cut_off() {
    must_fail("waking::two_pokers", "earlier pokes cut off", &["deadlock"]);
}

#[test]
fn finds_awake_stored() {
    must_fail("waking::poke_and_hint", "awake stored", &["deadlock"]);
}

#[test]
fn finds_colors_not_shared_out() {
    must_fail(
        "waking::share_out",
        "stolen colors not shared out",
        &["deadlock"],
    );
}
