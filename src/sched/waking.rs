//! How a core [notifies](Core::notify) others, and rings those that it owes a ring; see
//! [`crate::shared::idle`] and [`crate::shared::idle::bells`].
//!
//! A few it rings by itself. More than [`RINGS`] it shares out: they are put into the set of
//! those that are due, and it rings until none of them is in there. Whoever wakes up takes
//! up to [`RINGS`] out and rings them, before it looks for work of its own.

use super::core::Core;
use crate::color::CoreId;
use crate::policy::numbers::RINGS;
use crate::policy::wake::is_worth_waking;
use crate::shared::idle::{Why, notify};
use crate::sync::fault;

impl Core {
    /// Wakes a sleeper for what is at this core, if it is worth that, and rings. Called without any
    /// lock.
    #[inline]
    pub(super) fn notify(&mut self, reason: Why) {
        let enough_ns = self.shared.idle.wake_cost.ns();
        let too_little =
            matches!(reason, Why::Work(worth) if !is_worth_waking(worth.now_ns, enough_ns));
        if !too_little && notify(&self.shared, self.id, reason, &mut self.bells) {
            self.search.pass_on();
        }
        self.ring();
    }

    /// Rings those that this core owes a ring; not under a lock. When it returns each of them is
    /// rung, or another core has taken it out of the set to ring it.
    #[inline]
    pub(crate) fn ring(&mut self) {
        if !self.bells.is_empty() {
            self.ring_all();
        }
    }

    #[inline(never)]
    fn ring_all(&mut self) {
        let bells = std::mem::take(&mut self.bells);
        let shared_out = bells.len() > RINGS;
        if shared_out {
            bells
                .iter()
                .for_each(|&core| self.shared.idle.bells.due.set(core));
        }
        for &core in &bells {
            if !shared_out || self.shared.idle.bells.due.clear(core) {
                self.ring_one(core);
            }
        }
        // Its memory serves again.
        self.bells = bells;
        self.bells.clear();
    }

    /// This core has slept, and others may wait for a ring as it did.
    pub(crate) fn help_ring(&mut self) {
        let due = &self.shared.idle.bells.due;
        if !due.any() {
            return;
        }
        // It is awake, whoever was to see to that.
        let _ = due.clear(self.id);
        for _ in 0..RINGS {
            let Some(core) = self.shared.idle.bells.due.take_from(self.id) else {
                return;
            };
            if !fault("taken and not rung") {
                self.ring_one(core);
            }
        }
    }

    fn ring_one(&mut self, core: CoreId) {
        let now_ns = self.clock.now_ns();
        self.own.stats.wakes.add(1);
        self.shared.idle.bells.ring_at(core, now_ns);
        if let Some(log) = self.maker.log() {
            log.wake(core.index());
        }
    }
}
