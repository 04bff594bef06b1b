//! The obvious scheduler over crossbeam: for each worker a Chase-Lev deque of colors, for each
//! color a queue under a mutex, taken out in batches; idle workers steal, spin, and sleep.

use super::done::{Done, become_worker};
use super::queue::ColorQueue;
use super::{Extras, Scheduler};
use crate::{Context, Outside, Workload, World};
use crossbeam_deque::{Injector, Steal, Stealer, Worker};
use std::collections::VecDeque;
use std::hint::spin_loop;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed, Ordering::SeqCst, fence};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// As long as mely's by default.
const SPIN_TIME: Duration = Duration::from_micros(50);

type Job = Box<dyn FnOnce(&mut Cx) + Send>;

struct Shared {
    colors: Vec<ColorQueue<Job>>,
    /// What foreign threads made ready.
    injector: Injector<u32>,
    stealers: Vec<Stealer<u32>>,
    sleepers: AtomicUsize,
    bed: Mutex<Bed>,
    bell: Condvar,
    done: Done,
}

/// What a worker looks at before it sleeps.
#[derive(Default)]
struct Bed {
    ended: bool,
}

impl Shared {
    /// Something was made ready. A sleeper announces itself, fences and looks again; this fences
    /// after what was made ready and then looks for sleepers: one of the two sees the other.
    fn wake(&self) {
        fence(SeqCst);
        if self.sleepers.load(Relaxed) > 0 {
            // Under the lock: a sleeper that has looked again waits already.
            drop(self.bed.lock().expect("no panic while held"));
            self.bell.notify_one();
        }
    }

    fn anything(&self) -> bool {
        !self.injector.is_empty() || self.stealers.iter().any(|stealer| !stealer.is_empty())
    }

    /// Sleeps until there may be something. False once the run has ended.
    fn sleep(&self) -> bool {
        let bed = self.bed.lock().expect("no panic while held");
        self.sleepers.fetch_add(1, Relaxed);
        fence(SeqCst);
        let bed = if bed.ended || self.anything() {
            bed
        } else {
            self.bell.wait(bed).expect("no panic while held")
        };
        self.sleepers.fetch_sub(1, Relaxed);
        !bed.ended
    }

    fn end(&self) {
        self.bed.lock().expect("no panic while held").ended = true;
        self.bell.notify_all();
    }
}

struct Cx {
    shared: Arc<Shared>,
    core: usize,
    deque: Worker<u32>,
}

impl Cx {
    #[inline]
    fn schedule(&self, color: u32) {
        self.deque.push(color);
        self.shared.wake();
    }

    fn find(&self) -> Option<u32> {
        self.deque.pop().or_else(|| {
            loop {
                let shared = &self.shared;
                let others = shared.stealers.iter().enumerate();
                let others = others.filter(|&(core, _)| core != self.core);
                let taken: Steal<u32> =
                    std::iter::once(shared.injector.steal_batch_and_pop(&self.deque))
                        .chain(others.map(|(_, other)| other.steal_batch_and_pop(&self.deque)))
                        .collect();
                if !taken.is_retry() {
                    return taken.success();
                }
            }
        })
    }

    fn work(mut self) {
        let shared = self.shared.clone();
        let mut batch = VecDeque::new();
        let mut idle_since = None;
        loop {
            if let Some(color) = self.find() {
                idle_since = None;
                if shared.colors[color as usize].run(&mut batch, |job| job(&mut self)) {
                    self.schedule(color);
                }
            } else if idle_since.get_or_insert_with(Instant::now).elapsed() < SPIN_TIME {
                spin_loop();
            } else if !shared.sleep() {
                return;
            }
        }
    }
}

impl Context for Cx {
    type Outside = Remote;

    #[inline]
    fn post<F>(&mut self, color: u32, f: F)
    where
        F: FnOnce(&mut Self) + Send + 'static,
    {
        if self.shared.colors[color as usize].push(Box::new(f)) {
            self.schedule(color);
        }
    }

    fn core(&self) -> usize {
        self.core
    }

    fn outside(&self) -> Remote {
        Remote(self.shared.clone())
    }

    fn stop(&mut self) {
        self.shared.done.tell();
    }
}

#[derive(Clone)]
struct Remote(Arc<Shared>);

impl Outside<Cx> for Remote {
    fn post<F>(&self, color: u32, f: F)
    where
        F: FnOnce(&mut Cx) + Send + 'static,
    {
        if self.0.colors[color as usize].push(Box::new(f)) {
            self.0.injector.push(color);
            self.0.wake();
        }
    }
}

/// See the module text.
#[derive(Debug)]
pub(super) struct Crossbeam;

impl Scheduler for Crossbeam {
    fn name(&self) -> &'static str {
        "crossbeam"
    }

    fn run(
        &self,
        workload: Workload,
        world: &'static World,
        cores: usize,
    ) -> Result<Extras, String> {
        let deques: Vec<_> = (0..cores).map(|_| Worker::new_fifo()).collect();
        let shared = Arc::new(Shared {
            colors: (0..workload.colors_end(cores))
                .map(|_| ColorQueue::default())
                .collect(),
            injector: Injector::new(),
            stealers: deques.iter().map(Worker::stealer).collect(),
            sleepers: AtomicUsize::new(0),
            bed: Mutex::default(),
            bell: Condvar::new(),
            done: Done::default(),
        });
        thread::scope(|scope| {
            for (core, deque) in deques.into_iter().enumerate() {
                let shared = shared.clone();
                scope.spawn(move || {
                    become_worker(core);
                    let mut cx = Cx {
                        shared,
                        core,
                        deque,
                    };
                    if core == 0 {
                        workload.start_all(&mut cx, world, cores);
                    }
                    cx.work();
                });
            }
            shared.done.wait();
            shared.end();
        });
        Ok(Extras::default())
    }
}
