//! mely's runtime on the virtual cores of a machine that a file describes.

use crate::machine::Machine;
use crate::report::Report;
use crate::run::{Options, Stopped, run};
use mely::runtime::BuildError;
use mely::sim::machine::{AROUND, Cores, End, Outside, Run};
use mely::{Builder, Cx, Poster, RunError};
use std::fmt;
use std::time::Duration;

/// Simulates a runtime on a machine.
pub trait SimulateOn {
    /// Builds the same runtime on virtual cores of `machine`, whose time follows from what each
    /// access to memory, each lock and each wake-up costs there. The scheduler is the one that
    /// ships, stealing, spinning and sleeping as it does on threads; what handlers take they say by
    /// [`sim::work`](mely::sim::work), and which bytes they touch by [`charge`](crate::charge).
    ///
    /// Unless the builder says how many, the runtime has all cores of the machine, else those that
    /// keep best company. Topology, event source and pinning are the machine's, whatever the
    /// builder says. Timers go by the virtual time, and so does a recording (`Builder::record`).
    /// There is no network, and whoever listens or connects is told so: what comes from outside is
    /// posted through [`OnMachine::outside`]. The seed decides what is chance: see the
    /// [crate](crate).
    ///
    /// ```
    /// use mely::{Color, Runtime, sim};
    /// use mely_hardware::{Machine, SimulateOn};
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
    /// As [`Cores::new`]: unlike those of `Builder::simulate`, all virtual cores are on the thread
    /// that calls [`OnMachine::run`], for the sake of speed. No handler may lend a reference by a
    /// thread-local variable while it works, charges for anything or calls the runtime.
    ///
    /// # Errors
    /// As [`build`](Builder::build); and [`BuildError::TooManyCores`] if the machine has fewer.
    unsafe fn simulate_on(self, machine: &Machine, seed: u64) -> Result<OnMachine, BuildError>;
}

impl SimulateOn for Builder {
    unsafe fn simulate_on(self, machine: &Machine, seed: u64) -> Result<OnMachine, BuildError> {
        let available = machine.topology().cores().len();
        let mut taken = None;
        let topology = |asked: Option<usize>| {
            let asked = asked.unwrap_or(available);
            if asked == 0 {
                return Err(BuildError::CoreCount(0));
            }
            let machine = machine.take(asked);
            let machine = machine.map_err(|_| BuildError::TooManyCores { asked, available })?;
            Ok(taken.insert(machine).topology().clone())
        };
        // SAFETY: the caller has promised it of the handlers.
        let cores = unsafe { Cores::new(self, topology, seed)? };
        Ok(OnMachine {
            cores,
            machine: taken.expect("a runtime was built on its topology"),
            seed,
            ns_max: None,
            ahead_ns: None,
        })
    }
}

/// A runtime on the cores of a machine nobody needs to own; see [`SimulateOn::simulate_on`].
pub struct OnMachine {
    cores: Cores,
    machine: Machine,
    seed: u64,
    ns_max: Option<f64>,
    ahead_ns: Option<f64>,
}

impl OnMachine {
    /// Gives a [`run`](Self::run) up after this much virtual time; an hour at first.
    pub fn set_time_max(&mut self, time: Duration) {
        self.ns_max = Some(time.as_nanos() as f64);
    }

    /// How far one core may run ahead of the others, in ns: the machine's hold window at first.
    /// More is faster to simulate, and less exact.
    pub fn set_ahead_ns(&mut self, ns: f64) {
        self.ahead_ns = Some(ns);
    }

    /// A poster: what it posts before the run comes from outside.
    pub fn poster(&self) -> Poster {
        self.cores.poster()
    }

    /// The world outside: what it posts comes to a core at a given time, as from a network.
    ///
    /// ```
    /// use mely::{Callback, Color, Runtime};
    /// use mely_hardware::{Machine, SimulateOn};
    ///
    /// let machine = Machine::shipped("epyc-2x64").expect("it comes with the crate");
    /// let builder = Runtime::builder().cores(2);
    /// // SAFETY: the handlers have no thread-local variables.
    /// let run = unsafe { builder.simulate_on(&machine, 7)? };
    /// let outside = run.outside();
    /// // To core 1, after a millisecond of the run.
    /// outside.post_at(1, 1_000_000, |_now_ns| Callback::anonymous(Color::from(5), |cx| cx.stop()));
    /// assert!((1e6..1.1e6).contains(&run.run(|_cx| ())?.all_ns));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn outside(&self) -> Outside {
        self.cores.outside()
    }

    /// Runs `start` as the first event, in [`Color::DEFAULT`](mely::Color::DEFAULT), and every
    /// event after it, until the runtime is asked to stop and has drained; as
    /// [`Runtime::run`](mely::Runtime::run).
    ///
    /// # Errors
    /// What a run on threads would end with; [`Unfinished::Stopped`] if the virtual time is up
    /// before, or no core can go on: then what is in the middle is leaked.
    ///
    /// # Panics
    /// If an assertion of the runtime's own fails, which is a bug of mely's.
    pub fn run<F>(self, start: F) -> Result<Report, Unfinished>
    where
        F: FnOnce(&mut Cx) + Send + 'static,
    {
        let run_of_cores = self.cores.begin(start).map_err(Unfinished::Run)?;
        let Run {
            bodies,
            setup,
            tick,
            tick_ns,
            end,
        } = run_of_cores;
        let mut options = Options::new(self.seed);
        options.ns_max = self.ns_max.unwrap_or(options.ns_max);
        options.ahead_ns = self.ahead_ns;
        options.around = AROUND;
        options.tick = Some((tick_ns, tick));
        options.setup = setup;
        // SAFETY: of handlers the caller of `simulate_on` has promised it, which alone makes an
        // `OnMachine`. The runtime itself lends its context by a thread-local variable, and
        // `AROUND` empties that while a core is left.
        let report = unsafe { run(&self.machine, options, bodies) };
        // A core in the middle of a handler is leaked.
        let report = report.map_err(|stopped| Unfinished::Stopped(Box::new(stopped)))?;
        End::verdict(end).map_err(Unfinished::Run)?;
        Ok(report)
    }
}

impl fmt::Debug for OnMachine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnMachine")
            .field("machine", &self.machine.name())
            .field("cores", &self.cores.count())
            .field("seed", &self.seed)
            .finish_non_exhaustive()
    }
}

/// Why a run on a machine did not end well.
#[derive(Debug)]
pub enum Unfinished {
    /// As a run on threads would have ended.
    Run(RunError),
    /// The virtual time was up, or no core could go on; with what each waited for.
    Stopped(Box<Stopped>),
}

impl fmt::Display for Unfinished {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unfinished::Run(error) => error.fmt(f),
            Unfinished::Stopped(stopped) => stopped.fmt(f),
        }
    }
}

impl std::error::Error for Unfinished {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Unfinished::Run(error) => error.source(),
            Unfinished::Stopped(stopped) => Some(&**stopped),
        }
    }
}
