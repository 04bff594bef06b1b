//! The proxy of `examples/proxy.rs`, between servers and clients on sockets.

#[path = "../../examples/proxy.rs"]
#[allow(dead_code, reason = "its `main` is not called")]
mod example;

use crate::common::wire::any_port;
use crate::common::{Bound, LONG, backends, cores, eventually};
use mely::Poster;
use mely::net::Addr;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::net::{UnixListener, UnixStream};
use std::sync::mpsc::channel;
use std::thread;

/// Stops the runtime when the clients are done, also by a panic.
struct Stop(Poster);

impl Drop for Stop {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// Runs `clients` against a proxy of this target on each of the kernel's backends.
fn with_proxy(
    what: &'static str,
    target: impl Into<Addr>,
    clients_max: usize,
    clients: impl Fn(SocketAddr) + Send + Sync,
) {
    let clients = |addr: Addr| clients(addr.ip().unwrap());
    with_proxy_at(any_port().into(), what, target.into(), clients_max, clients);
}

/// The same, for a proxy that listens there.
fn with_proxy_at(
    at: Addr,
    what: &'static str,
    target: Addr,
    clients_max: usize,
    clients: impl Fn(Addr) + Send + Sync,
) {
    for backend in backends() {
        let _bound = Bound::new(what);
        let runtime = cores(2).backend(backend).build().unwrap();
        let stop = Stop(runtime.poster());
        let (tell, addr) = channel();
        let (clients, at, target) = (&clients, at.clone(), target.clone());
        thread::scope(|scope| {
            let clients = scope.spawn(move || {
                let _stop = stop;
                clients(addr.recv().unwrap());
            });
            let outcome = runtime.run(move |cx| {
                let addr = example::listen(cx, at, target, clients_max).unwrap();
                tell.send(addr).unwrap();
            });
            clients.join().unwrap();
            outcome.unwrap();
        });
    }
}

fn client(addr: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(addr).unwrap();
    stream.set_read_timeout(Some(LONG)).unwrap();
    stream.set_write_timeout(Some(LONG)).unwrap();
    stream
}

/// Everything up to the end, or to an error.
fn rest(stream: &mut TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    match stream.read_to_end(&mut bytes) {
        Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => panic!("it hangs"),
        _ => bytes,
    }
}

/// A server that sends back what it gets, for as long as the test runs.
fn echo() -> SocketAddr {
    let listener = TcpListener::bind(any_port()).unwrap();
    let addr = listener.local_addr().unwrap();
    thread::spawn(move || {
        for stream in listener.incoming() {
            let (mut from, mut to) = match stream {
                Ok(stream) => (stream.try_clone().unwrap(), stream),
                Err(_) => return,
            };
            thread::spawn(move || {
                let _ = std::io::copy(&mut from, &mut to);
                let _ = to.shutdown(Shutdown::Write);
            });
        }
    });
    addr
}

#[test]
fn a_client_talks_to_the_target() {
    with_proxy("a client", echo(), 10, |addr| {
        let mut clients: Vec<_> = (0..5).map(|_| client(addr)).collect();
        for (number, stream) in clients.iter_mut().enumerate() {
            let mut writer = stream.try_clone().unwrap();
            let bytes = vec![number as u8; 3_000_000];
            let written = thread::spawn(move || {
                writer.write_all(&bytes).unwrap();
                writer.shutdown(Shutdown::Write).unwrap();
            });
            assert!(rest(stream) == vec![number as u8; 3_000_000]);
            written.join().unwrap();
        }
    });
}

#[test]
fn a_target_may_be_a_name() {
    let target = Addr::Name(format!("localhost:{}", echo().port()));
    with_proxy("a name", target, 10, |addr| {
        let mut stream = client(addr);
        stream.write_all(b"hello").unwrap();
        stream.shutdown(Shutdown::Write).unwrap();
        assert_eq!(rest(&mut stream), b"hello");
    });
}

/// From a Unix socket to another one.
#[test]
fn both_addresses_may_be_paths() {
    let path = |side| std::env::temp_dir().join(format!("mely-{side}-{}", std::process::id()));
    let (at, target) = (path("proxy"), path("target"));
    let _ = std::fs::remove_file(&target);
    let listener = UnixListener::bind(&target).unwrap();
    thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let mut asked = String::new();
            stream.read_to_string(&mut asked).unwrap();
            stream.write_all(asked.to_uppercase().as_bytes()).unwrap();
        }
    });
    let clients = |addr: Addr| {
        assert_eq!(addr, Addr::from(&at));
        for text in ["hello", "again"] {
            let mut stream = UnixStream::connect(&at).unwrap();
            stream.set_read_timeout(Some(LONG)).unwrap();
            stream.write_all(text.as_bytes()).unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            assert_eq!(answer, text.to_uppercase());
        }
    };
    with_proxy_at((&at).into(), "paths", (&target).into(), 10, clients);
    for path in [at, target] {
        std::fs::remove_file(path).unwrap();
    }
}

#[test]
fn who_finds_no_target_is_closed() {
    // Bound and not listening: refused.
    use rustix::net::{AddressFamily, SocketType, bind, getsockname, socket};
    let bound = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    bind(&bound, &any_port()).unwrap();
    let nowhere = SocketAddr::try_from(getsockname(&bound).unwrap()).unwrap();
    with_proxy("no target", nowhere, 10, |addr| {
        for _ in 0..3 {
            let mut stream = client(addr);
            let _ = stream.write_all(b"hello?");
            assert_eq!(rest(&mut stream), b"");
        }
    });
}

#[test]
fn who_finds_no_place_is_closed_and_places_come_back() {
    with_proxy("no place", echo(), 2, |addr| {
        let asks = |stream: &mut TcpStream| {
            let mut answer = [0; 1];
            stream.write_all(b"?").is_ok() && stream.read_exact(&mut answer).is_ok()
        };
        let mut in_place = [client(addr), client(addr)];
        assert!(in_place.iter_mut().all(asks));
        assert!(!asks(&mut client(addr)));
        assert!(in_place.iter_mut().all(asks));
        drop(in_place);
        eventually("a place", || asks(&mut client(addr)));
    });
}
