//! Repetitions, interleaved so that what the machine does meanwhile hits all schedulers alike;
//! medians with the least and the most.

use crate::rows::Row;
use crate::run::{self, Run, Which};
use crate::schedulers::Steals;
use crate::{Scheduler, machine};
use std::time::Duration;

/// Repetitions of each figure, given the time for all of them. Odd: the median is one of them. Few
/// when there is no time for figures and only the checks matter.
pub fn repetitions(time: Duration) -> usize {
    match time.as_millis() {
        0..100 => 1,
        100..500 => 3,
        _ => 7,
    }
}

/// How each figure of the tables is measured.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Plan {
    /// Repetitions.
    pub rounds: usize,
    /// What each takes.
    pub run: Duration,
    /// What each takes before that, which is not counted.
    pub warm_up: Duration,
}

/// A repetition is not shorter while there is time for it: what events cost whose memory has been
/// used again and again shows late.
const RUN_TIME_MIN: Duration = Duration::from_millis(500);
const ROUNDS_MAX: usize = 7;

impl Plan {
    /// What a figure takes without its warm-ups, unless another time is asked for.
    pub const DEFAULT_TIME: Duration = Duration::from_millis(1_500);

    /// For this time in all repetitions together; in as many as are asked for, or as many as fit,
    /// an odd number: the median is one of them.
    pub fn new(time: Duration, rounds: Option<usize>) -> Plan {
        let fitting = || {
            let fitting = (time.as_nanos() / RUN_TIME_MIN.as_nanos()) as usize;
            (fitting.clamp(1, ROUNDS_MAX) - 1) / 2 * 2 + 1
        };
        let rounds = rounds.unwrap_or_else(fitting);
        let run = time / rounds as u32;
        Plan {
            rounds,
            run,
            warm_up: run / 2,
        }
    }
}

/// A median with its spread.
#[derive(Clone, Copy, Debug)]
pub struct Spread {
    /// The median.
    pub median: f64,
    /// The least.
    pub min: f64,
    /// The most.
    pub max: f64,
}

impl Spread {
    /// # Panics
    /// If there are no values.
    pub fn of(mut values: Vec<f64>) -> Spread {
        values.sort_by(f64::total_cmp);
        Spread {
            median: values[values.len() / 2],
            min: values[0],
            max: values[values.len() - 1],
        }
    }
}

/// One way of a cache line between two cores.
#[derive(Clone, Copy, Debug)]
pub struct Line {
    /// Measured beside each repetition.
    pub ns: Spread,
    /// The median of an event's time as a multiple of the transfer beside it.
    pub transfers: f64,
}

/// One scheduler in one row.
#[derive(Clone, Debug)]
pub struct Figure {
    /// The scheduler's name.
    pub scheduler: &'static str,
    /// Time per event over all cores together.
    pub ns: Spread,
    /// CPU time of the process per event, the median.
    pub cpu_ns: f64,
    /// To the floor, if one runs here: the median of the ratios to its repetition beside; of
    /// latencies the ratio of the medians.
    pub ratio: Option<f64>,
    /// The median of the ratios to what the table has run beside each repetition.
    pub to_beside: Option<f64>,
    /// What a step of the first core takes, beside each repetition.
    pub step_ns: Spread,
    /// Only for several cores.
    pub line: Option<Line>,
    /// Of one repetition, on average; absent for who does not steal.
    pub steals: Option<Steals>,
    /// Median and 99th percentile of all latencies of all repetitions.
    pub latency_ns: Option<[u64; 2]>,
    /// What the workload or the scheduler adds, medians by the names of their JSON fields.
    pub values: Vec<(String, f64)>,
    /// Events of a repetition.
    pub events: u64,
}

/// All figures of one row.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Which row.
    pub row: Row,
    /// A figure for each scheduler that runs the row.
    pub figures: Vec<Figure>,
}

/// Of a repetition that is too short.
const TRIES_MAX: usize = 4;

struct Entry<'a> {
    scheduler: &'a dyn Scheduler,
    events: u64,
    runs: Vec<Run>,
    beside_ns: Vec<f64>,
    line_ns: Vec<f64>,
    step_ns: Vec<f64>,
}

/// Measures one row.
///
/// # Errors
/// A run that lost, repeated or reordered an event, or that failed otherwise.
pub fn measure(
    row: Row,
    schedulers: &[Box<dyn Scheduler>],
    plan: Plan,
) -> Result<Measured, String> {
    let mut entries = Vec::new();
    for scheduler in schedulers {
        if scheduler.runs(row.workload, row.cores) {
            entries.push(Entry {
                scheduler: scheduler.as_ref(),
                events: calibrate(row, scheduler.as_ref(), plan)?,
                runs: Vec::new(),
                beside_ns: Vec::new(),
                line_ns: Vec::new(),
                step_ns: Vec::new(),
            });
        }
    }
    for _ in 0..plan.rounds {
        for entry in &mut entries {
            entry.step_ns.push(machine::step_ns(0));
            if row.cores > 1 {
                entry.line_ns.push(machine::line_transfer_ns(0, 1));
            }
            let run = entry.repeat(row, plan)?;
            entry.runs.push(run);
            if row.table.beside.is_some() {
                let (name, events) = (entry.scheduler.name(), entry.events);
                let beside = run::spawn(row, Which::Beside, name, events, plan.warm_up)?;
                entry.beside_ns.push(beside.ns());
            }
        }
    }
    let baseline = entries
        .first()
        .filter(|first| first.scheduler.is_floor())
        .map(|first| (first.times_ns(), percentiles(&first.runs)));
    Ok(Measured {
        row,
        figures: entries
            .into_iter()
            .map(|entry| entry.figure(baseline.as_ref()))
            .collect(),
    })
}

impl Entry<'_> {
    /// A repetition; again with more events if it was much too short, as where the machine was slow
    /// when they were counted.
    fn repeat(&mut self, row: Row, plan: Plan) -> Result<Run, String> {
        let mut tries = 0;
        loop {
            let name = self.scheduler.name();
            let run = run::spawn(row, Which::Itself, name, self.events, plan.warm_up)?;
            tries += 1;
            // What ends early beside another run is as long as it can be.
            if run.took * 2 > plan.run || row.table.beside.is_some() || tries == TRIES_MAX {
                return Ok(run);
            }
            self.events *= 2;
        }
    }

    fn times_ns(&self) -> Vec<f64> {
        self.runs.iter().map(Run::ns).collect()
    }

    fn figure(self, baseline: Option<&(Vec<f64>, Option<[u64; 2]>)>) -> Figure {
        let median_of =
            |f: &dyn Fn(&Run) -> f64| Spread::of(self.runs.iter().map(f).collect()).median;
        let ratio_to = |others: &[f64]| {
            let ratios = self
                .runs
                .iter()
                .zip(others)
                .map(|(run, other)| run.ns() / other);
            Spread::of(ratios.collect()).median
        };
        let latency_ns = percentiles(&self.runs);
        let ratio = baseline.map(|(times_ns, floor_ns)| match (latency_ns, floor_ns) {
            (Some([p50, _]), &Some([floor_p50, _])) => p50 as f64 / floor_p50 as f64,
            _ => ratio_to(times_ns),
        });
        let values = self.runs[0].values.iter().enumerate();
        Figure {
            scheduler: self.scheduler.name(),
            ns: Spread::of(self.times_ns()),
            cpu_ns: median_of(&|run| run.cpu.as_nanos() as f64 / run.ran as f64),
            ratio,
            to_beside: (!self.beside_ns.is_empty()).then(|| ratio_to(&self.beside_ns)),
            step_ns: Spread::of(self.step_ns.clone()),
            line: (!self.line_ns.is_empty()).then(|| Line {
                ns: Spread::of(self.line_ns.clone()),
                transfers: ratio_to(&self.line_ns),
            }),
            steals: Steals::mean(self.runs.iter().filter_map(|run| run.steals)),
            latency_ns,
            values: values
                .map(|(i, (name, _))| (name.clone(), median_of(&|run| run.values[i].1)))
                .collect(),
            events: self.events,
        }
    }
}

fn percentiles(runs: &[Run]) -> Option<[u64; 2]> {
    let samples = runs.iter().flat_map(|run| &run.samples_ns);
    let mut samples: Vec<u64> = samples.copied().collect();
    samples.sort_unstable();
    let last = samples.len().checked_sub(1)?;
    Some([50, 99].map(|percent| samples[last * percent / 100]))
}

/// How many events a run takes: found by one that took at least half of its time, so that a
/// thread which had to wait for its processor does not pass for events. Where another run goes
/// beside it, the longer of the two counts: a scheduler that lets one chain run ahead ends the
/// first of them early.
/// How many events of a row take as long as the plan says.
///
/// # Errors
/// As [`measure`].
pub fn calibrate(row: Row, scheduler: &dyn Scheduler, plan: Plan) -> Result<u64, String> {
    let time = plan.warm_up + plan.run;
    let run = |which, events| run::spawn(row, which, scheduler.name(), events, Duration::ZERO);
    let mut events = 2 * row.workload.colors_end(row.cores) as u64;
    loop {
        let mut took = run(Which::Itself, events)?.took;
        if row.table.beside.is_some() {
            took = took.max(run(Which::Beside, events)?.took);
        }
        let more = time.as_secs_f64() / took.as_secs_f64();
        if more <= 2.0 {
            return Ok(((events as f64 * more) as u64).max(1));
        }
        events = (events as f64 * more.min(10.0)) as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_half_a_second_while_there_is_time() {
        let plan = |seconds, rounds| {
            let plan = Plan::new(Duration::from_secs_f64(seconds), rounds);
            assert_eq!(plan.warm_up, plan.run / 2);
            (plan.rounds, plan.run.as_millis())
        };
        assert_eq!(plan(0.02, None), (1, 20));
        assert_eq!(plan(0.5, None), (1, 500));
        assert_eq!(plan(1.0, None), (1, 1_000));
        assert_eq!(plan(1.5, None), (3, 500));
        assert_eq!(plan(2.0, None), (3, 666));
        assert_eq!(plan(7.0, None), (7, 1_000));
        assert_eq!(plan(2.0, Some(2)), (2, 1_000));
    }
}
