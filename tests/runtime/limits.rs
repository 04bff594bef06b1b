//! Bounds: of queued events, of settings, of closures' sizes, of memory.

mod memory;
mod settings;

use crate::common::calls::Calls;
use crate::common::{Alive, Bound, LONG, cores, eventually};
use mely::Post;
use mely::Reason;
use mely::net::{Acceptors, RecvBuf, Stream};
use mely::runtime::OnPanic;
use mely::{Callback, Color, Colored, Cx, Handler, Rejected, Runtime};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// Whatever cores and posters keep in stock, this many events fit.
#[test]
fn as_many_events_fit_as_were_asked_for() {
    let _bound = Bound::new("as_many_events_fit");
    for limit in [1, 300, 1_000] {
        cores(2)
            .events_max(limit)
            .build()
            .unwrap()
            .run(move |cx| {
                for i in 0..limit {
                    let posted = cx.try_post(Color::from(i as u64), |_cx| ());
                    assert!(posted.is_ok(), "{i} of {limit} events");
                }
                cx.stop();
            })
            .unwrap();
    }
}

#[test]
fn at_the_limit_closures_come_back_and_nothing_is_lost() {
    let _bound = Bound::new("at_the_limit");
    let alive = Alive::default();
    let given = alive.clone();
    let ran = Arc::new(AtomicU64::new(0));
    let (count, accepted) = (Arc::clone(&ran), Arc::new(AtomicU64::new(0)));
    let told = Arc::clone(&accepted);
    cores(2)
        .events_max(1_000)
        .build()
        .unwrap()
        .run(move |cx| {
            loop {
                let (payload, count) = (given.payload(), Arc::clone(&count));
                let event = move |_cx: &mut Cx| {
                    drop(payload);
                    count.fetch_add(1, Ordering::Relaxed);
                };
                match cx.try_post(Color::DEFAULT, event) {
                    Ok(()) => drop(accepted.fetch_add(1, Ordering::Relaxed)),
                    Err(error) => {
                        assert!(
                            matches!(
                                error,
                                Rejected {
                                    reason: Reason::Full,
                                    ..
                                }
                            ),
                            "{error:?}"
                        );
                        assert!(error.to_string().contains("limit of queued events"));
                        // Whole: it runs when called.
                        (error.value)(cx);
                        accepted.fetch_add(1, Ordering::Relaxed);
                        break;
                    }
                }
            }
            // Inside a handler a poster is no way around the limit.
            let refused = cx.poster().try_post(Color::from(1), |_cx| ());
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
            cx.stop();
        })
        .unwrap();
    let accepted = told.load(Ordering::Relaxed);
    // What two cores and foreign threads may have in stock comes on top, and the event that came
    // back.
    assert!((1_000..=1_019).contains(&accepted), "{accepted}");
    assert_eq!(ran.load(Ordering::Relaxed), accepted);
    assert_eq!(alive.count(), 0);
}

#[test]
fn posting_beyond_the_limit_panics_with_the_reason() {
    let _bound = Bound::new("posting_beyond_the_limit");
    let alive = Alive::default();
    let given = alive.clone();
    let runtime = cores(1).events_max(100).build().unwrap();
    // A drop that panics in its turn would otherwise end the process.
    struct Dropped(Arc<AtomicBool>);
    impl Drop for Dropped {
        fn drop(&mut self) {
            let panicking = std::thread::panicking();
            self.0.fetch_or(panicking, Ordering::Relaxed);
        }
    }
    let by_the_panic = Arc::new(AtomicBool::new(false));
    let told = Arc::clone(&by_the_panic);
    let outcome = runtime.run(move |cx| {
        loop {
            let held = (given.payload(), Dropped(Arc::clone(&told)));
            cx.post(Color::from(1), move |_cx| drop(held));
        }
    });
    let text = outcome.unwrap_err().to_string();
    assert!(text.contains("Builder::events_max"), "{text}");
    assert_eq!(alive.count(), 0, "also the refused closure is freed");
    assert!(
        !by_the_panic.load(Ordering::Relaxed),
        "and before the panic"
    );
}

/// Every way in which a handler posts without a `Result` may go beyond the limit.
#[test]
fn a_handler_goes_beyond_the_limit_in_every_way() {
    static NAMED: Handler = Handler::new("named");
    let _bound = Bound::new("a_handler_goes_beyond");
    let ran = Arc::new(AtomicU64::new(0));
    let counts = Arc::clone(&ran);
    let accepted = Arc::new(AtomicU64::new(0));
    let fills = Arc::clone(&accepted);
    let runtime = cores(1).events_max(100).exit_when_idle(true);
    let runtime = runtime.build().unwrap();
    runtime
        .run(move |cx| {
            let count = || {
                let ran = Arc::clone(&counts);
                move || {
                    ran.fetch_add(1, Ordering::Relaxed);
                }
            };
            let first = Colored::new(cx, Color::from(2), 0u64);
            let second = Colored::new(cx, Color::from(3), [0u8; 300]);
            let fill = |cx: &Cx| {
                let count = count();
                cx.try_post(Color::from(1), move |_cx| count()).is_ok()
            };
            while fill(cx) {
                fills.fetch_add(1, Ordering::Relaxed);
            }
            let large = [7u8; 500];
            let (a, b, c, d, e, f) = (count(), count(), count(), count(), count(), count());
            let (g, h, i, j, k) = (count(), count(), count(), count(), count());
            cx.post(Color::from(4), move |_cx| a());
            cx.post(Color::from(4), move |_cx| {
                assert_eq!((b(), large[499]), ((), 7))
            });
            NAMED.on(Color::from(4), move |_cx| c()).post(cx);
            first.post(cx, move |_, _cx| d());
            first.via(&NAMED).post(cx, move |_, _cx| e());
            second.post(cx, move |_, _cx| assert_eq!((f(), large[499]), ((), 7)));
            let asked = first.ask(cx, move |_, _cx| g());
            let also = cx.ask(Color::from(5), move |_cx| h());
            let task = cx.spawn(Color::from(6), async move { i() });
            cx.read(&first, move |_, _cx| j());
            cx.with_all((&first, &second), move |_, _cx| k());
            assert!(!fill(cx), "it is at the limit all the same");
            for handle in [asked, also, task] {
                handle.then(
                    cx,
                    NAMED.on_value(Color::from(7), |_cx, it| assert_eq!(it, Ok(()))),
                );
            }
        })
        .unwrap();
    let expected = accepted.load(Ordering::Relaxed) + 11;
    assert_eq!(ran.load(Ordering::Relaxed), expected);
}

/// A refusal that drops something which panics leaves the limit as it was.
#[test]
fn a_panic_at_the_limit_leaves_the_limit() {
    let _bound = Bound::new("a_panic_at_the_limit");
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            assert!(std::thread::panicking(), "planted");
        }
    }
    let other = cores(1).build().unwrap();
    let gone = Colored::new(&other.poster(), Color::from(1), 0);
    drop(other);
    let mut simulation = cores(1)
        .events_max(100)
        .on_panic(OnPanic::DropEvent)
        .exit_when_idle(true)
        .simulate(1)
        .unwrap();
    simulation
        .run(move |cx| {
            let full = |cx: &Cx| cx.try_post(Color::from(2), |_cx| ()).is_err();
            while !full(cx) {}
            let bomb = Bomb;
            let post = std::panic::AssertUnwindSafe(|| gone.post(cx, move |_, _cx| drop(bomb)));
            assert!(std::panic::catch_unwind(post).is_err());
            assert!(full(cx));
        })
        .unwrap();
}

/// Of a small limit the reserve is 64 events, of a large one an eighth.
#[test]
fn the_reserve_beyond_the_limit_has_a_limit() {
    let _bound = Bound::new("the_reserve");
    for (limit, reserve) in [(100, 64), (1_600, 200)] {
        let posted = Arc::new(AtomicU64::new(0));
        let counts = Arc::clone(&posted);
        let runtime = cores(1).events_max(limit).on_panic(OnPanic::Stop);
        let outcome = runtime.build().unwrap().run(move |cx| {
            while cx.try_post(Color::from(1), |_cx| ()).is_ok() {}
            loop {
                cx.post(Color::from(1), |_cx| ());
                counts.fetch_add(1, Ordering::Relaxed);
            }
        });
        let text = outcome.unwrap_err().to_string();
        assert!(text.contains("Builder::events_max"), "{text}");
        // The first event of a run has a reserved node itself, or not.
        let posted = posted.load(Ordering::Relaxed);
        assert!(posted.abs_diff(reserve) <= 1, "{posted} of {reserve}");
    }
}

/// Foreign threads are held at the limit, and go on when there is room.
#[test]
fn foreign_threads_at_the_limit() {
    const EACH: u64 = 20_000;
    let _bound = Bound::new("foreign_threads_at_the_limit");
    let runtime = cores(2).events_max(500).build().unwrap();
    let ran = Arc::new(AtomicU64::new(0));
    // Not before the first event is in: it would find no room.
    let begin = Arc::new(std::sync::Barrier::new(4));
    let threads: Vec<_> = (0..3u64)
        .map(|thread| {
            let (poster, ran) = (runtime.poster(), Arc::clone(&ran));
            let begin = Arc::clone(&begin);
            std::thread::spawn(move || {
                begin.wait();
                let (mut full, next) = (0u64, Arc::new(AtomicU64::new(0)));
                for i in 0..EACH {
                    let (ran, next) = (Arc::clone(&ran), Arc::clone(&next));
                    let mut event = move |_cx: &mut Cx| {
                        assert_eq!(next.fetch_add(1, Ordering::Relaxed), i, "order");
                        ran.fetch_add(1, Ordering::Relaxed);
                    };
                    while let Err(error) = poster.try_post(Color::from(thread), event) {
                        event = error.value;
                        full += 1;
                        std::thread::yield_now();
                    }
                }
                full
            })
        })
        .collect();
    let (poster, count) = (runtime.poster(), Arc::clone(&ran));
    let stopper = std::thread::spawn(move || {
        eventually("all events", || count.load(Ordering::Relaxed) == 3 * EACH);
        poster.stop();
    });
    let first = move |_cx: &mut Cx| {
        begin.wait();
    };
    runtime.run(first).unwrap();
    let _full: u64 = threads.into_iter().map(|t| t.join().unwrap()).sum();
    stopper.join().unwrap();
    assert_eq!(ran.load(Ordering::Relaxed), 3 * EACH);
}

/// What was posted before the run fills the queues: the first event has its place all the same.
#[test]
fn full_before_the_first_event() {
    let _bound = Bound::new("full_before_the_first");
    let runtime = cores(1).events_max(1).build().unwrap();
    let poster = runtime.poster();
    let (alive, ran) = (Alive::default(), Arc::new(AtomicU64::new(0)));
    let mut accepted = 0;
    loop {
        let (payload, ran) = (alive.payload(), Arc::clone(&ran));
        let event = move |_cx: &mut Cx| {
            drop(payload);
            ran.fetch_add(1, Ordering::Relaxed);
        };
        if poster.try_post(Color::from(1), event).is_err() {
            break;
        }
        accepted += 1;
    }
    runtime.run(|cx| cx.stop()).unwrap();
    assert_eq!(ran.load(Ordering::Relaxed), accepted);
    assert_eq!(alive.count(), 0);
}

/// Events that fill the queues for ever, each posting itself again, up to the limit.
fn repost(cx: &mut Cx, own: Color, done: &Arc<AtomicBool>) {
    if !done.load(Ordering::Relaxed) {
        let done = Arc::clone(done);
        cx.post(own, move |cx| repost(cx, own, &done));
    }
}

fn fill_with_reposts(cx: &mut Cx, done: &Arc<AtomicBool>) {
    for i in 0.. {
        let (own, done) = (Color::from(100 + i % 7), Arc::clone(done));
        let event = move |cx: &mut Cx| repost(cx, own, &done);
        if cx.try_post(own, event).is_err() {
            return;
        }
    }
}

#[test]
fn timers_fire_at_the_limit() {
    for seed in 0..10 {
        let mut simulation = Runtime::builder()
            .cores(1 + seed as usize % 3)
            .events_max(20)
            .simulate(seed)
            .unwrap();
        simulation.set_steps_max(100_000);
        simulation
            .run(|cx| {
                let done = Arc::new(AtomicBool::new(false));
                fill_with_reposts(cx, &done);
                // More of them than there is room for, at once.
                let left = Arc::new(AtomicU64::new(50));
                for _ in 0..50 {
                    let (left, done) = (Arc::clone(&left), Arc::clone(&done));
                    let fires = move |cx: &mut Cx| {
                        if left.fetch_sub(1, Ordering::Relaxed) == 1 {
                            done.store(true, Ordering::Relaxed);
                            cx.stop();
                        }
                    };
                    let after = Duration::from_micros(10);
                    cx.timer(after, Callback::anonymous(Color::from(1), fires));
                }
            })
            .unwrap();
        // Reserved nodes are used again, and nothing else goes beyond the limit.
        let bytes = simulation.stats().event_bytes;
        assert!(bytes <= 256 * 64, "{bytes} bytes");
    }
}

/// Work that fills the queues again and again does not keep the network out for ever.
#[test]
fn completions_come_through_at_the_limit() {
    static READ: Handler = Handler::new("read");
    let _bound = Bound::new("completions_come_through");
    for backend in crate::common::backends() {
        let runtime = cores(1).backend(backend).events_max(50).build().unwrap();
        let (tell, addr) = channel::<SocketAddr>();
        let done = Arc::new(AtomicBool::new(false));
        let (poster, told) = (runtime.poster(), Arc::clone(&done));
        let client = std::thread::spawn(move || {
            let mut client = TcpStream::connect(addr.recv().unwrap()).unwrap();
            client.set_read_timeout(Some(LONG)).unwrap();
            for i in 0..10 {
                client.write_all(&[i]).unwrap();
                let mut back = [0];
                client.read_exact(&mut back).unwrap();
                assert_eq!(back, [i]);
            }
            told.store(true, Ordering::Relaxed);
            poster.stop();
        });
        runtime
            .run(move |cx| {
                let serve = |_: &mut Cx, incoming: std::io::Result<mely::net::Incoming>| {
                    let stream = incoming.unwrap().open(Color::from(1));
                    let echo =
                        |cx: &mut Cx, stream: &Stream, data: std::io::Result<Option<RecvBuf>>| {
                            if let Ok(Some(data)) = data {
                                let _ = stream.write(cx, data.to_vec());
                            }
                        };
                    Calls::new(echo).serve(stream, &READ);
                };
                let on_accept = Callback::anonymous_each(Color::from(1), serve);
                let any = "127.0.0.1:0";
                let listener = cx.listen(any, Acceptors::PerCore, on_accept).unwrap();
                tell.send(listener.local_addr().ip().unwrap()).unwrap();
                // When the listener accepts.
                cx.post(Color::from(99), move |cx| fill_with_reposts(cx, &done));
            })
            .unwrap();
        client.join().unwrap();
    }
}

/// With no room for another event, what the network brings waits and is not lost.
#[test]
fn completions_wait_for_room() {
    static READ: Handler = Handler::new("read");
    const CLIENTS: usize = 20;
    let _bound = Bound::new("completions_wait_for_room");
    for backend in crate::common::backends() {
        let runtime = cores(1).backend(backend).events_max(200).build().unwrap();
        let poster = runtime.poster();
        let (tell, addr) = channel::<SocketAddr>();
        let clients = std::thread::spawn(move || {
            let addr = addr.recv().unwrap();
            let mut clients: Vec<_> = (0..CLIENTS)
                .map(|_| TcpStream::connect(addr).unwrap())
                .collect();
            for (i, client) in clients.iter_mut().enumerate() {
                client.set_read_timeout(Some(LONG)).unwrap();
                client.write_all(&[i as u8; 100]).unwrap();
            }
            for (i, client) in clients.iter_mut().enumerate() {
                let mut back = [0; 100];
                client.read_exact(&mut back).unwrap();
                assert_eq!(back, [i as u8; 100]);
            }
            drop(clients);
            poster.stop();
        });
        runtime
            .run(move |cx| {
                let serve = |_: &mut Cx, incoming: std::io::Result<mely::net::Incoming>| {
                    let stream = incoming.unwrap().open(Color::from(1));
                    let echo =
                        |cx: &mut Cx, stream: &Stream, data: std::io::Result<Option<RecvBuf>>| {
                            if let Ok(Some(data)) = data {
                                let _ = stream.write(cx, data.to_vec());
                            }
                        };
                    Calls::new(echo).serve(stream, &READ);
                };
                let on_accept = Callback::anonymous_each(Color::from(1), serve);
                let any = "127.0.0.1:0";
                let listener = cx.listen(any, Acceptors::PerCore, on_accept).unwrap();
                tell.send(listener.local_addr().ip().unwrap()).unwrap();
                flood(cx, 2_000);
                // Keeps the queue at its limit for a while.
                fn flood(cx: &mut Cx, rounds: u32) {
                    if rounds > 0 {
                        while cx.try_post(Color::from(3), |_cx| ()).is_ok() {}
                        // The event that ran left room for one, which is this.
                        let last = cx.try_post(Color::from(4), move |cx| flood(cx, rounds - 1));
                        if last.is_err() {
                            // No room: try again from a timer.
                            let again = Callback::anonymous(Color::from(4), move |cx| {
                                flood(cx, rounds - 1);
                            });
                            cx.timer(Duration::ZERO, again);
                        }
                    }
                }
            })
            .unwrap();
        clients.join().unwrap();
    }
}

/// At the limit a stream that is dropped must still be closed, or peers wait for ever.
#[test]
fn a_stream_dropped_at_the_limit_is_closed() {
    static READ: Handler = Handler::new("read");
    let _bound = Bound::new("a_stream_dropped_at_the_limit");
    let runtime = cores(1).events_max(200).build().unwrap();
    let poster = runtime.poster();
    let (tell, addr) = channel::<SocketAddr>();
    let client = std::thread::spawn(move || {
        let mut client = TcpStream::connect(addr.recv().unwrap()).unwrap();
        client.set_read_timeout(Some(LONG)).unwrap();
        let end = client.read(&mut [0; 10]);
        poster.stop();
        assert_eq!(end.unwrap(), 0, "the end of the stream");
    });
    runtime
        .run(move |cx| {
            let serve = |cx: &mut Cx, incoming: std::io::Result<mely::net::Incoming>| {
                let stream = incoming.unwrap().open(Color::from(1));
                // Another event than the one that opens it, when the receive is under way.
                Calls::none().serve(stream, &READ).post(cx, |calls, cx| {
                    while cx.try_post(Color::from(1), |_cx| ()).is_ok() {}
                    drop(calls.take_stream());
                });
            };
            let on_accept = Callback::anonymous_each(Color::from(1), serve);
            let any = "127.0.0.1:0";
            let listener = cx.listen(any, Acceptors::PerCore, on_accept).unwrap();
            tell.send(listener.local_addr().ip().unwrap()).unwrap();
        })
        .unwrap();
    client.join().unwrap();
}

/// With a batch of 1 two colors of one core take turns.
#[test]
fn the_batch_threshold_shares_a_core() {
    let _bound = Bound::new("the_batch_threshold");
    let order = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&order);
    cores(1)
        .batch(1)
        .build()
        .unwrap()
        .run(move |cx| {
            for color in [1, 2] {
                for _ in 0..50 {
                    let order = Arc::clone(&order);
                    cx.post(Color::from(color), move |_cx| {
                        order.lock().unwrap().push(color)
                    });
                }
            }
            cx.stop();
        })
        .unwrap();
    let order = seen.lock().unwrap();
    assert_eq!(order.len(), 100);
    let turns = order.windows(2).filter(|w| w[0] != w[1]).count();
    assert!(turns > 50, "{order:?}");
}

/// The limit and a panic together: what is queued is freed, the runtime goes on.
#[test]
fn the_limit_with_drop_event() {
    let _bound = Bound::new("the_limit_with_drop_event");
    let ran = Arc::new(AtomicU64::new(0));
    let seen = Arc::clone(&ran);
    let runtime = cores(1)
        .events_max(300)
        .on_panic(OnPanic::DropEvent)
        .build()
        .unwrap();
    let observer = runtime.poster();
    runtime
        .run(move |cx| {
            // Not in the first event of the run, whose panic ends it.
            cx.post(Color::from(2), move |cx| {
                cx.stop();
                loop {
                    let ran = Arc::clone(&ran);
                    cx.post(Color::from(1), move |_cx| {
                        ran.fetch_add(1, Ordering::Relaxed);
                    });
                }
            });
        })
        .unwrap();
    assert!(seen.load(Ordering::Relaxed) >= 300);
    assert_eq!(observer.stats().cores[0].panics, 1);
}

/// Closures that found no profile of their own left are under the limit too, and so are the
/// reserved ones.
#[test]
fn handlers_made_at_run_time_keep_the_limit() {
    const MANY: usize = (1 << 14) + 100;
    const TIMERS: usize = 200;
    fn fresh() -> &'static Handler {
        Box::leak(Box::new(Handler::new("made at run time")))
    }
    fn use_up(cx: &mut Cx, left: usize, then: impl FnOnce(&mut Cx) + Send + 'static) {
        let again = move |cx: &mut Cx| match left {
            0 => then(cx),
            _ => use_up(cx, left - 1, then),
        };
        let again: Box<dyn FnOnce(&mut Cx) + Send> = Box::new(again);
        fresh().on(Color::from(1), again).post(cx);
    }
    let accepted = Arc::new(AtomicU64::new(0));
    let told = Arc::clone(&accepted);
    let mut simulation = Runtime::builder()
        .cores(1)
        .events_max(100)
        .simulate(1)
        .unwrap();
    let fill = move |cx: &mut Cx| {
        let mut events = 0;
        while cx.try_post(Color::from(2), |_cx| ()).is_ok() {
            events += 1;
            assert!(events < 1_000, "there is no limit any more");
        }
        events
    };
    simulation
        .run(move |cx| {
            use_up(cx, MANY, move |cx| {
                let left = Arc::new(AtomicU64::new(TIMERS as u64));
                for _ in 0..TIMERS {
                    let (left, told) = (Arc::clone(&left), Arc::clone(&told));
                    let fires = move |cx: &mut Cx| {
                        if left.fetch_sub(1, Ordering::Relaxed) > 1 {
                            return;
                        }
                        // All have run that were beyond the limit.
                        cx.post(Color::from(2), move |cx| {
                            told.store(fill(cx), Ordering::Relaxed);
                            cx.stop();
                        });
                    };
                    cx.timer(Duration::from_micros(10), fresh().on(Color::from(3), fires));
                }
                mely::sim::work(cx, Duration::from_micros(50));
                fill(cx);
            });
        })
        .unwrap();
    let accepted = accepted.load(Ordering::Relaxed);
    // Two of each of three sizes come on top, for the core and for all other threads.
    assert!((90..=112).contains(&accepted), "{accepted}");
}
