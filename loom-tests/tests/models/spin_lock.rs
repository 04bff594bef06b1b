//! The spin lock alone, with two threads. Everywhere else loom's mutex stands in for it.

use loom::thread;
use mely::model::SpinLock;
use mely_loom_tests::{Model, must_fail};
use std::sync::Arc;

#[test]
fn excludes_and_publishes() {
    Model {
        name: "spin_lock::excludes_and_publishes",
        preemptions_max: 3,
        iterations_min: 20,
    }
    .explore(|| {
        let lock = Arc::new(SpinLock::new(0));
        let other = Arc::clone(&lock);
        let thread = thread::spawn(move || {
            other.with(|n| *n += 1);
            other.try_with(|n| *n += 1).is_some()
        });
        lock.with(|n| *n += 1);
        let tried = lock.try_with(|n| *n += 1).is_some();
        let tried = u32::from(tried) + u32::from(thread.join().unwrap());
        assert_eq!(
            lock.with(|n| *n),
            2 + tried,
            "ORACLE: an increment was lost"
        );
    });
}

#[test]
fn finds_an_unlock_without_a_release() {
    must_fail(
        "spin_lock::excludes_and_publishes",
        "unlocked without a release",
        &["Causality violation"],
    );
}
