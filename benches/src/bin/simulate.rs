//! The workloads on the virtual cores of machines that files describe.
//!
//! ```text
//! cargo run --release -p mely-bench --features machine --bin simulate -- --help
//! ```

use mely_bench::costs::Costs;
use mely_bench::run::Which;
use mely_bench::schedulers::libasync::open::Open;
use mely_bench::shape::Shape;
use mely_bench::simulated::{self, Setup};
use mely_bench::{rows, schedulers};
use mely_hardware::{Machine, Report};
use std::path::Path;
use std::process::ExitCode;
use std::time::Instant;

const HELP: &str = "\
Usage: simulate run MACHINE TABLE SCHEDULER CORES EVENTS [OPTIONS]

run       runs a table's workload on a machine: a file, or one that comes along.

Options of `run`:
  --seed N        all chance; 1 by default
  --ahead NS      how far a core may run ahead of the others
  --open CHOICES  what the papers leave open, as `scan=end,pauses=16`
  --costs FILE    what the program `costs` wrote
  --factor X      times that
  --lines N       the lines that cost most";

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match command(&arguments) {
        Ok(text) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("simulate: {error}");
            ExitCode::from(2)
        }
    }
}

fn command(arguments: &[String]) -> Result<String, String> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words[..] {
        ["--help" | "-h"] => Ok(format!("{HELP}\n")),
        [
            "run",
            machine,
            table,
            scheduler,
            cores,
            events,
            ref options @ ..,
        ] => run(machine, table, scheduler, cores, events, options),
        _ => Err("see --help".into()),
    }
}

fn machine(name: &str) -> Result<Machine, String> {
    match Machine::shipped(name) {
        Some(machine) => Ok(machine),
        None => Machine::read(Path::new(name)),
    }
}

fn run(
    machine_name: &str,
    table: &str,
    scheduler: &str,
    cores: &str,
    events: &str,
    options: &[&str],
) -> Result<String, String> {
    let number = |text: &str| {
        text.parse::<f64>()
            .map_err(|_| format!("{text}: not a number"))
    };
    let (mut seed, mut ahead_ns, mut costs, mut factor, mut lines) = (1, None, None, 1.0, 0);
    for pair in options.chunks(2) {
        match *pair {
            ["--seed", text] => seed = number(text)? as u64,
            ["--ahead", text] => ahead_ns = Some(number(text)?),
            ["--open", text] => Open::parse(text)?.set(),
            ["--factor", text] => factor = number(text)?,
            ["--lines", text] => lines = number(text)? as usize,
            ["--costs", path] => {
                let text = std::fs::read_to_string(path);
                let text = text.map_err(|error| format!("{path}: {error}"))?;
                costs = Some(Costs::parse(&text).map_err(|error| format!("{path}: {error}"))?);
            }
            _ => return Err(format!("{pair:?}: see --help")),
        }
    }
    let costs = costs.unwrap_or_else(|| Costs::parse(include_str!("../../costs.txt")).unwrap());
    simulated::set(Some(Setup {
        machine: machine(machine_name)?,
        seed,
        ahead_ns,
        costs: costs.times(factor),
    }));
    let (cores, events) = (number(cores)? as usize, number(events)? as u64);
    let workload = rows::workload(table, Which::Itself, Shape::default(), cores);
    let workload = workload.ok_or(format!("no table `{table}`"))?;
    let scheduler = schedulers::find(scheduler).ok_or(format!("no scheduler `{scheduler}`"))?;
    let world = workload.world(events, cores);
    let start = Instant::now();
    let extras = scheduler.run(workload, world, cores)?;
    let host = start.elapsed();
    let verdict = world.verdict()?;
    let report = simulated::take_report().ok_or("it was not simulated")?;
    let ns = verdict.took.as_nanos() as f64 / verdict.ran as f64;
    let mut text = format!(
        "{} events, {ns:.2} ns an event, {:.1} K events/s; simulated at {:.0} events/s\n",
        verdict.ran,
        1e6 / ns,
        verdict.ran as f64 / host.as_secs_f64(),
    );
    if let Some(steals) = extras.steals {
        text += &format!("{steals:?}\n");
    }
    for (name, value) in workload.values(world, &verdict) {
        text += &format!("{name} {value:.3}\n");
    }
    let mut samples = verdict.samples_ns.clone();
    samples.sort_unstable();
    if let Some(median) = samples.get(samples.len() / 2) {
        text += &format!("median latency {median} ns\n");
    }
    Ok(text + &lines_of(&report, verdict.ran, lines))
}

fn lines_of(report: &Report, events: u64, most: usize) -> String {
    let mut text = String::new();
    let each = |sum: f64| sum / events as f64;
    for (title, all) in [("region", report.regions()), ("line", report.lines.clone())] {
        for line in all.iter().take(most) {
            text += &format!(
                "{title:7} {:20} {:9.4} transfers, {:9.2} ns waited, {:9.2} ns missed\n",
                line.name,
                each(line.transfers as f64),
                each(line.waited_ns),
                each(line.missed_ns),
            );
        }
    }
    text
}
