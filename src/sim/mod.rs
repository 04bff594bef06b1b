//! One driver, one seed: a runtime whose cores take turns, and whose every choice follows from a
//! number.
//!
//! [`Builder::simulate`] builds the runtime that [`Builder::build`] would, with *virtual cores*:
//! the same scheduler, whose cores take steps in an order that the seed decides; a virtual clock;
//! the simulated network. From 1 to 512 cores on any topology, whatever the machine has. The same
//! seed makes the same run, event by event, so what fails once can be looked at as often as needed.
//!
//! ```
//! use mely::sim;
//! use mely::{Color, Colored, Runtime};
//! use std::sync::atomic::Ordering::Relaxed;
//!
//! // Two tellers who each read the balance, think, and write it back, in events of their own.
//! fn withdraw(account: &Colored<u64>, cx: &mut mely::Cx) {
//!     let later = account.clone();
//!     account.post(cx, move |balance, cx| {
//!         let seen = *balance;
//!         later.post(cx, move |balance, _cx| *balance = seen - 1);
//!     });
//! }
//! fn ends_with(seed: u64) -> Result<u64, Box<dyn std::error::Error>> {
//!     let builder = Runtime::builder().cores(2).exit_when_idle(true);
//!     let left = std::sync::Arc::new(std::sync::atomic::AtomicU64::new(0));
//!     let result = left.clone();
//!     builder.simulate(seed)?.run(move |cx| {
//!         let account = Colored::new(cx, Color::from(1), 10);
//!         for teller in 2..4u64 {
//!             let account = account.clone();
//!             let result = result.clone();
//!             cx.post(Color::from(teller), move |cx| {
//!                 sim::pause(cx);
//!                 withdraw(&account, cx);
//!                 cx.flush();
//!                 sim::pause(cx);
//!                 account.post(cx, move |balance, _cx| result.store(*balance, Relaxed));
//!             });
//!         }
//!     })?;
//!     Ok(left.load(Relaxed))
//! }
//! // Mostly 8 are left. In some orders one withdrawal is lost.
//! for seed in 0..200 {
//!     if ends_with(seed)? == 9 {
//!         assert_eq!(ends_with(seed)?, 9, "found again");
//!         return Ok(());
//!     }
//! }
//! panic!("some seed finds it");
//! # #[allow(unreachable_code)]
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What is decided by the seed
//!
//! Which of the cores that could go on does, how long each step takes, which of several completions
//! comes first, how much a receive moves. Cores have *paces* that change now and then, so that some
//! fall far behind others, as when the system takes their processor away. A core may be left
//! between any two events, and inside a handler where that calls [`pause`] or [`work`]; both do
//! nothing in a runtime that is not simulated.
//!
//! What is not: [`HashMap`](std::collections::HashMap)s with random keys, the machine's clocks
//! ([`Instant::now`](std::time::Instant::now) and [`SystemTime::now`]; those of the simulation are
//! [`Cx::instant`] and [`Cx::system_time`]), other threads, addresses. A test that repeats itself
//! keeps clear of those.
//! [`Simulation::fingerprint`] tells whether two runs were the same.
//!
//! [Blocking work](crate::Cx::try_blocking) runs as events of virtual threads; the seed decides
//! which is over first. It takes no virtual time.
//!
//! # What is checked on the way
//!
//! With debug assertions, the invariants of the scheduler's lists after each step: those of all
//! cores, or with more than eight those of the core that took it and of one other. And always: when
//! every core sleeps and nothing will wake one, no event may be left; a core that is retired begins
//! no event of a color and takes none; and after a step a core has seen how many cores work.
//!
//! # What is different from a run on threads
//!
//! The scheduler's own functions are not interrupted: the interleavings inside of them, and the
//! orders of memory, are what the loom models explore (`loom-tests/`). Time passes between steps
//! and in [`work`], so a handler takes no time unless it says so.
//!
//! # How
//!
//! Each virtual core has a thread, named as in a run on threads: `mely-0` and so on. One of them
//! runs at a time, and hands the simulation to the next. So thread-local variables are a core's
//! own: if a handler keeps something there, or lends something while a closure runs, no other core
//! sees it. A hand-over takes some microseconds.
//!
//! The threads have stacks of 2 MiB, provided as far as they are used. They end at the
//! [`end`](Simulation::end) of the simulation, or when it is dropped. If a handler does not come to
//! its end then, its thread is left behind.
//!
//! [`Builder::simulate`]: crate::Builder::simulate
//! [`Builder::build`]: crate::Builder::build

mod check;
#[cfg(feature = "machine")]
#[doc(hidden)]
pub mod machine;
mod trace;
mod world;

pub use self::check::check;

use self::world::VirtualCores;
use crate::cx::has_host;
use crate::fs::SimDisk;
use crate::net::SimNet;
use crate::runtime::builder::BuildError;
use crate::runtime::{Finish, threads::Late, threads::verdict};
use crate::signal::Signal;
use crate::sync::charge;
use crate::{Builder, Cx, Poster, RunError, Runtime};
use std::fmt;
use std::time::{Duration, SystemTime};

/// Steps after which a run is given up, unless told otherwise.
const STEPS_MAX: u64 = 50_000_000;

/// A runtime whose cores take steps when they are told to; see the [module's text](self).
pub struct Simulation {
    cores: VirtualCores,
    runtime: Runtime,
    net: SimNet,
    seed: u64,
    steps_max: u64,
    /// Its first event was posted.
    started: bool,
    /// Its end was told.
    over: bool,
}

/// What a [`Simulation::step`] was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Step {
    /// This core took a step, or a part of one.
    Core {
        /// Its number.
        core: usize,
    },
    /// No core could go on, and the clock did: to the end of what one is busy with, or to a timer.
    Waited,
    /// Every core sleeps, no event is left but those that wait for a hold, and no timer runs: until
    /// something comes from outside (a post, perhaps another thread's, the end of a hold, or a
    /// client's bytes), nothing will happen.
    Stalled,
    /// The run is over.
    Ended,
}

impl Builder {
    /// Builds the same runtime with virtual cores, which take steps in an order that `seed`
    /// decides, on a virtual clock and the simulated network: see [`sim`](crate::sim).
    ///
    /// The machine is the builder's [`topology`](Self::topology), else a flat one with as many
    /// processors as cores are asked for (4 by default). The event
    /// source is the simulated one, the builder's if it has one. [`spin`](Self::spin) is at most 2
    /// us, and there is nothing to pin.
    ///
    /// # Errors
    /// As [`build`](Self::build); and [`BuildError::Thread`] if the system refuses a thread.
    pub fn simulate(self, seed: u64) -> Result<Simulation, BuildError> {
        let (runtime, net) = self.build_virtual(seed)?;
        Simulation::new(runtime, net, seed)
    }
}

impl Simulation {
    fn new(runtime: Runtime, net: SimNet, seed: u64) -> Result<Simulation, BuildError> {
        let cores = VirtualCores::new(&runtime.inner, seed);
        Ok(Simulation {
            cores: cores.map_err(|error| BuildError::Thread(error.to_string()))?,
            runtime,
            net,
            seed,
            steps_max: STEPS_MAX,
            started: false,
            over: false,
        })
    }

    /// Gives a [`run`](Self::run) up after this many steps; 50 million at first.
    pub fn set_steps_max(&mut self, steps: u64) {
        self.steps_max = steps;
    }

    /// Runs `start` as the first event, in [`Color::DEFAULT`](crate::Color::DEFAULT), and every
    /// event after it, until the runtime is asked to stop and has drained; as [`Runtime::run`].
    ///
    /// # Errors
    /// What a run on threads would end with; or that it would go on for ever: [`SimError`].
    ///
    /// # Panics
    /// If an invariant of the scheduler is broken, which is a bug of mely's.
    pub fn run<F>(&mut self, start: F) -> Result<(), SimError>
    where
        F: FnOnce(&mut Cx) + Send + 'static,
    {
        self.start(start)?;
        loop {
            match self.cores.advance(self.steps_max) {
                Step::Core { .. } | Step::Waited if self.steps() < self.steps_max => {}
                Step::Core { .. } | Step::Waited => return Err(SimError::Endless(self.steps())),
                Step::Stalled => return Err(SimError::Stalled),
                Step::Ended => return self.end(),
            }
        }
    }

    /// Like [`run`](Self::run), and returns the value that some handler gives to the [`Finish`]; as
    /// [`Runtime::run_until`].
    ///
    /// # Errors
    /// See [`run`](Self::run).
    pub fn run_until<T, F>(&mut self, start: F) -> Result<T, SimError>
    where
        T: Send + 'static,
        F: FnOnce(&mut Cx, Finish<T>) + Send + 'static,
    {
        let (finish, value) = Finish::new(self.poster());
        self.run(move |cx| start(cx, finish))?;
        value().ok_or(SimError::Run(RunError::NoValue))
    }

    /// Posts the first event and runs nothing yet: for a test that takes the steps itself, with
    /// clients of the simulated network or posts from outside in between.
    ///
    /// ```
    /// use mely::{Post, Color, Runtime, sim::Step};
    /// let mut simulation = Runtime::builder().simulate(7)?;
    /// simulation.start(|_cx| ())?;
    /// let poster = simulation.poster();
    /// while simulation.step() != Step::Stalled {}
    /// poster.try_post(Color::from(1), |cx| cx.stop())?;
    /// while simulation.step() != Step::Ended {}
    /// simulation.end()?;
    /// assert_eq!(simulation.stats().events(), 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`SimError::Again`], or [`RunError::Inside`] in a handler of whatever runtime.
    pub fn start<F>(&mut self, start: F) -> Result<(), SimError>
    where
        F: FnOnce(&mut Cx) + Send + 'static,
    {
        if has_host() {
            return Err(SimError::Run(RunError::Inside));
        }
        if self.started || self.runtime.inner.ended() {
            return Err(SimError::Again);
        }
        self.runtime.begin(start).map_err(SimError::Run)?;
        self.started = true;
        Ok(())
    }

    /// One step: a core that the seed decides goes on, to the end of its step or to where it is
    /// left.
    ///
    /// # Panics
    /// See [`run`](Self::run); and inside a handler, of this or any other runtime.
    #[track_caller]
    pub fn step(&mut self) -> Step {
        assert!(!has_host(), "a simulation is not stepped inside a handler");
        self.cores.advance(0)
    }

    /// What the run came to, told once. Before [`Step::Ended`], ends it at once, as a deadline
    /// would; handlers in the middle run to their ends.
    ///
    /// # Errors
    /// See [`RunError`]. [`RunError::Deadline`] also if the run was cut short with events left,
    /// [`SimError::Again`] if it was asked before, and [`RunError::Inside`] in a handler of
    /// whatever runtime.
    pub fn end(&mut self) -> Result<(), SimError> {
        if has_host() {
            return Err(SimError::Run(RunError::Inside));
        }
        if self.over {
            return Err(SimError::Again);
        }
        let ended = self.close();
        self.cores.fail_if_broken();
        ended
    }

    fn close(&mut self) -> Result<(), SimError> {
        self.over = true;
        let inner = &self.runtime.inner;
        let cut_short = (!inner.ended()).then(|| {
            let late = Late::now(inner, self.cores.stopping_for());
            inner.force();
            late
        });
        let stuck = self.cores.drop_cores();
        let left = || inner.events_left() > 0 || inner.quiesce.keep_alives() > 0;
        let late = cut_short.filter(|_| left());
        let late = late.or(self.cores.late.take());
        verdict(inner, late, stuck, Vec::new()).map_err(SimError::Run)
    }

    /// A poster: what it posts between steps comes from outside.
    pub fn poster(&self) -> Poster {
        self.runtime.poster()
    }

    /// Has the simulated process get a signal, of which it is told as by the system
    /// ([`Cx::on_signal`]).
    pub fn raise(&self, signal: Signal) {
        crate::net::raise(&self.runtime.inner, signal);
    }

    /// The network, to connect clients and to inject faults.
    pub fn network(&self) -> &SimNet {
        &self.net
    }

    /// The disk, to write files and to inject faults. It belongs to the [`network`](Self::network).
    pub fn disk(&self) -> &SimDisk {
        self.net.disk()
    }

    /// The runtime's counters.
    pub fn stats(&self) -> crate::host::stats::Stats {
        self.runtime.inner.stats()
    }

    /// The colors in which the most events wait.
    pub fn deepest_colors(&self, most: usize) -> Vec<crate::host::stats::ColorDepth> {
        self.runtime.inner.deepest(most)
    }

    /// What the runtime has learned of each handler, in virtual time.
    pub fn profile(&self) -> crate::host::profile::Profile {
        self.runtime.inner.profile()
    }

    /// The virtual time since the beginning.
    pub fn now(&self) -> Duration {
        Duration::from_nanos(self.cores.now_ns())
    }

    /// Sets the virtual time of day ([`Cx::system_time`]), as somebody sets a machine's clock:
    /// timers that are due at a [`SystemTime`] go by it from now on. Times before 1970 are 1970. It
    /// begins with the year 2000, UTC.
    ///
    /// ```
    /// use mely::{Callback, Color, Runtime, sim::Step};
    /// use std::time::Duration;
    /// let mut simulation = Runtime::builder().simulate(7)?;
    /// let in_an_hour = simulation.system_time() + Duration::from_secs(3_600);
    /// simulation.start(move |cx| {
    ///     cx.timer(in_an_hour, Callback::anonymous(Color::from(1), |cx| cx.stop()));
    /// })?;
    /// simulation.set_system_time(in_an_hour);
    /// while simulation.step() != Step::Ended {}
    /// simulation.end()?;
    /// assert!(simulation.now() < Duration::from_secs(1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn set_system_time(&self, time: SystemTime) {
        let since = time.duration_since(SystemTime::UNIX_EPOCH);
        let wall_ns = since.map_or(0, |since| {
            u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
        });
        let wall_ns = wall_ns.min(u64::MAX / 2);
        self.runtime.inner.set_wall_ns(wall_ns);
    }

    /// The virtual time of day.
    pub fn system_time(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_nanos(self.runtime.inner.wall_ns())
    }

    /// Steps of cores so far.
    pub fn steps(&self) -> u64 {
        self.cores.steps()
    }

    /// The seed.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// A number that stands for all events so far, with their cores, colors and handlers, in order:
    /// equal for equal runs. Not the same in different builds.
    pub fn fingerprint(&self) -> u64 {
        self.cores.trace.fingerprint()
    }
}

impl fmt::Debug for Simulation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Simulation")
            .field("cores", &self.runtime.inner.shared.cores.len())
            .field("seed", &self.seed)
            .field("steps", &self.steps())
            .finish_non_exhaustive()
    }
}

impl Drop for Simulation {
    fn drop(&mut self) {
        if !self.over {
            // Told by `end`, if at all.
            let _ = self.close();
        }
    }
}

/// Inside a handler of a simulation: leaves this core for a moment, in which others go on.
/// Elsewhere it does nothing; on a simulated machine nothing while a panic unwinds.
///
/// One virtual core runs at a time: hold no lock here that another handler waits for.
pub fn pause(cx: &mut Cx) {
    let _ = cx;
    work_ns(0);
}

/// Inside a handler of a simulation: work that takes `time`, in which others go on. Elsewhere it
/// does nothing; on a simulated machine nothing while a panic unwinds. As for
/// [`pause`], hold no lock.
pub fn work(cx: &mut Cx, time: Duration) {
    let _ = cx;
    work_ns(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
}

fn work_ns(ns: u64) {
    if charge::is_charged() {
        return charge::work_ns(ns);
    }
    world::work(ns);
}

/// Why a simulated run did not end well.
#[derive(Debug)]
#[non_exhaustive]
pub enum SimError {
    /// As a run on threads would have ended.
    Run(RunError),
    /// Nothing is left to do, nobody has asked for the end, and nothing can come from outside.
    Stalled,
    /// A simulation runs once, and its end is told once.
    Again,
    /// Given up after this many steps; see [`Simulation::set_steps_max`].
    Endless(u64),
}

impl fmt::Display for SimError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SimError::Run(error) => error.fmt(f),
            SimError::Stalled => {
                f.write_str(
                    "nothing is left to do, or all that is left waits for a hold, and nobody has asked the \
                     runtime to stop",
                )
            }
            SimError::Again => f.write_str("a simulation runs once"),
            SimError::Endless(steps) => write!(f, "given up after {steps} steps"),
        }
    }
}

impl std::error::Error for SimError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            SimError::Run(error) => error.source(),
            SimError::Stalled | SimError::Again | SimError::Endless(_) => None,
        }
    }
}
