//! Tasks: mely's beside tokio's.
//!
//! A run has a process of its own, one runtime, and a task in it that does a batch of operations
//! again and again until its time is over. The first batch is not counted.

mod hosts;
mod works;

use crate::measure::Spread;
use crate::options::Options;
use crate::{guard, machine};
use hosts::{Host, Mely, Tokio};
use std::fmt::Write;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use works::{
    Batch, Chain, Channel, PingPongMpsc, PingPongNotify, Read, Relay, Sleep, SpawnDetached,
    SpawnJoin, Yield,
};

/// The argument that makes a program run one run; the others follow.
pub const ARGUMENT: &str = "--run-tasks";
/// No run is meant to take longer.
const RUN_TIME_MAX: Duration = Duration::from_secs(60);

/// What is done, by its name.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The name.
    pub name: &'static str,
    /// What an operation is.
    pub about: &'static str,
}

/// What is done, in the order of the table.
pub const ROWS: [Row; 18] = [
    row("spawn-join-8", SPAWN_JOIN),
    row("spawn-join-64", SPAWN_JOIN),
    row("spawn-join-200", SPAWN_JOIN),
    row("spawn-detached-8", SPAWN_DETACHED),
    row("spawn-detached-64", SPAWN_DETACHED),
    row("spawn-detached-200", SPAWN_DETACHED),
    row("yield-1", "one task yields"),
    row("yield-16", "16 tasks yield"),
    row("ping-pong-notify", "a wake through tokio's Notify"),
    row("ping-pong-mpsc", "a message through tokio's mpsc"),
    row(
        "channel",
        "a message of 16 tasks to one, through mpsc of 64",
    ),
    row(
        "sleep",
        "one of 1,000 tasks that sleep 1 ms: bounded by time",
    ),
    row("read-64", READ),
    row("read-4096", READ),
    row("read-32768", READ),
    row("chain", "no task: a callback that posts to its own color"),
    row("relay", RELAY),
    row("relay-bounded", "the same with room for 64 in each color"),
];
const SPAWN_JOIN: &str = "spawned, 1,000 at a time, and awaited; bytes captured";
const RELAY: &str = "no task: one of 64 events that go round 1,000 colors";
const SPAWN_DETACHED: &str = "spawned, 1,000 at a time, and detached";

const READ: &str = "a look at a table of this number of words; every 16th changes it";

const fn row(name: &'static str, about: &'static str) -> Row {
    Row { name, about }
}

/// Who runs it: on one core.
pub const ON_ONE: [&str; 4] = ["tokio-current", "tokio-multi", "mely-one", "mely-each"];
/// Who runs it: on several.
pub const ON_SEVERAL: [&str; 3] = ["tokio-multi", "mely-one", "mely-each"];

/// Whether there is something to run.
pub fn runs(row: &str, host: &str) -> bool {
    !["chain", "relay", "relay-bounded"].contains(&row) || host == "mely-one"
}

/// What a run was.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Run {
    /// Operations.
    pub operations: u64,
    /// How long they took.
    pub took: Duration,
    /// CPU time of the process meanwhile.
    pub cpu: Duration,
}

/// How long a run is.
#[derive(Clone, Copy, Debug)]
pub enum Until {
    /// Batches, until this time is over.
    Time(Duration),
    /// This number of batches.
    Batches(u64),
}

/// The task that measures.
async fn drive(mut batch: impl Batch, until: Until) -> Run {
    batch.run().await;
    let (begun, cpu) = (Instant::now(), machine::cpu_time());
    let (mut operations, mut batches) = (0, 0);
    let more = |batches| match until {
        Until::Time(time) => begun.elapsed() < time,
        Until::Batches(all) => batches < all,
    };
    while more(batches) {
        operations += batch.run().await;
        batches += 1;
    }
    Run {
        operations,
        took: begun.elapsed(),
        cpu: machine::cpu_time() - cpu,
    }
}

/// Runs a row in this process.
///
/// # Errors
/// If there is none of this name, or if it failed.
pub fn run(row: &str, host: &str, cores: usize, until: Until) -> Result<Run, String> {
    let tokio = |current_thread| Tokio {
        current_thread,
        time: row == "sleep",
    };
    match host {
        "mely-one" if row == "chain" => Mely::OneColor.run(cores, drive(Chain, until))?.checked(),
        "mely-one" if row.starts_with("relay") => {
            let relay = Relay::new(row == "relay-bounded");
            Mely::OneColor.run(cores, drive(relay, until))?.checked()
        }
        "mely-one" => run_by(Mely::OneColor, row, cores, until),
        "mely-each" => run_by(Mely::ColorEach, row, cores, until),
        "tokio-current" => run_by(tokio(true), row, cores, until),
        "tokio-multi" => run_by(tokio(false), row, cores, until),
        _ => Err(format!("nobody called `{host}`")),
    }
}

fn run_by<H: Host>(host: H, row: &str, cores: usize, until: Until) -> Result<Run, String> {
    // Words captured: of the detached ones the reference to the count is one of them.
    match row {
        "spawn-join-8" => host.run(cores, drive(SpawnJoin::<H, 1>::new(host), until)),
        "spawn-join-64" => host.run(cores, drive(SpawnJoin::<H, 8>::new(host), until)),
        "spawn-join-200" => host.run(cores, drive(SpawnJoin::<H, 25>::new(host), until)),
        "spawn-detached-8" => host.run(cores, drive(SpawnDetached::<H, 0>::new(host), until)),
        "spawn-detached-64" => host.run(cores, drive(SpawnDetached::<H, 7>::new(host), until)),
        "spawn-detached-200" => host.run(cores, drive(SpawnDetached::<H, 24>::new(host), until)),
        "yield-1" => host.run(cores, drive(Yield::one(host), until)),
        "yield-16" => host.run(cores, drive(Yield::many(host), until)),
        "ping-pong-notify" => host.run(cores, drive(PingPongNotify(host), until)),
        "ping-pong-mpsc" => host.run(cores, drive(PingPongMpsc(host), until)),
        "channel" => host.run(cores, drive(Channel(host), until)),
        "sleep" => host.run(cores, drive(Sleep(host), until)),
        "read-64" => host.run(cores, drive(Read::new(host, 64), until)),
        "read-4096" => host.run(cores, drive(Read::new(host, 4_096), until)),
        "read-32768" => host.run(cores, drive(Read::new(host, 32_768), until)),
        _ => Err(format!("`{row}` is no row of {host:?}")),
    }?
    .checked()
}

impl Run {
    fn checked(self) -> Result<Run, String> {
        match self.operations {
            0 => Err("no operation was done".to_owned()),
            _ => Ok(self),
        }
    }

    fn ns(&self) -> f64 {
        self.took.as_nanos() as f64 / self.operations as f64
    }

    fn cpu_ns(&self) -> f64 {
        self.cpu.as_nanos() as f64 / self.operations as f64
    }

    fn text(&self) -> String {
        let (took_ns, cpu_ns) = (self.took.as_nanos(), self.cpu.as_nanos());
        format!("{} {took_ns} {cpu_ns}", self.operations)
    }

    fn parse(text: &str) -> Option<Run> {
        let numbers: Result<Vec<u64>, _> = text.split_whitespace().map(str::parse).collect();
        let &[operations, took_ns, cpu_ns] = &numbers.ok()?[..] else {
            return None;
        };
        Some(Run {
            operations,
            took: Duration::from_nanos(took_ns),
            cpu: Duration::from_nanos(cpu_ns),
        })
    }
}

/// Runs a row in a new process of this program.
fn spawn(row: &str, host: &str, cores: usize, time: Duration) -> Result<Run, String> {
    let failed = |why: String| format!("{row}, {host}, {cores} cores: {why}");
    let this = std::env::current_exe().map_err(|error| failed(error.to_string()))?;
    let output = Command::new(this)
        .args([ARGUMENT, row, host])
        .args([cores.to_string(), time.as_nanos().to_string()])
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| failed(error.to_string()))?;
    if !output.status.success() {
        return Err(failed(output.status.to_string()));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    Run::parse(&text).ok_or_else(|| failed(format!("cannot read: {text}")))
}

/// The other side, given what follows [`ARGUMENT`]: runs, and prints what it was.
///
/// # Errors
/// As for [`run`].
pub fn child(arguments: &[String]) -> Result<(), String> {
    let [row, host, cores, ns] = arguments else {
        return Err(format!("{ARGUMENT} ROW HOST CORES NANOSECONDS"));
    };
    let number = |text: &str| text.parse().map_err(|_| format!("{text}: not a number"));
    let (cores, time) = (number(cores)? as usize, Duration::from_nanos(number(ns)?));
    guard::guard(RUN_TIME_MAX);
    machine::detect();
    println!("{}", run(row, host, cores, Until::Time(time))?.text());
    Ok(())
}

/// Runs all rows that were asked for, and prints the table.
///
/// # Errors
/// As for [`run`].
pub fn measure_all(options: &Options) -> Result<(), String> {
    let available = machine::cores();
    let cores = match options.cores {
        Some(n) if n > available => {
            return Err(format!("--cores {n}: this process has {available}"));
        }
        Some(n) => vec![n],
        None => (1..=available.min(2)).collect(),
    };
    options.check_tables(ROWS.iter().map(|row| row.name))?;
    let rounds = options.rounds();
    if !options.json {
        println!(
            "ns per operation: median, least and most of {rounds} interleaved rounds; CPU time of \
             the process per operation; the median of the ratios to the first line of the row.\n\
             mely-one: all tasks in one color, mely-each: each in a color of its own.\n\n\
             {:<18} {:>5}  {:<13} {:>8} {:>17} {:>8} {:>6}",
            "row", "cores", "who", "ns", "min..max", "CPU ns", "ratio"
        );
    }
    for cores in cores {
        for row in chosen(options) {
            measure_row(options, row, cores, rounds)?;
        }
    }
    Ok(())
}

fn chosen(options: &Options) -> impl Iterator<Item = Row> + '_ {
    ROWS.into_iter().filter(|row| options.has(row.name))
}

fn hosts(row: Row, cores: usize) -> impl Iterator<Item = &'static str> {
    let hosts: &[&str] = if cores == 1 { &ON_ONE } else { &ON_SEVERAL };
    hosts
        .iter()
        .copied()
        .filter(move |host| runs(row.name, host))
}

fn measure_row(options: &Options, row: Row, cores: usize, rounds: usize) -> Result<(), String> {
    let mut all: Vec<(&str, Vec<Run>)> = hosts(row, cores).map(|host| (host, vec![])).collect();
    for _ in 0..rounds {
        for (host, runs) in &mut all {
            runs.push(spawn(
                row.name,
                host,
                cores,
                options.time() / rounds as u32,
            )?);
        }
    }
    let mut text = String::new();
    for (i, (host, runs)) in all.iter().enumerate() {
        let of = |f: &dyn Fn(&Run) -> f64| Spread::of(runs.iter().map(f).collect());
        let (ns, cpu_ns) = (of(&Run::ns), of(&Run::cpu_ns).median);
        let beside = runs.iter().zip(&all[0].1);
        let ratio = Spread::of(beside.map(|(run, first)| run.ns() / first.ns()).collect()).median;
        let result = if options.json {
            writeln!(
                text,
                "{{\"row\":\"{}\",\"cores\":{cores},\"who\":\"{host}\",\"ns\":{:.3},\
                 \"ns_min\":{:.3},\"ns_max\":{:.3},\"cpu_ns\":{cpu_ns:.3},\"ratio\":{ratio:.3}}}",
                row.name, ns.median, ns.min, ns.max
            )
        } else {
            let first = i == 0;
            writeln!(
                text,
                "{:<18} {:>5}  {host:<13} {:>8.1} {:>17} {cpu_ns:>8.1} {ratio:>6.2}  {}",
                if first { row.name } else { "" },
                if first {
                    cores.to_string()
                } else {
                    String::new()
                },
                ns.median,
                format!("{:.1}..{:.1}", ns.min, ns.max),
                if first { row.about } else { "" },
            )
        };
        result.expect("a string takes everything");
    }
    print!("{text}");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever it measures, it checks the count of what was done.
    #[test]
    fn all_rows_run() {
        machine::detect();
        for cores in 1..=machine::cores().min(2) {
            for row in ROWS {
                for host in hosts(row, cores) {
                    let until = Until::Batches(1);
                    // Of its own: some pin the thread they are on.
                    let run = std::thread::spawn(move || run(row.name, host, cores, until));
                    let run = run.join().expect("no panic").unwrap();
                    assert_eq!(Run::parse(&run.text()), Some(run), "{}, {host}", row.name);
                }
            }
        }
    }

    #[test]
    fn nonsense_is_refused() {
        let until = Until::Batches(1);
        assert!(run("chain", "mely-each", 1, until).is_err());
        assert!(run("yield-1", "nobody", 1, until).is_err());
        assert_eq!(Run::parse("1 2"), None);
    }
}
