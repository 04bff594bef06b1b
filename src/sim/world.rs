//! The virtual cores of a simulation, and which of them goes next.
//!
//! Each core has a thread, which takes one step after the other, and can be left in the middle of
//! one: between two events, and where a handler pauses or works. Time is that of a discrete-event
//! simulation: a step keeps its core busy until some moment, and when all cores are busy the clock
//! goes on to the first of these moments.
//!
//! Invariant: of the threads of a simulation only the one that has the [`World`] runs. When a core
//! is left, its thread draws the core that goes next and hands the world to that core's thread. (By
//! way of the thread that steps it would be two hand-overs.) The thread that steps gets the world
//! back after the last step that was asked for, and when something is due that is not a core's.

use super::Step;
use super::trace::Trace;
use crate::Cx;
use crate::clock::Clock;
use crate::color::CoreId;
use crate::host::inner::Inner;
use crate::host::pool::spawn;
use crate::host::quiesce::Phase;
use crate::host::sources::Watches;
use crate::host::unfinished::REPORT_PERIOD;
use crate::host::watchdog::{Watchdog, running as running_handler};
use crate::host::worker::{Next, Worker, go_on_once};
use crate::net::Driver;
use crate::random::Random;
use crate::record::Time;
use crate::runtime::threads::Late;
#[cfg(debug_assertions)]
use crate::sched::section::Section;
use crate::shared::idle::bells::Bell;
use crate::sync::Arc;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{relaxed, yield_now};
use smallvec::SmallVec;
use std::any::Any;
use std::cell::RefCell;
use std::io;
use std::ops::{Deref, DerefMut};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// The size of the stack of a virtual core's thread, unless the builder says otherwise. The system
/// provides the pages that are used.
const STACK_BYTES: usize = 2 << 20;
/// Steps for which the cores keep their paces.
const PACE_STEPS: u64 = 64;
/// The slowest pace is 2 to this power times as slow as the fastest.
const PACES_LOG: usize = 5;
/// A step at the fastest pace takes at most 2 to this power of ns.
const STEP_NS_LOG: usize = 7;
/// A core is left between two events once in this many times.
const BETWEEN_PERIOD: usize = 4;
/// What another thread is about to do is waited for so long before its absence is called a bug: the
/// system may have taken that thread's processor away.
const OTHERS_MAX: Duration = Duration::from_secs(2);
/// Work ends by then, some three hundred years from the beginning.
const TIME_MAX_NS: u64 = u64::MAX / 2;
/// The steps that a core has to leave once the runtime has ended, or what is in the middle of one
/// to finish it: after that it is stuck.
const STEPS_TO_LEAVE_MAX: u64 = 100_000;
/// With this many cores, the lists of all of them are checked after each step; with more, those of
/// the core that took it and of one other.
#[cfg(debug_assertions)]
const CHECK_ALL_MAX: usize = 8;

/// One virtual core.
struct VirtualCore {
    thread: JoinHandle<()>,
    /// Hands its thread the world.
    give: SyncSender<Box<World>>,
    /// None while it is in the middle of a step, and once it has left.
    worker: Option<Box<Worker>>,
    /// Nothing happens on it before.
    busy_until_ns: u64,
    /// Its steps take 2 to this power times as long as at the fastest pace.
    pace: usize,
    sleeps: bool,
    left: bool,
    bell: Arc<VirtualBell>,
}

/// The doorbell of a virtual core.
#[derive(Debug)]
struct VirtualBell(AtomicBool);

impl Bell for Arc<VirtualBell> {
    fn ring(&self) {
        self.0.store(true, Ordering::Release);
    }
}

/// See the module text.
pub(super) struct World {
    inner: Arc<Inner>,
    cores: Vec<VirtualCore>,
    /// Hands the world back to the thread that steps.
    give_back: SyncSender<Box<World>>,
    now_ns: Arc<relaxed::AtomicU64>,
    random: Random,
    pub(super) trace: Trace,
    steps: u64,
    /// When `steps` has come to this, the world goes back to the thread that steps.
    steps_max: u64,
    /// Steps since the runtime has ended.
    steps_since_end: u64,
    /// For checks, which must not change what is checked.
    #[cfg(debug_assertions)]
    check_random: Random,
    watchdog: Watchdog,
    /// When it looks again, and how often it has since a core took a step.
    look_at_ns: u64,
    looks: u32,
    /// When the end was asked for.
    stopping_since_ns: Option<u64>,
    /// Since when the end is in this stage.
    stage_since_ns: Option<(Phase, u64)>,
    /// Reports of the drain so far.
    reports: u32,
    pub(super) late: Option<Late>,
    /// An assertion of the runtime's own failed: nothing goes on.
    broken: Option<Box<dyn Any + Send>>,
    failed: bool,
}

/// The world, as the thread that steps has it.
pub(super) struct VirtualCores {
    /// None while a core has it.
    world: Option<Box<World>>,
    /// Where it comes back.
    back: Receiver<Box<World>>,
}

/// The state of a core's thread while it runs.
struct Turn {
    core: usize,
    world: Box<World>,
    /// Where the world comes from for the next turn.
    next: Receiver<Box<World>>,
}

std::thread_local! {
    static TURN: RefCell<Option<Turn>> = const { RefCell::new(None) };
}

/// Calls `f`, which runs no user code, with the world that this thread has.
fn with_world<R>(f: impl FnOnce(&mut World) -> R) -> R {
    TURN.with_borrow_mut(|turn| f(&mut turn.as_mut().expect("the core that runs has it").world))
}

/// The thread of a core: steps, until nothing steps the simulation any more.
fn take_turns(core: usize, turns: Receiver<Box<World>>) {
    let Ok(world) = turns.recv() else {
        return;
    };
    TURN.set(Some(Turn {
        core,
        world,
        next: turns,
    }));
    loop {
        // Handlers' panics are caught further in: one that comes out is a failed assertion of the
        // runtime's own.
        let stepped = catch_unwind(|| step(core));
        with_world(|world| world.end_step(core, stepped));
        if !end_turn() {
            return;
        }
    }
}

/// Takes a whole step of the core of this thread. Returns the core's worker, and how it goes on,
/// unless the core has left.
fn step(core: usize) -> Option<(Box<Worker>, Next)> {
    let (mut worker, slept) = with_world(|world| world.begin_step(core));
    if slept {
        // Returns at once in a simulation, and forgets that it was rung for.
        worker.wait();
        worker.wake_up();
    }
    let is_retired = worker.core.is_retired();
    let before = is_retired.then(|| taken_by(&worker.inner, core));
    let next = Cx::with(&mut *worker, |cx| go_on_once(cx, between));
    if let Some(before) = before {
        let taken = taken_by(&worker.inner, core);
        assert_eq!(taken, before, "core {core} is retired and takes colors");
    }
    let working = worker.inner.shared.working.count() as usize;
    assert!(
        next == Next::Leave || worker.core.is_retired() == (core >= working),
        "core {core} has not seen that {working} cores work"
    );
    (next != Next::Leave).then_some((worker, next))
}

/// How many colors a core has taken from others.
fn taken_by(inner: &Inner, core: usize) -> u64 {
    let stats = &inner.shared.cores[core].stats;
    let stolen = stats.steals.iter().map(|steals| steals.colors.get());
    stats.taken_over.get() + stolen.sum::<u64>()
}

/// After each event of a core.
fn between(cx: &mut Cx) {
    let core = &cx.worker().core;
    let is_own = |slot| core.shared.slots.map.is_control(slot);
    assert!(
        !core.is_retired() || core.current.slot.get().is_some_and(is_own),
        "core {} is retired and has begun an event",
        core.id
    );
    let leaves = with_world(|world| {
        world.trace.event(world.now_ns(), cx);
        world.draw(BETWEEN_PERIOD) == 0
    });
    if leaves {
        leave(0);
    }
}

/// Inside a handler, for which this is `ns` of work.
pub(super) fn work(ns: u64) {
    if TURN.with_borrow(Option::is_some) {
        leave(ns);
    }
}

/// Leaves the core of this thread in the middle of its step, for at least `ns`.
fn leave(ns: u64) {
    TURN.with_borrow_mut(|turn| {
        let turn = turn.as_mut().expect("the core that runs has it");
        turn.world.keep_busy(turn.core, ns);
    });
    if !end_turn() {
        // The handler is stuck, or the runtime has failed: its thread is left behind.
        loop {
            thread::park();
        }
    }
}

/// Hands the world on, and waits until it is this core's turn again. False: that will never be.
fn end_turn() -> bool {
    let turn = TURN.take().expect("the core that runs has it");
    let Turn { core, world, next } = turn;
    let Some(world) = world.hand_on(core).or_else(|| next.recv().ok()) else {
        return false;
    };
    TURN.set(Some(Turn { core, world, next }));
    true
}

impl VirtualCores {
    /// # Errors
    /// If the system refuses a thread.
    pub(super) fn new(inner: &Arc<Inner>, seed: u64) -> io::Result<VirtualCores> {
        let now_ns = Arc::new(relaxed::AtomicU64::new(0));
        let clock = Clock::Virtual(Arc::clone(&now_ns));
        if let Some(recorder) = &inner.shared.recorder {
            recorder.go_by(Time::Virtual(clock.clone()));
        }
        inner.virtual_clock.get_or_init(|| clock);
        if inner.shared.policy.stealing.enabled {
            let watches = Watches(Arc::downgrade(inner));
            let _first = inner.shared.idle.lookout.set(Box::new(watches));
        }
        let mut cores = Vec::new();
        for id in 0..inner.shared.cores.len() {
            match VirtualCore::new(inner, id, &now_ns) {
                Ok(core) => cores.push(core),
                Err(error) => {
                    cores.into_iter().for_each(VirtualCore::end);
                    return Err(error);
                }
            }
        }
        let (give_back, back) = sync_channel(1);
        let world = World {
            inner: Arc::clone(inner),
            cores,
            give_back,
            now_ns,
            random: Random::new(seed),
            trace: Trace::new(),
            steps: 0,
            steps_max: 0,
            steps_since_end: 0,
            #[cfg(debug_assertions)]
            check_random: Random::new(seed),
            watchdog: Watchdog::new(inner.shared.cores.len()),
            look_at_ns: 0,
            looks: 0,
            stopping_since_ns: None,
            stage_since_ns: None,
            reports: 0,
            late: None,
            broken: None,
            failed: false,
        };
        Ok(VirtualCores {
            world: Some(Box::new(world)),
            back,
        })
    }

    /// Lets one core go on, or the clock. Other cores follow, until there were `steps_max` steps.
    pub(super) fn advance(&mut self, steps_max: u64) -> Step {
        assert!(!self.failed, "this simulation has failed before");
        if !self.inner.ended() {
            self.watch();
            self.report();
        }
        self.steps_max = steps_max.max(self.steps + 1);
        let advanced = catch_unwind(AssertUnwindSafe(|| self.draw_next()));
        let step = advanced.unwrap_or_else(|payload| {
            self.broken.get_or_insert(payload);
            Step::Ended
        });
        if let Step::Core { core } = step {
            self.resume(core);
        }
        self.look_at_deadline();
        self.fail_if_broken();
        step
    }

    /// Runs a core until this thread has the world again.
    fn resume(&mut self, core: usize) {
        let world = self.world.take().expect("no core runs");
        let its = world.cores[core].give.clone();
        its.send(world).expect("a core that has not left waits");
        self.world = Some(self.back.recv().expect("a core hands the world on"));
    }

    /// Resumes the panic of an assertion of the runtime's own that failed, if one did.
    pub(super) fn fail_if_broken(&mut self) {
        if let Some(payload) = self.broken.take() {
            self.failed = true;
            for mut core in std::mem::take(&mut self.cores) {
                if let Some(worker) = core.worker.take() {
                    // It is unknown how a drop in an inconsistent runtime would end.
                    std::mem::forget(worker);
                    core.left = true;
                }
                core.end();
            }
            resume_unwind(payload);
        }
    }

    /// Drops the cores that have not left, with their operations and events. Handlers in the middle
    /// run to their ends first. Returns the cores whose handlers do not come to an end, and the
    /// names of these: their threads are left behind.
    pub(super) fn drop_cores(&mut self) -> Vec<(usize, &'static str)> {
        self.steps_max = 0;
        let in_step = |world: &World| {
            let cores = world.cores.iter().enumerate();
            let in_step = cores.filter(|(_, core)| core.is_in_step());
            in_step.map(|(id, _)| id).collect::<Vec<_>>()
        };
        for _ in 0..STEPS_TO_LEAVE_MAX {
            // In rounds: one may wait for another.
            let staying = in_step(self);
            if staying.is_empty() {
                break;
            }
            for core in staying {
                self.resume(core);
                self.look_at_deadline();
            }
        }
        let stuck = in_step(self).into_iter();
        let stuck = stuck
            .map(|id| (id, running_handler(&self.inner, id).unwrap_or("(leaving)")))
            .collect();
        let cores = std::mem::take(&mut self.cores);
        cores.into_iter().for_each(VirtualCore::end);
        stuck
    }
}

impl Deref for VirtualCores {
    type Target = World;
    fn deref(&self) -> &World {
        self.world.as_ref().expect("no core runs")
    }
}

impl DerefMut for VirtualCores {
    fn deref_mut(&mut self) -> &mut World {
        self.world.as_mut().expect("no core runs")
    }
}

impl World {
    pub(super) fn now_ns(&self) -> u64 {
        self.now_ns.load(relaxed::Ordering::Relaxed)
    }

    pub(super) fn steps(&self) -> u64 {
        self.steps
    }

    /// A number less than `end`, which is not 0.
    fn draw(&mut self, end: usize) -> usize {
        self.random.below(end)
    }

    /// Draws the core that goes next after a part of a step of `core`. Returns the world if it is
    /// the same core, and else hands the world to the thread that goes on.
    fn hand_on(mut self: Box<World>, core: usize) -> Option<Box<World>> {
        let drawn = catch_unwind(AssertUnwindSafe(|| self.next_core(core)));
        let drawn = drawn.unwrap_or_else(|payload| {
            self.broken.get_or_insert(payload);
            None
        });
        let to = match drawn {
            Some(next) if next == core => return Some(self),
            Some(next) => &self.cores[next].give,
            None => &self.give_back,
        };
        let to = to.clone();
        to.send(self).expect("each thread waits for its turn");
        None
    }

    /// The core that goes next after a part of a step of `core`. None: the thread that steps goes
    /// next.
    fn next_core(&mut self, core: usize) -> Option<usize> {
        #[cfg(debug_assertions)]
        self.check_lists(core);
        #[cfg(not(debug_assertions))]
        let _ = core;
        while self.broken.is_none()
            && self.steps < self.steps_max
            && !self.is_late()
            && !self.is_stage_late()
            && !self.is_watch_due()
            && !self.is_report_due()
        {
            match self.draw_next() {
                Step::Core { core } => return Some(core),
                Step::Waited => {}
                Step::Stalled | Step::Ended => break,
            }
        }
        None
    }

    /// Draws the core that goes on, which is the caller's to resume; or lets the clock go on.
    fn draw_next(&mut self) -> Step {
        if self.inner.ended() {
            self.steps_since_end += 1;
            if self.steps_since_end > STEPS_TO_LEAVE_MAX {
                // A core that has not left by now is stuck in a handler.
                return Step::Ended;
            }
        }
        self.look_out();
        #[cfg(debug_assertions)]
        {
            self.check_sleepers();
            self.check_sources();
            self.check_bells();
        }
        if let Some(core) = self.choose() {
            self.take_time(core);
            return Step::Core { core };
        }
        if self.cores.iter().all(|core| core.left) {
            return Step::Ended;
        }
        match self.next_ns() {
            Some(at_ns) => {
                self.now_ns.store(at_ns, relaxed::Ordering::Relaxed);
                Step::Waited
            }
            None => {
                // Another thread that posts is first counted, then seen.
                let step = soon(|| {
                    if self.inner.events_left() == self.inner.events_held() {
                        Some(Step::Stalled)
                    } else {
                        self.choose().map(|_| Step::Waited)
                    }
                });
                step.unwrap_or_else(|| {
                    let left = self.inner.events_left();
                    panic!("a bug of mely's: every core sleeps, and {left} events are left")
                })
            }
        }
    }

    /// What the thread of [`crate::runtime`] does that is told of what comes to sources.
    fn look_out(&mut self) {
        for core in self.computing() {
            let mut open = self.inner.sources.lock(core);
            let has_come = open.source().has_come();
            drop(open);
            if has_come {
                self.inner.shared.seen(core);
            }
        }
    }

    /// Cores in the middle of an event in which their sources are watched.
    fn computing(&self) -> impl Iterator<Item = CoreId> + use<> {
        let inner = Arc::clone(&self.inner);
        let in_step = self.cores.iter().map(VirtualCore::is_in_step);
        let in_step: SmallVec<[bool; 16]> = in_step.collect();
        let all = in_step.into_iter().enumerate();
        all.filter_map(move |(core, in_step)| {
            let is_watched = in_step && inner.shared.cores[core].progress.is_watched();
            is_watched.then(|| CoreId::of(core))
        })
    }

    /// No core sleeps while something has come, or is due, for one that computes, unless somebody
    /// is about to see to that; as in [`check_sleepers`](Self::check_sleepers).
    #[cfg(debug_assertions)]
    fn check_sources(&mut self) {
        let shared = &self.inner.shared;
        if !shared.policy.stealing.enabled
            || self.inner.is_stopping()
            || shared.idle.searchers.any()
        {
            return;
        }
        let working = shared.working.count() as usize;
        let asleep = |core: &VirtualCore| core.is_asleep();
        let sleeper = self.cores.iter().take(working).position(asleep);
        let busy = |core: &VirtualCore| core.left || core.is_in_step() || core.is_asleep();
        let Some(sleeper) = sleeper.filter(|_| self.cores.iter().all(busy)) else {
            return;
        };
        let now_ns = self.now_ns();
        for core in self.computing() {
            let mut open = self.inner.sources.lock(core);
            assert!(
                !open.source().has_news(now_ns),
                "core {sleeper} sleeps while something has come for core {core}, which computes"
            );
        }
    }

    /// Draws the core that goes next from those that can now.
    fn choose(&mut self) -> Option<usize> {
        let now_ns = self.now_ns();
        let able: Vec<usize> = (self.cores.iter_mut().enumerate())
            .filter_map(|(id, core)| core.is_able(now_ns).then_some(id))
            .collect();
        (!able.is_empty()).then(|| able[self.draw(able.len())])
    }

    /// What a core is about to do takes time, at its pace. Paces change now and then, so that some
    /// fall far behind others, as they do when the system takes their processor away.
    fn take_time(&mut self, id: usize) {
        if self.steps.is_multiple_of(PACE_STEPS) {
            for core in &mut self.cores {
                core.pace = self.random.below(PACES_LOG + 1);
            }
        }
        self.steps += 1;
        self.looks = 0;
        let takes_ns = 1 << (self.draw(STEP_NS_LOG + 1) + self.cores[id].pace);
        self.cores[id].busy_until_ns = self.now_ns().saturating_add(takes_ns);
    }

    /// Lends a core its worker for a step, and says whether it slept.
    fn begin_step(&mut self, id: usize) -> (Box<Worker>, bool) {
        let core = &mut self.cores[id];
        let worker = core.worker.take().expect("it is between two steps");
        let slept = std::mem::take(&mut core.sleeps);
        if slept {
            core.bell.0.store(false, Ordering::Release);
        }
        (worker, slept)
    }

    /// A core has taken a step, with this result of [`step`].
    fn end_step(&mut self, id: usize, stepped: thread::Result<Option<(Box<Worker>, Next)>>) {
        let core = &mut self.cores[id];
        match stepped {
            Ok(Some((worker, next))) => {
                core.sleeps = next == Next::Wait;
                core.worker = Some(worker);
            }
            Ok(None) => core.left = true,
            Err(payload) => {
                core.left = true;
                self.broken.get_or_insert(payload);
            }
        }
    }

    /// A core works for at least `ns`.
    fn keep_busy(&mut self, id: usize, ns: u64) {
        let now_ns = self.now_ns();
        let core = &mut self.cores[id];
        let end_ns = core.busy_until_ns.max(now_ns).saturating_add(ns);
        core.busy_until_ns = end_ns.min(TIME_MAX_NS).max(now_ns);
    }

    /// The invariants of the lists that a step may have changed.
    #[cfg(debug_assertions)]
    fn check_lists(&mut self, stepped: usize) {
        let cores = self.inner.shared.cores.len();
        let check = |core| Section::enter(&self.inner.shared, CoreId::of(core)).assert_valid();
        if cores <= CHECK_ALL_MAX {
            (0..cores).for_each(check);
        } else {
            check(stepped);
            check(self.check_random.below(cores));
        }
    }

    /// Nobody is owed a ring for good, while no core is inside a step. Another thread that posts
    /// may be about to ring: it is waited for.
    #[cfg(debug_assertions)]
    fn check_bells(&self) {
        let shared = &self.inner.shared;
        if self.cores.iter().any(VirtualCore::is_in_step) {
            return;
        }
        let none_due = soon(|| (!shared.idle.bells.due.any()).then_some(()));
        assert!(none_due.is_some(), "rings are left for good");
        for (number, core) in self.cores.iter().enumerate() {
            let is_rung = || !core.is_asleep() || shared.cores[number].pokes.is_parked();
            assert!(
                soon(|| is_rung().then_some(())).is_some(),
                "core {number} sleeps, and nobody who wakes it will ring it"
            );
        }
    }

    /// No core sleeps while another has work worth a wake-up, unless somebody is about to see to
    /// that: one that was woken, that searches, or that is between two steps.
    #[cfg(debug_assertions)]
    fn check_sleepers(&self) {
        let shared = &self.inner.shared;
        let policy = &shared.policy;
        // The base algorithm's rules may forbid all that there is.
        if !policy.stealing.enabled || !policy.stealing.time_left || self.inner.ended() {
            return;
        }
        let cores = &self.cores;
        let busy = |core: &VirtualCore| core.left || core.is_in_step() || core.is_asleep();
        if shared.idle.searchers.any() || !cores.iter().all(busy) {
            return;
        }
        let working = cores.iter().take(shared.working.count() as usize);
        let Some(sleeper) = working.into_iter().position(VirtualCore::is_asleep) else {
            return;
        };
        for &(victim, distance) in &shared.cores[sleeper].victims {
            let enough_ns = shared
                .idle
                .wake_cost
                .ns()
                .max(shared.cores[sleeper].steal_costs.ns(distance));
            let worth_ns = shared.core(victim).hint.worth_ns();
            assert!(
                worth_ns < enough_ns,
                "core {sleeper} sleeps while core {victim} has {worth_ns} ns of work to share"
            );
        }
    }

    /// Whether the watchdog is to look.
    fn is_watch_due(&self) -> bool {
        let shared = &self.inner.shared;
        self.now_ns() >= self.look_at_ns
            && !self.inner.ended()
            && shared.idle.vigil.any_busy(&shared.cores)
    }

    /// What the thread that called `run` does in a run on threads.
    fn watch(&mut self) {
        if self.is_watch_due() {
            let now_ns = self.now_ns();
            let (watchdog, inner) = (&mut self.watchdog, &self.inner);
            let looked = catch_unwind(AssertUnwindSafe(|| watchdog.look(inner, now_ns)));
            if let Err(payload) = looked {
                // The hook for slow handlers: the run is cut short, and whoever steps it is told.
                self.inner.force();
                resume_unwind(payload);
            }
            let period_ns = u64::try_from(Watchdog::period(&self.inner).as_nanos());
            let period_ns = period_ns.unwrap_or(TIME_MAX_NS);
            self.look_at_ns = now_ns.saturating_add(period_ns);
            self.looks += 1;
        }
    }

    /// Whether the run should have drained by now, and has not.
    fn is_late(&mut self) -> bool {
        if self.inner.quiesce.phase().stage().is_none() {
            return false;
        }
        let now_ns = self.now_ns();
        let since_ns = *self.stopping_since_ns.get_or_insert(now_ns);
        u128::from(now_ns - since_ns) >= self.inner.config.drain_deadline.as_nanos()
    }

    /// Whether the stage that the end is in should be over by now, and is not.
    fn is_stage_late(&mut self) -> bool {
        let now_ns = self.now_ns();
        self.stage_limit_ns()
            .is_some_and(|limit_ns| limit_ns <= now_ns)
    }

    /// When that is, if it has a limit.
    fn stage_limit_ns(&mut self) -> Option<u64> {
        let (phase, limit) = self.inner.stage_limit()?;
        let now_ns = self.now_ns();
        let (_, since_ns) = *(self.stage_since_ns)
            .filter(|&(its, _)| its == phase)
            .get_or_insert((phase, now_ns));
        self.stage_since_ns = Some((phase, since_ns));
        since_ns.checked_add(u64::try_from(limit.as_nanos()).ok()?)
    }

    /// Ends the run by force if it has not drained in time, or only a stage of its end.
    fn look_at_deadline(&mut self) {
        let is_stage_late = self.is_stage_late();
        let phase = self.inner.quiesce.phase();
        if self.is_late() || is_stage_late && phase == Phase::Flushing {
            self.late = Some(Late::now(&self.inner, self.stopping_for()));
            self.inner.force();
        } else if is_stage_late {
            self.tell_drain(true);
            self.inner.end_stage(phase);
        }
    }

    /// How long ago the end was asked for; no time, if it was not.
    pub(super) fn stopping_for(&self) -> Duration {
        let since_ns = self.stopping_since_ns;
        Duration::from_nanos(since_ns.map_or(0, |since_ns| self.now_ns() - since_ns))
    }

    /// When the next report of a drain is due; none without a hook.
    fn report_ns(&self) -> Option<u64> {
        self.inner.config.drain_hook.as_ref()?;
        let after = REPORT_PERIOD * (self.reports + 1);
        let since_ns = self.stopping_since_ns?;
        since_ns.checked_add(after.as_nanos() as u64)
    }

    fn is_report_due(&self) -> bool {
        let now_ns = self.now_ns();
        !self.inner.ended() && self.report_ns().is_some_and(|at_ns| at_ns <= now_ns)
    }

    /// Reports what the end waits for, if that is due.
    fn report(&mut self) {
        if self.is_report_due() {
            let periods = self.stopping_for().as_nanos() / REPORT_PERIOD.as_nanos();
            self.reports = periods as u32;
            self.tell_drain(false);
        }
    }

    fn tell_drain(&self, is_over_limit: bool) {
        let Some(hook) = &self.inner.config.drain_hook else {
            return;
        };
        let now_ns = self.now_ns();
        let mut unfinished = self.inner.unfinished(self.stopping_for());
        unfinished.is_over_limit = is_over_limit;
        for core in &self.cores {
            // One that is in the middle of a step does not answer.
            if let Some(worker) = &core.worker {
                let mut open = self.inner.sources.lock(worker.core.id);
                unfinished.add(open.source().under_way(now_ns));
            }
        }
        if let Err(payload) = catch_unwind(AssertUnwindSafe(|| hook(&unfinished))) {
            // As the hook for slow handlers.
            self.inner.force();
            resume_unwind(payload);
        }
    }

    /// When something will happen, though nothing can now: a core is busy until then, or has a
    /// timer, the watchdog looks at one that is awake, or the deadline comes.
    fn next_ns(&mut self) -> Option<u64> {
        let now_ns = self.now_ns();
        let shared = &self.inner.shared;
        let busy = shared.idle.vigil.any_busy(&shared.cores);
        // Where nothing moves, what it sees soon stays the same.
        let looks = busy && self.looks < Watchdog::looks_max(&self.inner);
        let look_ns = looks.then_some(self.look_at_ns);
        let deadline_ns = self.stopping_since_ns.and_then(|since_ns| {
            let ns = u64::try_from(self.inner.config.drain_deadline.as_nanos()).ok()?;
            since_ns.checked_add(ns)
        });
        let (report_ns, limit_ns) = (self.report_ns(), self.stage_limit_ns());
        let due = |core| self.inner.sources.lock(core).source().next_ns();
        let watched_ns: SmallVec<[u64; 16]> = self.computing().filter_map(due).collect();
        let moments = self.cores.iter_mut().filter_map(VirtualCore::next_ns);
        // A core is never busy for ever.
        let later = moments.chain(look_ns).chain(deadline_ns);
        let later = later.chain(report_ns).chain(limit_ns).chain(watched_ns);
        let later = later.filter(|&ns| ns > now_ns);
        later.min()
    }
}

impl VirtualCore {
    fn new(
        inner: &Arc<Inner>,
        id: usize,
        now_ns: &Arc<relaxed::AtomicU64>,
    ) -> io::Result<VirtualCore> {
        let (driver, report) = Driver::new(inner, CoreId::of(id))
            .expect("the simulated event source refuses nothing by default");
        inner.outcome.lock().unwrap().backends.push((id, report));
        let bell = Arc::new(VirtualBell(AtomicBool::new(false)));
        inner
            .shared
            .idle
            .bells
            .hang(CoreId::of(id), Box::new(Arc::clone(&bell)));
        let clock = Clock::Virtual(Arc::clone(now_ns));
        let source = Box::new(driver);
        let worker = Worker::new(Arc::clone(inner), CoreId::of(id), clock, source);
        let (give, turns) = sync_channel(1);
        let bytes = inner.config.stack_bytes.unwrap_or(STACK_BYTES);
        let stack = Some(bytes);
        let thread = spawn(format!("mely-{id}"), stack, move || take_turns(id, turns))?;
        Ok(VirtualCore {
            thread,
            give,
            worker: Some(Box::new(worker)),
            busy_until_ns: 0,
            pace: 0,
            sleeps: false,
            left: false,
            bell,
        })
    }

    /// Drops the worker and ends the thread, which is left behind if it is in the middle of a step.
    fn end(self) {
        let is_in_step = self.is_in_step();
        drop((self.worker, self.give));
        if !is_in_step {
            self.thread.join().expect("its panics are caught");
        }
    }

    /// Whether it sleeps, and was not rung.
    #[cfg(debug_assertions)]
    fn is_asleep(&self) -> bool {
        self.sleeps && !self.bell.0.load(Ordering::Acquire)
    }

    fn is_in_step(&self) -> bool {
        !self.left && self.worker.is_none()
    }

    fn is_able(&mut self, now_ns: u64) -> bool {
        if self.left || self.busy_until_ns > now_ns {
            return false;
        }
        if !self.sleeps || self.bell.0.load(Ordering::Acquire) {
            return true;
        }
        let Some(worker) = &mut self.worker else {
            unreachable!("a core sleeps between two steps");
        };
        let due = |at_ns| at_ns <= now_ns;
        let mut open = worker.inner.sources.lock(worker.core.id);
        let source = open.source();
        source.has_work() || source.next_ns().is_some_and(due)
    }

    /// When it will be able to go on by itself.
    fn next_ns(&mut self) -> Option<u64> {
        if self.left {
            return None;
        }
        let busy_until_ns = self.busy_until_ns;
        if !self.sleeps || self.bell.0.load(Ordering::Acquire) {
            return Some(busy_until_ns);
        }
        let worker = self.worker.as_ref()?;
        let mut open = worker.inner.sources.lock(worker.core.id);
        let source = open.source();
        if source.has_work() {
            return Some(busy_until_ns);
        }
        source.next_ns().map(|at_ns| at_ns.max(busy_until_ns))
    }
}

/// What `look` finds, though another thread may be about to bring it; none after [`OTHERS_MAX`].
fn soon<T>(mut look: impl FnMut() -> Option<T>) -> Option<T> {
    let mut since = None;
    loop {
        if let Some(found) = look() {
            return Some(found);
        }
        if since.get_or_insert_with(Instant::now).elapsed() >= OTHERS_MAX {
            return None;
        }
        yield_now();
    }
}

impl std::fmt::Debug for World {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("World")
            .field("now_ns", &self.now_ns())
            .field("steps", &self.steps())
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::Runtime;

    /// One that comes out of a core's thread fails the simulation, with handlers in the middle on
    /// other cores, and is told by the thread that steps.
    #[test]
    fn an_assertion_that_fails_on_a_core_comes_out_of_the_step() {
        let builder = Runtime::builder().cores(2);
        let mut simulation = builder.simulate(1).unwrap();
        simulation
            .start(|cx| {
                loop {
                    crate::sim::pause(cx);
                }
            })
            .unwrap();
        let cores = &mut simulation.cores;
        while cores.cores.iter().all(|core| core.worker.is_some()) {
            cores.advance(0);
        }
        let between = cores.cores.iter_mut().find_map(|core| core.worker.take());
        let mut message_of = |f: fn(&mut VirtualCores) -> Step| {
            let failed = catch_unwind(AssertUnwindSafe(|| f(cores)));
            crate::host::panics::message_of(failed.unwrap_err())
        };
        let till_then = |cores: &mut VirtualCores| {
            loop {
                cores.advance(u64::MAX);
            }
        };
        assert_eq!(message_of(till_then), "it is between two steps");
        let again = |cores: &mut VirtualCores| cores.advance(0);
        assert_eq!(message_of(again), "this simulation has failed before");
        drop(between);
        drop(simulation);
    }
}
