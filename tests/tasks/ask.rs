//! Asking: events that return something, and who gets it.

mod order;

use crate::common::{Alive, Bound, LONG, cores, eventually};
use mely::Post;
use mely::Reason;
use mely::runtime::OnPanic;
use mely::sim::Step;
use mely::task::{JoinError, join_all};
use mely::{Callback, Color, Colored, Cx, Handler, JoinHandle, Rejected, Runtime};
use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::Duration;

static SHORT: Handler = Handler::new("short").time(Duration::from_nanos(20));
static TOLD: Handler = Handler::new("told");
const THERE: Color = Color::new(4);
const HERE: Color = Color::new(7);

/// A run on its own thread, until its poster stops it.
fn beside(runtime: Runtime, ask: impl FnOnce(&mely::Poster)) {
    let poster = runtime.poster();
    let run = std::thread::spawn(move || runtime.run(|_cx| ()));
    ask(&poster);
    poster.stop();
    run.join().unwrap().unwrap();
}

#[test]
fn a_thread_waits_for_the_reply() {
    let _bound = Bound::new("a_thread_waits");
    beside(cores(2).build().unwrap(), |poster| {
        for n in 0..1_000u64 {
            let mut handle = poster
                .try_ask(Color::from(n % 9), move |cx| (cx.color(), n))
                .unwrap();
            let answer = match n % 3 {
                0 => handle.recv(),
                1 => handle.recv_timeout(LONG),
                _ => loop {
                    if let Some(answer) = handle.try_recv() {
                        break answer;
                    }
                },
            };
            assert_eq!(answer, Ok((Color::from(n % 9), n)));
            assert_eq!(handle.recv(), Err(JoinError::Taken));
            assert_eq!(handle.try_recv(), Some(Err(JoinError::Taken)));
        }
    });
}

#[test]
fn a_wait_in_vain_ends_and_the_reply_still_comes() {
    let _bound = Bound::new("a_wait_in_vain");
    beside(cores(1).build().unwrap(), |poster| {
        let (go, wait) = channel::<()>();
        let mut handle = poster
            .try_ask(THERE, move |_cx| wait.recv().is_err())
            .unwrap();
        let early = handle.recv_timeout(Duration::from_millis(5));
        assert_eq!(early, Err(JoinError::TimedOut));
        assert_eq!(handle.try_recv(), None);
        drop(go);
        assert_eq!(handle.recv(), Ok(true));
    });
}

#[test]
fn a_handler_is_told_in_the_callbacks_color() {
    let _bound = Bound::new("a_handler_is_told");
    let sum = cores(3).build().unwrap().run_until(|cx, finish| {
        let sum = Colored::new(cx, HERE, 0u64);
        for n in 0..100u64 {
            let handle = cx.ask(Color::from(n), move |_cx| n);
            let finish = finish.clone();
            let told = sum.on_value(&TOLD, move |sum, cx, n: Result<u64, _>| {
                assert_eq!((cx.color(), cx.handler()), (HERE, "told"));
                *sum += n.unwrap();
                if *sum == 4_950 {
                    finish.finish(*sum);
                }
            });
            handle.then(cx, told);
        }
    });
    assert_eq!(sum.unwrap(), 4_950);
}

/// Also if it has come before it is asked for, and with all queues full.
#[test]
fn a_reply_that_is_there_is_delivered_at_the_limit_of_events() {
    let _bound = Bound::new("a_reply_that_is_there");
    let runtime = cores(1).events_max(1).build().unwrap();
    let answer = runtime.run_until(|cx, finish| {
        let asked = cx.ask(THERE, |_cx| 5);
        let later = cx.ask(THERE, |_cx| 6);
        cx.post(THERE, move |cx| {
            while cx.try_post(Color::from(1), |_cx| ()).is_ok() {}
            let told = TOLD.on_value(HERE, move |_cx, all| finish.finish(all));
            join_all([asked, later]).then(cx, told);
        });
    });
    assert_eq!(answer.unwrap().unwrap(), [Ok(5), Ok(6)]);
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = pin!(future);
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}

#[test]
fn a_future_awaits_it() {
    let _bound = Bound::new("a_future_awaits_it");
    beside(cores(2).build().unwrap(), |poster| {
        let asked = async {
            let mut sum = 0;
            for n in 0..500u64 {
                sum += poster
                    .try_ask(Color::from(n), move |_cx| n)
                    .unwrap()
                    .await
                    .unwrap();
            }
            let many = (0..10u64).map(|n| poster.try_ask(Color::from(n), move |_cx| n).unwrap());
            (sum, join_all(many).await.unwrap().len())
        };
        assert_eq!(block_on(asked), (124_750, 10));
        // A waker that is not used any more is let go.
        let (go, wait) = channel::<()>();
        let mut handle = pin!(
            poster
                .try_ask(THERE, move |_cx| wait.recv().is_err())
                .unwrap()
        );
        let stale = Arc::new(Unpark(std::thread::current()));
        let waker = Waker::from(Arc::clone(&stale));
        assert!(
            handle
                .as_mut()
                .poll(&mut Context::from_waker(&waker))
                .is_pending()
        );
        drop(waker);
        assert!(
            handle
                .as_mut()
                .poll(&mut Context::from_waker(Waker::noop()))
                .is_pending()
        );
        assert_eq!(Arc::strong_count(&stale), 1);
        drop(go);
        assert_eq!(block_on(handle), Ok(true));
    });
}

#[test]
fn nothing_waits_inside_a_handler() {
    let _bound = Bound::new("nothing_waits_inside");
    let other = cores(1).build().unwrap();
    let foreign = other.poster().try_ask(THERE, |_cx| ()).unwrap();
    cores(1)
        .build()
        .unwrap()
        .run(move |cx| {
            let mut own = cx.ask(THERE, |_cx| ());
            assert_eq!(own.recv(), Err(JoinError::Inside));
            assert_eq!(own.recv_timeout(LONG), Err(JoinError::Inside));
            let mut foreign = foreign;
            assert_eq!(foreign.recv(), Err(JoinError::Inside));
            // Blocking work may.
            let told = TOLD.on_value(HERE, |cx, answer| {
                assert_eq!(answer, Ok(Ok(())));
                cx.stop();
            });
            let given = cx.try_blocking(move || own.recv()).unwrap();
            given.then(cx, told);
        })
        .unwrap();
}

/// Work of a simulation is on the thread that steps.
#[test]
fn nothing_waits_in_a_simulation() {
    let mut simulation = Runtime::builder().simulate(1).unwrap();
    let told = simulation.run_until(|cx, finish| {
        let mut handle = cx.ask(THERE, |_cx| ());
        let told = TOLD.on_value(HERE, move |_cx, answer| finish.finish(answer));
        let given = cx.try_blocking(move || handle.recv()).unwrap();
        given.then(cx, told);
    });
    assert_eq!(told.unwrap(), Ok(Err(JoinError::Inside)));
    let mut simulation = Runtime::builder().simulate(1).unwrap();
    simulation.start(|_cx| ()).unwrap();
    let mut handle = simulation.poster().try_ask(THERE, |cx| cx.stop()).unwrap();
    let mut answer = None;
    while simulation.step() != Step::Ended {
        answer = answer.or_else(|| handle.try_recv());
    }
    assert_eq!(answer, Some(Ok(())));
}

/// The closure is dropped in its color; what has begun runs to its end.
#[test]
fn a_handle_that_cancels_on_drop_cancels_an_event_that_has_not_begun() {
    struct InColor(std::sync::mpsc::Sender<Option<String>>);
    impl Drop for InColor {
        fn drop(&mut self) {
            let name = std::thread::current().name().map(str::to_owned);
            self.0.send(name).unwrap();
        }
    }
    let _bound = Bound::new("a_handle_that_cancels_on_drop");
    let alive = Alive::default();
    beside(cores(1).build().unwrap(), |poster| {
        let (begun, has_begun) = channel();
        let (go, wait) = channel::<()>();
        let payload = alive.payload();
        let first = poster
            .try_ask(THERE, move |_cx| {
                begun.send(()).unwrap();
                let _ = wait.recv();
                payload
            })
            .unwrap();
        has_begun.recv().unwrap();
        let (tell, told) = channel();
        let dropped = InColor(tell);
        let second: JoinHandle<()> = poster
            .try_ask(THERE, move |_cx| {
                drop(dropped);
                unreachable!("canceled")
            })
            .unwrap();
        drop((first.cancel_on_drop(), second.cancel_on_drop()));
        assert_eq!(alive.count(), 1, "it runs");
        drop(go);
        assert_eq!(told.recv().unwrap().as_deref(), Some("mely-0"));
        assert_eq!(alive.count(), 0, "what it returned is dropped");
        // All of those that were gathered.
        let (go, wait) = channel::<()>();
        poster
            .try_post(THERE, move |_cx| {
                let _ = wait.recv();
            })
            .unwrap();
        let never = |_| {
            poster
                .try_ask(THERE, |_cx| unreachable!("canceled"))
                .unwrap()
        };
        drop::<JoinHandle<Vec<Result<(), _>>>>(join_all((0..10).map(never)).cancel_on_drop());
        drop(go);
    });
}

/// The event runs, and its value is dropped there; a value that is there already with the handle.
#[test]
fn a_handle_that_is_dropped_detaches_its_event() {
    let _bound = Bound::new("a_handle_that_is_dropped");
    struct Names(std::sync::mpsc::Sender<Option<String>>);
    impl Drop for Names {
        fn drop(&mut self) {
            let name = std::thread::current().name().map(str::to_owned);
            self.0.send(name).unwrap();
        }
    }
    let in_color = Some("mely-0".to_owned());
    beside(cores(1).build().unwrap(), |poster| {
        let (tell, told) = channel();
        let (go, wait) = channel::<()>();
        let ask = |tell: &std::sync::mpsc::Sender<_>| {
            let tell = tell.clone();
            poster.try_ask(THERE, move |_cx| Names(tell)).unwrap()
        };
        let waits = poster.try_ask(THERE, move |_cx| wait.recv().is_err());
        drop(ask(&tell));
        drop(join_all([ask(&tell), ask(&tell)]));
        assert!(told.try_recv().is_err(), "they have not begun");
        drop(go);
        for _ in 0..3 {
            assert_eq!(told.recv().unwrap(), in_color);
        }
        assert_eq!(waits.unwrap().recv(), Ok(true));
        // What has come is dropped here.
        let settled = ask(&tell);
        eventually("the value", || settled.is_finished());
        drop(settled);
        let here = std::thread::current().name().map(str::to_owned);
        assert_eq!(told.recv().unwrap(), here);
    });
}

/// Not begun, running, and over; one, and many that are joined.
#[test]
fn a_canceled_event_says_what_has_become_of_it() {
    let _bound = Bound::new("a_canceled_event");
    let alive = Alive::default();
    let canceled = Err(JoinError::Canceled);
    beside(cores(1).build().unwrap(), |poster| {
        let (begun, has_begun) = channel();
        let (go, wait) = channel::<()>();
        let running = poster.try_ask(THERE, move |_cx| {
            begun.send(()).unwrap();
            let _ = wait.recv();
            5
        });
        let mut running = running.unwrap();
        has_begun.recv().unwrap();
        let never = |alive: &Alive| {
            let payload = alive.payload();
            let never = move |_cx: &mut Cx| {
                drop(payload);
                unreachable!("canceled")
            };
            poster.try_ask::<u32, _>(THERE, never).unwrap()
        };
        let (mut one, awaited) = (never(&alive), never(&alive));
        let mut joined = join_all([never(&alive), poster.try_ask(HERE, |_cx| 6).unwrap()]);
        one.cancel();
        awaited.cancel();
        // It waits behind the event that runs.
        assert_eq!(one.try_recv(), None);
        let awaiting = std::thread::spawn(move || block_on(awaited));
        running.cancel();
        joined.cancel();
        drop(go);
        assert_eq!(running.recv(), Ok(5));
        assert_eq!(one.recv(), canceled);
        assert_eq!(awaiting.join().unwrap(), canceled);
        let all = joined.recv().unwrap();
        assert_eq!(all, [canceled, canceled]);
        assert_eq!(alive.count(), 0);
        assert!(one.is_finished() && running.is_finished());
        // Over.
        let mut over = poster.try_ask(THERE, |_cx| 7).unwrap();
        eventually("the value", || over.is_finished());
        over.cancel();
        assert_eq!(over.recv(), Ok(7));
        over.cancel();
        assert_eq!(over.recv(), Err(JoinError::Taken));
    });
}

/// Its handle says so.
#[test]
fn a_canceled_event_may_panic_in_its_drop() {
    let _bound = Bound::new("a_canceled_event_may_panic");
    struct Panics;
    impl Drop for Panics {
        fn drop(&mut self) {
            panic!("when dropped");
        }
    }
    let runtime = cores(1).on_panic(OnPanic::DropEvent).panic_hook(|_| ());
    let runtime = runtime.exit_when_idle(true).build().unwrap();
    let observer = runtime.poster();
    let (tell, told) = channel();
    runtime
        .run(move |cx| {
            let panics = Panics;
            let asked = cx.ask(THERE, move |_cx| drop(panics));
            asked.cancel();
            let callback = move |_cx: &mut Cx, result| tell.send(result).unwrap();
            asked.then(cx, TOLD.on_value(HERE, callback));
        })
        .unwrap();
    assert_eq!(told.recv(), Ok(Err(JoinError::Panicked)));
    let panics: u64 = observer.stats().cores.iter().map(|core| core.panics).sum();
    assert_eq!(panics, 1);
}

#[test]
fn a_panic_is_told_and_not_waited_for() {
    let _bound = Bound::new("a_panic_is_told");
    let told = Arc::new(Mutex::new(Vec::new()));
    let tells = Arc::clone(&told);
    let runtime = cores(2)
        .on_panic(OnPanic::DropEvent)
        .panic_hook(move |report| tells.lock().unwrap().push(report.color))
        .build()
        .unwrap();
    beside(runtime, |poster| {
        let ask = |color: u64| {
            let f = move |_cx: &mut Cx| assert_ne!(color, 3);
            poster.try_ask(Color::from(color), f).unwrap()
        };
        assert_eq!(ask(3).recv(), Err(JoinError::Panicked));
        assert_eq!(block_on(ask(3)), Err(JoinError::Panicked));
        let all = join_all((2..5).map(ask)).recv().unwrap();
        assert_eq!(all, [Ok(()), Err(JoinError::Panicked), Ok(())]);
        // Poisoned state, in the event that poisons it and in those after it.
        let state = Colored::new(poster, THERE, 5);
        let ask = |panics: bool| {
            let f = move |state: &mut i32, _cx: &mut Cx| {
                assert!(!panics);
                *state
            };
            state.via(&TOLD).try_ask(poster, f).unwrap().recv()
        };
        assert_eq!(ask(false), Ok(5));
        assert_eq!(ask(true), Err(JoinError::Panicked));
        let refused = state.try_ask(poster, |state, _cx| *state).unwrap_err();
        assert_eq!(refused.reason, Reason::Poisoned);
    });
    assert_eq!(told.lock().unwrap().len(), 4);
}

/// Nobody waits for ever, whatever becomes of the runtime.
#[test]
fn what_is_dropped_with_a_run_is_told() {
    let _bound = Bound::new("what_is_dropped");
    // It never runs.
    let runtime = cores(1).build().unwrap();
    let ask = || runtime.poster().try_ask(THERE, |_cx| ()).unwrap();
    let (mut first, second, third) = (ask(), ask(), ask());
    let (ready, is_ready) = channel();
    let waits = std::thread::spawn(move || {
        ready.send(()).unwrap();
        first.recv()
    });
    is_ready.recv().unwrap();
    drop(runtime);
    assert_eq!(waits.join().unwrap(), Err(JoinError::Dropped));
    assert_eq!(block_on(second), Err(JoinError::Dropped));
    let all = join_all([third]).recv().unwrap();
    assert_eq!(all, [Err(JoinError::Dropped)]);
    // It is cut short.
    let runtime = cores(1).build().unwrap();
    let replies = Arc::new(Mutex::new(Vec::new()));
    let given = Arc::clone(&replies);
    let outcome = runtime.run(move |cx| {
        for _ in 0..10 {
            given.lock().unwrap().push(cx.ask(THERE, |_cx| ()));
        }
        panic!("meant");
    });
    assert!(outcome.is_err());
    for mut handle in replies.lock().unwrap().drain(..) {
        assert_eq!(handle.recv(), Err(JoinError::Dropped));
    }
}

#[test]
fn joined_results_are_in_argument_order() {
    let _bound = Bound::new("joined_results");
    let all = cores(3).build().unwrap().run_until(|cx, finish| {
        let asked = |n: u64| {
            let f = move |_cx: &mut Cx| {
                std::thread::sleep(Duration::from_micros(500 * (10 - n)));
                n
            };
            cx.ask(Color::from(n), f)
        };
        let told = TOLD.on_value(HERE, move |cx, all| {
            assert_eq!(cx.color(), HERE);
            finish.finish(all);
        });
        join_all((0..10).map(asked)).then(cx, told);
    });
    let all: Vec<_> = all
        .unwrap()
        .unwrap()
        .into_iter()
        .map(Result::unwrap)
        .collect();
    assert_eq!(all, (0..10).collect::<Vec<_>>());
    assert_eq!(join_all::<()>([]).recv(), Ok(vec![]));
}

#[test]
fn what_is_refused_comes_back() {
    let _bound = Bound::new("what_is_refused");
    let runtime = cores(1).events_max(1).build().unwrap();
    let poster = runtime.poster();
    while poster.try_post(THERE, |_cx| ()).is_ok() {}
    let refused = poster.try_ask(THERE, |_cx| 5);
    assert!(matches!(
        refused,
        Err(Rejected {
            reason: Reason::Full,
            ..
        })
    ));
    let keep_alive = poster.strong().unwrap();
    let state = Colored::new(&poster, HERE, ());
    let kept = state.clone();
    let thread = std::thread::spawn(move || {
        eventually("the stop", || {
            matches!(
                poster.try_ask(THERE, |_cx| ()),
                Err(Rejected {
                    reason: Reason::Ended,
                    ..
                })
            )
        });
        let refused = state.try_ask(&poster, |_, _| ());
        assert!(matches!(
            refused,
            Err(Rejected {
                reason: Reason::Ended,
                ..
            })
        ));
        // It keeps it. The queues are full for a moment.
        let mut handle = loop {
            match keep_alive.try_ask(THERE, |_cx| 5) {
                Ok(handle) => break handle,
                Err(error) => assert!(matches!(
                    error,
                    Rejected {
                        reason: Reason::Full,
                        ..
                    }
                )),
            }
        };
        assert_eq!(handle.recv(), Ok(5));
        let mut handle = loop {
            match state.try_ask(&keep_alive, |_, _| 6) {
                Ok(handle) => break handle,
                Err(error) => assert!(matches!(
                    error,
                    Rejected {
                        reason: Reason::Full,
                        ..
                    }
                )),
            }
        };
        assert_eq!(handle.recv(), Ok(6));
    });
    runtime
        .run(move |cx| {
            while cx.try_post(THERE, |_cx| ()).is_ok() {}
            assert!(matches!(
                cx.try_ask(THERE, |_cx| ()),
                Err(Rejected {
                    reason: Reason::Full,
                    ..
                })
            ));
            assert!(matches!(
                kept.try_ask(cx, |_, _| ()),
                Err(Rejected {
                    reason: Reason::Full,
                    ..
                })
            ));
            cx.stop();
        })
        .unwrap();
    thread.join().unwrap();
}

/// The runtime of the first reply is kept until the other one has replied, too.
#[test]
fn replies_of_two_runtimes_that_are_gathered_keep_the_askers() {
    let _bound = Bound::new("replies_of_two_runtimes");
    let other = cores(1).exit_when_idle(true).build().unwrap();
    let there = other.poster().try_ask(THERE, |_cx| 5).unwrap();
    let (tell, told) = channel();
    let (begun, has_begun) = channel();
    let asker = cores(1).exit_when_idle(true).build().unwrap();
    let asking = std::thread::spawn(move || {
        asker.run(move |cx| {
            let both = join_all([cx.ask(HERE, |_cx| 4), there]);
            let told = Callback::anonymous_value(HERE, move |_cx: &mut Cx, all| {
                tell.send(all).unwrap();
            });
            both.then(cx, told);
            begun.send(()).unwrap();
        })
    });
    has_begun.recv().unwrap();
    // Long enough for the asker to end.
    std::thread::sleep(Duration::from_millis(50));
    other.run(|_cx| ()).unwrap();
    assert_eq!(told.recv(), Ok(Ok(vec![Ok(4), Ok(5)])));
    asking.join().unwrap().unwrap();
}

/// The asker's runtime is kept until the other one has replied, or has gone.
#[test]
fn a_reply_of_another_runtime_keeps_the_askers() {
    let _bound = Bound::new("a_reply_of_another_runtime");
    for cut_short in [false, true] {
        let other = cores(1).build().unwrap();
        let poster = other.poster();
        let (tell, told) = channel();
        let (asked, has_asked) = channel();
        let asker = cores(1)
            .exit_when_idle(true)
            .drain_deadline(LONG)
            .build()
            .unwrap();
        let asking = std::thread::spawn(move || {
            asker.run(move |cx| {
                let handle = poster.try_ask(THERE, |_cx| 5).unwrap();
                asked.send(()).unwrap();
                let told = Callback::anonymous_value(HERE, move |_cx: &mut Cx, answer| {
                    tell.send(answer).unwrap();
                });
                handle.then(cx, told);
            })
        });
        has_asked.recv().unwrap();
        // Nothing else is left to do for the asker's runtime by then, mostly.
        std::thread::sleep(Duration::from_millis(20));
        if cut_short {
            drop(other);
        } else {
            other.run(|cx| cx.stop()).unwrap();
        }
        asking.join().unwrap().unwrap();
        let expected = if cut_short {
            Err(JoinError::Dropped)
        } else {
            Ok(5)
        };
        assert_eq!(told.recv(), Ok(expected));
    }
}

/// Many threads ask, cancel, and panic, with the stop in the middle: each question has an end.
#[test]
fn every_question_has_an_end() {
    let _bound = Bound::new("every_question");
    for round in 0..6u64 {
        let runtime = cores(2)
            .on_panic(OnPanic::DropEvent)
            .panic_hook(|_| ())
            .build()
            .unwrap();
        let poster = runtime.poster();
        let alive = Alive::default();
        let replied = Arc::new(AtomicU64::new(0));
        let threads: Vec<_> = (0..4u64)
            .map(|thread| {
                let (poster, alive) = (poster.clone(), alive.clone());
                let replied = Arc::clone(&replied);
                std::thread::spawn(move || {
                    for n in 0..1_000u64 {
                        let payload = ([n; 20], alive.payload());
                        let asked = poster.try_ask(Color::from(n % 11), move |_cx| {
                            if n % 100 == 7 {
                                std::panic::resume_unwind(Box::new("meant"));
                            }
                            payload
                        });
                        let Ok(mut handle) = asked else {
                            break;
                        };
                        if n % 4 == thread {
                            if n % 3 == 0 {
                                drop(handle.cancel_on_drop());
                            }
                            continue;
                        }
                        let canceled = n % 5 == 1;
                        if canceled {
                            handle.cancel();
                        }
                        match handle.recv() {
                            Ok((bytes, _)) => assert_eq!(bytes, [n; 20]),
                            Err(JoinError::Panicked) => assert_eq!(n % 100, 7),
                            Err(JoinError::Canceled) => assert!(canceled),
                            Err(error) => panic!("{error}"),
                        }
                        replied.fetch_add(1, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        let stopping = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(round * 4));
            poster.stop();
        });
        runtime.run(|_cx| ()).unwrap();
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
        stopping.join().unwrap();
        assert_eq!(alive.count(), 0);
    }
}
