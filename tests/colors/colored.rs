//! State that belongs to a color: who may touch it, and where it is dropped.

use crate::common::{Alive, Bound, cores, eventually};
use mely::Post;
use mely::net::{Incoming, Listener, RecvBuf, SendBuf, Stream, Timer};
use mely::runtime::Finish;
use mely::state::UniqueColor;
use mely::{Callback, Color, Colored, Cx, Handler, Poster, Reason, Rejected, RunError, Runtime};
use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};

/// What may leave its thread, and what must not. `AmbiguousIfSend` has two implementations for a
/// type that is `Send`, so that naming the one without a parameter compiles only if it is not.
mod auto_traits {
    use super::*;

    fn send<T: Send>() {}
    fn sync<T: Sync>() {}

    macro_rules! not {
        ($name:ident, $auto:ident, $($type:ty),+) => {
            #[test]
            fn $name() {
                trait Ambiguous<A> {
                    fn some() {}
                }
                impl<T: ?Sized> Ambiguous<()> for T {}
                struct Invalid;
                impl<T: ?Sized + $auto> Ambiguous<Invalid> for T {}
                $(<$type as Ambiguous<_>>::some();)+
            }
        };
    }

    not!(
        a_context_stays_on_its_thread,
        Send,
        Cx,
        &'static Cx,
        &'static mut Cx
    );
    not!(a_context_is_not_shared, Sync, Cx);
    not!(
        a_callback_is_what_its_closure_is,
        Send,
        Callback<std::rc::Rc<()>>
    );

    #[test]
    fn the_rest_may_travel() {
        send::<Poster>();
        sync::<Poster>();
        // State need not be `Sync`: one thread at a time has it.
        send::<Colored<Cell<u64>>>();
        sync::<Colored<Cell<u64>>>();
        send::<Colored<RefCell<Vec<u8>>>>();
        send::<Runtime>();
        sync::<Runtime>();
        send::<UniqueColor>();
        sync::<UniqueColor>();
        send::<Finish<u64>>();
        send::<Stream>();
        sync::<Stream>();
        send::<Incoming>();
        send::<Listener>();
        send::<Timer>();
        send::<RecvBuf>();
        sync::<RecvBuf>();
        send::<SendBuf>();
        sync::<SendBuf>();
        send::<Callback<fn()>>();
        send::<mely::RunError>();
        send::<mely::metrics::Stats>();
    }
}

/// Posts to one color run in their order, with the state or without.
#[test]
#[cfg_attr(miri, ignore = "simulates: see checks/sanitize.sh")]
fn posts_with_the_state_keep_their_place() {
    for seed in 0..5 {
        let ran = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&ran);
        Runtime::builder()
            .cores(2)
            .exit_when_idle(true)
            .simulate(seed)
            .unwrap()
            .run(move |cx| {
                let state = Colored::new(cx, Color::from(5), log);
                assert_eq!(state.color(), Color::from(5));
                for i in 0..20 {
                    let state = state.clone();
                    let own = state.clone();
                    let note = move |log: &mut Arc<Mutex<Vec<u32>>>, _: &mut Cx| {
                        log.lock().unwrap().push(i);
                    };
                    if i % 2 == 0 {
                        state.post(cx, note);
                    } else {
                        cx.post(Color::from(5), move |cx| own.with(cx, note).unwrap());
                    }
                }
            })
            .unwrap();
        assert_eq!(*ran.lock().unwrap(), Vec::from_iter(0..20), "seed {seed}");
    }
}

#[test]
fn another_color_is_refused() {
    let _bound = Bound::new("another_color_is_refused");
    cores(2)
        .build()
        .unwrap()
        .run(|cx| {
            let state = Colored::new(cx, Color::from(3), 1);
            let refused = Reason::OtherColor {
                state: Color::from(3),
                handler: Color::DEFAULT,
            };
            assert_eq!(state.with(cx, |_, _| ()), Err(refused));
            let text = refused.to_string();
            assert!(
                text.contains("color 3") && text.contains("color 0"),
                "{text}"
            );
            cx.post(Color::from(3), move |cx| {
                assert_eq!(state.with(cx, |n, _| *n), Ok(1));
                cx.stop();
            });
        })
        .unwrap();
}

/// Two colors in one slot share a queue and nothing else: it is the exact color that counts.
#[test]
fn a_color_of_the_same_slot_is_refused() {
    let _bound = Bound::new("a_color_of_the_same_slot");
    // 16 slots, 4 of them for large values: of 64 colors many share one.
    let runtime = cores(2).color_slots(16).build().unwrap();
    let refused = Arc::new(AtomicU64::new(0));
    let seen = Arc::clone(&refused);
    runtime
        .run(move |cx| {
            let colors: Vec<Color> = (0..64).map(|i| Color::from(u64::MAX - i)).collect();
            let states: Vec<_> = colors
                .iter()
                .map(|&color| Colored::new(cx, color, color))
                .collect();
            let states = Arc::new(states);
            for (i, &color) in colors.iter().enumerate() {
                let (states, refused) = (Arc::clone(&states), Arc::clone(&refused));
                cx.post(color, move |cx| {
                    for (j, state) in states.iter().enumerate() {
                        let result = state.with(cx, |value, _| *value);
                        if i == j {
                            assert_eq!(result, Ok(color));
                        } else {
                            assert!(matches!(result, Err(Reason::OtherColor { .. })));
                            refused.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                });
            }
            cx.stop();
        })
        .unwrap();
    assert_eq!(seen.load(Ordering::Relaxed), 64 * 63);
}

/// A value that is that of a unique color is another color, and so is every value that a runtime's
/// own color could have.
#[test]
fn a_value_is_none_of_the_runtimes_own_colors() {
    let _bound = Bound::new("a_value_is_none");
    cores(2)
        .build()
        .unwrap()
        .run(|cx| {
            let unique = cx.unique_color();
            let twin = Color::from(unique.color().value());
            assert_ne!(unique.color(), twin);
            let state = Colored::new(cx, unique.color(), 0);
            let refused = Reason::OtherColor {
                state: unique.color(),
                handler: twin,
            };
            let own = state.clone();
            cx.post(twin, move |cx| {
                assert_eq!(cx.color(), twin);
                assert_eq!(state.with(cx, |_, _| ()), Err(refused));
            });
            cx.post(unique.color(), move |cx| {
                assert_eq!(cx.color(), unique.color());
                assert_eq!(own.with(cx, |n, _| *n), Ok(0));
            });
            // Where the runtime's own colors once were, among others: placed like any other color.
            for core in 0..2 {
                for value in [0xC0107 << 44 | 1 << 14, 0xC0107 << 44, u64::MAX, 1] {
                    let color = Color::from(value);
                    cx.place(color, core);
                    cx.flush();
                    cx.post(color, move |cx| assert_eq!(cx.color(), color));
                }
            }
            cx.stop();
        })
        .unwrap();
}

#[test]
fn nested_access_is_refused() {
    let _bound = Bound::new("nested_access_is_refused");
    cores(1)
        .build()
        .unwrap()
        .run(|cx| {
            let color = Color::from(3);
            let (state, other) = (Colored::new(cx, color, 1), Colored::new(cx, color, 10));
            cx.post(color, move |cx| {
                let sum = state.with(cx, |n, cx| {
                    assert_eq!(state.with(cx, |_, _| ()), Err(Reason::Lent));
                    assert_eq!(state.clone().with(cx, |_, _| ()), Err(Reason::Lent));
                    // Other state of the color is free.
                    *n + other.with(cx, |m, _| *m).unwrap()
                });
                assert_eq!(sum, Ok(11));
                assert_eq!(state.with(cx, |n, _| *n), Ok(1), "free again");
                cx.stop();
            });
        })
        .unwrap();
}

/// A handler of another runtime is refused, also one of the same color.
#[test]
fn another_runtime_is_refused() {
    let _bound = Bound::new("another_runtime_is_refused");
    let there = cores(1).build().unwrap();
    let poster = there.poster();
    let state = Colored::new(&poster, Color::DEFAULT, 1);
    let clone = state.clone();
    cores(1)
        .build()
        .unwrap()
        .run(move |cx| {
            assert_eq!(clone.with(cx, |_, _| ()), Err(Reason::OtherRuntime));
            cx.stop();
        })
        .unwrap();
    there
        .run(move |cx| {
            assert_eq!(state.with(cx, |n, _| *n), Ok(1));
            cx.stop();
        })
        .unwrap();
}

/// Posting with the context of another runtime at hand goes to the state's own.
#[test]
fn posts_from_another_runtime_arrive_at_the_state() {
    let _bound = Bound::new("posts_from_another_runtime");
    let there = cores(1).build().unwrap();
    let state = Colored::new(&there.poster(), Color::from(4), 41);
    let given = state.clone();
    let stopper = there.poster();
    let running = std::thread::spawn(move || there.run(|_cx| ()));
    let here = cores(1).build().unwrap();
    here.run(move |cx| {
        given.post(cx, |n, _cx| *n += 1);
        cx.stop();
    })
    .unwrap();
    state
        .try_post(&stopper, |n, cx| {
            assert_eq!(*n, 42);
            cx.stop();
        })
        .unwrap();
    running.join().unwrap().unwrap();
}

/// Callbacks with the state run in its color, under their handlers, and panic once it is poisoned.
#[test]
fn callbacks_with_the_state() {
    static ONCE: Handler = Handler::new("once");
    static VALUE: Handler = Handler::new("value");
    static EACH: Handler = Handler::new("each");
    let _bound = Bound::new("callbacks_with_the_state");
    let panics = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&panics);
    let runtime = cores(1)
        .on_panic(mely::runtime::OnPanic::DropEvent)
        .panic_hook(move |panic| seen.lock().unwrap().push(panic.handler))
        .build()
        .unwrap();
    let log = runtime.run_until(|cx, finish| {
        let state = Colored::new(cx, Color::from(3), Vec::new());
        let once = || {
            state.on(&ONCE, |log: &mut Vec<_>, cx| {
                log.push((cx.handler(), cx.color().value()));
            })
        };
        let value = || {
            state.on_value(&VALUE, |log, cx, value| {
                log.push((cx.handler(), value));
            })
        };
        let each = || {
            let mut calls = 0;
            state.on_each(&EACH, move |log, cx, value| {
                calls += value;
                log.push((cx.handler(), calls));
            })
        };
        let post_all = |cx: &Cx| {
            once().post(cx);
            value().bind(7).post(cx);
            each().bind(8).post(cx);
        };
        post_all(cx);
        state.post(cx, move |log, _cx| finish.finish(std::mem::take(log)));
        state.post(cx, |_, _| panic!("poisons"));
        post_all(cx);
    });
    assert_eq!(log.unwrap(), [("once", 3), ("value", 7), ("each", 8)]);
    assert_eq!(panics.lock().unwrap()[1..], ["once", "value", "each"]);
}

/// Through the context of a runtime that goes on, to one that has ended.
#[test]
fn a_post_to_a_runtime_that_has_ended_panics_or_tells() {
    let _bound = Bound::new("a_post_to_a_runtime_that_has_ended");
    let there = cores(1).build().unwrap();
    let state = Colored::new(&there.poster(), Color::from(4), 41);
    there.run(|cx| cx.stop()).unwrap();
    let here = cores(1).build().unwrap();
    let result = here.run(move |cx| {
        let add = 1;
        let refused = state.try_post(cx, move |n, _cx| *n += add).unwrap_err();
        assert!(
            matches!(
                refused,
                Rejected {
                    reason: Reason::Ended,
                    ..
                }
            ),
            "{refused}"
        );
        let mut n = 1;
        (refused.value)(&mut n, cx);
        assert_eq!(n, 2, "the closure itself comes back");
        state.post(cx, |_, _| ());
    });
    let Err(RunError::Panicked { panic, .. }) = result else {
        panic!("{result:?}");
    };
    assert!(panic.message.contains("has ended"), "{panic}");
}

/// Whoever posts, and by which of the four: what is refused comes back whole.
#[test]
fn what_the_full_queues_refuse_comes_back() {
    static FULL: Handler = Handler::new("full");
    let _bound = Bound::new("what_the_full_queues_refuse");
    let runtime = cores(1).events_max(4).build().unwrap();
    runtime
        .run(|cx| {
            let state = Colored::new(cx, Color::from(3), 0);
            while cx.try_post(Color::from(1), |_cx| ()).is_ok() {}
            // Not by a poster either, which is a handler's own in a handler.
            let cx: &Cx = cx;
            let (poster, token) = (cx.poster(), Arc::new(()));
            let event = || {
                let token = Arc::clone(&token);
                move |n: &mut i32, _cx: &mut Cx| *n += Arc::strong_count(&token) as i32
            };
            let refusals = [
                state.try_post(cx, event()),
                state.via(&FULL).try_post(cx, event()),
                state.try_post(&poster, event()),
                state.via(&FULL).try_post(&poster, event()),
                state.try_post(&poster, event()),
                state.via(&FULL).try_post(&poster, event()),
            ];
            assert_eq!(Arc::strong_count(&token), 1 + refusals.len());
            for refused in refusals {
                assert!(
                    matches!(
                        refused,
                        Err(Rejected {
                            reason: Reason::Full,
                            ..
                        })
                    ),
                    "{refused:?}"
                );
            }
            let callback = FULL.on(Color::from(3), |_| ());
            let refused = callback.try_post(cx);
            assert!(
                matches!(
                    refused,
                    Err(Rejected {
                        reason: Reason::Full,
                        ..
                    })
                ),
                "{refused:?}"
            );
            cx.poster().stop();
        })
        .unwrap();
}

/// A color of its own as long as the state is there, and then somebody else's.
#[test]
fn unique_state_keeps_its_color() {
    let _bound = Bound::new("unique_state_keeps_its_color");
    let slot = |color: Color| color.value() % (1 << 20);
    // 16 slots, of which 4 are for unique colors.
    let runtime = cores(1).color_slots(16).build().unwrap();
    runtime
        .run(move |cx| {
            let state = Colored::new_unique(cx, 0);
            let color = state.color();
            let others: Vec<_> = (0..3).map(|_| cx.unique_color()).collect();
            assert!(others.iter().all(|its| slot(its.color()) != slot(color)));
            drop(state);
            // Behind the event that drops the state: its color alone is free now.
            cx.post(color, move |cx| {
                assert_eq!(cx.color(), color);
                let next = cx.unique_color();
                assert_eq!(slot(next.color()), slot(color));
                assert_ne!(next.color(), color);
                drop(others);
                cx.stop();
            });
            // Not before that.
            assert_ne!(cx.unique_color().color(), color);
        })
        .unwrap();
}

/// Says where it was dropped: the thread's name, and whether its color was at it at that moment.
struct Witness {
    running: Arc<AtomicBool>,
    places: Arc<Mutex<Vec<(String, bool)>>>,
}

impl Drop for Witness {
    fn drop(&mut self) {
        let thread = std::thread::current().name().unwrap_or("?").to_owned();
        let beside = self.running.load(Ordering::Acquire);
        self.places.lock().unwrap().push((thread, beside));
    }
}

#[test]
fn the_last_handle_dropped_elsewhere_drops_the_state_in_its_color() {
    let _bound = Bound::new("the_last_handle_dropped_elsewhere");
    for _ in 0..if cfg!(miri) { 2 } else { 50 } {
        let runtime = cores(2).build().unwrap();
        let places = Arc::new(Mutex::new(Vec::new()));
        let running = Arc::new(AtomicBool::new(false));
        let color = Color::from(6);
        let witness = Witness {
            running: Arc::clone(&running),
            places: Arc::clone(&places),
        };
        let poster = runtime.poster();
        let state = Colored::new(&poster, color, witness);
        let (entered, inside) = channel();
        let (release, released) = channel();
        let dropped = Arc::clone(&places);
        let thread = std::thread::spawn(move || {
            // While a handler of the color is at work.
            inside.recv().unwrap();
            drop(state);
            assert!(
                dropped.lock().unwrap().is_empty(),
                "dropped beside its color"
            );
            release.send(()).unwrap();
            poster.try_post(color, |cx| cx.stop()).unwrap();
        });
        runtime
            .run(move |cx| {
                cx.post(color, move |_cx| {
                    running.store(true, Ordering::Release);
                    entered.send(()).unwrap();
                    // Also if the other thread has failed.
                    let _ = released.recv();
                    running.store(false, Ordering::Release);
                });
            })
            .unwrap();
        thread.join().unwrap();
        let places = places.lock().unwrap();
        assert_eq!(places.len(), 1, "{places:?}");
        assert!(
            places[0].0.starts_with("mely-") && !places[0].1,
            "{places:?}"
        );
    }
}

/// However many weak handles there are, and whoever drops the last one that is none.
#[test]
fn a_weak_handle_keeps_nothing() {
    let _bound = Bound::new("a_weak_handle");
    for _ in 0..if cfg!(miri) { 2 } else { 50 } {
        let places = Arc::new(Mutex::new(Vec::new()));
        let witness = Witness {
            running: Arc::default(),
            places: Arc::clone(&places),
        };
        let runtime = cores(2).build().unwrap();
        let poster = runtime.poster();
        let state = Colored::new(&poster, Color::from(6), witness);
        let weak = state.downgrade();
        assert_eq!(weak.upgrade().unwrap().color(), state.color());
        let upgrading = weak.clone();
        let thread = std::thread::spawn(move || {
            // Until the last handle is gone, which may be one of these.
            while upgrading.upgrade().is_some() {}
            poster.try_post(Color::from(6), |cx| cx.stop()).unwrap();
        });
        runtime
            .run(move |cx| {
                let upgraded = state.downgrade().upgrade().unwrap();
                drop(state);
                upgraded.post(cx, |_, _| ());
            })
            .unwrap();
        thread.join().unwrap();
        assert!(weak.upgrade().is_none());
        let places = places.lock().unwrap();
        let [(thread, false)] = &places[..] else {
            panic!("{places:?}");
        };
        assert!(thread.starts_with("mely-"), "{thread}");
    }
}

#[test]
fn after_the_end_the_state_is_dropped_in_place() {
    let _bound = Bound::new("after_the_end");
    let places = Arc::new(Mutex::new(Vec::new()));
    let runtime = cores(2).build().unwrap();
    let witness = Witness {
        running: Arc::default(),
        places: Arc::clone(&places),
    };
    let state = Colored::new(&runtime.poster(), Color::from(6), witness);
    let poster = runtime.poster();
    runtime.run(|cx| cx.stop()).unwrap();
    assert!(places.lock().unwrap().is_empty());
    let error = state.try_post(&poster, |_, _| ()).unwrap_err();
    assert!(error.to_string().contains("ended"), "{error}");
    std::thread::Builder::new()
        .name("elsewhere".to_owned())
        .spawn(move || drop(state))
        .unwrap()
        .join()
        .unwrap();
    assert_eq!(*places.lock().unwrap(), [("elsewhere".to_owned(), false)]);
}

/// State that outlives its runtime's handle, and state of a runtime that never ran.
#[test]
fn state_of_a_runtime_that_is_gone() {
    let _bound = Bound::new("state_of_a_runtime_that_is_gone");
    let alive = Alive::default();
    let runtime = cores(1).build().unwrap();
    let state = Colored::new(&runtime.poster(), Color::from(1), alive.payload());
    state.try_post(&runtime.poster(), |_, _| ()).unwrap();
    drop(runtime);
    assert!(alive.count() <= 1);
    drop(state);
    assert_eq!(alive.count(), 0);
}

/// Handles dropped by thousands on every side, with events under way.
#[test]
fn handles_come_and_go() {
    const HANDLES: u64 = if cfg!(miri) { 20 } else { 5_000 };
    let _bound = Bound::new("handles_come_and_go");
    let alive = Alive::default();
    let given = alive.clone();
    let runtime = cores(2).build().unwrap();
    let poster = runtime.poster();
    let ran = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&ran);
    let thread = std::thread::spawn(move || {
        for i in 0..HANDLES {
            let state = Colored::new(&poster, Color::from(i % 40), given.payload());
            let count = Arc::clone(&count);
            state
                .try_post(&poster, move |_, _| {
                    count.fetch_add(1, Ordering::Relaxed);
                })
                .unwrap();
            drop(state);
        }
        eventually("every event", || count.load(Ordering::Relaxed) == HANDLES);
        eventually("every drop", || given.count() == 0);
        poster.stop();
    });
    runtime.run(|_cx| ()).unwrap();
    thread.join().unwrap();
    assert_eq!(ran.load(Ordering::Relaxed), HANDLES);
}
