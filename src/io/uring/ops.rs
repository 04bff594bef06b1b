//! Operations, and how they get into the queue of submissions.

use std::io;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::net::SocketFlags;

use super::super::{
    Addr, Bufs, Fd, FileOp, ListenOptions, Op, Operation, Side, State, Token, kernel::Submission,
    operation::Terminal, socket,
};
use super::{CANCEL, DOORBELL, Item, Place, Uring};
use crate::sync::Arc;

impl Uring {
    pub(in crate::io) fn listen(&mut self, addr: &Addr, opts: &ListenOptions) -> io::Result<Fd> {
        socket::listener(addr, opts, SocketFlags::empty())
    }

    pub(in crate::io) fn accept(&mut self, token: Token, listener: Fd) -> Op {
        self.start(token, listener, State::Accept)
    }

    pub(in crate::io) fn accept_waiting(&mut self, listener: Fd) -> Vec<Fd> {
        socket::accept_waiting(listener)
    }

    pub(in crate::io) fn unread_bytes(&self, fd: Fd) -> usize {
        socket::unread_bytes(fd)
    }

    pub(in crate::io) fn recv(&mut self, token: Token, fd: Fd) -> Op {
        self.start(token, fd, State::Recv)
    }

    pub(in crate::io) fn send(&mut self, token: Token, fd: Fd, buf: Bufs) -> Op {
        self.start(token, fd, State::send(buf))
    }

    pub(in crate::io) fn connect(&mut self, token: Token, addr: &Addr) -> io::Result<(Fd, Op)> {
        let name = addr.to_any()?;
        let fd = socket::keep(socket::stream(addr, SocketFlags::NONBLOCK)?);
        let op = self.start(token, fd, State::connect(name));
        // The caller may be in a handler for longer than its limit for this. If the kernel refuses,
        // the next poll submits again.
        let _ = self.ring.submit();
        Ok((fd, op))
    }

    pub(in crate::io) fn ready(&mut self, token: Token, fd: Fd, side: Side) -> Op {
        self.start(token, fd, State::Ready(side))
    }

    pub(in crate::io) fn file(&mut self, token: Token, file: Arc<OwnedFd>, op: Box<FileOp>) -> Op {
        let fd = Fd::from_raw(file.as_raw_fd());
        self.start(token, fd, State::File { _file: file, op })
    }

    pub(in crate::io) fn cancel(&mut self, op: Op) {
        let completion = self.end(op, Terminal::CANCELED);
        self.ready.extend(completion);
    }

    /// Asks the kernel to end what it has of this name.
    pub(super) fn disarm(&mut self, op: Op) {
        self.push(Submission::cancel(op, CANCEL));
    }

    pub(in crate::io) fn close(&mut self, fd: Fd) {
        self.ledger.close(fd);
        fd.close();
    }

    fn start(&mut self, token: Token, fd: Fd, state: State) -> Op {
        let operation = Operation::new(token, fd, state);
        self.ledger.start(fd, operation.kind());
        let op = self.ops.insert(Item {
            operation,
            armed: false,
            place: Place::Watched,
            hung_up: false,
        });
        self.arm(op);
        op
    }

    /// Hands an operation of the table to the kernel: at its start, after a short send, and when a
    /// multishot ended for a reason of the kernel's own.
    pub(super) fn arm(&mut self, op: Op) {
        let Some(Item {
            operation, armed, ..
        }) = self.ops.get_mut(op)
        else {
            return;
        };
        *armed = true;
        if let State::Send {
            buf,
            sent_bytes,
            message,
        } = &mut operation.state
        {
            *message = buf.message(*sent_bytes);
        }
        let submission = Submission::of(op, operation);
        self.push(submission);
    }

    /// One multishot poll for the life of the ring.
    pub(super) fn watch_doorbell(&mut self) {
        let Some(fd) = self.doorbell.watched() else {
            return;
        };
        let submission = Submission::watch(fd, DOORBELL);
        self.push(submission);
    }

    /// Queues a submission. With the queue full it waits in the backlog for the next poll.
    pub(super) fn push(&mut self, submission: Submission) {
        if !self.backlog.is_empty() || !submission.push(&mut self.ring) {
            self.backlog.push_back(submission);
        }
    }

    /// From the backlog into the queue, in order, submitting as often as it fills, unless the
    /// kernel takes nothing (it wants its completions reaped first).
    pub(super) fn flush_backlog(&mut self) {
        self.refill();
        // If the kernel takes nothing, the next poll submits again and reports what is more than a
        // passing refusal.
        while !self.backlog.is_empty() && matches!(self.ring.submit(), Ok(1..)) {
            self.refill();
        }
    }

    /// The same as far as there is room, without the kernel.
    pub(super) fn refill(&mut self) {
        while let Some(submission) = self.backlog.pop_front() {
            if !submission.push(&mut self.ring) {
                self.backlog.push_front(submission);
                return;
            }
        }
    }
}
