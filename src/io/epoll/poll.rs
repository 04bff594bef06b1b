//! Doing what is ready, and sleeping.

use std::io;
use std::mem;
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{SocketFlags, accept_with, sockopt};

use super::super::operation::is_about_one_connection;
use super::super::{Completion, Done, Op, Side, State, operation::Terminal, socket};
use super::watch::Heard;
use super::{EVENTS_MAX, Epoll, Place};

/// What one operation may do in one turn before the others are served.
const RECEIVES_MAX: usize = 4;
const SENDS_MAX: usize = 4;
/// Generous: newcomers that wait for a turn each see seconds under load.
const ACCEPTS_MAX: usize = 256;

impl Epoll {
    pub(in crate::io) fn poll(
        &mut self,
        out: &mut Vec<Completion>,
        limit: usize,
    ) -> io::Result<()> {
        if self.watches.any() {
            return self.take(out, limit);
        }
        self.go_on(out, out.len().saturating_add(limit));
        Ok(())
    }

    /// As [`poll`](Self::poll). It always hears the doorbell too, which would have the set stay
    /// readable.
    pub(in crate::io) fn take(
        &mut self,
        out: &mut Vec<Completion>,
        limit: usize,
    ) -> io::Result<()> {
        self.hear(Some(Duration::ZERO), false)?;
        self.go_on(out, out.len().saturating_add(limit));
        Ok(())
    }

    fn go_on(&mut self, out: &mut Vec<Completion>, full: usize) {
        self.home.reclaim();
        self.unpark();
        // Each active operation has one step, so that none keeps the others waiting.
        for _ in 0..self.active.len() {
            self.drain_ready(out, full);
            if out.len() >= full {
                return;
            }
            if let Some(op) = self.active.pop_front() {
                self.step(op, out, full);
            }
        }
        self.drain_ready(out, full);
    }

    /// One call tells of [`EVENTS_MAX`] descriptors. Others may go on for ever to have something,
    /// so there are no more calls than all operations take.
    pub(in crate::io) fn catch_up(&mut self) -> io::Result<usize> {
        for _ in 0..=self.ops.len() / EVENTS_MAX {
            if self.watches.any() {
                self.hear(Some(Duration::ZERO), false)?;
            }
            if self.events.len() < EVENTS_MAX {
                break;
            }
        }
        Ok(self.active.len() + self.ready.len())
    }

    pub(in crate::io) fn has_more(&self) -> bool {
        !self.ready.is_empty() || !self.active.is_empty() || !self.parked.is_empty()
    }

    pub(in crate::io) fn has_work(&self) -> bool {
        !self.ready.is_empty()
            || !self.active.is_empty()
            || (!self.parked.is_empty() && self.home.has_free())
    }

    pub(in crate::io) fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        if !self.parked.is_empty() {
            self.home.starve();
        }
        if mem::take(&mut self.rung) || self.has_work() {
            return Ok(());
        }
        self.hear(timeout, true)
    }

    /// Takes what the kernel has to tell. A doorbell heard by a `wait` is thereby answered.
    fn hear(&mut self, timeout: Option<Duration>, waiting: bool) -> io::Result<()> {
        let mut events = mem::take(&mut self.events);
        let res = self.watches.listen(&mut events, timeout);
        for event in &events {
            match self.watches.hear(event) {
                Some(Heard::Doorbell) => self.rung |= !waiting,
                Some(Heard::Fd {
                    reader,
                    writer,
                    hung_up,
                }) => {
                    for op in reader.into_iter().chain(writer) {
                        self.activate(op, hung_up);
                    }
                }
                None => {}
            }
        }
        self.events = events;
        res
    }

    fn drain_ready(&mut self, out: &mut Vec<Completion>, full: usize) {
        while out.len() < full
            && let Some(completion) = self.ready.pop_front()
        {
            out.push(completion);
        }
    }

    /// As many paused receives go on as there are buffers.
    fn unpark(&mut self) {
        for _ in 0..self.home.free() {
            let Some(op) = self.parked.pop_front() else {
                return;
            };
            if let Some(item) = self.ops.get_mut(op) {
                item.place = Place::Active;
                self.active.push_back(op);
            }
        }
    }

    /// One step of an operation that may get somewhere; there is room for one completion.
    fn step(&mut self, op: Op, out: &mut Vec<Completion>, full: usize) {
        let Some(item) = self.ops.get_mut(op) else {
            return;
        };
        let last = match &item.operation.state {
            State::Accept => self.step_accept(op, out, full),
            State::Recv => self.step_recv(op, out, full),
            State::Send { .. } => self.step_send(op),
            State::Connect { .. } => match sockopt::socket_error(item.operation.fd.borrow()) {
                Ok(Ok(())) => self.finish(op, Terminal::Ok),
                Ok(Err(errno)) | Err(errno) => self.finish(op, Terminal::Failed(errno)),
            },
            &State::Ready(side) => {
                let token = item.operation.token;
                out.push(Completion {
                    token,
                    done: Done::Ready(Ok(())),
                    more: true,
                });
                self.await_edge(op, side)
            }
            State::File { .. } => unreachable!("a file is always ready: it is not started here"),
        };
        self.ready.extend(last);
    }

    fn step_accept(
        &mut self,
        op: Op,
        out: &mut Vec<Completion>,
        full: usize,
    ) -> Option<Completion> {
        let operation = &self.ops.get(op)?.operation;
        let (token, fd) = (operation.token, operation.fd);
        let most = ACCEPTS_MAX.min(full - out.len());
        for _ in 0..most {
            match accept_with(fd.borrow(), SocketFlags::CLOEXEC | SocketFlags::NONBLOCK) {
                Ok(accepted) => {
                    let done = Done::Accepted(Ok(socket::keep(accepted)));
                    out.push(Completion {
                        token,
                        done,
                        more: true,
                    });
                }
                Err(Errno::AGAIN) => return self.await_edge(op, Side::Reader),
                Err(errno) if is_about_one_connection(errno) => {}
                Err(errno) => return self.finish(op, Terminal::Failed(errno)),
            }
        }
        self.active.push_back(op);
        None
    }

    fn step_recv(&mut self, op: Op, out: &mut Vec<Completion>, full: usize) -> Option<Completion> {
        let item = self.ops.get(op)?;
        let (token, fd, hung_up) = (item.operation.token, item.operation.fd, item.hung_up);
        let most = RECEIVES_MAX.min(full - out.len());
        for _ in 0..most {
            match socket::receive(&mut self.home, fd) {
                None => {
                    self.ops.get_mut(op)?.place = Place::Parked;
                    self.parked.push_back(op);
                    return None;
                }
                Some(Ok((buf, _))) if buf.is_end() => return self.finish(op, Terminal::Eof),
                Some(Ok((buf, short))) => {
                    out.push(Completion {
                        token,
                        done: Done::Received(Ok(buf)),
                        more: true,
                    });
                    if short && !hung_up {
                        // All was read: what comes now makes an edge of its own.
                        return self.await_edge(op, Side::Reader);
                    }
                }
                Some(Err(Errno::AGAIN)) => return self.await_edge(op, Side::Reader),
                Some(Err(Errno::INTR)) => {}
                Some(Err(errno)) => return self.finish(op, Terminal::Failed(errno)),
            }
        }
        self.active.push_back(op);
        None
    }

    /// Sends what the socket takes. The operation is `Active` and not in the list.
    pub(super) fn step_send(&mut self, op: Op) -> Option<Completion> {
        for _ in 0..SENDS_MAX {
            let operation = &mut self.ops.get_mut(op)?.operation;
            let fd = operation.fd;
            let State::Send {
                buf, sent_bytes, ..
            } = &mut operation.state
            else {
                return None;
            };
            if *sent_bytes == buf.len() {
                return self.finish(op, Terminal::Ok);
            }
            match buf.send(fd, *sent_bytes) {
                // Nothing sent of something is not said to happen; going on could last forever.
                Ok(0) => return self.finish(op, Terminal::Failed(Errno::PIPE)),
                Ok(sent) => {
                    *sent_bytes += sent;
                    if *sent_bytes == buf.len() {
                        return self.finish(op, Terminal::Ok);
                    }
                }
                Err(Errno::AGAIN) => return self.await_edge(op, Side::Writer),
                Err(Errno::INTR) => {}
                Err(errno) => return self.finish(op, Terminal::Failed(errno)),
            }
        }
        self.active.push_back(op);
        None
    }
}
