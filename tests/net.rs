//! Connections through the public face, on every backend.

mod common;

use common::calls::Calls;
use common::wire::{ACCEPTING, Client, all_backends, any_port, on, with_server};
use common::{Alive, Bound, LONG, backends, cores, eventually};
use mely::Post;
use mely::Reason;
use mely::net::{
    AHEAD_BYTES_MAX, Acceptors, Backend, Incoming, RecvBuf, SendBuf, SimClient, Stream,
};
use mely::runtime::{Finish, OnPanic, Stealing};
use mely::sim::{Simulation, Step};
use mely::{Callback, Color, Colored, Cx, Handler, Rejected, RunError, Runtime};
use std::collections::{BTreeSet, VecDeque};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
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

#[test]
fn half_closed_by_the_client() {
    for backend in all_backends() {
        let at = backend.clone();
        let serve = |_: &mut Cx, incoming: Incoming| {
            let mut got = Vec::new();
            let collect = move |cx: &mut Cx, stream: &Stream, data: io::Result<Option<RecvBuf>>| {
                match data.unwrap() {
                    Some(data) => got.extend_from_slice(&data),
                    None => {
                        // After the end of what it said, the answer.
                        got.reverse();
                        stream.write(cx, std::mem::take(&mut got)).unwrap();
                        stream.close(cx);
                    }
                }
            };
            Calls::new(collect).serve(incoming.open_unique(), &READ);
        };
        with_server(
            "half_closed_by_the_client",
            on(&backend),
            serve,
            move |addr| {
                let mut client = Client::connect(&at, addr);
                client.write_all(b"stressed").unwrap();
                client.shutdown_write();
                assert_eq!(client.rest(), b"desserts");
            },
        );
    }
}

/// `write_now` says that everything has left, or `drained` does: never both, never neither.
#[test]
fn what_has_left_is_told_once() {
    for backend in all_backends() {
        let (at, len) = (backend.clone(), big(&backend));
        let simulated = matches!(&backend, Backend::Sim(_));
        let (tell, told) = channel();
        let serve = move |cx: &mut Cx, incoming: Incoming| {
            let tell = tell.clone();
            let waiting = Arc::new(AtomicUsize::new(0));
            let its = Arc::clone(&waiting);
            let drained = move |_: &mut Cx, _: &Stream| {
                tell.send(its.swap(0, Ordering::Relaxed)).unwrap();
            };
            // It is closed when the client has closed, so that what is told late is told.
            let session = Calls::none().on_drained(drained);
            let session = session.serve(incoming.open_unique(), &READ);
            // In an event after the one that opens it, so that it would hear of every send.
            session.post(cx, move |calls, cx| {
                let stream = calls.stream();
                stream.set_write_limit(cx, usize::MAX).unwrap();
                for (bytes, small) in [(pattern(5), true), (pattern(len), false)] {
                    let left = stream.write_now(cx, bytes).unwrap();
                    assert!(left == small || simulated, "{small}");
                    assert_eq!(left, stream.queued_bytes(cx).unwrap() == 0);
                    waiting.fetch_add(usize::from(!left), Ordering::Relaxed);
                }
                if !simulated {
                    // Behind what is under way it waits, however small it is.
                    assert!(!stream.write_now(cx, "last").unwrap());
                    waiting.fetch_add(1, Ordering::Relaxed);
                }
            });
        };
        with_server("what_has_left", on(&backend), serve, move |addr| {
            let mut client = Client::connect(&at, addr);
            assert!(client.exactly(5) == pattern(5));
            assert!(client.exactly(len) == pattern(len));
            if !simulated {
                assert_eq!(client.exactly(4), b"last");
                assert_eq!(told.recv_timeout(LONG), Ok(2));
            }
            client.shutdown_write();
            assert_eq!(client.rest(), b"");
            let late: Vec<usize> = told.try_iter().collect();
            // Simulated kernels take what they like at once, and then nobody is told twice.
            assert!(late.len() <= usize::from(simulated), "{late:?}");
            assert!(late.iter().all(|&waited| waited > 0), "{late:?}");
        });
    }
}

/// The end of the stream follows what is queued; from then on writes are refused, receiving goes
/// on.
#[test]
fn half_closed_by_the_server() {
    for backend in all_backends() {
        let (at, len) = (backend.clone(), big(&backend));
        let (tell, told) = channel();
        let serve = move |_: &mut Cx, incoming: Incoming| {
            let tell = tell.clone();
            let refuses = |cx: &mut Cx, stream: &Stream| {
                let closed = stream.write(cx, "more");
                assert!(
                    matches!(
                        closed,
                        Err(Rejected {
                            reason: Reason::Closed,
                            ..
                        })
                    ),
                    "{closed:?}"
                );
            };
            let mut got = Vec::new();
            let collect = move |_: &mut Cx, _: &Stream, data: io::Result<Option<RecvBuf>>| {
                match data.unwrap() {
                    Some(data) => got.extend_from_slice(&data),
                    None => tell.send(std::mem::take(&mut got)).unwrap(),
                }
            };
            let begins = move |cx: &mut Cx, stream: &Stream| {
                stream.write(cx, pattern(len)).unwrap();
                stream.shutdown_write(cx).unwrap();
                refuses(cx, stream);
            };
            let session = Calls::new(collect).on_drained(refuses);
            session.open(incoming.open_unique(), &READ, begins);
        };
        with_server(
            "half_closed_by_the_server",
            on(&backend),
            serve,
            move |addr| {
                let mut client = Client::connect(&at, addr);
                assert!(client.rest() == pattern(len));
                client.write_all(b"still here").unwrap();
                client.shutdown_write();
                assert_eq!(told.recv_timeout(LONG).unwrap(), b"still here");
            },
        );
    }
}

/// Closes the stream some time after the end was told, however late that comes.
fn close_after(cx: &mut Cx, session: &Colored<Calls>, ends: Arc<AtomicUsize>, was_told: bool) {
    let again = session.clone();
    let look = session.on(&READ, move |calls, cx| {
        if was_told {
            return calls.stream().close(cx);
        }
        let is_told = ends.load(Ordering::Relaxed) > 0;
        close_after(cx, &again, ends, is_told);
    });
    cx.timer(Duration::from_millis(50), look);
}

/// With nothing queued the end of the stream is sent at once; receiving goes on.
#[test]
fn half_closed_with_nothing_queued() {
    let (tell, told) = channel();
    let (mut simulation, mut client) = simulated(move |_, stream| {
        let tell = tell.clone();
        let report = move |_: &mut Cx, _: &Stream, data: io::Result<Option<RecvBuf>>| {
            tell.send(data.unwrap().unwrap().to_vec()).unwrap();
        };
        Calls::new(report).open(stream, &READ, |cx, stream| {
            stream.shutdown_write(cx).unwrap();
        });
    });
    settle(&mut simulation);
    assert_eq!(client.read(&mut [0; 9]).unwrap(), 0, "the end");
    client.write_all(b"still here").unwrap();
    settle(&mut simulation);
    assert_eq!(told.try_recv().unwrap(), b"still here");
}

/// The end of the stream is told once, whatever is asked for afterwards.
#[test]
fn the_end_is_told_once() {
    for backend in all_backends() {
        let at = backend.clone();
        let ends = Arc::new(AtomicUsize::new(0));
        let seen = Arc::clone(&ends);
        let serve = move |cx: &mut Cx, incoming: Incoming| {
            let ends = Arc::clone(&ends);
            let told = Arc::clone(&ends);
            let count = move |cx: &mut Cx, stream: &Stream, data: io::Result<Option<RecvBuf>>| {
                if data.is_ok_and(|data| data.is_none()) {
                    ends.fetch_add(1, Ordering::Relaxed);
                    stream.pause(cx).unwrap();
                    stream.resume(cx).unwrap();
                    stream.resume(cx).unwrap();
                }
            };
            // Half-open: otherwise the end would close it, and nothing could be asked for.
            let session = Calls::new(count).half_open();
            let session = session.serve(incoming.open_unique(), &READ);
            close_after(cx, &session, told, false);
        };
        with_server("the_end_is_told_once", on(&backend), serve, move |addr| {
            let mut client = Client::connect(&at, addr);
            client.shutdown_write();
            assert_eq!(client.rest(), b"");
        });
        assert_eq!(seen.load(Ordering::Relaxed), 1);
    }
}

#[test]
fn a_reset_is_an_error_and_the_last_call() {
    for backend in all_backends() {
        let at = backend.clone();
        let (tell, told) = channel();
        let serve = move |_: &mut Cx, incoming: Incoming| {
            let tell = tell.clone();
            let report = move |_cx: &mut Cx, _: &Stream, data: io::Result<Option<RecvBuf>>| {
                tell.send(data.map(|data| data.unwrap().len())).unwrap();
            };
            Calls::new(report).serve(incoming.open_unique(), &READ);
        };
        with_server("a_reset_is_an_error", on(&backend), serve, move |addr| {
            let mut client = Client::connect(&at, addr);
            client.write_all(b"hello").unwrap();
            assert_eq!(told.recv_timeout(LONG).unwrap().unwrap(), 5);
            client.reset();
            let error = told.recv_timeout(LONG).unwrap().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ConnectionReset);
            std::thread::sleep(Duration::from_millis(20));
            assert!(told.try_recv().is_err(), "another call after an error");
        });
    }
}

/// A color is held up while its home core receives. After a pause comes no more than the library
/// says, and after that all of it.
#[test]
fn what_comes_in_spite_of_a_pause_is_bounded() {
    // More than the buffers of a core.
    const ALL: usize = 8 << 20;
    for backend in backends() {
        let (release, released) = channel::<()>();
        let released = Arc::new(Mutex::new(released));
        let (tell, told) = channel();
        let (give, given) = channel();
        let serve = move |cx: &mut Cx, incoming: Incoming| {
            let (released, tell) = (Arc::clone(&released), tell.clone());
            let away = 1 - incoming.home();
            let stream = incoming.open_unique();
            let color = stream.color();
            let (mut seen, mut is_first) = (0, true);
            let count = move |cx: &mut Cx, stream: &Stream, data: io::Result<Option<RecvBuf>>| {
                let Ok(data) = data else { return };
                let Some(data) = data else {
                    return tell.send((seen, true)).unwrap();
                };
                let expected = (seen..).map(pattern_at);
                assert!(data.iter().copied().zip(expected).all(|(a, b)| a == b));
                seen += data.len();
                tell.send((seen, false)).unwrap();
                if std::mem::take(&mut is_first) {
                    stream.pause(cx).unwrap();
                }
            };
            let session = Calls::new(count).serve(stream, &READ);
            give.send((cx.poster(), session.clone())).unwrap();
            session.post(cx, move |_, cx| {
                // Away from its home, where it waits.
                cx.place(color, away);
                cx.post(color, move |_| released.lock().unwrap().recv().unwrap());
            });
        };
        let (at, builder) = (backend.clone(), on(&backend).stealing(Stealing::OFF));
        with_server("what_comes_in_spite", builder, serve, move |addr| {
            let Client::Tcp(mut client) = Client::connect(&at, addr) else {
                unreachable!()
            };
            let (bytes, mut sent) = (pattern(ALL), 0);
            let soon = Duration::from_millis(300);
            client.set_write_timeout(Some(soon)).unwrap();
            // As much as the kernel and the home core take.
            while sent < ALL
                && let Ok(len) = client.write(&bytes[sent..])
            {
                sent += len;
            }
            release.send(()).unwrap();
            let (mut first, mut seen) = (0, 0);
            while let Ok((bytes, _)) = told.recv_timeout(soon) {
                seen = bytes;
                first = if first == 0 { bytes } else { first };
            }
            let most = AHEAD_BYTES_MAX;
            assert!(
                seen - first <= most,
                "{} of {sent} bytes came",
                seen - first
            );
            let (poster, session) = given.recv_timeout(LONG).unwrap();
            let resume = |calls: &mut Calls, cx: &mut Cx| calls.stream().resume(cx).unwrap();
            session.try_post(&poster, resume).unwrap();
            client.set_write_timeout(Some(LONG)).unwrap();
            client.write_all(&bytes[sent..]).unwrap();
            client.shutdown(std::net::Shutdown::Write).unwrap();
            while told.recv_timeout(LONG).unwrap() != (ALL, true) {}
        });
    }
}

/// Bytes arrive while the only core is held up: they are all given before what is to come after
/// them.
#[test]
fn what_has_arrived_comes_before_what_is_to_be_after_it() {
    for backend in all_backends() {
        let (tell, told) = channel::<()>();
        let (sent, was_sent) = channel::<()>();
        let was_sent = Arc::new(Mutex::new(was_sent));
        let (tell_seen, seen) = channel();
        let serve = move |cx: &mut Cx, incoming: Incoming| {
            let (tell, was_sent) = (tell.clone(), Arc::clone(&was_sent));
            let tell_seen = tell_seen.clone();
            let bytes = Arc::new(AtomicUsize::new(0));
            let its = Arc::clone(&bytes);
            let count = move |_: &mut Cx, _: &Stream, data: io::Result<Option<RecvBuf>>| {
                if let Ok(Some(data)) = data {
                    its.fetch_add(data.len(), Ordering::Relaxed);
                }
            };
            let session = Calls::new(count).serve(incoming.open_unique(), &READ);
            // With the receive under way.
            session.post(cx, move |calls, cx| {
                let stream = calls.stream();
                for _ in 0..2 {
                    tell.send(()).unwrap();
                    was_sent.lock().unwrap().recv().unwrap();
                    let (bytes, tell_seen) = (Arc::clone(&bytes), tell_seen.clone());
                    let after = READ.on(stream.color(), move |_: &mut Cx| {
                        tell_seen.send(bytes.load(Ordering::Relaxed)).unwrap();
                    });
                    stream.after_received(cx, after).unwrap();
                }
            });
        };
        let (at, builder) = (backend.clone(), cores(1).backend(backend.clone()));
        with_server("what_has_arrived", builder, serve, move |addr| {
            let mut client = Client::connect(&at, addr);
            for part in [10_000, 20_000] {
                told.recv_timeout(LONG).unwrap();
                client.write_all(&pattern(part)).unwrap();
                sent.send(()).unwrap();
            }
            // The last buffer of these may hold some of the others.
            assert!(seen.recv_timeout(LONG).unwrap() >= 10_000);
            assert_eq!(seen.recv_timeout(LONG), Ok(30_000));
        });
    }
}

/// Clients connect while the only core is held up, and then it closes the listener.
#[test]
fn who_waits_at_a_listener_that_closes_is_accepted() {
    // More than the core accepts in one look, before it hears of the close.
    const CLIENTS: usize = 350;
    mely::net::raise_open_file_limit().unwrap();
    for backend in all_backends() {
        let _bound = Bound::new("who_waits_at_a_listener");
        let (tell, addr) = channel();
        let (connected, are_connected) = channel();
        let at = backend.clone();
        let clients = std::thread::spawn(move || {
            let addr = addr.recv().unwrap();
            let clients: Vec<_> = (0..CLIENTS).map(|_| Client::connect(&at, addr)).collect();
            connected.send(()).unwrap();
            for mut client in clients {
                assert_eq!(client.rest(), b"hello");
            }
        });
        let alive = Alive::default();
        let (payload, count) = (alive.payload(), alive.clone());
        let runtime = cores(1)
            .exit_when_idle(true)
            .backend(backend)
            .build()
            .unwrap();
        let ran = runtime.run(move |cx| {
            let accept = move |cx: &mut Cx, incoming: io::Result<Incoming>| {
                assert_eq!(count.count(), 1, "after the callback was dropped");
                let _ = &payload;
                with_stream(cx, incoming.unwrap(), |cx, stream| {
                    stream.write(cx, "hello").unwrap();
                });
            };
            let on_accept = Callback::anonymous_each(ACCEPTING, accept);
            let listener = cx.listen(any_port(), Acceptors::Single, on_accept).unwrap();
            // Once it listens on its core.
            let later = Callback::anonymous(ACCEPTING, move |_cx| {
                tell.send(listener.local_addr()).unwrap();
                are_connected.recv().unwrap();
                listener.close();
            });
            cx.timer(Duration::from_millis(1), later);
        });
        ran.unwrap();
        clients.join().unwrap();
        assert_eq!(alive.count(), 0);
    }
}

#[test]
fn paused_data_waits_and_comes_whole() {
    for backend in all_backends() {
        let at = backend.clone();
        let paused = Arc::new(AtomicBool::new(false));
        let (set, (give, given)) = (Arc::clone(&paused), channel());
        let serve = move |cx: &mut Cx, incoming: Incoming| {
            let paused = Arc::clone(&set);
            let echo = move |cx: &mut Cx, stream: &Stream, data: io::Result<Option<RecvBuf>>| {
                assert!(!paused.load(Ordering::Acquire), "data while paused");
                let Ok(Some(data)) = data else { return };
                stream.write(cx, data.to_vec()).unwrap();
                if &*data == b"pause" {
                    stream.pause(cx).unwrap();
                }
            };
            let session = Calls::new(echo).serve(incoming.open_unique(), &READ);
            give.send((cx.poster(), session)).unwrap();
        };
        with_server("paused_data_waits", on(&backend), serve, move |addr| {
            let mut client = Client::connect(&at, addr);
            let (poster, session) = given.recv_timeout(LONG).unwrap();
            client.write_all(b"pause").unwrap();
            assert_eq!(client.exactly(5), b"pause");
            // The cancel goes to the home core; a moment later it is done.
            std::thread::sleep(Duration::from_millis(50));
            paused.store(true, Ordering::Release);
            client.write_all(&pattern(10_000)).unwrap();
            std::thread::sleep(Duration::from_millis(50));
            paused.store(false, Ordering::Release);
            let resume = |calls: &mut Calls, cx: &mut Cx| calls.stream().resume(cx).unwrap();
            session.try_post(&poster, resume).unwrap();
            assert!(client.exactly(10_000) == pattern(10_000));
        });
    }
}

/// Who has paused, and pauses again, is told nothing.
#[test]
fn a_second_pause_changes_nothing() {
    let calls = Arc::new(AtomicUsize::new(0));
    let its = Arc::clone(&calls);
    let (give, given) = channel();
    let (mut simulation, mut client) = simulated(move |_, stream| {
        let its = Arc::clone(&its);
        let count = move |_: &mut Cx, _: &Stream, _: io::Result<Option<RecvBuf>>| {
            its.fetch_add(1, Ordering::Relaxed);
        };
        give.send(Calls::new(count).serve(stream, &READ)).unwrap();
    });
    settle(&mut simulation);
    let (poster, session) = (simulation.poster(), given.recv().unwrap());
    for _ in 0..3 {
        let pause = |calls: &mut Calls, cx: &mut Cx| calls.stream().pause(cx).unwrap();
        session.try_post(&poster, pause).unwrap();
        settle(&mut simulation);
    }
    client.write_all(b"hello").unwrap();
    settle(&mut simulation);
    assert_eq!(calls.load(Ordering::Relaxed), 0);
    let resume = |calls: &mut Calls, cx: &mut Cx| calls.stream().resume(cx).unwrap();
    session.try_post(&poster, resume).unwrap();
    settle(&mut simulation);
    assert_eq!(calls.load(Ordering::Relaxed), 1);
}

/// Pauses and resumes from wherever the color happens to be: the last one asked for holds.
#[test]
fn pauses_and_resumes_arrive_in_order() {
    for backend in backends() {
        let at = backend.clone();
        let serve = |_: &mut Cx, incoming: Incoming| {
            let mut calls = 0usize;
            let echo = move |cx: &mut Cx, stream: &Stream, data: io::Result<Option<RecvBuf>>| {
                let Ok(Some(data)) = data else { return };
                stream.write(cx, data.to_vec()).unwrap();
                for _ in 0..3 {
                    calls += 1;
                    stream.pause(cx).unwrap();
                    cx.place(cx.color(), calls % 2);
                    stream.resume(cx).unwrap();
                }
            };
            Calls::new(echo).serve(incoming.open_unique(), &READ);
        };
        with_server("pauses_and_resumes", on(&backend), serve, move |addr| {
            let mut clients: Vec<_> = (0..8).map(|_| Client::connect(&at, addr)).collect();
            for round in 0..200u8 {
                clients
                    .iter_mut()
                    .for_each(|c| c.write_all(&[round; 100]).unwrap());
                for client in &mut clients {
                    assert_eq!(client.exactly(100), [round; 100]);
                }
            }
        });
    }
}

#[test]
fn a_refused_connect_is_an_error() {
    for backend in all_backends() {
        let _bound = Bound::new("a_refused_connect");
        // A port that was somebody's a moment ago.
        let addr = match &backend {
            Backend::Sim(_) => "127.0.0.1:9".parse().unwrap(),
            _ => TcpListener::bind(any_port()).unwrap().local_addr().unwrap(),
        };
        let run = move |cx: &mut Cx, finish: Finish<ErrorKind>| {
            let connected = move |_cx: &mut Cx, result: io::Result<Incoming>| {
                finish.finish(result.unwrap_err().kind());
            };
            cx.connect(
                addr,
                LONG,
                Callback::anonymous_value(Color::from(2), connected),
            )
            .unwrap();
        };
        let kind = on(&backend).build().unwrap().run_until(run).unwrap();
        assert_eq!(kind, ErrorKind::ConnectionRefused);
    }
}

/// Connects until somebody is kept waiting, by a queue that is full, for longer than the limit.
fn connect_until_late(
    cx: &mut Cx,
    addr: SocketAddr,
    mut before: Vec<Incoming>,
    finish: Finish<io::Error>,
) {
    const LIMIT: Duration = Duration::from_millis(50);
    let begun = cx.now();
    let connected = move |cx: &mut Cx, result: io::Result<Incoming>| match result {
        Ok(incoming) => {
            before.push(incoming);
            assert!(before.len() < 64, "the queue is longer than was asked for");
            connect_until_late(cx, addr, before, finish);
        }
        Err(error) => {
            assert!(cx.now() - begun >= LIMIT, "early");
            finish.finish(error);
        }
    };
    let connected = Callback::anonymous_value(Color::from(2), connected);
    cx.connect(addr, LIMIT, connected).unwrap();
}

#[test]
fn a_connect_gives_up_at_its_limit() {
    for backend in backends() {
        let _bound = Bound::new("a_connect_gives_up");
        // Nobody accepts.
        let listener = TcpListener::bind(any_port()).unwrap();
        rustix::net::listen(&listener, 0).unwrap();
        let addr = listener.local_addr().unwrap();
        let run = move |cx: &mut Cx, finish| connect_until_late(cx, addr, Vec::new(), finish);
        let error = on(&backend).build().unwrap().run_until(run).unwrap();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        assert_eq!(error.to_string(), "not connected within the limit of 50ms");
    }
}

/// What comes before the limit is told as it is, and no timer is left: the run would not end.
#[test]
fn a_connect_within_its_limit_leaves_no_timer() {
    for backend in all_backends() {
        let _bound = Bound::new("a_connect_within_its_limit");
        let free = TcpListener::bind(any_port()).unwrap();
        let (open, closed) = match &backend {
            Backend::Sim(_) => (None, "127.0.0.1:9".parse().unwrap()),
            _ => {
                let closed = TcpListener::bind(any_port()).unwrap();
                (
                    Some(free.local_addr().unwrap()),
                    closed.local_addr().unwrap(),
                )
            }
        };
        let told = Arc::new(Mutex::new(Vec::new()));
        let tell = Arc::clone(&told);
        let hour = Duration::from_secs(3_600);
        let builder = on(&backend).exit_when_idle(true);
        builder
            .build()
            .unwrap()
            .run(move |cx| {
                for addr in open.into_iter().chain([closed]) {
                    let tell = Arc::clone(&tell);
                    let connected = move |_cx: &mut Cx, result: io::Result<Incoming>| {
                        tell.lock()
                            .unwrap()
                            .push(result.err().map(|error| error.kind()));
                    };
                    let connected = Callback::anonymous_value(Color::from(2), connected);
                    cx.connect(addr, hour, connected).unwrap();
                }
            })
            .unwrap();
        let mut told = told.lock().unwrap();
        told.sort_by_key(Option::is_some);
        let refused = Some(ErrorKind::ConnectionRefused);
        assert_eq!(*told, open.map_or(vec![refused], |_| vec![None, refused]));
    }
}

/// Both ends in one runtime, by its own connect.
#[test]
fn connects_to_itself() {
    for backend in all_backends() {
        let _bound = Bound::new("connects_to_itself");
        let run = |cx: &mut Cx, finish: Finish<Vec<u8>>| {
            let on_accept =
                Callback::anonymous_each(ACCEPTING, |cx: &mut Cx, incoming: io::Result<_>| {
                    echo(cx, incoming.unwrap());
                });
            let listener = cx
                .listen(any_port(), Acceptors::PerCore, on_accept)
                .unwrap();
            let addr = listener.local_addr();
            let connected = move |_: &mut Cx, result: io::Result<Incoming>| {
                let incoming = result.unwrap();
                assert_eq!(incoming.peer_addr().unwrap().port(), addr.port());
                let mut got = Vec::new();
                let collect = move |cx: &mut Cx, stream: &Stream, data: io::Result<_>| {
                    let data: Option<RecvBuf> = data.unwrap();
                    // A connection that no core has accepted yet would end with its listener.
                    let _listener = &listener;
                    got.extend_from_slice(&data.unwrap());
                    if got.len() == 100_000 {
                        stream.close(cx);
                        finish.finish(std::mem::take(&mut got));
                    }
                };
                Calls::new(collect).open(incoming.open_unique(), &READ, |cx, stream| {
                    stream.write(cx, pattern(100_000)).unwrap();
                });
            };
            cx.connect(
                addr,
                LONG,
                Callback::anonymous_value(Color::from(2), connected),
            )
            .unwrap();
        };
        let back = on(&backend).build().unwrap().run_until(run).unwrap();
        assert!(back == pattern(100_000));
    }
}

#[test]
fn a_port_in_use_is_an_error_at_once() {
    for backend in backends() {
        let _bound = Bound::new("a_port_in_use");
        let others = TcpListener::bind(any_port()).unwrap();
        let taken = others.local_addr().unwrap();
        on(&backend)
            .build()
            .unwrap()
            .run(move |cx| {
                let ignore = || {
                    Callback::anonymous_each(ACCEPTING, |_: &mut Cx, _: io::Result<Incoming>| ())
                };
                let own = cx.listen(any_port(), Acceptors::PerCore, ignore()).unwrap();
                for addr in [taken, own.local_addr()] {
                    for acceptors in [Acceptors::PerCore, Acceptors::Single] {
                        let error = cx.listen(addr, acceptors, ignore()).unwrap_err();
                        assert_eq!(error.kind(), ErrorKind::AddrInUse, "{acceptors:?}");
                    }
                }
                // Not this machine's.
                let addr = "192.0.2.1:0".parse().unwrap();
                let error = cx.listen(addr, Acceptors::Single, ignore()).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::AddrNotAvailable);
                cx.stop();
            })
            .unwrap();
        drop(others);
    }
}

/// Every core accepts, and is home to what it accepts.
#[test]
fn each_core_is_home_to_what_it_accepts() {
    const CLIENTS: usize = 64;
    for backend in backends() {
        let at = backend.clone();
        let (tell, told) = channel();
        let serve = move |_cx: &mut Cx, incoming: Incoming| {
            let (home, fd) = (incoming.home(), incoming.fd());
            let stream = incoming.open_unique();
            tell.send((home, fd, stream)).unwrap();
        };
        with_server("each_core_is_home", on(&backend), serve, move |addr| {
            let clients: Vec<_> = (0..CLIENTS).map(|_| Client::connect(&at, addr)).collect();
            let next = |_: &Client| told.recv_timeout(LONG).unwrap();
            let all: Vec<_> = clients.iter().map(next).collect();
            let homes: BTreeSet<usize> = all.iter().map(|&(home, ..)| home).collect();
            assert!(homes.into_iter().eq([0, 1]));
            // All are open, so each has a descriptor of its own.
            let descriptors: BTreeSet<i32> = all.iter().map(|&(_, fd, _)| fd).collect();
            assert_eq!(descriptors.len(), CLIENTS);
        });
    }
}

/// In the simulated network the core that listens is home to all, and their colors go there.
#[test]
fn who_listens_in_a_simulation_is_home_to_all() {
    const CLIENTS: u64 = 20;
    for core in [0, 1] {
        let mut simulation = Runtime::builder()
            .cores(2)
            .stealing(Stealing::OFF)
            .simulate(9)
            .unwrap();
        let (tell, addr) = channel();
        let (give, given) = channel();
        let begin = move |cx: &mut Cx| {
            assert_eq!(cx.core(), core);
            let next = AtomicU64::new(10);
            let accept = move |_cx: &mut Cx, incoming: io::Result<Incoming>| {
                let incoming = incoming.unwrap();
                assert_eq!(incoming.home(), core);
                // By themselves, half of them would be on the other core.
                let color = Color::from(next.fetch_add(1, Ordering::Relaxed));
                give.send(incoming.open(color)).unwrap();
            };
            let on_accept = Callback::anonymous_each(Color::from(2), accept);
            let listener = cx
                .listen(any_port(), Acceptors::PerCore, on_accept)
                .unwrap();
            tell.send(listener.local_addr()).unwrap();
        };
        simulation
            .start(move |cx| cx.post(Color::from(core as u64), begin))
            .unwrap();
        settle(&mut simulation);
        let (net, addr) = (simulation.network().clone(), addr.recv().unwrap());
        let clients: Vec<_> = (0..CLIENTS).map(|_| net.connect(addr).unwrap()).collect();
        settle(&mut simulation);
        let streams: Vec<Stream> = given.try_iter().collect();
        assert_eq!(streams.len(), clients.len());
        let (tell, told) = channel();
        for stream in &streams {
            let tell = tell.clone();
            let where_it_is = move |cx: &mut Cx| tell.send(cx.core()).unwrap();
            let poster = simulation.poster();
            poster.try_post(stream.color(), where_it_is).unwrap();
        }
        settle(&mut simulation);
        let cores: Vec<usize> = told.try_iter().collect();
        assert_eq!(cores, vec![core; streams.len()]);
    }
}

/// A port of one's choice, and not only one that was free.
#[test]
fn each_core_listens_on_a_given_port() {
    for backend in backends() {
        let _bound = Bound::new("each_core_listens");
        let run = |cx: &mut Cx, finish: Finish<()>| {
            let ignore =
                || Callback::anonymous_each(ACCEPTING, |_: &mut Cx, _: io::Result<Incoming>| ());
            // One that was free a moment ago: others look for free ones too.
            let free = || TcpListener::bind(any_port())?.local_addr();
            let mut tries = (0..100).map(|_| cx.listen(free()?, Acceptors::PerCore, ignore()));
            let listens = tries
                .find(|tried| !matches!(tried, Err(error) if error.kind() == ErrorKind::AddrInUse));
            drop(listens.expect("a port that nobody has").unwrap());
            finish.finish(());
        };
        on(&backend).build().unwrap().run_until(run).unwrap();
    }
}

/// A listener that is closed frees its port, at once and for whoever wants it, while its
/// connections live on.
#[test]
fn a_closed_listener_frees_its_port() {
    for backend in backends() {
        for acceptors in [Acceptors::PerCore, Acceptors::Single] {
            let _bound = Bound::new("a_closed_listener");
            let runtime = on(&backend).build().unwrap();
            let poster = runtime.poster();
            let (tell, told) = channel::<SocketAddr>();
            let (close, closing) = channel::<()>();
            let client = std::thread::spawn(move || {
                let addr = told.recv().unwrap();
                let mut client = TcpStream::connect(addr).unwrap();
                client.set_read_timeout(Some(LONG)).unwrap();
                client.write_all(b"one").unwrap();
                client.read_exact(&mut [0; 3]).unwrap();
                close.send(()).unwrap();
                let refused = || {
                    TcpStream::connect(addr)
                        .is_err_and(|e| e.kind() == ErrorKind::ConnectionRefused)
                };
                eventually("nobody listens", refused);
                client.write_all(b"two").unwrap();
                client.read_exact(&mut [0; 3]).unwrap();
                drop(client);
                poster.stop();
                addr
            });
            runtime
                .run(move |cx| {
                    let serve = |cx: &mut Cx, incoming: io::Result<Incoming>| {
                        echo(cx, incoming.unwrap());
                    };
                    let on_accept = Callback::anonymous_each(ACCEPTING, serve);
                    let listener = cx.listen(any_port(), acceptors, on_accept).unwrap();
                    tell.send(listener.local_addr()).unwrap();
                    let poster = cx.poster();
                    std::thread::spawn(move || {
                        closing.recv().unwrap();
                        // Also from a thread that is no core of it.
                        match acceptors {
                            Acceptors::PerCore => listener.close(),
                            Acceptors::Single => poster
                                .try_post(Color::from(5), |_cx| listener.close())
                                .unwrap(),
                        }
                    });
                })
                .unwrap();
            client.join().unwrap();
        }
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

#[test]
fn dropped_anywhere_it_is_closed() {
    for backend in all_backends() {
        for way in [
            "stream elsewhere",
            "stream here",
            "incoming elsewhere",
            "incoming here",
        ] {
            let at = backend.clone();
            let serve = move |cx: &mut Cx, incoming: Incoming| match way {
                "incoming here" => drop(incoming),
                "incoming elsewhere" => drop(std::thread::spawn(move || drop(incoming))),
                _ => {
                    Calls::none()
                        .serve(incoming.open_unique(), &READ)
                        .post(cx, move |calls, cx| {
                            // With a receive under way, and something to say.
                            let stream = calls.take_stream();
                            stream.write(cx, "farewell").unwrap();
                            if way == "stream here" {
                                drop(stream);
                            } else {
                                std::thread::spawn(move || drop(stream));
                            }
                        })
                }
            };
            with_server("dropped_anywhere", on(&backend), serve, move |addr| {
                let mut client = Client::connect(&at, addr);
                let said: &[u8] = if way.starts_with("stream") {
                    b"farewell"
                } else {
                    b""
                };
                assert_eq!(client.rest(), said, "{way}");
            });
            if let Backend::Sim(net) = &backend {
                assert_eq!(net.open_count(), 0, "{way}");
            }
        }
    }
}

/// A peer that reads nothing and then vanishes, with much on its way to it.
#[test]
fn sending_ends_with_an_error_when_the_peer_vanishes() {
    for backend in all_backends() {
        let at = backend.clone();
        let (tell, told) = channel();
        let serve = move |cx: &mut Cx, incoming: Incoming| {
            let tell = tell.clone();
            let ends = move |cx: &mut Cx, stream: &Stream, data: io::Result<Option<RecvBuf>>| {
                let closed = stream.write(cx, "more");
                assert!(
                    matches!(
                        closed,
                        Err(Rejected {
                            reason: Reason::Closed,
                            ..
                        })
                    ),
                    "{closed:?}"
                );
                assert_eq!(stream.queued_bytes(cx), Ok(0));
                tell.send(data.map(drop).map_err(|error| error.kind()))
                    .unwrap();
            };
            let drained = |_: &mut Cx, _: &Stream| unreachable!("nobody reads");
            let session = Calls::new(ends).on_drained(drained);
            let session = session.serve(incoming.open_unique(), &READ);
            session.post(cx, |calls, cx| {
                let stream = calls.stream();
                // Otherwise it may hear of the reset by receiving, before a send has failed.
                stream.pause(cx).unwrap();
                stream.write(cx, pattern(BIG)).unwrap();
                let full = stream.write(cx, "more");
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
            });
        };
        with_server("the_peer_vanishes", on(&backend), serve, move |addr| {
            let mut client = Client::connect(&at, addr);
            client.exactly(10_000);
            // By then it is paused.
            std::thread::sleep(Duration::from_millis(20));
            client.reset();
            let kind = told.recv_timeout(LONG).unwrap().unwrap_err();
            assert!(
                matches!(kind, ErrorKind::ConnectionReset | ErrorKind::BrokenPipe),
                "{kind:?}"
            );
        });
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

/// What was written before a close, or before a stop, arrives whole.
#[test]
fn what_was_written_arrives_before_the_end() {
    for backend in backends() {
        for stop in [false, true] {
            let at = backend.clone();
            let serve = move |_: &mut Cx, incoming: Incoming| {
                let begins = move |cx: &mut Cx, stream: &Stream| {
                    for part in pattern(BIG / 4).chunks(1 << 20) {
                        let _ = stream.set_write_limit(cx, usize::MAX);
                        stream.write(cx, part.to_vec()).unwrap();
                    }
                    if stop {
                        cx.stop();
                    } else {
                        stream.close(cx);
                    }
                };
                Calls::none().open(incoming.open_unique(), &READ, begins);
            };
            with_server(
                "what_was_written_arrives",
                on(&backend),
                serve,
                move |addr| {
                    let mut client = Client::connect(&at, addr);
                    std::thread::sleep(Duration::from_millis(20));
                    assert!(client.rest() == pattern(BIG / 4), "stop: {stop}");
                },
            );
        }
    }
}

#[test]
fn an_abort_waits_for_nothing() {
    for backend in all_backends() {
        let at = backend.clone();
        let serve = |cx: &mut Cx, incoming: Incoming| {
            with_stream(cx, incoming, |cx, stream| {
                stream.write(cx, pattern(BIG)).unwrap();
                stream.abort(cx);
                let closed = stream.write(cx, "more");
                assert!(
                    matches!(
                        closed,
                        Err(Rejected {
                            reason: Reason::Closed,
                            ..
                        })
                    ),
                    "{closed:?}"
                );
            });
        };
        with_server("an_abort", on(&backend), serve, move |addr| {
            let mut client = Client::connect(&at, addr);
            let mut got = Vec::new();
            // Cut off, although nothing was read until now, and not as if it were all.
            std::thread::sleep(Duration::from_millis(20));
            let error = client.read_to_end(&mut got).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{at:?}");
            assert!(got.len() < BIG);
        });
    }
}

/// What the kernel has taken arrives, and the end behind it.
#[test]
fn an_abort_with_nothing_queued_loses_nothing() {
    for backend in backends() {
        let at = backend.clone();
        let serve = |cx: &mut Cx, incoming: Incoming| {
            with_stream(cx, incoming, |cx, stream| {
                stream.write(cx, "all of it").unwrap();
                assert_eq!(stream.queued_bytes(cx), Ok(0));
                stream.abort(cx);
            });
        };
        with_server("an_abort_with_nothing", on(&backend), serve, move |addr| {
            assert_eq!(Client::connect(&at, addr).rest(), b"all of it", "{at:?}");
        });
    }
}

/// A run that is cut short cuts answers off, and the peers are told.
#[test]
fn what_the_end_of_a_run_cuts_off_is_reset() {
    for backend in all_backends() {
        let _bound = common::Bound::new("what_the_end_of_a_run_cuts_off");
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
            tell.send(listener.local_addr()).unwrap();
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

/// A panic in a connection's callback resets that connection, and no other: its peer does not take
/// a part for the whole.
#[test]
fn a_panic_in_a_callback_resets_its_connection() {
    for backend in all_backends() {
        let (at, panics) = (backend.clone(), Arc::new(AtomicUsize::new(0)));
        let count = Arc::clone(&panics);
        let builder = on(&backend)
            .on_panic(OnPanic::DropEvent)
            .panic_hook(move |report| {
                assert_eq!(report.handler, "read");
                count.fetch_add(1, Ordering::Relaxed);
            });
        let serve = |_: &mut Cx, incoming: Incoming| {
            let panics_when_drained = Arc::new(AtomicBool::new(false));
            let its = Arc::clone(&panics_when_drained);
            let answer = move |cx: &mut Cx, stream: &Stream, data: io::Result<Option<RecvBuf>>| {
                let Ok(Some(data)) = data else { return };
                assert!(&*data != b"panic", "as asked");
                if &*data == b"after" {
                    let after = |_: &mut Cx| panic!("when all is received");
                    let after = READ.on(stream.color(), after);
                    stream.after_received(cx, after).unwrap();
                }
                panics_when_drained.store(&*data == b"later", Ordering::Relaxed);
                stream.write(cx, data.to_vec()).unwrap();
            };
            let drained = move |_: &mut Cx, _: &Stream| {
                assert!(!its.load(Ordering::Relaxed), "when drained");
            };
            let session = Calls::new(answer).on_drained(drained);
            session.serve(incoming.open_unique(), &READ);
        };
        with_server("a_panic_in_a_callback", builder, serve, move |addr| {
            let mut clients: Vec<_> = (0..6).map(|_| Client::connect(&at, addr)).collect();
            for client in &mut clients {
                client.write_all(b"hello").unwrap();
                assert_eq!(client.exactly(5), b"hello");
            }
            for (i, order) in [(1, b"panic"), (4, b"later"), (3, b"after")] {
                clients[i].write_all(order).unwrap();
                let got = clients[i].is_reset();
                assert!(got.is_empty() || got == order && i != 1, "{got:?}");
            }
            for i in [0, 2, 5] {
                clients[i].write_all(b"still").unwrap();
                assert_eq!(clients[i].exactly(5), b"still");
            }
        });
        assert_eq!(panics.load(Ordering::Relaxed), 3);
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
                tell.send(listener.local_addr()).unwrap();
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
            tell.send(listener.local_addr()).unwrap();
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

/// A half-open connection is closed by whoever drops its stream: nobody else would close it.
#[test]
fn dropped_after_its_end_it_is_closed() {
    for backend in backends() {
        let serve = |_: &mut Cx, incoming: Incoming| {
            let (give, me) = channel::<Colored<Calls>>();
            let ends = move |cx: &mut Cx, _: &Stream, data: io::Result<Option<RecvBuf>>| {
                assert!(data.unwrap().is_none());
                me.recv()
                    .unwrap()
                    .post(cx, |calls, _| drop(calls.take_stream()));
            };
            let session = Calls::new(ends).half_open();
            give.send(session.serve(incoming.open_unique(), &READ))
                .unwrap();
        };
        with_server("dropped after its end", on(&backend), serve, |addr| {
            let mut client = TcpStream::connect(addr).unwrap();
            client.set_read_timeout(Some(LONG)).unwrap();
            client.shutdown(std::net::Shutdown::Write).unwrap();
            assert_eq!(client.read(&mut [0]).unwrap(), 0, "closed");
        });
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
    (simulation, addr.recv().unwrap())
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

/// Also behind the colors of a thousand others.
#[test]
fn who_connects_does_not_wait_for_a_turn_of_each_color() {
    let ran = Arc::new(AtomicUsize::new(0));
    let before = Arc::new(AtomicUsize::new(usize::MAX));
    let (count, told) = (Arc::clone(&ran), Arc::clone(&before));
    let (mut simulation, addr) = simulated_listener(move |_cx, _incoming| {
        told.store(count.load(Ordering::Relaxed), Ordering::Relaxed);
    });
    a_thousand_wait(&mut simulation, &ran);
    let _client = simulation.network().connect(addr).unwrap();
    settle(&mut simulation);
    assert_eq!(ran.load(Ordering::Relaxed), 1_000);
    let before = before.load(Ordering::Relaxed);
    assert!(before < 100, "{before} went before");
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

/// Who has been told the end costs no more events, whatever is asked for and however the runtime
/// ends.
#[test]
fn nothing_is_received_after_the_end() {
    static ONCE: Handler = Handler::new("once");
    static OTHERS: Handler = Handler::new("others");
    for ends in [
        "by the peer",
        "by the peer's reset",
        "by a stop",
        "by a stop after a pause",
        "by a stop after a pause and a resume",
    ] {
        let (give, given) = channel();
        let (mut simulation, client) = simulated(move |_, stream| {
            // What the test itself posts runs under another handler.
            let session = Calls::none().half_open().serve(stream, &ONCE);
            give.send(session.via(&OTHERS)).unwrap();
        });
        settle(&mut simulation);
        let poster = simulation.poster();
        let session = given.recv().unwrap();
        match ends {
            "by the peer" => client.shutdown_write(),
            "by the peer's reset" => client.reset(),
            _ => {}
        }
        settle(&mut simulation);
        if ends.starts_with("by the peer") {
            for _ in 0..3 {
                let resume = |calls: &mut Calls, cx: &mut Cx| {
                    calls.stream().resume(cx).unwrap();
                };
                session.try_post(&poster, resume).unwrap();
                settle(&mut simulation);
            }
        }
        let stop = move |calls: &mut Calls, cx: &mut Cx| {
            let stream = calls.stream();
            // The receive is being canceled when the end comes.
            if ends.contains("pause") {
                stream.pause(cx).unwrap();
            }
            if ends.contains("resume") {
                stream.resume(cx).unwrap();
            }
            cx.stop();
        };
        session.try_post(&poster, stop).unwrap();
        settle(&mut simulation);
        simulation.end().unwrap();
        let profile = simulation.profile();
        let once = profile.handlers.iter().find(|its| its.name == "once");
        // The event that opens it, and the one that tells the end.
        assert_eq!(once.unwrap().events(), 2, "{ends}");
    }
}

/// What has arrived is lost by a reset, and the connection closed: what waits for it is dropped.
#[test]
fn a_reset_is_also_the_end_of_what_had_arrived() {
    let alive = Alive::default();
    let given = alive.clone();
    let (mut simulation, mut client) = simulated(move |cx, stream| {
        let payload = given.payload();
        let session = Calls::none().serve(stream, &READ);
        session.post(cx, |calls, cx| calls.stream().pause(cx).unwrap());
        let resume = session.on(&READ, |calls, cx| calls.stream().resume(cx).unwrap());
        // Once the client has written.
        let mark = session.on(&READ, move |calls, cx| {
            let stream = calls.stream();
            let never = READ.on(stream.color(), move |_: &mut Cx| {
                let _payload = &payload;
                unreachable!("nothing is given")
            });
            stream.after_received(cx, never).unwrap();
            cx.timer(Duration::from_secs(2), resume);
        });
        cx.timer(Duration::from_secs(1), mark);
    });
    client.write_all(b"lost").unwrap();
    while simulation.now() < Duration::from_secs(2) {
        simulation.step();
    }
    assert_eq!(alive.count(), 1, "it is not given yet");
    client.reset();
    settle(&mut simulation);
    assert_eq!(alive.count(), 0);
}

/// What is queued behind a send that fails is lost with it, and that is said once.
#[test]
fn a_failed_send_is_the_end_of_what_is_queued() {
    let (tell, told) = channel();
    let (mut simulation, client) = simulated(move |cx, stream| {
        let tell = tell.clone();
        let told = tell.clone();
        let ends = move |cx: &mut Cx, stream: &Stream, data: io::Result<Option<RecvBuf>>| {
            let left = stream.queued_bytes(cx).unwrap();
            tell.send((data.is_err(), left)).unwrap();
        };
        let drained = move |_: &mut Cx, _: &Stream| told.send((false, 0)).unwrap();
        let session = Calls::new(ends).on_drained(drained);
        session.serve(stream, &READ).post(cx, |calls, cx| {
            let stream = calls.stream();
            // Otherwise it hears of the reset by receiving.
            stream.pause(cx).unwrap();
            // More than the network holds, and none fits behind another.
            for _ in 0..3 {
                stream.write(cx, pattern(100_000)).unwrap();
            }
        });
    });
    settle(&mut simulation);
    assert!(told.try_recv().is_err());
    client.reset();
    settle(&mut simulation);
    assert_eq!(told.try_iter().collect::<Vec<_>>(), [(true, 0)]);
}

/// What is thrown away by an abort does not count as queued any more.
#[test]
fn an_abort_leaves_queued_what_is_being_sent() {
    let (tell, told) = channel();
    let (mut simulation, _client) = simulated(move |cx, stream| {
        for _ in 0..3 {
            stream.write(cx, pattern(100_000)).unwrap();
        }
        stream.abort(cx);
        tell.send(stream.queued_bytes(cx).unwrap()).unwrap();
    });
    settle(&mut simulation);
    assert_eq!(told.recv(), Ok(100_000));
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

/// A listener that rests is reason enough to look, with no timer and before a later one.
#[test]
fn accepting_goes_on_a_little_after_it_has_failed() {
    for has_timer in [false, true] {
        accepts_after_failures(has_timer);
    }
}

fn accepts_after_failures(has_timer: bool) {
    let errors = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&errors);
    let mut simulation = Runtime::builder().cores(1).simulate(5).unwrap();
    let (tell, addr) = channel();
    let begin = move |cx: &mut Cx| {
        let accept = move |cx: &mut Cx, incoming: io::Result<Incoming>| match incoming {
            Ok(incoming) => drop((incoming, cx.stop())),
            Err(_) => drop(errors.fetch_add(1, Ordering::Relaxed)),
        };
        let on_accept = Callback::anonymous_each(ACCEPTING, accept);
        let listener = cx.listen(any_port(), Acceptors::Single, on_accept).unwrap();
        tell.send(listener.local_addr()).unwrap();
        if has_timer {
            let never = Callback::anonymous(ACCEPTING, |_| ());
            cx.timer(Duration::from_secs(3_600), never);
        }
    };
    simulation.start(begin).unwrap();
    let addr = loop {
        simulation.step();
        if let Ok(addr) = addr.try_recv() {
            break addr;
        }
    };
    let lack = rustix::io::Errno::MFILE.raw_os_error();
    for _ in 0..3 {
        simulation
            .network()
            .fail_next(mely::net::SimCall::Accept, lack);
    }
    let begun = simulation.now();
    let client = simulation.network().connect(addr);
    settle(&mut simulation);
    simulation.end().unwrap();
    assert_eq!(seen.load(Ordering::Relaxed), 3);
    let took = simulation.now() - begun;
    assert!(took >= Duration::from_millis(60), "after {took:?}");
    assert!(took < Duration::from_secs(1), "after {took:?}");
    drop(client);
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

/// Connections that come together are each given to the listener that they came to, and with the
/// listener goes its callback.
#[test]
fn listeners_of_one_core_are_not_mixed_up() {
    let alive = Alive::default();
    let (mut simulation, listeners, counts) = counted::<2>(7, &alive);
    let net = simulation.network().clone();
    let mut clients = Vec::new();
    for listener in listeners.iter().cycle().take(6) {
        clients.push(net.connect(listener.local_addr()).unwrap());
    }
    for _ in 0..100 {
        clients.push(net.connect(listeners[1].local_addr()).unwrap());
    }
    settle(&mut simulation);
    let [first, second] = counts.map(|count| count.load(Ordering::Relaxed));
    assert_eq!((first, second), (3, 103));
    assert_eq!(alive.count(), 2);
    for (left, listener) in [1, 0].into_iter().zip(listeners) {
        listener.close();
        settle(&mut simulation);
        assert_eq!(alive.count(), left);
    }
    drop(clients);
    assert_eq!(net.open_count(), 0);
}

/// A listener that rests, since accepting has failed, is closed like any other.
#[test]
fn a_resting_listener_is_closed() {
    for way in ["closed", "stopped", "cut short"] {
        let alive = Alive::default();
        let (mut simulation, [listener], [count]) = counted(8, &alive);
        let net = simulation.network().clone();
        let lack = rustix::io::Errno::MFILE.raw_os_error();
        net.fail_next(mely::net::SimCall::Accept, lack);
        let client = net.connect(listener.local_addr()).unwrap();
        while count.load(Ordering::Relaxed) < 1_000 {
            simulation.step();
        }
        match way {
            "closed" => {
                listener.close();
                settle(&mut simulation);
                // Who had connected before is still accepted.
                assert_eq!(count.load(Ordering::Relaxed), 1_001);
                assert_eq!((alive.count(), net.open_count()), (0, 1));
            }
            "stopped" => {
                simulation.poster().stop();
                settle(&mut simulation);
                simulation.end().unwrap();
                assert_eq!((alive.count(), net.open_count()), (0, 1));
            }
            _ => drop(simulation.end()),
        }
        drop((simulation, client));
        assert_eq!((alive.count(), net.open_count()), (0, 0), "{way}");
    }
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
