//! The time. The scheduler has no clock of its own: it is given one.

use crate::sync::Arc;
use crate::sync::charge::CoreClock;
use crate::sync::relaxed::{AtomicU64, Ordering};
use std::time::Instant;

/// Where a core gets the time from.
#[derive(Clone, Debug)]
pub(crate) enum Clock {
    /// The machine's monotonic clock, in ns since the runtime was built.
    Real(Instant),
    /// A clock that its driver moves: simulation, replay, models.
    #[allow(
        dead_code,
        reason = "the driver of virtual cores and the loom models construct it"
    )]
    Virtual(Arc<AtomicU64>),
    /// That of the virtual core of a machine that asks, or of the run that it belongs to.
    #[allow(dead_code, reason = "who runs the cores of a machine constructs it")]
    Machine(CoreClock),
}

impl Clock {
    #[inline]
    pub(crate) fn now_ns(&self) -> u64 {
        match self {
            Clock::Real(start) => start.elapsed().as_nanos() as u64,
            Clock::Virtual(now) => now.load(Ordering::Relaxed),
            Clock::Machine(clock) => clock.now_ns(),
        }
    }
    /// What reading it takes, in ns, and so what two readings measure too much: the least of a few.
    pub(crate) fn cost_ns(&self) -> u64 {
        let once = || {
            let start_ns = self.now_ns();
            self.now_ns().saturating_sub(start_ns)
        };
        (0..16).map(|_| once()).min().unwrap_or(0)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn reading_a_real_clock_takes_a_while() {
        let began = Instant::now() - Duration::from_secs(1);
        let clock = Clock::Real(began);
        assert!(clock.now_ns() >= 1_000_000_000);
        assert!((1..100_000_000).contains(&clock.cost_ns()));
        assert_eq!(Clock::Virtual(Arc::new(AtomicU64::new(7))).cost_ns(), 0);
    }
}
