//! The time in a recording.

#[cfg(feature = "sim")]
use crate::clock::Clock;
use crate::sync::charge::FreeClock;
use std::sync::OnceLock;

/// ns since the recording began.
#[derive(Clone, Debug)]
pub(crate) enum Time {
    /// By the processor's counter where it has one to go by: reading that takes a third of what the
    /// system's clock does. With its count at the beginning.
    Real(quanta::Clock, u64),
    /// By a simulation's clock.
    #[cfg(feature = "sim")]
    Virtual(Clock),
    /// By the clocks of a described machine's cores.
    #[allow(dead_code, reason = "who runs the cores of a machine constructs it")]
    Machine(FreeClock),
}

impl Time {
    /// Begins now. The first of a process takes up to 200 ms, to find out how fast the processor
    /// counts.
    pub(super) fn begin() -> Time {
        static CLOCK: OnceLock<quanta::Clock> = OnceLock::new();
        let clock = CLOCK.get_or_init(quanta::Clock::new).clone();
        let began = clock.raw();
        Time::Real(clock, began)
    }

    #[inline]
    pub(super) fn now_ns(&self) -> u64 {
        match self {
            Time::Real(clock, began) => clock.delta_as_nanos(*began, clock.raw()),
            #[cfg(feature = "sim")]
            Time::Virtual(clock) => clock.now_ns(),
            Time::Machine(clock) => clock.now_ns(),
        }
    }
}
