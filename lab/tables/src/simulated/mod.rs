//! A run of a workload on the virtual cores of a machine that a file describes, instead of threads.

pub mod paper;
pub mod response;
pub mod scale;
pub mod validation;

use mely::topology::Topology;
use mely::{Builder, Poster};
use mely_bench::costs::Costs;
use mely_bench::run::Which;
use mely_bench::schedulers::{self, Steals};
use mely_bench::simulated::{Simulator, install};
use mely_bench::{Workload, World, rows, shape::Shape};
use mely_hardware::{Body, Machine, Options, Report, SimulateOn, charge};
use std::cell::RefCell;
use std::time::{Duration, Instant};

/// What runs of this thread are simulated on.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The machine, of which the cores that keep best company are used.
    pub machine: Machine,
    /// Who gets what several want, and all other chance.
    pub seed: u64,
    /// How far a core may run ahead of the others, in ns; the machine's hold window if none.
    pub ahead_ns: Option<f64>,
    /// What handlers compute takes.
    pub costs: Costs,
    /// After this much virtual time a run is given up, in ns.
    pub ns_max: f64,
}

/// Long enough for all that ends.
pub const NS_MAX: f64 = 60e9;

thread_local! {
    static SETUP: RefCell<Option<Setup>> = const { RefCell::new(None) };
    static REPORT: RefCell<Option<Report>> = const { RefCell::new(None) };
}

/// From now on runs of this thread are simulated so, or no longer.
pub fn set(setup: Option<Setup>) {
    install(setup.is_some().then_some(&ThisSetup));
    SETUP.set(setup);
}

/// How they are.
///
/// # Panics
/// If they are not.
pub fn setup() -> Setup {
    SETUP.with_borrow(|setup| setup.clone().expect("runs are simulated"))
}

/// What the last run came to; told once.
pub fn take_report() -> Option<Report> {
    REPORT.take()
}

/// What a run came to.
fn keep_report(report: Report) {
    REPORT.set(Some(report));
}

/// Runs what is set.
struct ThisSetup;

impl Simulator for ThisSetup {
    fn topology(&self, cores: usize) -> Result<Topology, String> {
        let machine = setup().machine.take(cores);
        let machine = machine.map_err(|error| error.to_string())?;
        Ok(machine.topology().clone())
    }

    fn run(&self, name: Body, bodies: Vec<Body>) -> Result<(), String> {
        let setup = setup();
        let machine = setup.machine.take(bodies.len());
        let machine = machine.map_err(|error| error.to_string())?;
        let mut options = Options::new(setup.seed);
        options.ns_max = setup.ns_max;
        options.ahead_ns = setup.ahead_ns;
        options.setup = name;
        // SAFETY: no scheduler and no workload lends a reference by a thread-local variable: the
        // numbers of workers in there are copied.
        let report = unsafe { mely_hardware::run(&machine, options, bodies) };
        keep_report(report.map_err(|stopped| stopped.to_string())?);
        Ok(())
    }

    fn run_mely(
        &self,
        builder: Builder,
        workload: Workload,
        world: &'static World,
        cores: usize,
    ) -> Result<Poster, String> {
        let setup = setup();
        // SAFETY: no workload lends anything by a thread-local variable.
        let run = unsafe { builder.simulate_on(&setup.machine, setup.seed) };
        let mut run = run.map_err(|error| error.to_string())?;
        run.set_time_max(Duration::from_secs(60));
        if let Some(ns) = setup.ahead_ns {
            run.set_ahead_ns(ns);
        }
        let observer = run.poster();
        let report = run.run(move |cx| workload.start_all(cx, world, cores));
        keep_report(report.map_err(|error| error.to_string())?);
        Ok(observer)
    }

    fn compute(&self, which: fn(&Costs) -> f64) {
        if mely_hardware::is_charged() {
            let its = |setup: &Option<Setup>| setup.as_ref().map(|setup| which(&setup.costs));
            charge::work(SETUP.with_borrow(its).unwrap_or(0.0));
        }
    }

    fn begin(&self, body: Body) {
        mely_hardware::begin(body);
    }

    fn count(&self, from_here: bool) {
        if from_here {
            charge::count_from_here();
        } else {
            charge::count_to_here();
        }
    }
}

/// What a simulated run came to.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// Per event.
    pub ns: f64,
    /// Events.
    pub ran: u64,
    /// The workload's latencies.
    pub samples_ns: Vec<u64>,
    /// Absent for schedulers that do not steal.
    pub steals: Option<Steals>,
    /// What the scheduler and the workload add.
    pub values: Vec<(&'static str, f64)>,
    /// By line and core.
    pub report: Report,
    /// What it took to simulate.
    pub host: Duration,
}

/// Runs a table by a scheduler on cores of the setup's machine.
///
/// # Errors
/// What there is not; a run that lost, repeated or reordered an event, or that was given up.
pub fn once(
    setup: Setup,
    table: &str,
    scheduler: &str,
    cores: usize,
    events: u64,
) -> Result<Outcome, String> {
    let has = setup.machine.topology().cores().len();
    if cores == 0 || cores > has {
        return Err(format!("{cores} cores, and the machine has {has}"));
    }
    if events == 0 {
        return Err("0 events: there would be nothing to tell".into());
    }
    set(Some(setup));
    let outcome = run_set(table, scheduler, cores, events);
    set(None);
    outcome.map_err(|error| format!("{table}, {scheduler}, {cores} cores: {error}"))
}

fn run_set(table: &str, scheduler: &str, cores: usize, events: u64) -> Result<Outcome, String> {
    let workload = rows::workload(table, Which::Itself, Shape::default(), cores);
    let workload = workload.ok_or("no such table on that number of cores")?;
    let scheduler = schedulers::find(scheduler).ok_or("no such scheduler")?;
    if !scheduler.runs(workload, cores) {
        return Err("it does not run that".into());
    }
    let world = workload.world(events, cores);
    let start = Instant::now();
    let extras = scheduler.run(workload, world, cores)?;
    let host = start.elapsed();
    let verdict = world.verdict()?;
    let mut values = extras.values;
    values.extend(workload.values(world, &verdict));
    Ok(Outcome {
        ns: verdict.took.as_nanos() as f64 / verdict.ran as f64,
        ran: verdict.ran,
        samples_ns: verdict.samples_ns,
        steals: extras.steals,
        values,
        report: take_report().ok_or("it cannot be simulated")?,
        host,
    })
}

impl Outcome {
    /// A number that the scheduler or the workload adds.
    pub fn value(&self, name: &str) -> Option<f64> {
        let value = self.values.iter().find(|(its, _)| *its == name);
        value.map(|(_, value)| *value)
    }
}

/// The lines, and regions of lines, that cost most, per event.
pub fn costly(report: &Report, events: u64, most: usize) -> String {
    let mut text = String::new();
    let each = |sum: f64| sum / events.max(1) as f64;
    for (title, all) in [("region", report.regions()), ("line", report.lines.clone())] {
        for line in all.iter().take(most) {
            text += &format!(
                "{title:7} {:20} {:9.4} transfers {:10.2} ns waited {:9.2} ns missed\n",
                line.name,
                each(line.transfers as f64),
                each(line.waited_ns),
                each(line.missed_ns),
            );
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each that is rebuilt from the papers ends on virtual cores, also where a core sleeps.
    #[test]
    fn rebuilt_schedulers_are_simulated_to_the_end() {
        crate::add_published();
        for (table, scheduler) in [
            ("hop16", "libasync-mp"),
            ("fan-in64", "libasync-mp"),
            ("mely-3-4-unbalanced", "libasync-mp"),
            ("mely-3-4-unbalanced", "libasync-smp-ws"),
            ("mely-3-4-unbalanced", "mely-2010"),
        ] {
            let setup = Setup {
                machine: Machine::shipped("epyc-2x64").unwrap(),
                seed: 1,
                ahead_ns: None,
                costs: Costs::parse(include_str!("../../costs.txt")).unwrap(),
                ns_max: NS_MAX,
            };
            let outcome = once(setup, table, scheduler, 4, 2_000).unwrap();
            assert!(outcome.ran >= 2_000 && outcome.ns > 0.0, "{scheduler}");
        }
    }
}
