//! What a core does under its own lock: once a quantum the [exchange](Core::exchange); the
//! [flush](Core::flush) whenever posts must be seen before the quantum ends, and what is checked
//! out with them; or the outbox alone is [published](Core::publish_outbox), before somebody is told
//! something.

use super::checkout::Checkout;
use super::core::Core;
use super::levelling::compare;
use super::outbox::{Outbox, Outgoing};
use super::section::{Append, Delivery, Section};
use crate::color::{CoreId, SlotId};
use crate::event::fifo::Chunk;
use crate::policy::numbers::LOOK_QUANTA;
use crate::shared::idle::{Why, Worth, notify};
use crate::shared::remote::mail;
use crate::shared::remote::poke;
use crate::sync::{charge, fault};
use arrayvec::ArrayVec;

impl Core {
    /// The critical section with which a quantum begins; see [`super::core`]. Leaves the next
    /// colors to run in the checkout. Of a retired core see [`super::retiring`].
    #[inline(never)]
    pub(crate) fn exchange<const RETIRED: bool>(&mut self) {
        // Borrowed, not cloned, here and in `flush`: a reference count is a read-modify-write on a
        // line that all cores share.
        if self.checkout.is_empty()
            && self.outbox.is_empty()
            && self.own.hint.queued() == 0
            && !self.own.pokes.any()
        {
            return;
        }
        self.own.stats.quanta.add(1);
        self.own.stats.posts.max(self.ledger.posted);
        let mut section = Section::enter(&self.shared, self.id);
        let quanta = self.own.stats.quanta.get();
        // Now and then the limits are worked out anew, a handler that runs all the time is counted,
        // and a core that is never idle compares itself with another.
        let renew = quanta.is_multiple_of(LOOK_QUANTA);
        if renew {
            section.renew_limits();
            self.ledger.count(&self.own.counts);
        }
        // After a long handler too: the next renewal may be long in coming.
        if !RETIRED && (renew || !self.timing.ran) && self.search.levelling.is_none() {
            self.search.levelling = compare(&section, &self.own, &mut self.search, &self.clock);
        }

        // Return. A last post, in the outbox, to a color of this core is a sign that there will be
        // something to run. Where limits are renewed all colors go, so that one that is wanted
        // elsewhere leaves.
        let goes_on = || self.outbox.last().is_some_and(|slot| section.owns(slot));
        let keeps = section.queues().core_queue.len == 0 && !renew && goes_on();
        self.checkout
            .end_turns(!RETIRED && keeps, |taken| section.end_turn(taken));
        self.checkout.kept().for_each(|slot| section.finished(slot));
        if fault("colors leave before their posts") {
            take_mail(&mut section, &mut self.bells);
        }

        // Flush.
        let (outbox, bells) = (&mut self.outbox, &mut self.bells);
        publish(outbox, &mut section, &mut self.checkout, bells);

        // Take mail. Not before the outbox is published: colors that are wanted elsewhere leave,
        // and what such a color posts there must not overtake what it posted here.
        if self.own.pokes.any() || !section.queues().deferred.is_empty() {
            // A kept color may be one of those that the pokes are for.
            self.checkout
                .give_back_kept(|taken| section.give_back(taken));
            take_mail(&mut section, &mut self.bells);
        }

        if !RETIRED || section.pass_on(&mut self.bells) {
            fill_checkout(&mut self.checkout, &mut section);
        }

        let worth = section.write_hint();
        // A walk of all lists: affordable while they are short.
        #[cfg(all(debug_assertions, not(loom)))]
        if section.queues().core_queue.len <= 64 {
            charge::uncharged(|| section.assert_valid());
        }
        let waits = section.queues().core_queue.len > 0;
        drop(section);
        self.notify(Why::Work(worth));
        self.begin_quantum(waits);
    }

    /// Gives back all colors but the running one, then publishes the outbox in program order:
    /// everything posted so far to other colors is in their queues or mailboxes when this
    /// returns. Returns whether a sleeper was looked for, because a long handler runs.
    #[inline(never)]
    pub(crate) fn flush(&mut self) -> bool {
        let Some((worth, stealable)) = self.publish_all() else {
            self.ring();
            return false;
        };
        if self.own.progress.is_long() && stealable > 0 && self.shared.policy.stealing.enabled {
            self.notify(Why::Waits);
            return true;
        }
        self.notify(Why::Work(worth));
        false
    }

    /// What a [flush](Self::flush) does under the lock. Returns what others are to be told: what
    /// there is to steal, and how many colors. None: there was nothing.
    #[inline(always)]
    fn publish_all(&mut self) -> Option<(Worth, u32)> {
        self.own.stats.posts.max(self.ledger.posted);
        let in_turn = self.current.slot.is_some();
        if in_turn {
            self.outbox.end_turns();
        }
        if self.outbox.is_empty() && self.checkout.others(in_turn) == 0 {
            return None;
        }
        if in_turn {
            *self.checkout.running() = self.running.put_down();
        }
        let mut section = Section::enter(&self.shared, self.id);
        self.checkout.release(in_turn, |taken, waits| {
            if waits {
                section.give_back_first(taken);
            } else {
                section.give_back(taken);
            }
        });
        section.out_only(self.current.slot.get());
        let (outbox, bells) = (&mut self.outbox, &mut self.bells);
        publish(outbox, &mut section, &mut self.checkout, bells);
        if !section.queues().deferred.is_empty() {
            take_mail(&mut section, &mut self.bells);
        }
        section.count_out(|| self.checkout.events());
        let worth = section.write_hint();
        let stealable = section.queues().core_queue.stealable();
        drop(section);
        if in_turn {
            self.running.take_up(self.checkout.running());
        }
        Some((worth, stealable))
    }
}

impl Core {
    /// Publishes the outbox as a [flush](Self::flush) does, and leaves the checkout as it is.
    /// False, and nothing is done: something in the outbox is for a color that is checked out, or
    /// the event that runs is a long one, behind which nothing is to wait.
    #[inline(never)]
    pub(super) fn publish_outbox(&mut self) -> bool {
        if self.own.progress.is_long() {
            return false;
        }
        self.own.stats.posts.max(self.ledger.posted);
        let mut section = Section::enter(&self.shared, self.id);
        if self.outbox.slots().any(|slot| section.is_out(slot))
            && !fault("published past the checkout")
        {
            return false;
        }
        if self.current.slot.is_some() {
            self.outbox.end_turns();
        }
        let (outbox, bells) = (&mut self.outbox, &mut self.bells);
        publish(outbox, &mut section, &mut self.checkout, bells);
        if fault("what is published alone is not told") {
            return true;
        }
        let worth = section.write_hint();
        drop(section);
        self.notify(Why::Work(worth));
        true
    }
}

impl Core {
    /// Publishes what a visit to another core's event source has posted. Under the lock of that
    /// source, so nobody is rung here: [`tell_visit`](Self::tell_visit) does, when it is free.
    pub(crate) fn publish_visit(&mut self) -> Option<Worth> {
        self.publish_all().map(|(worth, _)| worth)
    }

    pub(crate) fn tell_visit(&mut self, worth: Option<Worth>) {
        match worth {
            Some(worth) => self.notify(Why::Work(worth)),
            None => self.ring(),
        }
    }
}

/// Empties the outbox in program order, under the lock of the core whose outbox it is.
#[inline]
fn publish(
    outbox: &mut Outbox,
    section: &mut Section<'_>,
    checkout: &mut Checkout,
    bells: &mut Vec<CoreId>,
) {
    let mut due = DuePokes {
        core: section.core,
        colors: ArrayVec::new(),
    };
    for (Outgoing { slot, chunk }, by_event) in outbox.drain() {
        charge::send();
        match section.append(slot, chunk, by_event) {
            Append::Done => {}
            Append::Elsewhere(mut chunk) => {
                if section.takes_over(slot, &mut chunk, bells) {
                    append_idle(section, slot, chunk);
                } else {
                    due.post(section, slot, chunk, bells);
                }
            }
            Append::CheckedOut(chunk) => append_here(section, checkout, slot, chunk),
        }
    }
    due.send(section, bells);
}

/// Appends a chunk to a color that is checked out: to the running color's events, or to a kept
/// color, which is given back.
#[inline(never)]
fn append_here(section: &mut Section<'_>, checkout: &mut Checkout, slot: SlotId, chunk: Chunk) {
    if checkout.is_running(slot) {
        return section.append_to_running(slot, checkout.running(), chunk);
    }
    section.give_back(checkout.withdraw(slot));
    append_idle(section, slot, chunk);
}

/// Appends a chunk to a color of this core that is not checked out.
#[inline(never)]
fn append_idle(section: &mut Section<'_>, slot: SlotId, chunk: Chunk) {
    let Append::Done = section.append(slot, chunk, false) else {
        unreachable!("it is here, and in no checkout");
    };
}

/// Checks out the next quantum.
#[inline(never)]
pub(super) fn fill_checkout(checkout: &mut Checkout, section: &mut Section<'_>) {
    checkout.quantum_ns = section.limits.quantum_ns(section.shared);
    let room = checkout.room();
    let room_ns = section.check_out(checkout.quantum_ns, room, |taken| checkout.push(taken));
    // Nothing is kept behind a handler that is known to be long, nor while anything waits, nor by a
    // core that has nothing to run.
    if checkout.begin_turns(room_ns) {
        checkout.give_back_kept(|taken| section.give_back(taken));
    }
    section.count_out(|| checkout.events().saturating_sub(1));
}

/// Takes the core's pokes, those that were left before first, and each time the oldest first: links
/// the colors that have mail, forwards what is not this core's.
pub(super) fn take_mail(section: &mut Section<'_>, bells: &mut Vec<CoreId>) {
    let mut hurried = Vec::new();
    let mut deliver = |section: &mut Section<'_>, slot: SlotId| match section.deliver(slot) {
        Delivery::Done => {}
        Delivery::Hurries => hurried.push(slot),
        Delivery::Elsewhere if fault("poke forwarded to nobody") => {}
        Delivery::Elsewhere => poke::send(section.shared, slot, bells),
    };
    for slot in section.take_deferred() {
        deliver(section, slot);
    }
    for slot in section.take_pokes() {
        deliver(section, slot);
    }
    if !hurried.is_empty() {
        section.grant_wishes(&hurried);
    }
}

/// Most pokes that are sent at once.
const DUE_POKES_MAX: usize = if cfg!(loom) { 2 } else { 32 };

/// Pokes that are due to one other core.
#[derive(Debug)]
struct DuePokes {
    core: CoreId,
    colors: ArrayVec<SlotId, DUE_POKES_MAX>,
}

impl DuePokes {
    /// Posts to another core's color, from the section's core.
    #[inline(never)]
    fn post(
        &mut self,
        section: &Section<'_>,
        slot: SlotId,
        mut chunk: Chunk,
        bells: &mut Vec<CoreId>,
    ) {
        let shared = section.shared;
        let stats = &shared.core(section.core).stats;
        stats.posts_remote.add(chunk.totals().count.into());
        if mail::push(&shared.slots, slot, chunk) {
            let owner = shared.slots.owner(slot);
            if owner != self.core || self.colors.is_full() {
                self.send(section, bells);
                self.core = owner;
            }
            self.colors.push(slot);
        }
    }

    /// Sends what is due, if anything is.
    #[inline(never)]
    fn send(&mut self, section: &Section<'_>, bells: &mut Vec<CoreId>) {
        if self.colors.is_empty() {
            return;
        }
        let shared = section.shared;
        poke::send_all(shared, self.core, &self.colors, bells);
        for &slot in &self.colors {
            let by = Some(section.core);
            notify(shared, shared.slots.owner(slot), Why::Mail { by }, bells);
        }
        self.colors.clear();
    }
}
