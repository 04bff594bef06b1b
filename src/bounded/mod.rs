//! A color with a bound on the events that wait in it.
//!
//! A *permit* is room for one event. A bounded color has as many as its [`Backlog`] says. An event
//! takes one before it is posted, carries it in its closure, and gives it back when it begins. So
//! the permit is given back exactly once whatever becomes of the event: it is run, it is shed, or
//! its closure is dropped at the end of a run. A panic comes later.
//!
//! [`permits`] counts them, and has the line of those who wait for one. [`reserve`] waits: as a
//! future, and on threads. [`backlog`] is how much may wait, and what is shed.
//!
//! All of this is above [`Colored`], and the scheduler knows nothing of it: an event of a bounded
//! color is an event like any other.

pub(crate) mod backlog;
mod permits;
pub(crate) mod reserve;

use self::backlog::{Backlog, Shed};
use self::permits::{Joined, Permits, Undelivered};
use crate::callback::Callback;
use crate::event::node::Sort;
use crate::host::holding::arrive;
use crate::host::inner::Inner;
use crate::host::panics::{Caught, InTurn};
use crate::host::quiesce::Until;
use crate::host::worker;
use crate::post::sealed::Through;
use crate::post::{Post, posts_to, until_of};
use crate::rejected::Reason;
use crate::rejected::Rejected;
use crate::sched::core::Core;
use crate::shared::load::stats::CoreCounters;
use crate::sync::relaxed::{AtomicU64, AtomicUsize, Ordering};
use crate::sync::{Arc, fault};
use crate::{Colored, Cx, Handler};
use std::fmt;
use std::thread::panicking;
use std::time::Duration;

/// What somebody in the line panics with when room is given.
static GIVES_ROOM: Handler = Handler::new("mely: gives room");

/// A [`Colored`] with a bound on the events that wait in it: whoever posts too much is refused or
/// waits, and memory does not.
///
/// A handle; clones name the same state and the same bound. Only what is posted through these
/// handles is counted: other events of the color, and events through other `Bounded`s of the same
/// state, are not. So several sources that post to one state can have a bound each, and none of
/// them takes the room of another.
///
/// A color without a state has a `Colored<()>`.
///
/// An event counts from its post until it begins. (One that waits for a [hold](Cx::hold) has not
/// begun.)
///
/// | who finds no room | and |
/// |---|---|
/// | is told, and has the closure back | [`try_post`](Self::try_post) |
/// | is called when there is room | [`on_room`](Self::on_room) |
/// | awaits it, in a task | [`reserve`](Self::reserve) |
/// | waits, on a thread that is no core | [`post_wait`](Self::post_wait) |
///
/// The last three stand in one line, and are given room in the order in which they came. While
/// somebody is in the line all others are refused, so that nobody is overtaken. Room is given as a
/// [`Permit`], which is kept for its owner: a post with it is not refused for want of room.
///
/// Whoever has room, in whichever way, posts after all that was posted before the room was made: by
/// the event that made it, and by those before it on its core. So an event that begins publishes
/// what its core has posted until then, as [`Cx::flush`] does.
///
/// ```
/// use mely::state::{Backlog, Bounded, Permit};
/// use mely::{Color, Colored, Cores, Cx, Handler, Reason, Runtime};
/// static ROOM: Handler = Handler::new("room");
/// // With more cores another one might have begun with the first line.
/// let runtime = Runtime::builder().cores(Cores::Count(1)).build()?;
/// let lines = runtime.run_until(|cx, finish| {
///     let log = Colored::new(cx, Color::from(9), String::new());
///     let log = Bounded::new(log, Backlog::events(2));
///     log.try_post(cx, |log, _cx| log.push_str("one ")).unwrap();
///     log.try_post(cx, |log, _cx| log.push_str("two ")).unwrap();
///     let refused = log.try_post(cx, |log, _cx| log.push_str("three")).unwrap_err();
///     assert_eq!(refused.reason, Reason::NoRoom);
///     let line = refused.value;
///     // The closure is posted later, when there is room for it.
///     let on_room = move |cx: &mut Cx, room: Permit<String>| {
///         let log = room.bounded().clone();
///         room.try_post(cx, line).unwrap();
///         log.state().post(cx, move |log, _cx| finish.finish(log.clone()));
///     };
///     log.on_room(cx, ROOM.on_value(Color::from(7), on_room)).unwrap();
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
    backlog: Backlog,
    permits: Permits<Bounded<T>>,
    /// Events that wait, if any are shed.
    queued: AtomicUsize,
    /// Events shed.
    shed: AtomicU64,
    /// Posts that found no room.
    refused: AtomicU64,
}

impl<T: Send + 'static> Bounded<T> {
    /// A bound on what is posted to `state` through the handle that is returned, and its clones.
    ///
    /// Whoever keeps `state`, or a clone, still posts without a bound: answers to what the color
    /// itself has asked, say, which must not be refused.
    pub fn new(state: Colored<T>, backlog: Backlog) -> Bounded<T> {
        let permits = Permits::new(backlog.events_max());
        Bounded {
            handler: state.handler(),
            cell: Arc::new(BoundedCell {
                state,
                backlog,
                permits,
                queued: AtomicUsize::new(0),
                shed: AtomicU64::new(0),
                refused: AtomicU64::new(0),
            }),
        }
    }

    /// Returns a handle of the same bound whose events run under `handler`; see [`Colored::via`].
    #[must_use]
    pub fn via(&self, handler: &'static Handler) -> Bounded<T> {
        Bounded {
            handler: Some(handler),
            ..self.clone()
        }
    }

    /// The state, to post to without a bound.
    pub fn state(&self) -> &Colored<T> {
        &self.cell.state
    }

    /// How much may wait.
    pub fn backlog(&self) -> Backlog {
        self.cell.backlog
    }

    /// How many events wait at this moment, and for how many more room was promised
    /// ([`Permit`]): never more than the bound.
    pub fn waiting(&self) -> usize {
        self.cell.backlog.events_max() - self.cell.permits.free()
    }

    /// How many wait for room at this moment: room callbacks, tasks and threads.
    pub fn in_line(&self) -> usize {
        self.cell.permits.in_line()
    }

    /// How many events were shed so far, with a drop callback or without. Of all bounded colors of
    /// a runtime: [`Stats::events_shed`](crate::metrics::Stats::events_shed).
    pub fn shed(&self) -> u64 {
        self.cell.shed.load(Ordering::Relaxed)
    }

    /// How often somebody was refused so far for want of room: [`Reason::NoRoom`](crate::Reason::NoRoom) and
    /// [`TimedOut`](crate::Reason::TimedOut), and nothing from [`try_reserve`](Self::try_reserve).
    /// Of all bounded colors of a runtime: [`Stats::events_refused`](crate::metrics::Stats::events_refused).
    pub fn refused(&self) -> u64 {
        self.cell.refused.load(Ordering::Relaxed)
    }

    /// Posts `f` to the state's color, as [`Colored::try_post`] does, if there is room.
    ///
    /// If the backlog says that events are shed, `f` may be dropped in its color when its turn
    /// comes, and is counted in [`shed`](Self::shed). [`try_post_or`](Self::try_post_or) is told.
    ///
    /// # Errors
    /// [`Reason::NoRoom`](crate::Reason::NoRoom) if as many events wait as may, or others wait for room; else as
    /// [`Colored::try_post`], also if the state is poisoned. [`Reason::Ended`](crate::Reason::Ended) also where
    /// there is no room. All give the closure back.
    pub fn try_post<P, F>(&self, by: &P, f: F) -> Result<(), Rejected<F>>
    where
        P: Post + ?Sized,
        F: FnOnce(&mut T, &mut Cx) + Send + 'static,
    {
        let f = self.state().unless_poisoned(f)?;
        match self.take() {
            Some(permit) => Ok(permit.try_post(by, f)?),
            None => Err(self.no_room(by, f)),
        }
    }

    /// Like [`try_post`](Self::try_post), with a *drop callback*: if the event is shed,
    /// `shed` runs in the color instead of `f`, and `f` is dropped after it.
    ///
    /// ```
    /// use mely::state::{Backlog, Bounded};
    /// use mely::{Color, Colored, Cx, Runtime};
    /// use std::time::Duration;
    /// let answer = Runtime::builder().build()?.run_until(|cx, finish| {
    ///     let shard = Colored::new(cx, Color::from(9), ());
    ///     let backlog = Backlog::events(8).shed_older_than(Duration::from_millis(1));
    ///     let shard = Bounded::new(shard, backlog);
    ///     // What is posted next waits for longer than that.
    ///     shard.state().post(cx, |_, _cx| std::thread::sleep(Duration::from_millis(2)));
    ///     let busy = finish.clone();
    ///     let serve = move |_: &mut (), _cx: &mut Cx| finish.finish("served");
    ///     let posted = shard.try_post_or(cx, serve, move |_, _cx, shed| {
    ///         assert!(shed.waited > Duration::from_millis(1));
    ///         busy.finish("busy");
    ///     });
    ///     assert!(posted.is_ok());
    /// })?;
    /// assert_eq!(answer, "busy");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// As [`try_post`](Self::try_post), with both closures.
    pub fn try_post_or<P, F, S>(&self, by: &P, f: F, shed: S) -> Result<(), Rejected<(F, S)>>
    where
        P: Post + ?Sized,
        F: FnOnce(&mut T, &mut Cx) + Send + 'static,
        S: FnOnce(&mut T, &mut Cx, Shed) + Send + 'static,
    {
        let (f, shed) = self.state().unless_poisoned((f, shed))?;
        match self.take() {
            Some(permit) => Ok(permit.try_post_or(by, f, shed)?),
            None => Err(self.no_room(by, (f, shed))),
        }
    }

    /// Room for one event, if there is some now. None also after the end of the run: a post tells.
    pub fn try_reserve(&self) -> Option<Permit<T>> {
        let permit = self.take();
        if permit.is_none() {
            self.count_refused();
        }
        permit
    }

    /// Posts `callback` with a [`Permit`] as soon as there is room, once: for who was refused. At
    /// once, if there is room already.
    ///
    /// It is an event of the callback's color, in the runtime of `by`, which may be another one
    /// than the state's: that one is kept from ending until then. Also at the builder's limit of
    /// queued events, and after the runtime was asked to stop. By a [`Hold`](crate::Hold) and in
    /// its color, it goes past what waits for the hold.
    ///
    /// Those who wait are given room in the order in which they came, together with those who wait
    /// by [`reserve`](Self::reserve) and [`post_wait`](Self::post_wait). The callbacks are then
    /// events like others, posted by whoever made the room: they may run in another order. Nothing
    /// is missed between a refusal and this call.
    ///
    /// If the run of `by` ends or is cut short meanwhile, the callback is dropped and the next one
    /// in the line gets the room. A run does not wait for its own callbacks in the line: if all
    /// that is missing is room that somebody outside keeps, as a [`Permit`], it ends, and the
    /// callbacks are dropped when that room is given back.
    ///
    /// # Errors
    /// [`Reason::NoRoom`](crate::Reason::NoRoom) if as many stand in the line as may ([`Backlog::line`]), and
    /// [`Reason::Ended`](crate::Reason::Ended) if the run of `by` has ended. Both give the callback back.
    pub fn on_room<P, F>(&self, by: &P, callback: Callback<F>) -> Result<(), Rejected<Callback<F>>>
    where
        P: Post + ?Sized,
        F: FnOnce(&mut Cx, Permit<T>) + Send + 'static,
    {
        let poster = by.to_poster();
        // Of the same runtime, the events that wait keep it.
        let kept = match posts_to(by, self.inner()) {
            true => (!poster.inner.quiesce.refuses(Until::End)).then_some(None),
            false => poster.strong().ok().map(Some),
        };
        let Some(keep_alive) = kept else {
            return Err(Rejected {
                reason: Reason::Ended,
                value: callback,
            });
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
            let (until, parts) = (Until::End, (f, bounded));
            match poster.post_sort_until(until, handler, color, parts, sort, with_permit) {
                Ok(()) => Ok(()),
                Err(Rejected {
                    reason: Reason::Full,
                    value: parts,
                }) => {
                    let event = with_permit(parts);
                    drop(poster.post_own_sort_until(until, handler, color, event, sort));
                    Ok(())
                }
                Err(
                    Rejected {
                        reason: Reason::Ended,
                        value: parts,
                    }
                    | Rejected { value: parts, .. },
                ) => Err(parts),
            }
        };
        let (permits, line_max) = (&self.cell.permits, self.cell.backlog.line_max());
        let joined = permits.join((f, post, keep_alive), line_max, |(f, post, keep_alive)| {
            Box::new(move |bounded, turns: &mut InTurn| {
                let _until_it_is_posted = keep_alive;
                let posted = post(f, bounded);
                posted.map_err(|(f, _)| {
                    turns.run(|| drop(f));
                    Undelivered
                })
            })
        });
        match joined {
            Joined::Waits => Ok(()),
            Joined::Free((f, post, _)) => post(f, self.clone()).map_err(|(f, handle)| {
                drop(Permit::of(handle));
                Rejected {
                    reason: Reason::Ended,
                    value: Callback::new(handler, color, f),
                }
            }),
            Joined::Full((f, ..)) => {
                self.count_refused();
                Err(Rejected {
                    reason: Reason::NoRoom,
                    value: Callback::new(handler, color, f),
                })
            }
        }
    }

    /// A permit, if one is free.
    fn take(&self) -> Option<Permit<T>> {
        self.cell.permits.take().then(|| Permit::of(self.clone()))
    }

    fn inner(&self) -> &Arc<Inner> {
        &self.cell.state.poster().inner
    }

    /// Why a post by `by` that has found no room is refused. Counts it, if that is why.
    fn no_room<F>(&self, by: &(impl Post + ?Sized), f: F) -> Rejected<F> {
        let inner = self.inner();
        if inner.quiesce.refuses(until_of(by, inner)) {
            return Rejected {
                reason: Reason::Ended,
                value: f,
            };
        }
        self.count_refused();
        Rejected {
            reason: Reason::NoRoom,
            value: f,
        }
    }

    fn count_refused(&self) {
        self.cell.refused.fetch_add(1, Ordering::Relaxed);
        let inner = self.inner();
        let here = worker::lend_current(Arc::as_ptr(inner), (), |worker, ()| {
            counters(&worker.core).refused.add(1);
            #[cfg(feature = "tracing")]
            worker.core.tell_refused(self.cell.state.color(), "Backlog");
        });
        if here.is_err() {
            inner.refused_outside.fetch_add(1, Ordering::Relaxed);
            #[cfg(feature = "tracing")]
            crate::notice::tell_refused_outside(self.cell.state.color(), "Backlog");
        }
    }

    /// The caller's permit is given back.
    fn give_back(&self) {
        // Before anybody can have it, by whichever way.
        if !fault("room before what was posted") {
            worker::publish_current();
        }
        if let Some(panic) = self.cell.permits.give_back(|| self.clone()) {
            self.panic_apart(panic);
        }
    }

    /// What somebody in the line has panicked with is no fault of the event that makes room: it is
    /// an event of its own. After the end it is the caller's.
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
            .field("backlog", &self.cell.backlog)
            .field("waiting", &self.waiting())
            .field("shed", &self.shed())
            .finish_non_exhaustive()
    }
}

/// Room for one event of a [`Bounded`] color, kept for whoever has this.
///
/// Dropped without a post, the room goes to the next in the line. One that is kept for long, or
/// leaked, is room that nobody uses. It keeps no run from ending by itself; who waits for its room
/// may: a task that waits by [`Bounded::reserve`] keeps its run, and a callback that waits in
/// another runtime than the state's ([`Bounded::on_room`]) keeps that one, until they have room or
/// the [deadline](crate::Builder::drain_deadline) has come.
#[must_use = "dropped, its room goes to somebody else"]
pub struct Permit<T: Send + 'static> {
    /// None when it was made a mere handle.
    bounded: Option<Bounded<T>>,
}

impl<T: Send + 'static> Permit<T> {
    /// One that the caller has taken from the count.
    fn of(bounded: Bounded<T>) -> Permit<T> {
        Permit {
            bounded: Some(bounded),
        }
    }

    /// The handle, with a permit that the caller has to look after.
    fn into_handle(mut self) -> Bounded<T> {
        self.bounded.take().expect("taken by what consumes it only")
    }

    /// What it is room in.
    pub fn bounded(&self) -> &Bounded<T> {
        self.bounded
            .as_ref()
            .expect("taken by what consumes it only")
    }

    /// Posts `f` to the state's color; see [`Bounded::try_post`]. Its place in the color is that of
    /// this post, whenever the room was promised.
    ///
    /// # Errors
    /// As [`Colored::try_post`]. The closure comes back, and the room goes to the next in the line.
    pub fn try_post<P, F>(self, by: &P, f: F) -> Result<(), Rejected<F>>
    where
        P: Post + ?Sized,
        F: FnOnce(&mut T, &mut Cx) + Send + 'static,
    {
        self.post_event(by, f)
    }

    /// Like [`try_post`](Self::try_post), with a drop callback; see [`Bounded::try_post_or`].
    ///
    /// # Errors
    /// As [`try_post`](Self::try_post), with both closures.
    pub fn try_post_or<P, F, S>(self, by: &P, f: F, shed: S) -> Result<(), Rejected<(F, S)>>
    where
        P: Post + ?Sized,
        F: FnOnce(&mut T, &mut Cx) + Send + 'static,
        S: FnOnce(&mut T, &mut Cx, Shed) + Send + 'static,
    {
        let event = |permit: Permit<T>, posted_ns, (f, shed): (F, S)| {
            move |cx: &mut Cx| {
                let (bounded, its) = permit.begin(cx, posted_ns);
                let state = &bounded.cell.state;
                match its {
                    None => state.lend(cx, f),
                    Some(its) => {
                        state.lend(cx, |state, cx| shed(state, cx, its));
                        drop(f);
                    }
                }
            }
        };
        self.post_wrapped(by, (f, shed), event)
    }

    fn post_event<P, F>(self, by: &P, f: F) -> Result<(), Rejected<F>>
    where
        P: Post + ?Sized,
        F: FnOnce(&mut T, &mut Cx) + Send + 'static,
    {
        let event = |permit: Permit<T>, posted_ns, f: F| {
            move |cx: &mut Cx| match permit.begin(cx, posted_ns) {
                (bounded, None) => bounded.cell.state.lend(cx, f),
                (_, Some(_)) => drop(f),
            }
        };
        self.post_wrapped(by, f, event)
    }

    /// Posts the event that `event` makes of the permit and `f`, or gives `f` back.
    fn post_wrapped<P, F, G>(
        self,
        by: &P,
        f: F,
        event: impl FnOnce(Permit<T>, u64, F) -> G,
    ) -> Result<(), Rejected<F>>
    where
        P: Post + ?Sized,
        G: FnOnce(&mut Cx) + Send + 'static,
    {
        let bounded = self.bounded().clone();
        let backlog = bounded.cell.backlog;
        let posted_ns = match backlog.sheds() {
            true => bounded.inner().now_ns(),
            false => 0,
        };
        // Refused, it is dropped here and not inside of the runtime: somebody in the line may be
        // posted to.
        let mut permit = Some(self);
        let wrap = |f| {
            let permit = permit.take().expect("called once");
            if backlog.sheds() {
                // Until it begins. What never does has no runtime any more, and nobody asks.
                let cell = &permit.bounded().cell;
                cell.queued.fetch_add(1, Ordering::Relaxed);
            }
            event(permit, posted_ns, f)
        };
        bounded
            .cell
            .state
            .post_wrapped(by, bounded.handler, f, wrap)
    }

    /// What the event does first: the permit is given back. Returns the handle, and what is known
    /// of the event if it is to be shed, which is counted.
    fn begin(self, cx: &Cx, posted_ns: u64) -> (Bounded<T>, Option<Shed>) {
        let bounded = self.into_handle();
        let cell = &bounded.cell;
        let backlog = cell.backlog;
        let known = backlog.sheds().then(|| Shed {
            waited: cx.now().saturating_sub(Duration::from_nanos(posted_ns)),
            behind: cell.queued.fetch_sub(1, Ordering::Relaxed) - 1,
        });
        let shed = known.filter(|event| backlog.refuses(event));
        if shed.is_some() {
            cell.shed.fetch_add(1, Ordering::Relaxed);
            counters(&cx.worker_ref().core).shed.add(1);
        }
        bounded.give_back();
        (bounded, shed)
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
