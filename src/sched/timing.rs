//! Taking the time of events, and what a core does before one that is known or feared to be long.
//!
//! What such an event posts is published at once; see [`crate::policy::row`] for when it is not.

use super::core::{Core, TIMED};
use super::outbox::OUTBOX_MAX;
use crate::ablation::{Rule, without};
use crate::clock::Clock;
use crate::color::CoreId;
use crate::policy::numbers::{EVENT_MIN_NS, SAMPLE_TURNS, UNKNOWN_NS, WATCHED_NS};
use crate::policy::row::Row;
use crate::policy::wake::is_worth_waking;
use crate::random::Random;
use crate::shared::idle::Why;
use crate::sync::fault;

/// What a core knows of the time that its events take.
#[derive(Debug)]
pub(super) struct Timing {
    /// What reading the clock takes, in ns: several times an empty handler.
    pub(super) clock_cost_ns: u64,
    /// Turns until one is timed.
    pub(super) until_sample: u32,
    /// Each event of the turn is timed.
    sampling: bool,
    /// Draws the events that are learned from; see [`crate::event::profile`].
    random: Random,
    /// Quanta, this one included, whose events are all timed.
    pub(super) wary: u32,
    /// A handler of this quantum was [long](crate::shared::idle::wake_cost).
    long: bool,
    /// The last step ran events, none of them long.
    pub(super) ran: bool,
    /// Of a long event that has posted.
    pub(super) row: Option<Row>,
    /// The mean of this core's wake-ups, in ns, if there were any.
    wake_ups: Option<u32>,
    /// The time when the core last read its clock to begin an event, or when it woke up, in ns:
    /// while it is busy, at most one in [`SAMPLE_TURNS`] turns ago.
    pub(super) seen_ns: u64,
    /// It may have been woken to visit an event source, and has not run anything since.
    pub(super) passes_visits_on: bool,
    /// Since when the core is awake, if it is not [busy](crate::shared::idle::vigil) yet, in ns.
    pub(super) fresh_since_ns: Option<u64>,
}

impl Timing {
    pub(super) fn new(clock: &Clock, id: CoreId, busy_at_once: bool) -> Timing {
        Timing {
            clock_cost_ns: clock.cost_ns(),
            until_sample: 1,
            sampling: false,
            random: Random::new(id.index() as u64),
            wary: 0,
            long: false,
            ran: false,
            row: None,
            wake_ups: None,
            seen_ns: 0,
            passes_visits_on: false,
            fresh_since_ns: (!busy_at_once).then_some(0),
        }
    }

    pub(super) fn end_quantum(&mut self) {
        self.ran = !std::mem::take(&mut self.long);
        self.wary = self.wary.saturating_sub(1);
    }

    /// Whether every turn is timed.
    fn is_attentive(&self) -> bool {
        self.wary > 0 || self.fresh_since_ns.is_some()
    }
}

impl Core {
    /// A wait is over: if because another core has rung, this is what a wake-up takes.
    pub(crate) fn record_wake_up(&mut self) {
        if let Some(rung_ns) = self.shared.idle.bells.take_rung_ns(self.id) {
            let took_ns = self.clock.now_ns().saturating_sub(rung_ns);
            let cost = &self.shared.idle.wake_cost;
            cost.record(took_ns, &mut self.timing.wake_ups);
        }
    }

    /// The core has slept. True if another number of cores works than before.
    pub(crate) fn rise(&mut self) -> bool {
        self.record_rise();
        self.begin_awake();
        self.timing.seen_ns = self.clock.now_ns();
        self.timing.passes_visits_on = true;
        if self.shared.idle.vigil.at_once {
            self.become_busy();
        } else {
            self.timing.fresh_since_ns = Some(self.timing.seen_ns);
            self.own.progress.set_fresh(true);
            self.timing.until_sample = 1;
        }
        self.work_with(self.shared.working.count())
    }

    /// There is an event source that it could not visit yet: if it has something to run now, others
    /// are to do that.
    pub(crate) fn may_pass_visits_on(&mut self) {
        self.timing.passes_visits_on = true;
    }

    /// The core has been awake for some time, or has others wait: from now on the watchdog watches
    /// it.
    #[inline(never)]
    pub(crate) fn become_busy(&mut self) {
        self.timing.fresh_since_ns = None;
        self.own.progress.set_fresh(false);
        if self.shared.idle.vigil.begin_busy(&self.own) {
            self.own.stats.wakes.add(1);
            self.shared
                .idle
                .bells
                .ring(self.shared.idle.bells.watchdog());
        }
    }

    /// Begins to time the events of the turn, or no longer does.
    #[cold]
    pub(super) fn sample(&mut self) {
        let timing = &mut self.timing;
        timing.sampling = !timing.sampling || timing.is_attentive();
        timing.until_sample = if timing.sampling { 1 } else { SAMPLE_TURNS - 1 };
        self.own.progress.set_sampled(timing.sampling);
    }

    /// A quantum begins. `waits`: colors are queued behind it.
    #[inline(always)]
    pub(super) fn begin_quantum(&mut self, waits: bool) {
        let waits = waits || self.checkout.turns() > 1;
        if waits && self.timing.fresh_since_ns.is_some() {
            self.become_busy();
        }
    }

    /// Begins to time the event that is about to run, and unless it is a mere sample, makes sure
    /// beforehand that others are not left to wait for it.
    #[inline(never)]
    pub(super) fn begin_timing(&mut self, wanted: bool) {
        // Of a core that is fresh nobody else would find out that an event is long.
        let mut is_watched = self.timing.fresh_since_ns.is_some();
        if wanted {
            let profile = self.shared.profiles.get(self.current.profile());
            let raw_ns = profile.estimate().raw_ns();
            let long = is_worth_waking(raw_ns.into(), self.shared.idle.wake_cost.ns());
            if long {
                self.own.progress.set_long(true);
                self.outbox.hasten(true);
                // What waits is for others to see.
                let looked = !fault("stolen colors not shared out") && self.flush();
                self.look_before_long(looked);
            }
            if raw_ns >= WATCHED_NS {
                self.own.progress.set_very_long(true);
                is_watched = true;
            }
        }
        if is_watched && self.shared.policy.stealing.enabled {
            let passes_on = self.own.progress.is_very_long() || self.timing.passes_visits_on;
            self.timing.passes_visits_on = false;
            self.shared.begin_watched(self.id, passes_on);
        }
        self.timing.seen_ns = self.clock.now_ns();
        self.current.started_ns = self.timing.seen_ns;
        self.current.at_end |= TIMED;
    }

    /// Makes sure that nobody's work is left to wait for the long handler that begins: mail that
    /// came since the exchange, or queued colors. `looked`: a sleeper was looked for just now, and
    /// one is enough.
    fn look_before_long(&mut self, looked: bool) {
        let own = &self.own;
        if self.shared.policy.stealing.enabled
            && !without(Rule::LookBefore)
            && !fault("no look before a long handler")
        {
            // A read-modify-write of the word that pokers push onto: either we see the poke, or the
            // poker's push comes after and makes it see that we are long ([`Why::Mail`]). A fence here
            // would need another in every push.
            let poked = if fault("plain look before a long handler") {
                own.pokes.any()
            } else {
                own.pokes.any_ordered()
            };
            if (poked || own.hint.stealable() > 0) && !looked {
                self.notify(Why::Waits);
            }
        }
    }

    /// Publishes posts of a long event.
    #[inline(never)]
    pub(super) fn publish_long(&mut self) {
        let began_ns = self.clock.now_ns();
        self.flush();
        let now_ns = self.clock.now_ns();
        let profile = self.shared.profiles.get(self.current.profile());
        let row = match &mut self.timing.row {
            Some(row) => {
                row.publish(began_ns, now_ns);
                row
            }
            none => none.insert(Row::begin(now_ns, self.ledger.posted, profile.lone_posts())),
        };
        let may_wait = without(Rule::Row) || row.may_wait(self.ledger.posted);
        self.outbox.hasten(!may_wait);
    }

    #[inline(never)]
    pub(super) fn end_timing(&mut self) {
        let now_ns = self.clock.now_ns();
        let took_ns = now_ns
            .saturating_sub(self.current.started_ns + self.timing.clock_cost_ns)
            .max(EVENT_MIN_NS);
        let profile = self.shared.profiles.get(self.current.profile());
        let due = self.timing.random.below(self.shared.cores.len()) == 0;
        profile.record(took_ns, due);
        if let Some(row) = self.timing.row.take() {
            profile.set_lone_posts(row.end(now_ns, self.ledger.posted, OUTBOX_MAX));
        }
        let stats = &self.own.stats;
        stats.handler_ns_max.max(took_ns);
        let long = is_worth_waking(took_ns, self.shared.idle.wake_cost.ns());
        self.timing.long |= long;
        if self.checkout.has_more_turns() && took_ns > 4 * u64::from(self.checkout.quantum_ns) {
            stats.hostage.add(1);
        }
        self.outbox.hasten(false);
        if self.own.progress.is_long() {
            self.own.progress.set_long(false);
        }
        if self.own.progress.is_very_long() {
            self.own.progress.set_very_long(false);
        }
        self.ring();
        if self
            .timing
            .fresh_since_ns
            .is_some_and(|since_ns| now_ns - since_ns > UNKNOWN_NS.into())
        {
            self.become_busy();
        }
        if long {
            // The next of this color may be as long, and so may what was checked out with it.
            self.flush();
            self.cut();
        }
    }
}
