//! When nothing is left: the end of a run, decided once and by everybody together.
//!
//! There is no counter of events in flight: it would be a read-modify-write on a shared line for
//! every event. Each core counts for itself the events it posted and the events it executed. It
//! *rests* when it has nothing to run and nothing under way in its event source. Then it reports
//! what both have grown by, and counts itself as one that rests. Before it runs anything again it
//! counts itself out. What is reported and counted is on one line for each [`GROUP`] of cores. Who
//! is the last of its group to rest looks whether all rest. Of those that are last at the same time
//! at least one sees the others, since each fences between its count and its look. Who sees that
//! all rest *decides*.
//!
//! **To decide**, it (1) adds up the events executed according to the reports, E; (2) reads the
//! word of posts from outside; (3) looks again whether all rest; (4) adds up the events posted
//! according to the reports and that word, P. If E equals P and the word has not changed, nothing
//! is left.
//!
//! **Why that is enough.** Who posts an event has counted itself out before; who executes it
//! reports later. So whoever has read a report of its execution sees that the poster has counted
//! itself out, and, if it rests again, its new report: P counts the post of each event that E
//! counts. If the two are equal, it counts no other. Now suppose that an event is left. It was not
//! posted outside, for P counts that. So it was posted inside another event, which E does not
//! count: with the report of that one's execution P would count the post. So that other one was not
//! posted outside either, and so on without end.
//!
//! **What event sources post** is posted inside no event. Who has an operation under way does not
//! rest. When the end is asked for, each source posts once more, to tell connections: the core
//! *follows*. So it is looked whether all cores follow, before the second look who rests: each
//! rests after that, and has reported what it posted. An event that asked for the end, and that E
//! counts, has changed the phase before. (What comes from
//! outside in a simulation is counted as keep-alives are. What a subscriber of `tracing` posts from
//! a core that runs no event may be lost at the end.)
//!
//! **If something is left** when all rest, it is an event that some core is about to be woken for,
//! a post that a foreign thread has counted and not pushed yet, or a hold ([`crate::gate`]), which
//! counts as posted until its last event has run. Each will make a core run, and when that core
//! rests it looks again. Until then the cores sleep.
//!
//! **Stages.** A run that was asked to stop, and has or had connections, ends in stages
//! ([`super::stage`]). The phase is that of the stage, and goes forward only. Each core *follows*:
//! when it sees a stage, it tells its event source, which may post, and counts that it has
//! ([`Quiesce::follows`]). Whether nothing is left is decided in each stage, by the same four steps
//! as above; before the last it does not end the run but begins the next stage. The stage that is
//! decided upon is read after E, and compared again under the lock of the decision: of two cores
//! that see at once that nothing is left, one ends the stage, and the other looks anew, at the next
//! stage. That one is not over before all cores have followed into it, so no event is overlooked
//! that a source posts at its beginning. In the stage close a core rests though it has sends under
//! way, and its source may post at any time. An event of that kind may be left when the stage ends,
//! and runs in the next one. There a core with a send under way does not rest.
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
//! - *From another one*, by one more in the same word: who does not see the new one sees the old.
//! - *Inside an event.* As long as that event is left nothing is decided; then its core reports,
//!   and who reads that report sees the keep-alive.
//! - *From outside*, under a lock. The decision is made under the same lock, so either it sees the
//!   keep-alive, or whoever makes one sees the decision.
//!
//! The decision reads `outside`, then, under the lock, `keep_alives`, and then compares and swaps
//! `outside`. If that has changed it begins anew. So if it sees no keep-alive, nothing was posted
//! through one since `outside` was read, or the swap fails; and what was posted before is in P.
//!
//! While there is a keep-alive nobody decides. So whoever drops the last one counts down, looks at
//! the phase, and then whether all rest, and if they do, decides.
//!
//! Two fences make sure that this one and a core that begins to rest do not miss each other, nor
//! this one and the request to stop. The drop has one between its count and its looks, at the phase
//! and at who rests; a core that completes a group has one between its own look at the phase and
//! its count on one side, and its look at `keep_alives` on the other. Whichever fence comes first,
//! either the drop sees that the core rests and the end was asked for, or the core sees that no
//! keep-alive is left.

use super::stage::Stage;
use crate::color::CoreId;
use crate::shared::idle::core_set::GROUP;
use crate::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};
use crate::sync::{Mutex, fault, first_look};
use crossbeam_utils::CachePadded;

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
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Phase {
    /// Runs until asked to stop.
    Running,
    /// The stages of the end.
    Receiving,
    Draining,
    Closing,
    Flushing,
    /// Nothing runs any more, no post is accepted.
    Over,
}

impl Phase {
    const ALL: [Phase; 6] = [
        Phase::Running,
        Phase::Receiving,
        Phase::Draining,
        Phase::Closing,
        Phase::Flushing,
        Phase::Over,
    ];

    /// The stage, of a run that was asked to stop and is not over.
    pub(crate) fn stage(self) -> Option<Stage> {
        let before = (self as usize).checked_sub(1)?;
        Stage::ALL.get(before).copied()
    }
}

/// What a look at a run that may be over has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "cores are to be woken"]
pub(crate) enum Decided {
    /// Something is left.
    Nothing,
    /// A stage is over and the next one has begun: every core must be woken to follow.
    Stage,
    /// The run is over, and every core must be woken to leave.
    Over,
}

/// See the module text.
#[derive(Debug)]
pub(crate) struct Quiesce {
    /// What threads have posted that are no cores, times [`ONE_POST`], and the flags.
    outside: AtomicU64,
    /// A [`Phase`].
    phase: AtomicU32,
    /// There was a connection, or a listener: the end has more than one stage.
    has_stages: AtomicBool,
    /// Cores that have not yet received all that had arrived when the end was asked for.
    receiving: AtomicU32,
    /// Keep-alives that exist.
    keep_alives: AtomicU64,
    pub(crate) groups: Box<[CachePadded<Group>]>,
    /// Who decides, and who makes a keep-alive from outside.
    deciding: Mutex<()>,
}

/// Cores that share a line.
#[derive(Debug)]
pub(crate) struct Group {
    members: u64,
    /// As many of them rest.
    resting: AtomicU64,
    /// How many stages of the end they have followed into, all together: their event sources know
    /// of those.
    followed: AtomicU64,
    /// Events, by what they have reported.
    posted: AtomicU64,
    executed: AtomicU64,
}

impl Group {
    fn rests(&self) -> bool {
        self.resting.load(Ordering::Acquire) == self.members
    }

    fn follows(&self, phase: Phase) -> bool {
        let stages = phase.stage().map_or(0, |stage| stage as u64 + 1);
        self.followed.load(Ordering::Acquire) >= self.members * stages
    }
}

impl Quiesce {
    pub(crate) fn new(cores: usize) -> Quiesce {
        let group = |first: usize| {
            CachePadded::new(Group {
                members: (cores - first).min(GROUP) as u64,
                resting: AtomicU64::new(0),
                followed: AtomicU64::new(0),
                posted: AtomicU64::new(0),
                executed: AtomicU64::new(0),
            })
        };
        Quiesce {
            outside: AtomicU64::new(0),
            phase: AtomicU32::new(Phase::Running as u32),
            has_stages: AtomicBool::new(false),
            receiving: AtomicU32::new(cores as u32),
            keep_alives: AtomicU64::new(0),
            groups: (0..cores).step_by(GROUP).map(group).collect(),
            deciding: Mutex::new(()),
        }
    }

    #[inline]
    pub(crate) fn phase(&self) -> Phase {
        let phase = self.phase.load(Ordering::Acquire);
        Phase::ALL[phase as usize]
    }

    /// From now on the end has all its stages. Called before a connection is used, or a listener.
    pub(crate) fn has_connections(&self) {
        if !self.has_stages() {
            self.has_stages.store(true, Ordering::Release);
        }
    }

    pub(crate) fn has_stages(&self) -> bool {
        self.has_stages.load(Ordering::Acquire)
    }

    /// Asks for the end. True for the first who asks. The caller wakes every core.
    ///
    /// From now on foreign posts are refused: a thread that posts for ever must not keep a runtime
    /// from ending.
    pub(crate) fn drain(&self) -> bool {
        let stage = match self.has_stages() {
            true => Phase::Receiving,
            false => Phase::Draining,
        };
        let first = self.moves(Phase::Running, stage);
        if first {
            self.outside.fetch_or(STOPPED, Ordering::AcqRel);
        }
        first
    }

    fn moves(&self, from: Phase, to: Phase) -> bool {
        let (success, failure) = (Ordering::AcqRel, Ordering::Acquire);
        let moved = self
            .phase
            .compare_exchange(from as u32, to as u32, success, failure);
        moved.is_ok()
    }

    /// Ends a stage whose limit has passed, unless it is over. True: the next one has begun, and
    /// the caller wakes every core to follow.
    #[must_use]
    pub(crate) fn end_stage(&self, stage: Phase) -> bool {
        let _deciding = self.deciding.lock().unwrap();
        let next = self.after(stage);
        next != Phase::Over && self.moves(stage, next)
    }

    /// One core more has received all that had arrived when the end was asked for. True: it was the
    /// last one, and the caller wakes every core.
    #[must_use]
    pub(crate) fn received(&self) -> bool {
        let is_last = self.receiving.fetch_sub(1, Ordering::AcqRel) == 1;
        is_last && self.end_stage(Phase::Receiving)
    }

    /// The phase that follows on one in which nothing is left.
    fn after(&self, phase: Phase) -> Phase {
        match phase {
            Phase::Receiving => Phase::Draining,
            Phase::Draining if self.has_stages() => Phase::Closing,
            Phase::Closing => Phase::Flushing,
            Phase::Running | Phase::Draining | Phase::Flushing | Phase::Over => Phase::Over,
        }
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
        let lock = (!fault("kept without the lock")).then(|| self.deciding.lock().unwrap());
        let decided = self.phase() == Phase::Over;
        if !decided {
            self.keep_alive();
        }
        drop(lock);
        !decided
    }

    /// One keep-alive less.
    pub(crate) fn drop_keep_alive(&self, exit_when_idle: bool) -> Decided {
        if self.keep_alives.fetch_sub(1, Ordering::AcqRel) > 1 {
            return Decided::Nothing;
        }
        if !fault("last keep-alive's fence skipped") {
            fence(Ordering::SeqCst);
        }
        let ends = match self.phase() {
            Phase::Running => exit_when_idle,
            Phase::Over => false,
            _ => true,
        };
        if !ends || fault("last keep-alive decides nothing") {
            return Decided::Nothing;
        }
        self.decide_if_all_rest()
    }

    /// Keep-alives that exist.
    pub(crate) fn keep_alives(&self) -> u64 {
        self.keep_alives.load(Ordering::Acquire)
    }

    /// Core `core` has nothing to run, nothing under way in its event source, and has posted and
    /// executed this many events since it reported last: it rests, until it
    /// [runs](Self::end_rest) something.
    pub(crate) fn rest(&self, core: CoreId, posted: u64, executed: u64) -> Decided {
        let group = self.group(core);
        group.posted.fetch_add(posted, Ordering::Relaxed);
        group.executed.fetch_add(executed, Ordering::Release);
        let resting = group.resting.fetch_add(1, Ordering::AcqRel) + 1;
        debug_assert!(resting <= group.members || cfg!(loom), "it rests already");
        if resting < group.members {
            return Decided::Nothing;
        }
        if !fault("resting core's fence skipped") {
            fence(Ordering::SeqCst);
        }
        self.decide_if_all_rest()
    }

    /// A core that rests may run something again.
    pub(crate) fn end_rest(&self, core: CoreId) {
        if !fault("rests while it runs") {
            self.group(core).resting.fetch_sub(1, Ordering::AcqRel);
        }
    }

    /// A stage of the end has begun, and the event source of a core knows of that. Once for each
    /// stage up to that of the phase, and core, which does not rest.
    pub(crate) fn follows(&self, core: CoreId) {
        self.group(core).followed.fetch_add(1, Ordering::AcqRel);
    }

    fn group(&self, core: CoreId) -> &Group {
        &self.groups[core.index() / GROUP]
    }

    /// Decides, if all rest. Where something is left, or there is a keep-alive, this only looks: in
    /// a program that goes on one event after another, each core that hands the next one on is the
    /// last to rest.
    fn decide_if_all_rest(&self) -> Decided {
        loop {
            if self.phase() == Phase::Over {
                return Decided::Over;
            }
            if !self.all(Group::rests) {
                return Decided::Nothing;
            }
            let executed = self.sum(|group| &group.executed);
            let outside = self.outside.load(Ordering::Acquire);
            let phase = self.phase();
            if !self.all(|group| group.follows(phase)) && !fault("rests undrained") {
                return Decided::Nothing;
            }
            if !self.all(Group::rests) && !fault("one look at who rests") {
                return Decided::Nothing;
            }
            let posted = self.sum(|group| &group.posted);
            if executed != posted + outside / ONE_POST || self.is_kept() {
                return Decided::Nothing;
            }
            if let Some(decided) = self.decide(phase, outside) {
                return decided;
            }
        }
    }

    /// Whether all rest, as of now: for reports.
    pub(crate) fn all_rest(&self) -> bool {
        self.all(Group::rests)
    }

    fn is_kept(&self) -> bool {
        self.keep_alives() > 0 && !fault("keep-alive not looked at")
    }

    /// Decides, if there is no keep-alive: nothing is left if this is still the phase, and the word
    /// of posts from outside. None: it is not.
    fn decide(&self, phase: Phase, outside: u64) -> Option<Decided> {
        let _deciding = self.deciding.lock().unwrap();
        let now = self.phase();
        if now == Phase::Over {
            return Some(Decided::Over);
        }
        if self.is_kept() {
            return Some(Decided::Nothing);
        }
        let phase = if fault("stage ended twice") {
            now
        } else {
            phase
        };
        if now != phase {
            return None;
        }
        let next = self.after(phase);
        if next != Phase::Over {
            let is_same = self.outside.load(Ordering::Acquire) == outside;
            // Or it was forced.
            let begins = is_same && self.moves(phase, next);
            return begins.then_some(Decided::Stage);
        }
        let ended = outside | STOPPED | ENDED;
        let (success, failure) = (Ordering::AcqRel, Ordering::Acquire);
        let swapped = self
            .outside
            .compare_exchange(outside, ended, success, failure);
        if swapped.is_err() && !fault("stopped without comparing") {
            return None;
        }
        self.phase.store(Phase::Over as u32, Ordering::Release);
        Some(Decided::Over)
    }

    fn all(&self, are: impl Fn(&Group) -> bool) -> bool {
        self.groups.iter().all(|group| are(group))
    }

    fn sum(&self, of: fn(&Group) -> &AtomicU64) -> u64 {
        let groups = self.groups.iter();
        groups.map(|group| of(group).load(Ordering::Acquire)).sum()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn rest(quiesce: &Quiesce, core: usize, posted: u64, executed: u64) -> bool {
        quiesce.rest(CoreId::of(core), posted, executed) == Decided::Over
    }

    fn drop_keep_alive(quiesce: &Quiesce, exit_when_idle: bool) -> bool {
        quiesce.drop_keep_alive(exit_when_idle) == Decided::Over
    }

    /// The event source of a core knows of the end, which has one stage.
    fn follows(quiesce: &Quiesce, core: usize) {
        for _stage in [Stage::Receive, Stage::Drain] {
            quiesce.follows(CoreId::of(core));
        }
    }

    /// Asks for the end, which the event source of each core knows of at once.
    fn drain(quiesce: &Quiesce, cores: usize) -> bool {
        let first = quiesce.drain();
        if first {
            (0..cores).for_each(|core| follows(quiesce, core));
        }
        first
    }

    fn leave(quiesce: &Quiesce, core: usize) {
        quiesce.end_rest(CoreId::of(core));
    }

    #[test]
    fn the_last_to_rest_decides_if_all_that_was_posted_has_run() {
        let quiesce = Quiesce::new(40);
        assert!(!quiesce.refuses(Until::Stop));
        assert!(drain(&quiesce, 40));
        assert!(!drain(&quiesce, 40));
        assert!(quiesce.refuses(Until::Stop), "to foreign posts");
        for core in 1..40 {
            assert!(!rest(&quiesce, core, 0, 0), "core 0 does not rest");
        }
        assert!(!rest(&quiesce, 0, 3, 2), "one has not run");
        leave(&quiesce, 39);
        // What it has run it has not reported yet.
        leave(&quiesce, 0);
        assert!(!rest(&quiesce, 0, 0, 0));
        assert!(rest(&quiesce, 39, 0, 1));
        assert_eq!(quiesce.phase(), Phase::Over);
        assert!(!quiesce.foreign_post(Until::Stop));
        leave(&quiesce, 0);
        assert!(rest(&quiesce, 0, 0, 0), "whoever rests after that is told");
    }

    #[test]
    fn an_end_that_was_asked_for_waits_for_all_to_drain() {
        let quiesce = Quiesce::new(2);
        quiesce.owner_post();
        // It rests since before that.
        assert!(!rest(&quiesce, 1, 0, 0));
        assert!(quiesce.drain());
        follows(&quiesce, 0);
        assert!(!rest(&quiesce, 0, 0, 1));
        leave(&quiesce, 1);
        follows(&quiesce, 1);
        assert!(rest(&quiesce, 1, 0, 0));
    }

    #[test]
    fn whoever_rests_after_a_forced_end_is_told() {
        let quiesce = Quiesce::new(2);
        assert!(!rest(&quiesce, 0, 2, 1));
        quiesce.force();
        assert!(rest(&quiesce, 1, 0, 0));
        leave(&quiesce, 0);
        assert!(rest(&quiesce, 0, 0, 0));
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
        assert!(!rest(&quiesce, 0, 0, 0));
        leave(&quiesce, 0);
        assert!(rest(&quiesce, 0, 0, 1));
    }

    #[test]
    fn a_keep_alive_puts_the_end_off_and_who_drops_the_last_one_decides() {
        let quiesce = Quiesce::new(2);
        assert!(quiesce.keep_alive_from_outside());
        assert!(drain(&quiesce, 2));
        assert!(quiesce.foreign_post(Until::End));
        assert!(!quiesce.foreign_post(Until::Stop));
        assert!(!rest(&quiesce, 0, 0, 1));
        assert!(!rest(&quiesce, 1, 0, 0));
        quiesce.keep_alive();
        assert!(!drop_keep_alive(&quiesce, false), "another one is left");
        assert_eq!(quiesce.keep_alives(), 1);
        assert!(drop_keep_alive(&quiesce, false));
        assert!(!quiesce.foreign_post(Until::End));
        assert!(!quiesce.keep_alive_from_outside());
        assert_eq!(quiesce.keep_alives(), 0);
    }

    #[test]
    fn who_drops_the_last_keep_alive_leaves_the_end_to_a_core_that_works() {
        let quiesce = Quiesce::new(2);
        assert!(drain(&quiesce, 2));
        quiesce.keep_alive();
        assert!(!rest(&quiesce, 0, 1, 1));
        assert!(!drop_keep_alive(&quiesce, false));
        assert!(rest(&quiesce, 1, 0, 0));
    }

    #[test]
    fn the_last_keep_alive_ends_only_what_waits_for_its_end() {
        let quiesce = Quiesce::new(1);
        assert!(quiesce.keep_alive_from_outside());
        assert!(!rest(&quiesce, 0, 0, 0));
        assert!(!drop_keep_alive(&quiesce, false));
        assert_eq!(quiesce.phase(), Phase::Running);
        quiesce.keep_alive();
        assert!(drop_keep_alive(&quiesce, true));
        quiesce.keep_alive();
        assert!(!drop_keep_alive(&quiesce, true), "nobody is there any more");
    }

    #[test]
    fn each_stage_is_over_when_nothing_is_left_and_all_have_followed() {
        let quiesce = Quiesce::new(2);
        let follows = |core| quiesce.follows(CoreId::of(core));
        let rests = |core, posted, executed| quiesce.rest(CoreId::of(core), posted, executed);
        quiesce.has_connections();
        assert!(quiesce.drain());
        assert_eq!(quiesce.phase(), Phase::Receiving);
        [0, 1].into_iter().for_each(follows);
        assert!(!quiesce.received());
        assert!(quiesce.received(), "the last one");
        [0, 1].into_iter().for_each(follows);
        assert_eq!(rests(0, 1, 0), Decided::Nothing);
        assert_eq!(rests(1, 0, 1), Decided::Stage);
        for (phase, then) in [
            (Phase::Closing, Decided::Stage),
            (Phase::Flushing, Decided::Over),
        ] {
            assert_eq!(quiesce.phase(), phase);
            assert!(!quiesce.refuses(Until::End));
            leave(&quiesce, 0);
            follows(0);
            assert_eq!(rests(0, 0, 0), Decided::Nothing, "core 1 does not follow");
            leave(&quiesce, 1);
            follows(1);
            assert_eq!(rests(1, 1, 1), then);
        }
        assert_eq!(quiesce.phase(), Phase::Over);
    }

    #[test]
    fn a_limit_ends_a_stage_once() {
        let quiesce = Quiesce::new(1);
        quiesce.has_connections();
        assert!(quiesce.drain() && quiesce.end_stage(Phase::Receiving));
        assert!(!quiesce.end_stage(Phase::Receiving));
        assert!(!quiesce.received(), "that is over");
        assert!(quiesce.end_stage(Phase::Draining) && quiesce.end_stage(Phase::Closing));
        assert!(!quiesce.end_stage(Phase::Flushing), "only by force");
        quiesce.force();
        assert!(!quiesce.end_stage(Phase::Flushing));
        assert_eq!(quiesce.phase().stage(), None);
    }
}
