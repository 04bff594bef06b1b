//! Bounded colors of runtimes that end.

use super::{WORK, blocks, bounded};
use crate::common::{Alive, LONG, cores, eventually};
use mely::Reason;
use mely::state::Permit;
use mely::{Callback, Color, Cx, Rejected, RunError};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

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
