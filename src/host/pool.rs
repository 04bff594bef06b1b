//! Threads for work that blocks.
//!
//! A *job* is work with what becomes of its result. Jobs wait in the order in which they were
//! given, and a thread of the pool takes the oldest. A thread is started when a job comes and no
//! other thread is free for it, up to a limit; one that was idle for a while ends. Nothing is
//! started before the first job.
//!
//! Everything is behind one lock. No code of the user's runs under it, and no thread is joined
//! under it, so a thread that gives a job waits for no other. The end of a run has nothing to do
//! with it: each job holds a strong [`Poster`](super::poster::Poster), so while one waits or runs
//! the end is not decided. [`BlockingPool::close`] comes after the cores have left. It finds no
//! job, unless the run was cut short.
//!
//! A thread that leaves the pool has not ended: the destructors of its thread locals run after
//! that. They are the user's, and may take long or give work to the pool. So each thread that
//! leaves joins those that have returned since, and `close` joins the last, both without the lock.
//!
//! In a simulation the threads are *virtual*: each is a chain of events of a color of its own. One
//! event takes a job, the next one runs it. So the seed decides which job is over first, the limits
//! hold as on threads, and what the work posts comes from outside, as it does from a thread.

use super::inner::Inner;
use super::panics::{InTurn, catching, discard_payload};
use super::stats::BlockingStats;
use super::unfinished::Obstacle;
#[cfg(feature = "sim")]
use super::{poster::Poster, quiesce::Until, unique::UniqueColor, worker::aside};
#[cfg(feature = "sim")]
use crate::Cx;
use crate::sync::thread::{Builder, JoinHandle};
use crate::sync::{Arc, Condvar, Mutex, MutexGuard};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::time::{Duration, Instant};

/// Work, and what becomes of it.
pub(crate) trait Job: Send {
    /// The name of the handler that gave the work.
    fn handler(&self) -> &'static str;
    /// On a thread of the pool.
    fn run(self: Box<Self>);
    /// Instead, on any thread.
    fn cancel(self: Box<Self>);
}

/// What the builder decided.
#[derive(Clone, Copy, Debug)]
pub(crate) struct BlockingLimits {
    pub(crate) threads_max: usize,
    /// Jobs that wait while all threads are at work.
    pub(crate) queue_max: usize,
    /// How long a thread has nothing to do before it ends.
    pub(crate) idle: Duration,
    /// None: the standard library's default.
    pub(crate) stack_bytes: Option<usize>,
}

/// Why a job was not taken.
#[derive(Debug)]
pub(crate) enum JobRefusal {
    Full,
    Ended,
    NoThread {
        stack_bytes: Option<usize>,
        errno: Option<i32>,
    },
}

/// Blocking work waits for a thread for longer than the limit of
/// [`Builder::on_slow_blocking`](crate::Builder::on_slow_blocking).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SlowBlocking {
    /// The handler of the event that gave the work which waits for longest; without one, the type
    /// of the closure.
    pub handler: &'static str,
    /// For how long that work has waited.
    pub waited_for: Duration,
    /// How many pieces of work wait.
    pub queued: usize,
    /// How many threads there are.
    pub threads: usize,
}

/// Called when jobs wait for long, on the thread that called `run`.
pub(crate) type SlowBlockingHook = Box<dyn Fn(&SlowBlocking) + Send + Sync>;

/// See the module text.
pub(crate) struct BlockingPool {
    limits: BlockingLimits,
    /// When waiting is long, and who is told.
    slow: Option<(Duration, SlowBlockingHook)>,
    state: Mutex<PoolState>,
    /// A job has come, or the pool was closed: for threads.
    called: Condvar,
    /// A job is over, and the pool is closed: for whoever closes it.
    over: Condvar,
}

struct PoolState {
    phase: Lifetime,
    /// By their numbers: the oldest is the first.
    waiting: BTreeMap<u64, QueuedJob>,
    next_job: u64,
    /// The threads that are inside of a job, with the name of its handler, and since when.
    running: BTreeMap<u64, (&'static str, Instant)>,
    /// Threads that have not ended, free or not.
    threads: usize,
    next_thread: u64,
    /// Those of threads that have not left.
    handles: BTreeMap<u64, JoinHandle<()>>,
    /// Those of threads that have left, and that no other has joined.
    left: Vec<JoinHandle<()>>,
    /// Where the threads may run: not on the processor alone of the core that started one.
    processors: Option<CpuSet>,
    /// The hook was told, and jobs have waited ever since.
    told: bool,
    /// What something panicked with that was dropped on a thread of the pool.
    died: Option<Box<dyn Any + Send>>,
    counts: BlockingStats,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Lifetime {
    /// The run has not begun: jobs wait.
    Early,
    Open,
    Closed,
}

struct QueuedJob {
    job: Box<dyn Job>,
    since: Instant,
}

/// What was left when the pool was closed.
#[derive(Default)]
pub(crate) struct Left {
    /// The handlers of jobs that are not over. Their threads are left behind.
    pub(crate) stuck: Vec<&'static str>,
    /// Something panicked that was dropped.
    pub(crate) died: Option<Box<dyn Any + Send>>,
}

impl BlockingPool {
    pub(crate) fn new(
        limits: BlockingLimits,
        slow: Option<(Duration, SlowBlockingHook)>,
    ) -> BlockingPool {
        BlockingPool {
            limits,
            slow,
            state: Mutex::new(PoolState {
                phase: Lifetime::Early,
                waiting: BTreeMap::new(),
                next_job: 0,
                running: BTreeMap::new(),
                threads: 0,
                next_thread: 0,
                handles: BTreeMap::new(),
                left: Vec::new(),
                processors: None,
                told: false,
                died: None,
                counts: BlockingStats::default(),
            }),
            called: Condvar::new(),
            over: Condvar::new(),
        }
    }

    fn state(&self) -> MutexGuard<'_, PoolState> {
        self.state.lock().unwrap()
    }

    /// The run begins, by the calling thread. Fails if jobs wait and no thread can be had.
    pub(crate) fn open(&self, inner: &Arc<Inner>) -> io::Result<()> {
        let mut state = self.state();
        state.phase = Lifetime::Open;
        state.processors = sched_getaffinity(None).ok();
        for _ in 0..state.waiting.len().min(self.limits.threads_max) {
            let started = start(inner, &mut state);
            if state.threads == 0 {
                return started;
            }
        }
        Ok(())
    }

    /// Takes a job, or gives it back. Returns its number.
    pub(crate) fn submit<J: Job + 'static>(
        &self,
        inner: &Arc<Inner>,
        job: Box<J>,
    ) -> Result<u64, (JobRefusal, Box<J>)> {
        let mut state = self.state();
        if state.phase == Lifetime::Closed {
            return Err((JobRefusal::Ended, job));
        }
        let BlockingLimits {
            threads_max,
            queue_max,
            ..
        } = self.limits;
        let taken = state.waiting.len() + state.running.len();
        if taken >= threads_max.saturating_add(queue_max) {
            state.counts.refused += 1;
            return Err((JobRefusal::Full, job));
        }
        let free = state.threads - state.running.len();
        let wanted = state.waiting.len() + 1 > free && state.threads < threads_max;
        if state.phase == Lifetime::Open
            && wanted
            && let Err(error) = start(inner, &mut state)
            && state.threads == 0
        {
            state.counts.refused += 1;
            let refusal = JobRefusal::NoThread {
                stack_bytes: self.limits.stack_bytes,
                errno: error.raw_os_error(),
            };
            return Err((refusal, job));
        }
        let number = state.next_job;
        state.next_job += 1;
        let since = Instant::now();
        state.waiting.insert(number, QueuedJob { job, since });
        let waiting = state.waiting.len();
        state.counts.queued_max = state.counts.queued_max.max(waiting as u64);
        drop(state);
        self.called.notify_one();
        if waiting == 1 && self.slow.is_some() {
            // Under the lock, so that the owner cannot look before and wait after.
            let _outcome = inner.outcome.lock().unwrap();
            inner.changed.notify_all();
        }
        Ok(number)
    }

    /// Cancels a job that has not begun.
    pub(crate) fn cancel(&self, number: u64) {
        let mut state = self.state();
        let waiting = state.waiting.remove(&number);
        state.counts.canceled += u64::from(waiting.is_some());
        state.look_at_queue();
        drop(state);
        if let Some(QueuedJob { job, .. }) = waiting {
            job.cancel();
        }
    }

    /// The job that this thread begins, if one waits.
    fn begin(state: &mut PoolState, thread: u64) -> Option<Box<dyn Job>> {
        let (_, QueuedJob { job, .. }) = state.waiting.pop_first()?;
        state
            .running
            .insert(thread, (job.handler(), Instant::now()));
        state.counts.started += 1;
        state.look_at_queue();
        Some(job)
    }

    /// Runs the job of this thread.
    fn run(&self, thread: u64, job: Box<dyn Job>) {
        let mut died = catching(|| job.run()).err();
        let mut state = self.state();
        state.running.remove(&thread);
        if state.died.is_none() {
            state.died = died.take();
        }
        if state.phase == Lifetime::Closed {
            self.over.notify_all();
        }
        drop(state);
        // One panic is reported. The payload of another one is the user's.
        if let Some(died) = died {
            discard_payload(died);
        }
    }

    /// A thread of the pool.
    fn serve(&self, thread: u64) {
        let mut state = self.state();
        loop {
            if let Some(job) = BlockingPool::begin(&mut state, thread) {
                drop(state);
                self.run(thread, job);
                state = self.state();
                continue;
            }
            if state.phase == Lifetime::Closed {
                break;
            }
            let waited = self.called.wait_timeout(state, self.limits.idle).unwrap();
            state = waited.0;
            if waited.1.timed_out() && state.waiting.is_empty() {
                break;
            }
        }
        state.threads -= 1;
        // Not those that are about to leave or wait here themselves: else all that leave would wait
        // for one whose destructors take long.
        let over = state.left.extract_if(.., |left| left.is_finished());
        let over: Vec<_> = over.collect();
        let own = state.handles.remove(&thread);
        state.left.extend(own);
        drop(state);
        over.into_iter().for_each(join);
    }

    /// Waits `grace` for jobs that run, and joins all threads whose jobs are over: for the
    /// destructors of their thread locals it waits as long as they take. Jobs that wait are
    /// dropped. No core is there any more.
    pub(crate) fn close(&self, grace: Duration) -> Left {
        let mut drops = InTurn::default();
        self.discard(&mut drops);
        let begun = Instant::now();
        let mut state = self.state();
        while !state.running.is_empty() {
            let left = grace.saturating_sub(begun.elapsed());
            if left.is_zero() {
                break;
            }
            state = self.over.wait_timeout(state, left).unwrap().0;
        }
        let mut handles = std::mem::take(&mut state.handles);
        handles.retain(|thread, _| !state.running.contains_key(thread));
        let gone = std::mem::take(&mut state.left);
        let stuck = state.running.values().map(|&(handler, _)| handler);
        let stuck = stuck.collect();
        let died = state.died.take();
        drop(state);
        handles.into_values().chain(gone).for_each(join);
        let died = died.or(drops.into_payload());
        Left { stuck, died }
    }

    /// Takes no more jobs, and drops those that wait.
    pub(crate) fn discard(&self, drops: &mut InTurn) {
        let mut state = self.state();
        state.phase = Lifetime::Closed;
        let waiting = std::mem::take(&mut state.waiting);
        drop(state);
        self.called.notify_all();
        for job in waiting.into_values() {
            drops.run(|| drop(job));
        }
    }

    pub(crate) fn stats(&self) -> BlockingStats {
        let state = self.state();
        BlockingStats {
            queued: state.waiting.len() as u64,
            running: state.running.len() as u64,
            threads: state.threads as u64,
            ..state.counts.clone()
        }
    }

    /// How many jobs run or wait; names at most this many of those that run, and as many of those
    /// that wait, the oldest first.
    pub(crate) fn name(&self, most: usize, named: &mut Vec<Obstacle>) -> u64 {
        let state = self.state();
        let mut running: Vec<_> = state.running.values().copied().collect();
        running.sort_by_key(|&(_, since)| since);
        let waiting = state.waiting.values();
        let waiting = waiting.map(|queued| (queued.job.handler(), queued.since));
        let begun = running
            .iter()
            .map(|&(handler, since)| (handler, since, true));
        let waiting = waiting.map(|(handler, since)| (handler, since, false));
        for (handler, since, begun) in begun.take(most).chain(waiting.take(most)) {
            named.push(Obstacle::Blocking {
                handler,
                lasts: since.elapsed(),
                begun,
            });
        }
        (state.running.len() + state.waiting.len()) as u64
    }

    /// When the watchdog is to look at what waits, from now on.
    pub(crate) fn next_look(&self) -> Option<Duration> {
        let (limit, _) = self.slow.as_ref()?;
        let state = self.state();
        let (_, oldest) = state.waiting.first_key_value()?;
        let left = limit.saturating_sub(oldest.since.elapsed());
        (!state.told).then(|| left.max(Duration::from_millis(1)))
    }

    /// Tells the hook if jobs have waited for long.
    pub(crate) fn look(&self) {
        let Some((limit, hook)) = &self.slow else {
            return;
        };
        let mut state = self.state();
        let Some((_, oldest)) = state.waiting.first_key_value() else {
            return;
        };
        let waited_for = oldest.since.elapsed();
        if waited_for < *limit || state.told {
            return;
        }
        let slow = SlowBlocking {
            handler: oldest.job.handler(),
            waited_for,
            queued: state.waiting.len(),
            threads: state.threads,
        };
        state.told = true;
        drop(state);
        hook(&slow);
    }
}

impl PoolState {
    /// Whoever waits after the queue was empty is waited for anew.
    fn look_at_queue(&mut self) {
        self.told &= !self.waiting.is_empty();
    }
}

/// Starts a thread, with a stack of this size if there is one.
pub(crate) fn spawn(
    name: String,
    stack_bytes: Option<usize>,
    run: impl FnOnce() + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    let thread = Builder::new().name(name);
    match stack_bytes {
        None => thread.spawn(run),
        Some(bytes) => thread.stack_size(bytes).spawn(run),
    }
}

/// Waits for a thread that has left the pool, or is about to. Not under the lock: the destructors
/// of its thread locals are the user's.
fn join(thread: JoinHandle<()>) {
    // It catches what is the user's.
    thread.join().expect("a thread of the pool does not panic");
}

/// Starts a thread.
fn start(inner: &Arc<Inner>, state: &mut PoolState) -> io::Result<()> {
    let thread = state.next_thread;
    #[cfg(feature = "sim")]
    if inner.config.is_simulated() {
        start_virtual(inner, thread);
        state.started();
        return Ok(());
    }
    let (its, processors) = (Arc::clone(inner), state.processors);
    let stack = inner.pool.limits.stack_bytes;
    let handle = spawn(format!("mely-blocking-{thread}"), stack, move || {
        // If a pinned core has started it, it inherits the core's processor. If that cannot be
        // changed it works all the same.
        let _ = processors.map(|set| sched_setaffinity(None, &set));
        its.pool.serve(thread);
    })?;
    state.handles.insert(thread, handle);
    state.started();
    Ok(())
}

impl PoolState {
    fn started(&mut self) {
        self.next_thread += 1;
        self.threads += 1;
        self.counts.threads_max = self.counts.threads_max.max(self.threads as u64);
    }
}

/// Starts a virtual thread, on a core that follows from its number.
#[cfg(feature = "sim")]
fn start_virtual(inner: &Arc<Inner>, thread: u64) {
    let core = thread % inner.shared.cores.len() as u64;
    let own = UniqueColor::issue(inner, core as usize);
    let (poster, color) = (Poster::of(inner), own.color());
    let event = move |cx: &mut Cx| serve_virtually(cx, thread, own);
    // Refused at the end, when jobs are dropped.
    drop(poster.post_own_until(Until::End, None, color, event));
}

/// A virtual thread takes a job and runs it in its next event, so that others may be first. It ends
/// when none waits.
#[cfg(feature = "sim")]
fn serve_virtually(cx: &mut Cx, thread: u64, own: UniqueColor) {
    let inner = Arc::clone(&cx.worker_ref().inner);
    let mut state = inner.pool.state();
    let Some(job) = BlockingPool::begin(&mut state, thread) else {
        state.threads -= 1;
        return;
    };
    drop(state);
    cx.post_own(own.color(), move |cx: &mut Cx| {
        // What it posts comes from outside.
        aside(|| inner.pool.run(thread, job));
        serve_virtually(cx, thread, own);
    });
}

impl fmt::Debug for BlockingPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BlockingPool")
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}
