//! When nothing is left: the end of a run, decided once and by everybody together.
//!
//! There is no counter of events in flight: it would be a read-modify-write on a shared line for
//! every event. Each core counts for itself the events it posted and the events it executed, and
//! reports both when it has nothing to run. Reports come in *waves*: a wave is complete when every
//! core has reported in it, and then the next begins.
//!
//! **Why two waves.** Let E be the events executed according to one wave and P the events posted
//! according to the next. Between the two waves lies a moment t at which every report of the first
//! was already made and none of the second. Counters only grow, so E is at most what was executed
//! at t, which is at most what was posted at t, which is at most P. If E equals P, all four are
//! equal, and at t nothing was in flight; and with nothing in flight only a foreign thread can
//! post. A running event counts as posted and not as executed, so a core in the middle of a handler
//! keeps the sums apart even if it did not report.
//!
//! **Foreign threads** count their posts in the `gate` word, before they push. The same word has
//! the `CLOSED` flag: set when the end is asked for, or, if a runtime ends by itself, by a
//! compare-and-swap that expects the very count that entered P. A post is counted by a
//! compare-and-swap as well, which expects `CLOSED` to be clear. So either a post comes before, and
//! is counted, and the end is not yet; or it comes after and is refused, with its closure given
//! back. Nothing is accepted and then lost; and a refused post writes nothing, so threads that go
//! on posting after the end was asked for cannot hold it up.

use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use crate::sync::{Mutex, fault, first_look};

const CLOSED: u64 = 1;
const ONE_POST: u64 = 2;

/// How far a runtime is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Runs until asked to stop.
    Running,
    /// Ends as soon as nothing is left.
    Draining,
    /// Nothing runs any more, no post is accepted.
    Closed,
}

/// See the module text.
#[derive(Debug)]
pub(crate) struct Quiesce {
    gate: AtomicU64,
    phase: AtomicU32,
    /// Waves completed: what a reporter checks again before it sleeps.
    wave: AtomicU64,
    waves: Mutex<Waves>,
}

#[derive(Debug)]
struct Waves {
    /// Who has reported in this wave.
    reported: Vec<bool>,
    missing: usize,
    posted: u64,
    executed: u64,
    /// The events executed according to the wave before.
    executed_before: Option<u64>,
}

impl Waves {
    fn begin(&mut self) {
        self.reported.fill(false);
        self.missing = self.reported.len();
        self.posted = 0;
        self.executed = 0;
    }
}

/// What a report led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reported {
    /// The wave is not complete.
    Waiting,
    /// A wave is complete and nothing was decided: every core must be woken to report again.
    NextWave,
    /// Nothing is left: every core must be woken to leave.
    Closed,
}

impl Quiesce {
    pub(crate) fn new(cores: usize) -> Quiesce {
        let mut waves = Waves {
            reported: vec![false; cores],
            missing: 0,
            posted: 0,
            executed: 0,
            executed_before: None,
        };
        waves.begin();
        Quiesce {
            gate: AtomicU64::new(0),
            phase: AtomicU32::new(0),
            wave: AtomicU64::new(0),
            waves: Mutex::new(waves),
        }
    }

    #[inline]
    pub(crate) fn phase(&self) -> Phase {
        match self.phase.load(Ordering::Acquire) {
            0 => Phase::Running,
            1 => Phase::Draining,
            _ => Phase::Closed,
        }
    }

    /// Asks for the end. True for the first who asks. The caller wakes every core.
    ///
    /// From now on foreign posts are refused: a thread that posts for ever must not keep a runtime
    /// from ending.
    pub(crate) fn drain(&self) -> bool {
        let first = self
            .phase
            .compare_exchange(0, 1, Ordering::AcqRel, Ordering::Acquire)
            .is_ok();
        if first {
            self.gate.fetch_or(CLOSED, Ordering::AcqRel);
        }
        first
    }

    /// Ends at once, whatever is left. The caller wakes every core.
    pub(crate) fn force(&self) {
        self.gate.fetch_or(CLOSED, Ordering::AcqRel);
        self.phase.store(2, Ordering::Release);
    }

    /// Whether foreign posts are refused, from now on and for good.
    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        self.gate.load(Ordering::Acquire) & CLOSED != 0
    }

    /// Counts the post of a foreign thread, which is about to push it. False: the runtime is ending
    /// or has ended, and nothing was written.
    #[must_use]
    pub(crate) fn foreign_post(&self) -> bool {
        let mut gate = first_look(|| self.gate.load(Ordering::Relaxed), 0);
        loop {
            if gate & CLOSED != 0 && !fault("gate not checked") {
                return false;
            }
            let counted = gate + ONE_POST;
            match self.gate.compare_exchange_weak(
                gate,
                counted,
                Ordering::AcqRel,
                Ordering::Acquire,
            ) {
                Ok(_) => return true,
                Err(now) => gate = now,
            }
        }
    }

    /// The first event of a run is about to be pushed: by the runtime's owner, whom no request to
    /// stop can refuse.
    pub(crate) fn owner_post(&self) {
        self.gate.fetch_add(ONE_POST, Ordering::AcqRel);
    }

    /// Posts by foreign threads so far.
    pub(crate) fn foreign_posts(&self) -> u64 {
        self.gate.load(Ordering::Acquire) / ONE_POST
    }

    /// Core `core` has nothing to run, nothing under way in its event source, and has posted and
    /// executed this many events since it began.
    pub(crate) fn report(&self, core: u32, posted: u64, executed: u64) -> Reported {
        let mut waves = self.waves.lock().unwrap();
        if self.phase() == Phase::Closed {
            return Reported::Closed;
        }
        if std::mem::replace(&mut waves.reported[core as usize], true) {
            return Reported::Waiting;
        }
        waves.missing -= 1;
        waves.posted += posted;
        waves.executed += executed;
        if waves.missing > 0 {
            return Reported::Waiting;
        }
        let gate = self.gate.load(Ordering::Acquire);
        let posted = waves.posted + gate / ONE_POST;
        let executed = waves.executed;
        let before = waves.executed_before.replace(executed);
        if (before == Some(posted) || fault("one wave") && executed == posted)
            && self
                .gate
                .compare_exchange(gate, gate | CLOSED, Ordering::AcqRel, Ordering::Acquire)
                .is_ok()
            || before == Some(posted) && fault("gate closed without comparing")
        {
            self.phase.store(2, Ordering::Release);
            return Reported::Closed;
        }
        waves.begin();
        self.wave
            .store(self.wave.load(Ordering::Relaxed) + 1, Ordering::Release);
        Reported::NextWave
    }

    /// Waves completed so far.
    pub(crate) fn wave(&self) -> u64 {
        self.wave.load(Ordering::Acquire)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn closes_after_two_equal_waves_only() {
        let quiesce = Quiesce::new(2);
        assert!(!quiesce.is_closed());
        assert!(quiesce.drain());
        assert!(!quiesce.drain());
        assert!(quiesce.is_closed(), "to foreign posts");
        assert_eq!(quiesce.report(0, 3, 3), Reported::Waiting);
        assert_eq!(quiesce.report(0, 3, 3), Reported::Waiting);
        assert_eq!(quiesce.wave(), 0);
        assert_eq!(quiesce.report(1, 1, 1), Reported::NextWave);
        assert_eq!(quiesce.wave(), 1);
        // In the second wave core 1 has posted one more, which nobody has executed.
        assert_eq!(quiesce.report(1, 2, 1), Reported::Waiting);
        assert_eq!(quiesce.report(0, 3, 3), Reported::NextWave);
        assert_eq!(quiesce.report(0, 3, 4), Reported::Waiting);
        assert_eq!(quiesce.report(1, 2, 1), Reported::NextWave);
        assert_eq!(quiesce.report(0, 3, 4), Reported::Waiting);
        assert_eq!(quiesce.wave(), 3);
        assert_eq!(quiesce.report(1, 2, 1), Reported::Closed);
        assert!(!quiesce.foreign_post());
        assert_eq!(quiesce.phase(), Phase::Closed);
    }

    #[test]
    fn whoever_reports_after_a_forced_end_is_told() {
        let quiesce = Quiesce::new(2);
        assert_eq!(quiesce.report(0, 2, 1), Reported::Waiting);
        quiesce.force();
        assert_eq!(quiesce.report(0, 2, 1), Reported::Closed);
        assert_eq!(quiesce.report(1, 0, 0), Reported::Closed);
        assert!(quiesce.is_closed());
    }

    #[test]
    fn a_refused_post_changes_nothing() {
        let quiesce = Quiesce::new(1);
        assert!(quiesce.foreign_post());
        assert!(quiesce.drain());
        let gate = quiesce.gate.load(Ordering::Relaxed);
        assert!(!quiesce.foreign_post());
        assert_eq!(quiesce.gate.load(Ordering::Relaxed), gate);
        assert_eq!(quiesce.foreign_posts(), 1);
    }

    #[test]
    fn a_foreign_post_holds_the_end_up() {
        // A runtime that ends by itself: nobody has asked.
        let quiesce = Quiesce::new(1);
        assert!(quiesce.foreign_post());
        assert_eq!(quiesce.report(0, 0, 0), Reported::NextWave);
        assert_eq!(quiesce.report(0, 0, 0), Reported::NextWave);
        assert_eq!(quiesce.report(0, 0, 1), Reported::NextWave);
        assert_eq!(quiesce.report(0, 0, 1), Reported::Closed);
    }
}
