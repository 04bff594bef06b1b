//! What can post: a handler's context, a poster, and a keep-alive.

use crate::ask::Reply;
use crate::event::node::is_boxed;
use crate::gate::HoldId;
use crate::host::cx::accepted;
use crate::host::inner::Inner;
use crate::host::keep_alive::KeepAlive;
use crate::host::poster::Poster;
use crate::host::quiesce::Until;
use crate::rejected::{Reason, Rejected};
use crate::sync::Arc;
use crate::{Color, Cx, Handler};

/// What can post: a handler's [`Cx`], a [`Poster`], or a [`KeepAlive`].
///
/// Methods that post from either, as those of [`Colored`](crate::Colored) do, take `&impl Post`:
/// give them `cx` (a `&mut Cx` will do) or `&poster`. What they return is what that poster's own
/// `post` returns:
///
/// | | posts by | returns | at the builder's limit of queued events |
/// |---|---|---|---|
/// | [`Cx`] | [`Cx::post`] | nothing | panics; `try_post` gives the closure back |
/// | [`Hold`](crate::Hold) | [`Hold::post`](crate::Hold::post) to its color | a `Result` | gives the closure back |
/// | [`Poster`] | [`Poster::post`] | a `Result` | gives the closure back |
/// | [`KeepAlive`] | [`KeepAlive::post`] | a `Result` | gives the closure back |
///
/// ```
/// use mely::{Color, Colored, Cx, Post, Runtime};
///
/// fn add_one(hits: &mut u64, _cx: &mut Cx) {
///     *hits += 1;
/// }
/// // From a handler or from elsewhere.
/// fn hit<P: Post + ?Sized>(hits: &Colored<u64>, by: &P) -> P::Posted<fn(&mut u64, &mut Cx)> {
///     hits.post(by, add_one as fn(&mut u64, &mut Cx))
/// }
///
/// let runtime = Runtime::builder().build()?;
/// let poster = runtime.poster();
/// let hits = Colored::new(&poster, Color::from(7), 0);
/// hit(&hits, &poster)?;
/// let total = runtime.run_until(move |cx, finish| {
///     hit(&hits, cx);
///     hits.post(cx, move |hits, _cx| finish.finish(*hits));
/// })?;
/// assert_eq!(total, 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// Sealed: mely implements it, and nobody else. A function of your own that takes `&P` says
/// `P: Post + ?Sized`, because a context has no size.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot post",
    note = "give `cx` itself (a `&mut Cx`), or `&poster`"
)]
pub trait Post: sealed::Post {
    /// What posting an `F` returns: `()`, or a `Result` that gives the closure back.
    type Posted<F>;

    /// What asking by an `F` that returns an `R` returns: a [`Reply`], or a `Result` that gives the
    /// closure back.
    type Asked<R: Send + 'static, F>;

    /// Makes it of what became of the post.
    #[doc(hidden)]
    fn posted<F>(result: Result<(), Rejected<F>>) -> Self::Posted<F>;

    /// Makes it of what became of the question.
    #[doc(hidden)]
    fn asked<R: Send + 'static, F>(result: Result<Reply<R>, Rejected<F>>) -> Self::Asked<R, F>;
}

impl Post for Cx {
    type Posted<F> = ();
    type Asked<R: Send + 'static, F> = Reply<R>;

    #[inline(always)]
    #[track_caller]
    fn posted<F>(result: Result<(), Rejected<F>>) {
        accepted(result);
    }

    #[track_caller]
    fn asked<R: Send + 'static, F>(result: Result<Reply<R>, Rejected<F>>) -> Reply<R> {
        accepted(result)
    }
}

impl Post for Poster {
    type Posted<F> = Result<(), Rejected<F>>;
    type Asked<R: Send + 'static, F> = Result<Reply<R>, Rejected<F>>;

    fn posted<F>(result: Result<(), Rejected<F>>) -> Result<(), Rejected<F>> {
        result
    }

    fn asked<R: Send + 'static, F>(
        result: Result<Reply<R>, Rejected<F>>,
    ) -> Result<Reply<R>, Rejected<F>> {
        result
    }
}

impl Post for KeepAlive {
    type Posted<F> = Result<(), Rejected<F>>;
    type Asked<R: Send + 'static, F> = Result<Reply<R>, Rejected<F>>;

    fn posted<F>(result: Result<(), Rejected<F>>) -> Result<(), Rejected<F>> {
        result
    }

    fn asked<R: Send + 'static, F>(
        result: Result<Reply<R>, Rejected<F>>,
    ) -> Result<Reply<R>, Rejected<F>> {
        result
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
        fn to_poster(&self) -> Poster;
        /// The address of the runtime it posts to, for comparison.
        fn runtime(&self) -> *const ();
        /// Whether it still posts to that runtime after a stop was asked for.
        fn posts_after_stop(&self) -> bool;
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
            if const { is_boxed::<G>() } {
                return self.post_boxed(handler, color, f, wrap);
            }
            Cx::post_wrapped(self, handler, color, f, wrap)
                .map_err(|f| Rejected::new(Reason::Full, f))
        }
    }

    impl Post for Poster {
        fn to_poster(&self) -> Poster {
            self.clone()
        }
        fn runtime(&self) -> *const () {
            Arc::as_ptr(&self.inner).cast()
        }
        fn posts_after_stop(&self) -> bool {
            false
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

    impl Post for KeepAlive {
        fn to_poster(&self) -> Poster {
            self.poster().clone()
        }
        fn runtime(&self) -> *const () {
            self.poster().runtime()
        }
        fn posts_after_stop(&self) -> bool {
            true
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
            let poster = self.poster();
            poster.post_wrapped_until(Until::End, handler, color, f, wrap)
        }
    }
}
