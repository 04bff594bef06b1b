//! What the runtime has learned of its handlers, and the annotations that follow from it.

use super::inner::Inner;
use crate::event::profile::{ClosureProfile, LearnedNs};
use crate::topology::Distance;
use std::collections::HashMap;
use std::time::Duration;

/// What a runtime has learned of each handler and of stealing: see
/// [`Poster::profile`](crate::Poster::profile).
///
/// Printed with `{}` it is a table of at most 100 columns, with the annotation that each handler
/// should have.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Profile {
    /// The handlers that ran, those first that took the most time in all. A handler is one row,
    /// whatever closures were posted under it; a closure posted without a handler is one of its
    /// own, by its type, and so are some of the runtime's. (Handlers beyond the first 16,383 of a
    /// program that makes them without end share one.)
    pub handlers: Vec<HandlerProfile>,
    /// Steals, for each distance that occurs between the runtime's cores, the nearest first.
    pub steals: Vec<StealProfile>,
}

/// What is known of one handler.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct HandlerProfile {
    /// The handler's name, or the closure's type.
    pub name: &'static str,
    /// Events run, by core, panicked ones included. Exact for a core that has nothing to run, and
    /// once the runtime has ended; of a busy core, what it ran in its last 16 quanta may be
    /// missing.
    pub events_by_core: Vec<u64>,
    /// Whether closures of its are boxed, since they are larger than 216 bytes or aligned to more
    /// than a word: an allocation for each event.
    pub is_boxed: bool,
    /// Events in colors at the moment they were stolen. A color may hold events of several
    /// handlers: all are counted for the handler of the first one. Those of a color that is stolen
    /// again before they have run are counted again.
    pub events_stolen: u64,
    /// Events that panicked.
    pub panics: u64,
    /// The mean time of the last 256 timed events or so, as a moving average; `None` if no event
    /// was timed yet. A sample of the events is timed, and all of them if they are long. The
    /// average begins at [`annotated_time`](Self::annotated_time), if that is given.
    ///
    /// So that a thread that lost its processor is not taken for a long handler, a run counts for
    /// at most 50 us, or eight times the mean where that is more. The scheduler takes an event for
    /// this long, or for the mean of the last 16 runs if the handler has become slower.
    pub mean: Option<Duration>,
    /// The mean deviation of the last 16 timed events or so, and at least by how much their mean is
    /// off; `None` if no event was timed yet.
    pub deviation: Option<Duration>,
    /// [`Handler::time`](crate::Handler::time), if given.
    pub annotated_time: Option<Duration>,
    /// [`Handler::penalty`](crate::Handler::penalty); 1 if none was given.
    pub annotated_penalty: u32,
}

/// Steals over one distance.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct StealProfile {
    /// Between thief and victim.
    pub distance: Distance,
    /// What stealing a color costs, as a moving average; unless nothing was stolen yet.
    pub steal_cost: Option<Duration>,
    /// Successful steals.
    pub steals: u64,
    /// Time-left of what was stolen, as estimated then.
    pub stolen: Duration,
}

/// What a handler's annotations should be. With `{}` it is what to write after `Handler::new(..)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub(crate) enum Recommendation {
    /// No event was timed yet.
    NotSampled,
    /// What was learned is within a quarter of the annotated time.
    AsAnnotated,
    /// To be annotated so.
    Annotate {
        /// The learned mean, to two digits.
        time: Duration,
        /// As given; 1 if none was.
        penalty: u32,
    },
}

impl HandlerProfile {
    /// Events run on all cores; see [`HandlerProfile::events_by_core`].
    pub fn events(&self) -> u64 {
        self.events_by_core.iter().sum()
    }

    /// The share of its events that were stolen, from 0 to 1: [`HandlerProfile::events_stolen`] of
    /// the events run, and at most all of them.
    pub(crate) fn share_stolen(&self) -> f64 {
        match self.events() {
            0 => 0.0,
            events => (self.events_stolen as f64 / events as f64).min(1.0),
        }
    }

    /// The annotations it should have: of a closure without a handler, those to give it one with.
    pub(crate) fn recommendation(&self) -> Recommendation {
        let Some(mean) = self.mean else {
            return Recommendation::NotSampled;
        };
        match self.annotated_time {
            Some(time) if mean.abs_diff(time) * 4 <= time => Recommendation::AsAnnotated,
            _ => Recommendation::Annotate {
                time: two_digits(mean),
                penalty: self.annotated_penalty,
            },
        }
    }

    /// Time of all its events, as far as is known: what rows are sorted by.
    fn total(&self) -> u128 {
        self.mean.unwrap_or_default().as_nanos() * u128::from(self.events())
    }
}

/// Rounds to two significant digits: more would pretend that a mean is a constant.
fn two_digits(time: Duration) -> Duration {
    let ns = time.as_nanos() as u64;
    let unit = 10u64.pow(ns.max(1).ilog10().saturating_sub(1));
    Duration::from_nanos((ns + unit / 2) / unit * unit)
}

/// The closures of one handler: each with its events and what was learned of them.
#[derive(Default)]
struct Parts(Vec<(u64, LearnedNs)>);

impl Parts {
    /// What an event of any of them takes: the mean and the deviation.
    fn learned(&self) -> Option<[Duration; 2]> {
        // An event that is timed may not be counted yet.
        let weight = |events: u64| u128::from(events.max(1));
        let events: u128 = self.0.iter().map(|&(events, _)| weight(events)).sum();
        if events == 0 {
            return None;
        }
        let average = |of: &dyn Fn(&LearnedNs) -> u32| -> u32 {
            let parts = self.0.iter();
            let sum: u128 = parts
                .map(|(events, its)| weight(*events) * u128::from(of(its)))
                .sum();
            (sum / events) as u32
        };
        let mean_ns = average(&|its| its.long_run_ns);
        // About the common mean, a closure's events deviate by no less than its own mean does.
        let deviation_ns = average(&|its| {
            let off_ns = [its.mean_ns, its.long_run_ns].map(|ns| ns.abs_diff(mean_ns));
            off_ns.into_iter().fold(its.deviation_ns, u32::max)
        });
        Some([mean_ns, deviation_ns].map(|ns| Duration::from_nanos(ns.into())))
    }
}

impl Inner {
    pub(crate) fn profile(&self) -> Profile {
        let mut rows: Vec<(HandlerProfile, Parts)> = Vec::new();
        let mut row_of_handler = HashMap::new();
        for (index, profile) in self.shared.profiles.iter() {
            let row = match profile.handler {
                // Closures each have a row.
                None => rows.len(),
                Some(handler) => *row_of_handler
                    .entry(std::ptr::from_ref(handler))
                    .or_insert(rows.len()),
            };
            if row == rows.len() {
                rows.push((self.row(profile), Parts::default()));
            }
            let (row, parts) = &mut rows[row];
            row.is_boxed |= profile.vtable.is_boxed;
            row.panics += profile.panics();
            let mut events = 0;
            for (sum, core) in row.events_by_core.iter_mut().zip(&self.shared.cores) {
                let count = core.counts.of(index);
                *sum += count.events.get();
                events += count.events.get();
                row.events_stolen += count.stolen.get();
            }
            if let Some(learned) = profile.learned() {
                parts.0.push((events, learned));
            }
        }
        let mut handlers: Vec<HandlerProfile> = rows
            .into_iter()
            .map(|(row, parts)| {
                let learned = parts.learned();
                HandlerProfile {
                    mean: learned.map(|[mean, _]| mean),
                    deviation: learned.map(|[_, deviation]| deviation),
                    ..row
                }
            })
            .filter(|row| row.events() > 0)
            .collect();
        handlers.sort_by_cached_key(|row| std::cmp::Reverse((row.total(), row.events())));
        Profile {
            handlers,
            steals: self.steal_profiles(),
        }
    }

    /// An empty row.
    fn row(&self, profile: &ClosureProfile) -> HandlerProfile {
        HandlerProfile {
            name: profile.name(),
            events_by_core: vec![0; self.shared.cores.len()],
            is_boxed: false,
            events_stolen: 0,
            panics: 0,
            mean: None,
            deviation: None,
            annotated_time: profile.handler.and_then(crate::Handler::annotated_time),
            annotated_penalty: profile.handler.map_or(1, crate::Handler::annotated_penalty),
        }
    }

    fn steal_profiles(&self) -> Vec<StealProfile> {
        let stats = self.stats();
        let of = |(distance, steal_cost)| {
            let all = stats.cores.iter().flat_map(|core| &core.steals);
            let its = all.filter(|steals| steals.distance == distance);
            let (steals, stolen) = its.fold((0, Duration::ZERO), |(won, stolen), steals| {
                (won + steals.won, stolen + steals.stolen)
            });
            StealProfile {
                distance,
                steal_cost: (steals > 0).then_some(steal_cost),
                steals,
                stolen,
            }
        };
        stats.steal_cost.iter().copied().map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ns(ns: u64) -> Duration {
        Duration::from_nanos(ns)
    }

    fn row(annotated_ns: Option<u64>, mean_ns: Option<u64>) -> HandlerProfile {
        HandlerProfile {
            name: "row",
            events_by_core: vec![3, 1],
            is_boxed: false,
            events_stolen: 1,
            panics: 0,
            mean: mean_ns.map(ns),
            deviation: mean_ns.map(|_| ns(0)),
            annotated_time: annotated_ns.map(ns),
            annotated_penalty: 8,
        }
    }

    #[test]
    fn a_quarter_off_is_as_annotated_and_more_is_not() {
        let told = |annotated_ns, mean_ns| row(annotated_ns, mean_ns).recommendation();
        let so = |time_ns| Recommendation::Annotate {
            time: ns(time_ns),
            penalty: 8,
        };
        assert_eq!(told(None, None), Recommendation::NotSampled);
        assert_eq!(told(Some(800), None), Recommendation::NotSampled);
        assert_eq!(told(None, Some(1_234)), so(1_200));
        for mean_ns in [600, 800, 1_000] {
            assert_eq!(told(Some(800), Some(mean_ns)), Recommendation::AsAnnotated);
        }
        assert_eq!(told(Some(800), Some(599)), so(600));
        assert_eq!(told(Some(800), Some(1_001)), so(1_000));
    }

    #[test]
    fn times_are_rounded_to_two_digits() {
        for (exact_ns, rounded_ns) in [(0, 0), (7, 7), (42, 42), (994, 990), (995, 1_000)] {
            assert_eq!(two_digits(ns(exact_ns)), ns(rounded_ns));
        }
        assert_eq!(
            two_digits(ns(u32::MAX.into())),
            Duration::from_millis(4_300)
        );
    }

    #[test]
    fn shares_are_between_none_and_all() {
        let mut row = row(None, None);
        assert_eq!((row.events(), row.share_stolen()), (4, 0.25));
        row.events_stolen = 9;
        assert_eq!(row.share_stolen(), 1.0);
        row.events_by_core = vec![0, 0];
        assert_eq!(row.share_stolen(), 0.0);
    }

    #[test]
    fn closures_of_a_handler_are_weighted_by_their_events() {
        let part = |events, [mean_ns, deviation_ns]: [u32; 2]| {
            let learned = LearnedNs {
                mean_ns,
                long_run_ns: mean_ns,
                deviation_ns,
            };
            (events, learned)
        };
        let learned = |parts: &[_]| Parts(parts.to_vec()).learned();
        let so = |mean_ns, deviation_ns| Some([ns(mean_ns), ns(deviation_ns)]);
        assert_eq!(learned(&[]), None);
        assert_eq!(learned(&[part(0, [70, 5])]), so(70, 5));
        let twice = [9, 100].map(|events| part(events, [70, 5]));
        assert_eq!(learned(&twice), so(70, 5));
        // Three of 100 ns and one of 500.
        let parts = [part(3, [100, 10]), part(1, [500, 10])];
        assert_eq!(learned(&parts), so(200, 150));
    }

    #[test]
    fn the_total_is_the_mean_for_each_event() {
        assert_eq!(row(None, Some(250)).total(), 1_000);
        assert_eq!(row(Some(250), None).total(), 0);
    }
}
