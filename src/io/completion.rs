//! The words of the contract: what an operation is called, and what comes back.

use std::fmt;
use std::io;
use std::os::fd::{OwnedFd, RawFd};

use super::{Bufs, FileOp, RecvBuf};

/// Chosen by the caller, opaque to the backend, returned with every completion of the operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Token(pub(crate) u64);

/// Names one operation under way in one backend, so that it can be canceled.
///
/// A handle instead of the token, because the backend would otherwise need a map from token to
/// operation on the path of every send. A handle whose operation is over names nothing, forever:
/// it carries the generation of its slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Op(pub(super) u64);

/// The number of a file descriptor (of the kernel, or a virtual one of the simulator).
///
/// A number and nothing more: it owns nothing and closes nothing. Whoever was given it by
/// `listen`, `connect` or an accept closes it with `close`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Fd(pub(super) RawFd);

impl Fd {
    /// A descriptor that the backend did not make: a signal pipe, an eventfd of the user.
    pub(crate) fn from_raw(raw: RawFd) -> Fd {
        Fd(raw)
    }

    /// Of a connected stream that was made elsewhere.
    pub(crate) fn adopt(socket: OwnedFd) -> io::Result<Fd> {
        super::socket::adopt(socket)
    }

    /// The number.
    pub(crate) fn raw(self) -> RawFd {
        self.0
    }
}

impl fmt::Debug for Fd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fd({})", self.0)
    }
}

/// What an operation came to. The variant is decided by the operation, also when it fails.
#[derive(Debug)]
pub(crate) enum Done {
    /// `accept`: a new connection, now the caller's to close.
    Accepted(io::Result<Fd>),
    /// `recv`: bytes, or the end of the stream as a buffer of length 0.
    Received(io::Result<RecvBuf>),
    /// `send`: all bytes are with the kernel, or why not. The buffer comes back either way.
    Sent {
        /// The outcome.
        res: io::Result<()>,
        /// The buffer, as it was handed in.
        #[cfg_attr(not(test), allow(dead_code, reason = "for the tests of the contract"))]
        buf: Bufs,
        /// How many of its bytes the kernel took; all of them exactly when `res` is `Ok`.
        #[cfg_attr(not(test), allow(dead_code, reason = "for the tests of the contract"))]
        sent_bytes: usize,
    },
    /// `connect`: the connection stands, or why not. The descriptor is the caller's either way.
    Connected(io::Result<()>),
    /// `ready`: there may be something to read, or room to write: until `WouldBlock`.
    Ready(io::Result<()>),
    /// `file`: all of it is done, or why not. The operation comes back either way.
    File {
        /// The outcome.
        res: io::Result<()>,
        /// With the bytes that were read, and the number of those that were written.
        op: Box<FileOp>,
    },
}

impl Done {
    /// Why the operation failed, if it did.
    #[cfg_attr(not(test), allow(dead_code, reason = "for the tests of the contract"))]
    pub(crate) fn error(&self) -> Option<&io::Error> {
        match self {
            Done::Accepted(res) => res.as_ref().err(),
            Done::Received(res) => res.as_ref().err(),
            Done::Sent { res, .. }
            | Done::Connected(res)
            | Done::Ready(res)
            | Done::File { res, .. } => res.as_ref().err(),
        }
    }
}

/// One completion.
#[derive(Debug)]
pub(crate) struct Completion {
    /// The caller's name for the operation.
    pub(crate) token: Token,
    /// What happened.
    pub(crate) done: Done,
    /// `false`: terminal. The operation is over and nothing more will come for it.
    pub(crate) more: bool,
}

/// What another thread than the owner has got the kernel to bring out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Brings {
    /// All that has happened by now.
    All,
    /// A part.
    Some,
    /// It was asked too often: later.
    Later,
    /// Only the owner can; or it has no processor, and the lookout is told when it has done so.
    Never,
}

/// What kind an operation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    Accept,
    Recv,
    Send,
    Connect,
    Readable,
    Writable,
    /// Of a file, which the operation keeps open; several may be under way.
    File,
}

impl Kind {
    #[cfg_attr(
        not(debug_assertions),
        allow(dead_code, reason = "for checks in debug builds")
    )]
    pub(super) const ALL: [Kind; 6] = [
        Kind::Accept,
        Kind::Recv,
        Kind::Send,
        Kind::Connect,
        Kind::Readable,
        Kind::Writable,
    ];
}

/// What an operation waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    /// Data, a connection, or an end.
    Reader,
    /// Room, or being connected.
    Writer,
}

/// Which direction of a connection to shut down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum How {
    /// No more receiving.
    Read,
    /// No more sending: the peer sees the end of the stream.
    Write,
    /// Neither.
    Both,
}
