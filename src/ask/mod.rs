//! Asking a color: an event that returns something, and a handle for its value.
//!
//! [`cell`] is what the value goes through, [`handle`] the handle, which tasks and blocking work
//! ([`blocking`]) have as well; [`join_all`] makes one handle of many. Here is the event: it
//! carries a guard that settles the cell whatever becomes of the event. If it runs to its end, by
//! its value; if it panics or is never run, by the reason.

#[cfg(not(loom))]
mod blocking;
pub(crate) mod cell;
mod handle;
mod join_all;

pub use self::handle::{JoinError, JoinHandle};
pub use self::join_all::join_all;

use self::cell::JoinCell;
use crate::host::inner::Inner;
use crate::host::panics::LateDrop;
use crate::sync::{Arc, fault};
use crate::{Color, Cx};

/// The guard of a cell: settles it, at the latest when it is dropped.
pub(crate) struct Asked<T: Send + 'static> {
    /// None once it is settled.
    cell: Option<Arc<JoinCell<T>>>,
    begun: bool,
}

impl<T: Send + 'static> Asked<T> {
    /// The guard and the handle, of an event of this runtime.
    pub(crate) fn new(inner: &Arc<Inner>) -> (Asked<T>, JoinHandle<T>) {
        Asked::of_runtime(Arc::as_ptr(inner).cast())
    }

    /// A handle of this runtime's whose value is there already.
    #[cfg_attr(loom, allow(dead_code, reason = "for what there is no model of"))]
    pub(crate) fn settled(inner: &Arc<Inner>, value: T) -> JoinHandle<T> {
        let (mut asked, handle) = Asked::new(inner);
        asked.settle(value);
        handle
    }

    /// The guard and the handle, of the runtime at this address.
    pub(crate) fn of_runtime(runtime: *const ()) -> (Asked<T>, JoinHandle<T>) {
        let (asked, cell) = Asked::of_cell();
        (asked, JoinHandle::of(cell, runtime.addr()))
    }

    /// The guard and its cell.
    pub(crate) fn of_cell() -> (Asked<T>, Arc<JoinCell<T>>) {
        let cell = Arc::new(JoinCell::new());
        let asked = Asked {
            cell: Some(Arc::clone(&cell)),
            begun: false,
        };
        (asked, cell)
    }

    /// Whether the handle has asked for a cancel.
    pub(crate) fn is_canceled(&self) -> bool {
        let canceled = self.cell.as_ref().and_then(|cell| cell.canceled());
        canceled.is_some()
    }

    /// Settles the cell by a value, on any thread.
    pub(crate) fn settle(&mut self, value: T) {
        if let Some(cell) = self.cell.take() {
            cell.settle(value);
        }
    }

    /// Settles the cell by an error, on any thread.
    pub(crate) fn settle_without(&mut self, error: JoinError) {
        if let Some(cell) = self.cell.take() {
            cell.settle_without(error);
        }
    }

    /// The posts of the running event come before those that are made with the result.
    fn publish_first(&self, cx: &mut Cx) {
        if let Some(cell) = &self.cell {
            cell.publish_first(cx);
        }
    }

    /// Runs `f` in the event, unless it was canceled.
    pub(crate) fn run(mut self, cx: &mut Cx, f: impl FnOnce(&mut Cx) -> T) {
        // The cell is there until it is settled.
        let canceled = self.cell.as_ref().and_then(|cell| cell.canceled());
        if let Some(by_panic) = canceled {
            let f = LateDrop::new(f, by_panic);
            // The handle says that the closure is gone: so first the closure.
            if fault("canceled before the closure is dropped") {
                self.settle_without(JoinError::Canceled);
            }
            drop(f);
            self.publish_first(cx);
            return self.settle_without(JoinError::Canceled);
        }
        self.begun = true;
        let value = f(cx);
        self.publish_first(cx);
        self.settle(value);
    }
}

impl<T: Send + 'static> Drop for Asked<T> {
    fn drop(&mut self) {
        // An event that was not begun by `run` may have begun otherwise.
        self.settle_without(match self.begun {
            true => JoinError::Panicked,
            false => JoinError::of_a_drop(),
        });
    }
}

impl Cx {
    /// Posts `f` to `color`, as [`post`](Self::post) does, and returns a handle for the value that
    /// it will return. This handler does not wait for it: see [`JoinHandle::then`].
    ///
    /// # Panics
    /// As [`post`](Self::post).
    ///
    /// ```
    /// use mely::{Color, Handler, Runtime};
    /// static TOLD: Handler = Handler::new("told");
    /// let answer = Runtime::builder().build()?.run_until(|cx, finish| {
    ///     let asked = cx.ask(Color::from(4), |cx| cx.color().value() * 10);
    ///     asked.then(cx, TOLD.on_value(Color::from(7), move |cx, answer| {
    ///         assert_eq!(cx.color(), Color::from(7));
    ///         finish.finish(answer);
    ///     }));
    /// })?;
    /// assert_eq!(answer, Ok(40));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[track_caller]
    pub fn ask<R, F>(&self, color: Color, f: F) -> JoinHandle<R>
    where
        F: FnOnce(&mut Cx) -> R + Send + 'static,
        R: Send + 'static,
    {
        let (asked, handle) = Asked::new(&self.worker_ref().inner);
        self.post(color, move |cx| asked.run(cx, f));
        handle
    }
}
