//! A core's counters: written by its thread alone, or under its lock, and read by anyone at any
//! time.

use crate::sync::relaxed::Counter;
use mely_topology::Distance;

/// The counters of one core; what each means is documented on
/// [`CoreStats`](crate::metrics::CoreStats).
#[derive(Debug, Default)]
pub(crate) struct CoreCounters {
    pub(crate) events: Counter,
    /// All posts, as of the last exchange.
    pub(crate) posts: Counter,
    pub(crate) posts_remote: Counter,
    /// Colors taken over from cores that slept.
    pub(crate) taken_over: Counter,
    pub(crate) quanta: Counter,
    /// Looks at the event source.
    pub(crate) looks: Counter,
    pub(crate) steals: [StealCounters; Distance::COUNT],
    pub(crate) parks: Counter,
    pub(crate) wakes: Counter,
    pub(crate) handler_ns_max: Counter,
    pub(crate) hostage: Counter,
    pub(crate) panics: Counter,
    pub(crate) holds: Counter,
    /// Holds whose last event this core has posted.
    pub(crate) holds_ended: Counter,
    /// Those that count as executed, because a deadline has ended them.
    pub(crate) holds_settled: Counter,
    pub(crate) holds_dropped: Counter,
    pub(crate) put_aside: Counter,
    /// Wishes for the next turn, granted and not. Written under the core's lock.
    pub(crate) hurries: Counter,
    pub(crate) hurries_refused: Counter,
    /// Of colors with a bound.
    pub(crate) shed: Counter,
    pub(crate) refused: Counter,
    /// Tasks that had to wait, from then until they are over: each counts as an event meanwhile.
    pub(crate) tasks: Counter,
    pub(crate) tasks_over: Counter,
    /// What successful steals cost.
    pub(crate) steal_costs: Histogram,
}

/// Buckets of a [`Histogram`]: four an octave, from 4 ns to 4 s.
const BUCKETS: usize = 128;

/// Counts by size, to within a fifth.
#[derive(Debug)]
pub(crate) struct Histogram([Counter; BUCKETS]);

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram(std::array::from_fn(|_| Counter::default()))
    }
}

impl Histogram {
    pub(crate) fn add(&self, ns: u64) {
        let ns = ns.max(4);
        let octave = ns.ilog2();
        let quarter = (ns >> (octave - 2)) & 3;
        let bucket = (octave * 4 + quarter as u32) as usize;
        self.0[bucket.min(BUCKETS - 1)].add(1);
    }

    /// Adds this one's counts to `sums`.
    pub(crate) fn sum_into(&self, sums: &mut HistogramSum) {
        for (sum, counter) in sums.0.iter_mut().zip(&self.0) {
            *sum += counter.get();
        }
    }
}

/// A snapshot of histograms.
#[derive(Clone)]
pub(crate) struct HistogramSum([u64; BUCKETS]);

impl Default for HistogramSum {
    fn default() -> HistogramSum {
        HistogramSum([0; BUCKETS])
    }
}

impl HistogramSum {
    /// The middle of the bucket of the median, in ns.
    pub(crate) fn median_ns(&self) -> Option<u64> {
        let total: u64 = self.0.iter().sum();
        let mut before = 0;
        let bucket = self.0.iter().position(|count| {
            before += count;
            total > 0 && before * 2 >= total
        })?;
        let (octave, quarter) = (bucket as u32 / 4, bucket as u64 % 4);
        Some(((4 + quarter) * 2 + 1) << octave >> 3)
    }
}

/// Steals over one distance.
#[derive(Debug, Default)]
pub(crate) struct StealCounters {
    pub(crate) tried: Counter,
    pub(crate) won: Counter,
    pub(crate) colors: Counter,
    pub(crate) cost_ns: Counter,
    pub(crate) stolen_ns: Counter,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_right_to_within_a_fifth() {
        for ns in [5u64, 100, 333, 1_000, 12_345, 3_000_000] {
            let histogram = Histogram::default();
            histogram.add(1);
            (0..9).for_each(|_| histogram.add(ns));
            histogram.add(1 << 40);
            let mut counts = HistogramSum::default();
            histogram.sum_into(&mut counts);
            let median = counts.median_ns().unwrap();
            assert!(median.abs_diff(ns) * 5 <= ns, "{median} for {ns}");
        }
        assert_eq!(HistogramSum::default().median_ns(), None);
    }

    /// Of an even number the smaller one of the two in the middle.
    #[test]
    fn counts_of_several_cores_are_summed() {
        let mut sum = HistogramSum::default();
        let mut add = |ns: &[u64]| {
            let histogram = Histogram::default();
            ns.iter().for_each(|&ns| histogram.add(ns));
            histogram.sum_into(&mut sum);
            sum.median_ns().unwrap().ilog10()
        };
        assert_eq!(add(&[1_000, 10, 10]), 1);
        assert_eq!(add(&[1_000, 1_000, 10]), 1);
        assert!(add(&[1_000]) > 1);
    }
}
