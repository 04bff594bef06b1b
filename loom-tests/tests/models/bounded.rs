//! Bounded colors: never more events than the bound, and nobody who waits for room is forgotten.

use crate::support::{RUNS, SHORT, within};
use loom::thread;
use mely::Post;
use mely::Reason;
use mely::model::{Plan, World};
use mely::state::{Bounded, Permit};
use mely::{Callback, Color, Colored, Cx, Rejected};
use mely_loom_tests::{Model, must_fail};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Waker};
use std::time::Duration;

/// Longer than any model: time stands still here, so nobody gives up.
const FOR_EVER: Duration = Duration::MAX;

/// A color of core 0 as well, which has no state.
const CALLS: Color = Color::new(1);

/// Counts the events that ran.
#[derive(Clone, Default)]
struct Ran(Arc<AtomicU32>);

impl Ran {
    fn count(&self) -> u32 {
        self.0.load(Ordering::Relaxed)
    }

    fn event(&self) -> impl FnOnce(&mut (), &mut Cx) + Send + 'static + use<> {
        let ran = Arc::clone(&self.0);
        move |_: &mut (), _cx: &mut Cx| {
            ran.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn bounded(world: &World, events: usize) -> Bounded<()> {
    Colored::new(&world.poster(), RUNS, ()).bounded(events)
}

fn core_of(world: &World) -> thread::JoinHandle<()> {
    let mut core = world.core(0);
    thread::spawn(move || core.drive())
}

/// Two foreign threads take the last room.
#[test]
fn two_posters() {
    Model {
        name: "bounded::two_posters",
        preemptions_max: 3,
        iterations_min: 3,
    }
    .explore(|| {
        let world = World::new(Plan::cores(1));
        let bounded = bounded(&world, 1);
        let ran = Ran::default();
        let post = |poster: mely::Poster, bounded: Bounded<()>, ran: Ran| match bounded
            .try_post(&poster, ran.event())
        {
            Ok(()) => 1,
            Err(Rejected {
                reason: Reason::NoRoom,
                ..
            }) => 0,
            Err(error) => panic!("ORACLE: {error}"),
        };
        let other = (world.poster(), bounded.clone(), ran.clone());
        let posting = thread::spawn(move || post(other.0, other.1, other.2));
        let accepted = post(world.poster(), bounded.clone(), ran.clone());
        let accepted = accepted + posting.join().unwrap();
        assert_eq!(accepted, 1, "ORACLE: the bound");
        assert_eq!(bounded.waiting(), 1, "ORACLE: the count");
        world.stop();
        world.core(0).drive();
        assert_eq!(ran.count(), 1, "ORACLE: accepted events");
        assert_eq!(bounded.waiting(), 0, "ORACLE: room given back");
    });
}

/// A foreign thread finds no room and waits, while the last event begins.
#[test]
fn wait_and_begin() {
    Model {
        name: "bounded::wait_and_begin",
        preemptions_max: 2,
        iterations_min: 100,
    }
    .explore(|| {
        let world = World::new(Plan::cores(1));
        let bounded = bounded(&world, 1);
        let ran = Ran::default();
        bounded.try_post(&world.poster(), ran.event()).unwrap();
        let driven = core_of(&world);
        let posted = bounded.post_wait(&world.poster(), FOR_EVER, ran.event());
        assert!(posted.is_ok(), "ORACLE: refused");
        world.stop();
        driven.join().unwrap();
        assert_eq!(ran.count(), 2, "ORACLE: accepted events");
        assert_eq!(bounded.waiting(), 0, "ORACLE: room given back");
    });
}

/// An event finds no room and registers, while the permit of a foreign thread is given back.
#[test]
fn register_and_give_back() {
    Model {
        name: "bounded::register_and_give_back",
        preemptions_max: 3,
        iterations_min: 3,
    }
    .explore(|| {
        let world = World::new(Plan::cores(1));
        let bounded = bounded(&world, 1);
        let ran = Ran::default();
        let mut core = world.core(0);
        let permit = bounded.try_reserve().unwrap();
        let giving = thread::spawn(move || drop(permit));
        let (its, counted) = (bounded.clone(), ran.clone());
        within(&world, &mut core, &SHORT, move |cx| {
            let on_room = move |cx: &mut Cx, room: Permit<()>| {
                room.try_post(cx, counted.event()).unwrap();
            };
            its.on_room(cx, Callback::anonymous_value(CALLS, on_room))
                .unwrap();
        });
        giving.join().unwrap();
        world.stop();
        core.drive();
        assert_eq!(ran.count(), 1, "ORACLE: the room callback");
        assert_eq!(bounded.waiting(), 0, "ORACLE: room given back");
    });
}

/// A foreign thread waits for room that does not come, while the end is asked for.
#[test]
fn wait_and_stop() {
    Model {
        name: "bounded::wait_and_stop",
        preemptions_max: 3,
        iterations_min: 10,
    }
    .explore(|| {
        let world = World::new(Plan::cores(1));
        let bounded = bounded(&world, 1);
        let permit = bounded.try_reserve().unwrap();
        let (its, poster) = (bounded.clone(), world.poster());
        let waiting = thread::spawn(move || its.post_wait(&poster, FOR_EVER, |_, _| ()));
        world.stop();
        let refused = waiting.join().unwrap();
        assert!(
            matches!(
                refused,
                Err(Rejected {
                    reason: Reason::Ended,
                    ..
                })
            ),
            "ORACLE: accepted after the stop"
        );
        drop((permit, refused));
        assert_eq!(bounded.waiting(), 0, "ORACLE: room given back");
    });
}

/// The same, while the run is cut short. The permit is kept, and so tells nobody.
#[test]
fn wait_and_force() {
    Model {
        name: "bounded::wait_and_force",
        preemptions_max: 3,
        iterations_min: 10,
    }
    .explore(|| wait_for_the_end(World::new(Plan::cores(1)), World::force));
}

/// The same, while the runtime ends by itself.
#[test]
fn wait_and_end() {
    Model {
        name: "bounded::wait_and_end",
        preemptions_max: 2,
        iterations_min: 10,
    }
    .explore(|| {
        let plan = Plan {
            exit_when_idle: true,
            ..Plan::cores(1)
        };
        wait_for_the_end(World::new(plan), |world| world.core(0).drive());
    });
}

/// A foreign thread waits for room that is kept, while `ends` ends the run.
fn wait_for_the_end(world: World, ends: impl FnOnce(&World)) {
    let bounded = bounded(&world, 1);
    let permit = bounded.try_reserve().unwrap();
    let (its, poster) = (bounded.clone(), world.poster());
    let waiting = thread::spawn(move || its.post_wait(&poster, FOR_EVER, |_, _| ()));
    ends(&world);
    let refused = waiting.join().unwrap();
    assert!(
        matches!(
            refused,
            Err(Rejected {
                reason: Reason::Ended,
                ..
            })
        ),
        "ORACLE: accepted after the end"
    );
    drop((permit, refused));
    assert_eq!(bounded.waiting(), 0, "ORACLE: room given back");
}

/// An event posts, the next one makes room: whoever waits for that posts behind.
#[test]
fn post_and_give_back() {
    Model {
        name: "bounded::post_and_give_back",
        preemptions_max: 2,
        iterations_min: 10,
    }
    .explore(|| {
        let world = World::new(Plan::cores(1));
        let bounded = bounded(&world, 1);
        let (ran, first) = (Ran::default(), Ran::default());
        let cause = ran.clone();
        let posts = move |_: &mut (), cx: &mut Cx| {
            let first = SHORT.on(CALLS, move |_cx: &mut Cx| {
                cause.0.fetch_add(1, Ordering::Relaxed);
            });
            first.post(cx);
        };
        let poster = world.poster();
        bounded
            .state()
            .via(&SHORT)
            .try_post(&poster, posts)
            .unwrap();
        let nothing = |_: &mut (), _: &mut Cx| ();
        bounded.via(&SHORT).try_post(&poster, nothing).unwrap();
        let driven = core_of(&world);
        bounded.post_wait(&poster, FOR_EVER, nothing).unwrap();
        let seen = first.clone();
        let second = move |_cx: &mut Cx| seen.0.store(ran.count(), Ordering::Relaxed);
        poster.try_post(CALLS, second).unwrap();
        world.stop();
        driven.join().unwrap();
        assert_eq!(first.count(), 1, "ORACLE: the post before the room");
    });
}

/// One who waits gives up, while the room is given to it; another one waits behind it.
#[test]
fn leave_and_give_back() {
    Model {
        name: "bounded::leave_and_give_back",
        preemptions_max: 3,
        iterations_min: 10,
    }
    .explore(|| {
        let world = World::new(Plan::cores(1));
        let bounded = bounded(&world, 1);
        let permit = bounded.try_reserve().unwrap();
        let mut first = Box::pin(bounded.reserve());
        let polled = first.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(polled.is_pending());
        let leaving = thread::spawn(move || drop(first));
        let giving = thread::spawn(move || drop(permit));
        let posted = bounded.post_wait(&world.poster(), FOR_EVER, |_, _| ());
        assert!(posted.is_ok(), "ORACLE: refused");
        leaving.join().unwrap();
        giving.join().unwrap();
        assert_eq!(bounded.waiting(), 1, "ORACLE: the count");
        world.stop();
        world.core(0).drive();
        assert_eq!(bounded.waiting(), 0, "ORACLE: room given back");
    });
}

#[test]
fn finds_a_permit_looked_at_and_not_taken() {
    must_fail(
        "bounded::two_posters",
        "permit looked at and not taken",
        &["ORACLE: the bound"],
    );
}

#[test]
fn finds_a_line_not_looked_at() {
    must_fail(
        "bounded::wait_and_begin",
        "line not looked at",
        &["deadlock"],
    );
    must_fail(
        "bounded::register_and_give_back",
        "line not looked at",
        &["ORACLE: the room callback"],
    );
}

#[test]
fn finds_a_wait_without_a_second_look() {
    must_fail(
        "bounded::wait_and_begin",
        "waits without a second look",
        &["deadlock"],
    );
    must_fail(
        "bounded::register_and_give_back",
        "waits without a second look",
        &["ORACLE: the room callback"],
    );
}

#[test]
fn finds_a_stop_that_wakes_nobody_who_waits_for_room() {
    must_fail(
        "bounded::wait_and_stop",
        "stop wakes nobody who waits for room",
        &["deadlock"],
    );
}

#[test]
fn finds_an_end_that_wakes_nobody_who_waits_for_room() {
    must_fail(
        "bounded::wait_and_force",
        "force wakes nobody who waits for room",
        &["deadlock"],
    );
    must_fail(
        "bounded::wait_and_end",
        "end wakes nobody who waits for room",
        &["deadlock"],
    );
}

#[test]
fn finds_room_before_what_was_posted() {
    must_fail(
        "bounded::post_and_give_back",
        "room before what was posted",
        &["ORACLE: the post before the room"],
    );
}

#[test]
fn finds_a_lost_permit_of_who_has_left() {
    must_fail(
        "bounded::leave_and_give_back",
        "permit of who has left is lost",
        &["deadlock"],
    );
}
