//! The io_uring backend: the kernel completes, we keep the table.
//!
//! - `setup.rs`: the ring and its flags, and what is asked of the kernel;
//! - `buffers.rs`: the ring of provided buffers that receives take from;
//! - `ops.rs`: operations into submission entries;
//! - `poll.rs`: completion entries into completions, and sleeping;
//! - here: the state, and how it ends.
//!
//! All `unsafe` of this backend rests on one invariant: **what the kernel may touch is owned by the
//! table (`ops`) or the buffer pool until the terminal completion entry has been reaped**, and both
//! outlive the ring (`Drop`).

mod buffers;
mod ops;
mod poll;
mod setup;

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::mem;
use std::time::{Duration, Instant};

use io_uring::{IoUring, opcode, squeue, types};

use self::buffers::Provided;
pub(super) use self::setup::{FLAVORS, Flavor};
use super::{
    Completion, Config, Done, Doorbell, Ledger, Op, Operation, Pool, Slab, operation::End, socket,
};

/// The `user_data` of the doorbell's poll, of cancels. No key of the table has this low half.
const DOORBELL: u64 = 0x0000_0000_ffff_ffff;
const CANCEL: u64 = 0x0000_0001_ffff_ffff;

/// How long `drop` waits for the kernel to let go.
const DRAIN_TIME_MAX: Duration = Duration::from_secs(1);

/// One core's ring.
pub(super) struct Uring {
    /// First, so that it is dropped before what the kernel may point into.
    ring: IoUring,
    buffers: Provided,
    ops: Slab<Operation>,
    /// Submission entries that found the queue full while the kernel would take no more.
    backlog: VecDeque<squeue::Entry>,
    /// Completions that come from us and not from the kernel.
    ready: VecDeque<Completion>,
    /// Receives that pause for want of a buffer, the longest-waiting first. The kernel has nothing
    /// armed for them: arming without buffers fails at once, even on an idle connection.
    parked: VecDeque<Op>,
    doorbell: Doorbell,
    /// A ring was seen that no `wait` has returned for.
    rung: bool,
    /// So many of the queued completion entries were there when the last `wait` returned.
    told: usize,
    ledger: Ledger,
}

impl Uring {
    pub(super) fn new(flavor: Flavor, config: &Config) -> io::Result<Uring> {
        let ring = setup::ring(flavor, config)?;
        let doorbell = Doorbell::eventfd()?;
        let buffers = Provided::new(&ring, Pool::new(config, doorbell.clone()), config)?;
        let mut uring = Uring {
            ring,
            buffers,
            ops: Slab::new(),
            backlog: VecDeque::new(),
            ready: VecDeque::new(),
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
        let operation = self.ops.remove(op)?;
        self.ledger.end(operation.fd, operation.kind());
        Some(operation.end(end))
    }

    /// Cancels everything and reaps until the kernel holds nothing of ours. `false` when it would
    /// not let go in time.
    fn drain(&mut self) -> bool {
        let deadline = Instant::now() + DRAIN_TIME_MAX;
        let mut reaped: Vec<Completion> = Vec::new();
        let all: Vec<Op> = self.ops.keys().collect();
        for op in all {
            if let Some(operation) = self.ops.get_mut(op) {
                operation.canceled = true;
            }
        }
        while let Some(op) = self.parked.pop_front() {
            self.finish(op, End::CANCELED);
        }
        loop {
            close_untold(&mut reaped);
            if self.ops.is_empty() && self.ready.is_empty() {
                return true;
            }
            if Instant::now() >= deadline {
                return false;
            }
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
        if self.drain() {
            self.buffers.unregister(&self.ring);
        } else {
            // The kernel still holds buffers of ours. Closing the ring makes it let go some time
            // later, without telling us: what it may touch must never be freed.
            mem::forget(mem::replace(&mut self.ops, Slab::new()));
            self.buffers.leak();
        }
    }
}

impl fmt::Debug for Uring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Uring")
            .field("in_flight", &self.in_flight())
            .field("parked", &self.parked.len())
            .field("buffers", &self.buffers)
            .finish_non_exhaustive()
    }
}
