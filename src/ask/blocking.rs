//! Blocking work: a closure that a handler gives to a thread of the runtime's pool
//! ([`crate::host::pool`]).
//!
//! A job is the work with the guard of its result ([`Asked`]) and a keep-alive. The thread that
//! runs the work settles the result; the guard does, if the job is dropped. The keep-alive is
//! dropped last: if the result is to become an event, that is posted before the end can be decided.
//!
//! A panic of the work is reported by an event that resumes it, in the color of the event that gave
//! the work. The result does not wait for that event, since the color may be held until the result
//! comes.

use super::cell::{JoinCell, Joined};
use super::{Asked, JoinError, JoinHandle};
use crate::host::inner::Inner;
use crate::host::panics::{Caught, InTurn, LateDrop};
use crate::host::pool::{Job, JobRefusal};
use crate::host::poster::Poster;
use crate::host::quiesce::Until;
use crate::host::worker::{is_inside, lend_current};
use crate::memory::boxed;
use crate::rejected::{Reason, Rejected};
use crate::sync::{Arc, Mutex};
use crate::{Color, Cx, Handler};
use std::any::type_name;
use std::sync::PoisonError;

/// The event that gave the work: a panic of the work is reported as one of it.
#[derive(Clone, Copy)]
struct Giver {
    handler: Option<&'static Handler>,
    color: Color,
}

impl Giver {
    /// The running event of this runtime. Elsewhere there is no handler, and the color is the
    /// control color of core 0.
    fn current(inner: &Arc<Inner>) -> Giver {
        let here = lend_current(Arc::as_ptr(inner), (), |worker, ()| {
            let (core, current) = (&worker.core, &worker.core.current);
            current.slot.is_some().then(|| Giver {
                handler: core.shared.profiles.get(current.profile()).handler,
                color: current.color(),
            })
        });
        here.ok().flatten().unwrap_or_else(|| Giver {
            handler: None,
            color: Color::control(0),
        })
    }
}

/// Work, the guard of its result, and what keeps the runtime until that is settled.
struct BlockingJob<T: Send + 'static, W> {
    /// In a box of its own, since it is called where it lies.
    work: Box<W>,
    asked: Asked<T>,
    giver: Giver,
    // Dropped last: see the module text.
    poster: Poster,
}

type Panic = Arc<Mutex<Option<Caught>>>;

fn take(panic: &Panic) -> Option<Caught> {
    panic.lock().unwrap_or_else(PoisonError::into_inner).take()
}

/// The event that resumes a panic. Without a handler it is named after the work: see
/// `unwrapped` in [`crate::event::profile`].
#[expect(clippy::extra_unused_type_parameters, reason = "it is in the name")]
fn resume<W>(panic: Panic) -> impl FnOnce(&mut Cx) + Send + 'static
where
    W: Send + 'static,
{
    move |_cx| {
        if let Some(panic) = take(&panic) {
            panic.resume();
        }
    }
}

/// Reports a panic as one of the giver. Gives it back if the run was cut short.
fn report<W: Send + 'static>(panic: Caught, giver: Giver, poster: &Poster) -> Option<Caught> {
    let panic = Arc::new(Mutex::new(Some(panic)));
    let event = resume::<W>(Arc::clone(&panic));
    let posted = poster.post_own_until(Until::End, giver.handler, giver.color, event);
    posted.is_err().then(|| take(&panic)).flatten()
}

impl<T, W> Job for BlockingJob<T, W>
where
    W: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    fn handler(&self) -> &'static str {
        let handler = self.giver.handler;
        handler.map_or_else(type_name::<W>, Handler::name)
    }

    fn run(self: Box<Self>) {
        let BlockingJob {
            poster,
            giver,
            mut asked,
            work,
        } = *self;
        let poster = &poster;
        // The work is called in its box, and its value is boxed at once: both may be large.
        let work: Box<dyn FnOnce() -> T> = work;
        let settled = match Caught::catching(|| boxed(work)) {
            // Drops the value of a detached handle, or wakes a waiter: user code.
            Ok(value) => Caught::catching(|| asked.settle(*value)),
            Err(panic) => {
                drop(report::<W>(panic, giver, poster));
                Caught::catching(|| asked.settle_without(JoinError::Panicked))
            }
        };
        if let Err(panic) = settled
            && let Some(panic) = report::<W>(panic, giver, poster)
        {
            panic.resume();
        }
    }

    fn cancel(self: Box<Self>) {
        let BlockingJob {
            poster: _poster,
            giver: _,
            mut asked,
            work,
        } = *self;
        let mut turns = InTurn::default();
        turns.run(|| drop(LateDrop::of_owner(work)));
        let error = match turns.has_panicked() {
            true => JoinError::Panicked,
            false => JoinError::Canceled,
        };
        turns.run(|| asked.settle_without(error));
        turns.end();
    }
}

/// What the handle of blocking work has.
struct Submitted<T> {
    cell: Arc<JoinCell<T>>,
    inner: Arc<Inner>,
    job: u64,
}

impl<T: Send> Joined<T> for Submitted<T> {
    fn cell(&self) -> &JoinCell<T> {
        &self.cell
    }

    fn cancel(self: Arc<Self>) {
        self.inner.pool.cancel(self.job);
    }
}

fn submit<T, W>(poster: Poster, work: W) -> Result<JoinHandle<T>, Rejected<W>>
where
    W: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    let inner = Arc::clone(&poster.inner);
    let (asked, cell) = Asked::of_cell();
    let job = Box::new(BlockingJob {
        work: Box::new(work),
        asked,
        giver: Giver::current(&inner),
        poster,
    });
    // The result comes from outside, and must not come before the posts of this handler.
    job.poster.publish();
    let (refusal, job) = match inner.pool.submit(&inner, job) {
        Ok(job) => {
            let runtime = Arc::as_ptr(&inner).addr();
            let submitted = Submitted { cell, inner, job };
            return Ok(JoinHandle::of(Arc::new(submitted), runtime));
        }
        Err(refused) => refused,
    };
    let reason = match refusal {
        JobRefusal::Full => Reason::BlockingFull,
        JobRefusal::Ended => Reason::Ended,
        JobRefusal::NoThread { stack_bytes, errno } => Reason::NoThread { stack_bytes, errno },
    };
    Err(Rejected::new(reason, *job.work))
}

impl Cx {
    /// Runs `work` on a thread of the runtime's own, where it may block: on a file, a lock, a child
    /// process, a long computation. The value that it returns comes by the handle. No core waits
    /// for it.
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
    /// A result comes when the work is over. The events of [`JoinHandle::then`] for one color are
    /// posted in the order of completion, after the posts of the work itself to that color, and as
    /// by a [`Poster`]. (If the work is over before `then` is called, that posts the event.) All
    /// that the handler posted before it gave the work comes before the result. A result comes also
    /// at the builder's limit of queued events.
    ///
    /// # Dropping and canceling
    /// If the handle is dropped, the work is done all the same, and its value is dropped on the
    /// thread that ran it. [`JoinHandle::cancel`] drops work that has not begun.
    ///
    /// # The end
    /// Accepted work keeps the run, as a strong [`Poster`] does: a stop during it delivers the
    /// result, also as an event of `then`, and then ends. At the deadline work that has not begun
    /// is dropped. Work that runs has half a second; then its thread is left behind, and
    /// [`RunError::Deadline`](crate::RunError::Deadline) names the handler that gave the work. If a
    /// panic stops the run it is the same, without a name.
    ///
    /// # Panics of the work
    /// The handle gives [`JoinError::Panicked`]. The panic is reported once, as one of an event in
    /// the color and under the handler that gave the work, with all that
    /// [`OnPanic`](crate::runtime::OnPanic) says. For work that was given by another thread that is
    /// the control color of core 0. Without a handler, the work is named by the type of its
    /// closure.
    ///
    /// # Simulation
    /// In a simulation (`mely::sim`) the work runs on the thread of a virtual core, at a moment
    /// between two events that the seed decides, and takes no virtual time.
    ///
    /// # Errors
    /// [`Rejected`](crate::Rejected) gives the closure back. That is not a panic, as it is where
    /// events are posted, because here it is an everyday matter: a slow disk fills the queue.
    ///
    /// ```
    /// use mely::task::JoinError;
    /// use mely::{Color, Handler, Runtime};
    /// use std::io;
    /// static LOADED: Handler = Handler::new("loaded");
    /// let bytes = Runtime::builder().build()?.run_until(|cx, finish| {
    ///     type Text = Result<io::Result<String>, JoinError>;
    ///     let loaded = LOADED.on_value(Color::from(7), move |_cx, text: Text| {
    ///         finish.finish(text.map(|text| text.map_or(0, |text| text.len())));
    ///     });
    ///     match cx.try_blocking(|| std::fs::read_to_string("/proc/self/stat")) {
    ///         Ok(text) => text.then(cx, loaded),
    ///         Err(refused) => eprintln!("{refused}"), // `refused.value`: the closure
    ///     }
    /// })?;
    /// assert!(bytes? > 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// In a task:
    ///
    /// ```
    /// use mely::task::with_cx;
    /// use mely::{Color, Runtime};
    /// let sum = Runtime::builder().build()?.run_until(|cx, finish| {
    ///     cx.spawn(Color::from(7), async move {
    ///         match with_cx(|cx| cx.try_blocking(|| (1..=100).sum::<u32>())) {
    ///             Ok(sum) => finish.finish(sum.await),
    ///             Err(refused) => eprintln!("{refused}"),
    ///         }
    ///     });
    /// })?;
    /// assert_eq!(sum, Ok(5_050));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn try_blocking<T, W>(&self, work: W) -> Result<JoinHandle<T>, Rejected<W>>
    where
        W: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        submit(self.strong_poster(), work)
    }
}

impl Poster {
    /// Runs `work` on a thread of the runtime's own; see [`Cx::try_blocking`]. Work that is given
    /// before the run begins with it.
    ///
    /// # Errors
    /// As [`Cx::try_blocking`]; [`Reason::Ended`](crate::Reason::Ended) as
    /// [`Post::try_post`](crate::Post::try_post) says it.
    pub fn try_blocking<T, W>(&self, work: W) -> Result<JoinHandle<T>, Rejected<W>>
    where
        W: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        if (is_inside(&self.inner) || !self.inner.quiesce.refuses(self.until()))
            && let Ok(poster) = self.strong()
        {
            return submit(poster, work);
        }
        Err(Rejected::new(Reason::Ended, work))
    }
}
