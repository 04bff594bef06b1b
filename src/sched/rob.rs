//! Which colors a thief gets, and how they leave: under the victim's lock ([`super::section`]).

use super::checkout::Taken;
use super::prefetch;
use super::queue::NIL;
use super::section::Section;
use super::steal::Loot;
use crate::sync::fault;

impl Section<'_> {
    /// Unlinks a color and takes its events out.
    #[inline]
    fn take_out(&mut self, slot: u32) -> Taken {
        if !fault("left in the core-queue") {
            self.unlink(slot);
        }
        let mut queue = self.queue(slot);
        let fifo = queue.fifo.take();
        queue.check_out(fifo.len());
        Taken { slot, fifo }
    }

    /// Moves colors to `thief`, best first, as checked out by it: as many as `into` has room for, until the
    /// thief, which has `has_ns` worth of its own, has as much as is left here. True if more is due.
    ///
    /// `stuck`: this core has been inside one handler for longer than a steal costs, so any color of
    /// its is worth taking, whatever its time. (Not to libasync-smp, which knows no time.)
    pub(crate) fn rob(&mut self, thief: u32, stuck: bool, has_ns: u64, into: &mut Loot) -> bool {
        let policy = &self.shared.policy;
        if !policy.heuristics.bands() {
            if let Some(slot) = self.base_choice() {
                self.hand_over(slot, thief, into);
            }
            return false;
        }
        // Of one band only: what a penalty has put lower is left for as long as there is anything else. A
        // lone color goes too, unless the two-color rule holds: what runs besides is the victim's half.
        let bands = 0..self.lists.bands.len();
        if let Some(band) = bands.rev().find(|&b| self.lists.bands[b].head != NIL) {
            let mut thief_ns = has_ns;
            loop {
                let slot = self.lists.bands[band].head;
                if slot == NIL || policy.needs_two_colors() && self.lists.colors() < 2 {
                    return false;
                }
                let color_ns = self.queue(slot).load_ns();
                // Else the thief would have the more afterwards, and give it back.
                if !into.is_empty() && thief_ns + color_ns > self.lists.load_ns() {
                    return false;
                }
                if into.is_full() {
                    return true;
                }
                self.hand_over(slot, thief, into);
                thief_ns += color_ns;
            }
        }
        if stuck {
            let half = self.lists.stealable().div_ceil(2);
            for _ in 0..half.min(into.remaining_capacity() as u32) {
                let Some(slot) = self.first_stealable() else {
                    break;
                };
                self.hand_over(slot, thief, into);
            }
        }
        false
    }

    /// Where worth does not count: whether the rules let a thief take anything.
    #[inline(never)]
    pub(super) fn has_something_by_the_two_color_rule(&self) -> bool {
        if self.shared.policy.heuristics.bands() {
            return self.lists.colors() >= 2;
        }
        // Soon found: of three colors one has fewer than half of the events.
        self.base_choice().is_some()
    }

    /// The base algorithm's choice: the first color with fewer than half of the queued events, those of the
    /// running color included (libasync-smp, after Mely §II-B). So never a lone color, nor one that has the
    /// majority.
    fn base_choice(&self) -> Option<u32> {
        let all = self.lists.events + self.lists.events_out;
        let few = |slot| u64::from(self.queue(slot).fifo.len()) * 2 < all;
        let mut slot = self.lists.core_queue.head;
        while slot != NIL {
            if !self.is_control(slot) && few(slot) {
                return Some(slot);
            }
            slot = self.queue(slot).core_next;
        }
        None
    }

    fn first_stealable(&self) -> Option<u32> {
        let mut slot = self.lists.core_queue.head;
        while slot != NIL && self.is_control(slot) {
            slot = self.queue(slot).core_next;
        }
        (slot != NIL).then_some(slot)
    }

    fn hand_over(&mut self, slot: u32, thief: u32, into: &mut Loot) {
        let taken = self.take_out(slot);
        // Of which the thief will want to know much, soon.
        prefetch::line(taken.fifo.at());
        // Published before the lock is released: from now on every poster and every poke goes to
        // the thief, and the slot's private part belongs to the thief's lock.
        if !fault("owner published after the unlock") {
            self.shared.slots.set_owner(slot, thief);
        }
        into.push(taken);
    }
}
