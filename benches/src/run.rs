//! One run, in a process of its own: a heap that others have used makes the next one slower, by
//! factors, and what a run leaves behind should not be the next one's.

use crate::rows::Row;
use crate::schedulers::{self, Extras, Steals};
use crate::shape::Shape;
use crate::world::Verdict;
use crate::{guard, machine, rows, workloads};
use std::fmt::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

/// The argument that makes this program run one run; the others follow.
pub const ARGUMENT: &str = "--run";
const USAGE: &str = "--run TABLE Itself|Beside SCHEDULER CORES EVENTS WARM_UP_US BYTES DEPTH";
/// No run is meant to take longer; it is given up then.
const RUN_TIME_MAX: Duration = Duration::from_secs(60);

/// What a run was.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Run {
    /// From the end of the warm-up to the last event.
    pub took: Duration,
    /// CPU time of the process meanwhile.
    pub cpu: Duration,
    /// Events meanwhile.
    pub ran: u64,
    /// Latencies, if the workload takes any.
    pub samples_ns: Vec<u64>,
    /// Absent for schedulers that do not steal.
    pub steals: Option<Steals>,
    /// What the scheduler and the workload add, by the names of JSON fields.
    pub values: Vec<(String, f64)>,
}

/// Of a table, its workload or the one beside it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Which {
    /// [`crate::Table::workload`].
    Itself,
    /// [`crate::Table::beside`].
    Beside,
}

/// Runs about this many events of a row in a new process, of which those of the first `warm_up` are
/// not counted if there are others.
///
/// # Errors
/// A run that lost, repeated or reordered an event, or that failed otherwise.
pub fn spawn(
    row: Row,
    which: Which,
    scheduler: &str,
    events: u64,
    warm_up: Duration,
) -> Result<Run, String> {
    let Row {
        table,
        shape,
        cores,
        ..
    } = row;
    let failed = |why: String| format!("{}, {scheduler}, {cores} cores: {why}", table.name);
    let this = std::env::current_exe().map_err(|error| failed(error.to_string()))?;
    let output = Command::new(this)
        .args([ARGUMENT, table.name, &format!("{which:?}"), scheduler])
        .args([cores.to_string(), events.to_string()])
        .arg(warm_up.as_micros().to_string())
        .args(shape.words())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| failed(error.to_string()))?;
    if !output.status.success() {
        return Err(failed(output.status.to_string()));
    }
    let text = String::from_utf8_lossy(&output.stdout);
    Run::parse(&text).ok_or_else(|| failed(format!("cannot read: {text}")))
}

/// The other side of [`spawn`], given what follows [`ARGUMENT`]: runs, and prints what it was.
///
/// # Errors
/// As for [`spawn`].
pub fn child(arguments: &[String]) -> Result<(), String> {
    let [
        table,
        which,
        scheduler,
        cores,
        events,
        warm_up_us,
        bytes,
        depth,
    ] = arguments
    else {
        return Err(USAGE.to_owned());
    };
    let number = |text: &str| text.parse().map_err(|_| format!("{text}: not a number"));
    let (cores, events) = (number(cores)? as usize, number(events)?);
    let warm_up = Duration::from_micros(number(warm_up_us)?);
    let which = [Which::Itself, Which::Beside]
        .into_iter()
        .find(|w| format!("{w:?}") == *which)
        .ok_or(format!("neither itself nor beside: {which}"))?;
    let shape = Shape::of_words([bytes, depth])?;
    let workload =
        rows::workload(table, which, shape, cores).ok_or(format!("no table `{table}`"))?;
    let scheduler = schedulers::find(scheduler).ok_or(format!("no scheduler `{scheduler}`"))?;
    workloads::set_closure_bytes(shape);
    guard::guard(RUN_TIME_MAX);
    machine::detect();
    let world = workload.world(events, cores);
    if !warm_up.is_zero() {
        world.warm_up(warm_up);
    }
    let extras = scheduler.run(workload, world, cores)?;
    let verdict = world.verdict()?;
    let values = workload.values(world, &verdict);
    print!("{}", Run::new(verdict, extras, values).text());
    Ok(())
}

impl Run {
    fn new(verdict: Verdict, extras: Extras, values: Vec<(&str, f64)>) -> Run {
        let values = extras.values.into_iter().chain(values);
        Run {
            took: verdict.took,
            cpu: verdict.cpu,
            ran: verdict.ran,
            samples_ns: verdict.samples_ns,
            steals: extras.steals,
            values: values.map(|(name, v)| (name.to_owned(), v)).collect(),
        }
    }

    /// Time per event.
    pub fn ns(&self) -> f64 {
        self.took.as_nanos() as f64 / self.ran as f64
    }

    /// Lines of words.
    fn text(&self) -> String {
        let mut text = format!(
            "ran {} {} {}\n",
            self.took.as_nanos(),
            self.cpu.as_nanos(),
            self.ran
        );
        if let Some(s) = &self.steals {
            let (cost_ns, stolen_ns) = (s.cost.as_nanos(), s.stolen.as_nanos());
            let numbers = format!("{} {} {cost_ns} {stolen_ns} {}", s.won, s.colors, s.parks);
            text += &format!("steals {numbers}\n");
        }
        for (name, value) in &self.values {
            text += &format!("value {name} {value}\n");
        }
        if !self.samples_ns.is_empty() {
            text += "samples";
            for ns in &self.samples_ns {
                write!(text, " {ns}").expect("a string takes everything");
            }
            text += "\n";
        }
        text
    }

    fn parse(text: &str) -> Option<Run> {
        let mut run = Run::default();
        for line in text.lines() {
            let (kind, rest) = line.split_once(' ')?;
            if kind == "value" {
                let (name, value) = rest.split_once(' ')?;
                run.values.push((name.to_owned(), value.parse().ok()?));
                continue;
            }
            let numbers: Result<Vec<u64>, _> = rest.split(' ').map(str::parse).collect();
            let numbers = numbers.ok()?;
            match (kind, &numbers[..]) {
                ("ran", &[took, cpu, ran]) => {
                    run.took = Duration::from_nanos(took);
                    run.cpu = Duration::from_nanos(cpu);
                    run.ran = ran;
                }
                ("steals", &[won, colors, cost, stolen, parks]) => {
                    run.steals = Some(Steals {
                        won,
                        colors,
                        cost: Duration::from_nanos(cost),
                        stolen: Duration::from_nanos(stolen),
                        parks,
                    });
                }
                ("samples", samples) => run.samples_ns = samples.to_vec(),
                _ => return None,
            }
        }
        (run.ran > 0).then_some(run)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_read_as_it_was_written() {
        let run = Run {
            took: Duration::from_nanos(1),
            cpu: Duration::from_nanos(2),
            ran: 3,
            samples_ns: vec![4, 5],
            steals: Some(Steals {
                won: 6,
                colors: 7,
                cost: Duration::from_nanos(8),
                stolen: Duration::from_nanos(9),
                parks: 10,
            }),
            values: vec![("fairness".to_owned(), 1.5), ("bytes".to_owned(), 11.0)],
        };
        assert_eq!(Run::parse(&run.text()), Some(run));
        assert_eq!(Run::parse("ran 1 2"), None);
        assert_eq!(Run::parse(""), None);
    }
}
