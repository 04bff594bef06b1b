//! Who closes a descriptor, and knows its addresses, where no backend is at hand.

use super::{
    Addr, Bufs, Credentials, Descriptor, Endpoint, Fd, How, SimDisk, SimNet, What, datagram, socket,
};
use std::io;

/// Whose descriptors the numbers of a backend are.
#[derive(Clone, Debug)]
pub(crate) enum Owner {
    /// The process's.
    Kernel,
    /// The simulated network's.
    Sim(SimNet),
}

impl Owner {
    /// Whether these are no descriptors of the system's.
    pub(crate) fn is_simulated(&self) -> bool {
        matches!(self, Owner::Sim(_))
    }

    /// A datagram socket that is bound to an address, or was made elsewhere.
    pub(crate) fn bind(&self, endpoint: Endpoint) -> io::Result<Descriptor> {
        let fd = match (self, endpoint.what) {
            (Owner::Kernel, What::Addr(addr)) => {
                datagram::bind(&addr, endpoint.mode).map_err(|error| addr.name_error(error))?
            }
            (Owner::Kernel, What::Socket(socket)) => datagram::adopt(socket)?,
            (Owner::Sim(net), What::Addr(addr)) => {
                net.bind(&addr).map_err(|error| addr.name_error(error))?
            }
            (Owner::Sim(_), What::Socket(_)) => return Err(super::no_descriptors()),
        };
        Ok(Descriptor::new(fd, self.clone()))
    }

    /// The disk, in a simulation.
    pub(crate) fn disk(&self) -> Option<&SimDisk> {
        match self {
            Owner::Kernel => None,
            Owner::Sim(net) => Some(net.disk()),
        }
    }

    /// Closes a descriptor from anywhere. No operation is under way on it, and it is the caller's:
    /// given by an accept, a connect or a listen of this owner's, and not closed since.
    pub(crate) fn close(&self, fd: Fd) {
        match self {
            Owner::Kernel => fd.close(),
            Owner::Sim(net) => net.close(fd),
        }
    }

    /// Resets a connection, from anywhere: the peer gets an error instead of what it has not been
    /// sent yet, and never an end. What is under way on the descriptor fails, and whoever has it
    /// closes it as ever.
    pub(crate) fn reset(&self, fd: Fd) {
        match self {
            Owner::Kernel => socket::reset(fd),
            Owner::Sim(net) => net.reset(fd),
        }
    }

    /// Sends what the kernel takes without waiting, from anywhere, and says how many bytes that is.
    /// 0 also where it fails: the send of what is left meets the error again. The rule of one send
    /// in the process counts for it too.
    pub(crate) fn send_now(&self, fd: Fd, bufs: &Bufs) -> usize {
        match self {
            Owner::Kernel => bufs.send(fd, 0).unwrap_or(0),
            // Every send there is one that a seed can delay or cut.
            Owner::Sim(_) => 0,
        }
    }

    /// Shuts a connection down, at once, from anywhere. An error (it was closed by the peer)
    /// changes nothing.
    pub(crate) fn shutdown(&self, fd: Fd, how: How) {
        match self {
            Owner::Kernel => socket::shutdown(fd, how),
            Owner::Sim(net) => net.shutdown(fd, how),
        }
    }

    /// Whether the end of the peer's stream, or an error, has arrived behind all bytes.
    pub(crate) fn has_ended(&self, fd: Fd) -> bool {
        match self {
            Owner::Kernel => socket::has_ended(fd),
            Owner::Sim(net) => net.has_ended(fd),
        }
    }

    /// Where a listener or connection is bound: the port that port 0 became.
    pub(crate) fn local_addr(&self, fd: Fd) -> io::Result<Addr> {
        match self {
            Owner::Kernel => socket::local_addr(fd),
            Owner::Sim(net) => net.local_addr_of(fd),
        }
    }

    /// Who is at the other end. Not part of an accept's completion: a multishot accept cannot tell,
    /// and most servers never ask.
    pub(crate) fn peer_addr(&self, fd: Fd) -> io::Result<Addr> {
        match self {
            Owner::Kernel => socket::peer_addr(fd),
            Owner::Sim(net) => net.peer_addr_of(fd),
        }
    }

    /// Which process is at the other end of a Unix socket.
    pub(crate) fn peer_credentials(&self, fd: Fd) -> io::Result<Credentials> {
        match self {
            Owner::Kernel => socket::peer_credentials(fd),
            Owner::Sim(_) => Err(super::no_descriptors()),
        }
    }
}
