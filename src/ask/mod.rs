//! Asking a color: an event that returns something, and a handle for what it returns.
//!
//! [`reply`] is the handle and the cell behind it, [`gather`] makes one handle of many. Here is the
//! event: it carries a guard that settles the cell whatever becomes of the event. If it runs to its
//! end, by its value; if it panics or is never run, by the reason. So nobody waits for nothing.

mod gather;
pub(crate) mod reply;

pub use self::gather::gather;
pub use self::reply::{NoReply, Reply};

use self::reply::ReplyCell;
use crate::host::inner::Inner;
use crate::host::panics::LateDrop;
use crate::sync::Arc;
use crate::{Color, Cx};

/// Settles a reply, at the latest when it is dropped.
pub(crate) struct Asked<R: Send + 'static> {
    /// None once it is settled.
    cell: Option<Arc<ReplyCell<R>>>,
    begun: bool,
}

impl<R: Send + 'static> Asked<R> {
    /// An event's part and the asker's, of an event of this runtime.
    pub(crate) fn new(inner: &Arc<Inner>) -> (Asked<R>, Reply<R>) {
        Asked::of_runtime(Arc::as_ptr(inner).cast())
    }

    /// The same, of the runtime at this address.
    pub(crate) fn of_runtime(runtime: *const ()) -> (Asked<R>, Reply<R>) {
        let cell = Arc::new(ReplyCell::new());
        let asked = Asked {
            cell: Some(Arc::clone(&cell)),
            begun: false,
        };
        (asked, Reply::of(cell, runtime.addr()))
    }

    /// This is what was asked for: of work that was not asked before whether anybody waits.
    pub(crate) fn answer(mut self, cx: &mut Cx, value: R) {
        if let Some(cell) = self.cell.take() {
            cell.publish_first(cx);
            cell.settle(value);
        }
    }

    /// Runs `f` in the event, unless nobody waits for it any more.
    pub(crate) fn run(mut self, cx: &mut Cx, f: impl FnOnce(&mut Cx) -> R) {
        // It is there until the answer.
        if let Some(by_panic) = self.cell.as_ref().and_then(|cell| cell.canceled()) {
            return drop(LateDrop::new(f, by_panic));
        }
        self.begun = true;
        let value = f(cx);
        self.answer(cx, value);
    }
}

/// Runs `f` in the event, for whoever asked; for nobody, if nobody did.
pub(crate) fn run_asked<R>(asked: Option<Asked<R>>, cx: &mut Cx, f: impl FnOnce(&mut Cx) -> R)
where
    R: Send + 'static,
{
    match asked {
        Some(asked) => asked.run(cx, f),
        None => drop(f(cx)),
    }
}

impl<R: Send + 'static> Drop for Asked<R> {
    fn drop(&mut self) {
        if let Some(cell) = &self.cell {
            // What was not begun by `run` may have begun otherwise.
            cell.settle_without(match self.begun {
                true => NoReply::Panicked,
                false => NoReply::of_a_drop(),
            });
        }
    }
}

impl Cx {
    /// Posts `f` to `color`, as [`post`](Self::post) does, and returns a handle for what it will
    /// return. This handler does not wait for it: see [`Reply::then`].
    ///
    /// # Panics
    /// As [`post`](Self::post).
    ///
    /// ```
    /// use mely::{Color, Handler, Runtime};
    /// static TOLD: Handler = Handler::new("told");
    /// let answer = Runtime::builder().build()?.run_until(|cx, finish| {
    ///     let reply = cx.ask(Color::from(4), |cx| cx.color().value() * 10);
    ///     reply.then(cx, TOLD.on_value(Color::from(7), move |cx, answer| {
    ///         assert_eq!(cx.color(), Color::from(7));
    ///         finish.finish(answer);
    ///     }));
    /// })?;
    /// assert_eq!(answer, Ok(40));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[track_caller]
    pub fn ask<R, F>(&self, color: Color, f: F) -> Reply<R>
    where
        F: FnOnce(&mut Cx) -> R + Send + 'static,
        R: Send + 'static,
    {
        let (asked, reply) = Asked::new(&self.worker_ref().inner);
        self.post(color, move |cx| asked.run(cx, f));
        reply
    }
}
