//! Nobody sleeps on work: the doorbell, the hint, the nudge and the rescue.
//!
//! In each model somebody waits for an event to run, so that a wake-up that is lost is a deadlock,
//! which loom reports.

use crate::support::{
    Done, HALF, LONG, OTHER, RUNS, SHORT, WORTHY, all_has_run, beside_a_sleeper, room_in, settle,
    steps, within,
};
use loom::thread;
use mely::model::{Plan, World};
use mely::{Color, Cx, Handler};
use mely_loom_tests::{Model, Oracle, must_fail};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Further colors of core 0: of two cores, and of three.
const THIRD: Color = Color::new(4);
const THIRDS: Color = Color::new(3);
/// A color of core 0 of four.
const FOURTHS: Color = Color::new(4);
const SIXTHS: Color = Color::new(6);
/// Of five cores: a color of core 0, and of cores 3 and 4.
const FIFTHS: Color = Color::new(5);
const OF_SEARCHERS: [Color; 2] = [Color::new(8), Color::new(9)];

/// A post to a core that parks.
#[test]
fn post_to_parked() {
    Model {
        name: "parking::post_to_parked",
        preemptions_max: 3,
        iterations_min: 1_000,
    }
    .explore(|| {
        let oracle = Oracle::new();
        let world = World::new(Plan::cores(1));
        let mut core = world.core(0);
        let driven = thread::spawn(move || core.drive());
        let done = Done::of(1);
        let poster = world.poster();
        oracle.event(0, 0).post_from(&poster, &SHORT, RUNS);
        let last = done.after(oracle.event(0, 1));
        last.post_from(&poster, &SHORT, RUNS);
        done.wait();
        world.stop();
        driven.join().unwrap();
        oracle.assert_ran(RUNS, &[(0, 2)]);
        assert_eq!(world.events_left(), 0);
        world.assert_at_rest();
        drop((world, poster));
        oracle.assert_no_leak();
    });
}

/// A core makes a long event known to a core that is on its way to sleep, and waits for it.
#[test]
fn hint_to_parked() {
    Model {
        name: "parking::hint_to_parked",
        preemptions_max: 2,
        iterations_min: 800,
    }
    .explore(|| post_and_wait(&SHORT, &LONG));
}

/// A long handler makes a short event known to a core that is on its way to sleep, and waits for
/// it.
#[test]
fn post_by_a_long_handler() {
    Model {
        name: "parking::post_by_a_long_handler",
        preemptions_max: 2,
        iterations_min: 800,
    }
    .explore(|| post_and_wait(&LONG, &SHORT));
}

/// An event of the one handler posts an event of the other and waits for it, which another core
/// must run.
fn post_and_wait(waits: &'static Handler, posted: &'static Handler) {
    let oracle = Oracle::new();
    let done = Done::of(1);
    let event = done.after(oracle.event(0, 0));
    let start = move |cx: &mut Cx| {
        event.post(cx, posted, OTHER);
        cx.flush();
        done.wait();
    };
    let world = World::new(Plan::cores(2));
    let busy = world.core(0);
    beside_a_sleeper(world, &oracle, busy, (), waits, start);
}

/// An event publishes a short one alone, and the next one of its color is long, and waits for it:
/// the core that sleeps, or is about to, must come and take it.
#[test]
fn published_before_a_long_handler() {
    Model {
        name: "parking::published_before_a_long_handler",
        preemptions_max: 2,
        iterations_min: 300,
    }
    .explore(|| {
        let oracle = Oracle::new();
        let world = World::new(Plan::cores(2));
        let (_bounded, room) = room_in(&world, THIRD);
        let done = Done::of(1);
        let event = done.after(oracle.event(0, 0));
        let start = move |cx: &mut Cx| {
            event.post(cx, &SHORT, OTHER);
            drop(room);
            LONG.on(RUNS, move |_cx: &mut Cx| done.wait()).post(cx);
        };
        let busy = world.core(0);
        beside_a_sleeper(world, &oracle, busy, (), &SHORT, start);
    });
}

/// The hint rises, a thief takes everything, and the hint rises again while the thief is on its way
/// to sleep.
#[test]
fn hint_rises_again() {
    Model {
        name: "parking::hint_rises_again",
        preemptions_max: 2,
        iterations_min: 300,
    }
    .explore(|| {
        let oracle = Oracle::new();
        let world = World::new(Plan::cores(2));
        let mut busy = world.core(0);
        let mut thief = world.core(1);
        let done = Done::of(1);
        let (first, second) = (oracle.event(0, 0), done.after(oracle.event(0, 0)));
        let start = move |cx: &mut Cx| {
            first.post(cx, &LONG, OTHER);
            cx.flush();
            thief.step();
            let driven = thread::spawn(move || thief.drive());
            second.post(cx, &LONG, THIRD);
            cx.flush();
            done.wait();
            driven
        };
        let driven = within(&world, &mut busy, &SHORT, start);
        world.stop();
        busy.drive();
        driven.join().unwrap();
        oracle.assert_ran(OTHER, &[(0, 1)]);
        oracle.assert_ran(THIRD, &[(0, 1)]);
        all_has_run(world, busy, &oracle);
    });
}

/// A thief takes one of two long colors out of the mail of a core in a long handler, and makes the
/// hint rise by linking the other, while a third core is on its way to sleep.
#[test]
fn thief_raises_hint() {
    Model {
        name: "parking::thief_raises_hint",
        preemptions_max: 2,
        iterations_min: 2_000,
    }
    .explore(|| {
        let oracle = Oracle::new();
        let world = World::new(Plan::cores(3));
        let mut busy = world.core(0);
        let mut thief = world.core(1);
        let mut sleeper = world.core(2);
        let done = Done::of(2);
        let (poster, seen) = (world.poster(), Arc::clone(&oracle));
        let start = move |_cx: &mut Cx| {
            let events = [(); 2].map(|()| done.after(seen.event(0, 0)));
            let posting = thread::spawn(move || {
                for (color, event) in [THIRDS, SIXTHS].into_iter().zip(events) {
                    event.post_from(&poster, &LONG, color);
                }
            });
            posting.join().unwrap();
            let driven = thread::spawn(move || sleeper.drive());
            thief.step();
            done.wait();
            (thief, driven)
        };
        let (mut thief, driven) = within(&world, &mut busy, &LONG, start);
        world.force();
        busy.drive();
        thief.drive();
        driven.join().unwrap();
        oracle.assert_ran(THIRDS, &[(0, 1)]);
        oracle.assert_ran(SIXTHS, &[(0, 1)]);
        all_has_run(world, (busy, thief), &oracle);
    });
}

/// A thief takes one of two colors out of the mail of a core in a long handler, and links the
/// other, while the handler ends and the core goes to sleep.
#[test]
fn nudge() {
    Model {
        name: "parking::nudge",
        preemptions_max: 3,
        iterations_min: 4_000,
    }
    .explore(|| {
        let oracle = Oracle::new();
        let world = Arc::new(World::new(Plan::cores(2)));
        let mut victim = world.core(0);
        let mut thief = world.core(1);
        let left = Arc::new(AtomicU32::new(2));
        let posts = [OTHER, THIRD].map(|color| {
            let (event, left) = (oracle.event(0, 0), Arc::clone(&left));
            let world = Arc::clone(&world);
            let event = event.then(move |_cx| {
                if left.fetch_sub(1, Ordering::Relaxed) == 1 {
                    loom::stop_exploring();
                    world.force();
                }
            });
            (color, event)
        });
        let poster = world.poster();
        let stealing = within(&world, &mut victim, &LONG, move |_cx| {
            thread::spawn(move || {
                for (color, event) in posts {
                    // As much as a steal is worth: it takes one.
                    event.post_from(&poster, &HALF, color);
                }
                thief.step();
            })
        });
        victim.drive();
        stealing.join().unwrap();
        oracle.assert_ran(OTHER, &[(0, 1)]);
        oracle.assert_ran(THIRD, &[(0, 1)]);
        all_has_run(world, victim, &oracle);
    });
}

/// While as many cores search as may, the third one leaves the last look to them.
#[test]
fn look_left_to_another() {
    Model {
        name: "parking::look_left_to_another",
        preemptions_max: 1,
        iterations_min: 100_000,
    }
    .explore(|| {
        let oracle = Oracle::new();
        let done = Done::of(1);
        let world = Arc::new(World::new(Plan::cores(3)));
        let [mut busy, searcher, sleeper] = [0, 1, 2].map(|core| world.core(core));
        let event = {
            let world = Arc::clone(&world);
            done.after(oracle.event(0, 0))
                .then(move |_cx| world.force())
        };
        let start = move |cx: &mut Cx| {
            event.post(cx, &SHORT, THIRDS);
            cx.flush();
            done.wait();
        };
        let poster = world.poster();
        LONG.on(RUNS, start).try_post(&poster).unwrap();
        let driven = [searcher, sleeper].map(|mut core| thread::spawn(move || core.drive()));
        busy.step();
        busy.drive();
        for core in driven {
            core.join().unwrap();
        }
        oracle.assert_ran(THIRDS, &[(0, 1)]);
        all_has_run(world, (busy, poster), &oracle);
    });
}

/// Work is made known while two cores search, which are counted apart. Both find something of their
/// own at the same time: one of them must see to it that somebody else comes.
#[test]
fn two_groups() {
    Model {
        name: "parking::two_groups",
        preemptions_max: 3,
        iterations_min: 200,
    }
    .explore(|| {
        let oracle = Oracle::new();
        let world = World::new(Plan {
            slot_bits: 5,
            ..Plan::cores(5)
        });
        let [mut busy, mut sleeper, third, fourth] = [0, 1, 3, 4].map(|core| world.core(core));
        assert!(sleeper.lie_down());
        let mut searchers = [third, fourth];
        for (core, color) in searchers.iter_mut().zip(OF_SEARCHERS) {
            assert!(!core.step());
            oracle.event(0, 0).post_from(&world.poster(), &SHORT, color);
        }
        let event = oracle.event(0, 0);
        let (mut sleeper, [mut third, mut fourth]) = within(&world, &mut busy, &SHORT, |cx| {
            let ends = searchers.map(|core| steps(core, 1));
            event.post(cx, &LONG, FIFTHS);
            cx.flush();
            let searchers = ends.map(|core| core.join().unwrap());
            sleeper.sleep();
            (sleeper, searchers)
        });
        settle(&mut [&mut busy, &mut sleeper, &mut third, &mut fourth]);
        for color in [FIFTHS, OF_SEARCHERS[0], OF_SEARCHERS[1]] {
            oracle.assert_ran(color, &[(0, 1)]);
        }
        all_has_run(world, (busy, sleeper, third, fourth), &oracle);
    });
}

/// A thief that finds nothing to take forwards a poke to a core that sleeps, and does nothing more.
#[test]
fn forwarded_poke() {
    Model {
        name: "parking::forwarded_poke",
        preemptions_max: 1,
        iterations_min: 200,
    }
    .explore(|| {
        let oracle = Oracle::new();
        // One more than there are, so that two of them may search at a time.
        let world = World::new(Plan::cores(4));
        let mut busy = world.core(0);
        let mut thief = world.core(1);
        let mut sleeper = world.core(2);
        let done = Done::of(1);
        let event = done.after(oracle.event(0, 0));
        let start = move |cx: &mut Cx| {
            cx.place(FOURTHS, 2);
            event.post(cx, &WORTHY, FOURTHS);
            cx.flush();
            thief.step();
            done.wait();
            thief
        };
        let driven = thread::spawn(move || sleeper.drive());
        let mut thief = within(&world, &mut busy, &SHORT, start);
        world.force();
        busy.drive();
        thief.drive();
        driven.join().unwrap();
        oracle.assert_ran(FOURTHS, &[(0, 1)]);
        all_has_run(world, (busy, thief), &oracle);
    });
}

/// A post to a color of a core that enters a long handler, which waits for it: the one core that
/// sleeps, or is about to, must come and take it.
#[test]
fn rescue() {
    Model {
        name: "parking::rescue",
        preemptions_max: 1,
        iterations_min: 2_000,
    }
    .explore(|| {
        let oracle = Oracle::new();
        let world = World::new(Plan::cores(2));
        let mut busy = world.core(0);
        let mut sleeper = world.core(1);
        let done = Done::of(1);
        let event = done.after(oracle.event(0, 0));
        let waits = move |_cx: &mut Cx| done.wait();
        LONG.on(RUNS, waits).try_post(&world.poster()).unwrap();
        let driven = thread::spawn(move || sleeper.drive());
        let poster = world.poster();
        let posting = thread::spawn(move || {
            event.post_from(&poster, &SHORT, OTHER);
        });
        busy.step();
        posting.join().unwrap();
        world.stop();
        busy.drive();
        driven.join().unwrap();
        oracle.assert_ran(OTHER, &[(0, 1)]);
        all_has_run(world, busy, &oracle);
    });
}

#[test]
fn finds_parked_stored() {
    must_fail("parking::post_to_parked", "parked stored", &["deadlock"]);
}

#[test]
fn finds_a_doorbell_not_rung() {
    must_fail(
        "parking::post_to_parked",
        "doorbell not rung",
        &["deadlock"],
    );
}

#[test]
fn finds_a_wakers_fence_skipped() {
    must_fail(
        "parking::hint_to_parked",
        "waker's fence skipped",
        &["deadlock"],
    );
}

#[test]
fn finds_a_long_handlers_fence_skipped() {
    must_fail(
        "parking::post_by_a_long_handler",
        "long handler's fence skipped",
        &["deadlock"],
    );
}

#[test]
fn finds_a_sleepers_fence_skipped() {
    must_fail(
        "parking::hint_to_parked",
        "sleeper's fence skipped",
        &["deadlock"],
    );
}

#[test]
fn finds_a_second_look_skipped() {
    must_fail(
        "parking::hint_to_parked",
        "second look before parking skipped",
        &["deadlock"],
    );
}

#[test]
fn finds_what_is_published_alone_and_not_told() {
    must_fail(
        "parking::published_before_a_long_handler",
        "what is published alone is not told",
        &["deadlock"],
    );
}

#[test]
fn finds_a_nudge_forgotten() {
    must_fail("parking::nudge", "nudge forgotten", &["deadlock"]);
}

#[test]
fn finds_a_look_left_to_nobody() {
    must_fail(
        "parking::look_left_to_another",
        "look left to nobody",
        &["deadlock"],
    );
}

#[test]
fn finds_nobody_sent_to_the_rescue() {
    must_fail(
        "parking::rescue",
        "nobody sent to the rescue",
        &["deadlock"],
    );
}

#[test]
fn finds_no_look_before_a_long_handler() {
    must_fail(
        "parking::rescue",
        "no look before a long handler",
        &["deadlock"],
    );
}

#[test]
fn finds_doorbells_not_rung_after_a_search() {
    must_fail(
        "parking::forwarded_poke",
        "doorbells not rung after a search in vain",
        &["deadlock"],
    );
}

#[test]
fn finds_a_plain_look_before_a_long_handler() {
    must_fail(
        "parking::rescue",
        "plain look before a long handler",
        &["deadlock"],
    );
}

#[test]
fn finds_a_second_rise_without_a_fence() {
    must_fail(
        "parking::hint_rises_again",
        "waker's fence skipped",
        &["deadlock"],
    );
}

#[test]
fn finds_no_look_after_the_last_search() {
    must_fail(
        "parking::thief_raises_hint",
        "no look after the last search",
        &["deadlock"],
    );
}

#[test]
fn finds_a_searchers_fence_skipped() {
    must_fail(
        "parking::two_groups",
        "thief's fence skipped",
        &["deadlock"],
    );
}

#[test]
fn finds_a_thiefs_fence_skipped() {
    must_fail(
        "parking::thief_raises_hint",
        "thief's fence skipped",
        &["deadlock"],
    );
}
