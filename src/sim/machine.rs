//! A runtime on the virtual cores of a simulated machine: what a crate that has such a machine needs.
//!
//! The workers are those of a run on threads, and so is what they do between two steps: they spin,
//! and sleep. What differs is who lets them go on, which is a machine by its [`Hook`](charge::Hook);
//! their clock; and that waiting is waiting in virtual time. The event source is the simulated one,
//! of which only timers are of use here, and what comes from [`Outside`]: it costs nothing unless
//! something is due. The watchdog looks between cores, and costs nothing either. Nor does a
//! recording of the run.
//!
//! For the crates of this repository that simulate machines (`lab/machine/hardware`), with the
//! feature `machine`: it makes no promise to others.

#![doc(hidden)]

mod lines;
mod outside;

pub use self::outside::Outside;
pub use crate::sync::charged as sync;
pub use crate::sync::charged::charge;

use self::charge::{CoreClock, FreeClock, uncharged};
use self::lines::name_lines;
use self::outside::World;
use crate::clock::Clock;
use crate::color::CoreId;
use crate::cx::{has_host, outside};
use crate::host::inner::{Inner, Simulated};
use crate::host::source::Source;
use crate::host::stage::Stage;
use crate::host::unfinished::UnderWay;
use crate::host::watchdog::Watchdog;
use crate::host::worker::{Next, Worker, go_on_once};
use crate::net::{Driver, SimNet};
use crate::policy::numbers::PAUSES;
use crate::record::Time;
use crate::runtime::builder::BuildError;
use crate::runtime::threads::{Late, verdict};
use crate::sched::core::Core;
use crate::shared::idle::bells::Bell;
use crate::sync::Arc;
use crate::topology::Topology;
use crate::{Builder, Cx, Poster, RunError, Runtime};
use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;
use std::time::Duration;

/// What a virtual core runs, or what is called once.
pub type Body = Box<dyn FnOnce()>;

/// What is called between cores, with the time in ns.
pub type Tick = Box<dyn FnMut(u64)>;

/// Leaves a core: calls what it is given, in which others go on, and sees to it that nothing of the
/// runtime's is found on this thread meanwhile.
pub const AROUND: fn(&dyn Fn()) = |leave| outside(leave);

/// A runtime with virtual cores that a machine is to run.
pub struct Cores {
    runtime: Runtime,
    outside: Arc<World>,
}

impl Cores {
    /// Builds the runtime that [`Builder::build`] would. Its cores are those of the topology, all of
    /// them, which is told how many the builder asks for. Topology, event source and pinning are the
    /// machine's, whatever the builder says.
    ///
    /// # Safety
    /// All virtual cores are on the thread that runs them. A core may be left in the middle of a
    /// handler: where that calls [`sim::work`](crate::sim::work), [`sim::pause`](crate::sim::pause),
    /// a function or type of this module, or any function of the runtime. Then others go on, with
    /// the same thread-local variables. So no handler may do that while it lends a reference by a
    /// thread-local variable, as the crate `scoped-tls` does: a handler on another core would find
    /// the reference, and might use it after its referent is gone. Thread-local variables are an
    /// example: handlers, and all code that they call, must be sound though any other handler runs
    /// on the same thread at such a place.
    ///
    /// # Errors
    /// As [`build`](Builder::build), and those of the topology.
    pub unsafe fn new(
        mut builder: Builder,
        topology: impl FnOnce(Option<usize>) -> Result<Topology, BuildError>,
        seed: u64,
    ) -> Result<Cores, BuildError> {
        let topology = topology(builder.cores.take())?;
        let net = SimNet::new(seed);
        let runtime = builder.build_simulated(Simulated::OnMachine, topology, net, seed)?;
        let clock = || Clock::Machine(CoreClock);
        runtime.inner.virtual_clock.get_or_init(clock);
        if let Some(recorder) = &runtime.inner.shared.recorder {
            recorder.go_by(Time::Machine(FreeClock::default()));
        }
        Ok(Cores {
            outside: Arc::new(World::of(Arc::clone(&runtime.inner))),
            runtime,
        })
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.runtime.inner.shared.cores.len()
    }

    /// A poster: what it posts before the run comes from outside.
    pub fn poster(&self) -> Poster {
        self.runtime.poster()
    }

    /// The world outside: what it posts comes to a core at a given time, as from a network.
    pub fn outside(&self) -> Outside {
        Outside::of(&self.outside)
    }

    /// What the machine is to run: `start` as the first event, in
    /// [`Color::DEFAULT`](crate::Color::DEFAULT), and every event after it, until the runtime is
    /// asked to stop and has drained.
    ///
    /// # Errors
    /// [`RunError::Inside`] in a handler of whatever runtime.
    pub fn begin<F>(self, start: F) -> Result<Run, RunError>
    where
        F: FnOnce(&mut Cx) + Send + 'static,
    {
        if has_host() {
            return Err(RunError::Inside);
        }
        let inner = Arc::clone(&self.runtime.inner);
        let cores = inner.shared.cores.len();
        let start_line = Rc::new(StartLine {
            cores,
            waiting: RefCell::default(),
        });
        let bodies = (0..cores)
            .map(|core| body(&inner, &self.outside, core, &start_line))
            .collect();
        let late = Rc::new(Cell::new(None));
        let tick = watch(&inner, &late);
        // Kept until the verdict.
        let runtime = Rc::new(self.runtime);
        let its = Rc::clone(&runtime);
        let setup = Box::new(move || {
            name_lines(&its.inner);
            let begun = its.begin(start);
            begun.expect("outside of any handler, a simulated runtime begins");
        });
        Ok(Run {
            bodies,
            setup,
            tick_ns: inner.config.watch_period.as_nanos() as f64,
            tick,
            end: End {
                inner,
                late,
                _runtime: runtime,
            },
        })
    }
}

impl fmt::Debug for Cores {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cores")
            .field("count", &self.count())
            .finish_non_exhaustive()
    }
}

/// A run, for a machine that has installed its hook on this thread, and leaves a core by [`AROUND`]
/// only.
pub struct Run {
    /// What each core runs.
    pub bodies: Vec<Body>,
    /// Called before any core begins, outside of time.
    pub setup: Body,
    /// Called between cores after each interval of this number of ns; costs nothing.
    pub tick: Tick,
    /// That number.
    pub tick_ns: f64,
    /// Asked once all cores have ended.
    pub end: End,
}

impl fmt::Debug for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Run")
            .field("cores", &self.bodies.len())
            .finish_non_exhaustive()
    }
}

/// How a run ended.
pub struct End {
    inner: Arc<Inner>,
    late: Rc<Cell<Option<Late>>>,
    _runtime: Rc<Runtime>,
}

impl fmt::Debug for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("End").finish_non_exhaustive()
    }
}

impl End {
    /// What the run came to.
    ///
    /// # Errors
    /// What a run on threads would end with.
    pub fn verdict(self) -> Result<(), RunError> {
        verdict(&self.inner, self.late.take(), Vec::new(), Vec::new())
    }
}

/// The doorbell of a virtual core.
#[derive(Debug)]
struct MachineBell(usize);

impl Bell for MachineBell {
    fn ring(&self) {
        charge::wake(self.0);
    }
}

/// What a core runs until the end.
fn body(inner: &Arc<Inner>, outside: &Arc<World>, core: usize, start_line: &Rc<StartLine>) -> Body {
    let id = CoreId::of(core);
    let (driver, report) =
        Driver::new(inner, id).expect("the simulated event source refuses nothing by default");
    inner.outcome.lock().unwrap().backends.push((core, report));
    inner
        .shared
        .idle
        .bells
        .hang(id, Box::new(MachineBell(core)));
    let source = Box::new(OffTheClock {
        driver,
        outside: Arc::clone(outside),
        core,
    });
    let mut worker = Worker::new(Arc::clone(inner), id, Clock::Machine(CoreClock), source);
    let start_line = Rc::clone(start_line);
    Box::new(move || {
        start_line.wait(core);
        Cx::with(&mut worker, run_until_closed);
        // What is left is none of the run's.
        uncharged(|| drop(worker));
    })
}

/// What [`all_ready`](crate::runtime::threads) is to the threads of a run, which begin once all are
/// ready, without its lock: the last one, which the seed draws, wakes the others in the order in
/// which they came. So cores do not begin at the same moment.
struct StartLine {
    cores: usize,
    waiting: RefCell<Vec<usize>>,
}

impl StartLine {
    fn wait(&self, core: usize) {
        if self.waiting.borrow().len() + 1 == self.cores {
            let others = self.waiting.take();
            others.into_iter().for_each(charge::wake);
            return;
        }
        self.waiting.borrow_mut().push(core);
        while self.waiting.borrow().contains(&core) {
            charge::sleep(None);
        }
    }
}

fn run_until_closed(cx: &mut Cx) {
    loop {
        match go_on_once(cx, |_| ()) {
            Next::Step | Next::Changed => {}
            Next::Spin => {
                let worker = cx.worker();
                let until_ns = looks_again_ns(worker);
                let due_ns = uncharged(|| next_ns(worker));
                let until_ns = until_ns.min(due_ns.unwrap_or(u64::MAX));
                charge::idle(PAUSES, called_at(&worker.core), until_ns);
            }
            Next::Wait => {
                let worker = cx.worker();
                charge::sleep(uncharged(|| next_ns(worker)));
                worker.wake_up();
            }
            Next::Leave => break,
        }
    }
}

/// When a step will find something else though nobody writes anything: the worker has spun for long
/// enough, or a victim has been in one turn for too long.
fn looks_again_ns(worker: &Worker) -> u64 {
    let spin = &worker.spin;
    let spun_ns = spin.idle_since_ns;
    let spun_ns = spun_ns.map_or(u64::MAX, |since_ns| since_ns.saturating_add(spin.limit_ns));
    spun_ns.min(worker.core.search.stuck_at.ns())
}

/// What [`Core::is_called`] looks at.
fn called_at(core: &Core) -> [*const u8; 2] {
    let (pokes, hint) = (&raw const *core.own.pokes, &raw const *core.own.hint);
    [pokes.cast(), hint.cast()]
}

fn next_ns(worker: &Worker) -> Option<u64> {
    worker.inner.sources.lock(worker.core.id).source().next_ns()
}

/// The simulated event source, charged for what it brings and not for looks in vain; and what comes
/// from outside.
#[derive(Debug)]
struct OffTheClock {
    driver: Driver,
    outside: Arc<World>,
    core: usize,
}

impl Source for OffTheClock {
    fn look(&mut self, core: &mut Core) {
        let now_ns = charge::now_ns().unwrap_or(0);
        let due = |source: &mut Driver| {
            source.has_work() || source.next_ns().is_some_and(|at_ns| at_ns <= now_ns)
        };
        if uncharged(|| due(&mut self.driver)) {
            self.driver.look_at_all(core);
        } else {
            uncharged(|| self.driver.look_at_all(core));
        }
        while self.outside.post_due(self.core, now_ns, core) {}
    }

    fn has_work(&mut self) -> bool {
        let now_ns = charge::now_ns().unwrap_or(0);
        let is_due = |at_ns| at_ns <= now_ns;
        uncharged(|| self.driver.has_work()) || self.outside.next_ns(self.core).is_some_and(is_due)
    }

    fn next_ns(&mut self) -> Option<u64> {
        let outside_ns = self.outside.next_ns(self.core);
        self.driver.next_ns().into_iter().chain(outside_ns).min()
    }

    fn wait(&mut self, core: &Core) {
        self.driver.wait(core);
    }

    fn working_changed(&mut self, core: &mut Core) {
        uncharged(|| self.driver.working_changed(core));
    }

    fn begin_stage(&mut self, stage: Stage, core: &mut Core) {
        uncharged(|| self.driver.begin_stage(stage, core));
        self.outside.close(self.core);
    }

    fn is_quiet(&self) -> bool {
        uncharged(|| self.driver.is_quiet()) && self.outside.next_ns(self.core).is_none()
    }

    fn under_way(&self, now_ns: u64) -> UnderWay {
        uncharged(|| self.driver.under_way(now_ns))
    }

    fn driver(&mut self) -> Option<&mut Driver> {
        Some(&mut self.driver)
    }
}

/// What the thread that called `run` does in a run on threads: the watchdog's looks, and the
/// deadline for draining.
fn watch(inner: &Arc<Inner>, late: &Rc<Cell<Option<Late>>>) -> Tick {
    let (inner, late) = (Arc::clone(inner), Rc::clone(late));
    let mut watchdog = Watchdog::new(inner.shared.cores.len());
    let mut stopping_since_ns = None;
    Box::new(move |now_ns| {
        let shared = &inner.shared;
        if shared.idle.vigil.any_busy(&shared.cores) {
            watchdog.look(&inner, now_ns);
        }
        // Without a network there is one stage.
        if inner.quiesce.phase().stage().is_some() {
            let since_ns = *stopping_since_ns.get_or_insert(now_ns);
            if u128::from(now_ns - since_ns) >= inner.config.drain_deadline.as_nanos() {
                let stopping_for = Duration::from_nanos(now_ns - since_ns);
                late.set(Some(Late::now(&inner, stopping_for)));
                inner.force();
            }
        }
    })
}
