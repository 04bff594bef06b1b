//! Operations as the caller starts and ends them.

use std::io;

use super::super::{
    Addr, Bufs, Fd, ListenOptions, Op, Operation, Side, State, Token, operation::Terminal,
};
use super::Sim;

impl Sim {
    pub(in crate::io) fn listen(&mut self, addr: &Addr, opts: &ListenOptions) -> io::Result<Fd> {
        addr.to_any()?;
        let backlog = usize::try_from(opts.backlog).unwrap_or(0).max(1);
        Ok(self
            .net
            .with(|net| net.listen(addr, opts.reuse_port, backlog))?)
    }

    pub(in crate::io) fn accept(&mut self, token: Token, listener: Fd) -> Op {
        self.start(token, listener, State::Accept)
    }

    pub(in crate::io) fn accept_waiting(&mut self, listener: Fd) -> Vec<Fd> {
        let accept = || self.net.with(|net| net.accept(listener)).ok();
        std::iter::from_fn(accept).collect()
    }

    pub(in crate::io) fn unread_bytes(&self, fd: Fd) -> usize {
        self.net.with(|net| net.unread_bytes(fd))
    }

    pub(in crate::io) fn recv(&mut self, token: Token, fd: Fd) -> Op {
        self.start(token, fd, State::Recv)
    }

    pub(in crate::io) fn send(&mut self, token: Token, fd: Fd, buf: Bufs) -> Op {
        self.start(token, fd, State::send(buf))
    }

    pub(in crate::io) fn connect(&mut self, token: Token, addr: &Addr) -> io::Result<(Fd, Op)> {
        let name = addr.to_any()?;
        let fd = self.net.with(|net| net.socket())?;
        Ok((fd, self.start(token, fd, State::connect(name))))
    }

    pub(in crate::io) fn ready(&mut self, token: Token, fd: Fd, side: Side) -> Op {
        self.start(token, fd, State::Ready(side))
    }

    pub(in crate::io) fn cancel(&mut self, op: Op) {
        let completion = self.finish(op, Terminal::CANCELED);
        self.ready.extend(completion);
    }

    pub(in crate::io) fn close(&mut self, fd: Fd) {
        self.ledger.close(fd);
        self.net.with(|net| net.close(fd, false));
    }

    fn start(&mut self, token: Token, fd: Fd, state: State) -> Op {
        let operation = Operation::new(token, fd, state);
        self.ledger.start(fd, operation.kind());
        // It may get somewhere where the others could not.
        self.settled = None;
        self.ops.insert(operation)
    }
}
