//! The handle for what an event will return, and the cell behind it.
//!
//! The cell is settled once, by the event or by whoever drops it, and taken once, by the asker. One
//! lock guards it. No code of the user's runs under that lock: values, wakers and callbacks are
//! dropped, woken and posted after it is released. So it is never poisoned.

use crate::Cx;
use crate::callback::Callback;
use crate::event::node::is_boxed;
use crate::host::inner::Inner;
use crate::host::poster::Poster;
use crate::host::quiesce::Until;
use crate::host::worker;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::fmt;
use std::future::Future;
use std::mem::replace;
use std::pin::Pin;
use std::sync::PoisonError;
use std::task::{Context, Poll, Waker};
use std::thread::panicking;
use std::time::{Duration, Instant};

/// Why there is no reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NoReply {
    /// The event that was asked panicked. Or the state of a [`Colored`](crate::Colored) is
    /// poisoned, since an earlier one did.
    Panicked,
    /// The event was dropped and not run: the run was cut short, or the runtime never ran.
    Dropped,
    /// The task was canceled before it was over: see [`Task::cancel`](crate::Task::cancel).
    Canceled,
    /// It has not come in time; it may still come.
    TimedOut,
    /// Waiting inside a handler would block its core, and with it perhaps the very color that is
    /// asked: use [`Reply::then`].
    Inside,
    /// The reply was taken before.
    Taken,
    /// The runtime that was to be asked is at its limit of queued events.
    Full,
}

impl NoReply {
    /// Why there is none, if what would settle it is dropped now.
    pub(crate) fn of_a_drop() -> NoReply {
        if panicking() {
            NoReply::Panicked
        } else {
            NoReply::Dropped
        }
    }
}

impl fmt::Display for NoReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            NoReply::Panicked => "the event that was asked panicked",
            NoReply::Dropped => "the run ended before the event that was asked",
            NoReply::Canceled => "the task was canceled",
            NoReply::TimedOut => "no reply has come in time",
            NoReply::Inside => "waiting inside a handler would block its core: use `then`",
            NoReply::Taken => "the reply was taken before",
            NoReply::Full => "the limit of queued events is reached (Builder::events_max)",
        })
    }
}

impl std::error::Error for NoReply {}

/// Called with what has come, in whatever event or thread it comes from.
pub(super) type Deliver<R> = Box<dyn FnOnce(Result<R, NoReply>) + Send>;

struct ReplyState<R> {
    phase: Phase<R>,
    /// The value, if it has come and was not taken. Apart from the phase, and not in a result,
    /// because it may be large: it is moved in and out of here, and through little else.
    come: Option<R>,
}

enum Phase<R> {
    /// Nothing has come.
    Open(Waiter<R>),
    /// The asker has gone.
    Canceled {
        /// A panic took it.
        by_panic: bool,
    },
    /// The reply has come. This is what it is without a value: it had none, or was taken.
    Settled(NoReply),
}

enum Waiter<R> {
    Nobody,
    /// On the condition variable.
    Thread,
    /// `stays`: polled in an event of the runtime that was asked.
    Task {
        waker: Waker,
        stays: bool,
    },
    Deliver {
        deliver: Deliver<R>,
        /// To an event of the same runtime, which is posted by the event that was asked.
        stays: bool,
    },
}

impl<R> ReplyState<R> {
    fn has_come(&self) -> bool {
        matches!(self.phase, Phase::Settled(_))
    }

    /// The reply, which has come.
    fn take(&mut self) -> Result<R, NoReply> {
        let Phase::Settled(none) = &mut self.phase else {
            unreachable!("it has come");
        };
        match self.come.take() {
            Some(value) => Ok(value),
            None => Err(replace(none, NoReply::Taken)),
        }
    }
}

/// See the module text.
pub(crate) struct ReplyCell<R> {
    state: Mutex<ReplyState<R>>,
    /// It was settled: for a thread.
    come: Condvar,
    /// The same, for who looks without the lock.
    settled: AtomicBool,
}

impl<R> ReplyCell<R> {
    pub(crate) fn new() -> ReplyCell<R> {
        ReplyCell {
            state: Mutex::new(ReplyState {
                phase: Phase::Open(Waiter::Nobody),
                come: None,
            }),
            come: Condvar::new(),
            settled: AtomicBool::new(false),
        }
    }

    fn state(&self) -> MutexGuard<'_, ReplyState<R>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the asker has gone; and if so, whether a panic took it.
    pub(super) fn canceled(&self) -> Option<bool> {
        match self.state().phase {
            Phase::Canceled { by_panic } => Some(by_panic),
            _ => None,
        }
    }

    /// Whether the reply may leave the runtime: to a thread, say, whose posts must not come before
    /// those of the event that was asked.
    fn leaves(&self) -> bool {
        let stays = matches!(
            self.state().phase,
            Phase::Canceled { .. }
                | Phase::Open(
                    Waiter::Deliver { stays: true, .. } | Waiter::Task { stays: true, .. }
                )
        );
        !stays
    }

    /// This is the reply, if it is the first.
    pub(crate) fn settle(&self, value: R) {
        let mut state = self.state();
        match self.begin_to_settle(&mut state, NoReply::Taken) {
            None => {
                drop(state);
                drop(value);
            }
            Some(Waiter::Deliver { deliver, .. }) => {
                drop(state);
                deliver(Ok(value));
            }
            Some(waiter) => {
                state.come = Some(value);
                self.end_of_settling(state, waiter);
            }
        }
    }

    /// There is no value, and this is why, unless there was a reply before.
    pub(crate) fn settle_without(&self, why: NoReply) {
        let mut state = self.state();
        match self.begin_to_settle(&mut state, why) {
            None => {}
            Some(Waiter::Deliver { deliver, .. }) => {
                drop(state);
                deliver(Err(why));
            }
            Some(waiter) => self.end_of_settling(state, waiter),
        }
    }

    /// Settles the phase, and returns the waiter. `none`: the reply once its value is taken, or if it
    /// has none. None if the reply is not open.
    fn begin_to_settle(&self, state: &mut ReplyState<R>, none: NoReply) -> Option<Waiter<R>> {
        if !matches!(state.phase, Phase::Open(_)) {
            return None;
        }
        match replace(&mut state.phase, Phase::Settled(none)) {
            Phase::Open(waiter) => Some(waiter),
            Phase::Canceled { .. } | Phase::Settled(_) => unreachable!("it is open"),
        }
    }

    fn end_of_settling(&self, state: MutexGuard<'_, ReplyState<R>>, waiter: Waiter<R>) {
        self.settled.store(true, Ordering::Release);
        drop(state);
        match waiter {
            Waiter::Task { waker, .. } => waker.wake(),
            // A system call, whether or not it sleeps: so not for nobody.
            Waiter::Thread => self.come.notify_all(),
            Waiter::Nobody | Waiter::Deliver { .. } => {}
        }
    }

    /// Publishes the posts of the event that is about to settle the reply: they come before the posts
    /// of the asker.
    pub(crate) fn publish_first(&self, cx: &mut Cx) {
        if cx.worker_ref().core.has_outbox() && self.leaves() {
            cx.publish();
        }
    }

    /// Whether it was settled.
    pub(crate) fn is_settled(&self) -> bool {
        self.settled.load(Ordering::Acquire)
    }

    /// Gives the reply to `deliver`, now or when it comes. `stays`: as an event of the runtime of
    /// the event that was asked.
    pub(super) fn deliver(&self, deliver: Deliver<R>, stays: bool) {
        let mut state = self.state();
        if state.has_come() {
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
}

/// What can be canceled.
pub(crate) trait Cancel: Send + Sync {
    /// Nobody waits for the reply any more.
    fn cancel(&self);
}

impl<R: Send> Cancel for ReplyCell<R> {
    fn cancel(&self) {
        let mut state = self.state();
        let by_panic = panicking();
        let before = replace(&mut state.phase, Phase::Canceled { by_panic });
        let come = state.come.take();
        drop(state);
        // Code of the user's.
        drop(come);
        drop(before);
    }
}

/// What has the cell of a reply: the cell itself, or a task whose reply it is.
pub(crate) trait Replies<R>: Cancel {
    fn cell(&self) -> &ReplyCell<R>;

    /// Has the task's future dropped, in its color, unless it is over before.
    fn cancel_task(self: Arc<Self>) {}
}

impl<R: Send> Replies<R> for ReplyCell<R> {
    fn cell(&self) -> &ReplyCell<R> {
        self
    }
}

/// A handle for what an event will return: [`Cx::ask`], [`Post::try_ask`](crate::Post::try_ask),
/// [`Colored::ask`](crate::Colored::ask). Nothing in the runtime ever waits for it: a color that
/// waited for another one might share its slot, and wait for itself.
///
/// | who asks | gets the reply by |
/// |---|---|
/// | a handler | [`then`](Self::then): an event of the callback's color |
/// | a thread | [`recv`](Self::recv), [`recv_timeout`](Self::recv_timeout) |
/// | a future | `.await` |
/// | anybody | [`try_recv`](Self::try_recv) |
///
/// [`gather`](crate::gather) makes one of many.
///
/// Dropped, it cancels: if the event has not begun its closure is dropped, in its color, when its
/// turn comes. What has begun runs to its end, and what it returns is dropped there.
///
/// What the event wrote before it returned is visible to whoever has the reply; and what it posted
/// comes before what whoever has it posts, as if there had been a [`Cx::flush`]. (Neither, if it
/// has panicked.)
#[must_use = "dropped, it cancels what was asked"]
pub struct Reply<R: Send + 'static> {
    /// None when it is given to `then` or `gather`.
    cell: Option<Arc<dyn Replies<R>>>,
    /// What else is canceled with it.
    parts: Vec<Arc<dyn Cancel>>,
    /// Its drop cancels the task as well.
    owns_task: bool,
    /// The address of the runtime of the event, 0 if there are several.
    runtime: usize,
    /// It has come, by a poll: nothing is left to cancel.
    taken: bool,
}

impl<R: Send + 'static> Reply<R> {
    pub(super) fn of(cell: Arc<dyn Replies<R>>, runtime: usize) -> Reply<R> {
        Reply::of_parts(cell, Vec::new(), runtime)
    }

    /// That of a task of this runtime.
    pub(crate) fn of_task(task: Arc<dyn Replies<R>>, inner: &Arc<Inner>) -> Reply<R> {
        let mut reply = Reply::of(task, Arc::as_ptr(inner).addr());
        reply.owns_task = true;
        reply
    }

    /// Dropped, it leaves the task alone.
    pub(crate) fn disown(&mut self) {
        self.owns_task = false;
    }

    /// One that cancels `parts`, too.
    pub(super) fn of_parts(
        cell: Arc<dyn Replies<R>>,
        parts: Vec<Arc<dyn Cancel>>,
        runtime: usize,
    ) -> Reply<R> {
        Reply {
            cell: Some(cell),
            parts,
            owns_task: false,
            runtime,
            taken: false,
        }
    }

    pub(super) fn runtime(&self) -> usize {
        self.runtime
    }

    /// The cell, and what is to be canceled with it: both are the caller's from now on.
    pub(super) fn into_parts(mut self) -> (Arc<dyn Replies<R>>, Vec<Arc<dyn Cancel>>) {
        let cell = self.cell.take().expect("taken by what consumes it only");
        (cell, std::mem::take(&mut self.parts))
    }

    /// Cancels the task that it is the reply of.
    pub(crate) fn cancel_task(&self) {
        if let Some(cell) = &self.cell {
            Arc::clone(cell).cancel_task();
        }
    }

    pub(crate) fn cell(&self) -> &ReplyCell<R> {
        let cell = self.cell.as_ref();
        cell.expect("taken by what consumes it only").cell()
    }

    /// The reply becomes an event of the callback's color, in the runtime of `cx`, which may be
    /// another one than was asked: it is kept from ending until then. If the reply is there already
    /// the event is posted now, else when it comes, by the event that was asked; also at the
    /// builder's limit of queued events.
    ///
    /// Given to a [`NoReply`], if the event panics. If the run of `cx` is cut short, the callback
    /// is dropped with all that was left.
    pub fn then<F>(self, cx: &Cx, callback: Callback<F>)
    where
        F: FnOnce(&mut Cx, Result<R, NoReply>) + Send + 'static,
    {
        let Callback { handler, color, f } = callback;
        let inner = &cx.worker_ref().inner;
        // Of the same runtime, the event that is asked keeps it.
        let stays = self.runtime == Arc::as_ptr(inner).addr();
        let keep_alive = (!stays).then(|| cx.strong_poster());
        let poster = Poster::of(inner);
        let (cell, _parts) = self.into_parts();
        let deliver = move |result| {
            // Refused once the run was cut short.
            if const { is_boxed::<Result<R, NoReply>>() } {
                // At once: it may be large.
                let result = Box::new(result);
                let event = move |cx: &mut Cx| f(cx, *result);
                drop(poster.post_own_until(Until::End, handler, color, event));
            } else {
                let event = move |cx: &mut Cx| f(cx, result);
                drop(poster.post_own_until(Until::End, handler, color, event));
            }
            drop(keep_alive);
        };
        cell.cell().deliver(Box::new(deliver), stays);
    }

    /// Waits for the reply.
    ///
    /// In a simulation (`mely::sim`) the thread that steps must not wait, since nothing goes on
    /// meanwhile: it asks by [`try_recv`](Self::try_recv) between two steps.
    ///
    /// # Errors
    /// [`NoReply::Inside`] in a handler of whatever runtime, at once. Else as [`NoReply`] says;
    /// whatever becomes of the event and its runtime, something comes.
    pub fn recv(&mut self) -> Result<R, NoReply> {
        self.recv_until(None)
    }

    /// Waits for the reply, at most for this time. It can be waited for again.
    ///
    /// ```
    /// use mely::{Post, Color, NoReply, Runtime};
    /// use std::time::Duration;
    /// let runtime = Runtime::builder().build()?;
    /// let mut reply = runtime.poster().try_ask(Color::from(4), |_cx| 5)?;
    /// // The run has not begun.
    /// let early = reply.recv_timeout(Duration::from_millis(1));
    /// assert_eq!(early, Err(NoReply::TimedOut));
    /// runtime.run(|cx| cx.stop())?;
    /// assert_eq!(reply.recv_timeout(Duration::from_millis(1)), Ok(5));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`recv`](Self::recv), and [`NoReply::TimedOut`].
    pub fn recv_timeout(&mut self, timeout: Duration) -> Result<R, NoReply> {
        self.recv_until(Instant::now().checked_add(timeout))
    }

    fn recv_until(&mut self, until: Option<Instant>) -> Result<R, NoReply> {
        if worker::would_block() {
            return Err(NoReply::Inside);
        }
        let cell = self.cell();
        let mut state = cell.state();
        loop {
            if state.has_come() {
                return state.take();
            }
            let before = replace(&mut state.phase, Phase::Open(Waiter::Thread));
            if !matches!(before, Phase::Open(Waiter::Nobody | Waiter::Thread)) {
                // A waker of an earlier poll, which is somebody's: dropped without the lock.
                drop(state);
                drop(before);
                state = cell.state();
                continue;
            }
            state = match until.map(|until| until.saturating_duration_since(Instant::now())) {
                Some(Duration::ZERO) => return Err(NoReply::TimedOut),
                Some(left) => {
                    let waited = cell.come.wait_timeout(state, left);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                None => {
                    let waited = cell.come.wait(state);
                    waited.unwrap_or_else(PoisonError::into_inner)
                }
            };
        }
    }

    /// The reply, if it has come. Never waits.
    pub fn try_recv(&mut self) -> Option<Result<R, NoReply>> {
        let mut state = self.cell().state();
        state.has_come().then(|| state.take())
    }
}

impl<R: Send + 'static> Future for Reply<R> {
    type Output = Result<R, NoReply>;

    /// Ready with [`NoReply::Taken`] if it was before.
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let cell = this.cell.as_ref();
        let cell = cell.expect("taken by what consumes it only").cell();
        if cell.is_settled() {
            let mut state = cell.state();
            if state.has_come() {
                this.taken = true;
                return Poll::Ready(state.take());
            }
        }
        // A waker's code is the user's: cloned before the lock, dropped after it.
        let waker = cx.waker().clone();
        // Whoever is woken there posts behind what the event that was asked has posted.
        let runtime = std::ptr::without_provenance::<Inner>(this.runtime);
        let stays = worker::lend_current(runtime, (), |_worker, ()| ()).is_ok();
        let mut state = cell.state();
        if state.has_come() {
            return Poll::Ready(state.take());
        }
        let before = replace(&mut state.phase, Phase::Open(Waiter::Task { waker, stays }));
        drop(state);
        drop(before);
        Poll::Pending
    }
}

impl<R: Send + 'static> Drop for Reply<R> {
    fn drop(&mut self) {
        if self.taken {
            return;
        }
        if let Some(cell) = self.cell.take() {
            // First, because what is dropped with the reply may panic.
            if self.owns_task {
                Arc::clone(&cell).cancel_task();
            }
            cell.cancel();
        }
        for part in &self.parts {
            part.cancel();
        }
    }
}

impl<R: Send + 'static> fmt::Debug for Reply<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reply").finish_non_exhaustive()
    }
}
