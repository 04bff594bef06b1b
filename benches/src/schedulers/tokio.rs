//! tokio as its users serialize by key: for each color a task that runs what comes through its
//! unbounded channel.

use super::done::{Done, Numbers, worker};
use super::{Extras, Scheduler};
use crate::{Context, Outside, Workload, World};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::thread;
use std::time::Duration;
use tokio::runtime::Builder;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

type Job = Box<dyn FnOnce(&mut Cx) + Send>;

struct Shared {
    colors: Vec<UnboundedSender<Job>>,
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
        let sent = self.0.colors[color as usize].send(Box::new(f));
        sent.expect("the color's task lives until the end");
    }
}

/// See the module text.
#[derive(Debug)]
pub(super) struct Tokio;

impl Scheduler for Tokio {
    fn name(&self) -> &'static str {
        "tokio"
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
        let (senders, receivers): (Vec<_>, Vec<_>) =
            colors.map(|_| unbounded_channel::<Job>()).unzip();
        let all = receivers.len();
        let cx = Cx(Arc::new(Shared {
            colors: senders,
            done: Done::default(),
        }));
        let ready = Arc::new(AtomicUsize::new(0));
        for mut jobs in receivers {
            let (mut cx, ready) = (cx.clone(), ready.clone());
            runtime.spawn(async move {
                ready.fetch_add(1, Relaxed);
                while let Some(job) = jobs.recv().await {
                    job(&mut cx);
                }
            });
        }
        // Creating the colors is not what is measured.
        while ready.load(Relaxed) < all {
            thread::sleep(Duration::from_millis(1));
        }
        let mut starter = cx.clone();
        runtime.spawn(async move {
            workload.start_all(&mut starter, world, cores);
        });
        cx.0.done.wait();
        // Drops the tasks, and with them what keeps the channels, and the channels them.
        drop(runtime);
        Ok(Extras::default())
    }
}
