//! The workloads on the virtual cores of machines that files describe.
//!
//! ```text
//! cargo run --release -p mely-tables --features machine --bin simulate -- --help
//! ```

use mely_bench::costs::Costs;
use mely_hardware::{Machine, Report};
use mely_tables::libasync::open::Open;
use mely_tables::simulated::{self, Outcome, Setup, paper, response, scale, validation};
use mely_tables::validation::Figure;
use std::path::Path;
use std::process::ExitCode;

const HELP: &str = "\
Usage: simulate run MACHINE TABLE SCHEDULER CORES EVENTS [OPTIONS]
       simulate validate MACHINE FIGURES [OPTIONS]
       simulate paper [OPTIONS]
       simulate scale MACHINE CORES... [OPTIONS]
       simulate response MACHINE CORES... [OPTIONS]

MACHINE is a file, or the name of one that comes along.

run       runs a table's workload.
validate  runs what the program `measured` ran on real cores, and prints both.
paper     prints the tables of Mely's paper, on its machine.
scale     prints what mely does on each number of cores, and the lines that cost most.
response  prints response times of requests of 1 ms that a foreign thread posts, at a load of 0.85,
          as multiples of an ideal queue's.

Options:
  --seed N        all chance; 1 by default
  --ahead NS      how far a core may run ahead of the others
  --open CHOICES  what the papers leave open, as `scan=end,pauses=16`; not for `paper`
  --costs FILE    what the program `costs` wrote
  --factor X      times that
  --lines N       of `run`: what each core did, and the lines that cost most
";

fn main() -> ExitCode {
    mely_tables::add_published();
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

/// What the options say.
struct Said {
    seed: u64,
    ahead_ns: Option<f64>,
    costs: Costs,
    lines: usize,
}

impl Said {
    fn on(&self, machine: &str) -> Result<Setup, String> {
        let machine = match Machine::shipped(machine) {
            Some(machine) => machine,
            None => Machine::read(Path::new(machine))?,
        };
        Ok(Setup {
            machine,
            seed: self.seed,
            ahead_ns: self.ahead_ns,
            costs: self.costs.clone(),
            ns_max: simulated::NS_MAX,
        })
    }
}

fn number<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    let number = text.parse();
    number.map_err(|_| format!("`{text}`: not such a number"))
}

fn positive(text: &str) -> Result<f64, String> {
    let number = number::<f64>(text)?;
    match number > 0.0 && number <= 1e9 {
        true => Ok(number),
        false => Err(format!("`{text}`: not such a number")),
    }
}

fn read(path: &str) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))
}

fn options(words: &[&str]) -> Result<Said, String> {
    let own = include_str!("../../costs.txt");
    let mut said = Said {
        seed: 1,
        ahead_ns: None,
        costs: Costs::parse(own).expect("the file that comes along is one"),
        lines: 0,
    };
    let mut factor = 1.0;
    for pair in words.chunks(2) {
        match *pair {
            ["--seed", text] => said.seed = number(text)?,
            ["--ahead", text] => said.ahead_ns = Some(positive(text)?),
            ["--factor", text] => factor = positive(text)?,
            ["--lines", text] => said.lines = number(text)?,
            ["--open", text] => Open::parse(text)?.set(),
            ["--costs", path] => {
                let costs = Costs::parse(&read(path)?);
                said.costs = costs.map_err(|error| format!("{path}: {error}"))?;
            }
            _ => return Err(format!("{}: see --help", pair.join(" "))),
        }
    }
    said.costs = said.costs.times(factor);
    Ok(said)
}

fn command(arguments: &[String]) -> Result<String, String> {
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    if let ["--help" | "-h"] = words[..] {
        return Ok(HELP.into());
    }
    let at = words.iter().position(|word| word.starts_with("--"));
    let (words, rest) = words.split_at(at.unwrap_or(words.len()));
    let said = options(rest)?;
    match *words {
        ["run", machine, table, scheduler, cores, events] => {
            let (cores, events) = (number(cores)?, number(events)?);
            let outcome = simulated::once(said.on(machine)?, table, scheduler, cores, events)?;
            Ok(text_of(&outcome, said.lines))
        }
        ["validate", machine, figures] => {
            let path = figures;
            let figures = Figure::parse_all(&read(path)?)?;
            if figures.is_empty() {
                return Err(format!("{path}: no figures"));
            }
            validation::table(&said.on(machine)?, &figures)
        }
        ["paper"] => paper::tables(&said.on("xeon-e5410")?),
        ["scale", machine, ref cores @ ..] if !cores.is_empty() => {
            let cores: Result<Vec<usize>, String> = cores.iter().map(|word| number(word)).collect();
            scale::sections(&said.on(machine)?, &cores?)
        }
        ["response", machine, ref cores @ ..] if !cores.is_empty() => {
            let cores: Result<Vec<usize>, String> = cores.iter().map(|word| number(word)).collect();
            response::table(&said.on(machine)?, &cores?)
        }
        _ => Err("see --help".into()),
    }
}

fn text_of(outcome: &Outcome, lines: usize) -> String {
    let mut text = format!(
        "{} events, {:.2} ns an event, {:.1} K events/s; simulated at {:.0} events/s\n",
        outcome.ran,
        outcome.ns,
        1e6 / outcome.ns,
        outcome.ran as f64 / outcome.host.as_secs_f64(),
    );
    if let Some(steals) = &outcome.steals {
        text += &format!("{steals:?}\n");
    }
    for (name, value) in &outcome.values {
        text += &format!("{name} {value:.3}\n");
    }
    let mut samples = outcome.samples_ns.clone();
    samples.sort_unstable();
    if let Some(median) = samples.get(samples.len() / 2) {
        text += &format!("median latency {median} ns\n");
    }
    if lines > 0 {
        text += &use_of_cores(&outcome.report);
    }
    text + &simulated::costly(&outcome.report, outcome.ran, lines)
}

/// Of each core, what it did with its time, in percent of the whole run.
fn use_of_cores(report: &Report) -> String {
    let mut text = String::new();
    for (number, core) in report.cores.iter().enumerate() {
        let share = |ns: f64| 100.0 * ns / report.all_ns.max(1.0);
        let known = [core.worked_ns, core.slept_ns, core.polled_ns];
        text += &format!(
            "core {number:4} {:5.1} % handlers {:5.1} % asleep {:5.1} % polling {:5.1} % scheduling\n",
            share(known[0]),
            share(known[1]),
            share(known[2]),
            share(report.all_ns - known.iter().sum::<f64>()),
        );
    }
    text
}
