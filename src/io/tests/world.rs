//! A backend under test, and clients for it, of the kernel or of the simulator.

use std::collections::{HashMap, VecDeque};
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use super::super::{
    Backend, Bufs, Completion, Config, Done, EventSource, Fd, ListenOptions, Op, RecvBuf, SendBuf,
    Side, SimClient, SimNet, Token,
};

/// Nothing in these tests takes long; this is when they are hung.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);

/// Drives a backend and checks on every completion what the contract says of all.
pub(super) struct World {
    pub(super) backend: EventSource,
    pub(super) net: Option<SimNet>,
    pub(super) limit: usize,
    /// Operations by token, `true` when the terminal completion has come.
    over: HashMap<Token, bool>,
    arrived: VecDeque<Completion>,
    next_token: u64,
}

impl World {
    pub(super) fn new(backend: EventSource, net: Option<SimNet>) -> World {
        World {
            backend,
            net,
            limit: 64,
            over: HashMap::new(),
            arrived: VecDeque::new(),
            next_token: 1,
        }
    }

    /// A second core on the same network, of the same kind as far as it matters.
    pub(super) fn another(&self) -> World {
        let choice = self.net.clone().map_or(Backend::Auto, Backend::Sim);
        let (backend, _) = EventSource::new(choice, &Config::default()).unwrap();
        World::new(backend, self.net.clone())
    }

    pub(super) fn is_sim(&self) -> bool {
        self.net.is_some()
    }

    fn token(&mut self) -> Token {
        let token = Token(self.next_token);
        self.next_token += 1;
        self.over.insert(token, false);
        token
    }

    pub(super) fn accept(&mut self, fd: Fd) -> (Token, Op) {
        let token = self.token();
        (token, self.backend.accept(token, fd))
    }

    pub(super) fn recv(&mut self, fd: Fd) -> (Token, Op) {
        let token = self.token();
        (token, self.backend.recv(token, fd))
    }

    pub(super) fn send(&mut self, fd: Fd, buf: impl Into<SendBuf>) -> (Token, Op) {
        let token = self.token();
        (token, self.backend.send(token, fd, buf.into().into()))
    }

    /// Several buffers, which are not joined.
    pub(super) fn send_parts(&mut self, fd: Fd, parts: Vec<SendBuf>) -> (Token, Op) {
        let token = self.token();
        (token, self.backend.send(token, fd, Bufs::Several(parts)))
    }

    /// What a send of several has come to, and how many bytes were sent.
    pub(super) fn sent_parts(&mut self, token: Token) -> (io::Result<()>, usize) {
        match self.next(token).done {
            Done::Sent {
                res, sent_bytes, ..
            } => (res, sent_bytes),
            other => panic!("{other:?} from a send"),
        }
    }

    pub(super) fn readable(&mut self, fd: Fd) -> (Token, Op) {
        let token = self.token();
        (token, self.backend.ready(token, fd, Side::Reader))
    }

    pub(super) fn connect(&mut self, addr: SocketAddr) -> (Fd, Token, Op) {
        let token = self.token();
        let (fd, op) = self
            .backend
            .connect(token, &crate::io::Addr::from(addr))
            .unwrap();
        (fd, token, op)
    }

    pub(super) fn listen(&mut self) -> (Fd, SocketAddr) {
        self.listen_with(&ListenOptions::default())
    }

    pub(super) fn listen_with(&mut self, opts: &ListenOptions) -> (Fd, SocketAddr) {
        let fd = self.backend.listen(&"127.0.0.1:0".into(), opts).unwrap();
        (
            fd,
            self.backend.owner().local_addr(fd).unwrap().ip().unwrap(),
        )
    }

    /// A client connected to `addr`; it never blocks.
    pub(super) fn client(&self, addr: SocketAddr) -> Client {
        match &self.net {
            Some(net) => Client::Sim(net.connect(addr).unwrap()),
            None => {
                let stream = TcpStream::connect(addr).unwrap();
                stream.set_nonblocking(true).unwrap();
                stream.set_nodelay(true).unwrap();
                Client::Tcp(stream)
            }
        }
    }

    /// A connection: its end of the backend, and the client. The accept that made it is over.
    pub(super) fn pair(&mut self) -> (Fd, Client) {
        let (listener, addr) = self.listen();
        let (token, op) = self.accept(listener);
        let client = self.client(addr);
        let fd = self.accepted(token);
        self.backend.cancel(op);
        assert_eq!(
            self.failure(token),
            Some(rustix::io::Errno::CANCELED.raw_os_error())
        );
        self.backend.close(listener);
        (fd, client)
    }

    /// One poll, everything about it checked.
    pub(super) fn turn(&mut self) -> usize {
        let mut out = Vec::new();
        self.backend.poll(&mut out, self.limit).unwrap();
        assert!(
            out.len() <= self.limit,
            "{} completions, {} allowed",
            out.len(),
            self.limit
        );
        let count = out.len();
        for completion in out {
            let over = self
                .over
                .get_mut(&completion.token)
                .expect("a token of ours");
            assert!(!*over, "after the terminal completion: {completion:?}");
            *over = !completion.more;
            match &completion.done {
                Done::Accepted(res) => assert_eq!(res.is_ok(), completion.more),
                Done::Ready(res) => assert_eq!(res.is_ok(), completion.more),
                Done::Received(Ok(buf)) => assert_eq!(!buf.is_empty(), completion.more),
                Done::Received(Err(_)) | Done::Connected(_) | Done::File { .. } => {
                    assert!(!completion.more);
                }
                Done::Sent {
                    res,
                    buf,
                    sent_bytes,
                } => {
                    assert!(!completion.more);
                    assert!(res.is_err() || *sent_bytes == buf.len());
                }
            }
            self.arrived.push_back(completion);
        }
        let open = self.over.values().filter(|over| !**over).count();
        assert_eq!(self.backend.in_flight(), open, "operations under way");
        count
    }

    /// Turns, sleeping between them, until `found` finds something.
    pub(super) fn until<T>(&mut self, mut found: impl FnMut(&mut World) -> Option<T>) -> T {
        let start = Instant::now();
        loop {
            if let Some(value) = found(self) {
                return value;
            }
            assert!(
                start.elapsed() < PATIENCE,
                "nothing; {:?} has {:?}",
                self.backend,
                self.arrived
            );
            if self.turn() == 0 {
                self.backend.wait(Some(Duration::from_millis(2))).unwrap();
            }
        }
    }

    /// The next completion of an operation.
    pub(super) fn next(&mut self, token: Token) -> Completion {
        self.until(|world| {
            let at = world
                .arrived
                .iter()
                .position(|completion| completion.token == token)?;
            world.arrived.remove(at)
        })
    }

    /// A connection that `token` accepts.
    pub(super) fn accepted(&mut self, token: Token) -> Fd {
        match self.next(token).done {
            Done::Accepted(res) => res.unwrap(),
            other => panic!("{other:?} from an accept"),
        }
    }

    /// A connection that some accept has made, if one has arrived.
    pub(super) fn take_accepted(&mut self) -> Option<Fd> {
        let at = self
            .arrived
            .iter()
            .position(|completion| matches!(completion.done, Done::Accepted(Ok(_))))?;
        match self.arrived.remove(at)?.done {
            Done::Accepted(Ok(fd)) => Some(fd),
            _ => None,
        }
    }

    pub(super) fn received(&mut self, token: Token) -> io::Result<RecvBuf> {
        match self.next(token).done {
            Done::Received(res) => res,
            other => panic!("{other:?} from a recv"),
        }
    }

    /// Receives exactly this many bytes.
    pub(super) fn received_bytes(&mut self, token: Token, len: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        while bytes.len() < len {
            let buf = self.received(token).unwrap();
            assert!(
                !buf.is_end(),
                "the end after {} of {len} bytes",
                bytes.len()
            );
            bytes.extend_from_slice(&buf);
        }
        assert_eq!(bytes.len(), len);
        bytes
    }

    /// Receives `len` bytes on each of many connections, keeping no buffer longer than a turn: with
    /// fewer buffers than connections, one that is kept may be what another waits for.
    pub(super) fn received_on_all(&mut self, recvs: &[(Token, Op)], len: usize) -> Vec<Vec<u8>> {
        let mut got = vec![Vec::new(); recvs.len()];
        self.until(|world| {
            for completion in world.arrived.drain(..) {
                let at = recvs
                    .iter()
                    .position(|recv| recv.0 == completion.token)
                    .unwrap();
                match completion.done {
                    Done::Received(Ok(buf)) => got[at].extend_from_slice(&buf),
                    other => panic!("{other:?} from a recv"),
                }
            }
            got.iter().all(|bytes| bytes.len() >= len).then_some(())
        });
        got
    }

    /// Whether something of this operation has arrived, without looking for more.
    pub(super) fn has_arrived(&self, token: Token) -> bool {
        self.arrived
            .iter()
            .any(|completion| completion.token == token)
    }

    pub(super) fn sent(&mut self, token: Token) -> (io::Result<()>, SendBuf, usize) {
        match self.next(token).done {
            Done::Sent {
                res,
                buf,
                sent_bytes,
            } => match buf {
                Bufs::One(buf) => (res, buf, sent_bytes),
                Bufs::Several(_) => panic!("{buf:?} from a send of one"),
            },
            other => panic!("{other:?} from a send"),
        }
    }

    /// The terminal completion's error number; what came before it is dropped.
    pub(super) fn failure(&mut self, token: Token) -> Option<i32> {
        loop {
            let completion = self.next(token);
            if !completion.more {
                return completion.done.error().and_then(io::Error::raw_os_error);
            }
            if let Done::Accepted(Ok(fd)) = completion.done {
                self.backend.close(fd);
            }
        }
    }

    /// Ends a receive and closes.
    pub(super) fn hang_up(&mut self, fd: Fd, recv: (Token, Op)) {
        self.backend.cancel(recv.1);
        self.failure(recv.0);
        self.backend.close(fd);
    }

    /// Nothing comes for a while.
    pub(super) fn quiet(&mut self) {
        for _ in 0..5 {
            assert_eq!(self.turn(), 0, "{:?}", self.arrived);
            self.backend.wait(Some(Duration::from_millis(2))).unwrap();
        }
    }

    pub(super) fn read(&mut self, client: &mut Client, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        let mut have = 0;
        self.until(|_| {
            while have < len {
                match client.read(&mut bytes[have..]) {
                    Ok(0) => panic!("the end after {have} of {len} bytes"),
                    Ok(more) => have += more,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => return None,
                    Err(error) => panic!("{error}"),
                }
            }
            Some(())
        });
        bytes
    }

    pub(super) fn write(&mut self, client: &mut Client, mut bytes: &[u8]) {
        self.until(|_| {
            while !bytes.is_empty() {
                match client.write(bytes) {
                    Ok(sent) => bytes = &bytes[sent..],
                    Err(error) if error.kind() == ErrorKind::WouldBlock => return None,
                    Err(error) => panic!("{error}"),
                }
            }
            Some(())
        });
    }

    /// The client sees the end of the stream, or that there was none.
    pub(super) fn read_end(&mut self, client: &mut Client) -> io::Result<usize> {
        self.until(|_| match client.read(&mut [0; 16]) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => None,
            other => Some(other),
        })
    }
}

/// The other end of a connection.
pub(super) enum Client {
    Tcp(TcpStream),
    Sim(SimClient),
}

impl Client {
    pub(super) fn shutdown_write(&self) {
        match self {
            Client::Tcp(stream) => stream.shutdown(std::net::Shutdown::Write).unwrap(),
            Client::Sim(client) => client.shutdown_write(),
        }
    }

    pub(super) fn reset(self) {
        match self {
            Client::Tcp(stream) => {
                rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).unwrap();
            }
            Client::Sim(client) => client.reset(),
        }
    }

    pub(super) fn local_addr(&self) -> SocketAddr {
        match self {
            Client::Tcp(stream) => stream.local_addr().unwrap(),
            Client::Sim(client) => client.local_addr().unwrap().ip().unwrap(),
        }
    }

    pub(super) fn read(&mut self, space: &mut [u8]) -> io::Result<usize> {
        match self {
            Client::Tcp(stream) => stream.read(space),
            Client::Sim(client) => client.read(space),
        }
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Client::Tcp(stream) => stream.write(bytes),
            Client::Sim(client) => client.write(bytes),
        }
    }
}

/// A foreign descriptor to watch.
pub(super) struct Pipe {
    pub(super) fd: Fd,
    ends: Option<(rustix::fd::OwnedFd, rustix::fd::OwnedFd)>,
    net: Option<SimNet>,
}

impl World {
    pub(super) fn pipe(&self) -> Pipe {
        if let Some(net) = &self.net {
            return Pipe {
                fd: net.notifier(),
                ends: None,
                net: Some(net.clone()),
            };
        }
        let (read, write) = rustix::net::socketpair(
            rustix::net::AddressFamily::UNIX,
            rustix::net::SocketType::STREAM,
            rustix::net::SocketFlags::CLOEXEC | rustix::net::SocketFlags::NONBLOCK,
            None,
        )
        .unwrap();
        let fd = Fd::from_raw(std::os::fd::AsRawFd::as_raw_fd(&read));
        Pipe {
            fd,
            ends: Some((read, write)),
            net: None,
        }
    }
}

impl Pipe {
    pub(super) fn write(&self) {
        if let Some(net) = &self.net {
            net.notify(self.fd);
        }
        if let Some((_, write)) = &self.ends {
            rustix::io::write(write, b"x").unwrap();
        }
    }

    pub(super) fn read_all(&self) {
        let Some((read, _)) = &self.ends else { return };
        while rustix::io::read(read, &mut [0u8; 16]).is_ok_and(|len| len > 0) {}
    }
}
