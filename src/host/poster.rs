//! Posting from other threads.

use super::inner::Inner;
use super::quiesce::Until;
use super::worker::{is_inside, lend_current};
use crate::event::maker::{Maker, Refusal};
use crate::event::node::{AtLimit, Sort, is_boxed};
use crate::memory::boxed;
use crate::rejected::{Reason, Rejected};
use crate::sched::together::Arrive;
use crate::shared::remote::mail;
use crate::shared::remote::wishes;
use crate::shared::remote::working::set_working;
use crate::sync::{Arc, share};
use crate::{Color, Cx, Handler};
use std::fmt;

/// Posts events to one runtime from anywhere: other threads, other runtimes, or handlers of the
/// runtime itself.
///
/// Cloneable and `Send + Sync`. Events posted by one thread through one runtime's posters to one
/// color run in the order of the posts. Inside a handler of its own runtime a poster is recognized
/// and behaves like [`Cx::post`], so that it cannot overtake it. Posting never runs the event, and
/// waits neither for a handler nor for room: only, for a moment, for other foreign threads that
/// make their events.
///
/// Inside a handler of another runtime it posts at once, while what that handler posts in its own
/// runtime waits to be published: an event that goes there and back may overtake it. [`Cx::flush`]
/// before the post keeps the causal order.
///
/// # Strong posters
/// A poster is *weak*, unless it was made by [`strong`](Self::strong) or
/// [`Cx::strong_poster`](crate::Cx::strong_poster), or cloned from such a one: it does not keep the
/// run from ending, and is refused once the runtime was asked to stop. While a strong poster
/// exists,
///
/// - a runtime that was asked to stop drains, and does not end;
/// - a runtime that ends by itself ([`Builder::exit_when_idle`](crate::Builder::exit_when_idle))
///   does not;
/// - events posted through it are accepted, after the stop too.
///
/// So a thread that has one delivers its answer, whenever the stop comes. The limit of the drain
/// holds all the same: after [`drain_deadline`](crate::Builder::drain_deadline) the run ends with
/// [`RunError::Deadline`](crate::RunError::Deadline), which says how many strong posters were left,
/// and posts through them are refused. A panic that stops the runtime does not wait for them
/// either. One that is leaked, or lies in the state of a [`Colored`](crate::Colored) that is not
/// dropped before, keeps the run until that deadline. Each is counted in a word that all threads
/// share: to make or drop one costs about as much as a post from another thread.
///
/// A thread that a handler has started, or has told something by other means, posts after the
/// events of that handler only if these were flushed ([`Cx::flush`]);
/// [`Cx::try_blocking`](crate::Cx::try_blocking) does that itself.
///
/// ```
/// use mely::{Color, Post, Runtime};
/// let answer = Runtime::builder().build()?.run_until(|cx, finish| {
///     let poster = cx.strong_poster();
///     std::thread::spawn(move || {
///         let answer = 6 * 7; // takes a while
///         let delivered = poster.try_post(Color::from(7), move |_cx| finish.finish(answer));
///         assert!(delivered.is_ok(), "although the runtime was asked to stop");
///     });
///     cx.stop();
/// })?;
/// assert_eq!(answer, 42);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// ```
/// use mely::{Color, Post, Runtime};
/// let runtime = Runtime::builder().build()?;
/// let poster = runtime.poster();
/// std::thread::spawn(move || {
///     if let Err(refused) = poster.try_post(Color::from(7), |cx| cx.stop()) {
///         eprintln!("{refused}"); // and `refused.value` is the closure
///     }
/// });
/// runtime.run(|_cx| ())?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Poster {
    pub(crate) inner: Arc<Inner>,
    /// Counted in [`quiesce`](super::quiesce), until the drop.
    is_strong: bool,
}

/// The clone of a strong poster is strong.
impl Clone for Poster {
    #[inline]
    fn clone(&self) -> Poster {
        if self.is_strong {
            self.inner.quiesce.keep_alive();
        }
        Poster {
            inner: share(&self.inner),
            is_strong: self.is_strong,
        }
    }
}

impl Drop for Poster {
    #[inline]
    fn drop(&mut self) {
        if self.is_strong {
            self.inner.drop_keep_alive();
        }
    }
}

impl Poster {
    #[inline]
    pub(crate) fn of(inner: &Arc<Inner>) -> Poster {
        Poster {
            inner: share(inner),
            is_strong: false,
        }
    }

    /// A strong one, which `quiesce` has counted.
    pub(crate) fn counted(inner: &Arc<Inner>) -> Poster {
        Poster {
            inner: share(inner),
            is_strong: true,
        }
    }

    /// When the runtime refuses what is posted by this poster.
    pub(crate) fn until(&self) -> Until {
        match self.is_strong {
            true => Until::End,
            false => Until::Stop,
        }
    }

    /// Returns a strong poster, which keeps the run from ending; see [`Poster`].
    ///
    /// Works before the run, during it, and also after it was asked to stop, until its end is
    /// decided. Inside a handler of the runtime it never fails, as
    /// [`Cx::strong_poster`](crate::Cx::strong_poster).
    ///
    /// # Errors
    /// [`Reason::Ended`](crate::Reason::Ended) if the run has ended.
    pub fn strong(&self) -> Result<Poster, Reason> {
        if is_inside(&self.inner) {
            self.inner.quiesce.keep_alive();
        } else if !self.inner.quiesce.keep_alive_from_outside() {
            return Err(Reason::Ended);
        }
        Ok(Poster::counted(&self.inner))
    }

    /// Posts `wrap(f)`, or gives `f` back. `wrap` runs no user code.
    pub(crate) fn post_wrapped<F, G>(
        &self,
        handler: Option<&'static Handler>,
        color: Color,
        f: F,
        wrap: impl FnOnce(F) -> G,
    ) -> Result<(), Rejected<F>>
    where
        G: FnOnce(&mut Cx) + Send + 'static,
    {
        self.post_sort_until(self.until(), handler, color, f, Sort::ORDINARY, wrap)
    }

    /// The same for an event of this sort, accepted `until` then.
    pub(crate) fn post_sort_until<F, G>(
        &self,
        until: Until,
        handler: Option<&'static Handler>,
        color: Color,
        f: F,
        sort: Sort,
        wrap: impl FnOnce(F) -> G,
    ) -> Result<(), Rejected<F>>
    where
        G: FnOnce(&mut Cx) + Send + 'static,
    {
        if const { is_boxed::<G>() } {
            return self.post_boxed(until, handler, color, f, sort, wrap);
        }
        let here = lend_current(Arc::as_ptr(&self.inner), (f, wrap), |worker, (f, wrap)| {
            worker.core.post_sort(handler, color, f, sort, wrap)
        });
        let (f, wrap) = match here {
            Ok(posted) => return posted.map_err(|f| Rejected::new(Reason::Full, f)),
            Err(elsewhere) => elsewhere,
        };
        let shared = &self.inner.shared;
        if self.inner.quiesce.refuses(until) {
            return Err(Rejected::new(Reason::Ended, f));
        }
        // Counted when nothing but the end can refuse it any more.
        let count = || self.inner.quiesce.foreign_post(until);
        let made = shared
            .foreign
            .with(|maker| maker.make_if(&shared.profiles, handler, color, f, sort, wrap, count));
        match made {
            Ok((event, _)) => mail::publish(shared, color, event),
            Err((f, Refusal::Full)) => {
                #[cfg(feature = "tracing")]
                crate::notice::tell_refused_outside(color, "events_max");
                return Err(Rejected::new(Reason::Full, f));
            }
            Err((f, Refusal::NotAdmitted)) => {
                return Err(Rejected::new(Reason::Ended, f));
            }
        }
        Ok(())
    }

    /// The same for a closure that is boxed. It may be large: it is moved into its box here, and
    /// not handed down to the maker.
    fn post_boxed<F, G>(
        &self,
        until: Until,
        handler: Option<&'static Handler>,
        color: Color,
        f: F,
        sort: Sort,
        wrap: impl FnOnce(F) -> G,
    ) -> Result<(), Rejected<F>>
    where
        G: FnOnce(&mut Cx) + Send + 'static,
    {
        let inner = Arc::as_ptr(&self.inner);
        let here = lend_current(inner, (), |worker, ()| {
            worker.core.place(handler, color, sort)
        });
        if let Ok(place) = here {
            let Some(place) = place else {
                return Err(Rejected::new(Reason::Full, f));
            };
            let made = place.fill(boxed(|| wrap(f)));
            let put = lend_current(inner, made, |worker, made| {
                worker.core.put_placed(color, made);
            });
            assert!(put.is_ok(), "this thread is where it was");
            return Ok(());
        }
        let (shared, quiesce) = (&self.inner.shared, &self.inner.quiesce);
        if quiesce.refuses(until) {
            return Err(Rejected::new(Reason::Ended, f));
        }
        let count = || quiesce.foreign_post(until);
        let profiles = &shared.profiles;
        let placed = shared
            .foreign
            .with(|maker| maker.place_if(profiles, handler, color, sort, count));
        match placed {
            Ok(place) => {
                let (event, _) = place.fill(boxed(|| wrap(f)));
                mail::publish(shared, color, event);
                Ok(())
            }
            Err(Refusal::Full) => {
                #[cfg(feature = "tracing")]
                crate::notice::tell_refused_outside(color, "events_max");
                Err(Rejected::new(Reason::Full, f))
            }
            Err(Refusal::NotAdmitted) => Err(Rejected::new(Reason::Ended, f)),
        }
    }

    /// Posts an event to each of these colors, in one place in all of them; see
    /// [`crate::sched::together`].
    pub(crate) fn post_together<F, A: Arrive>(
        &self,
        handler: Option<&'static Handler>,
        until: Until,
        colors: &[Color],
        f: F,
        at_limit: AtLimit,
        wrap: impl FnOnce(F) -> Arc<A>,
    ) -> Result<(), Rejected<F>> {
        let inner = Arc::as_ptr(&self.inner);
        let here = lend_current(inner, (f, wrap), |worker, (f, wrap)| {
            worker
                .core
                .post_together(handler, colors, f, at_limit, wrap)
        });
        let (f, wrap) = match here {
            Ok(posted) => return posted.map_err(|f| Rejected::new(Reason::Full, f)),
            Err(elsewhere) => elsewhere,
        };
        let (shared, quiesce) = (&self.inner.shared, &self.inner.quiesce);
        if quiesce.refuses(until) {
            return Err(Rejected::new(Reason::Ended, f));
        }
        let count = || quiesce.foreign_post(until);
        let make = |maker: &mut Maker| {
            shared.make_together(maker, handler, colors, f, at_limit, wrap, count)
        };
        match shared.foreign.with(make) {
            Ok(events) => {
                // The first is counted, and so the end is not decided meanwhile.
                (1..events.len()).for_each(|_| quiesce.owner_post());
                shared.publish_together(events);
                Ok(())
            }
            Err((f, Refusal::Full)) => Err(Rejected::new(Reason::Full, f)),
            Err((f, Refusal::NotAdmitted)) => Err(Rejected::new(Reason::Ended, f)),
        }
    }

    /// Inside a handler of the runtime, publishes what it has posted: somebody else is about to be
    /// told something, and what that one posts must not come before.
    #[cfg_attr(loom, allow(dead_code))]
    pub(crate) fn publish(&self) {
        let _elsewhere = lend_current(Arc::as_ptr(&self.inner), (), |worker, ()| worker.publish());
    }

    /// Posts an event of the runtime's own, also at the limit of events; see
    /// [`crate::sched::core::Core::post_own`]. Gives it back once the runtime was asked to stop.
    pub(crate) fn post_own<F>(&self, color: Color, f: F) -> Result<(), F>
    where
        F: FnOnce(&mut Cx) + Send + 'static,
    {
        self.post_own_until(Until::Stop, None, color, f)
    }

    pub(crate) fn post_own_until<F>(
        &self,
        until: Until,
        handler: Option<&'static Handler>,
        color: Color,
        f: F,
    ) -> Result<(), F>
    where
        F: FnOnce(&mut Cx) + Send + 'static,
    {
        let sort = Sort::ORDINARY.at(AtLimit::Own);
        let posted = self.post_sort_until(until, handler, color, f, sort, |f| f);
        posted.map_err(|refused| refused.value)
    }

    /// Moves a color to a core; see [`Cx::place`].
    ///
    /// # Panics
    /// If there is no such core.
    #[track_caller]
    pub fn place(&self, color: Color, core: usize) {
        wishes::place(&self.inner.shared, color, core);
    }

    /// Asks for a color's next turn to come before those of other colors; see [`Cx::hurry`].
    #[doc(alias = "priority")]
    pub fn hurry(&self, color: Color) {
        let here = lend_current(Arc::as_ptr(&self.inner), color, |worker, color| {
            worker.core.hurry(color);
        });
        if let Err(color) = here {
            wishes::hurry(&self.inner.shared, color);
        }
    }

    /// Has the first `cores` cores work, and retires the others; or has them work again.
    ///
    /// At first all cores work; called before the run, it says how many do at first. Each core goes
    /// by this once the event that it is inside of is over, and what it had posted is published; a
    /// core that sleeps is woken for it. Of several calls, on whatever threads, the last one holds.
    ///
    /// A *retired* core runs no event of a color, and takes none from others: its colors go to the
    /// cores that work, with all that is queued for them, and so does what is posted or placed
    /// there from then on. No event is lost, none runs twice, and what is promised of their order
    /// holds. Its thread sleeps. But a connection stays at home where it was accepted or connected,
    /// and a timer where it was set: that core's thread receives and fires, for some microseconds a
    /// time, and the events run elsewhere. New connections are accepted by cores that work, at
    /// those listeners too that a retired core accepted for before.
    ///
    /// A core that works again takes part in stealing at once, and accepts for its listeners again.
    /// Colors that were passed on do not come back by themselves.
    ///
    /// It costs some microseconds for each core, and a flag for each color that is passed on. An
    /// event costs nothing more, whatever the number is.
    ///
    /// ```
    /// use mely::{Color, Runtime};
    ///
    /// let builder = Runtime::builder().cores(4).pin(false);
    /// builder.build()?.run(|cx| {
    ///     let poster = cx.poster();
    ///     poster.set_working_cores(1).expect("there are four");
    ///     assert_eq!((poster.stats().working_cores, cx.cores()), (1, 4));
    ///     assert!(poster.set_working_cores(5).is_err());
    ///     cx.stop();
    /// })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Reason::WorkingCores`](crate::Reason::WorkingCores) for none, or more than the runtime
    /// has; nothing has changed then.
    ///
    /// libasync-smp and Mely assume that the number of processors stays as it is; scheduler
    /// activations would be the way to follow it (USENIX 2003, section 3).
    pub fn set_working_cores(&self, cores: usize) -> Result<(), Reason> {
        set_working(&self.inner.shared, cores)
    }

    /// Asks the runtime to stop; see [`Cx::stop`].
    pub fn stop(&self) {
        self.inner.stop();
    }

    /// The runtime's counters, at any time.
    pub fn stats(&self) -> crate::host::stats::Stats {
        self.inner.stats()
    }

    /// The colors in which the most events wait, deepest first, at most `most`: where a program
    /// falls behind. It looks at every color that was ever used, for some ns each, and more for
    /// long mailboxes.
    ///
    /// ```
    /// use mely::{Color, Runtime};
    ///
    /// // With more cores another one would have begun with them.
    /// let runtime = Runtime::builder().cores(1).build()?;
    /// runtime.run(|cx| {
    ///     for _ in 0..1_000 {
    ///         cx.post(Color::from(7), |_cx| ());
    ///     }
    ///     cx.flush();
    ///     let deepest = cx.poster().deepest_colors(1)[0];
    ///     assert_eq!((deepest.color, deepest.events), (Some(Color::from(7)), 1_000));
    ///     cx.stop();
    /// })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn deepest_colors(&self, most: usize) -> Vec<crate::host::stats::ColorDepth> {
        self.inner.deepest(most)
    }

    /// What the runtime has learned of each handler, at any time, with the annotations it
    /// recommends.
    ///
    /// ```
    /// use mely::{Color, Handler, Runtime};
    /// use std::time::Duration;
    ///
    /// static PARSE: Handler = Handler::new("parse");
    ///
    /// let runtime = Runtime::builder().build()?;
    /// let poster = runtime.poster();
    /// runtime.run(|cx| {
    ///     for i in 0..1_000u64 {
    ///         PARSE.on(Color::from(i), move |_cx| {
    ///             std::hint::black_box((0..i).sum::<u64>());
    ///         }).post(cx);
    ///     }
    ///     cx.stop();
    /// })?;
    /// let profile = poster.profile();
    /// let parse = profile.handlers.iter().find(|row| row.name == "parse").expect("it ran");
    /// assert_eq!(parse.events(), 1_000);
    /// assert!(parse.mean.is_some_and(|mean| mean > Duration::ZERO));
    /// print!("{profile}"); // A table, with lines such as `.time(Duration::from_nanos(120))`.
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn profile(&self) -> crate::host::profile::Profile {
        self.inner.profile()
    }

    /// Which event source each core runs on, and why, once the run has begun.
    #[cfg(not(loom))]
    pub fn backends(&self) -> Vec<crate::io::Report> {
        self.inner.backends()
    }
}

impl fmt::Debug for Poster {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Poster").finish_non_exhaustive()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::{Post, Runtime};

    /// Who tries again while the queues are full is to learn that it is in vain.
    #[test]
    fn a_full_runtime_that_is_asked_to_stop_says_so() {
        let builder = Runtime::builder().cores(1).events_max(1);
        let runtime = builder.build().unwrap();
        let poster = runtime.poster();
        let post = || poster.try_post(Color::from(1), |_cx| ());
        while post().is_ok() {}
        assert!(matches!(
            post(),
            Err(Rejected {
                reason: Reason::Full,
                ..
            })
        ));
        poster.stop();
        assert!(matches!(
            post(),
            Err(Rejected {
                reason: Reason::Ended,
                ..
            })
        ));
    }
}
