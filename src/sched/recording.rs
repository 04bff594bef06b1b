//! What a core records, if its runtime is recorded ([`crate::record`]), and with the feature
//! `tracing` tells ([`crate::notice`]).

use super::core::Core;
use super::steal::Loot;
use crate::color::CoreId;
use crate::event::node::Event;
use crate::event::tag::{ProfileId, Tag};
use crate::gate::HoldNumber;
#[cfg(feature = "tracing")]
use crate::notice::{Notice, What};
use crate::policy::victim::Temptation;
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
        #[cfg(feature = "tracing")]
        {
            self.parked_at_ns = Some(self.clock.now_ns());
        }
    }

    pub(super) fn record_rise(&mut self) {
        if let Some(log) = self.maker.log() {
            log.rise();
        }
        #[cfg(feature = "tracing")]
        if let Some(since_ns) = self.parked_at_ns.take() {
            let slept_ns = self.clock.now_ns().saturating_sub(since_ns);
            self.tell(None, What::Slept { slept_ns });
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
        #[cfg(feature = "tracing")]
        self.tell_steal(victim, distance, why, cost_ns, loot);
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

    pub(super) fn record_hold(&mut self, hold: HoldNumber, shared: bool) {
        if let Some(log) = self.maker.log() {
            log.hold(hold.get(), shared);
        }
        #[cfg(feature = "tracing")]
        {
            let hold = hold.get();
            self.tell(Some(self.current.color()), What::Held { hold, shared });
        }
    }

    pub(super) fn record_wait(&mut self) {
        if let Some(log) = self.maker.log() {
            log.waits();
        }
    }

    pub(super) fn record_hold_over(&mut self, hold: HoldNumber) {
        if let Some(log) = self.maker.log() {
            log.hold_over(hold.get());
        }
        #[cfg(feature = "tracing")]
        {
            let hold = hold.get();
            self.tell(Some(self.current.color()), What::HoldOver { hold });
        }
    }
}

#[cfg(feature = "tracing")]
impl Core {
    /// Notes down what is to be told of the color, by the handler that runs.
    fn tell(&mut self, color: Option<Color>, what: What) {
        if what.is_wanted() {
            let profile = self.shared.profiles.get(self.current.profile());
            self.notices.note(Notice {
                core: self.id.index(),
                handler: profile.name(),
                color,
                what,
            });
        }
    }

    /// A post to this color was refused, because of this limit.
    #[cold]
    pub(crate) fn tell_refused(&mut self, color: Color, limit: &'static str) {
        self.tell(Some(color), What::Refused { limit });
    }

    fn tell_steal(
        &mut self,
        victim: CoreId,
        distance: Distance,
        why: Temptation,
        cost_ns: u64,
        loot: &mut Loot,
    ) {
        let what = What::Stole {
            victim: victim.index(),
            distance,
            stuck: why == Temptation::Stuck,
            cost_ns,
            colors: loot.len(),
            events: loot.iter().map(|taken| u64::from(taken.fifo.len())).sum(),
        };
        if let Some(first) = loot.first_mut().filter(|_| what.is_wanted()) {
            let profile = self.shared.profiles.get(first.fifo.profile());
            self.notices.note(Notice {
                core: self.id.index(),
                handler: profile.name(),
                color: first.fifo.color(),
                what,
            });
        }
    }
}
