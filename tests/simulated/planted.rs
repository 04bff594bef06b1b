//! What programs got wrong that had no hold, no keep-alive and no events of several colors:
//! `sim::check` finds each of these faults, and none in the program as it should be.

use mely::Post;
use mely::sim::{self, Step};
use mely::{Builder, Color, Colored, Cx, Handler, Runtime};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};
use std::time::Duration;

type Log = Arc<Mutex<Vec<u64>>>;

fn cores(count: usize) -> Builder {
    Runtime::builder().cores(count).color_slots(256)
}

/// A number below 8 for each seed and place.
fn draw(seed: u64, place: u64) -> u64 {
    let mixed = (seed + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (mixed >> (8 * place)) % 8
}

/// Some seed must fail with this text; each seed of the program as it should be goes well.
fn found<P>(planted: P, right: P, why: &str, run: impl Fn(u64, &P)) {
    let checked = catch_unwind(AssertUnwindSafe(|| sim::check(|seed| run(seed, &planted))));
    // One seed that was asked for need not be one that fails.
    if std::env::var_os("MELY_SIM_SEED").is_none() {
        let payload = checked.expect_err("the planted fault was not found");
        let told = payload.downcast_ref::<String>().expect("an assertion");
        assert!(told.contains(why), "{told}");
    }
    sim::check(|seed| run(seed, &right));
}

/// Two requests of a connection, each of which needs a child process: the answers must come in the
/// order of the requests.
#[test]
fn answers_in_the_wrong_order() {
    const CONNECTION: Color = Color::new(7);
    static CHILD: Handler = Handler::new("the child has ended");

    type Serve = fn(&mut Cx, u64, Duration, Log);
    let planted: Serve = |cx, request, child, answers| {
        let answer = move |_cx: &mut Cx| answers.lock().unwrap().push(request);
        cx.timer(child, CHILD.on(CONNECTION, answer));
    };
    let right: Serve = |cx, request, child, answers| {
        let hold = cx.hold();
        let ended =
            move |_cx: &mut Cx| hold.resume(move |_cx| answers.lock().unwrap().push(request));
        cx.timer(child, CHILD.on(Color::new(8), ended));
    };
    found(planted, right, "in the wrong order", |seed, serve| {
        let serve = *serve;
        let answers = Log::default();
        let log = Arc::clone(&answers);
        let mut simulation = cores(3).exit_when_idle(true).simulate(seed).unwrap();
        let run = simulation.run(move |cx| {
            for request in 0..3 {
                let log = Arc::clone(&log);
                let child = Duration::from_micros(draw(seed, request));
                cx.post(CONNECTION, move |cx| serve(cx, request, child, log));
            }
        });
        run.unwrap();
        let answers = answers.lock().unwrap();
        assert!(
            *answers == [0, 1, 2],
            "answers in the wrong order: {answers:?}"
        );
    });
}

fn others(cx: &mut Cx, left: u64) {
    sim::work(cx, Duration::from_micros(1));
    if left > 0 {
        cx.post(Color::from(10 + left % 2), move |cx| others(cx, left - 1));
    }
}

/// A request is worked on outside when the program is told to stop: it must be answered.
#[test]
fn an_answer_lost_at_a_stop() {
    const CONNECTION: Color = Color::new(7);

    /// What will post the answer.
    type Work = Box<dyn FnOnce() + Send>;
    type Begin = fn(&mut Cx, Log) -> Work;
    let planted: Begin = |cx, answers| {
        let poster = cx.poster();
        Box::new(move || {
            drop(poster.try_post(CONNECTION, move |_cx| answers.lock().unwrap().push(1)));
        })
    };
    let right: Begin = |cx, answers| {
        let keep_alive = cx.strong_poster();
        Box::new(move || {
            drop(keep_alive.try_post(CONNECTION, move |_cx| answers.lock().unwrap().push(1)));
        })
    };
    found(planted, right, "the answer was lost", |seed, begin| {
        let begin = *begin;
        let answers = Log::default();
        let outside: Arc<Mutex<Option<Work>>> = Arc::default();
        let (log, work) = (Arc::clone(&answers), Arc::clone(&outside));
        let mut simulation = cores(2).simulate(seed).unwrap();
        let started = simulation.start(move |cx| {
            cx.post(CONNECTION, move |cx| {
                *work.lock().unwrap() = Some(begin(cx, log));
            });
            // Meanwhile: or the clock would go on to the end of the drain.
            others(cx, 20);
        });
        started.unwrap();
        let poster = simulation.poster();
        while outside.lock().unwrap().is_none() {
            simulation.step();
        }
        // The steps before which the work is done, and before which a stop is asked for.
        let [done_at, stopped_at] = [0, 1].map(|place| draw(seed, place));
        for step in 0..1_000 {
            if step == stopped_at {
                poster.stop();
            }
            if step == done_at {
                let work = outside.lock().unwrap().take().expect("begun");
                work();
            }
            if simulation.step() == Step::Ended && step > done_at.max(stopped_at) {
                break;
            }
        }
        simulation.end().unwrap();
        assert_eq!(*answers.lock().unwrap(), [1], "the answer was lost");
    });
}

/// Two keys are always set together: a reader of both must see them equal.
#[test]
fn a_torn_read_of_two_keys() {
    type Keys = [Colored<u64>; 2];
    type Program = (fn(&mut Cx, &Keys, u64), fn(&mut Cx, Keys, Log));
    let planted: Program = (
        |cx, keys, value| {
            for key in keys {
                key.post(cx, move |key, _cx| *key = value);
            }
        },
        |cx, [a, b], log| {
            let both = async move {
                let a = a.call(|a, _cx| *a).await.unwrap();
                let b = b.call(|b, _cx| *b).await.unwrap();
                log.lock().unwrap().extend([a, b]);
            };
            cx.spawn(Color::new(9), both);
        },
    );
    let right: Program = (
        |cx, [a, b], value| {
            cx.with_all([a, b], move |[a, b], _cx| {
                *a = value;
                *b = value;
            });
        },
        |cx, [a, b], log| {
            cx.read([&a, &b], move |[a, b], _cx| {
                log.lock().unwrap().extend([*a, *b])
            });
        },
    );
    found(planted, right, "a torn read", |seed, program| {
        let (set, get) = *program;
        let seen = Log::default();
        let log = Arc::clone(&seen);
        let mut simulation = cores(3).exit_when_idle(true).simulate(seed).unwrap();
        let run = simulation.run(move |cx| {
            let keys = [1, 2].map(|color| Colored::new(cx, Color::from(color), 0));
            for value in 1..4 {
                let its = keys.clone();
                cx.post(Color::from(10 + value), move |cx| set(cx, &its, value));
            }
            cx.post(Color::from(20), move |cx| get(cx, keys, log));
        });
        run.unwrap();
        let seen = seen.lock().unwrap();
        let [a, b] = seen[..] else {
            panic!("it was not read once: {seen:?}");
        };
        assert!(a == b, "a torn read: {a} and {b}");
    });
}
