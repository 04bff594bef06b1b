//! Datagram sockets: made, sent to and received from without waiting.
//!
//! They are no operations of the event source, which only says when one is ready: a datagram is
//! received by the event that is called with it, so that what nobody takes up waits in the kernel,
//! within the limit of the socket, and not with the process.

use super::kernel::receive_datagrams;
use super::{Addr, Fd, Owner, socket};
use rustix::io::Errno;
use rustix::io::FdFlags;
use rustix::net::{SendFlags, SocketFlags, SocketType, sockopt};
use std::io;
use std::os::fd::OwnedFd;

/// A datagram that was received.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Datagram {
    /// Its bytes.
    pub data: Vec<u8>,
    /// Where it came from.
    pub from: Addr,
    /// It was longer than [`DATAGRAM_BYTES_MAX`], and the rest of it is lost.
    pub truncated: bool,
}

/// The most bytes of a datagram that are received: all of any of UDP's.
pub const DATAGRAM_BYTES_MAX: usize = 64 << 10;

/// How many are received by one call at most.
pub(super) const BATCH: usize = 16;

impl Datagram {
    pub(super) fn new(data: Vec<u8>, from: Addr, truncated: bool) -> Datagram {
        Datagram {
            data,
            from,
            truncated,
        }
    }
}

/// A socket of the address's family that is bound to it.
pub(super) fn bind(addr: &Addr, mode: Option<u32>) -> io::Result<Fd> {
    addr.to_any()?;
    let socket = socket::socket(addr, SocketType::DGRAM, SocketFlags::NONBLOCK)?;
    if *addr != Addr::Unnamed {
        socket::bind_to(&socket, addr, mode, SocketType::DGRAM)?;
    }
    Ok(socket::keep(socket))
}

/// One that was made elsewhere.
pub(super) fn adopt(socket: OwnedFd) -> io::Result<Fd> {
    if sockopt::socket_type(&socket).ok() != Some(SocketType::DGRAM) {
        let text = "not a datagram socket";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    rustix::io::ioctl_fionbio(&socket, true)?;
    rustix::io::fcntl_setfd(&socket, FdFlags::CLOEXEC)?;
    Ok(socket::keep(socket))
}

/// A descriptor that is closed when it is dropped. Nothing is under way on it then.
#[derive(Debug)]
pub(crate) struct Descriptor {
    fd: Fd,
    owner: Owner,
}

impl Descriptor {
    pub(crate) fn new(fd: Fd, owner: Owner) -> Descriptor {
        Descriptor { fd, owner }
    }

    pub(crate) fn fd(&self) -> Fd {
        self.fd
    }

    pub(crate) fn is_simulated(&self) -> bool {
        self.owner.is_simulated()
    }

    /// Another descriptor of the same socket, which is waited for by itself.
    pub(crate) fn duplicate(&self) -> io::Result<Descriptor> {
        let fd = match &self.owner {
            Owner::Kernel => socket::keep(rustix::io::fcntl_dupfd_cloexec(self.fd.borrow(), 0)?),
            Owner::Sim(net) => net.duplicate(self.fd),
        };
        Ok(Descriptor::new(fd, self.owner.clone()))
    }

    pub(crate) fn local_addr(&self) -> io::Result<Addr> {
        self.owner.local_addr(self.fd)
    }

    /// From now on datagrams go to `addr`, and come from there only.
    pub(crate) fn connect(&self, addr: &Addr) -> io::Result<()> {
        match &self.owner {
            Owner::Kernel => Ok(rustix::net::connect(self.fd.borrow(), &addr.to_any()?)?),
            Owner::Sim(net) => net.connect_datagrams(self.fd, addr),
        }
    }

    /// Sends a datagram at once, or not at all.
    pub(crate) fn send(&self, bytes: &[u8], to: Option<&Addr>) -> io::Result<()> {
        let sent = match (&self.owner, to) {
            (Owner::Kernel, Some(to)) => {
                rustix::net::sendto(self.fd.borrow(), bytes, FLAGS, &to.to_any()?)
            }
            (Owner::Kernel, None) => rustix::net::send(self.fd.borrow(), bytes, FLAGS),
            (Owner::Sim(net), to) => return net.send_datagram(self.fd, bytes, to),
        };
        Ok(sent.map(drop)?)
    }

    /// Gives `out` what is there: at most `most` datagrams, and not all if there are many.
    pub(crate) fn receive(&self, most: usize, out: &mut impl FnMut(Datagram)) -> io::Result<()> {
        let received = match &self.owner {
            Owner::Kernel => receive_datagrams(self.fd, most.min(BATCH), out),
            Owner::Sim(net) => net.receive_datagram(self.fd).map(out),
        };
        match received {
            Err(Errno::AGAIN | Errno::INTR) => Ok(()),
            received => Ok(received?),
        }
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        self.owner.close(self.fd);
    }
}

const FLAGS: SendFlags = SendFlags::NOSIGNAL.union(SendFlags::DONTWAIT);
