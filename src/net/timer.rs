//! Timers: once or again and again, set in handlers or elsewhere.

use super::driver::control;
pub(super) use super::timers::Timers;
use super::when::TimerClock;
pub(super) use super::when::in_ns;
use crate::callback::Callback;
use crate::color::CoreId;
use crate::event::node::Sort;
use crate::host::panics::LateDrop;
use crate::host::poster::Poster;
use crate::host::quiesce::Until;
use crate::net::driver::Driver;
use crate::net::when::When;
use crate::sched::core::Core;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Mutex, MutexGuard, charge};
use crate::{Color, Cx, Handler, Rejected};
use std::fmt;
use std::sync::Arc;
use std::thread::panicking;
use std::time::{Duration, Instant, SystemTime};

/// A timer that has not fired.
pub(super) struct Pending {
    callback: Box<dyn FnOnce(&mut Cx) + Send>,
    pub(super) place: Arc<Place>,
    pub(super) handler: Option<&'static Handler>,
    pub(super) color: Color,
    /// What it goes by, and how late it may be.
    pub(super) clock: TimerClock,
    pub(super) slack_ns: u64,
    /// That of a hold's deadline passes the color's gate, and a stop does not cancel it.
    sort: Sort,
}

impl Pending {
    /// Posts the callback to its color.
    pub(super) fn fire(self, core: &mut Core) {
        let Pending {
            callback, place, ..
        } = self;
        let event = move |cx: &mut Cx| {
            // Canceled after it was due and before it ran, by its own color: then it does not run.
            match place.is_canceled() {
                true => place.drop_callback(callback),
                false => callback(cx),
            }
        };
        core.post_own_sort(self.handler, self.color, event, self.sort);
    }

    /// Whether it is a hold's deadline.
    pub(super) fn passes(&self) -> bool {
        self.sort.passes
    }

    /// Waits on this core until then.
    fn set(self, cx: &mut Cx, at_ns: u64) {
        let (worker, mut this) = (cx.worker(), Some(self));
        let set = |driver: &mut Driver, core: &mut Core| {
            let pending = this.take().expect("called once");
            driver.set_timer(at_ns, pending, core);
        };
        Driver::with(worker, set);
        if let Some(pending) = this {
            // A runtime without I/O.
            pending.discard(&mut worker.core);
        }
    }

    /// Drops the callback in its color.
    pub(super) fn discard(self, core: &mut Core) {
        let (callback, place) = (self.callback, self.place);
        let event = move |_cx: &mut Cx| place.drop_callback(callback);
        // That of a hold's deadline would wait for the very hold.
        core.post_own_sort(None, self.color, event, self.sort);
    }
}

/// What a timer and the handle to it share.
#[derive(Debug, Default)]
pub(super) struct Place {
    canceled: AtomicBool,
    /// A panic has canceled it. Set before that is.
    by_panic: AtomicBool,
    /// Where it is, once it is set; of one that fires again and again, where it was last.
    at: Mutex<Option<At>>,
}

/// Where a timer is: among the timers of this core that go by this clock, the one before which so
/// many were set on the core.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct At {
    pub(super) core: CoreId,
    pub(super) clock: TimerClock,
    pub(super) number: u64,
}

impl Place {
    fn new() -> Arc<Place> {
        let place = Arc::<Place>::default();
        charge::name_next(Arc::as_ptr(&place).cast(), size_of::<Place>(), "timer");
        place
    }

    fn cancel(&self) {
        if panicking() {
            self.by_panic.store(true, Ordering::Relaxed);
        }
        self.canceled.store(true, Ordering::Release);
    }

    fn is_canceled(&self) -> bool {
        self.canceled.load(Ordering::Acquire)
    }

    /// Cancels it, and says where it is to be taken out. None: it is on its way there, and is found
    /// canceled when it arrives.
    fn cancel_at(&self) -> Option<At> {
        self.cancel();
        // Who sets it looks whether it is canceled under this lock.
        *self.at.lock().unwrap()
    }

    /// Where it is to be noted while this is locked, unless it is canceled.
    pub(super) fn lock_unless_canceled(&self) -> Option<MutexGuard<'_, Option<At>>> {
        let at = self.at.lock().unwrap();
        (!self.is_canceled()).then_some(at)
    }

    /// Drops its callback, which is not called any more.
    fn drop_callback(&self, callback: impl FnOnce(&mut Cx)) {
        drop(LateDrop::new(
            callback,
            self.is_canceled() && self.by_panic.load(Ordering::Relaxed),
        ));
    }
}

#[cfg(test)]
impl Pending {
    /// One of this color that does nothing.
    pub(super) fn of_color(color: Color) -> Pending {
        Place::new().pending(Callback::anonymous(color, |_| ()), Sort::ORDINARY)
    }
}

impl fmt::Debug for Pending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pending")
            .field("color", &self.color)
            .finish_non_exhaustive()
    }
}

/// The handle to a timer or an interval that was set by [`Cx::timer`], [`Cx::interval`],
/// [`Poster::timer`] or [`Poster::interval`].
///
/// # Dropping
/// Dropping a handle detaches it: the timer goes on. To cancel it instead, see
/// [`cancel_on_drop`](Self::cancel_on_drop).
pub struct Timer {
    place: Arc<Place>,
    poster: Poster,
    cancels_on_drop: bool,
}

impl Timer {
    /// Cancels the timer. If it has not run yet and this is its own color, it will not run; from
    /// another color it may be running right now. Its closure is dropped in its color.
    pub fn cancel(mut self, cx: &mut Cx) {
        self.cancels_on_drop = false;
        let Some(at) = self.place.cancel_at() else {
            return;
        };
        let ours = Arc::ptr_eq(&self.poster.inner, &cx.worker_ref().inner);
        if !ours || Driver::with_home(cx.worker(), at.core, (), remove(at)).is_err() {
            self.send_remove(at);
        }
    }

    /// Returns the handle, which from now on cancels the timer when it is dropped, on any thread:
    /// for state that has a timer, which then goes with the state. In the timer's own color that is
    /// in time as long as the timer has not run; elsewhere it may be running right now.
    ///
    /// ```
    /// use mely::{Callback, Color, Runtime};
    /// use std::time::Duration;
    /// Runtime::builder().build()?.run(|cx| {
    ///     let color = cx.color();
    ///     let never = Callback::anonymous(color, |_cx| unreachable!());
    ///     let guard = cx.timer(Duration::from_millis(1), never).cancel_on_drop();
    ///     drop(guard);
    ///     cx.timer(Duration::from_millis(2), Callback::anonymous(color, |cx| cx.stop()));
    /// })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use = "dropped, it cancels"]
    pub fn cancel_on_drop(mut self) -> Timer {
        self.cancels_on_drop = true;
        self
    }

    /// Cancels the timer, from a thread that is no core, or where there is no context.
    pub(crate) fn cancel_from_anywhere(self) {
        drop(self.cancel_on_drop());
    }

    /// Has its core take it out.
    fn send_remove(&self, at: At) {
        let remove = move |cx: &mut Cx| {
            Driver::with(cx.worker(), |driver, core| remove(at)(driver, core, ()));
        };
        // Also after a stop, which does not cancel all timers. Reason once the run has ended, and
        // they are gone.
        let color = control(at.core);
        let poster = &self.poster;
        let _gone = poster.post_own_until(Until::End, None, color, remove);
    }

    /// Cancels one of these timers, which holds nothing of the user's: it is dropped here.
    pub(super) fn forget(self, timers: &mut Timers) {
        if let Some(at) = self.place.cancel_at() {
            drop(timers.cancel(at));
        }
    }
}

/// What takes a canceled timer out and drops its callback in its color.
fn remove(at: At) -> impl FnOnce(&mut Driver, &mut Core, ()) {
    move |driver, core, ()| {
        if let Some(pending) = driver.timers.cancel(at) {
            pending.discard(core);
        }
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        if self.cancels_on_drop
            && let Some(at) = self.place.cancel_at()
        {
            self.send_remove(at);
        }
    }
}

/// What fires again and again, between two times.
struct Repeating<F> {
    f: F,
    every_ns: u64,
    slack_ns: u64,
    due_ns: u64,
    place: Arc<Place>,
    handler: Option<&'static Handler>,
    color: Color,
}

impl<F: FnMut(&mut Cx, ()) + Send + 'static> Repeating<F> {
    /// Sets the timer for the first time, on this core.
    fn begin(cx: &mut Cx, period: Period, place: Arc<Place>, callback: Callback<F>) {
        let Callback { handler, color, f } = callback;
        let Period { every_ns, slack_ns } = period;
        let repeating = Repeating {
            f,
            every_ns,
            slack_ns,
            due_ns: cx.worker().core.clock.now_ns().saturating_add(every_ns),
            place,
            handler,
            color,
        };
        repeating.set(cx);
    }

    /// Runs, and sets the timer for the next time; an event of the color.
    fn fire(mut self, cx: &mut Cx) {
        (self.f)(cx, ());
        if self.place.is_canceled() {
            return;
        }
        let late_ns = cx.worker().core.clock.now_ns().saturating_sub(self.due_ns);
        // What was missed is not made up for.
        let periods = late_ns / self.every_ns + 1;
        self.due_ns = self
            .due_ns
            .saturating_add(periods.saturating_mul(self.every_ns));
        // On the core that runs it: it goes where its color goes.
        self.set(cx);
    }

    fn set(self, cx: &mut Cx) {
        let (due_ns, place) = (self.due_ns, Arc::clone(&self.place));
        let (handler, color, slack_ns) = (self.handler, self.color, self.slack_ns);
        let fire = Callback::new(handler, color, move |cx: &mut Cx| self.fire(cx));
        let mut pending = place.pending(fire, Sort::ORDINARY);
        pending.slack_ns = slack_ns;
        pending.set(cx, due_ns);
    }
}

impl fmt::Debug for Timer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Timer").finish_non_exhaustive()
    }
}

impl Cx {
    /// Runs the callback once, in its color, no earlier than `when`: a [`Duration`] from now, an
    /// [`Instant`] or a [`SystemTime`], with a [slack](When::slack) if it may be late. What becomes
    /// of it if the clock is set, or the machine suspended, is told at [`When`]. While this core is
    /// inside a handler, another one that idles posts its event; if none does, it is posted late by
    /// as much. Then it waits for its color's turn like any other; a sleeping core wakes for it.
    /// Completions of this core (data, connections, ends of sends) that are there when the timer is
    /// found due are posted before: a core that is late does not cut off a peer that was in time.
    /// Timers of one core that are due at the same moment are posted in the order in which they
    /// were set. A timer fires also at the limit of queued events, beyond which its event counts.
    ///
    /// A runtime that was asked to stop runs no more timers; their closures are dropped in their
    /// colors.
    ///
    /// ```
    /// use mely::{Callback, Color, Runtime};
    /// use std::time::Duration;
    /// Runtime::builder().build()?.run(|cx| {
    ///     let tick = Callback::anonymous(Color::from(3), |cx| cx.stop());
    ///     cx.timer(Duration::from_millis(1), tick);
    /// })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn timer<F>(&mut self, when: impl Into<When>, callback: Callback<F>) -> Timer
    where
        F: FnOnce(&mut Cx) + Send + 'static,
    {
        self.set_timer(when.into(), callback, Sort::ORDINARY)
    }

    /// A timer that a stop leaves alone.
    pub(crate) fn deadline<F>(&mut self, when: impl Into<When>, callback: Callback<F>) -> Timer
    where
        F: FnOnce(&mut Cx) + Send + 'static,
    {
        self.set_timer(when.into(), callback, Sort::PASSING)
    }

    /// The time by the runtime's clock ([`now`](Self::now)) as an [`Instant`], to compute others
    /// for timers from. On a real machine it is [`Instant::now`]. In a simulation it goes on with
    /// the virtual time, from when the simulation was built.
    pub fn instant(&self) -> Instant {
        self.worker_ref().inner.start + self.now()
    }

    /// The time of day, to compute others for timers from. On a real machine it is
    /// [`SystemTime::now`]. In a simulation it is virtual: it begins with the year 2000, UTC, goes
    /// on with the virtual time, and can be set (`Simulation::set_system_time`).
    pub fn system_time(&self) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::from_nanos(self.worker_ref().inner.wall_ns())
    }

    /// Runs the callback again and again, in its color: the first time no earlier than `every` from
    /// now, and then at multiples of that. The next time is set when the callback has run, so at
    /// most one event of an interval is queued; times that are missed meanwhile are left out. For
    /// each time applies what [`timer`](Self::timer) says of lateness and order. `every` is a
    /// [`Duration`], with a [slack](When::slack) if each time may be late.
    ///
    /// It ends when it is canceled, by the callback itself too, through the [`Timer`]; when the
    /// runtime is asked to stop; and with a panic of the callback. The closure is then dropped in
    /// its color. A runtime that ends when it is idle is not idle while there is an interval.
    ///
    /// # Panics
    /// If `every` is zero, or made from an [`Instant`] or a [`SystemTime`].
    ///
    /// ```
    /// use mely::{Callback, Color, Runtime};
    /// use std::time::Duration;
    /// let mut ticks = 0;
    /// Runtime::builder().build()?.run(move |cx| {
    ///     let tick = Callback::anonymous_each(Color::from(3), move |cx, ()| {
    ///         ticks += 1;
    ///         if ticks == 3 {
    ///             cx.stop();
    ///         }
    ///     });
    ///     cx.interval(Duration::from_millis(1), tick);
    /// })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[track_caller]
    pub fn interval<F>(&mut self, every: impl Into<When>, callback: Callback<F>) -> Timer
    where
        F: FnMut(&mut Cx, ()) + Send + 'static,
    {
        let (period, timer) = (Period::of(every.into()), Timer::new(self.poster()));
        Repeating::begin(self, period, Arc::clone(&timer.place), callback);
        timer
    }

    fn set_timer<F>(&mut self, when: When, callback: Callback<F>, sort: Sort) -> Timer
    where
        F: FnOnce(&mut Cx) + Send + 'static,
    {
        let timer = Timer::new(self.poster());
        Arc::clone(&timer.place).set(self, when, callback, sort);
        timer
    }
}

impl Timer {
    /// One that is not set yet.
    pub(super) fn new(poster: Poster) -> Timer {
        Timer {
            place: Place::new(),
            poster,
            cancels_on_drop: false,
        }
    }

    /// One that is not set yet, and what is to be set.
    pub(super) fn ready<F>(poster: Poster, callback: Callback<F>) -> (Timer, Pending)
    where
        F: FnOnce(&mut Cx) + Send + 'static,
    {
        let timer = Timer::new(poster);
        let pending = Arc::clone(&timer.place).pending(callback, Sort::ORDINARY);
        (timer, pending)
    }
}

impl Place {
    /// Sets the timer, on its core.
    fn set<F>(self: Arc<Place>, cx: &mut Cx, when: When, callback: Callback<F>, sort: Sort)
    where
        F: FnOnce(&mut Cx) + Send + 'static,
    {
        let mut pending = self.pending(callback, sort);
        let worker = cx.worker();
        let (clock, at_ns) = when.due(&worker.inner, worker.core.clock.now_ns());
        (pending.clock, pending.slack_ns) = (clock, when.slack_ns);
        pending.set(cx, at_ns);
    }

    /// What is set.
    fn pending<F>(self: Arc<Place>, callback: Callback<F>, sort: Sort) -> Pending
    where
        F: FnOnce(&mut Cx) + Send + 'static,
    {
        Pending {
            callback: Box::new(callback.f),
            place: self,
            handler: callback.handler,
            color: callback.color,
            clock: TimerClock::Monotonic,
            slack_ns: 0,
            sort,
        }
    }
}

/// That of an interval, and how late each time may be.
#[derive(Clone, Copy, Debug)]
struct Period {
    every_ns: u64,
    slack_ns: u64,
}

impl Period {
    #[track_caller]
    fn of(every: When) -> Period {
        let Some(duration) = every.duration() else {
            panic!("an interval needs a Duration, and not a point in time: {every:?}");
        };
        assert!(
            !duration.is_zero(),
            "an interval of no time: it would always be due"
        );
        Period {
            every_ns: in_ns(duration),
            slack_ns: every.slack_ns,
        }
    }
}

impl Poster {
    /// Like [`Cx::timer`], from wherever a poster is: the timer is set on the core on which the
    /// callback's color is now, by an event of that core. A [`Duration`] begins when that runs.
    ///
    /// # Errors
    /// [`Reason::Ended`](crate::Reason::Ended) once the runtime was asked to stop (by a strong
    /// poster a timer can still be set then, but does not fire: its callback is dropped),
    /// [`Reason::Full`](crate::Reason::Full) at the builder's limit of queued events. Both give the
    /// callback back.
    ///
    /// ```
    /// use mely::{Callback, Color, Runtime};
    /// use std::time::Duration;
    /// let runtime = Runtime::builder().build()?;
    /// let stop = Callback::anonymous(Color::from(3), |cx| cx.stop());
    /// runtime.poster().timer(Duration::from_millis(1), stop)?;
    /// runtime.run(|_cx| ())?; // Until the timer has fired.
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn timer<F>(
        &self,
        when: impl Into<When>,
        callback: Callback<F>,
    ) -> Result<Timer, Rejected<Callback<F>>>
    where
        F: FnOnce(&mut Cx) + Send + 'static,
    {
        let (timer, core) = (
            Timer::new(Poster::of(&self.inner)),
            self.core_of(callback.color),
        );
        let (its, when) = (Arc::clone(&timer.place), when.into());
        let wrap = |callback| move |cx: &mut Cx| its.set(cx, when, callback, Sort::ORDINARY);
        self.post_wrapped(None, control(core), callback, wrap)?;
        Ok(timer)
    }

    /// Like [`Cx::interval`], from wherever a poster is; it begins as a [`timer`](Self::timer)
    /// does.
    ///
    /// # Errors
    /// As [`timer`](Self::timer).
    ///
    /// # Panics
    /// If `every` is zero, or made from an [`Instant`] or a [`SystemTime`].
    ///
    /// ```
    /// use mely::{Callback, Color, Runtime};
    /// use std::time::Duration;
    /// let runtime = Runtime::builder().build()?;
    /// let mut ticks = 0;
    /// let tick = Callback::anonymous_each(Color::from(3), move |cx, ()| {
    ///     ticks += 1;
    ///     if ticks == 3 {
    ///         cx.stop();
    ///     }
    /// });
    /// runtime.poster().interval(Duration::from_millis(1), tick)?;
    /// runtime.run(|_cx| ())?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[track_caller]
    pub fn interval<F>(
        &self,
        every: impl Into<When>,
        callback: Callback<F>,
    ) -> Result<Timer, Rejected<Callback<F>>>
    where
        F: FnMut(&mut Cx, ()) + Send + 'static,
    {
        let period = Period::of(every.into());
        let (timer, core) = (
            Timer::new(Poster::of(&self.inner)),
            self.core_of(callback.color),
        );
        let its = Arc::clone(&timer.place);
        let wrap = |callback| move |cx: &mut Cx| Repeating::begin(cx, period, its, callback);
        self.post_wrapped(None, control(core), callback, wrap)?;
        Ok(timer)
    }

    /// The core on which this color is now.
    fn core_of(&self, color: Color) -> CoreId {
        let slots = &self.inner.shared.slots;
        slots.owner(slots.map.slot(color))
    }
}

#[cfg(all(test, feature = "sim"))]
mod simulated {
    use crate::net::Driver;
    use crate::net::tests::Drops;
    use crate::policy::Stealing;
    use crate::sim::{self, Simulation};
    use crate::{Callback, Color, Runtime};
    use std::time::Duration;

    const COLOR: Color = Color::new(1);

    /// Each keeps its colors.
    fn two_cores() -> Simulation {
        let builder = Runtime::builder().cores(2);
        let builder = builder.stealing(Stealing::OFF).exit_when_idle(true);
        builder.simulate(1).unwrap()
    }

    /// What the closure holds may be used by its color's handlers: whoever cancels the timer, and
    /// wherever, it is dropped in its color.
    #[test]
    fn canceled_from_another_color_it_is_dropped_in_its_own() {
        // Color 2 is on the core that has the timer, color 3 on the other.
        for from in [2, 3] {
            let drops = Drops::default();
            let given = drops.clone();
            let mut simulation = two_cores();
            simulation
                .run(move |cx| {
                    let witness = given.witness(cx.poster());
                    let never = Callback::anonymous(COLOR, move |_| {
                        drop(witness);
                        unreachable!();
                    });
                    let timer = cx.timer(Duration::from_secs(1), never);
                    let here = cx.core();
                    cx.post(Color::from(from), move |cx| {
                        assert_eq!(cx.core() == here, from == 2);
                        timer.cancel(cx);
                    });
                })
                .unwrap();
            assert_eq!(drops.seen(), [Some(COLOR)], "from {from}");
            assert!(simulation.now() < Duration::from_secs(1));
        }
    }

    #[test]
    fn set_after_a_stop_it_is_dropped_in_its_color() {
        let drops = Drops::default();
        let given = drops.clone();
        let mut simulation = Runtime::builder().cores(1).simulate(1).unwrap();
        simulation
            .run(move |cx| {
                cx.stop();
                // Once the core has heard of it.
                cx.post(Color::from(2), move |cx| {
                    let draining = Driver::with(cx.worker(), |driver, _| driver.is_ending());
                    assert!(draining.unwrap());
                    let witness = given.witness(cx.poster());
                    let never = Callback::anonymous(COLOR, move |_| drop(witness));
                    cx.timer(Duration::ZERO, never);
                    assert!(given.seen().is_empty());
                });
            })
            .unwrap();
        assert_eq!(drops.seen(), [Some(COLOR)]);
    }

    /// It is due, and its event waits behind the very handler that cancels it.
    #[test]
    fn canceled_when_it_was_due_it_does_not_run() {
        let drops = Drops::default();
        let given = drops.clone();
        let mut simulation = two_cores();
        simulation
            .run(move |cx| {
                let witness = given.witness(cx.poster());
                let never = Callback::anonymous(COLOR, move |_| {
                    drop(witness);
                    unreachable!();
                });
                let (timer, here) = (cx.timer(Duration::from_micros(100), never), cx.core());
                cx.post(COLOR, move |cx| {
                    assert_ne!(cx.core(), here);
                    sim::work(cx, Duration::from_millis(10));
                    timer.cancel(cx);
                });
            })
            .unwrap();
        assert_eq!(drops.seen(), [Some(COLOR)]);
    }
}
