//! The program that measures tables: what a command line asks for, row by row.

use crate::measure::{self, Plan};
use crate::options::{ALL, HELP, Options};
use crate::{chart, machine, report, rows, run, schedulers};
use std::path::Path;
use std::process::ExitCode;

/// A table without times, for [`main`].
#[derive(Clone, Copy, Debug)]
pub struct Exact {
    /// As in `--table`.
    pub name: &'static str,
    /// Prints it, or its JSON lines.
    pub print: fn(json: bool) -> Result<(), String>,
}

/// Measures what the command line says, and prints `exact` first.
pub fn main(exact: Option<Exact>) -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [first, rest @ ..] = &arguments[..]
        && first == run::ARGUMENT
    {
        return exit_code(run::child(rest));
    }
    match Options::from_args(arguments, &ALL) {
        Ok(Some(options)) => exit_code(measure_all(&options, exact)),
        Ok(None) => {
            let tables: Vec<_> = rows::names(exact.map(|exact| exact.name)).collect();
            let schedulers = schedulers::names();
            println!(
                "{HELP}\n\nTables: {}\nSchedulers: {schedulers}",
                tables.join(", ")
            );
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}

fn exit_code(result: Result<(), String>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn measure_all(options: &Options, exact: Option<Exact>) -> Result<(), String> {
    let available = machine::cores();
    let cores = match options.cores {
        Some(n) if n > available => {
            return Err(format!("--cores {n}: this process has {available}"));
        }
        Some(n) => vec![n],
        None => (1..=available.min(2)).collect(),
    };
    let schedulers = schedulers::chosen(&options.schedulers)?;
    let name = exact.map(|exact| exact.name);
    let (is_asked, rows) = rows::chosen(options, &cores, &schedulers, name)?;
    let plan = Plan::new(
        options.seconds.unwrap_or(Plan::DEFAULT_TIME),
        options.rounds,
    );
    if let Some(exact) = exact.filter(|_| is_asked) {
        (exact.print)(options.json)?;
    }
    if !options.json && !rows.is_empty() {
        println!(
            "ns per event over all cores together: median, least and most of {} interleaved \
             repetitions of {:.2} s, each after {:.2} s that are not counted; CPU time of the process \
             per event; ratio to the floor: `boxes`, a loop a core over VecDeque<Box<dyn FnOnce>>, or \
             of latencies `bare-wake`, an eventfd written to wake a thread; the speed of the first \
             core, in ns for a multiplication and a rotation one after the other, 4 cycles; steals \
             and parks of one repetition. bytes: of a closure. depth: events that wait.\n",
            plan.rounds,
            plan.run.as_secs_f64(),
            plan.warm_up.as_secs_f64(),
        );
        if let Some(absent) = schedulers::absent() {
            println!("{absent}\n");
        }
        report::print_head();
    }
    let mut done = Vec::new();
    for row in rows {
        let measured = measure::measure(row, &schedulers, plan)?;
        if options.json {
            report::print_json(&measured);
        } else {
            report::print(&measured);
        }
        done.push(measured);
    }
    if let Some(file) = &options.chart {
        // Cargo runs benches in their package's folder: not where the user is, who named the file.
        let here = std::env::var_os("PWD").unwrap_or_default();
        let file = Path::new(&here).join(file);
        std::fs::write(&file, chart::svg(&done))
            .map_err(|error| format!("{}: {error}", file.display()))?;
    }
    Ok(())
}
