//! A session as others see it.

use super::{Served, Session};
use crate::callback::Callback;
use crate::host::poster::Poster;
use crate::host::quiesce::Until;
use crate::net::Stream;
use crate::net::conn::{Conn, Doubt, Phase};
use crate::post::post_wrapped;
use crate::{Color, Cx, Handler, Post, Reason, Rejected};
use std::fmt;
use std::sync::Weak;

/// A session as others see it: posts to it, and keeps neither the session nor its connection.
///
/// `Clone + Send + Sync`. A session may have its own link.
///
/// ```
/// use mely::net::{Link, RecvBuf, Session, Stream, Then, Timer};
/// use mely::{Cx, Handler};
/// use std::time::Duration;
/// static HURRY: Handler = Handler::new("hurry");
///
/// struct Slow {
///     link: Link<Slow>,
///     hurry: Option<Timer>,
/// }
///
/// impl Session for Slow {
///     fn data(&mut self, cx: &mut Cx, _stream: &Stream, _data: RecvBuf) -> Then {
///         let hurry = self.link.on(&HURRY, |_slow, cx, stream| {
///             let _ = stream.write(cx, "still there?\n");
///         });
///         // The timer before is canceled, and the last one when the session is dropped.
///         let timer = cx.timer(Duration::from_secs(10), hurry);
///         self.hurry = Some(timer.cancel_on_drop());
///         Then::Continue
///     }
/// }
/// ```
pub struct Link<S> {
    pub(super) served: Weak<Served<S>>,
    pub(super) conn: Weak<Conn>,
    pub(super) color: Color,
    pub(super) handler: &'static Handler,
    pub(super) poster: Poster,
}

impl<S: Session> Link<S> {
    /// The connection's color.
    pub fn color(&self) -> Color {
        self.color
    }

    /// Whether the connection is gone. If not, it may be by the time that anything is done with
    /// it.
    pub fn is_gone(&self) -> bool {
        self.served.strong_count() == 0
    }

    /// Posts `f` to the connection's color, under the session's handler: it runs with the session
    /// and the stream, in the runtime of the connection. If a close has begun by then, `f` is
    /// dropped instead, in that color, also if the connection still waits for its peer to read
    /// ([`abort`](Self::abort) ends that); if it is gone already, `f` is dropped at once. If `f`
    /// panics, that is as a panic of the session.
    ///
    /// # Panics
    /// As [`Cx::post`]; and if the connection is of another runtime that was asked to stop.
    #[track_caller]
    pub fn post<F>(&self, cx: &Cx, f: F)
    where
        F: FnOnce(&mut S, &mut Cx, &Stream) + Send + 'static,
    {
        cx.surely(|by| self.try_post(by, f));
    }

    /// Like [`post`](Self::post), and gives the closure back where that panics.
    ///
    /// # Errors
    /// As [`Post::try_post`](crate::Post::try_post).
    pub fn try_post<P, F>(&self, by: &P, f: F) -> Result<(), Rejected<F>>
    where
        P: Post + ?Sized,
        F: FnOnce(&mut S, &mut Cx, &Stream) + Send + 'static,
    {
        if self.is_gone() {
            drop(f);
            return Ok(());
        }
        let handler = Some(self.handler);
        let wrap = |f| {
            let this = self.clone();
            move |cx: &mut Cx| this.lend(cx, f)
        };
        post_wrapped(by, &self.poster, handler, self.color, f, wrap)
    }

    /// Closes the connection at once, from wherever that is called: what is queued is lost, also
    /// what a [`Then::Close`](super::Then::Close) before would still have sent. The session is
    /// dropped in its color, after the events that were posted there before, and none of its
    /// methods is called any more but by these. Nothing happens if the connection is gone.
    ///
    /// Accepted also at the limit of queued events, and after a stop until the run has ended.
    pub fn abort(&self) {
        if self.is_gone() {
            return;
        }
        let (conn, handler) = (Weak::clone(&self.conn), Some(self.handler));
        let abort = move |cx: &mut Cx| {
            if let Some(conn) = conn.upgrade() {
                conn.close(cx, true);
            }
        };
        // Refused once the end is decided: then the connection goes with the runtime.
        let _ = self
            .poster
            .post_own_until(Until::End, handler, self.color, abort);
    }

    /// A callback that runs `f` with the session and the stream, in the connection's color and
    /// under `handler`. If a close has begun by then, `f` is dropped instead, as it is in another
    /// runtime than the connection's.
    pub fn on<F>(
        &self,
        handler: &'static Handler,
        f: F,
    ) -> Callback<impl FnOnce(&mut Cx) + Send + 'static + use<S, F>>
    where
        F: FnOnce(&mut S, &mut Cx, &Stream) + Send + 'static,
    {
        let this = self.clone();
        Callback::new(Some(handler), self.color, move |cx: &mut Cx| {
            this.lend(cx, f)
        })
    }

    /// Like [`on`](Self::on), for what delivers one result.
    pub fn on_value<V, F>(
        &self,
        handler: &'static Handler,
        f: F,
    ) -> Callback<impl FnOnce(&mut Cx, V) + Send + 'static + use<S, V, F>>
    where
        V: 'static,
        F: FnOnce(&mut S, &mut Cx, &Stream, V) + Send + 'static,
    {
        let this = self.clone();
        Callback::new(Some(handler), self.color, move |cx: &mut Cx, value: V| {
            this.lend(cx, |session, cx, stream| f(session, cx, stream, value));
        })
    }

    /// Lends session and stream to `f`, in an event of the connection's color.
    fn lend<F>(&self, cx: &mut Cx, f: F)
    where
        F: FnOnce(&mut S, &mut Cx, &Stream),
    {
        // First: whoever drops the last of them is to be an event of this color.
        if Reason::check(cx, &self.poster.inner, self.color).is_err() {
            return;
        }
        let (Some(conn), Some(served)) = (self.conn.upgrade(), self.served.upgrade()) else {
            return;
        };
        let phase = conn.colored.borrow(cx).map(|colored| colored.phase);
        if phase != Ok(Phase::Open) {
            return;
        }
        let stream = Stream { conn, owner: false };
        let doubt = Doubt(&stream.conn);
        served.lend(cx, |session, cx| f(session, cx, &stream));
        std::mem::forget(doubt);
    }
}

impl<S> Clone for Link<S> {
    fn clone(&self) -> Self {
        Link {
            served: Weak::clone(&self.served),
            conn: Weak::clone(&self.conn),
            color: self.color,
            handler: self.handler,
            poster: self.poster.clone(),
        }
    }
}

impl<S> fmt::Debug for Link<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link")
            .field("color", &self.color)
            .finish_non_exhaustive()
    }
}
