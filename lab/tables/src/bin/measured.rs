//! What two real cores take, for `simulate validate`:
//! `cargo run --release -p mely-bench --bin measured > figures.txt`.

use mely_bench::run::{self, Which};
use mely_bench::shape::Shape;
use mely_bench::{machine, rows, schedulers};
use mely_tables::validation::{COMPARED, CORES, Figure, SCHEDULERS};
use std::process::ExitCode;
use std::time::Duration;

/// Odd, for a median.
const RUNS: usize = 11;

fn main() -> ExitCode {
    mely_tables::add_published();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let done = match arguments.split_first() {
        Some((first, rest)) if first == run::ARGUMENT => run::child(rest),
        Some((first, _)) => Err(format!("unknown argument: {first}")),
        None => measure(),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("measured: {error}");
            ExitCode::FAILURE
        }
    }
}

fn measure() -> Result<(), String> {
    if machine::cores() < CORES {
        return Err(format!("{CORES} cores are needed"));
    }
    let mut compared = Vec::new();
    for one in COMPARED {
        let rows = rows::select(|name| name == one.table, Shape::default(), &[CORES]);
        let row = rows.into_iter().next();
        let row = row.ok_or(format!("no table `{}`", one.table))?;
        let runs = |scheduler: &&str| {
            let found = schedulers::find(scheduler);
            found.is_some_and(|found| found.runs(row.workload, CORES))
        };
        let schedulers = SCHEDULERS.into_iter().filter(runs);
        compared.extend(schedulers.map(|scheduler| (one, row, scheduler, Vec::new())));
    }
    // All by turns: what the machine does meanwhile, for minutes, is everybody's.
    for _ in 0..RUNS {
        for (one, row, scheduler, ns) in &mut compared {
            let run = run::spawn(*row, Which::Itself, scheduler, one.events, Duration::ZERO)?;
            ns.push(one.ns(run.ns(), &run.samples_ns));
        }
    }
    for (one, _, scheduler, ns) in compared {
        print!("{}", Figure::of(one.table, scheduler, ns).text());
    }
    Ok(())
}
