//! Listeners: where connections are accepted, and when a listener is closed.

use super::{counted, echo, settle, with_stream};
use crate::common::wire::{ACCEPTING, Client, all_backends, any_port, on, with_server};
use crate::common::{Alive, Bound, LONG, backends, cores, eventually};
use mely::Post;
use mely::net::{Acceptors, Incoming, Stream};
use mely::runtime::{Finish, Stealing};
use mely::{Callback, Color, Cx, Runtime};
use std::collections::BTreeSet;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

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
                tell.send(listener.local_addr().ip().unwrap()).unwrap();
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
                for addr in [taken, own.local_addr().ip().unwrap()] {
                    for acceptors in [Acceptors::PerCore, Acceptors::Single] {
                        let error = cx.listen(addr, acceptors, ignore()).unwrap_err();
                        assert_eq!(error.kind(), ErrorKind::AddrInUse, "{acceptors:?}");
                    }
                }
                // Not this machine's.
                let addr = "192.0.2.1:0";
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
        let clients: Vec<_> = (0..CLIENTS).map(|_| net.connect(&addr).unwrap()).collect();
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
                    tell.send(listener.local_addr().ip().unwrap()).unwrap();
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
