//! The ideal queue: `servers` servers that lose no time, first come first served.
//!
//! Jobs of one source (a connection, a color) are served one at a time and in their order. A free
//! server takes the job that arrived first among those that may begin: a source whose earlier job
//! is still being served holds up its own jobs and no others.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap, VecDeque};

/// A job of the ideal queue.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Job {
    /// When it arrives, in ns.
    pub arrived_ns: u64,
    /// Its connection or color, from 0.
    pub source: usize,
    /// How long a server needs, in ns.
    pub service_ns: u64,
}

#[derive(Clone, Default)]
struct Source {
    /// Jobs that have arrived and have not begun, by their numbers.
    waiting: VecDeque<usize>,
    is_served: bool,
}

/// Returns when each job ends, in ns, in the order of `jobs`, which is that of their arrival.
///
/// # Panics
/// If there are no servers, or the jobs are not in the order of their arrival.
pub fn ends_ns(jobs: &[Job], servers: usize) -> Vec<u64> {
    assert!(servers > 0, "an ideal queue without servers");
    assert!(
        jobs.is_sorted_by_key(|job| job.arrived_ns),
        "jobs are given in the order of their arrival"
    );
    let sources = jobs.iter().map(|job| job.source + 1).max().unwrap_or(0);
    let mut sources = vec![Source::default(); sources];
    let mut ends_ns = vec![0; jobs.len()];
    // Jobs that may begin: the first of each source that is not being served.
    let mut ready = BTreeSet::new();
    let mut served = BinaryHeap::new();
    let mut arrived = 0;
    loop {
        let arrival_ns = jobs.get(arrived).map(|job| job.arrived_ns);
        let end = served.peek().map(|&Reverse((end_ns, _))| end_ns);
        let now_ns = match (arrival_ns, end) {
            (None, None) => return ends_ns,
            // At one moment a server becomes free before a job arrives.
            (arrival_ns, Some(end_ns)) if arrival_ns.is_none_or(|at_ns| end_ns <= at_ns) => {
                let Some(Reverse((_, job))) = served.pop() else {
                    unreachable!("it was looked at")
                };
                let source: &mut Source = &mut sources[jobs[job as usize].source];
                source.is_served = false;
                ready.extend(source.waiting.front());
                end_ns
            }
            (Some(arrival_ns), _) => {
                let source = &mut sources[jobs[arrived].source];
                source.waiting.push_back(arrived);
                if !source.is_served && source.waiting.len() == 1 {
                    ready.insert(arrived);
                }
                arrived += 1;
                arrival_ns
            }
            (None, Some(_)) => unreachable!("the first arm has it"),
        };
        while served.len() < servers
            && let Some(job) = ready.pop_first()
        {
            let source = &mut sources[jobs[job].source];
            source.waiting.pop_front();
            source.is_served = true;
            ends_ns[job] = now_ns + jobs[job].service_ns;
            served.push(Reverse((ends_ns[job], job as u64)));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::response::random::Random;

    fn jobs(of: &[(u64, usize, u64)]) -> Vec<Job> {
        let job = |&(arrived_ns, source, service_ns)| Job {
            arrived_ns,
            source,
            service_ns,
        };
        of.iter().map(job).collect()
    }

    #[test]
    fn the_first_to_come_is_served_first() {
        // The third waits for the first server that becomes free, the fourth for the other.
        let four = jobs(&[(0, 0, 100), (10, 1, 50), (20, 2, 5), (30, 3, 5)]);
        assert_eq!(ends_ns(&four, 2), [100, 60, 65, 70]);
        assert_eq!(ends_ns(&four, 1), [100, 150, 155, 160]);
        assert_eq!(ends_ns(&four, 4), [100, 60, 25, 35]);
        assert_eq!(ends_ns(&[], 2), [0; 0]);
    }

    #[test]
    fn a_source_is_served_one_job_at_a_time_and_holds_up_no_other() {
        // The second of source 0 waits although a server is free, and the job of source 1 does not.
        let three = jobs(&[(0, 0, 100), (10, 0, 100), (20, 1, 30)]);
        assert_eq!(ends_ns(&three, 2), [100, 200, 50]);
        // Jobs of one source alone: one server is as good as many.
        let one = jobs(&[(0, 0, 10), (1, 0, 10), (2, 0, 10), (50, 0, 10)]);
        assert_eq!(ends_ns(&one, 8), [10, 20, 30, 60]);
        // That waited longest goes first, whatever its source waited for.
        let late = jobs(&[(0, 0, 100), (1, 0, 7), (2, 1, 100), (3, 2, 9), (99, 3, 1)]);
        assert_eq!(ends_ns(&late, 2), [100, 107, 102, 111, 108]);
    }

    #[test]
    fn a_server_that_becomes_free_as_a_job_arrives_takes_it() {
        assert_eq!(ends_ns(&jobs(&[(0, 0, 10), (10, 1, 5)]), 1), [10, 15]);
        assert_eq!(ends_ns(&jobs(&[(0, 0, 10), (10, 0, 5)]), 2), [10, 15]);
    }

    /// The mean response time of jobs of sources of their own, in multiples of the mean service.
    fn mean(servers: usize, load: f64, is_exponential: bool) -> f64 {
        const JOBS: usize = 400_000;
        const SERVICE_NS: f64 = 1e6;
        let mut random = Random::new(7);
        let mut at_ns = 0.0;
        let jobs: Vec<Job> = (0..JOBS)
            .map(|source| {
                at_ns += random.exponential(SERVICE_NS / (load * servers as f64));
                let service_ns = if is_exponential {
                    random.exponential(SERVICE_NS)
                } else {
                    SERVICE_NS
                };
                Job {
                    arrived_ns: at_ns as u64,
                    source,
                    service_ns: service_ns as u64,
                }
            })
            .collect();
        let ends_ns = ends_ns(&jobs, servers);
        let responses = jobs.iter().zip(ends_ns);
        let sum: u64 = responses.map(|(job, end_ns)| end_ns - job.arrived_ns).sum();
        sum as f64 / JOBS as f64 / SERVICE_NS
    }

    /// M/M/1: 1 / (1 - load). M/M/2: 1 / (1 - load^2). M/D/1: 1 + load / (2 (1 - load)).
    #[test]
    fn mean_responses_are_those_of_the_textbook() {
        let close = |mean: f64, expected: f64| {
            assert!((mean / expected - 1.0).abs() < 0.03, "{mean}: {expected}");
        };
        close(mean(1, 0.5, true), 2.0);
        close(mean(1, 0.8, true), 5.0);
        close(mean(2, 0.7, true), 1.0 / (1.0 - 0.49));
        close(mean(1, 0.8, false), 3.0);
    }
}
