//! Events of several colors.

use crate::common::{Alive, Bound, cores, eventually};
use mely::runtime::{OnPanic, Stealing};
use mely::task::{JoinError, with_cx};
use mely::{Callback, Color, Colored, Cx, Handler, Reason, Rejected, Runtime, sim};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

const ACCOUNTS: usize = 6;

/// Accounts of some colors: two of them of one color, two of one slot in a small runtime.
fn accounts(cx: &Cx) -> Vec<Colored<i64>> {
    let colors = [1, 2, 3, 3, 5, 5 + 4_096];
    colors
        .map(|color| Colored::new(cx, Color::from(color), 100))
        .to_vec()
}

/// From here to there, and a look at all of them.
fn transfer(cx: &mut Cx, accounts: &Arc<Vec<Colored<i64>>>, from: usize, to: usize, left: u32) {
    let (again, next) = (Arc::clone(accounts), (to + 1 + left as usize) % ACCOUNTS);
    let amount = i64::from(left % 17);
    cx.with_all([&accounts[from], &accounts[to]], move |[a, b], cx| {
        *a -= amount;
        *b += amount;
        if left > 0 {
            let next = if next == from {
                (next + 1) % ACCOUNTS
            } else {
                next
            };
            transfer(cx, &again, next, from, left - 1);
        }
    });
    if left.is_multiple_of(8) {
        cx.with_all(&accounts[..], |all, _cx| {
            let sum: i64 = all.iter().map(|a| **a).sum();
            assert_eq!(
                sum,
                100 * ACCOUNTS as i64,
                "nobody sees a transfer half done"
            );
        });
    }
}

#[test]
fn it_is_atomic_for_every_event_of_each_color() {
    let _bound = Bound::new("it_is_atomic");
    const CHAINS: usize = 8;
    const EACH: u32 = if cfg!(miri) { 3 } else { 1_000 };
    for count in [1, 2, 4] {
        let runtime = cores(count).exit_when_idle(true).build().unwrap();
        let poster = runtime.poster();
        let (give, take) = channel();
        let single = Arc::new(AtomicU64::new(0));
        let seen = Arc::clone(&single);
        runtime
            .run(move |cx| {
                let all = Arc::new(accounts(cx));
                give.send(Arc::clone(&all)).unwrap();
                for chain in 0..CHAINS {
                    let (from, to) = (chain % ACCOUNTS, (chain + 1) % ACCOUNTS);
                    transfer(cx, &all, from, to, EACH);
                }
                // Ordinary events of the colors, and foreign threads, at the same time.
                for account in all.iter() {
                    for _ in 0..EACH {
                        let seen = Arc::clone(&seen);
                        account.post(cx, move |_, _cx| {
                            seen.fetch_add(1, Ordering::Relaxed);
                        });
                    }
                }
                let keep_alive = cx.strong_poster();
                let outside = take.recv().unwrap();
                thread::spawn(move || {
                    for _ in 0..EACH {
                        let pair = (&outside[4], &outside[1]);
                        let done = poster.try_with_all(pair, |(a, b), _cx| {
                            *a += 1;
                            *b -= 1;
                        });
                        assert_eq!(done.unwrap().recv(), Ok(()));
                    }
                    drop(keep_alive);
                });
            })
            .unwrap();
        let each = ACCOUNTS as u64 * u64::from(EACH);
        assert_eq!(single.load(Ordering::Relaxed), each);
    }
}

/// A pipelined `SET, MGET, SET`: the second sees the first and not the third, whatever the cores
/// do.
#[test]
fn it_has_its_place_in_each_color_like_a_post() {
    let _bound = Bound::new("it_has_its_place");
    const ROUNDS: u64 = if cfg!(miri) { 5 } else { 2_000 };
    let runtime = cores(2).exit_when_idle(true).build().unwrap();
    let done = Arc::new(AtomicU64::new(0));
    let all = Arc::clone(&done);
    runtime
        .run(move |cx| {
            for client in 0..4u64 {
                let color = Color::from(100 + client);
                let own = Colored::new(cx, color, 0u64);
                let keys = [1, 2, 3].map(|key| {
                    let color = Color::from(key * 7 + client);
                    Colored::new(cx, color, 0u64)
                });
                let done = Arc::clone(&all);
                own.clone().post(cx, move |_own, cx| {
                    for round in 1..=ROUNDS {
                        keys[0].post(cx, move |key, _cx| *key = round);
                        keys[2].post(cx, move |key, _cx| *key = round);
                        own.post(cx, move |own, _cx| *own = round);
                        let done = Arc::clone(&done);
                        let together = [&keys[2], &own, &keys[0]];
                        cx.with_all(together, move |[c, own, a], _cx| {
                            assert_eq!((*a, *own, *c), (round, round, round));
                            done.fetch_add(1, Ordering::Relaxed);
                        });
                        keys[0].post(cx, move |key, _cx| *key = 0);
                        own.post(cx, move |own, _cx| *own = 0);
                    }
                });
            }
        })
        .unwrap();
    assert_eq!(done.load(Ordering::Relaxed), 4 * ROUNDS);
}

/// Posts of `f` come after the posts of events before it in one of the colors, whichever core `f`
/// runs on: here the core of such an event goes on, and publishes later.
#[test]
fn what_was_posted_before_in_one_of_the_colors_goes_first() {
    static SHORT: Handler = Handler::new("short").time(Duration::from_nanos(50));
    // Of one core each.
    const COLORS: [Color; 3] = [Color::new(3), Color::new(4), Color::new(5)];
    type Log = Arc<Mutex<Vec<(u32, &'static str)>>>;
    fn again(cx: &mut Cx, reads: bool, round: u32, log: Log) {
        let [here, there, target] = COLORS;
        let (before, after) = (Arc::clone(&log), Arc::clone(&log));
        let before = SHORT.on(target, move |_cx| {
            before.lock().unwrap().push((round, "before"))
        });
        let after = move |cx: &mut Cx| {
            let after = move |cx: &mut Cx| {
                after.lock().unwrap().push((round, "after"));
                if round > 0 {
                    again(cx, reads, round - 1, after);
                }
            };
            SHORT.on(target, after).post(cx);
        };
        let states = [here, there]
            .map(|color| Colored::new(cx, color, ()))
            .to_vec();
        let others_go_on = |cx: &mut Cx| (0..20).for_each(|_| sim::pause(cx));
        SHORT.on(here, move |cx| before.post(cx)).post(cx);
        SHORT.on(there, others_go_on).post(cx);
        if reads {
            cx.read(states, move |_, cx| after(cx));
        } else {
            cx.with_all(states, move |_, cx| after(cx));
        }
        SHORT.on(here, others_go_on).post(cx);
    }
    // In the first rounds it is not known yet how long the events take.
    const ROUNDS: u32 = 30;
    for seed in 0..60 {
        for reads in [false, true] {
            let builder = Runtime::builder().cores(3);
            let builder = builder.stealing(Stealing::OFF).exit_when_idle(true);
            let mut simulation = builder.simulate(seed).unwrap();
            let log = Log::default();
            let all = Arc::clone(&log);
            simulation
                .run(move |cx| again(cx, reads, ROUNDS, all))
                .unwrap();
            let rounds = (0..=ROUNDS).rev();
            let expected = rounds.flat_map(|round| [(round, "before"), (round, "after")]);
            assert!(
                log.lock().unwrap().iter().copied().eq(expected),
                "seed {seed}"
            );
        }
    }
}

/// Far more than a time that grows with their square would allow.
#[test]
fn each_of_many_states_costs_the_same() {
    const STATES: u64 = if cfg!(miri) { 20 } else { 200_000 };
    let _bound = Bound::new("each_of_many_states");
    let runtime = cores(1).build().unwrap();
    let sum = runtime.run_until(|cx, finish| {
        let states: Vec<_> = (0..STATES)
            .map(|i| Colored::new(cx, Color::from(i), 0))
            .collect();
        cx.with_all(&states[..], |all, _cx| {
            (1..).zip(all).for_each(|(i, state)| *state += i);
        });
        cx.read(states, move |all, _cx| {
            finish.finish(all.into_iter().sum::<u64>())
        });
    });
    assert_eq!(sum.unwrap(), STATES * (STATES + 1) / 2);
}

/// Also of colors that share a slot, and of three sets in a ring.
#[test]
fn sets_that_overlap_in_any_order_do_not_wait_for_each_other() {
    let _bound = Bound::new("sets_that_overlap");
    const ROUNDS: u64 = if cfg!(miri) { 5 } else { 3_000 };
    for slots in [16, 4_096] {
        let runtime = cores(3)
            .color_slots(slots)
            .exit_when_idle(true)
            .build()
            .unwrap();
        let done = Arc::new(AtomicU64::new(0));
        let all = Arc::clone(&done);
        runtime
            .run(move |cx| {
                let states = [3, 3 + 16, 7].map(|c| Colored::new(cx, Color::from(c), 0u64));
                for first in 0..3 {
                    for reversed in [false, true] {
                        let (states, done) = (states.clone(), Arc::clone(&all));
                        let spread = Color::from(1_000 + first as u64 * 2 + u64::from(reversed));
                        cx.post(spread, move |cx| {
                            for _ in 0..ROUNDS {
                                let mut pair = [&states[first], &states[(first + 1) % 3]];
                                if reversed {
                                    pair.reverse();
                                }
                                let done = Arc::clone(&done);
                                cx.with_all(pair, move |[a, b], _cx| {
                                    *a += 1;
                                    *b += 1;
                                    done.fetch_add(1, Ordering::Relaxed);
                                });
                            }
                        });
                    }
                }
            })
            .unwrap();
        assert_eq!(done.load(Ordering::Relaxed), 6 * ROUNDS);
    }
}

/// Two of the states are of one color.
#[test]
fn each_way_to_give_states_gives_all_of_them() {
    let _bound = Bound::new("each_way");
    let runtime = cores(1).exit_when_idle(true).build().unwrap();
    let ran = Arc::new(AtomicU64::new(0));
    let all = Arc::clone(&ran);
    runtime
        .run(move |cx| {
            let ran = || {
                let ran = Arc::clone(&all);
                move |values: &[u64]| {
                    assert_eq!(values, [4, 5, 6]);
                    ran.fetch_add(1, Ordering::Relaxed);
                }
            };
            let [a, b, c] = [4, 5, 6].map(|n: u64| Colored::new(cx, Color::from(n / 5), n));
            let states = vec![a.clone(), b.clone(), c.clone()];
            let (array, tuple, slice, vec) = (ran(), ran(), ran(), ran());
            cx.with_all([&a, &b, &c], move |all, _cx| array(&all.map(|n| *n)));
            cx.with_all((&a, &b, &c), move |(a, b, c), _cx| tuple(&[*a, *b, *c]));
            let values = |all: Vec<&mut u64>| Vec::from_iter(all.into_iter().map(|n| *n));
            cx.with_all(&states[..], move |all, _cx| slice(&values(all)));
            cx.with_all(states.clone(), move |all, _cx| vec(&values(all)));
            let (array, tuple, slice, vec) = (ran(), ran(), ran(), ran());
            cx.read([&a, &b, &c], move |all, _cx| array(&all.map(|n| *n)));
            cx.read((&a, &b, &c), move |(a, b, c), _cx| tuple(&[*a, *b, *c]));
            let values = |all: Vec<&u64>| Vec::from_iter(all.into_iter().copied());
            cx.read(&states[..], move |all, _cx| slice(&values(all)));
            cx.read(states, move |all, _cx| vec(&values(all)));
        })
        .unwrap();
    assert_eq!(ran.load(Ordering::Relaxed), 8);
}

/// Other colors go on while one is waited for.
#[test]
fn nobody_else_waits() {
    let _bound = Bound::new("nobody_else_waits");
    let log = cores(1).build().unwrap().run_until(|cx, finish| {
        let log = Arc::new(Mutex::new(Vec::new()));
        let a = Colored::new(cx, Color::from(1), ());
        let b = Colored::new(cx, Color::from(2), ());
        // The second color is held for a while by somebody else.
        let (say, held) = (Arc::clone(&log), b.color());
        b.post(cx, move |(), cx| {
            let go_on = cx.hold().on(move |_cx| say.lock().unwrap().push("let go"));
            cx.timer(Duration::from_millis(2), go_on);
            assert_eq!(cx.color(), held);
        });
        let (say, other, after) = (Arc::clone(&log), Arc::clone(&log), Arc::clone(&log));
        cx.with_all((&a, &b), move |((), ()), _cx| {
            say.lock().unwrap().push("together")
        });
        a.post(cx, move |(), _cx| {
            after.lock().unwrap().push("after it");
            finish.finish(Arc::clone(&after));
        });
        let elsewhere = move |_cx: &mut Cx| other.lock().unwrap().push("others");
        cx.timer(
            Duration::from_millis(1),
            Callback::anonymous(Color::from(3), elsewhere),
        );
    });
    let expected = ["others", "let go", "together", "after it"];
    assert_eq!(*log.unwrap().lock().unwrap(), expected);
}

#[test]
fn a_panic_poisons_all_and_the_colors_go_on() {
    let _bound = Bound::new("a_panic_poisons_all");
    let runtime = cores(2)
        .on_panic(OnPanic::DropEvent)
        .panic_hook(|_report| ())
        .build()
        .unwrap();
    let seen = runtime.run_until(|cx, finish| {
        let a = Colored::new(cx, Color::from(1), 1);
        let b = Colored::new(cx, Color::from(2), "two".to_string());
        let c = Colored::new(cx, Color::from(3), 3.0);
        cx.spawn(Color::from(9), async move {
            let sum =
                with_cx(|cx| cx.with_all((&a, &b, &c), |(a, b, c), _cx| format!("{a}, {b}, {c}")));
            let sum = sum.await;
            let panicked = with_cx(|cx| cx.with_all((&a, &b), |(_a, _b), _cx| panic!("together")));
            let panicked: Result<(), _> = panicked.await;
            // One that is poisoned is enough, and does not poison the others.
            let poisoned = with_cx(|cx| cx.with_all((&c, &a), |_, _cx| ())).await;
            let whole = c.call(|c, _cx| *c).await;
            let plain = with_cx(|cx| cx.ask(Color::from(1), |_cx| 5)).await;
            finish.finish((
                sum,
                (panicked, poisoned, b.call(|_b, _cx| ()).await),
                whole,
                plain,
            ));
        });
    });
    let panicked = Err(JoinError::Panicked);
    let (sum, poisoned, whole, plain) = seen.unwrap();
    assert_eq!(sum.as_deref(), Ok("1, two, 3"));
    assert_eq!(poisoned, (panicked, panicked, panicked));
    assert_eq!((whole, plain), (Ok(3.0), Ok(5)));
}

/// Why the states cannot be had, if that is why.
fn reason<T, F>(posted: Result<T, Rejected<F>>) -> Option<Reason> {
    match posted {
        Err(Rejected {
            reason: refused,
            value: _back,
        }) => Some(refused),
        _ => None,
    }
}

/// A `try_` call tells; the others panic, at the place of the program that calls.
#[test]
fn a_context_refuses_what_cannot_be_and_says_where() {
    let _bound = Bound::new("a_context_refuses");
    let reports = Arc::new(Mutex::new(Vec::new()));
    let told = Arc::clone(&reports);
    let builder = cores(1).on_panic(OnPanic::DropEvent);
    let builder = builder.panic_hook(move |report| {
        let location = report.location.clone().unwrap();
        told.lock()
            .unwrap()
            .push((report.message.clone(), location));
    });
    let refused = builder.build().unwrap().run_until(|cx, finish| {
        let a = Colored::new(cx, Color::from(1), 1);
        let (b, c) = (a.clone(), a.clone());
        cx.post(Color::from(2), move |cx| {
            drop(cx.with_all([&b, &b], |_, _cx| ()))
        });
        cx.post(Color::from(2), move |cx| {
            drop(cx.read([&c, &c], |_, _cx| ()))
        });
        a.post(cx, |_, _cx| panic!("poisons"));
        cx.post(a.color(), move |cx| {
            let refused = [
                reason(cx.poster().try_with_all([&a, &a], |_, _cx| ())),
                reason(cx.poster().try_read([&a, &a], |_, _cx| ())),
                reason(cx.poster().try_with_all([&a], |_, _cx| ())),
                reason(cx.poster().try_read([&a], |_, _cx| ())),
            ];
            finish.finish(refused);
        });
    });
    let (twice, poisoned) = (Reason::Twice(Color::from(1)), Reason::Poisoned);
    let expected = [twice, twice, poisoned, poisoned].map(Some);
    assert_eq!(refused.unwrap(), expected);
    let reports = reports.lock().unwrap();
    assert_eq!(reports.len(), 3);
    for (message, location) in &*reports {
        assert!(location.starts_with(file!()), "{location}: {message}");
    }
}

#[test]
fn what_cannot_be_is_refused() {
    let _bound = Bound::new("what_cannot_be");
    let (one, two) = (cores(1).build().unwrap(), cores(1).build().unwrap());
    let poster = one.poster();
    let [a, b] = [&one, &two].map(|runtime| Colored::new(&runtime.poster(), Color::from(1), 1));
    let alive = Alive::default();
    type States = Vec<Colored<i32>>;
    let c = Colored::new(&poster, Color::from(2), 1);
    let twice = Reason::Twice(a.color());
    let sets: [(States, Reason); 4] = [
        (vec![a.clone(), a.clone()], twice),
        (vec![a.clone(), c, a.clone()], twice),
        (vec![a.clone(), b.clone()], Reason::TwoRuntimes),
        (vec![], Reason::NoState),
    ];
    for (states, why) in sets {
        let payload = || alive.payload();
        let (one, two, three, four) = (payload(), payload(), payload(), payload());
        let back = [
            reason(poster.try_with_all(&states[..], move |_, _cx| drop(one))),
            reason(poster.try_read(&states[..], move |_, _cx| drop(two))),
            reason(poster.try_with_all(&states[..], move |_, _cx| drop(three))),
            reason(poster.try_read(&states[..], move |_, _cx| drop(four))),
        ];
        assert_eq!(back, [Some(why); 4]);
        assert_eq!(alive.count(), 0, "each closure came back");
    }
    // After the end the closure comes back.
    drop(one);
    let payload = alive.payload();
    let refused = poster.try_with_all([&a], move |_, _cx| drop(payload));
    assert!(matches!(
        refused,
        Err(Rejected {
            reason: Reason::Ended,
            ..
        })
    ));
    drop(refused);
    assert_eq!(alive.count(), 0);
}

#[test]
fn at_the_limit_of_events_the_closure_comes_back() {
    let _bound = Bound::new("at_the_limit");
    let alive = Alive::default();
    let given = alive.clone();
    let ran = cores(1)
        .events_max(200)
        .build()
        .unwrap()
        .run_until(move |cx, finish| {
            let states: Vec<_> = (1..9)
                .map(|c| Colored::new(cx, Color::from(c), 0))
                .collect();
            let mut accepted = 0u64;
            let ran = Arc::new(AtomicU64::new(0));
            loop {
                let (payload, ran) = (given.payload(), Arc::clone(&ran));
                let posted = cx.poster().try_with_all(&states[..], move |_, _cx| {
                    let _payload = payload;
                    ran.fetch_add(1, Ordering::Relaxed);
                });
                match posted {
                    Ok(_) => accepted += 1,
                    Err(Rejected {
                        reason: Reason::Full,
                        value: back,
                    }) => break drop(back),
                    Err(error) => panic!("{error}"),
                }
            }
            let until_all = move |cx: &mut Cx| {
                fn again(cx: &mut Cx, look: impl FnOnce(&mut Cx) + Send + 'static) {
                    cx.timer(
                        Duration::from_millis(1),
                        Callback::anonymous(Color::from(77), look),
                    );
                }
                fn look(
                    cx: &mut Cx,
                    ran: Arc<AtomicU64>,
                    accepted: u64,
                    finish: mely::runtime::Finish<u64>,
                ) {
                    if ran.load(Ordering::Relaxed) == accepted {
                        return finish.finish(accepted);
                    }
                    again(cx, move |cx| look(cx, ran, accepted, finish));
                }
                look(cx, ran, accepted, finish);
            };
            cx.timer(
                Duration::ZERO,
                Callback::anonymous(Color::from(77), until_all),
            );
        });
    assert!(ran.unwrap() > 10);
    assert_eq!(alive.count(), 0);
}

#[test]
fn what_was_posted_before_a_stop_runs_and_what_is_cut_short_is_dropped() {
    let _bound = Bound::new("what_was_posted_before");
    let alive = Alive::default();
    let (ran, given) = (Arc::new(AtomicU64::new(0)), alive.clone());
    let count = Arc::clone(&ran);
    let runtime = cores(2).build().unwrap();
    let start = move |cx: &mut Cx| {
        let states: Vec<_> = (1..5)
            .map(|c| Colored::new(cx, Color::from(c), 0))
            .collect();
        for _ in 0..100 {
            let (payload, ran) = (given.payload(), Arc::clone(&count));
            cx.with_all(&states[..], move |_, _cx| {
                let _payload = payload;
                ran.fetch_add(1, Ordering::Relaxed);
            });
        }
        cx.stop();
    };
    runtime.run(start).unwrap();
    assert_eq!((ran.load(Ordering::Relaxed), alive.count()), (100, 0));

    let runtime = cores(2)
        .drain_deadline(Duration::from_millis(10))
        .build()
        .unwrap();
    let given = alive.clone();
    let (keep, kept) = channel();
    let error = runtime.run(move |cx| {
        let a = Colored::new(cx, Color::from(1), 0);
        let b = Colored::new(cx, Color::from(2), 0);
        b.post(cx, move |_b, cx| keep.send(cx.hold()).unwrap());
        let payload = given.payload();
        let asked = cx.with_all([&a, &b], move |_, _cx| drop(payload));
        thread::spawn(move || {
            let mut asked = asked;
            assert_eq!(asked.recv(), Err(JoinError::Dropped));
        });
        cx.stop();
    });
    assert!(error.is_err());
    drop(kept);
    eventually("dropped", || alive.count() == 0);
}

/// Each closure has a row of its own in the profile, and its handler's name if it has one.
#[test]
fn each_has_a_name_and_a_time_of_its_own() {
    let _bound = Bound::new("each_has_a_name");
    static TRANSFER: Handler = Handler::new("transfer");
    static REPORT: Handler = Handler::new("report");
    let runtime = cores(1).exit_when_idle(true).build().unwrap();
    let (poster, names) = (runtime.poster(), Arc::new(Mutex::new(Vec::new())));
    let (by, seen) = (runtime.poster(), Arc::clone(&names));
    runtime
        .run(move |cx| {
            let [a, b] = [1, 2].map(|color| Colored::new(cx, Color::from(color), 0u64));
            for _ in 0..10 {
                cx.with_all([&a, &b], |[a, _b], _cx| *a += 1);
                cx.with_all([&a, &b], |[_a, b], _cx| *b += 1);
            }
            let note = || {
                let seen = Arc::clone(&seen);
                move |cx: &Cx| seen.lock().unwrap().push(cx.handler())
            };
            let (first, second, third, fourth) = (note(), note(), note(), note());
            cx.with_all((&a.via(&TRANSFER), &b), move |_, cx| first(cx));
            by.try_with_all([&a.via(&TRANSFER), &b], move |_, cx| second(cx))
                .unwrap();
            // Of one color it is one event.
            cx.with_all([&a.via(&TRANSFER)], move |_, cx| third(cx));
            cx.read([&a.via(&REPORT), &b], move |[a, b], cx| {
                assert_eq!((*a, *b), (10, 10));
                fourth(cx);
            });
            let fifth = note();
            by.try_read((&a.via(&REPORT), &b), move |_, cx| fifth(cx))
                .unwrap();
        })
        .unwrap();
    let mut names = names.lock().unwrap().clone();
    names.sort_unstable();
    assert_eq!(
        names,
        ["report", "report", "transfer", "transfer", "transfer"]
    );
    let rows = poster.profile().handlers;
    let of = |name: &str| -> u64 {
        let rows = rows.iter().filter(|row| row.name == name);
        rows.map(|row| row.events()).sum()
    };
    assert_eq!((of("transfer"), of("report")), (2 + 2 + 1, 2));
    // Of each closure one for the first color's events, which can be refused, and one for the
    // others'.
    let unnamed = rows.iter().filter(|row| row.name.contains("Meeting<"));
    let unnamed: Vec<u64> = unnamed.map(|row| row.events()).collect();
    assert_eq!(unnamed, [10; 4], "{rows:?}");
}
