//! The simulated network as tests see it.

use std::fmt;
use std::io;
use std::net::IpAddr;

use rustix::io::Errno;

use super::super::{Addr, Datagram, Fd, How};
use super::disk::SimDisk;
use super::net::Net;
use crate::random::Random;
use crate::sync::{Arc, Mutex};

/// The disk draws from a sequence of its own, so that files do not change the network's choices.
const DISK_SEED: u64 = 0x6d65_6c79_6469_736b;

/// An in-memory network, shared by the simulated cores of one test. Clones are the same network.
#[derive(Clone)]
pub struct SimNet {
    net: Arc<Mutex<Net>>,
    disk: SimDisk,
}

/// A call that can be made to fail: of the network ([`SimNet::fail_next`]), or of files
/// ([`SimDisk::fail_next`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum SimCall {
    /// Taking a connection from a listener that has one.
    Accept,
    /// Receiving bytes that are there.
    Recv,
    /// Sending where there is room.
    Send,
    /// Connecting.
    Connect,
    /// Opening a file or directory.
    FileOpen,
    /// Reading a piece of a file.
    FileRead,
    /// Writing a piece of a file.
    FileWrite,
    /// Syncing a file or directory.
    FileSync,
    /// Any other call on a file or directory, such as renaming, removing or listing.
    FileChange,
}

impl SimCall {
    pub(super) fn is_of_files(self) -> bool {
        self >= SimCall::FileOpen
    }
}

impl SimNet {
    /// A network whose every choice follows from `seed`.
    pub fn new(seed: u64) -> SimNet {
        SimNet {
            net: Arc::new(Mutex::new(Net::new(seed))),
            disk: SimDisk::new(Random::new(seed ^ DISK_SEED)),
        }
    }

    pub(super) fn with<R>(&self, f: impl FnOnce(&mut Net) -> R) -> R {
        f(&mut self
            .net
            .lock()
            .expect("no call on the simulated network panics"))
    }

    /// The seed, for the message of a failed test.
    pub fn seed(&self) -> u64 {
        self.with(|net| net.seed)
    }

    /// Returns the disk that simulations on this network have.
    pub fn disk(&self) -> &SimDisk {
        &self.disk
    }

    /// How many unread bytes a stream holds before its sender is blocked; 64 KiB at first.
    pub fn set_socket_bytes(&self, bytes: usize) {
        self.with(|net| net.socket_bytes = bytes.max(1));
    }

    /// Moves a random number of at most `bytes` in each call: short receives and sends. At first
    /// calls move what they can.
    pub fn set_move_bytes_max(&self, bytes: usize) {
        self.with(|net| net.move_bytes_max = bytes.max(1));
    }

    /// Makes the next such call on the network that would succeed fail with the error number
    /// `errno` of the operating system; several queue up.
    ///
    /// # Panics
    /// If `errno` is not in 1 to 4,095, or `call` is a call of files.
    #[track_caller]
    pub fn fail_next(&self, call: SimCall, errno: i32) {
        assert!((1..=4_095).contains(&errno), "{errno} is no error number");
        assert!(
            !call.is_of_files(),
            "{call:?} is a call of files: `SimDisk::fail_next`"
        );
        self.with(|net| net.fail_next(call, Errno::from_raw_os_error(errno)));
    }

    /// Gives the simulation a host name, with its addresses; before that, it knows none.
    pub fn add_host(&self, name: &str, addrs: &[IpAddr]) {
        self.with(|net| net.hosts.insert(name.to_owned(), addrs.to_vec()));
    }

    /// From now on no connection to `ip` is made or refused, as if packets to it were lost.
    pub fn silence(&self, ip: IpAddr) {
        self.with(|net| net.silent.insert(ip));
    }

    #[cfg(feature = "dns")]
    pub(crate) fn random_number(&self) -> u64 {
        self.with(|net| net.random.next())
    }

    /// The addresses of a host name.
    pub(crate) fn host(&self, name: &str) -> io::Result<Vec<IpAddr>> {
        let found = self.with(|net| net.hosts.get(name).cloned());
        found.ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "no such host"))
    }

    /// Descriptors that are open, those of clients included.
    pub fn open_count(&self) -> usize {
        self.with(|net| net.open_count())
    }

    /// Connects a client to the listener at `addr`.
    ///
    /// # Errors
    ///
    /// `ConnectionRefused` when nobody listens, `WouldBlock` when its backlog is full.
    pub fn connect(&self, addr: impl Into<Addr>) -> io::Result<SimClient> {
        let addr = addr.into();
        let fd = self.with(|net| {
            let fd = net.socket()?;
            net.connect(fd, &addr)
                .inspect_err(|_| net.close(fd, false))?;
            Ok::<Fd, Errno>(fd)
        })?;
        Ok(SimClient {
            net: self.clone(),
            fd,
            reset: false,
        })
    }

    /// From now on of as many datagrams one is lost, on average; 0, the default: none. The seed
    /// decides which. More than [`set_socket_bytes`](Self::set_socket_bytes) that nobody has
    /// received are lost always.
    pub fn lose_one_datagram_in(&self, number: usize) {
        self.with(|net| net.lost_one_in = number);
    }

    pub(in crate::io) fn bind(&self, addr: &Addr) -> io::Result<Fd> {
        addr.to_any()?;
        Ok(self.with(|net| net.bind(addr))?)
    }

    pub(in crate::io) fn duplicate(&self, fd: Fd) -> Fd {
        self.with(|net| net.duplicate(fd))
    }

    pub(in crate::io) fn connect_datagrams(&self, fd: Fd, addr: &Addr) -> io::Result<()> {
        addr.to_any()?;
        Ok(self.with(|net| net.connect_datagrams(fd, addr))?)
    }

    pub(in crate::io) fn send_datagram(
        &self,
        fd: Fd,
        bytes: &[u8],
        to: Option<&Addr>,
    ) -> io::Result<()> {
        to.map(Addr::to_any).transpose()?;
        Ok(self.with(|net| net.send_datagram(fd, bytes, to))?)
    }

    pub(in crate::io) fn receive_datagram(&self, fd: Fd) -> Result<Datagram, Errno> {
        self.with(|net| net.receive_datagram(fd))
    }

    /// Closes a descriptor of its own.
    pub(in crate::io) fn close(&self, fd: Fd) {
        self.with(|net| net.close(fd, false));
    }

    /// Resets the connection of a descriptor of its own, which stays open.
    pub(in crate::io) fn reset(&self, fd: Fd) {
        self.with(|net| net.reset(fd));
    }

    /// Shuts a connection of its own down.
    pub(in crate::io) fn shutdown(&self, fd: Fd, how: How) {
        self.with(|net| net.shutdown(fd, how));
    }

    /// Whether the end of a connection of its own has come, or an error.
    pub(in crate::io) fn has_ended(&self, fd: Fd) -> bool {
        self.with(|net| net.has_ended(fd))
    }

    /// Where a descriptor of its own is bound.
    pub(in crate::io) fn local_addr_of(&self, fd: Fd) -> io::Result<Addr> {
        Ok(self.with(|net| net.local_addr(fd))?)
    }

    /// Who is at the other end of one.
    pub(in crate::io) fn peer_addr_of(&self, fd: Fd) -> io::Result<Addr> {
        Ok(self.with(|net| net.peer_addr(fd))?)
    }

    /// A descriptor that becomes readable by `notify`: stands for the pipe of a signal.
    #[cfg_attr(not(test), allow(dead_code, reason = "for the tests of the contract"))]
    pub(crate) fn notifier(&self) -> Fd {
        self.with(|net| net.notifier())
    }

    /// Makes it readable. Told once, however often it was notified before.
    #[cfg_attr(not(test), allow(dead_code, reason = "for the tests of the contract"))]
    pub(crate) fn notify(&self, fd: Fd) {
        self.with(|net| net.notify(fd));
    }
}

impl fmt::Debug for SimNet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SimNet")
    }
}

/// One end of a simulated connection, held by a test. Never blocks; closed on drop.
#[derive(Debug)]
pub struct SimClient {
    net: SimNet,
    fd: Fd,
    /// What the drop does.
    reset: bool,
}

impl SimClient {
    /// Its own address.
    ///
    /// # Errors
    ///
    /// None, as long as it is connected.
    pub fn local_addr(&self) -> io::Result<Addr> {
        Ok(self.net.with(|net| net.local_addr(self.fd))?)
    }

    /// Sends no more: the other end sees the end of the stream.
    pub fn shutdown_write(&self) {
        self.net.with(|net| net.shutdown(self.fd, How::Write));
    }

    /// Closes with an error for the other end.
    pub fn reset(mut self) {
        self.reset = true;
    }
}

impl io::Read for SimClient {
    fn read(&mut self, space: &mut [u8]) -> io::Result<usize> {
        Ok(self.net.with(|net| net.recv(self.fd, space))?)
    }
}

impl io::Write for SimClient {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(self.net.with(|net| net.send(self.fd, bytes))?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for SimClient {
    fn drop(&mut self) {
        self.net.with(|net| net.close(self.fd, self.reset));
    }
}
