//! A color is stolen while somebody posts to it.
//!
//! Core 0 is inside an event; a worthy color waits in its core-queue; core 1 comes to steal it
//! while core 0, or a foreign thread, posts more.

use crate::support::{LONG, RUNS, SHORT, WORTHY, all_has_run, room_in, settle, steps, within};
use mely::Color;
use mely::model::{Plan, World};
use mely_loom_tests::{Model, Oracle, must_fail};
use std::sync::{Arc, mpsc};

const STOLEN: Color = Color::new(2);

/// The victim's own posts, published while the thief is at work.
#[test]
fn own_post() {
    Model {
        name: "post_and_steal::own_post",
        preemptions_max: 3,
        iterations_min: 50,
    }
    .explore(|| {
        let oracle = Oracle::new();
        let world = World::new(Plan::cores(2));
        let mut victim = world.core(0);
        let thief = world.core(1);
        let seen = Arc::clone(&oracle);
        let thread = within(&world, &mut victim, &SHORT, move |cx| {
            seen.event(0, 0).post(cx, &WORTHY, STOLEN);
            cx.flush();
            // A second turn returns the color, under the thief's lock.
            let thread = steps(thief, 2);
            seen.event(0, 1).post(cx, &WORTHY, STOLEN);
            cx.flush();
            seen.event(0, 2).post(cx, &WORTHY, STOLEN);
            thread
        });
        victim.step();
        let mut thief = thread.join().unwrap();
        settle(&mut [&mut victim, &mut thief]);
        oracle.assert_ran(STOLEN, &[(0, 3)]);
        all_has_run(world, (victim, thief), &oracle);
    });
}

/// A foreign thread's posts.
#[test]
fn foreign_post() {
    Model {
        name: "post_and_steal::foreign_post",
        preemptions_max: 3,
        iterations_min: 400,
    }
    .explore(|| {
        let oracle = Oracle::new();
        let world = World::new(Plan::cores(2));
        let mut victim = world.core(0);
        let thief = world.core(1);
        let seen = Arc::clone(&oracle);
        let thread = within(&world, &mut victim, &SHORT, move |cx| {
            seen.event(0, 0).post(cx, &WORTHY, STOLEN);
            cx.flush();
            steps(thief, 2)
        });
        let poster = world.poster();
        for number in 0..2 {
            let event = oracle.event(1, number);
            event.post_from(&poster, &SHORT, STOLEN);
        }
        let mut thief = thread.join().unwrap();
        settle(&mut [&mut victim, &mut thief]);
        oracle.assert_ran(STOLEN, &[(0, 1), (1, 2)]);
        // No mark is left behind without its poke.
        let event = oracle.event(1, 2);
        event.post_from(&poster, &SHORT, STOLEN);
        settle(&mut [&mut victim, &mut thief]);
        oracle.assert_ran(STOLEN, &[(0, 1), (1, 3)]);
        all_has_run(world, (victim, thief), &oracle);
    });
}

/// The victim's own posts, published alone, while a color of its checkout waits for its turn: that
/// one stays, and the event behind it comes after.
#[test]
fn published_alone() {
    const DUE: Color = Color::new(4);
    Model {
        name: "post_and_steal::published_alone",
        preemptions_max: 3,
        iterations_min: 200,
    }
    .explore(|| {
        let oracle = Oracle::new();
        let world = World::new(Plan::cores(2));
        let mut victim = world.core(0);
        let thief = world.core(1);
        // To give room back publishes.
        let (bounded, room) = room_in(&world, RUNS);
        let (more_bounded, more) = room_in(&world, RUNS);
        let seen = Arc::clone(&oracle);
        let (give, thread) = mpsc::channel();
        let start = oracle.event(3, 0).then(move |cx| {
            seen.event(0, 0).post(cx, &WORTHY, STOLEN);
            give.send(steps(thief, 2)).unwrap();
            drop(room);
            seen.event(0, 1).post(cx, &WORTHY, STOLEN);
            // Not put into the checkout, since it is long: this one takes a flush.
            seen.event(2, 0).post(cx, &LONG, DUE);
            drop(more);
            seen.event(0, 2).post(cx, &WORTHY, STOLEN);
        });
        start.post_from(&world.poster(), &SHORT, RUNS);
        oracle.event(1, 0).post_from(&world.poster(), &SHORT, DUE);
        victim.step();
        let mut thief = thread.recv().unwrap().join().unwrap();
        settle(&mut [&mut victim, &mut thief]);
        oracle.assert_ran(STOLEN, &[(0, 3)]);
        oracle.assert_ran(DUE, &[(1, 1), (2, 1)]);
        // Before the bounded colors are dropped: their states are dropped by events.
        world.assert_at_rest();
        drop((victim, thief, world, bounded, more_bounded));
        oracle.assert_no_leak();
    });
}

/// A color of the checkout is walked ahead of its turn; a flush gives it back, and it is stolen.
#[test]
fn walked_and_given_back() {
    Model {
        name: "post_and_steal::walked_and_given_back",
        preemptions_max: 3,
        iterations_min: 10,
    }
    .explore(|| {
        let oracle = Oracle::new();
        let world = World::new(Plan::cores(2));
        let mut victim = world.core(0);
        let thief = world.core(1);
        let seen = Arc::clone(&oracle);
        let (give, thread) = mpsc::channel();
        let first = oracle.event(1, 0).then(move |cx| {
            give.send(steps(thief, 2)).unwrap();
            // With it the color is worth a steal.
            seen.event(0, 0).post(cx, &WORTHY, STOLEN);
            cx.flush();
        });
        let poster = world.poster();
        first.post_from(&poster, &SHORT, RUNS);
        oracle.event(1, 1).post_from(&poster, &SHORT, RUNS);
        for number in 0..3 {
            let event = oracle.event(2, number);
            event.post_from(&poster, &SHORT, STOLEN);
        }
        victim.step();
        let mut thief = thread.recv().unwrap().join().unwrap();
        settle(&mut [&mut victim, &mut thief]);
        oracle.assert_ran(STOLEN, &[(0, 1), (2, 3)]);
        oracle.assert_ran(RUNS, &[(1, 2)]);
        all_has_run(world, (victim, thief), &oracle);
    });
}

#[test]
fn finds_a_walk_that_outlives_its_turns() {
    must_fail(
        "post_and_steal::walked_and_given_back",
        "walks outlive their turns",
        &["Causality violation"],
    );
}

#[test]
fn finds_what_is_published_past_the_checkout() {
    must_fail(
        "post_and_steal::published_alone",
        "published past the checkout",
        &["ORACLE", "is withdrawn inside a quantum"],
    );
}

#[test]
fn finds_an_owner_published_late() {
    must_fail(
        "post_and_steal::own_post",
        "owner published after the unlock",
        &["ORACLE", "Causality violation"],
    );
}

#[test]
fn finds_a_poke_dropped() {
    must_fail(
        "post_and_steal::foreign_post",
        "poke forwarded to nobody",
        &["ORACLE"],
    );
}
