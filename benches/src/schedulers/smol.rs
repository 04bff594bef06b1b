//! smol: for each color a task that runs what comes through its unbounded channel, on
//! async-executor, the executor of smol, with a thread a core.

use super::done::{Done, become_worker, worker};
use super::{Extras, Scheduler};
use crate::{Context, Outside, Workload, World};
use async_channel::{Sender, unbounded};
use async_executor::Executor;
use futures_lite::future::block_on;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

type Job = Box<dyn FnOnce(&mut Cx) + Send>;

struct Shared {
    colors: Vec<Sender<Job>>,
    done: Done,
}

#[derive(Clone)]
struct Cx(Arc<Shared>);

impl Context for Cx {
    type Outside = Cx;

    #[inline]
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
    #[inline]
    fn post<F>(&self, color: u32, f: F)
    where
        F: FnOnce(&mut Cx) + Send + 'static,
    {
        let sent = self.0.colors[color as usize].try_send(Box::new(f) as Job);
        sent.expect("the color's task lives until the end");
    }
}

/// See the module text.
#[derive(Debug)]
pub(super) struct Smol;

impl Scheduler for Smol {
    fn name(&self) -> &'static str {
        "smol"
    }

    fn run(
        &self,
        workload: Workload,
        world: &'static World,
        cores: usize,
    ) -> Result<Extras, String> {
        let colors = 0..workload.colors_end(cores);
        let (senders, receivers): (Vec<_>, Vec<_>) = colors.map(|_| unbounded::<Job>()).unzip();
        let all = receivers.len();
        let cx = Cx(Arc::new(Shared {
            colors: senders,
            done: Done::default(),
        }));
        let ready = AtomicUsize::new(0);
        let executor = Executor::new();
        for jobs in receivers {
            let (mut cx, ready) = (cx.clone(), &ready);
            let task = executor.spawn(async move {
                ready.fetch_add(1, Relaxed);
                while let Ok(job) = jobs.recv().await {
                    job(&mut cx);
                }
            });
            task.detach();
        }
        let (end, ended) = unbounded::<()>();
        thread::scope(|scope| {
            for core in 0..cores {
                let (executor, ended) = (&executor, ended.clone());
                scope.spawn(move || {
                    become_worker(core);
                    block_on(executor.run(ended.recv()))
                });
            }
            // Creating the colors is not what is measured.
            while ready.load(Relaxed) < all {
                thread::sleep(Duration::from_millis(1));
            }
            let mut starter = cx.clone();
            let start = executor.spawn(async move {
                workload.start_all(&mut starter, world, cores);
            });
            start.detach();
            cx.0.done.wait();
            drop(end);
        });
        // Drops the tasks, and with them what keeps the channels, and the channels them.
        drop(executor);
        Ok(Extras::default())
    }
}
