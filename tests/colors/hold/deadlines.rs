//! Holds that end by a deadline.

use super::{HELD, Log, OTHER, simulate};
use crate::common::{Alive, Bound, cores, eventually};
use mely::Post;
use mely::runtime::Stealing;
use mely::sim::{self};
use mely::{Callback, Color, Cx, Hold, RunError, Runtime};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

/// A hold that is dropped, or whose deadline passes, before its turn ends in its turn.
#[test]
fn a_drop_and_a_deadline_wait_for_the_holds_before() {
    for seed in 0..30 {
        let log = Log::default();
        let all = log.clone();
        let stats = simulate(seed, 2, move |cx| {
            let [first, second, mut third] = [(); 3].map(|()| cx.hold());
            cx.post(HELD, all.event("ordinary"));
            second
                .try_post(second.color(), all.event("through the second"))
                .unwrap();
            drop(second);
            third
                .try_post(third.color(), all.event("through the third"))
                .unwrap();
            third.resume_after(cx, Duration::from_micros(10), all.event("deadline"));
            let later = move |cx: &mut Cx| {
                first.resume(all.event("first"));
                let late = move |_cx: &mut Cx| third.resume(all.event("never"));
                cx.timer(Duration::from_millis(1), Callback::anonymous(OTHER, late));
            };
            cx.timer(Duration::from_millis(1), Callback::anonymous(OTHER, later));
        });
        log.assert(&[
            "first",
            "through the second",
            "through the third",
            "deadline",
            "ordinary",
        ]);
        let sum =
            |of: fn(&mely::metrics::CoreStats) -> u64| stats.cores.iter().map(of).sum::<u64>();
        assert_eq!(
            (sum(|core| core.holds), sum(|core| core.holds_dropped)),
            (3, 1)
        );
        assert_eq!(stats.events_waiting, 0);
    }
}

#[test]
fn a_deadline_ends_it_and_what_comes_later_is_dropped_in_the_color() {
    for seed in 0..30 {
        let log = Log::default();
        let all = log.clone();
        let alive = Alive::default();
        let token = alive.payload();
        simulate(seed, 2, move |cx| {
            let mut hold = cx.hold();
            hold.resume_after(cx, Duration::from_micros(50), all.event("too late"));
            cx.post(HELD, all.event("waited"));
            let its = all.clone();
            let answer = move |_cx: &mut Cx| {
                its.add("answer");
                hold.try_post(hold.color(), its.event("an event like any other"))
                    .unwrap();
                hold.resume(move |_cx| drop(token));
            };
            cx.timer(
                Duration::from_micros(500),
                Callback::anonymous(OTHER, answer),
            );
        });
        log.assert(&["too late", "waited", "answer", "an event like any other"]);
        assert_eq!(alive.count(), 0);
    }
}

/// Nor does a stop wait for the time that was left.
#[test]
fn an_answer_in_time_cancels_the_deadline() {
    for seed in 0..30 {
        let log = Log::default();
        let all = log.clone();
        let builder = Runtime::builder().cores(2);
        let mut simulation = builder.simulate(seed).unwrap();
        let first = move |cx: &mut Cx| {
            let mut hold = cx.hold();
            hold.resume_after(cx, Duration::from_micros(50), all.event("never"));
            hold.resume_after(cx, Duration::from_secs(500), all.event("never"));
            cx.post(OTHER, move |_cx| {
                hold.resume(move |cx| {
                    all.add("answer");
                    cx.stop();
                });
            });
        };
        simulation.run(move |cx| cx.post(HELD, first)).unwrap();
        log.assert(&["answer"]);
        assert!(simulation.now() < Duration::from_secs(1));
    }
}

/// Events through a hold that come behind its deadline's event run before those that wait in the
/// color, in their order; also if the deadline's event holds the color again, and if it posts those
/// that wait.
#[test]
fn what_is_behind_a_deadline_in_its_hold_goes_before_what_waits() {
    let ways = [(false, false), (true, false), (true, true)];
    for (seed, (holds_again, posts)) in (0..60).zip(ways.into_iter().cycle()) {
        let log = Log::default();
        let all = log.clone();
        simulate(seed, 2, move |cx| {
            let first = cx.hold();
            let mut second = cx.hold();
            let its = all.clone();
            let post = move |cx: &Cx| {
                for i in 0..2 {
                    cx.post(HELD, its.event(format!("waits {i}")));
                }
            };
            if !posts {
                post(cx);
            }
            let its = all.clone();
            let deadline = move |cx: &mut Cx| {
                its.add("deadline");
                if posts {
                    post(cx);
                }
                if holds_again {
                    let again = cx.hold();
                    // When the others have come.
                    let resume = move |_cx: &mut Cx| again.resume(its.event("held again"));
                    let later = Callback::anonymous(OTHER, resume);
                    cx.timer(Duration::from_micros(100), later);
                }
            };
            second.resume_after(cx, Duration::from_micros(10), deadline);
            let later = move |cx: &mut Cx| {
                // The deadline's event waits for the first hold.
                for i in 0..2 {
                    second
                        .try_post(second.color(), all.event(format!("through {i}")))
                        .unwrap();
                }
                first.resume(all.event("first"));
                // Kept until it is over.
                let drops = Callback::anonymous(OTHER, move |_cx| drop(second));
                cx.timer(Duration::from_millis(1), drops);
            };
            cx.timer(Duration::from_millis(1), Callback::anonymous(OTHER, later));
        });
        let mut expected = vec!["first", "deadline"];
        expected.extend(holds_again.then_some("held again"));
        expected.extend(["through 0", "through 1", "waits 0", "waits 1"]);
        log.assert(&expected);
    }
}

/// A deadline may pass between the call that resumes its hold and the event that does so. It comes
/// behind that event, and is dropped in the color soon, also while that is held again.
#[test]
fn a_deadline_behind_the_continuation_is_dropped_at_once() {
    for seed in 0..30 {
        let builder = Runtime::builder().cores(2);
        let builder = builder.stealing(Stealing::OFF).exit_when_idle(true);
        let mut simulation = builder.simulate(seed).unwrap();
        let alive = Alive::default();
        let (late, looks) = (alive.payload(), Arc::new(Mutex::new(0)));
        let looked = Arc::clone(&looks);
        let first = move |cx: &mut Cx| {
            let mut hold = cx.hold();
            let resumes = move |cx: &mut Cx| {
                let never = move |_cx: &mut Cx| drop(late);
                hold.resume_after(cx, Duration::from_micros(10), never);
                hold.resume(move |cx| {
                    assert_eq!(alive.count(), 1);
                    let again = cx.hold();
                    let look = move |_cx: &mut Cx| {
                        assert_eq!(alive.count(), 0);
                        *looked.lock().unwrap() += 1;
                        drop(again);
                    };
                    cx.timer(Duration::from_millis(1), Callback::anonymous(OTHER, look));
                });
            };
            cx.post(OTHER, resumes);
            cx.flush();
            // Meanwhile the other core resumes, and the deadline passes there.
            sim::work(cx, Duration::from_millis(1));
        };
        simulation.run(move |cx| cx.post(HELD, first)).unwrap();
        assert_eq!(*looks.lock().unwrap(), 1);
    }
}

/// One of the two ends it, each time: a hold that both ended would count for one event too many.
#[test]
fn a_deadline_and_a_continuation_at_the_same_moment_end_it_once() {
    let _bound = Bound::new("a_deadline_and_a_continuation");
    const ROUNDS: u64 = if cfg!(miri) { 10 } else { 20_000 };
    const OUT: u64 = 1_000;
    let runtime = cores(1).exit_when_idle(true).build().unwrap();
    let poster = runtime.poster();
    runtime
        .run(move |cx| {
            let (give, take) = channel::<Hold>();
            let out: Vec<Hold> = (0..OUT).map(|_| cx.hold()).collect();
            thread::spawn(move || {
                take.iter().for_each(|hold| hold.resume(|_cx| ()));
                eventually("the end of all", || poster.stats().events_waiting <= OUT);
                assert_eq!(poster.stats().events_waiting, OUT);
                drop(out);
            });
            fn again(cx: &mut Cx, give: Sender<Hold>, left: u64) {
                if left == 0 {
                    return;
                }
                let mut hold = cx.hold();
                hold.resume_after(cx, Duration::ZERO, |_cx| ());
                give.send(hold).unwrap();
                cx.post(Color::from(100 + left), move |cx| again(cx, give, left - 1));
            }
            cx.post(HELD, move |cx| again(cx, give, ROUNDS));
        })
        .unwrap();
}

#[test]
fn a_deadline_that_was_replaced_does_not_end_it() {
    for seed in 0..30 {
        let log = Log::default();
        let all = log.clone();
        simulate(seed, 2, move |cx| {
            let first = cx.hold();
            let mut second = cx.hold();
            second.resume_after(cx, Duration::from_micros(10), all.event("replaced"));
            cx.post(HELD, all.event("waited"));
            let later = move |cx: &mut Cx| {
                // The deadline has passed by now, and its event waits for the first hold.
                second.resume_after(cx, Duration::from_secs(1), all.event("deadline"));
                first.resume(all.event("first"));
                let last = move |_cx: &mut Cx| second.resume(all.event("second"));
                cx.timer(Duration::from_micros(100), Callback::anonymous(OTHER, last));
            };
            cx.timer(Duration::from_micros(50), Callback::anonymous(OTHER, later));
        });
        log.assert(&["first", "second", "waited"]);
    }
}

/// Each time the closure of the one before is dropped, in the color, though that is held.
#[test]
fn a_deadline_that_is_put_off_again_and_again_leaves_nothing_behind() {
    simulate(0, 1, move |cx| {
        let alive = Alive::default();
        let mut hold = cx.hold();
        fn again(cx: &mut Cx, mut hold: Hold, alive: Alive, left: u32) {
            // As many are on their way as one turn makes, which is 256 events at most; and the
            // turn's own count as waiting until it is over.
            assert!(alive.count() < 300 && cx.poster().stats().events_waiting < 600);
            if left > 0 {
                let payload = alive.payload();
                hold.resume_after(cx, Duration::from_secs(1), move |_cx| drop(payload));
                cx.post(OTHER, move |cx| again(cx, hold, alive, left - 1));
            }
        }
        hold.resume_after(cx, Duration::from_secs(1), |_cx| ());
        cx.post(OTHER, move |cx| again(cx, hold, alive, 3_000));
    });
}

#[test]
fn a_hold_that_a_deadline_has_ended_keeps_no_run_from_ending() {
    let _bound = Bound::new("a_hold_that_a_deadline");
    let log = Log::default();
    let all = log.clone();
    let (sender, receiver) = std::sync::mpsc::channel();
    let builder = cores(2).drain_deadline(2 * crate::common::LONG);
    let runtime = builder.build().unwrap();
    let poster = runtime.poster();
    runtime
        .run(move |cx| {
            cx.post(HELD, move |cx| {
                let mut hold = cx.hold();
                cx.post(HELD, all.event("waited"));
                let ends = move |cx: &mut Cx| {
                    all.add("deadline");
                    cx.stop();
                };
                hold.resume_after(cx, Duration::from_millis(1), ends);
                sender.send(hold).unwrap();
            });
        })
        .unwrap();
    log.assert(&["deadline", "waited"]);
    assert_eq!(poster.stats().events_waiting, 0);
    let alive = Alive::default();
    let late = alive.payload();
    receiver.recv().unwrap().resume(move |_cx| drop(late));
    assert_eq!(alive.count(), 0);
}

#[test]
fn a_deadline_is_set_by_its_own_runtime() {
    let _bound = Bound::new("a_deadline_is_set");
    let other = cores(1).exit_when_idle(true).build().unwrap();
    let (sender, receiver) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        other.run(move |cx| {
            let mut hold: Hold = receiver.recv().unwrap();
            hold.resume_after(cx, Duration::ZERO, |_cx| ());
        })
    });
    let own = cores(1).exit_when_idle(true).build().unwrap();
    own.run(move |cx| sender.send(cx.hold()).unwrap()).unwrap();
    let Err(RunError::Panicked { panic: report, .. }) = thread.join().unwrap() else {
        panic!("it was set by another");
    };
    assert!(report.message.contains("its own runtime"), "{report}");
}
