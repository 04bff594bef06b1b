//! Who runs the workloads: a file for each scheduler.

#[cfg(asio)]
mod asio;
mod bare_wake;
mod boxes;
mod crossbeam;
mod deques;
mod done;
mod idle;
mod mely;
mod queue;
mod rayon;
mod smol;
mod tokio;
mod tokio_queue;
mod vyukov;

use self::deques::Deques;
use crate::{Workload, World};
use std::sync::OnceLock;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

/// Keeps mely's watchdog from looking: where time stands still it would look without end.
pub static NO_WATCHDOG: AtomicBool = AtomicBool::new(false);

/// A scheduler under test.
pub trait Scheduler {
    /// Its name in tables.
    fn name(&self) -> &'static str;

    /// Whether it is what the others are compared to, if it runs a workload: the first of the row
    /// then.
    fn is_floor(&self) -> bool {
        false
    }

    /// Whether it can run this workload on this many cores.
    fn runs(&self, _workload: Workload, _cores: usize) -> bool {
        true
    }

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
#[derive(Clone, Debug, Default)]
pub struct Extras {
    /// Absent for schedulers that do not steal.
    pub steals: Option<Steals>,
    /// What else there is, by the names of the JSON fields; the same names in each run.
    pub values: Vec<(&'static str, f64)>,
}

/// How much was stolen.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
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

impl Steals {
    /// What one steal took, if there was any.
    pub fn cost_ns(&self) -> Option<u64> {
        (self.cost.as_nanos() as u64).checked_div(self.won)
    }

    /// What several cores stole.
    pub fn sum(cores: impl Iterator<Item = Steals>) -> Steals {
        cores.fold(Steals::default(), |a, b| Steals {
            won: a.won + b.won,
            colors: a.colors + b.colors,
            cost: a.cost + b.cost,
            stolen: a.stolen + b.stolen,
            parks: a.parks + b.parks,
        })
    }

    /// The mean of several runs.
    pub(crate) fn mean(runs: impl Iterator<Item = Steals>) -> Option<Steals> {
        let runs: Vec<Steals> = runs.collect();
        let n = runs.len() as u64;
        (n > 0).then(|| Steals {
            won: runs.iter().map(|run| run.won).sum::<u64>() / n,
            colors: runs.iter().map(|run| run.colors).sum::<u64>() / n,
            cost: runs.iter().map(|run| run.cost).sum::<Duration>() / n as u32,
            stolen: runs.iter().map(|run| run.stolen).sum::<Duration>() / n as u32,
            parks: runs.iter().map(|run| run.parks).sum::<u64>() / n,
        })
    }
}

/// Schedulers that another package has.
#[derive(Clone, Copy, Debug)]
pub struct More {
    /// Those that run in every table that they can run.
    pub beside: fn() -> Vec<Box<dyn Scheduler>>,
    /// Those that run only where one is asked for by name.
    pub by_name: fn() -> Vec<Box<dyn Scheduler>>,
}

static MORE: OnceLock<More> = OnceLock::new();

/// Adds schedulers, once, before anything else is asked for here.
///
/// # Panics
/// If some were added before.
pub fn add(more: More) {
    assert!(MORE.set(more).is_ok(), "schedulers are added once");
}

/// All schedulers; floors first.
pub fn all() -> Vec<Box<dyn Scheduler>> {
    let modes = mely::MODES.iter().map(|mode| Box::new(*mode) as _);
    let peers: Vec<Box<dyn Scheduler>> = vec![
        Box::new(Deques::<crossbeam::Locked>::new()),
        Box::new(Deques::<vyukov::Vyukov>::new()),
        Box::new(rayon::Rayon),
        Box::new(smol::Smol),
        Box::new(tokio::Tokio),
        #[cfg(asio)]
        Box::new(asio::Asio),
    ];
    let mut all: Vec<Box<dyn Scheduler>> =
        vec![Box::new(boxes::Boxes), Box::new(bare_wake::BareWake)];
    all.extend(MORE.get().into_iter().flat_map(|more| (more.beside)()));
    all.extend(modes);
    all.extend(peers);
    all
}

/// What is missing on this machine, for those who read the tables.
pub fn absent() -> Option<&'static str> {
    cfg!(not(asio))
        .then_some("asio is not compared: Debian's libasio-dev was not there at build time")
}

fn known() -> impl Iterator<Item = Box<dyn Scheduler>> {
    let of_response: Box<dyn Scheduler> = Box::new(tokio_queue::TokioQueue);
    let by_name = MORE.get().into_iter().flat_map(|more| (more.by_name)());
    all().into_iter().chain(by_name).chain([of_response])
}

/// The scheduler of this name.
pub fn find(name: &str) -> Option<Box<dyn Scheduler>> {
    known().find(|s| s.name() == name)
}

/// The names of those that can be asked for, with commas between.
pub fn names() -> String {
    let names: Vec<_> = known().map(|s| s.name()).collect();
    names.join(", ")
}

/// The schedulers of these names; if there are none, [`all`].
///
/// # Errors
/// A name that no scheduler has; or that none of them is built in here.
pub fn chosen(names: &[String]) -> Result<Vec<Box<dyn Scheduler>>, String> {
    if names.is_empty() {
        return Ok(all());
    }
    // If one is not built in, the others are compared all the same.
    let is_known = |name: &str| find(name).is_some() || name == "asio";
    if let Some(name) = names.iter().find(|name| !is_known(name)) {
        return Err(format!(
            "no scheduler `{name}`; there are {}",
            self::names()
        ));
    }
    let chosen: Vec<_> = known()
        .filter(|s| names.iter().any(|name| name == s.name()))
        .collect();
    match absent() {
        Some(absent) if chosen.is_empty() => Err(absent.into()),
        _ => Ok(chosen),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn those_that_are_asked_for_are_found_or_refused() {
        let chosen = |names: &[&str]| {
            let names: Vec<_> = names.iter().map(|&name| name.to_owned()).collect();
            let chosen = super::chosen(&names)?;
            Ok::<Vec<_>, String>(chosen.iter().map(|s| s.name()).collect())
        };
        // Also those that are there by name only.
        let both = ["boxes", "tokio-queue"];
        assert_eq!(chosen(&both).as_deref(), Ok(&both[..]));
        assert_eq!(chosen(&[]).unwrap().len(), all().len());
        let refused = chosen(&["mely", "nobody"]).unwrap_err();
        assert!(
            refused.contains("`nobody`") && refused.contains("tokio-queue"),
            "{refused}"
        );
        if absent().is_some() {
            assert!(chosen(&["asio"]).unwrap_err().contains("asio is not"));
            assert_eq!(chosen(&["asio", "mely"]).as_deref(), Ok(&["mely"][..]));
        }
    }
}
