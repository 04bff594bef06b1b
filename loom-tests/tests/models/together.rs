//! Events of several colors: sets that overlap do not wait for each other.

use crate::support::{RUNS, SHORT, all_has_run, settle, steps, world_with_gates};
use loom::thread;
use mely::runtime::Stealing;
use mely::{Color, Colored, Cx};
use mely_loom_tests::{Model, Oracle, must_fail};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A color of core 1.
const THERE: Color = Color::new(1);

/// An event of one of the colors and a foreign thread post to both of them, in opposite orders.
#[test]
fn opposite_orders() {
    Model {
        name: "together::opposite_orders",
        preemptions_max: 2,
        iterations_min: 1_000,
    }
    .explore(|| {
        let oracle = Oracle::new();
        let (world, mut here, there) = world_with_gates(Stealing::OFF);
        let poster = world.poster();
        let ran = Arc::new(AtomicUsize::new(0));
        let a = Colored::new(&poster, RUNS, 0);
        let b = Colored::new(&poster, THERE, 0);
        let (first, second) = ((a.clone(), b.clone()), (a, b));
        let counts = Arc::clone(&ran);
        let event = oracle.event(0, 0).then(move |cx| {
            let (a, b) = first;
            cx.with_all([&a, &b], move |[a, b], _cx| {
                assert_eq!(a, b, "ORACLE: half of the other");
                *a += 1;
                *b += 1;
                counts.fetch_add(1, Ordering::Relaxed);
            });
        });
        event.post_from(&poster, &SHORT, RUNS);
        let counts = Arc::clone(&ran);
        let outside = thread::spawn(move || {
            let (a, b) = second;
            let posted = poster.try_with_all([&b, &a], move |[b, a], _cx| {
                assert_eq!(a, b, "ORACLE: half of the other");
                *b += 1;
                *a += 1;
                counts.fetch_add(1, Ordering::Relaxed);
            });
            assert!(posted.is_ok(), "nobody has asked for the end");
        });
        let beside = steps(there, 2);
        here.step();
        outside.join().unwrap();
        let mut there = beside.join().unwrap();
        settle(&mut [&mut here, &mut there]);
        let ran = ran.load(Ordering::Relaxed);
        assert_eq!(ran, 2, "ORACLE: they wait for each other");
        all_has_run(&world, (here, there), &oracle);
    });
}

/// What an event of one color posts before its part of both comes before what both post then.
#[test]
fn posts_before() {
    Model {
        name: "together::posts_before",
        preemptions_max: 2,
        iterations_min: 10,
    }
    .explore(|| {
        let (world, mut here, there) = world_with_gates(Stealing::OFF);
        let poster = world.poster();
        let ran = Arc::new(AtomicUsize::new(0));
        let a = Colored::new(&poster, RUNS, ());
        let b = Colored::new(&poster, THERE, ());
        let (cause, effect) = (Arc::clone(&ran), Arc::clone(&ran));
        let posts = move |cx: &mut Cx| {
            cx.post(RUNS, move |_cx| {
                cause.fetch_add(1, Ordering::Relaxed);
            });
        };
        SHORT.on(THERE, posts).try_post(&poster).unwrap();
        let posted = poster.try_with_all([&a, &b], move |_, cx| {
            cx.post(RUNS, move |_cx| {
                let before = effect.fetch_add(1, Ordering::Relaxed);
                assert_eq!(before, 1, "ORACLE: the effect is before its cause");
            });
        });
        assert!(posted.is_ok(), "nobody has asked for the end");
        drop((poster, a, b));
        let beside = steps(there, 2);
        here.step();
        let mut there = beside.join().unwrap();
        settle(&mut [&mut here, &mut there]);
        assert_eq!(ran.load(Ordering::Relaxed), 2, "ORACLE: not all ran");
        assert_eq!(world.events_left(), 0);
        drop((here, there));
        world.assert_at_rest();
    });
}

#[test]
fn finds_mail_left_behind_by_the_last() {
    must_fail(
        "together::posts_before",
        "mail left behind by the last",
        &["ORACLE"],
    );
}

#[test]
fn finds_places_taken_one_by_one() {
    must_fail(
        "together::opposite_orders",
        "places taken one by one",
        &["ORACLE"],
    );
}

#[test]
fn finds_own_mail_not_appended_first() {
    must_fail(
        "together::opposite_orders",
        "own mail not appended first",
        &["ORACLE"],
    );
}
