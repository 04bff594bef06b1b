//! Who runs the workloads: a file for each scheduler.

mod boxes;
mod mely;

use crate::{Workload, World};
use std::time::Duration;

/// A scheduler under test.
pub trait Scheduler {
    /// Its name in tables.
    fn name(&self) -> &'static str;

    /// Whether it can run this workload on so many cores.
    fn runs(&self, workload: Workload, cores: usize) -> bool;

    /// Runs a workload on cores `0..cores` of the machine, pinned, from nothing to the last event.
    /// The world measures the time between, so starting and ending threads does not count.
    ///
    /// # Errors
    /// Whatever kept it from running. The caller looks at the world for what was run.
    fn run(
        &self,
        workload: Workload,
        world: &'static World,
        cores: usize,
    ) -> Result<Extras, String>;
}

/// What a scheduler knows about a run besides its time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Extras {
    /// Absent for schedulers that do not steal.
    pub steals: Option<Steals>,
}

/// How much was stolen.
#[derive(Clone, Copy, Debug, Default)]
pub struct Steals {
    /// Successful steals.
    pub won: u64,
    /// Colors taken in them.
    pub colors: u64,
    /// What they took altogether.
    pub cost: Duration,
    /// Time-left of what was taken.
    pub stolen: Duration,
    /// Times a core went to sleep.
    pub parks: u64,
}

/// All schedulers; the first is what the others are compared to.
pub fn all() -> Vec<Box<dyn Scheduler>> {
    vec![
        Box::new(boxes::Boxes),
        Box::new(mely::Mely::default()),
        Box::new(mely::Mely::without_stealing()),
    ]
}

/// The scheduler of this name.
pub fn find(name: &str) -> Option<Box<dyn Scheduler>> {
    all().into_iter().find(|s| s.name() == name)
}
