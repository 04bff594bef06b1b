//! Timers: when they run, and that canceled ones do not.

use crate::common::{Alive, Bound, cores, eventually};
use mely::Post;
use mely::net::Timer;
use mely::runtime::Stealing;
use mely::{Callback, Color, Cx, Runtime};
use mely::{Reason, Rejected};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

fn on<F: FnOnce(&mut Cx) + Send + 'static>(color: u64, f: F) -> Callback<F> {
    Callback::anonymous(Color::from(color), f)
}

const HOUR: Duration = Duration::from_secs(3_600);

#[test]
fn run_in_the_order_of_their_times_and_never_early() {
    let _bound = Bound::new("run_in_the_order");
    for backend in crate::common::backends() {
        let order = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&order);
        cores(2)
            .backend(backend)
            .build()
            .unwrap()
            .run(move |cx| {
                for ms in [30u64, 10, 50, 20, 40, 0] {
                    let (order, set) = (Arc::clone(&order), Instant::now());
                    let after = Duration::from_millis(ms);
                    cx.timer(
                        after,
                        on(1, move |cx| {
                            assert!(set.elapsed() >= after, "early");
                            assert_eq!(cx.color(), Color::from(1));
                            order.lock().unwrap().push(ms);
                            if ms == 50 {
                                cx.stop();
                            }
                        }),
                    );
                }
            })
            .unwrap();
        assert_eq!(*seen.lock().unwrap(), [0, 10, 20, 30, 40, 50]);
    }
}

/// At the same moment: in the order in which they were set, whatever was canceled before.
#[test]
fn equal_timers_fire_in_the_order_they_were_set() {
    for canceled in [&[][..], &[0, 1], &[1, 3], &[4, 2, 0]] {
        let order = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&order);
        let builder = Runtime::builder().cores(1);
        builder
            .exit_when_idle(true)
            .simulate(1)
            .unwrap()
            .run(move |cx| {
                let after = Duration::from_micros(10);
                let mut earlier: Vec<Option<Timer>> = (0..5)
                    .map(|_| Some(cx.timer(after, on(1, |_cx| ()))))
                    .collect();
                for &i in canceled {
                    earlier[i].take().unwrap().cancel(cx);
                }
                for i in 0..8 {
                    let order = Arc::clone(&order);
                    cx.timer(after, on(1, move |_cx| order.lock().unwrap().push(i)));
                }
            })
            .unwrap();
        assert_eq!(*seen.lock().unwrap(), [0, 1, 2, 3, 4, 5, 6, 7]);
    }
}

/// A core with nothing to do before its next timer sleeps, and does not look again and again.
#[test]
fn a_core_sleeps_until_a_timer_is_due() {
    let _bound = Bound::new("a_core_sleeps");
    for backend in crate::common::backends() {
        let runtime = cores(1)
            .backend(backend)
            .spin(Duration::ZERO)
            .build()
            .unwrap();
        let observer = runtime.poster();
        runtime
            .run(|cx| {
                cx.timer(Duration::from_millis(200), on(1, |cx| cx.stop()));
            })
            .unwrap();
        let parks = observer.stats().cores[0].parks;
        assert!((1..100).contains(&parks), "went to sleep {parks} times");
    }
}

#[test]
fn the_largest_duration_is_never() {
    let _bound = Bound::new("the_largest_duration");
    for backend in crate::common::backends() {
        for after in [
            Duration::MAX,
            Duration::from_secs(u64::MAX / 2),
            100_000 * HOUR,
        ] {
            cores(2)
                .backend(backend.clone())
                .spin(Duration::ZERO)
                .build()
                .unwrap()
                .run(move |cx| {
                    cx.timer(after, on(1, |_cx| unreachable!()));
                    // Another one, so that cores sleep with it pending and are woken for this.
                    cx.timer(Duration::from_millis(5), on(1, |cx| cx.stop()));
                })
                .unwrap();
        }
    }
}

/// Its own color can be sure: canceled is not run, even if it was due long ago.
#[test]
fn canceled_by_its_own_color_is_exact() {
    let _bound = Bound::new("canceled_by_its_own_color");
    let alive = Alive::default();
    let given = alive.clone();
    cores(2)
        .build()
        .unwrap()
        .run(move |cx| {
            cx.post(Color::from(1), move |cx| {
                let payload = given.payload();
                let due = cx.timer(
                    Duration::ZERO,
                    on(1, move |_cx| {
                        drop(payload);
                        panic!("canceled and run");
                    }),
                );
                // Due, and perhaps queued behind this handler.
                std::thread::sleep(Duration::from_millis(2));
                cx.post(Color::from(2), |_cx| ());
                cx.flush();
                due.cancel(cx);
                let later = cx.timer(HOUR, on(1, |_cx| unreachable!()));
                later.cancel(cx);
                let end = on(1, |cx| cx.stop());
                cx.timer(Duration::from_millis(10), end);
            });
        })
        .unwrap();
    assert_eq!(alive.count(), 0);
}

/// From another core and color: before its time is early enough, and the closure is dropped.
#[test]
fn canceled_from_another_core() {
    let _bound = Bound::new("canceled_from_another_core");
    let alive = Alive::default();
    let given = alive.clone();
    cores(2)
        .stealing(Stealing::OFF)
        .build()
        .unwrap()
        .run(move |cx| {
            for i in 0..100 {
                let payload = given.payload();
                let timer = cx.timer(
                    HOUR,
                    on(2 * i, move |_cx| {
                        drop(payload);
                        unreachable!()
                    }),
                );
                // Odd colors are on core 1.
                cx.post(Color::from(2 * i + 1), move |cx| {
                    assert_eq!(cx.core(), 1);
                    timer.cancel(cx);
                });
            }
            let poster = cx.poster();
            std::thread::spawn(move || {
                eventually("every closure is freed", || given.count() == 0);
                poster.stop();
            });
        })
        .unwrap();
    assert_eq!(alive.count(), 0);
}

/// From outside its color, and at the very time it is due: it runs or it does not, and is freed
/// once either way.
#[test]
fn canceled_while_it_fires() {
    let _bound = Bound::new("canceled_while_it_fires");
    let alive = Alive::default();
    let given = alive.clone();
    let ran = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&ran);
    cores(3)
        .build()
        .unwrap()
        .run(move |cx| {
            for i in 0..2_000u64 {
                let (payload, count) = (given.payload(), Arc::clone(&count));
                let timer = cx.timer(
                    Duration::from_micros(i % 200),
                    on(i, move |_cx| {
                        drop(payload);
                        count.fetch_add(1, Ordering::Relaxed);
                    }),
                );
                cx.post(Color::from(i + 1), move |cx| timer.cancel(cx));
            }
            cx.timer(Duration::from_millis(20), on(1, |cx| cx.stop()));
        })
        .unwrap();
    assert!(ran.load(Ordering::Relaxed) <= 2_000);
    assert_eq!(alive.count(), 0);
}

#[test]
fn dropping_the_handle_leaves_it_running() {
    let _bound = Bound::new("dropping_the_handle");
    cores(1)
        .build()
        .unwrap()
        .run(|cx| drop(cx.timer(Duration::from_millis(1), on(1, |cx| cx.stop()))))
        .unwrap();
}

#[test]
fn thousands_set_on_all_cores_and_half_of_them_canceled() {
    const COUNT: u64 = 20_000;
    let _bound = Bound::new("thousands");
    let alive = Alive::default();
    let given = alive.clone();
    let ran = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&ran);
    let runtime = cores(2).exit_when_idle(true).build().unwrap();
    runtime
        .run(move |cx| {
            for i in 0..COUNT {
                let (given, count) = (given.clone(), Arc::clone(&count));
                cx.post(Color::from(i % 128), move |cx| {
                    let payload = given.payload();
                    let after = Duration::from_micros(i.wrapping_mul(7_919) % 50_000);
                    let tick = move |_cx: &mut Cx| {
                        drop(payload);
                        count.fetch_add(1, Ordering::Relaxed);
                    };
                    if i % 2 == 0 {
                        cx.timer(after, on(i, tick));
                    } else {
                        cx.timer(HOUR + after, on(i, tick)).cancel(cx);
                    }
                });
            }
        })
        .unwrap();
    assert_eq!(ran.load(Ordering::Relaxed), COUNT / 2);
    assert_eq!(alive.count(), 0);
}

/// At a stop pending timers do not run, their closures are dropped in their colors, on cores.
#[test]
fn pending_at_a_stop_are_dropped_in_their_colors() {
    struct Witness(Arc<AtomicU64>, mely::Poster);
    impl Drop for Witness {
        fn drop(&mut self) {
            let thread = std::thread::current();
            assert!(thread.name().unwrap_or("").starts_with("mely-"));
            // User code: it may post, in the midst of the end.
            let count = Arc::clone(&self.0);
            let posted = self.1.try_post(Color::from(3), move |_cx| {
                count.fetch_add(1, Ordering::Relaxed);
            });
            assert!(posted.is_ok(), "{posted:?}");
        }
    }
    let _bound = Bound::new("pending_at_a_stop");
    let count = Arc::new(AtomicU64::new(0));
    let seen = Arc::clone(&count);
    cores(2)
        .build()
        .unwrap()
        .run(move |cx| {
            for i in 0..1_000 {
                let witness = Witness(Arc::clone(&count), cx.poster());
                cx.timer(
                    HOUR,
                    on(i, move |_cx| {
                        drop(witness);
                        unreachable!()
                    }),
                );
            }
            cx.stop();
        })
        .unwrap();
    assert_eq!(seen.load(Ordering::Relaxed), 1_000);
}

/// More pending timers than events may be queued: at a stop they are dropped bit by bit, in their
/// colors and with nothing lost.
#[test]
fn pending_beyond_the_limit_of_events() {
    struct Witness(Arc<AtomicU64>, Arc<AtomicBool>);
    impl Drop for Witness {
        fn drop(&mut self) {
            // Between the handlers of color 7, never inside the runtime or beside one of them.
            assert!(!self.1.load(Ordering::Relaxed));
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let _bound = Bound::new("pending_beyond_the_limit");
    let (count, busy) = (
        Arc::new(AtomicU64::new(0)),
        Arc::new(AtomicBool::new(false)),
    );
    let seen = Arc::clone(&count);
    let runtime = cores(1).events_max(100).build().unwrap();
    let observer = runtime.poster();
    runtime
        .run(move |cx| {
            for _ in 0..20_000 {
                let witness = Witness(Arc::clone(&count), Arc::clone(&busy));
                let never = on(7, move |_cx: &mut Cx| {
                    drop(witness);
                    unreachable!()
                });
                cx.timer(HOUR, never);
            }
            cx.stop();
        })
        .unwrap();
    assert_eq!(seen.load(Ordering::Relaxed), 20_000);
    // Each as an event of its color.
    assert_eq!(observer.stats().events(), 20_001);
}

/// A timer set while the runtime ends is dropped and not run.
#[test]
fn set_after_a_stop() {
    let _bound = Bound::new("set_after_a_stop");
    let alive = Alive::default();
    let given = alive.clone();
    cores(1)
        .build()
        .unwrap()
        .run(move |cx| {
            cx.stop();
            again(cx, 100, given);
            fn again(cx: &mut Cx, left: u32, alive: Alive) {
                let payload = alive.payload();
                let never = on(1, move |_cx: &mut Cx| {
                    drop(payload);
                    unreachable!()
                });
                let timer = cx.timer(HOUR, never);
                if left.is_multiple_of(2) {
                    timer.cancel(cx);
                }
                if left > 0 {
                    cx.post(Color::from(2), move |cx| again(cx, left - 1, alive));
                }
            }
        })
        .unwrap();
    assert_eq!(alive.count(), 0);
}

/// A timer of one runtime, canceled in a handler of another: it is that one that goes, and not
/// whatever has its place here.
#[test]
fn canceled_in_another_runtime() {
    let _bound = Bound::new("canceled_in_another_runtime");
    let alive = Alive::default();
    let payload = alive.payload();
    let (here, there) = (cores(1).build().unwrap(), cores(1).build().unwrap());
    let (send, receive) = std::sync::mpsc::channel::<Timer>();
    let poster = there.poster();
    let running = std::thread::spawn(move || {
        there.run(move |cx| {
            let never = on(1, move |_cx: &mut Cx| {
                drop(payload);
                unreachable!()
            });
            send.send(cx.timer(HOUR, never)).unwrap();
        })
    });
    let ticked = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&ticked);
    let theirs = alive.clone();
    here.run(move |cx| {
        // The first timer here, as that one is the first there.
        let tick = on(1, move |cx: &mut Cx| {
            ticked.store(true, Ordering::Relaxed);
            cx.stop();
        });
        cx.timer(Duration::from_millis(50), tick);
        receive.recv().unwrap().cancel(cx);
        // In case it was the wrong one.
        cx.timer(Duration::from_secs(2), on(1, |cx| cx.stop()));
    })
    .unwrap();
    assert!(
        seen.load(Ordering::Relaxed),
        "the timer here is none of that one's"
    );
    eventually("the canceled closure is freed", || theirs.count() == 0);
    poster.stop();
    running.join().unwrap().unwrap();
}

/// On a core of its own time: each time is a multiple, and what a long handler makes it miss is
/// left out.
#[test]
fn an_interval_keeps_its_times_and_leaves_out_what_it_missed() {
    let times = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&times);
    let builder = Runtime::builder().cores(1);
    builder
        .simulate(1)
        .unwrap()
        .run(move |cx| {
            let begun = cx.now();
            let tick = move |cx: &mut Cx, ()| {
                let mut times = times.lock().unwrap();
                times.push((cx.now() - begun).as_millis());
                match times.len() {
                    2 => mely::sim::work(cx, Duration::from_millis(25)),
                    5 => cx.stop(),
                    _ => {}
                }
            };
            cx.interval(
                Duration::from_millis(10),
                Callback::anonymous_each(Color::from(1), tick),
            );
        })
        .unwrap();
    assert_eq!(*seen.lock().unwrap(), [10, 20, 50, 60, 70]);
}

/// By its own callback, by another color, by a thread, by the drop of a guard, or by a stop: it
/// runs no more, and its closure is gone.
#[test]
fn an_interval_ends_when_it_is_canceled() {
    let _bound = Bound::new("an_interval_ends");
    for how in ["itself", "another color", "a thread", "a guard", "a stop"] {
        let (alive, ticks) = (Alive::default(), Arc::new(AtomicU64::new(0)));
        let (held, count) = (alive.payload(), Arc::clone(&ticks));
        let handle = Arc::new(Mutex::new(None::<Timer>));
        let take = {
            let handle = Arc::clone(&handle);
            move || handle.lock().unwrap().take()
        };
        cores(2)
            .exit_when_idle(how != "a stop")
            .build()
            .unwrap()
            .run(move |cx| {
                // On another core than the timer, if there is one.
                cx.place(Color::from(1), 1);
                let tick = move |cx: &mut Cx, ()| {
                    let _held = &held;
                    if count.fetch_add(1, Ordering::Relaxed) != 2 {
                        return;
                    }
                    let Some(timer) = take() else {
                        unreachable!("it was canceled");
                    };
                    match how {
                        "itself" => timer.cancel(cx),
                        "another color" => cx.post(Color::from(2), |cx| timer.cancel(cx)),
                        "a guard" => drop(timer.cancel_on_drop()),
                        "a stop" => cx.stop(),
                        _ => {
                            let alive = cx.strong_poster();
                            std::thread::spawn(move || {
                                let guard = timer.cancel_on_drop();
                                drop(guard);
                                drop(alive);
                            });
                        }
                    }
                };
                let mut handle = handle.lock().unwrap();
                *handle = Some(cx.interval(
                    Duration::from_millis(1),
                    Callback::anonymous_each(Color::from(1), tick),
                ));
            })
            .unwrap();
        // The run has ended, which it does not while there is an interval.
        assert_eq!(alive.count(), 0, "{how}");
        let ticks = ticks.load(Ordering::Relaxed);
        assert!(
            ticks == 3 || (ticks > 3 && how != "itself" && how != "a guard"),
            "{how}: {ticks}"
        );
    }
}

/// Its handle cancels a timer when it is dropped only if that was asked for.
#[test]
fn a_dropped_handle_cancels_if_asked_to() {
    let _bound = Bound::new("a_dropped_handle");
    let (alive, ran) = (Alive::default(), Arc::new(AtomicBool::new(false)));
    let (held, has_run) = (alive.payload(), Arc::clone(&ran));
    cores(1)
        .exit_when_idle(true)
        .build()
        .unwrap()
        .run(move |cx| {
            let never = on(1, move |_| {
                drop(held);
                unreachable!()
            });
            drop(cx.timer(HOUR, never).cancel_on_drop());
            let runs = on(1, move |_| has_run.store(true, Ordering::Relaxed));
            drop(cx.timer(Duration::from_millis(1), runs));
        })
        .unwrap();
    assert!(ran.load(Ordering::Relaxed));
    assert_eq!(alive.count(), 0);
}

/// Before the run and from a thread during it; canceled before it has reached its core; and given
/// back after the stop.
#[test]
fn a_poster_sets_timers() {
    let _bound = Bound::new("a_poster_sets_timers");
    for backend in crate::common::backends() {
        let alive = Alive::default();
        let runtime = cores(2).backend(backend).build().unwrap();
        let (poster, held) = (runtime.poster(), alive.payload());
        let never = on(1, move |_| {
            drop(held);
            unreachable!()
        });
        let canceled = poster.timer(Duration::from_millis(1), never).unwrap();
        drop(canceled.cancel_on_drop());
        let (tell, told) = std::sync::mpsc::channel();
        let (from_thread, stops) = (poster.clone(), tell.clone());
        let (set, after) = (Instant::now(), Duration::from_millis(5));
        let first = on(1, move |cx| {
            assert!(set.elapsed() >= after, "early");
            assert_eq!(cx.color(), Color::from(1));
            tell.send("first").unwrap();
        });
        poster.timer(after, first).unwrap();
        let thread = std::thread::spawn(move || {
            assert_eq!(told.recv_timeout(crate::common::LONG), Ok("first"));
            let second = on(2, move |cx| {
                stops.send("second").unwrap();
                cx.stop();
            });
            from_thread.timer(Duration::from_millis(1), second).unwrap();
            assert_eq!(told.recv_timeout(crate::common::LONG), Ok("second"));
        });
        runtime.run(|_cx| ()).unwrap();
        thread.join().unwrap();
        assert_eq!(alive.count(), 0);
        let back = poster.timer(HOUR, on(3, |_| unreachable!())).unwrap_err();
        assert!(
            matches!(back, Rejected { reason: Reason::Ended, value: callback } if callback.color() == Color::from(3))
        );
    }
}

/// Before the run, by a thread during it, inside a handler; it keeps its times, and ends as any.
#[test]
fn a_poster_sets_intervals() {
    let _bound = Bound::new("a_poster_sets_intervals");
    let alive = Alive::default();
    let runtime = cores(2).build().unwrap();
    let poster = runtime.poster();
    // Canceled before it has reached its core.
    let held = alive.payload();
    let never = Callback::anonymous_each(Color::from(1), move |_cx: &mut Cx, ()| {
        let _held = &held;
        unreachable!();
    });
    let canceled = poster.interval(Duration::from_millis(1), never).unwrap();
    drop(canceled.cancel_on_drop());
    let ticks = |last: u64, tell: std::sync::mpsc::Sender<u64>, held: crate::common::Payload| {
        let (begun, mut count) = (Instant::now(), 0);
        Callback::anonymous_each(Color::from(2), move |cx: &mut Cx, ()| {
            let _held = &held;
            count += 1;
            assert!(begun.elapsed() >= Duration::from_millis(count), "early");
            assert_eq!(cx.color(), Color::from(2));
            if count == last {
                tell.send(last).unwrap();
            }
        })
    };
    let (tell, told) = std::sync::mpsc::channel();
    let every = Duration::from_millis(1);
    let first = poster.interval(every, ticks(3, tell.clone(), alive.payload()));
    let (from_thread, inside) = (poster.clone(), poster.clone());
    let (second, third) = (
        ticks(4, tell.clone(), alive.payload()),
        ticks(5, tell, alive.payload()),
    );
    let thread = std::thread::spawn(move || {
        let second = from_thread.interval(every, second).unwrap();
        let mut all: Vec<u64> = (0..3)
            .map(|_| told.recv_timeout(crate::common::LONG).unwrap())
            .collect();
        all.sort_unstable();
        assert_eq!(all, [3, 4, 5]);
        drop(first.unwrap().cancel_on_drop());
        drop(second.cancel_on_drop());
        from_thread.stop();
    });
    runtime
        .run(move |_cx| drop(inside.interval(every, third).unwrap()))
        .unwrap();
    thread.join().unwrap();
    assert_eq!(alive.count(), 0);
    let again = Callback::anonymous_each(Color::from(3), |_cx: &mut Cx, ()| unreachable!());
    let back = poster.interval(HOUR, again).unwrap_err();
    assert!(
        matches!(back, Rejected { reason: Reason::Ended, value: callback } if callback.color() == Color::from(3))
    );
}
