//! The cell that a result goes through: from an event, a task or blocking work to the handle.
//!
//! One lock guards a cell. No user code runs under that lock: values, wakers and callbacks are
//! dropped, woken and posted after it is released. So it is never poisoned.
//!
//! ```text
//!                         settle                      take
//!   Open(waiter) ---------------------> Settled, value ----> Settled
//!        |        (wakes the waiter)          |                 |
//!        | detach                             | detach          | detach
//!        +----------------> Detached <--------+-----------------+
//! ```
//!
//! | phase | meaning |
//! |---|---|
//! | `Open` | There is no result yet. The waiter is what is told when it comes: nothing, a thread, a waker, or a callback. The handle sets it, by a poll, a wait or `then`. |
//! | `Settled` | The result has come: a value, or a [`JoinError`]. The one that settles the cell moves it here: the event that was asked, the event that polled the task for the last time, the thread of the pool, or the guard of any of these where it is dropped ([`Asked`](super::Asked)). |
//! | `Detached` | The handle was dropped. A value that comes is dropped where it comes. |
//!
//! Canceling is no phase, because the handle still waits: it is a mark beside the phase, which the
//! event that was asked reads under the lock when its turn comes. If the mark is set by then, the
//! event drops its closure and settles the cell by [`JoinError::Canceled`]; if not, a later mark
//! changes nothing. A task has its mark in its own status ([`crate::task`]), and blocking work is
//! canceled by removing it from the queue of the pool.
//!
//! **Invariants.**
//!
//! - Each cell is settled. All that can settle it is owned by one guard, which settles it when it
//!   is dropped. So no handle waits for ever, whatever becomes of the runtime.
//! - The waiter of an open cell is told once, by the settling thread, after the phase has changed.
//!   A waiter that is set later finds the result instead, since both look under the lock.
//! - A value is dropped once: by the handle that has taken it; by `detach`, if it is in the cell;
//!   else by `settle`, which finds the cell detached.

use super::JoinError;
use crate::Cx;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Arc, Condvar, Mutex, MutexGuard, fault};
use std::mem::replace;
use std::sync::PoisonError;
use std::task::{Poll, Waker};
use std::thread::panicking;
use std::time::Instant;

/// Called with the result, in the event or on the thread that settles the cell.
pub(super) type Deliver<T> = Box<dyn FnOnce(Result<T, JoinError>) + Send>;

struct State<T> {
    phase: Phase<T>,
    canceled: Option<ByPanic>,
    /// The value, if it has come and was not taken. Apart from the phase, and not in a result,
    /// because it may be large: it is moved in and out of here, and through little else.
    value: Option<T>,
}

/// Whether a panic has canceled it.
pub(super) type ByPanic = bool;

/// See the module text.
enum Phase<T> {
    Open(Waiter<T>),
    /// The error is the result if there is no value: there was none, or it was taken.
    Settled(JoinError),
    Detached,
}

enum Waiter<T> {
    None,
    /// On the condition variable.
    Thread,
    Task(Waker),
    /// `stays`: an event of that runtime, which is posted by the event that settles the cell.
    Deliver {
        deliver: Deliver<T>,
        stays: bool,
    },
}

impl<T> State<T> {
    fn is_settled(&self) -> bool {
        matches!(self.phase, Phase::Settled(_))
    }

    /// The result of a settled cell.
    fn take(&mut self) -> Result<T, JoinError> {
        let Phase::Settled(error) = &mut self.phase else {
            unreachable!("it is settled");
        };
        match self.value.take() {
            Some(value) => Ok(value),
            None => Err(replace(error, JoinError::Taken)),
        }
    }
}

/// See the module text.
pub(crate) struct JoinCell<T> {
    state: Mutex<State<T>>,
    /// It was settled: for a thread.
    settles: Condvar,
    /// The same, for a look without the lock.
    settled: AtomicBool,
}

impl<T> JoinCell<T> {
    pub(crate) fn new() -> JoinCell<T> {
        JoinCell {
            state: Mutex::new(State {
                phase: Phase::Open(Waiter::None),
                canceled: None,
                value: None,
            }),
            settles: Condvar::new(),
            settled: AtomicBool::new(false),
        }
    }

    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the event that was asked is to be dropped instead of run.
    pub(super) fn canceled(&self) -> Option<ByPanic> {
        self.state().canceled
    }

    /// Marks the event that was asked as canceled.
    fn mark_canceled(&self) {
        let mut state = self.state();
        state.canceled = Some(state.canceled.unwrap_or(false) || panicking());
        if fault("cancel forgets the waiter")
            && let Phase::Open(waiter) = &mut state.phase
        {
            let forgotten = replace(waiter, Waiter::None);
            drop(state);
            drop(forgotten);
        }
    }

    /// Whether the result may be seen before the event that it becomes: by a thread, or by a task
    /// that has been woken by something else. Its posts must not come before those of the event
    /// that settles the cell.
    fn leaves(&self) -> bool {
        let stays = matches!(
            self.state().phase,
            Phase::Detached | Phase::Open(Waiter::Deliver { stays: true, .. })
        );
        !stays
    }

    /// Settles the cell by a value, if it is not settled.
    pub(crate) fn settle(&self, value: T) {
        let mut state = self.state();
        match self.begin_to_settle(&mut state, JoinError::Taken) {
            None => {
                drop(state);
                drop(value);
            }
            Some(Waiter::Deliver { deliver, .. }) => {
                drop(state);
                deliver(Ok(value));
            }
            Some(waiter) => {
                state.value = Some(value);
                self.end_of_settling(state, waiter);
            }
        }
    }

    /// Settles the cell by an error, if it is not settled.
    pub(crate) fn settle_without(&self, error: JoinError) {
        let mut state = self.state();
        match self.begin_to_settle(&mut state, error) {
            None => {}
            Some(Waiter::Deliver { deliver, .. }) => {
                drop(state);
                deliver(Err(error));
            }
            Some(waiter) => self.end_of_settling(state, waiter),
        }
    }

    /// Settles the phase, and returns the waiter; none if the cell is not open. `error`: the result
    /// once the value is taken, or if there is none.
    fn begin_to_settle(&self, state: &mut State<T>, error: JoinError) -> Option<Waiter<T>> {
        if !matches!(state.phase, Phase::Open(_)) {
            return None;
        }
        match replace(&mut state.phase, Phase::Settled(error)) {
            Phase::Open(waiter) => Some(waiter),
            Phase::Detached | Phase::Settled(_) => unreachable!("it is open"),
        }
    }

    fn end_of_settling(&self, state: MutexGuard<'_, State<T>>, waiter: Waiter<T>) {
        self.settled.store(true, Ordering::Release);
        drop(state);
        match waiter {
            Waiter::Task(waker) => waker.wake(),
            // A system call, whether or not a thread sleeps: so only if one may.
            Waiter::Thread => self.settles.notify_all(),
            Waiter::None | Waiter::Deliver { .. } => {}
        }
    }

    /// Publishes the posts of the event that is about to settle the cell: they come before the
    /// posts of the event or thread that gets the result.
    pub(crate) fn publish_first(&self, cx: &mut Cx) {
        if cx.worker_ref().core.has_outbox() && self.leaves() {
            cx.publish();
        }
    }

    /// Whether the result has come, taken or not.
    pub(crate) fn is_settled(&self) -> bool {
        self.settled.load(Ordering::Acquire)
    }

    /// Gives the result to `deliver`, now or when it comes. `stays`: as an event of the runtime
    /// that settles the cell.
    pub(super) fn deliver(&self, deliver: Deliver<T>, stays: bool) {
        let mut state = self.state();
        if state.is_settled() {
            let result = state.take();
            drop(state);
            deliver(result);
            return;
        }
        let waiter = Waiter::Deliver { deliver, stays };
        let before = replace(&mut state.phase, Phase::Open(waiter));
        drop(state);
        drop(before);
    }

    /// The result, if it has come.
    pub(super) fn try_take(&self) -> Option<Result<T, JoinError>> {
        let mut state = self.state();
        state.is_settled().then(|| state.take())
    }

    /// Waits for the result on this thread.
    pub(super) fn wait(&self, until: Option<Instant>) -> Result<T, JoinError> {
        let mut state = self.state();
        loop {
            if state.is_settled() {
                return state.take();
            }
            let before = replace(&mut state.phase, Phase::Open(Waiter::Thread));
            if !matches!(before, Phase::Open(Waiter::None | Waiter::Thread)) {
                // A waker of an earlier poll, which is user code: dropped without the lock.
                drop(state);
                drop(before);
                state = self.state();
                continue;
            }
            state = match until.map(|until| until.saturating_duration_since(Instant::now())) {
                Some(left) if left.is_zero() => return Err(JoinError::TimedOut),
                Some(left) => {
                    let waited = self.settles.wait_timeout(state, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                None => {
                    let waited = self.settles.wait(state);
                    waited.unwrap_or_else(PoisonError::into_inner)
                }
            };
        }
    }

    /// The result, or `waker` is woken when it comes. `stays`: polled in an event of the runtime
    /// that settles the cell.
    pub(super) fn poll(&self, waker: Waker) -> Poll<Result<T, JoinError>> {
        let mut state = self.state();
        if state.is_settled() && !fault("polled without a second look") {
            return Poll::Ready(state.take());
        }
        let before = replace(&mut state.phase, Phase::Open(Waiter::Task(waker)));
        drop(state);
        drop(before);
        Poll::Pending
    }

    /// The handle is dropped: so is the value, if it has come.
    pub(super) fn detach(&self) {
        let mut state = self.state();
        let before = replace(&mut state.phase, Phase::Detached);
        let value = state.value.take();
        drop(state);
        // User code.
        drop(value);
        drop(before);
    }
}

/// What a handle is of: an event that was asked, which is its cell alone; a task; blocking work;
/// or many handles that were joined.
pub(crate) trait Joined<T>: Send + Sync {
    fn cell(&self) -> &JoinCell<T>;

    /// Cancels it, unless it is over; an event or blocking work, unless it has begun.
    fn cancel(self: Arc<Self>);

    /// The handle is dropped.
    fn detach(&self) {
        self.cell().detach();
    }
}

impl<T: Send> Joined<T> for JoinCell<T> {
    fn cell(&self) -> &JoinCell<T> {
        self
    }

    fn cancel(self: Arc<Self>) {
        self.mark_canceled();
    }
}
