//! tokio with a queue under a lock for each color: a task is spawned for a color that was empty, and
//! takes its events out in turns, as with rayon.

use super::done::{Done, Numbers, worker};
use super::queue::ColorQueue;
use super::{Extras, Scheduler};
use crate::{Context, Outside, Workload, World};
use std::sync::Arc;
use tokio::runtime::{Builder, Handle};

type Job = Box<dyn FnOnce(&mut Cx) + Send>;

struct Shared {
    colors: Vec<ColorQueue<Job>>,
    handle: Handle,
    done: Done,
}

#[derive(Clone)]
struct Cx(Arc<Shared>);

impl Cx {
    fn spawn(&self, color: u32) {
        let mut cx = self.clone();
        self.0.handle.spawn(async move {
            let shared = cx.0.clone();
            // SAFETY: spawned once for each time that the color was to be handed on.
            while unsafe { shared.colors[color as usize].run(|job| job(&mut cx)) } {
                tokio::task::yield_now().await;
            }
        });
    }
}

impl Context for Cx {
    type Outside = Cx;

    fn post<F>(&mut self, color: u32, f: F)
    where
        F: FnOnce(&mut Self) + Send + 'static,
    {
        Outside::post(&*self, color, f);
    }

    fn core(&self) -> usize {
        worker()
    }

    fn outside(&self) -> Cx {
        self.clone()
    }

    fn stop(&mut self) {
        self.0.done.tell();
    }
}

impl Outside<Cx> for Cx {
    fn post<F>(&self, color: u32, f: F)
    where
        F: FnOnce(&mut Cx) + Send + 'static,
    {
        if self.0.colors[color as usize].push(Box::new(f)) {
            self.spawn(color);
        }
    }
}

/// tokio with a locked queue for each color.
#[derive(Debug)]
pub(super) struct TokioQueue;

impl Scheduler for TokioQueue {
    fn name(&self) -> &'static str {
        "tokio-queue"
    }

    fn run(
        &self,
        workload: Workload,
        world: &'static World,
        cores: usize,
    ) -> Result<Extras, String> {
        let numbers = Numbers::default();
        let runtime = Builder::new_multi_thread()
            .worker_threads(cores)
            .on_thread_start(move || numbers.become_next_worker())
            .build()
            .map_err(|error| error.to_string())?;
        let colors = 0..workload.colors_end(cores);
        let cx = Cx(Arc::new(Shared {
            colors: colors.map(|_| ColorQueue::default()).collect(),
            handle: runtime.handle().clone(),
            done: Done::default(),
        }));
        let mut starter = cx.clone();
        runtime.spawn(async move {
            workload.start_all(&mut starter, world, cores);
        });
        cx.0.done.wait();
        Ok(Extras::default())
    }
}
