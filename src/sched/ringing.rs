//! How a core rings those that it owes a ring; see [`crate::shared::bells`].
//!
//! A few it rings by itself. More than [`ALONE_MAX`] it shares out: they are put into the set of
//! those that are due, and it rings until none of them is in there. Whoever wakes up takes
//! [`HELP_MAX`] out and rings them, before it looks for work of its own.
//!
//! A long event that posts to cores that sleep wakes one with each post, and would ring for longer
//! than it posts. Its rings are a *series*, each at most two wake-ups after the one before. Once a
//! series has lasted for as long as a wake-up takes, the first ones that it woke are awake, and
//! more follow. So from then on the core puts what it owes into the set and goes on, as long as the
//! one that it rang last is on its way: it still sleeps, and was rung no longer than a wake-up ago.
//! What is left when the event is over it rings itself.

use super::core::Core;
use crate::color::CoreId;
use crate::sync::fault;

/// So many cores are rung by one.
const ALONE_MAX: usize = if cfg!(loom) { 1 } else { 4 };
/// So many a core rings for others when it wakes up.
const HELP_MAX: usize = if cfg!(loom) { 1 } else { 4 };

/// What a core has rung, and what it owes.
#[derive(Debug)]
pub(super) struct Ringing {
    /// So many of [`Core::bells`], the first ones, are due.
    due: usize,
    /// The core that was rung last.
    last: CoreId,
    /// When that was, and when the series began that it belongs to, in ns.
    last_ns: u64,
    since_ns: u64,
}

impl Ringing {
    pub(super) const NEVER: Ringing = Ringing {
        due: 0,
        last: CoreId::of(0),
        last_ns: 0,
        since_ns: 0,
    };

    /// A core is rung.
    fn note(&mut self, core: CoreId, now_ns: u64, wake_up_ns: u64) {
        if now_ns - self.last_ns > 2 * wake_up_ns {
            self.since_ns = now_ns;
        }
        (self.last, self.last_ns) = (core, now_ns);
    }

    /// Whether cores that were woken by this series are about to help.
    fn is_helped(&self, now_ns: u64, wake_up_ns: u64) -> bool {
        self.last_ns - self.since_ns >= wake_up_ns && now_ns - self.last_ns <= wake_up_ns
    }
}

impl Core {
    /// Rings those that this core owes a ring; not under a lock. They are all rung when it returns,
    /// by it or by others, unless a long event runs.
    #[inline]
    pub(crate) fn ring(&mut self) {
        if !self.bells.is_empty() {
            self.ring_all();
        }
    }

    #[inline(never)]
    fn ring_all(&mut self) {
        if self.bells.len() > ALONE_MAX {
            self.share_out_bells();
        }
        let mut done = 0;
        while let Some(&core) = self.bells.get(done) {
            if self.may_leave_bells() {
                // In this order: who was rung last looks at what is due once it is awake.
                self.share_out_bells();
                if self.shared.sleepers.contains(self.ringing.last) {
                    break;
                }
            }
            let is_due = done < self.ringing.due;
            if !is_due || self.shared.bells.due.clear(core) {
                self.ring_one(core);
            }
            done += 1;
        }
        self.bells.drain(..done);
        self.ringing.due = self.ringing.due.saturating_sub(done);
    }

    /// Makes all those due that this core owes a ring.
    fn share_out_bells(&mut self) {
        for &core in &self.bells[self.ringing.due..] {
            self.shared.bells.due.set(core);
        }
        self.ringing.due = self.bells.len();
    }

    /// Whether what is due may be left to others for now, if the one that was rung last still sleeps.
    fn may_leave_bells(&self) -> bool {
        let wake_up_ns = self.shared.wake_cost.ns();
        self.own.progress.is_long() && self.ringing.is_helped(self.clock.now_ns(), wake_up_ns)
    }

    /// This core has slept, and others may wait for a ring as it did.
    pub(crate) fn help_ring(&mut self) {
        for _ in 0..HELP_MAX {
            let Some(core) = self.shared.bells.due.take_from(self.id) else {
                return;
            };
            if !fault("taken and not rung") {
                self.ring_one(core);
            }
        }
    }

    fn ring_one(&mut self, core: CoreId) {
        let now_ns = self.clock.now_ns();
        let wake_up_ns = self.shared.wake_cost.ns();
        self.ringing.note(core, now_ns, wake_up_ns);
        self.own.stats.wakes.add(1);
        self.shared.bells.ring_at(core, now_ns);
        if let Some(log) = self.maker.log() {
            log.wake(core.index());
        }
    }
}
