//! The io_uring backend: the kernel completes, we keep the table.
//!
//! - `setup.rs`: the ring and its flags, and what is asked of the kernel;
//! - `ops.rs`: operations, and how they get into the queue of submissions;
//! - `recv.rs`: receiving, which the kernel only announces;
//! - `poll.rs`: completion entries into completions, and sleeping;
//! - `kick.rs`: how another thread has the owner bring entries out;
//! - here: the state, and how it ends.
//!
//! What the kernel is promised (`../kernel.rs`) rests on one invariant: **what the kernel may touch
//! is owned by the table (`ops`) until the terminal completion entry has been reaped**, and the
//! table outlives the ring (`Drop`).

mod kick;
mod ops;
mod poll;
mod recv;
mod setup;

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::mem;
use std::os::fd::AsRawFd;
use std::time::Duration;

use io_uring::{EnterFlags, IoUring, types};

use self::kick::Kick;
pub(super) use self::setup::{FLAVORS, Flavor};
use super::{
    Completion, Config, Done, Doorbell, Home, Ledger, Lookout, Op, Operation, Slab,
    kernel::Submission, operation::Terminal,
};

use crate::sync::Arc;
use crate::sync::atomic::{Ordering, fence};

/// The `user_data` of the doorbell's poll, of cancels. No key of the table has this low half.
const DOORBELL: u64 = 0x0000_0000_ffff_ffff;
const CANCEL: u64 = 0x0000_0001_ffff_ffff;

/// For how long a new ring is waited for, which takes a moment.
const CHECK_MAX: Duration = Duration::from_secs(1);

/// How often `drop` waits for the kernel to let go, and for how long each time. Not until a
/// deadline: a busy machine may stop this thread past any before the kernel was asked once.
const DRAIN_ROUNDS: u32 = 100;
const DRAIN_ROUND: Duration = Duration::from_millis(10);

/// One core's ring.
pub(super) struct Uring {
    /// Before the ring, which a kick enters.
    kick: Kick,
    /// Before what the kernel may point into.
    ring: IoUring,
    ops: Slab<Item>,
    home: Home,
    /// Submissions that found the queue full.
    backlog: VecDeque<Submission>,
    /// Terminal completions that come from us and not from the kernel.
    ready: VecDeque<Completion>,
    /// Receives that may get something without hearing from the kernel; served in turn. May hold
    /// keys of operations that are over.
    active: VecDeque<Op>,
    /// Receives with something to read and no buffer, the longest-waiting first.
    parked: VecDeque<Op>,
    doorbell: Doorbell,
    /// A ring was seen that no `wait` has returned for.
    rung: bool,
    /// How many of the queued completion entries were there when the last `wait` returned.
    told: usize,
    /// How a sleep is entered. Since Linux 6.15 a thread can say that it waits for no disk: else it
    /// counts as one that does, in the load average and as I/O pressure.
    sleeps_as: EnterFlags,
    /// What the kernel writes to while it is watched.
    tells: Option<Doorbell>,
    watched: bool,
    ledger: Ledger,
}

#[derive(Debug)]
struct Item {
    operation: Operation,
    /// The kernel has something of this name, whose last entry has not been reaped. Always so, but
    /// for a receive.
    armed: bool,
    place: Place,
    /// The peer has hung up: a short read is not the end, there is an end of the stream behind it
    /// and no further edge will tell. For receives.
    hung_up: bool,
}

/// Where an operation waits for its next step.
#[derive(Clone, Copy, Debug)]
enum Place {
    /// For the kernel.
    Watched,
    /// In `active`.
    Active,
    /// In `parked`.
    Parked,
    /// For the kernel's last entry; then it has ended so.
    Over(Terminal),
}

impl Uring {
    pub(super) fn new(flavor: Flavor, config: &Config) -> io::Result<Uring> {
        let ring = setup::ring(flavor, config)?;
        let doorbell = Doorbell::eventfd()?;
        let sleeps_as = if ring.params().is_feature_no_iowait() {
            EnterFlags::NO_IOWAIT
        } else {
            EnterFlags::empty()
        };
        let mut uring = Uring {
            kick: Kick::new(&ring),
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
            sleeps_as,
            tells: None,
            watched: false,
            ledger: Ledger::default(),
        };
        uring.watch_doorbell();
        uring.check()?;
        Ok(uring)
    }

    /// Lets the ring do something. Now, and not with the first poll: one that takes no submissions,
    /// or completes none, is to be found out while another backend can still be chosen.
    fn check(&mut self) -> io::Result<()> {
        self.push(Submission::nop(CANCEL));
        let at_most = types::Timespec::from(CHECK_MAX);
        let args = types::SubmitArgs::new().timespec(&at_most);
        let entered = self.ring.submitter().submit_with_args(1, &args);
        // It is the only entry that there can be.
        if self.ring.completion().next().is_none() {
            poll::tolerate(entered)?;
            let text = "the ring completes nothing: something between the kernel and this program \
                        accepts io_uring's system calls and does not carry them out";
            return Err(io::Error::new(io::ErrorKind::Unsupported, text));
        }
        Ok(())
    }

    pub(super) fn doorbell(&self) -> Doorbell {
        self.doorbell.clone()
    }

    /// Where an eventfd is refused, the ring is not watched, and what comes waits for its owner.
    pub(super) fn attach(&mut self, lookout: &Arc<Lookout>, core: usize) {
        self.ring.completion().disable_eventfd();
        let attached = Doorbell::eventfd().and_then(|eventfd| {
            let fd = eventfd.watched().ok_or(io::ErrorKind::Unsupported)?;
            lookout.add_eventfd(core, fd)?;
            self.kick.begin(fd);
            self.ring.submitter().register_eventfd(fd.as_raw_fd())?;
            Ok(eventfd)
        });
        self.tells = attached.ok();
    }

    /// The kernel adds something and then reads the flag; here it is the other way round. So either
    /// the kernel tells, or it is seen here.
    pub(super) fn watch(&mut self) -> bool {
        if self.tells.is_none() {
            return false;
        }
        self.watched = true;
        self.ring.completion().enable_eventfd();
        fence(Ordering::SeqCst);
        if !self.parked.is_empty() {
            // A buffer that comes back rings the doorbell, which the ring tells of.
            self.home.starve();
        }
        let glance = self.glance();
        let can_bring_out = self.kick.can() && !self.kick.is_under_way();
        glance.completed > 0
            || self.has_own_work()
            || (glance.pending || glance.queued) && can_bring_out
    }

    #[inline]
    pub(super) fn let_go(&mut self) {
        if std::mem::take(&mut self.watched) {
            self.ring.completion().disable_eventfd();
        }
    }

    pub(super) fn in_flight(&self) -> usize {
        self.ops.len() + self.ready.len()
    }

    /// The operation is over.
    fn finish(&mut self, op: Op, end: Terminal) -> Option<Completion> {
        let Item { operation, .. } = self.ops.remove(op)?;
        self.ledger.end(operation.fd, operation.kind());
        Some(operation.end(end))
    }

    /// The operation is to end so: its completion, if that can be told already. A second end
    /// changes nothing.
    fn end(&mut self, op: Op, end: Terminal) -> Option<Completion> {
        let item = self.ops.get_mut(op)?;
        match item.place {
            Place::Over(_) => return None,
            Place::Parked => self.parked.retain(|&parked| parked != op),
            Place::Watched | Place::Active => {}
        }
        if !item.armed {
            return self.finish(op, end);
        }
        item.place = Place::Over(end);
        self.disarm(op);
        None
    }

    /// Cancels everything and reaps until the kernel holds nothing of ours. `false` when it would
    /// not let go.
    fn drain(&mut self) -> bool {
        let mut reaped = Vec::new();
        let all: Vec<Op> = self.ops.keys().collect();
        for op in all {
            self.cancel(op);
        }
        for _ in 0..DRAIN_ROUNDS {
            // A kernel that refuses is asked again, since there is nothing else to do.
            let _ = self.poll(&mut reaped, usize::MAX);
            close_untold(&mut reaped);
            if self.ops.is_empty() {
                return true;
            }
            let _ = self.wait(Some(DRAIN_ROUND));
        }
        false
    }
}

/// Connections that were accepted after anybody cared.
fn close_untold(reaped: &mut Vec<Completion>) {
    for completion in reaped.drain(..) {
        if let Done::Accepted(Ok(fd)) = completion.done {
            fd.close();
        }
    }
}

impl Drop for Uring {
    fn drop(&mut self) {
        if !self.drain() {
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
mod file_tests;
#[cfg(all(test, not(loom)))]
mod tests;
