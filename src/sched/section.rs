//! The critical section: what may be done to a core's lists and colors under its lock.
//!
//! A [`Section`] is that lock, held, by the core's own thread or by a thief. It is the one place
//! where colors change owner, and where they are linked into the core-queue and the stealing-queue.
//! It knows neither the checkout nor the outbox: it is given chunks, pokes and colors that were
//! taken, and answers with what could not be done, or with colors. [`super::exchange`] and
//! [`super::steal`] drive it. Which of its colors a thief gets is in [`super::victim`].

use crate::ablation::{Rule, without};
use crate::color::{CoreId, MaybeSlot, SlotId};
use crate::event::fifo::{Chunk, Fifo};
use crate::policy::head::Newest;
use crate::policy::quantum::{self, Taking};
use crate::policy::worth::{Band, Endurance};
use crate::shared::Shared;
use crate::shared::idle::Worth;
use crate::shared::queue::color_queue::{ColorQueue, State, Taken};
use crate::shared::queue::core_queue::{CoreQueue, QueueEnd};
use crate::shared::queue::limits::Limits;
use crate::shared::queue::queues::Queues;
use crate::shared::queue::slots::{Colors, Guarded};
use crate::shared::queue::stealing_queue::StealingQueue;
use crate::shared::remote::mail;
use crate::shared::remote::poke::Chain;
use crate::sync::{CellMut, charge, check, fault};
use std::hint::select_unpredictable;

/// A core's lock, held. Dropping it unlocks.
#[derive(Debug)]
pub(crate) struct Section<'a> {
    pub(super) shared: &'a Shared,
    /// The core whose lock this is.
    pub(super) core: CoreId,
    pub(super) guarded: Guarded<'a>,
    /// A copy of what the queues say, at hand.
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

/// What came of a poke.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum Delivery {
    Done,
    /// The color is another core's: the caller sends the poke there.
    Elsewhere,
    /// The color is queued here, and wishes for the next turn.
    Hurries,
}

/// What is being checked out.
#[derive(Debug, Default)]
struct CheckOutSum {
    taking: Taking,
    /// Events of those that a thief may take.
    events: u64,
    /// Colors that last, and how many of them are taken at most.
    lasting: u32,
    lasting_max: u32,
}

impl<'a> Section<'a> {
    /// Takes the lock of `core`.
    pub(crate) fn enter(shared: &'a Shared, core: CoreId) -> Section<'a> {
        Section::with(shared, core, Guarded::lock(shared, core))
    }

    /// Takes the lock of `core` if it is free.
    pub(crate) fn try_enter(shared: &'a Shared, core: CoreId) -> Option<Section<'a>> {
        let guarded = Guarded::try_lock(shared, core)?;
        Some(Section::with(shared, core, guarded))
    }

    /// Takes the lock of the core that owns a color.
    pub(crate) fn of_slot(shared: &'a Shared, slot: SlotId) -> Section<'a> {
        let guarded = Guarded::of_slot(shared, slot);
        Section::with(shared, guarded.colors.core, guarded)
    }

    #[inline]
    fn with(shared: &'a Shared, core: CoreId, guarded: Guarded<'a>) -> Section<'a> {
        Section {
            shared,
            core,
            limits: guarded.queues.limits,
            guarded,
        }
    }

    /// Whether the color belongs to this core: stable while the section lives.
    #[inline(always)]
    pub(crate) fn owns(&self, slot: SlotId) -> bool {
        self.guarded.colors.owns(slot)
    }

    #[inline(always)]
    pub(super) fn is_control(&self, slot: SlotId) -> bool {
        slot >= self.limits.controls_first
    }

    pub(crate) fn queues(&self) -> &Queues {
        &self.guarded.queues
    }

    /// The lists, and the colors that are in them.
    #[inline(always)]
    fn lists(&mut self) -> (&mut CoreQueue, &mut StealingQueue, &mut Colors<'a>) {
        let Guarded { colors, queues } = &mut self.guarded;
        let queues = &mut **queues;
        (&mut queues.core_queue, &mut queues.stealing_queue, colors)
    }

    /// Takes up what steals cost by now.
    pub(crate) fn renew_limits(&mut self) {
        self.limits = self.shared.limits(self.core);
        self.guarded.queues.limits = self.limits;
    }

    /// Links a color that has events at the tail of the core-queue, and into its band.
    #[inline(never)]
    pub(super) fn link(&mut self, slot: SlotId) {
        self.link_at(slot, QueueEnd::Tail);
    }

    /// Links a color that has events into the core-queue, and into its band.
    #[inline(always)]
    pub(super) fn link_at(&mut self, slot: SlotId, end: QueueEnd) {
        charge::queue();
        self.guarded.colors.slot(slot).settle(self.core);
        let mut queue = self.guarded.colors.at(slot);
        debug_assert!(queue.state != State::Queued && !queue.fifo.is_empty());
        queue.state = State::Queued;
        let (len, lasts) = (queue.fifo.len(), queue.endurance.lasts());
        let band = band(self.shared, &self.limits, &queue);
        queue.end();
        let is_control = self.is_control(slot);
        let (core_queue, stealing_queue, colors) = self.lists();
        if is_control {
            // What one color does for all connections would wait for all of them.
            core_queue.push(colors, slot, QueueEnd::Head);
            core_queue.controls += 1;
            return;
        }
        core_queue.push(colors, slot, end);
        core_queue.events += u64::from(len);
        core_queue.lasting += u32::from(lasts);
        if let Some(band) = band {
            stealing_queue.put(colors, slot, band);
        }
    }

    /// Takes a color out of the core-queue and out of its band. Its state is the caller's to
    /// change.
    pub(super) fn unlink(&mut self, slot: SlotId) {
        debug_assert!(!self.is_control(slot), "they leave by being checked out");
        let (core_queue, stealing_queue, colors) = self.lists();
        if !fault("left in its band") {
            stealing_queue.take_out(colors, slot);
        }
        core_queue.remove(colors, slot);
        let queue = colors.at(slot);
        debug_assert_eq!(queue.state, State::Queued);
        core_queue.events -= u64::from(queue.fifo.len());
        core_queue.lasting -= u32::from(queue.endurance.lasts());
    }

    /// Accounts for events that were appended to a queued color, which had this many before, worth
    /// this much in ns.
    #[inline(always)]
    fn grown(&mut self, slot: SlotId, (events, worth_ns): (u32, u32)) {
        if self.is_control(slot) {
            return;
        }
        let (shared, limits) = (self.shared, self.limits);
        let (core_queue, stealing_queue, colors) = self.lists();
        let queue = colors.at(slot);
        core_queue.events += u64::from(queue.fifo.len() - events);
        let now = band(shared, &limits, &queue);
        let before = queue.band;
        if before.is_some() {
            stealing_queue.worth_ns += u64::from(queue.worth_ns() - worth_ns);
        }
        queue.end();
        if before != now {
            stealing_queue.take_out(colors, slot);
            if let Some(band) = now {
                stealing_queue.put(colors, slot, band);
            }
        }
    }

    /// Whether the color is checked out of this core.
    pub(super) fn is_out(&mut self, slot: SlotId) -> bool {
        self.owns(slot) && self.guarded.colors.at(slot).state == State::CheckedOut
    }

    /// Appends a chunk to a color of this core that is not checked out.
    ///
    /// Drains the color's mailbox first: what lies there may have happened before this post.
    /// `by_event`: an event of this core has posted it, so that it may go
    /// [first](crate::policy::head).
    #[inline(always)]
    pub(super) fn append(&mut self, slot: SlotId, chunk: Chunk, by_event: bool) -> Append {
        if !self.owns(slot) {
            return Append::Elsewhere(chunk);
        }
        let mail = self.has_mail_before(slot);
        let mut queue = self.guarded.colors.at(slot);
        if queue.state == State::CheckedOut {
            return Append::CheckedOut(chunk);
        }
        if queue.is_unused() && !mail {
            // The commonest case, in fewer instructions.
            queue.fifo = chunk.into();
            let worthy = queue.fifo.raw_ns() >= self.limits.worthy_ns;
            queue.end();
            let first = by_event
                && worthy
                && !without(Rule::Newest)
                && self.goes_first(slot, Newest::goes_first);
            self.link_at(slot, QueueEnd::head_if(first));
        } else {
            queue.end();
            self.append_behind(slot, mail, chunk);
        }
        Append::Done
    }

    /// Whether a color to which an event has posted what is worth a steal, or whose turn is over,
    /// [goes](crate::policy::head) to the head. What the runtime does for connections has the
    /// next turn.
    #[inline(never)]
    fn goes_first(&mut self, slot: SlotId, goes: impl FnOnce(&mut Newest) -> bool) -> bool {
        let is_control = self.is_control(slot);
        let queues = &mut *self.guarded.queues;
        !is_control && queues.core_queue.controls == 0 && goes(&mut queues.newest)
    }

    /// Whether the color has mail, which goes before what is appended.
    #[inline(always)]
    fn has_mail_before(&self, slot: SlotId) -> bool {
        mail::has_mail(self.guarded.colors.slot(slot))
            && !fault("mailbox not drained before an append")
    }

    /// As [`append`](Self::append), to a color that has events, or `mail`.
    #[inline(never)]
    fn append_behind(&mut self, slot: SlotId, mail: bool, chunk: Chunk) {
        let mut queue = self.guarded.colors.at(slot);
        let before = (queue.fifo.len(), queue.worth_ns());
        if mail {
            mail::drain(&self.shared.slots, slot, &mut queue.fifo);
        }
        queue.fifo.append(chunk);
        let state = queue.state;
        queue.end();
        if state == State::Queued {
            self.grown(slot, before);
        } else {
            self.link(slot);
        }
    }

    /// Appends a chunk to the events of a color that this core runs, after what is in its mailbox.
    pub(super) fn append_to_running(&self, slot: SlotId, events: &mut Fifo, chunk: Chunk) {
        self.append_mail_to_running(slot, events);
        events.append(chunk);
    }

    /// Appends what is in its mailbox.
    pub(super) fn append_mail_to_running(&self, slot: SlotId, events: &mut Fifo) {
        if self.has_mail_before(slot) {
            mail::drain(&self.shared.slots, slot, events);
        }
    }

    /// The pokes that [`deliver`](Self::deliver) left, the oldest first.
    pub(super) fn take_deferred(&mut self) -> Vec<SlotId> {
        std::mem::take(&mut self.guarded.queues.deferred)
    }

    /// The core's pokes, the oldest first.
    pub(super) fn take_pokes(&mut self) -> Chain {
        let slots = &self.shared.slots;
        self.shared.core(self.core).pokes.take(slots)
    }

    /// Delivers a poke: appends the color's mail, if there is any, and links it; gives it away if
    /// another core was asked for.
    pub(super) fn deliver(&mut self, slot: SlotId) -> Delivery {
        if !self.owns(slot) {
            return Delivery::Elsewhere;
        }
        let slots = &self.shared.slots;
        let at = self.guarded.colors.slot(slot);
        let mut queue = self.guarded.colors.at(slot);
        let state = queue.state;
        if state == State::CheckedOut && !fault("running mark ignored") {
            // Its own thread has it, perhaps right now, and we may be a thief. That thread goes by
            // what it sees in the mailbox ([`super::checkout`]).
            queue.end();
            if !fault("mail of a running color forgotten") {
                self.guarded.queues.deferred.push(slot);
            }
            return Delivery::Done;
        }
        let before = (queue.fifo.len(), queue.worth_ns());
        mail::consume(slots, slot, &mut queue.fifo);
        let len = queue.fifo.len();
        queue.end();
        if state == State::Queued {
            self.grown(slot, before);
        } else if len > 0 {
            self.link(slot);
        }
        if !at.wish.any() {
            return Delivery::Done;
        }
        let target = at.wish.take_core().filter(|&target| target != self.core);
        if let Some(target) = target {
            if len > 0 {
                self.unlink(slot);
            }
            if self.give_to(slot, target) && !fault("placed without a poke") {
                return Delivery::Elsewhere;
            }
        } else if len == 0 {
            // There is nothing that could have a turn.
            let _hurried = at.wish.take_hurry();
        } else if at.wish.hurries() {
            return Delivery::Hurries;
        }
        Delivery::Done
    }

    /// Gives a color that is in no list, its events with it, to another core, which links it when
    /// the poke arrives. True: the caller sends that poke. Else somebody has set the mark since,
    /// and does.
    #[must_use]
    pub(super) fn give_to(&mut self, slot: SlotId, target: CoreId) -> bool {
        self.guarded.colors.at(slot).state = State::Idle;
        self.shared.slots.set_owner(slot, target);
        mail::mark_poked(&self.shared.slots, slot)
    }

    /// After pokes were delivered: moves these colors, which wished for the next turn when theirs
    /// was, to the head of the core-queue and of their bands, in this order, unless that was done
    /// too often. A later poke may have given one of them to another core, or it is named twice: so
    /// each is looked at again.
    #[cold]
    pub(super) fn grant_wishes(&mut self, hurried: &[SlotId]) {
        let stats = &self.shared.core(self.core).stats;
        let quanta = stats.quanta.get();
        let mut granted = Vec::new();
        for &slot in hurried {
            if !(self.is_queued(slot) || fault("hurried color not looked at again"))
                || !self.guarded.colors.slot(slot).wish.take_hurry()
            {
                continue;
            }
            if without(Rule::HurryBudget) || self.guarded.queues.granted.grant(quanta) {
                stats.hurries.add(1);
                granted.push(slot);
            } else {
                stats.hurries_refused.add(1);
            }
        }
        for &slot in granted.iter().rev() {
            self.unlink(slot);
            self.guarded.colors.at(slot).state = State::Idle;
            self.link_at(slot, QueueEnd::Head);
            let (_, stealing_queue, colors) = self.lists();
            stealing_queue.put_first(colors, slot);
        }
        self.guarded.queues.newest.put_first(granted.len() as u32);
    }

    /// Whether the color is this core's, and in its core-queue.
    fn is_queued(&mut self, slot: SlotId) -> bool {
        self.owns(slot) && self.guarded.colors.at(slot).state == State::Queued
    }

    /// Returns a color that the core's own thread had checked out or stolen, and links it if it has
    /// events left.
    #[inline(always)]
    pub(crate) fn give_back(&mut self, taken: Taken) {
        if !taken.fifo.is_empty() {
            return self.give_back_rest(taken, false);
        }
        self.returned(taken.slot).endurance = Endurance::NONE;
    }

    /// Returns a color whose turn has just ended, with the quantum. What drags memory along may go
    /// first: see [`crate::policy::head`].
    #[inline(always)]
    pub(super) fn end_turn(&mut self, taken: Taken) {
        if taken.fifo.is_empty() {
            self.give_back(taken);
        } else {
            self.give_back_rest(taken, true);
        }
    }

    /// Takes note that a color that stays checked out has run out of events.
    #[inline(always)]
    pub(super) fn finished(&mut self, slot: SlotId) {
        check!(self.owns(slot), "slot {slot} is kept, and another's");
        self.guarded.colors.at(slot).endurance = Endurance::NONE;
    }

    /// As [`give_back`](Self::give_back), when there is anything to go on with.
    #[inline(never)]
    fn give_back_rest(&mut self, taken: Taken, ended: bool) {
        let left = &taken.fifo;
        let policy = &self.shared.policy;
        let times = left.times();
        let drags = policy.drags(times.raw_ns(), times.penalized_ns());
        let counts = drags || policy.stealing.enabled && policy.stealing.time_left;
        let is_control = self.is_control(taken.slot);
        let mut queue = self.guarded.colors.at(taken.slot);
        queue.endurance = if counts && !is_control && !without(Rule::Endurance) {
            let turn_ns = u64::from(left.raw_ns() / left.len()) * u64::from(policy.batch);
            queue.endurance.and(turn_ns, self.limits.endurance_most)
        } else {
            Endurance::NONE
        };
        queue.end();
        let first = ended && drags && self.goes_first(taken.slot, Newest::goes_on);
        let slot = self.returned_with(taken);
        self.link_at(slot, QueueEnd::head_if(first));
    }

    /// Returns a color that was checked out, or stolen for this core, and did not have its turn, to
    /// the head of the core-queue.
    pub(super) fn give_back_first(&mut self, taken: Taken) {
        if without(Rule::First) {
            return self.adopt(taken);
        }
        self.guarded.queues.newest.put_first(1);
        let slot = self.returned_with(taken);
        self.link_at(slot, QueueEnd::Head);
    }

    /// After a release, only the `running` color may still be checked out: it is counted if it
    /// lasts.
    pub(super) fn out_only(&mut self, running: Option<SlotId>) {
        let lasts = |slot| self.guarded.colors.at(slot).endurance.lasts();
        self.guarded.queues.lasting_out = running.is_some_and(lasts).into();
    }

    /// Links a color that was checked out, or stolen for this core, and has events.
    pub(crate) fn adopt(&mut self, taken: Taken) {
        let slot = self.returned_with(taken);
        self.link(slot);
    }

    #[inline(always)]
    fn returned_with(&mut self, Taken { slot, fifo }: Taken) -> SlotId {
        self.returned(slot).fifo = fifo;
        slot
    }

    /// Marks a color that comes back as idle; its events are still where they were taken to.
    #[inline(always)]
    fn returned(&mut self, slot: SlotId) -> CellMut<'_, ColorQueue> {
        check!(
            self.owns(slot),
            "slot {slot} is returned and not out of here"
        );
        let mut queue = self.guarded.colors.at(slot);
        check!(
            queue.state == State::CheckedOut && queue.fifo.is_empty(),
            "slot {slot} is returned and not out"
        );
        queue.state = State::Idle;
        queue
    }

    /// Takes colors from the head of the core-queue to be run without the lock, as many as fit, and
    /// at most `room`, for a quantum of this length.
    ///
    /// Colors fit until what their next turns take, unpenalized, sums to the quantum. The first one
    /// is taken in any case, and each with all its events, which are hidden from thieves for one
    /// quantum. One that drags memory along and had events left after its last turn goes alone, to
    /// have a whole quantum. Returns what is left of the quantum, in ns; negative if it is over, or
    /// if others wait for their turn.
    #[inline(always)]
    pub(crate) fn check_out(
        &mut self,
        quantum_ns: u32,
        room: usize,
        mut take: impl FnMut(Taken),
    ) -> i64 {
        let mut sum = CheckOutSum {
            taking: Taking {
                quantum_ns: quantum_ns.into(),
                room,
                ..Taking::default()
            },
            ..CheckOutSum::default()
        };
        let controls = self.guarded.queues.core_queue.controls;
        let mut head = MaybeSlot::from(self.guarded.queues.core_queue.head());
        let mut scout = self.guarded.queues.core_queue.scout();
        while let Some(slot) = head.get()
            && self.fits(slot, &mut sum)
        {
            let next = self.take_head(slot, &mut take);
            scout.leaves(slot, true, || next);
            let core_queue = &self.guarded.queues.core_queue;
            scout.go_on(core_queue, &mut self.guarded.colors);
            head = next;
        }
        self.guarded.queues.lasting_out = sum.lasting;
        // Unlinks all that were taken, at once.
        let core_queue = &mut self.guarded.queues.core_queue;
        core_queue.begin_at(head.get(), sum.taking.colors, scout);
        core_queue.events -= sum.events;
        core_queue.lasting -= sum.lasting;
        let turns = sum.taking.colors - (controls - core_queue.controls);
        if self.shared.policy.stealing.time_left {
            self.guarded.queues.newest.take(turns, head.is_some());
        }
        sum.taking.left_ns(head.is_some())
    }

    /// Whether the head of the core-queue is to be checked out with what was taken before it: then
    /// it is added to the sum.
    #[inline(always)]
    fn fits(&mut self, slot: SlotId, sum: &mut CheckOutSum) -> bool {
        let mut queue = self.guarded.colors.linked(slot);
        let endurance = queue.endurance;
        let lasts = endurance.lasts();
        if lasts {
            if sum.lasting == 0 {
                queue.end();
                sum.lasting_max = self.lasting_max();
                queue = self.guarded.colors.at(slot);
            }
            if sum.lasting == sum.lasting_max {
                return false;
            }
        }
        let policy = &self.shared.policy;
        let profile = self.shared.profiles.get(queue.fifo.profile());
        let len = queue.fifo.len();
        // A single event is judged anew, because it may have been posted before its handler ever
        // ran. Without a branch: whether there is one or two may be as good as random.
        let event_ns = profile.estimate().raw_ns();
        let queued_ns = queue.fifo.turn_ns(policy.batch);
        let turn_ns = select_unpredictable(len > 1, queued_ns, event_ns.into());
        let times = queue.fifo.times();
        let alone =
            endurance != Endurance::NONE && policy.drags(times.raw_ns(), times.penalized_ns());
        if !sum.taking.fits(turn_ns, alone) {
            return false;
        }
        sum.lasting += u32::from(lasts);
        if self.is_control(slot) {
            self.guarded.queues.core_queue.controls -= 1;
        } else {
            sum.events += u64::from(len);
        }
        true
    }

    /// Takes the head of the core-queue out of its band, and its events out of it; the caller
    /// unlinks it. Returns the color after it.
    #[inline(always)]
    fn take_head(&mut self, slot: SlotId, take: &mut impl FnMut(Taken)) -> MaybeSlot {
        let mut queue = self.guarded.colors.at(slot);
        if queue.band.is_some() {
            queue.end();
            let (_, stealing_queue, colors) = self.lists();
            stealing_queue.take_out(colors, slot);
            queue = self.guarded.colors.at(slot);
        }
        let next = self.guarded.queues.core_queue.after(slot, &queue);
        let fifo = queue.take_events();
        queue.end();
        take(Taken { slot, fifo });
        next.into()
    }

    /// How many colors that last the core takes at once.
    fn lasting_max(&self) -> u32 {
        let shared = self.shared;
        let lasting = self.guarded.queues.core_queue.lasting;
        let wanted = shared.idle.any() || shared.core(self.core).hint.is_asked();
        quantum::lasting_max(lasting, wanted)
    }

    /// Takes note of how many events are checked out besides the one that runs, where that matters.
    #[inline(always)]
    pub(super) fn count_out(&mut self, events: impl FnOnce() -> u64) {
        if self.shared.policy.needs_two_colors() {
            self.guarded.queues.events_out = events();
        }
    }

    /// Writes the hint that thieves and would-be sleepers read.
    #[inline]
    pub(crate) fn write_hint(&mut self) -> Worth {
        #[cfg(loom)]
        self.assert_valid();
        let hint = &self.shared.core(self.core).hint;
        let policy = &self.shared.policy;
        let worth_ns = if policy.stealing.time_left && policy.stealing.enabled {
            self.guarded.queues.stealing_queue.worth_ns
        } else if policy.stealing.enabled && self.has_something_by_the_two_color_rule() {
            // Without the time-left heuristic whatever there is, is worth it.
            u64::MAX
        } else {
            0
        };
        let before_ns = hint.worth_ns();
        hint.write(worth_ns, &self.guarded.queues);
        Worth {
            before_ns,
            now_ns: worth_ns,
        }
    }

    /// Walks all lists and checks every invariant.
    #[cfg(any(test, debug_assertions, loom))]
    pub(crate) fn assert_valid(&mut self) {
        let first = self.limits.controls_first;
        let colors = &mut self.guarded.colors;
        let queued = (self.guarded.queues.core_queue).assert_valid(colors, |slot| slot >= first);
        for &slot in queued.iter().filter(|&&slot| slot >= first) {
            let queue = colors.at(slot);
            assert_eq!(
                (queue.band, queue.endurance),
                (None, Endurance::NONE),
                "slot {slot}: a control color is never worth stealing"
            );
        }
        self.guarded
            .queues
            .stealing_queue
            .assert_valid(colors, &queued);
    }

    /// Whether the color is in no list and without events.
    #[cfg(loom)]
    pub(crate) fn is_unused(&mut self, slot: SlotId) -> bool {
        self.guarded.colors.at(slot).is_unused()
    }

    /// The core-queue, the next to run first.
    #[cfg(all(test, not(loom)))]
    pub(super) fn queued_slots(&mut self) -> Vec<u32> {
        let mut slots = Vec::new();
        (self.guarded.queues.core_queue).find(&mut self.guarded.colors, |slot, _| {
            slots.push(slot.number());
            false
        });
        slots
    }
}

/// The band that a color deserves: none for what is not worth stealing, which is most of what a
/// busy server runs.
#[inline(always)]
fn band(shared: &Shared, limits: &Limits, queue: &ColorQueue) -> Option<Band> {
    if queue.endurance == Endurance::NONE && queue.fifo.raw_ns() < limits.worthy_ns {
        return None;
    }
    let (worth_ns, penalized_ns) = (queue.worth_ns(), queue.penalized_ns());
    let policy = &shared.policy;
    policy.band(worth_ns.into(), penalized_ns.into(), limits.cost_ns)
}
