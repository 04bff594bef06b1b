//! Why something was not accepted, and what comes back with the reason.

use crate::Color;
use std::{fmt, io};

/// A value that was not accepted, with the [`Reason`]: the closure of an event, a callback, the
/// future of a task, blocking work, or bytes to be sent. Nothing of it was run or sent.
///
/// ```
/// use mely::{Color, Post, Reason, Runtime};
/// let runtime = Runtime::builder().build()?;
/// let poster = runtime.poster();
/// runtime.run(|cx| cx.stop())?;
/// let refused = poster.try_post(Color::from(7), |_cx| ()).unwrap_err();
/// assert_eq!(refused.reason, Reason::Ended);
/// let _closure = refused.value;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Rejected<T> {
    /// Why it was not accepted.
    pub reason: Reason,
    /// The value, as it was given.
    pub value: T,
}

impl<T> Rejected<T> {
    #[inline]
    pub(crate) fn new(reason: Reason, value: T) -> Rejected<T> {
        Rejected { reason, value }
    }
}

impl<T> fmt::Debug for Rejected<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Rejected({:?})", self.reason)
    }
}

impl<T> fmt::Display for Rejected<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.reason.fmt(f)
    }
}

impl<T> std::error::Error for Rejected<T> {}

impl<T> From<Rejected<T>> for Reason {
    fn from(rejected: Rejected<T>) -> Reason {
        rejected.reason
    }
}

/// Why something was not accepted, or why a state cannot be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// The runtime has ended, or was asked to stop and takes no more from outside.
    Ended,
    /// The limit of queued events is reached:
    /// [`Builder::events_max`](crate::Builder::events_max).
    Full,
    /// The limit of this color, queue or connection is reached: the number of events of a
    /// [`Bounded`](crate::state::Bounded) or of its waiters, or the bytes of
    /// [`Stream::set_write_limit`](crate::net::Stream::set_write_limit).
    NoRoom,
    /// All threads for blocking work are busy, and their queue is full:
    /// [`Builder::blocking_threads_max`](crate::Builder::blocking_threads_max),
    /// [`blocking_queue_max`](crate::Builder::blocking_queue_max).
    BlockingFull,
    /// The pool for blocking work has no thread, and the system refused one.
    NoThread {
        /// The stack that the thread was to have, if it was set:
        /// [`Builder::stack_bytes`](crate::Builder::stack_bytes).
        stack_bytes: Option<usize>,
        /// The system's error number, if it gave one.
        errno: Option<i32>,
    },
    /// No room came in time.
    TimedOut,
    /// Waiting inside a handler would block its core, and with it perhaps the very color that is
    /// waited for.
    InsideHandler,
    /// The connection is closed, or its writing half is.
    Closed,
    /// The state belongs to another runtime than the handler that asked.
    OtherRuntime,
    /// The handler that asked runs in another color.
    OtherColor {
        /// The color of the state.
        state: Color,
        /// The color of the handler.
        handler: Color,
    },
    /// The state is already lent, further up the stack.
    Lent,
    /// The session is not there: [`Stream::serve`](crate::net::Stream::serve) has not opened it
    /// yet, or its opening has panicked.
    NotOpen,
    /// A handler panicked while it had the state; see
    /// [`Colored::clear_poison`](crate::Colored::clear_poison).
    Poisoned,
    /// No state was given: an event of no states has no color.
    NoState,
    /// The same state, of this color, was given twice.
    Twice(Color),
    /// The states belong to two runtimes.
    TwoRuntimes,
    /// No handler of mely runs on this thread, or its context is lent further up the stack.
    NoContext,
    /// There are not as many cores:
    /// [`Poster::set_working_cores`](crate::Poster::set_working_cores).
    WorkingCores {
        /// How many were asked for.
        asked: usize,
        /// How many the runtime has.
        all: usize,
    },
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match *self {
            Reason::Ended => "the runtime has ended or is ending",
            Reason::Full => "the limit of queued events is reached (`Builder::events_max`)",
            Reason::NoRoom => {
                "the limit is reached (`Colored::bounded` or `Bounded::waiters_max` of a color, \
                 `Stream::set_write_limit` of a connection)"
            }
            Reason::BlockingFull => {
                "all threads for blocking work are busy and their queue is full \
                 (`Builder::blocking_threads_max`, `blocking_queue_max`)"
            }
            Reason::NoThread { stack_bytes, errno } => {
                f.write_str("no thread for blocking work could be started")?;
                if let Some(bytes) = stack_bytes {
                    write!(
                        f,
                        ": a thread with a stack of {bytes} bytes (`stack_bytes`)"
                    )?;
                }
                return match errno {
                    Some(errno) => write!(f, ": {}", io::Error::from_raw_os_error(errno)),
                    None => Ok(()),
                };
            }
            Reason::TimedOut => "no room came in time",
            Reason::InsideHandler => {
                "waiting inside a handler would block its core: use `on_room` or `reserve`"
            }
            Reason::Closed => "the connection is closed",
            Reason::OtherRuntime => "the state belongs to another runtime",
            Reason::OtherColor { state, handler } => {
                return write!(
                    f,
                    "the state belongs to color {state} and the handler runs in color {handler}"
                );
            }
            Reason::Lent => "the state is already lent to this event",
            Reason::NotOpen => "the session is not opened yet, or its opening has panicked",
            Reason::Poisoned => "a handler panicked while it had the state",
            Reason::NoState => "an event of no states has no color",
            Reason::Twice(color) => {
                return write!(f, "the same state twice, of color {color}");
            }
            Reason::TwoRuntimes => "states of two runtimes cannot be had together",
            Reason::NoContext => "no handler of mely runs on this thread",
            Reason::WorkingCores { asked, all } => {
                return write!(
                    f,
                    "{asked} working cores of a runtime with {all}: from 1 to {all} can work \
                     (`Builder::cores` says how many there are)"
                );
            }
        })
    }
}

impl std::error::Error for Reason {}

/// Of the kind `Other`, with this as its source.
impl From<Reason> for std::io::Error {
    fn from(reason: Reason) -> std::io::Error {
        std::io::Error::other(reason)
    }
}
