//! The critical section: what may be done to a core's lists and colors under its lock.
//!
//! A [`Section`] is that lock, held, by the core's own thread or by a thief. It is the one place
//! where colors change owner, and where the private part of a slot is touched. How colors are linked
//! is in [`super::links`], what thieves take of them in [`super::rob`].

use super::checkout::{Checkout, Taken};
use super::lists::{Limits, Lists};
use super::lock::Guard;
use super::mail;
use super::node::Node;
use super::outbox::Outgoing;
use super::poke::{self, Chain};
use super::queue::{Chunk, ColorQueue, Endurance, Fifo, NIL, State};
use super::shared::Shared;
use super::slots::Slot;
use crate::sync::atomic::Ordering;
use crate::sync::{CellMut, check, fault};
use std::ptr::NonNull;

/// A core's lock, held. Dropping it unlocks.
#[derive(Debug)]
pub(crate) struct Section<'a> {
    pub(super) shared: &'a Shared,
    /// The core whose lock this is.
    pub(super) core: u32,
    pub(super) lists: Guard<'a, Lists>,
    /// A copy of what the lists say, at hand.
    pub(super) limits: Limits,
    /// What is checked out so far in this section takes so long, in ns.
    taken_ns: u64,
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
        Section::with(shared, core, shared.cores[core as usize].lock.lock())
    }

    /// Takes the lock of `core` if it is free.
    pub(crate) fn try_enter(shared: &'a Shared, core: u32) -> Option<Section<'a>> {
        let lists = shared.cores[core as usize].lock.try_lock()?;
        Some(Section::with(shared, core, lists))
    }

    /// Takes the lock of the core that owns a color.
    pub(crate) fn of_slot(shared: &'a Shared, slot: u32) -> Section<'a> {
        loop {
            let section = Section::enter(shared, shared.slots.owner(slot));
            if section.owns(slot) {
                return section;
            }
        }
    }

    #[inline]
    fn with(shared: &'a Shared, core: u32, lists: Guard<'a, Lists>) -> Section<'a> {
        Section {
            shared,
            core,
            limits: lists.limits,
            lists,
            taken_ns: 0,
        }
    }

    /// The private part of a color of this core.
    #[inline(always)]
    pub(super) fn queue(&self, slot: u32) -> CellMut<'a, ColorQueue> {
        debug_assert!(self.owns(slot));
        // SAFETY: we hold this core's lock and the slot is this core's: `owns` is asserted, every
        // caller passes a slot that it found in this core's lists, or checked for its owner under
        // this lock, or that the core's own thread has checked out. Borrows live for one statement
        // or one block, of distinct slots.
        unsafe { self.shared.slots.queue(slot) }
    }

    /// Whether the color belongs to this core: stable while the section lives.
    #[inline]
    pub(crate) fn owns(&self, slot: u32) -> bool {
        self.shared.slots.owner(slot) == self.core
    }

    #[inline]
    pub(super) fn is_control(&self, slot: u32) -> bool {
        slot >= self.limits.controls_first
    }

    pub(crate) fn lists(&self) -> &Lists {
        &self.lists
    }

    /// What may be put straight into the checkout until what is hidden from thieves is a quantum, in ns;
    /// negative: nothing, because others wait for their turn.
    #[inline(always)]
    pub(super) fn room_ns(&self) -> i64 {
        if self.lists.core_queue.head != NIL {
            return -1;
        }
        i64::from(self.limits.quantum_ns) - self.taken_ns as i64
    }

    /// Takes up what steals cost by now. Returns the quantum, in ns.
    pub(crate) fn renew_limits(&mut self) -> u32 {
        self.limits = self.shared.limits(self.core);
        self.lists.limits = self.limits;
        self.limits.quantum_ns
    }

    /// Takes single events from the front of `posts` straight into the checkout, as long as each is for
    /// a color of this core that has no other events, or is in the checkout, and fits, and nothing is
    /// queued before it: where [`append`](Self::append) and [`check_out`](Self::check_out) would put them
    /// one by one. Returns how many. Most of what a core's handlers post to each other takes this way.
    ///
    /// # Safety
    /// The caller gives up the nodes of the posts that are taken.
    #[inline(always)]
    pub(super) unsafe fn take_lone(&mut self, posts: &[Outgoing], into: &mut Checkout) -> usize {
        if self.lists.core_queue.head != NIL {
            return 0;
        }
        let (slots, settled) = (&self.shared.slots, Slot::settled(self.core));
        for (i, &Outgoing { slot, chunk }) in posts.iter().enumerate() {
            let at = slots.at(slot);
            // A color that never was posted to is not settled and takes the other way.
            if !at.is_settled(settled) && !fault("lone post to a color that left")
                || mail::has_any(at) && !fault("lone post overtakes mail")
                || chunk.first != chunk.last
            {
                return i;
            }
            debug_assert!(self.owns(slot));
            // SAFETY: as in `queue`: this core's, whose lock we hold.
            let mut queue = unsafe { at.queue() };
            if queue.state == State::CheckedOut {
                let Some(place) = into.find(slot) else {
                    return i;
                };
                queue.end();
                if !self.fits(chunk.first, None, into) {
                    return i;
                }
                // SAFETY: the node is the caller's and given up, and `fits` saw that there is room.
                unsafe { into.append(place, chunk.first) };
                continue;
            }
            // Nothing is queued, and what was placed here has a poke under way, which shows in its mailbox.
            debug_assert!(queue.is_unused());
            if !self.fits(chunk.first, None, into) {
                return i;
            }
            queue.check_out(1);
            // SAFETY: the node is the caller's and given up.
            let fifo = unsafe { Fifo::of(chunk.first) };
            // SAFETY: `fits` saw that there is room.
            unsafe { into.push_unchecked(Taken { slot, fifo }) };
        }
        posts.len()
    }

    /// Appends a chunk to a color of this core; false if the color is another core's.
    ///
    /// Drains the color's mailbox first: what lies there may have happened before this post. The events of
    /// a color that is checked out are in the checkout, `out`: it is withdrawn from there, unless it runs.
    ///
    /// # Safety
    /// The caller gives up the chunk's nodes if this returns true.
    #[inline]
    pub(crate) unsafe fn append(&mut self, slot: u32, chunk: Chunk, out: &mut Checkout) -> bool {
        if !self.owns(slot) {
            return false;
        }
        let at = self.shared.slots.at(slot);
        let mut queue = self.queue(slot);
        let mail = mail::has_mail(at) && !fault("mailbox not drained before an append");
        if queue.is_unused() && !mail && chunk.first == chunk.last {
            // The commonest case, in fewer instructions.
            // SAFETY: the node is the caller's and given up.
            queue.fifo = unsafe { Fifo::of(chunk.first) };
            self.link_at(slot, at, queue);
            return true;
        }
        if queue.state == State::CheckedOut {
            queue.end();
            if out.is_running(slot) {
                // SAFETY: we are its owner's thread and hold its lock, and the chunk is the caller's.
                unsafe { self.append_behind_mail(slot, mail, out.running(), chunk) };
                return true;
            }
            out.withdraw(self, slot);
            queue = self.queue(slot);
        }
        let before = (queue.fifo.len(), queue.worth_ns());
        // SAFETY: we hold the owner's lock, and the chunk is the caller's.
        unsafe { self.append_behind_mail(slot, mail, &mut queue.fifo, chunk) };
        if queue.state == State::Queued {
            self.grown(slot, queue, before);
        } else {
            queue.end();
            self.link(slot);
        }
        true
    }

    /// Appends a chunk to a color's FIFO, after what is in its mailbox, if it has `mail`.
    ///
    /// # Safety
    /// The caller owns the FIFO and the color's private part, and gives up the chunk's nodes.
    #[inline(always)]
    unsafe fn append_behind_mail(&self, slot: u32, mail: bool, fifo: &mut Fifo, chunk: Chunk) {
        if mail {
            // SAFETY: the private part is the caller's.
            unsafe { mail::drain(&self.shared.slots, slot, fifo) };
        }
        // SAFETY: the chunk is the caller's.
        let totals = unsafe { Node::totals(chunk.first.as_ptr(), chunk.last.as_ptr()) };
        // SAFETY: the FIFO is the caller's, and the chunk too and given up.
        unsafe { fifo.append(chunk.first, chunk.last, totals) };
    }

    /// Takes everything out of a color of a runtime that has ended: nobody wants its poke, and no list is looked
    /// at any more.
    pub(crate) fn take_rest(&mut self, slot: u32) -> Fifo {
        let mut queue = self.queue(slot);
        // SAFETY: we hold the owner's lock.
        unsafe { mail::take_rest(&self.shared.slots, slot, &mut queue.fifo) };
        queue.fifo.take()
    }

    /// Takes the core's pokes: links the colors that have mail, forwards what is not this core's.
    pub(crate) fn take_mail(&mut self, bells: &mut Vec<u32>) {
        let left = std::mem::replace(&mut self.lists.left, Chain::EMPTY);
        self.deliver(left, bells);
        let taken = self.shared.cores[self.core as usize].pokes.take();
        self.deliver(taken, bells);
    }

    fn deliver(&mut self, mut pokes: Chain, bells: &mut Vec<u32>) {
        let shared = self.shared;
        while let Some(slot) = pokes.next(&shared.slots) {
            if !self.owns(slot) {
                if !fault("poke forwarded to nobody") {
                    poke::send(shared, slot, bells);
                }
                continue;
            }
            let mut queue = self.queue(slot);
            let state = queue.state;
            if state == State::CheckedOut && !fault("running mark ignored") {
                // Its own thread has it, perhaps right now, and we may be a thief. That thread goes by what
                // it sees in the mailbox ([`super::checkout`]).
                queue.end();
                if !fault("mail of a running color forgotten") {
                    self.lists.left.add(&shared.slots, slot);
                }
                continue;
            }
            let before = (queue.fifo.len(), queue.worth_ns());
            // SAFETY: we hold the owner's lock, and the color's poke is in our hands.
            unsafe { mail::consume(&shared.slots, slot, &mut queue.fifo) };
            let len = queue.fifo.len();
            if state == State::Queued {
                self.grown(slot, queue, before);
            } else {
                queue.end();
                if len > 0 {
                    self.link(slot);
                }
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
        let at = self.shared.slots.at(slot);
        if !at.is_wanted() {
            return None;
        }
        let target = u32::from(at.wanted.swap(0, Ordering::AcqRel).checked_sub(1)?);
        (target != self.core).then_some(target)
    }

    /// Gives an unlinked color, its events with it, to another core, which links it when the poke
    /// arrives.
    fn emigrate(&mut self, slot: u32, target: u32, bells: &mut Vec<u32>) {
        let slots = &self.shared.slots;
        self.queue(slot).state = State::Idle;
        slots.set_owner(slot, target);
        if mail::mark_poked(slots, slot) && !fault("placed without a poke") {
            poke::send(self.shared, slot, bells);
        }
    }

    /// Returns a color that the core's own thread had checked out or stolen, and links it if it has
    /// events left.
    #[inline(always)]
    pub(crate) fn give_back(&mut self, taken: &Taken) {
        if taken.fifo.len() > 0 {
            return self.give_back_rest(taken);
        }
        self.returned(taken.slot).endurance = Endurance::NONE;
    }

    /// Takes note that a color that stays checked out has run out of events.
    #[inline(always)]
    pub(super) fn finished(&self, slot: u32) {
        self.queue(slot).endurance = Endurance::NONE;
    }

    /// As [`give_back`](Self::give_back), when there is anything to go on with.
    #[inline(never)]
    fn give_back_rest(&mut self, taken: &Taken) {
        let left = &taken.fifo;
        let policy = &self.shared.policy;
        let counts = policy.stealing && policy.heuristics.time_left;
        let mut queue = self.queue(taken.slot);
        queue.endurance = if counts && !self.is_control(taken.slot) {
            let turn_ns = u64::from(left.raw_ns() / left.len()) * u64::from(policy.batch);
            queue.endurance.and(turn_ns, self.limits.endurance_most)
        } else {
            Endurance::NONE
        };
        queue.end();
        self.adopt(taken);
    }

    /// Returns a color that was checked out and did not have its turn, to the head of the core-queue.
    pub(super) fn give_back_first(&mut self, taken: &Taken) {
        self.adopt(taken);
        self.move_to_front(taken.slot);
    }

    /// Takes note that of what lasts, at most this color is still out.
    pub(super) fn out_only(&mut self, kept: Option<u32>) {
        let lasts = |slot| self.queue(slot).endurance.lasts();
        self.lists.lasting_out = kept.is_some_and(lasts).into();
    }

    /// Links a color that was checked out, or stolen for this core, and has events.
    pub(crate) fn adopt(&mut self, taken: &Taken) {
        let mut queue = self.returned(taken.slot);
        queue.fifo = taken.fifo;
        queue.end();
        self.link(taken.slot);
    }

    /// A color that comes back: idle, and its events are where they were taken.
    #[inline(always)]
    fn returned(&self, slot: u32) -> CellMut<'a, ColorQueue> {
        let mut queue = self.queue(slot);
        check!(
            self.owns(slot) && queue.state == State::CheckedOut && queue.fifo.len() == 0,
            "slot {slot} is returned and not out"
        );
        queue.state = State::Idle;
        queue
    }

    /// Whether a color may join those that are checked out, and then counts it: until their
    /// unpenalized time sums to the quantum, so that what is hidden from thieves is at most what is
    /// not worth stealing. A color whose next event may outlast a wake-up, or never was measured, goes
    /// alone. `turn_ns`: what the color's turn takes; without it `next` is its only event, which is
    /// judged anew, because it may have been posted before its handler ever ran.
    #[inline(always)]
    fn fits(&mut self, next: NonNull<Node>, turn_ns: Option<u64>, checkout: &Checkout) -> bool {
        // SAFETY: held by its queue, whose owner's lock we hold, or by the caller.
        let profile = unsafe { Node::header(next.as_ptr()).tag }.profile();
        let profile = self.shared.profiles.get(profile);
        let alone = profile.tail_ns() > self.limits.alone_ns;
        let quantum_ns = u64::from(self.limits.quantum_ns);
        let sum_ns = self.taken_ns + turn_ns.unwrap_or(profile.estimate().raw_ns().into());
        if checkout.turns() > 0 && (alone || sum_ns > quantum_ns || checkout.is_full()) {
            return false;
        }
        self.taken_ns = if alone { quantum_ns + 1 } else { sum_ns };
        true
    }

    /// Takes colors from the head of the core-queue to be run without the lock, as many as fit.
    #[inline]
    pub(crate) fn check_out(&mut self, into: &mut Checkout) {
        let mut head = self.lists.core_queue.head;
        let (mut colors, mut events) = (0, 0);
        let (mut lasting, mut lasting_max) = (0, 0);
        let mut scout = self.scout();
        while head != NIL {
            let slot = head;
            let mut queue = self.queue(slot);
            if queue.endurance.lasts() {
                // Some that go on and on all fit into one quantum: then no thief would ever see them.
                if lasting == 0 {
                    lasting_max = self.lasting_max();
                }
                if lasting == lasting_max {
                    break;
                }
                lasting += 1;
            }
            let batch = self.shared.policy.batch;
            let turn_ns = (queue.fifo.len() > 1).then(|| queue.fifo.turn_ns(batch));
            if !self.fits(queue.fifo.first(), turn_ns, into) {
                lasting -= u32::from(queue.endurance.lasts());
                break;
            }
            let len = queue.fifo.len();
            queue.check_out(len);
            let (next, band) = (queue.core_next, queue.band);
            if band != 0 {
                queue.end();
                self.unband(slot);
                queue = self.queue(slot);
            }
            let fifo = queue.fifo.take();
            queue.end();
            if scout == slot {
                scout = next;
            }
            if scout != NIL {
                scout = self.ask_for(scout);
            }
            head = next;
            colors += 1;
            if self.is_control(slot) {
                self.lists.controls -= 1;
            } else {
                events += u64::from(fifo.len());
            }
            // SAFETY: `fits` saw that there is room.
            unsafe { into.push_unchecked(Taken { slot, fifo }) };
        }
        self.lists.lasting_out = lasting;
        self.lists.scout = scout;
        // What is unlinking one by one, at once.
        if colors > 0 {
            self.lists.core_queue.head = head;
            if head == NIL {
                self.lists.core_queue.tail = NIL;
            } else {
                self.queue(head).core_prev = NIL;
            }
            self.lists.queued -= colors;
            self.lists.events -= events;
            self.lists.lasting -= lasting;
        }
    }

    /// How many colors that last the core takes at once: half of them while anybody could come for the rest.
    fn lasting_max(&self) -> u32 {
        let shared = self.shared;
        let lasting = self.lists.lasting;
        let wakes = || self.lists.lasting_ns(lasting / 2) >= shared.wake_cost_ns;
        let wanted = shared.searching.load(Ordering::Relaxed) > 0
            || shared.cores[self.core as usize].hint.is_asked()
            || wakes() && shared.sleepers.any();
        if wanted {
            lasting.div_ceil(2)
        } else {
            u32::MAX
        }
    }

    /// Takes note of how many events are checked out besides the one that runs, where that matters.
    #[inline(always)]
    pub(super) fn count_out(&mut self, checkout: &Checkout, one_runs: bool) {
        if self.shared.policy.needs_two_colors() {
            self.count_out_anew(checkout, one_runs);
        }
    }

    #[inline(never)]
    fn count_out_anew(&mut self, checkout: &Checkout, one_runs: bool) {
        self.lists.events_out = checkout.events().saturating_sub(one_runs.into());
    }

    /// Writes the hint that thieves and would-be sleepers read.
    #[inline]
    pub(crate) fn publish(&self) -> Worth {
        #[cfg(loom)]
        self.assert_valid();
        let hint = &self.shared.cores[self.core as usize].hint;
        let policy = &self.shared.policy;
        let stealable = self.lists.stealable();
        let worth_ns = if policy.heuristics.time_left && policy.stealing {
            self.lists.worth_ns
        } else if policy.stealing && self.has_something_by_the_two_color_rule() {
            // Without the time-left heuristic whatever there is, is worth it.
            u64::MAX
        } else {
            0
        };
        let before_ns = hint.worth_ns();
        hint.publish(worth_ns, stealable, &self.lists);
        Worth {
            before_ns,
            now_ns: worth_ns,
        }
    }
}
