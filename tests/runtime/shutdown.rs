//! How a run ends: drained, at the deadline, by itself; and what happens to what was left.

use crate::common::{Alive, Bound, LONG, cores, eventually};
use mely::Post;
use mely::Reason;
use mely::runtime::{Finish, Stealing};
use mely::sim::SimError;
use mely::task::JoinError;
use mely::{Callback, Color, Cx, Handler, Rejected, RunError};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

static STUBBORN: Handler = Handler::new("stubborn");

#[test]
fn what_is_queued_and_what_that_posts_is_run() {
    let _bound = Bound::new("what_is_queued");
    let count = Arc::new(AtomicU64::new(0));
    let seen = Arc::clone(&count);
    cores(3)
        .build()
        .unwrap()
        .run(move |cx| {
            cx.stop();
            assert!(cx.stopping());
            for i in 0..100 {
                let count = Arc::clone(&count);
                cx.post(Color::from(i), move |cx| chain(cx, 50, count));
            }
            fn chain(cx: &mut Cx, left: u64, count: Arc<AtomicU64>) {
                count.fetch_add(1, Ordering::Relaxed);
                if left > 0 {
                    let next = Color::from(cx.color().value() + 1);
                    cx.post(next, move |cx| chain(cx, left - 1, count));
                }
            }
        })
        .unwrap();
    assert_eq!(seen.load(Ordering::Relaxed), 100 * 51);
}

/// From a foreign thread, while all cores sleep, has slept for long, and have been woken.
#[test]
fn from_a_foreign_thread_while_all_sleep() {
    let _bound = Bound::new("from_a_foreign_thread");
    for pause_us in [0, 50, 500, 20_000] {
        let runtime = cores(3).spin(Duration::ZERO).build().unwrap();
        let poster = runtime.poster();
        let thread = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_micros(pause_us));
            poster.stop();
            poster.stop();
        });
        runtime.run(|_cx| ()).unwrap();
        thread.join().unwrap();
    }
}

/// Handlers that were thought short, and together in one quantum: of those that are left at the
/// deadline none begins after the one that runs.
#[test]
fn no_event_begins_after_the_deadline() {
    static SHORT: Handler = Handler::new("thought short").time(Duration::from_nanos(50));
    let _bound = Bound::new("no_event_begins");
    // The watchdog would tell the core to look up, too: without it the deadline alone does.
    for (colors, period) in [
        (1, Duration::from_micros(500)),
        (10, Duration::from_micros(500)),
        (1, Duration::MAX),
        (10, Duration::MAX),
    ] {
        let begun = Arc::new(AtomicU64::new(0));
        let open = Arc::new(AtomicBool::new(false));
        let alive = Alive::default();
        let runtime = cores(1)
            .drain_deadline(Duration::from_millis(20))
            .watchdog(period)
            .build()
            .unwrap();
        let (count, opens, given) = (Arc::clone(&begun), Arc::clone(&open), alive.clone());
        let outcome = runtime.run(move |cx| {
            for i in 0..10 {
                let (count, opens, payload) =
                    (Arc::clone(&count), Arc::clone(&opens), given.payload());
                let event = move |_cx: &mut Cx| {
                    count.fetch_add(1, Ordering::Relaxed);
                    while !opens.load(Ordering::Acquire) {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                    drop(payload);
                };
                SHORT.on(Color::from(1 + i % colors), event).post(cx);
            }
            // The owner is to be asleep when it is asked.
            std::thread::sleep(Duration::from_millis(10));
            cx.stop();
        });
        let Err(RunError::Deadline { stuck, .. }) = outcome else {
            panic!("{outcome:?}");
        };
        assert_eq!(stuck, [(0, "thought short")]);
        assert_eq!(begun.load(Ordering::Relaxed), 1);
        // The thread that was left behind ends with its handler, and drops what it has.
        open.store(true, Ordering::Release);
        eventually("the drop of all closures", || alive.count() == 0);
        assert_eq!(begun.load(Ordering::Relaxed), 1, "begun after the end");
    }
}

/// Threads that go on posting after the stop, refused each time, do not hold up the end.
#[test]
fn refused_posters_do_not_hold_up_the_end() {
    let _bound = Bound::new("refused_posters");
    for n in [1, 2] {
        let runtime = cores(n).drain_deadline(LONG).build().unwrap();
        let over = Arc::new(AtomicBool::new(false));
        let threads: Vec<_> = (0..48)
            .map(|_| {
                let (poster, over) = (runtime.poster(), Arc::clone(&over));
                std::thread::spawn(move || {
                    let mut accepted = 0;
                    while !over.load(Ordering::Relaxed) {
                        accepted += u32::from(poster.try_post(Color::from(1), |_cx| ()).is_ok());
                        // What is accepted is run before the end, and all 48 are ahead in that.
                        if accepted == 1_000 {
                            accepted = 0;
                            std::thread::sleep(Duration::from_millis(20));
                        }
                    }
                })
            })
            .collect();
        let ended = runtime.run(|cx| {
            cx.timer(
                Duration::from_millis(20),
                Callback::anonymous(Color::from(2), |cx| cx.stop()),
            );
        });
        over.store(true, Ordering::Relaxed);
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
        assert!(ended.is_ok(), "{ended:?}");
    }
}

#[test]
fn a_stop_before_the_run_still_runs_the_start() {
    let _bound = Bound::new("a_stop_before_the_run");
    let runtime = cores(2)
        .drain_deadline(Duration::from_secs(3))
        .build()
        .unwrap();
    runtime.poster().stop();
    // The deadline counts from when there is somebody to keep it.
    std::thread::sleep(Duration::from_millis(3_100));
    let ran = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&ran);
    runtime
        .run(move |cx| {
            assert!(cx.stopping());
            cx.post(Color::from(1), move |_cx| {
                ran.store(true, Ordering::Relaxed)
            });
        })
        .unwrap();
    assert!(seen.load(Ordering::Relaxed));
}

/// Busy polling for ever is no reason not to end.
#[test]
fn a_runtime_that_never_sleeps_ends() {
    let _bound = Bound::new("a_runtime_that_never_sleeps");
    for spin in [Duration::from_secs(3_600), Duration::MAX] {
        let runtime = cores(2).spin(spin).build().unwrap();
        runtime.run(|cx| cx.stop()).unwrap();
        let runtime = cores(2).spin(spin).exit_when_idle(true).build().unwrap();
        runtime.run(|_cx| ()).unwrap();
    }
}

/// Limits as large as they get mean "none".
#[test]
fn the_largest_deadline_is_none() {
    let _bound = Bound::new("the_largest_deadline");
    let runtime = cores(2)
        .drain_deadline(Duration::MAX)
        .on_slow_handler(Duration::MAX, |_| ())
        .wake_cost(Duration::MAX)
        .build()
        .unwrap();
    runtime
        .run(|cx| {
            cx.post(Color::from(1), |cx| cx.stop());
        })
        .unwrap();
}

/// Drained within no time at all, or said otherwise; never hung.
#[test]
fn no_deadline_at_all_to_drain() {
    let _bound = Bound::new("no_deadline_at_all");
    let runtime = cores(2).drain_deadline(Duration::ZERO).build().unwrap();
    match runtime.run(|cx| cx.stop()) {
        Ok(()) | Err(RunError::Deadline { .. }) => {}
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_handler_that_never_returns_is_reported() {
    let _bound = Bound::new("a_handler_that_never_returns");
    let runtime = cores(2)
        .drain_deadline(Duration::from_millis(100))
        .build()
        .unwrap();
    let let_go = Arc::new(AtomicBool::new(false));
    let wait = Arc::clone(&let_go);
    let begun = Instant::now();
    let alive = Alive::default();
    let (poster, payload) = (runtime.poster(), alive.payload());
    let waits = alive.payload();
    let (tell, told) = std::sync::mpsc::channel();
    let outcome = runtime.run(move |cx| {
        // A task that is never woken, and a thread that waits for it.
        let mut task = cx.spawn(Color::from(2), async move {
            let _waits = waits;
            std::future::pending::<()>().await;
        });
        std::thread::spawn(move || tell.send(task.recv()).unwrap());
        let stuck = STUBBORN.on(Color::from(1), move |cx| {
            // From another thread: it stays in the mailbox of the color that runs.
            let foreign = || poster.try_post(Color::from(1), move |_cx| drop(payload));
            std::thread::scope(|scope| scope.spawn(foreign).join().unwrap()).unwrap();
            cx.stop();
            // For ever, as far as the runtime can know.
            while !wait.load(Ordering::Acquire) {
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        stuck.post(cx);
        for _ in 0..7 {
            cx.post(Color::from(1), |_cx| ());
        }
    });
    let Err(RunError::Deadline {
        events_left, stuck, ..
    }) = &outcome
    else {
        panic!("{outcome:?}");
    };
    assert_eq!(stuck.len(), 1, "{outcome:?}");
    assert_eq!(stuck[0].1, "stubborn");
    // The one under way, and those behind it.
    assert_eq!(*events_left, 9);
    let text = outcome.as_ref().unwrap_err().to_string();
    let core = stuck[0].0;
    assert!(
        text.contains(&format!("core {core} is still in handler `stubborn`")),
        "{text}"
    );
    assert!(begun.elapsed() < LONG);
    assert_eq!(alive.count(), 2, "the queues are still the core's");
    let_go.store(true, Ordering::Release);
    eventually("the drop of what was left", || alive.count() == 0);
    assert_eq!(told.recv_timeout(LONG).unwrap(), Err(JoinError::Dropped));
}

#[test]
fn endless_work_is_cut_at_the_deadline() {
    let _bound = Bound::new("endless_work");
    let alive = Alive::default();
    let given = alive.clone();
    let runtime = cores(2)
        .drain_deadline(Duration::from_millis(100))
        .build()
        .unwrap();
    let outcome = runtime.run(move |cx| {
        for i in 0..10 {
            let held = (given.payload(), cx.poster());
            cx.post(Color::from(i), move |cx| again(cx, held));
        }
        cx.stop();
        fn again<T: Send + 'static>(cx: &mut Cx, held: T) {
            let color = cx.color();
            cx.post(color, move |cx| {
                let held = held;
                again(cx, held);
            });
        }
    });
    let Err(RunError::Deadline {
        events_left, stuck, ..
    }) = outcome
    else {
        panic!("{outcome:?}");
    };
    assert_eq!((events_left, stuck), (10, vec![]));
    assert_eq!(alive.count(), 0, "what was left is freed");
}

#[test]
fn exits_when_idle() {
    let _bound = Bound::new("exits_when_idle");
    let idle = || cores(2).exit_when_idle(true).build().unwrap();
    idle().run(|_cx| ()).unwrap();
    let count = Arc::new(AtomicU64::new(0));
    let seen = Arc::clone(&count);
    idle()
        .run(move |cx| {
            for i in 0..1_000 {
                let count = Arc::clone(&count);
                cx.post(Color::from(i), move |cx| {
                    cx.post(Color::from(i + 1), move |_cx| {
                        count.fetch_add(1, Ordering::Relaxed);
                    });
                });
            }
        })
        .unwrap();
    assert_eq!(seen.load(Ordering::Relaxed), 1_000);
}

/// A timer is something left to do, and so is what it posts.
#[test]
fn exits_when_idle_after_the_last_timer() {
    let _bound = Bound::new("after_the_last_timer");
    let ran = Arc::new(AtomicU64::new(0));
    let seen = Arc::clone(&ran);
    let begun = Instant::now();
    let runtime = cores(2).exit_when_idle(true).build().unwrap();
    runtime
        .run(move |cx| {
            let tick = Callback::anonymous(Color::from(1), move |cx| {
                ran.fetch_add(1, Ordering::Relaxed);
                let tock = Callback::anonymous(Color::from(2), move |_cx| {
                    ran.fetch_add(1, Ordering::Relaxed);
                });
                cx.timer(Duration::from_millis(10), tock);
            });
            cx.timer(Duration::from_millis(10), tick);
        })
        .unwrap();
    assert_eq!(seen.load(Ordering::Relaxed), 2);
    assert!(begun.elapsed() >= Duration::from_millis(20));
}

#[test]
fn a_simulation_runs_once() {
    let _bound = Bound::new("a_simulation_runs_once");
    // In steps: it has begun and not ended, or ended and not begun.
    for ended in [false, true] {
        let mut simulation = cores(1).simulate(1).unwrap();
        if ended {
            simulation.end().unwrap();
        } else {
            simulation.start(|cx| cx.stop()).unwrap();
        }
        let again = simulation.start(|_cx| unreachable!());
        assert!(matches!(again, Err(SimError::Again)), "{again:?}");
    }
}

#[test]
fn a_run_inside_a_handler_is_refused() {
    let _bound = Bound::new("a_run_inside_a_handler");
    cores(1)
        .build()
        .unwrap()
        .run(|cx| {
            let inner = cores(1).build().unwrap();
            let outcome = inner.run(|_cx| unreachable!());
            assert!(matches!(outcome, Err(RunError::Inside)), "{outcome:?}");
            cx.stop();
        })
        .unwrap();
}

#[test]
fn two_runtimes_post_to_each_other() {
    const ROUNDS: u64 = 5_000;
    let _bound = Bound::new("two_runtimes");
    let (ping, pong) = (cores(2).build().unwrap(), cores(2).build().unwrap());
    let (to_ping, to_pong) = (ping.poster(), pong.poster());
    let count = Arc::new(AtomicU64::new(0));
    let seen = Arc::clone(&count);
    fn serve(
        cx: &mut Cx,
        there: mely::Poster,
        here: mely::Poster,
        left: u64,
        count: Arc<AtomicU64>,
    ) {
        count.fetch_add(1, Ordering::Relaxed);
        if left == 0 {
            there.stop();
            cx.stop();
            return;
        }
        let back = here.clone();
        there
            .clone()
            .try_post(Color::from(left % 7), move |cx| {
                serve(cx, back, there, left - 1, count)
            })
            .unwrap();
    }
    let second = std::thread::spawn(move || pong.run(|_cx| ()));
    ping.run(move |cx| serve(cx, to_pong, to_ping, ROUNDS, count))
        .unwrap();
    second.join().unwrap().unwrap();
    assert_eq!(seen.load(Ordering::Relaxed), ROUNDS + 1);
}

#[test]
fn a_post_after_the_end_gives_the_closure_back() {
    let _bound = Bound::new("a_post_after_the_end");
    let alive = Alive::default();
    for stage in ["ended", "gone"] {
        let runtime = cores(1).build().unwrap();
        let poster = runtime.poster();
        match stage {
            "ended" => runtime.run(|cx| cx.stop()).unwrap(),
            _ => drop(runtime),
        }
        let payload = alive.payload();
        let refused = poster.try_post(Color::from(1), move |_cx| drop(payload));
        let Err(Rejected {
            reason: Reason::Ended,
            value: closure,
        }) = refused
        else {
            panic!("{stage}: {refused:?}");
        };
        assert_eq!(alive.count(), 1, "{stage}: given back whole");
        drop(closure);
        assert_eq!(alive.count(), 0);
    }
}

#[test]
fn a_runtime_that_never_ran_drops_what_was_posted() {
    let _bound = Bound::new("a_runtime_that_never_ran");
    let alive = Alive::default();
    let runtime = cores(2).build().unwrap();
    let poster = runtime.poster();
    const EVENTS: u64 = if cfg!(miri) { 20 } else { 1_000 };
    for i in 0..EVENTS {
        let payload = alive.payload();
        // A way back to the runtime inside must not keep it for ever.
        let inside = poster.clone();
        let large = [i; 20];
        poster
            .try_post(Color::from(i), move |_cx| drop((payload, inside, large)))
            .unwrap();
    }
    assert_eq!(alive.count(), EVENTS);
    drop(runtime);
    assert_eq!(alive.count(), 0);
    assert!(poster.try_post(Color::from(1), |_cx| ()).is_err());
}

/// What is dropped with the runtime may itself post, and is refused like everybody.
#[test]
fn closures_that_post_when_dropped() {
    struct Posts(mely::Poster, Alive);
    impl Drop for Posts {
        fn drop(&mut self) {
            let payload = self.1.payload();
            assert!(
                self.0
                    .try_post(Color::from(1), move |_cx| drop(payload))
                    .is_err()
            );
        }
    }
    let _bound = Bound::new("closures_that_post_when_dropped");
    let alive = Alive::default();
    let runtime = cores(1).build().unwrap();
    let posts = Posts(runtime.poster(), alive.clone());
    let witness = alive.payload();
    runtime
        .poster()
        .try_post(Color::from(1), move |_cx| drop((posts, witness)))
        .unwrap();
    drop(runtime);
    assert_eq!(alive.count(), 0);
}

#[test]
fn everything_is_freed_after_a_drained_run() {
    let _bound = Bound::new("everything_is_freed");
    let alive = Alive::default();
    let given = alive.clone();
    cores(2)
        .build()
        .unwrap()
        .run(move |cx| {
            for i in 0..1_000 {
                let payload = given.payload();
                let on = Callback::anonymous(Color::from(i), move |_cx| drop(payload));
                if i % 2 == 0 {
                    on.post(cx);
                } else {
                    cx.timer(Duration::from_secs(3_600), on);
                }
            }
            cx.stop();
        })
        .unwrap();
    assert_eq!(alive.count(), 0);
}

#[test]
fn a_value_comes_back() {
    let _bound = Bound::new("a_value_comes_back");
    let value = cores(2)
        .build()
        .unwrap()
        .run_until(|cx, finish: Finish<String>| {
            let late = finish.clone();
            cx.post(Color::from(1), move |cx| {
                finish.finish("first".to_owned());
                cx.post(Color::from(1), move |_cx| late.finish("second".to_owned()));
            });
        });
    assert_eq!(value.unwrap(), "first");
    let none = cores(2)
        .build()
        .unwrap()
        .run_until(|cx, _finish: Finish<()>| cx.stop());
    assert!(matches!(none, Err(RunError::NoValue)), "{none:?}");
    // Nobody is left who could give one.
    let (ran, runs) = std::sync::mpsc::channel();
    let none = cores(2)
        .build()
        .unwrap()
        .run_until(move |cx, finish: Finish<()>| {
            let another = finish.clone();
            cx.post(Color::from(1), move |cx| {
                drop(finish);
                assert!(!cx.stopping(), "there is another one");
                cx.post(Color::from(2), move |_cx| {
                    drop(another);
                    ran.send(()).unwrap();
                });
            });
        });
    assert!(matches!(none, Err(RunError::NoValue)), "{none:?}");
    assert_eq!(runs.recv(), Ok(()));
    // Once the run is over no value is taken any more.
    for gives in [true, false] {
        let (kept, late) = std::sync::mpsc::channel();
        let value = cores(1)
            .build()
            .unwrap()
            .run_until(move |cx, finish: Finish<u32>| {
                kept.send(finish.clone()).unwrap();
                if gives {
                    finish.finish(1);
                }
                cx.stop();
            });
        assert_eq!(value.ok(), gives.then_some(1));
        late.recv().unwrap().finish(2);
    }
}

/// A runtime under full load is told to stop by one of its own: what waits for the world is
/// canceled although no core is ever idle, so work that goes on until then comes to its end.
#[test]
fn work_that_waits_for_its_timers_end() {
    struct Ends(Arc<AtomicBool>);
    impl Drop for Ends {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Release);
        }
    }
    let _bound = Bound::new("work_that_waits");
    let canceled = Arc::new(AtomicBool::new(false));
    cores(2)
        .stealing(Stealing::OFF)
        .build()
        .unwrap()
        .run(move |cx| {
            let ends = Ends(Arc::clone(&canceled));
            let never = Callback::anonymous(Color::from(2), move |_cx| drop(ends));
            cx.timer(Duration::from_secs(3_600), never);
            cx.stop();
            work(cx, canceled);
            fn work(cx: &mut Cx, canceled: Arc<AtomicBool>) {
                if !canceled.load(Ordering::Acquire) {
                    cx.post(Color::DEFAULT, move |cx| work(cx, canceled));
                }
            }
        })
        .unwrap();
}

/// Posts race with the end a runtime comes to by itself: accepted ones run, others come back.
#[test]
fn posts_that_race_with_an_idle_exit() {
    let _bound = Bound::new("posts_that_race");
    for _ in 0..if cfg!(miri) { 2 } else { 200 } {
        let runtime = cores(2).exit_when_idle(true).build().unwrap();
        let executed = Arc::new(AtomicU64::new(0));
        let (poster, count) = (runtime.poster(), Arc::clone(&executed));
        let thread = std::thread::spawn(move || {
            let mut accepted = 0;
            loop {
                let count = Arc::clone(&count);
                let event = move |_cx: &mut Cx| {
                    count.fetch_add(1, Ordering::Relaxed);
                };
                if poster.try_post(Color::from(accepted), event).is_err() {
                    return accepted;
                }
                accepted += 1;
                // Longer and longer: a busy machine may be too slow to find itself idle in between.
                std::thread::sleep(Duration::from_micros(100 * accepted));
            }
        });
        runtime.run(|_cx| ()).unwrap();
        let accepted = thread.join().unwrap();
        assert_eq!(executed.load(Ordering::Relaxed), accepted);
    }
}

/// Dropped on another thread than it ran on, while posters are still at it.
#[test]
fn dropped_elsewhere_while_posters_post() {
    let _bound = Bound::new("dropped_elsewhere");
    for _ in 0..if cfg!(miri) { 2 } else { 50 } {
        let alive = Alive::default();
        let runtime = cores(2).build().unwrap();
        let (poster, given) = (runtime.poster(), alive.clone());
        let thread = std::thread::spawn(move || {
            for i in 0.. {
                let (payload, inside) = (given.payload(), poster.clone());
                if poster
                    .try_post(Color::from(i), move |_cx| drop((payload, inside)))
                    .is_err()
                {
                    return;
                }
            }
        });
        std::thread::sleep(Duration::from_micros(200));
        drop(runtime);
        thread.join().unwrap();
        eventually("the last closure is freed", || alive.count() == 0);
    }
}
