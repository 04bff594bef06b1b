//! What a wake-up costs: the time from the ring of a sleeping core's doorbell until that core runs
//! again. It decides what is worth waking somebody for, and so what is *long*: an event behind
//! which nothing is to wait.
//!
//! It depends on the machine, on what its processors do when they sleep, and on who else runs
//! there: from 2 us to 50. So it is measured. A core that rings another notes when, beside the
//! doorbell ([`super::bells`]), and who was woken looks how long ago that is. Wake-ups by threads
//! that are no cores are not measured: a core decides about those by cores.
//!
//! Each core keeps the mean of its own wake-ups, and writes what all read only where that is
//! another time. A wake-up that waited for a processor takes milliseconds, and counts for as much
//! as is believed at most.

use crate::policy::estimate::{differs, nearer};
use crate::policy::numbers::{COARSE_NS, MEAN_SAMPLES, UNKNOWN_NS, WAKE_NS};
use crate::sync::relaxed::{AtomicU64, Ordering};

/// What all cores go by.
#[derive(Debug)]
pub(crate) struct WakeCost {
    ns: AtomicU64,
    is_measured: bool,
}

impl WakeCost {
    /// One that stays as it is.
    pub(crate) fn fixed(ns: u64) -> WakeCost {
        WakeCost {
            ns: AtomicU64::new(ns),
            is_measured: false,
        }
    }

    pub(crate) fn measured() -> WakeCost {
        WakeCost {
            ns: AtomicU64::new(WAKE_NS),
            is_measured: true,
        }
    }

    /// Unless it is measured.
    #[cfg(feature = "record")]
    pub(crate) fn fixed_ns(&self) -> Option<u64> {
        (!self.is_measured).then(|| self.ns())
    }

    #[inline(always)]
    pub(crate) fn ns(&self) -> u64 {
        self.ns.load(Ordering::Relaxed)
    }

    /// A core, which has had wake-ups of this mean, if any, runs again after this time.
    pub(crate) fn record(&self, took_ns: u64, mean_ns: &mut Option<u32>) {
        if !self.is_measured {
            return;
        }
        let known_ns = mean_ns.unwrap_or(self.ns() as u32);
        let took_ns = took_ns.clamp(COARSE_NS.into(), UNKNOWN_NS.into()) as u32;
        let ns = nearer(known_ns, took_ns, MEAN_SAMPLES);
        *mean_ns = Some(ns);
        if differs(self.ns(), ns.into()) {
            self.ns.store(ns.into(), Ordering::Relaxed);
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// What is thought after these wake-ups, of cores in turn.
    fn after(took_us: impl Iterator<Item = u64>, cores: usize) -> u64 {
        let cost = WakeCost::measured();
        let mut means = vec![None; cores];
        took_us
            .enumerate()
            .for_each(|(i, us)| cost.record(us * 1_000, &mut means[i % cores]));
        cost.ns() / 1_000
    }

    #[test]
    fn it_comes_near_what_wake_ups_take() {
        let within = |us: u64, found_us: u64| found_us.abs_diff(us) * 8 <= us + 8;
        for cores in [1, 3] {
            for us in [6, 10, 27, 45] {
                let found_us = after((0..400).map(|_| us), cores);
                assert!(within(us, found_us), "{us} us: {found_us}");
            }
            // One in four waits for a processor.
            let found_us = after((0..400).map(|i| [27, 26, 9_000, 28][i % 4]), cores);
            assert!((24..=40).contains(&found_us), "{found_us}");
        }
    }

    #[test]
    fn what_cannot_be_is_not_believed() {
        assert!(after((0..400).map(|_| 10_000), 1).abs_diff(50) <= 3);
        assert_eq!(after((0..400).map(|_| 0), 1), 5);
    }

    #[test]
    fn what_is_fixed_stays() {
        let cost = WakeCost::fixed(7);
        let mut mean = None;
        (0..400).for_each(|_| cost.record(100_000, &mut mean));
        assert_eq!(cost.ns(), 7);
    }

    #[test]
    fn once_it_is_right_it_is_seldom_written() {
        let cost = WakeCost::measured();
        let mut mean = None;
        for i in 0..1_000 {
            // Near enough, or by turns too short and too long.
            cost.record([10_600, 8_000, 12_000, 10_500][i % 4], &mut mean);
            assert_eq!(cost.ns(), 10_000);
        }
    }
}
