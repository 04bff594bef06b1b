//! Futures that belong to a color: their context, time, and joining.
//!
//! [`Cx::spawn`] runs a future in a color: each poll is an event of that color, so nothing else of
//! the color runs between two `.await`s, and what the future touches there needs no lock. Inside,
//! [`with_cx`] gives the context; [`sleep`], [`timeout`], [`yield_now`] and [`stopping`] wait.

// `body` has the state of a task and says when it is polled, `ambient` is how code inside of it
// reaches the context. The result of a task comes as that of an event that was asked (`crate::ask`).

pub(crate) mod ambient;
mod body;
#[cfg(not(loom))]
pub(crate) mod time;

pub use self::ambient::{try_with_cx, with_cx};
#[cfg(not(loom))]
pub use self::time::{Elapsed, sleep, stopping, timeout, yield_now};
pub use crate::ask::{JoinError, join_all};

use self::body::{Body, First, boxed_event, event};
use crate::ask::JoinHandle;
use crate::colored::Colored;
use crate::event::node::{AtLimit, Sort};
use crate::gate::HoldId;
use crate::hold::Hold;
use crate::host::holding::arrive;
use crate::host::poster::Poster;
use crate::host::quiesce::Until;
use crate::post::sealed;
use crate::rejected::{Reason, Rejected};
use crate::sync::Arc;
use crate::{Color, Cx, Handler};
use std::future::Future;

/// A future of at most this many bytes lies in the task's first event until that runs. A larger one
/// is not moved there and back.
const IN_EVENT_BYTES: usize = 128;

/// Makes a task of a future, which is in a box or not: its handle, and what its first event runs.
fn make<F, B>(
    poster: Poster,
    handler: Option<&'static Handler>,
    color: Color,
    hold: Option<HoldId>,
    future: B,
) -> (JoinHandle<F::Output>, First<F, B>)
where
    F: Future<Output: Send + 'static> + Send + 'static,
{
    let runtime = Arc::as_ptr(&poster.inner).addr();
    let body = Body::<F>::new(poster, handler, color, hold);
    let task = JoinHandle::of(Arc::<Body<F>>::clone(&body), runtime);
    (task, First::new(body, future))
}

/// Spawns a task, or gives the future back.
fn spawn<P, F>(
    by: &P,
    handler: Option<&'static Handler>,
    color: Color,
    future: F,
) -> Result<JoinHandle<F::Output>, Rejected<F>>
where
    P: sealed::Post + ?Sized,
    F: Future<Output: Send + 'static> + Send + 'static,
{
    if const { size_of::<F>() <= IN_EVENT_BYTES } {
        let poster = by.to_poster();
        let mut task = None;
        by.post_wrapped(handler, color, future, |future| {
            let (made, first) = make(poster, handler, color, None, future);
            task = Some(made);
            event(first)
        })?;
        Ok(task.expect("what was posted was made"))
    } else {
        // At once: it may be larger than a stack has room for many times.
        spawn_boxed(by, handler, color, Box::new(future)).map_err(unboxed)
    }
}

/// The same with a future that is in a box.
fn spawn_boxed<P, F>(
    by: &P,
    handler: Option<&'static Handler>,
    color: Color,
    future: Box<F>,
) -> Result<JoinHandle<F::Output>, Rejected<Box<F>>>
where
    P: sealed::Post + ?Sized,
    F: Future<Output: Send + 'static> + Send + 'static,
{
    let poster = by.to_poster();
    let mut task = None;
    by.post_wrapped(handler, color, future, |future| {
        let (made, first) = make(poster, handler, color, None, Box::into_pin(future));
        task = Some(made);
        boxed_event(first)
    })?;
    Ok(task.expect("what was posted was made"))
}

/// A refusal, with the future as it was given. Apart, for what it takes of the stack.
#[cold]
#[inline(never)]
fn unboxed<F>(refused: Rejected<Box<F>>) -> Rejected<F> {
    Rejected::new(refused.reason, *refused.value)
}

/// Spawns a task, also at the limit of queued events. Dropped at once if the run is over.
#[cfg(not(loom))]
pub(crate) fn spawn_own<F>(poster: &Poster, color: Color, future: F) -> JoinHandle<F::Output>
where
    F: Future<Output: Send + 'static> + Send + 'static,
{
    let (task, first) = make(poster.clone(), None, color, None, Box::pin(future));
    drop(poster.post_own_until(Until::End, None, color, boxed_event(first)));
    task
}

impl Cx {
    /// Runs a future in `color`: it is polled by events of that color, one after the other, on
    /// whatever core the color is. So between two of its `.await`s it is what a handler is: nothing
    /// else of the color runs meanwhile, and what it reads and writes needs no lock. At an `.await`
    /// that is not ready, other events of the color run. Who wants them to wait awaits a part of
    /// the task under a hold: `with_cx(|cx| cx.hold().until(part)).await` ([`Hold::until`]). A hold
    /// that the task itself has waits for itself: the next poll is an event of the color.
    ///
    /// The first poll is an event posted now, in the order of [`post`](Self::post). Each wake posts
    /// the event of the next poll, also at the limit of queued events, and by the thread that
    /// wakes: inside a core it costs what a post costs. Any future does: what a waker of mely is
    /// given to may be of another runtime's making, as the channels of tokio or futures. What wants
    /// to be polled by *that* runtime (tokio's sockets and timers) does not work here. A task that
    /// never waits, because what it awaits is always ready, keeps its core like any long handler:
    /// [`yield_now`](crate::task::yield_now) lets others go first.
    ///
    /// What another task learns through a channel may be newer than what this one has posted: who
    /// is woken sees those posts in their places, and who looks by itself (`try_recv`) may overtake
    /// them, as [`Cx::flush`] says of threads.
    ///
    /// Inside, [`with_cx`](crate::task::with_cx) gives the context. [`sleep`](crate::task::sleep),
    /// [`timeout`](crate::task::timeout), [`Colored::call`] and [`JoinHandle`] are futures.
    ///
    /// The output of the future comes by the handle. Dropping the handle detaches the task, which
    /// goes on. To end a task together with a value, keep its handle in the value, with
    /// [`cancel_on_drop`](JoinHandle::cancel_on_drop).
    ///
    /// A run does not end before its tasks, whether it was asked to stop or ends when it is idle:
    /// `Stats::tasks` counts those that wait. They do not count towards
    /// [`Builder::events_max`](crate::Builder::events_max). So a task that would go on for ever
    /// listens to [`stopping`](crate::task::stopping), or is canceled. If the run is cut short, the
    /// futures that are left are dropped.
    ///
    /// A panic of the future is one of the event that polled it, and what it panics with goes where
    /// that of any event goes; the task is over then. Who would rather have the payload than the
    /// event's panic wraps the future (`catch_unwind` of the crate `futures`).
    ///
    /// ```
    /// use mely::{Color, Runtime};
    /// let sum = Runtime::builder().build()?.run_until(|cx, finish| {
    ///     cx.spawn(Color::from(7), async move {
    ///         let mut sum = 0;
    ///         for color in 8..11 {
    ///             // Asks other colors, and waits without blocking anybody.
    ///             let color = Color::from(color);
    ///             let ask = |cx: &mut mely::Cx| cx.ask(color, |cx| cx.color().value());
    ///             let asked = mely::task::with_cx(ask);
    ///             sum += asked.await.unwrap_or(0);
    ///         }
    ///         finish.finish(sum);
    ///     });
    /// })?;
    /// assert_eq!(sum, 8 + 9 + 10);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Panics
    /// At the builder's limit of queued events; [`Poster::try_spawn`] gives the
    /// future back instead.
    #[track_caller]
    pub fn spawn<F>(&self, color: Color, future: F) -> JoinHandle<F::Output>
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        self.surely(|by| spawn(by, None, color, future))
    }
}

impl Handler {
    /// Runs a future in `color`, as [`Cx::spawn`], under this handler.
    ///
    /// # Panics
    /// As [`Cx::spawn`].
    #[track_caller]
    pub fn spawn<F>(&'static self, cx: &Cx, color: Color, future: F) -> JoinHandle<F::Output>
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        cx.surely(|by| spawn(by, Some(self), color, future))
    }
}

impl Poster {
    /// Runs a future in `color`, as [`Cx::spawn`], or gives it back.
    ///
    /// # Errors
    /// As [`Post::try_post`](crate::Post::try_post).
    pub fn try_spawn<F>(
        &self,
        color: Color,
        future: F,
    ) -> Result<JoinHandle<F::Output>, Rejected<F>>
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        spawn(self, None, color, future)
    }
}

impl Hold {
    /// Holds the color until a future is ready, which is polled in that color: later events of the
    /// color wait, in order, over all its `.await`s. Then the color goes on.
    ///
    /// So a request is answered before the next one of its connection begins, however often it
    /// waits. The future must not wait for an ordinary event of the held color, which waits for it
    /// ([`Colored::call`] of a state in that color, say): it reaches the color's state by
    /// [`with_cx`](crate::task::with_cx).
    ///
    /// Also at the limit of queued events. If the task is [canceled](JoinHandle::cancel), the color
    /// goes on when the future was dropped. A [deadline](Self::resume_after) ends the hold as
    /// always: what is left of the future runs between the other events of the color then.
    ///
    /// ```
    /// use mely::task::sleep;
    /// use mely::{Color, Runtime};
    /// use std::sync::{Arc, Mutex};
    /// use std::time::Duration;
    /// let log = Arc::new(Mutex::new(Vec::new()));
    /// let (first, second) = (Arc::clone(&log), Arc::clone(&log));
    /// Runtime::builder().build()?.run(move |cx| {
    ///     let connection = Color::from(7);
    ///     cx.post(connection, move |cx| {
    ///         let answer = async move {
    ///             sleep(Duration::from_millis(2)).await;
    ///             first.lock().unwrap().push("first answered");
    ///         };
    ///         cx.hold().until(answer);
    ///     });
    ///     cx.post(connection, move |cx| {
    ///         second.lock().unwrap().push("second begun");
    ///         cx.stop();
    ///     });
    /// })?;
    /// assert_eq!(*log.lock().unwrap(), ["first answered", "second begun"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn until<F>(self, future: F) -> JoinHandle<F::Output>
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        if const { size_of::<F>() <= IN_EVENT_BYTES } {
            self.until_ready(future)
        } else {
            // At once: what awaits it would have it twice.
            self.until_ready(Box::pin(future))
        }
    }

    fn until_ready<F>(self, future: F) -> JoinHandle<F::Output>
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        let (poster, color, hold) = (sealed::Post::to_poster(&self), self.color(), self.id());
        let future = async move {
            let output = future.await;
            self.resume(|_cx| ());
            output
        };
        let (task, first) = make(poster.clone(), None, color, Some(hold), Box::pin(future));
        let first = boxed_event(first);
        let event = move |cx: &mut Cx| arrive(cx, None, hold, false, first);
        // Refused if the run was cut short: then the future is dropped here.
        drop(poster.post_sort_until(
            Until::End,
            None,
            color,
            event,
            Sort::PASSING.at(AtLimit::Own),
            |f| f,
        ));
        task
    }
}

impl<T: Send + 'static> Colored<T> {
    /// Calls `f` with the state, in an event of its color, and returns what `f` returns: for
    /// futures, of whatever color or runtime. Posted at the first poll. If the future is dropped
    /// before the event has begun, the event is canceled.
    ///
    /// A task of the state's own color needs no event for it: see
    /// [`with_cx`](crate::task::with_cx).
    ///
    /// ```
    /// use mely::{Color, Colored, Runtime};
    /// let total = Runtime::builder().build()?.run_until(|cx, finish| {
    ///     let total = Colored::new(cx, Color::from(9), 40);
    ///     cx.spawn(Color::from(7), async move {
    ///         let called = total.call(|total, _cx| {
    ///             *total += 2;
    ///             *total
    ///         });
    ///         finish.finish(called.await);
    ///     });
    /// })?;
    /// assert_eq!(total, Ok(42));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`JoinError::Panicked`] if `f` panics, or the state is poisoned. [`JoinError::Full`] at the
    /// builder's limit of queued events. [`JoinError::Dropped`] if the runtime of the state takes
    /// no more posts from here, or its run is cut short.
    pub async fn call<R, F>(&self, f: F) -> Result<R, JoinError>
    where
        R: Send + 'static,
        F: FnOnce(&mut T, &mut Cx) -> R + Send + 'static,
    {
        match self.try_ask(self.poster(), f) {
            Ok(called) => called.cancel_on_drop().await,
            Err(Rejected {
                reason: Reason::Full,
                ..
            }) => Err(JoinError::Full),
            Err(Rejected {
                reason: Reason::Ended,
                ..
            }) => Err(JoinError::Dropped),
            Err(Rejected { .. }) => Err(JoinError::Panicked),
        }
    }
}
