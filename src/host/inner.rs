//! What a runtime's threads, posters and owner share.

use super::leftovers::Leftovers;
use super::panics::{InTurn, OnPanic, PanicReport, catching, message_of};
use super::quiesce::{Decided, Phase, Quiesce};
use super::source::{Above, Attached};
use super::sources::Sources;
use super::stage::StageLimits;
use super::unfinished::{Answers, DrainHook};
use super::unique::Issued;
use crate::clock::Clock;
use crate::shared::Shared;
use crate::shared::load::stats::CoreCounters;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Arc, Condvar, Mutex, fault, relaxed};
use crossbeam_utils::CachePadded;
use slab::Slab;
use std::fmt;
use std::sync::OnceLock;
use std::task::Waker;
use std::time::{Duration, Instant, SystemTime};

/// Called with each panic of a handler, on the core it happened on.
pub(crate) type PanicHook = Box<dyn Fn(&PanicReport) + Send + Sync>;
/// Called with each handler that is over the limit, on the thread that called `run`.
pub(crate) type SlowHook = Box<dyn Fn(&super::watchdog::SlowHandler) + Send + Sync>;

/// The time of day when a simulation begins: the year 2000, UTC.
const VIRTUAL_WALL_NS: u64 = 946_684_800_000_000_000;

/// What the builder decided, as far as it matters at run time.
pub(crate) struct Config {
    pub(crate) on_panic: OnPanic,
    pub(crate) panic_hook: Option<PanicHook>,
    pub(crate) slow: Option<(Duration, SlowHook)>,
    pub(crate) watch_period: Duration,
    pub(crate) drain_deadline: Duration,
    pub(crate) stage_limits: StageLimits,
    pub(crate) drain_hook: Option<DrainHook>,
    pub(crate) exit_when_idle: bool,
    pub(crate) spin_ns: u64,
    /// More cores than processors: spinning takes the processor from somebody who could work.
    pub(crate) oversubscribed: bool,
    /// The processor of each core, if threads are to be pinned.
    pub(crate) pins: Option<Vec<u32>>,
    /// And a thread that cannot be is an error.
    #[cfg(not(loom))]
    pub(crate) must_pin: bool,
    /// None: the standard library's default.
    #[cfg(not(loom))]
    pub(crate) stack_bytes: Option<usize>,
    /// As many cores work as the process may use processors.
    #[cfg(not(loom))]
    pub(crate) follow_processors: bool,
    /// Its cores are virtual, and one of them runs at a time.
    #[cfg(feature = "sim")]
    pub(crate) simulated: Simulated,
    #[cfg(not(loom))]
    /// None: what the environment variable says, else automatic.
    pub(crate) backend: Option<crate::io::Backend>,
}

/// Whether and how a runtime has virtual cores.
#[cfg(feature = "sim")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Simulated {
    /// It has threads.
    #[default]
    No,
    /// What they do when, a seed decides.
    BySeed,
    /// They are those of a simulated machine, and there is nobody outside.
    #[allow(dead_code, reason = "who runs the cores of a machine constructs it")]
    OnMachine,
}

impl Config {
    /// Whether the cores are virtual.
    pub(crate) fn is_simulated(&self) -> bool {
        #[cfg(feature = "sim")]
        return self.simulated != Simulated::No;
        #[cfg(not(feature = "sim"))]
        false
    }

    /// Whether they are those of a simulated machine.
    #[inline]
    pub(crate) fn is_on_machine(&self) -> bool {
        #[cfg(feature = "sim")]
        return self.simulated == Simulated::OnMachine;
        #[cfg(not(feature = "sim"))]
        false
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config").finish_non_exhaustive()
    }
}

/// What the owner waits for.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// The first panic that stopped the runtime.
    pub(crate) panic: Option<PanicReport>,
    /// When the end was asked for.
    pub(crate) stop_at: Option<Instant>,
    /// Cores whose threads are ready to begin; the error of one that could not.
    pub(crate) ready: usize,
    pub(crate) failure: Option<std::io::Error>,
    /// Cores whose threads have left.
    pub(crate) left: Vec<usize>,
    /// Cores that the run has left behind in their handlers.
    pub(crate) behind: usize,
    /// A core may still run: the run has begun, and is not over, or has left a thread behind.
    pub(crate) running: bool,
    /// The proof of the end was given.
    proved: bool,
    /// A core each, and the processor that its thread is pinned to, or why it is not.
    #[cfg(not(loom))]
    pub(crate) pinned: Vec<(usize, Result<u32, String>)>,
    /// A core each, and its event source.
    #[cfg(not(loom))]
    pub(crate) backends: Vec<(usize, crate::io::Report)>,
}

/// See the module text.
pub(crate) struct Inner {
    pub(crate) shared: Arc<Shared>,
    pub(crate) sources: Sources,
    /// How far the run is, and its end.
    pub(crate) quiesce: CachePadded<Quiesce>,
    pub(crate) config: Config,
    pub(crate) start: Instant,
    /// The clock of a simulation, which its driver moves.
    pub(crate) virtual_clock: OnceLock<Clock>,
    /// The time of day, in ns since 1970, when that clock is at zero; it may be before 1970, and
    /// wraps around.
    virtual_wall_ns: relaxed::AtomicU64,
    pub(crate) issued: Issued,
    pub(crate) outcome: Mutex<Outcome>,
    pub(crate) changed: Condvar,
    /// Threads for blocking work.
    #[cfg(not(loom))]
    pub(crate) pool: super::pool::BlockingPool,
    /// Refusals of bounded colors, by threads that are no cores. On a line of its own, for who is
    /// refused may go on trying.
    pub(crate) refused_outside: CachePadded<relaxed::AtomicU64>,
    /// Events dropped after the end.
    discarded: AtomicU64,
    /// The first event of the run has panicked. Written and read by the core that ran it.
    pub(crate) start_panicked: relaxed::AtomicBool,
    pub(crate) attached: <Inner as Above>::Attached,
    /// Tasks that wait.
    pub(crate) leftovers: Leftovers,
    /// What is under way in the event sources that were asked.
    pub(crate) answers: Answers,
    /// Who is woken when the end is asked for.
    on_stop: Mutex<Slab<Waker>>,
    /// Threads that wait for room in a color, which nobody may give any more.
    waiting: Mutex<Slab<Waker>>,
}

// Nothing that is behind a lock: whoever formats may be the user, and post.
impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inner")
            .field("cores", &self.shared.cores.len())
            .finish_non_exhaustive()
    }
}

impl Inner {
    pub(crate) fn new(
        shared: Shared,
        config: Config,
        #[cfg(not(loom))] pool: super::pool::BlockingPool,
        attached: <Inner as Above>::Attached,
    ) -> Inner {
        let shared = Arc::new(shared);
        Inner {
            sources: Sources::of(shared.cores.len()),
            quiesce: CachePadded::new(Quiesce::new(shared.cores.len())),
            issued: Issued::new(&shared.slots.map, shared.cores.len()),
            attached,
            leftovers: Leftovers::new(),
            answers: Answers::new(shared.cores.len()),
            on_stop: Mutex::new(Slab::new()),
            waiting: Mutex::new(Slab::new()),
            shared,
            config,
            #[cfg(not(loom))]
            pool,
            start: Instant::now(),
            virtual_clock: OnceLock::new(),
            virtual_wall_ns: relaxed::AtomicU64::new(VIRTUAL_WALL_NS),
            outcome: Mutex::new(Outcome::default()),
            changed: Condvar::new(),
            refused_outside: CachePadded::default(),
            discarded: AtomicU64::new(0),
            start_panicked: relaxed::AtomicBool::new(false),
        }
    }

    /// The time since the runtime was built, by the clock of its cores, for who is on none.
    pub(crate) fn now_ns(&self) -> u64 {
        let real = || Clock::Real(self.start).now_ns();
        self.virtual_clock.get().map_or_else(real, Clock::now_ns)
    }

    /// The time of day, in ns since 1970.
    pub(crate) fn wall_ns(&self) -> u64 {
        if self.virtual_clock.get().is_some() {
            let began_ns = self.virtual_wall_ns.load(Ordering::Relaxed);
            return began_ns.wrapping_add(self.now_ns());
        }
        let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        since.map_or(0, |since| since.as_nanos() as u64)
    }

    /// Sets the time of day of a simulation.
    #[cfg(feature = "sim")]
    pub(crate) fn set_wall_ns(&self, wall_ns: u64) {
        let began_ns = wall_ns.wrapping_sub(self.now_ns());
        self.virtual_wall_ns.store(began_ns, Ordering::Relaxed);
    }

    /// Asks for the end: what is queued is still run, under the deadline.
    pub(crate) fn stop(&self) {
        if self.quiesce.drain() {
            self.outcome.lock().unwrap().stop_at = Some(Instant::now());
            self.changed.notify_all();
            self.shared.wake_all();
            if !fault("stop wakes nobody who waits for room") {
                self.wake_waiting();
            }
            let wakers = std::mem::take(&mut *self.on_stop.lock().unwrap());
            // One that panics keeps no other from being woken.
            let mut wakes = InTurn::default();
            for (_, waker) in wakers {
                wakes.run(|| waker.wake());
            }
            wakes.end();
        }
    }

    /// Notes who is to be woken when the end is asked for, instead of who was noted under this key.
    /// None: it was asked for.
    pub(crate) fn wake_when_stopping(&self, key: Option<usize>, waker: Waker) -> Option<usize> {
        let mut on_stop = self.on_stop.lock().unwrap();
        let before = key.and_then(|key| on_stop.try_remove(key));
        let mut waker = Some(waker);
        // Under the lock: who asks for the end sees what is noted before, or is seen here.
        let noted = (self.quiesce.phase() == Phase::Running)
            .then(|| on_stop.insert(waker.take().expect("noted once")));
        drop(on_stop);
        // Code of the user's.
        drop((before, waker));
        noted
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.quiesce.phase() != Phase::Running
    }

    pub(crate) fn do_not_wake_when_stopping(&self, key: usize) {
        let waker = self.on_stop.lock().unwrap().try_remove(key);
        drop(waker);
    }

    /// Notes a thread that waits, by a waker of the runtime's own. It is woken when the end is
    /// asked for and when it has come, unless that was before: the caller looks after this.
    pub(crate) fn wait_until_the_end(&self, waker: Waker) -> usize {
        self.waiting.lock().unwrap().insert(waker)
    }

    /// The thread that was noted under this key waits no more.
    pub(crate) fn end_of_waiting(&self, key: usize) {
        self.waiting.lock().unwrap().remove(key);
    }

    /// Has threads that wait look at the end, which was asked for or has come.
    pub(crate) fn wake_waiting(&self) {
        for (_, waker) in &*self.waiting.lock().unwrap() {
            waker.wake_by_ref();
        }
    }

    /// A keep-alive is gone.
    pub(crate) fn drop_keep_alive(&self) {
        match self.quiesce.drop_keep_alive(self.config.exit_when_idle) {
            Decided::Nothing => {}
            Decided::Stage => self.begin_stage(),
            Decided::Over => self.end(),
        }
    }

    /// A stage of the end has begun: each core follows, and the owner looks at its limit.
    pub(super) fn begin_stage(&self) {
        if !fault("nobody woken at a stage") {
            self.shared.wake_all();
        }
        // Under the lock, so that the owner cannot look before and wait after.
        let _outcome = self.outcome.lock().unwrap();
        self.changed.notify_all();
    }

    /// Ends a stage whose limit has passed, unless it is over.
    #[cfg(not(loom))]
    pub(crate) fn end_stage(&self, stage: Phase) {
        if self.quiesce.end_stage(stage) {
            self.begin_stage();
        }
    }

    /// The stage that the end is in, if it was asked for, has not come and has several stages, and
    /// for how long that stage may last.
    #[cfg(not(loom))]
    pub(crate) fn stage_limit(&self) -> Option<(Phase, Duration)> {
        let phase = self.quiesce.phase();
        let stage = phase.stage().filter(|_| self.quiesce.has_stages())?;
        let limit = self
            .config
            .stage_limits
            .of(stage, self.config.drain_deadline);
        limit.map(|limit| (phase, limit))
    }

    /// The run is over.
    pub(super) fn end(&self) {
        if !fault("nobody woken at the end") {
            self.shared.wake_all();
        }
        if !fault("end wakes nobody who waits for room") {
            self.wake_waiting();
        }
    }

    /// Ends at once: no core begins another event.
    pub(crate) fn force(&self) {
        self.quiesce.force();
        for core in &self.shared.cores {
            core.progress.ask_to_leave();
        }
        self.shared.wake_all();
        if !fault("force wakes nobody who waits for room") {
            self.wake_waiting();
        }
        // Under the lock, so that the owner cannot look before and wait after.
        let _outcome = self.outcome.lock().unwrap();
        self.changed.notify_all();
    }

    /// Ends the recording, if there is one. The cores have left, all but this number of them.
    pub(crate) fn finish_recording(&self, cores_left: usize) {
        if let Some(recorder) = &self.shared.recorder {
            self.shared.foreign.end_record();
            recorder.finish(cores_left);
        }
    }

    /// A handler has panicked: reports that, and ends the run if it is to end. A panic of the run's
    /// first event or of the builder's hook ends the run in any case. `is_written`: std's hook has
    /// written the message to standard error.
    pub(crate) fn panicked(&self, mut report: PanicReport, is_written: bool) {
        let mut stops = self.config.on_panic == OnPanic::Stop;
        stops |= self.start_panicked.load(Ordering::Relaxed);
        match &self.config.panic_hook {
            None => report.write(stops, is_written),
            Some(hook) => {
                if let Err(payload) = catching(|| hook(&report)) {
                    let message = message_of(payload);
                    report.message += &format!("; and the panic hook panicked: {message}");
                    stops = true;
                }
            }
        }
        if stops {
            self.outcome.lock().unwrap().panic.get_or_insert(report);
            self.force();
        }
    }

    #[cfg(not(loom))]
    pub(crate) fn backends(&self) -> Vec<crate::io::Report> {
        let mut backends = self.outcome.lock().unwrap().backends.clone();
        backends.sort_by_key(|&(core, _)| core);
        backends.into_iter().map(|(_, report)| report).collect()
    }

    /// Events accepted and not executed. Exact once every core has left.
    pub(crate) fn events_left(&self) -> u64 {
        let cores = &self.shared.cores;
        let executed = |stats: &CoreCounters| {
            stats.events.get() + stats.holds_settled.get() + stats.tasks_over.get()
        };
        let executed: u64 = cores.iter().map(|core| executed(&core.stats)).sum();
        let posted: u64 = cores.iter().map(|core| core.stats.posts.get()).sum();
        (posted + self.quiesce.foreign_posts()).saturating_sub(executed)
    }

    /// How many of those wait for holds to end, that is, their events that come yet and what is put
    /// aside; or to be woken.
    #[cfg_attr(not(feature = "sim"), allow(dead_code))]
    pub(crate) fn events_held(&self) -> u64 {
        self.holds_out() + self.tasks_waiting() + self.shared.gates.waiting()
    }

    /// Holds whose last event was not posted yet.
    pub(super) fn holds_out(&self) -> u64 {
        let (made, ended) = (
            self.sum(|of| of.holds.get()),
            self.sum(|of| of.holds_ended.get()),
        );
        let ended = ended + self.shared.gates.ended_outside.load(Ordering::Relaxed);
        made.saturating_sub(ended)
    }

    /// Tasks that were polled and are not over.
    pub(crate) fn tasks_waiting(&self) -> u64 {
        let over = self.sum(|of| of.tasks_over.get());
        self.sum(|of| of.tasks.get()).saturating_sub(over)
    }

    pub(super) fn sum(&self, of: fn(&CoreCounters) -> u64) -> u64 {
        let cores = self.shared.cores.iter();
        cores.map(|core| of(&core.stats)).sum()
    }

    /// Drops what is left, unless a core is stuck in its handler, which still has its queues: then
    /// that is done when the last of them leaves.
    pub(crate) fn discard_at_the_end(&self) {
        if let Some(mut ended) = Ended::of(self) {
            self.discard_left(&mut ended);
            self.shared.idle.bells.take_down();
        }
    }

    /// Drops what was accepted and not executed, jobs that have not begun, and all callbacks.
    fn discard_left(&self, ended: &mut Ended<'_>) {
        // A `Drop` that panics keeps nothing else from being dropped.
        let mut drops = InTurn::default();
        #[cfg(not(loom))]
        self.pool.discard(&mut drops);
        drops.run(|| self.discard_events());
        self.leftovers.drop_all(ended, &mut drops);
        self.attached.drop_callbacks(ended, &mut drops);
        drops.end();
    }

    fn discard_events(&self) {
        // Foreign threads are counted before they push, and may be about to, once the system gives
        // them a processor. Bounded all the same: what comes even later is dropped with the last
        // handle, which it must not own itself.
        for round in 0..1_000 {
            // The last event of a hold that is still out may never come, nor that of a task.
            let out = self.holds_out() + self.tasks_waiting();
            let left = self.events_left().saturating_sub(out);
            if left <= self.discarded.load(Ordering::Relaxed) {
                return;
            }
            let discarded = self.shared.discard();
            self.discarded.fetch_add(discarded, Ordering::Relaxed);
            if cfg!(not(loom)) && round >= 100 {
                std::thread::sleep(Duration::from_millis(1));
            }
            crate::sync::yield_now();
        }
    }

    pub(crate) fn ended(&self) -> bool {
        self.quiesce.phase() == Phase::Over
    }
}

/// The proof that a runtime has ended: no core of it runs, and none will. There is one of a
/// runtime.
#[derive(Debug)]
pub(crate) struct Ended<'a>(&'a Inner);

impl Ended<'_> {
    /// None if a core may still run, and if the proof was given before.
    pub(crate) fn of(inner: &Inner) -> Option<Ended<'_>> {
        let mut outcome = inner.outcome.lock().unwrap();
        let proves = inner.ended() && !outcome.running && !outcome.proved;
        outcome.proved |= proves;
        proves.then_some(Ended(inner))
    }

    /// Whether it is this runtime that has ended.
    #[cfg_attr(loom, allow(dead_code))]
    pub(crate) fn is_of(&self, inner: &Inner) -> bool {
        std::ptr::eq(self.0, inner)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::{Arc, Inner};
    use crate::Runtime;
    use crate::io::Report;
    use std::time::{Duration, Instant};

    /// Or who goes on asking would put off the deadline.
    #[test]
    fn the_deadline_counts_from_the_first_request() {
        let runtime = Runtime::builder().cores(1).build().unwrap();
        let asked = || runtime.inner.outcome.lock().unwrap().stop_at;
        assert_eq!(asked(), None);
        runtime.inner.stop();
        let first = asked().unwrap();
        while Instant::now() == first {}
        runtime.inner.stop();
        assert_eq!(asked(), Some(first));
    }

    /// A waker is the user's, and may hold what listens to the stop as well.
    #[test]
    fn a_waker_that_is_not_noted_is_dropped_without_the_lock() {
        struct Listens(Arc<Inner>);
        impl std::task::Wake for Listens {
            fn wake(self: std::sync::Arc<Self>) {}
        }
        impl Drop for Listens {
            fn drop(&mut self) {
                self.0.do_not_wake_when_stopping(0);
            }
        }
        let runtime = Runtime::builder().cores(1).build().unwrap();
        let inner = &runtime.inner;
        let waker = || std::sync::Arc::new(Listens(Arc::clone(inner))).into();
        assert!(inner.wake_when_stopping(None, waker()).is_some());
        inner.stop();
        let (late, inner) = (waker(), Arc::clone(inner));
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::spawn(move || tell.send(inner.wake_when_stopping(None, late)));
        // Or it waits for itself.
        assert_eq!(told.recv_timeout(Duration::from_secs(20)), Ok(None));
    }

    #[test]
    fn event_sources_are_told_in_the_order_of_the_cores() {
        let runtime = Runtime::builder().cores(1).build().unwrap();
        let begun = [(2, "two"), (0, "zero"), (1, "one")];
        let begun = begun.map(|(core, name)| (core, Report::named(name)));
        runtime.inner.outcome.lock().unwrap().backends.extend(begun);
        let names: Vec<_> = runtime
            .poster()
            .backends()
            .iter()
            .map(|report| report.name)
            .collect();
        assert_eq!(names, ["zero", "one", "two"]);
    }
}
