//! Operations as the caller starts and ends them.

use std::io;

use rustix::io::Errno;
use rustix::net::SocketFlags;

use super::super::{
    Addr, Bufs, Fd, ListenOptions, Op, Operation, Side, State, Token, operation::Terminal, socket,
};
use super::{Epoll, Item, Place};

impl Epoll {
    pub(in crate::io) fn listen(&mut self, addr: &Addr, opts: &ListenOptions) -> io::Result<Fd> {
        socket::listener(addr, opts, SocketFlags::NONBLOCK)
    }

    pub(in crate::io) fn accept(&mut self, token: Token, listener: Fd) -> Op {
        self.start_watched(token, listener, State::Accept, Side::Reader)
    }

    pub(in crate::io) fn accept_waiting(&mut self, listener: Fd) -> Vec<Fd> {
        socket::accept_waiting(listener)
    }

    pub(in crate::io) fn unread_bytes(&self, fd: Fd) -> usize {
        socket::unread_bytes(fd)
    }

    pub(in crate::io) fn recv(&mut self, token: Token, fd: Fd) -> Op {
        self.start_watched(token, fd, State::Recv, Side::Reader)
    }

    pub(in crate::io) fn ready(&mut self, token: Token, fd: Fd, side: Side) -> Op {
        self.start_watched(token, fd, State::Ready(side), side)
    }

    /// Tries at once: most responses fit into the socket's buffer, and need no registration.
    pub(in crate::io) fn send(&mut self, token: Token, fd: Fd, buf: Bufs) -> Op {
        let op = self.start(token, fd, State::send(buf), Place::Active);
        let completion = self.step_send(op);
        self.ready.extend(completion);
        op
    }

    pub(in crate::io) fn connect(&mut self, token: Token, addr: &Addr) -> io::Result<(Fd, Op)> {
        let name = addr.to_any()?;
        let fd = socket::keep(socket::stream(addr, SocketFlags::NONBLOCK)?);
        let op = self.start(token, fd, State::connect(name.clone()), Place::Watched);
        let completion = match rustix::net::connect(fd.borrow(), &name) {
            Ok(()) => self.finish(op, Terminal::Ok),
            // A connect that a signal interrupted goes on too.
            Err(Errno::INPROGRESS | Errno::INTR) => self.await_edge(op, Side::Writer),
            Err(errno) => self.finish(op, Terminal::Failed(errno)),
        };
        self.ready.extend(completion);
        Ok((fd, op))
    }

    /// Ends it here and now: the kernel holds nothing, and what was received has been told.
    pub(in crate::io) fn cancel(&mut self, op: Op) {
        let completion = self.finish(op, Terminal::CANCELED);
        self.ready.extend(completion);
    }

    pub(in crate::io) fn close(&mut self, fd: Fd) {
        self.ledger.close(fd);
        fd.close();
    }

    fn start(&mut self, token: Token, fd: Fd, state: State, place: Place) -> Op {
        let operation = Operation::new(token, fd, state);
        self.ledger.start(fd, operation.kind());
        self.ops.insert(Item {
            operation,
            place,
            hung_up: false,
        })
    }

    /// Registering tells what is there already, so there is nothing to try first.
    fn start_watched(&mut self, token: Token, fd: Fd, state: State, side: Side) -> Op {
        let op = self.start(token, fd, state, Place::Watched);
        let completion = self.await_edge(op, side);
        self.ready.extend(completion);
        op
    }

    /// Nothing more to do for `op` until the kernel says so; its failure, if it cannot.
    pub(super) fn await_edge(&mut self, op: Op, side: Side) -> Option<super::super::Completion> {
        let item = self.ops.get_mut(op)?;
        item.place = Place::Watched;
        let fd = item.operation.fd;
        match self.watches.enter(fd, op, side) {
            Ok(()) => None,
            Err(errno) => self.finish(op, Terminal::Failed(errno)),
        }
    }
}
