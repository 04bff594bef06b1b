//! A run of a workload on the virtual cores of a machine that a file describes, instead of threads.

use crate::costs::Costs;
use mely_hardware::{Body, Machine, Options, Report, charge};
use std::cell::RefCell;

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
}

/// After this much virtual time a run is given up, in ns.
const NS_MAX: f64 = 60e9;

thread_local! {
    static SETUP: RefCell<Option<Setup>> = const { RefCell::new(None) };
    static REPORT: RefCell<Option<Report>> = const { RefCell::new(None) };
}

/// From now on runs of this thread are simulated so, or no longer.
pub fn set(setup: Option<Setup>) {
    SETUP.set(setup);
}

/// Whether runs of this thread are simulated.
pub fn is_set() -> bool {
    SETUP.with_borrow(Option::is_some)
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
pub(crate) fn keep_report(report: Report) {
    REPORT.set(Some(report));
}

/// What a handler computes takes as long as the setup says.
pub(crate) fn compute(which: fn(&Costs) -> f64) {
    if mely_hardware::is_charged() {
        let ns = SETUP.with_borrow(|setup| setup.as_ref().map_or(0.0, |setup| which(&setup.costs)));
        charge::work(ns);
    }
}

/// Runs `body` for each core, by its number, on the first cores of the machine; `name` names lines.
pub(crate) fn run(
    cores: usize,
    name: impl FnOnce() + 'static,
    body: impl Fn(usize) + Clone + 'static,
) -> Result<(), String> {
    let setup = setup();
    let machine = setup
        .machine
        .take(cores)
        .map_err(|error| error.to_string())?;
    let bodies = (0..cores).map(|core| {
        let body = body.clone();
        Box::new(move || body(core)) as Body
    });
    let mut options = Options::new(setup.seed);
    options.ns_max = NS_MAX;
    options.ahead_ns = setup.ahead_ns;
    options.setup = Box::new(name);
    let report = mely_hardware::run(&machine, options, bodies.collect());
    keep_report(report.map_err(|stopped| stopped.to_string())?);
    Ok(())
}
