//! The last handle of a color's state is dropped while events with the state are under way.

use crate::support::RUNS;
use loom::cell::UnsafeCell;
use loom::thread;
use mely::Colored;
use mely::Post;
use mely::model::{Plan, World};
use mely_loom_tests::{Model, must_fail};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// State that loom watches: every access and the drop write its cell.
struct State {
    hits: UnsafeCell<u32>,
    /// Written by the drop and by events of the color that know nothing of the state.
    color: Arc<Shared>,
    drops: Arc<AtomicU32>,
}

/// What everything that runs in the color may write.
struct Shared(UnsafeCell<u32>);

// SAFETY: loom checks the accesses.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

impl Shared {
    fn hit(&self) {
        // SAFETY: loom checks that no other access overlaps.
        self.0.with_mut(|hits| unsafe { *hits += 1 });
    }
}

// SAFETY: loom's cells are not `Send` by default but are made to be moved between its threads.
unsafe impl Send for State {}

impl State {
    fn hit(&mut self) -> u32 {
        self.hits.with_mut(|hits| {
            // SAFETY: exclusive by `&mut self`; loom checks it.
            unsafe {
                *hits += 1;
                *hits
            }
        })
    }
}

impl Drop for State {
    fn drop(&mut self) {
        self.hit();
        self.color.hit();
        self.drops.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn last_drop() {
    Model {
        name: "colored::last_drop",
        preemptions_max: 2,
        iterations_min: 10_000,
    }
    .explore(|| {
        let world = World::new(Plan::cores(1));
        let mut core = world.core(0);
        let color = Arc::new(Shared(UnsafeCell::new(0)));
        let drops = Arc::new(AtomicU32::new(0));
        let runs = Arc::new(AtomicU32::new(0));
        let state = State {
            hits: UnsafeCell::new(0),
            color: Arc::clone(&color),
            drops: Arc::clone(&drops),
        };
        let colored = Colored::new(&world.poster(), RUNS, state);
        let driven = thread::spawn(move || core.drive());
        let (poster, handle, counted) = (world.poster(), colored.clone(), Arc::clone(&runs));
        let posting = thread::spawn(move || {
            let event = move |state: &mut State, _cx: &mut mely::Cx| {
                state.hit();
                counted.fetch_add(1, Ordering::Relaxed);
            };
            handle.try_post(&poster, event).is_ok()
        });
        drop(colored);
        let other = move |_cx: &mut mely::Cx| color.hit();
        world.poster().try_post(RUNS, other).unwrap();
        let accepted = posting.join().unwrap();
        world.stop();
        driven.join().unwrap();
        assert_eq!(
            runs.load(Ordering::Relaxed),
            u32::from(accepted),
            "ORACLE: event"
        );
        assert_eq!(drops.load(Ordering::Relaxed), 1, "ORACLE: the state's drop");
    });
}

#[test]
fn finds_a_state_dropped_in_place() {
    must_fail(
        "colored::last_drop",
        "state dropped in place",
        &["Causality violation"],
    );
}
