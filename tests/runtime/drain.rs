//! What the end of a run waits for is named: at the deadline, and while it waits.

use crate::common::calls::Calls;
use crate::common::wire::{Client, any_port};
use crate::common::{Bound, LONG, backends, cores};
use mely::net::{Acceptors, Incoming};
use mely::runtime::{Obstacle, Stage, Unfinished};
use mely::sim::SimError;
use mely::task::sleep;
use mely::{Callback, Color, Colored, Cx, Handler, Hold, RunError, Runtime, sim};
use std::future::poll_fn;
use std::io;
use std::pin::Pin;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

static FETCH: Handler = Handler::new("fetch");
static WRITER: Handler = Handler::new("writer");
static LOADED: Handler = Handler::new("loaded");
static READ: Handler = Handler::new("read");
static STUCK: Handler = Handler::new("stuck");
static AUDIT: Handler = Handler::new("audit");

const HELD: Color = Color::new(42);
const HOUR: Duration = Duration::from_secs(3_600);

/// What was left at the deadline, and what is said of it.
fn left(outcome: Result<(), RunError>) -> (Unfinished, String) {
    let error = outcome.expect_err("the deadline passes");
    let text = error.to_string();
    let RunError::Deadline { unfinished, .. } = error else {
        panic!("{text}");
    };
    (*unfinished, text)
}

#[test]
fn at_the_deadline_all_that_is_left_is_named() {
    let _bound = Bound::new("at_the_deadline");
    for backend in backends() {
        let (go, wait) = channel::<()>();
        let kept = Arc::new(Mutex::new(Vec::new()));
        let keeps = Arc::clone(&kept);
        let (tell, addr) = channel();
        let at = backend.clone();
        let client = std::thread::spawn(move || {
            let addr = addr.recv().unwrap();
            (addr, Client::connect(&at, addr))
        });
        let builder = cores(2).backend(backend);
        let builder = builder.drain_deadline(Duration::from_millis(200));
        let builder = builder.stage_limit(Stage::Drain, LONG);
        let outcome = builder.build().unwrap().run(move |cx| {
            let keep: fn(&mut Cx, &Arc<Mutex<Vec<Hold>>>) = |cx, keeps| {
                keeps.lock().unwrap().push(cx.hold());
                cx.post(HELD, |_cx| ());
                cx.post(HELD, |_cx| ());
            };
            FETCH.on(HELD, move |cx| keep(cx, &keeps)).post(cx);
            WRITER.spawn(cx, Color::from(7), sleep(HOUR));
            let loads = move |cx: &mut Cx| drop(cx.try_blocking(move || wait.recv()).unwrap());
            LOADED.on(Color::from(8), loads).post(cx);
            std::mem::forget(cx.strong_poster());
            let accept = |_: &mut Cx, incoming: io::Result<Incoming>| {
                let stream = incoming.unwrap().open(Color::from(9));
                Calls::none().open(stream, &READ, |cx, stream| {
                    stream.set_under_way(cx, true).unwrap();
                    cx.stop();
                });
            };
            let on_accept = Callback::anonymous_each(Color::from(1), accept);
            let listener = cx.listen(any_port(), Acceptors::Single, on_accept).unwrap();
            tell.send(listener.local_addr().ip().unwrap()).unwrap();
        });
        let (addr, client) = client.join().unwrap();
        let (unfinished, text) = left(outcome);
        drop((client, go));
        let counts = (unfinished.events, unfinished.holds, unfinished.tasks);
        assert_eq!(counts, (2, 1, 1), "{text}");
        let counts = (unfinished.blocking, unfinished.strong_posters);
        assert_eq!(counts, (1, 1), "{text}");
        assert_eq!(
            (unfinished.timers, unfinished.connections),
            (1, 1),
            "{text}"
        );
        assert!(!unfinished.at_rest, "{text}");
        for named in [
            "color 42 is held by handler `fetch` for ",
            ", and 2 events wait for it",
            "task `writer` of color 7 waits",
            "blocking work for handler `loaded` runs for ",
            "timer `mely: sleep` of color 7 is due in ",
            " of color 9 waits for its peer to send (handler `read`)",
            "and 2 strong posters",
        ] {
            assert!(text.contains(named), "{named}: {text}");
        }
        let peer = |named: &Obstacle| match named {
            Obstacle::Connection { peer, sends, .. } => Some((peer.clone(), *sends)),
            _ => None,
        };
        let peer = unfinished.named.iter().find_map(peer).unwrap();
        assert!(
            peer.0.as_ref().is_some_and(|peer| *peer != addr) && !peer.1,
            "{peer:?}"
        );
    }
}

/// Nothing else is left of it.
#[test]
fn a_sleep_that_is_kept_is_named() {
    let _bound = Bound::new("a_sleep_that_is_kept");
    let kept = Arc::new(Mutex::new(None));
    let its = Arc::clone(&kept);
    let builder = cores(2).drain_deadline(Duration::from_millis(50));
    let outcome = builder.build().unwrap().run(move |cx| {
        let keeps = async move {
            let mut sleeps = sleep(HOUR);
            poll_fn(|context| {
                assert!(Pin::new(&mut sleeps).poll(context).is_pending());
                Poll::Ready(())
            })
            .await;
            *its.lock().unwrap() = Some(sleeps);
        };
        cx.spawn(Color::from(7), keeps);
        cx.stop();
    });
    let (unfinished, text) = left(outcome);
    assert_eq!((unfinished.events, unfinished.tasks), (0, 0), "{text}");
    assert_eq!(
        (unfinished.strong_posters, unfinished.timers),
        (0, 1),
        "{text}"
    );
    assert!(text.contains("timer `mely: sleep` of color 7"), "{text}");
}

/// A core that does not come to answer holds up no report.
#[test]
fn a_drain_is_reported_while_it_goes_on() {
    let _bound = Bound::new("a_drain_is_reported");
    let (tell, told) = channel();
    let tell = Mutex::new(tell);
    let builder = cores(2).drain_deadline(LONG).on_drain(move |unfinished| {
        let said = (unfinished.clone(), unfinished.to_string());
        // On a busy machine there may be a third report, which is not waited for.
        let _ = tell.lock().unwrap().send(said);
    });
    let reports = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&reports);
    builder
        .build()
        .unwrap()
        .run(move |cx| {
            WRITER.spawn(cx, Color::from(7), async move {
                // The timer is of this core.
                sleep(Duration::from_millis(2_500)).await;
            });
            cx.flush();
            STUCK
                .on(Color::from(8), move |cx| {
                    cx.stop();
                    // Until there are two.
                    let mut reports = reports.lock().unwrap();
                    let next = |told: &Receiver<_>| told.recv_timeout(LONG).unwrap();
                    reports.extend([next(&told), next(&told)]);
                })
                .post(cx);
        })
        .unwrap();
    let seen = seen.lock().unwrap();
    for (report, second) in seen.iter().zip(1..) {
        let (unfinished, text) = report;
        assert!(
            unfinished.stopping_for >= Duration::from_secs(second),
            "{text}"
        );
        assert!(text.contains("is in handler `stuck`"), "{text}");
        assert!(text.contains("task `writer` of color 7 waits"), "{text}");
        assert!(!unfinished.at_rest, "{text}");
    }
    assert_eq!(seen.len(), 2);
}

/// A hook that panics cuts the run short, and its panic comes out of `run`.
#[test]
fn a_hook_that_panics_comes_out_of_run() {
    let _bound = Bound::new("a_hook_that_panics");
    let run = std::panic::AssertUnwindSafe(|| {
        let builder = cores(1).on_drain(|_| panic!("in the hook"));
        builder.build().unwrap().run(|cx| {
            std::mem::forget(cx.strong_poster());
            cx.stop();
        })
    });
    let panic = std::panic::catch_unwind(run).unwrap_err();
    assert_eq!(panic.downcast_ref(), Some(&"in the hook"));
}

/// A simulated run that stops with this, and what it was told: by the hook and at the deadline.
fn simulated(start: fn(&mut Cx)) -> (Vec<Unfinished>, Option<(Unfinished, String)>) {
    let (tell, told) = channel();
    let tell = Mutex::new(tell);
    let builder = Runtime::builder().cores(2);
    let builder = builder.drain_deadline(Duration::from_millis(3_500));
    let builder = builder.on_drain(move |unfinished| {
        tell.lock().unwrap().send(unfinished.clone()).unwrap();
    });
    let mut simulation = builder.simulate(1).unwrap();
    let outcome = simulation.run(move |cx| FETCH.on(HELD, start).post(cx));
    drop(simulation);
    let outcome = match outcome {
        Ok(()) => None,
        Err(SimError::Run(error)) => Some(left(Err(error))),
        Err(error) => panic!("{error}"),
    };
    (told.try_iter().collect(), outcome)
}

#[test]
fn a_color_that_waits_for_itself_is_named() {
    let ways: [fn(&mut Cx); 3] = [
        // By an event of the held color.
        |cx| {
            let hold = cx.hold();
            cx.post(HELD, move |_cx| hold.resume(|_cx| ()));
            cx.stop();
        },
        // By one of a color that waits for the held one.
        |cx| {
            let (hold, other) = (cx.hold(), Color::from(8));
            cx.post(other, move |cx| {
                let its = cx.hold();
                cx.post(HELD, move |_cx| drop(its));
                cx.post(other, move |_cx| drop(hold));
            });
            cx.stop();
        },
        // By a future that asks the held color.
        |cx| {
            let state = Colored::new(cx, HELD, ());
            let asks = async move { state.call(|(), _cx| ()).await };
            cx.hold().until(asks);
            cx.stop();
        },
    ];
    for way in ways {
        let (reports, left) = simulated(way);
        let (last, text) = left.expect("it never ends");
        let seconds = reports.iter().map(|report| report.stopping_for.as_millis());
        assert_eq!(seconds.collect::<Vec<_>>(), [1_000, 2_000, 3_000]);
        for report in reports.iter().chain([&last]) {
            assert!(report.at_rest && report.holds > 0, "{report}");
            let text = report.to_string();
            assert!(
                text.contains("color 42 is held by handler `fetch`"),
                "{text}"
            );
        }
        assert!(text.contains("color 42 waits for itself"), "{text}");
    }
}

/// As long as anything is under way the hold may be ended by that.
#[test]
fn a_color_that_waits_for_something_else_is_not_said_to_wait_for_itself() {
    let ways: [fn(&mut Cx); 3] = [
        |cx| {
            let mut hold = cx.hold();
            hold.resume_after(cx, Duration::from_millis(2_500), |_cx| ());
            std::mem::forget(hold);
            cx.stop();
        },
        |cx| {
            let (hold, keep_alive) = (cx.hold(), cx.strong_poster());
            cx.spawn(Color::from(8), async move {
                sleep(Duration::from_millis(2_500)).await;
                hold.resume(|_cx| drop(keep_alive));
            });
            cx.stop();
        },
        |cx| {
            let hold = cx.hold();
            let busy = move |cx: &mut Cx| {
                sim::work(cx, Duration::from_millis(2_500));
                drop(hold);
            };
            AUDIT.on(Color::from(8), busy).post(cx);
            cx.stop();
        },
    ];
    for way in ways {
        let (reports, left) = simulated(way);
        assert_eq!((reports.len(), left), (2, None));
        for report in reports {
            assert!(!report.at_rest && report.holds == 1, "{report}");
        }
    }
}

/// One color with many holds leaves the names to others.
#[test]
fn a_color_with_many_holds_is_named_once() {
    let (reports, _) = simulated(|cx| {
        let keeps = |count: usize| {
            move |cx: &mut Cx| {
                let holds: Vec<_> = (0..count).map(|_| cx.hold()).collect();
                let frees = Callback::anonymous(Color::from(9), move |_cx| drop(holds));
                cx.spawn(Color::from(8), async move {
                    sleep(Duration::from_millis(1_500)).await;
                    mely::task::with_cx(|cx| frees.post(cx));
                });
                cx.stop();
            }
        };
        FETCH.on(HELD, keeps(40)).post(cx);
        LOADED.on(Color::from(43), keeps(1)).post(cx);
    });
    let held = |named: &Obstacle| match named {
        Obstacle::Hold { color, holds, .. } => Some((color.value(), *holds)),
        _ => None,
    };
    let mut named: Vec<_> = reports[0].named.iter().filter_map(held).collect();
    named.sort_unstable();
    assert_eq!(named, [(42, 40), (43, 1)]);
    let text = reports[0].to_string();
    assert!(text.contains(", the oldest of 40 holds"), "{text}");
}

/// By the time when the event that holds began, read before it.
#[test]
fn how_long_a_color_is_held_is_told() {
    let (reports, _) = simulated(|cx| {
        // From 2 s on.
        let later = |cx: &mut Cx| {
            let hold = cx.hold();
            cx.spawn(Color::from(8), async move {
                sleep(Duration::from_secs(5)).await;
                mely::task::with_cx(|cx| cx.stop());
                sleep(Duration::from_millis(1_500)).await;
                drop(hold);
            });
        };
        let later = FETCH.on(HELD, later);
        cx.timer(Duration::from_secs(2), later);
    });
    let held = |named: &Obstacle| match named {
        Obstacle::Hold { held_for, .. } => Some(*held_for),
        _ => None,
    };
    assert_eq!(reports.len(), 1);
    let held_for = reports[0].named.iter().find_map(held).unwrap();
    // Five seconds until the stop, and one until the report.
    let about = Duration::from_secs(6);
    assert!(
        held_for.abs_diff(about) < Duration::from_millis(10),
        "{held_for:?}"
    );
}

/// Also by the threads of a real run, which sleep then.
#[test]
fn a_run_whose_cores_all_rest_says_so() {
    let _bound = Bound::new("a_run_whose_cores_all_rest");
    let (tell, told) = channel();
    let tell = Mutex::new(tell);
    let builder = cores(2).drain_deadline(Duration::from_millis(1_500));
    let builder = builder.on_drain(move |unfinished| {
        tell.lock().unwrap().send(unfinished.at_rest).unwrap();
    });
    let outcome = builder.build().unwrap().run(|cx| {
        FETCH
            .on(HELD, |cx| {
                let hold = cx.hold();
                cx.post(HELD, move |_cx| hold.resume(|_cx| ()));
                cx.stop();
            })
            .post(cx);
    });
    let (unfinished, text) = left(outcome);
    assert!(unfinished.at_rest, "{text}");
    assert!(text.contains("color 42 waits for itself"), "{text}");
    assert_eq!(told.try_iter().collect::<Vec<_>>(), [true]);
}
