//! The critical section: what may be done to a core's lists and colors under its lock.
//!
//! A [`Section`] is that lock, held, by the core's own thread or by a thief. It is the one place
//! where colors change owner, and where a private part is touched that is not checked out.

use super::lists::Lists;
use super::lock::Guard;
use super::mail;
use super::poke;
use super::queue::{Chunk, ColorQueue, NIL, State};
use super::shared::Shared;
use crate::sync::atomic::Ordering;
use crate::sync::{CellMut, check, fault};

/// A core's lock, held. Dropping it unlocks.
#[derive(Debug)]
pub(crate) struct Section<'a> {
    shared: &'a Shared,
    /// The core whose lock this is.
    core: u32,
    lists: Guard<'a, Lists>,
    /// The reference steal cost for banding, in ns.
    cost_ns: u64,
}

/// What the hint says a core's worthy colors are worth, in ns.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Worth {
    /// What it said until now, whoever wrote it: the core itself, or a thief.
    before_ns: u64,
    pub(crate) now_ns: u64,
}

impl Worth {
    /// Whether it said less than `enough_ns` and now says that much: then a core may be on its way
    /// to sleep that has seen the old hint only.
    pub(crate) fn rises_to(self, enough_ns: u64) -> bool {
        self.before_ns < enough_ns && self.now_ns >= enough_ns
    }
}

impl<'a> Section<'a> {
    /// Takes the lock of `core`.
    pub(crate) fn enter(shared: &'a Shared, core: u32) -> Section<'a> {
        let lists = shared.cores[core as usize].lock.lock();
        Section {
            shared,
            core,
            lists,
            cost_ns: shared.reference_cost_ns(core),
        }
    }

    /// Takes the lock of `core` if it is free.
    pub(crate) fn try_enter(shared: &'a Shared, core: u32) -> Option<Section<'a>> {
        let lists = shared.cores[core as usize].lock.try_lock()?;
        Some(Section {
            shared,
            core,
            lists,
            cost_ns: shared.reference_cost_ns(core),
        })
    }

    /// The private part of a color of this core.
    fn queue(&self, slot: u32) -> CellMut<'a, ColorQueue> {
        debug_assert!(self.owns(slot));
        // SAFETY: we hold this core's lock and the slot is this core's and not checked out by
        // another thread: `owns` is asserted, every caller passes a slot that it found in this
        // core's lists, or checked for its owner under this lock, or that the core's own thread has
        // checked out. Borrows live for one statement or one block, of distinct slots.
        unsafe { self.shared.slots.queue(slot) }
    }

    /// Whether the color belongs to this core: stable while the section lives.
    #[inline]
    pub(crate) fn owns(&self, slot: u32) -> bool {
        self.shared.slots.owner(slot) == self.core
    }

    pub(crate) fn lists(&self) -> &Lists {
        &self.lists
    }

    /// Appends a chunk to a color of this core; false if the color is another core's.
    ///
    /// Drains the color's mailbox first: what lies there may have happened before this post.
    ///
    /// # Safety
    /// The caller gives up the chunk's nodes if this returns true; and if the color is checked out,
    /// the caller is this core's thread.
    #[inline]
    pub(crate) unsafe fn append(&mut self, slot: u32, chunk: Chunk) -> bool {
        if !self.owns(slot) {
            return false;
        }
        let at = self.shared.slots.at(slot);
        let state = at.state();
        // SAFETY: as in `queue`: owned by this core, and if checked out, by this thread.
        let mut queue = unsafe { at.queue() };
        let before = (queue.len(), queue.raw_ns);
        if mail::has_mail(at) && !fault("mailbox not drained before an append") {
            // SAFETY: we own the private part.
            unsafe { mail::drain(&self.shared.slots, slot, &mut queue) };
        }
        // SAFETY: we own the private part, and the chunk is the caller's.
        unsafe { queue.append(chunk) };
        match state {
            State::Idle => {
                queue.end();
                self.link(slot);
            }
            State::Queued => self.grown(slot, queue, before),
            // Returned, and linked, by its own thread later.
            State::CheckedOut => {}
        }
        true
    }

    /// Links a color at the tail of the core-queue, and into its band.
    #[inline]
    fn link(&mut self, slot: u32) {
        let tail = self.lists.core_queue.tail;
        let at = self.shared.slots.at(slot);
        debug_assert!(self.owns(slot) && at.state() != State::Queued);
        at.set_state(State::Queued);
        at.settle(self.core);
        // SAFETY: as in `queue`.
        let mut queue = unsafe { at.queue() };
        debug_assert!(queue.len() > 0);
        queue.core_prev = tail;
        queue.core_next = NIL;
        let len = queue.len();
        let want = self.want(&queue);
        queue.end();
        if tail == NIL {
            self.lists.core_queue.head = slot;
        } else {
            self.queue(tail).core_next = slot;
        }
        self.lists.core_queue.tail = slot;
        self.lists.queued += 1;
        if !self.shared.slots.map.is_control(slot) {
            self.lists.stealable += 1;
            self.lists.events += u64::from(len);
            if want != 0 {
                self.band(slot, want);
            }
        }
    }

    /// Takes a color out of the core-queue and out of its band.
    #[inline]
    fn unlink(&mut self, slot: u32) {
        let queue = self.queue(slot);
        debug_assert_eq!(self.shared.slots.state(slot), State::Queued);
        let (prev, next, len) = (queue.core_prev, queue.core_next, queue.len());
        if queue.band != 0 {
            queue.end();
            self.unband(slot);
        }
        if prev == NIL {
            self.lists.core_queue.head = next;
        } else {
            self.queue(prev).core_next = next;
        }
        if next == NIL {
            self.lists.core_queue.tail = prev;
        } else {
            self.queue(next).core_prev = prev;
        }
        self.lists.queued -= 1;
        if !self.shared.slots.map.is_control(slot) {
            self.lists.stealable -= 1;
            self.lists.events -= u64::from(len);
        }
    }

    /// Accounts for events that were appended to a queued color, whose borrow this takes.
    #[inline]
    fn grown(&mut self, slot: u32, queue: CellMut<'a, ColorQueue>, before: (u32, u64)) {
        if self.shared.slots.map.is_control(slot) {
            return;
        }
        self.lists.events += u64::from(queue.len() - before.0);
        let (band, want) = (queue.band, self.want(&queue));
        if band != 0 {
            self.lists.worth_ns += queue.raw_ns - before.1;
        }
        queue.end();
        if band != want {
            self.reband(slot, want);
        }
    }

    #[inline(never)]
    fn reband(&mut self, slot: u32, want: u8) {
        self.unband(slot);
        if want != 0 {
            self.band(slot, want);
        }
    }

    #[inline(always)]
    fn want(&self, queue: &ColorQueue) -> u8 {
        self.shared
            .policy
            .band(queue.raw_ns, queue.penalized_ns, self.cost_ns)
    }

    /// Puts a queued color into the band it deserves.
    #[inline(never)]
    fn band(&mut self, slot: u32, want: u8) {
        let mut ends = self.lists.bands[usize::from(want) - 1];
        {
            let mut queue = self.queue(slot);
            queue.band = want;
            queue.band_prev = ends.tail;
            queue.band_next = NIL;
            self.lists.worth_ns += queue.raw_ns;
        }
        if ends.tail == NIL {
            ends.head = slot;
        } else {
            self.queue(ends.tail).band_next = slot;
        }
        ends.tail = slot;
        self.lists.bands[usize::from(want) - 1] = ends;
        self.lists.worthy += 1;
    }

    /// Takes a color out of its band, if it is in one.
    #[inline(never)]
    fn unband(&mut self, slot: u32) {
        let (band, prev, next) = {
            let mut queue = self.queue(slot);
            let band = queue.band;
            if band == 0 {
                return;
            }
            queue.band = 0;
            self.lists.worth_ns -= queue.raw_ns;
            (usize::from(band) - 1, queue.band_prev, queue.band_next)
        };
        if prev == NIL {
            self.lists.bands[band].head = next;
        } else {
            self.queue(prev).band_next = next;
        }
        if next == NIL {
            self.lists.bands[band].tail = prev;
        } else {
            self.queue(next).band_prev = prev;
        }
        self.lists.worthy -= 1;
    }

    /// Takes the core's pokes: links the colors that have mail, forwards what is not this core's.
    pub(crate) fn take_mail(&mut self, bells: &mut Vec<u32>) {
        let shared = self.shared;
        let mut taken = shared.cores[self.core as usize].pokes.take();
        while let Some(slot) = taken.next(&shared.slots) {
            if !self.owns(slot) {
                if !fault("poke forwarded to nobody") {
                    poke::send(shared, slot, bells);
                }
                continue;
            }
            let state = shared.slots.state(slot);
            if state == State::CheckedOut && !fault("running mark ignored") {
                // Its own thread has it, perhaps right now, and we may be a thief. That thread
                // looks at the mailbox, and at the wish, when it returns the color.
                mail::unmark(&shared.slots, slot);
                continue;
            }
            let mut queue = self.queue(slot);
            let before = (queue.len(), queue.raw_ns);
            // SAFETY: ours, not checked out, and its poke is in our hands.
            unsafe { mail::consume(&shared.slots, slot, &mut queue) };
            let len = queue.len();
            match state {
                State::Queued => self.grown(slot, queue, before),
                State::Idle if len > 0 => {
                    queue.end();
                    self.link(slot);
                }
                _ => queue.end(),
            }
            if let Some(target) = self.wish(slot) {
                if len > 0 {
                    self.unlink(slot);
                }
                self.emigrate(slot, target, bells);
            }
        }
    }

    /// The other core that somebody asked to place this color on, if any; the wish is fulfilled or
    /// forgotten by the caller.
    #[inline]
    fn wish(&self, slot: u32) -> Option<u32> {
        let wanted = &self.shared.slots.shared(slot).wanted;
        if wanted.load(Ordering::Relaxed) == 0 {
            return None;
        }
        let target = wanted.swap(0, Ordering::AcqRel).checked_sub(1)?;
        (target != self.core).then_some(target)
    }

    /// Gives an unlinked color, its events with it, to another core, which links it when the poke
    /// arrives.
    fn emigrate(&mut self, slot: u32, target: u32, bells: &mut Vec<u32>) {
        let slots = &self.shared.slots;
        slots.set_state(slot, State::Idle);
        slots.set_owner(slot, target);
        if mail::mark_poked(slots, slot) && !fault("placed without a poke") {
            poke::send(self.shared, slot, bells);
        }
    }

    /// Returns a color that the core's own thread had checked out.
    ///
    /// Looks at its mailbox before it may be called idle: its poke may have been consumed while it
    /// was out.
    #[inline]
    pub(crate) fn give_back(&mut self, slot: u32, bells: &mut Vec<u32>) {
        let at = self.shared.slots.at(slot);
        check!(self.owns(slot) && at.state() == State::CheckedOut);
        // SAFETY: checked out by the calling thread, so its private part is ours.
        let mut queue = unsafe { at.queue() };
        if mail::has_mail(at) && !fault("mailbox not looked at on return") {
            // SAFETY: as above.
            unsafe { mail::drain(&self.shared.slots, slot, &mut queue) };
        }
        let len = queue.len();
        queue.end();
        if let Some(target) = self.wish(slot) {
            self.emigrate(slot, target, bells);
        } else if len > 0 {
            self.link(slot);
        } else {
            at.set_state(State::Idle);
        }
    }

    /// Takes colors from the head of the core-queue to be run without the lock: until their
    /// unpenalized time sums to the quantum, so that what is hidden from thieves is at most what is
    /// not worth stealing. A color with events of unknown or varying duration goes alone.
    #[inline]
    pub(crate) fn check_out(&mut self, into: &mut super::core::Checkout, quantum_ns: u64) {
        let mut sum_ns = 0;
        while !into.is_full() {
            let slot = self.lists.core_queue.head;
            if slot == NIL {
                break;
            }
            let (time_ns, solo) = {
                let queue = self.queue(slot);
                (queue.turn_ns(self.shared.policy.batch), queue.solo)
            };
            if !into.is_empty() && (solo || sum_ns + time_ns > quantum_ns) {
                break;
            }
            self.unlink(slot);
            self.shared.slots.set_state(slot, State::CheckedOut);
            into.push(slot);
            sum_ns += time_ns;
            if solo || sum_ns >= quantum_ns {
                break;
            }
        }
    }

    /// Moves up to `max` colors to `thief`, best first, as checked out by it.
    ///
    /// `stuck`: this core has been inside one handler for longer than a steal costs, so any color of
    /// its is worth taking, whatever its time.
    pub(crate) fn rob(&mut self, thief: u32, stuck: bool, into: &mut super::core::Checkout) {
        let policy = &self.shared.policy;
        if !policy.heuristics.bands() {
            if let Some(slot) = self.base_choice(stuck) {
                self.hand_over(slot, thief, into);
            }
            return;
        }
        // Half of the worthy colors, rounded up: a lone one goes too, what runs besides is the
        // victim's half.
        let worthy = if stuck {
            self.lists.stealable
        } else {
            self.lists.worthy
        };
        let max = worthy.div_ceil(2).min(into.remaining_capacity() as u32 / 2);
        for _ in 0..max {
            let banded = self
                .lists
                .bands
                .iter()
                .rev()
                .map(|b| b.head)
                .find(|&head| head != NIL);
            let Some(slot) = banded.or_else(|| stuck.then(|| self.first_stealable()).flatten())
            else {
                break;
            };
            self.hand_over(slot, thief, into);
        }
    }

    /// The base algorithm's choice: the first color with fewer than half of the queued events
    /// (libasync-smp, after Mely §II-B).
    fn base_choice(&self, stuck: bool) -> Option<u32> {
        let half = |slot| u64::from(self.queue(slot).len()) * 2 < self.lists.events;
        let mut slot = self.lists.core_queue.head;
        while slot != NIL {
            if !self.shared.slots.map.is_control(slot) && (stuck || half(slot)) {
                return Some(slot);
            }
            slot = self.queue(slot).core_next;
        }
        None
    }

    fn first_stealable(&self) -> Option<u32> {
        let mut slot = self.lists.core_queue.head;
        while slot != NIL && self.shared.slots.map.is_control(slot) {
            slot = self.queue(slot).core_next;
        }
        (slot != NIL).then_some(slot)
    }

    fn hand_over(&mut self, slot: u32, thief: u32, into: &mut super::core::Checkout) {
        self.unlink(slot);
        self.shared.slots.set_state(slot, State::CheckedOut);
        // Published before the lock is released: from now on every poster and every poke goes to
        // the thief.
        if !fault("owner published after the unlock") {
            self.shared.slots.set_owner(slot, thief);
        }
        into.push(slot);
    }

    /// Writes the hint that thieves and would-be sleepers read.
    #[inline]
    pub(crate) fn publish(&self) -> Worth {
        let hint = &self.shared.cores[self.core as usize].hint;
        let policy = &self.shared.policy;
        let worth_ns = if policy.heuristics.bands() {
            if policy.needs_two_colors() && self.lists.stealable < 2 {
                0
            } else {
                self.lists.worth_ns
            }
        } else if self.lists.stealable >= 2 {
            u64::MAX
        } else {
            0
        };
        let before_ns = hint.worth_ns();
        hint.publish(
            worth_ns,
            self.lists.stealable,
            self.lists.queued,
            self.lists.events,
        );
        Worth {
            before_ns,
            now_ns: worth_ns,
        }
    }

    /// Walks all lists and checks every invariant.
    #[cfg(any(test, debug_assertions, loom))]
    pub(crate) fn assert_valid(&self) {
        let slots = &self.shared.slots;
        let (mut prev, mut at) = (NIL, self.lists.core_queue.head);
        let (mut queued, mut stealable, mut events, mut worthy, mut worth_ns) = (0, 0, 0, 0, 0);
        while at != NIL {
            assert!(
                self.owns(at),
                "slot {at} is queued on a core that does not own it"
            );
            assert_eq!(slots.state(at), State::Queued, "slot {at}");
            let queue = self.queue(at);
            assert_eq!(queue.core_prev, prev, "slot {at}: back link");
            assert!(queue.len() > 0, "slot {at} is queued and empty");
            queued += 1;
            if slots.map.is_control(at) {
                assert_eq!(
                    queue.band, 0,
                    "slot {at}: a control color is never worth stealing"
                );
            } else {
                stealable += 1;
                events += u64::from(queue.len());
            }
            if queue.band != 0 {
                worthy += 1;
                worth_ns += queue.raw_ns;
            }
            prev = at;
            at = queue.core_next;
        }
        assert_eq!(self.lists.core_queue.tail, prev);
        assert_eq!(
            (self.lists.queued, self.lists.stealable),
            (queued, stealable)
        );
        assert_eq!(self.lists.events, events);
        assert_eq!((self.lists.worthy, self.lists.worth_ns), (worthy, worth_ns));
        let mut banded = 0;
        for (band, ends) in self.lists.bands.iter().enumerate() {
            let (mut prev, mut at) = (NIL, ends.head);
            while at != NIL {
                let queue = self.queue(at);
                assert_eq!(
                    usize::from(queue.band),
                    band + 1,
                    "slot {at} is in another's band"
                );
                assert_eq!(queue.band_prev, prev, "slot {at}: back link in band {band}");
                banded += 1;
                prev = at;
                at = queue.band_next;
            }
            assert_eq!(ends.tail, prev);
        }
        assert_eq!(banded, worthy);
    }
}
