//! If a post to a color happened before another post to it, its event runs first, whatever cores,
//! posters and mailboxes lie between.

use crate::support::{HALF, LONG, RUNS, SHORT, settle, steps};
use loom::thread;
use mely::model::{Plan, World};
use mely::runtime::Stealing;
use mely::{Color, Cx};
use mely_loom_tests::{Model, Oracle, must_fail};
use std::sync::{Arc, mpsc};

/// Colors of core 1.
const TARGET: Color = Color::new(1);
const BETWEEN: Color = Color::new(3);
const OTHER: Color = Color::new(5);
/// A color of core 0.
const SELF: Color = Color::new(2);

/// Core 0 posts to the target, then to a color on core 1, whose event posts to the target, then
/// core 0 again; and a foreign thread posts to the target at any time, so that others find its poke
/// under way.
#[test]
fn three_parties() {
    Model {
        name: "causal_order::three_parties",
        preemptions_max: 4,
        iterations_min: 10_000,
    }
    .explore(|| a_cause_and_its_effect(false));
}

/// The same, when the target is known to core 1 and has nothing queued.
#[test]
fn lone_post() {
    Model {
        name: "causal_order::lone_post",
        preemptions_max: 3,
        iterations_min: 1_000,
    }
    .explore(|| a_cause_and_its_effect(true));
}

/// Core 0 posts to the target, and last to a color on core 1, whose event posts to the target. A
/// foreign thread posts to that other color at any time, so that core 1 may find it before the
/// pokes of core 0.
#[test]
fn cause_and_effect() {
    Model {
        name: "causal_order::cause_and_effect",
        preemptions_max: 3,
        iterations_min: 1_000,
    }
    .explore(|| {
        let oracle = Oracle::new();
        let world = World::new(Plan {
            stealing: Stealing::OFF,
            ..Plan::cores(2)
        });
        let mut here = world.core(0);
        let there = world.core(1);
        let seen = Arc::clone(&oracle);
        let start = move |cx: &mut Cx| {
            seen.event(0, 0).post(cx, &SHORT, TARGET);
            let effect = seen.event(1, 0);
            seen.event(0, 0)
                .then(move |cx| effect.post(cx, &SHORT, TARGET))
                .post(cx, &SHORT, BETWEEN);
        };
        SHORT.on(RUNS, start).try_post(&world.poster()).unwrap();
        here.step();
        let (poster, event) = (world.poster(), oracle.event(2, 0));
        let posting = thread::spawn(move || event.post_from(&poster, &SHORT, BETWEEN));
        let running = steps(there, 3);
        here.step();
        posting.join().unwrap();
        let mut there = running.join().unwrap();
        settle(&mut [&mut here, &mut there]);
        oracle.assert_ran(TARGET, &[(0, 1), (1, 1)]);
        oracle.assert_ran(BETWEEN, &[(0, 1), (2, 1)]);
        world.assert_at_rest();
        drop((here, there, world));
        oracle.assert_no_leak();
    });
}

fn a_cause_and_its_effect(known: bool) {
    let oracle = Oracle::new();
    let world = World::new(Plan {
        stealing: Stealing::OFF,
        ..Plan::cores(2)
    });
    let mut here = world.core(0);
    let mut there = world.core(1);
    let earlier = u32::from(known);
    if known {
        oracle
            .event(2, 0)
            .post_from(&world.poster(), &SHORT, TARGET);
        settle(&mut [&mut there]);
    }
    let seen = Arc::clone(&oracle);
    let start = move |cx: &mut Cx| {
        seen.event(0, 0).post(cx, &SHORT, TARGET);
        let effect = seen.event(1, 0);
        seen.event(0, 0)
            .then(move |cx| effect.post(cx, &SHORT, TARGET))
            .post(cx, &SHORT, BETWEEN);
        seen.event(0, 1).post(cx, &SHORT, TARGET);
    };
    SHORT.on(RUNS, start).try_post(&world.poster()).unwrap();
    here.step();
    let (poster, event) = (world.poster(), oracle.event(2, earlier));
    let posting = thread::spawn(move || {
        event.post_from(&poster, &SHORT, TARGET);
    });
    let running = steps(there, 3);
    here.step();
    posting.join().unwrap();
    let mut there = running.join().unwrap();
    settle(&mut [&mut here, &mut there]);
    oracle.assert_ran(TARGET, &[(0, 2), (1, 1), (2, 1 + earlier)]);
    oracle.assert_ran(BETWEEN, &[(0, 1)]);
    world.assert_at_rest();
    drop((here, there, world));
    oracle.assert_no_leak();
}

/// A color is placed on core 1 while core 0 has checked it out, with posts of its own still waiting
/// there to be published, and goes on posting from core 1.
#[test]
fn placed_with_posts_waiting() {
    Model {
        name: "causal_order::placed_with_posts_waiting",
        preemptions_max: 3,
        iterations_min: 300,
    }
    .explore(|| {
        let oracle = Oracle::new();
        let world = World::new(Plan {
            stealing: Stealing::OFF,
            ..Plan::cores(2)
        });
        let mut here = world.core(0);
        let there = world.core(1);
        // Two fill a turn of the color.
        for number in 0..3 {
            let effect = oracle.event(1, number);
            oracle
                .event(0, number)
                .then(move |cx| effect.post(cx, &SHORT, TARGET))
                .post_from(&world.poster(), &HALF, SELF);
        }
        here.step();
        let poster = world.poster();
        let placing = thread::spawn(move || poster.place(SELF, 1));
        let running = steps(there, 3);
        here.step();
        placing.join().unwrap();
        let mut there = running.join().unwrap();
        settle(&mut [&mut here, &mut there]);
        oracle.assert_ran(SELF, &[(0, 3)]);
        oracle.assert_ran(TARGET, &[(1, 3)]);
        assert_eq!(world.owner(SELF), 1, "ORACLE: not placed");
        world.assert_at_rest();
        drop((here, there, world));
        oracle.assert_no_leak();
    });
}

/// An event posts to its own color, and to another one, whose event on core 1 posts to the first;
/// core
/// 1, which sees a poke behind a long handler, takes that mail before the event has ended.
#[test]
fn self_post() {
    Model {
        name: "causal_order::self_post",
        preemptions_max: 3,
        iterations_min: 100,
    }
    .explore(|| {
        let oracle = Oracle::new();
        let world = World::new(Plan::cores(2));
        let mut here = world.core(0);
        let there = world.core(1);
        let seen = Arc::clone(&oracle);
        let (sender, receiver) = mpsc::channel();
        let start = oracle.event(0, 0).then(move |cx| {
            let running = steps(there, 3);
            seen.event(1, 0).post(cx, &SHORT, SELF);
            let effect = seen.event(2, 0);
            seen.event(1, 0)
                .then(move |cx| effect.post(cx, &SHORT, SELF))
                .post(cx, &SHORT, BETWEEN);
            cx.flush();
            seen.event(1, 1).post(cx, &SHORT, SELF);
            sender.send(running).unwrap();
        });
        start.post_from(&world.poster(), &LONG, SELF);
        here.step();
        here.step();
        let mut there = receiver.recv().unwrap().join().unwrap();
        settle(&mut [&mut here, &mut there]);
        oracle.assert_ran(SELF, &[(0, 1), (1, 2), (2, 1)]);
        oracle.assert_ran(BETWEEN, &[(1, 1)]);
        world.assert_at_rest();
        drop((here, there, world));
        oracle.assert_no_leak();
    });
}

/// The target is in the checkout of core 1, which posted to it, when it gets mail from core 0,
/// which then has an event of core 1 post to it. A foreign thread posts to that event's color at
/// any time, so that core 1 may find it before the pokes of core 0.
#[test]
fn post_to_a_kept_color() {
    Model {
        name: "causal_order::post_to_a_kept_color",
        preemptions_max: 3,
        iterations_min: 1_000,
    }
    .explore(|| {
        let oracle = Oracle::new();
        let world = World::new(Plan {
            stealing: Stealing::OFF,
            ..Plan::cores(2)
        });
        let mut here = world.core(0);
        let mut there = world.core(1);
        oracle
            .event(3, 0)
            .post_from(&world.poster(), &SHORT, TARGET);
        settle(&mut [&mut there]);
        let seen = Arc::clone(&oracle);
        oracle
            .event(3, 1)
            .then(move |cx| seen.event(4, 0).post(cx, &SHORT, TARGET))
            .post_from(&world.poster(), &SHORT, OTHER);
        let seen = Arc::clone(&oracle);
        let start = oracle.event(0, 0).then(move |cx| {
            seen.event(1, 0).post(cx, &SHORT, TARGET);
            let effect = seen.event(2, 0);
            let between = seen.event(1, 0).then(move |cx| {
                effect.post(cx, &SHORT, TARGET);
                cx.flush();
            });
            between.post(cx, &SHORT, BETWEEN);
        });
        start.post_from(&world.poster(), &SHORT, SELF);
        there.step();
        here.step();
        let (poster, event) = (world.poster(), oracle.event(5, 0));
        let posting = thread::spawn(move || event.post_from(&poster, &SHORT, BETWEEN));
        let running = steps(there, 2);
        here.step();
        posting.join().unwrap();
        let mut there = running.join().unwrap();
        settle(&mut [&mut here, &mut there]);
        oracle.assert_ran(TARGET, &[(1, 1), (2, 1), (3, 1), (4, 1)]);
        world.assert_at_rest();
        drop((here, there, world));
        oracle.assert_no_leak();
    });
}

#[test]
fn finds_the_last_two_posts_swapped() {
    must_fail(
        "causal_order::cause_and_effect",
        "last two posts swapped",
        &["ORACLE"],
    );
}

#[test]
fn finds_a_post_to_a_kept_color_that_overtakes() {
    must_fail(
        "causal_order::post_to_a_kept_color",
        "post to a kept color overtakes mail",
        &["before its cause"],
    );
}

#[test]
fn finds_a_mailbox_not_drained() {
    must_fail(
        "causal_order::three_parties",
        "mailbox not drained before an append",
        &["before its cause"],
    );
}

#[test]
fn finds_an_outbox_out_of_order() {
    must_fail(
        "causal_order::three_parties",
        "outbox out of order",
        &["before its cause"],
    );
}

#[test]
fn finds_a_lone_post_that_overtakes() {
    must_fail(
        "causal_order::lone_post",
        "mailbox not drained before an append",
        &["before its cause"],
    );
}

#[test]
fn finds_the_mail_of_a_running_color_taken() {
    must_fail(
        "causal_order::self_post",
        "running mark ignored",
        &["before its cause", "Causality violation"],
    );
}

#[test]
fn finds_a_color_that_leaves_before_its_posts() {
    must_fail(
        "causal_order::placed_with_posts_waiting",
        "colors leave before their posts",
        &["ORACLE"],
    );
}
