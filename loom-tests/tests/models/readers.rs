//! Readers of a state: together, and never beside or before who has it alone.

use crate::support::{RUNS, SHORT, WORTHY, settle, steps, within, world_with_gates};
use loom::cell::UnsafeCell;
use mely::runtime::Stealing;
use mely::{Color, Colored, Cx, Poster};
use mely_loom_tests::{Model, must_fail};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A color of core 1.
const THERE: Color = Color::new(1);

/// A state whose accesses loom looks at.
struct State(UnsafeCell<u32>);

// SAFETY: the cell is checked by loom: an access that overlaps with another is reported and not
// performed.
unsafe impl Sync for State {}
// SAFETY: as above.
unsafe impl Send for State {}

impl State {
    fn new() -> State {
        State(UnsafeCell::new(0))
    }

    fn read(&self) -> u32 {
        // SAFETY: loom reports who writes meanwhile.
        self.0.with(|value| unsafe { *value })
    }

    fn write(&mut self) {
        // SAFETY: as above, also who reads.
        self.0.with_mut(|value| unsafe { *value += 1 });
    }
}

/// A thread that is no core posts to a state of each core; what it posts counts that it has run.
type Posts = fn(&Poster, &Colored<State>, &Colored<State>, Arc<AtomicUsize>);

/// A reader of both states begins on core 0. While it goes on, on core 1, `posts` posts this many
/// events.
fn explore(model: Model, posts: Posts, events: usize) {
    model.explore(move || {
        let (world, mut here, there) = world_with_gates(Stealing::OFF);
        let poster = world.poster();
        let ran = Arc::new(AtomicUsize::new(0));
        let a = Colored::new(&poster, RUNS, State::new());
        let b = Colored::new(&poster, THERE, State::new());
        let counts = Arc::clone(&ran);
        let first = poster.try_read([&a, &b], move |[a, b], _cx| {
            assert_eq!(a.read() + b.read(), 0, "ORACLE: written before");
            counts.fetch_add(1, Ordering::Relaxed);
        });
        assert!(first.is_ok(), "nobody has asked for the end");
        here.step();
        let beside = steps(there, 3);
        posts(&poster, &a, &b, Arc::clone(&ran));
        drop((poster, a, b));
        here.step();
        here.step();
        let mut there = beside.join().unwrap();
        settle(&mut [&mut here, &mut there]);
        let ran = ran.load(Ordering::Relaxed);
        assert_eq!(ran, 1 + events, "ORACLE: not all ran");
        assert_eq!(world.events_left(), 0);
        drop((here, there));
        world.assert_at_rest();
    });
}

/// One more comes to read the first state when the last may be about to go; then a writer.
#[test]
fn join_and_leave() {
    let model = Model {
        name: "readers::join_and_leave",
        preemptions_max: 2,
        iterations_min: 200,
    };
    fn posts(by: &Poster, a: &Colored<State>, _b: &Colored<State>, ran: Arc<AtomicUsize>) {
        let counts = Arc::clone(&ran);
        let read = by.try_read(a, move |a, _cx| {
            assert_eq!(a.read(), 0, "ORACLE: written before");
            counts.fetch_add(1, Ordering::Relaxed);
        });
        let written = a.try_post(by, move |a, _cx| {
            a.write();
            ran.fetch_add(1, Ordering::Relaxed);
        });
        assert!(read.is_ok() && written.is_ok());
    }
    explore(model, posts, 2);
}

#[test]
fn finds_reader_joins_after_the_last() {
    must_fail(
        "readers::join_and_leave",
        "reader joins after the last",
        &["no reader has it any more", "the last one goes once"],
    );
}

#[test]
fn finds_value_kept_by_a_reader_that_goes() {
    must_fail(
        "readers::join_and_leave",
        "value kept by a reader that goes",
        &["no reader has it any more"],
    );
}

/// A writer of both states comes, and then one who reads the first.
#[test]
fn behind_a_writer() {
    let model = Model {
        name: "readers::behind_a_writer",
        preemptions_max: 2,
        iterations_min: 200,
    };
    fn posts(by: &Poster, a: &Colored<State>, b: &Colored<State>, ran: Arc<AtomicUsize>) {
        let counts = Arc::clone(&ran);
        let written = by.try_with_all([a, b], move |[a, b], _cx| {
            a.write();
            b.write();
            counts.fetch_add(1, Ordering::Relaxed);
        });
        let read = by.try_read(a, move |a, _cx| {
            assert_eq!(a.read(), 1, "ORACLE: not written before");
            ran.fetch_add(1, Ordering::Relaxed);
        });
        assert!(read.is_ok() && written.is_ok());
    }
    explore(model, posts, 2);
}

/// A state is read and written, and its color stolen meanwhile.
#[test]
fn stolen() {
    const STOLEN: Color = Color::new(2);
    let model = Model {
        name: "readers::stolen",
        preemptions_max: 1,
        iterations_min: 200,
    };
    model.explore(|| {
        let stealing = Stealing::ALL;
        let (world, mut here, there) = world_with_gates(stealing);
        let ran = Arc::new(AtomicUsize::new(0));
        let state = Colored::new(&world.poster(), STOLEN, State::new());
        let counts = [(); 3].map(|()| Arc::clone(&ran));
        let posts = move |cx: &mut Cx| {
            let [before, writes, after] = counts;
            cx.read(&state.via(&WORTHY), move |state, _cx| {
                assert_eq!(state.read(), 0, "ORACLE: written before");
                before.fetch_add(1, Ordering::Relaxed);
            });
            state.via(&WORTHY).post(cx, move |state, _cx| {
                state.write();
                writes.fetch_add(1, Ordering::Relaxed);
            });
            cx.flush();
            let stealing = steps(there, 3);
            cx.read(&state.via(&WORTHY), move |state, _cx| {
                assert_eq!(state.read(), 1, "ORACLE: not written before");
                after.fetch_add(1, Ordering::Relaxed);
            });
            stealing
        };
        let stealing = within(&world, &mut here, &SHORT, posts);
        here.step();
        here.step();
        let mut there = stealing.join().unwrap();
        settle(&mut [&mut here, &mut there]);
        let ran = ran.load(Ordering::Relaxed);
        assert_eq!(ran, 3, "ORACLE: not all ran");
        assert_eq!(world.events_left(), 0);
        drop((here, there));
        world.assert_at_rest();
    });
}

#[test]
fn finds_reader_before_who_waits_when_stolen() {
    must_fail(
        "readers::stolen",
        "reader before who waits",
        &["ORACLE", "already lent"],
    );
}

#[test]
fn finds_reader_before_who_waits() {
    must_fail(
        "readers::behind_a_writer",
        "reader before who waits",
        &["ORACLE", "already lent"],
    );
}

#[test]
fn finds_reader_beside_a_hold() {
    must_fail(
        "readers::behind_a_writer",
        "reader beside a hold",
        &["ORACLE", "already lent", "read while it is held"],
    );
}
