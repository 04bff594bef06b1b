//! The context of the event that polls a future, for code that no context can be given to.
//!
//! A future's `poll` has no parameter for a [`Cx`]. So while a task is polled, or dropped, its
//! event's context lies in a cell of the thread, and [`with_cx`] takes it out for the time of a
//! call. That is what keeps it the only one: whoever asks inside such a call finds nothing, and the
//! event itself does not touch its context before the poll is over. So [`crate::in_color`] can go
//! by what it always goes by: who has `&mut Cx` has the event's only one.

use crate::Cx;
use crate::sync::thread_local;
use std::cell::Cell;
use std::fmt;
use std::ptr::NonNull;

#[cfg(not(loom))]
thread_local! {
    static CONTEXT: Cell<Option<NonNull<Cx>>> = const { Cell::new(None) };
}
// Loom's macro has no constant initializers.
#[cfg(loom)]
thread_local! {
    static CONTEXT: Cell<Option<NonNull<Cx>>> = Cell::new(None);
}

/// There is no context here; see [`try_with_cx`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoContext;

impl fmt::Display for NoContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not inside the poll of a task of mely, or the context is already lent")
    }
}

impl std::error::Error for NoContext {}

/// Puts back what the cell had before.
struct Restore(Option<NonNull<Cx>>);

impl Drop for Restore {
    fn drop(&mut self) {
        CONTEXT.with(|context| context.set(self.0));
    }
}

/// Calls `poll`, inside of which [`with_cx`] finds this context.
pub(super) fn lend<R>(cx: &mut Cx, poll: impl FnOnce() -> R) -> R {
    let context = Some(NonNull::from(cx));
    let _restore = Restore(CONTEXT.with(|cell| cell.replace(context)));
    poll()
}

/// Calls `f` with the context of the event that polls this future: so a task posts, reads the
/// state of its color, sets timers, opens connections.
///
/// Works inside the poll of a future that was given to [`Cx::spawn`](crate::Cx::spawn) or one of
/// its kin, at whatever depth, and where such a future is dropped in its color. The context cannot
/// be kept, and not be had twice: inside `f` there is none.
///
/// ```
/// use mely::{Color, Colored, Runtime, with_cx};
/// let runtime = Runtime::builder().build()?;
/// let total = runtime.run_until(|cx, finish| {
///     let hits = Colored::new(cx, Color::from(7), 40);
///     let task = cx.spawn(Color::from(7), async move {
///         // The state of the task's own color, without waiting.
///         let before = with_cx(|cx| hits.with(cx, |hits, _cx| *hits)).unwrap();
///         finish.finish(before + 2);
///     });
///     task.detach();
/// })?;
/// assert_eq!(total, 42);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Panics
/// Where [`try_with_cx`] returns an error.
pub fn with_cx<R>(f: impl FnOnce(&mut Cx) -> R) -> R {
    match try_with_cx(f) {
        Ok(result) => result,
        Err(refused) => panic!("`with_cx`: {refused}"),
    }
}

/// As [`with_cx`], where there may be no context.
///
/// # Errors
/// [`NoContext`] outside of tasks: on a thread that is no core, in a handler, which has its context
/// from its parameter, and in a future that somebody else polls. Also inside `f` of another call.
pub fn try_with_cx<R>(f: impl FnOnce(&mut Cx) -> R) -> Result<R, NoContext> {
    // No cell: the thread is about to end.
    let taken = CONTEXT.try_with(Cell::take).ok().flatten();
    let mut context = taken.ok_or(NoContext)?;
    let _restore = Restore(taken);
    // SAFETY: `lend` put it there, on this thread, and has it borrowed for as long as it is there.
    // It was taken out, and goes back when `f` is over: so nobody else has it meanwhile.
    Ok(f(unsafe { context.as_mut() }))
}
