//! Descriptors that leak or run out, signals, and system calls that are refused.
//!
//! Each idea is a pair: an ignored test that is run in a child, and the test that runs it.

pub(crate) mod starting;

use crate::common::calls::Calls;
use crate::common::wire::{ACCEPTING, any_port};
use crate::common::{
    Alive, LONG, Payload, backends, child, child_passes, cores, eventually, open_descriptors,
};
use mely::Post;
use mely::net::{Acceptors, Backend, Incoming, Listener, RecvBuf, Session, Stream};
use mely::{Callback, Color, Colored, Cx, Handler, Poster, RunError};
use rustix::process::{Resource, Rlimit, Signal, getpid, kill_process, setrlimit};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

static READ: Handler = Handler::new("read");

/// Runs a child on each backend that there is.
fn on_each_backend(test: &str) {
    for backend in backends() {
        child_passes(test, &[("MELY_BACKEND", name(&backend))]);
    }
}

pub(crate) fn name(backend: &Backend) -> &'static str {
    match backend {
        Backend::IoUring => "io_uring",
        Backend::Epoll => "epoll",
        _ => unreachable!(),
    }
}

fn serve(
    cx: &mut Cx,
    serve: impl Fn(&mut Cx, io::Result<Incoming>) + Send + Sync + 'static,
) -> Listener {
    let on_accept = Callback::anonymous_each(ACCEPTING, serve);
    cx.listen(any_port(), Acceptors::PerCore, on_accept)
        .unwrap()
}

fn echo(_cx: &mut Cx, incoming: io::Result<Incoming>) {
    let answer = |cx: &mut Cx, stream: &Stream, data: io::Result<Option<RecvBuf>>| {
        if let Ok(Some(data)) = data {
            let _ = stream.write(cx, data.to_vec());
        }
    };
    Calls::new(answer).serve(incoming.unwrap().open_unique(), &READ);
}

/// This many echoes, over this many connections.
fn exchange(addr: SocketAddr, connections: usize) -> Vec<TcpStream> {
    let mut clients: Vec<_> = (0..connections)
        .map(|_| TcpStream::connect(addr).unwrap())
        .collect();
    for client in &mut clients {
        client.set_read_timeout(Some(LONG)).unwrap();
        client.write_all(b"hello").unwrap();
        client.read_exact(&mut [0; 5]).unwrap();
    }
    clients
}

#[test]
fn no_descriptor_is_left_by_a_drained_run() {
    on_each_backend("system::child_no_descriptor_is_left_by_a_drained_run");
}

#[test]
#[ignore = "run in a process of its own"]
fn child_no_descriptor_is_left_by_a_drained_run() {
    let before = open_descriptors();
    for way in ["receiving", "paused", "silent", "held", "stopped by signal"] {
        let runtime = cores(2).build().unwrap();
        let poster = runtime.poster();
        let (tell, told) = channel();
        let client = std::thread::spawn(move || {
            let mut clients: Vec<_> = {
                let addr = told.recv().unwrap();
                (0..20)
                    .map(|_| TcpStream::connect(&addr).unwrap())
                    .collect()
            };
            for client in &mut clients {
                client.write_all(b"hello").unwrap();
                client.set_read_timeout(Some(LONG)).unwrap();
                client.read_exact(&mut [0; 5]).unwrap();
            }
            poster.stop();
            clients
        });
        runtime
            .run(move |cx| {
                if way == "stopped by signal" {
                    let stop = Callback::anonymous_each(Color::from(1), |cx, ()| cx.stop());
                    cx.on_stop_signal(stop).unwrap();
                }
                let accept = move |cx: &mut Cx, incoming: io::Result<Incoming>| {
                    let stream = incoming.unwrap().open_unique();
                    let answer =
                        move |cx: &mut Cx, stream: &Stream, data: io::Result<Option<RecvBuf>>| {
                            if let Ok(Some(data)) = data {
                                stream.write(cx, data.to_vec()).unwrap();
                                if way == "paused" {
                                    stream.pause(cx).unwrap();
                                }
                            }
                        };
                    // A handle that is in nobody's hands but the runtime's own.
                    fn held<T: Send + 'static>(cx: &mut Cx, color: Color, handle: T) {
                        let never = Callback::anonymous(color, move |_| drop(handle));
                        cx.timer(Duration::from_secs(3_600), never);
                    }
                    let color = stream.color();
                    match way {
                        // Has no session, and lives until the end all the same.
                        "silent" => cx.post(color, move |cx| {
                            stream.write(cx, "hello").unwrap();
                            held(cx, color, stream);
                        }),
                        "held" => held(cx, color, Calls::new(answer).serve(stream, &READ)),
                        _ => drop(Calls::new(answer).serve(stream, &READ)),
                    }
                };
                let listener = serve(cx, accept);
                tell.send(listener.local_addr()).unwrap();
            })
            .unwrap();
        drop(client.join().unwrap());
        assert_eq!(open_descriptors(), before, "{way}");
    }
}

/// The most natural program: a session owns its stream, and the connection holds the session.
struct Echoes {
    stream: Stream,
    way: &'static str,
    _alive: Payload,
}

impl Session for Echoes {
    fn data(&mut self, cx: &mut Cx, data: RecvBuf) {
        self.stream.write(cx, data.to_vec()).unwrap();
        if self.way == "paused" {
            self.stream.pause(cx).unwrap();
        }
    }
}

/// Stops a runtime, also if its thread fails.
struct Stops(Poster);

impl Drop for Stops {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// A server that owns its listener, whose callback holds the server.
struct Server {
    listener: Option<Listener>,
    _alive: Payload,
}

#[test]
fn posters_that_are_kept_hold_no_descriptor() {
    on_each_backend("system::child_posters_that_are_kept");
}

#[test]
#[ignore = "run in a process of its own"]
fn child_posters_that_are_kept() {
    let before = open_descriptors();
    let posters: Vec<Poster> = (0..10)
        .map(|_| {
            let runtime = cores(2).build().unwrap();
            let poster = runtime.poster();
            runtime.run(|cx| cx.stop()).unwrap();
            poster
        })
        .collect();
    assert_eq!(open_descriptors(), before);
    for poster in &posters {
        poster.stop();
        poster.try_post(Color::from(1), |_cx| ()).unwrap_err();
    }
}

#[test]
fn sessions_that_own_their_streams_are_dropped() {
    on_each_backend("system::child_sessions_are_dropped");
}

#[test]
#[ignore = "run in a process of its own"]
fn child_sessions_are_dropped() {
    const CLIENTS: usize = 50;
    let before = open_descriptors();
    for way in ["gone", "open", "paused", "cut short"] {
        let alive = Alive::default();
        let given = alive.clone();
        let runtime = cores(2)
            .drain_deadline(if way == "cut short" {
                Duration::ZERO
            } else {
                LONG
            })
            .build()
            .unwrap();
        let stops = Stops(runtime.poster());
        let (tell, told) = channel();
        let seen = alive.clone();
        let client = std::thread::spawn(move || {
            let clients = exchange(told.recv().unwrap(), CLIENTS);
            let server = 1;
            assert_eq!(seen.count() as usize, CLIENTS + server);
            let open = open_descriptors();
            if way == "gone" {
                drop(clients);
                // While the runtime goes on: nothing is left of them, neither state nor descriptor.
                eventually("the drop of each session", || {
                    seen.count() as usize == server
                });
                eventually("the close of both ends", || {
                    open_descriptors() == open - 2 * CLIENTS
                });
                return Vec::new();
            }
            drop(stops);
            clients
        });
        let _ = runtime.run(move |cx| {
            let color = Color::from(1);
            let server = Server {
                listener: None,
                _alive: given.payload(),
            };
            let server = Colored::new(cx, color, server);
            let holds = server.clone();
            let accept = move |cx: &mut Cx, incoming: io::Result<Incoming>| {
                let Ok(incoming) = incoming else { return };
                holds
                    .with(cx, |server, _cx| assert!(server.listener.is_some()))
                    .unwrap();
                let alive = given.payload();
                incoming.serve(&READ, move |_, stream, _| Echoes {
                    stream,
                    way,
                    _alive: alive,
                });
            };
            let on_accept = Callback::anonymous_each(color, accept);
            let any = "127.0.0.1:0";
            let listener = cx.listen(any, Acceptors::PerCore, on_accept).unwrap();
            let addr = listener.local_addr();
            server.post(cx, move |server, _cx| {
                server.listener = Some(listener);
                tell.send(addr.ip().unwrap()).unwrap();
            });
        });
        drop(client.join().unwrap());
        assert_eq!(alive.count(), 0, "{way}: states are left");
        assert_eq!(open_descriptors(), before, "{way}: descriptors are left");
    }
}

#[test]
fn no_descriptor_is_left_by_a_run_cut_short() {
    on_each_backend("system::child_no_descriptor_is_left_by_a_run_cut_short");
}

#[test]
#[ignore = "run in a process of its own"]
fn child_no_descriptor_is_left_by_a_run_cut_short() {
    // One that accepts nothing, to connect to; and a port where nobody answers is not at hand.
    let before = open_descriptors();
    for way in [
        "panic",
        "panic in the start",
        "panic while closing",
        "deadline",
    ] {
        for n in [1, 2] {
            let runtime = cores(n)
                .drain_deadline(Duration::from_millis(50))
                .build()
                .unwrap();
            let (tell, told) = channel();
            let poster = runtime.poster();
            let client = std::thread::spawn(move || {
                if way == "panic in the start" {
                    return Vec::new();
                }
                let clients = exchange(told.recv().unwrap(), 10);
                if way == "deadline" {
                    fn again(cx: &mut Cx) {
                        cx.post(Color::from(5), again);
                    }
                    poster.try_post(Color::from(5), again).unwrap();
                    poster.stop();
                } else if way == "panic" {
                    poster
                        .try_post(Color::from(5), |_cx| panic!("short"))
                        .unwrap();
                } else {
                    (&clients[3]).write_all(b"close").unwrap();
                }
                clients
            });
            let outcome = runtime.run(move |cx| {
                let accept = |_: &mut Cx, incoming: io::Result<Incoming>| {
                    let answer = |cx: &mut Cx, stream: &Stream, data: io::Result<_>| {
                        let data: Result<Option<RecvBuf>, _> = data;
                        let Ok(Some(data)) = data else { return };
                        if &*data == b"close" {
                            // The close is on its way when the panic comes.
                            stream.close(cx);
                            cx.post(Color::from(9), |cx| {
                                cx.post(Color::from(8), |_cx| panic!("short"));
                            });
                            return;
                        }
                        stream.write(cx, data.to_vec()).unwrap();
                    };
                    let stream = incoming.unwrap().open(Color::from(6));
                    Calls::new(answer).serve(stream, &READ);
                };
                let listener = serve(cx, accept);
                let addr = listener.local_addr();
                let _ = tell.send(addr.ip().unwrap());
                if way == "panic in the start" {
                    // With a connect under way, and listeners on their way to their cores.
                    let connected = Callback::anonymous_value(
                        Color::from(2),
                        |_: &mut Cx, _: io::Result<_>| (),
                    );
                    cx.connect(addr, LONG, connected).unwrap();
                    panic!("short");
                }
            });
            match outcome {
                Err(RunError::Panicked { panic, .. }) => assert_eq!(panic.message, "short"),
                Err(RunError::Deadline { .. }) => assert_eq!(way, "deadline"),
                other => panic!("{other:?}"),
            }
            drop(client.join().unwrap());
            assert_eq!(open_descriptors(), before, "{way} on {n}");
        }
    }
}

/// What a core still drops once it has left its handlers is waited for, longer than a handler that
/// is stuck.
#[test]
fn a_core_that_takes_long_to_leave_is_in_no_handler() {
    struct Slow(Arc<AtomicUsize>);
    impl Drop for Slow {
        fn drop(&mut self) {
            std::thread::sleep(Duration::from_secs(1));
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    let ([_, silent], _ports) = deaf_ports();
    let dropped = Arc::new(AtomicUsize::new(0));
    let slow = Slow(Arc::clone(&dropped));
    let outcome = cores(1).build().unwrap().run(move |cx| {
        let connected =
            Callback::anonymous_value(Color::from(2), move |_: &mut Cx, _: io::Result<_>| {
                let _slow = &slow;
            });
        cx.connect(silent, LONG, connected).unwrap();
        panic!("short");
    });
    assert!(
        matches!(outcome, Err(RunError::Panicked { .. })),
        "{outcome:?}"
    );
    assert_eq!(dropped.load(Ordering::Relaxed), 1, "it has left");
}

/// A port that refuses, and one where nobody answers, since the one place in its queue is taken;
/// and what keeps them so.
fn deaf_ports() -> ([SocketAddr; 2], (OwnedFd, OwnedFd, TcpStream)) {
    use rustix::net::{bind, getsockname, listen};
    let mut addrs = [any_port(); 2];
    let [refuses, silent] = [0, 1].map(|i| {
        let socket = socket();
        bind(&socket, &any_port()).unwrap();
        addrs[i] = getsockname(&socket).unwrap().try_into().unwrap();
        socket
    });
    listen(&silent, 0).unwrap();
    let first = TcpStream::connect(addrs[1]).unwrap();
    (addrs, (refuses, silent, first))
}

#[test]
fn a_failed_connect_leaves_no_descriptor() {
    on_each_backend("system::child_a_failed_connect");
}

#[test]
#[ignore = "run in a process of its own"]
fn child_a_failed_connect() {
    const CONNECTS: usize = 10;
    let ([refuses, silent], _ports) = deaf_ports();
    let before = open_descriptors();
    let failed = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&failed);
    let runtime = cores(1).build().unwrap();
    runtime
        .run(move |cx| {
            let open = open_descriptors();
            for _ in 0..CONNECTS {
                let count = Arc::clone(&count);
                let refused = move |cx: &mut Cx, result: io::Result<Incoming>| {
                    assert_eq!(result.unwrap_err().kind(), io::ErrorKind::ConnectionRefused);
                    if count.fetch_add(1, Ordering::Relaxed) + 1 < CONNECTS {
                        return;
                    }
                    // While the runtime goes on.
                    assert_eq!(open_descriptors(), open);
                    for _ in 0..CONNECTS {
                        let count = Arc::clone(&count);
                        let canceled = move |_: &mut Cx, result: io::Result<Incoming>| {
                            assert!(result.is_err());
                            count.fetch_add(1, Ordering::Relaxed);
                        };
                        let canceled = Callback::anonymous_value(Color::from(1), canceled);
                        cx.connect(silent, LONG, canceled).unwrap();
                    }
                    assert_eq!(open_descriptors(), open + CONNECTS);
                    cx.stop();
                };
                cx.connect(
                    refuses,
                    LONG,
                    Callback::anonymous_value(Color::from(1), refused),
                )
                .unwrap();
            }
        })
        .unwrap();
    assert_eq!(failed.load(Ordering::Relaxed), 2 * CONNECTS);
    assert_eq!(open_descriptors(), before);
}

#[test]
fn no_descriptor_is_left_by_a_forced_end() {
    on_each_backend("system::child_a_forced_end");
}

#[test]
#[ignore = "run in a process of its own"]
fn child_a_forced_end() {
    const CLIENTS: usize = 5;
    let maximum = mely::net::raise_open_file_limit().unwrap();
    let ([_, silent], _ports) = deaf_ports();
    // What is under way when a panic ends the run: connects that nobody answers; connections that
    // came while a handler ran; a listener that rests, since its accept had no descriptors.
    for way in ["connecting", "accepted", "resting"] {
        let before = open_descriptors();
        let runtime = cores(1).build().unwrap();
        let clients = Arc::new(Mutex::new(Vec::new()));
        let held = Arc::clone(&clients);
        let outcome = runtime.run(move |cx| {
            if way == "connecting" {
                for _ in 0..CLIENTS {
                    let never = |_: &mut Cx, _: io::Result<Incoming>| unreachable!();
                    let never = Callback::anonymous_value(Color::from(1), never);
                    cx.connect(silent, LONG, never).unwrap();
                }
                // Once more through the event source, which begins them.
                let short = Callback::anonymous(Color::from(2), |_| panic!("short"));
                cx.timer(Duration::from_millis(20), short);
                return;
            }
            let accept = move |_: &mut Cx, incoming: io::Result<Incoming>| {
                assert_eq!(incoming.is_err(), way == "resting");
                panic!("short");
            };
            let listener = serve(cx, accept);
            let addr = listener.local_addr();
            let sockets: Vec<_> = (0..CLIENTS).map(|_| socket()).collect();
            for socket in &sockets {
                rustix::net::connect(socket, &addr.ip().unwrap()).unwrap();
            }
            held.lock().unwrap().extend(sockets);
            if way == "resting" {
                limit_descriptors(3, maximum);
            }
        });
        limit_descriptors(maximum, maximum);
        let Err(RunError::Panicked { panic, .. }) = outcome else {
            panic!("{way}: {outcome:?}");
        };
        assert_eq!(panic.message, "short", "{way}");
        clients.lock().unwrap().clear();
        assert_eq!(open_descriptors(), before, "{way}");
    }
}

fn socket() -> OwnedFd {
    use rustix::net::{AddressFamily, SocketType, socket};
    socket(AddressFamily::INET, SocketType::STREAM, None).unwrap()
}

/// How many descriptors this process may have, from now on.
fn limit_descriptors(most: u64, maximum: u64) {
    let limit = Rlimit {
        current: Some(most),
        maximum: Some(maximum),
    };
    setrlimit(Resource::Nofile, limit).unwrap();
}

#[test]
fn accepting_goes_on_after_descriptors_ran_out() {
    on_each_backend("system::child_accepting_goes_on");
}

#[test]
#[ignore = "run in a process of its own"]
fn child_accepting_goes_on() {
    let maximum = mely::net::raise_open_file_limit().unwrap();
    // The clients' descriptors, while there are any.
    let sockets: Vec<_> = (0..10).map(|_| socket()).collect();
    let runtime = cores(2).build().unwrap();
    let poster = runtime.poster();
    let (tell, told) = channel::<SocketAddr>();
    let errors = Arc::new(AtomicUsize::new(0));
    let seen = Arc::clone(&errors);
    let client = std::thread::spawn(move || {
        let addr = told.recv().unwrap();
        for socket in &sockets {
            rustix::net::connect(socket, &addr).unwrap();
        }
        eventually("an error from accept", || seen.load(Ordering::Relaxed) >= 3);
        limit_descriptors(maximum, maximum);
        for socket in sockets {
            let mut client = TcpStream::from(socket);
            client.set_read_timeout(Some(LONG)).unwrap();
            client.write_all(b"patient").unwrap();
            let mut back = [0; 7];
            client.read_exact(&mut back).unwrap();
            assert_eq!(&back, b"patient");
        }
        poster.stop();
    });
    runtime
        .run(move |cx| {
            let accept = move |cx: &mut Cx, incoming: io::Result<Incoming>| match incoming {
                Err(error) => {
                    let lack = rustix::io::Errno::MFILE.raw_os_error();
                    assert_eq!(error.raw_os_error(), Some(lack));
                    errors.fetch_add(1, Ordering::Relaxed);
                }
                incoming => echo(cx, incoming),
            };
            let listener = serve(cx, accept);
            // Before the accepts are armed: the ring goes by the limit that holds then.
            limit_descriptors(3, maximum);
            tell.send(listener.local_addr().ip().unwrap()).unwrap();
        })
        .unwrap();
    client.join().unwrap();
}

#[test]
fn signals_stop_a_runtime() {
    on_each_backend("system::child_signals_stop_a_runtime");
}

#[test]
#[ignore = "run in a process of its own"]
fn child_signals_stop_a_runtime() {
    let before = open_descriptors();
    for signal in [Signal::INT, Signal::TERM] {
        let calls = Arc::new(AtomicUsize::new(0));
        let (count, armed) = (Arc::clone(&calls), channel());
        let seen = Arc::clone(&calls);
        let runtime = cores(2)
            .on_panic(mely::runtime::OnPanic::DropEvent)
            .spin(Duration::ZERO)
            .build()
            .unwrap();
        let killer = std::thread::spawn(move || {
            armed.1.recv().unwrap();
            for n in 1..=3 {
                kill_process(getpid(), signal).unwrap();
                eventually("the signal", || seen.load(Ordering::Relaxed) >= n);
            }
        });
        let tell = armed.0;
        runtime
            .run(move |cx| {
                let on_signal = Callback::anonymous_each(Color::from(4), move |cx, ()| {
                    assert_eq!(cx.color(), Color::from(4));
                    match count.fetch_add(1, Ordering::Relaxed) {
                        0 => {}
                        // A panic must not make the process deaf.
                        1 => panic!("at the second"),
                        _ => cx.stop(),
                    }
                });
                cx.on_stop_signal(on_signal).unwrap();
                tell.send(()).unwrap();
            })
            .unwrap();
        killer.join().unwrap();
        assert!(calls.load(Ordering::Relaxed) >= 3);
        assert_eq!(open_descriptors(), before, "the watch is over");
    }
}

/// A test that hangs or is not there must not pass for one that passed.
#[test]
fn a_child_that_is_not_there_is_noticed() {
    let output = child("no_such_test", &[]);
    assert!(!String::from_utf8_lossy(&output.stdout).contains("1 passed"));
}

#[test]
fn the_limit_of_descriptors_is_raised() {
    on_each_backend("system::child_the_limit_is_raised");
}

#[test]
#[ignore = "run in a process of its own"]
fn child_the_limit_is_raised() {
    use rustix::process::getrlimit;
    let maximum = getrlimit(Resource::Nofile).maximum.unwrap_or(100_000);
    limit_descriptors(50, maximum);
    assert_eq!(mely::net::raise_open_file_limit().unwrap(), maximum);
    assert_eq!(getrlimit(Resource::Nofile).current, Some(maximum));
    // Also if there is nothing left to raise.
    assert_eq!(mely::net::raise_open_file_limit().unwrap(), maximum);
}
