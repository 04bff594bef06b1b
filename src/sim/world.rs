//! The virtual cores of a simulation, and who of them goes next.
//!
//! Each core is a coroutine that takes one step after the other, and can be left in the middle of
//! one: between two events, and where a handler pauses or works. Time is that of a discrete-event
//! simulation: whatever a core does keeps it busy until some moment, and when all are busy the
//! clock goes on to the first that is not.

use super::Step;
use super::trace::Trace;
use crate::Cx;
use crate::clock::Clock;
use crate::color::CoreId;
use crate::cx::outside;
use crate::host::inner::Inner;
use crate::host::quiesce::Phase;
use crate::host::unfinished::REPORT_PERIOD;
use crate::host::watchdog::{Watchdog, running as running_handler};
use crate::host::worker::{Next, Worker, go_on_once};
use crate::net::Driver;
use crate::random::Random;
use crate::runtime::threads::Late;
#[cfg(debug_assertions)]
use crate::sched::section::Section;
use crate::shared::bells::Bell;
use crate::sync::Arc;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{relaxed, yield_now};
use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::{Rc, Weak};
use std::time::{Duration, Instant};

/// The stack of a virtual core, unless the builder says otherwise: as large as a thread's, of which
/// the system provides what is used.
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

/// Takes one step after the other.
type Steps = Coroutine<(), (), ()>;

/// One virtual core.
struct VirtualCore {
    /// Away while the core runs. None after the end.
    coroutine: Option<Steps>,
    /// With the coroutine, while that is in the middle of a step.
    worker: Option<Box<Worker>>,
    /// What leaves the coroutine, from inside.
    yielder: *const Yielder<(), ()>,
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
    cores: RefCell<Vec<VirtualCore>>,
    now_ns: Arc<relaxed::AtomicU64>,
    random: RefCell<Random>,
    pub(super) trace: RefCell<Trace>,
    steps: Cell<u64>,
    /// Steps since the runtime has ended.
    steps_since_end: Cell<u64>,
    /// For checks, which must not change what is checked.
    #[cfg(debug_assertions)]
    check_random: RefCell<Random>,
    watchdog: RefCell<Watchdog>,
    /// When it looks again, and how often it has since a core took a step.
    look_at_ns: Cell<u64>,
    looks: Cell<u32>,
    /// When the end was asked for.
    stopping_since_ns: Cell<Option<u64>>,
    /// Reports of the drain so far.
    reports: Cell<u32>,
    pub(super) late: Cell<Option<Late>>,
    /// An assertion of the runtime's own failed: nothing goes on.
    broken: RefCell<Option<Box<dyn Any + Send>>>,
    failed: Cell<bool>,
}

std::thread_local! {
    /// The world that this thread is inside of, with the core that runs.
    static RUNNING: RefCell<Option<(Rc<World>, usize)>> = const { RefCell::new(None) };
}

/// The world and the core whose handler calls.
fn running() -> Option<(Rc<World>, usize)> {
    RUNNING.with_borrow(Clone::clone)
}

/// Whether this thread can still run virtual cores: not while its own variables are dropped.
pub(super) fn can_run() -> bool {
    RUNNING.try_with(|_| ()).is_ok()
}

impl World {
    pub(super) fn new(inner: &Arc<Inner>, seed: u64) -> Rc<World> {
        Rc::new_cyclic(|world| {
            let now_ns = Arc::new(relaxed::AtomicU64::new(0));
            let clock = Clock::Virtual(Arc::clone(&now_ns));
            if let Some(recorder) = &inner.shared.recorder {
                recorder.go_by(clock.clone());
            }
            inner.virtual_clock.get_or_init(|| clock);
            let cores = 0..inner.shared.cores.len();
            World {
                inner: Arc::clone(inner),
                cores: RefCell::new(
                    cores
                        .map(|id| VirtualCore::new(inner, id, &now_ns, Weak::clone(world)))
                        .collect(),
                ),
                now_ns,
                random: RefCell::new(Random::new(seed)),
                trace: RefCell::new(Trace::new()),
                steps: Cell::new(0),
                steps_since_end: Cell::new(0),
                #[cfg(debug_assertions)]
                check_random: RefCell::new(Random::new(seed)),
                watchdog: RefCell::new(Watchdog::new(inner.shared.cores.len())),
                look_at_ns: Cell::new(0),
                looks: Cell::new(0),
                stopping_since_ns: Cell::new(None),
                reports: Cell::new(0),
                late: Cell::new(None),
                broken: RefCell::new(None),
                failed: Cell::new(false),
            }
        })
    }

    pub(super) fn now_ns(&self) -> u64 {
        self.now_ns.load(relaxed::Ordering::Relaxed)
    }

    pub(super) fn steps(&self) -> u64 {
        self.steps.get()
    }

    /// A number less than `end`, which is not 0.
    fn draw(&self, end: usize) -> usize {
        self.random.borrow_mut().below(end)
    }

    /// Lets one core go on, or the clock.
    pub(super) fn advance(self: &Rc<World>) -> Step {
        assert!(!self.failed.get(), "this simulation has failed before");
        if self.inner.ended() {
            let steps = self.steps_since_end.get();
            self.steps_since_end.set(steps + 1);
            if steps > STEPS_TO_LEAVE_MAX {
                // Whoever has not left by now is stuck in a handler.
                return Step::Ended;
            }
        } else {
            self.watch();
            self.report();
        }
        #[cfg(debug_assertions)]
        {
            self.check_sleepers();
            self.check_bells();
        }
        if let Some(core) = self.choose() {
            self.take_time(core);
            self.resume(core);
            return Step::Core { core };
        }
        if self.cores.borrow().iter().all(|core| core.left) {
            return Step::Ended;
        }
        match self.next_ns() {
            Some(at_ns) => {
                self.now_ns.store(at_ns, relaxed::Ordering::Relaxed);
                self.look_at_deadline();
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

    /// Draws the core that goes next from those that can now.
    fn choose(&self) -> Option<usize> {
        let mut cores = self.cores.borrow_mut();
        let now_ns = self.now_ns();
        let able: Vec<usize> = cores
            .iter_mut()
            .enumerate()
            .filter_map(|(id, core)| core.is_able(now_ns).then_some(id))
            .collect();
        (!able.is_empty()).then(|| able[self.draw(able.len())])
    }

    /// What a core is about to do takes time, at its pace. Paces change now and then, so that some
    /// fall far behind others, as they do when the system takes their processor away.
    fn take_time(&self, id: usize) {
        let mut cores = self.cores.borrow_mut();
        if self.steps.get().is_multiple_of(PACE_STEPS) {
            for core in &mut *cores {
                core.pace = self.draw(PACES_LOG + 1);
            }
        }
        self.steps.set(self.steps.get() + 1);
        self.looks.set(0);
        let core = &mut cores[id];
        let takes_ns = 1 << (self.draw(STEP_NS_LOG + 1) + core.pace);
        core.busy_until_ns = self.now_ns().saturating_add(takes_ns);
    }

    /// Runs a core until it is left, at the end of a step or in the middle of one.
    fn resume(self: &Rc<World>, id: usize) {
        let coroutine = self.cores.borrow_mut()[id].coroutine.take();
        let mut coroutine = coroutine.expect("only this function takes it, and gives it back");
        RUNNING.set(Some((Rc::clone(self), id)));
        // Handlers' panics are caught further in: what comes out is a failed assertion of the
        // runtime's own.
        let result = catch_unwind(AssertUnwindSafe(|| coroutine.resume(())));
        RUNNING.set(None);
        match result {
            Ok(CoroutineResult::Yield(())) => {
                self.cores.borrow_mut()[id].coroutine = Some(coroutine);
            }
            Ok(CoroutineResult::Return(())) => self.cores.borrow_mut()[id].left = true,
            Err(payload) => {
                self.broken.borrow_mut().get_or_insert(payload);
            }
        }
        self.look_at_deadline();
        #[cfg(debug_assertions)]
        self.check_lists(id);
    }

    /// A whole step of a core, in its coroutine. False: it has left, or was dropped.
    fn step(self: &Rc<World>, id: usize) -> bool {
        let mut worker = {
            let core = &mut self.cores.borrow_mut()[id];
            let Some(mut worker) = core.worker.take() else {
                // Dropped, and the coroutine is to end.
                return false;
            };
            if std::mem::take(&mut core.sleeps) {
                core.bell.0.store(false, Ordering::Release);
                // Returns at once in a simulation, and forgets that it was rung for.
                worker.source.wait(&worker.core);
                worker.wake_up();
            }
            worker
        };
        let before = worker.core.is_retired().then(|| self.taken_by(id));
        let next = Cx::with(&mut *worker, |cx| go_on_once(cx, |cx| self.between(cx)));
        if let Some(before) = before {
            let taken = self.taken_by(id);
            assert_eq!(taken, before, "core {id} is retired and takes colors");
        }
        let working = self.inner.shared.working.count() as usize;
        assert!(
            next == Next::Leave || worker.core.is_retired() == (id >= working),
            "core {id} has not seen that {working} cores work"
        );
        if next == Next::Leave {
            // Not under the borrow: what it drops may be the user's.
            drop(worker);
            return false;
        }
        let core = &mut self.cores.borrow_mut()[id];
        core.sleeps = next == Next::Wait;
        core.worker = Some(worker);
        true
    }

    /// How many colors a core has taken from others.
    fn taken_by(&self, id: usize) -> u64 {
        let stats = &self.inner.shared.cores[id].stats;
        let stolen = stats.steals.iter().map(|steals| steals.colors.get());
        stats.taken_over.get() + stolen.sum::<u64>()
    }

    /// The invariants of the lists that a step may have changed.
    #[cfg(debug_assertions)]
    fn check_lists(&self, stepped: usize) {
        let shared = &self.inner.shared;
        let check = |core: usize| Section::enter(shared, CoreId::of(core)).assert_valid();
        let cores = shared.cores.len();
        let result = catch_unwind(AssertUnwindSafe(|| {
            if cores <= CHECK_ALL_MAX {
                (0..cores).for_each(check);
            } else {
                check(stepped);
                check(self.check_random.borrow_mut().below(cores));
            }
        }));
        if let Err(payload) = result {
            self.broken.borrow_mut().get_or_insert(payload);
        }
    }

    /// Nobody is owed a ring for good, while no core is inside a step. Another thread that posts
    /// may be about to ring: it is waited for.
    #[cfg(debug_assertions)]
    fn check_bells(&self) {
        let shared = &self.inner.shared;
        let cores = self.cores.borrow();
        if cores.iter().any(VirtualCore::is_in_step) {
            return;
        }
        let none_due = soon(|| (!shared.bells.due.any()).then_some(()));
        assert!(none_due.is_some(), "rings are left for good");
        for (number, core) in cores.iter().enumerate() {
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
        if !policy.stealing || !policy.heuristics.time_left || self.inner.ended() {
            return;
        }
        let cores = self.cores.borrow();
        let busy = |core: &VirtualCore| core.left || core.is_in_step() || core.is_asleep();
        if shared.searchers.any() || !cores.iter().all(busy) {
            return;
        }
        let working = cores.iter().take(shared.working.count() as usize);
        let Some(sleeper) = working.into_iter().position(VirtualCore::is_asleep) else {
            return;
        };
        for &(victim, distance) in &shared.cores[sleeper].victims {
            let enough_ns = shared
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

    /// What the thread that called `run` does in a run on threads.
    fn watch(&self) {
        let now_ns = self.now_ns();
        let shared = &self.inner.shared;
        if now_ns >= self.look_at_ns.get() && shared.vigil.any_busy(&shared.cores) {
            let mut watchdog = self.watchdog.borrow_mut();
            let looked = catch_unwind(AssertUnwindSafe(|| watchdog.look(&self.inner, now_ns)));
            drop(watchdog);
            if let Err(payload) = looked {
                // The hook for slow handlers: the run is cut short, and whoever steps it is told.
                self.inner.force();
                resume_unwind(payload);
            }
            let period_ns = u64::try_from(Watchdog::period(&self.inner).as_nanos());
            let period_ns = period_ns.unwrap_or(TIME_MAX_NS);
            self.look_at_ns.set(now_ns.saturating_add(period_ns));
            self.looks.set(self.looks.get() + 1);
        }
    }

    /// Ends by force what has not drained in time.
    fn look_at_deadline(&self) {
        if self.inner.quiesce.phase() != Phase::Draining {
            return;
        }
        let now_ns = self.now_ns();
        let since_ns = self.stopping_since_ns.get().unwrap_or(now_ns);
        self.stopping_since_ns.set(Some(since_ns));
        if u128::from(now_ns - since_ns) >= self.inner.config.drain_deadline.as_nanos() {
            let late = Late::now(&self.inner, self.stopping_for());
            self.late.set(Some(late));
            self.inner.force();
        }
    }

    /// How long ago the end was asked for; no time, if it was not.
    pub(super) fn stopping_for(&self) -> Duration {
        let since_ns = self.stopping_since_ns.get();
        Duration::from_nanos(since_ns.map_or(0, |since_ns| self.now_ns() - since_ns))
    }

    /// When the next report of a drain is due; none without a hook.
    fn report_ns(&self) -> Option<u64> {
        self.inner.config.drain_hook.as_ref()?;
        let after = REPORT_PERIOD * (self.reports.get() + 1);
        let since_ns = self.stopping_since_ns.get()?;
        since_ns.checked_add(after.as_nanos() as u64)
    }

    /// Reports that, if it is due.
    fn report(&self) {
        let Some(hook) = &self.inner.config.drain_hook else {
            return;
        };
        let now_ns = self.now_ns();
        if self.report_ns().is_none_or(|at_ns| at_ns > now_ns) {
            return;
        }
        let stopping_for = self.stopping_for();
        let periods = stopping_for.as_nanos() / REPORT_PERIOD.as_nanos();
        self.reports.set(periods as u32);
        let mut unfinished = self.inner.unfinished(stopping_for);
        for core in &*self.cores.borrow() {
            // One that is in the middle of a step does not answer.
            if let Some(worker) = &core.worker {
                unfinished.add(worker.source.under_way(now_ns));
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
    fn next_ns(&self) -> Option<u64> {
        let now_ns = self.now_ns();
        let mut cores = self.cores.borrow_mut();
        let shared = &self.inner.shared;
        let busy = shared.vigil.any_busy(&shared.cores);
        // Where nothing moves, what it sees soon stays the same.
        let looks = busy && self.looks.get() < Watchdog::looks_max(&self.inner);
        let look_ns = looks.then_some(self.look_at_ns.get());
        let moments = cores.iter_mut().filter_map(VirtualCore::next_ns);
        let deadline_ns = self.stopping_since_ns.get().and_then(|since_ns| {
            let ns = u64::try_from(self.inner.config.drain_deadline.as_nanos()).ok()?;
            since_ns.checked_add(ns)
        });
        // A core is never busy for ever.
        let later = moments.chain(look_ns).chain(deadline_ns);
        let later = later.chain(self.report_ns());
        let later = later.filter(|&ns| ns > now_ns);
        later.min()
    }

    /// After each event of a core.
    fn between(&self, cx: &mut Cx) {
        let core = &cx.worker().core;
        let is_own = |slot| core.shared.slots.map.is_control(slot);
        assert!(
            !core.is_retired() || core.current.slot.get().is_some_and(is_own),
            "core {} is retired and has begun an event",
            core.id
        );
        self.trace.borrow_mut().event(self.now_ns(), cx);
        if self.draw(BETWEEN_PERIOD) == 0 {
            self.leave(cx.core(), 0);
        }
    }

    /// Leaves the core in the middle of its step, for at least `ns`. Called in its coroutine.
    fn leave(&self, id: usize, ns: u64) {
        // A coroutine cannot be left while its stack unwinds: the thread would seem to panic to
        // others.
        if std::thread::panicking() {
            return;
        }
        let yielder = {
            let core = &mut self.cores.borrow_mut()[id];
            let end_ns = core.busy_until_ns.max(self.now_ns()).saturating_add(ns);
            core.busy_until_ns = end_ns.min(TIME_MAX_NS).max(self.now_ns());
            core.yielder
        };
        outside(|| {
            // SAFETY: the coroutine's own, which lives at the bottom of the very stack that we are
            // on.
            unsafe { &*yielder }.suspend(());
        });
    }

    /// Goes on with what a failed assertion of the runtime's own began.
    pub(super) fn fail_if_broken(&self) {
        let broken = self.broken.borrow_mut().take();
        if let Some(payload) = broken {
            self.failed.set(true);
            // What an inconsistent runtime would do when its cores are dropped, nobody knows.
            for core in &mut *self.cores.borrow_mut() {
                std::mem::forget(core.coroutine.take());
                std::mem::forget(core.worker.take());
            }
            resume_unwind(payload);
        }
    }

    /// Drops the cores that have not left, with what they have under way; handlers in the middle
    /// run to their ends first. Returns those that do not come to an end, which are left behind,
    /// with their handlers.
    pub(super) fn drop_cores(self: &Rc<World>) -> Vec<(usize, &'static str)> {
        let in_step = |id: &usize| self.cores.borrow()[*id].is_in_step();
        let cores = 0..self.inner.shared.cores.len();
        for _ in 0..STEPS_TO_LEAVE_MAX {
            // In rounds: one may wait for another.
            let staying: Vec<usize> = cores.clone().filter(in_step).collect();
            if staying.is_empty() {
                break;
            }
            staying.into_iter().for_each(|id| self.resume(id));
        }
        let stuck = cores.clone().filter(in_step);
        let stuck: Vec<_> = stuck
            .map(|id| (id, running_handler(&self.inner, id).unwrap_or("(leaving)")))
            .collect();
        for &(id, _) in &stuck {
            // Its stack holds what only it can drop.
            std::mem::forget(self.cores.borrow_mut()[id].coroutine.take());
        }
        for id in 0..self.inner.shared.cores.len() {
            // Not under the borrow: what it drops may be the user's.
            let worker = self.cores.borrow_mut()[id].worker.take();
            drop(worker);
            if self.cores.borrow()[id].coroutine.is_some() {
                self.resume(id);
            }
        }
        stuck
    }
}

impl VirtualCore {
    fn new(
        inner: &Arc<Inner>,
        id: usize,
        now_ns: &Arc<relaxed::AtomicU64>,
        world: Weak<World>,
    ) -> VirtualCore {
        let (driver, report) = Driver::new(inner, CoreId::of(id))
            .expect("the simulated event source refuses nothing by default");
        inner.outcome.lock().unwrap().backends.push((id, report));
        let bell = Arc::new(VirtualBell(AtomicBool::new(false)));
        inner
            .shared
            .bells
            .hang(CoreId::of(id), Box::new(Arc::clone(&bell)));
        let clock = Clock::Virtual(Arc::clone(now_ns));
        let source = Box::new(driver);
        let worker = Worker::new(Arc::clone(inner), CoreId::of(id), clock, source);
        let bytes = inner.config.core_stack_bytes.unwrap_or(STACK_BYTES);
        let stack = DefaultStack::new(bytes).unwrap_or_else(|error| {
            panic!("a stack of {bytes} bytes (`core_stack_bytes`): {error}");
        });
        let coroutine = Steps::with_stack(stack, move |yielder, ()| {
            let world = || world.upgrade().expect("the world resumes its cores");
            world().cores.borrow_mut()[id].yielder = yielder;
            while world().step(id) {
                yielder.suspend(());
            }
        });
        VirtualCore {
            coroutine: Some(coroutine),
            worker: Some(Box::new(worker)),
            yielder: std::ptr::null(),
            busy_until_ns: 0,
            pace: 0,
            sleeps: false,
            left: false,
            bell,
        }
    }

    /// Whether it sleeps, and was not rung.
    #[cfg(debug_assertions)]
    fn is_asleep(&self) -> bool {
        self.sleeps && !self.bell.0.load(Ordering::Acquire)
    }

    fn is_in_step(&self) -> bool {
        self.coroutine.is_some() && self.worker.is_none()
    }

    fn is_able(&mut self, now_ns: u64) -> bool {
        if self.coroutine.is_none() || self.busy_until_ns > now_ns {
            return false;
        }
        if !self.sleeps || self.bell.0.load(Ordering::Acquire) {
            return true;
        }
        let Some(worker) = &mut self.worker else {
            unreachable!("a core sleeps between two steps");
        };
        let due = |at_ns| at_ns <= now_ns;
        worker.source.has_work() || worker.source.next_ns().is_some_and(due)
    }

    /// When it will be able to go on by itself.
    fn next_ns(&mut self) -> Option<u64> {
        self.coroutine.as_ref()?;
        let busy_until_ns = self.busy_until_ns;
        if !self.sleeps || self.bell.0.load(Ordering::Acquire) {
            return Some(busy_until_ns);
        }
        let source = &mut self.worker.as_mut()?.source;
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

/// Inside a handler, for which this is `ns` of work.
pub(super) fn work(ns: u64) {
    if let Some((world, core)) = running() {
        world.leave(core, ns);
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
