//! A core's thread: turns, idling, and sleep.
//!
//! After each turn the worker goes on if anything ran. Otherwise it spins for a while, searching, and
//! then sleeps by the protocol of [`crate::sched::sleepers`]: announce, fence, look again, wait. A
//! wake-up takes the sleeper some 20 us and costs the waker 7 (peers.md's machine; the halt exit of
//! a virtual processor), so it spins for a few of those first.

use super::inner::Inner;
use super::source::Source;
use crate::Cx;
use crate::sched::clock::Clock;
use crate::sched::core::Core;
use crate::sched::quiesce::{Phase, Reported};
use crate::sched::turn::{Turn, turn};
use crate::sync::atomic::{Ordering, fence};
use crate::sync::{Arc, fault, yield_now, yield_to_model};
use std::cell::Cell;
use std::ptr::NonNull;

/// Pauses between two searches.
const PAUSES: u32 = 16;

/// What belongs to one core's thread.
#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) core: Core,
    pub(crate) inner: Arc<Inner>,
    pub(crate) source: Source,
}

// The worker whose handler runs on this thread, for posters to recognize.
#[cfg(not(loom))]
crate::sync::thread_local! {
    static CURRENT: Cell<*mut Worker> = const { Cell::new(std::ptr::null_mut()) };
}
// Loom's macro has no constant initializers.
#[cfg(loom)]
crate::sync::thread_local! {
    static CURRENT: Cell<*mut Worker> = Cell::new(std::ptr::null_mut());
}

/// This thread's worker, if it is one of this runtime and inside an event.
pub(crate) fn current(inner: &Arc<Inner>) -> Option<NonNull<Worker>> {
    let worker = NonNull::new(CURRENT.try_with(Cell::get).ok()?)?;
    // SAFETY: set by `drive` for as long as the worker lives, on this thread; read only here, and
    // no exclusive borrow of the worker is live while user code, which called us, runs.
    let found = unsafe { worker.as_ref() };
    Arc::ptr_eq(&found.inner, inner).then_some(worker)
}

/// Whether this thread is inside some runtime.
#[cfg_attr(loom, allow(dead_code))]
pub(crate) fn inside() -> bool {
    CURRENT.with(|current| !current.get().is_null())
}

impl Worker {
    pub(crate) fn new(inner: Arc<Inner>, id: u32, clock: Clock, source: Source) -> Worker {
        Worker {
            core: Core::new(Arc::clone(&inner.shared), id, clock),
            inner,
            source,
        }
    }

    /// Turns what the event source completed into posts.
    #[inline]
    pub(crate) fn reap(&mut self) {
        self.source.reap(&mut self.core);
    }

    /// The running event has ended.
    #[inline]
    pub(crate) fn ended(&mut self) {
        self.core.end_event();
    }

    /// Announces, looks again, and sleeps unless there is something to do. `wave` and `phase` are
    /// what the caller acted upon.
    fn park(&mut self, phase: Phase, wave: u64) {
        let shared = Arc::clone(&self.inner.shared);
        let id = self.core.id;
        self.core.end_search(false);
        let pokes = &shared.cores[id as usize].pokes;
        if !pokes.park() {
            return;
        }
        shared.sleepers.set(id);
        if !fault("sleeper's fence skipped") {
            fence(Ordering::SeqCst);
        }
        let stay = !fault("second look before parking skipped")
            && (self.core.anything_to_do()
                || shared.quiesce.phase() != phase
                || shared.quiesce.wave() != wave
                || self.source.has_work());
        if stay {
            yield_to_model();
        } else {
            shared.cores[id as usize].stats.parks.add(1);
            self.source.wait(&self.core);
        }
        shared.sleepers.clear(id);
        // Fails if a poke or a waker was first, which is as good.
        let _ = pokes.unpark();
    }
}

/// Runs a core until the runtime has ended.
pub(crate) fn drive(worker: &mut Worker) {
    enter(worker, run_until_closed);
}

/// Makes this thread the worker's for the time of `f`.
pub(crate) fn enter<R>(worker: &mut Worker, f: impl FnOnce(&mut Cx) -> R) -> R {
    let worker = NonNull::from(worker);
    let before = CURRENT.with(|current| current.replace(worker.as_ptr()));
    // SAFETY: the worker outlives this function, is this thread's, and has no other context.
    let mut cx = unsafe { Cx::new(worker) };
    let result = f(&mut cx);
    CURRENT.with(|current| current.set(before));
    result
}

fn run_until_closed(cx: &mut Cx) {
    let mut idle_since_ns = None;
    let mut draining = false;
    loop {
        let ran = turn(cx);
        let worker = cx.worker();
        let phase = worker.inner.shared.quiesce.phase();
        if phase == Phase::Closed {
            break;
        }
        if phase == Phase::Draining && !std::mem::replace(&mut draining, true) {
            // At once and not when idle: a core whose peers keep it busy would never be.
            worker.source.begin_drain(&mut worker.core);
        }
        if ran == Turn::Ran {
            idle_since_ns = None;
            continue;
        }
        let now_ns = worker.core.clock.now_ns();
        let since_ns = *idle_since_ns.get_or_insert(now_ns);
        // A runtime that looks for its end must not spin past it.
        let spin_ns = if draining {
            0
        } else {
            worker.inner.config.spin_ns
        };
        if now_ns - since_ns < spin_ns {
            relax(&worker.core, worker.inner.config.oversubscribed);
            continue;
        }
        if !rest(worker, phase) {
            break;
        }
        idle_since_ns = None;
    }
}

/// Sleeps, or, when the end is near, reports that this core has nothing left. False: the runtime
/// has ended.
fn rest(worker: &mut Worker, phase: Phase) -> bool {
    let inner = Arc::clone(&worker.inner);
    let quiesce = &inner.shared.quiesce;
    let wave = quiesce.wave();
    let ending = phase == Phase::Draining || inner.config.exit_when_idle;
    if ending && worker.source.is_quiet() && !worker.core.has_outbox() {
        match quiesce.report(worker.core.id, worker.core.posted, worker.core.executed) {
            Reported::Waiting => {}
            Reported::NextWave => {
                inner.shared.wake_all();
                // Not between the two waves of which the second may close.
                if wave % 2 == 1 {
                    yield_to_model();
                }
                return true;
            }
            Reported::Closed => {
                inner.shared.wake_all();
                return false;
            }
        }
    }
    worker.park(phase, wave);
    true
}

/// Waits a little before the next look at the event source and at the others: some hundred nanoseconds
/// between looks keep the victims' lines mostly the victims'. (A pause takes from 10 to 50 ns.) What is
/// sent to this core it sees at once.
fn relax(core: &Core, oversubscribed: bool) {
    if oversubscribed {
        yield_now();
        return;
    }
    for _ in 0..PAUSES {
        if core.is_called() {
            return;
        }
        std::hint::spin_loop();
    }
}
