//! Every workload under orders that no scheduler is likely to take, but any may: what a workload's
//! checks rely on beyond what is promised fails here on every machine, not now and then on a busy
//! one.
//!
//! Promised is that events of a color run one at a time and in the order of their posts. Here
//! colors take turns at random, and any post, those of `start` among them, may be followed by other
//! events before it returns, as if its core had been held up and the others had gone on: by few
//! most times, by thousands now and then.

use super::{TABLES, Workload};
use crate::{Context, Outside, machine};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::thread;

type Job = Box<dyn FnOnce(&mut AnyOrder) + Send>;
type Posted = Arc<Mutex<Vec<(u32, Job)>>>;

/// Colors that are held up by a post at the same time, at most.
const HELD_UP_MAX: usize = 3;

struct AnyOrder {
    colors: Vec<VecDeque<Job>>,
    /// Colors that have events and of which none is under way.
    ready: Vec<u32>,
    running: Vec<u32>,
    core: usize,
    cores: usize,
    /// By foreign threads.
    posted: Posted,
    random: u64,
    stopped: bool,
}

impl AnyOrder {
    fn below(&mut self, end: usize) -> usize {
        self.random = self.random.wrapping_mul(0x5851_F42D_4C95_7F2D) + 1;
        (self.random >> 33) as usize % end
    }

    fn push(&mut self, color: u32, job: Job) {
        assert!(
            !self.stopped,
            "posted after the end, when there may be no scheduler"
        );
        let jobs = &mut self.colors[color as usize];
        jobs.push_back(job);
        if jobs.len() == 1 && !self.running.contains(&color) {
            self.ready.push(color);
        }
    }

    /// Runs an event of some color, on some core. False if none is ready.
    fn run_one(&mut self) -> bool {
        let posted = std::mem::take(&mut *self.posted.lock().unwrap());
        for (color, job) in posted {
            self.push(color, job);
        }
        if self.ready.is_empty() {
            return false;
        }
        let nth = self.below(self.ready.len());
        let color = self.ready.swap_remove(nth);
        let job = self.colors[color as usize]
            .pop_front()
            .expect("it is ready");
        let core = std::mem::replace(&mut self.core, nth % self.cores);
        self.running.push(color);
        job(self);
        self.running.pop();
        self.core = core;
        if !self.colors[color as usize].is_empty() {
            self.ready.push(color);
        }
        true
    }
}

impl Context for AnyOrder {
    type Outside = Remote;

    fn post<F>(&mut self, color: u32, f: F)
    where
        F: FnOnce(&mut Self) + Send + 'static,
    {
        self.push(color, Box::new(f));
        if self.running.len() < HELD_UP_MAX && self.below(4) == 0 {
            let most = 1 << self.below(14);
            for _ in 0..self.below(most) {
                if self.stopped || !self.run_one() {
                    break;
                }
            }
        }
    }

    fn core(&self) -> usize {
        self.core
    }

    fn outside(&self) -> Remote {
        Remote(self.posted.clone())
    }

    fn stop(&mut self) {
        self.stopped = true;
    }
}

#[derive(Clone)]
struct Remote(Posted);

impl Outside<AnyOrder> for Remote {
    fn post<F>(&self, color: u32, f: F)
    where
        F: FnOnce(&mut AnyOrder) + Send + 'static,
    {
        self.0.lock().unwrap().push((color, Box::new(f)));
    }
}

#[test]
fn no_workload_relies_on_more_than_is_promised() {
    // Foreign threads are pinned.
    let cores = machine::cores().min(2);
    for table in TABLES.iter().copied().flatten() {
        let Some(workload) = (table.workload)(cores) else {
            continue;
        };
        for seed in 0..4 {
            println!("{}, seed {seed}", table.name);
            let events = match workload {
                // These sleep between their events.
                Workload::Wake(_) | Workload::Busy(_) => 4,
                // A few windows, bursts or rounds.
                _ => 8_000,
            };
            let world = workload.world(events, cores);
            let mut order = AnyOrder {
                colors: (0..workload.colors_end(cores))
                    .map(|_| VecDeque::new())
                    .collect(),
                ready: Vec::new(),
                running: Vec::new(),
                core: 0,
                cores,
                posted: Posted::default(),
                random: seed,
                stopped: false,
            };
            workload.start_all(&mut order, world, cores);
            while !order.stopped {
                if !order.run_one() {
                    thread::yield_now();
                }
            }
            let left: usize = order.colors.iter().map(VecDeque::len).sum();
            assert_eq!(left, 0, "events that nobody waits for");
            world.verdict().unwrap();
        }
    }
}
