//! Repetitions, interleaved so that what the machine does meanwhile hits all schedulers alike;
//! medians with the least and the most.

use crate::rows::Row;
use crate::schedulers::Steals;
use crate::{Scheduler, machine};
use std::time::Duration;

/// Repetitions of each figure. Odd: the median is one of them.
pub const REPETITIONS: usize = 7;

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

/// One scheduler in one row.
#[derive(Clone, Debug)]
pub struct Figure {
    /// The scheduler's name.
    pub scheduler: &'static str,
    /// Time per event over all cores together.
    pub ns: Spread,
    /// The median of the ratios to the first scheduler's repetition beside it, if that runs here.
    pub ratio: Option<f64>,
    /// Of one repetition, on average; absent for who does not steal.
    pub steals: Option<Steals>,
    /// Events of a repetition.
    pub events: u64,
}

/// All figures of one row.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Which row.
    pub row: Row,
    /// One way of a cache line between the first two cores in ns, measured beside each repetition;
    /// only for several cores.
    pub line_ns: Option<Spread>,
    /// A figure for each scheduler that runs the row.
    pub figures: Vec<Figure>,
}

struct Entry<'a> {
    scheduler: &'a dyn Scheduler,
    events: u64,
    ns: Vec<f64>,
    steals: Option<Steals>,
}

/// Measures one row for about `time` a scheduler.
///
/// # Errors
/// A run that lost, repeated or reordered an event, or that failed otherwise.
pub fn measure(
    row: Row,
    schedulers: &[Box<dyn Scheduler>],
    time: Duration,
) -> Result<Measured, String> {
    let mut entries = Vec::new();
    for scheduler in schedulers {
        if scheduler.runs(row.workload, row.cores) {
            entries.push(Entry {
                scheduler: scheduler.as_ref(),
                events: calibrate(row, scheduler.as_ref(), time / REPETITIONS as u32)?,
                ns: Vec::new(),
                steals: None,
            });
        }
    }
    let mut line_ns = Vec::new();
    for _ in 0..REPETITIONS {
        if row.cores > 1 {
            line_ns.push(machine::line_transfer_ns(0, 1));
        }
        for entry in &mut entries {
            let (ns, _, steals) = run(row, entry.scheduler, entry.events)?;
            entry.ns.push(ns);
            if let Some(new) = steals {
                let sum = entry.steals.get_or_insert_default();
                sum.won += new.won;
                sum.colors += new.colors;
                sum.cost += new.cost;
                sum.stolen += new.stolen;
                sum.parks += new.parks;
            }
        }
    }
    let first = entries.first().map(|e| (e.scheduler.name(), e.ns.clone()));
    let baseline = first.filter(|(name, _)| Some(*name) == schedulers.first().map(|s| s.name()));
    let figure = |entry: Entry<'_>| {
        let ratio = baseline.as_ref().map(|(_, baseline)| {
            let ratios = entry.ns.iter().zip(baseline).map(|(ns, base)| ns / base);
            Spread::of(ratios.collect()).median
        });
        Figure {
            scheduler: entry.scheduler.name(),
            ns: Spread::of(entry.ns),
            ratio,
            steals: entry.steals.map(mean),
            events: entry.events,
        }
    };
    Ok(Measured {
        row,
        line_ns: (!line_ns.is_empty()).then(|| Spread::of(line_ns)),
        figures: entries.into_iter().map(figure).collect(),
    })
}

fn mean(sum: Steals) -> Steals {
    let n = REPETITIONS as u64;
    Steals {
        won: sum.won / n,
        colors: sum.colors / n,
        cost: sum.cost / n as u32,
        stolen: sum.stolen / n as u32,
        parks: sum.parks / n,
    }
}

/// How many events take about `time`.
fn calibrate(row: Row, scheduler: &dyn Scheduler, time: Duration) -> Result<u64, String> {
    let mut events = 2 * row.workload.colors() as u64;
    loop {
        let (ns, ran, _) = run(row, scheduler, events)?;
        let took_ns = ns * ran as f64;
        // Short runs are mostly start-up; a tenth of the time is enough to tell.
        if took_ns * 10.0 >= time.as_nanos() as f64 {
            return Ok((time.as_nanos() as f64 / ns) as u64);
        }
        events *= 4;
    }
}

/// One run, checked: ns per event, events, steals.
fn run(
    row: Row,
    scheduler: &dyn Scheduler,
    events: u64,
) -> Result<(f64, u64, Option<Steals>), String> {
    let Row {
        table,
        workload,
        cores,
    } = row;
    let world = workload.world(events, cores);
    let name = scheduler.name();
    let failed = |error| format!("{table}, {name}, {cores} cores: {error}");
    let extras = scheduler.run(workload, world, cores).map_err(failed)?;
    let took = world.verdict().map_err(failed)?;
    let ran = u64::from(world.length) * world.colors() as u64;
    Ok((took.as_nanos() as f64 / ran as f64, ran, extras.steals))
}
