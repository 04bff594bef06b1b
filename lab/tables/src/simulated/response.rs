//! Response times by posts on many virtual cores, as multiples of the ideal queue's: the row
//! `posts-exp` of [`response`](mely_bench::response) at a load of 0.85, in virtual time.
//!
//! A foreign thread, on a processor of its own, posts each request when it is due, to one of
//! [`COLORS_PER_CORE`] colors a core.

use super::Setup;
use mely::Post;
use mely::runtime::Stealing;
use mely::sim;
use mely::{Color, Cx, Poster, Runtime};
use mely_bench::response::load::{Due, ROWS, Row};
use mely_bench::response::score::{Outcome, Run, Times};
use mely_bench::sync;
use mely_hardware::SimulateOn;
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Requests of a run.
const REQUESTS: usize = 20_000;
const LOAD: f64 = 0.85;
const COLORS_PER_CORE: usize = 16;
/// Of the schedule, so that all cores are there when it begins, in ns.
const START_NS: u64 = 1_000_000;

const MODES: [(&str, Option<Stealing>); 2] =
    [("mely", None), ("mely-no-stealing", Some(Stealing::OFF))];

/// A schedule, and the times of its requests.
struct Plan {
    schedule: Vec<Due>,
    sent_ns: Vec<AtomicU64>,
    received_ns: Vec<AtomicU64>,
}

fn now_ns() -> u64 {
    sync::now().as_nanos() as u64
}

impl Plan {
    fn post_all(self: &Arc<Plan>, by: &Poster) {
        for (request, due) in self.schedule.iter().enumerate() {
            let at_ns = START_NS + due.at_ns;
            // A sleep may return early.
            while let Some(left) = at_ns.checked_sub(now_ns()).filter(|&left| left > 0) {
                sync::sleep(Duration::from_nanos(left));
            }
            self.sent_ns[request].store(now_ns(), Relaxed);
            let plan = Arc::clone(self);
            let color = Color::from(1 + due.source as u64);
            let respond = move |cx: &mut Cx| {
                let service_ns = plan.schedule[request].service_ns;
                sim::work(cx, Duration::from_nanos(service_ns));
                plan.received_ns[request].store(now_ns(), Relaxed);
            };
            by.try_post(color, respond).expect("it keeps the run alive");
        }
    }
}

/// A line for each mode on each number of cores.
///
/// # Errors
/// A run that was given up, or lost a request.
pub fn table(setup: &Setup, cores: &[usize]) -> Result<String, String> {
    let mut text = format!(
        "{:<18} {:>5} {:>6} {:>6} {:>6} {:>9} {:>6} {:>7}\n",
        "mode", "cores", "mean", "p50", "p99", "p99 us", "CPU x", "late us"
    );
    for &cores in cores {
        for (name, stealing) in MODES {
            let outcome = run(setup, cores, stealing, REQUESTS)?;
            let [mean, p50, p99] = outcome.ratios();
            writeln!(
                text,
                "{name:<18} {cores:>5} {mean:>6.3} {p50:>6.3} {p99:>6.3} {:>9.0} {:>6.3} {:>7.1}",
                outcome.responses.p99 / 1e3,
                outcome.cpu_ratio(),
                outcome.late_p99_ns / 1e3,
            )
            .expect("a string takes everything");
        }
    }
    Ok(text)
}

fn run(
    setup: &Setup,
    cores: usize,
    stealing: Option<Stealing>,
    requests: usize,
) -> Result<Outcome, String> {
    let row = Row {
        load: LOAD,
        sources: COLORS_PER_CORE * cores,
        posts: true,
        ..ROWS[0]
    };
    let schedule = row.schedule(cores, requests, setup.seed);
    let no_times = || (0..requests).map(|_| AtomicU64::new(0)).collect();
    let plan = Arc::new(Plan {
        schedule,
        sent_ns: no_times(),
        received_ns: no_times(),
    });
    let mut builder = Runtime::builder().cores(cores).exit_when_idle(true);
    if let Some(stealing) = stealing {
        builder = builder.stealing(stealing);
    }
    // SAFETY: its handlers lend nothing by a thread-local variable.
    let run = unsafe { builder.simulate_on(&setup.machine, setup.seed) };
    let mut run = run.map_err(|error| error.to_string())?;
    run.set_time_max(Duration::from_secs(60));
    if let Some(ns) = setup.ahead_ns {
        run.set_ahead_ns(ns);
    }
    let its = Arc::clone(&plan);
    let start = move |cx: &mut Cx| {
        let by = cx.strong_poster();
        mely_hardware::begin(Box::new(move || its.post_all(&by)));
    };
    let report = run.run(start).map_err(|error| error.to_string())?;
    let times = |request: usize| {
        let since_start = |ns: &AtomicU64| ns.load(Relaxed).checked_sub(START_NS);
        Some(Times {
            sent_ns: since_start(&plan.sent_ns[request])?,
            received_ns: since_start(&plan.received_ns[request])?,
        })
    };
    let times: Option<Vec<Times>> = (0..requests).map(times).collect();
    // Of the whole run, without the time that cores slept.
    let busy = report
        .cores
        .iter()
        .map(|core| report.all_ns - core.slept_ns);
    let counted = requests - mely_bench::response::score::first_counted(requests);
    let cpu_ns = busy.sum::<f64>() * counted as f64 / requests as f64;
    let run = Run {
        times: times.ok_or("a request was lost")?,
        cpu: Duration::from_nanos(cpu_ns as u64),
        generator: Duration::ZERO,
    };
    Ok(Outcome::of(&row, cores, &plan.schedule, &run))
}

#[cfg(test)]
mod tests {
    use super::*;
    use mely_bench::costs::Costs;
    use mely_hardware::Machine;

    #[test]
    fn all_requests_are_answered_and_none_before_the_ideal_queue_could() {
        let setup = Setup {
            machine: Machine::shipped("epyc-2x64").unwrap(),
            seed: 1,
            ahead_ns: None,
            costs: Costs::parse(include_str!("../../costs.txt")).unwrap(),
            ns_max: super::super::NS_MAX,
        };
        for (_, stealing) in MODES {
            let outcome = run(&setup, 4, stealing, 100).unwrap();
            // Work takes up to one part in 64 less or more.
            assert!(outcome.ratios()[0] > 0.95, "{outcome:?}");
            assert!(outcome.cpu_ratio() > 0.95, "{outcome:?}");
            assert!(!outcome.is_void, "{outcome:?}");
        }
    }
}
