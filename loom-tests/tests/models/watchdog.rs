//! The watchdog sleeps while no core is busy, and no longer.

use loom::thread;
use mely::model::{Plan, World};
use mely_loom_tests::{Model, must_fail};

/// A core becomes busy while the watchdog goes to sleep.
#[test]
fn becomes_busy() {
    Model {
        name: "watchdog::becomes_busy",
        preemptions_max: 4,
        iterations_min: 10,
    }
    .explore(|| {
        let world = World::new(Plan::cores(2));
        let mut core = world.core(0);
        let working = thread::spawn(move || core.become_busy());
        world.watchdog_sleeps();
        working.join().unwrap();
    });
}

#[test]
fn finds_a_busy_core_without_its_fence() {
    must_fail(
        "watchdog::becomes_busy",
        "busy core's fence skipped",
        &["deadlock"],
    );
}

#[test]
fn finds_a_watchdog_without_its_fence() {
    must_fail(
        "watchdog::becomes_busy",
        "watchdog's fence skipped",
        &["deadlock"],
    );
}
