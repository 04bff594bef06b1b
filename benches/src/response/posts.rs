//! Requests without I/O: a foreign thread of real-time priority posts closures to colors when they
//! are due. By the schedulers of the tables, in a process of its own.
//!
//! The locks of the peers' color queues spin and yield, and a thread of real-time priority yields to
//! no worker. If it preempts a worker that holds the lock which it wants itself, it spins until the
//! system throttles real-time threads. A lock is held for some nanoseconds of a millisecond, and is
//! one of 64, so this is rare. It shows as a longest response of nearly a second.

use super::load::{Due, Row};
use super::realtime::{self, Clock};
use super::score::{Outcome, Run, Times, first_counted};
use super::wire::{compute, iteration_ns};
use crate::workloads::{Work, finish};
use crate::{Context, Outside, Workload, World, guard, machine, schedulers};
use serde_json::Value;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// The schedulers, by their names in [`schedulers::find`].
pub const PEERS: &[&str] = &[
    "mely",
    "mely-no-stealing",
    "rayon",
    #[cfg(asio)]
    "asio",
    "crossbeam",
    "vyukov",
    "tokio",
    "tokio-queue",
];

/// The argument that makes the program `respond` run one; the others follow.
pub const ARGUMENT: &str = "posts";
const USAGE: &str = "posts PEER CORES REQUESTS SEED and the row, as Row::words has it";
/// A run that takes so much longer than its schedule is given up.
const LATE_MAX: Duration = Duration::from_secs(60);

/// The one run of this process.
#[derive(Debug)]
struct Plan {
    row: Row,
    schedule: Vec<Due>,
    /// Of each request: its iterations, and its number in its color.
    requests: Vec<(u64, u32)>,
    sent_ns: Vec<AtomicU64>,
    received_ns: Vec<AtomicU64>,
    clock: Clock,
    generator: Mutex<Option<JoinHandle<Generated>>>,
}

/// When the schedule began; processor time of the whole process and of the generator when counting
/// began, and of the generator at its end.
#[derive(Clone, Copy, Debug, Default)]
struct Generated {
    start_ns: u64,
    process: Duration,
    generator: Duration,
    generator_end: Duration,
}

/// The workload of a schedule, for any scheduler.
#[derive(Clone, Copy, Debug)]
pub struct Posts(&'static Plan);

impl Work for Posts {
    fn world(self, _events: u64, cores: usize) -> World {
        let schedule = &self.0.schedule;
        let world = World::new(self.0.row.sources, 0, schedule.len(), cores, true);
        for (due, &(_, number)) in schedule.iter().zip(&self.0.requests) {
            world.set_length(due.source as u32, number + 1);
        }
        world
    }

    fn colors_end(self, _cores: usize) -> usize {
        self.0.row.sources
    }

    fn separable(self, _cores: usize) -> bool {
        false
    }

    fn start<C: Context + ?Sized>(self, cx: &mut C, world: &'static World, cores: &[usize]) {
        let (outside, cores, plan) = (cx.outside(), cores.len(), self.0);
        let generator = thread::spawn(move || {
            // The thread that spawned it is pinned.
            machine::pin_to(&Vec::from_iter(0..machine::cores()));
            realtime::become_realtime();
            plan.post_all(cores, |request, color| {
                outside.post(color, move |cx: &mut C| plan.respond(cx, world, request));
            })
        });
        *self
            .0
            .generator
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Some(generator);
    }
}

impl Plan {
    fn new(row: Row, cores: usize, requests: usize, seed: u64) -> Plan {
        let schedule = row.schedule(cores, requests, seed);
        let iteration_ns = iteration_ns();
        let mut numbers = vec![0; row.sources];
        let request = |due: &Due| {
            let number = numbers[due.source];
            numbers[due.source] += 1;
            ((due.service_ns as f64 / iteration_ns) as u64, number)
        };
        let requests = schedule.iter().map(request).collect();
        let no_times = || schedule.iter().map(|_| AtomicU64::new(0)).collect();
        Plan {
            row,
            requests,
            sent_ns: no_times(),
            received_ns: no_times(),
            schedule,
            clock: Clock::start(),
            generator: Mutex::default(),
        }
    }

    fn post_all(&self, cores: usize, post: impl Fn(usize, u32)) -> Generated {
        let spin_ns = realtime::spin_ns(self.row.gap_ns(cores));
        let start_ns = self.clock.ns();
        let mut generated = Generated {
            start_ns,
            ..Generated::default()
        };
        for (request, due) in self.schedule.iter().enumerate() {
            if request == first_counted(self.schedule.len()) {
                generated.process = machine::cpu_time();
                generated.generator = machine::thread_cpu_time();
            }
            self.clock.wait_until(start_ns + due.at_ns, spin_ns);
            self.sent_ns[request].store(self.clock.ns(), Relaxed);
            post(request, due.source as u32);
        }
        generated.generator_end = machine::thread_cpu_time();
        generated
    }

    fn respond<C: Context + ?Sized>(&self, cx: &mut C, world: &'static World, request: usize) {
        let (iterations, number) = self.requests[request];
        world.pass(self.schedule[request].source as u32, number);
        compute(iterations);
        self.received_ns[request].store(self.clock.ns(), Relaxed);
        finish(cx, world);
    }

    fn run(&self, generated: Generated) -> Run {
        let times = self.sent_ns.iter().zip(&self.received_ns);
        let since_start = |ns: &AtomicU64| ns.load(Relaxed) - generated.start_ns;
        let times = times.map(|(sent_ns, received_ns)| Times {
            sent_ns: since_start(sent_ns),
            received_ns: since_start(received_ns),
        });
        let generator = generated.generator_end - generated.generator;
        Run {
            times: times.collect(),
            cpu: (machine::cpu_time() - generated.process).saturating_sub(generator),
            generator,
        }
    }
}

/// Runs a row by a scheduler in a new process of the program `respond`.
///
/// # Errors
/// A run that lost, repeated or reordered a request, or that failed otherwise.
pub fn spawn(
    respond: &Path,
    row: &Row,
    peer: &str,
    cores: usize,
    requests: usize,
    seed: u64,
) -> Result<Outcome, String> {
    let output = Command::new(respond)
        .args([ARGUMENT, peer])
        .args([cores.to_string(), requests.to_string(), seed.to_string()])
        .args(row.words())
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("{}: {error}", respond.display()))?;
    if !output.status.success() {
        return Err(output.status.to_string());
    }
    let text = String::from_utf8_lossy(&output.stdout);
    let value: Option<Value> = serde_json::from_str(&text).ok();
    let outcome = value.as_ref().and_then(Outcome::of_json);
    outcome.ok_or_else(|| format!("cannot read: {text}"))
}

/// The other side of [`spawn`], given the arguments behind [`ARGUMENT`]: runs, and prints the
/// outcome.
///
/// # Errors
/// As for [`spawn`].
pub fn child(arguments: &[String]) -> Result<(), String> {
    let [peer, cores, requests, seed, row @ ..] = arguments else {
        return Err(USAGE.to_owned());
    };
    let number = |text: &str| text.parse().map_err(|_| format!("{text}: not a number"));
    let (cores, requests) = (number(cores)? as usize, number(requests)? as usize);
    let row: &[String; 6] = row.try_into().map_err(|_| USAGE.to_owned())?;
    let row = Row::of_words(row)?;
    let known = PEERS.contains(&peer.as_str());
    let scheduler = schedulers::find(peer).filter(|_| known);
    let scheduler = scheduler.ok_or_else(|| format!("no scheduler `{peer}`"))?;
    machine::detect();
    let plan: &'static Plan = Box::leak(Box::new(Plan::new(row, cores, requests, number(seed)?)));
    let last_ns = plan.schedule.last().map_or(0, |due| due.at_ns);
    guard::guard(Duration::from_nanos(last_ns) + LATE_MAX);
    let workload = Workload::Posts(Posts(plan));
    let world = workload.world(requests as u64, cores);
    scheduler.run(workload, world, cores)?;
    world.verdict()?;
    let generator = plan
        .generator
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .take();
    let generated = generator.ok_or("nothing was started")?.join();
    let generated = generated.map_err(|_| "the generator panicked; its message is above")?;
    let run = plan.run(generated);
    println!(
        "{}",
        Outcome::of(&row, cores, &plan.schedule, &run).to_json()
    );
    Ok(())
}
