//! The threads of a run, and the thread that waits for them.

use super::RunError;
use super::inner::{Inner, Outcome};
use super::source::Source;
use super::watchdog::{Watchdog, WatchdogBell, running};
use super::worker::{Worker, drive};
use crate::net::Driver;
use crate::sched::clock::Clock;
use std::any::Any;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, MutexGuard};
use std::thread::{Builder, JoinHandle};
use std::time::{Duration, Instant};

/// How long cores have to leave after the runtime was closed, before those that are in a handler are
/// called stuck.
const LEAVE_GRACE: Duration = Duration::from_millis(500);
/// The same for those that are not: an event source may wait for the kernel to let go of buffers.
const LEAVE_MAX: Duration = Duration::from_secs(5);

pub(crate) fn run(inner: &Arc<Inner>) -> Result<(), RunError> {
    let cores = inner.shared.cores.len();
    let bell = Box::new(WatchdogBell(Arc::downgrade(inner)));
    inner.shared.hang_bell(inner.shared.watchdog(), bell);
    let mut threads = Vec::with_capacity(cores);
    for core in 0..cores {
        let its = Arc::clone(inner);
        match Builder::new()
            .name(format!("mely-{core}"))
            .spawn(move || thread(&its, core))
        {
            Ok(thread) => threads.push(thread),
            Err(error) => {
                fail(inner, error);
                break;
            }
        }
    }
    let started = threads.len();
    let supervised = supervise(inner, started);
    let stuck = stuck(inner, &inner.outcome.lock().unwrap(), started);
    let died = join(threads, &stuck);
    let verdict = verdict(inner, supervised.deadline_passed, stuck);
    // What panicked after a handler did (when it was dropped, mostly) was said by the process's panic hook, and
    // does not hide the handler's name.
    if let Some(panic) = supervised.panic.or(died)
        && !matches!(verdict, Err(RunError::Panicked { .. }))
    {
        resume_unwind(panic);
    }
    verdict
}

/// What the owner saw while it waited for the cores.
#[derive(Default)]
struct Supervised {
    /// The deadline for draining passed.
    deadline_passed: bool,
    /// The hook for slow handlers panicked.
    panic: Option<Box<dyn Any + Send>>,
}

/// What a run came to, once its cores have left, all but those that are stuck in a handler.
pub(crate) fn verdict(
    inner: &Inner,
    deadline_passed: bool,
    stuck: Vec<(usize, &'static str)>,
) -> Result<(), RunError> {
    let mut outcome = inner.outcome.lock().unwrap();
    outcome.all_left = stuck.is_empty();
    let failure = outcome.failure.take();
    let panic = outcome.panic.take();
    drop(outcome);
    let events_left = inner.events_left();
    if let Some(error) = failure {
        return Err(RunError::Start(error));
    }
    if let Some(panic) = panic {
        return Err(RunError::Panicked { panic, events_left });
    }
    if deadline_passed || !stuck.is_empty() {
        return Err(RunError::Deadline { events_left, stuck });
    }
    Ok(())
}

/// Looks at cores of which none is busy before the watchdog sleeps: one that becomes busy has to wake it.
const IDLE_LOOKS: u32 = 20;

/// Waits until every core has left, or has had its chance to; meanwhile it is the watchdog.
fn supervise(inner: &Inner, started: usize) -> Supervised {
    let mut watchdog = Watchdog::new(inner.shared.cores.len());
    let period = Watchdog::period(inner);
    let (vigil, cores) = (&inner.shared.vigil, &inner.shared.cores);
    let mut idle_looks = 0;
    let mut supervised = Supervised::default();
    let mut forced_at = None;
    let mut outcome = inner.outcome.lock().unwrap();
    while outcome.left.len() < started {
        let now = Instant::now();
        if inner.ended() {
            let since = *forced_at.get_or_insert(now);
            let in_handlers = || {
                let mut staying = (0..started).filter(|core| !outcome.left.contains(core));
                staying.all(|core| running(inner, core).is_some())
            };
            if now - since >= LEAVE_MAX || now - since >= LEAVE_GRACE && in_handlers() {
                break;
            }
        } else if let Some(stop_at) = outcome.stop_at
            && now - stop_at >= inner.config.drain_deadline
        {
            supervised.deadline_passed = true;
            drop(outcome);
            inner.force();
            outcome = inner.outcome.lock().unwrap();
            continue;
        }
        // A deadline beyond what can be reckoned with is none.
        let until_deadline = match (forced_at, outcome.stop_at) {
            // Looked at again after a short while: a core may return from its handler.
            (Some(_), _) => Some(LEAVE_GRACE / 10),
            (None, Some(stop)) => stop
                .checked_add(inner.config.drain_deadline)
                .map(|deadline| deadline.duration_since(now)),
            (None, None) => None,
        };
        idle_looks = if vigil.any_busy(cores) {
            0
        } else {
            idle_looks + 1
        };
        let sleeps = idle_looks > IDLE_LOOKS && vigil.falls_asleep(cores);
        let until_look = (!sleeps && period < Duration::MAX).then_some(period);
        let timeout = [until_deadline, until_look].into_iter().flatten().min();
        outcome = match timeout {
            Some(timeout) => inner.changed.wait_timeout(outcome, timeout).unwrap().0,
            None => inner.changed.wait(outcome).unwrap(),
        };
        vigil.wakes();
        // The hook is the user's: not under our lock.
        drop(outcome);
        if supervised.panic.is_none() {
            let now_ns = inner.start.elapsed().as_nanos() as u64;
            let looked = catch_unwind(AssertUnwindSafe(|| watchdog.look(inner, now_ns)));
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

/// Joins all threads but those that are stuck. Returns what the first died of, if any did: a core's thread catches
/// what handlers panic with, so that is a bug of the runtime's, or the `Drop` of something that a run left behind
/// when it was cut short.
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
fn thread(inner: &Arc<Inner>, core: usize) {
    // Leaves also by a panic, so that the owner does not wait for ever.
    let _leave = Leave { inner, core };
    match begin(inner, core) {
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
        if std::thread::panicking() {
            self.inner.force();
        }
        self.inner.outcome.lock().unwrap().left.push(self.core);
        self.inner.changed.notify_all();
    }
}

fn begin(inner: &Arc<Inner>, core: usize) -> io::Result<Worker> {
    if let Some(pins) = &inner.config.pins {
        let mut set = rustix::thread::CpuSet::new();
        set.set(pins[core] as usize);
        rustix::thread::sched_setaffinity(None, &set)?;
    }
    // The ring is made on the thread that uses it: the kernel holds us to that.
    let (driver, report) = Driver::new(inner, core as u32)?;
    inner.outcome.lock().unwrap().backends.push((core, report));
    inner
        .shared
        .hang_bell(core as u32, Box::new(driver.doorbell()));
    let clock = Clock::Real(inner.start);
    Ok(Worker::new(
        Arc::clone(inner),
        core as u32,
        clock,
        Source::Net(Box::new(driver)),
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
    use crate::{Cores, Runtime};
    use std::sync::mpsc::channel;

    /// A thread that the system refuses never leaves, so nothing else would wake those that wait for it.
    #[test]
    fn cores_that_wait_for_one_that_cannot_begin_are_told() {
        let builder = Runtime::builder().cores(Cores::count(2));
        let runtime = builder.oversubscribe(true).build().unwrap();
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
