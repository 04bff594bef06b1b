//! A task: when it is polled, when it is over, and the result for its handle.
//!
//! A task is polled by events of its color. `status` says what becomes of a wake:
//!
//! ```text
//!              wake                    the event begins             ready, panicked,
//!   (idle) -----------> SCHEDULED -----------------------> POLLED   or canceled
//!      ^     (posts)        ^                               | | |  ---------------> POLLED, OVER
//!      |                    |        pending, woken since   | | |
//!      |                    +-------------------------------+ | | wake
//!      |                                (posts)               | +-----> POLLED, SCHEDULED
//!      +------------------------------------------------------+         (posts nothing)
//!                      pending
//! ```
//!
//! (`CANCELED` may come with `BY_PANIC`, which stays.)
//!
//! Whoever turns a task to `SCHEDULED` that is neither scheduled nor polled nor over posts its
//! event, and nobody else does. So there is at most one such event, and a wake that comes while the
//! task is polled is not lost: the event that polls it finds the mark at its end, and posts itself
//! again.
//!
//! **Who has the future.** The task's first event, until that runs. Then, while the task waits, the
//! body's cell, which events of the color reach and nobody else; and while it is polled, the
//! event that polls it: so nothing is borrowed meanwhile, and code of the future's cannot find it.
//!
//! **What can never happen.** Two polls at once: both would be events of one color. A wake without
//! a poll after it, unless the task is over. A run that ends while a task waits: from the first
//! poll that did not finish it until it is over, it counts as an event posted and not executed. An
//! end without a result: the event that drops the future settles it. A future that is dropped
//! outside of its color, unless the run was cut short: then the runtime drops what waits, when no
//! core runs any more ([`crate::host::leftovers`]).

use crate::ask::JoinError;
use crate::ask::cell::{JoinCell, Joined};
use crate::event::node::{AtLimit, Sort};
use crate::gate::HoldId;
use crate::host::holding::arrive;
use crate::host::inner::{Ended, Inner};
use crate::host::leftovers::Leftover;
use crate::host::panics::{InTurn, LateDrop, catching, drop_unwinding};
use crate::host::poster::Poster;
use crate::host::quiesce::Until;
use crate::host::worker::lend_current;
use crate::in_color::InColor;
use crate::sync::atomic::{AtomicU32, Ordering};
use crate::sync::{Arc, fault};
use crate::{Color, Cx, Handler};
use std::any::type_name;
use std::panic::resume_unwind;
use std::pin::Pin;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::panicking;

/// An event that polls the task is queued, or due at the end of the present poll.
const SCHEDULED: u32 = 1;
/// It is polled, or was for the last time.
const POLLED: u32 = 2;
/// The future is to be dropped instead of polled.
const CANCELED: u32 = 4;
/// The future is gone.
const OVER: u32 = 8;
/// A panic has canceled it.
const BY_PANIC: u32 = 16;

/// See the module text.
pub(super) struct Body<F: Future> {
    status: AtomicU32,
    handler: Option<&'static Handler>,
    /// Its events go through this hold.
    hold: Option<HoldId>,
    waiting: InColor<Option<Parked<F>>>,
    /// The output of the future.
    result: JoinCell<F::Output>,
}

/// What a task's first event has: the future, which is in a box or not.
pub(super) struct First<F: Future, B> {
    // Dropped in this order: the result comes when the future is gone.
    future: B,
    unanswered: Unanswered<F>,
}

/// Settles the result of a task whose first event is dropped instead of run.
struct Unanswered<F: Future>(Option<Arc<Body<F>>>);

impl<F: Future> Drop for Unanswered<F> {
    fn drop(&mut self) {
        if let Some(body) = self.0.take() {
            body.result.settle_without(JoinError::of_a_drop());
        }
    }
}

impl<F, B> First<F, B>
where
    F: Future<Output: Send + 'static> + Send + 'static,
{
    pub(super) fn new(body: Arc<Body<F>>, future: B) -> First<F, B> {
        First {
            future,
            unanswered: Unanswered(Some(body)),
        }
    }

    fn begin(self, cx: &mut Cx, pin: impl FnOnce(B) -> Pin<Box<F>>) {
        let First {
            future,
            mut unanswered,
        } = self;
        let future = pin(future);
        if let Some(body) = unanswered.0.take() {
            let waker = Waker::from(Arc::clone(&body));
            body.poll(cx, future, waker, None);
        }
    }
}

/// The first event. What the future needs of memory is taken when it runs, and given back soon if
/// the future does not wait.
pub(super) fn event<F>(first: First<F, F>) -> impl FnOnce(&mut Cx) + Send + 'static
where
    F: Future<Output: Send + 'static> + Send + 'static,
{
    move |cx| first.begin(cx, Box::pin)
}

/// The same with a future that is in a box.
pub(super) fn boxed_event<F>(first: First<F, Pin<Box<F>>>) -> impl FnOnce(&mut Cx) + Send + 'static
where
    F: Future<Output: Send + 'static> + Send + 'static,
{
    move |cx| first.begin(cx, |future| future)
}

/// A future while it is polled. If it panics, it is dropped while that panic unwinds, so that the
/// values it owns see the panic: a connection is reset, and not closed.
struct Polled<'a, F>(&'a mut Option<Pin<Box<F>>>);

impl<F: Future> Polled<'_, F> {
    fn poll(self, waker: &Waker) -> Poll<Box<F::Output>> {
        let future = self.0.as_mut().expect("polled once");
        let polled = match future.as_mut().poll(&mut Context::from_waker(waker)) {
            // What may be large is not moved on from here.
            Poll::Ready(value) => Poll::Ready(Box::new(value)),
            Poll::Pending => Poll::Pending,
        };
        std::mem::forget(self);
        polled
    }
}

impl<F> Drop for Polled<'_, F> {
    fn drop(&mut self) {
        drop_unwinding(self.0.take());
    }
}

/// A future that was polled before.
struct Parked<F> {
    future: Pin<Box<F>>,
    /// Made once: so that no poll counts references.
    waker: Waker,
    /// Where the runtime has noted the task.
    key: usize,
}

impl<F> Body<F>
where
    F: Future<Output: Send + 'static> + Send + 'static,
{
    /// A task whose first event is about to be posted.
    pub(super) fn new(
        poster: Poster,
        handler: Option<&'static Handler>,
        color: Color,
        hold: Option<HoldId>,
    ) -> Arc<Body<F>> {
        Arc::new(Body {
            status: AtomicU32::new(SCHEDULED),
            handler,
            hold,
            waiting: InColor::new(poster, color, None),
            result: JoinCell::new(),
        })
    }

    /// Any event but the first.
    fn go_on(self: Arc<Self>, cx: &mut Cx) {
        let waiting = self.waiting.borrow(cx).map(|mut waiting| waiting.take());
        // None: the runtime is gone, and dropped it.
        if let Ok(Some(Parked { future, waker, key })) = waiting {
            self.poll(cx, future, waker, Some(key));
        }
    }

    /// Polls the future in an event of its color. `key`: it was polled before.
    fn poll(self: Arc<Self>, cx: &mut Cx, future: Pin<Box<F>>, waker: Waker, key: Option<usize>) {
        // What was written before a wake is seen from here on. One mark goes and the other comes,
        // by an instruction that need not try again.
        let before = self.status.fetch_add(POLLED - SCHEDULED, Ordering::AcqRel);
        debug_assert!(before & SCHEDULED != 0 && before & (POLLED | OVER) == 0);
        let mut result = Err(JoinError::Canceled);
        let mut turns = InTurn::default();
        let mut future = Some(future);
        if before & CANCELED == 0 {
            let poll = || Polled(&mut future).poll(&waker);
            match cx.lend_while(|| turns.run(poll)) {
                Some(Poll::Pending) => {
                    let future = future.expect("it has not panicked");
                    return self.wait(cx, future, waker, key);
                }
                Some(Poll::Ready(value)) => result = Ok(value),
                None => {}
            }
        }
        self.status.fetch_or(OVER, Ordering::AcqRel);
        if let Some(key) = key {
            let worker = cx.worker();
            worker.core.task_over();
            // Dropped when the lock is free.
            let _this = worker.inner.leftovers.remove(self.color(), key);
        }
        let future = LateDrop::new((future, waker), before & BY_PANIC != 0);
        cx.lend_while(|| turns.run(|| drop(future)));
        if turns.has_panicked() {
            // A value that came before the panic goes first, and may panic as well.
            let value = std::mem::replace(&mut result, Err(JoinError::Panicked));
            turns.run(|| drop(value));
        }
        // Wakes a waiter, or drops the value of a detached task: user code.
        turns.run(|| {
            self.result.publish_first(cx);
            match result {
                Ok(value) => self.result.settle(*value),
                Err(none) => self.result.settle_without(none),
            }
        });
        turns.end();
    }

    /// The future is pending.
    fn wait(self: Arc<Self>, cx: &mut Cx, future: Pin<Box<F>>, waker: Waker, key: Option<usize>) {
        let key = key.unwrap_or_else(|| {
            let worker = cx.worker();
            worker.core.task_waits();
            let this = Arc::clone(&self) as Arc<dyn Leftover>;
            worker.inner.leftovers.add(self.color(), this)
        });
        let waiting = self.waiting.borrow(cx);
        let mut waiting = waiting.unwrap_or_else(|_| unreachable!("an event of its color"));
        *waiting = Some(Parked { future, waker, key });
        waiting.end();
        let before = self.status.fetch_sub(POLLED, Ordering::AcqRel);
        if before & SCHEDULED != 0 && !fault("wake during a poll forgotten") {
            self.schedule();
        }
    }

    fn color(&self) -> Color {
        self.waiting.color()
    }

    /// Posts the event that polls the task, from any thread, also at the limit of events. Reason
    /// once the run was cut short.
    fn schedule(self: Arc<Self>) {
        let (color, handler) = (self.color(), self.handler);
        let inner: *const Inner = Arc::as_ptr(&self.waiting.poster().inner);
        let Some(hold) = self.hold else {
            let here = lend_current(inner, self, |worker, this| {
                worker.core.post_own(handler, color, |cx| this.go_on(cx));
            });
            let Err(this) = here else { return };
            let poster = this.waiting.poster().clone();
            drop(poster.post_own_until(Until::End, handler, color, |cx| this.go_on(cx)));
            return;
        };
        let poster = self.waiting.poster().clone();
        let event = move |cx: &mut Cx| {
            arrive(cx, handler, hold, false, |cx: &mut Cx| self.go_on(cx));
        };
        drop(poster.post_sort_until(
            Until::End,
            handler,
            color,
            event,
            Sort::PASSING.at(AtLimit::Own),
            |f| f,
        ));
    }

    /// Another event wakes the task while it is polled on another core, and posts no event: so what
    /// it has posted before must be in place when the task finds out what it was woken for.
    fn publish_first(&self) {
        let inner = Arc::as_ptr(&self.waiting.poster().inner);
        let _outside = lend_current(inner, self.color(), |worker, color| {
            if worker.core.current.color() != color {
                worker.publish();
            }
        });
    }

    /// Sets these marks; true if the caller is to post the event.
    fn mark(&self, marks: u32) -> bool {
        if self.status.load(Ordering::Relaxed) & POLLED != 0 {
            if fault("wake only looks") {
                return false;
            }
            self.publish_first();
        }
        let before = self.status.fetch_or(marks, Ordering::AcqRel);
        before & (SCHEDULED | POLLED | OVER) == 0
    }
}

impl<F> Wake for Body<F>
where
    F: Future<Output: Send + 'static> + Send + 'static,
{
    fn wake(self: Arc<Self>) {
        if self.mark(SCHEDULED) {
            self.schedule();
        }
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if self.mark(SCHEDULED) {
            Arc::clone(self).schedule();
        }
    }
}

impl<F> Joined<F::Output> for Body<F>
where
    F: Future<Output: Send + 'static> + Send + 'static,
{
    fn cell(&self) -> &JoinCell<F::Output> {
        &self.result
    }

    fn cancel(self: Arc<Self>) {
        if self.status.load(Ordering::Relaxed) & OVER != 0 {
            return;
        }
        let forgotten = fault("cancel during a poll forgotten");
        let scheduled = if forgotten { 0 } else { SCHEDULED };
        let by_panic = if panicking() { BY_PANIC } else { 0 };
        if self.mark(CANCELED | by_panic | scheduled) {
            self.schedule();
        }
    }
}

impl<F: Future<Output: Send> + Send> Leftover for Body<F> {
    fn name(&self) -> (Color, &'static str) {
        let name = self.handler.map_or_else(type_name::<F>, Handler::name);
        (self.waiting.color(), name)
    }

    fn drop_after_the_end(&self, ended: &mut Ended<'_>) {
        let waiting = self.waiting.borrow_after_the_end(ended).take();
        let dropped = catching(|| drop(waiting));
        self.result.settle_without(match dropped {
            Ok(()) => JoinError::Dropped,
            Err(_) => JoinError::Panicked,
        });
        if let Err(panic) = dropped {
            resume_unwind(panic);
        }
    }
}
