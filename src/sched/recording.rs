//! What a core records, if its runtime is recorded ([`crate::record`]).

use super::core::Core;
use super::steal::{Loot, Temptation};
use crate::color::CoreId;
use crate::event::node::Event;
use crate::event::tag::{ProfileId, Tag};
use crate::gate::HoldId;
use crate::record;
use crate::{Color, Cx};
use mely_topology::Distance;

impl Core {
    /// An event of a runtime that is recorded begins. Returns what runs it.
    pub(crate) fn begin_recorded(&mut self, color: u64, tag: Tag) -> unsafe fn(Event, &mut Cx) {
        let profile = self.shared.profiles.get(tag.profile());
        if let Some(log) = self.maker.log() {
            let color = Color::of_kind(tag.kind(), color);
            log.begin(
                tag.profile().index(),
                || profile.definition(),
                color,
                tag.cause(),
                profile.wants_timing(),
            );
        }
        profile.vtable.run
    }

    /// It is over.
    pub(crate) fn end_recorded(&mut self, panicked: bool) {
        if let Some(log) = self.maker.log() {
            log.end(panicked);
        }
    }

    /// The core sleeps from now on.
    pub(crate) fn record_park(&mut self) {
        if let Some(log) = self.maker.log() {
            log.park();
        }
    }

    pub(super) fn record_rise(&mut self) {
        if let Some(log) = self.maker.log() {
            log.rise();
        }
    }

    pub(super) fn record_steal(
        &mut self,
        victim: CoreId,
        distance: Distance,
        why: Temptation,
        cost_ns: u64,
        loot: &mut Loot,
    ) {
        let Some(log) = self.maker.log() else { return };
        let stolen = |taken: &mut crate::shared::color_queue::Taken| record::Loot {
            color: taken.fifo.color().expect("what is stolen has events"),
            profile: taken.fifo.profile().index(),
            events: taken.fifo.len().into(),
            left_ns: taken.fifo.raw_ns().into(),
        };
        let loot: Vec<record::Loot> = loot.iter_mut().map(stolen).collect();
        let profiles = &self.shared.profiles;
        let definition = |profile| {
            let profile = ProfileId::new(profile).expect("it is one of an event");
            profiles.get(profile).definition()
        };
        let stuck = why == Temptation::Stuck;
        log.steal(victim.index(), distance, stuck, cost_ns, &loot, definition);
    }

    pub(super) fn record_hold(&mut self, hold: HoldId, shared: bool) {
        if let Some(log) = self.maker.log() {
            log.hold(hold.number(), shared);
        }
    }

    pub(super) fn record_wait(&mut self) {
        if let Some(log) = self.maker.log() {
            log.waits();
        }
    }

    pub(super) fn record_hold_over(&mut self, hold: HoldId) {
        if let Some(log) = self.maker.log() {
            log.hold_over(hold.number());
        }
    }
}
