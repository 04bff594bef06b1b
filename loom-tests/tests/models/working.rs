//! A core is retired, or works again, while others post to its colors, steal from it, count on it
//! to search, or go to sleep.

use crate::support::{Done, LONG, RUNS, SHORT, WORTHY, all_has_run, settle, steps};
use loom::thread;
use mely::model::{Plan, World};
use mely::runtime::Stealing;
use mely::{Color, Cx};
use mely_loom_tests::{Model, Oracle, must_fail};
use std::sync::Arc;

/// Colors of core 1, of two cores.
const FIRST: Color = Color::new(1);
const PASSED: Color = Color::new(3);
/// A color of core 0, of three.
const THIRDS: Color = Color::new(3);
/// A color of core 0, of two.
const OTHER: Color = Color::new(2);

/// A foreign thread posts to a color of a core that is being retired, before and after the color is
/// passed on; and once more when all is at rest.
#[test]
fn retire_and_post() {
    Model {
        name: "working::retire_and_post",
        preemptions_max: 3,
        iterations_min: 300,
    }
    .explore(|| {
        let oracle = Oracle::new();
        let world = World::new(Plan {
            stealing: Stealing::OFF,
            ..Plan::cores(2)
        });
        let (mut works, mut retires) = (world.core(0), world.core(1));
        let poster = world.poster();
        oracle.event(1, 0).post_from(&poster, &SHORT, PASSED);
        poster.set_working_cores(1).unwrap();
        retires.look_up();
        let retiring = steps(retires, 2);
        oracle.event(1, 1).post_from(&poster, &SHORT, PASSED);
        works.step();
        let mut retires = retiring.join().unwrap();
        settle(&mut [&mut works, &mut retires]);
        oracle.assert_ran(PASSED, &[(1, 2)]);
        assert_eq!(world.owner(PASSED), 0, "ORACLE: it was passed on");
        oracle.event(1, 2).post_from(&poster, &SHORT, PASSED);
        settle(&mut [&mut works]);
        oracle.assert_ran(PASSED, &[(1, 3)]);
        world.assert_at_rest();
        drop((works, retires, world, poster));
        oracle.assert_no_leak();
    });
}

/// A color of a core that is being retired is stolen, while a post of that core's own to it waits
/// to be published and a foreign thread posts to it.
#[test]
fn retire_and_steal() {
    Model {
        name: "working::retire_and_steal",
        preemptions_max: 2,
        iterations_min: 500,
    }
    .explore(|| {
        let oracle = Oracle::new();
        let world = World::new(Plan::cores(2));
        let (mut thief, mut retires) = (world.core(0), world.core(1));
        let (poster, seen) = (world.poster(), Arc::clone(&oracle));
        let first = move |cx: &mut Cx| {
            seen.event(0, 0).post(cx, &WORTHY, PASSED);
            cx.flush();
            seen.event(0, 1).post(cx, &SHORT, PASSED);
        };
        SHORT.on(FIRST, first).try_post(&poster).unwrap();
        retires.step();
        poster.set_working_cores(1).unwrap();
        retires.look_up();
        let retiring = steps(retires, 2);
        let event = oracle.event(1, 0);
        let posting = thread::spawn(move || event.post_from(&poster, &SHORT, PASSED));
        thief.step();
        posting.join().unwrap();
        let mut retires = retiring.join().unwrap();
        settle(&mut [&mut thief, &mut retires]);
        oracle.assert_ran(PASSED, &[(0, 2), (1, 1)]);
        assert_eq!(
            world.owner(PASSED),
            0,
            "ORACLE: it was passed on, or stolen"
        );
        world.assert_at_rest();
        drop((thief, retires, world));
        oracle.assert_no_leak();
    });
}

/// A core that searches is retired. Another one has gone to sleep because somebody searched, and
/// must run what a long handler waits for.
#[test]
fn retire_and_search() {
    Model {
        name: "working::retire_and_search",
        preemptions_max: 1,
        iterations_min: 1_500,
    }
    .explore(|| {
        let oracle = Oracle::new();
        let world = World::new(Plan::cores(3));
        let mut busy = world.core(0);
        let (mut sleeper, mut retires) = (world.core(1), world.core(2));
        assert!(!retires.step(), "it searches in vain");
        let done = Done::of(1);
        let event = done.after(oracle.event(0, 0));
        let poster = world.poster();
        let start = move |cx: &mut Cx| {
            cx.poster().set_working_cores(2).unwrap();
            event.post(cx, &LONG, THIRDS);
            cx.flush();
            done.wait();
        };
        SHORT.on(RUNS, start).try_post(&poster).unwrap();
        let driven = thread::spawn(move || sleeper.drive());
        let retiring = thread::spawn(move || {
            retires.look_up();
            retires.drive();
        });
        busy.step();
        world.stop();
        busy.drive();
        driven.join().unwrap();
        retiring.join().unwrap();
        oracle.assert_ran(THIRDS, &[(0, 1)]);
        all_has_run(world, (busy, poster), &oracle);
    });
}

/// A core that is retired is to work again, while it goes to sleep. It must run what a long handler
/// waits for.
#[test]
fn work_again() {
    Model {
        name: "working::work_again",
        preemptions_max: 2,
        iterations_min: 800,
    }
    .explore(|| {
        let oracle = Oracle::new();
        let world = World::new(Plan::cores(2));
        let (mut busy, mut retired) = (world.core(0), world.core(1));
        let poster = world.poster();
        poster.set_working_cores(1).unwrap();
        retired.look_up();
        let done = Done::of(1);
        let event = done.after(oracle.event(0, 0));
        let start = move |cx: &mut Cx| {
            cx.poster().set_working_cores(2).unwrap();
            event.post(cx, &LONG, OTHER);
            cx.flush();
            done.wait();
        };
        SHORT.on(RUNS, start).try_post(&poster).unwrap();
        let driven = thread::spawn(move || retired.drive());
        busy.step();
        world.stop();
        busy.drive();
        driven.join().unwrap();
        oracle.assert_ran(OTHER, &[(0, 1)]);
        all_has_run(world, (busy, poster), &oracle);
    });
}

#[test]
fn finds_a_color_passed_on_without_a_poke() {
    must_fail(
        "working::retire_and_post",
        "passed on without a poke",
        &["ORACLE"],
    );
}

#[test]
fn finds_an_owner_published_late() {
    must_fail(
        "working::retire_and_steal",
        "owner published after the unlock",
        &[
            "ORACLE",
            "Causality violation",
            "is returned and not out",
            "is here",
        ],
    );
}

#[test]
fn finds_a_search_left_to_nobody() {
    must_fail(
        "working::retire_and_search",
        "who retires leaves its search to nobody",
        &["deadlock"],
    );
}

#[test]
fn finds_a_sleep_through_a_change() {
    must_fail(
        "working::work_again",
        "sleeps through a change",
        &["deadlock"],
    );
}

#[test]
fn finds_nobody_woken_to_work() {
    must_fail("working::work_again", "nobody woken to work", &["deadlock"]);
}
