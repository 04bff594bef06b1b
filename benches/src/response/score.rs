//! A run judged by the ideal queue that has the run's own arrivals.

use super::ideal::{self, Job};
use super::load::{Due, Row};
use serde_json::{Value, json};
use std::time::Duration;

/// The first tenth of the requests warms up.
const WARM_UP_PART: usize = 10;

/// A run is void if its generator is late by more than this share of the mean service, at the 99th
/// percentile.
const LATE_SHARE_MAX: f64 = 0.05;
/// Lateness that voids no run, however short its service is: a sleeping thread on a virtual processor
/// needs that long to wake.
const LATE_FLOOR_NS: f64 = 50e3;

/// The first request that is counted.
pub fn first_counted(requests: usize) -> usize {
    requests / WARM_UP_PART
}

/// When a request was sent and its answer came, from the start of the run.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Times {
    /// Read before it was sent.
    pub sent_ns: u64,
    /// Read after its answer had come.
    pub received_ns: u64,
}

/// The times of a run.
#[derive(Clone, Debug)]
pub struct Run {
    /// Of each request of the schedule.
    pub times: Vec<Times>,
    /// Processor time of the server while requests were counted.
    pub cpu: Duration,
    /// Processor time of the generator in the same time.
    pub generator: Duration,
}

/// A distribution of response times, in ns.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Responses {
    /// The mean.
    pub mean: f64,
    /// The median.
    pub p50: f64,
    /// The 99th percentile.
    pub p99: f64,
    /// The longest.
    pub max: f64,
}

impl Responses {
    /// # Panics
    /// If there are none.
    pub fn of(mut all_ns: Vec<u64>) -> Responses {
        all_ns.sort_unstable();
        let last = all_ns.len() - 1;
        Responses {
            mean: all_ns.iter().sum::<u64>() as f64 / all_ns.len() as f64,
            p50: all_ns[last / 2] as f64,
            p99: all_ns[last * 99 / 100] as f64,
            max: all_ns[last] as f64,
        }
    }
}

/// A run's figures.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Outcome {
    /// From sent to received.
    pub responses: Responses,
    /// Those of the ideal queue.
    pub ideal: Responses,
    /// The server's processor time per request, in ns.
    pub cpu_ns: f64,
    /// The mean service of the requests that were counted, in ns.
    pub service_ns: f64,
    /// How late the generator sent, at the 99th percentile, in ns.
    pub late_p99_ns: f64,
    /// The generator's share of one processor.
    pub generator: f64,
    /// The generator was too late.
    pub is_void: bool,
}

impl Outcome {
    /// Judges a run of `row` on this many cores.
    ///
    /// # Panics
    /// If nothing was run.
    pub fn of(row: &Row, cores: usize, schedule: &[Due], run: &Run) -> Outcome {
        let job = |(due, times): (&Due, &Times)| Job {
            arrived_ns: times.sent_ns,
            source: due.source,
            service_ns: due.service_ns,
        };
        let jobs: Vec<Job> = schedule.iter().zip(&run.times).map(job).collect();
        let ends_ns = ideal::ends_ns(&jobs, cores);
        let counted = first_counted(jobs.len())..jobs.len();
        let each = |ns: &dyn Fn(usize) -> u64| Responses::of(counted.clone().map(ns).collect());
        let took = |of: usize| run.times[of].received_ns - run.times[of].sent_ns;
        let late = each(&|of| run.times[of].sent_ns.saturating_sub(schedule[of].at_ns));
        let last_ns = run.times.iter().map(|times| times.received_ns).max();
        let whole_ns = last_ns.unwrap_or(0) - run.times[counted.start].sent_ns;
        let late_max_ns = (LATE_SHARE_MAX * row.mean_us * 1e3).max(LATE_FLOOR_NS);
        Outcome {
            responses: each(&took),
            ideal: each(&|of| ends_ns[of] - jobs[of].arrived_ns),
            cpu_ns: run.cpu.as_nanos() as f64 / counted.len() as f64,
            service_ns: each(&|of| jobs[of].service_ns).mean,
            late_p99_ns: late.p99,
            generator: run.generator.as_nanos() as f64 / whole_ns.max(1) as f64,
            is_void: late.p99 > late_max_ns,
        }
    }

    /// Mean, median and 99th percentile as multiples of the ideal queue's.
    pub fn ratios(&self) -> [f64; 3] {
        let (its, ideal) = (&self.responses, &self.ideal);
        [
            its.mean / ideal.mean,
            its.p50 / ideal.p50,
            its.p99 / ideal.p99,
        ]
    }

    /// Processor time per request as a multiple of the mean service.
    pub fn cpu_ratio(&self) -> f64 {
        self.cpu_ns / self.service_ns
    }

    /// As JSON; a process prints it for the one that started it.
    pub fn to_json(&self) -> Value {
        let responses = |of: &Responses| json!([of.mean, of.p50, of.p99, of.max]);
        json!({
            "responses_ns": responses(&self.responses),
            "ideal_ns": responses(&self.ideal),
            "cpu_ns": self.cpu_ns,
            "service_ns": self.service_ns,
            "late_p99_ns": self.late_p99_ns,
            "generator": self.generator,
            "void": self.is_void,
        })
    }

    /// Reads [`to_json`](Self::to_json); none if it is not that.
    pub fn of_json(value: &Value) -> Option<Outcome> {
        let responses = |name: &str| {
            let number = |at: usize| value[name][at].as_f64();
            Some(Responses {
                mean: number(0)?,
                p50: number(1)?,
                p99: number(2)?,
                max: number(3)?,
            })
        };
        Some(Outcome {
            responses: responses("responses_ns")?,
            ideal: responses("ideal_ns")?,
            cpu_ns: value["cpu_ns"].as_f64()?,
            service_ns: value["service_ns"].as_f64()?,
            late_p99_ns: value["late_p99_ns"].as_f64()?,
            generator: value["generator"].as_f64()?,
            is_void: value["void"].as_bool()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::response::load::ROWS;

    /// Twenty requests a millisecond apart, each of half a millisecond and sent `late_ns` late;
    /// answered after 0.6 ms, the first two, which are not counted, much later.
    fn outcome(late_ns: u64) -> Outcome {
        let due = |number: usize| Due {
            at_ns: number as u64 * 1_000_000,
            source: number % 3,
            service_ns: 500_000,
        };
        let schedule: Vec<Due> = (0..20).map(due).collect();
        let times = |(number, due): (usize, &Due)| Times {
            sent_ns: due.at_ns + late_ns,
            received_ns: due.at_ns + late_ns + if number < 2 { 9_000_000 } else { 600_000 },
        };
        let run = Run {
            times: schedule.iter().enumerate().map(times).collect(),
            cpu: Duration::from_micros(18 * 550),
            generator: Duration::from_millis(1),
        };
        Outcome::of(&ROWS[0], 2, &schedule, &run)
    }

    #[test]
    fn a_run_is_judged_by_the_ideal_queue_without_its_warm_up() {
        let outcome = outcome(0);
        assert_eq!(outcome.ratios(), [1.2; 3]);
        assert_eq!(outcome.cpu_ns, 550_000.0);
        assert!((outcome.cpu_ratio() - 1.1).abs() < 1e-9);
        assert_eq!((outcome.late_p99_ns, outcome.is_void), (0.0, false));
        // Of the time from the third request to the last answer.
        assert!((outcome.generator - 1.0 / 17.6).abs() < 1e-9);
    }

    #[test]
    fn a_late_generator_voids_a_run_and_moves_the_ideal_queue() {
        assert!(!outcome(50_000).is_void);
        let late = outcome(50_001);
        assert!(late.is_void);
        assert_eq!(late.ratios(), [1.2; 3]);
    }

    #[test]
    fn an_outcome_is_read_as_it_was_written() {
        let outcome = outcome(7);
        assert_eq!(Outcome::of_json(&outcome.to_json()), Some(outcome));
        assert_eq!(Outcome::of_json(&json!({})), None);
    }
}
