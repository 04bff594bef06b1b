//! rayon: a queue under a lock for each color, taken out in batches by a task spawned on the pool.
//!
//! By `spawn_fifo`: `spawn` runs the newest task first, and an event that waits for others by
//! posting itself again then starves them for ever.

use super::done::{Done, become_worker, worker};
use super::queue::ColorQueue;
use super::{Extras, Scheduler};
use crate::{Context, Outside, Workload, World};
use rayon::{ThreadPool, ThreadPoolBuilder};
use std::cell::RefCell;
use std::sync::Arc;

type Job = Box<dyn FnOnce(&mut Cx) + Send>;

struct Shared {
    colors: Vec<ColorQueue<Job>>,
    done: Done,
}

struct Cx {
    shared: Arc<Shared>,
    pool: Arc<ThreadPool>,
}

/// What a worker has at hand, so that tasks need not count references.
struct Worker {
    shared: Arc<Shared>,
    cx: Cx,
}

thread_local! {
    static WORKER: RefCell<Option<Worker>> = const { RefCell::new(None) };
}

fn run_color(color: u32) {
    WORKER.with_borrow_mut(|worker| {
        // None once the run has ended: a color whose turn was over with its last event.
        let Some(worker) = worker else { return };
        let color_queue = &worker.shared.colors[color as usize];
        // SAFETY: spawned once for each time that the color was to be handed on.
        if unsafe { color_queue.run(|job| job(&mut worker.cx)) } {
            rayon::spawn_fifo(move || run_color(color));
        }
    });
}

impl Context for Cx {
    type Outside = Remote;

    #[inline]
    fn post<F>(&mut self, color: u32, f: F)
    where
        F: FnOnce(&mut Self) + Send + 'static,
    {
        if self.shared.colors[color as usize].push(Box::new(f)) {
            rayon::spawn_fifo(move || run_color(color));
        }
    }

    fn core(&self) -> usize {
        worker()
    }

    fn outside(&self) -> Remote {
        Remote {
            shared: self.shared.clone(),
            pool: self.pool.clone(),
        }
    }

    fn stop(&mut self) {
        self.shared.done.tell();
    }
}

#[derive(Clone)]
struct Remote {
    shared: Arc<Shared>,
    pool: Arc<ThreadPool>,
}

impl Outside<Cx> for Remote {
    fn post<F>(&self, color: u32, f: F)
    where
        F: FnOnce(&mut Cx) + Send + 'static,
    {
        if self.shared.colors[color as usize].push(Box::new(f)) {
            self.pool.spawn_fifo(move || run_color(color));
        }
    }
}

/// See the module text.
#[derive(Debug)]
pub(super) struct Rayon;

impl Scheduler for Rayon {
    fn name(&self) -> &'static str {
        "rayon"
    }

    fn run(
        &self,
        workload: Workload,
        world: &'static World,
        cores: usize,
    ) -> Result<Extras, String> {
        let pool = ThreadPoolBuilder::new()
            .num_threads(cores)
            .start_handler(become_worker)
            .build()
            .map_err(|error| error.to_string())?;
        let pool = Arc::new(pool);
        let shared = Arc::new(Shared {
            colors: (0..workload.colors_end(cores))
                .map(|_| ColorQueue::default())
                .collect(),
            done: Done::default(),
        });
        pool.broadcast(|_| {
            WORKER.set(Some(Worker {
                shared: shared.clone(),
                cx: Cx {
                    shared: shared.clone(),
                    pool: pool.clone(),
                },
            }));
        });
        pool.spawn(move || {
            WORKER.with_borrow_mut(|worker| {
                let worker = worker.as_mut().expect("set above");
                workload.start_all(&mut worker.cx, world, cores);
            });
        });
        shared.done.wait();
        // The workers keep the pool, and it them.
        pool.broadcast(|_| drop(WORKER.take()));
        Ok(Extras::default())
    }
}
