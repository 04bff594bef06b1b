//! Posting from wherever one is: by a handler's context, a poster, a hold.

use crate::ask::{Asked, JoinHandle};
use crate::event::node::{AtLimit, Sort};
use crate::gate::HoldId;
use crate::host::cx::Beyond;
use crate::host::inner::Inner;
use crate::host::poster::Poster;
use crate::host::quiesce::Until;
use crate::rejected::{Reason, Rejected};
use crate::sync::Arc;
use crate::{Callback, Color, Cx, Handler};

/// Posts events, from wherever it is: a handler's [`Cx`], a [`Poster`], or a
/// [`Hold`](crate::Hold).
///
/// Methods that take `&impl Post`, as those of [`Colored`](crate::Colored) do, are given `cx` (a
/// `&mut Cx` will do) or `&poster`. All that post by it have a name that begins with `try_`, and
/// return a `Result` that gives the closure back. In a handler the methods without `try_`, as
/// [`Cx::post`], return nothing instead, and may go beyond the limit of queued events
/// ([`Builder::events_max`](crate::Builder::events_max)).
///
/// ```
/// use mely::{Color, Colored, Cx, Post, Rejected, Runtime};
///
/// fn add_one(hits: &mut u64, _cx: &mut Cx) {
///     *hits += 1;
/// }
/// // From a handler or from elsewhere.
/// fn hit(hits: &Colored<u64>, by: &(impl Post + ?Sized)) -> bool {
///     hits.try_post(by, add_one).is_ok()
/// }
///
/// let runtime = Runtime::builder().build()?;
/// let poster = runtime.poster();
/// let hits = Colored::new(&poster, Color::from(7), 0);
/// assert!(hit(&hits, &poster));
/// let total = runtime.run_until(move |cx, finish| {
///     assert!(hit(&hits, cx));
///     hits.post(cx, move |hits, _cx| finish.finish(*hits));
/// })?;
/// assert_eq!(total, 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Sealed: only mely implements it. A function of your own that takes `&P` says
/// `P: Post + ?Sized`, because a context has no size.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot post",
    note = "give `cx` itself (a `&mut Cx`), or `&poster`"
)]
pub trait Post: sealed::Post {
    /// Posts `f` to `color`; see [`Cx::post`] for the order. A [`Hold`](crate::Hold) posts to its
    /// own color past the events that wait for it: they run after all that is posted through it.
    ///
    /// # Errors
    /// [`Reason::Full`](crate::Reason::Full) at the limit of queued events.
    /// [`Reason::Ended`](crate::Reason::Ended) by a weak [`Poster`] once the runtime was asked to
    /// stop, and by a strong one or a [`Hold`](crate::Hold) if the run was cut short: by its
    /// deadline, a panic, or the drop of a runtime that never ran. All give the closure back.
    fn try_post<F>(&self, color: Color, f: F) -> Result<(), Rejected<F>>
    where
        F: FnOnce(&mut Cx) + Send + 'static,
    {
        self.post_wrapped(None, color, f, |f| f)
    }

    /// Posts `f` to `color`, and returns a handle for the value that `f` will return.
    ///
    /// # Errors
    /// As [`try_post`](Self::try_post).
    ///
    /// ```
    /// use mely::{Color, Post, Runtime};
    /// let runtime = Runtime::builder().build()?;
    /// let poster = runtime.poster();
    /// let asker = std::thread::spawn(move || {
    ///     let mut handle = poster.try_ask(Color::from(4), |cx| cx.color().value() * 10)?;
    ///     let answer = handle.recv();
    ///     poster.stop();
    ///     Ok::<_, Box<dyn std::error::Error + Send + Sync>>(answer?)
    /// });
    /// runtime.run(|_cx| ())?;
    /// assert_eq!(asker.join().unwrap().unwrap(), 40);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    fn try_ask<R, F>(&self, color: Color, f: F) -> Result<JoinHandle<R>, Rejected<F>>
    where
        F: FnOnce(&mut Cx) -> R + Send + 'static,
        R: Send + 'static,
    {
        let (asked, handle) = Asked::of_runtime(self.runtime());
        self.post_wrapped(None, color, f, |f| move |cx: &mut Cx| asked.run(cx, f))?;
        Ok(handle)
    }
}

impl<P: sealed::Post + ?Sized> Post for P {}

impl<F: FnOnce(&mut Cx) + Send + 'static> Callback<F> {
    /// Posts the event: its closure runs in its color, under its handler. See [`Cx::post`].
    ///
    /// # Panics
    /// As [`Cx::post`].
    #[inline]
    #[track_caller]
    pub fn post(self, cx: &Cx) {
        cx.post_event(self.handler, self.color, self.f);
    }

    /// Posts the event by whatever can post, or gives the callback back.
    ///
    /// # Errors
    /// As [`Post::try_post`](Post::try_post).
    pub fn try_post(self, by: &(impl Post + ?Sized)) -> Result<(), Rejected<Self>> {
        let Callback { handler, color, f } = self;
        let posted = by.post_wrapped(handler, color, f, |f| f);
        posted.map_err(|refused| {
            Rejected::new(refused.reason, Callback::new(handler, color, refused.value))
        })
    }
}

/// Whether `by` posts to this runtime.
#[inline(always)]
pub(crate) fn posts_to(by: &(impl Post + ?Sized), inner: &Arc<Inner>) -> bool {
    by.runtime() == Arc::as_ptr(inner).cast()
}

/// Until when `by` can post to this runtime: to another one than its own, as from outside.
pub(crate) fn until_of(by: &(impl Post + ?Sized), inner: &Arc<Inner>) -> Until {
    if posts_to(by, inner) && by.posts_after_stop() {
        Until::End
    } else {
        Until::Stop
    }
}

/// What becomes of what `by` posts at this runtime's limit: nothing goes beyond that of another.
pub(crate) fn at_limit_of(by: &(impl Post + ?Sized), inner: &Arc<Inner>) -> AtLimit {
    match posts_to(by, inner) {
        true => by.at_limit(),
        false => AtLimit::Refused,
    }
}

/// Posts `wrap(f)` to the runtime of `own`, or gives `f` back: by `by`, if that is its own, and
/// else as from outside. `wrap` is mely's own: it is called inside the runtime.
#[inline(always)]
pub(crate) fn post_wrapped<P, F, G>(
    by: &P,
    own: &Poster,
    handler: Option<&'static Handler>,
    color: Color,
    f: F,
    wrap: impl FnOnce(F) -> G,
) -> Result<(), Rejected<F>>
where
    P: Post + ?Sized,
    G: FnOnce(&mut Cx) + Send + 'static,
{
    if posts_to(by, &own.inner) {
        return by.post_wrapped(handler, color, f, wrap);
    }
    own.post_wrapped(handler, color, f, wrap)
}

pub(crate) mod sealed {
    use super::*;

    #[derive(Clone, Copy, Debug)]
    pub struct Through(pub(crate) HoldId);

    pub trait Post {
        /// A weak poster of its runtime.
        fn to_poster(&self) -> Poster;
        /// The address of the runtime it posts to, for comparison.
        fn runtime(&self) -> *const ();
        /// Whether it still posts to that runtime after a stop was asked for.
        fn posts_after_stop(&self) -> bool;
        /// What becomes of an event at that runtime's limit.
        fn at_limit(&self) -> AtLimit {
            AtLimit::Refused
        }
        /// The hold through which events of this color go.
        fn through(&self, _color: Color) -> Option<Through> {
            None
        }
        /// Posts `wrap(f)`, or gives `f` back. `wrap` is mely's own: it is called inside the
        /// runtime.
        fn post_wrapped<F, G>(
            &self,
            handler: Option<&'static Handler>,
            color: Color,
            f: F,
            wrap: impl FnOnce(F) -> G,
        ) -> Result<(), Rejected<F>>
        where
            G: FnOnce(&mut Cx) + Send + 'static;
    }

    impl Post for Cx {
        fn to_poster(&self) -> Poster {
            self.poster()
        }
        fn runtime(&self) -> *const () {
            Arc::as_ptr(&self.worker_ref().inner).cast()
        }
        fn posts_after_stop(&self) -> bool {
            true
        }
        #[inline]
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
            self.post_sort(handler, color, f, Sort::ORDINARY, wrap)
                .map_err(|f| Rejected::new(Reason::Full, f))
        }
    }

    impl Post for Beyond<'_> {
        fn to_poster(&self) -> Poster {
            self.0.poster()
        }
        fn runtime(&self) -> *const () {
            self.0.runtime()
        }
        fn posts_after_stop(&self) -> bool {
            true
        }
        fn at_limit(&self) -> AtLimit {
            AtLimit::Reserve
        }
        #[inline]
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
            let sort = Sort::ORDINARY.at(AtLimit::Reserve);
            let posted = self.0.post_sort(handler, color, f, sort, wrap);
            posted.map_err(|f| Rejected::new(Reason::Full, f))
        }
    }

    impl Post for Poster {
        fn to_poster(&self) -> Poster {
            Poster::of(&self.inner)
        }
        fn runtime(&self) -> *const () {
            Arc::as_ptr(&self.inner).cast()
        }
        fn posts_after_stop(&self) -> bool {
            self.until() == Until::End
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
            Poster::post_wrapped(self, handler, color, f, wrap)
        }
    }
}
