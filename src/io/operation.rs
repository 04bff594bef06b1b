//! An operation under way, as all backends keep it in their tables.

use std::io;
use std::net::SocketAddr;

use rustix::io::Errno;

use super::kernel::Message;
use super::{Bufs, Completion, Done, Fd, Kind, Side, Token};

/// What a backend remembers until the terminal completion.
#[derive(Debug)]
pub(super) struct Operation {
    pub(super) token: Token,
    pub(super) fd: Fd,
    pub(super) state: State,
}

/// What is particular to a kind. Owns all memory that the kernel may read meanwhile, at addresses
/// that do not change when the table grows: `Bufs` and `Message` keep no bytes inline, the address
/// is boxed.
#[derive(Debug)]
pub(super) enum State {
    Accept,
    Recv,
    Send {
        buf: Bufs,
        sent_bytes: usize,
        /// What a ring is told of several buffers.
        message: Option<Message>,
    },
    Connect {
        addr: Box<rustix::net::SocketAddrAny>,
    },
    Ready(Side),
}

impl State {
    pub(super) fn send(buf: Bufs) -> State {
        State::Send {
            buf,
            sent_bytes: 0,
            message: None,
        }
    }

    pub(super) fn connect(addr: SocketAddr) -> State {
        State::Connect {
            addr: Box::new(addr.into()),
        }
    }

    fn kind(&self) -> Kind {
        match self {
            State::Accept => Kind::Accept,
            State::Recv => Kind::Recv,
            State::Send { .. } => Kind::Send,
            State::Connect { .. } => Kind::Connect,
            State::Ready(Side::Reader) => Kind::Readable,
            State::Ready(Side::Writer) => Kind::Writable,
        }
    }
}

/// How an operation ends that has nothing more to give.
#[derive(Clone, Copy, Debug)]
pub(super) enum Terminal {
    /// Sent, connected.
    Ok,
    /// The end of the stream.
    Eof,
    Failed(Errno),
}

impl Terminal {
    pub(super) const CANCELED: Terminal = Terminal::Failed(Errno::CANCELED);
}

impl Operation {
    pub(super) fn new(token: Token, fd: Fd, state: State) -> Operation {
        Operation { token, fd, state }
    }

    pub(super) fn kind(&self) -> Kind {
        self.state.kind()
    }

    /// Its terminal completion.
    pub(super) fn end(self, end: Terminal) -> Completion {
        fn plain<T>(end: Terminal, ok: T) -> io::Result<T> {
            match end {
                Terminal::Ok | Terminal::Eof => Ok(ok),
                Terminal::Failed(errno) => Err(errno.into()),
            }
        }
        let failure = match end {
            Terminal::Failed(errno) => errno,
            // Only receives, sends and connects can end well.
            Terminal::Ok | Terminal::Eof => Errno::INVAL,
        };
        let done = match self.state {
            State::Accept => Done::Accepted(Err(failure.into())),
            State::Ready(_) => Done::Ready(Err(failure.into())),
            State::Recv => Done::Received(plain(end, super::RecvBuf::end())),
            State::Connect { .. } => Done::Connected(plain(end, ())),
            State::Send {
                buf, sent_bytes, ..
            } => Done::Sent {
                res: plain(end, ()),
                buf,
                sent_bytes,
            },
        };
        Completion {
            token: self.token,
            done,
            more: false,
        }
    }
}

/// Failures of an accept that say nothing about the listener: the connection died in the queue.
pub(super) fn is_about_one_connection(errno: Errno) -> bool {
    matches!(errno, Errno::CONNABORTED | Errno::PROTO | Errno::INTR)
}
