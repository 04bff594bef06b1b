//! The context of the event that polls a future, for code that no context can be given to.
//!
//! A future's `poll` has no parameter for a [`Cx`]. So while a task is polled, or dropped, its
//! event has lent its context ([`Cx::lend_while`]), and [`with_cx`] has it for the time of a call.
//! The context stays the only one: see [`crate::cx`].

use crate::{Cx, Reason};

/// Calls `f` with the context of the event that polls this future: so a task posts, reads the
/// state of its color, sets timers, opens connections.
///
/// Works inside the poll of a future that was given to [`Cx::spawn`](crate::Cx::spawn) or one of
/// its kin, at whatever depth, and where such a future is dropped in its color. The context cannot
/// be kept, and not be had twice: inside `f` there is none.
///
/// ```
/// use mely::task::with_cx;
/// use mely::{Color, Colored, Runtime};
/// let runtime = Runtime::builder().build()?;
/// let total = runtime.run_until(|cx, finish| {
///     let hits = Colored::new(cx, Color::from(7), 40);
///     cx.spawn(Color::from(7), async move {
///         // The state of the task's own color, without waiting.
///         let before = with_cx(|cx| hits.with(cx, |hits, _cx| *hits)).unwrap();
///         finish.finish(before + 2);
///     });
/// })?;
/// assert_eq!(total, 42);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Panics
/// Where [`try_with_cx`] returns an error.
#[track_caller]
pub fn with_cx<R>(f: impl FnOnce(&mut Cx) -> R) -> R {
    match try_with_cx(f) {
        Ok(result) => result,
        Err(refused) => panic!("`with_cx`: {refused}"),
    }
}

/// As [`with_cx`], where there may be no context.
///
/// # Errors
/// [`Reason::NoContext`](crate::Reason::NoContext) outside of tasks: on a thread that is no core,
/// in a handler, which has its context from its parameter, and in a future that somebody else
/// polls. Also inside `f` of another call.
pub fn try_with_cx<R>(f: impl FnOnce(&mut Cx) -> R) -> Result<R, Reason> {
    Cx::with_lent(f).ok_or(Reason::NoContext)
}
