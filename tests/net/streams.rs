//! Connections through the public face, on every backend.

mod closing;
mod connecting;
mod listening;
mod pausing;
mod stopping;
mod vectored;

use crate::common::calls::Calls;
use crate::common::wire::{ACCEPTING, Client, all_backends, any_port, on, with_server};
use crate::common::{Alive, LONG, backends, cores, eventually};
use mely::Post;
use mely::Reason;
use mely::net::{Acceptors, Backend, Incoming, RecvBuf, SendBuf, SimClient, Stream};
use mely::runtime::Stealing;
use mely::sim::{Simulation, Step};
use mely::{Callback, Color, Cx, Handler, Rejected, Runtime};
use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

static READ: Handler = Handler::new("read");

/// One that is known to be short.
static KNOWN: Handler = Handler::new("known").time(Duration::from_nanos(50));

/// Runs `f` in the color of a fresh stream of its own.
fn with_stream<F>(cx: &mut Cx, incoming: Incoming, f: F)
where
    F: FnOnce(&mut Cx, Stream) + Send + 'static,
{
    let stream = incoming.open_unique();
    cx.post(stream.color(), move |cx| f(cx, stream));
}

fn echo(_cx: &mut Cx, incoming: Incoming) {
    let answer = |cx: &mut Cx, stream: &Stream, data: io::Result<Option<RecvBuf>>| {
        if let Ok(Some(data)) = data {
            stream.write(cx, data.to_vec()).unwrap();
        }
    };
    Calls::new(answer).serve(incoming.open_unique(), &READ);
}

/// Bytes that show it if one is missing, doubled or moved.
fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(pattern_at).collect()
}

fn pattern_at(i: usize) -> u8 {
    (i ^ (i >> 8) ^ (i >> 16)) as u8
}

const BIG: usize = 32 << 20;

/// As many bytes as are not taken at once; fewer where the network is simulated.
fn big(backend: &Backend) -> usize {
    match backend {
        Backend::Sim(_) => 300_000,
        _ => BIG,
    }
}

#[test]
fn echoes() {
    for backend in all_backends() {
        let at = backend.clone();
        with_server("echoes", on(&backend), echo, move |addr| {
            let mut clients: Vec<_> = (0..5).map(|_| Client::connect(&at, addr)).collect();
            for round in 0..20u8 {
                for (i, client) in clients.iter_mut().enumerate() {
                    client.write_all(&[round, i as u8, 0, 255]).unwrap();
                }
                for (i, client) in clients.iter_mut().enumerate() {
                    assert_eq!(client.exactly(4), [round, i as u8, 0, 255]);
                }
            }
            for mut client in clients {
                client.shutdown_write();
                assert_eq!(client.rest(), b"", "closed after the peer has closed");
            }
        });
    }
}

/// An echo server that takes no more than it can send: pauses at `Full`, goes on when drained.
fn bounded_echo(cx: &mut Cx, incoming: Incoming, fulls: Arc<AtomicUsize>) {
    with_stream(cx, incoming, |cx, stream| {
        stream.set_write_limit(cx, 64 << 10).unwrap();
        let held: Arc<Mutex<VecDeque<SendBuf>>> = Arc::default();
        let take = Arc::clone(&held);
        let send_held = move |cx: &mut Cx, stream: &Stream| {
            assert_eq!(stream.queued_bytes(cx), Ok(0));
            let mut held = take.lock().unwrap();
            while let Some(bytes) = held.pop_front() {
                match stream.write(cx, bytes) {
                    Ok(()) => {}
                    Err(Rejected {
                        reason: Reason::NoRoom,
                        value: bytes,
                    }) => return held.push_front(bytes),
                    Err(error) => panic!("{error}"),
                }
            }
            stream.resume(cx).unwrap();
        };
        let answer = move |cx: &mut Cx, stream: &Stream, data: io::Result<Option<RecvBuf>>| {
            let data = match data {
                Ok(Some(data)) => data,
                Ok(None) => return,
                Err(_) if cx.stopping() => return,
                Err(error) => panic!("{error}"),
            };
            assert!(stream.queued_bytes(cx).unwrap() <= (64 << 10));
            let mut held = held.lock().unwrap();
            if !held.is_empty() {
                // Received before the pause got through.
                held.push_back(data.to_vec().into());
                return;
            }
            match stream.write(cx, data.to_vec()) {
                Ok(()) => {}
                Err(Rejected {
                    reason: Reason::NoRoom,
                    value: bytes,
                }) => {
                    fulls.fetch_add(1, Ordering::Relaxed);
                    assert_eq!(&*bytes, &*data, "given back whole");
                    held.push_back(bytes);
                    stream.pause(cx).unwrap();
                }
                Err(error) => panic!("{error}"),
            }
        };
        Calls::new(answer)
            .on_drained(send_held)
            .serve(stream, &READ);
    });
}

#[test]
fn much_both_ways_with_a_slow_reader() {
    for backend in backends() {
        let fulls = Arc::new(AtomicUsize::new(0));
        let (counted, at) = (Arc::clone(&fulls), backend.clone());
        let serve = move |cx: &mut Cx, incoming| bounded_echo(cx, incoming, Arc::clone(&counted));
        with_server("much_both_ways", on(&backend), serve, move |addr| {
            let Client::Tcp(mut writer) = Client::connect(&at, addr) else {
                unreachable!()
            };
            let mut reader = Client::Tcp(writer.try_clone().unwrap());
            let writing = std::thread::spawn(move || {
                // No end of the stream: the connection is closed after it, and what the server
                // holds back would be lost.
                writer.write_all(&pattern(BIG)).unwrap();
            });
            // Reads nothing until the server has too much.
            eventually("back-pressure", || fulls.load(Ordering::Relaxed) > 0);
            let back = reader.exactly(BIG);
            assert!(back == pattern(BIG), "other bytes came back");
            writing.join().unwrap();
        });
    }
}

/// The same in the simulated network, with moves of a few bytes.
#[test]
fn much_in_small_pieces() {
    for seed in 0..5 {
        let net = mely::net::SimNet::new(seed);
        net.set_move_bytes_max(3_000);
        let fulls = Arc::new(AtomicUsize::new(0));
        let (counted, backend) = (Arc::clone(&fulls), Backend::Sim(net.clone()));
        let serve = move |cx: &mut Cx, incoming| bounded_echo(cx, incoming, Arc::clone(&counted));
        with_server("much_in_small_pieces", on(&backend), serve, move |addr| {
            let mut client = net.connect(addr).unwrap();
            let (all, mut sent, mut back) = (pattern(1 << 20), 0, Vec::new());
            let begun = std::time::Instant::now();
            while back.len() < all.len() {
                assert!(begun.elapsed() < LONG, "seed {seed}: {sent} {}", back.len());
                if sent < all.len()
                    && let Ok(len) = client.write(&all[sent..])
                {
                    sent += len;
                }
                let mut space = [0; 1_000];
                // Slower than it writes, until all is written.
                if (sent == all.len() || fulls.load(Ordering::Relaxed) > 0)
                    && let Ok(len) = client.read(&mut space)
                {
                    back.extend_from_slice(&space[..len]);
                }
            }
            assert!(back == all, "seed {seed}: other bytes came back");
            assert!(fulls.load(Ordering::Relaxed) > 0);
        });
    }
}

/// 10,000 requests over 1,000 connections, with identical bytes.
fn ten_thousand_requests(backend: Backend, n: usize, stealing: Stealing) {
    const CONNECTIONS: usize = 1_000;
    const REQUESTS: usize = 10;
    let _ = mely::net::raise_open_file_limit();
    let served = Arc::new(AtomicU64::new(0));
    let count = Arc::clone(&served);
    let answer = Arc::new(pattern(2_000));
    let expected = Arc::clone(&answer);
    let builder = cores(n).backend(backend.clone()).stealing(stealing);
    let serve = move |_: &mut Cx, incoming: Incoming| {
        let (count, answer) = (Arc::clone(&count), Arc::clone(&answer));
        let mut got = Vec::new();
        let reply = move |cx: &mut Cx, stream: &Stream, data: io::Result<Option<RecvBuf>>| {
            let Ok(Some(data)) = data else { return };
            got.extend_from_slice(&data);
            // Requests of 8 bytes, which may come in any pieces.
            while got.len() >= 8 {
                let mut reply: Vec<u8> = got.drain(..8).collect();
                reply.extend_from_slice(&answer);
                stream.write(cx, reply).unwrap();
                count.fetch_add(1, Ordering::Relaxed);
            }
        };
        Calls::new(reply).serve(incoming.open_unique(), &READ);
    };
    with_server("ten_thousand_requests", builder, serve, move |addr| {
        let halves = [0, 1].map(|half| {
            let (expected, backend) = (Arc::clone(&expected), backend.clone());
            std::thread::spawn(move || {
                let mut clients: Vec<_> = (0..CONNECTIONS / 2)
                    .map(|_| Client::connect(&backend, addr))
                    .collect();
                for round in 0..REQUESTS {
                    let request = |i: usize| ((half << 32 | round << 16 | i) as u64).to_le_bytes();
                    for (i, client) in clients.iter_mut().enumerate() {
                        client.write_all(&request(i)).unwrap();
                    }
                    for (i, client) in clients.iter_mut().enumerate() {
                        let reply = client.exactly(8 + expected.len());
                        assert_eq!(reply[..8], request(i));
                        assert!(reply[8..] == expected[..]);
                    }
                }
            })
        });
        for half in halves {
            half.join().unwrap();
        }
    });
    assert_eq!(
        served.load(Ordering::Relaxed),
        (CONNECTIONS * REQUESTS) as u64
    );
}

#[test]
fn ten_thousand_requests_on_one_core() {
    for backend in backends() {
        ten_thousand_requests(backend, 1, Stealing::default());
    }
}

#[test]
fn ten_thousand_requests_on_two_cores() {
    for backend in backends() {
        ten_thousand_requests(backend.clone(), 2, Stealing::default());
        ten_thousand_requests(backend, 2, Stealing::OFF);
    }
}

#[test]
fn calls_from_another_color_are_refused() {
    for backend in all_backends() {
        let at = backend.clone();
        let serve = |cx: &mut Cx, incoming: Incoming| {
            let stream = incoming.open(Color::from(77));
            let refused = Reason::OtherColor {
                state: Color::from(77),
                handler: ACCEPTING,
            };
            match stream.write(cx, "stolen") {
                Err(Rejected {
                    reason: why,
                    value: bytes,
                }) => {
                    assert_eq!((why, &*bytes), (refused, &b"stolen"[..]));
                }
                other => panic!("{other:?}"),
            }
            let after = || READ.on(stream.color(), |_: &mut Cx| ());
            assert_eq!(stream.after_received(cx, after()), Err(refused));
            assert_eq!(stream.pause(cx), Err(refused));
            assert_eq!(stream.resume(cx), Err(refused));
            assert_eq!(stream.queued_bytes(cx), Err(refused));
            assert_eq!(stream.set_write_limit(cx, 1), Err(refused));
            assert_eq!(stream.shutdown_write(cx), Err(refused));
            assert_eq!(stream.set_half_open(cx, true), Err(refused));
            let limit = Some(Duration::from_millis(1));
            assert_eq!(stream.set_idle_timeout(cx, limit), Err(refused));
            assert_eq!(stream.set_under_way(cx, true), Err(refused));
            assert_eq!(stream.set_urgent(cx, true), Err(refused));
            // The drop closes it.
        };
        with_server(
            "calls_from_another_color",
            on(&backend),
            serve,
            move |addr| {
                assert_eq!(Client::connect(&at, addr).rest(), b"");
            },
        );
    }
}

/// A peer that never reads costs its connection's limit of memory, and the others nothing.
#[test]
fn a_peer_that_never_reads_holds_up_nobody() {
    const LIMIT: usize = 1 << 16;
    const PIECE: usize = 1 << 12;
    for backend in all_backends() {
        let at = backend.clone();
        let (tell, told) = channel();
        let serve = move |_: &mut Cx, incoming: Incoming| {
            let tell = tell.clone();
            let begins = |cx: &mut Cx, stream: &Stream| stream.set_write_limit(cx, LIMIT).unwrap();
            let answer = move |cx: &mut Cx, stream: &Stream, data: io::Result<Option<RecvBuf>>| {
                let Ok(Some(data)) = data else { return };
                if !data.starts_with(b"flood") {
                    let _ = stream.write(cx, data.to_vec());
                    return;
                }
                // More than any kernel takes for a peer that does not read.
                let full = (0..BIG / PIECE).any(|_| {
                    matches!(
                        stream.write(cx, pattern(PIECE)),
                        Err(Rejected {
                            reason: Reason::NoRoom,
                            ..
                        })
                    )
                });
                tell.send((full, stream.queued_bytes(cx).unwrap())).unwrap();
            };
            Calls::new(answer).open(incoming.open_unique(), &READ, begins);
        };
        let builder = cores(1).backend(backend.clone());
        with_server("a_peer_that_never_reads", builder, serve, move |addr| {
            let mut silent = Client::connect(&at, addr);
            silent.write_all(b"flood").unwrap();
            let (full, queued_bytes) = told.recv_timeout(LONG).unwrap();
            assert!(full, "{queued_bytes} bytes queued for who does not read");
            assert!(queued_bytes <= LIMIT, "{queued_bytes}");
            let mut other = Client::connect(&at, addr);
            for n in 0..100u8 {
                other.write_all(&[n; 100]).unwrap();
                assert_eq!(other.exactly(100), [n; 100]);
            }
            // It ends when the peer does, with all that was queued.
            silent.reset();
        });
    }
}

/// Thousands of connections that come and go in every state.
#[test]
fn connections_come_and_go() {
    for backend in backends() {
        let at = backend.clone();
        let alive = Alive::default();
        let given = alive.clone();
        let serve = move |_: &mut Cx, incoming: Incoming| {
            let payload = given.payload();
            let answer = move |cx: &mut Cx, stream: &Stream, data: io::Result<Option<RecvBuf>>| {
                let _payload = &payload;
                let Ok(Some(data)) = data else { return };
                let _ = stream.write(cx, data.to_vec());
                match data.first() {
                    Some(b'c') => stream.close(cx),
                    Some(b'a') => stream.abort(cx),
                    Some(b'p') => stream.pause(cx).unwrap(),
                    Some(b's') => stream.shutdown_write(cx).unwrap(),
                    _ => {}
                }
            };
            Calls::new(answer).serve(incoming.open_unique(), &READ);
        };
        with_server(
            "connections_come_and_go",
            on(&backend),
            serve,
            move |addr| {
                for i in 0..1_000 {
                    let mut client = Client::connect(&at, addr);
                    let what = [b"c", b"a", b"p", b"s", b"n"][i % 5];
                    let _ = client.write_all(what);
                    if i % 3 == 0 {
                        let _ = client.read(&mut [0; 10]);
                    }
                    if i % 7 == 0 {
                        client.reset();
                    }
                }
            },
        );
        assert_eq!(alive.count(), 0);
    }
}

/// A simulated server of one core whose only connection is given to `serve`, and the client.
fn simulated_accept<F>(serve: F) -> (Simulation, SimClient)
where
    F: Fn(&mut Cx, Incoming) + Send + Sync + 'static,
{
    let (simulation, addr) = simulated_listener(serve);
    let client = simulation.network().connect(addr);
    (simulation, client.unwrap())
}

/// The same before anybody connects, and where it listens.
fn simulated_listener<F>(serve: F) -> (Simulation, SocketAddr)
where
    F: Fn(&mut Cx, Incoming) + Send + Sync + 'static,
{
    let mut simulation = Runtime::builder().cores(1).simulate(3).unwrap();
    let (tell, addr) = channel();
    let begin = move |cx: &mut Cx| {
        let serve = move |cx: &mut Cx, incoming: io::Result<Incoming>| serve(cx, incoming.unwrap());
        let on_accept = Callback::anonymous_each(ACCEPTING, serve);
        let listener = cx.listen(any_port(), Acceptors::Single, on_accept).unwrap();
        tell.send(listener.local_addr()).unwrap();
    };
    simulation.start(begin).unwrap();
    while simulation.step() != Step::Stalled {}
    (simulation, addr.recv().unwrap().ip().unwrap())
}

/// The same, with the connection in its color.
fn simulated<F>(serve: F) -> (Simulation, SimClient)
where
    F: Fn(&mut Cx, Stream) + Send + Sync + Clone + 'static,
{
    simulated_accept(move |cx, incoming| with_stream(cx, incoming, serve.clone()))
}

/// Steps until nothing is left to do.
fn settle(simulation: &mut Simulation) {
    while !matches!(simulation.step(), Step::Stalled | Step::Ended) {}
}

/// A thousand colors have an event of 20 us each, of which ten have run; `ran` counts them.
fn a_thousand_wait(simulation: &mut Simulation, ran: &Arc<AtomicUsize>) {
    let poster = simulation.poster();
    for color in 1_000..2_000 {
        let ran = Arc::clone(ran);
        let work = move |cx: &mut Cx| {
            mely::sim::work(cx, Duration::from_micros(20));
            ran.fetch_add(1, Ordering::Relaxed);
        };
        poster.try_post(Color::from(color), work).unwrap();
    }
    while ran.load(Ordering::Relaxed) < 10 {
        simulation.step();
    }
}

/// What comes in while a thousand colors wait: with them, or before them.
#[test]
fn what_an_urgent_stream_receives_goes_before_what_waits() {
    for urgent in [false, true] {
        let ran = Arc::new(AtomicUsize::new(0));
        let before = Arc::new(AtomicUsize::new(usize::MAX));
        let (count, told) = (Arc::clone(&ran), Arc::clone(&before));
        let (mut simulation, mut client) = simulated(move |_, stream| {
            let (count, told) = (Arc::clone(&count), Arc::clone(&told));
            let read = move |_: &mut Cx, _: &Stream, _: io::Result<Option<RecvBuf>>| {
                told.store(count.load(Ordering::Relaxed), Ordering::Relaxed);
            };
            Calls::new(read).open(stream, &READ, move |cx, stream| {
                stream.set_urgent(cx, urgent).unwrap();
            });
        });
        settle(&mut simulation);
        a_thousand_wait(&mut simulation, &ran);
        client.write_all(b"now").unwrap();
        settle(&mut simulation);
        assert_eq!(ran.load(Ordering::Relaxed), 1_000);
        let before = before.load(Ordering::Relaxed);
        assert_eq!(before < 100, urgent, "{before} went before");
    }
}

#[test]
fn calls_in_another_runtime_are_refused() {
    let (give, given) = channel();
    let (mut there, _client) = simulated(move |_, stream| give.send(stream).unwrap());
    settle(&mut there);
    let stream = given.recv().unwrap();
    let mut here = Runtime::builder().simulate(4).unwrap();
    here.run(move |cx| {
        // The same color, and it is another.
        cx.post(stream.color(), move |cx| {
            assert_eq!(stream.pause(cx), Err(Reason::OtherRuntime));
            assert_eq!(stream.queued_bytes(cx), Err(Reason::OtherRuntime));
            cx.stop();
        });
    })
    .unwrap();
}

/// Who waits for what has arrived when nothing has need not wait for more.
#[test]
fn after_nothing_is_now() {
    let called = Arc::new(AtomicBool::new(false));
    let its = Arc::clone(&called);
    let (give, given) = channel();
    let (mut simulation, _client) = simulated(move |cx, stream| {
        let its = Arc::clone(&its);
        let after = move |_: &mut Cx| its.store(true, Ordering::Relaxed);
        let after = READ.on(stream.color(), after);
        stream.after_received(cx, after).unwrap();
        give.send(stream).unwrap();
    });
    settle(&mut simulation);
    assert!(called.load(Ordering::Relaxed));
    // A connection that is closed calls nobody, and keeps nothing for later.
    let calls = Arc::clone(&called);
    let alive = Alive::default();
    let (stream, payload) = (given.recv().unwrap(), alive.payload());
    let (color, (give_back, _kept)) = (stream.color(), channel());
    let close = move |cx: &mut Cx| {
        stream.close(cx);
        let never = move |_: &mut Cx| {
            drop(payload);
            calls.store(false, Ordering::Relaxed);
        };
        let never = READ.on(stream.color(), never);
        stream.after_received(cx, never).unwrap();
        give_back.send(stream).unwrap();
    };
    let poster = simulation.poster();
    poster.try_post(color, close).unwrap();
    settle(&mut simulation);
    assert!(called.load(Ordering::Relaxed));
    assert_eq!(alive.count(), 0);
}

/// Queued bytes up to the limit are taken, and not one more.
#[test]
fn the_limit_of_queued_bytes_is_exact() {
    let (give, given) = channel();
    let (mut simulation, _client) = simulated(move |cx, stream| {
        stream.set_write_limit(cx, 10).unwrap();
        // Alone, a buffer of any size is taken.
        stream.write(cx, pattern(4)).unwrap();
        stream.write(cx, pattern(6)).unwrap();
        assert_eq!(stream.queued_bytes(cx), Ok(10));
        let full = stream.write(cx, "x");
        assert!(
            matches!(
                full,
                Err(Rejected {
                    reason: Reason::NoRoom,
                    ..
                })
            ),
            "{full:?}"
        );
        give.send(stream).unwrap();
    });
    settle(&mut simulation);
    drop(given.recv().unwrap());
}

/// What an event writes has left before another color of its core has a turn: the first write at
/// once, and the others joined, without an event of their own.
#[test]
fn what_an_event_writes_leaves_before_other_colors_run() {
    for backend in backends() {
        let heard = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&heard);
        let serve = move |_: &mut Cx, incoming: Incoming| {
            let heard = Arc::clone(&heard);
            let answer = move |cx: &mut Cx, stream: &Stream, data: io::Result<Option<RecvBuf>>| {
                let heard = Arc::clone(&heard);
                if data.is_ok_and(|data| data.is_some()) {
                    cx.post(Color::from(9), move |_| {
                        let begun = std::time::Instant::now();
                        while !heard.load(Ordering::Relaxed) {
                            assert!(begun.elapsed() < LONG, "not all have left");
                        }
                    });
                    for part in ["one", "two", "three"] {
                        stream.write(cx, part).unwrap();
                    }
                }
            };
            Calls::new(answer).serve(incoming.open_unique(), &READ);
        };
        let at = backend.clone();
        let builder = cores(1).backend(backend);
        with_server("writes", builder, serve, move |addr| {
            let mut client = Client::connect(&at, addr);
            client.write_all(b"?").unwrap();
            assert_eq!(client.exactly(11), b"onetwothree");
            told.store(true, Ordering::Relaxed);
        });
    }
}

/// Whatever ends the gathering.
#[test]
fn what_is_gathered_leaves_in_order_and_is_told_once() {
    type Ends = fn(&mut Cx, &Stream);
    let ends: [(&str, Ends); 5] = [
        ("the event's end", |_, _| ()),
        ("a flush", |cx, _| cx.flush()),
        ("a close", |cx, stream| stream.close(cx)),
        ("an end of the stream", |cx, stream| {
            stream.shutdown_write(cx).unwrap();
        }),
        ("what is to leave now", |cx, stream| {
            assert!(stream.write_now(cx, "now").unwrap());
        }),
    ];
    for backend in backends() {
        for (what, end) in ends {
            let told = Arc::new(AtomicUsize::new(0));
            let count = Arc::clone(&told);
            let serve = move |_: &mut Cx, incoming: Incoming| {
                let count = Arc::clone(&count);
                let drained = move |cx: &mut Cx, stream: &Stream| {
                    assert_eq!(stream.queued_bytes(cx), Ok(0));
                    count.fetch_add(1, Ordering::Relaxed);
                    stream.close(cx);
                };
                let session = Calls::none().on_drained(drained);
                // In the event that opens the session, which hears of these, too.
                session.open(incoming.open_unique(), &KNOWN, move |cx, stream| {
                    stream.write(cx, "a").unwrap();
                    stream.write(cx, "b").unwrap();
                    stream.write(cx, "c").unwrap();
                    assert_eq!(stream.queued_bytes(cx), Ok(2));
                    end(cx, stream);
                });
            };
            let at = backend.clone();
            let builder = cores(1).backend(backend.clone());
            with_server("gathered", builder, serve, move |addr| {
                let mut client = Client::connect(&at, addr);
                let expected = if what == "what is to leave now" {
                    "abcnow"
                } else {
                    "abc"
                };
                assert_eq!(client.rest(), expected.as_bytes(), "{what}");
            });
            let closed = usize::from(what != "a close");
            assert_eq!(told.load(Ordering::Relaxed), closed, "{what}");
        }
    }
}

/// A listener whose connections are counted, each failure as 1,000, and whose callback is alive.
fn counting(cx: &mut Cx, count: &Arc<AtomicUsize>, alive: &Alive) -> mely::net::Listener {
    let (count, payload) = (Arc::clone(count), alive.payload());
    let accept = move |_: &mut Cx, incoming: io::Result<Incoming>| {
        let _ = &payload;
        count.fetch_add(if incoming.is_ok() { 1 } else { 1_000 }, Ordering::Relaxed);
    };
    let on_accept = Callback::anonymous_each(ACCEPTING, accept);
    cx.listen(any_port(), Acceptors::Single, on_accept).unwrap()
}

/// A simulated core with such listeners.
fn counted<const N: usize>(
    seed: u64,
    alive: &Alive,
) -> (Simulation, [mely::net::Listener; N], [Arc<AtomicUsize>; N]) {
    let counts: [Arc<AtomicUsize>; N] = std::array::from_fn(|_| Arc::default());
    let (its, payloads) = (counts.clone(), alive.clone());
    let mut simulation = Runtime::builder().cores(1).simulate(seed).unwrap();
    let (give, given) = channel();
    let begin = move |cx: &mut Cx| {
        let listeners = its.each_ref().map(|count| counting(cx, count, &payloads));
        give.send(listeners).unwrap();
    };
    simulation.start(begin).unwrap();
    settle(&mut simulation);
    (simulation, given.recv().unwrap(), counts)
}
