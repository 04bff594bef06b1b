//! Bounded colors: how much waits, who gets room and in which order, what is shed.

use crate::common::{Alive, LONG, cores, eventually};
use mely::Post;
use mely::Reason;
use mely::state::{Bounded, Permit};
use mely::task::{sleep, with_cx};
use mely::{Callback, Color, Colored, Cx, Handler, Poster, Rejected, RunError, Runtime};
use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake, Waker};
use std::thread;
use std::time::Duration;

static WORK: Handler = Handler::new("work");
/// So that what it posts is not published at once.
static SHORT: Handler = Handler::new("short").time(Duration::from_nanos(100));

const COLOR: Color = Color::new(5);

fn bounded<T: Send>(poster: &Poster, events: usize, value: T) -> Bounded<T> {
    Colored::new(poster, COLOR, value).bounded(events)
}

/// An event of the color that is begun, and ends when it is told to. Others wait behind it.
fn blocks(poster: &Poster, state: &Colored<impl Send>) -> (Sender<()>, Receiver<()>) {
    let (go, wait) = channel();
    let (tell, begun) = channel();
    state
        .try_post(poster, move |_, _cx| {
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
    let _bound = crate::common::Bound::new("a full color");
    let run = beside(cores(2).build().unwrap(), |poster| {
        let full = bounded(poster, 2, 0);
        let (go, begun) = blocks(poster, full.state());
        begun.recv().unwrap();
        assert_eq!(full.waiting(), 0);
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
        let Err(
            refused @ Rejected {
                reason: Reason::NoRoom,
                ..
            },
        ) = refused
        else {
            panic!("accepted");
        };
        assert!(
            refused.to_string().contains("Colored::bounded"),
            "{refused}"
        );
        assert_eq!(format!("{refused:?}"), "Rejected(NoRoom)");
        assert_eq!(alive.count(), 1, "the closure came back");
        go.send(()).unwrap();
        eventually("room", || full.waiting() == 0);
        full.try_post(poster, refused.value).unwrap();
        let mut sum = full.state().try_ask(poster, |n, _cx| *n).unwrap();
        assert_eq!(sum.recv(), Ok(12));
    });
    run.unwrap();
}

#[test]
fn no_more_than_the_bound_waits_whoever_posts() {
    let _bound = crate::common::Bound::new("no more than the bound");
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
                            permit.try_post(poster, event).unwrap();
                        }
                    });
                }
            });
            let mut seen = full
                .state()
                .try_ask(poster, |seen, _cx| seen.clone())
                .unwrap();
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
    full.on_room(poster, Callback::anonymous_value(Color::from(77), on_room))
        .unwrap();
    given.recv().unwrap()
}

#[test]
fn a_thread_waits_for_room_and_no_longer_than_it_wants() {
    let _bound = crate::common::Bound::new("a thread waits for room");
    let run = beside(cores(2).build().unwrap(), |poster| {
        let full = bounded(poster, 1, Vec::new());
        let (go, begun) = blocks(poster, full.state());
        begun.recv().unwrap();
        full.try_post(poster, |log, _cx| log.push("first")).unwrap();
        let late = full.post_wait(poster, Duration::from_millis(2), |log: &mut Vec<_>, _cx| {
            log.push("late");
        });
        let Err(Rejected {
            reason: Reason::TimedOut,
            value: late,
        }) = late
        else {
            panic!("{late:?}");
        };
        assert_eq!(full.refused(), 1);
        // Who gave up is not in the line any more.
        let (its, of) = (full.clone(), poster.clone());
        let waiting = thread::spawn(move || {
            its.post_wait(&of, LONG, |log: &mut Vec<_>, _cx| log.push("second"))
        });
        go.send(()).unwrap();
        waiting.join().unwrap().unwrap();
        full.post_wait(poster, LONG, late).unwrap();
        let mut log = full
            .state()
            .try_ask(poster, |log, _cx| log.clone())
            .unwrap();
        assert_eq!(log.recv(), Ok(vec!["first", "second", "late"]));
    });
    run.unwrap();
}

#[test]
fn nothing_waits_inside_a_handler() {
    let _bound = crate::common::Bound::new("nothing waits inside");
    let runtime = cores(1).build().unwrap();
    let full = bounded(&runtime.poster(), 1, ());
    let text = runtime.run_until(move |cx, finish| {
        let poster = cx.poster();
        let by_poster = full.post_wait(&poster, LONG, |_, _| ());
        assert!(matches!(
            by_poster,
            Err(Rejected {
                reason: Reason::InsideHandler,
                ..
            })
        ));
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
    let _bound = crate::common::Bound::new("room in order");
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
                    let post = move |cx: &mut Cx, room: Permit<_>| room.try_post(cx, note).unwrap();
                    full.on_room(
                        poster,
                        Callback::anonymous_value(Color::from(50 + i as u64), post),
                    )
                    .unwrap();
                }
                _ => {
                    let event = move |cx: &mut Cx| {
                        let task = async move {
                            let room = its.reserve().await;
                            with_cx(|cx| room.try_post(cx, note)).unwrap();
                        };
                        cx.spawn(Color::from(50 + i as u64), task);
                    };
                    poster.try_post(Color::from(1), event).unwrap();
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
        let mut log = full
            .state()
            .try_ask(poster, |log, _cx| log.clone())
            .unwrap();
        assert_eq!(log.recv(), Ok(Vec::from_iter(0..=30)));
    });
    run.unwrap();
}

#[test]
fn who_asks_for_room_that_is_there_is_called_at_once() {
    let _bound = crate::common::Bound::new("room at once");
    let runtime = cores(1).exit_when_idle(true).build().unwrap();
    let full = bounded(&runtime.poster(), 2, 0);
    let its = full.clone();
    let called = Arc::new(AtomicBool::new(false));
    let calls = Arc::clone(&called);
    runtime
        .run(move |cx| {
            let permit = its.try_reserve().unwrap();
            let bound = its.clone();
            let on_room = move |cx: &mut Cx, _room: Permit<_>| {
                assert_eq!(cx.color(), Color::from(9));
                assert_eq!(bound.waiting(), 1, "its own");
                calls.store(true, Ordering::Relaxed);
            };
            its.on_room(cx, Callback::anonymous_value(Color::from(9), on_room))
                .unwrap();
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
    let _bound = crate::common::Bound::new("who is given room");
    const THERE: Color = Color::new(6);
    let runtime = cores(1).build().unwrap();
    let poster = runtime.poster();
    let log = Colored::new(&poster, THERE, Vec::new());
    let full = bounded(&poster, 1, ());
    let there = log.clone();
    let posts =
        move |_: &mut (), cx: &mut Cx| there.via(&SHORT).post(cx, |log, _cx| log.push("first"));
    full.state().via(&SHORT).try_post(&poster, posts).unwrap();
    let (tell, told) = channel::<()>();
    let waits = move |_: &mut (), _cx: &mut Cx| told.recv().unwrap();
    full.via(&SHORT).try_post(&poster, waits).unwrap();
    let (its, there) = (full.clone(), log.clone());
    let waiting = thread::spawn(move || {
        its.post_wait(&poster, LONG, |_, _cx| ()).unwrap();
        there
            .try_post(&poster, |log, _cx| log.push("second"))
            .unwrap();
        tell.send(()).unwrap();
        let mut log = there.try_ask(&poster, |log, _cx| log.clone()).unwrap();
        let log = log.recv();
        poster.stop();
        log
    });
    eventually("it waits", || full.in_line() == 1);
    runtime.run(|_cx| ()).unwrap();
    assert_eq!(waiting.join().unwrap(), Ok(vec!["first", "second"]));
}

/// Who has room by a try, and not because it was given any, comes after them as well.
#[test]
fn who_takes_room_posts_after_what_the_events_before_have_posted() {
    let _bound = crate::common::Bound::new("who takes room");
    const THERE: Color = Color::new(6);
    let runtime = cores(1).build().unwrap();
    let poster = runtime.poster();
    let log = Colored::new(&poster, THERE, Vec::new());
    let full = bounded(&poster, 1, ());
    let there = log.clone();
    let posts =
        move |_: &mut (), cx: &mut Cx| there.via(&SHORT).post(cx, |log, _cx| log.push("first"));
    full.state().via(&SHORT).try_post(&poster, posts).unwrap();
    let (tell, told) = channel::<()>();
    let waits = move |_: &mut (), _cx: &mut Cx| told.recv().unwrap();
    full.via(&SHORT).try_post(&poster, waits).unwrap();
    let taking = thread::spawn(move || {
        let mut room = None;
        eventually("room", || {
            room = full.try_reserve();
            room.is_some()
        });
        log.try_post(&poster, |log, _cx| log.push("second"))
            .unwrap();
        tell.send(()).unwrap();
        let mut log = log.try_ask(&poster, |log, _cx| log.clone()).unwrap();
        let log = log.recv();
        poster.stop();
        log
    });
    runtime.run(|_cx| ()).unwrap();
    assert_eq!(taking.join().unwrap(), Ok(vec!["first", "second"]));
}

/// A task that waits for room, and is polled for another reason when it has some.
#[test]
fn a_task_that_finds_its_room_posts_after_what_the_events_before_have_posted() {
    let _bound = crate::common::Bound::new("a task that finds its room");
    const THERE: Color = Color::new(6);
    const TASK: Color = Color::new(40);
    let runtime = cores(2).build().unwrap();
    let poster = runtime.poster();
    let log = Colored::new(&poster, THERE, Vec::new());
    let full = bounded(&poster, 1, ());
    let (go, begun) = blocks(&poster, full.state());
    let there = log.clone();
    let posts =
        move |_: &mut (), cx: &mut Cx| there.via(&SHORT).post(cx, |log, _cx| log.push("first"));
    full.state().via(&SHORT).try_post(&poster, posts).unwrap();
    let (tell, told) = channel::<()>();
    let (tell_begun, told_begun) = channel::<()>();
    let waits = move |_: &mut (), _cx: &mut Cx| {
        drop(tell_begun);
        let _dropped = told.recv();
    };
    full.via(&SHORT).try_post(&poster, waits).unwrap();
    let task = async move {
        let mut reserve = pin!(full.reserve());
        let mut go = Some(go);
        let _room = poll_fn(|context| {
            let polled = reserve.as_mut().poll(context);
            // It stands in the line, and is to be polled again before it is given room.
            drop(go.take());
            context.waker().wake_by_ref();
            polled
        })
        .await;
        with_cx(|cx| {
            log.post(cx, |log, _cx| log.push("second"));
            cx.flush();
            drop(tell);
            log.post(cx, |log, cx| {
                assert_eq!(*log, ["first", "second"]);
                cx.stop();
            });
        });
    };
    let spawning = thread::spawn(move || {
        begun.recv().unwrap();
        let spawn = move |cx: &mut Cx| {
            cx.spawn(TASK, task);
            // Between its first poll and the second.
            cx.post(TASK, move |_cx| {
                let _begun = told_begun.recv();
            });
        };
        poster.try_post(TASK, spawn).unwrap();
    });
    runtime.run(|_cx| ()).unwrap();
    spawning.join().unwrap();
}

#[test]
fn a_panic_takes_no_room() {
    let _bound = crate::common::Bound::new("a panic takes no room");
    let builder = cores(2).on_panic(mely::runtime::OnPanic::DropEvent);
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
    let _bound = crate::common::Bound::new("a stop is told");
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
        let keep_alive = poster.strong().unwrap();
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
                    matches!(
                        refused,
                        Err(Rejected {
                            reason: Reason::Ended,
                            ..
                        })
                    ),
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
    let _bound = crate::common::Bound::new("cut short");
    let alive = Alive::default();
    let runtime = cores(1).build().unwrap();
    let poster = runtime.poster();
    let full = bounded(&poster, 2, ());
    let (its, payloads) = (full.clone(), [(); 6].map(|()| alive.payload()));
    let (tell, told) = channel();
    let (by, at) = (poster.clone(), full.clone());
    let keep_alive = poster.strong().unwrap();
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
            its.on_room(cx, Callback::anonymous_value(Color::from(9), on_room))
                .unwrap();
        }
        let handle = its.clone();
        cx.spawn(Color::from(8), async move {
            let _room = handle.reserve().await;
            drop(six);
        });
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
        matches!(
            refused,
            Err(Rejected {
                reason: Reason::Ended,
                ..
            })
        ),
        "{refused:?}"
    );
    drop(refused);
    assert_eq!(alive.count(), 0, "all was dropped");
    assert_eq!((full.waiting(), full.in_line()), (0, 0));
    let refused = full.try_post(&by, |_, _| ());
    assert!(matches!(
        refused,
        Err(Rejected {
            reason: Reason::Ended,
            ..
        })
    ));
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
    let _bound = crate::common::Bound::new("limit of events");
    let runtime = cores(1).events_max(1).build().unwrap();
    let poster = runtime.poster();
    let full = bounded(&poster, 1, ());
    while poster.try_post(Color::from(1), |_cx| ()).is_ok() {}
    let refused = full.try_post(&poster, |_, _| ());
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
    assert_eq!(full.waiting(), 0);
    let permit = full.try_reserve().unwrap();
    let (tell, told) = channel();
    let on_room = move |_cx: &mut Cx, room: Permit<()>| tell.send(room).unwrap();
    full.on_room(&poster, Callback::anonymous_value(Color::from(9), on_room))
        .unwrap();
    let refused = permit.try_post(&poster, |_, _| ());
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
    assert_eq!(full.waiting(), 1, "the next one in the line has it");
    runtime.run(|cx| cx.stop()).unwrap();
    drop(told.recv().unwrap());
    assert_eq!(full.waiting(), 0);
}

#[test]
fn room_in_another_runtime_keeps_who_waits_for_it() {
    let _bound = crate::common::Bound::new("another runtime");
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
                room.try_post(cx, |n, _cx| *n += 1).unwrap();
            };
            its.on_room(cx, Callback::anonymous_value(Color::from(3), post))
                .unwrap();
            of.try_post(Color::from(1), move |_cx| drop(permit))
                .unwrap();
        })
        .unwrap();
    let mut count = full.state().try_ask(&at, |n, _cx| *n).unwrap();
    assert_eq!(count.recv(), Ok(1));
    at.stop();
    serving.join().unwrap().unwrap();
}

#[test]
fn what_waits_for_a_hold_has_not_begun() {
    let _bound = crate::common::Bound::new("a hold");
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
#[should_panic(expected = "a bound of 0 events")]
fn a_bound_of_nothing_is_refused() {
    let runtime = cores(1).build().unwrap();
    let _ = bounded(&runtime.poster(), 0, ());
}

#[test]
#[should_panic(expected = "set before it is cloned")]
fn a_bound_that_is_shared_is_not_set() {
    let runtime = cores(1).build().unwrap();
    let shared = bounded(&runtime.poster(), 1, ());
    let _ = shared.clone().waiters_max(0);
}

/// In virtual time: whatever has waited for longer is shed, and nothing else.
#[test]
fn what_is_too_old_is_shed() {
    const AGE: Duration = Duration::from_millis(10);
    for seed in 0..20 {
        let log = Arc::new(Mutex::new(Vec::new()));
        let builder = Runtime::builder().cores(2).exit_when_idle(true);
        let mut simulation = builder.simulate(seed).unwrap();
        let poster = simulation.poster();
        let state = Colored::new(&poster, COLOR, Arc::clone(&log));
        let full = state.bounded(100).shed_older_than(AGE);
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
                        let posted = with_cx(|cx| cx.now());
                        let shed = move |log: &mut Log, cx: &mut Cx| {
                            assert_eq!((cx.color(), cx.handler()), (COLOR, "work"));
                            log.lock().unwrap().push((i, Some(cx.now() - posted)));
                        };
                        with_cx(|cx| full.via(&WORK).try_post_or(cx, run, shed)).unwrap();
                    }
                });
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
    let builder = Runtime::builder().cores(1).exit_when_idle(true);
    let mut simulation = builder.simulate(1).unwrap();
    let poster = simulation.poster();
    let state = Colored::new(&poster, COLOR, ());
    let hour = Duration::from_secs(3_600);
    let full = state.bounded(9).shed_older_than(hour);
    let alive = Alive::default();
    let (one, two) = (alive.payload(), alive.payload());
    let works = move |_: &mut (), cx: &mut Cx| mely::sim::work(cx, hour);
    full.state().try_post(&poster, works).unwrap();
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
    full.state().try_post(&poster, works_on).unwrap();
    let old = move |_: &mut (), _: &mut Cx| drop(one);
    full.try_post(&poster, old).unwrap();
    simulation.run(|_cx| ()).unwrap();
    assert_eq!((full.shed(), full.waiting(), alive.count()), (1, 0, 0));
    assert!(ran.load(Ordering::Relaxed));
}

#[test]
fn of_too_many_the_oldest_are_shed() {
    let builder = Runtime::builder().cores(1).exit_when_idle(true);
    let mut simulation = builder.simulate(3).unwrap();
    let poster = simulation.poster();
    let state = Colored::new(&poster, COLOR, ());
    let full = state.bounded(10).shed_deeper_than(3);
    let log = Arc::new(Mutex::new(Vec::new()));
    for i in 0..10 {
        let (run, shed) = (Arc::clone(&log), Arc::clone(&log));
        let run = move |_: &mut (), _: &mut Cx| run.lock().unwrap().push((i, "run"));
        let shed = move |_: &mut (), _: &mut Cx| shed.lock().unwrap().push((i, "shed"));
        full.via(&WORK).try_post_or(&poster, run, shed).unwrap();
    }
    simulation.run(|_cx| ()).unwrap();
    let expected = (0..10).map(|i| (i, if i < 6 { "shed" } else { "run" }));
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
        let builder = Runtime::builder().cores(3);
        let mut simulation = builder.simulate(seed).unwrap();
        let poster = simulation.poster();
        // The number of handlers that the color has run.
        let ran = Arc::new(AtomicU64::new(0));
        let state = Colored::new(&poster, COLOR, Arc::clone(&ran));
        let flood = state.bounded(SHARE);
        let other = state.bounded(1);
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
                        with_cx(|cx| room.try_post(cx, event)).unwrap();
                    }
                };
                cx.spawn(Color::from(20 + task), post_on);
            };
            poster.try_post(Color::from(20 + task), floods).unwrap();
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

/// Whatever others have, and whoever waits for room: only what waits behind an event is too much.
#[test]
fn room_that_is_promised_sheds_nothing() {
    let builder = Runtime::builder().cores(1).exit_when_idle(true);
    let mut simulation = builder.simulate(5).unwrap();
    let poster = simulation.poster();
    let state = Colored::new(&poster, COLOR, 0);
    let full = state.bounded(4).shed_deeper_than(1);
    let permits = [(); 2].map(|()| full.try_reserve().unwrap());
    for _ in 0..2 {
        full.try_post(&poster, |n, _cx| *n += 1).unwrap();
    }
    let its = full.clone();
    simulation
        .run(move |cx| {
            for i in 0..8 {
                let bounded = its.clone();
                let task = async move {
                    let room = bounded.reserve().await;
                    with_cx(|cx| room.try_post(cx, |n, _cx| *n += 1)).unwrap();
                };
                cx.spawn(Color::from(40 + i), task);
            }
        })
        .unwrap();
    assert_eq!((full.shed(), full.waiting(), full.in_line()), (0, 2, 0));
    drop(permits);
    assert_eq!(full.waiting(), 0);
}

/// A thread waits for room that somebody keeps, and the run ends by itself.
#[test]
fn the_end_is_told_to_who_waits_for_room_that_is_kept() {
    let _bound = crate::common::Bound::new("the end is told");
    let runtime = cores(2).exit_when_idle(true).build().unwrap();
    let poster = runtime.poster();
    let full = bounded(&poster, 1, ());
    let permit = full.try_reserve().unwrap();
    let its = full.clone();
    let waiting = thread::spawn(move || its.post_wait(&poster, Duration::MAX, |_, _| ()));
    eventually("it waits", || full.in_line() == 1);
    runtime.run(|_cx| ()).unwrap();
    let refused = waiting.join().unwrap();
    assert!(
        matches!(
            refused,
            Err(Rejected {
                reason: Reason::Ended,
                ..
            })
        ),
        "{refused:?}"
    );
    drop(permit);
    assert_eq!((full.waiting(), full.in_line()), (0, 0));
}

/// The same of a run that a panic cuts short: also through a keep-alive.
#[test]
fn an_end_by_force_is_told_to_who_waits_for_room_that_is_kept() {
    let _bound = crate::common::Bound::new("an end by force is told");
    let runtime = cores(2).build().unwrap();
    let poster = runtime.poster();
    let full = bounded(&poster, 1, ());
    let permit = full.try_reserve().unwrap();
    let keep_alive = poster.strong().unwrap();
    let (its, other) = (full.clone(), full.clone());
    let waits = move || its.post_wait(&poster, Duration::MAX, |_, _| ());
    let waiting = thread::spawn(move || waits().unwrap_err());
    let waits = move || other.post_wait(&keep_alive, Duration::MAX, |_, _| ());
    let kept = thread::spawn(move || waits().unwrap_err());
    eventually("both wait", || full.in_line() == 2);
    let outcome = runtime.run(|_cx| panic!("on purpose"));
    assert!(matches!(outcome, Err(RunError::Panicked { .. })));
    let refused = (waiting.join().unwrap(), kept.join().unwrap());
    assert!(
        matches!(
            refused,
            (
                Rejected {
                    reason: Reason::Ended,
                    ..
                },
                Rejected {
                    reason: Reason::Ended,
                    ..
                }
            )
        ),
        "{refused:?}"
    );
    drop(permit);
    assert_eq!((full.waiting(), full.in_line()), (0, 0));
}

/// Whoever tries again and again learns that it is in vain, also where there is no room.
#[test]
fn a_full_color_of_a_runtime_that_ends_says_so() {
    let runtime = cores(1).build().unwrap();
    let poster = runtime.poster();
    let full = bounded(&poster, 1, ());
    let permit = full.try_reserve().unwrap();
    let keep_alive = poster.strong().unwrap();
    type Nothing = fn(&mut (), &mut Cx);
    type Posted = Result<(), Rejected<Nothing>>;
    let posts = |by: &dyn Fn() -> Posted| by().map_err(|error| format!("{error:?}"));
    let nothing: Nothing = |_, _| ();
    let by_poster = || full.try_post(&poster, nothing);
    let as_work = || full.via(&WORK).try_post(&poster, nothing);
    let by_keep_alive = || full.try_post(&keep_alive, nothing);
    let (no_room, ended) = (
        Err("Rejected(NoRoom)".to_owned()),
        Err("Rejected(Ended)".to_owned()),
    );
    assert_eq!(posts(&by_poster), no_room);
    poster.stop();
    assert_eq!(posts(&by_poster), ended);
    assert_eq!(posts(&as_work), ended);
    assert_eq!(posts(&by_keep_alive), no_room);
    let shed = |_: &mut (), _: &mut Cx| ();
    let refused = full.via(&WORK).try_post_or(&poster, nothing, shed);
    assert!(
        matches!(
            refused,
            Err(Rejected {
                reason: Reason::Ended,
                ..
            })
        ),
        "{refused:?}"
    );
    drop(runtime);
    assert_eq!(posts(&by_keep_alive), ended);
    drop(permit);
}

/// A waker of the user's, woken by an event that has nothing to do with it.
#[test]
fn a_waker_that_panics_hits_no_other_event() {
    struct Panics;
    impl Wake for Panics {
        fn wake(self: Arc<Self>) {
            panic!("in a waker");
        }
    }
    let _bound = crate::common::Bound::new("a waker that panics");
    let (tell, told) = channel();
    let builder = cores(1).on_panic(mely::runtime::OnPanic::DropEvent);
    let builder = builder.panic_hook(move |report| tell.send(report.clone()).unwrap());
    let run = beside(builder.build().unwrap(), move |poster| {
        let full = bounded(poster, 1, 0);
        let (go, begun) = blocks(poster, full.state());
        begun.recv().unwrap();
        full.via(&WORK).try_post(poster, |n, _cx| *n += 1).unwrap();
        let waker = Waker::from(Arc::new(Panics));
        let mut room = pin!(full.reserve());
        let mut context = Context::from_waker(&waker);
        assert!(room.as_mut().poll(&mut context).is_pending());
        go.send(()).unwrap();
        let report = told.recv().unwrap();
        assert_eq!((report.color, &*report.message), (COLOR, "in a waker"));
        assert_ne!(report.handler, "work");
        // The event has run, the state is not poisoned, and the room is given.
        let mut count = full.state().try_ask(poster, |n, _cx| *n).unwrap();
        assert_eq!(count.recv(), Ok(1));
        assert!(room.as_mut().poll(&mut context).is_ready());
        assert!(told.try_recv().is_err(), "one panic");
    });
    run.unwrap();
}

/// The callback of a runtime that has ended meanwhile is dropped by whoever gives room.
#[test]
fn a_callback_that_panics_when_dropped_hits_no_other_event() {
    struct Panics;
    impl Drop for Panics {
        fn drop(&mut self) {
            panic!("in a drop");
        }
    }
    let _bound = crate::common::Bound::new("a callback that panics when dropped");
    let (tell, told) = channel();
    let builder = cores(1).on_panic(mely::runtime::OnPanic::DropEvent);
    let builder = builder.panic_hook(move |report| tell.send(report.clone()).unwrap());
    let run = beside(builder.build().unwrap(), move |poster| {
        let full = bounded(poster, 1, 0);
        let (go, begun) = blocks(poster, full.state());
        begun.recv().unwrap();
        full.via(&WORK).try_post(poster, |n, _cx| *n += 1).unwrap();
        let other = cores(1).build().unwrap();
        for _ in 0..2 {
            let panics = Panics;
            let on_room = move |_: &mut Cx, room: Permit<i32>| drop((room, panics));
            full.on_room(
                &other.poster(),
                Callback::anonymous_value(Color::from(9), on_room),
            )
            .unwrap();
        }
        drop(other);
        go.send(()).unwrap();
        let report = told.recv().unwrap();
        assert_eq!((report.color, &*report.message), (COLOR, "in a drop"));
        assert_ne!(report.handler, "work");
        let mut count = full.state().try_ask(poster, |n, _cx| *n).unwrap();
        assert_eq!(count.recv(), Ok(1));
        assert_eq!((full.waiting(), full.in_line()), (0, 0));
    });
    run.unwrap();
}

/// A callback of the color that is held, by the hold: else each would wait for the other.
#[test]
fn a_room_callback_goes_through_its_hold() {
    let _bound = crate::common::Bound::new("a room callback through a hold");
    const HELD: Color = Color::new(8);
    let runtime = cores(1).exit_when_idle(true).build().unwrap();
    let full = bounded(&runtime.poster(), 1, ());
    let log = Arc::new(Mutex::new(Vec::new()));
    let (its, notes) = (full.clone(), Arc::clone(&log));
    runtime
        .run(move |cx| {
            let permit = its.try_reserve().unwrap();
            cx.post(HELD, move |cx| {
                let hold = cx.hold();
                let behind = Arc::clone(&notes);
                cx.post(HELD, move |_cx| behind.lock().unwrap().push("behind"));
                let hold = Arc::new(Mutex::new(Some(hold)));
                let resumes = Arc::clone(&hold);
                let on_room = move |cx: &mut Cx, _room: Permit<()>| {
                    assert_eq!((cx.color(), cx.handler()), (HELD, "work"));
                    notes.lock().unwrap().push("room");
                    let hold = resumes.lock().unwrap().take().unwrap();
                    hold.resume(|_cx| ());
                };
                let hold = hold.lock().unwrap();
                let by = hold.as_ref().unwrap();
                its.on_room(by, WORK.on_value(HELD, on_room)).unwrap();
                cx.post(Color::from(9), move |_cx| drop(permit));
            });
        })
        .unwrap();
    assert_eq!(*log.lock().unwrap(), ["room", "behind"]);
}

#[test]
fn a_callback_that_finds_the_line_full_comes_back() {
    let _bound = crate::common::Bound::new("a line that is full");
    let runtime = cores(1).build().unwrap();
    let poster = runtime.poster();
    let full = bounded(&poster, 1, ()).waiters_max(2);
    let permit = full.try_reserve().unwrap();
    let alive = Alive::default();
    let on_room = || {
        let payload = alive.payload();
        let on_room = move |_: &mut Cx, room: Permit<()>| drop((room, payload));
        full.on_room(&poster, Callback::anonymous_value(Color::from(9), on_room))
    };
    on_room().unwrap();
    on_room().unwrap();
    let refused = on_room().unwrap_err();
    assert!(
        matches!(
            refused,
            Rejected {
                reason: Reason::NoRoom,
                ..
            }
        ),
        "{refused:?}"
    );
    assert!(
        refused.to_string().contains("Bounded::waiters_max"),
        "{refused}"
    );
    assert_eq!(refused.value.color(), Color::from(9));
    drop(refused);
    assert_eq!((full.in_line(), alive.count(), full.refused()), (2, 2, 1));
    // A future joins the line all the same: its memory is its own.
    let mut reserve = pin!(full.reserve());
    let mut context = Context::from_waker(Waker::noop());
    assert!(reserve.as_mut().poll(&mut context).is_pending());
    assert_eq!(full.in_line(), 3);
    drop(runtime);
    assert!(matches!(
        on_room(),
        Err(Rejected {
            reason: Reason::Ended,
            ..
        })
    ));
    drop(permit);
    assert!(reserve.as_mut().poll(&mut context).is_ready());
    assert_eq!((alive.count(), full.in_line(), full.refused()), (0, 0, 1));
}

#[test]
fn a_line_for_nobody_refuses_only_where_there_is_no_room() {
    let runtime = cores(1).build().unwrap();
    let poster = runtime.poster();
    let full = bounded(&poster, 1, ()).waiters_max(0);
    let on_room = || {
        let on_room = |_: &mut Cx, room: Permit<()>| drop(room);
        full.on_room(&poster, Callback::anonymous_value(Color::from(9), on_room))
    };
    on_room().unwrap();
    assert_eq!(full.waiting(), 1, "posted, with its permit");
    assert!(matches!(
        on_room(),
        Err(Rejected {
            reason: Reason::NoRoom,
            ..
        })
    ));
    assert_eq!(full.in_line(), 0);
    drop(runtime);
    assert_eq!(full.waiting(), 0);
    assert!(full.try_reserve().is_some(), "nobody waits");
}

/// The callback of another runtime that has ended, when there is room and when there is none.
#[test]
fn a_callback_of_a_runtime_that_has_ended_comes_back() {
    let runtime = cores(1).build().unwrap();
    let full = bounded(&runtime.poster(), 1, ());
    let other = cores(1).build().unwrap();
    let by = other.poster();
    drop(other);
    let on_room = || {
        let on_room = |_: &mut Cx, room: Permit<()>| drop(room);
        full.on_room(&by, Callback::anonymous_value(Color::from(9), on_room))
    };
    assert!(matches!(
        on_room(),
        Err(Rejected {
            reason: Reason::Ended,
            ..
        })
    ));
    let permit = full.try_reserve().unwrap();
    assert!(matches!(
        on_room(),
        Err(Rejected {
            reason: Reason::Ended,
            ..
        })
    ));
    assert_eq!((full.in_line(), full.refused()), (0, 0));
    drop(permit);
}

/// By one bound, and by all of a runtime: inside of it and outside.
#[test]
fn what_is_shed_and_refused_is_counted() {
    let builder = Runtime::builder().cores(2).exit_when_idle(true);
    let mut simulation = builder.simulate(7).unwrap();
    let poster = simulation.poster();
    let counts = |stats: mely::metrics::Stats| (stats.events_shed, stats.events_refused);
    assert_eq!(counts(simulation.stats()), (0, 0));
    let state = Colored::new(&poster, COLOR, ());
    let one = state.bounded(4).shed_deeper_than(0);
    let other = state.bounded(1);
    for _ in 0..4 {
        one.try_post(&poster, |_, _cx| ()).unwrap();
    }
    other.try_post(&poster, |_, _cx| ()).unwrap();
    assert!(one.try_post(&poster, |_, _cx| ()).is_err());
    assert!(one.try_reserve().is_none());
    let (its, others) = (one.clone(), other.clone());
    simulation
        .run(move |cx| {
            // A task of the same runtime waits for room, and is not refused.
            let waits = others.clone();
            cx.post(COLOR, move |cx| {
                others.try_post(cx, |_, _cx| ()).unwrap();
                let refused = others.via(&WORK).try_post(cx, |_, _cx| ());
                assert!(refused.is_err());
                cx.spawn(Color::from(9), async move { drop(waits.reserve().await) });
            });
        })
        .unwrap();
    assert_eq!((its.shed(), its.refused()), (3, 2));
    assert_eq!((other.shed(), other.refused()), (0, 1));
    assert_eq!(counts(simulation.stats()), (3, 3));
}
