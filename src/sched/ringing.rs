//! How a core rings those that it owes a ring; see [`crate::shared::bells`].
//!
//! A few it rings by itself. More than [`ALONE_MAX`] it shares out: they are put into the set of
//! those that are due, and it rings until none of them is in there. Whoever wakes up takes
//! up to [`HELP_MAX`] out and rings them, before it looks for work of its own.
//!
//! A long event that posts to cores that sleep wakes one with each post ([`super::row`]), and would
//! ring for longer than it posts. Its rings are a *series*: each comes at most twice the cost of a
//! wake-up ([`crate::shared::wake_cost`]) after the one before. Once a series has lasted for as
//! long as a wake-up takes, the first cores that it woke are awake, and more follow. From then on
//! the core may *leave* the rings that its posts owe: it puts those cores into the set, and goes
//! on. It does so only as long as the core that it rang last has not seen its ring yet, and for no
//! longer than a wake-up takes. That one looks at the set when it wakes up, and so does each that
//! is rung from there: so all of them are rung, also if the event never ends. A flush that the
//! handler asks for, and the end of the event, leave nothing.
//!
//! **Nobody is left to a core that has looked already.** Who leaves a ring (1) puts the core into
//! the set; (2) fences; (3) sees that the core that it rang last sleeps, and has not seen the ring.
//! Who wakes up (1) is no sleeper any more; (2) fences; (3) looks at the set. So either the one
//! finds the other awake, or the other finds who is due. A core that sleeps again has seen its ring
//! before it counts as a sleeper.

use super::core::Core;
use crate::ablation::{Rule, without};
use crate::color::CoreId;
use crate::shared::bells::ALONE_MAX;
use crate::sync::atomic::{Ordering, fence};
use crate::sync::fault;

/// Rings that a core gives for others when it wakes up, at most.
const HELP_MAX: usize = if cfg!(loom) { 1 } else { 4 };

/// What a core has rung, and what it owes.
#[derive(Debug)]
pub(super) struct Ringing {
    /// How many of [`Core::bells`], the first ones, are due.
    due: usize,
    last: Option<Last>,
    /// Rings may be left: what is published are posts of a long event, by themselves or in a row.
    pub(super) may_leave: bool,
}

/// The last ring of a core.
#[derive(Clone, Copy, Debug)]
struct Last {
    /// Who was rung.
    core: CoreId,
    /// When that was, and when the series began that it belongs to, in ns.
    at_ns: u64,
    since_ns: u64,
}

impl Ringing {
    pub(super) const NONE: Ringing = Ringing {
        due: 0,
        last: None,
        may_leave: false,
    };

    /// A core is rung.
    fn note(&mut self, core: CoreId, at_ns: u64, wake_up_ns: u64) {
        let series = |last: &Last| at_ns - last.at_ns <= wake_up_ns.saturating_mul(2);
        let since_ns = self.last.filter(series).map_or(at_ns, |last| last.since_ns);
        self.last = Some(Last {
            core,
            at_ns,
            since_ns,
        });
    }

    /// The last ring, if cores that were woken before it in its series are about to help.
    fn helped(&self, now_ns: u64, wake_up_ns: u64) -> Option<Last> {
        let helps = |last: &Last| {
            last.at_ns - last.since_ns >= wake_up_ns && now_ns - last.at_ns <= wake_up_ns
        };
        self.last.filter(helps)
    }
}

impl Core {
    /// Rings those that this core owes a ring; not under a lock. When it returns each of them is
    /// rung, or another core has taken it out of the set to ring it, or it is left.
    #[inline]
    pub(crate) fn ring(&mut self) {
        if !self.bells.is_empty() {
            self.ring_all();
        }
    }

    #[inline(never)]
    fn ring_all(&mut self) {
        if self.bells.len() > ALONE_MAX && !without(Rule::ShareOut) {
            self.share_out_bells();
        }
        let mut done = 0;
        while let Some(&core) = self.bells.get(done) {
            if self.ringing.may_leave && !without(Rule::Leave) && self.leaves_bells() {
                break;
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

    /// Leaves all that this core owes a ring to others, if one is on its way to look.
    fn leaves_bells(&mut self) -> bool {
        let wake_up_ns = self.shared.wake_cost.ns();
        let Some(last) = self.ringing.helped(self.clock.now_ns(), wake_up_ns) else {
            return false;
        };
        self.share_out_bells();
        if !fault("leaver's fence skipped") {
            fence(Ordering::SeqCst);
        }
        let shared = &self.shared;
        shared.sleepers.contains(last.core)
            && (shared.bells.rung_ns(last.core) == last.at_ns || fault("left to any sleeper"))
    }

    /// This core has slept, and others may wait for a ring as it did.
    pub(crate) fn help_ring(&mut self) {
        if !fault("helper's fence skipped") {
            fence(Ordering::SeqCst);
        }
        let due = &self.shared.bells.due;
        if !due.any() {
            return;
        }
        // It is awake, whoever was to see to that.
        let _ = due.clear(self.id);
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
        self.ringing.note(core, now_ns, self.shared.wake_cost.ns());
        self.own.stats.wakes.add(1);
        self.shared.bells.ring_at(core, now_ns);
        if let Some(log) = self.maker.log() {
            log.wake(core.index());
        }
    }
}
