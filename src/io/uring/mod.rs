//! The io_uring backend: the kernel completes, we keep the table.
//!
//! - `setup.rs`: the ring and its flags, and what is asked of the kernel;
//! - `ops.rs`: operations into submission entries;
//! - `recv.rs`: receiving, which the kernel only announces;
//! - `poll.rs`: completion entries into completions, and sleeping;
//! - here: the state, and how it ends.
//!
//! All `unsafe` of this backend rests on one invariant: **what the kernel may touch is owned by the
//! table (`ops`) until the terminal completion entry has been reaped**, and the table outlives the
//! ring (`Drop`).

mod ops;
mod poll;
mod recv;
mod setup;

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::mem;
use std::time::{Duration, Instant};

use io_uring::{IoUring, opcode, squeue, types};

use self::recv::{Place, Receive};
pub(super) use self::setup::{FLAVORS, Flavor};
use super::{
    Completion, Config, Done, Doorbell, Home, Ledger, Op, Operation, Slab, State, operation::End,
    socket,
};

/// The `user_data` of the doorbell's poll, of cancels. No key of the table has this low half.
const DOORBELL: u64 = 0x0000_0000_ffff_ffff;
const CANCEL: u64 = 0x0000_0001_ffff_ffff;

/// How long `drop` waits for the kernel to let go.
const DRAIN_TIME_MAX: Duration = Duration::from_secs(1);
/// Rounds of asking it and waiting for 10 ms, whatever the time.
const DRAIN_ROUNDS_MIN: u32 = 10;

/// One core's ring.
pub(super) struct Uring {
    /// First, so that it is dropped before what the kernel may point into.
    ring: IoUring,
    ops: Slab<Item>,
    home: Home,
    /// Submission entries that found the queue full while the kernel would take no more.
    backlog: VecDeque<squeue::Entry>,
    /// Completions that come from us and not from the kernel.
    ready: VecDeque<Completion>,
    /// Receives that may get something without hearing from the kernel; served in turn. May hold
    /// keys of operations that are over.
    active: VecDeque<Op>,
    /// Receives with something to read and no buffer, the longest-waiting first.
    parked: VecDeque<Op>,
    doorbell: Doorbell,
    /// A ring was seen that no `wait` has returned for.
    rung: bool,
    /// So many of the queued completion entries were there when the last `wait` returned.
    told: usize,
    ledger: Ledger,
}

#[derive(Debug)]
struct Item {
    operation: Operation,
    /// Of use to receives only.
    receive: Receive,
}

impl Uring {
    pub(super) fn new(flavor: Flavor, config: &Config) -> io::Result<Uring> {
        let ring = setup::ring(flavor, config)?;
        let doorbell = Doorbell::eventfd()?;
        let mut uring = Uring {
            ring,
            ops: Slab::new(),
            home: Home::new(config, doorbell.clone()),
            backlog: VecDeque::new(),
            ready: VecDeque::new(),
            active: VecDeque::new(),
            parked: VecDeque::new(),
            doorbell,
            rung: false,
            told: 0,
            ledger: Ledger::default(),
        };
        uring.watch_doorbell();
        // Now, and not with the first poll: a kernel that takes no submissions is to be found out
        // while another backend can still be chosen.
        uring.ring.submit()?;
        Ok(uring)
    }

    pub(super) fn doorbell(&self) -> Doorbell {
        self.doorbell.clone()
    }

    pub(super) fn in_flight(&self) -> usize {
        self.ops.len()
            + self
                .ready
                .iter()
                .filter(|completion| !completion.more)
                .count()
    }

    /// The operation is over.
    fn finish(&mut self, op: Op, end: End) -> Option<Completion> {
        let Item { operation, .. } = self.ops.remove(op)?;
        self.ledger.end(operation.fd, operation.kind());
        Some(operation.end(end))
    }

    /// Cancels everything and reaps until the kernel holds nothing of ours. `false` when it would
    /// not let go by the deadline, nor in `DRAIN_ROUNDS_MIN` rounds: a busy machine may have stopped this
    /// thread for longer than the deadline, when the kernel was not asked yet.
    fn drain(&mut self, deadline: Instant) -> bool {
        let mut rounds = 0;
        let mut reaped: Vec<Completion> = Vec::new();
        self.active.clear();
        self.parked.clear();
        let all: Vec<Op> = self.ops.keys().collect();
        for op in all {
            let Some(Item { operation, receive }) = self.ops.get_mut(op) else {
                continue;
            };
            operation.canceled = true;
            if matches!(operation.state, State::Recv) && !receive.armed {
                self.finish(op, End::CANCELED);
            } else {
                receive.place = Place::Over(End::CANCELED);
            }
        }
        loop {
            close_untold(&mut reaped);
            if self.ops.is_empty() && self.ready.is_empty() {
                return true;
            }
            if rounds >= DRAIN_ROUNDS_MIN && Instant::now() >= deadline {
                return false;
            }
            rounds += 1;
            // Again in each round: an entry may just have left the backlog.
            let everything = types::CancelBuilder::any();
            self.push(
                opcode::AsyncCancel2::new(everything)
                    .build()
                    .user_data(CANCEL),
            );
            let slept = self.wait(Some(Duration::from_millis(10)));
            if slept.is_err() || self.poll(&mut reaped, usize::MAX).is_err() {
                return false;
            }
        }
    }
}

/// Connections that were accepted after anybody cared.
fn close_untold(reaped: &mut Vec<Completion>) {
    for completion in reaped.drain(..) {
        if let Done::Accepted(Ok(fd)) = completion.done {
            socket::close(fd);
        }
    }
}

impl Drop for Uring {
    fn drop(&mut self) {
        if !self.drain(Instant::now() + DRAIN_TIME_MAX) {
            // The kernel still reads memory of ours. Closing the ring makes it let go some time
            // later, without telling us: what it may touch must never be freed.
            mem::forget(mem::replace(&mut self.ops, Slab::new()));
        }
    }
}

impl fmt::Debug for Uring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Uring")
            .field("in_flight", &self.in_flight())
            .field("active", &self.active.len())
            .field("parked", &self.parked.len())
            .field("buffers", &self.home)
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::io::{Fd, Token};
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;

    /// The kernel is asked all the same, and lets go of what it reads into.
    #[test]
    fn a_thread_that_was_stopped_past_the_deadline_drains() {
        for flavor in FLAVORS {
            let mut uring = Uring::new(flavor, &Config::default()).unwrap();
            let (here, _there) = UnixStream::pair().unwrap();
            uring.recv(Token(0), Fd::from_raw(here.as_raw_fd()));
            uring.poll(&mut Vec::new(), 1).unwrap();
            assert_eq!(uring.in_flight(), 1);
            assert!(uring.drain(Instant::now()), "{flavor:?}");
            assert_eq!(uring.in_flight(), 0);
        }
    }
}
