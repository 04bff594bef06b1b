//! Cores come and go while the program runs: on real threads, and on the simulated network.

use crate::common::calls::Calls;
use crate::common::wire::{ACCEPTING, Client, all_backends, any_port, on, with_server};
use crate::common::{Bound, cores, eventually};
use mely::Post;
use mely::net::{Acceptors, Incoming, RecvBuf, Stream};
use mely::runtime::Stealing;
use mely::{Callback, Color, Cx, Handler, Poster, Reason, Runtime};
use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

static READ: Handler = Handler::new("read");

/// Without stealing a color goes elsewhere only because its core is retired.
fn fixed(n: usize) -> Runtime {
    cores(n).stealing(Stealing::OFF).build().unwrap()
}

/// Where an event of this color runs that is posted now.
fn runs_on(poster: &Poster, color: u64) -> usize {
    let (tell, told) = channel();
    let event = move |cx: &mut Cx| tell.send(cx.core()).unwrap();
    poster.try_post(Color::from(color), event).unwrap();
    told.recv_timeout(crate::common::LONG).unwrap()
}

/// Runs `f` on a thread of its own beside a runtime, which then stops.
fn beside<R: Send + 'static>(runtime: Runtime, f: impl FnOnce(&Poster) -> R + Send + 'static) -> R {
    struct Stop(Poster);
    impl Drop for Stop {
        fn drop(&mut self) {
            self.0.stop();
        }
    }
    let stop = Stop(runtime.poster());
    let beside = thread::spawn(move || f(&stop.0));
    runtime.run(|_cx| ()).unwrap();
    beside.join().unwrap()
}

#[test]
fn there_is_at_least_one_and_no_more_than_there_are() {
    let _bound = Bound::new("at_least_one");
    let runtime = fixed(3);
    let poster = runtime.poster();
    for asked in [0, 4, usize::MAX] {
        let error = poster.set_working_cores(asked).unwrap_err();
        assert_eq!(error, Reason::WorkingCores { asked, all: 3 });
        assert!(
            error.to_string().contains("from 1 to 3 can work"),
            "{error}"
        );
        assert_eq!(poster.stats().working_cores, 3);
    }
    runtime
        .run(|cx| {
            for number in [2, 1, 3, 3] {
                cx.poster().set_working_cores(number).unwrap();
                assert_eq!(cx.poster().stats().working_cores, number);
            }
            assert!(cx.poster().set_working_cores(0).is_err());
            assert_eq!((cx.poster().stats().working_cores, cx.cores()), (3, 3));
            cx.stop();
        })
        .unwrap();
}

#[test]
fn what_is_set_before_a_run_holds_from_its_beginning() {
    let _bound = Bound::new("before_a_run");
    let runtime = fixed(4);
    runtime.poster().set_working_cores(2).unwrap();
    let ran = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&ran);
    runtime
        .run(move |cx| {
            for value in 0..40 {
                let ran = Arc::clone(&counted);
                cx.post(Color::from(value), move |cx| {
                    assert_eq!(cx.core(), value as usize % 4 % 2);
                    ran.fetch_add(1, Ordering::Relaxed);
                });
            }
            cx.stop();
        })
        .unwrap();
    assert_eq!(ran.load(Ordering::Relaxed), 40);
}

/// Once a core is retired, that is, has passed a color on, no event runs there.
#[test]
fn no_event_runs_on_a_retired_core() {
    let _bound = Bound::new("no_event_runs");
    beside(fixed(4), |poster| {
        assert_eq!(runs_on(poster, 3), 3);
        poster.set_working_cores(2).unwrap();
        let retired = || [2, 3].iter().all(|&color| runs_on(poster, color) < 2);
        eventually("both have passed their colors on", retired);
        for color in 0..400 {
            assert!(runs_on(poster, color) < 2, "color {color}");
        }
        poster.place(Color::from(7), 3);
        assert!(runs_on(poster, 7) < 2, "also if it was placed there");
    });
}

#[test]
fn a_core_that_works_again_has_what_is_placed_there() {
    let _bound = Bound::new("works_again");
    beside(fixed(2), |poster| {
        for color in [1_u64, 3, 5] {
            poster.set_working_cores(1).unwrap();
            eventually("it is retired", || runs_on(poster, color) == 0);
            poster.set_working_cores(2).unwrap();
            let back = || {
                poster.place(Color::from(color), 1);
                runs_on(poster, color) == 1
            };
            eventually("it works", back);
        }
    });
}

/// A core that works again takes its part of what there is.
#[test]
fn a_core_that_works_again_steals() {
    let _bound = Bound::new("steals_again");
    beside(cores(2).build().unwrap(), |poster| {
        poster.set_working_cores(1).unwrap();
        eventually("it is retired", || runs_on(poster, 1) == 0);
        let (entered, inside) = channel();
        let (release, released) = channel::<()>();
        let blocks = move |cx: &mut Cx| {
            entered.send(cx.core()).unwrap();
            released.recv().unwrap();
        };
        poster.try_post(Color::from(2), blocks).unwrap();
        assert_eq!(inside.recv(), Ok(0));
        // Behind it, on the core that is inside of it.
        let (tell, told) = channel();
        let waits = move |cx: &mut Cx| tell.send(cx.core()).unwrap();
        poster.try_post(Color::from(4), waits).unwrap();
        poster.set_working_cores(2).unwrap();
        assert_eq!(told.recv_timeout(crate::common::LONG), Ok(1));
        release.send(()).unwrap();
    });
}

/// The handler that a core is inside of when it is retired ends there; what is queued behind it,
/// of its color and of others, runs elsewhere in its order.
#[test]
fn what_is_queued_behind_a_handler_moves_when_that_ends() {
    let _bound = Bound::new("queued_behind");
    let order = beside(fixed(2), |poster| {
        let order = Arc::new(Mutex::new(Vec::new()));
        let (entered, inside) = channel();
        let (release, released) = channel::<()>();
        let blocks = move |cx: &mut Cx| {
            entered.send(()).unwrap();
            released.recv().unwrap();
            assert_eq!(cx.core(), 1, "it ends where it began");
        };
        poster.try_post(Color::from(1), blocks).unwrap();
        inside.recv().unwrap();
        for event in 0..200 {
            let order = Arc::clone(&order);
            let color = 1 + event % 4 * 2;
            let queued = move |cx: &mut Cx| {
                assert_eq!(cx.core(), 0);
                order.lock().unwrap().push((color, event));
            };
            poster.try_post(Color::from(color), queued).unwrap();
        }
        poster.set_working_cores(1).unwrap();
        release.send(()).unwrap();
        eventually("all have run", || order.lock().unwrap().len() == 200);
        Arc::try_unwrap(order).unwrap().into_inner().unwrap()
    });
    for color in [1, 3, 5, 7] {
        let of_color = order.iter().filter(|&&(of, _)| of == color);
        let of_color: Vec<_> = of_color.map(|&(_, event)| event).collect();
        assert!(of_color.is_sorted(), "color {color}: {of_color:?}");
        assert_eq!(of_color.len(), 50);
    }
}

/// Events that were posted one after the other: by a thread to a color, or by the color itself.
type Row = (u64, &'static str);

/// How many of each row have run.
struct Rows(Mutex<HashMap<Row, u64>>);

impl Rows {
    fn ran(&self, row: Row, number: u64) {
        let mut rows = self.0.lock().unwrap();
        let next = rows.entry(row).or_default();
        assert_eq!(*next, number, "{row:?}");
        *next += 1;
    }
}

/// While the number changes all the time, by several threads, and threads outside post, every event
/// runs once, and in order.
#[test]
fn nothing_is_lost_or_overtaken_while_cores_come_and_go() {
    const COLORS: u64 = 24;
    const EVENTS: u64 = 2_000;
    let _bound = Bound::new("nothing_is_lost");
    for stealing in [Stealing::OFF, Stealing::default(), Stealing::BASE] {
        let runtime = cores(4).stealing(stealing).build().unwrap();
        let rows = Arc::new(Rows(Mutex::default()));
        let judge = Arc::clone(&rows);
        beside(runtime, move |poster| {
            let done = Arc::new(AtomicBool::new(false));
            let changers: Vec<_> = (1..3)
                .map(|step| {
                    let (poster, done) = (poster.clone(), Arc::clone(&done));
                    thread::spawn(move || {
                        let mut number = 0;
                        while !done.load(Ordering::Relaxed) {
                            poster.set_working_cores(1 + number % 4).unwrap();
                            number += step;
                            thread::yield_now();
                        }
                    })
                })
                .collect();
            let posters: Vec<_> = (0..2)
                .map(|half| {
                    let (poster, judge) = (poster.clone(), Arc::clone(&judge));
                    thread::spawn(move || {
                        for number in 0..EVENTS {
                            for color in (0..COLORS).filter(|color| color % 2 == half) {
                                let judge = Arc::clone(&judge);
                                let event = move |cx: &mut Cx| {
                                    judge.ran((color, "outside"), number);
                                    let again = move |_: &mut Cx| judge.ran((color, "own"), number);
                                    cx.post(cx.color(), again);
                                };
                                poster.try_post(Color::from(color), event).unwrap();
                            }
                        }
                    })
                })
                .collect();
            posters.into_iter().for_each(|it| it.join().unwrap());
            done.store(true, Ordering::Relaxed);
            changers.into_iter().for_each(|it| it.join().unwrap());
        });
        let rows = rows.0.lock().unwrap();
        assert_eq!(rows.len(), 2 * COLORS as usize);
        assert!(rows.values().all(|&ran| ran == EVENTS), "{rows:?}");
    }
}

/// What has happened when the runtime ends: whatever was accepted has run.
#[test]
fn a_run_ends_while_cores_are_retired() {
    let _bound = Bound::new("a_run_ends");
    for (exits, working) in [(false, 1), (true, 1), (false, 3), (true, 2)] {
        let runtime = cores(4).exit_when_idle(exits).build().unwrap();
        let ran = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&ran);
        runtime
            .run(move |cx| {
                cx.poster().set_working_cores(working).unwrap();
                for value in 0..1_000 {
                    let ran = Arc::clone(&counted);
                    cx.post(Color::from(value), move |cx| {
                        let last = move |_: &mut Cx| _ = ran.fetch_add(1, Ordering::Relaxed);
                        cx.post(Color::from(value + 1), last);
                    });
                }
                if !exits {
                    cx.stop();
                }
            })
            .unwrap();
        assert_eq!(
            ran.load(Ordering::Relaxed),
            1_000,
            "{working} of 4, {exits}"
        );
    }
}

/// Asked for its end by one thread while another one changes the number.
#[test]
fn a_stop_and_a_change_at_once() {
    let _bound = Bound::new("a_stop_and_a_change");
    for round in 0..50 {
        let runtime = cores(3).build().unwrap();
        let (stop, change) = (runtime.poster(), runtime.poster());
        let (begun, begins) = channel();
        let changes = thread::spawn(move || {
            begins.recv().unwrap();
            for number in 0..20 {
                change.set_working_cores(1 + (round + number) % 3).unwrap();
            }
        });
        let ran = Arc::new(AtomicU64::new(0));
        let counted = Arc::clone(&ran);
        runtime
            .run(move |cx| {
                for value in 0..100 {
                    let ran = Arc::clone(&counted);
                    cx.post(Color::from(value), move |_| {
                        ran.fetch_add(1, Ordering::Relaxed);
                    });
                }
                begun.send(()).unwrap();
                stop.stop();
            })
            .unwrap();
        changes.join().unwrap();
        assert_eq!(ran.load(Ordering::Relaxed), 100);
    }
}

/// A timer stays with its core, which still fires it; the event runs where cores work.
#[test]
fn timers_of_a_retired_core_fire() {
    let _bound = Bound::new("timers_fire");
    let fired = beside(fixed(2), |poster| {
        let (tell, told) = channel();
        let (fired, fires) = channel();
        let sets = move |cx: &mut Cx| {
            assert_eq!(cx.core(), 1);
            for ms in [0, 20, 100] {
                let fired = fired.clone();
                let at = Color::from(1);
                let event = Callback::anonymous(at, move |cx: &mut Cx| {
                    fired.send((ms, cx.core())).unwrap();
                });
                cx.timer(Duration::from_millis(ms), event);
            }
            // Canceled through its home, which is retired by then.
            let never = Callback::anonymous(Color::from(1), |_: &mut Cx| unreachable!("canceled"));
            tell.send(cx.timer(Duration::from_secs(3_600), never))
                .unwrap();
        };
        poster.try_post(Color::from(1), sets).unwrap();
        let timer = told.recv().unwrap();
        poster.set_working_cores(1).unwrap();
        eventually("it is retired", || runs_on(poster, 1) == 0);
        let last = || fires.recv_timeout(crate::common::LONG).unwrap();
        let fired = [last(), last(), last()];
        poster
            .try_post(Color::from(3), move |cx: &mut Cx| timer.cancel(cx))
            .unwrap();
        assert_eq!(runs_on(poster, 3), 0);
        fired
    });
    assert_eq!(fired.map(|(ms, _)| ms), [0, 20, 100]);
    assert_eq!(fired[2].1, 0);
}

/// Echoes on a connection with a color of its own.
fn echo(_cx: &mut Cx, incoming: Incoming) {
    let answer = |cx: &mut Cx, stream: &Stream, data: io::Result<Option<RecvBuf>>| {
        if let Ok(Some(data)) = data {
            stream.write(cx, data.to_vec()).unwrap();
        }
    };
    Calls::new(answer).serve(incoming.open_unique(), &READ);
}

fn echoes(client: &mut Client, bytes: &[u8]) {
    client.write_all(bytes).unwrap();
    assert_eq!(client.exactly(bytes.len()), bytes);
}

/// Has this number of a server's cores work, which is told through [`changer`].
fn change(client: &mut Client, number: u8) {
    echoes(client, &[number]);
}

/// Echoes, and has as many cores work as the first byte says.
fn changer(_cx: &mut Cx, incoming: Incoming) {
    let answer = |cx: &mut Cx, stream: &Stream, data: io::Result<Option<RecvBuf>>| {
        if let Ok(Some(data)) = data {
            if let Some(&number @ 1..=9) = data.first() {
                cx.poster().set_working_cores(number.into()).unwrap();
            }
            stream.write(cx, data.to_vec()).unwrap();
        }
    };
    Calls::new(answer).serve(incoming.open_unique(), &READ);
}

/// Connections stay at home on a core that is retired, and are served; those that come later are
/// accepted, whichever core's acceptor they come to.
#[test]
fn connections_go_on_and_new_ones_are_accepted() {
    for backend in all_backends() {
        let at = backend.clone();
        with_server("connections_go_on", on(&backend), changer, move |addr| {
            let connect = || Client::connect(&at, addr);
            let mut clients = Vec::new();
            for (round, number) in [2, 1, 2, 1, 1, 2].into_iter().enumerate() {
                clients.extend((0..8).map(|_| connect()));
                for client in &mut clients {
                    echoes(client, &[0, round as u8, 0, 255]);
                }
                change(&mut clients[round], number);
            }
            for mut client in clients {
                client.shutdown_write();
                assert_eq!(client.rest(), b"");
            }
        });
    }
}

/// Everyone who connects while cores come and go is accepted.
#[test]
fn nobody_who_connects_while_cores_come_and_go_is_lost() {
    const CLIENTS: usize = 150;
    for backend in all_backends() {
        let at = backend.clone();
        let accepted = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&accepted);
        let serve = move |cx: &mut Cx, incoming: Incoming| {
            counted.fetch_add(1, Ordering::Relaxed);
            changer(cx, incoming);
        };
        let builder = cores(3).backend(backend.clone());
        with_server("nobody_is_lost", builder, serve, move |addr| {
            let mut changes = Client::connect(&at, addr);
            let mut clients = Vec::new();
            for i in 0..CLIENTS {
                // What comes of it is read later: accepts and changes are under way together.
                changes.write_all(&[1 + (i * i % 3) as u8]).unwrap();
                let mut client = Client::connect(&at, addr);
                client.write_all(b"first").unwrap();
                clients.push(client);
            }
            changes.exactly(CLIENTS);
            for client in &mut clients {
                assert_eq!(client.exactly(5), b"first");
            }
        });
        assert_eq!(accepted.load(Ordering::Relaxed), 1 + CLIENTS, "{backend:?}");
    }
}

/// The one core that accepts for a listener is retired: another one does, until it works again.
#[test]
fn the_only_acceptor_goes_where_cores_work() {
    for backend in all_backends() {
        let _bound = Bound::new("the_only_acceptor");
        let at = backend.clone();
        let runtime = on(&backend).stealing(Stealing::OFF).build().unwrap();
        let addr = {
            let poster = runtime.poster();
            let (tell, told) = channel();
            let listens = move |cx: &mut Cx| {
                assert_eq!(cx.core(), 1);
                let serve =
                    |cx: &mut Cx, incoming: io::Result<Incoming>| echo(cx, incoming.unwrap());
                let on_accept = Callback::anonymous_each(ACCEPTING, serve);
                let listener = cx.listen(any_port(), Acceptors::Single, on_accept).unwrap();
                tell.send(listener.local_addr()).unwrap();
            };
            poster.try_post(Color::from(3), listens).unwrap();
            told
        };
        beside(runtime, move |poster| {
            let addr = addr.recv().unwrap();
            for number in [2, 1, 1, 2, 1] {
                poster.set_working_cores(number).unwrap();
                echoes(&mut Client::connect(&at, addr.ip().unwrap()), b"accepted");
            }
        });
    }
}

/// A listener whose acceptors are away is closed all the same: its port is free, and its callback
/// dropped in its color.
#[test]
fn a_listener_is_closed_wherever_its_acceptors_are() {
    struct Told(std::sync::mpsc::Sender<()>);
    impl Drop for Told {
        fn drop(&mut self) {
            self.0.send(()).unwrap();
        }
    }
    for backend in crate::common::backends() {
        for acceptors in [Acceptors::PerCore, Acceptors::Single] {
            for number in [1, 2] {
                let _bound = Bound::new("a_listener_is_closed");
                let runtime = cores(3).backend(backend.clone());
                let runtime = runtime.stealing(Stealing::OFF).build().unwrap();
                let (poster, (tell, told)) = (runtime.poster(), channel());
                let (gone, dropped) = channel();
                let listens = move |cx: &mut Cx| {
                    assert_eq!(cx.core(), 2);
                    let told = Told(gone);
                    let serve = move |cx: &mut Cx, incoming: io::Result<Incoming>| {
                        let _ = &told;
                        echo(cx, incoming.unwrap());
                    };
                    let on_accept = Callback::anonymous_each(ACCEPTING, serve);
                    tell.send(cx.listen(any_port(), acceptors, on_accept).unwrap())
                        .unwrap();
                };
                poster.try_post(Color::from(2), listens).unwrap();
                beside(runtime, move |poster| {
                    let listener = told.recv().unwrap();
                    let addr = listener.local_addr();
                    poster.set_working_cores(number).unwrap();
                    for _ in 0..8 {
                        let mut client = TcpStream::connect(addr.clone()).unwrap();
                        client.write_all(b"accepted").unwrap();
                        client.read_exact(&mut [0; 8]).unwrap();
                    }
                    listener.close();
                    dropped.recv_timeout(crate::common::LONG).unwrap();
                    assert!(TcpStream::connect(addr).is_err(), "nobody listens any more");
                });
            }
        }
    }
}

/// The processors that the process may use are followed, if that is asked for.
#[test]
fn the_processors_of_the_process_are_followed() {
    let _bound = Bound::new("processors_are_followed");
    let here = rustix::thread::gettid();
    let all = rustix::thread::sched_getaffinity(None).unwrap();
    let Some(first) = (0..rustix::thread::CpuSet::MAX_CPU).find(|&cpu| all.is_set(cpu)) else {
        unreachable!("this runs somewhere");
    };
    let mut one = rustix::thread::CpuSet::new();
    one.set(first);
    let available = thread::available_parallelism().unwrap().get();
    let builder = cores(available + 1).pin(false).follow_processors(true);
    let runtime = builder.build().unwrap();
    beside(runtime, move |poster| {
        // What the runtime sees is the mask of the thread that runs it.
        for (mask, number) in [(all, available), (one, 1), (all, available)] {
            rustix::thread::sched_setaffinity(Some(here), &mask).unwrap();
            eventually("the number", || poster.stats().working_cores == number);
        }
        poster.set_working_cores(available + 1).unwrap();
        rustix::thread::sched_setaffinity(Some(here), &one).unwrap();
        eventually("the number", || poster.stats().working_cores == 1);
    });
    rustix::thread::sched_setaffinity(None, &all).unwrap();
}
