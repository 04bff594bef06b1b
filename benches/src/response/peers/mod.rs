//! The servers: a file for each library, written as its users would write it.
//!
//! Each listens on a free port of 127.0.0.1, prints its address ([`listening`]), and answers
//! requests ([`wire`](super::wire)) until SIGTERM. The number of its worker threads is given.

#[cfg(asio)]
mod asio;
mod mely;
mod monoio;
mod shared_epoll;
mod smol;
mod tokio;

use std::error::Error;
use std::io::Write;
use std::net::SocketAddr;

/// A server's result: none returns without an error.
pub type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// A server.
#[derive(Clone, Copy, Debug)]
pub struct Peer {
    /// As in tables and options.
    pub name: &'static str,
    /// Serves, with this number of workers, until a signal ends the process.
    pub serve: fn(usize) -> Result<()>,
}

/// All of them, in the order of the tables.
pub const PEERS: &[Peer] = &[
    peer("mely", mely::serve),
    peer("mely-epoll", mely::serve_by_epoll),
    peer("mely-no-stealing", mely::serve_without_stealing),
    peer("tokio", tokio::serve),
    peer("tokio-block-in-place", tokio::serve_in_place),
    peer("smol", smol::serve),
    #[cfg(asio)]
    peer("asio", asio::serve),
    peer("monoio", monoio::serve),
    peer("shared-epoll", shared_epoll::serve),
];

const fn peer(name: &'static str, serve: fn(usize) -> Result<()>) -> Peer {
    Peer { name, serve }
}

/// The peer of this name.
pub fn find(name: &str) -> Option<Peer> {
    PEERS.iter().copied().find(|peer| peer.name == name)
}

/// Says where the server listens; [`Running`](crate::web::servers::Running) reads it.
fn listening(addr: SocketAddr) -> std::io::Result<()> {
    println!("listening on {addr}");
    std::io::stdout().flush()
}
