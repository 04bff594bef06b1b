//! Stealing: an idle core takes whole colors, from the nearest core that has something worth it.
//!
//! In order (Mely §III, §IV-B, with libasync-smp's loop around it): victims nearest first; the hint
//! is read plainly; the lock is only tried; the victim's mail is taken, so that work that is
//! visible only as pokes is judged too; then from the highest band that has any, worthy colors
//! until thief and victim have the same, but at most [`ROUND`] in one critical section; the new
//! owner is published; the lock is released. All that was stolen, if it is more than one color, is
//! linked into the thief's core-queue, where others see it, and a quantum of it is checked out; a
//! single color goes straight into the checkout. The cost does not depend on how many events are
//! queued: a color moves with its whole FIFO. What is measured is the cost of a color.
//!
//! A victim is worth a visit if the time-left of its worthy colors is at least the measured steal
//! cost of that distance; or if it is *stuck* and has a color queued or a poke. It is stuck in an
//! event that is long or expected to be, and if it was seen in one turn for longer than a steal
//! costs. With the two-color rule only a poke counts. From a stuck victim without a worthy color
//! half of its stealable colors are taken, or as many as are worth a steal, and at most a round.
//!
//! A victim is a core, and has a *rank* among a thief's victims: 0 is the nearest.

use super::core::Core;
use super::exchange::{fill_checkout, take_mail};
use super::section::Section;
use crate::color::CoreId;
use crate::policy::victim::{self, Temptation};
use crate::shared::idle::{Why, notify};
use crate::shared::queue::color_queue::Taken;
use crate::sync::charge::Due;
use crate::sync::fault;
use arrayvec::ArrayVec;
use mely_topology::Distance;

/// Most colors that are moved in one critical section: a few microseconds, for which the victim may
/// wait.
pub(super) const ROUND: usize = if cfg!(loom) { 2 } else { 32 };

/// Colors that were stolen and are in no list yet.
pub(crate) type Loot = ArrayVec<Taken, ROUND>;

/// When a thief first saw that anything waits for a victim at its present turn.
#[derive(Clone, Copy, Debug)]
struct Sighting {
    turns: u64,
    since_ns: u64,
}

/// A core's search for work.
#[derive(Debug)]
pub(crate) struct Search {
    /// One for each victim.
    sightings: Vec<Option<Sighting>>,
    pub(super) state: Searching,
    /// The last search has seen something.
    tempted: bool,
    /// The victim, by its rank, to take a round from after this quantum.
    pub(super) levelling: Option<usize>,
    /// When the core next compares itself with others, and with which of its victims.
    pub(super) levels_at_ns: u64,
    pub(super) compared: usize,
    /// When the first victim will count as stuck, by the last search.
    pub(crate) stuck_at: Due,
}

impl Search {
    pub(super) fn new(victims: usize) -> Search {
        Search {
            sightings: vec![None; victims],
            state: Searching::No,
            tempted: false,
            levelling: None,
            levels_at_ns: 0,
            compared: 0,
            stuck_at: Due::NEVER,
        }
    }

    /// Another core was woken, which looks for more from now on.
    pub(super) fn pass_on(&mut self) {
        if self.state == Searching::Risen {
            self.state = Searching::No;
        }
    }

    pub(super) fn is_counted(&self) -> bool {
        self.state == Searching::Counted
    }
}

/// Whether a core has to look for more work once it has something to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Searching {
    No,
    /// It has slept, or was about to, and has run nothing since. Others may have counted on it to
    /// search, but mail of its own may come first.
    Risen,
    /// It is one of those that [`crate::shared::idle::searchers`] counts.
    Counted,
}

impl Core {
    /// Tries to steal; true if the checkout now holds colors.
    pub(crate) fn steal(&mut self) -> bool {
        if !self.shared.policy.stealing.enabled
            || self.search.sightings.is_empty()
            || !self.begin_search()
        {
            return false;
        }
        let mut loot = Loot::new();
        let found = self.search(&mut loot);
        // Also after a search in vain: a poke may have been forwarded to a core that sleeps, or a
        // victim told of what was linked, and this core may be about to sleep itself.
        if found || !fault("doorbells not rung after a search in vain") {
            self.ring();
        }
        // A single color is not worth the lock; of several, others see what is more than a quantum.
        if loot.len() > 1 && !fault("stolen colors not shared out") {
            self.link_loot(loot, true);
        } else {
            loot.into_iter().for_each(|taken| self.checkout.push(taken));
        }
        !self.checkout.is_empty()
    }

    /// Links what was stolen into our own core-queue. `run`: and checks out a quantum. Else it is
    /// for a core that has other colors waiting: what was stolen has waited too, and goes before
    /// them. (Behind them it would wait anew each time that it is stolen, and two busy cores may
    /// take a color from each other again and again.)
    pub(super) fn link_loot(&mut self, loot: Loot, run: bool) {
        let mut section = Section::enter(&self.shared, self.id);
        if run {
            loot.into_iter().for_each(|stolen| section.adopt(stolen));
        } else {
            let last_first = loot.into_iter().rev();
            last_first.for_each(|stolen| section.give_back_first(stolen));
        }
        if !section.queues().deferred.is_empty() {
            take_mail(&mut section, &mut self.bells);
        }
        if run {
            fill_checkout(&mut self.checkout, &mut section);
        }
        let worth = section.write_hint();
        let waits = section.queues().core_queue.len > 0;
        drop(section);
        self.notify(Why::Work(worth));
        if run {
            self.begin_quantum(waits);
        }
    }

    /// Makes this core one of the searching ones, if not too many search.
    fn begin_search(&mut self) -> bool {
        if self.search.is_counted() {
            return true;
        }
        if !self.shared.idle.searchers.begin(self.id, self.working) {
            return false;
        }
        self.search.state = Searching::Counted;
        true
    }

    /// This core was about to sleep, and others may count on it to search. (On a retired one nobody
    /// does.)
    pub(crate) fn begin_awake(&mut self) {
        if self.shared.policy.stealing.enabled && !self.is_retired() {
            self.search.state = Searching::Risen;
        }
    }

    /// This core has found something to run, or will sleep.
    ///
    /// Whoever made work known meanwhile woke nobody, because we were searching; or woke us, and
    /// nobody else. If we go to sleep, the fence and the last look that follow find that work. If
    /// we run something, we look for it, and wake another. While another searches we leave it to
    /// that one: what we know of comes before our fence, and we read the count before it counts
    /// itself out and looks.
    pub(crate) fn end_search(&mut self, found: bool) {
        match std::mem::replace(&mut self.search.state, Searching::No) {
            Searching::No => return,
            Searching::Risen => (),
            Searching::Counted => self.shared.idle.searchers.end(self.id),
        }
        if found && !fault("no look after the last search") {
            // The hints that we may have raised by linking mail come before the look for sleepers.
            self.notify(Why::Searched);
        }
    }

    fn search(&mut self, loot: &mut Loot) -> bool {
        let now_ns = self.clock.now_ns();
        self.search.tempted = false;
        self.search.stuck_at = Due::NEVER;
        if self.shared.policy.stealing.locality {
            let ranks = 0..self.search.sightings.len();
            return ranks
                .into_iter()
                .any(|rank| self.visit(rank, now_ns, 0, loot));
        }
        // The base algorithm's order: the core with the most queued events, then the successive
        // core numbers (Mely §II-B).
        let cores = self.shared.cores.len();
        let events = |core: usize| self.shared.cores[core].hint.events();
        let Some(fullest) = (0..cores).max_by_key(|&core| (events(core), std::cmp::Reverse(core)))
        else {
            return false;
        };
        (0..cores).any(|i| {
            let core = CoreId::of((fullest + i) % cores);
            let mut victims = self.own.victims.iter();
            let rank = victims.position(|&(victim, _)| victim == core);
            rank.is_some_and(|rank| self.visit(rank, now_ns, 0, loot))
        })
    }

    /// Whether the victim of this rank has anything for us, and why.
    fn tempting(&mut self, rank: usize, now_ns: u64) -> Option<Temptation> {
        let shared = &self.shared;
        let (id, distance) = self.own.victims[rank];
        let victim = &shared.core(id);
        let cost_ns = self.own.steal_costs.ns(distance);
        let sighting = &mut self.search.sightings[rank];
        if victim.hint.worth_ns() >= cost_ns {
            return Some(Temptation::Worth);
        }
        let stealable = victim.hint.stealable();
        if !victim::may_be_stuck(&shared.policy, stealable, || victim.pokes.any()) {
            *sighting = None;
            return None;
        }
        let turns = victim.progress.turns();
        let seen = sighting.filter(|seen| seen.turns == turns);
        let since_ns = seen.map_or(now_ns, |seen| seen.since_ns);
        *sighting = Some(Sighting { turns, since_ns });
        let asleep = shared.idle.sleepers.contains(id);
        let patience_ns = victim::patience_ns(cost_ns, asleep, shared.idle.wake_cost.ns());
        let at_ns = since_ns.saturating_add(patience_ns).saturating_add(1);
        self.search.stuck_at.or_at(at_ns);
        let seen_ns = now_ns.saturating_sub(since_ns);
        let stuck = victim::is_stuck(victim.progress.is_long(), seen_ns, patience_ns);
        stuck.then_some(Temptation::Stuck)
    }

    /// Steals from the victim of this rank, if it tempts; this core has `has_ns` worth of its own.
    pub(super) fn visit(&mut self, rank: usize, now_ns: u64, has_ns: u64, loot: &mut Loot) -> bool {
        let Some(why) = self.tempting(rank, now_ns) else {
            return false;
        };
        self.search.tempted = true;
        // Borrowed, not cloned: see `Core::exchange`.
        let (victim, distance) = self.own.victims[rank];
        self.own.stats.steals[distance.index()].tried.add(1);
        let start_ns = self.clock.now_ns();
        let Some(mut section) = Section::try_enter(&self.shared, victim) else {
            return false;
        };
        take_mail(&mut section, &mut self.bells);
        section.hand_over(self.id, why, has_ns, loot);
        // Once more, now that the new owner is published: see `crate::shared::remote::poke`.
        if !loot.is_empty()
            && !fault("second look after a steal skipped")
            && self.shared.core(victim).pokes.any_ordered()
        {
            take_mail(&mut section, &mut self.bells);
        }
        section.write_hint();
        let left = section.queues().core_queue.len;
        drop(section);
        if fault("owner published after the unlock") {
            for taken in loot.iter() {
                self.shared.slots.set_owner(taken.slot, self.id);
            }
        }
        if left > 0 && !fault("nudge forgotten") {
            // We may have linked what it does not know of, and it may be on its way to sleep.
            notify(&self.shared, victim, Why::Linked, &mut self.bells);
        }
        if loot.is_empty() {
            return false;
        }
        if left == 0 {
            // What comes next has not waited yet.
            self.search.sightings[rank] = None;
        }
        let cost_ns = self.clock.now_ns() - start_ns;
        self.record_steal(victim, distance, why, cost_ns, loot);
        self.record_loot(distance, cost_ns, loot);
        true
    }

    /// Counts what was stolen over this distance, and what that cost.
    fn record_loot(&self, distance: Distance, cost_ns: u64, loot: &mut Loot) {
        let own = &self.own;
        let stats = &own.stats.steals[distance.index()];
        own.steal_costs
            .record(distance, cost_ns / loot.len() as u64);
        let stolen_ns = loot.iter().map(|t| u64::from(t.fifo.raw_ns())).sum();
        stats.won.add(1);
        stats.colors.add(loot.len() as u64);
        stats.cost_ns.add(cost_ns);
        own.stats.steal_costs.add(cost_ns);
        stats.stolen_ns.add(stolen_ns);
        for taken in loot {
            own.counts
                .of(taken.fifo.profile())
                .stolen
                .add(taken.fifo.len().into());
        }
    }

    /// Whether this core searches and has seen something that it could not get: others have the
    /// lock, say. It has to look again before it sleeps.
    pub(crate) fn is_tempted(&self) -> bool {
        self.search.is_counted() && self.search.tempted
    }

    /// The last look before sleeping: is there anything, here or at the others, that this core
    /// should not sleep on? Comes after the fence of [`crate::shared::idle`].
    pub(crate) fn anything_to_do(&mut self) -> bool {
        let shared = &self.shared;
        let stale = shared.working.count() != self.working && !fault("sleeps through a change");
        if self.is_called() || self.has_outbox() || stale {
            return true;
        }
        if !shared.policy.stealing.enabled || self.is_retired() {
            return false;
        }
        if shared.idle.searchers.are_enough(self.id, self.working) || fault("look left to nobody") {
            // They look, and the last of them to end looks last: see `end_search`.
            return false;
        }
        let now_ns = self.clock.now_ns();
        (0..self.search.sightings.len()).any(|rank| self.tempting(rank, now_ns).is_some())
    }
}
