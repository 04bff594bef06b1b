//! The threads of a run, and the thread that waits for them.

use super::RunError;
use super::lookout::Watching;
use super::pins::pin;
use super::processors::Processors;
use crate::clock::Clock;
use crate::color::CoreId;
use crate::host::inner::{Inner, Outcome};
use crate::host::panics::{catching, discard_payload};
use crate::host::pool::spawn;
use crate::host::quiesce::Phase;
use crate::host::unfinished::{DrainReports, Obstacle, Unfinished};
use crate::host::watchdog::{Watchdog, WatchdogBell, running};
use crate::host::worker::{Worker, drive};
use crate::io::Lookout;
use crate::net::Driver;
use crate::shared::remote::working::set_working;
use crate::sync::{Arc, MutexGuard};
use std::any::Any;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long cores have to leave after the runtime was closed, before those that are in a handler
/// are called stuck.
const LEAVE_GRACE: Duration = Duration::from_millis(500);
/// The same for those that are not: an event source may wait for the kernel to let go of buffers.
const LEAVE_MAX: Duration = Duration::from_secs(5);
/// From one look at cores that leave to the next.
const LEAVE_LOOK: Duration = Duration::from_millis(50);

pub(crate) fn run(inner: &Arc<Inner>) -> Result<(), RunError> {
    let cores = inner.shared.cores.len();
    let bell = Box::new(WatchdogBell(Arc::downgrade(inner)));
    inner
        .shared
        .idle
        .bells
        .hang(inner.shared.idle.bells.watchdog(), bell);
    // Before the cores, whose sources it watches, and until they have left.
    let watching = Watching::begin(inner);
    let lookout = watching.as_ref().map(Watching::lookout);
    let mut threads = Vec::with_capacity(cores);
    for core in 0..cores {
        let (its, lookout) = (Arc::clone(inner), lookout.cloned());
        let stack = inner.config.stack_bytes;
        match spawn(format!("mely-{core}"), stack, move || {
            thread(&its, core, lookout.as_ref());
        }) {
            Ok(thread) => threads.push(thread),
            Err(error) => {
                let named = stack.map(|bytes| {
                    let text = "a thread with a stack of";
                    let text = format!("{text} {bytes} bytes (`stack_bytes`): {error}");
                    io::Error::new(error.kind(), text)
                });
                fail(inner, named.unwrap_or(error));
                break;
            }
        }
    }
    let started = threads.len();
    let supervised = supervise(inner, started);
    let stuck = stuck(inner, &inner.outcome.lock().unwrap(), started);
    let died = join(threads, &stuck);
    let left = inner.pool.close(LEAVE_GRACE);
    let died = died.or(left.died);
    let verdict = verdict(inner, supervised.late, stuck, left.stuck);
    // What panicked after a handler did (when it was dropped, mostly) was said by the process's
    // panic hook, and does not hide the handler's name.
    if let Some(panic) = supervised.panic.or(died)
        && !matches!(verdict, Err(RunError::Panicked { .. }))
    {
        resume_unwind(panic);
    }
    verdict
}

/// The deadline for draining has passed: the obstacles to the end then.
#[derive(Debug)]
pub(crate) struct Late(Unfinished);

impl Late {
    /// It does now, so long after the stop. From now on event sources that are dropped add their
    /// timers and connections.
    pub(crate) fn now(inner: &Inner, stopping_for: Duration) -> Late {
        inner.answers.forget();
        Late(inner.unfinished(stopping_for))
    }
}

/// What the owner saw while it waited for the cores.
#[derive(Default)]
struct Supervised {
    late: Option<Late>,
    /// The hook for slow handlers panicked.
    panic: Option<Box<dyn Any + Send>>,
}

/// What a run came to, once its cores have left, all but those that are stuck in a handler.
pub(crate) fn verdict(
    inner: &Inner,
    late: Option<Late>,
    stuck: Vec<(usize, &'static str)>,
    blocking_stuck: Vec<&'static str>,
) -> Result<(), RunError> {
    inner.finish_recording(stuck.len());
    let mut outcome = inner.outcome.lock().unwrap();
    let has_left = |core: &usize| outcome.left.contains(core);
    let behind = stuck.iter().filter(|(core, _)| !has_left(core)).count();
    outcome.behind = behind;
    outcome.running = behind > 0;
    let failure = outcome.failure.take();
    let panic = outcome.panic.take();
    drop(outcome);
    let tasks_left = inner.tasks_waiting();
    let events_left = inner.events_left().saturating_sub(tasks_left);
    if let Some(error) = failure {
        return Err(RunError::Start(error));
    }
    if let Some(panic) = panic {
        return Err(RunError::Panicked { panic, events_left });
    }
    if late.is_some() || !stuck.is_empty() {
        let mut unfinished = late.map_or_else(Unfinished::default, |Late(its)| its);
        inner.answers.take_into(&mut unfinished);
        // The others have returned.
        let is_stuck = |named: &Obstacle| match named {
            Obstacle::Handler { core, .. } => stuck.iter().any(|(its, _)| its == core),
            _ => true,
        };
        unfinished.named.retain(is_stuck);
        return Err(RunError::Deadline {
            events_left,
            strong_posters_left: unfinished.strong_posters + unfinished.blocking,
            tasks_left,
            stuck,
            blocking_stuck,
            unfinished: Box::new(unfinished),
        });
    }
    Ok(())
}

/// For how long cores have had the chance to leave. Of what passes between two looks, little more
/// than was to be waited counts: a process that is stopped for a while, or gets no processor, has
/// cores that could not go on either.
#[derive(Default)]
struct Leaving {
    lasted: Duration,
    looked_at: Option<Instant>,
}

impl Leaving {
    /// Looks at this moment, for the first time when the run has ended.
    fn look(&mut self, now: Instant) -> Duration {
        let before = self.looked_at.replace(now).unwrap_or(now);
        self.lasted += (now - before).min(2 * LEAVE_LOOK);
        self.lasted
    }
}

/// What the owner does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Decision {
    /// Waits, at most for this time if there is one, and decides anew.
    Wait(Option<Duration>),
    /// Ends the stage that the end is in: its limit has passed.
    EndStage(Phase),
    /// Ends the run: the deadline for draining has passed, or the limit of the last stage.
    Force,
    /// Waits no longer: cores that have not left are left behind.
    GiveUp,
}

/// Decides that. `ended_for`: for how long cores could leave, if the run has ended; `stopping_for`:
/// how long ago its end was asked for, if it was; `stage`: the stage of the end, if that has a
/// limit, and how much of it is left; `in_handlers`: whether all cores that have not left are in a
/// handler.
fn decide(
    ended_for: Option<Duration>,
    stopping_for: Option<Duration>,
    stage: Option<(Phase, Duration)>,
    drain_deadline: Duration,
    in_handlers: impl FnOnce() -> bool,
) -> Decision {
    if let Some(ended_for) = ended_for {
        if ended_for >= LEAVE_MAX || ended_for >= LEAVE_GRACE && in_handlers() {
            return Decision::GiveUp;
        }
        // Looked at again after a short while: a core may return from its handler.
        return Decision::Wait(Some(LEAVE_LOOK));
    }
    match stopping_for.map(|time| drain_deadline.saturating_sub(time)) {
        Some(Duration::ZERO) => Decision::Force,
        left => match stage {
            Some((Phase::Flushing, Duration::ZERO)) => Decision::Force,
            Some((stage, Duration::ZERO)) => Decision::EndStage(stage),
            stage => Decision::Wait(shorter(left, stage.map(|(_, left)| left))),
        },
    }
}

/// The shorter of two times, either of which may be without end.
fn shorter(one: Option<Duration>, other: Option<Duration>) -> Option<Duration> {
    one.into_iter().chain(other).min()
}

/// Waits until every core has left, or has had its chance to; meanwhile it is the watchdog.
fn supervise(inner: &Arc<Inner>, started: usize) -> Supervised {
    let mut watchdog = Watchdog::new(inner.shared.cores.len());
    let mut reports = DrainReports::default();
    let mut processors = (inner.config.follow_processors).then(|| Processors::new(Instant::now()));
    let mut supervised = Supervised::default();
    let mut leaving = Leaving::default();
    // The stage of the end, and since when.
    let mut stage_since: Option<(Phase, Instant)> = None;
    let mut outcome = inner.outcome.lock().unwrap();
    while outcome.left.len() < started {
        let now = Instant::now();
        let ended_for = inner.ended().then(|| leaving.look(now));
        let stop_at = outcome.stop_at;
        let stopping_for = stop_at.map(|stop_at| now - stop_at);
        let in_handlers = || {
            let mut staying = (0..started).filter(|core| !outcome.left.contains(core));
            staying.all(|core| running(inner, core).is_some())
        };
        let deadline = inner.config.drain_deadline;
        let limit_at = stop_at.and(inner.stage_limit()).and_then(|(stage, limit)| {
            let (_, since) = *(stage_since)
                .filter(|&(its, _)| its == stage)
                .get_or_insert((stage, now));
            stage_since = Some((stage, since));
            Some((stage, since.checked_add(limit)?))
        });
        reports.set_limit(limit_at.map(|(_, limit_at)| limit_at));
        let stage = limit_at.map(|(stage, at)| (stage, at.saturating_duration_since(now)));
        let at_most = match decide(ended_for, stopping_for, stage, deadline, in_handlers) {
            Decision::Wait(at_most) => at_most,
            Decision::EndStage(stage) => {
                drop(outcome);
                if supervised.panic.is_none() {
                    let told = catch_unwind(AssertUnwindSafe(|| {
                        reports.tell(inner, stop_at, now, true);
                    }));
                    supervised.panic = told.err().inspect(|_| inner.force());
                }
                inner.end_stage(stage);
                outcome = inner.outcome.lock().unwrap();
                continue;
            }
            Decision::Force => {
                drop(outcome);
                let late = Late::now(inner, stopping_for.unwrap_or_default());
                // It may have drained meanwhile.
                if !inner.ended() {
                    supervised.late = Some(late);
                }
                inner.force();
                outcome = inner.outcome.lock().unwrap();
                continue;
            }
            Decision::GiveUp => break,
        };
        // Dropped at once: the hook is the user's, and not called under our lock.
        let look = shorter(watchdog.next_look(inner), inner.pool.next_look());
        let look = shorter(look, processors.as_ref().map(|its| its.next_look(now)));
        let draining = stop_at.filter(|_| ended_for.is_none());
        let look = shorter(look, reports.next_look(inner, draining, now));
        drop(match shorter(at_most, look) {
            Some(timeout) => inner.changed.wait_timeout(outcome, timeout).unwrap().0,
            None => inner.changed.wait(outcome).unwrap(),
        });
        inner.shared.idle.vigil.wakes();
        let cores = inner.shared.cores.len();
        let working = processors
            .as_mut()
            .and_then(|its| its.look(Instant::now(), cores));
        if let Some(working) = working {
            set_working(&inner.shared, working).expect("from 1 to all of them");
        }
        if supervised.panic.is_none() {
            let now_ns = inner.start.elapsed().as_nanos() as u64;
            let looked = catch_unwind(AssertUnwindSafe(|| {
                watchdog.look(inner, now_ns);
                inner.pool.look();
                if !inner.ended() {
                    reports.look(inner, draining, Instant::now());
                }
            }));
            supervised.panic = looked.err().inspect(|_| inner.force());
        }
        outcome = inner.outcome.lock().unwrap();
    }
    supervised
}

fn stuck(
    inner: &Inner,
    outcome: &MutexGuard<'_, Outcome>,
    started: usize,
) -> Vec<(usize, &'static str)> {
    (0..started)
        .filter(|core| !outcome.left.contains(core))
        .map(|core| (core, running(inner, core).unwrap_or("(leaving)")))
        .collect()
}

/// Joins all threads but those that are stuck. Returns what the first died of, if any did: a core's
/// thread catches what handlers panic with, so that is a bug of the runtime's, or the `Drop` of
/// something that a run left behind when it was cut short.
fn join(
    threads: Vec<JoinHandle<()>>,
    stuck: &[(usize, &'static str)],
) -> Option<Box<dyn Any + Send>> {
    let mut died = None;
    for (core, thread) in threads.into_iter().enumerate() {
        if !stuck.iter().any(|&(stuck, _)| stuck == core)
            && let Err(payload) = thread.join()
        {
            died = died.or(Some(payload));
        }
    }
    died
}

/// A core's thread.
fn thread(inner: &Arc<Inner>, core: usize, lookout: Option<&Arc<Lookout>>) {
    // Leaves also by a panic, so that the owner does not wait for ever.
    let _leave = Leave { inner, core };
    match begin(inner, core, lookout) {
        Ok(mut worker) => {
            // Nobody runs before everybody can: an error of one core is then an error of `run` with
            // nothing done.
            if all_ready(inner) {
                drive(&mut worker);
            }
        }
        Err(error) => fail(inner, error),
    }
}

struct Leave<'a> {
    inner: &'a Inner,
    core: usize,
}

impl Drop for Leave<'_> {
    fn drop(&mut self) {
        // Nobody leaves before the end, unless it dies: then there is nobody to do what is left.
        self.inner.force();
        let mut outcome = self.inner.outcome.lock().unwrap();
        outcome.left.push(self.core);
        // The run did not wait for this core, and was not told what it left, if it is the last.
        let is_last = outcome.behind == 1;
        outcome.behind = outcome.behind.saturating_sub(1);
        outcome.running &= !is_last;
        drop(outcome);
        self.inner.changed.notify_all();
        if is_last && let Err(panic) = catching(|| self.inner.discard_at_the_end()) {
            // Nobody joins this thread.
            discard_payload(panic);
        }
    }
}

fn begin(inner: &Arc<Inner>, core: usize, lookout: Option<&Arc<Lookout>>) -> io::Result<Worker> {
    if let Some(pins) = &inner.config.pins {
        let pinned = match pin(pins[core]) {
            Ok(()) => Ok(pins[core]),
            Err(error) if inner.config.must_pin => {
                let text = format!("its thread cannot be pinned (`pin`): {error}");
                return Err(io::Error::new(error.kind(), text));
            }
            Err(error) => Err(error.to_string()),
        };
        inner.outcome.lock().unwrap().pinned.push((core, pinned));
    }
    // The ring is made on the thread that uses it: the kernel holds us to that.
    let (mut driver, report) = Driver::new(inner, CoreId::of(core))?;
    if let Some(lookout) = lookout {
        driver.attach(lookout);
    }
    inner.outcome.lock().unwrap().backends.push((core, report));
    inner
        .shared
        .idle
        .bells
        .hang(CoreId::of(core), Box::new(driver.doorbell()));
    let clock = Clock::Real(inner.start);
    Ok(Worker::new(
        Arc::clone(inner),
        CoreId::of(core),
        clock,
        Box::new(driver),
    ))
}

/// Waits for the other cores; false if one could not begin.
fn all_ready(inner: &Inner) -> bool {
    let mut outcome = inner.outcome.lock().unwrap();
    outcome.ready += 1;
    inner.changed.notify_all();
    while outcome.ready < inner.shared.cores.len() && outcome.failure.is_none() && !inner.ended() {
        outcome = inner.changed.wait(outcome).unwrap();
    }
    outcome.failure.is_none()
}

fn fail(inner: &Inner, error: io::Error) {
    inner.outcome.lock().unwrap().failure.get_or_insert(error);
    inner.force();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Runtime;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc::channel;

    const NS: Duration = Duration::from_nanos(1);

    fn runtime(cores: usize) -> Runtime {
        let builder = Runtime::builder().cores(cores);
        builder.pin(false).build().unwrap()
    }

    #[test]
    fn cores_that_stay_are_given_up_after_a_while() {
        let ended = |time, stuck| decide(Some(time), Some(Duration::MAX), None, NS, || stuck);
        let again = Decision::Wait(Some(LEAVE_LOOK));
        for (time, in_handlers, not_all) in [
            (Duration::ZERO, again, again),
            (LEAVE_GRACE - NS, again, again),
            (LEAVE_GRACE, Decision::GiveUp, again),
            (LEAVE_MAX - NS, Decision::GiveUp, again),
            (LEAVE_MAX, Decision::GiveUp, Decision::GiveUp),
        ] {
            assert_eq!(ended(time, true), in_handlers, "{time:?}");
            assert_eq!(ended(time, false), not_all, "{time:?}");
        }
        let Decision::Wait(Some(pause)) = again else {
            panic!("a core may return from its handler");
        };
        assert_eq!(pause, Duration::from_millis(50));
    }

    /// The machine may be stopped, or busy with something else, for longer than cores have to
    /// leave.
    #[test]
    fn a_process_that_was_stopped_is_not_given_up() {
        let mut now = Instant::now();
        let mut leaving = Leaving::default();
        assert_eq!(leaving.look(now), Duration::ZERO);
        now += NS;
        assert_eq!(leaving.look(now), NS);
        now += 10 * LEAVE_MAX;
        assert_eq!(leaving.look(now), NS + 2 * LEAVE_LOOK);
        now += LEAVE_LOOK;
        assert_eq!(leaving.look(now), NS + 3 * LEAVE_LOOK);
        let looks = LEAVE_MAX.as_millis() / LEAVE_LOOK.as_millis();
        (0..looks).for_each(|_| {
            now += LEAVE_LOOK;
            leaving.look(now);
        });
        assert!(leaving.look(now) >= LEAVE_MAX);
    }

    #[test]
    fn the_deadline_counts_from_the_stop() {
        let deadline = Duration::from_secs(3);
        let stopping = |time| decide(None, time, None, deadline, || true);
        assert_eq!(stopping(None), Decision::Wait(None));
        assert_eq!(stopping(Some(NS)), Decision::Wait(Some(deadline - NS)));
        assert_eq!(stopping(Some(deadline - NS)), Decision::Wait(Some(NS)));
        assert_eq!(stopping(Some(deadline)), Decision::Force);
        assert_eq!(stopping(Some(deadline + NS)), Decision::Force);
    }

    #[test]
    fn the_shorter_of_two_times() {
        let (one, two) = (Some(NS), Some(2 * NS));
        assert_eq!([shorter(one, two), shorter(two, one)], [one; 2]);
        assert_eq!([shorter(one, None), shorter(None, one)], [one; 2]);
        assert_eq!(shorter(None, None), None);
    }

    /// All threads are waited for but those that are stuck, and the first panic is the one that
    /// counts.
    #[test]
    fn who_died_is_told() {
        let (let_go, stuck) = channel::<()>();
        let over = Arc::new(AtomicBool::new(false));
        let ends = Arc::clone(&over);
        let threads = vec![
            std::thread::spawn(move || {
                let _ = stuck.recv();
            }),
            std::thread::spawn(|| resume_unwind(Box::new("first"))),
            std::thread::spawn(|| resume_unwind(Box::new("second"))),
            std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(10));
                ends.store(true, Ordering::Relaxed);
            }),
        ];
        let died = join(threads, &[(0, "stuck")]).unwrap();
        assert_eq!(*died.downcast::<&str>().unwrap(), "first");
        assert!(over.load(Ordering::Relaxed));
        drop(let_go);
        assert!(join(vec![std::thread::spawn(|| ())], &[]).is_none());
    }

    #[test]
    fn a_core_that_dies_ends_the_run() {
        let runtime = runtime(2);
        let inner = Arc::clone(&runtime.inner);
        let dies = std::thread::spawn(move || {
            let _leave = Leave {
                inner: &inner,
                core: 1,
            };
            resume_unwind(Box::new("dies"));
        });
        dies.join().unwrap_err();
        assert!(runtime.inner.ended());
        assert_eq!(runtime.inner.outcome.lock().unwrap().left, [1]);
    }

    /// Also in the moment between the error and the end of the run that it leads to.
    #[test]
    fn nothing_is_done_if_a_core_could_not_begin() {
        let runtime = runtime(1);
        let ran = Arc::new(AtomicBool::new(false));
        let runs = Arc::clone(&ran);
        runtime
            .begin(move |cx| {
                runs.store(true, Ordering::Relaxed);
                cx.stop();
            })
            .unwrap();
        let inner = &runtime.inner;
        inner.outcome.lock().unwrap().failure = Some(io::Error::other("another core's"));
        thread(inner, 0, None);
        assert!(!ran.load(Ordering::Relaxed));
        assert_eq!(inner.outcome.lock().unwrap().left, [0]);
    }

    /// Says little where there is one processor only.
    #[test]
    fn threads_are_pinned() {
        let allowed = rustix::thread::sched_getaffinity(None).unwrap();
        let last = (0..rustix::thread::CpuSet::MAX_CPU).rfind(|&cpu| allowed.is_set(cpu));
        let last = last.unwrap();
        let mut runtime = runtime(1);
        let inner = Arc::get_mut(&mut runtime.inner).unwrap();
        inner.config.pins = Some(vec![last as u32]);
        let inner = Arc::clone(&runtime.inner);
        let begins = std::thread::spawn(move || {
            begin(&inner, 0, None).unwrap();
            rustix::thread::sched_getaffinity(None).unwrap()
        });
        let pinned = begins.join().unwrap();
        assert!(pinned.is_set(last));
        assert_eq!(pinned.count(), 1);
    }

    /// A thread that the system refuses never leaves, so nothing else would wake those that wait
    /// for it.
    #[test]
    fn cores_that_wait_for_one_that_cannot_begin_are_told() {
        let builder = Runtime::builder().cores(2);
        let runtime = builder.pin(false).build().unwrap();
        let inner = Arc::clone(&runtime.inner);
        let (tell, told) = channel();
        std::thread::spawn(move || tell.send(all_ready(&inner)));
        // From then on it waits whenever the lock is free.
        while runtime.inner.outcome.lock().unwrap().ready == 0 {
            std::thread::yield_now();
        }
        fail(&runtime.inner, io::Error::other("no more threads"));
        let all = told.recv_timeout(Duration::from_secs(20));
        assert_eq!(all, Ok(false));
    }
}
