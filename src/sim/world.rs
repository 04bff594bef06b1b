//! The virtual cores of a simulation, and who of them goes next.

use super::random::Random;
use super::trace::Trace;
use crate::Cx;
use crate::net::Driver;
use crate::runtime::inner::Inner;
use crate::runtime::source::Source;
use crate::runtime::worker::{Next, Worker, enter, step};
use crate::sched::clock::Clock;
use crate::sched::quiesce::Phase;
#[cfg(debug_assertions)]
use crate::sched::section::Section;
use crate::sched::shared::Bell;
use crate::sync::Arc;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::relaxed;
use std::any::Any;
use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::rc::Rc;

/// Cores in the middle of something at once, one inside the other on the stack.
const DEPTH_MAX: usize = 16;
/// Steps for which the cores keep their paces.
const PACE_STEPS: u64 = 64;
/// The slowest pace is 2 to this power times as slow as the fastest.
const PACES_LOG: usize = 7;
/// A step takes at most 2 to this power of ns.
const STEP_NS_LOG: usize = 10;
/// Between two events the others go on once in so many times.
const BETWEEN_PERIOD: usize = 4;
/// At a pause the others take up to so many steps.
const PAUSE_STEPS_MAX: usize = 4;
/// With so many cores, the lists of all of them are checked after each step; with more, those of the
/// core that took it and of one other.
#[cfg(debug_assertions)]
const CHECK_ALL_MAX: usize = 8;

/// One virtual core.
#[derive(Debug)]
struct VirtualCore {
    /// Away while the core takes a step, which others may take steps inside of.
    worker: Option<Box<Worker>>,
    sleeps: bool,
    left: bool,
    /// How likely it is to go next, against the others.
    pace: u64,
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
#[derive(Debug)]
pub(super) struct World {
    inner: Arc<Inner>,
    cores: RefCell<Vec<VirtualCore>>,
    now_ns: Arc<relaxed::AtomicU64>,
    random: RefCell<Random>,
    pub(super) trace: RefCell<Trace>,
    depth: Cell<usize>,
    steps: Cell<u64>,
    /// When the end was asked for.
    stopping_since_ns: Cell<Option<u64>>,
    pub(super) deadline_passed: Cell<bool>,
    /// An assertion of the runtime's own failed, in a step that may have been inside another: nothing
    /// goes on.
    broken: RefCell<Option<Box<dyn Any + Send>>>,
}

std::thread_local! {
    /// The worlds that this thread is inside of, the innermost last.
    static WORLDS: RefCell<Vec<Rc<World>>> = const { RefCell::new(Vec::new()) };
}

/// The world whose handler calls.
pub(super) fn current() -> Option<Rc<World>> {
    WORLDS.with_borrow(|worlds| worlds.last().cloned())
}

/// What [`World::advance`] came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Advanced {
    /// This core took a step.
    Stepped(usize),
    /// The clock went on to the next timer.
    Waited,
    /// Every core sleeps, and nothing that is known will wake one.
    Stalled,
    /// Every core has left.
    Ended,
}

impl World {
    pub(super) fn new(inner: &Arc<Inner>, seed: u64) -> World {
        let now_ns = Arc::new(relaxed::AtomicU64::new(0));
        let cores = (0..inner.shared.cores.len())
            .map(|id| {
                let (driver, report) = Driver::new(inner, id as u32)
                    .expect("the simulated event source refuses nothing by default");
                inner.outcome.lock().unwrap().backends.push((id, report));
                let bell = Arc::new(VirtualBell(AtomicBool::new(false)));
                inner
                    .shared
                    .hang_bell(id as u32, Box::new(Arc::clone(&bell)));
                let clock = Clock::Virtual(Arc::clone(&now_ns));
                let source = Source::Net(Box::new(driver));
                let worker = Worker::new(Arc::clone(inner), id as u32, clock, source);
                VirtualCore {
                    worker: Some(Box::new(worker)),
                    sleeps: false,
                    left: false,
                    pace: 1,
                    bell,
                }
            })
            .collect();
        World {
            inner: Arc::clone(inner),
            cores: RefCell::new(cores),
            now_ns,
            random: RefCell::new(Random::new(seed)),
            trace: RefCell::new(Trace::new()),
            depth: Cell::new(0),
            steps: Cell::new(0),
            stopping_since_ns: Cell::new(None),
            deadline_passed: Cell::new(false),
            broken: RefCell::new(None),
        }
    }

    pub(super) fn now_ns(&self) -> u64 {
        self.now_ns.load(relaxed::Ordering::Relaxed)
    }

    fn set_now_ns(&self, ns: u64) {
        self.now_ns.store(ns, relaxed::Ordering::Relaxed);
    }

    pub(super) fn steps(&self) -> u64 {
        self.steps.get()
    }

    /// A number less than `end`, which is not 0.
    fn draw(&self, end: usize) -> usize {
        self.random.borrow_mut().below(end)
    }

    /// One step of one core, or on to the next timer.
    pub(super) fn advance(self: &Rc<World>) -> Advanced {
        if let Some(at) = self.step_some() {
            return Advanced::Stepped(at);
        }
        if self.cores.borrow().iter().all(|core| core.left) {
            return Advanced::Ended;
        }
        match self.next_ns() {
            Some(at_ns) => {
                self.set_now_ns(at_ns.max(self.now_ns()));
                self.look_at_deadline();
                Advanced::Waited
            }
            None => {
                let left = self.inner.events_left();
                assert!(
                    left == 0,
                    "a bug of mely's: every core sleeps, and {left} events are left"
                );
                Advanced::Stalled
            }
        }
    }

    /// Lets some core that can take a step. None: no core can, for now.
    fn step_some(self: &Rc<World>) -> Option<usize> {
        if self.depth.get() > DEPTH_MAX || self.broken.borrow().is_some() {
            return None;
        }
        let core = self.choose()?;
        self.step_core(core);
        Some(core)
    }

    /// Draws the core that goes next from those that can. Each keeps a pace for a while, so that some
    /// fall far behind others, as they do when the system takes their processor away.
    fn choose(&self) -> Option<usize> {
        let mut cores = self.cores.borrow_mut();
        if self.steps.get().is_multiple_of(PACE_STEPS) {
            for core in &mut *cores {
                core.pace = 1 << self.draw(PACES_LOG + 1);
            }
        }
        let now_ns = self.now_ns();
        let able = |core: &mut VirtualCore| {
            let sleeps = core.sleeps;
            let rung = core.bell.0.load(Ordering::Acquire);
            core.worker.as_mut().is_some_and(|worker| {
                !sleeps
                    || rung
                    || worker.source.has_work()
                    || worker.source.next_ns().is_some_and(|at_ns| at_ns <= now_ns)
            })
        };
        let paces: Vec<u64> = cores
            .iter_mut()
            .map(|core| if able(core) { core.pace } else { 0 })
            .collect();
        let sum: u64 = paces.iter().sum();
        if sum == 0 {
            return None;
        }
        let mut at = self.draw(sum as usize) as u64;
        paces.iter().position(|&pace| {
            let found = at < pace;
            at = at.wrapping_sub(pace);
            found
        })
    }

    fn step_core(self: &Rc<World>, id: usize) {
        let mut worker = {
            let core = &mut self.cores.borrow_mut()[id];
            let mut worker = core.worker.take().expect("chosen from those that have one");
            if std::mem::take(&mut core.sleeps) {
                core.bell.0.store(false, Ordering::Release);
                // Returns at once in a simulation, and forgets that it was rung for.
                worker.source.wait(&worker.core);
                worker.rise();
            }
            worker
        };
        self.steps.set(self.steps.get() + 1);
        self.take_time(1 << self.draw(STEP_NS_LOG + 1));
        self.depth.set(self.depth.get() + 1);
        WORLDS.with_borrow_mut(|worlds| worlds.push(Rc::clone(self)));
        let stepped = catch_unwind(AssertUnwindSafe(|| {
            enter(&mut worker, |cx| step(cx, |cx| self.between(cx)))
        }));
        WORLDS.with_borrow_mut(|worlds| worlds.pop());
        self.depth.set(self.depth.get() - 1);
        let next = match stepped {
            Ok(next) => next,
            Err(payload) => {
                // Handlers' panics are caught further in. What an inconsistent core would do when it
                // is dropped, nobody knows.
                std::mem::forget(worker);
                self.broken.borrow_mut().get_or_insert(payload);
                return;
            }
        };
        if next == Next::Leave {
            self.cores.borrow_mut()[id].left = true;
            // Not under the borrow: what it drops may be the user's.
            drop(worker);
        } else {
            let core = &mut self.cores.borrow_mut()[id];
            core.sleeps = next == Next::Wait;
            core.worker = Some(worker);
        }
        #[cfg(debug_assertions)]
        self.check_lists(id);
    }

    /// The invariants of the lists that a step may have changed.
    #[cfg(debug_assertions)]
    fn check_lists(&self, stepped: usize) {
        let shared = &self.inner.shared;
        let check = |core: usize| Section::enter(shared, core as u32).assert_valid();
        let cores = shared.cores.len();
        let result = catch_unwind(AssertUnwindSafe(|| {
            if cores <= CHECK_ALL_MAX {
                (0..cores).for_each(check);
            } else {
                check(stepped);
                check(self.draw(cores));
            }
        }));
        if let Err(payload) = result {
            self.broken.borrow_mut().get_or_insert(payload);
        }
    }

    fn take_time(&self, ns: u64) {
        self.set_now_ns(self.now_ns() + ns);
        self.look_at_deadline();
    }

    /// Ends by force what has not drained in time.
    fn look_at_deadline(&self) {
        let quiesce = &self.inner.shared.quiesce;
        if quiesce.phase() != Phase::Draining {
            return;
        }
        let now_ns = self.now_ns();
        let since_ns = self.stopping_since_ns.get().unwrap_or(now_ns);
        self.stopping_since_ns.set(Some(since_ns));
        if u128::from(now_ns - since_ns) >= self.inner.config.drain_deadline.as_nanos() {
            self.deadline_passed.set(true);
            self.inner.force();
        }
    }

    /// When something will happen though every core sleeps: a timer, or the deadline.
    fn next_ns(&self) -> Option<u64> {
        let mut cores = self.cores.borrow_mut();
        let timers = cores
            .iter_mut()
            .filter_map(|core| core.worker.as_mut()?.source.next_ns());
        let deadline_ns = self.stopping_since_ns.get().and_then(|since_ns| {
            let ns = u64::try_from(self.inner.config.drain_deadline.as_nanos()).ok()?;
            since_ns.checked_add(ns)
        });
        timers.chain(deadline_ns).min()
    }

    /// After each event of a core.
    fn between(self: &Rc<World>, cx: &mut Cx) {
        let depth = self.depth.get();
        self.trace.borrow_mut().event(self.now_ns(), depth, cx);
        if self.draw(BETWEEN_PERIOD) == 0 {
            let _ = self.step_some();
        }
    }

    /// Inside a handler: lets others go on.
    pub(super) fn pause(self: &Rc<World>) {
        for _ in 0..=self.draw(PAUSE_STEPS_MAX) {
            if self.step_some().is_none() {
                return;
            }
        }
    }

    /// Inside a handler, for which this is `ns` of work.
    pub(super) fn work(self: &Rc<World>, ns: u64) {
        let end_ns = self.now_ns().saturating_add(ns);
        while self.now_ns() < end_ns {
            if self.step_some().is_some() {
                continue;
            }
            // Nobody can until the next timer of those that sleep.
            let next_ns = self.next_ns().filter(|&at_ns| at_ns > self.now_ns());
            self.set_now_ns(next_ns.map_or(end_ns, |at_ns| at_ns.min(end_ns)));
            self.look_at_deadline();
        }
    }

    /// Goes on with what a failed assertion of the runtime's own began, outside of all steps.
    pub(super) fn fail_if_broken(&self) {
        let broken = self.broken.borrow_mut().take();
        if let Some(payload) = broken {
            for core in &mut *self.cores.borrow_mut() {
                std::mem::forget(core.worker.take());
            }
            resume_unwind(payload);
        }
    }

    /// Drops the cores that have not left, with what they have under way.
    pub(super) fn drop_cores(&self) {
        let workers: Vec<_> = {
            let mut cores = self.cores.borrow_mut();
            cores.iter_mut().map(|core| core.worker.take()).collect()
        };
        drop(workers);
    }
}
