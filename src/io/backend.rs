//! The one type that the layer above sees: three backends behind a static dispatch.

use std::io;
use std::marker::PhantomData;
use std::net::SocketAddr;
use std::time::Duration;

use super::epoll::Epoll;
use super::sim::Sim;
#[cfg(test)]
use super::uring::Flavor;
use super::uring::{FLAVORS, Uring};
use super::{
    Backend, Completion, Config, Doorbell, Fd, How, ListenOptions, Op, Owner, Report, SendBuf,
    Token,
};

/// One core's event source. What its functions promise is written at the top of `super`.
#[derive(Debug)]
pub(crate) struct EventSource {
    which: Which,
    /// A ring answers to the thread that made it and to no other.
    not_send: PhantomData<*mut ()>,
}

/// An enum and not a trait object: the calls are per operation and the set is closed.
#[derive(Debug)]
enum Which {
    Uring(Box<Uring>),
    Epoll(Box<Epoll>),
    Sim(Box<Sim>),
}

/// The same call on whichever it is.
macro_rules! forward {
    ($self:ident, $backend:ident => $call:expr) => {
        match &$self.which {
            Which::Uring($backend) => $call,
            Which::Epoll($backend) => $call,
            Which::Sim($backend) => $call,
        }
    };
    (mut $self:ident, $backend:ident => $call:expr) => {
        match &mut $self.which {
            Which::Uring($backend) => $call,
            Which::Epoll($backend) => $call,
            Which::Sim($backend) => $call,
        }
    };
}

impl EventSource {
    /// Makes a backend for the calling thread, and tells which one it became and why.
    ///
    /// # Errors
    ///
    /// For a `config` that no backend could meet, and when nothing that `choice` allows can be set
    /// up; then with the reasons of all that were tried.
    pub(crate) fn new(choice: Backend, config: &Config) -> io::Result<(EventSource, Report)> {
        config.check()?;
        let (which, report) = match choice {
            Backend::Sim(net) => {
                let (sim, detail) = Sim::new(net, config);
                let report = Report {
                    name: "sim",
                    detail,
                    refused: Vec::new(),
                };
                (Which::Sim(Box::new(sim)), report)
            }
            Backend::IoUring => {
                let (uring, report) = Self::uring(config).map_err(none_left)?;
                (Which::Uring(Box::new(uring)), report)
            }
            Backend::Epoll => Self::epoll(config, Vec::new()).map_err(none_left)?,
            Backend::Auto => match Self::uring(config) {
                Ok((uring, report)) => (Which::Uring(Box::new(uring)), report),
                Err((_, refused)) => Self::epoll(config, refused).map_err(none_left)?,
            },
        };
        Ok((
            EventSource {
                which,
                not_send: PhantomData,
            },
            report,
        ))
    }

    /// A ring of one flavor and no other, so that the suite can run on each.
    #[cfg(test)]
    pub(super) fn with_flavor(flavor: Flavor, config: &Config) -> io::Result<EventSource> {
        config.check()?;
        let uring = Uring::new(flavor, config)?;
        Ok(EventSource {
            which: Which::Uring(Box::new(uring)),
            not_send: PhantomData,
        })
    }

    fn uring(config: &Config) -> Result<(Uring, Report), (io::ErrorKind, Vec<String>)> {
        let mut refused = Vec::new();
        let mut kind = io::ErrorKind::Unsupported;
        for flavor in FLAVORS {
            match Uring::new(flavor, config) {
                Ok(uring) => {
                    let detail = flavor.to_string();
                    return Ok((
                        uring,
                        Report {
                            name: "io_uring",
                            detail,
                            refused,
                        },
                    ));
                }
                Err(error) => {
                    kind = error.kind();
                    refused.push(format!("io_uring ({flavor}): {error}"));
                }
            }
        }
        Err((kind, refused))
    }

    fn epoll(
        config: &Config,
        mut refused: Vec<String>,
    ) -> Result<(Which, Report), (io::ErrorKind, Vec<String>)> {
        match Epoll::new(config) {
            Ok(epoll) => {
                let detail = "edge-triggered".to_owned();
                let report = Report {
                    name: "epoll",
                    detail,
                    refused,
                };
                Ok((Which::Epoll(Box::new(epoll)), report))
            }
            Err(error) => {
                refused.push(format!("epoll: {error}"));
                Err((error.kind(), refused))
            }
        }
    }

    /// Whose descriptors it deals in.
    pub(crate) fn owner(&self) -> Owner {
        match &self.which {
            Which::Uring(_) | Which::Epoll(_) => Owner::Kernel,
            Which::Sim(sim) => Owner::Sim(sim.net().clone()),
        }
    }

    /// A listener bound to `addr`.
    pub(crate) fn listen(&mut self, addr: SocketAddr, opts: &ListenOptions) -> io::Result<Fd> {
        forward!(mut self, b => b.listen(addr, opts))
    }

    /// Accepts connections until canceled or failed.
    pub(crate) fn accept(&mut self, token: Token, listener: Fd) -> Op {
        forward!(mut self, b => b.accept(token, listener))
    }

    /// Accepts those connections of a listener that wait in the kernel; no accept is under way on
    /// it. From now on it does not block.
    pub(crate) fn accept_waiting(&mut self, listener: Fd) -> Vec<Fd> {
        forward!(mut self, b => b.accept_waiting(listener))
    }

    /// Bytes that have arrived and were not received.
    pub(crate) fn unread_bytes(&self, fd: Fd) -> usize {
        forward!(self, b => b.unread_bytes(fd))
    }

    /// Receives until the end of the stream, canceled or failed.
    pub(crate) fn recv(&mut self, token: Token, fd: Fd) -> Op {
        forward!(mut self, b => b.recv(token, fd))
    }

    /// Sends all of `buf`.
    pub(crate) fn send(&mut self, token: Token, fd: Fd, buf: SendBuf) -> Op {
        forward!(mut self, b => b.send(token, fd, buf))
    }

    /// Sends what the kernel takes at once, and says how many bytes; starts nothing.
    pub(crate) fn send_now(&self, fd: Fd, bytes: &[u8]) -> usize {
        forward!(self, b => b.send_now(fd, bytes))
    }

    /// Connects a new socket to `addr`.
    pub(crate) fn connect(&mut self, token: Token, addr: SocketAddr) -> io::Result<(Fd, Op)> {
        forward!(mut self, b => b.connect(token, addr))
    }

    /// Tells when `fd` has become readable until canceled or failed.
    pub(crate) fn readable(&mut self, token: Token, fd: Fd) -> Op {
        forward!(mut self, b => b.readable(token, fd))
    }

    /// Asks an operation to end.
    pub(crate) fn cancel(&mut self, op: Op) {
        forward!(mut self, b => b.cancel(op))
    }

    /// Shuts a connection down, at once. An error (it was closed by the peer) changes nothing.
    pub(crate) fn shutdown(&mut self, fd: Fd, how: How) {
        forward!(mut self, b => b.shutdown(fd, how))
    }

    /// Closes a descriptor on which nothing is under way.
    pub(crate) fn close(&mut self, fd: Fd) {
        forward!(mut self, b => b.close(fd))
    }

    /// Hands over what was started and appends at most `limit` completions to `out`.
    ///
    /// # Errors
    ///
    /// Only when the kernel refuses to go on at all: the core cannot be served any more.
    pub(crate) fn poll(&mut self, out: &mut Vec<Completion>, limit: usize) -> io::Result<()> {
        forward!(mut self, b => b.poll(out, limit))
    }

    /// Has the kernel bring out all that has happened by now, for the next `poll`s to tell. Returns
    /// how many completions and operations that concerns.
    ///
    /// # Errors
    ///
    /// As for `poll`.
    pub(crate) fn catch_up(&mut self) -> io::Result<usize> {
        forward!(mut self, b => b.catch_up())
    }

    /// Whether the last `poll` left something, though it may have had room for it: an operation has
    /// more, or waits for a buffer, or the kernel for room.
    pub(crate) fn has_more(&mut self) -> bool {
        forward!(mut self, b => b.has_more())
    }

    /// Whether a `poll` is known to be worth calling.
    pub(crate) fn has_work(&mut self) -> bool {
        forward!(mut self, b => b.has_work())
    }

    /// Sleeps until a `poll` is worth calling, the doorbell rings, or the time is over.
    ///
    /// # Errors
    ///
    /// As for `poll`.
    pub(crate) fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        forward!(mut self, b => b.wait(timeout))
    }

    /// What wakes this core.
    pub(crate) fn doorbell(&self) -> Doorbell {
        forward!(self, b => b.doorbell())
    }

    /// Operations whose terminal completion has not been polled.
    #[cfg_attr(not(test), allow(dead_code, reason = "for the tests of the contract"))]
    pub(crate) fn in_flight(&self) -> usize {
        forward!(self, b => b.in_flight())
    }
}

fn none_left((kind, refused): (io::ErrorKind, Vec<String>)) -> io::Error {
    io::Error::new(
        kind,
        format!("no event source can be set up: {}", refused.join("; ")),
    )
}
