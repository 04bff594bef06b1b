//! Readers of a state: together, and never beside a writer.

use crate::common::{Alive, Bound, cores, eventually};
use mely::Post;
use mely::metrics::HandlerProfile;
use mely::runtime::OnPanic;
use mely::task::JoinError;
use mely::{Color, Colored, Cx, Handler, Poster, Reason, Rejected, RunError, Runtime, sim};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// Worth stealing.
static LONG: Handler = Handler::new("long read").time(Duration::from_millis(50));

/// Two readers wait for each other, inside, on two cores.
#[test]
fn readers_of_one_state_run_at_the_same_time() {
    let _bound = Bound::new("readers_of_one_state");
    let runtime = cores(2).exit_when_idle(true).build().unwrap();
    let inside = Arc::new(AtomicU64::new(0));
    let all = Arc::clone(&inside);
    runtime
        .run(move |cx| {
            let state = Colored::new(cx, Color::from(7), 5);
            for _ in 0..2 {
                let inside = Arc::clone(&all);
                cx.read(&state.via(&LONG), move |state, _cx| {
                    assert_eq!(*state, 5);
                    inside.fetch_add(1, Ordering::SeqCst);
                    while inside.load(Ordering::SeqCst) < 2 {
                        thread::yield_now();
                    }
                });
            }
        })
        .unwrap();
    assert_eq!(inside.load(Ordering::SeqCst), 2);
}

/// Each lets the next one go that waits, of one state or of several; also if it has nothing to
/// read.
#[test]
fn readers_that_have_waited_run_at_the_same_time() {
    for (seed, (several, poisoned)) in (0..40).zip(
        [(false, false), (false, true), (true, false), (true, true)]
            .into_iter()
            .cycle(),
    ) {
        let builder = Runtime::builder().cores(2);
        let builder = builder
            .on_panic(OnPanic::DropEvent)
            .panic_hook(|_report| ());
        let mut simulation = builder.exit_when_idle(true).simulate(seed).unwrap();
        let inside = Arc::new(Mutex::new((0, 0)));
        let (all, written) = (Arc::clone(&inside), Arc::new(AtomicBool::new(false)));
        let writes = Arc::clone(&written);
        let start = move |cx: &mut Cx| {
            let states = [1, 2].map(|color| Colored::new(cx, Color::from(color), 5));
            for state in &states {
                state.post(cx, move |_, cx| {
                    let go_on = cx.hold().on(|_cx| ());
                    cx.timer(Duration::from_millis(1), go_on);
                    assert!(!poisoned);
                });
            }
            for _ in 0..2 {
                let all = Arc::clone(&all);
                let read = move |cx: &mut Cx| {
                    let mut inside = all.lock().unwrap();
                    inside.0 += 1;
                    inside.1 = inside.0.max(inside.1);
                    drop(inside);
                    sim::work(cx, Duration::from_millis(1));
                    all.lock().unwrap().0 -= 1;
                };
                if several {
                    cx.read([&states[0].via(&LONG), &states[1]], move |_, cx| read(cx));
                } else {
                    cx.read(&states[0].via(&LONG), move |_, cx| read(cx));
                }
            }
            let color = states[0].color();
            cx.post(color, move |_cx| writes.store(true, Ordering::Relaxed));
        };
        simulation.run(start).unwrap();
        let most = if poisoned { 0 } else { 2 };
        assert_eq!(*inside.lock().unwrap(), (0, most), "seed {seed}");
        assert!(written.load(Ordering::Relaxed), "seed {seed}");
    }
}

/// Writes and reads in turn, of several states, on several cores and from a foreign thread.
#[test]
fn a_read_sees_all_that_was_posted_before_and_nothing_else() {
    let _bound = Bound::new("a_read_sees");
    const ROUNDS: u64 = if cfg!(miri) { 5 } else { 1_000 };
    for (count, slots) in [(1, 4_096), (2, 16), (2, 4_096), (4, 4_096)] {
        let builder = cores(count).color_slots(slots).exit_when_idle(true);
        let runtime = builder.build().unwrap();
        let poster = runtime.poster();
        let done = Arc::new(AtomicU64::new(0));
        let all = Arc::clone(&done);
        runtime
            .run(move |cx| {
                let keep_alive = cx.strong_poster();
                let outside = Arc::clone(&all);
                thread::spawn(move || {
                    let state = Colored::new(&poster, Color::from(90), 0);
                    for round in 1..=ROUNDS {
                        let done = Arc::clone(&outside);
                        state.try_post(&poster, move |n, _cx| *n = round).unwrap();
                        let read = move |n: &u64, _cx: &mut Cx| {
                            assert_eq!(*n, round);
                            done.fetch_add(1, Ordering::Relaxed);
                        };
                        poster.try_read(&state, read).unwrap();
                    }
                    drop(keep_alive);
                });
                for client in 0..4u64 {
                    let all = Arc::clone(&all);
                    cx.post(Color::from(50 + client), move |cx| {
                        let state = Colored::new(cx, Color::from(client * 16), 0u64);
                        for round in 1..=ROUNDS {
                            state.post(cx, move |n, _cx| *n = round);
                            for _ in 0..round % 3 {
                                let done = Arc::clone(&all);
                                cx.read(&state, move |n, _cx| {
                                    assert_eq!(*n, round);
                                    done.fetch_add(1, Ordering::Relaxed);
                                });
                            }
                        }
                    });
                }
            })
            .unwrap();
        let each: u64 = (1..=ROUNDS).map(|round| round % 3).sum();
        assert_eq!(done.load(Ordering::Relaxed), 4 * each + ROUNDS);
    }
}

/// Transfers between accounts, of which two share a color and two a slot, and looks at all of them.
#[test]
fn a_read_of_several_states_sees_no_transfer_half_done() {
    let _bound = Bound::new("a_read_of_several");
    const ROUNDS: u64 = if cfg!(miri) { 5 } else { 2_000 };
    for count in [1, 2, 3] {
        let builder = cores(count).color_slots(32).exit_when_idle(true);
        let runtime = builder.build().unwrap();
        let looks = Arc::new(AtomicU64::new(0));
        let all = Arc::clone(&looks);
        runtime
            .run(move |cx| {
                let colors = [1, 2, 3, 3, 5, 5 + 32].map(Color::from);
                let accounts = colors.map(|color| Colored::new(cx, color, 100i64));
                for client in 0..4usize {
                    let (accounts, looks) = (accounts.clone(), Arc::clone(&all));
                    cx.post(Color::from(100 + client as u64), move |cx| {
                        for round in 0..ROUNDS {
                            let from = (client + round as usize) % 6;
                            let pair = [&accounts[from], &accounts[(from + 1 + client) % 6]];
                            cx.with_all(pair, |[from, to], _cx| {
                                *from -= 1;
                                *to += 1;
                            });
                            let looks = Arc::clone(&looks);
                            cx.read(&accounts[..], move |all, _cx| {
                                assert_eq!(all.into_iter().sum::<i64>(), 600);
                                looks.fetch_add(1, Ordering::Relaxed);
                            });
                        }
                    });
                }
            })
            .unwrap();
        assert_eq!(looks.load(Ordering::Relaxed), 4 * ROUNDS);
    }
}

/// A writer waits for the readers before it, and they for nobody behind it.
#[test]
fn readers_that_go_on_for_ever_keep_no_writer_waiting() {
    let _bound = Bound::new("readers_that_go_on");
    fn again(state: &Colored<bool>, cx: &Cx) {
        let next = state.clone();
        cx.read(state, move |over, cx| {
            if !over {
                again(&next, cx);
            }
        });
    }
    for count in [1, 2] {
        let runtime = cores(count).exit_when_idle(true).build().unwrap();
        runtime
            .run(move |cx| {
                let state = Colored::new(cx, Color::from(7), false);
                for _ in 0..10 {
                    again(&state, cx);
                }
                let write = move |cx: &mut Cx| state.post(cx, |over, _cx| *over = true);
                let after = mely::Callback::anonymous(Color::from(8), write);
                cx.timer(Duration::from_millis(5), after);
            })
            .unwrap();
    }
}

/// Reads, holds and events of several colors, each in its place.
#[test]
fn holds_and_readers_wait_for_each_other_in_order() {
    let _bound = Bound::new("holds_and_readers");
    for count in [1, 2] {
        let log = cores(count).build().unwrap().run_until(|cx, finish| {
            let log = Arc::new(Mutex::new(Vec::new()));
            let say = |word: &'static str| {
                let log = Arc::clone(&log);
                move || log.lock().unwrap().push(word)
            };
            let a = Colored::new(cx, Color::from(1), 1);
            let b = Colored::new(cx, Color::from(2), 2);
            let (first, held) = (say("read"), say("let go"));
            cx.read(&a, move |_, _cx| first());
            a.post(cx, move |_, cx| {
                let go_on = cx.hold().on(move |_cx| held());
                cx.timer(Duration::from_millis(2), go_on);
            });
            let (second, both, last) = (say("read again"), say("both"), say("read both"));
            cx.read(&a, move |_, _cx| second());
            cx.with_all([&b, &a], move |[b, a], _cx| {
                *a += *b;
                both();
            });
            cx.read((&a, &b), move |(a, b), _cx| {
                assert_eq!((*a, *b), (3, 2));
                last();
            });
            a.post(cx, move |_, _cx| finish.finish(Arc::clone(&log)));
        });
        let expected = ["read", "let go", "read again", "both", "read both"];
        assert_eq!(*log.unwrap().lock().unwrap(), expected);
    }
}

/// Of two states of a color: readers of the one and of the other run together, and a writer of one
/// waits for both.
#[test]
fn states_of_one_color_are_read_together() {
    let _bound = Bound::new("states_of_one_color");
    let runtime = cores(2).exit_when_idle(true).build().unwrap();
    let inside = Arc::new(AtomicU64::new(0));
    let all = Arc::clone(&inside);
    runtime
        .run(move |cx| {
            let states = [1, 2].map(|n| Colored::new(cx, Color::from(7), n));
            for state in &states {
                let inside = Arc::clone(&all);
                cx.read(&state.via(&LONG), move |_, _cx| {
                    inside.fetch_add(1, Ordering::SeqCst);
                    while inside.load(Ordering::SeqCst) < 2 {
                        thread::yield_now();
                    }
                });
            }
            states[0].post(cx, move |_, _cx| assert_eq!(all.load(Ordering::SeqCst), 2));
        })
        .unwrap();
    assert_eq!(inside.load(Ordering::SeqCst), 2);
}

/// When the last reader of a state has gone and its value is not back, it is too early to read the
/// state. Another state of the color is kept for the reader until then.
#[test]
fn states_of_one_color_are_read_when_both_are_there() {
    for seed in 0..300 {
        let builder = Runtime::builder().cores(2);
        let mut simulation = builder.exit_when_idle(true).simulate(seed).unwrap();
        let read = Arc::new(AtomicU64::new(0));
        let all = Arc::clone(&read);
        let start = move |cx: &mut Cx| {
            let states = [1, 2, 3].map(|n| Colored::new(cx, Color::from(7 + n / 3), n));
            for round in 0..4 {
                for _ in 0..2 {
                    let work = move |_: &u64, cx: &mut Cx| sim::work(cx, Duration::from_micros(3));
                    cx.read(&states[round % 2].via(&LONG), work);
                }
                let all = Arc::clone(&all);
                cx.read(states.to_vec(), move |values, _cx| {
                    assert!(values.into_iter().eq(&[1, 2, 3]));
                    all.fetch_add(1, Ordering::Relaxed);
                });
            }
            states[0].post(cx, |n, _cx| *n = 0);
        };
        simulation.run(start).unwrap();
        assert_eq!(read.load(Ordering::Relaxed), 4, "seed {seed}");
    }
}

#[test]
fn a_reader_that_panics_poisons_nothing() {
    let _bound = Bound::new("a_reader_that_panics");
    let runtime = cores(2)
        .on_panic(OnPanic::DropEvent)
        .panic_hook(|_report| ())
        .build()
        .unwrap();
    let seen = runtime.run_until(|cx, finish| {
        let (a, b) = (
            Colored::new(cx, Color::from(1), 1),
            Colored::new(cx, Color::from(2), "two"),
        );
        cx.spawn(Color::from(9), async move {
            let ask = |f: fn(&i32, &mut Cx) -> i32| mely::task::with_cx(|cx| cx.read(&a, f));
            let panicked = ask(|_, _cx| panic!("while it reads")).await;
            let whole = ask(|a, _cx| *a).await;
            let changed = a.call(|a, _cx| *a += 1).await;
            let poisoned: Result<(), _> = a.call(|_, _cx| panic!("while it writes")).await;
            let refused = ask(|_, _cx| unreachable!()).await;
            let both = mely::task::with_cx(|cx| cx.read((&b, &a), |_, _cx| ())).await;
            let other = mely::task::with_cx(|cx| cx.read(&b, |b, _cx| *b)).await;
            let plain = a.color();
            let goes_on = mely::task::with_cx(|cx| cx.ask(plain, |_cx| 5)).await;
            let refusals = (panicked, poisoned, refused, both);
            finish.finish((refusals, whole, changed, other, goes_on));
        });
    });
    let no = JoinError::Panicked;
    let (refusals, whole, changed, other, goes_on) = seen.unwrap();
    assert_eq!(refusals, (Err(no), Err(no), Err(no), Err(no)));
    assert_eq!((whole, changed), (Ok(1), Ok(())));
    assert_eq!((other, goes_on), (Ok("two"), Ok(5)));
}

#[test]
fn a_read_of_a_poisoned_state_says_why_it_panics() {
    let _bound = Bound::new("a_read_of_a_poisoned");
    let messages = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&messages);
    let builder = cores(1).on_panic(OnPanic::DropEvent).exit_when_idle(true);
    let builder =
        builder.panic_hook(move |report| told.lock().unwrap().push(report.message.clone()));
    let start = |cx: &mut Cx| {
        let [a, b] = [1, 2].map(|color| Colored::new(cx, Color::from(color), 1));
        a.post(cx, |_, _cx| panic!("{}", Reason::Poisoned));
        cx.read(&a, |_, _cx| ());
        cx.read([&a, &b], |_, _cx| ());
        cx.read((&b, &a), |_, _cx| ());
    };
    builder.build().unwrap().run(start).unwrap();
    let poisoned = Reason::Poisoned.to_string();
    assert_eq!(*messages.lock().unwrap(), vec![poisoned; 4]);
}

/// The state is lent to readers: nobody of its color finds it.
#[test]
fn what_is_refused_gives_the_closure_back() {
    let _bound = Bound::new("what_is_refused");
    let alive = Alive::default();
    let runtime = cores(1).events_max(100).build().unwrap();
    let poster = runtime.poster();
    let state = Colored::new(&poster, Color::from(1), 1);
    let mut accepted = 0;
    let full = loop {
        let payload = alive.payload();
        match poster.try_read(&state, move |_, _cx| drop(payload)) {
            Ok(_) => accepted += 1,
            Err(refused) => break refused,
        }
    };
    assert!(matches!(
        full,
        Rejected {
            reason: Reason::Full,
            ..
        }
    ));
    drop(full);
    assert_eq!(alive.count(), accepted);
    let other = cores(1).build().unwrap();
    let foreign = Colored::new(&other.poster(), Color::from(1), 2);
    let two = poster.try_read([&state, &foreign], |_, _cx| ());
    assert!(matches!(
        two,
        Err(Rejected {
            reason: Reason::TwoRuntimes,
            ..
        })
    ));
    drop(runtime);
    assert_eq!(alive.count(), 0);
    let payload = alive.payload();
    let ended = poster.try_read(&state, move |_, _cx| drop(payload));
    assert!(matches!(
        ended,
        Err(Rejected {
            reason: Reason::Ended,
            ..
        })
    ));
    drop(ended);
    assert_eq!(alive.count(), 0);
}

/// A drain runs what is read and what waits for it; by a strong poster a read is accepted then.
#[test]
fn a_stop_waits_for_readers() {
    let _bound = Bound::new("a_stop_waits");
    let read = Arc::new(AtomicBool::new(false));
    let (written, late) = (Arc::clone(&read), Arc::clone(&read));
    let (give, take) = channel();
    let runtime = cores(2).build().unwrap();
    let weak = runtime.poster();
    let outside = thread::spawn(move || {
        let (strong, state): (Poster, Colored<i32>) = take.recv().unwrap();
        eventually("the stop", || {
            weak.try_post(Color::from(3), |_cx| ()).is_err()
        });
        let mut asked = strong.try_read(&state, |state, _cx| *state).unwrap();
        late.store(asked.recv() == Ok(2), Ordering::Relaxed);
    });
    runtime
        .run(move |cx| {
            let state = Colored::new(cx, Color::from(1), 1);
            cx.read(&state, |_, cx| cx.stop());
            state.post(cx, move |state, _cx| {
                *state = 2;
                assert!(!written.load(Ordering::Relaxed));
            });
            give.send((cx.strong_poster(), state)).unwrap();
        })
        .unwrap();
    outside.join().unwrap();
    assert!(read.load(Ordering::Relaxed));
}

/// Who reads, who waits to read or to write, and the state are dropped with a run that is cut
/// short.
#[test]
fn a_run_that_is_cut_short_drops_all() {
    let _bound = Bound::new("a_run_that_is_cut_short");
    let alive = Alive::default();
    let given = alive.clone();
    let runtime = cores(2).drain_deadline(Duration::from_millis(20)).build();
    let over = runtime.unwrap().run(move |cx| {
        let state = Colored::new(cx, Color::from(1), given.payload());
        for _ in 0..3 {
            let (payload, again) = (given.payload(), state.clone());
            // Each begins a new one: the drain never ends by itself.
            fn read(
                state: &Colored<crate::common::Payload>,
                cx: &Cx,
                kept: Arc<crate::common::Payload>,
            ) {
                let next = state.clone();
                cx.read(state, move |_, cx| read(&next, cx, Arc::clone(&kept)));
            }
            read(&again, cx, Arc::new(payload));
            let payload = given.payload();
            state.post(cx, move |_, _cx| drop(payload));
        }
        cx.stop();
    });
    assert!(matches!(over, Err(RunError::Deadline { .. })), "{over:?}");
    assert_eq!(alive.count(), 0);
}

/// A name and a time of its own for each.
#[test]
fn the_time_of_each_reader_is_learned_by_itself() {
    let _bound = Bound::new("the_time_of_each_reader");
    let runtime = cores(1).exit_when_idle(true).build().unwrap();
    let poster = runtime.poster();
    runtime
        .run(|cx| {
            let state = Colored::new(cx, Color::from(1), 1);
            for _ in 0..20 {
                cx.read(&state, |state, _cx| assert_ne!(*state, 2));
                cx.read(&state, |state, _cx| assert_eq!(*state, 1));
            }
        })
        .unwrap();
    let rows = poster.profile().handlers;
    let read = |row: &&HandlerProfile| row.name.contains("::read_apart<");
    let read: Vec<u64> = rows.iter().filter(read).map(|row| row.events()).collect();
    assert_eq!(read, [20, 20], "{rows:?}");
}

/// The last handles of states go with the closure, at the limit of events: inside and outside.
#[test]
fn states_that_nobody_else_has_are_dropped_at_the_limit() {
    let _bound = Bound::new("states_that_nobody_else_has");
    let alive = Alive::default();
    let states = |poster: &mely::Poster| {
        let state = |color| Colored::new(poster, Color::from(color), alive.payload());
        vec![state(1), state(2)]
    };
    let runtime = cores(1).events_max(10).build().unwrap();
    let poster = runtime.poster();
    while poster.try_post(Color::from(3), |_cx| ()).is_ok() {}
    assert!(poster.try_read(states(&poster), |_, _cx| ()).is_err());
    assert!(poster.try_with_all(states(&poster), |_, _cx| ()).is_err());
    assert!(poster.try_read(states(&poster), |_, _cx| ()).is_err());
    assert!(poster.try_with_all(states(&poster), |_, _cx| ()).is_err());
    drop(runtime);
    assert_eq!(alive.count(), 0);

    let given = alive.clone();
    let runtime = cores(1).events_max(10).build().unwrap();
    runtime
        .run(move |cx| {
            while cx.try_post(Color::from(3), |_cx| ()).is_ok() {}
            let state = |color| Colored::new(cx, Color::from(color), given.payload());
            let states = || vec![state(1), state(2)];
            assert!(cx.poster().try_read(states(), |_, _cx| ()).is_err());
            assert!(cx.poster().try_with_all(states(), |_, _cx| ()).is_err());
            cx.stop();
        })
        .unwrap();
    assert_eq!(alive.count(), 0);
}
