//! A hold: the running color waits until somebody elsewhere is done.
//!
//! What a hold does to the events of its color is told in [`crate::gate`]. Here is who may end it,
//! and how often: a [`Hold`] cannot be copied, and [`Hold::resume`] and its drop both post its last
//! event, exactly one of them. A deadline may come first; then the hold is over, and what is
//! resumed later is dropped in the color.

use crate::callback::Callback;
use crate::event::node::{AtLimit, Sort};
use crate::gate::{Arrival, HoldId};
use crate::host::holding::{arrive, publish_last};
use crate::host::inner::Inner;
use crate::host::panics::LateDrop;
use crate::host::poster::Poster;
use crate::host::quiesce::Until;
use crate::host::worker::Worker;
#[cfg(not(loom))]
use crate::net::Timer;
use crate::post::sealed;
use crate::rejected::Rejected;
use crate::sync::Arc;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::{Color, Cx, Handler};
use std::fmt;
#[cfg(not(loom))]
use std::time::Duration;

/// A color that waits; see [`Cx::hold`].
///
/// `Send` and `Sync`: it goes to whoever will know the answer. Dropped without
/// [`resume`](Self::resume), it lets the color go on, and counts in
/// [`CoreStats::holds_dropped`](crate::metrics::CoreStats::holds_dropped).
///
/// Posting *through* the hold (`hold.try_post(hold.color(), ..)`, or wherever `&impl Post` is asked
/// for, as in `colored.try_post(&hold, ..)`) goes past what waits: such an event runs while the
/// hold is out, before everything that was put aside. To other colors a hold posts as a strong
/// [`Poster`](crate::Poster) does.
///
/// A run does not end while a hold of it is out, asked to or not. If it is cut short, by a panic or
/// by [`Builder::drain_deadline`](crate::Builder::drain_deadline), the hold counts as one event
/// that was left.
#[must_use = "dropped, it lets the color go on at once"]
pub struct Hold {
    inner: Arc<Inner>,
    color: Color,
    id: HoldId,
    /// Neither resumed nor dropped.
    out: bool,
    #[cfg(not(loom))]
    deadline: Option<Deadline>,
}

/// What ends a hold if nobody else does.
#[cfg(not(loom))]
struct Deadline {
    timer: Timer,
    /// It no longer counts, or it has ended the hold: set by whoever is first.
    over: Arc<AtomicBool>,
}

impl Cx {
    /// Suspends the color of the running event: its later events wait, in order, until the hold is
    /// [resumed](Hold::resume) or dropped. The running event goes on to its end.
    ///
    /// This is how an event waits for something that is answered elsewhere, and keeps what a color
    /// promises meanwhile: the next request of a connection is not begun before the first is
    /// answered.
    ///
    /// ```
    /// use mely::{Color, Runtime};
    /// use std::sync::{Arc, Mutex};
    /// let log = Arc::new(Mutex::new(Vec::new()));
    /// let (first, second) = (Arc::clone(&log), Arc::clone(&log));
    /// Runtime::builder().build()?.run(move |cx| {
    ///     let connection = Color::from(7);
    ///     cx.post(connection, move |cx| {
    ///         let hold = cx.hold();
    ///         // The answer comes from elsewhere, some time later.
    ///         cx.post(Color::from(8), move |_cx| {
    ///             hold.resume(move |_cx| first.lock().unwrap().push("first answered"));
    ///         });
    ///     });
    ///     cx.post(connection, move |cx| {
    ///         second.lock().unwrap().push("second begun");
    ///         cx.stop();
    ///     });
    /// })?;
    /// assert_eq!(*log.lock().unwrap(), ["first answered", "second begun"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Order
    /// The events that wait run in the order in which they would have run without the hold, after
    /// the continuation that resumes it. Only events of this very color wait, not others that
    /// happen to share its slot. Nothing else is delayed, and no core waits.
    ///
    /// Several holds of one event end in the order in which they were taken. First the events
    /// through the first hold run, its continuation last. Then those through the second run, and so
    /// on, and after all of them the color's other events. A hold that is resumed before its turn
    /// stays out until then. So a pipeline of requests is answered in the order of the requests:
    ///
    /// ```
    /// use mely::task::sleep;
    /// use mely::{Color, Runtime};
    /// use std::sync::{Arc, Mutex};
    /// use std::time::Duration;
    /// let answered = Arc::new(Mutex::new(Vec::new()));
    /// let log = Arc::clone(&answered);
    /// Runtime::builder().build()?.run(move |cx| {
    ///     let connection = Color::from(7);
    ///     cx.post(connection, move |cx| {
    ///         for (line, time_ms) in [("first", 2), ("second", 0)] {
    ///             let log = Arc::clone(&log);
    ///             let answer = async move {
    ///                 sleep(Duration::from_millis(time_ms)).await;
    ///                 log.lock().unwrap().push(line);
    ///             };
    ///             cx.hold().until(answer);
    ///         }
    ///     });
    ///     cx.post(connection, |cx| cx.stop());
    /// })?;
    /// assert_eq!(*answered.lock().unwrap(), ["first", "second"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// Holds nest. A hold that is taken by an event through another hold ends before that one does.
    /// A hold that is taken by a continuation ends before the color goes on in any way, which is
    /// before the next hold of the event that took the first.
    ///
    /// To wait for several answers in any order, take one hold, post each answer through it, and
    /// resume it after the last one.
    ///
    /// Whoever is to end the hold must not be an event of its color, such as the next poll of a
    /// task, nor of one that is held until this color goes on: they would wait for each other,
    /// until a deadline. [`Hold::on_value`] makes a callback that waits for no color.
    ///
    /// With the color's state: `state.try_post(&hold, ..)` goes past what waits, and
    /// `hold.resume_callback(state.on(&HANDLER, ..))` resumes with the state.
    ///
    /// What waits counts towards [`Builder::events_max`](crate::Builder::events_max). The events of
    /// timers, receives and other callbacks of the color wait like all others. A connection that is
    /// held for long should be [paused](crate::net::Stream::pause): until then it is received
    /// ahead, which takes up to 64 of the receive buffers of its core. A listener whose color is
    /// held goes on accepting.
    ///
    /// A program without holds pays nothing for them. From a runtime's first hold on, each event
    /// takes some 30 instructions more.
    pub fn hold(&mut self) -> Hold {
        let Worker { core, inner, .. } = self.worker();
        Hold {
            inner: Arc::clone(inner),
            id: core.hold(),
            color: core.current.color(),
            out: true,
            #[cfg(not(loom))]
            deadline: None,
        }
    }
}

impl Hold {
    pub(crate) fn id(&self) -> HoldId {
        self.id
    }

    /// The color that waits.
    pub fn color(&self) -> Color {
        self.color
    }

    /// Runs `f` in the held color, then what waits there. From any thread, also after the runtime
    /// was asked to stop, and at the limit of queued events.
    ///
    /// If a [deadline](Self::resume_after) has ended the hold before, `f` is dropped in the color.
    /// If the run was cut short, it is dropped like all events that are left then.
    pub fn resume<F>(self, f: F)
    where
        F: FnOnce(&mut Cx) + Send + 'static,
    {
        self.resume_as(None, f);
    }

    /// Like [`resume`](Self::resume), under the callback's handler.
    ///
    /// # Panics
    /// If the callback is not of the held color. The hold is dropped then.
    #[track_caller]
    pub fn resume_callback<F>(self, callback: Callback<F>)
    where
        F: FnOnce(&mut Cx) + Send + 'static,
    {
        let Callback { handler, color, f } = callback;
        assert!(
            color == self.color,
            "a callback of color {color} resumes a hold of color {}",
            self.color
        );
        self.resume_as(handler, f);
    }

    /// Ends the hold `after` from now, unless it was ended before: `f` runs in the color then,
    /// before what waits, and what resumes the hold later is dropped in the color. From then on the
    /// hold keeps no run from ending. A deadline that was set before no longer holds; its closure
    /// is dropped in the color. On a hold that a deadline has ended, `f` is dropped in the color.
    ///
    /// Like any timer it fires only after the handler that this core is running, and like any end
    /// of a hold it waits for the holds that end before this one. Unlike other timers it is not
    /// canceled when the runtime is asked to stop.
    ///
    /// # Panics
    /// If the context is of another runtime than the hold.
    ///
    /// ```
    /// use mely::{Color, Runtime};
    /// use std::time::Duration;
    /// Runtime::builder().build()?.run(|cx| {
    ///     cx.post(Color::from(7), |cx| {
    ///         let mut hold = cx.hold();
    ///         hold.resume_after(cx, Duration::from_millis(5), |cx| cx.stop());
    ///         // Whoever should answer keeps it, and does not.
    ///         let never = move |_cx: &mut mely::Cx| drop(hold);
    ///         let never = mely::Callback::anonymous(Color::from(8), never);
    ///         cx.timer(Duration::from_secs(3_600), never);
    ///     });
    /// })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[cfg(not(loom))]
    #[track_caller]
    pub fn resume_after<F>(&mut self, cx: &mut Cx, after: Duration, f: F)
    where
        F: FnOnce(&mut Cx) + Send + 'static,
    {
        assert!(
            Arc::ptr_eq(&self.inner, &cx.worker_ref().inner),
            "the deadline of a hold is set in a handler of its own runtime"
        );
        if let Some(deadline) = self.deadline.take() {
            if deadline.over.swap(true, Ordering::AcqRel) {
                self.deadline = Some(deadline);
                return self.drop_in_color(f);
            }
            deadline.timer.cancel(cx);
        }
        let (id, over) = (self.id, Arc::new(AtomicBool::new(false)));
        let its = Arc::clone(&over);
        let event = Callback::new(None, self.color, move |cx: &mut Cx| fire(cx, id, its, f));
        let timer = cx.deadline(after, event);
        self.deadline = Some(Deadline { timer, over });
    }

    /// Drops a closure in the held color, past what waits; here if the run was cut short.
    #[cfg(not(loom))]
    fn drop_in_color<F>(&self, f: F)
    where
        F: FnOnce(&mut Cx) + Send + 'static,
    {
        let dropping = move |_cx: &mut Cx| drop(f);
        let poster = Poster::of(&self.inner);
        drop(poster.post_sort_until(
            Until::End,
            None,
            self.color,
            dropping,
            Sort::PASSING.at(AtLimit::Own),
            |f| f,
        ));
    }

    fn resume_as<F>(mut self, handler: Option<&'static Handler>, f: F)
    where
        F: FnOnce(&mut Cx) + Send + 'static,
    {
        self.end(handler, f);
    }

    /// A callback that [resumes](Self::resume) the hold with `f`, which gets the result: for
    /// whatever takes a callback and calls it later.
    ///
    /// A callback of the held color itself would be an event of that color, and so would wait for
    /// the hold that it is to end. This one is of a color of the runtime's own, and only `f` runs
    /// in the held color. If it is dropped instead of called, so is the hold, and `f` in the color.
    ///
    /// ```
    /// use mely::{Color, Runtime};
    /// let session = Color::from(7);
    /// let answered = Runtime::builder().build()?.run_until(move |cx, finish| {
    ///     cx.post(session, move |cx| {
    ///         let hold = cx.hold();
    ///         let answer = hold.on_value(move |cx, sum| finish.finish((cx.color(), sum)));
    ///         // On a thread of the runtime. The session's next event waits, no core does.
    ///         match cx.try_blocking(|| (1..=100).sum::<u64>()) {
    ///             Ok(sum) => sum.then(cx, answer),
    ///             Err(refused) => eprintln!("{refused}"),
    ///         }
    ///     });
    ///     cx.post(session, |_cx| println!("the next event of the session"));
    /// })?;
    /// assert_eq!(answered, (session, Ok(5_050)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn on_value<V, F>(
        self,
        f: F,
    ) -> Callback<impl FnOnce(&mut Cx, V) + Send + 'static + use<V, F>>
    where
        V: Send + 'static,
        F: FnOnce(&mut Cx, V) + Send + 'static,
    {
        let color = Color::control(self.id.number().core());
        let last = Last::new(self, f);
        Callback::new(None, color, move |_cx: &mut Cx, value: V| {
            let (hold, f) = last.take();
            hold.resume(move |cx| f(cx, value));
        })
    }

    /// Like [`on_value`](Self::on_value), for what delivers no value: a timer, say.
    pub fn on<F>(self, f: F) -> Callback<impl FnOnce(&mut Cx) + Send + 'static + use<F>>
    where
        F: FnOnce(&mut Cx) + Send + 'static,
    {
        let color = Color::control(self.id.number().core());
        let last = Last::new(self, f);
        Callback::new(None, color, move |_cx: &mut Cx| {
            let (hold, f) = last.take();
            hold.resume(f);
        })
    }

    /// Posts `wrap(f)` through the hold.
    fn post_through<F, G>(
        &self,
        handler: Option<&'static Handler>,
        f: F,
        wrap: impl FnOnce(F) -> G,
    ) -> Result<(), Rejected<F>>
    where
        G: FnOnce(&mut Cx) + Send + 'static,
    {
        let (hold, color) = (self.id, self.color);
        let wrap = |f| {
            let f = wrap(f);
            move |cx: &mut Cx| arrive(cx, handler, hold, false, f)
        };
        let poster = Poster::of(&self.inner);
        poster.post_sort_until(Until::End, handler, color, f, Sort::PASSING, wrap)
    }

    /// Posts the hold's last event.
    fn end<F>(&mut self, handler: Option<&'static Handler>, f: F)
    where
        F: FnOnce(&mut Cx) + Send + 'static,
    {
        self.out = false;
        let id = self.id;
        #[cfg(not(loom))]
        if let Some(Deadline { timer, over }) = self.deadline.take() {
            if over.swap(true, Ordering::AcqRel) {
                // The deadline has ended it.
                return self.drop_in_color(f);
            }
            return publish_last(&self.inner, self.color, handler, move |cx| {
                timer.cancel(cx);
                arrive(cx, handler, id, true, f);
            });
        }
        publish_last(&self.inner, self.color, handler, move |cx| {
            arrive(cx, handler, id, true, f);
        });
    }
}

impl sealed::Post for Hold {
    fn to_poster(&self) -> Poster {
        Poster::of(&self.inner)
    }

    fn runtime(&self) -> *const () {
        Arc::as_ptr(&self.inner).cast()
    }

    fn posts_after_stop(&self) -> bool {
        true
    }

    fn through(&self, color: Color) -> Option<sealed::Through> {
        (color == self.color).then_some(sealed::Through(self.id))
    }

    fn post_wrapped<F, G>(
        &self,
        handler: Option<&'static Handler>,
        color: Color,
        f: F,
        wrap: impl FnOnce(F) -> G,
    ) -> Result<(), Rejected<F>>
    where
        G: FnOnce(&mut Cx) + Send + 'static,
    {
        if color == self.color {
            return self.post_through(handler, f, wrap);
        }
        let poster = self.to_poster();
        poster.post_sort_until(Until::End, handler, color, f, Sort::ORDINARY, wrap)
    }
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hold")
            .field("color", &self.color)
            .finish_non_exhaustive()
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if self.out {
            self.end(None, |cx: &mut Cx| cx.worker().core.hold_dropped());
        }
    }
}

/// A hold with what resumes it, in a callback that may be dropped.
struct Last<F: Send + 'static>(Option<(Hold, F)>);

impl<F: Send + 'static> Last<F> {
    fn new(hold: Hold, f: F) -> Last<F> {
        Last(Some((hold, f)))
    }

    fn take(mut self) -> (Hold, F) {
        self.0.take().expect("taken once")
    }
}

impl<F: Send + 'static> Drop for Last<F> {
    /// Ends the hold and drops the closure, in the hold's color.
    fn drop(&mut self) {
        if let Some((mut hold, f)) = self.0.take() {
            let f = LateDrop::of_owner(f);
            hold.end(None, move |cx: &mut Cx| {
                cx.worker().core.hold_dropped();
                drop(f);
            });
        }
    }
}

/// The deadline's event. It ends the hold, unless the deadline was replaced or the hold ended
/// meanwhile.
#[cfg(not(loom))]
fn fire<F>(cx: &mut Cx, hold: HoldId, over: Arc<AtomicBool>, f: F)
where
    F: FnOnce(&mut Cx) + Send + 'static,
{
    let core = &mut cx.worker().core;
    let ends = !over.load(Ordering::Acquire);
    match core.arrive(hold, ends) {
        Arrival::Waits(place) => {
            core.wait(None, place, move |cx: &mut Cx| fire(cx, hold, over, f));
        }
        Arrival::Runs if ends => {
            // Whoever ends the hold at this very moment is late, and its last event will come.
            if !over.swap(true, Ordering::AcqRel) {
                core.settle_hold();
            }
            f(cx);
        }
        Arrival::Runs | Arrival::Late => drop(f),
    }
}
