//! The one type that the layer above sees: three backends behind a static dispatch.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use crate::sync::Arc;

use super::epoll::Epoll;
use super::sim::Sim;
#[cfg(test)]
use super::uring::Flavor;
use super::uring::{FLAVORS, Uring};
use super::{
    Addr, Backend, Brings, Bufs, Completion, Config, Doorbell, Fd, FileOp, ListenOptions, Lookout,
    Op, Owner, Report, Side, Token, socket,
};

/// One core's event source. What its functions promise is written at the top of `super`.
#[derive(Debug)]
pub(crate) struct EventSource {
    which: Which,
}

// SAFETY: what is not `Send` in it are the queues that a ring and the kernel share, and addresses
// in boxes that submissions point to. The queues are memory of the process, reached through `&mut`,
// so by one thread at a time; and what a submission points to is owned by the table beside. The
// calls that the kernel wants from the thread that made the ring are `poll`, `catch_up`, `wait`,
// `connect` and the drop, which the contract at the top of `super` leaves to the owner; from
// another thread the kernel refuses them (EEXIST), and no memory is at stake.
unsafe impl Send for EventSource {}

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
        Ok((EventSource { which }, report))
    }

    /// A ring of one flavor and no other, so that the suite can run on each.
    #[cfg(test)]
    pub(super) fn with_flavor(flavor: Flavor, config: &Config) -> io::Result<EventSource> {
        config.check()?;
        let uring = Uring::new(flavor, config)?;
        Ok(EventSource {
            which: Which::Uring(Box::new(uring)),
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
    pub(crate) fn listen(&mut self, addr: &Addr, opts: &ListenOptions) -> io::Result<Fd> {
        forward!(mut self, b => b.listen(addr, opts))
    }

    /// A listener that was made elsewhere.
    pub(crate) fn adopt_listener(&mut self, socket: OwnedFd) -> io::Result<Fd> {
        match &self.which {
            // See `socket::listener`.
            Which::Uring(_) => socket::adopt_listener(socket, false),
            Which::Epoll(_) => socket::adopt_listener(socket, true),
            Which::Sim(_) => Err(super::no_descriptors()),
        }
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
    pub(crate) fn send(&mut self, token: Token, fd: Fd, buf: Bufs) -> Op {
        forward!(mut self, b => b.send(token, fd, buf))
    }

    /// Connects a new socket to `addr`.
    pub(crate) fn connect(&mut self, token: Token, addr: &Addr) -> io::Result<(Fd, Op)> {
        forward!(mut self, b => b.connect(token, addr))
    }

    /// Tells when `fd` has become readable, or writable, until canceled or failed.
    pub(crate) fn ready(&mut self, token: Token, fd: Fd, side: Side) -> Op {
        forward!(mut self, b => b.ready(token, fd, side))
    }

    /// Whether it has operations on files. If not, they take a thread that may block.
    pub(crate) fn has_files(&self) -> bool {
        matches!(self.which, Which::Uring(_))
    }

    /// Reads, writes or syncs a file. `None` if it has no such operations.
    pub(crate) fn file(&mut self, token: Token, file: Arc<OwnedFd>, op: Box<FileOp>) -> Option<Op> {
        match &mut self.which {
            Which::Uring(ring) => Some(ring.file(token, file, op)),
            Which::Epoll(_) | Which::Sim(_) => None,
        }
    }

    /// Asks an operation to end.
    pub(crate) fn cancel(&mut self, op: Op) {
        forward!(mut self, b => b.cancel(op))
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

    /// Has the kernel bring out what has happened, and hands over what was started; by another
    /// thread than the owner.
    pub(crate) fn bring_out(&mut self) -> Brings {
        match &mut self.which {
            Which::Uring(ring) => ring.bring_out(),
            Which::Epoll(_) => Brings::All,
            Which::Sim(sim) => sim.bring_out(),
        }
    }

    /// Hands over what was started, now; by the owner.
    ///
    /// # Errors
    ///
    /// As for `poll`.
    pub(crate) fn submit(&mut self) -> io::Result<()> {
        match &mut self.which {
            Which::Uring(ring) => ring.submit(),
            Which::Epoll(_) | Which::Sim(_) => Ok(()),
        }
    }

    /// As [`poll`](Self::poll), by another thread than the owner.
    pub(crate) fn take(&mut self, out: &mut Vec<Completion>, limit: usize) -> io::Result<()> {
        match &mut self.which {
            Which::Uring(ring) => {
                ring.take(out, limit);
                Ok(())
            }
            Which::Epoll(epoll) => epoll.take(out, limit),
            Which::Sim(sim) => sim.take(out, limit),
        }
    }

    /// From now on the source of core `core` can be watched, by this one.
    pub(crate) fn attach(&mut self, lookout: &Arc<Lookout>, core: usize) {
        match &mut self.which {
            Which::Uring(ring) => ring.attach(lookout, core),
            Which::Epoll(epoll) => epoll.attach(lookout, core),
            Which::Sim(_) => {}
        }
    }

    /// Has whoever watches told when something comes. True: something is there already, and is told
    /// of by the caller.
    pub(crate) fn watch(&mut self) -> bool {
        match &mut self.which {
            Which::Uring(ring) => ring.watch(),
            Which::Epoll(epoll) => epoll.watch(),
            Which::Sim(sim) => {
                sim.watched = true;
                sim.has_work()
            }
        }
    }

    /// Whether it was watched, in a simulation, and from now on is no more.
    #[cfg(feature = "sim")]
    pub(crate) fn is_watched(&mut self) -> bool {
        match &mut self.which {
            Which::Uring(_) | Which::Epoll(_) => false,
            Which::Sim(sim) => std::mem::take(&mut sim.watched),
        }
    }

    /// It is looked at now, and nobody need be told any more. `sleeps`: by its owner, who waits.
    #[inline]
    pub(crate) fn let_go(&mut self, sleeps: bool) {
        match &mut self.which {
            Which::Uring(ring) => ring.let_go(),
            Which::Epoll(epoll) if sleeps => epoll.let_go(),
            Which::Epoll(_) => {}
            Which::Sim(sim) => sim.watched = false,
        }
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
