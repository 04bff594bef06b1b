//! Keep-alives: an end that waits for what is made outside.

use crate::common::wire::any_port;
use crate::common::{Alive, Bound, LONG, cores, eventually};
use mely::Post;
use mely::Reason;
use mely::net::{Acceptors, Incoming, RecvBuf, Session, Stream};
use mely::sim::{SimError, Step};
use mely::state::WeakColored;
use mely::task::JoinError;
use mely::{Callback, Color, Colored, Handler, Poster, Rejected, RunError, Runtime};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

static ANSWER: Handler = Handler::new("answer");

/// The answer that a thread makes is delivered, though the stop came first.
#[test]
fn an_answer_made_outside_is_delivered_after_the_stop() {
    let _bound = Bound::new("an_answer_made_outside");
    for n in [1, 3] {
        let (tell, told) = channel();
        let runtime = cores(n).drain_deadline(LONG).build().unwrap();
        runtime
            .run(move |cx| {
                let keep_alive = cx.strong_poster();
                let poster = cx.poster();
                std::thread::spawn(move || {
                    eventually("the stop", || {
                        matches!(
                            poster.try_post(Color::from(1), |_cx| ()),
                            Err(Rejected {
                                reason: Reason::Ended,
                                ..
                            })
                        )
                    });
                    // Every core sleeps by now, mostly.
                    std::thread::sleep(Duration::from_millis(20));
                    let first = tell.clone();
                    keep_alive
                        .try_post(Color::from(1), move |_cx| first.send(1).unwrap())
                        .unwrap();
                    let answer = ANSWER.on(Color::from(1), move |cx| {
                        assert!(cx.stopping());
                        cx.post(Color::from(2), move |_cx| tell.send(2).unwrap());
                    });
                    answer.try_post(&keep_alive).unwrap();
                });
                cx.stop();
            })
            .unwrap();
        assert_eq!(told.iter().collect::<Vec<_>>(), [1, 2]);
    }
}

#[test]
fn a_run_that_ends_by_itself_waits() {
    let _bound = Bound::new("a_run_that_ends_by_itself_waits");
    let ran = Arc::new(AtomicBool::new(false));
    let runs = Arc::clone(&ran);
    let runtime = cores(2).exit_when_idle(true).build().unwrap();
    // Made before the run.
    let keep_alive = runtime.poster().strong().unwrap();
    let thread = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(30));
        let set = move |_cx: &mut mely::Cx| runs.store(true, Ordering::Relaxed);
        keep_alive.try_post(Color::from(1), set).unwrap();
    });
    runtime.run(|_cx| ()).unwrap();
    assert!(ran.load(Ordering::Relaxed));
    thread.join().unwrap();
}

/// Nothing is posted at all: the drop alone ends the run.
#[test]
fn the_last_drop_ends_the_run() {
    let _bound = Bound::new("the_last_drop_ends_the_run");
    for exits in [false, true] {
        for pause_us in [0, 50, 500, 20_000] {
            let runtime = cores(2)
                .exit_when_idle(exits)
                .drain_deadline(LONG)
                .build()
                .unwrap();
            let keep_alive = runtime.poster().strong().unwrap();
            let another = keep_alive.clone();
            let thread = std::thread::spawn(move || {
                drop(keep_alive);
                std::thread::sleep(Duration::from_micros(pause_us));
                drop(another);
            });
            runtime
                .run(move |cx| {
                    if !exits {
                        cx.stop()
                    }
                })
                .unwrap();
            thread.join().unwrap();
        }
    }
}

#[test]
fn the_deadline_counts_what_was_left() {
    let _bound = Bound::new("the_deadline_counts_what_was_left");
    let runtime = cores(2)
        .drain_deadline(Duration::from_millis(50))
        .build()
        .unwrap();
    let poster = runtime.poster();
    let mut kept: Vec<Poster> = vec![poster.strong().unwrap()];
    kept.push(kept[0].clone());
    let outcome = runtime.run(|cx| {
        // One more, in an event that is not over when it is dropped with the run.
        let keep_alive = cx.strong_poster();
        drop(keep_alive);
        cx.stop();
    });
    let Err(error) = outcome else {
        panic!("ended before its keep-alives");
    };
    let text = error.to_string();
    let RunError::Deadline {
        events_left,
        strong_posters_left,
        stuck,
        ..
    } = error
    else {
        panic!("{error}");
    };
    assert_eq!((events_left, strong_posters_left, stuck), (0, 2, vec![]));
    assert!(text.contains("2 strong posters"), "{text}");
    // What is posted now comes back.
    let alive = Alive::default();
    let payload = alive.payload();
    let refused = kept[0].try_post(Color::from(1), move |_cx| drop(payload));
    assert!(matches!(
        refused,
        Err(Rejected {
            reason: Reason::Ended,
            ..
        })
    ));
    drop(refused);
    assert_eq!(alive.count(), 0);
    assert_eq!(poster.strong().unwrap_err(), Reason::Ended);
}

/// State is reached through one as through a poster, also after the stop.
#[test]
fn a_colored_takes_posts_through_one() {
    let _bound = Bound::new("a_colored_takes_posts_through_one");
    let runtime = cores(2).drain_deadline(LONG).build().unwrap();
    let keep_alive = runtime.poster().strong().unwrap();
    let sum = Colored::new(&keep_alive, Color::from(7), 0u64);
    let total = runtime
        .run_until(move |cx, finish| {
            cx.stop();
            std::thread::spawn(move || {
                for n in 1..=100 {
                    sum.try_post(&keep_alive, move |sum, _cx| *sum += n)
                        .unwrap();
                }
                let last = move |sum: &mut u64, _cx: &mut mely::Cx| finish.finish(*sum);
                sum.via(&ANSWER).try_post(&keep_alive, last).unwrap();
            });
        })
        .unwrap();
    assert_eq!(total, 5_050);
}

/// Everything accepted through a keep-alive runs, whenever the stop comes.
#[test]
fn threads_that_keep_the_runtime_lose_nothing() {
    let _bound = Bound::new("threads_that_keep_the_runtime");
    for round in 0..20 {
        let runtime = cores(1 + round % 3).drain_deadline(LONG).build().unwrap();
        let poster = runtime.poster();
        let ran = Arc::new(AtomicU64::new(0));
        let threads: Vec<_> = (0..4)
            .map(|thread| {
                let (poster, ran) = (poster.clone(), Arc::clone(&ran));
                std::thread::spawn(move || {
                    let mut accepted = 0;
                    for i in 0..200 {
                        let Ok(keep_alive) = poster.strong() else {
                            break;
                        };
                        let color = Color::from(thread + i % 7);
                        let ran = Arc::clone(&ran);
                        let event = move |cx: &mut mely::Cx| {
                            let again = cx.strong_poster();
                            let event = move |_cx: &mut mely::Cx| {
                                ran.fetch_add(1, Ordering::Relaxed);
                            };
                            again.try_post(Color::from(3), event).unwrap();
                        };
                        assert!(keep_alive.try_post(color, event).is_ok(), "it keeps it");
                        accepted += 1;
                    }
                    accepted
                })
            })
            .collect();
        let stopper = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_micros(50 * round as u64));
            poster.stop();
        });
        runtime.run(|_cx| ()).unwrap();
        stopper.join().unwrap();
        let accepted: u64 = threads.into_iter().map(|t| t.join().unwrap()).sum();
        assert_eq!(ran.load(Ordering::Relaxed), accepted, "in round {round}");
    }
}

/// Else the steps would go on for ever, and a runtime on threads would burn its cores.
#[test]
fn a_drain_that_waits_does_not_spin() {
    for exits in [false, true] {
        let mut simulation = Runtime::builder()
            .exit_when_idle(exits)
            .drain_deadline(Duration::MAX)
            .simulate(3)
            .unwrap();
        let keep_alive = simulation.poster().strong().unwrap();
        simulation
            .start(move |cx| {
                if !exits {
                    cx.stop()
                }
            })
            .unwrap();
        let steps = |simulation: &mut mely::sim::Simulation| {
            let before = simulation.steps();
            while simulation.step() != Step::Stalled {
                assert!(simulation.steps() < before + 10_000, "it spins");
            }
        };
        steps(&mut simulation);
        keep_alive.try_post(Color::from(1), |_cx| ()).unwrap();
        steps(&mut simulation);
        assert_eq!(simulation.stats().events(), 2);
        drop(keep_alive);
        loop {
            match simulation.step() {
                Step::Ended => break,
                Step::Stalled => panic!("it does not end"),
                _ => {}
            }
        }
        simulation.end().unwrap();
    }
}

#[test]
fn a_simulation_that_is_cut_short_counts_them() {
    let simulation = |deadline| {
        let builder = Runtime::builder().drain_deadline(deadline);
        let simulation = builder.simulate(5).unwrap();
        let keep_alive = simulation.poster().strong().unwrap();
        (simulation, keep_alive)
    };
    let left = |error| match error {
        SimError::Run(RunError::Deadline {
            strong_posters_left,
            ..
        }) => strong_posters_left,
        error => panic!("{error}"),
    };
    let (mut at_deadline, _keep_alive) = simulation(Duration::from_millis(1));
    assert_eq!(left(at_deadline.run(|cx| cx.stop()).unwrap_err()), 1);
    let (mut at_once, _keep_alive) = simulation(Duration::MAX);
    at_once.start(|_cx| ()).unwrap();
    assert_eq!(left(at_once.end().unwrap_err()), 1);
}

/// Has its client's question worked on, and meanwhile stops the runtime.
struct Asks {
    stream: Stream,
    me: WeakColored<Asks>,
}

impl Session for Asks {
    fn data(&mut self, cx: &mut mely::Cx, _question: RecvBuf) {
        static WORKED: Handler = Handler::new("worked");
        type Answer = Result<&'static [u8], JoinError>;
        let work = || {
            std::thread::sleep(Duration::from_millis(30));
            &b"answer"[..]
        };
        let answer = self.me.on_value(&WORKED, |asks, cx, answer: Answer| {
            assert!(cx.stopping());
            asks.stream.write(cx, answer.unwrap()).unwrap();
            asks.stream.close(cx);
        });
        cx.try_blocking(work).unwrap().then(cx, answer);
        cx.stop();
    }
}

/// The request of a client that is worked on when the stop comes: the answer is sent, and then the
/// run ends.
#[test]
fn a_client_is_answered_though_the_stop_came_first() {
    let _bound = Bound::new("a_client_is_answered");
    let runtime = cores(2).drain_deadline(LONG).build().unwrap();
    let (tell, told) = channel();
    let run = std::thread::spawn(move || {
        runtime.run(move |cx| {
            let accept = move |_: &mut mely::Cx, incoming: std::io::Result<Incoming>| {
                incoming.unwrap().serve(&ANSWER, |_, stream, me| Asks {
                    stream,
                    me: me.clone(),
                });
            };
            let accept = Callback::anonymous_each(Color::DEFAULT, accept);
            let listener = cx.listen(any_port(), Acceptors::PerCore, accept).unwrap();
            tell.send(listener.local_addr()).unwrap();
        })
    });
    let mut client = TcpStream::connect(told.recv().unwrap()).unwrap();
    client.set_read_timeout(Some(LONG)).unwrap();
    client.write_all(b"question").unwrap();
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).unwrap();
    assert_eq!(answer, b"answer");
    run.join().unwrap().unwrap();
}

/// A timer's handle keeps nothing, whoever has set it.
#[test]
fn a_timer_of_a_strong_poster_keeps_nothing() {
    let _bound = Bound::new("a_timer_of_a_strong_poster");
    let runtime = cores(1).exit_when_idle(true).build().unwrap();
    let strong = runtime.poster().strong().unwrap();
    let tick = Callback::anonymous(Color::from(1), |_cx| ());
    let timer = strong.timer(Duration::from_millis(1), tick).unwrap();
    drop(strong);
    runtime.run(|_cx| ()).unwrap();
    drop(timer);
}

/// Events of several states, by a strong poster, after the stop; and none after the end.
#[test]
fn several_states_are_had_after_the_stop() {
    let _bound = Bound::new("several_states_are_had");
    let runtime = cores(2).drain_deadline(LONG).build().unwrap();
    let (weak, strong) = (runtime.poster(), runtime.poster().strong().unwrap());
    let states = [1, 2].map(|color| Colored::new(&weak, Color::from(color), color));
    let after = weak.clone();
    let thread = std::thread::spawn(move || {
        eventually("the stop", || {
            weak.try_post(Color::from(3), |_cx| ()).is_err()
        });
        let [a, b] = &states;
        let refused = weak.try_with_all([a, b], |_, _cx| ()).unwrap_err();
        assert_eq!(refused.reason, Reason::Ended);
        let mut sum = strong.try_with_all([a, b], |[a, b], _cx| *a + *b).unwrap();
        assert_eq!(sum.recv(), Ok(3));
        let mut sum = strong.try_read([a, b], |[a, b], _cx| *a + *b).unwrap();
        assert_eq!(sum.recv(), Ok(3));
    });
    runtime.run(|cx| cx.stop()).unwrap();
    thread.join().unwrap();
    assert_eq!(after.strong().unwrap_err(), Reason::Ended);
}
