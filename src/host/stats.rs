//! A snapshot of what the runtime has done.

use super::inner::Inner;
use crate::Color;
use crate::policy::numbers::STEAL_NS;
#[cfg(feature = "record")]
use crate::record::RecordingStats;
use crate::sched::depth::{Depth, deepest};
use crate::shared::CoreShared;
use crate::shared::load::stats::HistogramSum;
use crate::sync::Arc;
use crate::sync::relaxed::Ordering;
use crate::topology::Distance;
use std::time::Duration;

/// A snapshot of a runtime's counters. Each is read on its own while the cores go on, so sums over
/// cores may be off by what happened meanwhile.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Stats {
    /// A core each.
    pub cores: Vec<CoreStats>,
    /// How many of them work: the first ones; see
    /// [`Poster::set_working_cores`](crate::Poster::set_working_cores).
    pub working_cores: usize,
    /// The measured cost of a steal for each distance that occurs on this machine: the mean of the
    /// cores' moving averages, each counting by the steals that the core has made; before the first
    /// steal over a distance, what is assumed (600 ns).
    pub steal_cost: Vec<(Distance, Duration)>,
    /// The median cost of a successful steal over all cores, to within a fifth.
    pub steal_cost_median: Option<Duration>,
    /// What a wake-up is taken to cost: measured, or what
    /// [`Builder::wake_cost`](crate::Builder::wake_cost) says.
    pub wake_cost: Duration,
    /// Posts by threads that are not cores of the runtime.
    pub posts_foreign: u64,
    /// Events accepted and not run yet, wherever they wait: what
    /// [`Builder::events_max`](crate::Builder::events_max) limits. Exact between quanta; of what a
    /// running handler has posted since it began some may be missing, and what has run since then
    /// may be counted.
    pub events_waiting: u64,
    /// Events run whose closures were boxed, since they are larger than 216 bytes or aligned to
    /// more than a word: an allocation each. [`Profile`](crate::metrics::Profile) names their
    /// handlers. Counted as
    /// [`HandlerProfile::events_by_core`](crate::metrics::HandlerProfile::events_by_core).
    pub events_boxed: u64,
    /// Tasks that wait to be woken, or for the event that polls them again; see
    /// [`Cx::spawn`](crate::Cx::spawn). Exact between quanta.
    pub tasks: u64,
    /// Events of bounded colors that were shed: the sum of all
    /// [`Bounded::shed`](crate::state::Bounded::shed).
    pub events_shed: u64,
    /// Calls that found no room in a bounded color, and did not wait for it or not long enough: the
    /// sum of all [`Bounded::refused`](crate::state::Bounded::refused).
    pub events_refused: u64,
    /// Blocking work; see [`Cx::try_blocking`](crate::Cx::try_blocking).
    pub blocking: BlockingStats,
    /// How far the recording is, if the run is recorded
    /// ([`Builder::record`](crate::Builder::record)).
    #[cfg(feature = "record")]
    pub recording: Option<RecordingStats>,
    /// Bytes of event memory ever allocated: events are recycled, so this is a high-water mark.
    pub event_bytes: usize,
}

/// What has become of blocking work; see [`Cx::try_blocking`](crate::Cx::try_blocking).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct BlockingStats {
    /// Work that has begun.
    pub started: u64,
    /// Work that runs now.
    pub running: u64,
    /// Work that waits for a thread now.
    pub queued: u64,
    /// The most that has waited at a time. What is on its way to a free thread is in it.
    pub queued_max: u64,
    /// Work that was given back: the queue was full, or the system refused the first thread.
    pub refused: u64,
    /// Work that was canceled before it began.
    pub canceled: u64,
    /// Threads there are now.
    pub threads: u64,
    /// The most there were at a time.
    pub threads_max: u64,
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
    /// Colors that this core took over from cores that slept, because it posted to them.
    pub colors_taken_over: u64,
    /// Times the core took its lock to return, publish and check out.
    pub quanta: u64,
    /// Colors waiting in the core-queue now.
    pub colors_queued: u64,
    /// Their events, those of control colors apart. Events of a color that runs are not among them,
    /// nor what other cores have posted to it meanwhile: see [`Stats::events_waiting`] and
    /// [`Poster::deepest_colors`](crate::Poster::deepest_colors).
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
    /// Events that panicked; by handler in
    /// [`HandlerProfile::panics`](crate::metrics::HandlerProfile::panics).
    pub panics: u64,
    /// Holds made on this core ([`Cx::hold`](crate::Cx::hold)).
    pub holds: u64,
    /// Holds that were dropped, instead of resumed: what follows of that ran on this core.
    pub holds_dropped: u64,
    /// Times an event was put aside because its color was held.
    pub events_put_aside: u64,
    /// Colors of this core that were given the next turn on request
    /// ([`Cx::hurry`](crate::Cx::hurry)).
    pub hurries: u64,
    /// Such requests that were not granted, because there had been too many before.
    pub hurries_refused: u64,
    /// The processor that the core's thread is pinned to. None before the run.
    pub cpu: Option<u32>,
    /// Why the core's thread could not be pinned: the system refuses it, say, or the processor has
    /// gone offline. It runs unpinned; see [`Builder::pin`](crate::Builder::pin).
    pub pin_refused: Option<String>,
    /// The median cost of this core's successful steals, to within a fifth.
    pub steal_cost_median: Option<Duration>,
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

/// How many events wait in a color; see [`Poster::deepest_colors`](crate::Poster::deepest_colors).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ColorDepth {
    /// The color of one of the events. None for events that a core has taken to run, and nothing
    /// was posted to them since, unless the color is a small value.
    pub color: Option<Color>,
    /// The core that has the color.
    pub core: usize,
    /// Events that wait in it, and in other colors that share its slot: queued, mailed by other
    /// cores, or taken by the core that is running the color. What a handler posts to its own color
    /// counts once it has returned.
    pub events: u64,
    /// A core has taken the color out of its queues: to run it, soon or now, or to steal it.
    pub running: bool,
}

impl Stats {
    /// Events executed, over all cores.
    pub fn events(&self) -> u64 {
        self.cores.iter().map(|core| core.events).sum()
    }

    /// Events that panicked, over all cores.
    pub fn panics(&self) -> u64 {
        self.cores.iter().map(|core| core.panics).sum()
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

/// The median cost of these cores' successful steals.
fn median(cores: &[Arc<CoreShared>]) -> Option<Duration> {
    let mut sum = HistogramSum::default();
    for core in cores {
        core.stats.steal_costs.sum_into(&mut sum);
    }
    sum.median_ns().map(Duration::from_nanos)
}

impl Inner {
    pub(crate) fn deepest(&self, most: usize) -> Vec<ColorDepth> {
        let map = &self.shared.slots.map;
        let told = |depth: Depth| ColorDepth {
            color: depth.color.or_else(|| map.only_color(depth.slot)),
            core: depth.core.index(),
            events: depth.events,
            running: depth.running,
        };
        deepest(&self.shared, most).into_iter().map(told).collect()
    }

    /// What steals over this distance cost: the mean of what cores have measured, each counting by
    /// the steals that it has made.
    fn steal_cost_ns(&self, distance: Distance) -> u64 {
        let won = |core: &CoreShared| core.stats.steals[distance.index()].won.get();
        let cores = || self.shared.cores.iter();
        let all: u64 = cores().map(|core| won(core)).sum();
        let sum_ns: u64 = cores()
            .map(|core| won(core) * core.steal_costs.ns(distance))
            .sum();
        sum_ns.checked_div(all).unwrap_or(STEAL_NS.into())
    }

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
                .map(|d| (d, Duration::from_nanos(self.steal_cost_ns(d))))
                .collect(),
            steal_cost_median: median(&shared.cores),
            working_cores: shared.working.count() as usize,
            wake_cost: Duration::from_nanos(shared.idle.wake_cost.ns()),
            posts_foreign: self.quiesce.foreign_posts(),
            events_waiting: (self.events_left().saturating_sub(self.tasks_waiting()))
                .max(shared.depot.in_use_min()),
            tasks: self.tasks_waiting(),
            events_boxed: self.events_boxed(),
            events_shed: self.sum(|of| of.shed.get()),
            events_refused: self.sum(|of| of.refused.get())
                + self.refused_outside.load(Ordering::Relaxed),
            #[cfg(not(loom))]
            blocking: self.pool.stats(),
            #[cfg(loom)]
            blocking: BlockingStats::default(),
            #[cfg(feature = "record")]
            recording: shared.recorder.as_ref().map(|recorder| recorder.stats()),
            event_bytes: shared.depot.bytes(),
        }
    }

    fn events_boxed(&self) -> u64 {
        let profiles = self.shared.profiles.iter();
        let boxed = profiles.filter(|(_, profile)| profile.vtable.is_boxed);
        let cores = &self.shared.cores;
        let events = |(id, _)| -> u64 {
            let counts = cores.iter().map(|core| core.counts.of(id).events.get());
            counts.sum()
        };
        boxed.map(events).sum()
    }

    /// The processor that a core's thread is pinned to, or why it is not. None if that was not
    /// tried.
    #[cfg(not(loom))]
    fn pinned(&self, number: usize) -> Option<Result<u32, String>> {
        let outcome = self.outcome.lock().unwrap();
        let mut pinned = outcome.pinned.iter();
        let (_, pinned) = pinned.find(|(core, _)| *core == number)?;
        Some(pinned.clone())
    }

    /// A model has no processors.
    #[cfg(loom)]
    fn pinned(&self, _number: usize) -> Option<Result<u32, String>> {
        None
    }

    fn core_stats(&self, number: usize) -> CoreStats {
        let core = &self.shared.cores[number];
        let stats = &core.stats;
        let (cpu, pin_refused) = match self.pinned(number) {
            Some(Ok(cpu)) => (Some(cpu), None),
            Some(Err(why)) => (None, Some(why)),
            None => (None, None),
        };
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
            posts_local: (stats.posts.get())
                .saturating_sub(stats.posts_remote.get() + stats.tasks.get()),
            posts_remote: stats.posts_remote.get(),
            colors_taken_over: stats.taken_over.get(),
            quanta: stats.quanta.get(),
            colors_queued: core.hint.queued().into(),
            events_queued: core.hint.events(),
            steals: steals.collect(),
            parks: stats.parks.get(),
            wakes: stats.wakes.get(),
            handler_max: Duration::from_nanos(stats.handler_ns_max.get()),
            hostages: stats.hostage.get(),
            panics: stats.panics.get(),
            holds: stats.holds.get(),
            holds_dropped: stats.holds_dropped.get(),
            events_put_aside: stats.put_aside.get(),
            hurries: stats.hurries.get(),
            hurries_refused: stats.hurries_refused.get(),
            cpu,
            pin_refused,
            steal_cost_median: median(std::slice::from_ref(core)),
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::Post;
    use crate::Runtime;
    use crate::topology::Topology;

    /// Neither every color slot nor every bucket.
    #[test]
    fn what_is_printed_can_be_read() {
        let builder = || Runtime::builder().cores(1);
        let runtime = builder().build().unwrap();
        assert_eq!(format!("{runtime:?}"), "Runtime { cores: 1, .. }");
        let inner = &runtime.inner;
        assert_eq!(format!("{inner:?}"), "Inner { cores: 1, .. }");
        let unique = format!("{:?}", crate::host::cx::UniqueColor::issue(inner, 0));
        assert!(unique.len() < 80, "{unique}");
        let core = &runtime.poster().stats().cores[0];
        let text = format!("{core:?}");
        assert!(text.contains("steal_cost_median: None"), "{text}");
        #[cfg(feature = "sim")]
        assert_eq!(
            format!("{:?}", builder().simulate(7).unwrap()),
            "Simulation { cores: 1, seed: 7, steps: 0, .. }"
        );
    }

    #[test]
    fn before_a_run_there_is_what_was_posted_and_nothing_else() {
        let builder = Runtime::builder().cores(4);
        let builder = builder.topology(Topology::flat(2).unwrap());
        let runtime = builder.pin(false).build().unwrap();
        let observer = runtime.poster();
        for color in 0..5 {
            let posted = runtime.poster().try_post(Color::from(color), |_cx| ());
            assert!(posted.is_ok());
        }
        let stats = observer.stats();
        assert_eq!((stats.posts_foreign, stats.events_waiting), (5, 5));
        assert_eq!(stats.events(), 0);
        assert!(stats.cores.iter().all(|core| core.steals.is_empty()));
        assert_eq!(stats.steal_cost_median, None);
        // Of the same processor, and of the other: each distance once, the nearest first.
        let distances: Vec<_> = stats
            .steal_cost
            .iter()
            .map(|&(distance, _)| distance)
            .collect();
        assert_eq!(distances.len(), 2);
        assert_eq!(distances[0], Distance::SharedL1);
        assert!(distances.is_sorted());
    }
}
