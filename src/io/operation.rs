//! An operation under way, as all backends keep it in their tables.

use std::io;
use std::os::fd::OwnedFd;

use rustix::io::Errno;
use rustix::net::SocketAddrAny;

use super::kernel::Message;
use super::{Bufs, Completion, Done, Fd, FileOp, Kind, Side, Token};
use crate::sync::Arc;

/// What a backend remembers until the terminal completion.
#[derive(Debug)]
pub(super) struct Operation {
    pub(super) token: Token,
    pub(super) fd: Fd,
    pub(super) state: State,
}

/// What is particular to a kind. Owns all memory that the kernel may read meanwhile, at addresses
/// that do not change when the table grows: `Bufs` and `Message` keep no bytes inline, what a file is
/// read into is a `Vec` that is left alone meanwhile, the address is boxed.
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
        addr: Box<SocketAddrAny>,
    },
    Ready(Side),
    File {
        /// Keeps the descriptor open until the kernel is done, so that its number is not reused.
        _file: Arc<OwnedFd>,
        /// In a box, so that the states of sends, which are far more frequent, stay small.
        op: Box<FileOp>,
    },
}

impl State {
    pub(super) fn send(buf: Bufs) -> State {
        State::Send {
            buf,
            sent_bytes: 0,
            message: None,
        }
    }

    pub(super) fn connect(addr: SocketAddrAny) -> State {
        State::Connect {
            addr: Box::new(addr),
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
            State::File { .. } => Kind::File,
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
            // Accepts and watches never end well.
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
            State::File { _file, op } => Done::File {
                res: plain(end, ()),
                op,
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
