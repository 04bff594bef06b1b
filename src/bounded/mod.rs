//! A color with a bound on the events that wait in it.
//!
//! A *permit* is room for one event. A bounded color has as many permits as its limit. An event
//! takes one before it is posted, carries it in its closure, and gives it back when it begins. So
//! each permit is given back exactly once: when the event runs, when it is shed, or when its
//! closure is dropped at the end of a run. A panic of the event comes later.
//!
//! [`permits`] counts the permits and has the line of waiters. [`reserve`] waits for one: as a
//! future, and on a thread.
//!
//! All of this is above [`Colored`]: for the scheduler, an event of a bounded color is an event
//! like any other.

mod permits;
mod reserve;

use self::permits::{Joined, Permits, Undelivered};
use crate::callback::Callback;
use crate::event::node::{AtLimit, Sort};
use crate::host::holding::arrive;
use crate::host::inner::Inner;
use crate::host::panics::{Caught, InTurn};
use crate::host::quiesce::Until;
use crate::host::worker;
use crate::post::sealed::Through;
use crate::post::{Post, posts_to, until_of};
use crate::rejected::{Reason, Rejected};
use crate::sched::core::Core;
use crate::shared::load::stats::CoreCounters;
use crate::sync::relaxed::{AtomicU64, AtomicUsize, Ordering};
use crate::sync::{Arc, fault};
use crate::{Colored, Cx, Handler};
use std::fmt;
use std::thread::panicking;
use std::time::Duration;

/// The handler of an event that resumes a panic of a waker, or of a callback that was dropped.
static GIVES_ROOM: Handler = Handler::new("mely: gives room");

/// A [`Colored`] with a limit on its waiting events, for backpressure and load shedding.
///
/// A handle, made by [`Colored::bounded`]; clones have the same state and the same bound. Only
/// events posted through these handles count: events posted through the `Colored` itself, or
/// through another bound of the same state, do not. So each source of events for one state can have
/// a bound of its own, and no source takes the room of another.
///
/// An event counts from its post until it begins. An event that waits for a [hold](Cx::hold) has
/// not begun.
///
/// | if there is no room | use |
/// |---|---|
/// | give the closure back | [`try_post`](Self::try_post) |
/// | post a callback once there is room | [`on_room`](Self::on_room) |
/// | await room in a task | [`reserve`](Self::reserve) |
/// | block a thread that is not a core of a runtime | [`post_wait`](Self::post_wait) |
///
/// **Backpressure.** Callbacks, tasks and threads that wait for room form one line, and are given
/// room first come, first served. While the line is not empty all other posts are refused, so none
/// overtakes it. Room is given as a [`Permit`]: a post with a permit is never refused for want of
/// room.
///
/// **Load shedding.** With [`shed_older_than`](Self::shed_older_than) or
/// [`shed_deeper_than`](Self::shed_deeper_than), an event over the limit is *shed* when its turn
/// comes: dropped in its color instead of run, and counted. A drop callback
/// ([`try_post_or`](Self::try_post_or)) runs instead.
///
/// **Order.** An event that is posted with room comes after all events that were posted before the
/// room was made, by the event that made it and by earlier events on its core. For this, an event
/// of a bound publishes the earlier posts of its core when it begins, as [`Cx::flush`] does.
///
/// ```
/// use mely::state::Permit;
/// use mely::{Color, Colored, Cx, Handler, Reason, Runtime};
/// static ROOM: Handler = Handler::new("room");
/// // With more cores another one might have begun with the first line.
/// let runtime = Runtime::builder().cores(1).build()?;
/// let lines = runtime.run_until(|cx, finish| {
///     let log = Colored::new(cx, Color::from(9), String::new());
///     let bounded = log.bounded(2);
///     bounded.try_post(cx, |log, _cx| log.push_str("one ")).unwrap();
///     bounded.try_post(cx, |log, _cx| log.push_str("two ")).unwrap();
///     let refused = bounded.try_post(cx, |log, _cx| log.push_str("three")).unwrap_err();
///     assert_eq!(refused.reason, Reason::NoRoom);
///     let line = refused.value;
///     // The closure is posted later, when there is room for it.
///     let on_room = move |cx: &mut Cx, room: Permit<String>| {
///         room.try_post(cx, line).unwrap();
///         log.post(cx, move |log, _cx| finish.finish(log.clone()));
///     };
///     bounded.on_room(cx, ROOM.on_value(Color::from(7), on_room)).unwrap();
/// })?;
/// assert_eq!(lines, "one two three");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Bounded<T: Send + 'static> {
    cell: Arc<BoundedCell<T>>,
    /// The handler of the events that are posted through this handle.
    handler: Option<&'static Handler>,
}

struct BoundedCell<T: Send + 'static> {
    state: Colored<T>,
    limit: usize,
    waiters_max: usize,
    /// Events that waited for longer are shed; `MAX` if none is.
    age_max: Duration,
    /// Events with more others behind them are shed; `MAX` if none is.
    depth_max: usize,
    permits: Permits<Bounded<T>>,
    /// Events that wait, if any are shed.
    queued: AtomicUsize,
    /// Events shed.
    shed: AtomicU64,
    /// Posts that found no room.
    refused: AtomicU64,
}

impl<T: Send + 'static> BoundedCell<T> {
    /// Whether events are ever shed.
    fn sheds(&self) -> bool {
        self.age_max != Duration::MAX || self.depth_max != usize::MAX
    }
}

impl<T: Send + 'static> Colored<T> {
    /// Returns a handle of this state through which at most `limit` events wait at a time. Its
    /// events run under the handler of this handle, if it has one ([`via`](Self::via)).
    ///
    /// This handle and its clones still post without a limit: answers to requests that the color
    /// itself has made, say, which must not be refused.
    ///
    /// # Panics
    /// If `limit` is 0 or above `u32::MAX`.
    #[track_caller]
    pub fn bounded(&self, limit: usize) -> Bounded<T> {
        assert!(
            (1..=u32::MAX as usize).contains(&limit),
            "a bound of {limit} events: use 1 to `u32::MAX`"
        );
        Bounded {
            handler: self.handler(),
            cell: Arc::new(BoundedCell {
                state: self.clone(),
                limit,
                waiters_max: 1 << 16,
                age_max: Duration::MAX,
                depth_max: usize::MAX,
                permits: Permits::new(limit),
                queued: AtomicUsize::new(0),
                shed: AtomicU64::new(0),
                refused: AtomicU64::new(0),
            }),
        }
    }
}

impl<T: Send + 'static> Bounded<T> {
    /// Sheds an event if it was posted more than `age` before its turn comes, by the runtime's
    /// clock ([`Cx::now`]). By default no event is too old.
    ///
    /// # Panics
    /// If the bound is in use: it has another handle, a permit, or an event that waits. The limits
    /// are set before the first clone, [`via`](Self::via) or post.
    #[must_use]
    #[track_caller]
    pub fn shed_older_than(mut self, age: Duration) -> Bounded<T> {
        self.settings().age_max = age;
        self
    }

    /// Sheds an event if more than `depth` others wait behind it when its turn comes: the oldest go
    /// first. Events of this bound count, permits that are not used yet do not. By default, and
    /// from `limit - 1` upwards, no event is too deep.
    ///
    /// # Panics
    /// As [`shed_older_than`](Self::shed_older_than).
    #[must_use]
    #[track_caller]
    pub fn shed_deeper_than(mut self, depth: usize) -> Bounded<T> {
        self.settings().depth_max = depth;
        self
    }

    /// Refuses a callback ([`on_room`](Self::on_room)) if `max` waiters are in the line for room
    /// already. The default is 65,536; with 0 no callback waits. Tasks and threads are not refused:
    /// they join the line at any length.
    ///
    /// # Panics
    /// As [`shed_older_than`](Self::shed_older_than).
    #[must_use]
    #[track_caller]
    pub fn waiters_max(mut self, max: usize) -> Bounded<T> {
        self.settings().waiters_max = max;
        self
    }

    #[track_caller]
    fn settings(&mut self) -> &mut BoundedCell<T> {
        Arc::get_mut(&mut self.cell)
            .expect("the limits of a `Bounded` are set before it is cloned or used")
    }

    /// Returns a handle of the same bound whose events run under `handler`; see [`Colored::via`].
    #[must_use]
    pub fn via(&self, handler: &'static Handler) -> Bounded<T> {
        Bounded {
            handler: Some(handler),
            ..self.clone()
        }
    }

    /// Returns the state, to post to without a bound.
    pub fn state(&self) -> &Colored<T> {
        &self.cell.state
    }

    /// Returns the number of events that wait at this moment and of [permits](Permit) that are not
    /// used yet: never more than the limit.
    pub fn waiting(&self) -> usize {
        self.cell.limit - self.cell.permits.free()
    }

    /// Returns the number of callbacks, tasks and threads that wait for room at this moment.
    pub fn in_line(&self) -> usize {
        self.cell.permits.in_line()
    }

    /// Returns the number of events shed so far, with a drop callback or without. For the sum over
    /// a runtime see [`Stats::events_shed`](crate::metrics::Stats::events_shed).
    pub fn shed(&self) -> u64 {
        self.cell.shed.load(Ordering::Relaxed)
    }

    /// Returns the number of calls so far that found no room: those that returned
    /// [`Reason::NoRoom`] or [`Reason::TimedOut`], and `None` from
    /// [`try_reserve`](Self::try_reserve). For the sum over a runtime see
    /// [`Stats::events_refused`](crate::metrics::Stats::events_refused).
    pub fn refused(&self) -> u64 {
        self.cell.refused.load(Ordering::Relaxed)
    }

    /// Posts `f` to the state's color if there is room; see [`Colored::try_post`].
    ///
    /// If the event is shed, `f` is dropped in its color.
    ///
    /// # Errors
    /// [`Reason::NoRoom`] if the limit is reached or the line for room is not empty; else as
    /// [`Colored::try_post`], also if the state is poisoned. If there is no room and the run has
    /// ended, the reason is [`Reason::Ended`]. All give the closure back.
    pub fn try_post<P, F>(&self, by: &P, f: F) -> Result<(), Rejected<F>>
    where
        P: Post + ?Sized,
        F: FnOnce(&mut T, &mut Cx) + Send + 'static,
    {
        let (permit, f) = self.room_for(by, f)?;
        permit.try_post(by, f)
    }

    /// Posts `f` as [`try_post`](Self::try_post) does, with a drop callback: if the event is shed,
    /// `on_shed` runs in the color instead of `f`, and `f` is dropped after it.
    ///
    /// ```
    /// use mely::{Color, Colored, Cx, Runtime};
    /// use std::time::Duration;
    /// let answer = Runtime::builder().build()?.run_until(|cx, finish| {
    ///     let shard = Colored::new(cx, Color::from(9), ());
    ///     let bounded = shard.bounded(8).shed_older_than(Duration::from_millis(1));
    ///     // The event behind this one waits for longer than that.
    ///     shard.post(cx, |_, _cx| std::thread::sleep(Duration::from_millis(2)));
    ///     let busy = finish.clone();
    ///     let serve = move |_: &mut (), _cx: &mut Cx| finish.finish("served");
    ///     let posted = bounded.try_post_or(cx, serve, move |_, _cx| busy.finish("busy"));
    ///     assert!(posted.is_ok());
    /// })?;
    /// assert_eq!(answer, "busy");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`try_post`](Self::try_post), with both closures.
    pub fn try_post_or<P, F, S>(&self, by: &P, f: F, on_shed: S) -> Result<(), Rejected<(F, S)>>
    where
        P: Post + ?Sized,
        F: FnOnce(&mut T, &mut Cx) + Send + 'static,
        S: FnOnce(&mut T, &mut Cx) + Send + 'static,
    {
        let (permit, (f, on_shed)) = self.room_for(by, (f, on_shed))?;
        permit.try_post_or(by, f, on_shed)
    }

    /// Takes room for one event, if there is some now. After the end of the run a permit may still
    /// be had: a post with it says that the run has ended.
    pub fn try_reserve(&self) -> Option<Permit<T>> {
        let permit = self.take();
        if permit.is_none() {
            self.count_refused();
        }
        permit
    }

    /// Posts `callback` with a [`Permit`] as soon as there is room, once; at once if there is room
    /// already. Call it after a refusal: room that was made in between is not missed.
    ///
    /// The callback is posted as an event of its own color, to the runtime of `by`, which may be
    /// another one than the state's: a run of another runtime does not end before that. It is
    /// posted also at the limit of queued events
    /// ([`Builder::events_max`](crate::Builder::events_max)), and after the runtime was asked to
    /// stop. If `by` is a [`Hold`](crate::Hold) of the callback's color, the event goes past those
    /// that wait for the hold.
    ///
    /// Waiters are given room first come, first served, together with those of
    /// [`reserve`](Self::reserve) and [`post_wait`](Self::post_wait). But callbacks are then posted
    /// by the event that made the room, and may run in another order.
    ///
    /// If the run of `by` ends or is cut short meanwhile, the callback is dropped and the next
    /// waiter gets the room. The state's own run does not wait for callbacks in the line: if only
    /// room is missing that is kept outside of it, as a [`Permit`], the run ends, and the callbacks
    /// are dropped when that room is given back.
    ///
    /// # Errors
    /// [`Reason::NoRoom`] if the line is full ([`waiters_max`](Self::waiters_max)), and
    /// [`Reason::Ended`] if the run of `by` has ended. Both give the callback back.
    pub fn on_room<P, F>(&self, by: &P, callback: Callback<F>) -> Result<(), Rejected<Callback<F>>>
    where
        P: Post + ?Sized,
        F: FnOnce(&mut Cx, Permit<T>) + Send + 'static,
    {
        let poster = by.to_poster();
        // A run of the same runtime is kept by the events that wait.
        let kept = match posts_to(by, self.inner()) {
            true => (!poster.inner.quiesce.refuses(Until::End)).then_some(None),
            false => poster.strong().ok().map(Some),
        };
        let Some(keep_alive) = kept else {
            return Err(Rejected::new(Reason::Ended, callback));
        };
        let Callback { handler, color, f } = callback;
        let through = by.through(color);
        let post = move |f: F, bounded: Bounded<T>| {
            let with_permit = |(f, bounded): (F, Bounded<T>)| {
                let permit = Permit::of(bounded);
                move |cx: &mut Cx| match through {
                    Some(Through(hold)) => {
                        arrive(cx, handler, hold, false, |cx: &mut Cx| f(cx, permit))
                    }
                    None => f(cx, permit),
                }
            };
            let sort = through.map_or(Sort::ORDINARY, |_| Sort::PASSING);
            let (until, parts, sort) = (Until::End, (f, bounded), sort.at(AtLimit::Own));
            let posted = poster.post_sort_until(until, handler, color, parts, sort, with_permit);
            posted.map_err(|refused| refused.value)
        };
        let (permits, waiters_max) = (&self.cell.permits, self.cell.waiters_max);
        let joined = permits.join((f, post, keep_alive), waiters_max, |parts| {
            let (f, post, keep_alive) = parts;
            Box::new(move |bounded, turns: &mut InTurn| {
                let _until_it_is_posted = keep_alive;
                let posted = post(f, bounded);
                posted.map_err(|(f, _)| {
                    turns.run(|| drop(f));
                    Undelivered
                })
            })
        });
        let refused = |reason, f| Rejected::new(reason, Callback::new(handler, color, f));
        match joined {
            Joined::Waits => Ok(()),
            Joined::Free((f, post, _)) => post(f, self.clone()).map_err(|(f, handle)| {
                drop(Permit::of(handle));
                refused(Reason::Ended, f)
            }),
            Joined::Full((f, ..)) => {
                self.count_refused();
                Err(refused(Reason::NoRoom, f))
            }
        }
    }

    /// A permit, if one is free.
    fn take(&self) -> Option<Permit<T>> {
        self.cell.permits.take().then(|| Permit::of(self.clone()))
    }

    /// A permit for `f`, or why a post of `f` by `by` is refused. Counts it, if there is no room.
    fn room_for<F>(&self, by: &(impl Post + ?Sized), f: F) -> Result<(Permit<T>, F), Rejected<F>> {
        let f = self.state().unless_poisoned(f)?;
        if let Some(permit) = self.take() {
            return Ok((permit, f));
        }
        let inner = self.inner();
        if inner.quiesce.refuses(until_of(by, inner)) {
            return Err(Rejected::new(Reason::Ended, f));
        }
        self.count_refused();
        Err(Rejected::new(Reason::NoRoom, f))
    }

    fn inner(&self) -> &Arc<Inner> {
        &self.cell.state.poster().inner
    }

    fn count_refused(&self) {
        self.cell.refused.fetch_add(1, Ordering::Relaxed);
        let inner = self.inner();
        let here = worker::lend_current(Arc::as_ptr(inner), (), |worker, ()| {
            counters(&worker.core).refused.add(1);
            #[cfg(feature = "tracing")]
            worker.core.tell_refused(self.cell.state.color(), "bounded");
        });
        if here.is_err() {
            inner.refused_outside.fetch_add(1, Ordering::Relaxed);
            #[cfg(feature = "tracing")]
            crate::notice::tell_refused_outside(self.cell.state.color(), "bounded");
        }
    }

    /// Gives the caller's permit back.
    fn give_back(&self) {
        // Before any other post can have it.
        if !fault("room before what was posted") {
            worker::publish_current();
        }
        if let Some(panic) = self.cell.permits.give_back(|| self.clone()) {
            self.panic_apart(panic);
        }
    }

    /// Resumes the panic of a waker or a dropped callback in an event of its own, since the event
    /// that makes room has nothing to do with it. After the end it is resumed in the caller.
    fn panic_apart(&self, panic: Caught) {
        if self.inner().ended() && !panicking() {
            panic.resume();
        }
        let (poster, color) = (self.cell.state.poster(), self.cell.state.color());
        let event = move |_cx: &mut Cx| -> () { panic.resume() };
        drop(poster.post_own_until(Until::End, Some(&GIVES_ROOM), color, event));
    }
}

fn counters(core: &Core) -> &CoreCounters {
    &core.shared.core(core.id).stats
}

impl<T: Send + 'static> Clone for Bounded<T> {
    fn clone(&self) -> Bounded<T> {
        Bounded {
            cell: Arc::clone(&self.cell),
            handler: self.handler,
        }
    }
}

impl<T: Send + 'static> fmt::Debug for Bounded<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bounded")
            .field("color", &self.cell.state.color())
            .field("limit", &self.cell.limit)
            .field("waiting", &self.waiting())
            .field("shed", &self.shed())
            .finish_non_exhaustive()
    }
}

/// Room for one event of a [`Bounded`] color, reserved for its owner.
///
/// If it is dropped without a post, the room goes to the next waiter in the line. A permit that is
/// kept or leaked is room that no event uses. It does not keep a run from ending, but waiters for
/// its room may: a task that waits by [`Bounded::reserve`] keeps its run, and a callback of another
/// runtime than the state's ([`Bounded::on_room`]) keeps that runtime's run, until they have room
/// or the [deadline](crate::Builder::drain_deadline) has passed.
#[must_use = "if it is dropped, its room goes to the next waiter"]
pub struct Permit<T: Send + 'static> {
    /// None once the permit was given back.
    bounded: Option<Bounded<T>>,
}

impl<T: Send + 'static> Permit<T> {
    /// One that the caller has taken from the count.
    fn of(bounded: Bounded<T>) -> Permit<T> {
        Permit {
            bounded: Some(bounded),
        }
    }

    fn bounded(&self) -> &Bounded<T> {
        let bounded = self.bounded.as_ref();
        bounded.expect("taken by an event that begins only")
    }

    /// Posts `f` to the state's color; see [`Bounded::try_post`]. The event's place in the color is
    /// that of this post, not that of the reservation.
    ///
    /// # Errors
    /// As [`Colored::try_post`]. The closure comes back, and the room goes to the next waiter.
    pub fn try_post<P, F>(self, by: &P, f: F) -> Result<(), Rejected<F>>
    where
        P: Post + ?Sized,
        F: FnOnce(&mut T, &mut Cx) + Send + 'static,
    {
        let posted = self.post_event(by, (f, ()), |_, _, ()| ());
        posted.map_err(|refused| Rejected::new(refused.reason, refused.value.0))
    }

    /// Posts `f` with a drop callback; see [`Bounded::try_post_or`].
    ///
    /// # Errors
    /// As [`try_post`](Self::try_post), with both closures.
    pub fn try_post_or<P, F, S>(self, by: &P, f: F, on_shed: S) -> Result<(), Rejected<(F, S)>>
    where
        P: Post + ?Sized,
        F: FnOnce(&mut T, &mut Cx) + Send + 'static,
        S: FnOnce(&mut T, &mut Cx) + Send + 'static,
    {
        self.post_event(by, (f, on_shed), |state, cx, on_shed| {
            state.lend(cx, on_shed)
        })
    }

    /// Posts an event that runs `f` of the parts or, if it is shed, `on_shed` of the other one.
    fn post_event<P, F, S>(
        self,
        by: &P,
        parts: (F, S),
        on_shed: impl FnOnce(&Colored<T>, &mut Cx, S) + Send + 'static,
    ) -> Result<(), Rejected<(F, S)>>
    where
        P: Post + ?Sized,
        F: FnOnce(&mut T, &mut Cx) + Send + 'static,
        S: Send + 'static,
    {
        let bounded = self.bounded().clone();
        let cell = &bounded.cell;
        let posted_ns = match cell.sheds() {
            true => bounded.inner().now_ns(),
            false => 0,
        };
        // If the post is refused, the permit is dropped at the end of this call and not inside of
        // the runtime, since that may post to a waiter.
        let mut permit = Some(self);
        let wrap = |parts| {
            let permit = permit.take().expect("called once");
            if cell.sheds() {
                // Until it begins. If it never does, the run has ended and the count is not read.
                cell.queued.fetch_add(1, Ordering::Relaxed);
            }
            move |cx: &mut Cx| {
                let (bounded, is_shed) = permit.begin(cx, posted_ns);
                let ((f, its), state) = (parts, bounded.state());
                match is_shed {
                    false => state.lend(cx, f),
                    true => {
                        on_shed(state, cx, its);
                        drop(f);
                    }
                }
            }
        };
        cell.state.post_wrapped(by, bounded.handler, parts, wrap)
    }

    /// Gives the permit back, as the first thing that its event does. Returns the handle, and
    /// whether the event is shed, which is counted.
    fn begin(mut self, cx: &Cx, posted_ns: u64) -> (Bounded<T>, bool) {
        let bounded = self.bounded.take().expect("taken here only");
        let cell = &bounded.cell;
        let is_shed = cell.sheds() && {
            let waited = cx.now().saturating_sub(Duration::from_nanos(posted_ns));
            let behind = cell.queued.fetch_sub(1, Ordering::Relaxed) - 1;
            waited > cell.age_max || behind > cell.depth_max
        };
        if is_shed {
            cell.shed.fetch_add(1, Ordering::Relaxed);
            counters(&cx.worker_ref().core).shed.add(1);
        }
        bounded.give_back();
        (bounded, is_shed)
    }
}

impl<T: Send + 'static> Drop for Permit<T> {
    fn drop(&mut self) {
        if let Some(bounded) = self.bounded.take() {
            bounded.give_back();
        }
    }
}

impl<T: Send + 'static> fmt::Debug for Permit<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Permit")
            .field("color", &self.bounded().cell.state.color())
            .finish_non_exhaustive()
    }
}
