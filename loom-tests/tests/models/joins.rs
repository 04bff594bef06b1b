//! Handles for results: canceled, waited for, taken and dropped while the result comes.

use crate::support::{RUNS, all_has_run, settle, steps};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;
use mely::model::{Plan, World};
use mely::task::{JoinError, join_all};
use mely::{Color, Cx, JoinHandle, Post};
use mely_loom_tests::{Model, Oracle, must_fail};

/// A color of core 1 of two.
const THERE: Color = Color::new(1);

/// Counts its drops. The count is relaxed: a thread sees it by what it has synchronized with.
struct Dropped(Arc<AtomicU32>);

impl Drop for Dropped {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// Asks for a value by a closure that is counted, as the value is.
fn ask(world: &World, closures: &Arc<AtomicU32>, values: &Arc<AtomicU32>) -> JoinHandle<Dropped> {
    let (closure, value) = (Dropped(Arc::clone(closures)), Arc::clone(values));
    let f = move |_cx: &mut Cx| {
        drop(closure);
        Dropped(value)
    };
    let asked = world.poster().try_ask(RUNS, f);
    asked.unwrap_or_else(|refused| panic!("{refused}"))
}

/// Canceled, taken if it is there, and dropped, while the event begins, and settles it.
#[test]
fn cancel_take_and_drop() {
    Model {
        name: "joins::cancel_take_and_drop",
        preemptions_max: 3,
        iterations_min: 500,
    }
    .explore(|| {
        let oracle = Oracle::new();
        let world = World::new(Plan::cores(1));
        let mut core = world.core(0);
        let (closures, values) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        let mut handle = ask(&world, &closures, &values);
        let driven = thread::spawn(move || core.drive());
        handle.cancel();
        let result = handle.try_recv();
        if result.is_some() {
            let gone = closures.load(Ordering::Relaxed);
            assert_eq!(gone, 1, "ORACLE: the closure is there behind its result");
        }
        let canceled = matches!(result, Some(Err(JoinError::Canceled)));
        drop(handle);
        drop(result);
        world.stop();
        driven.join().unwrap();
        assert!(world.ended());
        let values = values.load(Ordering::Relaxed);
        assert!(values <= u32::from(!canceled), "ORACLE: canceled and run");
        assert_eq!(closures.load(Ordering::Relaxed), 1);
        all_has_run(world, (), &oracle);
    });
}

/// Two are joined and canceled, while the events begin. A thread waits for both.
#[test]
fn cancel_joined() {
    Model {
        name: "joins::cancel_joined",
        preemptions_max: 2,
        iterations_min: 100,
    }
    .explore(|| {
        let oracle = Oracle::new();
        let world = World::new(Plan::cores(1));
        let mut core = world.core(0);
        let (closures, values) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
        let mut joined = join_all([0; 2].map(|_| ask(&world, &closures, &values)));
        let driven = thread::spawn(move || core.drive());
        joined.cancel();
        let all = joined.recv().expect("it comes when both have");
        assert_eq!(closures.load(Ordering::Relaxed), 2, "ORACLE: not gone");
        let came = all.iter().filter(|result| result.is_ok()).count();
        drop(all);
        assert_eq!(values.load(Ordering::Relaxed) as usize, came);
        world.stop();
        driven.join().unwrap();
        assert!(world.ended());
        all_has_run(world, (), &oracle);
    });
}

/// A task polls the handle on one core, while the event settles it on the other one.
#[test]
fn await_and_settle() {
    Model {
        name: "joins::await_and_settle",
        preemptions_max: 4,
        iterations_min: 40,
    }
    .explore(|| {
        let oracle = Oracle::new();
        let world = World::new(Plan::cores(2));
        let (mut here, there) = (world.core(0), world.core(1));
        let asked = world.poster().try_ask(THERE, |_cx| 5);
        let asked = asked.unwrap_or_else(|refused| panic!("{refused}"));
        let over = Arc::new(AtomicU32::new(0));
        let tells = Arc::clone(&over);
        let awaits = async move { tells.store(asked.await.unwrap_or(0), Ordering::Relaxed) };
        let task = world.poster().try_spawn(RUNS, awaits);
        drop(task.unwrap_or_else(|refused| panic!("{refused}")));
        let settling = steps(there, 1);
        here.step();
        let mut there = settling.join().unwrap();
        settle(&mut [&mut here, &mut there]);
        let over = over.load(Ordering::Relaxed);
        assert_eq!(over, 5, "ORACLE: the task was not woken");
        all_has_run(&world, (here, there), &oracle);
    });
}

#[test]
fn finds_a_cancel_that_is_told_too_early() {
    must_fail(
        "joins::cancel_take_and_drop",
        "canceled before the closure is dropped",
        &["ORACLE"],
    );
}

#[test]
fn finds_a_cancel_that_forgets_the_waiter() {
    must_fail(
        "joins::cancel_joined",
        "cancel forgets the waiter",
        &["deadlock"],
    );
}

#[test]
fn finds_a_poll_without_a_second_look() {
    must_fail(
        "joins::await_and_settle",
        "polled without a second look",
        &["ORACLE"],
    );
}
