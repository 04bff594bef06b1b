//! What a core records, if its runtime is recorded ([`crate::record`]), and with the feature
//! `tracing` tells ([`crate::notice`]).

use super::core::{Core, RECORDED};
use super::steal::Loot;
#[cfg(feature = "tracing")]
use crate::Color;
use crate::color::CoreId;
use crate::event::tag::ProfileId;
use crate::gate::HoldNumber;
#[cfg(feature = "tracing")]
use crate::notice::{Notice, What};
use crate::policy::victim::Temptation;
use crate::record;
use mely_topology::Distance;

impl Core {
    /// An event of a runtime that is recorded begins.
    #[cold]
    pub(super) fn begin_recorded(&mut self) {
        let id = self.current.profile();
        let profile = self.shared.profiles.get(id);
        if let Some(log) = self.maker.log() {
            log.begin(
                id.index(),
                || profile.definition(),
                self.current.color(),
                self.current.tag.cause(),
                profile.wants_timing(),
            );
            self.current.at_end |= RECORDED;
        }
    }

    /// It is over, if it has begun.
    #[inline]
    pub(super) fn end_recorded(&mut self, panicked: bool) {
        if self.current.at_end & RECORDED != 0 {
            self.current.at_end &= !RECORDED;
            if let Some(log) = self.maker.log() {
                log.end(panicked);
            }
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
        let stolen = |taken: &mut crate::shared::queue::color_queue::Taken| record::Loot {
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
