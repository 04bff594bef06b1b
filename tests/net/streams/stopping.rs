//! Connections at the end of a run.

use super::{BIG, READ, counted, counting, pattern, settle, simulated_accept, with_stream};
use crate::common::calls::Calls;
use crate::common::wire::{ACCEPTING, Client, all_backends, any_port, on, with_server};
use crate::common::{Alive, Bound, LONG, backends};
use mely::Post;
use mely::net::{Acceptors, Incoming, RecvBuf, Stream};
use mely::runtime::OnPanic;
use mely::sim::Step;
use mely::{Callback, Color, Cx, RunError, Runtime};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A run that is cut short cuts answers off, and the peers are told.
#[test]
fn what_the_end_of_a_run_cuts_off_is_reset() {
    for backend in all_backends() {
        let _bound = crate::common::Bound::new("what_the_end_of_a_run_cuts_off");
        let builder = on(&backend).drain_deadline(Duration::from_millis(20));
        let runtime = builder.build().unwrap();
        let (tell, addr) = channel();
        let (at, poster) = (backend.clone(), runtime.poster());
        let client = std::thread::spawn(move || {
            let addr = addr.recv().unwrap();
            // One that reads nothing, and one that was sent everything.
            let (mut cut, mut whole) = (Client::connect(&at, addr), Client::connect(&at, addr));
            whole.write_all(b"?").unwrap();
            assert_eq!(whole.exactly(2), b"ok");
            cut.write_all(b"!").unwrap();
            cut.exactly(1);
            poster.stop();
            (cut, whole)
        });
        let over = runtime.run(move |cx| {
            let serve = |_: &mut Cx, incoming: io::Result<Incoming>| {
                let answer = |cx: &mut Cx, stream: &Stream, data: io::Result<Option<RecvBuf>>| {
                    match data.ok().flatten().as_deref() {
                        Some(b"?") => stream.write(cx, "ok").unwrap(),
                        Some(b"!") => stream.write(cx, pattern(BIG)).unwrap(),
                        // Stays open, for the stop.
                        _ => {}
                    }
                };
                Calls::new(answer).serve(incoming.unwrap().open_unique(), &READ);
            };
            let on_accept = Callback::anonymous_each(Color::from(1), serve);
            let listener = cx
                .listen(any_port(), Acceptors::PerCore, on_accept)
                .unwrap();
            tell.send(listener.local_addr().ip().unwrap()).unwrap();
        });
        assert!(matches!(over, Err(RunError::Deadline { .. })), "{over:?}");
        let (mut cut, mut whole) = client.join().unwrap();
        let error = cut.read_to_end(&mut Vec::new()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{backend:?}");
        assert_eq!(whole.rest(), b"", "{backend:?}");
    }
}

/// A stop cancels receives, says so, and the run ends well although connections are open.
#[test]
fn a_stop_with_open_connections() {
    for backend in all_backends() {
        let at = backend.clone();
        let alive = Alive::default();
        let given = alive.clone();
        let codes = Arc::new(Mutex::new(Vec::new()));
        let seen = Arc::clone(&codes);
        let serve = move |_: &mut Cx, incoming: Incoming| {
            let (codes, payload) = (Arc::clone(&codes), given.payload());
            let report = move |cx: &mut Cx, stream: &Stream, data: io::Result<Option<RecvBuf>>| {
                let _payload = &payload;
                match data {
                    Ok(data) => {
                        let data = data.unwrap();
                        stream.write(cx, data.to_vec()).unwrap();
                        // Some of them are paused when the end comes.
                        if data[0] % 2 == 0 {
                            stream.pause(cx).unwrap();
                        }
                    }
                    Err(error) => codes.lock().unwrap().push(error.raw_os_error()),
                }
            };
            Calls::new(report).serve(incoming.open_unique(), &READ);
        };
        let (clients, runtime) = with_server("a_stop", on(&backend), serve, move |addr| {
            let mut clients: Vec<_> = (0..10).map(|_| Client::connect(&at, addr)).collect();
            for (i, client) in clients.iter_mut().enumerate() {
                client.write_all(&[i as u8]).unwrap();
                assert_eq!(client.exactly(1), [i as u8]);
            }
            clients
        });
        for mut client in clients {
            assert_eq!(client.rest(), b"", "closed by the end of the run");
        }
        let canceled = Some(rustix::io::Errno::CANCELED.raw_os_error());
        assert_eq!(*seen.lock().unwrap(), vec![canceled; 10]);
        assert_eq!(alive.count(), 0, "callbacks are freed");
        drop(runtime);
    }
}

/// A send that a stalled peer keeps from ending ends with the deadline.
#[test]
fn a_stalled_peer_at_a_stop_costs_the_deadline() {
    for backend in backends() {
        let _bound = Bound::new("a_stalled_peer");
        let runtime = on(&backend)
            .drain_deadline(Duration::from_millis(200))
            .build()
            .unwrap();
        let listener = TcpListener::bind(any_port()).unwrap();
        let addr = listener.local_addr().unwrap();
        let outcome = runtime.run(move |cx| {
            let connected = |_: &mut Cx, incoming: io::Result<Incoming>| {
                let stream = incoming.unwrap().open_unique();
                Calls::none().open(stream, &READ, |cx, stream| {
                    stream.write(cx, pattern(BIG)).unwrap();
                    cx.stop();
                });
            };
            cx.connect(
                addr,
                LONG,
                Callback::anonymous_value(Color::from(3), connected),
            )
            .unwrap();
        });
        assert!(
            matches!(outcome, Err(RunError::Deadline { .. })),
            "{outcome:?}"
        );
        // What the runtime left behind is closed: the peer sees its end.
        let (mut peer, _) = listener.accept().unwrap();
        peer.set_read_timeout(Some(LONG)).unwrap();
        let mut got = Vec::new();
        let _ = peer.read_to_end(&mut got);
        assert!(got.len() < BIG);
    }
}

/// The peer of a stream that the program keeps beyond the run hears of the end all the same: as an
/// end, or as a reset if it was not sent all.
#[test]
fn a_stream_that_is_kept_beyond_the_run_is_closed() {
    let _bound = Bound::new("a_stream_that_is_kept");
    for backend in backends() {
        for (bytes, whole) in [(5, true), (64 << 20, false)] {
            let kept = Arc::new(Mutex::new((Vec::new(), None)));
            let (keep, listeners) = (Arc::clone(&kept), Arc::clone(&kept));
            let (tell, told) = channel::<SocketAddr>();
            let (end, ended) = channel();
            let builder = on(&backend).drain_deadline(Duration::from_millis(100));
            let runtime = builder.build().unwrap();
            let client = std::thread::spawn(move || {
                let mut client = TcpStream::connect(told.recv().unwrap()).unwrap();
                client.set_read_timeout(Some(LONG)).unwrap();
                client.read_exact(&mut [0]).unwrap();
                ended.recv().unwrap();
                std::io::copy(&mut client, &mut std::io::sink())
            });
            let ran = runtime.run(move |cx| {
                let accept = move |cx: &mut Cx, incoming: io::Result<Incoming>| {
                    let keep = Arc::clone(&keep);
                    with_stream(cx, incoming.unwrap(), move |cx, stream| {
                        stream.set_write_limit(cx, usize::MAX).unwrap();
                        stream.write(cx, vec![0; bytes]).unwrap();
                        keep.lock().unwrap().0.push(stream);
                        let stop = |cx: &mut Cx| cx.stop();
                        let after = Callback::anonymous(cx.color(), stop);
                        cx.timer(Duration::from_millis(20), after);
                    });
                };
                let on_accept = Callback::anonymous_each(Color::from(1), accept);
                let listener = cx.listen(any_port(), Acceptors::Single, on_accept).unwrap();
                tell.send(listener.local_addr().ip().unwrap()).unwrap();
                listeners.lock().unwrap().1 = Some(listener);
            });
            assert_eq!(ran.is_ok(), whole, "{ran:?}");
            assert_eq!(kept.lock().unwrap().0.len(), 1);
            end.send(()).unwrap();
            let read = client.join().unwrap().map_err(|error| error.kind());
            match whole {
                true => assert_eq!(read, Ok(4)),
                false => assert_eq!(read, Err(ErrorKind::ConnectionReset)),
            }
        }
    }
}

/// So does the peer of a connection that has no color yet, and its number is not taken for that of
/// another descriptor.
#[test]
fn an_incoming_that_is_kept_beyond_the_run_is_closed() {
    let _bound = Bound::new("an_incoming_that_is_kept");
    for backend in backends() {
        let (keep, kept) = channel();
        let (tell, told) = channel::<SocketAddr>();
        let client = std::thread::spawn(move || {
            let mut client = TcpStream::connect(told.recv().unwrap()).unwrap();
            client.set_read_timeout(Some(LONG)).unwrap();
            client.read(&mut [0])
        });
        let runtime = on(&backend).build().unwrap();
        let ran = runtime.run(move |cx| {
            let accept = move |cx: &mut Cx, incoming: io::Result<Incoming>| {
                let incoming = incoming.unwrap();
                incoming.peer_addr().unwrap();
                keep.send(incoming).unwrap();
                cx.stop();
            };
            let on_accept = Callback::anonymous_each(Color::from(1), accept);
            let listener = cx.listen(any_port(), Acceptors::Single, on_accept).unwrap();
            tell.send(listener.local_addr().ip().unwrap()).unwrap();
        });
        ran.unwrap();
        let incoming = kept.recv().unwrap();
        assert_eq!(client.join().unwrap().unwrap(), 0);
        // The number is given to the next that is opened.
        let other = std::net::TcpListener::bind(any_port()).unwrap();
        let addr = incoming.local_addr().map_err(|error| error.kind());
        assert_eq!(addr, Err(ErrorKind::NotConnected));
        drop(incoming.open_unique());
        assert!(other.local_addr().is_ok(), "closed twice");
    }
}

/// Panics when it is dropped.
struct Bomb(Arc<AtomicUsize>);

impl Drop for Bomb {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
        panic!("when dropped");
    }
}

/// However their connection ends: a second panic while the first one unwinds would end the process.
#[test]
fn sessions_that_panic_when_dropped_are_all_dropped() {
    for backend in all_backends() {
        let (at, dropped) = (backend.clone(), Arc::new(AtomicUsize::new(0)));
        let drops = Arc::clone(&dropped);
        let builder = on(&backend).on_panic(OnPanic::DropEvent).panic_hook(|_| ());
        let serve = move |_: &mut Cx, incoming: Incoming| {
            let bomb = Bomb(Arc::clone(&drops));
            let drops = Arc::clone(&drops);
            let answer = move |cx: &mut Cx, stream: &Stream, data: io::Result<Option<RecvBuf>>| {
                let _bomb = &bomb;
                let Ok(Some(data)) = data else { return };
                if &*data == b"panic" {
                    // Dropped with the connection, as the session is.
                    let bomb = Bomb(Arc::clone(&drops));
                    let never = READ.on(stream.color(), move |_: &mut Cx| drop(bomb));
                    stream.after_received(cx, never).unwrap();
                    panic!("as asked");
                }
                stream.write(cx, data.to_vec()).unwrap();
                if &*data == b"close" {
                    stream.close(cx);
                }
            };
            Calls::new(answer).serve(incoming.open_unique(), &READ);
        };
        with_server("sessions_that_panic", builder, serve, move |addr| {
            let mut clients: Vec<_> = (0..4).map(|_| Client::connect(&at, addr)).collect();
            for client in &mut clients {
                client.write_all(b"hello").unwrap();
                assert_eq!(client.exactly(5), b"hello");
            }
            clients[0].write_all(b"panic").unwrap();
            clients[0].is_reset();
            clients[1].write_all(b"close").unwrap();
            assert_eq!(clients[1].exactly(5), b"close");
            drop(clients.pop());
            clients[2].write_all(b"still").unwrap();
            assert_eq!(clients[2].exactly(5), b"still");
        });
        assert_eq!(dropped.load(Ordering::Relaxed), 5, "{backend:?}");
    }
}

/// The stream's core has nothing under way, and may have begun to rest long before another one runs
/// the event that asks for the end.
#[test]
fn a_paused_stream_is_told_of_the_end_of_a_run_that_ends_by_itself() {
    for seed in 0..40 {
        let builder = Runtime::builder().cores(2);
        let mut simulation = builder.exit_when_idle(true).simulate(seed).unwrap();
        let (canceled, listens) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(None)));
        let (tell, addr) = channel();
        let (its, until) = (Arc::clone(&canceled), Arc::clone(&listens));
        let begin = move |cx: &mut Cx| {
            let serve = move |cx: &mut Cx, incoming: io::Result<Incoming>| {
                drop(until.lock().unwrap().take());
                let its = Arc::clone(&its);
                let read = move |_: &mut Cx, _: &Stream, data: io::Result<Option<RecvBuf>>| {
                    assert!(data.is_err());
                    its.fetch_add(1, Ordering::Relaxed);
                };
                let session = Calls::new(read).serve(incoming.unwrap().open_unique(), &READ);
                session.post(cx, |calls, cx| calls.stream().pause(cx).unwrap());
            };
            let on_accept = Callback::anonymous_each(ACCEPTING, serve);
            let listener = cx.listen(any_port(), Acceptors::Single, on_accept).unwrap();
            tell.send(listener.local_addr()).unwrap();
            *listens.lock().unwrap() = Some(listener);
        };
        simulation.start(begin).unwrap();
        let poster = simulation.poster();
        let keep_alive = poster.strong().unwrap();
        while simulation.step() != Step::Stalled {}
        let _client = simulation.network().connect(addr.recv().unwrap()).unwrap();
        settle(&mut simulation);
        let stop = |cx: &mut Cx| cx.stop();
        keep_alive.try_post(Color::from(seed % 4), stop).unwrap();
        drop(keep_alive);
        settle(&mut simulation);
        assert_eq!(canceled.load(Ordering::Relaxed), 1, "seed {seed}");
    }
}

/// A connection that is given a color only when the end has begun is told so, and holds up nothing.
#[test]
fn opened_after_a_stop_it_is_told_the_end() {
    fn later(cx: &mut Cx, events: u32, incoming: Incoming, ends: Arc<AtomicUsize>) {
        if events > 0 {
            cx.post(cx.color(), move |cx| later(cx, events - 1, incoming, ends));
            return;
        }
        let count = move |cx: &mut Cx, _: &Stream, data: io::Result<Option<RecvBuf>>| {
            assert!(cx.stopping() && data.is_err());
            ends.fetch_add(1, Ordering::Relaxed);
        };
        Calls::new(count).serve(incoming.open(cx.color()), &READ);
    }
    let ends = Arc::new(AtomicUsize::new(0));
    let its = Arc::clone(&ends);
    let (mut simulation, _client) = simulated_accept(move |cx, incoming| {
        cx.stop();
        later(cx, 1_000, incoming, Arc::clone(&its));
    });
    settle(&mut simulation);
    simulation.end().unwrap();
    let now = simulation.now();
    assert!(now < Duration::from_secs(1), "waited until {now:?}");
    assert_eq!(ends.load(Ordering::Relaxed), 1);
}

/// A listener may be made just before the end: what begins to listen after that stops at once.
#[test]
fn a_listener_that_is_made_before_a_stop_ends_with_it() {
    for seed in 0..10 {
        let (count, alive) = (Arc::new(AtomicUsize::new(0)), Alive::default());
        let payloads = alive.clone();
        let mut simulation = Runtime::builder().cores(2).simulate(seed).unwrap();
        let listens = move |cx: &mut Cx| {
            counting(cx, &count, &payloads);
            cx.stop();
        };
        simulation.run(listens).unwrap();
        let now = simulation.now();
        assert!(now < Duration::from_secs(1), "waited until {now:?}");
        assert_eq!(alive.count(), 0, "seed {seed}");
        assert_eq!(simulation.network().open_count(), 0, "seed {seed}");
    }
}

/// A client that waits when the end begins is accepted: it may have sent a request.
#[test]
fn a_client_that_waits_at_a_stop_is_accepted() {
    let alive = Alive::default();
    let (mut simulation, [listener], [count]) = counted(8, &alive);
    let (net, addr) = (simulation.network().clone(), listener.local_addr());
    let (give, client) = channel();
    // In one handler, so that the core does not accept between the two.
    let stop = move |cx: &mut Cx| {
        give.send(net.connect(addr).unwrap()).unwrap();
        cx.stop();
    };
    simulation.poster().try_post(ACCEPTING, stop).unwrap();
    settle(&mut simulation);
    simulation.end().unwrap();
    assert_eq!((count.load(Ordering::Relaxed), alive.count()), (1, 0));
    // Its own end.
    let _client = client.recv().unwrap();
    assert_eq!(simulation.network().open_count(), 1);
}

/// What would wait for the world begins no more once the end has.
#[test]
fn nothing_new_begins_after_a_stop() {
    fn later(cx: &mut Cx, events: u32, addr: SocketAddr, tell: std::sync::mpsc::Sender<ErrorKind>) {
        if events > 0 {
            cx.post(cx.color(), move |cx| later(cx, events - 1, addr, tell));
            return;
        }
        let connected =
            Callback::anonymous_value(ACCEPTING, |_: &mut Cx, _: io::Result<Incoming>| ());
        tell.send(cx.connect(addr, LONG, connected).unwrap_err().kind())
            .unwrap();
        let accept = Callback::anonymous_each(ACCEPTING, |_, _| ());
        let refused = cx.listen(any_port(), Acceptors::Single, accept);
        tell.send(refused.unwrap_err().kind()).unwrap();
        let signaled = Callback::anonymous_each(ACCEPTING, |_, ()| ());
        tell.send(cx.on_stop_signal(signaled).unwrap_err().kind())
            .unwrap();
    }
    let (tell, told) = channel();
    let mut simulation = Runtime::builder().simulate(6).unwrap();
    simulation
        .run(move |cx| {
            cx.stop();
            later(cx, 1_000, "127.0.0.1:9".parse().unwrap(), tell);
        })
        .unwrap();
    let canceled = io::Error::from(rustix::io::Errno::CANCELED).kind();
    assert_eq!(told.iter().collect::<Vec<_>>(), [canceled; 3]);
}
