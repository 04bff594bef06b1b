//! Receiving: the kernel announces, we take.
//!
//! A receive is one multishot poll (IN and RDHUP) for as long as it lives, and a `recv(2)` that
//! does not block for each portion. A receive submitted to the ring would cost an entry and a poll
//! of its own each time, since mostly nothing is there yet, and a buffer set aside before anything
//! is known to come: always the one that has been out of the cache for longest.
//!
//! **The buffer** is home's until `recv(2)` has put something into it, and from then on the
//! `RecvBuf`'s: the kernel has none between two calls.
//!
//! **The edge.** Whatever wakes those who poll the socket (data, the peer's end of the stream, a
//! reset, an error) makes a completion entry; wake-ups that come before we let the kernel run its
//! deferred work may share one, made by looking at the socket then. Arming makes one too if
//! something is there already, so there is nothing to try first. The entry names the receive; it is
//! `Watched` and takes a step, or is `Active` or `Parked` and will take one anyway.
//!
//! **None is missed.** A receive waits for an edge only
//! - after `EAGAIN`: what comes after that call wakes;
//! - after a short read with no hang-up heard of: all was read, so whatever comes after that call
//!   wakes, an end or a reset included;
//! - with a poll armed: one that the kernel has ended (a full completion queue) is armed
//!   anew at that point, and arming tells what came in between.
//!
//! Otherwise it is `Active` and goes on by itself: after a read that filled its buffer, and after
//! any read once a hang-up was heard of, until that ends in the end of the stream or an error,
//! which no further edge would tell of. An edge for what has been read already costs a call and
//! `EAGAIN`.
//!
//! (A multishot receive of the kernel's can take the data and miss a reset or an end that comes
//! meanwhile: seen with Linux 6.18, as in liburing issue 1549. A poll does not consume.)
//!
//! **The end.** A poll holds the socket open: when a receive is over before its poll is, the poll
//! is canceled, and the end told with the poll's last entry. Then the caller's `close` closes.

use rustix::event::PollFlags;
use rustix::io::Errno;

use super::super::{Completion, Done, Op, operation::Terminal, socket};
use super::poll::is_passing;
use super::{Item, Place, Uring};

const HUNG_UP: PollFlags = PollFlags::RDHUP.union(PollFlags::HUP).union(PollFlags::ERR);

impl Uring {
    /// An entry of a receive's poll.
    pub(super) fn hear(&mut self, op: Op, res: i32, more: bool) -> Option<Completion> {
        let item = self.ops.get_mut(op)?;
        item.armed = more;
        if let Place::Over(end) = item.place {
            return if more { None } else { self.finish(op, end) };
        }
        if res < 0 {
            let errno = Errno::from_raw_os_error(-res);
            if !is_passing(errno) {
                return self.end(op, Terminal::Failed(errno));
            }
        } else {
            // The bits' type depends on who makes rustix's system calls: under Miri it is libc.
            let told = PollFlags::from_bits_retain(res as _);
            item.hung_up |= told.intersects(HUNG_UP);
        }
        match item.place {
            Place::Watched => self.step_recv(op),
            _ => None,
        }
    }

    /// Those that may have more to read have a step each, until `out` has `room` more.
    pub(super) fn receive_on(&mut self, out: &mut Vec<Completion>, room: usize) {
        let full = out.len().saturating_add(room);
        for _ in 0..self.active.len() {
            if out.len() == full {
                return;
            }
            let Some(op) = self.active.pop_front() else {
                return;
            };
            if let Some(item) = self.ops.get(op)
                && matches!(item.place, Place::Active)
            {
                let completion = self.step_recv(op);
                out.extend(completion);
            }
        }
    }

    /// As many parked receives go on as there are buffers.
    pub(super) fn unpark(&mut self) {
        for _ in 0..self.home.free() {
            let Some(op) = self.parked.pop_front() else {
                return;
            };
            self.go_on(op);
        }
    }

    /// Takes one portion. In no list; afterwards where it waits for the next.
    fn step_recv(&mut self, op: Op) -> Option<Completion> {
        let item = self.ops.get_mut(op)?;
        let (token, fd) = (item.operation.token, item.operation.fd);
        match socket::receive(&mut self.home, fd) {
            None => {
                item.place = Place::Parked;
                self.parked.push_back(op);
                None
            }
            Some(Ok((buf, _))) if buf.is_end() => self.end(op, Terminal::Eof),
            Some(Ok((buf, short))) => {
                if short && !item.hung_up {
                    self.await_edge(op);
                } else {
                    self.go_on(op);
                }
                Some(Completion {
                    token,
                    done: Done::Received(Ok(buf)),
                    more: true,
                })
            }
            Some(Err(Errno::AGAIN)) => {
                self.await_edge(op);
                None
            }
            Some(Err(Errno::INTR)) => {
                self.go_on(op);
                None
            }
            Some(Err(errno)) => self.end(op, Terminal::Failed(errno)),
        }
    }

    /// Nothing to do until the kernel says so.
    fn await_edge(&mut self, op: Op) {
        let Some(item) = self.ops.get_mut(op) else {
            return;
        };
        item.place = Place::Watched;
        if !item.armed {
            self.arm(op);
        }
    }

    fn go_on(&mut self, op: Op) {
        if let Some(Item { place, .. }) = self.ops.get_mut(op) {
            *place = Place::Active;
            self.active.push_back(op);
        }
    }
}
