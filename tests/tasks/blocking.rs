//! Blocking work: threads of the runtime, results in the callback's color, limits and the end.

mod simulated;
mod threads;

use crate::common::{Alive, Bound, LONG, Payload, cores, eventually};
use mely::Post;
use mely::Reason;
use mely::runtime::OnPanic;
use mely::task::{JoinError, join_all};
use mely::{Color, Cx, Handler, JoinHandle, Rejected, RunError};
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

static SHORT: Handler = Handler::new("short").time(Duration::from_nanos(20));
static RESULT: Handler = Handler::new("result");
const COLOR: Color = Color::new(7);

/// Work that says that it has begun, and waits until it is let go.
struct Gate {
    begun: Sender<()>,
    go: Receiver<()>,
}

impl Gate {
    fn new() -> (Gate, Receiver<()>, Sender<()>) {
        let (begun, has_begun) = channel();
        let (let_go, go) = channel();
        (Gate { begun, go }, has_begun, let_go)
    }

    fn wait(self) {
        let _ = self.begun.send(());
        let _ = self.go.recv();
    }
}

#[test]
fn the_result_is_an_event_of_the_callbacks_color() {
    let _bound = Bound::new("the_result_is_an_event");
    let runtime = cores(2).build().unwrap();
    let observer = runtime.poster();
    let outcome = runtime.run_until(|cx, finish| {
        let here = std::thread::current().id();
        let given = cx
            .try_blocking(move || (std::thread::current().id(), [5_u8; 200]))
            .unwrap();
        type Both = Result<(std::thread::ThreadId, [u8; 200]), JoinError>;
        let done = RESULT.on_value(COLOR, move |cx, result: Both| {
            let (there, bytes) = result.unwrap();
            assert_eq!((cx.color(), cx.handler()), (COLOR, "result"));
            assert_ne!(there, here);
            finish.finish(bytes[199]);
        });
        given.then(cx, done);
    });
    assert_eq!(outcome.unwrap(), 5);
    let stats = observer.stats().blocking;
    assert_eq!(
        (stats.started, stats.queued_max, stats.threads_max),
        (1, 1, 1)
    );
    assert_eq!((stats.running, stats.queued, stats.threads), (0, 0, 0));
}

#[test]
fn results_come_in_the_order_of_completion() {
    let _bound = Bound::new("results_come_in_the_order");
    let order = cores(2).build().unwrap().run_until(|cx, finish| {
        let order = Arc::new(Mutex::new(Vec::new()));
        let (gate, begun, go) = Gate::new();
        let late = Arc::clone(&order);
        let first = RESULT.on_value(COLOR, move |_cx, _| {
            late.lock().unwrap().push("given first");
            finish.finish(late.lock().unwrap().clone());
        });
        let given = cx.try_blocking(move || gate.wait()).unwrap();
        given.then(cx, first);
        let early = Arc::clone(&order);
        let second = RESULT.on_value(COLOR, move |_cx, _| {
            early.lock().unwrap().push("over first");
            drop(go);
        });
        let given = cx.try_blocking(move || begun.recv().unwrap()).unwrap();
        given.then(cx, second);
    });
    assert_eq!(order.unwrap(), ["over first", "given first"]);
}

#[test]
fn threads_and_queue_have_limits_and_what_is_refused_comes_back() {
    let _bound = Bound::new("threads_and_queue_have_limits");
    let runtime = cores(1)
        .blocking_threads_max(2)
        .blocking_queue_max(3)
        .exit_when_idle(true)
        .build()
        .unwrap();
    let observer = runtime.poster();
    let alive = Alive::default();
    let given = alive.clone();
    // How many ran at once, and the most of it.
    let in_pool = Arc::new((AtomicU64::new(0), AtomicU64::new(0)));
    let seen = Arc::clone(&in_pool);
    runtime
        .run(move |cx| {
            let (open, closed) = channel::<()>();
            let closed = Arc::new(Mutex::new(closed));
            let work = |counts: &Arc<(AtomicU64, AtomicU64)>| {
                let counts = Arc::clone(counts);
                let (closed, payload) = (Arc::clone(&closed), given.payload());
                move || {
                    let (at_once, most) = &*counts;
                    let now = 1 + at_once.fetch_add(1, Ordering::Relaxed);
                    most.fetch_max(now, Ordering::Relaxed);
                    let _ = closed.lock().unwrap().recv();
                    at_once.fetch_sub(1, Ordering::Relaxed);
                    drop(payload);
                    8
                }
            };
            for _ in 0..5 {
                cx.try_blocking(work(&in_pool)).unwrap();
            }
            // It will run on the core, beside the two threads.
            let not_in_pool = Arc::default();
            let error = cx.try_blocking(work(&not_in_pool)).unwrap_err();
            assert!(
                matches!(
                    error,
                    Rejected {
                        reason: Reason::BlockingFull,
                        ..
                    }
                ),
                "{error}"
            );
            assert!(error.to_string().contains("blocking_queue_max"), "{error}");
            drop(open);
            // It is whole.
            assert_eq!((error.value)(), 8);
        })
        .unwrap();
    let (at_once, most) = &*seen;
    assert!(most.load(Ordering::Relaxed) <= 2);
    assert_eq!((at_once.load(Ordering::Relaxed), alive.count()), (0, 0));
    let stats = observer.stats().blocking;
    assert_eq!((stats.started, stats.refused, stats.threads_max), (5, 1, 2));
    assert_eq!(observer.stats().events(), 1);
}

/// The closure is dropped at once, and the handle says so. Work that has begun or is over is not
/// canceled.
#[test]
fn work_that_has_not_begun_can_be_canceled() {
    let _bound = Bound::new("work_that_has_not_begun");
    let runtime = cores(1)
        .blocking_threads_max(1)
        .exit_when_idle(true)
        .build()
        .unwrap();
    let observer = runtime.poster();
    let (tell, told) = channel();
    let alive = Alive::default();
    let (work, callback) = (alive.payload(), alive.payload());
    let count = alive.clone();
    runtime
        .run(move |cx| {
            let (gate, begun, go) = Gate::new();
            let mut first = cx.try_blocking(move || gate.wait()).unwrap();
            let mut second = cx.try_blocking(move || drop::<Payload>(work)).unwrap();
            let third = cx.try_blocking(|| ()).unwrap();
            let joined = join_all([cx.try_blocking(|| ()).unwrap(), third]);
            std::thread::spawn(move || {
                begun.recv().unwrap();
                second.cancel();
                assert_eq!(count.count(), 1, "the closure is gone");
                assert!(second.is_finished());
                assert_eq!(second.recv(), Err(JoinError::Canceled));
                joined.cancel();
                // The callback is called in its color.
                tell.send(joined).unwrap();
                first.cancel();
                assert!(!first.is_finished(), "it has begun");
                drop(go);
                assert_eq!(first.recv(), Ok(()));
                first.cancel();
                assert_eq!(first.recv(), Err(JoinError::Taken));
            });
            let joined = told.recv().unwrap();
            let done = move |cx: &mut Cx, all| {
                let canceled = Err(JoinError::Canceled);
                assert_eq!(cx.color(), COLOR);
                assert_eq!(all, Ok(vec![canceled, canceled]));
                drop::<Payload>(callback);
            };
            joined.then(cx, RESULT.on_value(COLOR, done));
        })
        .unwrap();
    assert_eq!(alive.count(), 0);
    let stats = observer.stats().blocking;
    assert_eq!((stats.started, stats.canceled), (1, 3));
}

/// It is done all the same, and its value is dropped on the thread that ran it.
#[test]
fn a_handle_that_is_dropped_detaches_its_work() {
    struct Names(Sender<Option<String>>);
    impl Drop for Names {
        fn drop(&mut self) {
            let name = std::thread::current().name().map(str::to_owned);
            self.0.send(name).unwrap();
        }
    }
    let _bound = Bound::new("a_handle_that_is_dropped");
    let runtime = cores(1)
        .blocking_threads_max(1)
        .exit_when_idle(true)
        .build()
        .unwrap();
    let observer = runtime.poster();
    let (tell, told) = channel();
    let alive = Alive::default();
    let payload = alive.payload();
    runtime
        .run(move |cx| {
            let (gate, begun, go) = Gate::new();
            let (first, second) = (Names(tell.clone()), Names(tell));
            let runs = move || {
                gate.wait();
                first
            };
            let runs = cx.try_blocking(runs).unwrap();
            let waits = cx.try_blocking(move || second).unwrap();
            let never = cx.try_blocking(move || payload).unwrap();
            begun.recv().unwrap();
            drop((runs, waits));
            // This one is canceled.
            drop(never.cancel_on_drop());
            drop(go);
        })
        .unwrap();
    let names: Vec<_> = told.iter().flatten().collect();
    assert_eq!(names, ["mely-blocking-0", "mely-blocking-0"]);
    assert_eq!(alive.count(), 0);
    let stats = observer.stats().blocking;
    assert_eq!((stats.started, stats.canceled), (2, 1));
}

/// Nor is the drop of a value of a detached handle, nor that of canceled work.
#[test]
fn no_panic_is_lost() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("when dropped");
        }
    }
    let _bound = Bound::new("no_panic_is_lost");
    let told = Arc::new(Mutex::new(Vec::new()));
    let tells = Arc::clone(&told);
    let runtime = cores(1)
        .on_panic(OnPanic::DropEvent)
        .panic_hook(move |report| tells.lock().unwrap().push(report.clone()))
        .blocking_threads_max(1)
        .exit_when_idle(true)
        .build()
        .unwrap();
    runtime
        .run(|cx| {
            // A value that no handle takes.
            drop(cx.try_blocking(|| Bomb).unwrap());
            let (gate, begun, go) = Gate::new();
            let runs = cx.try_blocking(move || gate.wait()).unwrap();
            begun.recv().unwrap();
            let bomb = Bomb;
            let waits = cx.try_blocking(move || drop(bomb)).unwrap();
            let mut dropped = waits.cancel_on_drop();
            let canceled = std::panic::catch_unwind(AssertUnwindSafe(|| dropped.cancel()));
            assert!(canceled.is_err());
            assert_eq!(dropped.try_recv(), Some(Err(JoinError::Panicked)));
            // While a panic unwinds, that one is the only one.
            let bomb = Bomb;
            let waits = cx.try_blocking(move || drop(bomb)).unwrap();
            let unwound = std::panic::catch_unwind(AssertUnwindSafe(|| {
                let _waits = waits.cancel_on_drop();
                std::panic::resume_unwind(Box::new("meant"));
            }));
            assert_eq!(unwound.unwrap_err().downcast_ref(), Some(&"meant"));
            drop((go, runs));
        })
        .unwrap();
    let told = told.lock().unwrap();
    assert_eq!(told.len(), 1, "{told:?}");
    assert_eq!(told[0].message, "when dropped");
}

#[test]
fn a_panic_of_the_work_is_one_of_the_giver() {
    static GIVES: Handler = Handler::new("gives");
    let _bound = Bound::new("a_panic_of_the_work");
    // By default it ends the event, here the run.
    let alive = Alive::default();
    let payload = alive.payload();
    let outcome = cores(2).on_panic(OnPanic::Stop).build().unwrap().run(|cx| {
        let gives = GIVES.on(COLOR, move |cx| {
            let work = move || {
                let _payload = payload;
                panic!("the disk is gone");
            };
            cx.try_blocking::<(), _>(work).unwrap();
        });
        gives.post(cx);
    });
    let Err(RunError::Panicked { panic, .. }) = outcome else {
        panic!("{outcome:?}");
    };
    assert_eq!((panic.handler, panic.color), ("gives", COLOR));
    assert_eq!(panic.message, "the disk is gone");
    assert_eq!(alive.count(), 0);
    // Or the event is lost, and the thread goes on.
    let told = Arc::new(Mutex::new(Vec::new()));
    let tells = Arc::clone(&told);
    let runtime = cores(2)
        .on_panic(OnPanic::DropEvent)
        .panic_hook(move |report| tells.lock().unwrap().push(report.clone()))
        .blocking_threads_max(1)
        .exit_when_idle(true)
        .build()
        .unwrap();
    let observer = runtime.poster();
    // Of another thread, in the order in which they are given.
    let outside = observer
        .try_blocking(|| panic!("of another thread"))
        .map(|handle: JoinHandle<()>| handle)
        .unwrap();
    let results = Arc::new(Mutex::new(Vec::new()));
    let come = Arc::clone(&results);
    runtime
        .run(move |cx| {
            let none = move |cx: &mut Cx| {
                let given = (0..5).map(|i| {
                    let work = move || assert_ne!(i, 3, "three");
                    cx.try_blocking(work).unwrap()
                });
                let done = move |_cx: &mut Cx, all| come.lock().unwrap().push(all);
                join_all(given.chain([outside])).then(cx, RESULT.on_value(COLOR, done));
            };
            cx.post(COLOR, none);
        })
        .unwrap();
    let panicked = Err(JoinError::Panicked);
    let expected = [Ok(()), Ok(()), Ok(()), panicked, Ok(()), panicked];
    assert_eq!(*results.lock().unwrap(), [Ok(expected.to_vec())]);
    // Of two colors.
    let mut told = told.lock().unwrap();
    told.sort_by_key(|report| report.color == COLOR);
    let [outside, inside] = &told[..] else {
        panic!("{told:?}");
    };
    assert_eq!(outside.message, "of another thread");
    assert_eq!(outside.color.to_string(), "control 0");
    // Without a handler they are named after the closure.
    let name = concat!(
        module_path!(),
        "::a_panic_of_the_work_is_one_of_the_giver::{{closure}}"
    );
    assert!(outside.handler.starts_with(name), "{}", outside.handler);
    assert!(inside.handler.starts_with(name), "{}", inside.handler);
    assert_eq!((inside.color, inside.core), (COLOR, inside.core));
    let stats = observer.stats();
    assert_eq!((stats.blocking.started, stats.blocking.threads_max), (6, 1));
    assert_eq!(stats.cores.iter().map(|core| core.panics).sum::<u64>(), 2);
}

/// The color is held until the result comes. The report waits for the color, the result does not.
#[test]
fn a_panic_of_the_work_does_not_wait_for_the_givers_color() {
    let _bound = Bound::new("a_panic_of_the_work_does_not_wait");
    let runtime = cores(1)
        .on_panic(OnPanic::DropEvent)
        .panic_hook(|_report| ())
        .build()
        .unwrap();
    let told = runtime.run_until(|cx, finish| {
        cx.post(COLOR, move |cx| {
            let given = cx.try_blocking::<(), _>(|| panic!("planted")).unwrap();
            let hold = cx.hold();
            given.then(cx, hold.on_value(move |_cx, result| finish.finish(result)));
        });
    });
    assert_eq!(told.unwrap(), Err(JoinError::Panicked));
}

/// Whoever is to be answered is, and then the run ends.
#[test]
fn a_stop_during_the_work_delivers_the_result() {
    let _bound = Bound::new("a_stop_during_the_work");
    for exits in [false, true] {
        let (tell, told) = channel();
        let runtime = cores(2)
            .exit_when_idle(exits)
            .drain_deadline(LONG)
            .build()
            .unwrap();
        let poster = runtime.poster();
        runtime
            .run(move |cx| {
                if !exits {
                    cx.stop();
                }
                // Five, of which each begins the next one when it is over.
                fn next(cx: &mut Cx, left: u32, tell: Sender<u32>) {
                    let done = RESULT.on_value(COLOR, move |cx, _| {
                        tell.send(left).unwrap();
                        if left > 0 {
                            next(cx, left - 1, tell);
                        }
                    });
                    let sleep = || std::thread::sleep(Duration::from_millis(5));
                    cx.try_blocking(sleep).unwrap().then(cx, done);
                }
                next(cx, 4, tell);
            })
            .unwrap();
        assert_eq!(told.iter().collect::<Vec<_>>(), [4, 3, 2, 1, 0]);
        let refused = poster.try_blocking(|| ());
        assert!(matches!(
            refused,
            Err(Rejected {
                reason: Reason::Ended,
                ..
            })
        ));
    }
}

#[test]
fn who_may_give_work_from_outside() {
    let _bound = Bound::new("who_may_give_work");
    let runtime = cores(1).drain_deadline(LONG).build().unwrap();
    let poster = runtime.poster();
    // Before the run, it waits for it.
    let mut early = poster.try_blocking(|| 1).unwrap();
    let keep_alive = poster.strong().unwrap();
    let thread = std::thread::spawn(move || {
        eventually("the stop", || {
            matches!(
                poster.try_post(COLOR, |_cx| ()),
                Err(Rejected {
                    reason: Reason::Ended,
                    ..
                })
            )
        });
        let refused = poster.try_blocking(|| 3);
        assert!(matches!(
            refused,
            Err(Rejected {
                reason: Reason::Ended,
                ..
            })
        ));
        keep_alive.try_blocking(|| 2).unwrap()
    });
    runtime.run(|cx| cx.stop()).unwrap();
    let mut late = thread.join().unwrap();
    assert_eq!((early.recv(), late.recv()), (Ok(1), Ok(2)));
}

/// What runs at the deadline is named, and what waits is dropped.
#[test]
fn at_the_deadline_work_is_named_and_dropped() {
    static GIVES: Handler = Handler::new("gives");
    let _bound = Bound::new("at_the_deadline_work");
    let runtime = cores(1)
        .blocking_threads_max(1)
        .drain_deadline(Duration::from_millis(20))
        .build()
        .unwrap();
    let alive = Alive::default();
    let (gate, _begun, go) = Gate::new();
    let payloads: Vec<_> = (0..6).map(|_| alive.payload()).collect();
    let (tell, handles) = channel();
    let outcome = runtime.run(move |cx| {
        let gives = GIVES.on(COLOR, move |cx| {
            cx.try_blocking(move || gate.wait()).unwrap();
            for payload in payloads {
                let work = move || drop::<Payload>(payload);
                tell.send(cx.try_blocking(work).unwrap()).unwrap();
            }
            cx.stop();
        });
        gives.post(cx);
    });
    for mut handle in handles {
        assert_eq!(handle.recv(), Err(JoinError::Dropped));
    }
    assert_eq!(alive.count(), 0, "what waited is gone");
    let Err(error) = outcome else {
        panic!("the work has not returned");
    };
    assert!(
        error.to_string().contains("handler `gives` goes on"),
        "{error}"
    );
    let RunError::Deadline {
        strong_posters_left,
        blocking_stuck,
        stuck,
        ..
    } = error
    else {
        panic!("{error}");
    };
    assert_eq!((strong_posters_left, stuck.len()), (7, 0));
    assert_eq!(blocking_stuck, ["gives"]);
    drop(go);
}

#[test]
fn results_come_also_at_the_limit_of_events() {
    let _bound = Bound::new("results_come_also");
    let runtime = cores(1).events_max(1).build().unwrap();
    runtime
        .run(|cx| {
            let done = RESULT.on_value(COLOR, |cx, _| cx.stop());
            let (gate, begun, go) = Gate::new();
            cx.try_blocking(move || gate.wait()).unwrap().then(cx, done);
            begun.recv().unwrap();
            while cx.try_post(Color::from(1), |_cx| ()).is_ok() {}
            drop(go);
            std::thread::sleep(Duration::from_millis(10));
        })
        .unwrap();
}

#[test]
fn whoever_asked_is_told_that_work_waits_for_long() {
    static GIVES: Handler = Handler::new("gives");
    let _bound = Bound::new("whoever_asked_is_told");
    let told = Arc::new(Mutex::new(Vec::new()));
    let tells = Arc::clone(&told);
    let runtime = cores(1)
        .blocking_threads_max(1)
        .on_slow_blocking(Duration::from_millis(100), move |slow| {
            tells.lock().unwrap().push(slow.clone());
        })
        .build()
        .unwrap();
    let seen = Arc::clone(&told);
    runtime
        .run(move |cx| {
            let (gate, begun, go) = Gate::new();
            cx.try_blocking(move || gate.wait()).unwrap();
            begun.recv().unwrap();
            let waits = GIVES.on(Color::from(8), |cx| drop(cx.try_blocking(|| ()).unwrap()));
            waits.post(cx);
            let last = move |cx: &mut Cx| {
                let stops = RESULT.on_value(COLOR, |cx, _| cx.stop());
                cx.try_blocking(|| ()).unwrap().then(cx, stops);
            };
            cx.post(Color::from(8), last);
            std::thread::spawn(move || {
                eventually("the warning", || !seen.lock().unwrap().is_empty());
                std::thread::sleep(Duration::from_millis(300));
                drop(go);
            });
        })
        .unwrap();
    let told = told.lock().unwrap();
    assert_eq!(told.len(), 1, "once: {told:?}");
    assert_eq!(
        (told[0].handler, told[0].queued, told[0].threads),
        ("gives", 2, 1)
    );
    assert!(told[0].waited_for >= Duration::from_millis(100));
}

#[test]
fn work_that_was_given_to_a_runtime_that_never_runs_is_dropped() {
    let alive = Alive::default();
    let runtime = cores(1).build().unwrap();
    let poster = runtime.poster();
    let work = alive.payload();
    let work = move || drop::<Payload>(work);
    let mut handle = poster.try_blocking(work).unwrap();
    drop(runtime);
    assert_eq!(alive.count(), 0);
    handle.cancel();
    assert_eq!(handle.recv(), Err(JoinError::Dropped));
}

/// Also if the drops of two of them panic: the first panic comes out when all are dropped.
#[test]
fn work_that_panics_when_dropped_keeps_nothing_else_from_being_dropped() {
    struct Bomb(#[allow(dead_code, reason = "it is dropped")] Payload);
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("when dropped");
        }
    }
    let alive = Alive::default();
    let runtime = cores(1).build().unwrap();
    let poster = runtime.poster();
    let event = alive.payload();
    poster.try_post(COLOR, move |_cx| drop(event)).unwrap();
    for _ in 0..2 {
        let bomb = Bomb(alive.payload());
        poster.try_blocking(move || drop(bomb)).unwrap();
    }
    let dropped = std::panic::catch_unwind(AssertUnwindSafe(|| drop(runtime)));
    assert_eq!(dropped.unwrap_err().downcast_ref(), Some(&"when dropped"));
    assert_eq!(alive.count(), 0);
}

/// Thousands, some of which panic or are canceled, with the stop in the middle: each is over once.
#[test]
fn whatever_becomes_of_it_is_counted_once() {
    let _bound = Bound::new("whatever_becomes_of_it");
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if info.payload().downcast_ref::<&str>() != Some(&"meant") {
            before(info);
        }
    }));
    for round in 0..4u64 {
        let runtime = cores(2)
            .on_panic(OnPanic::DropEvent)
            .blocking_threads_max(1 + round as usize)
            .blocking_queue_max(100)
            .drain_deadline(LONG)
            .build()
            .unwrap();
        let observer = runtime.poster();
        let alive = Alive::default();
        let [ran, panics] = [0; 2].map(|_| Arc::new(AtomicU64::new(0)));
        let [accepted, refused, canceled] = [0; 3].map(|_| Arc::new(AtomicU64::new(0)));
        let threads: Vec<_> = (0..3u64)
            .map(|thread| {
                let poster = runtime.poster();
                let alive = alive.clone();
                let add = |to: &Arc<AtomicU64>| {
                    let to = Arc::clone(to);
                    move || to.fetch_add(1, Ordering::Relaxed)
                };
                let (ran, panics) = (Arc::clone(&ran), Arc::clone(&panics));
                let (accepted, refused, canceled) = (add(&accepted), add(&refused), add(&canceled));
                std::thread::spawn(move || {
                    let mut handles = Vec::new();
                    for i in 0..1_500 {
                        let (work, value) = (alive.payload(), alive.payload());
                        let (ran, panics) = (Arc::clone(&ran), Arc::clone(&panics));
                        let work = move || {
                            let _work = work;
                            if i % 50 == 7 {
                                panics.fetch_add(1, Ordering::Relaxed);
                                std::panic::panic_any("meant");
                            }
                            ran.fetch_add(1, Ordering::Relaxed);
                            (i, value)
                        };
                        match poster.try_blocking(work) {
                            Ok(handle) => {
                                accepted();
                                if i % 3 == thread {
                                    handle.cancel();
                                    handles.push((i, handle));
                                } else if i % 5 != 2 {
                                    handles.push((i, handle));
                                }
                            }
                            Err(Rejected {
                                reason: Reason::BlockingFull,
                                ..
                            }) => {
                                refused();
                            }
                            Err(Rejected {
                                reason: Reason::Ended,
                                ..
                            }) => break,
                            Err(error) => panic!("{error}"),
                        }
                    }
                    for (i, mut handle) in handles {
                        match handle.recv() {
                            Ok((n, _value)) => assert_eq!(n, i),
                            Err(JoinError::Panicked) => assert_eq!(i % 50, 7),
                            Err(error) => {
                                assert_eq!((error, i % 3), (JoinError::Canceled, thread));
                                canceled();
                            }
                        }
                    }
                    if thread == 0 {
                        poster.stop();
                    }
                })
            })
            .collect();
        runtime.run(|_cx| ()).unwrap();
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
        let read = |of: &Arc<AtomicU64>| of.load(Ordering::Relaxed);
        let stats = observer.stats();
        assert_eq!(stats.blocking.started, read(&ran) + read(&panics));
        assert_eq!(stats.blocking.canceled, read(&canceled));
        assert_eq!(stats.blocking.refused, read(&refused));
        assert_eq!(
            read(&accepted),
            stats.blocking.started + stats.blocking.canceled
        );
        let caught: u64 = stats.cores.iter().map(|core| core.panics).sum();
        assert_eq!(caught, read(&panics));
        assert_eq!(alive.count(), 0);
        assert_eq!((stats.blocking.threads, stats.blocking.running), (0, 0));
    }
}
