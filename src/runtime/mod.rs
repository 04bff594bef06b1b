//! How a runtime is configured, what it reports, and how a run ends.
//!
//! # The end of a run, in order
//!
//! 1. A handler or another thread asks for it ([`Cx::stop`]), a panic does, or, with
//!    [`Builder::exit_when_idle`], nothing is left to do.
//! 2. Every core is woken, cancels what its event source waits for, and runs the events that are
//!    queued, and those that they post, in the order of the [`Stage`]s.
//! 3. When all cores have nothing left and no strong [`Poster`] exists, the runtime is closed:
//!    later posts are refused.
//! 4. Every core leaves, its event source first: cancel, drain, close, free.
//! 5. At the deadline ([`Builder::drain_deadline`]) the runtime is closed by force. Cores leave
//!    after the handler they are in; a core whose handler does not return is left behind with its
//!    thread, and [`RunError::Deadline`] names the handler.
//! 6. The threads for blocking work end. If the run was cut short, work that has not begun is
//!    dropped, and running work has half a second; then its thread is left behind.
//! 7. Closures that were never run are dropped with the [`Runtime`], on the thread that called
//!    `run` or dropped it, with no lock held; if a core was left behind, with the last handle.

// Who decides the end: `crate::host::quiesce`. Threads, pins and processors are in the modules here.

pub(crate) mod builder;
mod lookout;
mod pins;
mod processors;
pub(crate) mod threads;

pub use self::builder::BuildError;
pub use crate::host::panics::{OnPanic, PanicReport};
pub use crate::host::pool::SlowBlocking;
pub use crate::host::stage::Stage;
pub use crate::host::unfinished::{Obstacle, Unfinished};
pub use crate::host::watchdog::SlowHandler;
pub use crate::policy::Stealing;

use self::builder::Builder;
use crate::cx::has_host;
use crate::event::node::Sort;
use crate::host::inner::Inner;
use crate::host::panics;
use crate::host::poster::Poster;
use crate::shared::remote::mail;
use crate::sync::relaxed::Ordering;
use crate::sync::{Arc, Mutex};
use crate::{Color, Cx};
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

/// A runtime: cores that run colored events.
///
/// ```
/// use mely::{Color, Runtime};
/// let runtime = Runtime::builder().build()?;
/// let poster = runtime.poster();
/// runtime.run(|cx| {
///     cx.post(Color::from(1), |cx| cx.stop());
/// })?;
/// assert_eq!(poster.stats().events(), 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a runtime runs nothing by itself"]
pub struct Runtime {
    pub(crate) inner: Arc<Inner>,
}

impl fmt::Debug for Runtime {
    /// What it is, and not every color slot.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runtime")
            .field("cores", &self.inner.shared.cores.len())
            .finish_non_exhaustive()
    }
}

impl Runtime {
    /// A builder with the defaults.
    pub fn builder() -> Builder {
        Builder::new()
    }

    pub(crate) fn new(inner: Inner) -> Runtime {
        Runtime {
            inner: Arc::new(inner),
        }
    }

    /// A poster. What is posted before `run` is run by it. And what one wants to know of a run,
    /// while it goes on or after it, is asked through one that was taken before: its
    /// [`stats`](Poster::stats), [`profile`](Poster::profile), [`backends`](Poster::backends).
    pub fn poster(&self) -> Poster {
        Poster::of(&self.inner)
    }
}

/// Ends a run with a value; see [`Runtime::run_until`].
///
/// Cloneable. When the last handle is dropped and no value was given, the runtime stops: nobody
/// could give one any more.
pub struct Finish<T> {
    value: Arc<Mutex<Value<T>>>,
    ends: Arc<Ends>,
}

/// Stops the runtime, at the latest with the last [`Finish`].
struct Ends(Poster);

impl Drop for Ends {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// What a run ends with.
enum Value<T> {
    None,
    Given(T),
    /// The run is over.
    Taken,
}

impl<T: Send + 'static> Finish<T> {
    /// With what takes the value when all is over.
    pub(crate) fn new(poster: Poster) -> (Finish<T>, impl FnOnce() -> Option<T>) {
        let value = Arc::new(Mutex::new(Value::None));
        let finish = Finish {
            value: Arc::clone(&value),
            ends: Arc::new(Ends(poster)),
        };
        let take = move || {
            let value = std::mem::replace(&mut *value.lock().unwrap(), Value::Taken);
            match value {
                Value::Given(value) => Some(value),
                Value::None | Value::Taken => None,
            }
        };
        (finish, take)
    }

    /// Stops the runtime, as [`Cx::stop`] does, and makes `value` what `run_until` returns. The
    /// first value wins; a later one, or one that comes after the run, is dropped.
    pub fn finish(&self, value: T) {
        let mut slot = self.value.lock().unwrap();
        if matches!(*slot, Value::None) {
            *slot = Value::Given(value);
            drop(slot);
            self.ends.0.stop();
        }
    }
}

impl<T> Clone for Finish<T> {
    fn clone(&self) -> Self {
        Finish {
            value: Arc::clone(&self.value),
            ends: Arc::clone(&self.ends),
        }
    }
}

impl<T> fmt::Debug for Finish<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Finish").finish_non_exhaustive()
    }
}

/// Why a run did not end well.
#[derive(Debug)]
#[non_exhaustive]
pub enum RunError {
    /// A handler panicked, and [`OnPanic::Stop`] holds; or the first event of
    /// the run did.
    Panicked {
        /// The first panic.
        panic: PanicReport,
        /// Events that were queued and not run.
        events_left: u64,
    },
    /// The deadline passed before everything was drained.
    #[non_exhaustive]
    Deadline {
        /// Events that were queued and not run.
        events_left: u64,
        /// Strong [`Poster`]s that there were at the deadline; blocking work has one each.
        strong_posters_left: u64,
        /// Tasks that waited; see [`Cx::spawn`](crate::Cx::spawn).
        tasks_left: u64,
        /// Cores whose handler has not returned, by number and handler. Their threads are left
        /// behind.
        stuck: Vec<(usize, &'static str)>,
        /// The handlers of blocking work that has not returned. Its threads are left behind.
        blocking_stuck: Vec<&'static str>,
        /// The obstacles to the end when the deadline passed, by name.
        unfinished: Box<Unfinished>,
    },
    /// A core, or a thread for blocking work, could not begin: its thread, its pinning or its event
    /// source was refused.
    Start(std::io::Error),
    /// `run` was called inside a handler, which would block a core.
    Inside,
    /// The runtime ended without the value that [`Runtime::run_until`] was to return.
    NoValue,
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            RunError::Panicked { panic, events_left } => {
                write!(f, "{panic}; {events_left} events were left")
            }
            RunError::Deadline {
                events_left,
                strong_posters_left,
                tasks_left,
                stuck,
                blocking_stuck,
                unfinished,
            } => {
                let stage = unfinished.stage;
                write!(
                    f,
                    "not drained by the deadline, in stage {stage}: {events_left} events were left"
                )?;
                if *strong_posters_left > 0 {
                    write!(f, ", and {strong_posters_left} strong posters")?;
                }
                if *tasks_left > 0 {
                    write!(f, ", and {tasks_left} tasks waited")?;
                }
                for (core, handler) in stuck {
                    write!(f, "; core {core} is still in handler `{handler}`")?;
                }
                for handler in blocking_stuck {
                    write!(f, "; blocking work for handler `{handler}` goes on")?;
                }
                // Those are named above.
                unfinished.write_names(f, |named| !matches!(named, Obstacle::Handler { .. }))
            }
            RunError::Start(error) => write!(f, "a core could not begin: {error}"),
            RunError::Inside => f.write_str("`run` inside a handler would block its core"),
            RunError::NoValue => f.write_str("the runtime ended without a value"),
        }
    }
}

impl std::error::Error for RunError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            RunError::Start(error) => Some(error),
            _ => None,
        }
    }
}

/// The first event of a run. Its panic ends the run, since there may be no other event to do so.
fn first_event<F>(start: F) -> impl FnOnce(&mut Cx) + Send + 'static
where
    F: FnOnce(&mut Cx) + Send + 'static,
{
    move |cx| {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| start(cx))) {
            let inner = &cx.worker_ref().inner;
            inner.start_panicked.store(true, Ordering::Relaxed);
            resume_unwind(panic);
        }
    }
}

impl Runtime {
    /// Runs `start` as the first event, in [`Color::DEFAULT`], and every event after it, on all
    /// cores, until the runtime is asked to stop and has drained. Blocks the calling thread, which
    /// runs no events itself. What was posted before is run too, and `start` even if the stop was
    /// asked for before. What was accepted and not run, since the run was cut short, is dropped
    /// before `run` returns, on this thread.
    ///
    /// # Errors
    /// See [`RunError`].
    ///
    /// # Panics
    /// As the hook for slow handlers did ([`Builder::on_slow_handler`]). And as something did that
    /// was dropped when a run was cut short; but if that was for a handler's panic, it is the
    /// handler's that is returned.
    pub fn run<F>(self, start: F) -> Result<(), RunError>
    where
        F: FnOnce(&mut Cx) + Send + 'static,
    {
        self.run_and_take(start, || ())
    }

    /// Runs, and takes something from the run before what it left behind is dropped.
    fn run_and_take<T, F>(self, start: F, take: impl FnOnce() -> T) -> Result<T, RunError>
    where
        F: FnOnce(&mut Cx) + Send + 'static,
    {
        self.begin(start)?;
        let ended = threads::run(&self.inner);
        let taken = take();
        let dropped = catch_unwind(AssertUnwindSafe(|| drop(self)));
        // It does not hide the handler's name, as in `threads::run`.
        if let Err(panic) = dropped
            && !matches!(ended, Err(RunError::Panicked { .. }))
        {
            resume_unwind(panic);
        }
        ended.map(|()| taken)
    }

    /// Makes the first event. Called once.
    pub(crate) fn begin<F>(&self, start: F) -> Result<(), RunError>
    where
        F: FnOnce(&mut Cx) + Send + 'static,
    {
        if has_host() {
            return Err(RunError::Inside);
        }
        self.inner.pool.open(&self.inner).map_err(RunError::Start)?;
        panics::watch();
        let shared = &self.inner.shared;
        // Also if what was posted before has filled the queues: it is this event that begins to
        // empty them.
        let (event, _) = shared.foreign.with(|maker| {
            maker.make_own(
                &shared.profiles,
                None,
                Color::DEFAULT,
                first_event(start),
                Sort::ORDINARY,
            )
        });
        self.inner.quiesce.owner_post();
        mail::publish(shared, Color::DEFAULT, event);
        let mut outcome = self.inner.outcome.lock().unwrap();
        outcome.running = true;
        // A stop that was asked for before counts from now: until now nobody could drain.
        if let Some(stop_at) = &mut outcome.stop_at {
            *stop_at = std::time::Instant::now();
        }
        Ok(())
    }

    /// Like [`run`](Self::run), and returns the value that some handler gives to the [`Finish`].
    ///
    /// ```
    /// use mely::{Color, Runtime};
    /// let answer = Runtime::builder().build()?.run_until(|cx, finish| {
    ///     cx.post(Color::from(7), move |_cx| finish.finish(6 * 7));
    /// })?;
    /// assert_eq!(answer, 42);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// See [`RunError`].
    pub fn run_until<T, F>(self, start: F) -> Result<T, RunError>
    where
        T: Send + 'static,
        F: FnOnce(&mut Cx, Finish<T>) + Send + 'static,
    {
        let (finish, value) = Finish::new(self.poster());
        self.run_and_take(move |cx| start(cx, finish), value)?
            .ok_or(RunError::NoValue)
    }
}

impl Drop for Runtime {
    /// A runtime that is gone runs nothing: posts are refused from now on, and closures that were
    /// never run are dropped. Here and not with the last handle, because they may hold one: a
    /// closure that owns a [`Poster`], or a connection, would keep itself.
    fn drop(&mut self) {
        if !self.inner.ended() {
            self.inner.force();
        }
        // Of a runtime that never ran.
        self.inner.finish_recording(0);
        self.inner.discard_at_the_end();
    }
}
