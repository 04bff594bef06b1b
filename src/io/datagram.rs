//! Datagram sockets: made, sent to and received from without waiting.
//!
//! They are no operations of the event source, which only says when one is ready: a datagram is
//! received by the event that is called with it, so that what nobody takes up waits in the kernel,
//! within the limit of the socket, and not with the process.

use super::kernel::{receive_datagrams, send_datagrams, set_udp_gro};
use super::{Addr, Fd, Owner, socket};
use crate::sync::atomic::{AtomicBool, Ordering};
use arrayvec::ArrayVec;
use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketAddrAny, SocketFlags, SocketType, recvmsg, sendmsg,
    sendmsg_addr, sockopt,
};
use std::cell::RefCell;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

/// A datagram that was received.
#[derive(Debug)]
#[non_exhaustive]
pub struct Datagram {
    /// Its bytes.
    pub data: Vec<u8>,
    /// Where it came from.
    pub from: Addr,
    /// It was longer than [`DATAGRAM_BYTES_MAX`], and the rest of it is lost; or some of its
    /// descriptors are, since the process may have no more.
    pub truncated: bool,
    /// The descriptors that were sent with it over a Unix socket, not to be inherited by children.
    pub descriptors: Vec<OwnedFd>,
}

/// The most bytes of a datagram that are received: all of any of UDP's.
pub const DATAGRAM_BYTES_MAX: usize = 64 << 10;

/// As many descriptors are sent with a datagram at most: the kernel's limit.
pub(super) const DESCRIPTORS_MAX: usize = 253;

/// How many buffers are received by one call at most.
pub(super) const BATCH: usize = 16;

/// How many datagrams are sent by one call at most, and cut from one message: Linux's limit there,
/// before 6.9.
pub(super) const SEGMENTS_MAX: usize = 64;

/// The most bytes of a message that is cut into datagrams: those of a datagram of UDP over IPv4.
const MESSAGE_BYTES_MAX: usize = 65_507;

impl Datagram {
    pub(super) fn new(data: Vec<u8>, from: Addr, truncated: bool) -> Datagram {
        Datagram {
            data,
            from,
            truncated,
            descriptors: Vec::new(),
        }
    }
}

/// A socket of the address's family that is bound to it.
pub(super) fn bind(addr: &Addr, mode: Option<u32>) -> io::Result<Fd> {
    addr.to_any()?;
    let socket = socket::socket(addr, SocketType::DGRAM, SocketFlags::NONBLOCK)?;
    if !addr.is_unix() {
        // Refused by kernels before 5.0, where each datagram comes by itself.
        let _ = set_udp_gro(&socket);
    }
    if *addr != Addr::Unnamed {
        socket::bind_to(&socket, addr, mode, SocketType::DGRAM)?;
    }
    Ok(socket::keep(socket))
}

/// One that was made elsewhere. Its options stay as they are: the part of the program that made it
/// may receive from it as well, and would see joined datagrams.
pub(super) fn adopt(socket: OwnedFd) -> io::Result<Fd> {
    if sockopt::socket_type(&socket).ok() != Some(SocketType::DGRAM) {
        let text = "not a datagram socket";
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    socket::take_over(socket, true)
}

/// A payload that fits into a packet of every path (RFC 8200, section 5).
const PACKET_BYTES_MIN: usize = 1_280 - 40 - 8;

/// Others ignore that a message is to be cut, and send it whole.
fn is_udp(fd: Fd, owner: &Owner) -> bool {
    let protocol = || rustix::net::sockopt::socket_protocol(fd.borrow());
    !owner.is_simulated() && protocol() == Ok(Some(rustix::net::ipproto::UDP))
}

/// A descriptor that is closed when it is dropped. Nothing is under way on it then.
#[derive(Debug)]
pub(crate) struct Descriptor {
    fd: Fd,
    owner: Owner,
    is_unix: bool,
    /// As far as is known, the kernel cuts messages of this socket into datagrams.
    cuts: AtomicBool,
}

impl Descriptor {
    /// Of a socket.
    pub(crate) fn new(fd: Fd, owner: Owner) -> Descriptor {
        let is_unix = owner.local_addr(fd).is_ok_and(|addr| addr.is_unix());
        let cuts = AtomicBool::new(is_udp(fd, &owner));
        Descriptor {
            fd,
            owner,
            is_unix,
            cuts,
        }
    }

    pub(crate) fn fd(&self) -> Fd {
        self.fd
    }

    pub(crate) fn is_unix(&self) -> bool {
        self.is_unix
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
        Ok(Descriptor {
            fd,
            owner: self.owner.clone(),
            is_unix: self.is_unix,
            cuts: AtomicBool::new(self.cuts.load(Ordering::Relaxed)),
        })
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

    /// Sends datagrams at once and in order, up to the first that is refused, and returns how many
    /// were sent; the error if none was.
    pub(crate) fn send_many<'a>(
        &self,
        mut payloads: impl Iterator<Item = &'a [u8]>,
        to: Option<&Addr>,
    ) -> io::Result<usize> {
        let name = to.map(Addr::to_any).transpose()?;
        let mut sent = 0;
        loop {
            let parts = payloads.by_ref().take(SEGMENTS_MAX).map(IoSlice::new);
            let parts: ArrayVec<_, SEGMENTS_MAX> = parts.collect();
            let mut left = &parts[..];
            if left.is_empty() {
                return Ok(sent);
            }
            while let Some(first) = left.first() {
                let some = match &self.owner {
                    Owner::Kernel => self.send_some(left, name.as_ref()).map_err(io::Error::from),
                    Owner::Sim(net) => net.send_datagram(self.fd, first, to).map(|()| 1),
                };
                match some {
                    Ok(some) => {
                        sent += some;
                        left = &left[some..];
                    }
                    Err(error) if sent == 0 => return Err(error),
                    Err(_) => return Ok(sent),
                }
            }
        }
    }

    /// Sends some of the payloads, those at the front, by one call if it can.
    fn send_some(&self, left: &[IoSlice<'_>], to: Option<&SocketAddrAny>) -> Result<usize, Errno> {
        if self.cuts.load(Ordering::Relaxed) {
            match send_messages(self.fd, left, to, message_len) {
                // One of several payloads was refused as a whole: each by itself may be taken.
                Err(errno @ (Errno::INVAL | Errno::IO | Errno::MSGSIZE | Errno::NOBUFS))
                    if message_len(left) > 1 =>
                {
                    let sent = send_messages(self.fd, left, to, |_| 1)?;
                    // Longer than a packet of the path, or than the socket's buffer: MSGSIZE and
                    // NOBUFS, and INVAL with older kernels. Else the kernel or the device cuts
                    // nothing.
                    let is_about_these = matches!(errno, Errno::MSGSIZE | Errno::NOBUFS)
                        || left[0].len() > PACKET_BYTES_MIN;
                    self.cuts.fetch_and(is_about_these, Ordering::Relaxed);
                    return Ok(sent);
                }
                sent => return sent,
            }
        }
        send_messages(self.fd, left, to, |_| 1)
    }

    /// Sends descriptors with a datagram.
    pub(crate) fn send_descriptors(
        &self,
        bytes: &[u8],
        descriptors: &[BorrowedFd<'_>],
        to: Option<&Addr>,
    ) -> io::Result<()> {
        if self.owner.is_simulated() {
            return Err(super::no_descriptors());
        }
        if !self.is_unix {
            // The kernel would lose them without a word.
            let text = "descriptors are passed over Unix sockets only";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
            let text = format!(
                "{} descriptors, at most {DESCRIPTORS_MAX}",
                descriptors.len()
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        let bytes = [IoSlice::new(bytes)];
        let fd = self.fd.borrow();
        let sent = match to {
            Some(to) => sendmsg_addr(fd, &to.to_any()?, &bytes, &mut ancillary, FLAGS),
            None => sendmsg(fd, &bytes, &mut ancillary, FLAGS),
        };
        Ok(sent.map(drop)?)
    }

    /// Gives `out` datagrams that are there, and not all if there are many: one of a Unix socket.
    pub(crate) fn receive(&self, out: &mut impl FnMut(Datagram)) -> io::Result<()> {
        let received = match &self.owner {
            Owner::Kernel if self.is_unix => receive_one(self.fd).map(out),
            Owner::Kernel => receive_datagrams(self.fd, out),
            Owner::Sim(net) => net.receive_datagram(self.fd).map(out),
        };
        match received {
            Err(Errno::AGAIN | Errno::INTR) => Ok(()),
            received => Ok(received?),
        }
    }
}

/// Sends payloads by one call, so many of them as one message as `message_len` says of those that
/// are left, and returns how many payloads were sent.
fn send_messages(
    fd: Fd,
    mut left: &[IoSlice<'_>],
    to: Option<&SocketAddrAny>,
    message_len: impl Fn(&[IoSlice<'_>]) -> usize,
) -> Result<usize, Errno> {
    let mut messages = ArrayVec::<_, SEGMENTS_MAX>::new();
    while !left.is_empty() {
        let (message, behind) = left.split_at(message_len(left));
        messages.push(message);
        left = behind;
    }
    let sent = send_datagrams(fd, &messages, to)?;
    Ok(messages[..sent].iter().map(|message| message.len()).sum())
}

/// How many of the payloads at the front the kernel can cut from one message: those of one length,
/// and one that is shorter behind them.
fn message_len(payloads: &[IoSlice<'_>]) -> usize {
    let bytes = payloads[0].len();
    let (mut len, mut room) = (1, MESSAGE_BYTES_MAX.saturating_sub(bytes));
    for payload in &payloads[1..] {
        let is_cut = payloads[len - 1].len() == bytes;
        // An empty one would be none.
        if !is_cut || !(1..=bytes.min(room)).contains(&payload.len()) {
            break;
        }
        len += 1;
        room -= payload.len();
    }
    len
}

/// For descriptors, and for credentials, which a socket that was made elsewhere may ask for.
const SPACE: usize = rustix::cmsg_space!(ScmRights(DESCRIPTORS_MAX), ScmCredentials(1));

/// Receives from a Unix socket, and the descriptors that were sent with it.
fn receive_one(fd: Fd) -> Result<Datagram, Errno> {
    let mut space = [MaybeUninit::uninit(); SPACE];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    RECEIVED.with_borrow_mut(|bytes| {
        bytes.resize(DATAGRAM_BYTES_MAX, 0);
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let mut parts = [IoSliceMut::new(bytes)];
        let received = recvmsg(fd.borrow(), &mut parts, &mut ancillary, flags)?;
        let from = received.address.map(Addr::from_any);
        let from = from.and_then(Result::ok).unwrap_or(Addr::Unnamed);
        let truncated = received
            .flags
            .intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC);
        let mut datagram = Datagram::new(bytes[..received.bytes].to_vec(), from, truncated);
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                datagram.descriptors.extend(descriptors);
            }
        }
        Ok(datagram)
    })
}

crate::sync::thread_local! {
    /// Received into, by all Unix sockets of a thread.
    static RECEIVED: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        self.owner.close(self.fd);
    }
}

const FLAGS: SendFlags = SendFlags::NOSIGNAL.union(SendFlags::DONTWAIT);

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_message_has_payloads_of_one_length_and_a_shorter_one() {
        let message = |lengths: &[usize]| {
            let bytes = vec![0; 70_000];
            let payloads: Vec<_> = lengths.iter().map(|&n| IoSlice::new(&bytes[..n])).collect();
            message_len(&payloads)
        };
        assert_eq!(message(&[5]), 1);
        assert_eq!(message(&[5, 5, 5]), 3);
        assert_eq!(message(&[5, 5, 4, 5]), 3);
        assert_eq!(message(&[5, 5, 4, 4]), 3);
        assert_eq!(message(&[5, 6]), 1);
        assert_eq!(message(&[5, 5, 0, 5]), 2);
        assert_eq!(message(&[0, 0]), 1);
        assert_eq!(message(&[70_000, 5]), 1);
        assert_eq!(message(&[65_507, 1]), 1);
        assert_eq!(message(&[65_506, 1, 1]), 2);
        assert_eq!(message(&[32_753, 32_753, 1]), 3);
        assert_eq!(message(&[32_754, 32_754]), 1);
        assert_eq!(message(&[32_754, 32_753]), 2);
    }
}
