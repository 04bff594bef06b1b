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
//! **Between waves.** If the sums of a complete wave are not equal, something is in flight: an
//! event that some core is about to run, a post that a foreign thread has counted and not pushed
//! yet, or a hold ([`crate::gate`]), which counts as posted until its last event has run. Another
//! wave would find the same, again and again, for as long as a hold is out. So the cores go to
//! sleep, and the next wave begins when one of them reports that it has run something. That is not
//! forgotten: a core reports before it sleeps, and what it reports replaces what it reported
//! before. So if all of them sleep, the sums are true, and what is in flight is yet to make one of
//! them run.
//!
//! **Foreign threads** count their posts in the `outside` word, before they push. The same word has
//! the `STOPPED` flag: set when the end is asked for, or, if a runtime ends by itself, by a
//! compare-and-swap that expects the very count that entered P. A post is counted by a
//! compare-and-swap as well, which expects `STOPPED` to be clear. So either a post comes before,
//! and is counted, and the end is not yet; or it comes after and is refused, with its closure given
//! back. Nothing is accepted and then lost; and a refused post writes nothing, so threads that go
//! on posting after the end was asked for cannot hold it up.
//!
//! **Keep-alives** put the decision off: while one exists, nothing is decided, and what is posted
//! through it is accepted until the `ENDED` flag of that word, which the decision and a forced end
//! set. `keep_alives` counts them. A keep-alive is made in one of three places, and each is safe:
//!
//! - *From another one*, which the decision sees as long as this one is not counted.
//! - *Inside an event.* That event keeps two waves apart until it has ended; then its core reports,
//!   and the report comes before the decision, under the lock.
//! - *From outside*, under the lock of the waves. The decision is made under the same lock, so
//!   either it sees the keep-alive, or whoever makes one sees the decision.
//!
//! The decision reads `outside`, then `keep_alives`, and then compares and swaps `outside`. So if
//! it sees no keep-alive, nothing was posted through one since `outside` was read, or the swap
//! fails; and what was posted before is in P.
//!
//! A wave that is complete while there is a keep-alive cannot decide, and wakes nobody, as above.
//! So whoever drops the last keep-alive sees to it that the cores report again: it counts down,
//! looks at the phase, begins a wave and wakes all. A core that has reported meanwhile and is about
//! to sleep looks at the number of the wave once more.
//!
//! Two fences make sure that the drop and the request to stop do not miss each other. The drop has
//! one between its count and its look at the phase, a report between its look at the phase and its
//! look at `keep_alives`. Whichever fence comes first, either the drop sees that the end was asked
//! for, or the report sees that no keep-alive is left.

use crate::color::CoreId;
use crate::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};
use crate::sync::{Mutex, fault, first_look};

/// Posts from outside are refused.
const STOPPED: u64 = 1;
/// Posts through keep-alives are refused, too: the end was decided, or forced.
const ENDED: u64 = 2;
const ONE_POST: u64 = 4;

/// Until when posts from outside are accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Until {
    /// Until the end is asked for: a poster's.
    Stop,
    /// Until the end is decided: a keep-alive's.
    End,
}

impl Until {
    /// The flag of the word `outside` that refuses them.
    const fn refused_by(self) -> u64 {
        match self {
            Until::Stop => STOPPED,
            Until::End => ENDED,
        }
    }
}

/// How far a runtime is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Runs until asked to stop.
    Running,
    /// Ends as soon as nothing is left.
    Draining,
    /// Nothing runs any more, no post is accepted.
    Over,
}

/// See the module text.
#[derive(Debug)]
pub(crate) struct Quiesce {
    /// What threads have posted that are no cores, times [`ONE_POST`], and the flags.
    outside: AtomicU64,
    /// A [`Phase`].
    phase: AtomicU32,
    /// Keep-alives that exist.
    keep_alives: AtomicU64,
    /// The number of the present wave: what a reporter checks again before it sleeps.
    wave: AtomicU64,
    waves: Mutex<Waves>,
}

#[derive(Debug)]
struct Waves {
    /// What each core has last reported in this wave: events posted, and executed.
    reports: Vec<Option<(u64, u64)>>,
    /// Cores that have not reported in it.
    missing: usize,
    /// The events executed according to the wave before.
    executed_before: Option<u64>,
}

impl Waves {
    fn begin(&mut self) {
        self.reports.fill(None);
        self.missing = self.reports.len();
    }
}

/// What a report led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reported {
    /// The wave is not complete; or it is, and what is in flight will make some core run; or there
    /// is a keep-alive. This core may sleep.
    Waiting,
    /// A new wave begins: every core must be woken to report in it.
    NextWave,
    /// Nothing is left: every core must be woken to leave.
    Over,
}

impl Quiesce {
    pub(crate) fn new(cores: usize) -> Quiesce {
        let mut waves = Waves {
            reports: vec![None; cores],
            missing: 0,
            executed_before: None,
        };
        waves.begin();
        Quiesce {
            outside: AtomicU64::new(0),
            phase: AtomicU32::new(Phase::Running as u32),
            keep_alives: AtomicU64::new(0),
            wave: AtomicU64::new(0),
            waves: Mutex::new(waves),
        }
    }

    #[inline]
    pub(crate) fn phase(&self) -> Phase {
        let phase = self.phase.load(Ordering::Acquire);
        [Phase::Running, Phase::Draining, Phase::Over][phase as usize]
    }

    /// Asks for the end. True for the first who asks. The caller wakes every core.
    ///
    /// From now on foreign posts are refused: a thread that posts for ever must not keep a runtime
    /// from ending.
    pub(crate) fn drain(&self) -> bool {
        let first = self
            .phase
            .compare_exchange(
                Phase::Running as u32,
                Phase::Draining as u32,
                Ordering::AcqRel,
                Ordering::Acquire,
            )
            .is_ok();
        if first {
            self.outside.fetch_or(STOPPED, Ordering::AcqRel);
        }
        first
    }

    /// Ends at once, whatever is left. The caller wakes every core.
    pub(crate) fn force(&self) {
        self.outside.fetch_or(STOPPED | ENDED, Ordering::AcqRel);
        self.phase.store(Phase::Over as u32, Ordering::Release);
    }

    /// Whether such foreign posts are refused, from now on and for good.
    #[inline]
    pub(crate) fn refuses(&self, until: Until) -> bool {
        self.outside.load(Ordering::Acquire) & until.refused_by() != 0
    }

    /// Counts the post of a foreign thread, which is about to push it. False: the runtime is ending
    /// or has ended, and nothing was written.
    #[must_use]
    pub(crate) fn foreign_post(&self, until: Until) -> bool {
        let mut outside = first_look(|| self.outside.load(Ordering::Relaxed), 0);
        loop {
            if outside & until.refused_by() != 0 && !fault("stop not looked at") {
                return false;
            }
            let counted = outside + ONE_POST;
            match self.outside.compare_exchange_weak(
                outside,
                counted,
                Ordering::AcqRel,
                Ordering::Acquire,
            ) {
                Ok(_) => return true,
                Err(now) => outside = now,
            }
        }
    }

    /// An event is about to be pushed that no request to stop can refuse: the first of a run, or
    /// one by somebody who holds up the end meanwhile.
    pub(crate) fn owner_post(&self) {
        self.outside.fetch_add(ONE_POST, Ordering::AcqRel);
    }

    /// Posts by foreign threads so far.
    pub(crate) fn foreign_posts(&self) -> u64 {
        self.outside.load(Ordering::Acquire) / ONE_POST
    }

    /// One more keep-alive, made inside an event or from another one.
    pub(crate) fn keep_alive(&self) {
        self.keep_alives.fetch_add(1, Ordering::Relaxed);
    }

    /// One more keep-alive, made from outside. False: the end was decided before.
    #[must_use]
    pub(crate) fn keep_alive_from_outside(&self) -> bool {
        let lock = (!fault("kept without the lock")).then(|| self.waves.lock().unwrap());
        let decided = self.phase() == Phase::Over;
        if !decided {
            self.keep_alive();
        }
        drop(lock);
        !decided
    }

    /// One keep-alive less. True: the end may have waited for this one, and every core must be
    /// woken to report again.
    #[must_use]
    pub(crate) fn drop_keep_alive(&self, exit_when_idle: bool) -> bool {
        if self.keep_alives.fetch_sub(1, Ordering::AcqRel) > 1 {
            return false;
        }
        if !fault("last keep-alive's fence skipped") {
            fence(Ordering::SeqCst);
        }
        let ends = match self.phase() {
            Phase::Running => exit_when_idle,
            Phase::Draining => true,
            Phase::Over => false,
        };
        if ends && !fault("no new wave after the last keep-alive") {
            let _woken_by_the_caller = self.begin_wave(&mut self.waves.lock().unwrap());
        }
        ends && !fault("nobody woken by the last keep-alive")
    }

    /// Keep-alives that exist.
    pub(crate) fn keep_alives(&self) -> u64 {
        self.keep_alives.load(Ordering::Acquire)
    }

    /// Core `core` has nothing to run, nothing under way in its event source, and has posted and
    /// executed this many events since it began.
    pub(crate) fn report(&self, core: CoreId, posted: u64, executed: u64) -> Reported {
        let mut waves = self.waves.lock().unwrap();
        if self.phase() == Phase::Over {
            return Reported::Over;
        }
        let report = (posted, executed);
        match waves.reports[core.index()].replace(report) {
            None => waves.missing -= 1,
            Some(before) if before == report => return Reported::Waiting,
            // It has run something since.
            Some(_) if waves.missing == 0 && !fault("no wave after what ran") => {
                return self.begin_wave(&mut waves);
            }
            Some(_) => return Reported::Waiting,
        }
        if waves.missing > 0 {
            return Reported::Waiting;
        }
        let sum = |of: fn((u64, u64)) -> u64| waves.reports.iter().flatten().copied().map(of).sum();
        let (posted, executed): (u64, u64) = (sum(|report| report.0), sum(|report| report.1));
        let outside = self.outside.load(Ordering::Acquire);
        let posted = posted + outside / ONE_POST;
        let before = waves.executed_before.replace(executed);
        if !fault("report's fence skipped") {
            fence(Ordering::SeqCst);
        }
        if self.keep_alives() > 0 && !fault("keep-alive not looked at") {
            return Reported::Waiting;
        }
        if (before == Some(posted) || fault("one wave") && executed == posted)
            && self
                .outside
                .compare_exchange(
                    outside,
                    outside | STOPPED | ENDED,
                    Ordering::AcqRel,
                    Ordering::Acquire,
                )
                .is_ok()
            || before == Some(posted) && fault("stopped without comparing")
        {
            self.phase.store(Phase::Over as u32, Ordering::Release);
            return Reported::Over;
        }
        if executed == posted || before == Some(posted) {
            return self.begin_wave(&mut waves);
        }
        Reported::Waiting
    }

    fn begin_wave(&self, waves: &mut Waves) -> Reported {
        waves.begin();
        self.wave
            .store(self.wave.load(Ordering::Relaxed) + 1, Ordering::Release);
        Reported::NextWave
    }

    /// The number of the present wave.
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
        assert!(!quiesce.refuses(Until::Stop));
        assert!(quiesce.drain());
        assert!(!quiesce.drain());
        assert!(quiesce.refuses(Until::Stop), "to foreign posts");
        assert_eq!(quiesce.report(CoreId::of(0), 3, 3), Reported::Waiting);
        assert_eq!(quiesce.report(CoreId::of(0), 3, 3), Reported::Waiting);
        assert_eq!(quiesce.wave(), 0);
        assert_eq!(quiesce.report(CoreId::of(1), 1, 1), Reported::NextWave);
        assert_eq!(quiesce.wave(), 1);
        // In the second wave core 1 has posted one more, which nobody has executed.
        assert_eq!(quiesce.report(CoreId::of(1), 2, 1), Reported::Waiting);
        assert_eq!(quiesce.report(CoreId::of(0), 3, 3), Reported::Waiting);
        assert_eq!(
            quiesce.wave(),
            1,
            "nobody is woken as long as it is in flight"
        );
        assert_eq!(quiesce.report(CoreId::of(1), 2, 1), Reported::Waiting);
        assert_eq!(quiesce.report(CoreId::of(0), 3, 4), Reported::NextWave);
        assert_eq!(quiesce.report(CoreId::of(0), 3, 4), Reported::Waiting);
        assert_eq!(quiesce.report(CoreId::of(1), 2, 1), Reported::NextWave);
        assert_eq!(quiesce.report(CoreId::of(0), 3, 4), Reported::Waiting);
        assert_eq!(quiesce.wave(), 3);
        assert_eq!(quiesce.report(CoreId::of(1), 2, 1), Reported::Over);
        assert!(!quiesce.foreign_post(Until::Stop));
        assert_eq!(quiesce.phase(), Phase::Over);
    }

    #[test]
    fn whoever_reports_after_a_forced_end_is_told() {
        let quiesce = Quiesce::new(2);
        assert_eq!(quiesce.report(CoreId::of(0), 2, 1), Reported::Waiting);
        quiesce.force();
        assert_eq!(quiesce.report(CoreId::of(0), 2, 1), Reported::Over);
        assert_eq!(quiesce.report(CoreId::of(1), 0, 0), Reported::Over);
        assert!(quiesce.refuses(Until::Stop));
    }

    #[test]
    fn a_refused_post_changes_nothing() {
        let quiesce = Quiesce::new(1);
        assert!(quiesce.foreign_post(Until::Stop));
        assert!(quiesce.drain());
        let outside = quiesce.outside.load(Ordering::Relaxed);
        assert!(!quiesce.foreign_post(Until::Stop));
        assert_eq!(quiesce.outside.load(Ordering::Relaxed), outside);
        assert_eq!(quiesce.foreign_posts(), 1);
    }

    #[test]
    fn a_foreign_post_holds_the_end_up() {
        // A runtime that ends by itself: nobody has asked.
        let quiesce = Quiesce::new(1);
        assert!(quiesce.foreign_post(Until::Stop));
        assert_eq!(quiesce.report(CoreId::of(0), 0, 0), Reported::Waiting);
        assert_eq!(quiesce.report(CoreId::of(0), 0, 0), Reported::Waiting);
        assert_eq!(quiesce.report(CoreId::of(0), 0, 1), Reported::NextWave);
        assert_eq!(quiesce.report(CoreId::of(0), 0, 1), Reported::NextWave);
        assert_eq!(quiesce.report(CoreId::of(0), 0, 1), Reported::Over);
    }

    #[test]
    fn what_a_core_runs_after_its_report_counts_in_the_same_wave() {
        let quiesce = Quiesce::new(2);
        assert_eq!(quiesce.report(CoreId::of(0), 1, 0), Reported::Waiting);
        assert_eq!(quiesce.report(CoreId::of(0), 1, 1), Reported::Waiting);
        assert_eq!(quiesce.report(CoreId::of(1), 0, 0), Reported::NextWave);
        assert_eq!(quiesce.report(CoreId::of(0), 1, 1), Reported::Waiting);
        assert_eq!(quiesce.report(CoreId::of(1), 0, 0), Reported::Over);
    }

    #[test]
    fn a_keep_alive_puts_the_end_off_and_wakes_nobody() {
        let quiesce = Quiesce::new(2);
        assert!(quiesce.keep_alive_from_outside());
        assert!(quiesce.drain());
        assert!(quiesce.foreign_post(Until::End));
        assert!(!quiesce.foreign_post(Until::Stop));
        for _ in 0..3 {
            assert_eq!(quiesce.report(CoreId::of(0), 0, 1), Reported::Waiting);
            assert_eq!(quiesce.report(CoreId::of(1), 0, 0), Reported::Waiting);
            assert_eq!(quiesce.wave(), 0);
        }
        quiesce.keep_alive();
        assert!(!quiesce.drop_keep_alive(false), "another one is left");
        assert_eq!(quiesce.keep_alives(), 1);
        assert!(quiesce.drop_keep_alive(false));
        assert_eq!(quiesce.wave(), 1);
        assert_eq!(quiesce.report(CoreId::of(0), 0, 1), Reported::Waiting);
        assert_eq!(quiesce.report(CoreId::of(1), 0, 0), Reported::Over);
        assert!(!quiesce.foreign_post(Until::End));
        assert!(!quiesce.keep_alive_from_outside());
        assert_eq!(quiesce.keep_alives(), 0);
    }

    #[test]
    fn the_last_keep_alive_wakes_only_where_the_end_may_wait_for_it() {
        let quiesce = Quiesce::new(1);
        for (exits, wakes) in [(false, false), (true, true)] {
            quiesce.keep_alive();
            assert_eq!(quiesce.drop_keep_alive(exits), wakes);
        }
        quiesce.keep_alive();
        quiesce.force();
        assert!(!quiesce.foreign_post(Until::End));
        assert!(!quiesce.drop_keep_alive(true), "nobody is there any more");
    }
}
