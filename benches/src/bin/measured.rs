//! What two real cores take, for `simulate validate`:
//! `cargo run --release -p mely-bench --bin measured > figures.txt`.

use mely_bench::run::{self, Which};
use mely_bench::shape::Shape;
use mely_bench::validation::{COMPARED, CORES, Figure, SCHEDULERS};
use mely_bench::{machine, rows, schedulers};
use std::process::ExitCode;
use std::time::Duration;

/// Odd, for a median.
const RUNS: usize = 5;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let done = match arguments.split_first() {
        Some((first, rest)) if first == run::ARGUMENT => run::child(rest),
        _ => measure(),
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
    for compared in COMPARED {
        let rows = rows::select(compared.table, Shape::default(), &[CORES]);
        let row = rows
            .into_iter()
            .find(|row| row.table.name == compared.table);
        let row = row.ok_or(format!("no table `{}`", compared.table))?;
        let runs = |scheduler: &&str| {
            let found = schedulers::find(scheduler);
            found.is_some_and(|found| found.runs(row.workload, CORES))
        };
        let schedulers: Vec<_> = SCHEDULERS.into_iter().filter(runs).collect();
        let mut ns = vec![Vec::new(); schedulers.len()];
        // By turns: what the machine does meanwhile is everybody's.
        for _ in 0..RUNS {
            for (ns, scheduler) in ns.iter_mut().zip(&schedulers) {
                let run = run::spawn(
                    row,
                    Which::Itself,
                    scheduler,
                    compared.events,
                    Duration::ZERO,
                )?;
                ns.push(compared.ns(run.ns(), &run.samples_ns));
            }
        }
        for (ns, scheduler) in ns.into_iter().zip(&schedulers) {
            print!("{}", Figure::of(compared.table, scheduler, ns).text());
        }
    }
    Ok(())
}
