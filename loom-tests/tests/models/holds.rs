//! A color is held, and resumed from elsewhere, while it is posted to, stolen, and the end is asked
//! for.

use crate::support::{HALF, RUNS, SHORT, WORTHY, all_has_run, settle, steps, within};
use loom::thread;
use mely::Post;
use mely::model::{Plan, World};
use mely::{Color, Cx};
use mely_loom_tests::{Model, Oracle, must_fail};
use std::sync::{Arc, mpsc};

/// A color of core 0 that may be stolen, and one of core 1.
const HELD: Color = Color::new(2);
const THERE: Color = Color::new(1);

/// A hold, and one that is taken through it, are resumed by two threads, while a third thread asks
/// for the end.
#[test]
fn resume_and_stop() {
    Model {
        name: "holds::resume_and_stop",
        preemptions_max: 2,
        iterations_min: 1_000,
    }
    .explore(|| {
        let oracle = Oracle::new();
        let world = World::new(Plan::cores(1));
        let mut core = world.core(0);
        let outer = within(&world, &mut core, &SHORT, |cx| cx.hold());
        let (sender, receiver) = mpsc::channel();
        let nests = move |cx: &mut Cx| sender.send(cx.hold()).unwrap();
        outer.try_post(outer.color(), nests).unwrap();
        core.step();
        let inner = receiver.recv().unwrap();
        let waits = oracle.event(0, 0);
        waits.post_from(&world.poster(), &SHORT, RUNS);
        let [first, second] = [1, 2].map(|by| oracle.event(by, 0));
        let first = first.callback_of_core(&SHORT, RUNS);
        let second = second.callback_of_core(&SHORT, RUNS);
        let driven = thread::spawn(move || core.drive());
        let resuming = thread::spawn(move || outer.resume_callback(second));
        world.stop();
        inner.resume_callback(first);
        resuming.join().unwrap();
        driven.join().unwrap();
        assert!(world.ended());
        let log = oracle.log(RUNS);
        assert_eq!(log, [(1, 0), (2, 0), (0, 0)], "ORACLE: out of order");
        all_has_run(world, (), &oracle);
    });
}

/// Two holds of one event are resumed by two threads, the second one first or at the same time.
#[test]
fn resume_in_the_opposite_order() {
    Model {
        name: "holds::resume_in_the_opposite_order",
        preemptions_max: 3,
        iterations_min: 300,
    }
    .explore(|| {
        let oracle = Oracle::new();
        let world = World::new(Plan::cores(1));
        let mut core = world.core(0);
        let holds = |cx: &mut Cx| (cx.hold(), cx.hold());
        let (first, second) = within(&world, &mut core, &SHORT, holds);
        oracle.event(0, 0).post_from(&world.poster(), &SHORT, RUNS);
        let [answer, next] = [1, 2].map(|by| oracle.event(by, 0));
        let answer = answer.callback_of_core(&SHORT, RUNS);
        let next = next.callback_of_core(&SHORT, RUNS);
        let early = thread::spawn(move || second.resume_callback(next));
        let stepped = steps(core, 2);
        first.resume_callback(answer);
        early.join().unwrap();
        let mut core = stepped.join().unwrap();
        settle(&mut [&mut core]);
        let log = oracle.log(RUNS);
        assert_eq!(log, [(1, 0), (2, 0), (0, 0)], "ORACLE: out of order");
        all_has_run(&world, core, &oracle);
    });
}

/// Resumed from outside, while what waits is posted, and the color is stolen.
#[test]
fn resume_and_steal() {
    Model {
        name: "holds::resume_and_steal",
        preemptions_max: 3,
        iterations_min: 1_000,
    }
    .explore(|| {
        let oracle = Oracle::new();
        let world = World::new(Plan::cores(2));
        let (mut here, there) = (world.core(0), world.core(1));
        // So that its handler is known before anything is held.
        oracle.event(2, 0).post_from(&world.poster(), &WORTHY, RUNS);
        let (sender, receiver) = mpsc::channel();
        let holds = move |cx: &mut Cx| sender.send(cx.hold()).unwrap();
        SHORT.on(HELD, holds).try_post(&world.poster()).unwrap();
        // Both do not fit into one quantum.
        here.step();
        here.step();
        let hold = receiver.recv().unwrap();
        oracle.event(0, 0).post_from(&world.poster(), &WORTHY, HELD);
        // Of a handler that is new since the color is held.
        oracle.event(0, 1).post_from(&world.poster(), &HALF, HELD);
        let last = oracle.event(1, 0).callback_of_core(&SHORT, HELD);
        let resuming = thread::spawn(move || hold.resume_callback(last));
        let stealing = steps(there, 2);
        here.step();
        resuming.join().unwrap();
        let mut there = stealing.join().unwrap();
        settle(&mut [&mut here, &mut there]);
        let log = oracle.log(HELD);
        assert_eq!(log, [(1, 0), (0, 0), (0, 1)], "ORACLE: out of order");
        all_has_run(&world, (here, there), &oracle);
    });
}

/// Dropped by a foreign thread. The first event that waited holds again, and is resumed by another
/// core; a post comes at any time.
#[test]
fn drop_and_hold_again() {
    Model {
        name: "holds::drop_and_hold_again",
        preemptions_max: 2,
        iterations_min: 1_000,
    }
    .explore(|| {
        let oracle = Oracle::new();
        let world = World::new(Plan::cores(2));
        let (mut here, there) = (world.core(0), world.core(1));
        let hold = within(&world, &mut here, &SHORT, |cx| cx.hold());
        let resumed = oracle.event(1, 0).callback_of_core(&SHORT, RUNS);
        let resumes = oracle.event(0, 0);
        let again = oracle.event(0, 0).then(move |cx| {
            let hold = cx.hold();
            let resumes = resumes.then(move |_cx| hold.resume_callback(resumed));
            resumes.post(cx, &SHORT, THERE);
        });
        again.post_from(&world.poster(), &SHORT, RUNS);
        for number in 1..3 {
            let waits = oracle.event(0, number);
            waits.post_from(&world.poster(), &SHORT, RUNS);
        }
        here.step();
        let (poster, seen) = (world.poster(), Arc::clone(&oracle));
        let outside = thread::spawn(move || {
            drop(hold);
            seen.event(2, 0).post_from(&poster, &SHORT, RUNS);
        });
        let answering = steps(there, 2);
        here.step();
        outside.join().unwrap();
        let mut there = answering.join().unwrap();
        settle(&mut [&mut here, &mut there]);
        let log = oracle.log(RUNS);
        let expected = [(0, 0), (1, 0), (0, 1), (0, 2), (2, 0)];
        assert_eq!(log, expected, "ORACLE: out of order");
        all_has_run(&world, (here, there), &oracle);
    });
}

#[test]
fn finds_a_hold_not_counted() {
    must_fail("holds::resume_and_stop", "hold not counted", &["ORACLE"]);
}

#[test]
fn finds_a_nested_hold_behind_the_outer_one() {
    must_fail(
        "holds::resume_and_stop",
        "nested hold behind the outer one",
        &["ORACLE"],
    );
}

#[test]
fn finds_a_hold_before_its_siblings() {
    must_fail(
        "holds::resume_in_the_opposite_order",
        "hold before its siblings",
        &["ORACLE"],
    );
}

#[test]
fn finds_a_second_hold_that_ends_first() {
    must_fail(
        "holds::resume_in_the_opposite_order",
        "hold ends before its turn",
        &["ORACLE"],
    );
}

#[test]
fn finds_profiles_not_marked() {
    must_fail(
        "holds::resume_and_steal",
        "profiles not marked",
        &["ORACLE"],
    );
}

#[test]
fn finds_a_new_profile_not_marked() {
    must_fail(
        "holds::resume_and_steal",
        "new profile not marked",
        &["ORACLE"],
    );
}

#[test]
fn finds_what_is_put_aside_again_behind_the_others() {
    must_fail(
        "holds::drop_and_hold_again",
        "put aside again behind the others",
        &["ORACLE"],
    );
}
