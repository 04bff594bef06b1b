//! Tasks: futures that a color polls.

mod cancel;
mod ends;

use crate::common::{Alive, Bound, LONG, cores, eventually};
use futures::FutureExt;
use mely::Post;
use mely::runtime::{OnPanic, Stealing};
use mely::sim::{Step, pause, work};
use mely::task::{JoinError, sleep, timeout, try_with_cx, with_cx, yield_now};
use mely::{Callback, Color, Colored, Cx, Handler, Reason, Rejected, Runtime};
use std::future::{Future, pending, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;
use tokio::sync::oneshot;

const HERE: Color = Color::new(7);
const THERE: Color = Color::new(8);

/// Whether the event that runs is one of this color.
fn is_in(color: Color) -> bool {
    try_with_cx(|cx| cx.color()) == Ok(color)
}

#[test]
fn polls_are_events_of_the_color() {
    let _bound = Bound::new("polls_are_events");
    const TASKS: u64 = if cfg!(miri) { 8 } else { 200 };
    const ROUNDS: u64 = if cfg!(miri) { 5 } else { 100 };
    let runtime = cores(4).exit_when_idle(true).build().unwrap();
    let inside = Arc::new(AtomicBool::new(false));
    let done = Arc::new(AtomicU64::new(0));
    let (all, busy) = (Arc::clone(&done), Arc::clone(&inside));
    runtime
        .run(move |cx| {
            for _ in 0..TASKS {
                let (done, inside) = (Arc::clone(&all), Arc::clone(&busy));
                cx.spawn(HERE, async move {
                    for _ in 0..ROUNDS {
                        assert!(is_in(HERE));
                        assert!(!inside.swap(true, Ordering::Relaxed), "one at a time");
                        std::hint::black_box(0);
                        inside.store(false, Ordering::Relaxed);
                        yield_now().await;
                    }
                    done.fetch_add(1, Ordering::Relaxed);
                });
            }
        })
        .unwrap();
    assert_eq!(done.load(Ordering::Relaxed), TASKS);
}

/// The same on whatever core the color is.
#[test]
fn a_task_goes_where_its_color_goes() {
    let _bound = Bound::new("a_task_goes_where");
    let cores_seen = cores(2).build().unwrap().run_until(|cx, finish| {
        cx.spawn(HERE, async move {
            let mut seen = Vec::new();
            for core in [1, 0, 1] {
                // Again and again: it may be stolen from there.
                while with_cx(|cx| cx.core()) != core {
                    with_cx(|cx| cx.place(HERE, core));
                    sleep(Duration::from_micros(50)).await;
                }
                seen.push(core);
            }
            finish.finish(seen);
        });
    });
    assert_eq!(cores_seen.unwrap(), [1, 0, 1]);
}

#[test]
fn the_result_comes_to_whoever_spawned() {
    let _bound = Bound::new("the_result_comes");
    static TOLD: Handler = Handler::new("told");
    let runtime = cores(2).build().unwrap();
    let poster = runtime.poster();
    let run = thread::spawn(move || {
        runtime.run_until(|cx, finish| {
            let inner = cx.spawn(THERE, async { 20 });
            let outer = cx.spawn(HERE, async move { inner.await.unwrap() + 1 });
            let told = TOLD.on_value(HERE, move |cx, sum| finish.finish((cx.color(), sum)));
            outer.then(cx, told);
        })
    });
    assert_eq!(run.join().unwrap().unwrap(), (HERE, Ok(21)));
    assert!(matches!(
        poster.try_spawn(HERE, async {}),
        Err(Rejected {
            reason: Reason::Ended,
            ..
        })
    ));

    let runtime = cores(2).build().unwrap();
    let poster = runtime.poster();
    let run = thread::spawn(move || runtime.run(|_cx| ()));
    let mut task = poster.try_spawn(HERE, async { is_in(HERE) }).unwrap();
    assert_eq!(task.recv(), Ok(true));
    assert_eq!(task.recv(), Err(JoinError::Taken));
    let mut task = poster.try_spawn(HERE, pending::<()>()).unwrap();
    let early = task.recv_timeout(Duration::from_millis(1));
    assert_eq!(early, Err(JoinError::TimedOut));
    assert!(task.try_recv().is_none());
    drop(task.cancel_on_drop());
    poster.stop();
    run.join().unwrap().unwrap();
}

#[test]
fn a_panic_is_the_events_and_ends_the_task() {
    let _bound = Bound::new("a_panic_is_the_events");
    let alive = Alive::default();
    let given = alive.clone();
    let reports = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&reports);
    static FAILS: Handler = Handler::new("fails");
    let runtime = cores(2)
        .on_panic(OnPanic::DropEvent)
        .panic_hook(move |report| seen.lock().unwrap().push(report.clone()))
        .build()
        .unwrap();
    let result = runtime.run_until(move |cx, finish| {
        let (payload, more) = (given.payload(), given.payload());
        let at_once = FAILS.spawn(cx, HERE, async move {
            let _payload = payload;
            panic!("at once");
        });
        let later = FAILS.spawn(cx, HERE, async move {
            let _payload = more;
            yield_now().await;
            panic!("later");
        });
        cx.spawn(THERE, async move {
            let results: (Result<(), _>, Result<(), _>) = (at_once.await, later.await);
            // The color goes on.
            let after = with_cx(|cx| cx.spawn(HERE, async { 5 })).await;
            finish.finish((results, after));
        });
    });
    let panicked = Err(JoinError::Panicked);
    assert_eq!(result.unwrap(), ((panicked, panicked), Ok(5)));
    let reports = reports.lock().unwrap();
    let seen: Vec<_> = reports
        .iter()
        .map(|r| (r.handler, r.color, &r.message[..]))
        .collect();
    assert_eq!(seen, [("fails", HERE, "at once"), ("fails", HERE, "later")]);
    assert_eq!(alive.count(), 0);
}

#[test]
fn the_context_is_there_once_and_only_inside_of_a_poll() {
    let _bound = Bound::new("the_context_is_there_once");
    assert_eq!(try_with_cx(|_cx| ()), Err(Reason::NoContext));
    let seen = cores(1).build().unwrap().run_until(|cx, finish| {
        let in_handler = try_with_cx(|_cx| ());
        cx.spawn(HERE, async move {
            let twice = with_cx(|_cx| try_with_cx(|_cx| ()));
            // It is put back, also by a panic.
            let panicked = std::panic::catch_unwind(|| with_cx(|_cx| panic!("inside")));
            let after = (panicked.is_err(), try_with_cx(|cx| cx.color()));
            finish.finish((in_handler, twice, after));
        });
    });
    let none = Err(Reason::NoContext);
    assert_eq!(seen.unwrap(), (none, none, (true, Ok(HERE))));
}

/// Of many threads, at any moment.
#[test]
fn no_wake_is_lost() {
    let _bound = Bound::new("no_wake_is_lost");
    const WAKES: u64 = if cfg!(miri) { 20 } else { 20_000 };
    const THREADS: u64 = 3;
    let seen = cores(2).build().unwrap().run_until(|cx, finish| {
        let (sent, waker) = (
            Arc::new(AtomicU64::new(0)),
            Arc::new(Mutex::new(None::<Waker>)),
        );
        for _ in 0..THREADS {
            let (sent, waker) = (Arc::clone(&sent), Arc::clone(&waker));
            thread::spawn(move || {
                for _ in 0..WAKES {
                    sent.fetch_add(1, Ordering::SeqCst);
                    let waker = waker.lock().unwrap().clone();
                    if let Some(waker) = waker {
                        waker.wake();
                    }
                }
            });
        }
        let until_all = poll_fn(move |context| {
            *waker.lock().unwrap() = Some(context.waker().clone());
            if sent.load(Ordering::SeqCst) == WAKES * THREADS {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        });
        cx.spawn(HERE, async move {
            until_all.await;
            finish.finish(true);
        });
    });
    assert!(seen.unwrap());
}

#[test]
fn wakes_are_accepted_at_the_limit_of_events() {
    let _bound = Bound::new("wakes_are_accepted");
    let runtime = cores(1).events_max(1_000).build().unwrap();
    let woken = runtime.run_until(|cx, finish| {
        let (sender, receiver) = oneshot::channel::<()>();
        cx.spawn(HERE, async move {
            receiver.await.unwrap();
            finish.finish(());
        });
        cx.post(THERE, move |cx| {
            while cx.try_post(THERE, |_cx| ()).is_ok() {}
            assert!(matches!(
                cx.poster().try_spawn(HERE, async {}),
                Err(Rejected {
                    reason: Reason::Full,
                    ..
                })
            ));
            sender.send(()).unwrap();
        });
    });
    woken.unwrap();
}

#[test]
fn channels_and_combinators_work_as_they_are() {
    let _bound = Bound::new("channels_and_combinators");
    const SENDERS: u64 = 16;
    const EACH: u64 = if cfg!(miri) { 5 } else { 500 };
    let sum = cores(2).build().unwrap().run_until(|cx, finish| {
        let (sender, mut receiver) = tokio::sync::mpsc::channel(4);
        for n in 0..SENDERS {
            let sender = sender.clone();
            cx.spawn(Color::from(100 + n), async move {
                for i in 0..EACH {
                    sender.send(i).await.unwrap();
                }
            });
        }
        cx.spawn(HERE, async move {
            let mut sum = 0;
            while let Some(i) = receiver.recv().await {
                sum += i;
            }
            let parts = (0..9).map(|n| with_cx(|cx| cx.spawn(Color::from(n), async move { n })));
            let parts = futures::future::join_all(parts.collect::<Vec<_>>()).await;
            let more: u64 = parts.into_iter().map(Result::unwrap).sum();
            // A panic that is the future's own business.
            let fails = std::panic::AssertUnwindSafe(async { panic!("planted") }).catch_unwind();
            let payload: Result<(), _> = fails.await;
            let payload = payload.unwrap_err().downcast_ref() == Some(&"planted");
            finish.finish((sum, more, payload));
        });
        drop(sender);
    });
    assert_eq!(sum.unwrap(), (SENDERS * EACH * (EACH - 1) / 2, 36, true));
}

#[test]
fn state_of_other_colors_is_called() {
    let _bound = Bound::new("state_of_other_colors");
    let seen = cores(2)
        .on_panic(OnPanic::DropEvent)
        .panic_hook(|_report| ())
        .build()
        .unwrap()
        .run_until(|cx, finish| {
            let state = Colored::new(cx, THERE, 1);
            cx.spawn(HERE, async move {
                let sum = state.call(|state, cx| {
                    *state += 1;
                    (*state, cx.color())
                });
                let sum = sum.await;
                let panicked = state.call(|_state, _cx| panic!("called")).await;
                let poisoned = state.call(|_state, _cx| ()).await;
                finish.finish((sum, panicked, poisoned));
            });
        });
    let panicked = Err::<(), _>(JoinError::Panicked);
    assert_eq!(seen.unwrap(), (Ok((2, THERE)), panicked, panicked));
}

/// Two requests on one connection, the first of which waits: the order of the answers is that of
/// the requests.
#[test]
fn a_held_color_waits_for_a_future() {
    let _bound = Bound::new("a_held_color_waits");
    let log = Arc::new(Mutex::new(Vec::new()));
    let all = Arc::clone(&log);
    let runtime = cores(2).exit_when_idle(true).build().unwrap();
    runtime
        .run(move |cx| {
            for request in 0..3 {
                let log = Arc::clone(&all);
                cx.post(HERE, move |cx| {
                    log.lock().unwrap().push((request, "begins"));
                    let answer = async move {
                        for _ in 0..3 {
                            sleep(Duration::from_micros(300)).await;
                            let there = with_cx(|cx| cx.ask(THERE, |cx| cx.color()));
                            assert_eq!(there.await, Ok(THERE));
                            assert!(is_in(HERE));
                        }
                        log.lock().unwrap().push((request, "ends"));
                    };
                    cx.hold().until(answer);
                });
            }
        })
        .unwrap();
    let expected: Vec<_> = (0..3).flat_map(|n| [(n, "begins"), (n, "ends")]).collect();
    assert_eq!(*log.lock().unwrap(), expected);
}

/// One event takes a hold for each of four lines. The first line takes longest to answer.
#[test]
fn a_pipeline_is_answered_in_its_order() {
    let _bound = Bound::new("a_pipeline");
    for count in [1, 2] {
        let log = Arc::new(Mutex::new(Vec::new()));
        let all = Arc::clone(&log);
        let runtime = cores(count).exit_when_idle(true).build().unwrap();
        runtime
            .run(move |cx| {
                let next = Arc::clone(&all);
                cx.post(HERE, move |cx| {
                    for line in 0..4 {
                        let log = Arc::clone(&all);
                        let answer = async move {
                            sleep(Duration::from_micros(300 * (4 - line))).await;
                            let there = with_cx(|cx| cx.ask(THERE, |cx| cx.color()));
                            assert_eq!(there.await, Ok(THERE));
                            log.lock().unwrap().push(line);
                        };
                        cx.hold().until(answer);
                    }
                });
                cx.post(HERE, move |_cx| next.lock().unwrap().push(4));
            })
            .unwrap();
        assert_eq!(*log.lock().unwrap(), [0, 1, 2, 3, 4]);
    }
}

#[test]
fn a_canceled_or_late_future_lets_the_held_color_go_on() {
    let _bound = Bound::new("a_canceled_or_late_future");
    let alive = Alive::default();
    let (canceled, late) = (alive.payload(), alive.payload());
    let log = cores(1).build().unwrap().run_until(move |cx, finish| {
        let log = Arc::new(Mutex::new(Vec::new()));
        let first = Arc::clone(&log);
        cx.post(HERE, move |cx| {
            let task = cx.hold().until(async move {
                let _payload = canceled;
                pending::<()>().await;
            });
            let cancel = Callback::anonymous(THERE, move |_cx| {
                first.lock().unwrap().push("canceled");
                task.cancel();
            });
            cx.timer(Duration::from_millis(1), cancel);
        });
        let (second, third) = (Arc::clone(&log), Arc::clone(&log));
        cx.post(HERE, move |cx| {
            second.lock().unwrap().push("goes on");
            let mut hold = cx.hold();
            let fires = Arc::clone(&second);
            hold.resume_after(cx, Duration::from_millis(1), move |_cx| {
                fires.lock().unwrap().push("deadline");
            });
            let (sender, receiver) = oneshot::channel::<()>();
            hold.until(async move {
                let _payload = late;
                receiver.await.unwrap();
                second.lock().unwrap().push("late, and whole");
                finish.finish(Arc::clone(&second));
            });
            cx.post(HERE, move |_cx| {
                third.lock().unwrap().push("goes on again");
                sender.send(()).unwrap();
            });
        });
    });
    let expected = [
        "canceled",
        "goes on",
        "deadline",
        "goes on again",
        "late, and whole",
    ];
    assert_eq!(*log.unwrap().lock().unwrap(), expected);
    assert_eq!(alive.count(), 0);
}

#[test]
fn what_takes_too_long_is_dropped() {
    let _bound = Bound::new("what_takes_too_long");
    let alive = Alive::default();
    let payload = alive.payload();
    let seen = cores(1).build().unwrap().run_until(move |cx, finish| {
        cx.spawn(HERE, async move {
            let never = async move {
                let _payload = payload;
                pending::<()>().await;
            };
            let late = timeout(Duration::from_millis(1), never).await;
            let in_time = timeout(LONG, async { 3 }).await;
            finish.finish((late.is_err(), in_time));
        });
    });
    assert_eq!(seen.unwrap(), (true, Ok(3)));
    assert_eq!(alive.count(), 0);
}

/// Both the future and the clock are ready when the task is polled: the future is in time.
#[test]
fn what_is_ready_when_the_time_is_up_is_in_time() {
    let mut simulation = cores(1).simulate(1).unwrap();
    let seen = simulation.run_until(|cx, finish| {
        let same = Duration::from_micros(100);
        let ready = async move {
            sleep(same).await;
            3
        };
        cx.spawn(
            HERE,
            async move { finish.finish(timeout(same, ready).await) },
        );
        // So that both times are up when the core looks.
        cx.post(THERE, move |cx| work(cx, 2 * same));
    });
    assert_eq!(seen.unwrap(), Ok(3));
}

/// An event posts, and wakes a task that is being polled on another core. The posts of the next poll
/// come behind, though the event goes on for long.
#[test]
fn what_the_waker_posted_comes_before_what_the_task_posts() {
    static SHORT: Handler = Handler::new("short").time(Duration::from_nanos(50));
    // Of one core each.
    let [wakes, polls, target] = [3, 4, 5].map(Color::from);
    for seed in 0..100 {
        let order = Arc::new(Mutex::new(Vec::new()));
        let say = |word: &'static str| {
            let order = Arc::clone(&order);
            move |_cx: &mut Cx| order.lock().unwrap().push(word)
        };
        let (before, after) = (say("before"), say("after"));
        let builder = Runtime::builder().cores(3);
        let builder = builder.stealing(Stealing::OFF).exit_when_idle(true);
        let mut simulation = builder.simulate(seed).unwrap();
        let start = move |cx: &mut Cx| {
            let (give, message) = channel();
            let mut last = Some((before, after));
            let mut then = None;
            let task = poll_fn(move |context| {
                if let Some((before, after)) = last.take() {
                    then = Some(after);
                    let (waker, give) = (context.waker().clone(), give.clone());
                    let event = move |cx: &mut Cx| {
                        SHORT.on(target, before).post(cx);
                        give.send(()).unwrap();
                        waker.wake();
                        (0..100).for_each(|_| pause(cx));
                    };
                    with_cx(|cx| {
                        SHORT.on(wakes, event).post(cx);
                        cx.flush();
                        (0..30).for_each(|_| pause(cx));
                    });
                    return Poll::Pending;
                }
                if message.try_recv().is_err() {
                    return Poll::Pending;
                }
                with_cx(|cx| cx.post(target, then.take().unwrap()));
                Poll::Ready(())
            });
            cx.spawn(polls, task);
        };
        simulation.run(start).unwrap();
        assert_eq!(*order.lock().unwrap(), ["before", "after"], "seed {seed}");
    }
}

#[test]
fn in_a_simulation_the_seed_decides() {
    let run = |seed| {
        let log = Arc::new(Mutex::new(Vec::new()));
        let mut simulation = cores(3).simulate(seed).unwrap();
        let all = Arc::clone(&log);
        simulation
            .start(move |cx| {
                for n in 0..6u64 {
                    let log = Arc::clone(&all);
                    cx.spawn(Color::from(n % 3), async move {
                        for _ in 0..4 {
                            sleep(Duration::from_micros(10)).await;
                            yield_now().await;
                            log.lock().unwrap().push(n);
                        }
                    });
                }
                cx.stop();
            })
            .unwrap();
        while simulation.step() != Step::Ended {}
        simulation.end().unwrap();
        Arc::into_inner(log).unwrap().into_inner().unwrap()
    };
    assert_eq!(run(1), run(1));
    assert!((2..9).any(|seed| run(seed) != run(1)));
    // A task that nobody wakes is no bug of the runtime's.
    let mut simulation = cores(1).simulate(1).unwrap();
    simulation
        .start(|cx| drop(cx.spawn(HERE, pending::<()>())))
        .unwrap();
    eventually("nothing to do", || simulation.step() == Step::Stalled);
}

#[test]
fn larger_futures_are_polled_where_they_lie() {
    let _bound = Bound::new("larger_futures");
    fn check<const BYTES: usize>() {
        let sum = cores(1).build().unwrap().run_until(|cx, finish| {
            cx.spawn(HERE, async move {
                let bytes = [1u8; BYTES];
                let at = bytes.as_ptr().addr();
                yield_now().await;
                assert_eq!(bytes.as_ptr().addr(), at, "it does not move");
                finish.finish(bytes.iter().map(|&b| usize::from(b)).sum::<usize>());
            });
        });
        assert_eq!(sum.unwrap(), BYTES);
    }
    check::<1>();
    check::<200>();
    check::<100_000>();
}

/// Wherever it is dropped: the run ends at once, and the task that it would wake is gone.
#[test]
fn a_sleep_is_canceled_wherever_it_is_dropped() {
    let _bound = Bound::new("a_sleep_is_canceled");
    /// A sleep that was polled.
    async fn begun() -> Pin<Box<impl Future<Output = ()> + Send>> {
        let mut sleep = Box::pin(sleep(2 * LONG));
        poll_fn(|context| {
            assert!(sleep.as_mut().poll(context).is_pending());
            Poll::Ready(())
        })
        .await;
        sleep
    }
    for way in 0..6 {
        let other = cores(1).build().unwrap();
        let elsewhere = other.poster();
        let other = thread::spawn(move || other.run(|_cx| ()));
        let runtime = cores(2).build().unwrap();
        let stop = elsewhere.clone();
        runtime
            .run(move |cx| {
                // Of the last way: with what the task returned, which nobody wants.
                cx.spawn(HERE, async move {
                    let sleep = begun().await;
                    match way {
                        0 => drop(sleep),
                        1 => with_cx(|_cx| drop(sleep)),
                        2 => with_cx(|cx| cx.post(THERE, move |_cx| drop(sleep))),
                        3 => drop(thread::spawn(move || drop(sleep)).join()),
                        // After the stop, by another runtime's handler.
                        4 => {
                            with_cx(|cx| cx.stop());
                            let elsewhere = elsewhere.clone();
                            elsewhere.try_post(HERE, move |_cx| drop(sleep)).unwrap();
                        }
                        _ => return Some(sleep),
                    }
                    None
                });
                cx.post(HERE, |cx| cx.stop());
            })
            .unwrap();
        stop.stop();
        other.join().unwrap().unwrap();
    }
}

/// Each `Drop` of what is left is called, also if others panic.
/// The future is ready, and both it and what it returns panic when they are dropped: one event has
/// panicked, and who waits is told.
#[test]
fn a_future_and_its_value_may_both_panic_in_their_drops() {
    static TOLD: Handler = Handler::new("told");
    struct Panics;
    impl Drop for Panics {
        fn drop(&mut self) {
            panic!("in a drop");
        }
    }
    struct Ready {
        _panics: Panics,
    }
    impl Future for Ready {
        type Output = Panics;
        fn poll(self: Pin<&mut Self>, _context: &mut Context<'_>) -> Poll<Panics> {
            Poll::Ready(Panics)
        }
    }
    let _bound = Bound::new("a_future_and_its_value");
    let builder = cores(1).on_panic(OnPanic::DropEvent);
    let runtime = builder.exit_when_idle(true).build().unwrap();
    let poster = runtime.poster();
    let (tell, told) = channel();
    runtime
        .run(move |cx| {
            let task = cx.spawn(HERE, Ready { _panics: Panics });
            let told = move |_: &mut mely::Cx, reply: Result<Panics, JoinError>| {
                tell.send(reply.err()).unwrap();
            };
            task.then(cx, TOLD.on_value(THERE, told));
        })
        .unwrap();
    assert_eq!(told.recv(), Ok(Some(JoinError::Panicked)));
    let panics: u64 = poster.stats().cores.iter().map(|core| core.panics).sum();
    assert_eq!(panics, 1);
}

/// Also while the task's color is held. A panic is told, and refused work comes back.
#[test]
fn blocking_work_is_awaited() {
    let _bound = Bound::new("blocking_work_is_awaited");
    let alive = Alive::default();
    let payload = alive.payload();
    let builder = cores(1).blocking_threads_max(1).blocking_queue_max(1);
    let runtime = builder
        .on_panic(OnPanic::DropEvent)
        .panic_hook(|_report| ())
        .build()
        .unwrap();
    let seen = runtime.run_until(move |cx, finish| {
        cx.post(HERE, move |cx| {
            let all = async move {
                let sum = with_cx(|cx| cx.try_blocking(|| (1..=10).sum::<u64>()));
                let sum = sum.unwrap().await;
                let panics = with_cx(|cx| cx.try_blocking::<(), _>(|| panic!("in the work")));
                let panicked = panics.unwrap().await;
                // Told before the thread is free.
                while with_cx(|cx| cx.poster().stats().blocking.running) > 0 {
                    sleep(Duration::from_micros(100)).await;
                }
                // One runs until it is told, one waits and is canceled, one is refused.
                let (go, gate) = channel::<()>();
                let wait = move || gate.recv().is_err();
                let runs = with_cx(|cx| cx.try_blocking(wait)).unwrap();
                while with_cx(|cx| cx.poster().stats().blocking.running) == 0 {
                    sleep(Duration::from_micros(100)).await;
                }
                let drops = move || drop(payload);
                let waits = with_cx(|cx| {
                    cx.spawn(THERE, async move {
                        let waits = with_cx(|cx| cx.try_blocking(drops)).unwrap();
                        waits.cancel_on_drop().await
                    })
                });
                while with_cx(|cx| cx.poster().stats().blocking.queued) == 0 {
                    sleep(Duration::from_micros(100)).await;
                }
                let Err(refused) = with_cx(|cx| cx.try_blocking(|| 9)) else {
                    panic!("there is no room");
                };
                let back = (refused.value)();
                waits.cancel();
                assert_eq!(waits.await, Err(JoinError::Canceled));
                assert_eq!(with_cx(|cx| cx.poster().stats().blocking.queued), 0);
                drop(go);
                finish.finish((sum, panicked, runs.await, back));
            };
            cx.hold().until(all);
        });
    });
    let expected = (Ok(55), Err(JoinError::Panicked), Ok(true), 9);
    assert_eq!(seen.unwrap(), expected);
    assert_eq!(alive.count(), 0);
}

#[test]
fn a_task_is_named_after_its_future() {
    async fn fails_later() {
        yield_now().await;
        panic!("later");
    }
    let _bound = Bound::new("a_task_is_named");
    let error = cores(1)
        .build()
        .unwrap()
        .run(|cx| drop(cx.spawn(HERE, fails_later())))
        .unwrap_err();
    let mely::RunError::Panicked { panic, .. } = error else {
        panic!("{error}");
    };
    assert!(
        panic.handler.starts_with(module_path!()),
        "{}",
        panic.handler
    );
    assert!(panic.handler.contains("fails_later"), "{}", panic.handler);
}
