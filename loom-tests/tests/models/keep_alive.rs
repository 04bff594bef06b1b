//! Keep-alives put the end off: what is posted through one is accepted and executed, and when the
//! last one is gone every core leaves.

use crate::support::{RUNS, SHORT, all_has_run};
use loom::thread;
use mely::model::{Plan, World};
use mely::runtime::Stealing;
use mely::{Color, Poster};
use mely_loom_tests::{Event, Model, Oracle, must_fail};
use std::sync::mpsc;

/// A color of core 1.
const THERE: Color = Color::new(1);

/// Posts to core 0 through a keep-alive, which is then dropped.
fn post_through(keep_alive: &Poster, event: Event) {
    let accepted = event.offer(keep_alive, &SHORT, RUNS);
    assert!(accepted, "ORACLE: refused though it keeps the runtime");
}

/// A foreign thread posts through the only keep-alive and drops it, while the end is asked for.
#[test]
fn post_and_drop() {
    Model {
        name: "keep_alive::post_and_drop",
        preemptions_max: 3,
        iterations_min: 1_000,
    }
    .explore(|| {
        let oracle = Oracle::new();
        let world = World::new(Plan::cores(1));
        let keep_alive = world.poster().strong().unwrap();
        let mut core = world.core(0);
        let driven = thread::spawn(move || core.drive());
        let event = oracle.event(1, 0);
        let posting = thread::spawn(move || post_through(&keep_alive, event));
        world.stop();
        posting.join().unwrap();
        driven.join().unwrap();
        assert!(world.ended());
        oracle.assert_ran(RUNS, &[(1, 1)]);
        all_has_run(world, (), &oracle);
    });
}

/// The only keep-alive is dropped while another thread asks for the end.
#[test]
fn drop_against_stop() {
    Model {
        name: "keep_alive::drop_against_stop",
        preemptions_max: 3,
        iterations_min: 100,
    }
    .explore(|| {
        let oracle = Oracle::new();
        let world = World::new(Plan::cores(1));
        let keep_alive = world.poster().strong().unwrap();
        let mut core = world.core(0);
        let driven = thread::spawn(move || core.drive());
        let dropping = thread::spawn(move || drop(keep_alive));
        world.stop();
        dropping.join().unwrap();
        driven.join().unwrap();
        all_has_run(world, (), &oracle);
    });
}

/// A foreign thread makes a keep-alive and posts through it, while a runtime ends by itself.
#[test]
fn made_outside() {
    Model {
        name: "keep_alive::made_outside",
        preemptions_max: 3,
        iterations_min: 100,
    }
    .explore(|| {
        let oracle = Oracle::new();
        let world = World::new(Plan {
            exit_when_idle: true,
            ..Plan::cores(1)
        });
        let mut core = world.core(0);
        let driven = thread::spawn(move || core.drive());
        let mut made = 0;
        if let Ok(keep_alive) = world.poster().strong() {
            post_through(&keep_alive, oracle.event(1, 0));
            made += 1;
        }
        driven.join().unwrap();
        assert!(world.ended());
        oracle.assert_ran(RUNS, &[(1, made)]);
        all_has_run(world, (), &oracle);
    });
}

/// An event on core 1 makes a keep-alive and gives it to a foreign thread, while both cores drain.
#[test]
fn made_inside() {
    Model {
        name: "keep_alive::made_inside",
        preemptions_max: 2,
        iterations_min: 1_000,
    }
    .explore(|| {
        let oracle = Oracle::new();
        let world = World::new(Plan {
            stealing: Stealing::OFF,
            ..Plan::cores(2)
        });
        let [mut zero, mut one] = [0, 1].map(|core| world.core(core));
        let event = oracle.event(1, 0);
        let (give, given) = mpsc::channel();
        let makes = oracle.event(0, 0).then(move |cx| {
            let keep_alive = cx.strong_poster();
            let posting = thread::spawn(move || post_through(&keep_alive, event));
            give.send(posting).unwrap();
        });
        makes.post_from(&world.poster(), &SHORT, THERE);
        world.stop();
        let driven = thread::spawn(move || one.drive());
        zero.drive();
        driven.join().unwrap();
        given.recv().unwrap().join().unwrap();
        assert!(world.ended());
        oracle.assert_ran(RUNS, &[(1, 1)]);
        oracle.assert_ran(THERE, &[(0, 1)]);
        all_has_run(world, zero, &oracle);
    });
}

/// A foreign thread drops the only keep-alive, and decides, while another one posts.
#[test]
fn drop_and_post() {
    Model {
        name: "keep_alive::drop_and_post",
        preemptions_max: 3,
        iterations_min: 1_000,
    }
    .explore(|| {
        let oracle = Oracle::new();
        let world = World::new(Plan {
            exit_when_idle: true,
            ..Plan::cores(1)
        });
        let keep_alive = world.poster().strong().unwrap();
        let mut core = world.core(0);
        let event = oracle.event(1, 0);
        let poster = world.poster();
        let posting = thread::spawn(move || event.offer(&poster, &SHORT, RUNS));
        let dropping = thread::spawn(move || drop(keep_alive));
        core.drive();
        let accepted = u32::from(posting.join().unwrap());
        dropping.join().unwrap();
        assert!(world.ended());
        oracle.assert_ran(RUNS, &[(1, accepted)]);
        all_has_run(world, core, &oracle);
    });
}

#[test]
fn finds_a_keep_alive_not_looked_at() {
    must_fail(
        "keep_alive::post_and_drop",
        "keep-alive not looked at",
        &["ORACLE"],
    );
    must_fail(
        "keep_alive::made_inside",
        "keep-alive not looked at",
        &["ORACLE"],
    );
}

#[test]
fn finds_nobody_woken_at_the_end() {
    must_fail(
        "keep_alive::post_and_drop",
        "nobody woken at the end",
        &["deadlock"],
    );
}

#[test]
fn finds_a_last_keep_alive_that_decides_nothing() {
    must_fail(
        "keep_alive::post_and_drop",
        "last keep-alive decides nothing",
        &["deadlock"],
    );
}

#[test]
fn finds_the_last_keep_alives_fence_skipped() {
    must_fail(
        "keep_alive::drop_against_stop",
        "last keep-alive's fence skipped",
        &["deadlock"],
    );
}

#[test]
fn finds_a_resting_cores_fence_skipped() {
    must_fail(
        "keep_alive::drop_against_stop",
        "resting core's fence skipped",
        &["deadlock"],
    );
}

#[test]
fn finds_a_stop_without_comparing() {
    must_fail(
        "keep_alive::drop_and_post",
        "stopped without comparing",
        &["ORACLE"],
    );
}

#[test]
fn finds_kept_without_the_lock() {
    must_fail(
        "keep_alive::made_outside",
        "kept without the lock",
        &["ORACLE"],
    );
}
