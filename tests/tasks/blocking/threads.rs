//! The threads of blocking work: when they end, and where they run.

use super::{COLOR, Gate, RESULT};
use crate::common::{Bound, LONG, child_passes, cores, eventually};
use mely::Post;
use mely::{Cx, Poster};
use std::cell::RefCell;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

#[test]
fn threads_that_are_idle_end() {
    let _bound = Bound::new("threads_that_are_idle");
    let runtime = cores(1)
        .blocking_idle(Duration::from_millis(10))
        .build()
        .unwrap();
    let poster = runtime.poster();
    let watching = std::thread::spawn(move || {
        for round in 1..4 {
            let started = || poster.stats().blocking.started;
            for _ in 0..3 {
                poster.try_blocking(|| ()).unwrap();
            }
            eventually("their work", || started() == 3 * round);
            eventually("their end", || poster.stats().blocking.threads == 0);
        }
        poster.stop();
    });
    runtime.run(|_cx| ()).unwrap();
    watching.join().unwrap();
}

/// Also those that a pinned core has started.
#[test]
fn threads_may_use_the_processors_of_who_called_run() {
    let _bound = Bound::new("threads_may_use");
    let mine = rustix::thread::sched_getaffinity(None).unwrap();
    let builder = cores(1).pin(true);
    let theirs = builder.build().unwrap().run_until(|cx, finish| {
        let done = RESULT.on_value(COLOR, move |_cx, set| finish.finish(set));
        let work = || rustix::thread::sched_getaffinity(None).unwrap();
        cx.try_blocking(work).unwrap().then(cx, done);
    });
    assert!(theirs.unwrap().unwrap() == mine);
}

/// What a thread does when its thread locals are dropped.
struct AtEnd(Option<Box<dyn FnOnce() + Send>>);

impl AtEnd {
    thread_local! {
        static OF_THREAD: RefCell<Option<AtEnd>> = const { RefCell::new(None) };
    }

    /// This, when the calling thread ends.
    fn set(f: impl FnOnce() + Send + 'static) {
        let at_end = AtEnd(Some(Box::new(f)));
        AtEnd::OF_THREAD.with_borrow_mut(|of_thread| *of_thread = Some(at_end));
    }
}

impl Drop for AtEnd {
    fn drop(&mut self) {
        if let Some(f) = self.0.take() {
            f();
        }
    }
}

/// Neither a handler nor the thread itself, which uses the runtime meanwhile.
#[test]
fn a_thread_that_ends_is_waited_for_by_nobody_before_the_end() {
    let _bound = Bound::new("a_thread_that_ends");
    let runtime = cores(1)
        .blocking_idle(Duration::from_millis(1))
        .build()
        .unwrap();
    let poster = runtime.poster();
    let over = Arc::new(AtomicU64::new(0));
    let counts = Arc::clone(&over);
    let started = runtime.run_until(move |cx, finish| {
        let (tell, ends) = channel();
        let (let_go, go) = channel::<()>();
        let work = move || {
            AtEnd::set(move || {
                tell.send(()).unwrap();
                let _ = go.recv();
                let stats = poster.stats().blocking;
                let last = move |_cx: &mut Cx| finish.finish(stats.started);
                let posts = poster.clone();
                let gives = move || posts.try_post(COLOR, last).unwrap();
                poster.try_blocking(gives).unwrap();
                std::thread::sleep(Duration::from_millis(50));
                counts.fetch_add(1, Ordering::Relaxed);
            });
        };
        cx.try_blocking(work).unwrap();
        ends.recv().unwrap();
        // It has left the pool, and has not ended.
        cx.try_blocking(|| ()).unwrap();
        drop(let_go);
    });
    assert!([1, 2].contains(&started.unwrap()));
    assert_eq!(over.load(Ordering::Relaxed), 1, "then it is waited for");
}

/// Nor by threads that end after it, which would pile up.
#[test]
fn a_thread_that_ends_slowly_keeps_no_other_from_ending() {
    child_passes("blocking::threads::child_ends_slowly", &[]);
}

#[test]
#[ignore = "run in a process of its own"]
fn child_ends_slowly() {
    fn threads() -> usize {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap();
        let names = tasks.map(|task| std::fs::read_to_string(task.unwrap().path().join("comm")));
        let names = names.filter_map(Result::ok);
        names
            .filter(|name| name.starts_with("mely-blocking"))
            .count()
    }
    let builder = cores(1).blocking_threads_max(1);
    let runtime = builder
        .blocking_idle(Duration::from_millis(1))
        .build()
        .unwrap();
    let poster = runtime.poster();
    let (tell, ends) = channel();
    let (let_go, go) = channel::<()>();
    let gives = std::thread::spawn(move || {
        let keep = poster.strong().unwrap();
        let slow = move || {
            AtEnd::set(move || {
                tell.send(()).unwrap();
                let _ = go.recv();
            });
        };
        poster.try_blocking(slow).unwrap();
        ends.recv().unwrap();
        for started in 2..30 {
            poster.try_blocking(|| ()).unwrap();
            eventually("another thread", || {
                let stats = poster.stats().blocking;
                stats.started >= started && stats.threads == 0
            });
        }
        // The slow one, one that waits for it at most, and one that has just left.
        eventually("the end of the others", || threads() <= 3);
        drop(let_go);
        drop(keep);
        poster.stop();
    });
    runtime.run(|_cx| ()).unwrap();
    gives.join().unwrap();
}

/// One panic is reported. The payload of the other one uses the runtime when it is dropped.
#[test]
fn two_panics_at_the_end_are_no_deadlock() {
    struct Asks(Poster);
    impl Drop for Asks {
        fn drop(&mut self) {
            assert_eq!(self.0.stats().blocking.started, 2);
        }
    }
    struct PanicsWith(Option<Asks>);
    impl Drop for PanicsWith {
        fn drop(&mut self) {
            std::panic::panic_any(self.0.take());
        }
    }
    let _bound = Bound::new("two_panics_at_the_end");
    let runtime = cores(1).drain_deadline(Duration::ZERO).build().unwrap();
    let poster = runtime.poster();
    let ran = std::panic::catch_unwind(AssertUnwindSafe(|| {
        runtime.run(move |cx| {
            let open: Vec<_> = (0..2)
                .map(|_| {
                    let (gate, begun, go) = Gate::new();
                    let panics = PanicsWith(Some(Asks(poster.clone())));
                    let never = RESULT.on_value(COLOR, move |_cx, _| drop(panics));
                    cx.try_blocking(move || gate.wait())
                        .unwrap()
                        .then(cx, never);
                    begun.recv().unwrap();
                    go
                })
                .collect();
            cx.stop();
            std::thread::spawn(move || {
                // The results are refused, since the run was cut short.
                eventually("the end", || poster.strong().is_err());
                drop(open);
            });
        })
    }));
    let payload = ran.unwrap_err();
    assert!(payload.is::<Option<Asks>>());
}

#[test]
fn no_thread_is_left_after_the_run() {
    child_passes("blocking::threads::child_leaves_no_thread", &[]);
}

#[test]
#[ignore = "in a process of its own"]
fn child_leaves_no_thread() {
    let _bound = Bound::new("child_leaves_no_thread");
    let threads = || std::fs::read_dir("/proc/self/task").unwrap().count();
    let before = threads();
    for round in 0..30 {
        let cut_short = round % 3 == 0;
        let deadline = if cut_short { Duration::ZERO } else { LONG };
        let runtime = cores(2).drain_deadline(deadline).build().unwrap();
        let outcome = runtime.run(move |cx| {
            for _ in 0..100 {
                let work = || std::thread::sleep(Duration::from_micros(300));
                cx.try_blocking(work).unwrap();
            }
            cx.stop();
        });
        assert!(outcome.is_ok() || cut_short, "{outcome:?}");
        assert_eq!(threads(), before, "in round {round}");
    }
}
