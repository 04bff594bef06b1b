//! The simulated network: listeners, streams, and what each call on them does.
//!
//! Calls answer as the kernel's non-blocking ones do, `EAGAIN` included.

use crate::random::Random;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, Ipv4Addr};

use rustix::io::Errno;

use super::super::{Addr, DATAGRAM_BYTES_MAX, Datagram, Fd, How};
use super::client::SimCall;

/// The first number: not one that a confused test could mistake for a real descriptor.
const FIRST_FD: i32 = 1_000_000;
const FIRST_EPHEMERAL_PORT: u16 = 32_768;
/// What a datagram of UDP carries at most, over IPv4.
const UDP_BYTES_MAX: usize = 65_507;

#[derive(Debug)]
pub(super) struct Net {
    pub(super) seed: u64,
    pub(super) random: Random,
    /// Counts changes: while it stands still, nothing that was blocked can go on.
    pub(super) version: u64,
    nodes: BTreeMap<Fd, Node>,
    next_fd: i32,
    next_port: u16,
    /// Bytes that a stream's receiver holds before its sender is blocked.
    pub(super) socket_bytes: usize,
    /// At most this many bytes move in one call, a random number of them.
    pub(super) move_bytes_max: usize,
    faults: BTreeMap<SimCall, VecDeque<Errno>>,
    pub(super) hosts: BTreeMap<String, Vec<IpAddr>>,
    /// Of as many datagrams one is lost; 0: none.
    pub(super) lost_one_in: usize,
    /// Addresses from which no answer comes.
    pub(super) silent: BTreeSet<IpAddr>,
}

#[derive(Debug)]
enum Node {
    Listener {
        addr: Addr,
        reuse_port: bool,
        backlog: usize,
        queue: VecDeque<Fd>,
    },
    Unconnected,
    Stream(Stream),
    #[cfg_attr(not(test), allow(dead_code, reason = "for the tests of the contract"))]
    Notifier {
        fired: bool,
    },
    Datagrams(Datagrams),
    /// Another number of this one.
    Duplicate(Fd),
}

/// A datagram socket.
#[derive(Debug, Default)]
struct Datagrams {
    /// None: it has no name, and nothing can be sent to it.
    local: Option<Addr>,
    peer: Option<Addr>,
    inbox: VecDeque<Datagram>,
    inbox_bytes: usize,
    /// The numbers that were told of what is there by now: one operation waits for each.
    told: Vec<Fd>,
    /// The numbers that it has.
    numbers: usize,
}

#[derive(Debug)]
struct Stream {
    local: Addr,
    remote: Addr,
    /// The other end, while it is open.
    peer: Option<Fd>,
    /// What the peer sent and nobody has read.
    inbox: VecDeque<u8>,
    /// The peer sends no more.
    ended: bool,
    /// The peer went away with an error that was not told yet; it has `ended`, too.
    reset: bool,
    write_shut: bool,
}

impl Net {
    pub(super) fn new(seed: u64) -> Net {
        Net {
            seed,
            random: Random::new(seed),
            version: 0,
            nodes: BTreeMap::new(),
            next_fd: FIRST_FD,
            next_port: FIRST_EPHEMERAL_PORT,
            socket_bytes: 64 * 1024,
            move_bytes_max: usize::MAX,
            faults: BTreeMap::new(),
            hosts: BTreeMap::new(),
            lost_one_in: 0,
            silent: BTreeSet::new(),
        }
    }

    pub(super) fn fail_next(&mut self, call: SimCall, errno: Errno) {
        self.faults.entry(call).or_default().push_back(errno);
        self.version += 1;
    }

    fn fault(&mut self, call: SimCall) -> Result<(), Errno> {
        let errno = self.faults.get_mut(&call).and_then(VecDeque::pop_front);
        errno.map_or(Ok(()), Err)
    }

    /// Descriptors open, on both sides.
    pub(super) fn open_count(&self) -> usize {
        self.nodes.len()
    }

    fn add(&mut self, node: Node) -> Fd {
        let fd = Fd::from_raw(self.next_fd);
        self.next_fd += 1;
        self.nodes.insert(fd, node);
        self.version += 1;
        fd
    }

    fn port(&mut self) -> u16 {
        let bound = |node: &Node| match node {
            Node::Listener { addr, .. } => addr.ip(),
            Node::Datagrams(socket) => socket.local.as_ref()?.ip(),
            _ => None,
        };
        let taken: Vec<u16> = self
            .nodes
            .values()
            .filter_map(bound)
            .map(|ip| ip.port())
            .collect();
        loop {
            let port = self.next_port;
            self.next_port = port.checked_add(1).unwrap_or(FIRST_EPHEMERAL_PORT);
            // If all may be taken, one that is.
            if taken.len() >= usize::from(u16::MAX - FIRST_EPHEMERAL_PORT) || !taken.contains(&port)
            {
                return port;
            }
        }
    }

    /// The address, with a free port instead of port 0.
    fn with_port(&mut self, addr: &Addr) -> Addr {
        match addr {
            Addr::Ip(ip) if ip.port() == 0 => {
                let mut ip = *ip;
                ip.set_port(self.port());
                Addr::Ip(ip)
            }
            addr => addr.clone(),
        }
    }

    /// An end for a connection to come.
    pub(super) fn socket(&mut self) -> Result<Fd, Errno> {
        Ok(self.add(Node::Unconnected))
    }

    #[cfg_attr(not(test), allow(dead_code, reason = "for the tests of the contract"))]
    pub(super) fn notifier(&mut self) -> Fd {
        self.add(Node::Notifier { fired: false })
    }

    #[cfg_attr(not(test), allow(dead_code, reason = "for the tests of the contract"))]
    pub(super) fn notify(&mut self, fd: Fd) {
        if let Some(Node::Notifier { fired }) = self.nodes.get_mut(&fd) {
            *fired = true;
            self.version += 1;
        }
    }

    /// Whether it was fired, or something has arrived, since this number was last told.
    pub(super) fn take_notice(&mut self, fd: Fd) -> Result<(), Errno> {
        if let Ok(socket) = self.datagrams(fd) {
            if socket.inbox.is_empty() || socket.told.contains(&fd) {
                return Err(Errno::AGAIN);
            }
            socket.told.push(fd);
            return Ok(());
        }
        match self.nodes.get_mut(&fd) {
            Some(Node::Notifier { fired }) if *fired => {
                *fired = false;
                self.version += 1;
                Ok(())
            }
            Some(Node::Notifier { .. }) => Err(Errno::AGAIN),
            Some(_) => Err(Errno::PERM),
            None => Err(Errno::BADF),
        }
    }

    pub(super) fn listen(
        &mut self,
        addr: &Addr,
        reuse_port: bool,
        backlog: usize,
    ) -> Result<Fd, Errno> {
        let addr = self.with_port(addr);
        let taken = self.nodes.values().any(|node| match node {
            Node::Listener {
                addr: other,
                reuse_port: shared,
                ..
            } => is_same_place(other, &addr) && !(*shared && reuse_port),
            _ => false,
        });
        if taken {
            return Err(Errno::ADDRINUSE);
        }
        Ok(self.add(Node::Listener {
            addr,
            reuse_port,
            backlog,
            queue: VecDeque::new(),
        }))
    }

    /// Connects `fd` to one of the listeners at `addr`.
    pub(super) fn connect(&mut self, fd: Fd, addr: &Addr) -> Result<(), Errno> {
        self.fault(SimCall::Connect)?;
        if !matches!(self.nodes.get(&fd), Some(Node::Unconnected)) {
            return Err(Errno::BADF);
        }
        if addr.ip().is_some_and(|ip| self.silent.contains(&ip.ip())) {
            return Err(Errno::AGAIN);
        }
        let listeners: Vec<Fd> = self
            .nodes
            .iter()
            .filter(|(_, node)| {
                matches!(node, Node::Listener { addr: at, .. } if is_same_place(at, addr))
            })
            .map(|(&fd, _)| fd)
            .collect();
        if listeners.is_empty() {
            return Err(Errno::CONNREFUSED);
        }
        let chosen = listeners[self.random.below(listeners.len())];
        let local = match addr.ip() {
            Some(_) => Addr::from((Ipv4Addr::LOCALHOST, self.port())),
            None => Addr::Unnamed,
        };
        if let Some(Node::Listener { backlog, queue, .. }) = self.nodes.get(&chosen)
            && queue.len() >= *backlog
        {
            return Err(Errno::AGAIN);
        }
        let stream = |local, remote, peer| {
            Node::Stream(Stream {
                local,
                remote,
                peer: Some(peer),
                inbox: VecDeque::new(),
                ended: false,
                reset: false,
                write_shut: false,
            })
        };
        let accepted = self.add(stream(addr.clone(), local.clone(), fd));
        self.nodes.insert(fd, stream(local, addr.clone(), accepted));
        if let Some(Node::Listener { queue, .. }) = self.nodes.get_mut(&chosen) {
            queue.push_back(accepted);
        }
        Ok(())
    }

    pub(super) fn accept(&mut self, fd: Fd) -> Result<Fd, Errno> {
        let Some(Node::Listener { queue, .. }) = self.nodes.get(&fd) else {
            return Err(Errno::BADF);
        };
        if queue.is_empty() {
            return Err(Errno::AGAIN);
        }
        self.fault(SimCall::Accept)?;
        self.version += 1;
        match self.nodes.get_mut(&fd) {
            Some(Node::Listener { queue, .. }) => queue.pop_front().ok_or(Errno::AGAIN),
            _ => Err(Errno::BADF),
        }
    }

    pub(super) fn bind(&mut self, addr: &Addr) -> Result<Fd, Errno> {
        let addr = self.with_port(addr);
        let taken = self.nodes.values().any(|node| match node {
            Node::Datagrams(other) => {
                let local = other.local.as_ref();
                local.is_some_and(|other| is_same_place(other, &addr))
            }
            _ => false,
        });
        if taken {
            return Err(Errno::ADDRINUSE);
        }
        Ok(self.add(Node::Datagrams(Datagrams {
            local: (addr != Addr::Unnamed).then_some(addr),
            numbers: 1,
            ..Datagrams::default()
        })))
    }

    pub(super) fn duplicate(&mut self, fd: Fd) -> Fd {
        let of = match self.nodes.get(&fd) {
            Some(&Node::Duplicate(of)) => of,
            _ => fd,
        };
        if let Ok(socket) = self.datagrams(of) {
            socket.numbers += 1;
        }
        self.add(Node::Duplicate(of))
    }

    fn lose_number(&mut self, of: Fd) {
        if let Ok(socket) = self.datagrams(of) {
            socket.numbers -= 1;
            if socket.numbers == 0 {
                self.nodes.remove(&of);
            }
        }
    }

    fn datagrams(&mut self, fd: Fd) -> Result<&mut Datagrams, Errno> {
        let of = match self.nodes.get(&fd) {
            Some(&Node::Duplicate(of)) => of,
            _ => fd,
        };
        match self.nodes.get_mut(&of) {
            Some(Node::Datagrams(socket)) => Ok(socket),
            Some(_) => Err(Errno::NOTSOCK),
            None => Err(Errno::BADF),
        }
    }

    pub(super) fn connect_datagrams(&mut self, fd: Fd, addr: &Addr) -> Result<(), Errno> {
        self.fault(SimCall::Connect)?;
        self.datagrams(fd)?.peer = Some(addr.clone());
        Ok(())
    }

    pub(super) fn send_datagram(
        &mut self,
        fd: Fd,
        bytes: &[u8],
        to: Option<&Addr>,
    ) -> Result<(), Errno> {
        let socket = self.datagrams(fd)?;
        let to = to
            .or(socket.peer.as_ref())
            .ok_or(Errno::DESTADDRREQ)?
            .clone();
        let mut from = socket.local.clone().unwrap_or(Addr::Unnamed);
        if let Addr::Ip(ip) = &mut from
            && ip.ip().is_unspecified()
        {
            ip.set_ip(Ipv4Addr::LOCALHOST.into());
        }
        let max = if to.is_unix() {
            self.socket_bytes
        } else {
            UDP_BYTES_MAX
        };
        if bytes.len() > max {
            return Err(Errno::MSGSIZE);
        }
        self.fault(SimCall::Send)?;
        if self.lost_one_in > 0 && self.random.below(self.lost_one_in) == 0 {
            return Ok(());
        }
        let silent = to.ip().is_some_and(|ip| self.silent.contains(&ip.ip()));
        let room = self.socket_bytes;
        let found = self.nodes.values_mut().find_map(|node| match node {
            Node::Datagrams(socket) => {
                let local = socket.local.as_ref();
                let its = local.is_some_and(|local| is_same_place(local, &to));
                its.then_some(socket)
            }
            _ => None,
        });
        let Some(socket) = found else {
            return match to.is_unix() {
                true => Err(Errno::CONNREFUSED),
                // Nobody tells.
                false => Ok(()),
            };
        };
        // A connected socket hears its peer only.
        let heard = socket
            .peer
            .as_ref()
            .is_none_or(|peer| is_same_place(peer, &from));
        if silent || !heard {
            return Ok(());
        }
        if socket.inbox_bytes + bytes.len() > room {
            return match to.is_unix() {
                true => Err(Errno::AGAIN),
                false => Ok(()),
            };
        }
        let data = bytes[..bytes.len().min(DATAGRAM_BYTES_MAX)].to_vec();
        let truncated = data.len() < bytes.len();
        socket.inbox_bytes += data.len();
        socket.inbox.push_back(Datagram::new(data, from, truncated));
        socket.told.clear();
        self.version += 1;
        Ok(())
    }

    pub(super) fn receive_datagram(&mut self, fd: Fd) -> Result<Datagram, Errno> {
        if self.datagrams(fd)?.inbox.is_empty() {
            return Err(Errno::AGAIN);
        }
        self.fault(SimCall::Recv)?;
        self.version += 1;
        let socket = self.datagrams(fd)?;
        let datagram = socket.inbox.pop_front().ok_or(Errno::AGAIN)?;
        socket.inbox_bytes -= datagram.data.len();
        Ok(datagram)
    }

    fn stream(&mut self, fd: Fd) -> Result<&mut Stream, Errno> {
        match self.nodes.get_mut(&fd) {
            Some(Node::Stream(stream)) => Ok(stream),
            Some(Node::Unconnected) => Err(Errno::NOTCONN),
            Some(_) => Err(Errno::NOTSOCK),
            None => Err(Errno::BADF),
        }
    }

    pub(super) fn unread_bytes(&mut self, fd: Fd) -> usize {
        self.stream(fd).map_or(0, |stream| stream.inbox.len())
    }

    pub(super) fn has_ended(&mut self, fd: Fd) -> bool {
        let ended = |stream: &mut Stream| stream.ended || stream.reset;
        self.stream(fd).is_ok_and(ended)
    }

    /// Between 1 and `len` bytes move.
    fn portion(&mut self, len: usize) -> usize {
        let most = len.min(self.move_bytes_max).max(1);
        if self.move_bytes_max == usize::MAX {
            most
        } else {
            1 + self.random.below(most)
        }
    }

    pub(super) fn recv(&mut self, fd: Fd, space: &mut [u8]) -> Result<usize, Errno> {
        let stream = self.stream(fd)?;
        if stream.reset {
            stream.reset = false;
            self.version += 1;
            return Err(Errno::CONNRESET);
        }
        if stream.inbox.is_empty() {
            return if stream.ended {
                Ok(0)
            } else {
                Err(Errno::AGAIN)
            };
        }
        let most = stream.inbox.len().min(space.len());
        self.fault(SimCall::Recv)?;
        let len = self.portion(most);
        let stream = self.stream(fd)?;
        for (place, byte) in space.iter_mut().zip(stream.inbox.drain(..len)) {
            *place = byte;
        }
        self.version += 1;
        Ok(len)
    }

    pub(super) fn send(&mut self, fd: Fd, bytes: &[u8]) -> Result<usize, Errno> {
        let stream = self.stream(fd)?;
        if stream.reset {
            stream.reset = false;
            return Err(Errno::CONNRESET);
        }
        let (shut, peer) = (stream.write_shut, stream.peer);
        let Some(peer) = peer.filter(|_| !shut) else {
            return Err(Errno::PIPE);
        };
        let held = self.stream(peer)?.inbox.len();
        let room = self.socket_bytes.saturating_sub(held).min(bytes.len());
        if room == 0 && !bytes.is_empty() {
            return Err(Errno::AGAIN);
        }
        self.fault(SimCall::Send)?;
        if bytes.is_empty() {
            return Ok(0);
        }
        let len = self.portion(room);
        self.stream(peer)?.inbox.extend(&bytes[..len]);
        self.version += 1;
        Ok(len)
    }

    pub(super) fn shutdown(&mut self, fd: Fd, how: How) {
        let Ok(stream) = self.stream(fd) else { return };
        if how != How::Write {
            stream.ended = true;
        }
        if how != How::Read {
            stream.write_shut = true;
            if let Some(peer) = stream.peer
                && let Ok(peer) = self.stream(peer)
            {
                peer.ended = true;
            }
        }
        self.version += 1;
    }

    /// Ends a connection with an error for the peer; it stays to be closed.
    pub(super) fn reset(&mut self, fd: Fd) {
        self.version += 1;
        let Ok(stream) = self.stream(fd) else { return };
        stream.ended = true;
        stream.write_shut = true;
        stream.inbox.clear();
        let Some(peer) = stream.peer.take() else {
            return;
        };
        self.be_left(peer, true);
    }

    /// The other end of this one is gone.
    fn be_left(&mut self, peer: Fd, reset: bool) {
        let Ok(peer) = self.stream(peer) else { return };
        peer.peer = None;
        peer.ended = true;
        if reset {
            peer.reset = true;
            peer.inbox.clear();
        }
    }

    /// Closes; with unread bytes, or by `reset`, the peer sees an error instead of the end.
    pub(super) fn close(&mut self, fd: Fd, reset: bool) {
        self.version += 1;
        match self.nodes.remove(&fd) {
            Some(Node::Stream(stream)) => {
                let Some(peer) = stream.peer else { return };
                self.be_left(peer, reset || !stream.inbox.is_empty());
            }
            Some(Node::Listener { queue, .. }) => {
                for waiting in queue {
                    self.close(waiting, true);
                }
            }
            Some(Node::Duplicate(of)) => self.lose_number(of),
            Some(Node::Datagrams(socket)) => {
                // It lives on under its other numbers.
                self.nodes.insert(fd, Node::Datagrams(socket));
                self.lose_number(fd);
            }
            Some(Node::Unconnected | Node::Notifier { .. }) => {}
            None => debug_assert!(false, "{fd:?} closed twice"),
        }
    }

    pub(super) fn local_addr(&mut self, fd: Fd) -> Result<Addr, Errno> {
        if let Ok(socket) = self.datagrams(fd) {
            return Ok(socket.local.clone().unwrap_or(Addr::Unnamed));
        }
        match self.nodes.get(&fd) {
            Some(Node::Listener { addr, .. }) => Ok(addr.clone()),
            _ => self.stream(fd).map(|stream| stream.local.clone()),
        }
    }

    pub(super) fn peer_addr(&mut self, fd: Fd) -> Result<Addr, Errno> {
        self.stream(fd).map(|stream| stream.remote.clone())
    }
}

/// Whether a client of the one finds a listener at the other. All IP addresses are this machine's.
fn is_same_place(one: &Addr, other: &Addr) -> bool {
    match (one.ip(), other.ip()) {
        (Some(one), Some(other)) => {
            let any = one.ip().is_unspecified() || other.ip().is_unspecified();
            one.port() == other.port() && (any || one.ip() == other.ip())
        }
        _ => one == other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A listener's descriptor and address.
    fn listen(net: &mut Net, backlog: usize) -> (Fd, Addr) {
        let fd = net
            .listen(&Addr::from((Ipv4Addr::LOCALHOST, 0)), false, backlog)
            .unwrap();
        (fd, net.local_addr(fd).unwrap())
    }

    /// Two ends of a connection.
    fn pair(net: &mut Net) -> (Fd, Fd) {
        let (listener, addr) = listen(net, 1);
        let fd = net.socket().unwrap();
        net.connect(fd, &addr).unwrap();
        let accepted = net.accept(listener).unwrap();
        net.close(listener, false);
        (fd, accepted)
    }

    #[test]
    fn ports_are_taken_once() {
        let mut net = Net::new(1);
        let (first, addr) = listen(&mut net, 1);
        let (_, other) = listen(&mut net, 1);
        assert!(addr.ip().unwrap().port() != 0 && addr != other);
        assert_eq!(net.listen(&addr, true, 1), Err(Errno::ADDRINUSE));
        net.close(first, false);
        // Who shares a port, shares it with those who do.
        let shared = net.listen(&addr, true, 1).unwrap();
        assert_eq!(net.local_addr(shared), Ok(addr.clone()));
        assert_eq!(net.listen(&addr, false, 1), Err(Errno::ADDRINUSE));
        net.listen(&addr, true, 1).unwrap();
        assert_eq!(net.open_count(), 3);
    }

    #[test]
    fn who_connects_waits_for_a_place_in_the_queue() {
        let mut net = Net::new(1);
        let (listener, addr) = listen(&mut net, 2);
        let fds = [0; 3].map(|_| net.socket().unwrap());
        net.connect(fds[0], &addr).unwrap();
        net.connect(fds[1], &addr).unwrap();
        assert_eq!(net.connect(fds[2], &addr), Err(Errno::AGAIN));
        assert_eq!(
            net.connect(fds[0], &addr),
            Err(Errno::BADF),
            "it is connected"
        );
        net.accept(listener).unwrap();
        net.connect(fds[2], &addr).unwrap();
        net.close(listener, false);
        let late = net.socket().unwrap();
        assert_eq!(net.connect(late, &addr), Err(Errno::CONNREFUSED));
    }

    /// A core that has found nothing to do looks again when the number is another.
    #[test]
    fn each_change_counts_up() {
        let mut net = Net::new(1);
        let mut before = (net.version, FIRST_FD - 1);
        let mut counts = |net: &Net| {
            assert!(net.version > before.0 && net.next_fd > before.1);
            before.0 = net.version;
        };
        let (listener, addr) = listen(&mut net, 1);
        counts(&net);
        let fd = net.socket().unwrap();
        counts(&net);
        net.connect(fd, &addr).unwrap();
        counts(&net);
        let accepted = net.accept(listener).unwrap();
        counts(&net);
        net.send(fd, b"hello").unwrap();
        counts(&net);
        net.recv(accepted, &mut [0; 3]).unwrap();
        counts(&net);
        net.fail_next(SimCall::Recv, Errno::NOBUFS);
        counts(&net);
        net.shutdown(fd, How::Write);
        counts(&net);
        net.close(fd, true);
        counts(&net);
        assert_eq!(net.recv(accepted, &mut [0; 3]), Err(Errno::CONNRESET));
        counts(&net);
        let notifier = net.notifier();
        counts(&net);
        net.notify(notifier);
        counts(&net);
        net.take_notice(notifier).unwrap();
        counts(&net);
        assert_eq!(net.take_notice(notifier), Err(Errno::AGAIN));
        let mut descriptors = [listener, fd, accepted, notifier].map(|fd| fd.raw());
        descriptors.sort_unstable();
        assert_eq!(descriptors, [0, 1, 2, 3].map(|i| FIRST_FD + i));
    }

    #[test]
    fn a_reset_is_told_once_and_then_the_stream_is_over() {
        for tells in ["recv", "send"] {
            let mut net = Net::new(1);
            let (fd, peer) = pair(&mut net);
            net.send(peer, b"lost").unwrap();
            net.close(peer, true);
            let told = match tells {
                "recv" => net.recv(fd, &mut [0; 9]),
                _ => net.send(fd, b"x"),
            };
            assert_eq!(told, Err(Errno::CONNRESET), "{tells}");
            assert_eq!(net.recv(fd, &mut [0; 9]), Ok(0), "{tells}");
            assert_eq!(net.send(fd, b"x"), Err(Errno::PIPE), "{tells}");
        }
        // What is unread when one end is closed is a reset for the other.
        let mut net = Net::new(1);
        let (fd, peer) = pair(&mut net);
        net.send(fd, b"unread").unwrap();
        net.close(peer, false);
        assert_eq!(net.recv(fd, &mut [0; 9]), Err(Errno::CONNRESET));
        // As is one by an end that is yet to be closed, which itself has ended.
        let (fd, peer) = pair(&mut net);
        net.send(fd, b"unread").unwrap();
        net.send(peer, b"unread").unwrap();
        net.reset(fd);
        net.reset(fd);
        assert_eq!(net.recv(peer, &mut [0; 9]), Err(Errno::CONNRESET));
        assert_eq!(net.recv(fd, &mut [0; 9]), Ok(0));
        assert_eq!(net.send(fd, b"x"), Err(Errno::PIPE));
        net.close(fd, false);
        net.close(peer, false);
        // And a close after all was read is the end.
        let (fd, peer) = pair(&mut net);
        net.send(peer, b"read").unwrap();
        net.close(peer, false);
        assert_eq!(net.recv(fd, &mut [0; 9]), Ok(4));
        assert_eq!(net.recv(fd, &mut [0; 9]), Ok(0));
        assert_eq!(net.open_count(), 2);
    }

    #[test]
    fn as_much_moves_as_was_set() {
        let mut net = Net::new(1);
        let (fd, peer) = pair(&mut net);
        // All that there is room for, at first.
        assert_eq!(net.send(fd, &[1; 100_000]), Ok(64 * 1024));
        assert_eq!(net.send(fd, &[1]), Err(Errno::AGAIN));
        assert_eq!(net.unread_bytes(peer), 64 * 1024);
        assert_eq!(net.recv(peer, &mut [0; 50_000]), Ok(50_000));
        net.move_bytes_max = 3;
        let moved: Vec<usize> = (0..100)
            .map(|_| net.recv(peer, &mut [0; 50]).unwrap())
            .collect();
        assert!((1..=3).all(|bytes| moved.contains(&bytes)), "{moved:?}");
        assert_eq!(moved.iter().max(), Some(&3));
        net.socket_bytes = 1;
        assert_eq!(net.send(fd, &[1]), Err(Errno::AGAIN));
        assert_eq!(net.send(fd, &[]), Ok(0), "nothing needs no room");
    }

    #[test]
    fn each_arrival_of_a_datagram_is_told_once_to_each() {
        let mut net = Net::new(1);
        let at = Addr::from("10.0.0.1:53");
        let fd = net.bind(&at).unwrap();
        assert_eq!(net.bind(&at), Err(Errno::ADDRINUSE));
        let (one, other) = (net.duplicate(fd), net.duplicate(fd));
        let client = net.bind(&Addr::Unnamed).unwrap();
        assert_eq!(
            net.send_datagram(client, b"x", None),
            Err(Errno::DESTADDRREQ)
        );
        assert_eq!(net.take_notice(one), Err(Errno::AGAIN));
        for bytes in [&b"first"[..], b"second"] {
            net.send_datagram(client, bytes, Some(&at)).unwrap();
            for fd in [one, other] {
                assert_eq!(net.take_notice(fd), Ok(()));
                assert_eq!(net.take_notice(fd), Err(Errno::AGAIN));
            }
        }
        assert_eq!(net.receive_datagram(other).unwrap().data, b"first");
        assert_eq!(net.receive_datagram(one).unwrap().data, b"second");
        assert_eq!(net.receive_datagram(fd).unwrap_err(), Errno::AGAIN);
        // A connected socket hears its peer only, and what does not fit is lost.
        net.connect_datagrams(fd, &"10.0.0.2:9".into()).unwrap();
        net.send_datagram(client, b"stranger", Some(&at)).unwrap();
        assert_eq!(net.receive_datagram(fd).unwrap_err(), Errno::AGAIN);
        for fd in [one, fd, client] {
            net.close(fd, false);
        }
        assert_eq!(net.local_addr(other), Ok(at));
        net.close(other, false);
        assert_eq!(net.open_count(), 0);
    }

    #[test]
    fn each_side_is_shut_by_itself() {
        let mut net = Net::new(1);
        let (fd, peer) = pair(&mut net);
        net.shutdown(fd, How::Write);
        assert_eq!(net.send(fd, b"x"), Err(Errno::PIPE));
        assert_eq!(net.recv(peer, &mut [0; 9]), Ok(0));
        assert_eq!(net.send(peer, b"back"), Ok(4));
        assert_eq!(net.recv(fd, &mut [0; 9]), Ok(4));
        assert_eq!(net.recv(fd, &mut [0; 9]), Err(Errno::AGAIN));
        net.shutdown(fd, How::Read);
        assert_eq!(net.recv(fd, &mut [0; 9]), Ok(0));
        let (fd, peer) = pair(&mut net);
        net.shutdown(fd, How::Read);
        assert_eq!(net.recv(fd, &mut [0; 9]), Ok(0));
        assert_eq!(net.send(fd, b"more"), Ok(4));
        assert_eq!(net.recv(peer, &mut [0; 9]), Ok(4));
        assert_eq!(net.recv(peer, &mut [0; 9]), Err(Errno::AGAIN));
        let (fd, peer) = pair(&mut net);
        net.shutdown(fd, How::Both);
        assert_eq!(net.recv(fd, &mut [0; 9]), Ok(0));
        assert_eq!(net.send(fd, b"x"), Err(Errno::PIPE));
        assert_eq!(net.recv(peer, &mut [0; 9]), Ok(0));
    }
}
