//! The handle for a result; see [`super::cell`] for how it comes.

use super::cell::{JoinCell, Joined};
use crate::Cx;
use crate::callback::Callback;
use crate::event::node::is_boxed;
use crate::host::poster::Poster;
use crate::host::quiesce::Until;
use crate::host::worker;
use crate::sync::Arc;
use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::thread::panicking;
use std::time::{Duration, Instant};

/// Why a [`JoinHandle`] has no value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum JoinError {
    /// The event, the task or the blocking work panicked. Or the state of a
    /// [`Colored`](crate::Colored) is poisoned, since an earlier event panicked.
    Panicked,
    /// It was dropped before it was over: the run was cut short, or the runtime never ran.
    Dropped,
    /// It was canceled before it was over; see [`JoinHandle::cancel`].
    Canceled,
    /// The result has not come in time. It may still come.
    TimedOut,
    /// The thread must not wait. A wait inside a handler would block its core, and with it perhaps
    /// the color that the result comes from: use [`JoinHandle::then`].
    Inside,
    /// The result was taken before.
    Taken,
    /// The runtime that was to be asked is at its limit of queued events.
    Full,
}

impl JoinError {
    /// The error of a cell whose guard is dropped now.
    pub(crate) fn of_a_drop() -> JoinError {
        if panicking() {
            JoinError::Panicked
        } else {
            JoinError::Dropped
        }
    }
}

impl fmt::Display for JoinError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            JoinError::Panicked => "the event, task or work panicked",
            JoinError::Dropped => "the run ended before the event, task or work was over",
            JoinError::Canceled => "the event, task or work was canceled",
            JoinError::TimedOut => "no result has come in time",
            JoinError::Inside => "waiting inside a handler would block its core: use `then`",
            JoinError::Taken => "the result was taken before",
            JoinError::Full => "the limit of queued events is reached (Builder::events_max)",
        })
    }
}

impl std::error::Error for JoinError {}

/// Of the kind `Other`, with this as its source.
impl From<JoinError> for io::Error {
    fn from(error: JoinError) -> io::Error {
        io::Error::other(error)
    }
}

/// A handle for the result of an event, a task or blocking work.
///
/// | made by | result |
/// |---|---|
/// | [`Cx::ask`], [`Post::try_ask`](crate::Post::try_ask), [`Colored::ask`](crate::Colored::ask) | the value that the event returns |
/// | [`Cx::spawn`], [`Hold::until`](crate::Hold::until) | the output of the future |
/// | [`Cx::try_blocking`] | the value that the work returns |
/// | operations on files (`mely::fs`), [`Stream::send_file`](crate::net::Stream::send_file) | as each says |
/// | [`join_all`](crate::task::join_all) | the results of many handles |
///
/// No color ever waits for a result: two colors may share a slot, and would wait for each other.
/// So it depends on the caller how the result is taken:
///
/// | caller | by |
/// |---|---|
/// | a handler | [`then`](Self::then): an event of the callback's color |
/// | a thread | [`recv`](Self::recv), [`recv_timeout`](Self::recv_timeout) |
/// | a future | `.await` |
/// | any | [`try_recv`](Self::try_recv) |
///
/// # Dropping
/// Dropping a handle detaches it: the event, the task or the work goes on, and its value is dropped
/// where it comes. That is an event of the color, or the thread that ran the blocking work. A value
/// that is there already is dropped with the handle. To cancel instead, see
/// [`cancel_on_drop`](Self::cancel_on_drop).
///
/// # Order
/// All that was written before the result is visible with it. Posts of the event or the task come
/// before posts that are made with the result, as if there had been a [`Cx::flush`]. (This does not
/// hold for a panic.)
pub struct JoinHandle<T: Send + 'static> {
    /// None once it was given to `then` or `join_all`.
    of: Option<Arc<dyn Joined<T>>>,
    cancels_on_drop: bool,
    /// The address of the runtime that settles it, 0 if there are several.
    runtime: usize,
    /// A poll has returned the result: nothing is left to be canceled or dropped.
    taken: bool,
}

impl<T: Send + 'static> JoinHandle<T> {
    pub(crate) fn of(of: Arc<dyn Joined<T>>, runtime: usize) -> JoinHandle<T> {
        JoinHandle {
            of: Some(of),
            cancels_on_drop: false,
            runtime,
            taken: false,
        }
    }

    pub(super) fn runtime(&self) -> usize {
        self.runtime
    }

    /// What it is a handle of, for the caller to detach or to wait for.
    pub(super) fn into_joined(mut self) -> Arc<dyn Joined<T>> {
        self.of.take().expect("taken by what consumes it only")
    }

    fn joined(&self) -> &Arc<dyn Joined<T>> {
        let of = self.of.as_ref();
        of.expect("taken by what consumes it only")
    }

    fn cell(&self) -> &JoinCell<T> {
        self.joined().cell()
    }

    /// Posts the result as an event of the callback's color, in the runtime of `cx`. If the result
    /// is there already the event is posted now, as by [`Cx::post`]; else it is posted when the
    /// result comes, by the event or thread that it comes from. Also at the builder's limit of
    /// queued events.
    ///
    /// The runtime of `cx` may be another one than that of the event, task or work: it is kept from
    /// ending until then. If the run of `cx` is cut short, the callback is dropped with all other
    /// events.
    pub fn then<F>(self, cx: &Cx, callback: Callback<F>)
    where
        F: FnOnce(&mut Cx, Result<T, JoinError>) + Send + 'static,
    {
        let Callback { handler, color, f } = callback;
        let inner = &cx.worker_ref().inner;
        // Of the same runtime, the event, task or work keeps it.
        let stays = self.runtime == Arc::as_ptr(inner).addr();
        let keep_alive = (!stays).then(|| cx.strong_poster());
        let poster = Poster::of(inner);
        let of = self.into_joined();
        let deliver = move |result| {
            // Refused once the run was cut short.
            if const { is_boxed::<Result<T, JoinError>>() } {
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
        of.cell().deliver(Box::new(deliver), stays);
    }

    /// Waits for the result.
    ///
    /// In a simulation (`mely::sim`) the thread that steps must not wait, since nothing goes on
    /// meanwhile: it calls [`try_recv`](Self::try_recv) between two steps.
    ///
    /// # Errors
    /// [`JoinError::Inside`] in a handler of any runtime, at once. Else see [`JoinError`]. Whatever
    /// becomes of the event, task or work and its runtime, a result comes.
    pub fn recv(&mut self) -> Result<T, JoinError> {
        self.recv_until(None)
    }

    /// Waits for the result, at most for this time. It can be waited for again.
    ///
    /// ```
    /// use mely::task::JoinError;
    /// use mely::{Color, Post, Runtime};
    /// use std::time::Duration;
    /// let runtime = Runtime::builder().build()?;
    /// let mut handle = runtime.poster().try_ask(Color::from(4), |_cx| 5)?;
    /// // The run has not begun.
    /// let early = handle.recv_timeout(Duration::from_millis(1));
    /// assert_eq!(early, Err(JoinError::TimedOut));
    /// runtime.run(|cx| cx.stop())?;
    /// assert_eq!(handle.recv_timeout(Duration::from_millis(1)), Ok(5));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`recv`](Self::recv), and [`JoinError::TimedOut`].
    pub fn recv_timeout(&mut self, timeout: Duration) -> Result<T, JoinError> {
        self.recv_until(Instant::now().checked_add(timeout))
    }

    fn recv_until(&mut self, until: Option<Instant>) -> Result<T, JoinError> {
        if worker::would_block() {
            return Err(JoinError::Inside);
        }
        self.cell().wait(until)
    }

    /// Returns the result, if it has come. Never waits.
    pub fn try_recv(&mut self) -> Option<Result<T, JoinError>> {
        self.cell().try_take()
    }

    /// Cancels the event, task or work. The handle gives the result all the same:
    /// [`JoinError::Canceled`] once the closure or the future was dropped, or the result that was
    /// there before.
    ///
    /// | | state | becomes |
    /// |---|---|---|
    /// | event | not begun | its closure is dropped in its color, when its turn comes |
    /// | task | not over | its future is dropped in its color, at its next turn |
    /// | blocking work | not begun | its closure is dropped by this call |
    /// | operation on a file | not over | see `mely::fs` |
    /// | of [`join_all`](crate::task::join_all) | | each of the handles is canceled |
    ///
    /// In any other state nothing changes: an event or work that has begun goes on to its end.
    ///
    /// ```
    /// use mely::task::JoinError;
    /// use mely::{Color, Runtime};
    /// use std::sync::Arc;
    /// let left = Runtime::builder().build()?.run_until(|cx, finish| {
    ///     let file = Arc::new("what the task has open");
    ///     let its = Arc::clone(&file);
    ///     let task = cx.spawn(Color::from(7), async move {
    ///         let _its = its;
    ///         std::future::pending::<()>().await;
    ///     });
    ///     cx.spawn(Color::from(8), async move {
    ///         task.cancel();
    ///         assert_eq!(task.await, Err(JoinError::Canceled));
    ///         finish.finish(Arc::strong_count(&file));
    ///     });
    /// })?;
    /// assert_eq!(left, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    /// If the closure of blocking work panics when it is dropped.
    pub fn cancel(&self) {
        Arc::clone(self.joined()).cancel();
    }

    /// Returns the handle, which from now on cancels when it is dropped, as
    /// [`cancel`](Self::cancel) does. A handle that is given to [`then`](Self::then) or
    /// [`join_all`](crate::task::join_all) is not dropped.
    ///
    /// ```
    /// use mely::task::sleep;
    /// use mely::{Color, Runtime};
    /// use std::time::Duration;
    /// Runtime::builder().exit_when_idle(true).build()?.run(|cx| {
    ///     let repeats = cx.spawn(Color::from(7), async {
    ///         loop {
    ///             sleep(Duration::from_secs(1)).await;
    ///         }
    ///     });
    ///     // The run ends: this handle cancels the task.
    ///     drop(repeats.cancel_on_drop());
    /// })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use = "dropped, it cancels"]
    pub fn cancel_on_drop(mut self) -> JoinHandle<T> {
        self.cancels_on_drop = true;
        self
    }

    /// Returns whether the result has come, also if it was taken.
    pub fn is_finished(&self) -> bool {
        self.cell().is_settled()
    }
}

impl<T: Send + 'static> Future for JoinHandle<T> {
    type Output = Result<T, JoinError>;

    /// Ready with [`JoinError::Taken`] if the result was taken before.
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        let of = this.of.as_ref();
        let cell = of.expect("taken by what consumes it only").cell();
        if cell.is_settled()
            && let Some(result) = cell.try_take()
        {
            this.taken = true;
            return Poll::Ready(result);
        }
        // A waker's code is the user's: cloned before the lock, dropped after it.
        let waker = cx.waker().clone();
        cell.poll(waker)
    }
}

impl<T: Send + 'static> Drop for JoinHandle<T> {
    fn drop(&mut self) {
        if self.taken {
            return;
        }
        if let Some(of) = self.of.take() {
            if self.cancels_on_drop {
                Arc::clone(&of).cancel();
            }
            of.detach();
        }
    }
}

impl<T: Send + 'static> fmt::Debug for JoinHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinHandle").finish_non_exhaustive()
    }
}
