//! Tasks: woken and dropped by other threads while they are polled, wait, or are stolen.

use crate::support::{RUNS, SHORT, WORTHY, all_has_run, settle, steps};
use loom::sync::Mutex;
use loom::thread;
use mely::Color;
use mely::model::{Plan, World};
use mely::task::with_cx;
use mely_loom_tests::{Event, Model, Oracle, must_fail};
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Poll, Waker};

/// A color of core 0 that may be stolen.
const MOVES: Color = Color::new(2);

/// What a task waits for.
#[derive(Clone)]
struct Signal(Arc<Mutex<(bool, Option<Waker>)>>);

impl Signal {
    fn new() -> Signal {
        Signal(Arc::new(Mutex::new((false, None))))
    }

    async fn wait(self) {
        poll_fn(|context| {
            let mut state = self.0.lock().unwrap();
            if state.0 {
                return Poll::Ready(());
            }
            state.1 = Some(context.waker().clone());
            Poll::Pending
        })
        .await;
    }

    fn give(&self) {
        let mut state = self.0.lock().unwrap();
        state.0 = true;
        let waker = state.1.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// Waits, and then posts an event in its own color.
async fn answers(signal: Signal, color: Color, event: Event) {
    signal.wait().await;
    with_cx(|cx| event.post(cx, &SHORT, color));
}

/// Woken by a foreign thread, while the end is asked for.
#[test]
fn wake_and_stop() {
    Model {
        name: "tasks::wake_and_stop",
        preemptions_max: 3,
        iterations_min: 1_000,
    }
    .explore(|| {
        let oracle = Oracle::new();
        let world = World::new(Plan::cores(1));
        let mut core = world.core(0);
        let signal = Signal::new();
        let future = answers(signal.clone(), RUNS, oracle.event(1, 0));
        world.poster().try_spawn(RUNS, future).unwrap();
        let driven = thread::spawn(move || core.drive());
        let waking = thread::spawn(move || signal.give());
        world.stop();
        waking.join().unwrap();
        driven.join().unwrap();
        assert!(world.ended());
        oracle.assert_ran(RUNS, &[(1, 1)]);
        all_has_run(world, (), &oracle);
    });
}

/// Woken by a foreign thread, while its color is stolen and gets an event.
#[test]
fn wake_and_steal() {
    Model {
        name: "tasks::wake_and_steal",
        preemptions_max: 2,
        iterations_min: 1_000,
    }
    .explore(|| {
        let oracle = Oracle::new();
        let world = World::new(Plan::cores(2));
        let (mut here, there) = (world.core(0), world.core(1));
        let signal = Signal::new();
        let future = answers(signal.clone(), MOVES, oracle.event(1, 0));
        world.poster().try_spawn(MOVES, future).unwrap();
        oracle
            .event(0, 0)
            .post_from(&world.poster(), &WORTHY, MOVES);
        let waking = thread::spawn(move || signal.give());
        let stealing = steps(there, 2);
        here.step();
        waking.join().unwrap();
        let mut there = stealing.join().unwrap();
        settle(&mut [&mut here, &mut there]);
        oracle.assert_ran(MOVES, &[(0, 1), (1, 1)]);
        all_has_run(&world, (here, there), &oracle);
    });
}

/// Dropped by a foreign thread, while another one wakes it, and the end is asked for.
#[test]
fn drop_and_wake() {
    Model {
        name: "tasks::drop_and_wake",
        preemptions_max: 2,
        iterations_min: 500,
    }
    .explore(|| {
        let oracle = Oracle::new();
        let world = World::new(Plan::cores(1));
        let mut core = world.core(0);
        let signal = Signal::new();
        let future = answers(signal.clone(), RUNS, oracle.event(1, 0));
        let never = Signal::new();
        let both = async move {
            future.await;
            never.wait().await;
        };
        let task = world.poster().try_spawn(RUNS, both).unwrap();
        let driven = thread::spawn(move || core.drive());
        let waking = thread::spawn(move || signal.give());
        drop(task.cancel_on_drop());
        world.stop();
        waking.join().unwrap();
        driven.join().unwrap();
        assert!(world.ended());
        all_has_run(world, (), &oracle);
    });
}

#[test]
fn finds_a_task_not_counted() {
    must_fail("tasks::wake_and_stop", "task not counted", &["deadlock"]);
}

#[test]
fn finds_a_wake_during_a_poll_forgotten() {
    let lost = &["deadlock"];
    must_fail("tasks::wake_and_stop", "wake during a poll forgotten", lost);
    must_fail(
        "tasks::wake_and_steal",
        "wake during a poll forgotten",
        &["ORACLE"],
    );
}

#[test]
fn finds_a_wake_that_only_looks() {
    must_fail("tasks::wake_and_stop", "wake only looks", &["deadlock"]);
}

#[test]
fn finds_a_cancel_during_a_poll_forgotten() {
    must_fail(
        "tasks::drop_and_wake",
        "cancel during a poll forgotten",
        &["deadlock"],
    );
}
