//! A run on the virtual cores of a machine that a file describes.
//!
//! The workers are those of a run on threads, and so is what they do between two steps: they spin,
//! and sleep. What differs is who lets them go on ([`mely_hardware::run`]), their clock, and that
//! waiting is waiting in virtual time. The event source is the simulated one, of which only timers
//! are of use here, and what comes from [`Outside`]: it costs nothing unless something is due. The
//! watchdog looks between cores, and costs nothing either. Nor does a recording of the run.

use super::SimError;
use super::outside::{Outside, World};
use crate::clock::Clock;
use crate::color::CoreId;
use crate::cx::{has_host, outside};
use crate::host::inner::Inner;
use crate::host::source::Source;
use crate::host::stage::Stage;
use crate::host::unfinished::UnderWay;
use crate::host::watchdog::Watchdog;
use crate::host::worker::{Next, Worker, go_on_once};
use crate::net::Driver;
use crate::policy::numbers::PAUSES;
use crate::runtime::builder::BuildError;
use crate::runtime::threads::{Late, verdict};
use crate::sched::core::Core;
use crate::shared::Shared;
use crate::shared::idle::bells::Bell;
use crate::sync::Arc;
use crate::{Builder, Cx, Poster, RunError, Runtime};
use mely_hardware::charge::{self, uncharged};
use mely_hardware::{Body, Machine, Options, Report};
use std::cell::{Cell, RefCell};
use std::fmt;
use std::rc::Rc;
use std::time::Duration;

/// A runtime on the cores of a machine nobody needs to own; see
/// [`Builder::simulate_on`](crate::Builder::simulate_on).
pub struct OnMachine {
    runtime: Runtime,
    machine: Machine,
    outside: Arc<World>,
    seed: u64,
    ns_max: Option<f64>,
    ahead_ns: Option<f64>,
}

impl Builder {
    /// Builds the same runtime on virtual cores of `machine`, whose time follows from what each
    /// access to memory, each lock and each wake-up costs there. The scheduler is the one that
    /// ships, stealing, spinning and sleeping as it does on threads; what handlers take they say by
    /// [`sim::work`](crate::sim::work), and which bytes they touch by
    /// [`sim::machine::charge`](crate::sim::machine::charge).
    ///
    /// Unless the builder says how many, the runtime has all cores of the machine, else those that
    /// keep best company. Topology, event source and pinning are the machine's, whatever the
    /// builder says. Timers go by the virtual time, and so does a recording
    /// ([`record`](Self::record)). There is no network, and whoever listens or connects is told so:
    /// what comes from outside is posted through [`OnMachine::outside`]. The seed decides what is
    /// chance: see [`mely_hardware`].
    ///
    /// ```
    /// use mely::sim::{self, machine::Machine};
    /// use mely::{Color, Runtime};
    /// use std::time::Duration;
    ///
    /// let machine = Machine::shipped("epyc-2x64").expect("it comes with the crate");
    /// let busy_on = |cores: usize| -> Result<f64, Box<dyn std::error::Error>> {
    ///     let builder = Runtime::builder().cores(cores).exit_when_idle(true);
    ///     // SAFETY: the handlers have no thread-local variables.
    ///     let report = unsafe { builder.simulate_on(&machine, 7)? }.run(|cx| {
    ///         for color in 1..=64u64 {
    ///             cx.post(Color::from(color), |cx| sim::work(cx, Duration::from_micros(100)));
    ///         }
    ///     })?;
    ///     Ok(report.all_ns)
    /// };
    /// // 6.4 ms of work.
    /// assert!((6.4e6..7.0e6).contains(&busy_on(1)?));
    /// assert!(busy_on(16)? < 1.0e6);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Safety
    /// Unlike those of [`simulate`](Self::simulate), all virtual cores are on the thread that calls
    /// [`OnMachine::run`], for the sake of speed. A core may be left in the middle of a handler:
    /// where that calls [`sim::work`](crate::sim::work), [`sim::pause`](crate::sim::pause), a
    /// function or type of [`sim::machine`](crate::sim::machine), or any function of the runtime.
    /// Then others go on, with the same thread-local variables. So no handler may do that while it
    /// lends a reference by a thread-local variable, as the crate `scoped-tls` does: a handler on
    /// another core would find the reference, and might use it after its referent is gone.
    /// Thread-local variables are an example: handlers, and all code that they call, must be sound
    /// though any other handler runs on the same thread at such a place.
    ///
    /// # Errors
    /// As [`build`](Self::build); and [`BuildError::TooManyCores`] if the machine has fewer.
    pub unsafe fn simulate_on(self, machine: &Machine, seed: u64) -> Result<OnMachine, BuildError> {
        let available = machine.topology().cores().len();
        let asked = self.chosen_cores().unwrap_or(available);
        if asked == 0 {
            return Err(BuildError::CoreCount(0));
        }
        let machine = machine.take(asked);
        let machine = machine.map_err(|_| BuildError::TooManyCores { asked, available })?;
        let runtime = self.build_on_machine(machine.topology().clone(), seed)?;
        runtime.inner.virtual_clock.get_or_init(|| Clock::Machine);
        if let Some(recorder) = &runtime.inner.shared.recorder {
            recorder.go_by_machine();
        }
        Ok(OnMachine {
            outside: Arc::new(World::of(Arc::clone(&runtime.inner))),
            runtime,
            machine,
            seed,
            ns_max: None,
            ahead_ns: None,
        })
    }
}

impl OnMachine {
    /// Gives a [`run`](Self::run) up after this much virtual time; an hour at first.
    pub fn set_time_max(&mut self, time: std::time::Duration) {
        self.ns_max = Some(time.as_nanos() as f64);
    }

    /// How far one core may run ahead of the others, in ns: the machine's hold window at first.
    /// More is faster to simulate, and less exact.
    pub fn set_ahead_ns(&mut self, ns: f64) {
        self.ahead_ns = Some(ns);
    }

    /// A poster: what it posts before the run comes from outside.
    pub fn poster(&self) -> Poster {
        self.runtime.poster()
    }

    /// The world outside: what it posts comes to a core at a given time, as from a network.
    pub fn outside(&self) -> Outside {
        Outside::of(&self.outside)
    }

    /// Runs `start` as the first event, in [`Color::DEFAULT`](crate::Color::DEFAULT), and every
    /// event after it, until the runtime is asked to stop and has drained; as
    /// [`Runtime::run`](crate::Runtime::run).
    ///
    /// # Errors
    /// What a run on threads would end with; [`SimError::Stopped`] if the virtual time is up
    /// before, or no core can go on: then what is in the middle is leaked.
    ///
    /// # Panics
    /// If an assertion of the runtime's own fails, which is a bug of mely's.
    pub fn run<F>(self, start: F) -> Result<Report, SimError>
    where
        F: FnOnce(&mut Cx) + Send + 'static,
    {
        if has_host() {
            return Err(SimError::Run(RunError::Inside));
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
        let mut options = Options::new(self.seed);
        options.ns_max = self.ns_max.unwrap_or(options.ns_max);
        options.ahead_ns = self.ahead_ns;
        options.around = |leave| outside(leave);
        options.tick = Some((
            inner.config.watch_period.as_nanos() as f64,
            watch(&inner, &late),
        ));
        // Kept until the verdict.
        let runtime = Rc::new(self.runtime);
        let its = Rc::clone(&runtime);
        options.setup = Box::new(move || {
            name_lines(&its.inner);
            let begun = its.begin(start);
            begun.expect("outside of any handler, a simulated runtime begins");
        });
        // SAFETY: of handlers the caller of `simulate_on` has promised it, which alone makes an
        // `OnMachine`. The runtime itself lends its context by a thread-local variable, and
        // `around` empties that while a core is left.
        let report = unsafe { mely_hardware::run(&self.machine, options, bodies) };
        // A core in the middle of a handler is leaked.
        let report = report.map_err(|stopped| SimError::Stopped(Box::new(stopped)))?;
        verdict(&inner, late.take(), Vec::new(), Vec::new()).map_err(SimError::Run)?;
        Ok(report)
    }
}

impl fmt::Debug for OnMachine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnMachine")
            .field("machine", &self.machine.name())
            .field("cores", &self.runtime.inner.shared.cores.len())
            .field("seed", &self.seed)
            .finish_non_exhaustive()
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
    let mut worker = Worker::new(Arc::clone(inner), id, Clock::Machine, source);
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
                let until_ns = worker.looks_again_ns();
                let due_ns = uncharged(|| next_ns(worker));
                let until_ns = until_ns.min(due_ns.unwrap_or(u64::MAX));
                charge::idle(PAUSES, worker.core.called_at(), until_ns);
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
fn watch(inner: &Arc<Inner>, late: &Rc<Cell<Option<Late>>>) -> mely_hardware::Tick {
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

/// Names the lines that cores share, the larger things first: what is named later counts.
fn name_lines(inner: &Inner) {
    charge::name(inner, "runtime", 0);
    charge::name_count(inner, "references", 0);
    charge::name_count(&*inner.shared, "references", 1);
    charge::name(&*inner.quiesce, "quiesce", 0);
    inner.quiesce.name_lines();
    if let Some(recorder) = &inner.shared.recorder {
        charge::name(&**recorder, "recorder", 0);
    }
    inner.shared.name_lines();
}

impl Shared {
    /// As [`name_lines`].
    fn name_lines(&self) {
        charge::name(self, "shared", 0);
        self.slots.name_lines();
        self.profiles.name_lines();
        charge::name(&self.gates, "gates", 0);
        self.foreign.name_lines();
        charge::name(&*self.depot, "depot", 0);
        self.idle.name_lines();
        for (at, core) in self.cores.iter().enumerate() {
            charge::name(&**core, "core", at);
            charge::name(&core.lock, "lock", at);
            charge::name(&core.pokes, "pokes", at);
            charge::name(&core.hint, "hint", at);
            charge::name(&core.progress, "progress", at);
            charge::name(&core.steal_costs, "steal_costs", at);
            charge::name(&core.busy, "busy", at);
            charge::name(&core.stats, "stats", at);
            core.counts.name_lines(at);
        }
    }
}
