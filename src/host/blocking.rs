//! Blocking work: what a handler gives to a thread of the runtime's pool ([`super::pool`]).

use super::inner::Inner;
use super::panics::{Caught, LateDrop};
use super::pool::{Job, JobRefusal};
use super::poster::Poster;
use super::quiesce::Until;
use crate::callback::Callback;
use crate::memory::boxed;
use crate::rejected::{Reason, Rejected};
use crate::sync::Arc;
use crate::{Cx, Handler};
use std::fmt;
use std::time::Duration;

/// Blocking work that was accepted: a handle, to cancel it by. Dropped, it changes nothing.
///
/// ```
/// use mely::{Callback, Color, Runtime};
/// use std::sync::mpsc::channel;
///
/// let runtime = Runtime::builder().blocking_threads_max(1).build()?;
/// runtime.run(|cx| {
///     let (go, wait) = channel::<()>();
///     let done = Callback::anonymous_value(Color::from(7), |cx, _| cx.stop());
///     let first = cx.try_blocking(move || wait.recv(), done).expect("there is room");
///     let never = Callback::anonymous_value(Color::from(7), |_cx, ()| unreachable!());
///     let second = cx.try_blocking(|| (), never).expect("there is room");
///     // The only thread has the first.
///     assert!(second.cancel());
///     drop(go);
///     drop(first);
/// })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Blocking {
    inner: Arc<Inner>,
    job: u64,
}

impl Blocking {
    /// Cancels the work if it has not begun. True: it will not run; its closure was dropped by this
    /// call, and its callback is dropped in its color, without being called. False: it has begun,
    /// or is over, and the callback gets the result.
    ///
    /// # Panics
    /// As the closure does when it is dropped.
    pub fn cancel(self) -> bool {
        self.inner.pool.cancel(self.job)
    }
}

impl fmt::Debug for Blocking {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Blocking").finish_non_exhaustive()
    }
}

/// Blocking work waits for a thread for longer than the limit of
/// [`Builder::on_slow_blocking`](crate::Builder::on_slow_blocking).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SlowBlocking {
    /// The handler of the callback that waits for longest; without one, its closure's type.
    pub handler: &'static str,
    /// For how long its work has waited.
    pub waited_for: Duration,
    /// How much waits.
    pub queued: usize,
    /// The threads there are.
    pub threads: usize,
}

/// Work, its callback, and what keeps the runtime until the result is posted.
struct BlockingJob<W, F> {
    /// In a box of its own, since it is called where it lies.
    work: Box<W>,
    callback: Callback<F>,
    poster: Poster,
}

impl<T, W, F> Job for BlockingJob<W, F>
where
    W: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
    F: FnOnce(&mut Cx, T) + Send + 'static,
{
    fn handler(&self) -> &'static str {
        let handler = self.callback.handler;
        handler.map_or_else(std::any::type_name::<F>, Handler::name)
    }

    fn run(self: Box<Self>) {
        let BlockingJob {
            work,
            callback,
            poster,
        } = *self;
        let Callback { handler, color, f } = callback;
        // The work is called in its box, and its value is boxed at once: both may be large.
        let work: Box<dyn FnOnce() -> T> = work;
        let work = || boxed(work);
        // What comes back was refused, since the run was cut short, and is dropped here.
        match Caught::catching(work) {
            Ok(value) => {
                let event = move |cx: &mut Cx| f(cx, *value);
                drop(poster.post_own_until(Until::End, handler, color, event));
            }
            Err(panic) => {
                let f = LateDrop::new(f, true);
                let event = move |_cx: &mut Cx| {
                    let _f = f;
                    panic.resume();
                };
                drop(poster.post_own_until(Until::End, handler, color, event));
            }
        }
    }

    fn cancel(self: Box<Self>) {
        let BlockingJob {
            work,
            callback,
            poster,
        } = *self;
        let Callback { handler, color, f } = callback;
        let f = LateDrop::of_owner(f);
        let event = move |_cx: &mut Cx| drop(f);
        drop(poster.post_own_until(Until::End, handler, color, event));
        // Last, because it may panic.
        drop(work);
    }
}

fn submit<T, W, F>(
    poster: Poster,
    work: W,
    callback: Callback<F>,
) -> Result<Blocking, Rejected<(W, Callback<F>)>>
where
    W: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
    F: FnOnce(&mut Cx, T) + Send + 'static,
{
    let job = Box::new(BlockingJob {
        work: Box::new(work),
        callback,
        poster,
    });
    let poster = &job.poster;
    let inner = Arc::clone(&poster.inner);
    // The result is posted from outside, and must not come before what this handler has posted.
    poster.publish();
    let (refusal, job) = match inner.pool.submit(&inner, job) {
        Ok(job) => return Ok(Blocking { inner, job }),
        Err(refused) => refused,
    };
    let BlockingJob { work, callback, .. } = *job;
    let reason = match refusal {
        JobRefusal::Full => Reason::BlockingFull,
        JobRefusal::Ended => Reason::Ended,
        JobRefusal::NoThread { stack_bytes, errno } => Reason::NoThread { stack_bytes, errno },
    };
    Err(Rejected::new(reason, (*work, callback)))
}

impl Cx {
    /// Runs `work` on a thread of the runtime's own, where it may block: on a file, a lock, a child
    /// process, a long computation. What it returns is an event of the callback's color. (No core
    /// waits, and nothing is posted to a color before the work is over.)
    ///
    /// # Threads
    /// A thread is started when work comes and no other is free, up to
    /// [`Builder::blocking_threads_max`](crate::Builder::blocking_threads_max); one that was idle
    /// for [`blocking_idle`](crate::Builder::blocking_idle) ends, and all have ended when `run`
    /// returns. They may use every processor that the thread which called `run` may. Work begins in
    /// the order in which it was given.
    ///
    /// When a thread ends, the destructors of its thread locals run. They may use the runtime, and
    /// no handler or posting thread waits for them. Once the cores have left, `run` does, without
    /// a limit, as for those of the cores' threads.
    ///
    /// # Order
    /// Results are posted when the work is over: those for one color in the order of completion,
    /// after what the work itself has posted to it, and as a [`Poster`]'s. What the handler had
    /// posted before it gave the work away comes before all of that. A result comes also at the
    /// builder's limit of queued events.
    ///
    /// # The end
    /// Accepted work keeps the run, as a strong [`Poster`] does: a stop during it delivers the result and then ends. At the
    /// deadline work that has not begun is dropped. What runs has half a second; then its thread is
    /// left behind, and [`RunError::Deadline`](crate::RunError::Deadline) names its handler. It is
    /// the same, without a name, if a panic stops the run.
    ///
    /// # Panics of the work
    /// Are the event's: it panics in the callback's color and under its handler, with all that
    /// [`OnPanic`](crate::OnPanic) says, and the callback is not called.
    ///
    /// # Simulation
    /// In a simulation (`mely::sim`) the work runs on the thread of a virtual core, at a moment
    /// between two events that the seed decides, and takes no virtual time.
    ///
    /// # Errors
    /// [`Rejected`](crate::Rejected) gives the closure and the callback back. That is not a panic, as it is
    /// where events are posted, because here it is an everyday matter: a slow disk fills the queue.
    ///
    /// ```
    /// use mely::{Color, Handler, Runtime};
    /// static LOADED: Handler = Handler::new("loaded");
    /// let bytes = Runtime::builder().build()?.run_until(|cx, finish| {
    ///     let loaded = LOADED.on_value(Color::from(7), move |_cx, text: std::io::Result<String>| {
    ///         finish.finish(text.map_or(0, |text| text.len()));
    ///     });
    ///     let work = || std::fs::read_to_string("/proc/self/stat");
    ///     if let Err(refused) = cx.try_blocking(work, loaded) {
    ///         eprintln!("{refused}"); // `refused.value`: the closure and the callback
    ///     }
    /// })?;
    /// assert!(bytes > 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn try_blocking<T, W, F>(
        &self,
        work: W,
        callback: Callback<F>,
    ) -> Result<Blocking, Rejected<(W, Callback<F>)>>
    where
        W: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
        F: FnOnce(&mut Cx, T) + Send + 'static,
    {
        submit(self.strong_poster(), work, callback)
    }
}

impl Poster {
    /// Runs `work` on a thread of the runtime's own; see [`Cx::try_blocking`]. What is given before the
    /// run begins with it.
    ///
    /// # Errors
    /// As [`Cx::try_blocking`]; [`Reason::Ended`](crate::Reason::Ended) once the runtime was asked to stop.
    pub fn try_blocking<T, W, F>(
        &self,
        work: W,
        callback: Callback<F>,
    ) -> Result<Blocking, Rejected<(W, Callback<F>)>>
    where
        W: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
        F: FnOnce(&mut Cx, T) + Send + 'static,
    {
        let inside = super::worker::is_inside(&self.inner);
        if (inside || !self.inner.quiesce.refuses(self.until()))
            && let Ok(poster) = self.strong()
        {
            return submit(poster, work, callback);
        }
        Err(Rejected {
            reason: Reason::Ended,
            value: (work, callback),
        })
    }
}
