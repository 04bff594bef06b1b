//! A handler that panics: what stops, what goes on, what is said about it.

mod poison;
mod reports;

use crate::common::{Alive, Bound, cores};
use mely::Post;
use mely::runtime::{OnPanic, PanicReport};
use mely::sim::SimError;
use mely::task::{sleep, with_cx};
use mely::{Callback, Color, Colored, Cx, Handler, Reason, RunError, Runtime};
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

static FAULTY: Handler = Handler::new("faulty");
const FIRST: Color = Color::new(1);

/// Panic reports in the order of the hook's calls.
type Reports = Arc<Mutex<Vec<PanicReport>>>;

fn reports() -> (Reports, impl Fn(&PanicReport) + Send + Sync + 'static) {
    let reports = Reports::default();
    let hook = Arc::clone(&reports);
    (reports, move |report: &PanicReport| {
        hook.lock().unwrap().push(report.clone());
    })
}

#[test]
fn stops_the_runtime_and_names_the_handler() {
    let _bound = Bound::new("stops_the_runtime");
    let alive = Alive::default();
    let (reports, hook) = reports();
    let runtime = cores(2).panic_hook(hook).build().unwrap();
    let observer = runtime.poster();
    let payload = alive.payload();
    let outcome = runtime.run(move |cx| {
        FAULTY
            .on(Color::from(42), move |_cx| {
                let _payload = payload;
                panic!("no {}", "more");
            })
            .post(cx);
    });
    let Err(RunError::Panicked { panic, .. }) = &outcome else {
        panic!("{outcome:?}");
    };
    assert_eq!(panic.handler, "faulty");
    assert_eq!(panic.color, Color::from(42));
    assert!(panic.core < 2);
    assert_eq!(panic.message, "no more");
    let text = outcome.as_ref().unwrap_err().to_string();
    assert!(
        text.contains("handler `faulty` of color 42 panicked") && text.contains("no more"),
        "{text}"
    );
    assert_eq!(*reports.lock().unwrap(), std::slice::from_ref(panic));
    assert_eq!(alive.count(), 0);
    assert_eq!(
        observer.stats().cores.iter().map(|c| c.panics).sum::<u64>(),
        1
    );
}

#[test]
fn events_that_were_left_are_counted_and_freed() {
    const EVENTS: u64 = if cfg!(miri) { 200 } else { 1_000 };
    let _bound = Bound::new("events_that_were_left");
    let alive = Alive::default();
    let runtime = cores(1).build().unwrap();
    let given = alive.clone();
    let poster = runtime.poster();
    let outcome = runtime.run(move |cx| {
        cx.post(Color::from(1), |_cx| panic!("stop here"));
        for _ in 0..EVENTS {
            // As handlers are: with a way to post more, which leads back to the runtime.
            let (payload, poster) = (given.payload(), poster.clone());
            cx.post(Color::from(1), move |_cx| drop((payload, poster)));
        }
    });
    let Err(RunError::Panicked { events_left, .. }) = outcome else {
        panic!("{outcome:?}");
    };
    // The batch that panicked may go on for a few.
    let expected = EVENTS - 100..=EVENTS;
    assert!(expected.contains(&events_left), "{events_left}");
    assert_eq!(alive.count(), 0, "closures left behind");
}

#[test]
fn drop_event_goes_on_also_in_the_same_color() {
    let _bound = Bound::new("drop_event");
    let (reports, hook) = reports();
    let runtime = cores(2)
        .on_panic(OnPanic::DropEvent)
        .panic_hook(hook)
        .build()
        .unwrap();
    let observer = runtime.poster();
    let order = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&order);
    runtime
        .run(move |cx| {
            for i in 0..100u32 {
                let order = Arc::clone(&order);
                cx.post(Color::from(5), move |_cx| {
                    assert!(!i.is_multiple_of(10), "every tenth");
                    order.lock().unwrap().push(i);
                });
            }
            cx.post(Color::from(5), |cx| cx.stop());
        })
        .unwrap();
    let expected: Vec<u32> = (0..100).filter(|i: &u32| !i.is_multiple_of(10)).collect();
    assert_eq!(*seen.lock().unwrap(), expected, "the others, in order");
    assert_eq!(reports.lock().unwrap().len(), 10);
    assert_eq!(observer.stats().events(), 102);
}

/// What was posted before the panic, in the handler that then panics, is posted.
#[test]
fn posts_before_the_panic_count() {
    let _bound = Bound::new("posts_before_the_panic");
    let runtime = cores(2).on_panic(OnPanic::DropEvent).build().unwrap();
    let count = Arc::new(AtomicU64::new(0));
    let seen = Arc::clone(&count);
    let posts = move |cx: &mut Cx| {
        for to in 0..10 {
            let count = Arc::clone(&count);
            cx.post(Color::from(to), move |_cx| {
                count.fetch_add(1, Ordering::Relaxed);
            });
        }
        cx.stop();
        panic!("after the posts");
    };
    runtime.run(move |cx| cx.post(FIRST, posts)).unwrap();
    assert_eq!(seen.load(Ordering::Relaxed), 10);
}

/// State that is used while another panic unwinds, and well, is not poisoned; state that panics
/// then is.
#[test]
fn a_loan_in_a_drop_during_an_unwind() {
    struct CountsWhenDropped<'a>(&'a Colored<u32>, &'a mut Cx, bool);
    impl Drop for CountsWhenDropped<'_> {
        fn drop(&mut self) {
            let Self(state, cx, panics) = self;
            // A second panic must not leave a `Drop` that an unwind has called.
            let _ = catch_unwind(AssertUnwindSafe(|| {
                let counted = state.with(cx, |n, _| {
                    *n += 1;
                    assert!(!*panics);
                });
                counted.unwrap();
            }));
        }
    }
    let _bound = Bound::new("a_loan_in_a_drop");
    for panics in [false, true] {
        cores(1)
            .on_panic(OnPanic::DropEvent)
            .build()
            .unwrap()
            .run(move |cx| {
                let color = Color::from(8);
                let state = Colored::new(cx, color, 1);
                let clone = state.clone();
                cx.post(color, move |cx| {
                    let _counts = CountsWhenDropped(&clone, cx, panics);
                    panic!("with nothing lent");
                });
                cx.post(color, move |cx| {
                    let expected = if panics { Err(Reason::Poisoned) } else { Ok(2) };
                    assert_eq!(state.with(cx, |n, _| *n), expected);
                    cx.stop();
                });
            })
            .unwrap();
    }
}

#[test]
fn in_the_drop_of_a_closure() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("in a drop");
        }
    }
    let _bound = Bound::new("in_the_drop_of_a_closure");
    let (reports, hook) = reports();
    let runtime = cores(1)
        .on_panic(OnPanic::DropEvent)
        .panic_hook(hook)
        .build()
        .unwrap();
    runtime
        .run(|cx| {
            let bomb = Bomb;
            // Dropped at the end of the handler.
            FAULTY
                .on(Color::from(1), move |_cx| {
                    let _bomb = &bomb;
                })
                .post(cx);
            // State that is dropped in its color, by the runtime's own event.
            let state = Colored::new(cx, Color::from(2), Bomb);
            drop(state);
            cx.post(Color::from(2), |cx| cx.stop());
        })
        .unwrap();
    let reports = reports.lock().unwrap();
    assert_eq!(reports.len(), 2, "{reports:?}");
    assert!(reports.iter().all(|r| r.message == "in a drop"));
    assert!(reports.iter().any(|r| r.color == Color::from(1)));
    assert!(reports.iter().any(|r| r.color == Color::from(2)));
}

#[test]
fn a_payload_that_is_no_text() {
    let _bound = Bound::new("a_payload_that_is_no_text");
    let payload = Arc::new(17_u64);
    let thrown = Arc::clone(&payload);
    let outcome = cores(1).build().unwrap().run(|cx| {
        let boom = move |_cx: &mut mely::Cx| std::panic::panic_any(thrown);
        Callback::anonymous(Color::from(1), boom).post(cx);
    });
    assert_eq!(Arc::strong_count(&payload), 1, "the payload is dropped");
    let Err(RunError::Panicked { panic, .. }) = outcome else {
        panic!("{outcome:?}");
    };
    assert_eq!(panic.message, "(not text)");
    assert!(
        panic.handler.contains("a_payload_that_is_no_text"),
        "{panic}"
    );
}

/// A payload whose drop panics must not take the core down.
#[test]
#[cfg_attr(miri, ignore = "leaks the second payload, as it must")]
fn a_payload_whose_drop_panics() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("again");
        }
    }
    let _bound = Bound::new("a_payload_whose_drop_panics");
    cores(1)
        .on_panic(OnPanic::DropEvent)
        .build()
        .unwrap()
        .run(|cx| {
            cx.post(Color::from(1), |_cx| std::panic::panic_any(Bomb));
            cx.post(Color::from(1), |cx| cx.stop());
        })
        .unwrap();
}

/// The hook runs on the core, so it may post, and what it posts is run.
#[test]
fn the_hook_may_post() {
    let _bound = Bound::new("the_hook_may_post");
    let poster = Arc::new(Mutex::new(None::<mely::Poster>));
    let given = Arc::clone(&poster);
    let runtime = cores(2)
        .on_panic(OnPanic::DropEvent)
        .panic_hook(move |report| {
            let poster = given.lock().unwrap().take().unwrap();
            let color = report.color;
            poster
                .try_post(color, move |cx| {
                    assert_eq!(cx.color(), color);
                    cx.stop();
                })
                .unwrap();
        })
        .build()
        .unwrap();
    *poster.lock().unwrap() = Some(runtime.poster());
    runtime
        .run(|cx| cx.post(Color::from(3), |_cx| panic!("told")))
        .unwrap();
}

/// A hook that panics, which it must not, ends the run in every case; what was behind the event is
/// counted and freed.
#[test]
fn a_hook_that_panics() {
    let _bound = Bound::new("a_hook_that_panics");
    for on_panic in [OnPanic::Stop, OnPanic::DropEvent] {
        let alive = Alive::default();
        let given = alive.clone();
        let runtime = cores(1)
            .on_panic(on_panic)
            .panic_hook(|_report| panic!("in the hook"))
            .build()
            .unwrap();
        let outcome = runtime.run(move |cx| {
            let color = Color::from(5);
            FAULTY.on(color, |_cx| panic!("in the handler")).post(cx);
            for color in [color, Color::from(6)] {
                for _ in 0..10 {
                    let payload = given.payload();
                    cx.post(color, move |_cx| drop(payload));
                }
            }
        });
        let Err(RunError::Panicked { panic, events_left }) = outcome else {
            panic!("{outcome:?}");
        };
        assert_eq!(panic.handler, "faulty");
        let said = "in the handler; and the panic hook panicked: in the hook";
        assert_eq!(panic.message, said);
        let left = 10..=20;
        assert!(
            left.contains(&events_left),
            "those of its own color come after it"
        );
        assert_eq!(alive.count(), 0, "what was behind the event has leaked");
    }
}

/// An end that is forced is seen before the next event, also inside a quantum of handlers that are
/// known to be short, which nobody times.
#[test]
#[cfg_attr(miri, ignore = "simulates: see checks/sanitize.sh")]
fn nothing_begins_after_a_panic_that_stops() {
    static SHORT: Handler = Handler::new("short").time(Duration::from_nanos(20));
    let _bound = Bound::new("nothing_begins_after_a_panic_that_stops");
    let begun = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&begun);
    let mut simulation = cores(1).simulate(1).unwrap();
    let outcome = simulation.run(move |cx| {
        for i in 0..50 {
            let counted = Arc::clone(&counted);
            SHORT
                .on(Color::from(i), move |_cx| {
                    if counted.fetch_add(1, Ordering::Relaxed) == 20 {
                        panic!("in the handler");
                    }
                })
                .post(cx);
        }
    });
    let Err(SimError::Run(RunError::Panicked { events_left, .. })) = outcome else {
        panic!("{outcome:?}");
    };
    assert_eq!(begun.load(Ordering::Relaxed), 21, "some began after it");
    assert_eq!(events_left, 29);
    let stats = simulation.stats().cores[0].clone();
    assert!(2 * stats.quanta < stats.events, "{}", stats.quanta);
}

/// What is dropped on a core's thread after its worker finds no worker.
#[test]
fn a_post_when_the_thread_ends() {
    struct PostsWhenDropped(mely::Poster, Sender<bool>);
    impl Drop for PostsWhenDropped {
        fn drop(&mut self) {
            let refused = self.0.try_post(Color::from(1), |_cx| ()).is_err();
            self.1.send(refused).unwrap();
        }
    }
    thread_local! {
        static LAST: RefCell<Option<PostsWhenDropped>> = const { RefCell::new(None) };
    }
    let _bound = Bound::new("a_post_when_the_thread_ends");
    let (send, receive) = channel();
    let runtime = cores(1).build().unwrap();
    let outcome = runtime.run(move |cx| {
        LAST.set(Some(PostsWhenDropped(cx.poster(), send)));
        panic!("in the handler");
    });
    assert!(outcome.is_err());
    assert_eq!(receive.recv(), Ok(true), "posted to a worker that is gone");
}

/// It ends the run with either policy: no other event would stop the run.
#[test]
fn of_the_first_event() {
    let _bound = Bound::new("of_the_first_event");
    for on_panic in [OnPanic::Stop, OnPanic::DropEvent] {
        let builder = cores(2).on_panic(on_panic);
        let outcome = builder.build().unwrap().run(|_cx| panic!("at once"));
        let Err(RunError::Panicked { panic, events_left }) = outcome else {
            panic!("{outcome:?}");
        };
        assert_eq!((panic.color, events_left), (Color::DEFAULT, 0));
        let name = concat!(module_path!(), "::of_the_first_event::{{closure}}");
        assert_eq!(panic.handler, name, "it is named after what was given");
    }
}

/// Of a builder that was told nothing about panics: that of a simulation stops.
#[test]
#[cfg_attr(miri, ignore = "its topology is the machine's")]
fn by_default_a_panic_costs_its_event_and_is_counted() {
    static WELL: Handler = Handler::new("well");
    assert_eq!(OnPanic::default(), OnPanic::DropEvent);
    let _bound = Bound::new("by_default");
    let build = || Runtime::builder().cores(1);
    let start = |cx: &mut Cx| {
        for i in 0..10 {
            FAULTY
                .on(FIRST, move |_cx| assert_ne!(i % 5, 3, "two of ten"))
                .post(cx);
            WELL.on(FIRST, |_cx| ()).post(cx);
        }
        cx.post(FIRST, |cx| cx.stop());
    };
    let runtime = build().build().unwrap();
    let observer = runtime.poster();
    runtime.run(start).unwrap();
    let stats = observer.stats();
    assert_eq!((stats.panics(), stats.cores[0].panics), (2, 2));
    assert_eq!(stats.events(), 22);
    let profile = observer.profile();
    let panics = |name| {
        let row = profile.handlers.iter().find(|row| row.name == name);
        row.map(|row| row.panics)
    };
    assert_eq!((panics("faulty"), panics("well")), (Some(2), Some(0)));
    let outcome = build().simulate(1).unwrap().run(start);
    assert!(
        matches!(outcome, Err(SimError::Run(RunError::Panicked { .. }))),
        "{outcome:?}"
    );
}

/// What is done in an event of [`FIRST`] and panics, there or later.
type Faulty = fn(&mut Cx);

/// A panic ends one event, and the color goes on: with holds, tasks, timers, replies and states.
#[test]
#[cfg_attr(miri, ignore = "simulates: see checks/sanitize.sh")]
fn no_panic_keeps_a_color() {
    const SOON: Duration = Duration::from_micros(10);
    fn panics(_cx: &mut Cx) {
        panic!("planted")
    }
    let ways: [(&str, Faulty); 14] = [
        ("an event", panics),
        ("an event that holds", |cx| {
            let _hold = cx.hold();
            panic!("planted")
        }),
        ("a continuation", |cx| cx.hold().resume(panics)),
        ("an event through a hold", |cx| {
            let hold = cx.hold();
            hold.try_post(hold.color(), panics).unwrap();
            cx.timer(SOON, hold.on(|_cx| ()));
        }),
        ("a deadline", |cx| {
            let mut hold = cx.hold();
            hold.resume_after(cx, SOON, panics);
            cx.timer(
                2 * SOON,
                Callback::anonymous(Color::from(9), |_cx| drop(hold)),
            );
        }),
        ("a callback that resumes", |cx| {
            let resumes = cx.hold().on_value(|cx, _| panics(cx));
            cx.try_blocking(|| ()).unwrap().then(cx, resumes);
        }),
        ("work that a hold waits for", |cx| {
            let resumes = cx.hold().on_value(|_cx, _| ());
            let given = cx.try_blocking::<(), _>(|| panic!("planted"));
            given.unwrap().then(cx, resumes);
        }),
        ("a future that a hold waits for", |cx| {
            let future = async {
                sleep(SOON).await;
                panic!("planted")
            };
            cx.hold().until(future);
        }),
        ("a task", |cx| {
            let future = async {
                sleep(SOON).await;
                let _hold = with_cx(|cx| cx.hold());
                panic!("planted")
            };
            cx.spawn(FIRST, future);
        }),
        ("several states", |cx| {
            let states = [FIRST, Color::from(9)].map(|color| Colored::new(cx, color, ()));
            cx.with_all(&states[..], |_, _cx| panic!("planted"));
        }),
        ("a reader", |cx| {
            let state = Colored::new(cx, FIRST, ());
            cx.read(&state, |(), _cx| panic!("planted"));
        }),
        ("a timer", |cx| {
            cx.timer(SOON, Callback::anonymous(FIRST, panics));
        }),
        ("a reply", |cx| {
            let told = Callback::anonymous_value(FIRST, |cx, _| panics(cx));
            cx.ask(Color::from(9), |_cx| ()).then(cx, told);
        }),
        ("a drop of state", |cx| {
            struct Panics;
            impl Drop for Panics {
                fn drop(&mut self) {
                    panic!("planted")
                }
            }
            drop(Colored::new(cx, FIRST, Panics));
        }),
    ];
    for (what, way) in ways {
        for seed in 0..5 {
            let builder = Runtime::builder().cores(2);
            let builder = builder.on_panic(OnPanic::DropEvent).panic_hook(|_| ());
            let ran = Arc::new(AtomicU64::new(0));
            let its = Arc::clone(&ran);
            let mut simulation = builder.exit_when_idle(true).simulate(seed).unwrap();
            let outcome = simulation.run(move |cx| {
                cx.post(FIRST, move |cx| {
                    // Some are there before it panics, and some come later.
                    let count = move |its: &Arc<AtomicU64>| {
                        let its = Arc::clone(its);
                        move |_cx: &mut Cx| {
                            its.fetch_add(1, Ordering::Relaxed);
                        }
                    };
                    cx.post(FIRST, count(&its));
                    let later = Callback::anonymous(FIRST, count(&its));
                    cx.timer(Duration::from_millis(1), later);
                    way(cx);
                });
            });
            assert!(outcome.is_ok(), "{what}, {seed}: {outcome:?}");
            assert_eq!(ran.load(Ordering::Relaxed), 2, "{what}, {seed}");
            assert_eq!(simulation.stats().panics(), 1, "{what}, {seed}");
        }
    }
}

/// An interval ends with a panic of its callback, and no other timer does.
#[test]
#[cfg_attr(miri, ignore = "simulates: see checks/sanitize.sh")]
fn an_interval_that_panics_ends() {
    let alive = Alive::default();
    let builder = Runtime::builder().on_panic(OnPanic::DropEvent);
    let builder = builder.panic_hook(|_| ()).exit_when_idle(true);
    let mut simulation = builder.simulate(1).unwrap();
    let payload = alive.payload();
    let (ticks, ticked) = channel();
    let (tell, other) = (ticks.clone(), ticks);
    let run = simulation.run(move |cx| {
        let mut left = 3;
        let every = Duration::from_millis(1);
        let tick = move |_cx: &mut Cx, ()| {
            let _payload = &payload;
            left -= 1;
            tell.send("interval").unwrap();
            assert!(left > 0, "planted");
        };
        cx.interval(every, Callback::anonymous_each(FIRST, tick));
        let once = move |_cx: &mut Cx| other.send("timer").unwrap();
        cx.timer(10 * every, Callback::anonymous(FIRST, once));
    });
    run.unwrap();
    let ticked: Vec<_> = ticked.iter().collect();
    assert_eq!(ticked, ["interval", "interval", "interval", "timer"]);
    assert_eq!((alive.count(), simulation.stats().panics()), (0, 1));
}

/// Panics on all cores at once: one is the outcome, all are counted, `run` returns.
#[test]
fn on_many_cores_at_once() {
    let _bound = Bound::new("on_many_cores_at_once");
    for _ in 0..if cfg!(miri) { 1 } else { 20 } {
        let runtime = cores(4).build().unwrap();
        let observer = runtime.poster();
        let outcome = runtime.run(|cx| {
            for i in 0..64 {
                cx.post(Color::from(i), |_cx| panic!("everywhere"));
            }
        });
        assert!(
            matches!(outcome, Err(RunError::Panicked { .. })),
            "{outcome:?}"
        );
        let panics: u64 = observer.stats().cores.iter().map(|c| c.panics).sum();
        assert!((1..=64).contains(&panics));
    }
}

/// What a run leaves behind is dropped when it is cut short, and may panic then: the handler whose
/// panic cut it short is named all the same.
#[test]
fn a_drop_that_panics_at_the_end_does_not_hide_the_handler() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("in a drop");
        }
    }
    let _bound = Bound::new("a_drop_that_panics_at_the_end");
    let runtime = cores(2).build().unwrap();
    let outcome = runtime.run(|cx| {
        let bomb = Bomb;
        let never = Callback::anonymous(Color::from(1), move |_| drop(bomb));
        cx.timer(std::time::Duration::from_secs(3_600), never);
        cx.post(Color::from(2), |_cx| panic!("the first"));
    });
    let Err(RunError::Panicked { panic, .. }) = outcome else {
        panic!("{outcome:?}");
    };
    assert_eq!(panic.message, "the first");
}
