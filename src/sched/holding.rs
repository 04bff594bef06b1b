//! Holds as the scheduler sees them: to make and end one, and to ask the gate of a held color
//! ([`crate::gate`]) before an event of it begins. And tasks that wait ([`crate::task`]).

use super::core::Core;
use crate::color::SlotId;
use crate::event::node::{Event, Sort};
use crate::gate::{Admission, Arrival, HeldBy, HoldId, HoldNumber, WaitsAt};
use crate::sync::fault;
use crate::{Color, Cx, Handler};

impl Core {
    /// The color of the event that runs, and its slot.
    fn running_color(&self) -> (SlotId, Color) {
        let slot = self.current.slot.get().expect("inside an event");
        (slot, self.current.color())
    }

    /// Holds the color of the event that runs.
    pub(crate) fn hold(&mut self) -> HoldId {
        let (slot, color) = self.running_color();
        let (number, by) = self.count_hold();
        let (gates, profiles) = (&self.shared.gates, &self.shared.profiles);
        let hold = gates.hold(slot, color, (number, by), profiles);
        self.record_hold(number, false);
        hold
    }

    /// Shares the color of the event that runs with readers.
    pub(crate) fn share(&mut self) -> HoldNumber {
        let (slot, color) = self.running_color();
        let (number, by) = self.count_hold();
        let (gates, profiles) = (&self.shared.gates, &self.shared.profiles);
        gates.share(slot, color, by, profiles);
        self.record_hold(number, true);
        number
    }

    /// A hold counts as an event posted, until [`post_last`](Self::post_last) posts its last.
    fn count_hold(&mut self) -> (HoldNumber, HeldBy) {
        let number = HoldNumber::new(self.id, self.ledger.holds);
        self.ledger.holds += 1;
        self.own.stats.holds.add(1);
        if !fault("hold not counted") {
            self.ledger.posted += 1;
        }
        let by = HeldBy {
            profile: self.current.profile(),
            since_ns: self.timing.seen_ns,
        };
        (number, by)
    }

    /// The event that runs ends this shared hold.
    pub(crate) fn end_shared(&mut self, hold: HoldNumber) {
        let (slot, color) = self.running_color();
        let next = self.shared.gates.end_shared(slot, color);
        self.let_go(next);
        self.record_hold_over(hold);
    }

    /// The event that runs would read. Whether it may, and where it waits otherwise.
    pub(crate) fn may_read(&self) -> (bool, WaitsAt) {
        let (slot, color) = self.running_color();
        self.shared.gates.may_read(slot, color)
    }

    /// The event that runs reads, and would have waited there.
    pub(crate) fn reads(&mut self, place: WaitsAt) {
        let (slot, color) = self.running_color();
        let next = self.shared.gates.reads(slot, color, place);
        self.let_go(next);
    }

    /// Posts a hold's last event, which counts as posted since the hold was made.
    pub(crate) fn post_last<F>(&mut self, handler: Option<&'static Handler>, color: Color, f: F)
    where
        F: FnOnce(&mut Cx) + Send + 'static,
    {
        self.own.stats.holds_ended.add(1);
        let profiles = &self.shared.profiles;
        let (event, times) = self
            .maker
            .make_own(profiles, handler, color, f, Sort::PASSING);
        self.put_counted(color, event, times);
    }

    /// The running color's hold is over, and its last event will not come: it counts as executed.
    #[cfg_attr(loom, allow(dead_code))]
    pub(crate) fn settle_hold(&mut self) {
        self.own.stats.holds_ended.add(1);
        self.own.stats.holds_settled.add(1);
        self.ledger.settled += 1;
    }

    /// A task that this core has polled waits from now on. No queue knows of it: it counts as an
    /// event posted, until it is over.
    pub(crate) fn task_waits(&mut self) {
        self.own.stats.tasks.add(1);
        if !fault("task not counted") {
            self.ledger.posted += 1;
        }
    }

    /// A task that had to wait is over.
    pub(crate) fn task_over(&mut self) {
        self.own.stats.tasks_over.add(1);
        self.ledger.settled += 1;
    }

    /// Whether a color of the running slot has a gate.
    #[inline(always)]
    pub(super) fn is_gated(&self) -> bool {
        let slot = self.current.slot.get();
        slot.is_some_and(|slot| self.shared.gates.any_at(slot))
    }

    /// An ordinary event is about to begin; none if its color's gate keeps it.
    #[inline(never)]
    pub(super) fn admit(&mut self, event: Event) -> Option<Event> {
        let slot = self.current.slot.get()?;
        let color = self.current.color();
        match self.shared.gates.admit(slot, color, event) {
            Admission::Begins(event, next) => {
                self.let_go(next);
                Some(event)
            }
            Admission::PutAside => {
                self.own.stats.put_aside.add(1);
                self.running.forget_begun();
                None
            }
        }
    }

    /// The event that runs came through this hold, and ends it or not.
    pub(crate) fn arrive(&mut self, hold: HoldId, ends: bool) -> Arrival {
        let (slot, color) = self.running_color();
        let (arrival, next) = self.shared.gates.arrive(slot, color, hold, ends);
        self.let_go(next);
        if ends && matches!(arrival, Arrival::Runs) {
            self.record_hold_over(hold.number());
        }
        arrival
    }

    /// Puts the event aside that has just begun: `f` becomes an event that runs later in its stead.
    pub(crate) fn wait<F>(&mut self, handler: Option<&'static Handler>, place: WaitsAt, f: F)
    where
        F: FnOnce(&mut Cx) + Send + 'static,
    {
        self.record_wait();
        let (slot, color) = self.running_color();
        let profiles = &self.shared.profiles;
        let (event, _) = self
            .maker
            .make_own(profiles, handler, color, f, Sort::PASSING);
        self.shared.gates.wait(slot, color, place, event);
        self.running.forget_begun();
    }

    /// A hold was dropped.
    pub(crate) fn hold_dropped(&self) {
        self.own.stats.holds_dropped.add(1);
    }

    /// An event goes before all others of the running color.
    fn let_go(&mut self, event: Option<Event>) {
        if let Some(event) = event {
            self.running.put_first(event);
        }
    }
}
