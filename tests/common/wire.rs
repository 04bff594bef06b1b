//! A server on any backend, and clients to it that block.

use super::{Bound, LONG, cores};
use mely::Post;
use mely::net::{Acceptors, Backend, Incoming, SimClient, SimNet};
use mely::{Builder, Callback, Color, Cx, Poster};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::mpsc::channel;
use std::sync::{Arc, Barrier};
use std::time::Instant;

/// The kernel's backends, and the simulated network.
pub fn all_backends() -> Vec<Backend> {
    let mut all = super::backends();
    all.push(Backend::Sim(SimNet::new(7)));
    all
}

/// The color of the listeners' callbacks.
pub const ACCEPTING: Color = Color::new(1);

pub fn any_port() -> SocketAddr {
    ([127, 0, 0, 1], 0).into()
}

/// A client that blocks, to a bound.
#[derive(Debug)]
pub enum Client {
    Tcp(TcpStream),
    Sim(SimClient),
}

impl Client {
    pub fn connect(backend: &Backend, addr: SocketAddr) -> Client {
        match backend {
            Backend::Sim(net) => Client::Sim(net.connect(addr).unwrap()),
            _ => {
                let stream = TcpStream::connect(addr).unwrap();
                stream.set_nodelay(true).unwrap();
                stream.set_read_timeout(Some(LONG)).unwrap();
                stream.set_write_timeout(Some(LONG)).unwrap();
                Client::Tcp(stream)
            }
        }
    }

    pub fn shutdown_write(&self) {
        match self {
            Client::Tcp(stream) => stream.shutdown(std::net::Shutdown::Write).unwrap(),
            Client::Sim(client) => client.shutdown_write(),
        }
    }

    /// Goes away with an error for the other end.
    pub fn reset(self) {
        match self {
            Client::Tcp(stream) => {
                let now = Some(std::time::Duration::ZERO);
                rustix::net::sockopt::set_socket_linger(&stream, now).unwrap();
            }
            Client::Sim(client) => client.reset(),
        }
    }

    /// Everything up to the end of the stream.
    pub fn rest(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.read_to_end(&mut bytes).unwrap();
        bytes
    }

    /// The other end resets the connection. Returns what came before.
    pub fn is_reset(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let end = self.read_to_end(&mut bytes);
        let kind = end.map_err(|error| error.kind());
        assert_eq!(kind, Err(ErrorKind::ConnectionReset), "after {bytes:?}");
        bytes
    }

    /// Exactly this many bytes.
    pub fn exactly(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.read_exact(&mut bytes).unwrap();
        bytes
    }
}

fn patiently<R>(mut call: impl FnMut() -> io::Result<R>) -> io::Result<R> {
    let begun = Instant::now();
    loop {
        match call() {
            Err(error) if error.kind() == ErrorKind::WouldBlock && begun.elapsed() < LONG => {
                std::thread::yield_now();
            }
            done => return done,
        }
    }
}

impl Read for Client {
    fn read(&mut self, space: &mut [u8]) -> io::Result<usize> {
        match self {
            Client::Tcp(stream) => stream.read(space),
            Client::Sim(client) => patiently(|| client.read(space)),
        }
    }
}

impl Write for Client {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Client::Tcp(stream) => stream.write(bytes),
            Client::Sim(client) => patiently(|| client.write(bytes)),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Stops the runtime when the client is done, also by a panic.
struct Stop(Poster);

impl Drop for Stop {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// Runs a server on which each connection is given to `serve`, and `client` against it; then stops
/// the server, which must end well. Returns what the client returned.
pub fn with_server<S, C, R>(
    what: &'static str,
    builder: Builder,
    serve: S,
    client: C,
) -> (R, Poster)
where
    S: Fn(&mut Cx, Incoming) + Send + Sync + 'static,
    C: FnOnce(SocketAddr) -> R + Send + 'static,
    R: Send + 'static,
{
    with_server_and_poster(what, builder, serve, |addr, _poster| client(addr))
}

/// The same for a client that posts to the server as well.
pub fn with_server_and_poster<S, C, R>(
    what: &'static str,
    builder: Builder,
    serve: S,
    client: C,
) -> (R, Poster)
where
    S: Fn(&mut Cx, Incoming) + Send + Sync + 'static,
    C: FnOnce(SocketAddr, &Poster) -> R + Send + 'static,
    R: Send + 'static,
{
    let _bound = Bound::new(what);
    let runtime = builder.build().unwrap();
    let (stop, poster) = (Stop(runtime.poster()), runtime.poster());
    let (tell, addr) = channel();
    let client = std::thread::spawn(move || {
        let stop = stop;
        client(addr.recv().unwrap(), &stop.0)
    });
    let outcome = runtime.run(move |cx| {
        let serve = move |cx: &mut Cx, incoming: io::Result<Incoming>| serve(cx, incoming.unwrap());
        let on_accept = Callback::anonymous_each(ACCEPTING, serve);
        let listener = cx
            .listen(any_port(), Acceptors::PerCore, on_accept)
            .unwrap();
        tell.send(listener.local_addr().ip().unwrap()).unwrap();
    });
    let returned = client.join();
    outcome.unwrap();
    (returned.unwrap(), poster)
}

/// Holds up the first cores of a runtime, this many, until the returned function is called.
pub fn hold_up(poster: &Poster, cores: usize) -> impl FnOnce() + use<> {
    let held_up = Arc::new(Barrier::new(cores + 1));
    for core in 0..cores {
        let (its, color) = (Arc::clone(&held_up), Color::from(100 + core as u64));
        let place = move |cx: &mut Cx| {
            cx.place(color, core);
            cx.post(color, move |_cx| {
                its.wait();
                its.wait();
            });
        };
        poster.try_post(color, place).unwrap();
    }
    held_up.wait();
    move || {
        held_up.wait();
    }
}

/// Two cores on this backend.
pub fn on(backend: &Backend) -> Builder {
    cores(2).backend(backend.clone())
}
