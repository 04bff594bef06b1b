//! The critical section: what may be done to a core's lists and colors under its lock.
//!
//! A [`Section`] is that lock, held, by the core's own thread or by a thief. It is the one place
//! where colors change owner, and where the private part of a slot is touched. It knows neither the
//! checkout nor the outbox: it is given chunks, pokes and colors that were taken, and answers with what
//! could not be done, or with colors. [`super::exchange`] and [`super::steal`] drive it. How colors are
//! linked is in [`super::links`], what thieves take of them in [`super::rob`].

use super::checkout::Taken;
use super::fifo::{Chunk, Fifo};
use super::lists::{Limits, Lists};
use super::lock::Guard;
use super::mail;
use super::poke::Chain;
use super::queue::{ColorQueue, Endurance, NIL, State};
use super::shared::Shared;
use super::slots::Table;
use crate::sync::atomic::Ordering;
use crate::sync::{CellMut, check, fault};

/// A core's lock, held. Dropping it unlocks.
#[derive(Debug)]
pub(crate) struct Section<'a> {
    pub(super) shared: &'a Shared,
    pub(super) slots: Table<'a>,
    /// The core whose lock this is.
    pub(super) core: u32,
    pub(super) lists: Guard<'a, Lists>,
    /// A copy of what the lists say, at hand.
    pub(super) limits: Limits,
}

/// What came of appending a chunk to a color.
#[derive(Debug)]
#[must_use]
pub(super) enum Append {
    Done,
    /// The color is another core's; here is the chunk.
    Elsewhere(Chunk),
    /// The color is checked out by this core; here is the chunk.
    CheckedOut(Chunk),
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
            slots: shared.slots.table(),
            core,
            limits: lists.limits,
            lists,
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
        unsafe { self.slots.at(slot).queue() }
    }

    /// Whether the color belongs to this core: stable while the section lives.
    #[inline]
    pub(crate) fn owns(&self, slot: u32) -> bool {
        self.shared.slots.owner_of(slot, self.slots.at(slot)) == self.core
    }

    #[inline]
    pub(super) fn is_control(&self, slot: u32) -> bool {
        slot >= self.limits.controls_first
    }

    pub(crate) fn lists(&self) -> &Lists {
        &self.lists
    }

    /// Takes up what steals cost by now. Returns the quantum, in ns.
    pub(crate) fn renew_limits(&mut self) -> u32 {
        self.limits = self.shared.limits(self.core);
        self.lists.limits = self.limits;
        self.limits.quantum_ns
    }

    /// Appends a chunk to a color of this core that is not checked out.
    ///
    /// Drains the color's mailbox first: what lies there may have happened before this post.
    #[inline(always)]
    pub(super) fn append(&mut self, slot: u32, chunk: Chunk) -> Append {
        if !self.owns(slot) {
            return Append::Elsewhere(chunk);
        }
        let at = self.slots.at(slot);
        let mut queue = self.queue(slot);
        let mail = mail::has_mail(at) && !fault("mailbox not drained before an append");
        if queue.state == State::CheckedOut {
            return Append::CheckedOut(chunk);
        }
        if queue.is_unused() && !mail {
            // The commonest case, in fewer instructions.
            queue.fifo = chunk.into();
            self.link_at(slot, at, queue);
        } else {
            queue.end();
            self.append_behind(slot, mail, chunk);
        }
        Append::Done
    }

    /// As [`append`](Self::append), to a color that has events, or `mail`.
    #[inline(never)]
    fn append_behind(&mut self, slot: u32, mail: bool, chunk: Chunk) {
        let mut queue = self.queue(slot);
        let before = (queue.fifo.len(), queue.worth_ns());
        if mail {
            mail::drain(&self.shared.slots, slot, &mut queue.fifo);
        }
        queue.fifo.append(chunk);
        if queue.state == State::Queued {
            self.grown(slot, queue, before);
        } else {
            queue.end();
            self.link(slot);
        }
    }

    /// Appends a chunk to the events of a color that this core runs, after what is in its mailbox.
    pub(super) fn append_to_running(&self, slot: u32, events: &mut Fifo, chunk: Chunk) {
        let mail = mail::has_mail(self.slots.at(slot));
        if mail && !fault("mailbox not drained before an append") {
            mail::drain(&self.shared.slots, slot, events);
        }
        events.append(chunk);
    }

    /// Takes everything out of a color of a runtime that has ended: nobody wants its poke, and no list is looked
    /// at any more.
    pub(crate) fn take_rest(&mut self, slot: u32) -> Fifo {
        let mut queue = self.queue(slot);
        mail::take_rest(&self.shared.slots, slot, &mut queue.fifo);
        queue.fifo.take()
    }

    /// The pokes that [`deliver`](Self::deliver) left.
    pub(super) fn take_left(&mut self) -> Chain {
        std::mem::replace(&mut self.lists.left, Chain::EMPTY)
    }

    /// The core's pokes.
    pub(super) fn take_pokes(&mut self) -> Chain {
        self.shared.cores[self.core as usize].pokes.take()
    }

    /// Delivers a poke: links the color, which has mail. False if the caller is to send the poke to the
    /// core that owns the color now.
    pub(super) fn deliver(&mut self, slot: u32) -> bool {
        if !self.owns(slot) {
            return false;
        }
        let slots = &self.shared.slots;
        let mut queue = self.queue(slot);
        let state = queue.state;
        if state == State::CheckedOut && !fault("running mark ignored") {
            // Its own thread has it, perhaps right now, and we may be a thief. That thread goes by what
            // it sees in the mailbox ([`super::checkout`]).
            queue.end();
            if !fault("mail of a running color forgotten") {
                self.lists.left.add(slots, slot);
            }
            return true;
        }
        let before = (queue.fifo.len(), queue.worth_ns());
        mail::consume(slots, slot, &mut queue.fifo);
        let len = queue.fifo.len();
        if state == State::Queued {
            self.grown(slot, queue, before);
        } else {
            queue.end();
            if len > 0 {
                self.link(slot);
            }
        }
        let Some(target) = self.wish(slot) else {
            return true;
        };
        if len > 0 {
            self.unlink(slot);
        }
        // Gives the color, its events with it, to the other core, which links it when the poke arrives.
        self.queue(slot).state = State::Idle;
        slots.set_owner(slot, target);
        let has_poke = !mail::mark_poked(slots, slot);
        has_poke || fault("placed without a poke")
    }

    /// The other core that somebody asked to place this color on, if any; the wish is fulfilled or
    /// forgotten by the caller.
    #[inline]
    fn wish(&self, slot: u32) -> Option<u32> {
        let at = self.slots.at(slot);
        if !at.is_wanted() {
            return None;
        }
        let target = u32::from(at.wanted.swap(0, Ordering::AcqRel).checked_sub(1)?);
        (target != self.core).then_some(target)
    }

    /// Returns a color that the core's own thread had checked out or stolen, and links it if it has
    /// events left.
    #[inline(always)]
    pub(crate) fn give_back(&mut self, taken: Taken) {
        if !taken.fifo.is_empty() {
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
    fn give_back_rest(&mut self, taken: Taken) {
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
    pub(super) fn give_back_first(&mut self, taken: Taken) {
        let slot = taken.slot;
        self.adopt(taken);
        self.move_to_front(slot);
    }

    /// Takes note that of what lasts, at most this color is still out.
    pub(super) fn out_only(&mut self, kept: Option<u32>) {
        let lasts = |slot| self.queue(slot).endurance.lasts();
        self.lists.lasting_out = kept.is_some_and(lasts).into();
    }

    /// Links a color that was checked out, or stolen for this core, and has events.
    pub(crate) fn adopt(&mut self, Taken { slot, fifo }: Taken) {
        let mut queue = self.returned(slot);
        queue.fifo = fifo;
        queue.end();
        self.link(slot);
    }

    /// A color that comes back: idle, and its events are where they were taken.
    #[inline(always)]
    fn returned(&self, slot: u32) -> CellMut<'a, ColorQueue> {
        let mut queue = self.queue(slot);
        check!(
            self.owns(slot) && queue.state == State::CheckedOut && queue.fifo.is_empty(),
            "slot {slot} is returned and not out"
        );
        queue.state = State::Idle;
        queue
    }

    /// Takes colors from the head of the core-queue to be run without the lock, as many as fit, and at most
    /// `room`.
    ///
    /// Colors fit until their unpenalized time sums to the quantum, so that what is hidden from thieves is
    /// at most what is not worth stealing. A color whose next event may outlast a wake-up, or never was
    /// measured, goes alone. Returns what is left of the quantum, in ns; negative if it is over, or if
    /// others wait for their turn.
    #[inline(always)]
    pub(crate) fn check_out(&mut self, room: usize, mut take: impl FnMut(Taken)) -> i64 {
        let quantum_ns = u64::from(self.limits.quantum_ns);
        let mut taken_ns = 0;
        let mut head = self.lists.core_queue.head;
        let (mut colors, mut events) = (0, 0);
        let (mut lasting, mut lasting_max) = (0, 0);
        let mut scout = self.scout();
        while head != NIL {
            let slot = head;
            let mut queue = self.queue(slot);
            let lasts = queue.endurance.lasts();
            if lasts {
                // Some that go on and on all fit into one quantum: then no thief would ever see them.
                if lasting == 0 {
                    lasting_max = self.lasting_max();
                }
                if lasting == lasting_max {
                    break;
                }
            }
            let profile = self.shared.profiles.get(queue.fifo.profile());
            let len = queue.fifo.len();
            // A single event is judged anew, because it may have been posted before its handler ever ran.
            let turn_ns = if len > 1 {
                queue.fifo.turn_ns(self.shared.policy.batch)
            } else {
                profile.estimate().raw_ns().into()
            };
            let alone = profile.tail_ns() > self.limits.alone_ns;
            taken_ns += turn_ns;
            if colors > 0 && (alone || taken_ns > quantum_ns || colors as usize == room) {
                break;
            }
            if alone {
                taken_ns = quantum_ns + 1;
            }
            lasting += u32::from(lasts);
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
                events += u64::from(len);
            }
            take(Taken { slot, fifo });
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
        if head == NIL {
            quantum_ns as i64 - taken_ns as i64
        } else {
            -1
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
    pub(super) fn count_out(&mut self, events: impl FnOnce() -> u64) {
        if self.shared.policy.needs_two_colors() {
            self.lists.events_out = events();
        }
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
