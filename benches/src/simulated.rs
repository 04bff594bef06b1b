//! Runs on the virtual cores of a simulated machine instead of threads. `lab/` has such machines, and
//! [installs](install) what runs on them.

use crate::costs::Costs;
use crate::{Workload, World};
use mely::topology::Topology;
use mely::{Builder, Poster};
use std::cell::Cell;

/// What a virtual core runs, or what is called once.
pub type Body = Box<dyn FnOnce()>;

/// Runs what would run on threads.
pub trait Simulator {
    /// The topology of this many cores of the machine.
    ///
    /// # Errors
    /// If it has fewer.
    fn topology(&self, cores: usize) -> Result<Topology, String>;

    /// Runs each body on a core of its own, after `name`, which names lines.
    ///
    /// # Errors
    /// What stopped the run.
    fn run(&self, name: Body, bodies: Vec<Body>) -> Result<(), String>;

    /// Runs a workload by mely; returns what can still look at the runtime.
    ///
    /// # Errors
    /// What kept it from running, or ended it.
    fn run_mely(
        &self,
        builder: Builder,
        workload: Workload,
        world: &'static World,
        cores: usize,
    ) -> Result<Poster, String>;

    /// A handler computes.
    fn compute(&self, which: fn(&Costs) -> f64);

    /// Begins a thread that is none of the scheduler's; called on a virtual core.
    fn begin(&self, body: Body);

    /// What lines cost counts from here, or up to here.
    fn count(&self, from_here: bool);
}

thread_local! {
    static SIMULATOR: Cell<Option<&'static dyn Simulator>> = const { Cell::new(None) };
}

/// From now on runs of this thread are simulated by this, or no longer.
pub fn install(simulator: Option<&'static dyn Simulator>) {
    SIMULATOR.set(simulator);
}

/// What simulates the runs of this thread, if anything does.
pub(crate) fn simulator() -> Option<&'static dyn Simulator> {
    SIMULATOR.get()
}

/// Whether runs of this thread are simulated.
pub(crate) fn is_set() -> bool {
    SIMULATOR.get().is_some()
}
