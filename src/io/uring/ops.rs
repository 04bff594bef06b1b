//! Operations into submission entries.

use std::io;
use std::net::SocketAddr;

use io_uring::{opcode, squeue, types};
use rustix::event::PollFlags;
use rustix::net::{RecvFlags, SendFlags, SocketFlags};
use std::os::fd::AsRawFd;

use super::super::{
    Fd, How, ListenOptions, Op, Operation, SendBuf, State, Token, operation::Terminal, socket,
};
use super::{CANCEL, DOORBELL, Item, Place, Uring};

/// Let the kernel go on by itself after a short send, and no SIGPIPE.
const SEND_FLAGS: i32 = (RecvFlags::WAITALL.bits() | SendFlags::NOSIGNAL.bits()) as i32;
const ACCEPT_FLAGS: i32 = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK).bits() as i32;
const POLL_IN: u32 = PollFlags::IN.bits() as u32;
const POLL_RECV: u32 = PollFlags::IN.union(PollFlags::RDHUP).bits() as u32;

impl Uring {
    pub(in crate::io) fn listen(
        &mut self,
        addr: SocketAddr,
        opts: &ListenOptions,
    ) -> io::Result<Fd> {
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

    pub(in crate::io) fn send(&mut self, token: Token, fd: Fd, buf: SendBuf) -> Op {
        self.start(token, fd, State::send(buf))
    }

    pub(in crate::io) fn send_now(&self, fd: Fd, bytes: &[u8]) -> usize {
        socket::send_now(fd, bytes)
    }

    pub(in crate::io) fn connect(
        &mut self,
        token: Token,
        addr: SocketAddr,
    ) -> io::Result<(Fd, Op)> {
        let fd = socket::keep(socket::stream(addr, SocketFlags::NONBLOCK)?);
        Ok((fd, self.start(token, fd, State::connect(addr))))
    }

    pub(in crate::io) fn readable(&mut self, token: Token, fd: Fd) -> Op {
        self.start(token, fd, State::Readable)
    }

    pub(in crate::io) fn cancel(&mut self, op: Op) {
        let completion = self.end(op, Terminal::CANCELED);
        self.ready.extend(completion);
    }

    /// Asks the kernel to end what it has of this name.
    pub(super) fn disarm(&mut self, op: Op) {
        self.push(opcode::AsyncCancel::new(op.0).build().user_data(CANCEL));
    }

    pub(in crate::io) fn shutdown(&mut self, fd: Fd, how: How) {
        socket::shutdown(fd, how);
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
        let fd = types::Fd(operation.fd.raw());
        let entry = match &operation.state {
            State::Accept => opcode::AcceptMulti::new(fd).flags(ACCEPT_FLAGS).build(),
            State::Recv => opcode::PollAdd::new(fd, POLL_RECV).multi(true).build(),
            State::Readable => opcode::PollAdd::new(fd, POLL_IN).multi(true).build(),
            State::Send { buf, sent_bytes } => {
                let rest = &buf[*sent_bytes..];
                // The length is a u32; what is beyond goes out as after any short send.
                let len = u32::try_from(rest.len()).unwrap_or(i32::MAX as u32);
                opcode::Send::new(fd, rest.as_ptr(), len)
                    .flags(SEND_FLAGS)
                    .build()
            }
            State::Connect { addr } => {
                opcode::Connect::new(fd, addr.as_ptr().cast(), addr.addr_len()).build()
            }
        };
        self.push(entry.user_data(op.0));
    }

    /// One multishot poll for the life of the ring.
    pub(super) fn watch_doorbell(&mut self) {
        let Some(fd) = self.doorbell.watched() else {
            return;
        };
        let fd = types::Fd(fd.as_raw_fd());
        self.push(
            opcode::PollAdd::new(fd, POLL_IN)
                .multi(true)
                .build()
                .user_data(DOORBELL),
        );
    }

    /// Queues an entry. With the queue full it waits in the backlog for the next poll.
    pub(super) fn push(&mut self, entry: squeue::Entry) {
        if !self.backlog.is_empty() || !self.try_push(&entry) {
            self.backlog.push_back(entry);
        }
    }

    /// From the backlog into the queue, in order, submitting as often as it fills, unless the
    /// kernel takes nothing (it wants its completions reaped first).
    pub(super) fn flush_backlog(&mut self) {
        while let Some(entry) = self.backlog.pop_front() {
            if self.try_push(&entry) {
                continue;
            }
            self.backlog.push_front(entry);
            if !matches!(self.ring.submit(), Ok(1..)) {
                // The next poll submits again and reports what is more than a passing refusal.
                return;
            }
        }
    }

    fn try_push(&mut self, entry: &squeue::Entry) -> bool {
        // SAFETY: what the entry points to (the bytes of a send, the address of a connect) is owned
        // by the operation in the table that its `user_data` names, at a stable address, until the
        // terminal completion is reaped; `Uring::drop` sees to it at the end. Cancels, polls
        // and accepts point to nothing.
        unsafe { self.ring.submission().push(entry) }.is_ok()
    }
}
