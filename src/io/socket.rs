//! Sockets, as the two backends of the kernel make them.

use std::io;
use std::os::fd::{IntoRawFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{FileType, Mode};
use rustix::io::{Errno, FdFlags};
use rustix::net::{
    AddressFamily, RecvFlags, Shutdown, SocketFlags, SocketType, accept_with, bind, connect,
    connect_unspec, getpeername, getsockname, listen, socket_with, sockopt,
};

use super::operation::is_about_one_connection;
use super::{Addr, Credentials, Fd, Home, How, ListenOptions, RecvBuf};

/// A listener. `flags` says whether it blocks: the ring polls by itself and older kernels report
/// `EAGAIN` from a non-blocking one; epoll must not block.
pub(super) fn listener(addr: &Addr, opts: &ListenOptions, flags: SocketFlags) -> io::Result<Fd> {
    addr.to_any()?;
    let socket = stream(addr, flags)?;
    if !addr.is_unix() {
        // A server that restarts must not wait for the connections of its former life to be
        // forgotten.
        sockopt::set_socket_reuseaddr(&socket, true)?;
        if opts.reuse_port {
            sockopt::set_socket_reuseport(&socket, true)?;
        }
    }
    bind_to(&socket, addr, opts.mode, SocketType::STREAM)?;
    listen(&socket, opts.backlog)?;
    Ok(keep(socket))
}

/// Binds a socket of this kind. The file of a Unix socket gets the permissions `mode`.
pub(super) fn bind_to(
    socket: &OwnedFd,
    addr: &Addr,
    mode: Option<u32>,
    kind: SocketType,
) -> io::Result<()> {
    let name = addr.to_any()?;
    if addr.is_unix()
        && let Some(mode) = mode
    {
        // The file gets the permissions that the socket has when it is bound.
        rustix::fs::fchmod(socket, Mode::from_raw_mode(mode))?;
    }
    match (bind(socket, &name), addr) {
        (Err(Errno::ADDRINUSE), Addr::Unix(path)) if is_stale(path, addr, kind)? => {
            match rustix::fs::unlink(path) {
                Ok(()) | Err(Errno::NOENT) => Ok(bind(socket, &name)?),
                Err(errno) => Err(errno.into()),
            }
        }
        (bound, _) => Ok(bound?),
    }
}

/// Whether the file is a socket that no process has any more. Two servers that start at the same
/// time may both find that; then the one whose file is gone serves nobody.
fn is_stale(path: &Path, addr: &Addr, kind: SocketType) -> io::Result<bool> {
    let file = match rustix::fs::lstat(path) {
        Err(Errno::NOENT) => return Ok(true),
        file => file?,
    };
    if !FileType::from_raw_mode(file.st_mode).is_socket() {
        return Ok(false);
    }
    // It does not block: a listener whose queue is full is one.
    let probe = socket(addr, kind, SocketFlags::NONBLOCK)?;
    Ok(connect(&probe, &addr.to_any()?) == Err(Errno::CONNREFUSED))
}

/// A listening socket that was made elsewhere. Whether it blocks: as for [`listener`].
pub(super) fn adopt_listener(socket: OwnedFd, nonblocking: bool) -> io::Result<Fd> {
    let no_listener = |_| {
        let text = "not a listening stream socket";
        io::Error::new(io::ErrorKind::InvalidInput, text)
    };
    let kind = sockopt::socket_type(&socket).map_err(no_listener)?;
    let listens = sockopt::socket_acceptconn(&socket).map_err(no_listener)?;
    if kind != SocketType::STREAM || !listens {
        return Err(no_listener(Errno::INVAL));
    }
    // Of what is not of TCP, refused.
    let _ = sockopt::set_tcp_nodelay(&socket, true);
    take_over(socket, nonblocking)
}

/// The most connections that are accepted from a listener that is about to be closed: more than its
/// queue holds, and not for ever if they come faster than they are accepted.
const WAITING_MAX: usize = 1 << 16;

/// Accepts who waits, and no longer than that. Nobody else accepts from it, now or later.
pub(super) fn accept_waiting(listener: Fd) -> Vec<Fd> {
    // One that blocks would wait for a client.
    match rustix::io::ioctl_fionbio(listener.borrow(), true) {
        Ok(()) => accept_all(|| accept_with(listener.borrow(), CONNECTION)),
        Err(_) => Vec::new(),
    }
}

/// Neither inherited by a child process, nor does a call on it block.
const CONNECTION: SocketFlags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);

/// What `accept` gives until it has no more. Whoever has gone meanwhile is passed over.
fn accept_all(mut accept: impl FnMut() -> Result<OwnedFd, Errno>) -> Vec<Fd> {
    let mut accepted = Vec::new();
    for _ in 0..WAITING_MAX {
        match accept() {
            Ok(socket) => accepted.push(keep(socket)),
            Err(errno) if is_about_one_connection(errno) => {}
            // No more; or no descriptors for them, and then they are reset with the listener.
            Err(_) => break,
        }
    }
    accepted
}

/// What has arrived and waits in the kernel; 0 for what is no stream any more.
pub(super) fn unread_bytes(fd: Fd) -> usize {
    rustix::io::ioctl_fionread(fd.borrow()).unwrap_or(0) as usize
}

/// Whether the peer has sent the end of its stream, or the connection has failed.
pub(super) fn has_ended(fd: Fd) -> bool {
    let mut polled = [PollFd::from_borrowed_fd(fd.borrow(), PollFlags::RDHUP)];
    let told = poll(&mut polled, Some(&Timespec::default()));
    told.is_ok_and(|told| told > 0)
}

/// A stream socket of the address's family; one of TCP without Nagle's delay. Connections inherit
/// that from their listener, which saves a system call for each.
pub(super) fn stream(addr: &Addr, flags: SocketFlags) -> io::Result<OwnedFd> {
    let socket = socket(addr, SocketType::STREAM, flags)?;
    if !addr.is_unix() {
        sockopt::set_tcp_nodelay(&socket, true)?;
    }
    Ok(socket)
}

/// A socket of the address's family.
pub(super) fn socket(addr: &Addr, kind: SocketType, flags: SocketFlags) -> io::Result<OwnedFd> {
    let family = match addr.ip() {
        Some(ip) if ip.is_ipv4() => AddressFamily::INET,
        Some(_) => AddressFamily::INET6,
        None => AddressFamily::UNIX,
    };
    Ok(socket_with(
        family,
        kind,
        flags | SocketFlags::CLOEXEC,
        None,
    )?)
}

/// A connected stream that was made elsewhere.
pub(super) fn adopt(socket: OwnedFd) -> io::Result<Fd> {
    let no_stream = || {
        let text = "not a connected stream socket";
        io::Error::new(io::ErrorKind::InvalidInput, text)
    };
    if sockopt::socket_type(&socket).map_err(|_| no_stream())? != SocketType::STREAM {
        return Err(no_stream());
    }
    // A listener has none.
    getpeername(&socket).map_err(|_| no_stream())?;
    // Refused by what is not of TCP.
    let _ = sockopt::set_tcp_nodelay(&socket, true);
    take_over(socket, true)
}

/// Takes a socket of a kind that was checked: what the process was given is not for its children.
pub(super) fn take_over(socket: OwnedFd, nonblocking: bool) -> io::Result<Fd> {
    rustix::io::ioctl_fionbio(&socket, nonblocking)?;
    rustix::io::fcntl_setfd(&socket, FdFlags::CLOEXEC)?;
    Ok(keep(socket))
}

/// From now on the caller of the backend closes it.
pub(super) fn keep(socket: OwnedFd) -> Fd {
    Fd::from_raw(socket.into_raw_fd())
}

pub(super) fn local_addr(fd: Fd) -> io::Result<Addr> {
    Addr::from_any(getsockname(fd.borrow())?)
}

pub(super) fn peer_addr(fd: Fd) -> io::Result<Addr> {
    match getpeername(fd.borrow())? {
        Some(addr) => Addr::from_any(addr),
        // What the kernel says of the client of a Unix socket, which has no name.
        None => Ok(Addr::Unnamed),
    }
}

pub(super) fn peer_credentials(fd: Fd) -> io::Result<Credentials> {
    if !local_addr(fd)?.is_unix() {
        // The kernel would answer with nobody's.
        let text = "not a Unix socket";
        return Err(io::Error::new(io::ErrorKind::Unsupported, text));
    }
    let peer = super::kernel::peer_credentials(fd)?;
    Ok(Credentials {
        pid: peer.pid,
        uid: peer.uid,
        gid: peer.gid,
    })
}

pub(super) fn shutdown(fd: Fd, how: How) {
    let how = match how {
        How::Read => Shutdown::Read,
        How::Write => Shutdown::Write,
        How::Both => Shutdown::Both,
    };
    // ENOTCONN is the common answer, when the peer was faster.
    let _ = rustix::net::shutdown(fd.borrow(), how);
}

/// Resets a connection. An error (it was closed by the peer) changes nothing.
pub(super) fn reset(fd: Fd) {
    // If the second call is refused, because a thread of the kernel waits for the connection, the
    // close will reset.
    let _ = sockopt::set_socket_linger(fd.borrow(), Some(Duration::ZERO));
    // And not by a close alone: that waits for a send under way, which only a shutdown would end,
    // by sending an end.
    let _ = connect_unspec(fd.borrow());
}

/// Receives into a buffer of `home` what is there, without waiting. True: and that was all, since
/// it did not fill the buffer. `None` as for [`Home::fill`].
pub(super) fn receive(home: &mut Home, fd: Fd) -> Option<Result<(RecvBuf, bool), Errno>> {
    let mut short = false;
    let filled = home.fill(|space| {
        let (_, len) = rustix::net::recv(fd.borrow(), &mut *space, RecvFlags::DONTWAIT)?;
        short = len < space.len();
        Ok(len)
    })?;
    Some(filled.map(|buf| (buf, short)))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::collections::VecDeque;
    use std::os::unix::net::UnixStream;

    #[test]
    fn all_who_wait_are_accepted_and_no_more() {
        let socket = || Ok(OwnedFd::from(UnixStream::pair().unwrap().0));
        let gone = || Err(Errno::CONNABORTED);
        let no_more = || Err(Errno::AGAIN);
        let mut queue = VecDeque::from([gone(), socket(), gone(), gone(), socket(), no_more()]);
        queue.push_back(socket());
        let accepted = accept_all(|| queue.pop_front().unwrap());
        assert_eq!((accepted.len(), queue.len()), (2, 1));
        accepted.into_iter().for_each(Fd::close);
    }
}
