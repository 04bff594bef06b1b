//! What puts the end of a run off.
//!
//! A keep-alive is a poster that is counted. Who counts, and why the end neither misses one nor
//! waits for one that is gone, is in [`super::quiesce`].

use super::poster::Poster;
use std::fmt;

/// Keeps a runtime from ending, for as long as it or a clone of it exists.
///
/// For what is made outside of the runtime and answered inside: by a thread, a child process,
/// another runtime. While there is one,
///
/// - a runtime that was asked to stop drains, and does not end;
/// - a runtime that ends by itself ([`Builder::exit_when_idle`](crate::Builder::exit_when_idle))
///   does not;
/// - what is posted through it is accepted, also after the stop, when a [`Poster`] is refused.
///
/// So a thread that has one delivers its answer, whenever the stop comes. The builder's
/// [`drain_deadline`](crate::Builder::drain_deadline) holds all the same:
/// [`RunError::Deadline`](crate::RunError::Deadline) says how many keep-alives were left, and from
/// then on posts through them are refused. A panic that stops the runtime does not wait for them
/// either.
///
/// Made by [`Cx::keep_alive`](crate::Cx::keep_alive), which never fails, by [`Poster::keep_alive`] before the end, and by
/// `clone`, which always works. Each is counted in a word that all threads share, which costs about
/// as much as a post from another thread. One that is leaked, or is in the state of a
/// [`Colored`](crate::Colored) that is not dropped before, keeps the runtime until it was asked to
/// stop and the deadline has come.
///
/// Events posted through it are in the order of a [`Poster`]'s: those of one thread to one color,
/// through whichever of both, run in the order of the posts. A thread that a handler has started,
/// or told something by means of its own, posts after what that handler had posted only if that was
/// flushed ([`Cx::flush`](crate::Cx::flush)); [`Cx::try_blocking`](crate::Cx::try_blocking) sees to that itself. A keep-alive can be given
/// wherever `&impl Post` is asked for.
///
/// ```
/// use mely::{Color, Post, Runtime};
/// let answer = Runtime::builder().build()?.run_until(|cx, finish| {
///     let keep_alive = cx.keep_alive();
///     std::thread::spawn(move || {
///         let answer = 6 * 7; // takes a while
///         let delivered = keep_alive.try_post(Color::from(7), move |_cx| finish.finish(answer));
///         assert!(delivered.is_ok(), "although the runtime was asked to stop");
///     });
///     cx.stop();
/// })?;
/// assert_eq!(answer, 42);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "dropped, it keeps nothing from ending"]
pub struct KeepAlive {
    poster: Poster,
}

impl KeepAlive {
    /// Of the runtime of `poster`, which has counted it.
    pub(crate) fn counted(poster: Poster) -> KeepAlive {
        KeepAlive { poster }
    }

    /// A poster of the same runtime, which keeps nothing from ending.
    pub fn poster(&self) -> &Poster {
        &self.poster
    }
}

impl Clone for KeepAlive {
    fn clone(&self) -> KeepAlive {
        self.poster.inner.quiesce.keep_alive();
        KeepAlive::counted(self.poster.clone())
    }
}

impl Drop for KeepAlive {
    fn drop(&mut self) {
        self.poster.inner.drop_keep_alive();
    }
}

impl fmt::Debug for KeepAlive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeepAlive").finish_non_exhaustive()
    }
}
