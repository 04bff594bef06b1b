//! Which colors a thief gets, and how they leave: under the victim's lock ([`super::section`]).

use super::section::Section;
use super::steal::Loot;
use crate::ablation::{Rule, without};
use crate::color::{CoreId, SlotId};
use crate::memory::prefetch;
use crate::policy::victim::{self, Temptation};
use crate::shared::queue::color_queue::{ColorQueue, Taken};
use crate::sync::fault;

impl Section<'_> {
    /// Unlinks a color and takes its events out.
    #[inline]
    fn remove(&mut self, slot: SlotId) -> Taken {
        if !fault("left in the core-queue") {
            self.unlink(slot);
        }
        let fifo = self.guarded.colors.at(slot).take_events();
        Taken { slot, fifo }
    }

    /// Moves colors to `thief`, from the head of the highest band, as checked out by it: as many as
    /// `into` has room for, until the thief, which has `has_ns` worth of its own, has as much as is
    /// left here.
    pub(super) fn hand_over(
        &mut self,
        thief: CoreId,
        why: Temptation,
        has_ns: u64,
        into: &mut Loot,
    ) {
        let policy = &self.shared.policy;
        if !policy.stealing.uses_stealing_queue() {
            if let Some(slot) = self.base_choice() {
                self.move_to(slot, thief, into);
            }
            return;
        }
        // Of the highest band that has a color: a penalty puts a color lower, so that it goes
        // later. The only queued color may go too, unless the two-color rule holds: the victim
        // keeps what it runs.
        if let Some(band) = self.guarded.queues.stealing_queue.highest() {
            let mut thief_ns = has_ns;
            while let Some(slot) = self.guarded.queues.stealing_queue.head(band) {
                if into.is_full()
                    || policy.needs_two_colors() && self.guarded.queues.colors_with_events() < 2
                    || without(Rule::Many) && !into.is_empty()
                {
                    return;
                }
                let color_ns = self.guarded.colors.linked(slot).load_ns();
                if !victim::shares(thief_ns, color_ns, self.guarded.queues.load_ns()) {
                    return;
                }
                self.move_to(slot, thief, into);
                thief_ns += color_ns;
            }
            return;
        }
        if why == Temptation::Stuck {
            let stealable = self.guarded.queues.core_queue.stealable();
            let (mut taken_ns, cost_ns) = (0, self.limits.cost_ns);
            while !into.is_full()
                && victim::takes_of_stuck(into.len() as u32, taken_ns, stealable, cost_ns)
            {
                let Some(slot) = self.find_stealable(|_| true) else {
                    break;
                };
                taken_ns += self.guarded.colors.at(slot).load_ns();
                self.move_to(slot, thief, into);
            }
        }
    }

    /// Where worth does not count: whether the rules let a thief take anything.
    #[inline(never)]
    pub(super) fn has_something_by_the_two_color_rule(&mut self) -> bool {
        if self.shared.policy.stealing.uses_stealing_queue() {
            return self.guarded.queues.colors_with_events() >= 2;
        }
        // Soon found: of three colors one has fewer than half of the events.
        self.base_choice().is_some()
    }

    /// The base algorithm's choice: the first color with fewer than half of the queued events,
    /// those of the running color included (libasync-smp, after Mely §II-B). So never a lone color,
    /// nor one that has the majority.
    fn base_choice(&mut self) -> Option<SlotId> {
        let all = self.guarded.queues.core_queue.events + self.guarded.queues.events_out;
        self.find_stealable(|queue| u64::from(queue.fifo.len()) * 2 < all)
    }

    /// The first color that a thief may take and `f` wants.
    pub(super) fn find_stealable(&mut self, f: impl Fn(&ColorQueue) -> bool) -> Option<SlotId> {
        let first = self.limits.controls_first;
        let core_queue = &self.guarded.queues.core_queue;
        core_queue.find(&mut self.guarded.colors, |slot, queue| {
            slot < first && f(queue)
        })
    }

    fn move_to(&mut self, slot: SlotId, thief: CoreId, into: &mut Loot) {
        let taken = self.remove(slot);
        // The thief reads the first event soon.
        prefetch(taken.fifo.at());
        // Published before the lock is released: from now on every poster and every poke goes to
        // the thief, and the slot's private part belongs to the thief's lock.
        if !fault("owner published after the unlock") {
            self.shared.slots.set_owner(slot, thief);
        }
        into.push(taken);
    }
}
