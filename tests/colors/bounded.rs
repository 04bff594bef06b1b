//! Bounded colors: how much waits, who gets room and in which order, what is shed.

mod ends;
mod line;
mod shedding;

use crate::common::{Alive, LONG, cores, eventually};
use mely::Post;
use mely::Reason;
use mely::state::{Bounded, Permit};
use mely::task::with_cx;
use mely::{Callback, Color, Colored, Cx, Handler, Poster, Rejected, RunError, Runtime};
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
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
