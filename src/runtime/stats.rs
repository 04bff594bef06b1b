//! A snapshot of what the runtime has done.

use super::inner::Inner;
use crate::sched::stats::Counts;
use crate::topology::Distance;
use std::time::Duration;

/// A snapshot of a runtime's counters. Each is read on its own while the cores go on, so sums over
/// cores may be off by what happened meanwhile.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Stats {
    /// A core each.
    pub cores: Vec<CoreStats>,
    /// The measured cost of a steal for each distance that occurs on this machine, as a moving
    /// average.
    pub steal_cost: Vec<(Distance, Duration)>,
    /// Posts by threads that are not cores of the runtime.
    pub posts_foreign: u64,
    /// Bytes of event memory ever allocated: events are recycled, so this is a high-water mark.
    pub event_bytes: usize,
}

/// What one core has done.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct CoreStats {
    /// Events executed.
    pub events: u64,
    /// Events posted to colors of this core or of its own running color.
    pub posts_local: u64,
    /// Events posted to colors that other cores owned at that moment.
    pub posts_remote: u64,
    /// Times the core took its lock to return, publish and check out.
    pub quanta: u64,
    /// Colors waiting in the core-queue now.
    pub colors_queued: u64,
    /// Their events, those of control colors apart.
    pub events_queued: u64,
    /// Steals by distance; distances without a try are left out.
    pub steals: Vec<StealStats>,
    /// Times the core went to sleep.
    pub parks: u64,
    /// Doorbells this core rang to wake others.
    pub wakes: u64,
    /// The longest run of a handler that was timed. Runs are sampled; those of long handlers are
    /// all timed.
    pub handler_max: Duration,
    /// Times a handler that was taken for short ran for more than four steal costs while other
    /// colors were checked out behind it.
    pub hostages: u64,
    /// Handlers that panicked.
    pub panics: u64,
    /// The processor the core's thread is pinned to, if it is.
    pub cpu: Option<u32>,
    steal_costs: Counts,
}

impl CoreStats {
    /// The median cost of this core's successful steals, to within a fifth.
    pub fn steal_cost_median(&self) -> Option<Duration> {
        self.steal_costs.median_ns().map(Duration::from_nanos)
    }

    /// Time-left of all that this core has stolen.
    pub fn stolen(&self) -> Duration {
        self.steals.iter().map(|steals| steals.stolen).sum()
    }
}

/// Steals over one distance.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct StealStats {
    /// Between thief and victim.
    pub distance: Distance,
    /// Visits to a victim whose hint was tempting.
    pub tried: u64,
    /// Visits that took something.
    pub won: u64,
    /// Colors taken.
    pub colors: u64,
    /// Time spent on the visits that took something.
    pub cost: Duration,
    /// Time-left of the stolen colors as estimated when they were stolen.
    pub stolen: Duration,
}

impl Stats {
    /// Events executed, over all cores.
    pub fn events(&self) -> u64 {
        self.cores.iter().map(|core| core.events).sum()
    }

    /// The median cost of a successful steal over all cores, to within a fifth.
    pub fn steal_cost_median(&self) -> Option<Duration> {
        let mut all = Counts::default();
        self.cores
            .iter()
            .for_each(|core| all.add(&core.steal_costs));
        all.median_ns().map(Duration::from_nanos)
    }

    /// Successful steals, over all cores and distances.
    pub fn steals(&self) -> u64 {
        self.cores
            .iter()
            .flat_map(|core| &core.steals)
            .map(|steals| steals.won)
            .sum()
    }
}

impl Inner {
    pub(crate) fn stats(&self) -> Stats {
        let shared = &self.shared;
        let mut distances: Vec<Distance> = shared
            .cores
            .iter()
            .flat_map(|core| &core.victims)
            .map(|&(_, d)| d)
            .collect();
        distances.sort();
        distances.dedup();
        Stats {
            cores: (0..shared.cores.len())
                .map(|core| self.core_stats(core))
                .collect(),
            steal_cost: distances
                .into_iter()
                .map(|d| (d, Duration::from_nanos(shared.steal_cost_ns(d))))
                .collect(),
            posts_foreign: shared.quiesce.foreign_posts(),
            event_bytes: shared.depot.bytes(),
        }
    }

    fn core_stats(&self, number: usize) -> CoreStats {
        let core = &self.shared.cores[number];
        let stats = &core.stats;
        let mut steal_costs = Counts::default();
        stats.steal_costs.sum_into(&mut steal_costs);
        let steals = Distance::ALL.into_iter().filter_map(|distance| {
            let steals = &stats.steals[distance.index()];
            (steals.tried.get() > 0).then(|| StealStats {
                distance,
                tried: steals.tried.get(),
                won: steals.won.get(),
                colors: steals.colors.get(),
                cost: Duration::from_nanos(steals.cost_ns.get()),
                stolen: Duration::from_nanos(steals.stolen_ns.get()),
            })
        });
        CoreStats {
            events: stats.events.get(),
            posts_local: stats.posts.get().saturating_sub(stats.posts_remote.get()),
            posts_remote: stats.posts_remote.get(),
            quanta: stats.quanta.get(),
            colors_queued: core.hint.queued().into(),
            events_queued: core.hint.events(),
            steals: steals.collect(),
            parks: stats.parks.get(),
            wakes: stats.wakes.get(),
            handler_max: Duration::from_nanos(stats.handler_ns_max.get()),
            hostages: stats.hostage.get(),
            panics: stats.panics.get(),
            cpu: self.config.pins.as_ref().map(|pins| pins[number]),
            steal_costs,
        }
    }
}
