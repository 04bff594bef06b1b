//! The thread of a generator: of real-time priority, and awake at its time.
//!
//! A thread that sleeps on a virtual processor wakes some ten microseconds late, which is nothing
//! beside a millisecond and much beside a hundred microseconds. So it sleeps until shortly before
//! its time, and spins the rest, within bounds: longer spins would take a processor from the workers.

use std::io;
use std::sync::Once;
use std::time::{Duration, Instant};

/// The longest spin before a request, in ns.
const SPIN_NS_MAX: f64 = 20e3;
/// The most of one processor that all spins together take.
const SPIN_SHARE_MAX: f64 = 0.05;

/// How long to spin before each of requests that are `gap_ns` apart, in ns.
pub fn spin_ns(gap_ns: f64) -> u64 {
    (gap_ns * SPIN_SHARE_MAX).min(SPIN_NS_MAX) as u64
}

/// Gives the calling thread the lowest real-time priority, which is above that of all that have
/// none, and timers without slack. If the system refuses, the thread keeps its priority, and a
/// process prints that once on standard error.
pub fn become_realtime() {
    static TOLD: Once = Once::new();
    if let Err(error) = try_become_realtime() {
        TOLD.call_once(|| {
            eprintln!(
                "no real-time priority ({error}): the generator has to wait for its processor as \
                 others do; CAP_SYS_NICE or a limit RLIMIT_RTPRIO of 1 allows it"
            );
        });
    }
}

fn try_become_realtime() -> io::Result<()> {
    // SAFETY: sets a number of the calling thread.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1) };
    let parameters = libc::sched_param { sched_priority: 1 };
    let policy = libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK;
    // SAFETY: `parameters` is this frame's, and only read.
    match unsafe { libc::sched_setscheduler(0, policy, &raw const parameters) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The time of a run.
#[derive(Clone, Copy, Debug)]
pub struct Clock(Instant);

impl Clock {
    /// Begins now.
    pub fn start() -> Clock {
        Clock(Instant::now())
    }

    /// Since the start.
    pub fn ns(self) -> u64 {
        self.0.elapsed().as_nanos() as u64
    }

    /// Sleeps until `spin_ns` before `at_ns`, and spins the rest.
    pub fn wait_until(self, at_ns: u64, spin_ns: u64) {
        let asleep_ns = at_ns.saturating_sub(self.ns()).saturating_sub(spin_ns);
        if asleep_ns > 0 {
            std::thread::sleep(Duration::from_nanos(asleep_ns));
        }
        while self.ns() < at_ns {
            std::hint::spin_loop();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spins_are_short_and_take_a_bounded_share() {
        assert_eq!(spin_ns(714_000.0), 20_000);
        assert_eq!(spin_ns(100_000.0), 5_000);
    }

    #[test]
    fn a_wait_is_not_too_short() {
        let clock = Clock::start();
        clock.wait_until(2_000_000, 20_000);
        assert!(clock.ns() >= 2_000_000);
    }
}
