//! The two schedulers before Mely, and Mely as published, reconstructed from their papers for
//! comparison: no public implementation of any is known.
//!
//! - [`mp`]: libasync-mp, of the 2002 workshop paper and thesis: one queue for all threads.
//! - [`mely_2010`]: Mely as published (its paper's §IV): a queue a color, chained to a queue a core.
//! - [`smp`]: libasync-smp, of the 2003 paper: a queue a thread, with and without workstealing,
//!   which Mely's paper (§II) documents.
//!
//! As in Mely's paper (§IV-C) both have what Mely has besides its scheduling: threads pinned to
//! cores, structures padded to cache lines, per-core event memory ([`event`]).
//!
//! There is no I/O in the tables, so there is no select callback: it would lie at the right end of
//! its queue as the blocking one, which runs only when it is alone there. What foreign threads post
//! takes the place of I/O callbacks.

mod event;
pub mod mely_2010;
pub mod mp;
pub mod open;
mod queue;
pub mod smp;
mod thief;

use event::{Depot, Event, Pool};
use mely_bench::schedulers::{Extras, Scheduler, Steals};
use mely_bench::sync::atomic::{AtomicBool, Ordering::Acquire, Ordering::Release};
use mely_bench::sync::{self, Mutex, charge};
use mely_bench::{Context, Note, Outside, Workload, World};
use queue::Kind;
use std::sync::Arc;
use std::time::Duration;

/// What makes a scheduler of the line: where callbacks wait, and which one a core runs next.
trait Queues: Sized + Send + Sync + 'static {
    /// Makes a callback runnable.
    fn insert(&self, event: Box<Event<Self>>, kind: Kind);

    /// What a core runs next, once there is something; what it ran before has ended. None once
    /// `stopping` is set.
    fn next(&self, core: usize, stopping: &AtomicBool) -> Option<Box<Event<Self>>>;

    /// Makes all cores look at `stopping`.
    fn wake_all(&self) {}

    /// Moves an idle color.
    fn place(&self, color: u32, core: usize) {
        let _ = (color, core);
    }

    /// Names the lines of what it has, for runs on a machine that a file describes.
    fn name(&self) {}

    /// How long cores waited for locks, altogether.
    fn waited(&self) -> Duration;

    fn steals(&self) -> Option<Steals>;
}

struct Runtime<Q: Queues> {
    queues: Q,
    stopping: AtomicBool,
    /// What foreign threads allocate from.
    outside: Mutex<Pool<Q>>,
}

impl<Q: Queues> Runtime<Q> {
    fn stop(&self) {
        // Pairs with `Queues::next`.
        self.stopping.store(true, Release);
        self.queues.wake_all();
    }
}

/// A core's thread: the context of handlers.
struct Worker<Q: Queues> {
    core: usize,
    pool: Pool<Q>,
    runtime: Arc<Runtime<Q>>,
}

impl<Q: Queues> Worker<Q> {
    fn run(&mut self) {
        let runtime = self.runtime.clone();
        while let Some(event) = runtime.queues.next(self.core, &runtime.stopping) {
            event.run(self);
        }
    }

    #[inline]
    fn insert<F>(&mut self, color: u32, time_ns: u32, f: F)
    where
        F: FnOnce(&mut Self) + Send + 'static,
    {
        let event = self.pool.event(color, time_ns, f);
        self.runtime.queues.insert(event, Kind::Cpucb);
    }
}

impl<Q: Queues> Drop for Worker<Q> {
    fn drop(&mut self) {
        // Also when a handler has panicked: the others must not wait for what will not come.
        self.runtime.stop();
    }
}

impl<Q: Queues> Context for Worker<Q> {
    type Outside = Foreign<Q>;

    #[inline]
    fn post<F>(&mut self, color: u32, f: F)
    where
        F: FnOnce(&mut Self) + Send + 'static,
    {
        self.insert(color, 0, f);
    }

    #[inline]
    fn post_noted<F>(&mut self, color: u32, note: &'static Note, f: F)
    where
        F: FnOnce(&mut Self) + Send + 'static,
    {
        let time_ns = note.time_ns.unwrap_or(0) as u32;
        let mut event = self.pool.event(color, time_ns, f);
        event.weight_ns = time_ns / note.penalty.max(1);
        self.runtime.queues.insert(event, Kind::Cpucb);
    }

    fn place(&mut self, color: u32, core: usize) {
        self.runtime.queues.place(color, core);
    }

    fn core(&self) -> usize {
        self.core
    }

    fn outside(&self) -> Foreign<Q> {
        Foreign(self.runtime.clone())
    }

    fn stop(&mut self) {
        self.runtime.stop();
    }
}

struct Foreign<Q: Queues>(Arc<Runtime<Q>>);

impl<Q: Queues> Clone for Foreign<Q> {
    fn clone(&self) -> Foreign<Q> {
        Foreign(self.0.clone())
    }
}

impl<Q: Queues> Outside<Worker<Q>> for Foreign<Q> {
    fn post<F>(&self, color: u32, f: F)
    where
        F: FnOnce(&mut Worker<Q>) + Send + 'static,
    {
        let mut pool = self.0.outside.lock().expect("no panic while held");
        let event = pool.event(color, 0, f);
        drop(pool);
        self.0.queues.insert(event, Kind::Io);
    }
}

/// Runs a workload on threads pinned to cores; `recycles`: with free lists.
fn run<Q: Queues>(
    queues: Q,
    recycles: bool,
    workload: Workload,
    world: &'static World,
    cores: usize,
) -> Result<Extras, String> {
    let depot = Depot::new(recycles);
    let runtime = Arc::new(Runtime {
        queues,
        stopping: AtomicBool::new(false),
        outside: Mutex::new(Pool::new(depot.clone())),
    });
    let its = runtime.clone();
    let body = move |core| {
        let mut worker = Worker {
            core,
            pool: Pool::new(depot.clone()),
            runtime: its.clone(),
        };
        if core == 0 {
            workload.start_all(&mut worker, world, cores);
        }
        worker.run();
    };
    let named = runtime.clone();
    let name = move || {
        charge::name(&*named, "runtime", 0);
        named.queues.name();
    };
    sync::on_cores(cores, name, body)?;
    let took = world.verdict()?.whole;
    let queues = &runtime.queues;
    let lock_share = queues.waited().as_secs_f64() / (took.as_secs_f64() * cores as f64);
    Ok(Extras {
        steals: queues.steals(),
        values: vec![("lock_waiting_share", lock_share)],
    })
}

fn stopping(flag: &AtomicBool) -> bool {
    // Pairs with `Runtime::stop`.
    flag.load(Acquire)
}

fn mp(recycles: bool) -> Box<dyn Scheduler> {
    Box::new(mp::LibasyncMp { recycles })
}

fn smp(stealing: bool, recycles: bool) -> Box<dyn Scheduler> {
    Box::new(smp::LibasyncSmp { stealing, recycles })
}

/// Those that run beside mely in every table that they can run.
pub(crate) fn beside() -> Vec<Box<dyn Scheduler>> {
    vec![
        mp(false),
        mp(true),
        smp(false, false),
        smp(false, true),
        smp(true, true),
    ]
}

/// Mely as published: only where one is asked for by name.
pub(crate) fn by_name() -> Vec<Box<dyn Scheduler>> {
    let modes = mely_2010::MODES.iter();
    modes.map(|mode| Box::new(*mode) as _).collect()
}
