//! Timers, a heap a core: once or again and again, set in handlers or elsewhere.

use super::driver::control;
use crate::callback::Callback;
use crate::color::CoreId;
use crate::event::node::Sort;
use crate::host::panics::LateDrop;
use crate::host::poster::Poster;
use crate::host::quiesce::Until;
use crate::host::unfinished::Obstacle;
use crate::net::driver::Driver;
use crate::sched::core::Core;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Mutex, charge};
use crate::{Color, Cx, Handler, Rejected};
use slab::Slab;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::fmt;
use std::sync::Arc;
use std::thread::panicking;
use std::time::Duration;

/// A timer that has not fired.
pub(super) struct Pending {
    /// How many timers of this core were set before.
    number: u64,
    callback: Box<dyn FnOnce(&mut Cx) + Send>,
    place: Arc<Place>,
    handler: Option<&'static Handler>,
    color: Color,
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
struct Place {
    canceled: AtomicBool,
    /// A panic has canceled it. Set before that is.
    by_panic: AtomicBool,
    /// Where it is, once it is set; of one that fires again and again, where it was last.
    at: Mutex<Option<At>>,
}

/// Where a timer is: among whose timers, at which index, and with which number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct At {
    core: CoreId,
    index: usize,
    number: u64,
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

    /// Drops its callback, which is not called any more.
    fn drop_callback(&self, callback: impl FnOnce(&mut Cx)) {
        drop(LateDrop::new(
            callback,
            self.is_canceled() && self.by_panic.load(Ordering::Relaxed),
        ));
    }
}

impl fmt::Debug for Pending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pending")
            .field("color", &self.color)
            .finish_non_exhaustive()
    }
}

/// The timers of a core.
///
/// Those that are due at the same moment fire in the order in which they were set. A canceled timer
/// leaves its entry in the heap, where it is recognized by its number; when those outnumber the
/// living, the heap is made anew.
#[derive(Debug)]
pub(super) struct Timers {
    core: CoreId,
    /// When (ns), number, index.
    heap: BinaryHeap<Reverse<(u64, u64, usize)>>,
    pending: Slab<Pending>,
    /// Timers set so far.
    set: u64,
}

impl Timers {
    pub(super) fn of(core: CoreId) -> Timers {
        Timers {
            core,
            heap: BinaryHeap::new(),
            pending: Slab::new(),
            set: 0,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    /// Adds a timer, unless it was canceled.
    fn add(&mut self, at_ns: u64, mut pending: Pending) -> Result<At, Pending> {
        let place = Arc::clone(&pending.place);
        let mut its = place.at.lock().unwrap();
        if place.is_canceled() {
            return Err(pending);
        }
        let number = self.set;
        self.set += 1;
        pending.number = number;
        let index = self.pending.insert(pending);
        let at = At {
            core: self.core,
            index,
            number,
        };
        *its = Some(at);
        self.heap.push(Reverse((at_ns, number, index)));
        Ok(at)
    }

    /// Adds a timer, or drops its callback in its color if it was canceled.
    pub(super) fn set(&mut self, at_ns: u64, pending: Pending, core: &mut Core) {
        if let Err(pending) = self.add(at_ns, pending) {
            pending.discard(core);
        }
    }

    fn lives(pending: &Slab<Pending>, index: usize, number: u64) -> bool {
        pending.get(index).is_some_and(|p| p.number == number)
    }

    /// Forgets what was canceled at the head of the heap.
    fn settle(&mut self) {
        while let Some(&Reverse((_, number, index))) = self.heap.peek()
            && !Timers::lives(&self.pending, index, number)
        {
            self.heap.pop();
        }
    }

    /// When the next timer is due.
    pub(super) fn next_ns(&mut self) -> Option<u64> {
        self.settle();
        self.heap.peek().map(|&Reverse((at_ns, ..))| at_ns)
    }

    /// The next timer that is due.
    pub(super) fn due(&mut self, now_ns: u64) -> Option<Pending> {
        if self.next_ns()? > now_ns {
            return None;
        }
        self.pop()
    }

    /// Takes out all but the deadlines of holds, in the order in which they are due.
    pub(super) fn take_ordinary(&mut self) -> Vec<Pending> {
        let mut entries: Vec<_> = self.heap.iter().map(|&Reverse(entry)| entry).collect();
        entries.sort_unstable();
        let mut take = |(_, number, index)| {
            let ordinary =
                Timers::lives(&self.pending, index, number) && !self.pending[index].sort.passes;
            ordinary.then(|| self.pending.remove(index))
        };
        entries.into_iter().filter_map(&mut take).collect()
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.pending.len()
    }

    /// Those that are due last, at most this many; for reports.
    pub(super) fn latest(&self, most: usize, now_ns: u64) -> Vec<Obstacle> {
        let entries = self.heap.iter().map(|&Reverse(entry)| entry);
        let mut living: Vec<_> = entries
            .filter(|&(_, number, index)| Timers::lives(&self.pending, index, number))
            .collect();
        // A core asks this once a second while it drains: all are not sorted for a few.
        if living.len() > most {
            living.select_nth_unstable_by_key(most, |&entry| Reverse(entry));
            living.truncate(most);
        }
        living.sort_unstable_by_key(|&entry| Reverse(entry));
        let obstacle = |(at_ns, _, index): (u64, u64, usize)| {
            let Pending { handler, color, .. } = &self.pending[index];
            Obstacle::Timer {
                color: *color,
                handler: handler.map_or("(deadline of a hold)", Handler::name),
                due_in: Duration::from_nanos(at_ns.saturating_sub(now_ns)),
            }
        };
        living.into_iter().map(obstacle).collect()
    }

    /// The next timer, due or not.
    fn pop(&mut self) -> Option<Pending> {
        self.settle();
        let Reverse((_, _, index)) = self.heap.pop()?;
        Some(self.pending.remove(index))
    }

    /// Takes a canceled timer out, if it is one of these and has not fired.
    fn cancel(&mut self, at: At) -> Option<Pending> {
        let At { index, number, .. } = at;
        if at.core != self.core || !Timers::lives(&self.pending, index, number) {
            return None;
        }
        let pending = self.pending.remove(index);
        if self.heap.len() > 64 && self.heap.len() > 2 * self.pending.len() {
            let living = &self.pending;
            self.heap
                .retain(|&Reverse((_, number, i))| Timers::lives(living, i, number));
        }
        Some(pending)
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
    due_ns: u64,
    place: Arc<Place>,
    handler: Option<&'static Handler>,
    color: Color,
}

impl<F: FnMut(&mut Cx, ()) + Send + 'static> Repeating<F> {
    /// Sets the timer for the first time, on this core.
    fn begin(cx: &mut Cx, every_ns: u64, place: Arc<Place>, callback: Callback<F>) {
        let Callback { handler, color, f } = callback;
        let repeating = Repeating {
            f,
            every_ns,
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
        let (handler, color) = (self.handler, self.color);
        let fire = Callback::new(handler, color, move |cx: &mut Cx| self.fire(cx));
        let pending = place.pending(fire, Sort::ORDINARY);
        pending.set(cx, due_ns);
    }
}

impl fmt::Debug for Timer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Timer").finish_non_exhaustive()
    }
}

impl Cx {
    /// Runs the callback once, in its color, no earlier than `after` from now. While this core is
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
    pub fn timer<F>(&mut self, after: Duration, callback: Callback<F>) -> Timer
    where
        F: FnOnce(&mut Cx) + Send + 'static,
    {
        self.set_timer(after, callback, Sort::ORDINARY)
    }

    /// A timer for a hold's deadline.
    pub(crate) fn deadline<F>(&mut self, after: Duration, callback: Callback<F>) -> Timer
    where
        F: FnOnce(&mut Cx) + Send + 'static,
    {
        self.set_timer(after, callback, Sort::PASSING)
    }

    /// Runs the callback again and again, in its color: the first time no earlier than `every` from
    /// now, and then at multiples of that. The next time is set when the callback has run, so at
    /// most one event of an interval is queued; times that are missed meanwhile are left out. For
    /// each time applies what [`timer`](Self::timer) says of lateness and order.
    ///
    /// It ends when it is canceled, by the callback itself too, through the [`Timer`]; when the
    /// runtime is asked to stop; and with a panic of the callback. The closure is then dropped in
    /// its color. A runtime that ends when it is idle is not idle while there is an interval.
    ///
    /// # Panics
    /// If `every` is zero.
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
    pub fn interval<F>(&mut self, every: Duration, callback: Callback<F>) -> Timer
    where
        F: FnMut(&mut Cx, ()) + Send + 'static,
    {
        let (every_ns, timer) = (period_ns(every), Timer::new(self.poster()));
        Repeating::begin(self, every_ns, Arc::clone(&timer.place), callback);
        timer
    }

    fn set_timer<F>(&mut self, after: Duration, callback: Callback<F>, sort: Sort) -> Timer
    where
        F: FnOnce(&mut Cx) + Send + 'static,
    {
        let timer = Timer::new(self.poster());
        Arc::clone(&timer.place).set(self, after, callback, sort);
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
    fn set<F>(self: Arc<Place>, cx: &mut Cx, after: Duration, callback: Callback<F>, sort: Sort)
    where
        F: FnOnce(&mut Cx) + Send + 'static,
    {
        let pending = self.pending(callback, sort);
        let now_ns = cx.worker().core.clock.now_ns();
        pending.set(cx, now_ns.saturating_add(in_ns(after)));
    }

    /// What is set.
    fn pending<F>(self: Arc<Place>, callback: Callback<F>, sort: Sort) -> Pending
    where
        F: FnOnce(&mut Cx) + Send + 'static,
    {
        Pending {
            number: 0,
            callback: Box::new(callback.f),
            place: self,
            handler: callback.handler,
            color: callback.color,
            sort,
        }
    }
}

/// That of an interval.
#[track_caller]
fn period_ns(every: Duration) -> u64 {
    assert!(
        !every.is_zero(),
        "an interval of no time: it would always be due"
    );
    in_ns(every)
}

/// Three hundred years are for ever.
pub(super) fn in_ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos())
        .unwrap_or(u64::MAX)
        .min(u64::MAX / 2)
}

impl Poster {
    /// Like [`Cx::timer`], from wherever a poster is: the timer is set on the core on which the
    /// callback's color is now, by an event of that core, and `after` begins when that runs.
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
        after: Duration,
        callback: Callback<F>,
    ) -> Result<Timer, Rejected<Callback<F>>>
    where
        F: FnOnce(&mut Cx) + Send + 'static,
    {
        let (timer, core) = (
            Timer::new(Poster::of(&self.inner)),
            self.core_of(callback.color),
        );
        let its = Arc::clone(&timer.place);
        let wrap = |callback| move |cx: &mut Cx| its.set(cx, after, callback, Sort::ORDINARY);
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
    /// If `every` is zero.
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
        every: Duration,
        callback: Callback<F>,
    ) -> Result<Timer, Rejected<Callback<F>>>
    where
        F: FnMut(&mut Cx, ()) + Send + 'static,
    {
        let every_ns = period_ns(every);
        let (timer, core) = (
            Timer::new(Poster::of(&self.inner)),
            self.core_of(callback.color),
        );
        let its = Arc::clone(&timer.place);
        let wrap = |callback| move |cx: &mut Cx| Repeating::begin(cx, every_ns, its, callback);
        self.post_wrapped(None, control(core), callback, wrap)?;
        Ok(timer)
    }

    /// The core on which this color is now.
    fn core_of(&self, color: Color) -> CoreId {
        let slots = &self.inner.shared.slots;
        slots.owner(slots.map.slot(color))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A timer of this color, by which it is told from the others.
    fn pending(color: u64) -> Pending {
        Pending {
            number: 0,
            callback: Box::new(|_| ()),
            place: Place::new(),
            handler: None,
            color: Color::from(color),
            sort: Sort::ORDINARY,
        }
    }

    fn color(pending: Option<Pending>) -> Option<Color> {
        pending.map(|pending| pending.color)
    }

    #[test]
    fn canceled_timers_are_passed_over() {
        let mut timers = Timers::of(CoreId::of(0));
        let first = timers.add(10, pending(1)).unwrap();
        let _second = timers.add(20, pending(2)).unwrap();
        let third = timers.add(30, pending(3)).unwrap();
        let _fourth = timers.add(40, pending(4)).unwrap();
        assert_eq!(color(timers.cancel(first)), Some(Color::from(1)));
        assert!(timers.cancel(first).is_none(), "only once");
        assert_eq!(timers.next_ns(), Some(20));
        assert!(timers.due(19).is_none());
        assert_eq!(color(timers.due(20)), Some(Color::from(2)));
        // Its place is taken by another, whose name is not the same.
        let fifth = timers.add(50, pending(5)).unwrap();
        assert!(timers.cancel(third).is_some());
        assert!(timers.cancel(third).is_none());
        assert_ne!(fifth.number, first.number);
        // Also with none that is due.
        assert_eq!(color(timers.pop()), Some(Color::from(4)));
        assert!(!timers.is_empty());
        assert_eq!(color(timers.pop()), Some(Color::from(5)));
        assert!(timers.pop().is_none() && timers.is_empty());
    }

    #[test]
    fn the_latest_are_named() {
        let mut timers = Timers::of(CoreId::of(0));
        // In no order.
        let at = |i: u64| i * 37 % 101;
        for i in 0..101 {
            let added = timers.add(at(i), pending(at(i))).unwrap();
            if at(i) == 99 {
                timers.cancel(added);
            }
        }
        for (most, last) in [(3, &[100, 98, 97][..]), (0, &[])] {
            let latest = timers.latest(most, 0).into_iter();
            let colors = latest.map(|named| match named {
                Obstacle::Timer { color, .. } => color.value(),
                other => panic!("{other:?}"),
            });
            assert!(colors.eq(last.iter().copied()));
        }
        assert_eq!(timers.latest(200, 0).len(), 100);
    }

    #[test]
    fn the_heap_does_not_grow_with_what_was_canceled() {
        let mut timers = Timers::of(CoreId::of(0));
        let _stays = timers.add(1, pending(1)).unwrap();
        for at_ns in 2..10_000 {
            let at = timers.add(at_ns, pending(2)).unwrap();
            assert!(timers.cancel(at).is_some());
            assert!(timers.heap.len() <= 64, "{}", timers.heap.len());
        }
        assert_eq!(color(timers.pop()), Some(Color::from(1)));
        assert!(timers.pop().is_none());
        // Of many living timers few entries are dead, and then all is left as it is.
        let mut timers = Timers::of(CoreId::of(0));
        let all: Vec<_> = (0..200)
            .map(|at_ns| timers.add(at_ns, pending(3)).unwrap())
            .collect();
        for (i, &at) in all.iter().enumerate() {
            assert!(timers.cancel(at).is_some());
            let (entries, living) = (timers.heap.len(), 199 - i);
            assert!(entries <= (2 * living).max(64), "{entries} for {living}");
        }
        assert!(timers.is_empty());
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
