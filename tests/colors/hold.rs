//! Holds: a color waits, and only it.

mod callbacks;
mod deadlines;

use crate::common::calls::Calls;
use crate::common::{Alive, Bound, cores};
use mely::Post;
use mely::Reason;
use mely::runtime::Stealing;
use mely::sim::{Simulation, Step};
use mely::{Callback, Color, Colored, Cx, Handler, Hold, Rejected, Runtime};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const HELD: Color = Color::new(7);

/// Of the held color's slot, in a runtime with 4,096 slots.
const SHARES: Color = Color::new(7 + 4_096);

const OTHER: Color = Color::new(8);

/// What ran, in order.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    fn add(&self, what: impl ToString) {
        self.0.lock().unwrap().push(what.to_string());
    }

    fn event(&self, what: impl ToString) -> impl FnOnce(&mut Cx) + Send + 'static {
        let (log, what) = (self.clone(), what.to_string());
        move |_cx: &mut Cx| log.add(what)
    }

    fn assert(&self, expected: &[&str]) {
        assert_eq!(*self.0.lock().unwrap(), expected);
    }
}

/// Runs `first` as the first event of the held color, on this many virtual cores, until nothing is
/// left.
fn simulate(
    seed: u64,
    cores: usize,
    first: impl FnOnce(&mut Cx) + Send + 'static,
) -> mely::metrics::Stats {
    let builder = Runtime::builder().cores(cores).color_slots(4_096);
    let mut simulation = builder.exit_when_idle(true).simulate(seed).unwrap();
    simulation.run(move |cx| cx.post(HELD, first)).unwrap();
    simulation.stats()
}

#[test]
fn events_of_the_color_wait_in_order_and_others_do_not() {
    for seed in 0..30 {
        let log = Log::default();
        let all = log.clone();
        let stats = simulate(seed, 2, move |cx| {
            let hold = cx.hold();
            for i in 0..3 {
                cx.post(HELD, all.event(i));
            }
            cx.post(SHARES, all.event("shares the slot"));
            let resumed = all.clone();
            let last = all.clone();
            let answer = move |cx: &mut Cx| {
                last.add("answer");
                cx.post(HELD, last.event(3));
                hold.resume(resumed.event("resumed"));
            };
            cx.timer(
                Duration::from_micros(100),
                Callback::anonymous(OTHER, answer),
            );
            all.add("holds");
        });
        log.assert(&[
            "holds",
            "shares the slot",
            "answer",
            "resumed",
            "0",
            "1",
            "2",
            "3",
        ]);
        let sum =
            |of: fn(&mely::metrics::CoreStats) -> u64| stats.cores.iter().map(of).sum::<u64>();
        assert_eq!(sum(|core| core.holds), 1);
        assert_eq!(sum(|core| core.holds_dropped), 0);
        assert!(sum(|core| core.events_put_aside) >= 3);
        // Put aside is neither posted nor executed once more.
        assert_eq!(stats.events_waiting, 0);
    }
}

#[test]
fn dropped_it_lets_the_color_go_on_and_counts() {
    for seed in 0..30 {
        let log = Log::default();
        let all = log.clone();
        let stats = simulate(seed, 2, move |cx| {
            let hold = cx.hold();
            cx.post(HELD, all.event("waited"));
            let dropped = all.clone();
            cx.post(OTHER, move |_cx| {
                dropped.add("drops");
                drop(hold);
            });
        });
        log.assert(&["drops", "waited"]);
        let dropped: u64 = stats.cores.iter().map(|core| core.holds_dropped).sum();
        assert_eq!(dropped, 1);
    }
}

/// Through the first hold at once, through the second when the first is over; whichever is resumed
/// first.
#[test]
fn holds_of_one_event_end_in_the_order_in_which_they_were_taken() {
    let orders = [
        [0, 1, 2],
        [0, 2, 1],
        [1, 0, 2],
        [1, 2, 0],
        [2, 0, 1],
        [2, 1, 0],
    ];
    for (seed, order) in (0..60).zip(orders.into_iter().cycle()) {
        let log = Log::default();
        let all = log.clone();
        simulate(seed, 2, move |cx| {
            let mut holds = [(); 3].map(|()| Some(cx.hold()));
            cx.post(HELD, all.event("ordinary"));
            for i in [2, 0, 1] {
                let hold = holds[i].as_ref().unwrap();
                hold.try_post(hold.color(), all.event(format!("through {i}")))
                    .unwrap();
            }
            cx.post(OTHER, move |cx| {
                for i in order {
                    let hold = holds[i].take().unwrap();
                    hold.try_post(hold.color(), all.event(format!("again through {i}")))
                        .unwrap();
                    // The continuation posts, too: an ordinary event.
                    let its = all.clone();
                    hold.resume(move |cx| {
                        its.add(format!("resumed {i}"));
                        cx.post(HELD, its.event(format!("posted by {i}")));
                    });
                    cx.flush();
                }
            });
        });
        log.assert(&[
            "through 0",
            "again through 0",
            "resumed 0",
            "through 1",
            "again through 1",
            "resumed 1",
            "through 2",
            "again through 2",
            "resumed 2",
            "ordinary",
            "posted by 0",
            "posted by 1",
            "posted by 2",
        ]);
    }
}

/// An event through a hold takes two, and the continuation of the first of these one more: all of
/// them end before the hold does, and that before its sibling.
#[test]
fn holds_that_are_taken_through_a_hold_end_before_it() {
    for seed in 0..60 {
        let log = Log::default();
        let all = log.clone();
        simulate(seed, 2, move |cx| {
            let [first, second] = [(); 2].map(|()| cx.hold());
            cx.post(HELD, all.event("ordinary"));
            second.resume(all.event("second"));
            let its = all.clone();
            first
                .try_post(first.color(), move |cx| {
                    let [third, fourth] = [(); 2].map(|()| cx.hold());
                    cx.post(OTHER, move |_cx| {
                        fourth.resume(its.event("fourth"));
                        third.resume(move |cx| {
                            its.add("third");
                            let [fifth, sixth] = [(); 2].map(|()| cx.hold());
                            cx.post(OTHER, move |_cx| {
                                sixth.resume(its.event("sixth"));
                                fifth.resume(its.event("fifth"));
                            });
                        });
                    });
                })
                .unwrap();
            cx.post(OTHER, move |_cx| {
                first
                    .try_post(first.color(), all.event("through the first"))
                    .unwrap();
                first.resume(all.event("first"));
            });
        });
        log.assert(&[
            "third",
            "fifth",
            "sixth",
            "fourth",
            "through the first",
            "first",
            "second",
            "ordinary",
        ]);
    }
}

/// Each of many events holds its color for a while: the next one begins when it is over.
#[test]
fn many_in_a_row_hold() {
    const EVENTS: usize = 2_000;
    for seed in 0..3 {
        let log = Arc::new(Mutex::new(Vec::new()));
        let all = Arc::clone(&log);
        let stats = simulate(seed, 2, move |cx| {
            for i in 0..EVENTS {
                let log = Arc::clone(&all);
                cx.post(HELD, move |cx| {
                    let hold = cx.hold();
                    cx.post(OTHER, move |_cx| {
                        hold.resume(move |_cx| log.lock().unwrap().push(i))
                    });
                });
            }
        });
        assert!(log.lock().unwrap().iter().copied().eq(0..EVENTS));
        // Not each of those that wait, each time.
        let aside: u64 = stats.cores.iter().map(|core| core.events_put_aside).sum();
        assert!(aside < 3 * EVENTS as u64, "{aside}");
    }
}

#[test]
fn the_continuation_may_hold_again() {
    for seed in 0..30 {
        let log = Log::default();
        let all = log.clone();
        simulate(seed, 2, move |cx| {
            let first = cx.hold();
            cx.post(HELD, all.event("waited"));
            cx.post(OTHER, move |_cx| {
                first.resume(move |cx| {
                    all.add("first");
                    let second = cx.hold();
                    cx.post(OTHER, move |_cx| second.resume(all.event("second")));
                });
            });
        });
        log.assert(&["first", "second", "waited"]);
    }
}

/// A deadline and a continuation that a hold is given when it is over are dropped in the color soon,
/// also while another hold is out.
#[test]
fn what_a_hold_is_given_when_it_is_over_is_dropped_at_once() {
    for (seed, resumes) in (0..60).zip([false, true].into_iter().cycle()) {
        let alive = Alive::default();
        simulate(seed, 2, move |cx| {
            let mut over = cx.hold();
            over.resume_after(cx, Duration::from_micros(10), |_cx| ());
            cx.post(HELD, move |cx| {
                let other = cx.hold();
                let payload = alive.payload();
                let late = move |_cx: &mut Cx| drop(payload);
                let later = alive.clone();
                let over = if resumes {
                    over.resume(late);
                    None
                } else {
                    over.resume_after(cx, Duration::from_secs(3_600), late);
                    Some(over)
                };
                assert_eq!(alive.count(), 1, "by an event of the color");
                let look = move |_cx: &mut Cx| {
                    assert_eq!(later.count(), 0);
                    drop((over, other));
                };
                cx.timer(Duration::from_millis(1), Callback::anonymous(OTHER, look));
            });
        });
    }
}

/// Each is taken through the one before: so they end in the opposite order, and all wait but one.
/// Far more than a time that grows with their square would allow.
#[test]
fn each_of_many_nested_holds_costs_the_same() {
    const HOLDS: usize = if cfg!(miri) { 50 } else { 300_000 };
    let _bound = Bound::new("each_of_many_nested");
    fn nest(cx: &mut Cx, left: usize, holds: Arc<Mutex<Vec<Hold>>>, log: Arc<Mutex<Vec<usize>>>) {
        if left > 0 {
            let hold = cx.hold();
            let all = Arc::clone(&holds);
            hold.try_post(hold.color(), move |cx| nest(cx, left - 1, all, log))
                .unwrap();
            return holds.lock().unwrap().push(hold);
        }
        cx.post(OTHER, move |_cx| {
            for (i, hold) in holds.lock().unwrap().drain(..).enumerate() {
                let log = Arc::clone(&log);
                hold.resume(move |_cx| log.lock().unwrap().push(i));
            }
        });
    }
    let log = Arc::default();
    let all = Arc::clone(&log);
    let runtime = cores(1).exit_when_idle(true).build().unwrap();
    runtime
        .run(move |cx| cx.post(HELD, move |cx| nest(cx, HOLDS, Arc::default(), all)))
        .unwrap();
    assert!(log.lock().unwrap().iter().copied().eq((0..HOLDS).rev()));
}

/// The lost answer at a stop: a request is under way outside, and the program is asked to stop.
#[test]
fn a_stop_waits_for_what_is_held() {
    let _bound = Bound::new("a_stop_waits");
    for cores_count in [1, 2] {
        let log = Log::default();
        let all = log.clone();
        let state = cores(cores_count).build().unwrap();
        let poster = state.poster();
        state
            .run(move |cx| {
                cx.post(HELD, move |cx| {
                    let hold = cx.hold();
                    cx.post(HELD, all.event("next request"));
                    std::thread::spawn(move || {
                        poster.stop();
                        while poster.try_post(OTHER, |_cx| ()).is_ok() {}
                        std::thread::sleep(Duration::from_millis(50));
                        hold.try_post(hold.color(), all.event("part of the answer"))
                            .unwrap();
                        hold.resume(all.event("answer"));
                    });
                });
            })
            .unwrap();
        log.assert(&["part of the answer", "answer", "next request"]);
    }
}

/// A run that is cut short while a hold is out drops what waits, and tells how much.
#[test]
fn what_waits_is_dropped_if_the_run_is_cut_short() {
    let _bound = Bound::new("what_waits_is_dropped");
    let alive = Alive::default();
    let (token, through) = (alive.payload(), alive.payload());
    let (sender, receiver) = std::sync::mpsc::channel();
    let builder = cores(2).drain_deadline(Duration::from_millis(20));
    let error = builder
        .build()
        .unwrap()
        .run(move |cx| {
            cx.post(HELD, move |cx| {
                let first = cx.hold();
                let second = cx.hold();
                second
                    .try_post(second.color(), move |_cx| drop(through))
                    .unwrap();
                cx.post(HELD, move |_cx| drop(token));
                sender.send((first, second)).unwrap();
                cx.stop();
            });
        })
        .unwrap_err();
    assert_eq!(alive.count(), 0, "{error}");
    // Two that wait, and the ends of two holds.
    assert!(error.to_string().contains('4'), "{error}");
    let (first, second) = receiver.recv().unwrap();
    let late = alive.payload();
    assert!(
        first
            .try_post(first.color(), move |_cx| drop(late))
            .is_err()
    );
    let late = alive.payload();
    second.resume(move |_cx| drop(late));
    assert_eq!(alive.count(), 0);
}

/// Many threads, many colors, holds that are resumed from anywhere: each color's events run one at
/// a time, in order, and all of them do.
#[test]
fn storm() {
    const COLORS: usize = 50;
    const REQUESTS: u64 = 200;
    let _bound = Bound::new("storm");
    static REQUEST: Handler = Handler::new("request").time(Duration::from_nanos(300));
    struct Connection {
        begun: u64,
        answered: u64,
    }
    fn request(
        connection: &mut Connection,
        cx: &mut Cx,
        outside: &std::sync::mpsc::Sender<(Hold, u64)>,
    ) {
        assert_eq!(connection.begun, connection.answered, "one at a time");
        let number = connection.begun;
        connection.begun += 1;
        match number % 4 {
            // At once, from elsewhere, from a thread outside, by a drop.
            0 => connection.answered += 1,
            3 => {
                let hold = cx.hold();
                outside.send((hold, number)).unwrap();
                // Answered when the hold is over: the next event of the color.
            }
            _ => {
                let hold = cx.hold();
                let elsewhere = Color::from(1_000 + number);
                cx.post(elsewhere, move |_cx| drop(hold));
                connection.answered += 1;
            }
        }
    }
    let done = Arc::new(Mutex::new(0));
    let all_done = Arc::clone(&done);
    let (sender, receiver) = std::sync::mpsc::channel::<(Hold, u64)>();
    let connections: Arc<Mutex<Vec<Colored<Connection>>>> = Arc::default();
    let theirs = Arc::clone(&connections);
    let answering = std::thread::spawn(move || {
        for (hold, _) in receiver {
            let color = hold.color();
            let state = theirs.lock().unwrap()[color.value() as usize].clone();
            state
                .try_post(&hold, |connection, _cx| connection.answered += 1)
                .unwrap();
            hold.resume(|_cx| ());
        }
    });
    cores(3)
        .exit_when_idle(true)
        .build()
        .unwrap()
        .run(move |cx| {
            let mut all = connections.lock().unwrap();
            for i in 0..COLORS {
                let zero = Connection {
                    begun: 0,
                    answered: 0,
                };
                all.push(Colored::new(cx, Color::from(i as u64), zero));
            }
            for _ in 0..REQUESTS {
                for state in all.iter() {
                    let sender = sender.clone();
                    state.via(&REQUEST).post(cx, move |connection, cx| {
                        request(connection, cx, &sender);
                    });
                }
            }
            for state in all.iter() {
                let done = Arc::clone(&all_done);
                state.post(cx, move |connection, _cx| {
                    assert_eq!(
                        (connection.begun, connection.answered),
                        (REQUESTS, REQUESTS)
                    );
                    *done.lock().unwrap() += 1;
                });
            }
            // The states live as long as the run.
        })
        .unwrap();
    answering.join().unwrap();
    assert_eq!(*done.lock().unwrap(), COLORS);
}

/// An event through the hold only if it is of its color; any other one is of its own.
#[test]
fn a_hold_posts_to_the_states_of_all_colors() {
    for seed in 0..30 {
        let log = Log::default();
        let all = log.clone();
        simulate(seed, 2, move |cx| {
            let hold = cx.hold();
            cx.post(HELD, all.event("waited"));
            for color in [HELD, OTHER] {
                let (state, its) = (Colored::new(cx, color, color.value()), all.clone());
                let event = move |value: &mut u64, cx: &mut Cx| {
                    assert_eq!(*value, cx.color().value());
                    its.add("state");
                };
                state.try_post(&hold, event).unwrap();
            }
            let resume = move |_cx: &mut Cx| hold.resume(all.event("resumed"));
            let later = Duration::from_micros(100);
            cx.timer(later, Callback::anonymous(OTHER, resume));
        });
        log.assert(&["state", "state", "resumed", "waited"]);
    }
}

#[test]
fn at_the_limit_a_hold_can_still_be_resumed() {
    let _bound = Bound::new("at_the_limit");
    let log = Log::default();
    let all = log.clone();
    cores(1)
        .events_max(64)
        .exit_when_idle(true)
        .build()
        .unwrap()
        .run(move |cx| {
            cx.post(HELD, move |cx| {
                let hold = cx.hold();
                while cx.try_post(HELD, |_cx| ()).is_ok() {}
                let refused = all.clone();
                let full = hold.try_post(hold.color(), move |_cx| refused.add("through"));
                assert!(matches!(
                    full,
                    Err(Rejected {
                        reason: Reason::Full,
                        ..
                    })
                ));
                let elsewhere = Colored::new(cx, OTHER, ());
                assert!(elsewhere.try_post(&hold, |(), _cx| ()).is_err());
                assert!(elsewhere.try_post(&hold, |(), _cx| ()).is_err());
                hold.resume(all.event("resumed"));
            });
        })
        .unwrap();
    log.assert(&["resumed"]);
}

#[test]
fn what_is_put_aside_can_be_seen() {
    simulate(0, 2, |cx| {
        let hold = cx.hold();
        for _ in 0..100 {
            cx.post(HELD, |_cx| ());
        }
        let look = move |cx: &mut Cx| {
            let deepest = cx.poster().deepest_colors(1)[0];
            assert_eq!((deepest.color, deepest.events), (Some(HELD), 100));
            // A hold counts as the event that ends it; and there is the one that runs.
            assert_eq!(cx.poster().stats().events_waiting, 102);
            drop(hold);
        };
        cx.timer(Duration::from_micros(100), Callback::anonymous(OTHER, look));
    });
}

/// Of a held connection a peer that sends byte after byte takes a few buffers of its core, not all.
#[test]
fn a_held_connection_does_not_keep_others_from_being_received() {
    use mely::net::Acceptors;
    use std::io::{Read, Write};
    static ACCEPTS: Handler = Handler::new("accepts");
    static ECHOES: Handler = Handler::new("echoes");
    let _bound = Bound::new("a_held_connection");
    let runtime = cores(1).build().unwrap();
    let poster = runtime.poster();
    let (tell, told) = std::sync::mpsc::channel();
    let (give, given) = std::sync::mpsc::channel();
    let server = std::thread::spawn(move || {
        runtime.run(move |cx| {
            let accepts = move |_: &mut Cx, incoming: std::io::Result<mely::net::Incoming>| {
                let give = give.clone();
                let session = Calls::new(move |cx, stream, data| {
                    let Ok(Some(data)) = data else { return };
                    if data.first() == Some(&b'H') {
                        give.send(cx.hold()).unwrap();
                    } else {
                        let _ = stream.write(cx, data);
                    }
                });
                session.serve(incoming.unwrap().open_unique(), &ECHOES);
            };
            let any = "127.0.0.1:0";
            let callback = ACCEPTS.on_each(Color::DEFAULT, accepts);
            let listener = cx.listen(any, Acceptors::Single, callback).unwrap();
            tell.send(listener.local_addr()).unwrap();
        })
    });
    let addr = told.recv().unwrap();
    let mut held = std::net::TcpStream::connect(addr.clone()).unwrap();
    held.set_nodelay(true).unwrap();
    held.write_all(b"H").unwrap();
    let hold: Hold = given.recv().unwrap();
    let sending = std::thread::spawn(move || {
        for _ in 0..2_000 {
            held.write_all(b"x").unwrap();
            std::thread::sleep(Duration::from_micros(20));
        }
        held
    });
    let held = sending.join().unwrap();
    assert!(
        poster.stats().events_waiting < 200,
        "{:?}",
        poster.stats().events_waiting
    );
    let mut other = std::net::TcpStream::connect(addr).unwrap();
    other.set_read_timeout(Some(crate::common::LONG)).unwrap();
    other.write_all(b"ping").unwrap();
    let mut echo = [0; 4];
    other.read_exact(&mut echo).unwrap();
    assert_eq!(&echo, b"ping");
    drop((hold, held, other));
    poster.stop();
    server.join().unwrap().unwrap();
}

/// With what waits in it: what is posted meanwhile waits there, and all of it runs on the core that
/// was asked for.
#[test]
fn a_held_color_can_be_placed() {
    for seed in 0..30 {
        let log = Log::default();
        let all = log.clone();
        let builder = Runtime::builder().cores(2);
        let builder = builder.stealing(Stealing::OFF).exit_when_idle(true);
        let mut simulation = builder.simulate(seed).unwrap();
        let ran_on = |log: &Log, what: &'static str| {
            let log = log.clone();
            move |cx: &mut Cx| log.add(format!("{what} on {}", cx.core()))
        };
        let first = move |cx: &mut Cx| {
            let from = cx.core();
            all.add(format!("held on {from}"));
            let hold = cx.hold();
            cx.post(HELD, ran_on(&all, "before"));
            let move_it = move |cx: &mut Cx| {
                cx.place(HELD, 1 - from);
                cx.post(HELD, ran_on(&all, "meanwhile"));
                let resumed = ran_on(&all, "resumed");
                let resume = move |_cx: &mut Cx| hold.resume(resumed);
                let later = Duration::from_micros(100);
                cx.timer(later, Callback::anonymous(OTHER, resume));
            };
            let later = Duration::from_micros(100);
            cx.timer(later, Callback::anonymous(OTHER, move_it));
        };
        simulation.run(move |cx| cx.post(HELD, first)).unwrap();
        log.assert(&["held on 1", "resumed on 0", "before on 0", "meanwhile on 0"]);
    }
}

/// However much waits in it, and however long that takes: it is nothing to steal, and nobody wakes
/// for it.
#[test]
fn what_waits_for_a_hold_makes_nobody_steal_or_wake() {
    static LONG_ONE: Handler = Handler::new("long").time(Duration::from_millis(1));
    for seed in 0..30 {
        let builder = Runtime::builder().cores(2);
        let mut simulation = builder.simulate(seed).unwrap();
        let (give, take) = channel();
        let first = move |cx: &mut Cx| {
            give.send(cx.hold()).unwrap();
            for _ in 0..100 {
                LONG_ONE.on(HELD, |_cx| ()).post(cx);
            }
        };
        let start = move |cx: &mut Cx| cx.post(HELD, first);
        simulation.start(start).unwrap();
        let settle = |simulation: &mut Simulation| {
            let mut steps = (0..10_000).map(|_| simulation.step());
            let at_rest = steps.any(|step| matches!(step, Step::Stalled | Step::Ended));
            assert!(at_rest, "seed {seed}: they go on looking");
        };
        settle(&mut simulation);
        let sums = |simulation: &Simulation| {
            let stats = simulation.stats();
            let steals = stats.cores.iter().flat_map(|core| &core.steals);
            let won: u64 = steals.map(|steals| steals.won).sum();
            let of =
                |of: fn(&mely::metrics::CoreStats) -> u64| stats.cores.iter().map(of).sum::<u64>();
            (won, of(|core| core.wakes), of(|core| core.events_put_aside))
        };
        let (won, wakes, put_aside) = sums(&simulation);
        assert_eq!((won, put_aside), (0, 100), "seed {seed}");
        // Others come and go beside it.
        let poster = simulation.poster();
        for round in 0..20 {
            poster.try_post(OTHER, |_cx| ()).unwrap();
            settle(&mut simulation);
            let (won, more, still) = sums(&simulation);
            assert_eq!((won, still), (0, 100), "seed {seed}");
            assert!(more <= wakes + 2 * (round + 1), "seed {seed}: {more}");
        }
        take.recv().unwrap().resume(|cx| cx.stop());
        settle(&mut simulation);
        assert_eq!(simulation.stats().events_waiting, 0);
    }
}
