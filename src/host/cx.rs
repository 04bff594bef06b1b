//! What a handler can do with its context.

use super::panics;
use super::poster::Poster;
use super::source::AtEnd;
pub use super::unique::UniqueColor;
use super::worker::Worker;
use crate::color::CoreId;
use crate::event::node::{AtLimit, Sort, is_boxed};
use crate::event::pool::Pool;
use crate::event::profile::Begun;
use crate::event::vtable::HasPool;
use crate::memory::boxed;
use crate::rejected::{Reason, Rejected};
use crate::sched::core::Core;
use crate::sched::step::Host;
use crate::shared::remote::wishes;
use crate::sync::Arc;
use crate::{Color, Cx, Handler};
use std::fmt;
use std::time::Duration;

impl Cx {
    /// Posts `f` to `color`: it will run after everything that was posted to the color before, and
    /// never at the same time as another event of the color. Never waits and never runs `f` now.
    ///
    /// A closure of up to 216 bytes lies in the event's memory, which is recycled: 64 bytes for one
    /// of up to 24, 128 up to 88, else 256. A larger one has a box of its own (counted in
    /// [`Stats::events_boxed`](crate::metrics::Stats::events_boxed)), in which it is called. On its
    /// way there it is a few times on the stack of the thread that posts: what is larger than some
    /// 100 KB belongs into a `Box` that it captures.
    ///
    /// # Order
    /// Events posted by one handler to one color run in the order of the posts. More: if a post to
    /// a color happened before another post to it, through program order inside events, through
    /// posts, or through succession in a color, then its event runs first. Everything an event
    /// wrote is visible to what runs after it by these rules, on whatever core.
    ///
    /// # Panics
    /// If the reserve beyond the limit of queued events is used up, too:
    /// [`Builder::events_max`](crate::Builder::events_max).
    /// [`Post::try_post`](crate::Post::try_post) gives the closure back at the limit.
    ///
    /// ```
    /// use mely::{Color, Runtime};
    /// let color = Runtime::builder().build()?.run_until(|cx, finish| {
    ///     cx.post(Color::from(7), move |cx| finish.finish(cx.color()));
    /// })?;
    /// assert_eq!(color, Color::from(7));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    #[track_caller]
    pub fn post<F>(&self, color: Color, f: F)
    where
        F: FnOnce(&mut Cx) + Send + 'static,
    {
        self.post_event(None, color, f);
    }

    /// Posts `f` under a handler.
    #[inline]
    #[track_caller]
    pub(crate) fn post_event<F>(&self, handler: Option<&'static Handler>, color: Color, f: F)
    where
        F: FnOnce(&mut Cx) + Send + 'static,
    {
        let sort = Sort::ORDINARY.at(AtLimit::Reserve);
        if let Err(f) = self.post_sort(handler, color, f, sort, |f| f) {
            drop(f);
            refuse(Rejected::new(Reason::Full, ()));
        }
    }

    /// What `post` posts by a context that goes beyond the limit of events, as long as there is a
    /// reserve for that. Panics if it is refused all the same.
    #[inline]
    #[track_caller]
    pub(crate) fn surely<T, F>(&self, post: impl FnOnce(&Beyond) -> Result<T, Rejected<F>>) -> T {
        match post(&Beyond(self)) {
            Ok(posted) => posted,
            Err(refused) => refuse(refused),
        }
    }

    /// Posts `wrap(f)` as an event of this sort, or gives `f` back. `wrap` runs no user code.
    ///
    /// Through a shared reference, since whoever has one could post by a [`Poster`] as well.
    #[inline(always)]
    pub(crate) fn post_sort<F, G>(
        &self,
        handler: Option<&'static Handler>,
        color: Color,
        f: F,
        sort: Sort,
        wrap: impl FnOnce(F) -> G,
    ) -> Result<(), F>
    where
        G: FnOnce(&mut Cx) + Send + 'static,
    {
        if const { is_boxed::<G>() } {
            return self.post_boxed(handler, color, f, sort, wrap);
        }
        self.lend(|worker| worker.core.post_sort(handler, color, f, sort, wrap))
    }

    /// The same for a closure that is boxed. It may be large: it is moved into its box here, and
    /// not handed down to the maker.
    fn post_boxed<F, G>(
        &self,
        handler: Option<&'static Handler>,
        color: Color,
        f: F,
        sort: Sort,
        wrap: impl FnOnce(F) -> G,
    ) -> Result<(), F>
    where
        G: FnOnce(&mut Cx) + Send + 'static,
    {
        let place = |worker: &mut Worker| worker.core.place(handler, color, sort);
        let Some(place) = self.lend(place) else {
            return Err(f);
        };
        let made = place.fill(boxed(|| wrap(f)));
        self.lend(|worker| worker.core.put_placed(color, made));
        Ok(())
    }

    /// Posts an event of the runtime's own; see [`crate::sched::core::Core::post_own`].
    #[cfg_attr(loom, allow(dead_code))]
    pub(crate) fn post_own<F>(&mut self, color: Color, f: F)
    where
        F: FnOnce(&mut Cx) + Send + 'static,
    {
        self.worker().core.post_own(None, color, f);
    }

    /// Publishes this handler's posts to other colors, and sends its writes, now.
    ///
    /// Otherwise posts are published some microseconds later, at the end of the quantum. In a
    /// handler that is known to be long, each post is published at once.
    ///
    /// Call it before a long computation, and before you signal another thread by other means than
    /// mely (a channel, an atomic, a post to another runtime). Then this handler's posts come
    /// before those that the thread makes on that signal. One exception: an event that is running
    /// already may post to its own color before them.
    ///
    /// It also gives back the core's other colors, up to 63, so that idle cores can take them. That
    /// costs more than a handler of some ns.
    pub fn flush(&mut self) {
        self.end_gathered();
        self.worker().core.flush();
    }

    /// Has done at `end`, or at the next [`flush`](Self::flush), what this event has gathered.
    #[cfg_attr(loom, allow(dead_code))]
    pub(crate) fn gather(&mut self, end: Arc<dyn AtEnd>) {
        let worker = self.worker();
        worker.gathered.push(end);
        worker.core.note_gathered();
    }

    /// Does it.
    #[inline(never)]
    fn end_gathered(&mut self) {
        let gathered = std::mem::take(&mut self.worker().gathered);
        for end in gathered {
            end.at_end(self);
        }
    }

    /// Publishes what was posted, if anything waits for that, before somebody else is told
    /// something.
    pub(crate) fn publish(&mut self) {
        self.worker().publish();
    }

    /// A poster, to take along or give to other threads, and for all that it tells of the runtime.
    pub fn poster(&self) -> Poster {
        Poster::of(&self.worker_ref().inner)
    }

    /// Returns a strong [`Poster`], which keeps the run from ending: for an answer that is made
    /// elsewhere.
    pub fn strong_poster(&self) -> Poster {
        // This event ends after this, and the end is not decided before.
        self.worker_ref().inner.quiesce.keep_alive();
        Poster::counted(&self.worker_ref().inner)
    }

    /// The color of the running event.
    pub fn color(&self) -> Color {
        self.worker_ref().core.current.color()
    }

    /// The name of the running event's handler; for a closure without one, its type.
    pub fn handler(&self) -> &'static str {
        let core = &self.worker_ref().core;
        core.shared.profiles.get(core.current.profile()).name()
    }

    /// The core this handler runs on, from 0.
    pub fn core(&self) -> usize {
        self.core_id().index()
    }

    pub(crate) fn core_id(&self) -> CoreId {
        self.worker_ref().core.id
    }

    /// The time since the runtime was built, by its own clock: the machine's monotonic one, or the
    /// virtual one of a simulation (`mely::sim`).
    pub fn now(&self) -> Duration {
        Duration::from_nanos(self.worker_ref().core.clock.now_ns())
    }

    /// The number of cores of this runtime, whether they work or are retired.
    pub fn cores(&self) -> usize {
        self.worker_ref().core.shared.cores.len()
    }

    /// Moves a color to a core, its queued events with it: as soon as its present core, or a thief,
    /// takes that core's mail, and if it runs, when its turn ends. (A turn or two later, if it has
    /// only just come to that core.) It may be stolen from there like any other color. But a short
    /// post to it wakes the core that it is on: it is not taken over, as others are, by the core
    /// that posts.
    ///
    /// A color that nobody placed or took is on core `slot mod cores`; a small value's slot is the
    /// value.
    ///
    /// # Panics
    /// If there is no such core.
    #[track_caller]
    pub fn place(&self, color: Color, core: usize) {
        wishes::place(&self.worker_ref().core.shared, color, core);
    }

    /// Asks for a color's next turn to come before those of the other colors of its core: for what
    /// is urgent under load, as a health check, an administrator's connection or a cancellation.
    ///
    /// It is a hint. The color's core, wherever it is by then, finds the wish when it next takes
    /// its mail, that is, after the event that runs and within a quantum (a few microseconds to
    /// some tens), and puts the color before all that wait there, for thieves too. No order is
    /// changed within a color: what was posted to it before goes first. A color with no event
    /// queued by then has nothing to hurry, and the wish is gone; so post first. It is for one
    /// turn: if events are left after it, the color waits for its next turn like any other. If the
    /// color runs when the wish comes, the turn after that is meant; if it is held, its events are
    /// put aside in that turn. Colors that share a slot hurry together.
    ///
    /// **Nothing starves.** A core grants one wish in two quanta, and up to 64 at once after a time
    /// in which it has granted fewer; of several, those that asked first. What it does not grant
    /// stays where it is in the queue, and is counted:
    /// [`CoreStats::hurries_refused`](crate::metrics::CoreStats::hurries_refused).
    ///
    /// It costs a [`flush`](Self::flush), if this event has posted to other colors, and some three
    /// atomic operations.
    ///
    /// ```
    /// use mely::{Color, Runtime};
    /// use std::sync::{Arc, Mutex};
    ///
    /// let ran = Arc::new(Mutex::new(Vec::new()));
    /// let log = Arc::clone(&ran);
    /// Runtime::builder().cores(1).build()?.run(move |cx| {
    ///     for value in 1..=1_000 {
    ///         let log = Arc::clone(&log);
    ///         cx.post(Color::from(value), move |_| log.lock().unwrap().push(value));
    ///     }
    ///     cx.hurry(Color::from(1_000));
    ///     cx.stop();
    /// })?;
    /// // The first, unless the core was busy otherwise when the wish came.
    /// println!("{} ran first", ran.lock().unwrap()[0]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// The papers' callbacks had a priority that was a hint (libasync-smp's thesis, table 3.1);
    /// there it was the callback's, here it is the color's.
    #[doc(alias = "priority")]
    pub fn hurry(&mut self, color: Color) {
        self.worker().core.hurry(color);
    }

    /// A color that nobody else has; it starts on this core, unless it is [placed](Self::place).
    pub fn unique_color(&self) -> UniqueColor {
        UniqueColor::issue(&self.worker_ref().inner, self.core())
    }

    /// Asks the runtime to stop. What is queued, and what that posts, is still run, until nothing
    /// is left or the builder's deadline has come; listeners, receives and timers are canceled,
    /// sends under way are finished. Then `run` returns. Asking again changes nothing. A
    /// strong [`Poster`] puts the end off.
    pub fn stop(&self) {
        // Cloned, since it wakes tasks, whose wakers look for the worker.
        let inner = Arc::clone(&self.worker_ref().inner);
        inner.stop();
    }

    /// Whether the runtime has been asked to stop.
    pub fn stopping(&self) -> bool {
        self.worker_ref().inner.is_stopping()
    }
}

/// A context by which a handler posts beyond the limit of events.
pub(crate) struct Beyond<'a>(pub(crate) &'a Cx);

impl HasPool for Cx {
    #[inline(always)]
    fn pool(&mut self) -> &mut Pool {
        self.worker().core.pool()
    }
}

impl Host for Cx {
    #[inline(always)]
    fn core_mut(&mut self) -> &mut Core {
        &mut self.worker().core
    }

    #[inline(always)]
    fn exchange<const RETIRED: bool>(&mut self) {
        let worker = self.worker();
        if worker.is_to_look() {
            worker.look_and_exchange::<RETIRED>();
        } else {
            worker.core.exchange::<RETIRED>();
        }
    }

    #[inline(always)]
    fn run(&mut self, event: Begun) {
        event.run(self);
    }

    #[inline(always)]
    fn end_event(&mut self) {
        while self.worker().core.end_event() {
            self.end_gathered();
        }
    }

    #[inline(always)]
    fn catch(&mut self, run: impl FnOnce(&mut Cx)) -> bool {
        match panics::catching(|| run(self)) {
            Ok(()) => false,
            Err(payload) => {
                panics::caught(self, payload);
                true
            }
        }
    }
}

impl fmt::Debug for Cx {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cx")
            .field("core", &self.core())
            .field("color", &self.color())
            .field("handler", &self.handler())
            .finish_non_exhaustive()
    }
}

/// Panics with the reason of a refusal. Apart, and with all of it: what was refused may be large.
#[cold]
#[inline(never)]
#[track_caller]
fn refuse<F>(refused: Rejected<F>) -> ! {
    let Rejected { reason, value } = refused;
    drop(value);
    match reason {
        // Through the context of another runtime, to a state whose runtime has ended.
        Reason::Ended => {
            panic!(
                "the runtime of the state has ended or is ending: a method with `try_` would tell"
            )
        }
        Reason::Full => {
            panic!("the runtime's limit of queued events is reached (Builder::events_max)")
        }
        reason => panic!("{reason}"),
    }
}
