//! What each rule of the scheduler is worth: the same runs without one group of rules after the
//! other, interleaved, and with all of them twice as a control.
//!
//! `cargo bench -p mely-tables --features ablation --bench ablation -- [--rules A,B] [--rows A,B]
//! [--rounds N] [--file F]`. Each run is a line of F, and what is in F already is not run again.

use mely_bench::measure::{Plan, Spread};
use mely_bench::response::load::ROWS;
use mely_bench::response::{Bench, respond, table};
use mely_bench::rows::{self, Row};
use mely_bench::run::{self, Run, Which};
use mely_bench::shape::Shape;
use mely_bench::{machine, measure, schedulers};
use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// With all rules: their difference is what a difference means.
const CONTROLS: [(&str, &str); 2] = [("all", ""), ("all, again", "")];

/// The groups of `docs/policy.md`, and the rules that each switches off.
const GROUPS: [(&str, &str); 10] = [
    ("next", "newest,drag,first,hurry-budget"),
    ("checkout", "busy-quantum,undisturbed,half-lasting"),
    ("keeping", "keep,straight"),
    ("taking", "sighting,half,many"),
    ("balance", "compare,endurance"),
    ("waking", "rescue,look-before,relieve,takeover,spin"),
    ("long", "fresh"),
    ("posts", "row"),
    ("learning", "long-run"),
    ("prefetch", "ahead,scout,jump"),
];

/// Tables of `papers`, by their beginnings, with the events that wait, or 0.
const TABLES: [(&str, u32); 23] = [
    ("mely-3-4", 0),
    ("mely-5", 0),
    ("mely-6", 0),
    ("unbalanced", 0),
    ("fork-join64", 0),
    ("zipf10000", 0),
    ("pipeline5", 0),
    ("chain1", 0),
    ("hop16", 0),
    ("hop1000", 0),
    ("cross1000", 0),
    ("fan-in64", 0),
    ("fan-in64", 65_536),
    ("burst", 0),
    ("ping-pong", 0),
    ("skew3", 0),
    ("skew16", 0),
    ("penalty", 0),
    ("drag", 0),
    ("foreign1-64", 0),
    ("foreign4-4096", 0),
    ("wake", 0),
    ("busy", 0),
];

const RESPONSES: &str = "response-";
const REQUESTS: usize = 3_000;

/// What is measured: a figure of which less is better.
#[derive(Clone, Debug)]
enum Subject {
    Table(Row),
    Response(mely_bench::response::load::Row),
}

impl Subject {
    fn name(&self) -> String {
        match self {
            Subject::Table(row) => {
                let depth = row
                    .shape
                    .depth
                    .map_or(String::new(), |depth| format!("@{depth}"));
                format!("{}{depth}/{}", row.table.name, row.cores)
            }
            Subject::Response(row) => format!("{RESPONSES}{row}"),
        }
    }
}

fn subjects(wanted: &[String]) -> Vec<Subject> {
    let mut all = Vec::new();
    for (table, depth) in TABLES {
        let shape = Shape {
            depth: (depth > 0).then_some(depth),
            ..Shape::default()
        };
        let known: Vec<Row> = rows::select(|name| name.starts_with(table), shape, &[1, 2]);
        all.extend(known.into_iter().map(Subject::Table));
    }
    all.extend(ROWS.into_iter().map(Subject::Response));
    all.retain(|subject| {
        wanted.is_empty()
            || wanted
                .iter()
                .any(|name| subject.name().starts_with(name.as_str()))
    });
    let mut seen = std::collections::HashSet::new();
    all.retain(|subject| seen.insert(subject.name()));
    all
}

/// The figures of a run: in ns, or as multiples of the ideal queue's.
fn figures(subject: &Subject, events: u64, plan: Plan, round: usize) -> Result<Vec<f64>, String> {
    match subject {
        Subject::Table(row) => {
            let run = run::spawn(*row, Which::Itself, "mely", events, plan.warm_up)?;
            Ok(vec![of_run(&run)])
        }
        Subject::Response(row) => {
            let bench = Bench {
                respond: this()?,
                cores: machine::cores().min(2),
            };
            let outcome = table::run(&bench, row, "mely", REQUESTS, 1 + round as u64)?;
            let [mean, _, p99] = outcome.ratios();
            Ok(vec![mean, p99, outcome.cpu_ratio()])
        }
    }
}

/// This program, which is the servers' too: they are without the same rules.
fn this() -> Result<PathBuf, String> {
    std::env::current_exe().map_err(|error| error.to_string())
}

/// The median latency, or the time of an event.
fn of_run(run: &Run) -> f64 {
    if run.samples_ns.is_empty() {
        return run.ns();
    }
    median(run.samples_ns.iter().map(|&ns| ns as f64))
}

fn median(all: impl Iterator<Item = f64>) -> f64 {
    Spread::of(all.collect()).median
}

struct Options {
    variants: Vec<(String, String)>,
    rows: Vec<String>,
    rounds: usize,
    file: PathBuf,
}

fn options() -> Result<Options, String> {
    let mut options = Options {
        variants: GROUPS
            .map(|(name, rules)| (name.into(), rules.into()))
            .into(),
        rows: Vec::new(),
        rounds: 7,
        file: "ablation.tsv".into(),
    };
    let list = |text: String| text.split(',').map(str::to_owned).collect::<Vec<_>>();
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("{argument} needs a value"));
        match argument.as_str() {
            "--bench" => {}
            "--rules" => {
                options.variants = list(value()?)
                    .into_iter()
                    .map(|rule| (rule.clone(), rule))
                    .collect()
            }
            "--rows" => options.rows = list(value()?),
            "--rounds" => options.rounds = value()?.parse().map_err(|_| "--rounds: not a count")?,
            "--file" => options.file = value()?.into(),
            other => return Err(format!("unknown argument: {other}")),
        }
    }
    let here = PathBuf::from(std::env::var_os("PWD").unwrap_or_default());
    options.file = here.join(options.file);
    Ok(options)
}

/// What was measured, by row, variant and figure.
type Known = HashMap<(String, String), Vec<Vec<f64>>>;

fn read(file: &PathBuf) -> Known {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let mut known = Known::new();
    for line in text.lines() {
        let mut words = line.split('\t');
        let (Some(row), Some(variant)) = (words.next(), words.next()) else {
            continue;
        };
        let figures = words.filter_map(|word| word.parse().ok()).collect();
        known
            .entry((row.into(), variant.into()))
            .or_default()
            .push(figures);
    }
    known
}

fn measure_all(options: &Options) -> Result<(), String> {
    let plan = Plan {
        rounds: options.rounds,
        run: Duration::from_millis(150),
        warm_up: Duration::from_millis(50),
    };
    let mut known = read(&options.file);
    let failed = |error: std::io::Error| format!("{}: {error}", options.file.display());
    let file = OpenOptions::new()
        .append(true)
        .create(true)
        .open(&options.file);
    let mut file: File = file.map_err(failed)?;
    let controls = CONTROLS.map(|(name, rules)| (name.to_owned(), rules.to_owned()));
    let variants: Vec<_> = controls
        .into_iter()
        .chain(options.variants.clone())
        .collect();
    for subject in subjects(&options.rows) {
        let name = subject.name();
        let mely = schedulers::find("mely").expect("it is one of them");
        without("");
        let events = match &subject {
            Subject::Table(row) => measure::calibrate(*row, mely.as_ref(), plan)?,
            Subject::Response(_) => 0,
        };
        for round in 0..options.rounds {
            for (variant, rules) in &variants {
                let done = known.entry((name.clone(), variant.clone())).or_default();
                if done.len() > round {
                    continue;
                }
                without(rules);
                let figures = figures(&subject, events, plan, round)?;
                let words: Vec<_> = figures.iter().map(f64::to_string).collect();
                writeln!(file, "{name}\t{variant}\t{}", words.join("\t")).map_err(failed)?;
                done.push(figures);
            }
        }
        print(&name, &variants, &known);
    }
    Ok(())
}

/// Runs that are started from now on do without these rules.
fn without(rules: &str) {
    // SAFETY: no other thread of this process runs: those that measure the machine were joined.
    unsafe { std::env::set_var("MELY_WITHOUT", rules) };
}

/// How many percent more each variant takes than all rules together.
fn print(row: &str, variants: &[(String, String)], known: &Known) {
    let medians = |variant: &str| {
        let runs = &known[&(row.to_owned(), variant.to_owned())];
        let figures = runs.first().map_or(0, Vec::len);
        (0..figures)
            .map(|at| median(runs.iter().map(|run| run[at])))
            .collect::<Vec<_>>()
    };
    let base: Vec<f64> = {
        let both = CONTROLS.map(|(name, _)| medians(name));
        both[0]
            .iter()
            .zip(&both[1])
            .map(|(a, b)| f64::midpoint(*a, *b))
            .collect()
    };
    let cells = variants.iter().map(|(name, _)| {
        let parts = medians(name).into_iter().zip(&base);
        let parts = parts.map(|(ns, base)| format!("{:+.0}", 100.0 * (ns / base - 1.0)));
        format!("{name} {}", parts.collect::<Vec<_>>().join("/"))
    });
    let base: Vec<_> = base.iter().map(|base| format!("{base:.2}")).collect();
    println!(
        "{row} {}: {}",
        base.join("/"),
        cells.collect::<Vec<_>>().join(", ")
    );
}

fn main() -> ExitCode {
    mely_tables::add_published();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let result = match &arguments[..] {
        [first, rest @ ..] if first == run::ARGUMENT => run::child(rest),
        // A server of its own, or one run of posts.
        [first, ..] if !first.starts_with("--") => respond(&arguments),
        _ => options().and_then(|options| measure_all(&options)),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
