//! Bounded colors: how much waits, who gets room and in which order, what is shed.

mod common;

use common::{Alive, LONG, cores, eventually};
use mely::{
    Backlog, Bounded, BoundedError, Callback, Color, Colored, Cores, Cx, Handler, Permit,
    PostError, Poster, RunError, Runtime, Shed, sleep, with_cx,
};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

static WORK: Handler = Handler::new("work");
/// So that what it posts is not published at once.
static SHORT: Handler = Handler::new("short").time(Duration::from_nanos(100));

const COLOR: Color = Color::new(5);

fn bounded<T: Send>(poster: &Poster, events: usize, value: T) -> Bounded<T> {
    Bounded::new(Colored::new(poster, COLOR, value), Backlog::events(events))
}

/// An event of the color that is begun, and ends when it is told to. Others wait behind it.
fn blocks(poster: &Poster, state: &Colored<impl Send>) -> (Sender<()>, Receiver<()>) {
    let (go, wait) = channel();
    let (tell, begun) = channel();
    state
        .post(poster, move |_, _cx| {
            tell.send(()).unwrap();
            let _told_or_dropped = wait.recv();
        })
        .unwrap();
    (go, begun)
}

/// Runs `test` on a thread of its own, beside a runtime that ends after it.
fn beside(runtime: Runtime, test: impl FnOnce(&Poster) + Send + 'static) -> Result<(), RunError> {
    struct Stop(Poster);
    impl Drop for Stop {
        fn drop(&mut self) {
            self.0.stop();
        }
    }
    let stop = Stop(runtime.poster());
    let tester = thread::spawn(move || test(&stop.0));
    let outcome = runtime.run(|_cx| ());
    tester.join().unwrap();
    outcome
}

#[test]
fn a_full_color_gives_the_closure_back() {
    let _bound = common::Bound::new("a full color");
    let run = beside(cores(2).build().unwrap(), |poster| {
        let full = bounded(poster, 2, 0);
        let (go, begun) = blocks(poster, full.state());
        begun.recv().unwrap();
        assert_eq!((full.waiting(), full.backlog().events_max()), (0, 2));
        for _ in 0..2 {
            full.try_post(poster, |n, _cx| *n += 1).unwrap();
        }
        assert_eq!(full.waiting(), 2);
        let alive = Alive::default();
        let payload = alive.payload();
        let refused = full.try_post(poster, move |n, _cx| {
            drop(payload);
            *n += 10;
        });
        let Err(refused @ BoundedError::NoRoom(_)) = refused else {
            panic!("accepted");
        };
        assert!(refused.to_string().contains("Backlog::events"), "{refused}");
        assert_eq!(format!("{refused:?}"), "BoundedError::NoRoom");
        assert_eq!(alive.count(), 1, "the closure came back");
        go.send(()).unwrap();
        eventually("room", || full.waiting() == 0);
        full.try_post(poster, refused.into_inner()).unwrap();
        let mut sum = full.state().ask(poster, |n, _cx| *n).unwrap();
        assert_eq!(sum.recv(), Ok(12));
    });
    run.unwrap();
}

#[test]
fn no_more_than_the_bound_waits_whoever_posts() {
    let _bound = common::Bound::new("no more than the bound");
    const THREADS: usize = 4;
    const EVENTS: usize = 500;
    for max in [1, 3, 64] {
        let runtime = cores(2).build().unwrap();
        let run = beside(runtime, move |poster| {
            let (waiting, most) = (Arc::new(AtomicUsize::new(0)), AtomicUsize::new(0));
            let full = bounded(poster, max, vec![0; THREADS]);
            thread::scope(|scope| {
                for its in 0..THREADS {
                    let (full, waiting, most) = (&full, &waiting, &most);
                    scope.spawn(move || {
                        for n in 0..EVENTS {
                            let begun = Arc::clone(waiting);
                            let event = move |seen: &mut Vec<usize>, _cx: &mut Cx| {
                                begun.fetch_sub(1, Ordering::SeqCst);
                                assert_eq!(seen[its], n, "in the order of its posts");
                                seen[its] += 1;
                            };
                            // Counted only once it has room, and before it can begin.
                            let permit = match n % 2 {
                                0 => full.try_reserve(),
                                _ => None,
                            };
                            let permit = permit.unwrap_or_else(|| wait_for_room(full, poster));
                            let now = waiting.fetch_add(1, Ordering::SeqCst) + 1;
                            most.fetch_max(now, Ordering::SeqCst);
                            permit.post(poster, event).unwrap();
                        }
                    });
                }
            });
            let mut seen = full.state().ask(poster, |seen, _cx| seen.clone()).unwrap();
            assert_eq!(seen.recv(), Ok(vec![EVENTS; THREADS]));
            assert_eq!(full.waiting(), 0);
            // An event gives its permit back when it begins, and is counted a moment later.
            assert!(most.into_inner() <= max + 1);
        });
        run.unwrap();
    }
}

/// Room, as an event of another color.
fn wait_for_room<T: Send>(full: &Bounded<T>, poster: &Poster) -> Permit<T> {
    let (give, given) = channel();
    let on_room = move |_cx: &mut Cx, room: Permit<T>| give.send(room).unwrap();
    full.on_room(poster, Callback::anonymous_value(Color::from(77), on_room));
    given.recv().unwrap()
}

#[test]
fn a_thread_waits_for_room_and_no_longer_than_it_wants() {
    let _bound = common::Bound::new("a thread waits for room");
    let run = beside(cores(2).build().unwrap(), |poster| {
        let full = bounded(poster, 1, Vec::new());
        let (go, begun) = blocks(poster, full.state());
        begun.recv().unwrap();
        full.try_post(poster, |log, _cx| log.push("first")).unwrap();
        let late = full.post_wait(poster, Duration::from_millis(2), |log: &mut Vec<_>, _cx| {
            log.push("late");
        });
        let Err(BoundedError::TimedOut(late)) = late else {
            panic!("{late:?}");
        };
        // Who gave up is not in the line any more.
        let (its, of) = (full.clone(), poster.clone());
        let waiting = thread::spawn(move || {
            its.post_wait(&of, LONG, |log: &mut Vec<_>, _cx| log.push("second"))
        });
        go.send(()).unwrap();
        waiting.join().unwrap().unwrap();
        full.post_wait(poster, LONG, late).unwrap();
        let mut log = full.state().ask(poster, |log, _cx| log.clone()).unwrap();
        assert_eq!(log.recv(), Ok(vec!["first", "second", "late"]));
    });
    run.unwrap();
}

#[test]
fn nothing_waits_inside_a_handler() {
    let _bound = common::Bound::new("nothing waits inside");
    let runtime = cores(1).build().unwrap();
    let full = bounded(&runtime.poster(), 1, ());
    let text = runtime.run_until(move |cx, finish| {
        let poster = cx.poster();
        let by_poster = full.post_wait(&poster, LONG, |_, _| ());
        assert!(matches!(by_poster, Err(BoundedError::Inside(_))));
        let by_context = full.post_wait(cx, LONG, |_, _| ()).unwrap_err();
        finish.finish(by_context.to_string());
    });
    let text = text.unwrap();
    assert!(
        text.contains("on_room") && text.contains("reserve"),
        "{text}"
    );
}

/// A thread, a task, and events of two colors: whatever they wait by.
#[test]
fn room_is_given_in_the_order_in_which_it_was_waited_for() {
    let _bound = common::Bound::new("room in order");
    let run = beside(cores(2).build().unwrap(), |poster| {
        let full = bounded(poster, 1, Vec::new());
        let (go, begun) = blocks(poster, full.state());
        begun.recv().unwrap();
        full.try_post(poster, |log, _cx| log.push(0)).unwrap();
        let mut threads = Vec::new();
        for i in 1..=30 {
            let note = move |log: &mut Vec<i32>, _cx: &mut Cx| log.push(i);
            let (its, of) = (full.clone(), poster.clone());
            match i % 3 {
                0 => threads.push(thread::spawn(move || {
                    its.post_wait(&of, LONG, note).unwrap()
                })),
                1 => {
                    let post = move |cx: &mut Cx, room: Permit<_>| room.post(cx, note).unwrap();
                    full.on_room(
                        poster,
                        Callback::anonymous_value(Color::from(50 + i as u64), post),
                    );
                }
                _ => {
                    let event = move |cx: &mut Cx| {
                        let task = async move {
                            let room = its.reserve().await;
                            with_cx(|cx| room.post(cx, note)).unwrap();
                        };
                        cx.spawn(Color::from(50 + i as u64), task).detach();
                    };
                    poster.post(Color::from(1), event).unwrap();
                }
            }
            // Nobody tells from outside when another one is in the line.
            eventually("it waits", || full.in_line() == i as usize);
        }
        assert!(
            full.try_post(poster, |_, _| ()).is_err(),
            "not past the line"
        );
        go.send(()).unwrap();
        threads
            .into_iter()
            .for_each(|thread| thread.join().unwrap());
        eventually("all have run", || {
            full.waiting() == 0 && full.in_line() == 0
        });
        let mut log = full.state().ask(poster, |log, _cx| log.clone()).unwrap();
        assert_eq!(log.recv(), Ok(Vec::from_iter(0..=30)));
    });
    run.unwrap();
}

#[test]
fn who_asks_for_room_that_is_there_is_called_at_once() {
    let _bound = common::Bound::new("room at once");
    let runtime = cores(1).exit_when_idle(true).build().unwrap();
    let full = bounded(&runtime.poster(), 2, 0);
    let its = full.clone();
    let called = Arc::new(AtomicBool::new(false));
    let calls = Arc::clone(&called);
    runtime
        .run(move |cx| {
            let permit = its.try_reserve().unwrap();
            let on_room = move |cx: &mut Cx, room: Permit<_>| {
                assert_eq!(cx.color(), Color::from(9));
                assert_eq!(room.bounded().waiting(), 1, "its own");
                calls.store(true, Ordering::Relaxed);
            };
            its.on_room(cx, Callback::anonymous_value(Color::from(9), on_room));
            assert_eq!(its.waiting(), 2);
            drop(permit);
        })
        .unwrap();
    assert!(called.load(Ordering::Relaxed));
    assert_eq!(full.waiting(), 0, "not used, it was given back");
}

/// The event that makes room, and those before it in its core's turn, have posted before.
#[test]
fn who_is_given_room_posts_after_what_the_events_before_have_posted() {
    let _bound = common::Bound::new("who is given room");
    const THERE: Color = Color::new(6);
    let runtime = cores(1).build().unwrap();
    let poster = runtime.poster();
    let log = Colored::new(&poster, THERE, Vec::new());
    let full = bounded(&poster, 1, ());
    let there = log.clone();
    let posts =
        move |_: &mut (), cx: &mut Cx| there.post_as(cx, &SHORT, |log, _cx| log.push("first"));
    full.state().post_as(&poster, &SHORT, posts).unwrap();
    let (tell, told) = channel::<()>();
    let waits = move |_: &mut (), _cx: &mut Cx| told.recv().unwrap();
    full.try_post_as(&poster, &SHORT, waits).unwrap();
    let (its, there) = (full.clone(), log.clone());
    let waiting = thread::spawn(move || {
        its.post_wait(&poster, LONG, |_, _cx| ()).unwrap();
        there.post(&poster, |log, _cx| log.push("second")).unwrap();
        tell.send(()).unwrap();
        let mut log = there.ask(&poster, |log, _cx| log.clone()).unwrap();
        let log = log.recv();
        poster.stop();
        log
    });
    eventually("it waits", || full.in_line() == 1);
    runtime.run(|_cx| ()).unwrap();
    assert_eq!(waiting.join().unwrap(), Ok(vec!["first", "second"]));
}

#[test]
fn a_panic_takes_no_room() {
    let _bound = common::Bound::new("a panic takes no room");
    let builder = cores(2).on_panic(mely::OnPanic::DropEvent);
    let run = beside(builder.build().unwrap(), |poster| {
        let full = bounded(poster, 1, ());
        full.try_post(poster, |_, _| panic!("on purpose")).unwrap();
        eventually("room", || full.waiting() == 0);
        // The state is poisoned: each event panics, and gives its room back.
        for _ in 0..3 {
            full.post_wait(poster, LONG, |_, _| unreachable!()).unwrap();
        }
        eventually("room", || full.waiting() == 0);
    });
    run.unwrap();
}

#[test]
fn a_stop_is_told_to_who_waits_and_what_was_accepted_runs() {
    let _bound = common::Bound::new("a stop is told");
    let runtime = cores(2).build().unwrap();
    let poster = runtime.poster();
    let full = bounded(&poster, 1, 0);
    let (go, begun) = blocks(&poster, full.state());
    full.try_post(&poster, |n, _cx| *n += 1).unwrap();
    let alive = Alive::default();
    let payloads: Vec<_> = (0..3).map(|_| alive.payload()).collect();
    let ran = Arc::new(AtomicU64::new(0));
    let (its, counted) = (full.clone(), Arc::clone(&ran));
    let tester = thread::spawn(move || {
        begun.recv().unwrap();
        let keep_alive = poster.keep_alive().unwrap();
        thread::scope(|scope| {
            let threads: Vec<_> = payloads
                .into_iter()
                .map(|payload| {
                    let (its, poster) = (&its, &poster);
                    scope.spawn(move || its.post_wait(poster, LONG, move |_, _| drop(payload)))
                })
                .collect();
            let (its, keep_alive) = (&its, &keep_alive);
            let kept = scope.spawn(move || {
                let add = move |n: &mut u64, _cx: &mut Cx| {
                    *n += 10;
                    counted.store(*n, Ordering::Relaxed);
                };
                its.post_wait(keep_alive, LONG, add)
            });
            eventually("all wait", || its.in_line() == 4);
            poster.stop();
            for thread in threads {
                let refused = thread.join().unwrap();
                assert!(
                    matches!(refused, Err(BoundedError::Ended(_))),
                    "{refused:?}"
                );
            }
            // One through a keep-alive is accepted until the end.
            assert_eq!(its.in_line(), 1);
            go.send(()).unwrap();
            kept.join().unwrap().unwrap();
        });
    });
    runtime.run(|_cx| ()).unwrap();
    tester.join().unwrap();
    assert_eq!((ran.load(Ordering::Relaxed), alive.count()), (11, 0));
    assert_eq!(full.waiting(), 0);
}

/// A panic ends the run with events left. Who waits for their room is told, and dropped.
#[test]
fn of_a_run_that_is_cut_short_nobody_waits_on() {
    let _bound = common::Bound::new("cut short");
    let alive = Alive::default();
    let runtime = cores(1).build().unwrap();
    let poster = runtime.poster();
    let full = bounded(&poster, 2, ());
    let (its, payloads) = (full.clone(), [(); 6].map(|()| alive.payload()));
    let (tell, told) = channel();
    let (by, at) = (poster.clone(), full.clone());
    let keep_alive = poster.keep_alive().unwrap();
    let waiting = thread::spawn(move || {
        told.recv().unwrap();
        at.post_wait(&keep_alive, LONG, |_, _| ())
    });
    let outcome = runtime.run(move |cx| {
        let [one, two, three, four, five, six] = payloads;
        its.try_post(cx, move |_, _| drop(one)).unwrap();
        its.try_post(cx, move |_, _| drop(two)).unwrap();
        for payload in [three, four, five] {
            // Each holds a handle of what holds it.
            let handle = its.clone();
            let on_room = move |_: &mut Cx, room: Permit<()>| drop((room, payload, handle));
            its.on_room(cx, Callback::anonymous_value(Color::from(9), on_room));
        }
        let handle = its.clone();
        cx.spawn(Color::from(8), async move {
            let _room = handle.reserve().await;
            drop(six);
        })
        .detach();
        tell.send(()).unwrap();
        eventually("it waits", || its.in_line() == 4);
        panic!("on purpose");
    });
    assert!(
        matches!(outcome, Err(RunError::Panicked { .. })),
        "{outcome:?}"
    );
    let refused = waiting.join().unwrap();
    assert!(
        matches!(refused, Err(BoundedError::Ended(_))),
        "{refused:?}"
    );
    drop(refused);
    assert_eq!(alive.count(), 0, "all was dropped");
    assert_eq!((full.waiting(), full.in_line()), (0, 0));
    let refused = full.try_post(&by, |_, _| ());
    assert!(matches!(refused, Err(BoundedError::Ended(_))));
    assert_eq!(full.waiting(), 0, "refused, it takes no room");
}

/// The same, of a runtime that is dropped before it has run.
#[test]
fn a_runtime_that_never_ran_gives_all_room_back() {
    let runtime = cores(1).build().unwrap();
    let poster = runtime.poster();
    let full = bounded(&poster, 1, ());
    let alive = Alive::default();
    let payload = alive.payload();
    full.try_post(&poster, move |_, _| drop(payload)).unwrap();
    drop(runtime);
    assert_eq!((full.waiting(), alive.count()), (0, 0));
}

#[test]
fn at_the_limit_of_events_the_room_is_given_back_and_on() {
    let _bound = common::Bound::new("limit of events");
    let runtime = cores(1).events_max(1).build().unwrap();
    let poster = runtime.poster();
    let full = bounded(&poster, 1, ());
    while poster.post(Color::from(1), |_cx| ()).is_ok() {}
    let refused = full.try_post(&poster, |_, _| ());
    assert!(matches!(refused, Err(BoundedError::Full(_))), "{refused:?}");
    assert_eq!(full.waiting(), 0);
    let permit = full.try_reserve().unwrap();
    let (tell, told) = channel();
    let on_room = move |_cx: &mut Cx, room: Permit<()>| tell.send(room).unwrap();
    full.on_room(&poster, Callback::anonymous_value(Color::from(9), on_room));
    let refused = permit.post(&poster, |_, _| ());
    assert!(matches!(refused, Err(PostError::Full(_))), "{refused:?}");
    assert_eq!(full.waiting(), 1, "the next one in the line has it");
    runtime.run(|cx| cx.stop()).unwrap();
    drop(told.recv().unwrap());
    assert_eq!(full.waiting(), 0);
}

#[test]
fn room_in_another_runtime_keeps_who_waits_for_it() {
    let _bound = common::Bound::new("another runtime");
    let server = cores(1).build().unwrap();
    let at = server.poster();
    let full = bounded(&at, 1, 0);
    let permit = full.try_reserve().unwrap();
    let serving = thread::spawn(move || server.run(|_cx| ()));
    let (its, of) = (full.clone(), at.clone());
    // It ends by itself, and not before it has had its room.
    let client = cores(1).exit_when_idle(true).build().unwrap();
    client
        .run(move |cx| {
            let post = move |cx: &mut Cx, room: Permit<u64>| {
                room.post(cx, |n, _cx| *n += 1).unwrap();
            };
            its.on_room(cx, Callback::anonymous_value(Color::from(3), post));
            of.post(Color::from(1), move |_cx| drop(permit)).unwrap();
        })
        .unwrap();
    let mut count = full.state().ask(&at, |n, _cx| *n).unwrap();
    assert_eq!(count.recv(), Ok(1));
    at.stop();
    serving.join().unwrap().unwrap();
}

#[test]
fn what_waits_for_a_hold_has_not_begun() {
    let _bound = common::Bound::new("a hold");
    let runtime = cores(1).exit_when_idle(true).build().unwrap();
    let full = bounded(&runtime.poster(), 2, 0);
    let its = full.clone();
    runtime
        .run(move |cx| {
            let first = its.clone();
            let holds = move |_: &mut u64, cx: &mut Cx| {
                let hold = cx.hold();
                for _ in 0..2 {
                    first.try_post(cx, |n, _cx| *n += 1).unwrap();
                }
                cx.post(Color::from(9), move |cx| {
                    // Taken to be run and put aside, and counted as before.
                    assert_eq!(first.waiting(), 2);
                    assert!(first.try_post(cx, |_, _| ()).is_err());
                    drop(hold);
                });
            };
            its.try_post(cx, holds).unwrap();
        })
        .unwrap();
    assert_eq!(full.waiting(), 0);
}

#[test]
#[should_panic(expected = "a backlog of 0 events")]
fn a_bound_of_nothing_is_refused() {
    let _ = Backlog::events(0);
}

/// In virtual time: whatever has waited for longer is shed, and nothing else.
#[test]
fn what_is_too_old_is_shed() {
    const AGE: Duration = Duration::from_millis(10);
    for seed in 0..20 {
        let log = Arc::new(Mutex::new(Vec::new()));
        let builder = Runtime::builder()
            .cores(Cores::Count(2))
            .exit_when_idle(true);
        let mut simulation = builder.simulate(seed).unwrap();
        let poster = simulation.poster();
        let state = Colored::new(&poster, COLOR, Arc::clone(&log));
        let backlog = Backlog::events(100).shed_older_than(AGE);
        let full = Bounded::new(state, backlog);
        let its = full.clone();
        simulation
            .run(move |cx| {
                type Log = Arc<Mutex<Vec<(u32, Option<Duration>)>>>;
                // Every 4 ms an event that takes 7 ms: the fifth or so waits for too long.
                cx.spawn(Color::from(8), async move {
                    for i in 0..20 {
                        sleep(Duration::from_millis(4)).await;
                        let run = move |log: &mut Log, cx: &mut Cx| {
                            log.lock().unwrap().push((i, None));
                            mely::sim::work(cx, Duration::from_millis(7));
                        };
                        let shed = move |log: &mut Log, cx: &mut Cx, shed: Shed| {
                            assert_eq!((cx.color(), cx.handler()), (COLOR, "work"));
                            log.lock().unwrap().push((i, Some(shed.waited)));
                        };
                        with_cx(|cx| full.try_post_or(cx, &WORK, run, shed)).unwrap();
                    }
                })
                .detach();
            })
            .unwrap();
        let log = log.lock().unwrap();
        assert!(
            log.iter().map(|event| event.0).eq(0..20),
            "in order: {log:?}"
        );
        let shed: Vec<_> = log.iter().filter_map(|event| event.1).collect();
        assert!(shed.iter().all(|waited| *waited > AGE), "{shed:?}");
        assert_eq!(its.shed(), shed.len() as u64);
        // 7 ms of work in 4 ms: some three of seven cannot be done.
        assert!((4..16).contains(&shed.len()), "{log:?}");
        assert_eq!(its.waiting(), 0);
    }
}

/// A post from outside of a simulation is as old as its virtual time says.
#[test]
fn what_comes_from_outside_is_shed_by_the_same_clock() {
    let builder = Runtime::builder()
        .cores(Cores::Count(1))
        .exit_when_idle(true);
    let mut simulation = builder.simulate(1).unwrap();
    let poster = simulation.poster();
    let state = Colored::new(&poster, COLOR, ());
    let hour = Duration::from_secs(3_600);
    let full = Bounded::new(state, Backlog::events(9).shed_older_than(hour));
    let alive = Alive::default();
    let (one, two) = (alive.payload(), alive.payload());
    let works = move |_: &mut (), cx: &mut Cx| mely::sim::work(cx, hour);
    full.state().post(&poster, works).unwrap();
    let (its, ran) = (full.clone(), Arc::new(AtomicBool::new(false)));
    let runs = Arc::clone(&ran);
    let works_on = move |_: &mut (), cx: &mut Cx| {
        mely::sim::work(cx, Duration::from_secs(1));
        let young = move |_: &mut (), _: &mut Cx| {
            runs.store(true, Ordering::Relaxed);
            drop(two);
        };
        its.try_post(cx, young).unwrap();
    };
    full.state().post(&poster, works_on).unwrap();
    let old = move |_: &mut (), _: &mut Cx| drop(one);
    full.try_post(&poster, old).unwrap();
    simulation.run(|_cx| ()).unwrap();
    assert_eq!((full.shed(), full.waiting(), alive.count()), (1, 0, 0));
    assert!(ran.load(Ordering::Relaxed));
}

#[test]
fn of_too_many_the_oldest_are_shed() {
    let builder = Runtime::builder()
        .cores(Cores::Count(1))
        .exit_when_idle(true);
    let mut simulation = builder.simulate(3).unwrap();
    let poster = simulation.poster();
    let state = Colored::new(&poster, COLOR, ());
    let full = Bounded::new(state, Backlog::events(10).shed_deeper_than(3));
    let log = Arc::new(Mutex::new(Vec::new()));
    for i in 0..10 {
        let (run, shed) = (Arc::clone(&log), Arc::clone(&log));
        let run = move |_: &mut (), _: &mut Cx| run.lock().unwrap().push((i, None));
        let shed = move |_: &mut (), _: &mut Cx, its: Shed| {
            shed.lock().unwrap().push((i, Some(its.behind)));
        };
        full.try_post_or(&poster, &WORK, run, shed).unwrap();
    }
    simulation.run(|_cx| ()).unwrap();
    let expected = (0..10).map(|i| (i, (i < 6).then_some(9 - i)));
    assert!(log.lock().unwrap().iter().copied().eq(expected), "{log:?}");
    assert_eq!(full.shed(), 6);
}

/// Two sources of one color, with a bound each. One of them posts as much as it can; an event of
/// the other waits for no more handlers than the flood's share, whatever the flood does.
#[test]
fn a_flood_costs_the_others_its_share() {
    const SHARE: usize = 4;
    const OTHERS: u64 = 50;
    let mut longest = 0;
    for seed in 0..10 {
        let builder = Runtime::builder().cores(Cores::Count(3));
        let mut simulation = builder.simulate(seed).unwrap();
        let poster = simulation.poster();
        // The number of handlers that the color has run.
        let ran = Arc::new(AtomicU64::new(0));
        let state = Colored::new(&poster, COLOR, Arc::clone(&ran));
        let flood = Bounded::new(state.clone(), Backlog::events(SHARE));
        let other = Bounded::new(state, Backlog::events(1));
        // As many tasks as could, each of which posts for ever.
        for task in 0..8 {
            let flood = flood.clone();
            let floods = move |cx: &mut Cx| {
                let post_on = async move {
                    while !with_cx(|cx| cx.stopping()) {
                        let room = flood.reserve().await;
                        let event = |ran: &mut Arc<AtomicU64>, cx: &mut Cx| {
                            ran.fetch_add(1, Ordering::Relaxed);
                            mely::sim::work(cx, Duration::from_micros(50));
                        };
                        with_cx(|cx| room.post(cx, event)).unwrap();
                    }
                };
                cx.spawn(Color::from(20 + task), post_on).detach();
            };
            poster.post(Color::from(20 + task), floods).unwrap();
        }
        let mut others = 0;
        let waits = Arc::new(Mutex::new(Vec::new()));
        simulation.start(|_cx| ()).unwrap();
        while others < OTHERS {
            simulation.step();
            if flood.waiting() < SHARE || other.waiting() > 0 {
                continue;
            }
            // Posted between two steps, it is in the color's mailbox at once.
            let (before, waits) = (ran.load(Ordering::Relaxed), Arc::clone(&waits));
            let event = move |ran: &mut Arc<AtomicU64>, _cx: &mut Cx| {
                waits
                    .lock()
                    .unwrap()
                    .push(ran.load(Ordering::Relaxed) - before);
            };
            other.try_post(&poster, event).unwrap();
            others += 1;
        }
        poster.stop();
        while simulation.step() != mely::sim::Step::Ended {}
        simulation.end().unwrap();
        let waits = waits.lock().unwrap();
        assert_eq!(waits.len() as u64, OTHERS);
        // One may have begun, and has given its permit back.
        let most = *waits.iter().max().unwrap();
        assert!(most <= SHARE as u64 + 1, "seed {seed}: {most}");
        longest = longest.max(most);
    }
    assert!(longest >= SHARE as u64, "there was no flood: {longest}");
}
