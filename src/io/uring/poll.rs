//! Completion entries into completions, and sleeping.

use std::io;
use std::time::Duration;

use arrayvec::ArrayVec;
use io_uring::{cqueue, types};
use rustix::io::Errno;

use super::super::operation::is_about_one_connection;
use super::super::{Brings, Completion, Done, Fd, Op, State, operation::Terminal};
use super::kick::Kicked;
use super::{CANCEL, DOORBELL, Item, Place, Uring};

/// Entries are copied out of the queue by this many, and acted on afterwards.
const BATCH: usize = 64;

/// Longer timeouts are as good as none; the kernel's seconds are signed.
const TIMEOUT_MAX: Duration = Duration::from_secs(365 * 24 * 3600);

/// What a look at the queues shows, without a system call.
pub(super) struct Glance {
    pub(super) queued: bool,
    /// The kernel has completions that only an enter brings out.
    pub(super) pending: bool,
    pub(super) completed: usize,
}

impl Uring {
    pub(in crate::io) fn poll(
        &mut self,
        out: &mut Vec<Completion>,
        limit: usize,
    ) -> io::Result<()> {
        self.flush_backlog();
        let glance = self.glance();
        if glance.queued || glance.pending {
            // Asks for events exactly when there are some to be run.
            tolerate(self.ring.submit())?;
        }
        self.take(out, limit);
        Ok(())
    }

    pub(in crate::io) fn submit(&mut self) -> io::Result<()> {
        self.flush_backlog();
        match self.glance().queued {
            true => tolerate(self.ring.submit()),
            false => Ok(()),
        }
    }

    /// Has the owner bring out what the kernel has, and hand over what was started, if that is
    /// needed; by another thread.
    pub(in crate::io) fn bring_out(&mut self) -> Brings {
        self.refill();
        let glance = self.glance();
        if !glance.pending && !glance.queued {
            return Brings::All;
        }
        let entries = self.ring.submission().len();
        match self.kick.kick(entries) {
            Kicked::Entered if self.glance().pending => Brings::Some,
            Kicked::Entered => Brings::All,
            Kicked::TooSoon => Brings::Later,
            Kicked::UnderWay | Kicked::Never => Brings::Never,
        }
    }

    /// Appends what is in the queue, without a system call on the ring.
    pub(in crate::io) fn take(&mut self, out: &mut Vec<Completion>, limit: usize) {
        self.home.reclaim();
        self.unpark();
        let full = out.len().saturating_add(limit);
        // Those with more to read have at most half the room, and before the others: neither they
        // nor what the kernel has completed can keep the other waiting for good.
        self.receive_on(out, limit.div_ceil(2));
        let mut batch = ArrayVec::<cqueue::Entry, BATCH>::new();
        loop {
            // Entries may have caused completions of our own.
            while out.len() < full
                && let Some(completion) = self.ready.pop_front()
            {
                out.push(completion);
            }
            // One entry makes at most one completion in `out`.
            let room = BATCH.min(full - out.len());
            batch.extend(self.ring.completion().take(room));
            if batch.is_empty() {
                return;
            }
            for entry in batch.drain(..) {
                let more = cqueue::more(entry.flags());
                let completion = self.complete(entry.user_data(), entry.result(), more);
                out.extend(completion);
            }
        }
    }

    /// An enter brings out some twenty deferred completions (since Linux 6.12), so it takes
    /// several. At most as many are waited for as can have been there at the beginning, one for
    /// each operation and the doorbell's: others may follow for ever.
    pub(in crate::io) fn catch_up(&mut self) -> io::Result<usize> {
        self.flush_backlog();
        let (mut before, most) = (None, self.glance().completed + self.ops.len() + 1);
        loop {
            tolerate(self.ring.submit())?;
            let Glance {
                pending, completed, ..
            } = self.glance();
            let goes_on = pending && completed < most;
            if !goes_on || before.replace(completed) == Some(completed) {
                return Ok(completed + self.active.len() + self.ready.len());
            }
        }
    }

    pub(in crate::io) fn has_more(&mut self) -> bool {
        let kernel_has_more = self.ring.submission().cq_overflow();
        kernel_has_more
            || !self.ready.is_empty()
            || !self.active.is_empty()
            || !self.parked.is_empty()
    }

    pub(in crate::io) fn has_work(&mut self) -> bool {
        let glance = self.glance();
        glance.queued || glance.pending || glance.completed > 0 || self.has_own_work()
    }

    /// Work that the kernel has no part in.
    pub(super) fn has_own_work(&self) -> bool {
        !self.ready.is_empty()
            || !self.active.is_empty()
            || (!self.parked.is_empty() && self.home.has_free())
    }

    pub(in crate::io) fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        if !self.parked.is_empty() {
            self.home.starve();
        }
        let could_go_on = self.rung
            || self.has_own_work()
            || !self.backlog.is_empty()
            || self.glance().completed > 0;
        self.rung = false;
        if !could_go_on {
            let timeout = timeout.map(|timeout| types::Timespec::from(timeout.min(TIMEOUT_MAX)));
            let args = types::SubmitArgs::new();
            let args = timeout
                .as_ref()
                .map_or(args, |timeout| args.timespec(timeout));
            let submitter = self.ring.submitter();
            tolerate(submitter.submit_with_args_and_flags(1, &args, self.sleeps_as))?;
        }
        self.told = self.glance().completed;
        Ok(())
    }

    pub(super) fn glance(&mut self) -> Glance {
        let (_, submissions, completions) = self.ring.split();
        Glance {
            queued: !submissions.is_empty() || !self.backlog.is_empty(),
            pending: submissions.taskrun() || submissions.cq_overflow(),
            completed: completions.len(),
        }
    }

    /// An entry of the kernel's, by its `user_data`. There may be `more` of this name.
    pub(super) fn complete(&mut self, key: u64, res: i32, more: bool) -> Option<Completion> {
        let known_to_wait = self.told > 0;
        self.told = self.told.saturating_sub(1);
        let op = match key {
            CANCEL => return None,
            DOORBELL => {
                // A `wait` that returned with this entry has served it; otherwise the next must.
                self.rung |= !known_to_wait;
                // Whatever ended it, a core must not become deaf.
                if !more {
                    self.watch_doorbell();
                }
                return None;
            }
            key => Op(key),
        };
        // An entry for an operation that is over would be a bug of the kernel or of ours; the
        // generation in the key keeps it from reaching the slot's next tenant.
        let Item { operation, .. } = self.ops.get_mut(op)?;
        let token = operation.token;
        let errno = (res < 0).then(|| Errno::from_raw_os_error(-res));
        let done = match &mut operation.state {
            State::Recv => return self.hear(op, res, more),
            State::Accept => match errno {
                None => Done::Accepted(Ok(Fd::from_raw(res))),
                Some(errno) => {
                    let passing = is_passing(errno) || is_about_one_connection(errno);
                    return self.stop(op, errno, passing);
                }
            },
            State::Ready(_) => match errno {
                None => Done::Ready(Ok(())),
                Some(errno) => return self.stop(op, errno, is_passing(errno)),
            },
            State::Connect { .. } => {
                return self.finish(op, errno.map_or(Terminal::Ok, Terminal::Failed));
            }
            State::File { op: file_op, .. } => {
                if let Some(errno) = errno {
                    // EAGAIN is the answer of a file that cannot be read now (a sensor in sysfs, a
                    // pipe that does not block): asked again at once, it may say so for ever.
                    return self.stop(op, errno, errno == Errno::INTR);
                }
                return match file_op.moved(res as usize) {
                    Ok(true) => self.finish(op, Terminal::Ok),
                    // The next piece, unless it is to end.
                    Ok(false) => self.stop(op, Errno::CANCELED, true),
                    Err(errno) => self.stop(op, errno, false),
                };
            }
            State::Send {
                buf, sent_bytes, ..
            } => {
                if let Some(errno) = errno {
                    return self.stop(op, errno, is_passing(errno));
                }
                *sent_bytes += res as usize;
                if *sent_bytes == buf.len() {
                    return self.finish(op, Terminal::Ok);
                }
                // Nothing sent of something is not said to happen; going on could last forever.
                return self.stop(op, Errno::PIPE, res > 0);
            }
        };
        if !more {
            // A multishot that ended for a reason of the kernel's (a full queue).
            let last = self.stop(op, Errno::CANCELED, true);
            self.ready.extend(last);
        }
        Some(Completion {
            token,
            done,
            more: true,
        })
    }

    /// The kernel has ended this stretch of the operation: go on if that was for a passing reason,
    /// unless it is to end anyway.
    fn stop(&mut self, op: Op, errno: Errno, passing: bool) -> Option<Completion> {
        let end = match self.ops.get(op)?.place {
            _ if !passing => Terminal::Failed(errno),
            Place::Over(end) => end,
            _ => {
                self.arm(op);
                return None;
            }
        };
        self.finish(op, end)
    }
}

/// Says nothing about the descriptor; trying again is right.
pub(super) fn is_passing(errno: Errno) -> bool {
    matches!(errno, Errno::INTR | Errno::AGAIN)
}

/// Refusals of an enter that pass once completions have been reaped, and ends of a sleep that are
/// none of an error.
pub(super) fn tolerate(entered: io::Result<usize>) -> io::Result<()> {
    match entered {
        Ok(_) => Ok(()),
        Err(error) => match Errno::from_io_error(&error) {
            Some(Errno::BUSY | Errno::AGAIN | Errno::INTR | Errno::TIME) => Ok(()),
            _ => Err(error),
        },
    }
}
