//! The server's side.

use super::{HANDSHAKE_LIMIT, invalid};
use crate::aio::AsyncStream;
use crate::ask::{Asked, JoinHandle};
use crate::colored::weak::WeakColored;
use crate::host::quiesce::Until;
use crate::io::Endpoint;
use crate::net::{Acceptors, Listener, Records, Session, Stream, is_canceled};
use crate::sync::Mutex;
use crate::task::ambient::try_with_cx;
use crate::{Cx, Handler};
use rustls::ServerConfig;
use rustls::server::UnbufferedServerConnection;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// What accepted connections are handed over under.
static ACCEPTED: Handler = Handler::new("mely: accepted for TLS");

type OnFailure = Arc<dyn Fn(&mut Cx, io::Error) + Send + Sync>;

/// The server's side of handshakes. A clone is the same acceptor.
///
/// Its configuration is rustls's: certificates, chosen by name if need be, those asked of clients,
/// protocols (ALPN), sessions that are resumed. [`server_config`](super::server_config) makes a
/// simple one.
#[derive(Clone)]
pub struct Acceptor {
    config: Arc<Mutex<Arc<ServerConfig>>>,
    limit: Duration,
    on_failure: Option<OnFailure>,
}

impl Acceptor {
    /// An acceptor with this configuration.
    ///
    /// # Errors
    /// `InvalidInput` if the configuration accepts early data.
    pub fn new(config: impl Into<Arc<ServerConfig>>) -> io::Result<Acceptor> {
        Ok(Acceptor {
            config: Arc::new(Mutex::new(checked(config.into())?)),
            limit: HANDSHAKE_LIMIT,
            on_failure: None,
        })
    }

    /// Sets how long a handshake may take; 10 s by default.
    pub fn handshake_timeout(mut self, limit: Duration) -> Acceptor {
        self.limit = limit;
        self
    }

    /// Sets a function that is called with each failed handshake of [`Cx::serve_tls`], in the color
    /// of the connection, which is closed: to count them, or to log some. The error names the peer.
    pub fn on_failure(
        mut self,
        f: impl Fn(&mut Cx, io::Error) + Send + Sync + 'static,
    ) -> Acceptor {
        self.on_failure = Some(Arc::new(f));
        self
    }

    /// Takes another configuration, as with renewed certificates, for handshakes of all clones that
    /// begin from now on. Other connections, and handshakes under way, go on.
    ///
    /// ```
    /// # use std::io;
    /// use mely::process::Signal;
    /// use mely::tls::{Acceptor, server_config};
    /// use mely::{Color, Cx, Handler};
    /// static RELOAD: Handler = Handler::new("reload");
    /// fn reload_at_sighup(cx: &mut Cx, acceptor: Acceptor) -> io::Result<()> {
    ///     let reload = move |_: &mut Cx, _: Signal| {
    ///         let renewed = server_config("cert.pem", "key.pem");
    ///         if let Err(error) = renewed.and_then(|config| acceptor.set_config(config)) {
    ///             eprintln!("the certificate stays as it is: {error}");
    ///         }
    ///     };
    ///     cx.on_signal([Signal::HUP], RELOAD.on_each(Color::DEFAULT, reload))?;
    ///     Ok(())
    /// }
    /// ```
    ///
    /// # Errors
    /// As [`new`](Self::new); then the configuration stays.
    pub fn set_config(&self, config: impl Into<Arc<ServerConfig>>) -> io::Result<()> {
        let config = checked(config.into())?;
        *self.config.lock().unwrap() = config;
        Ok(())
    }

    /// Performs the handshake on a connection, as its server, and gives the stream back. The
    /// connection has been served by nobody, or by a session that gave the stream away, as after a
    /// STARTTLS.
    ///
    /// For a STARTTLS, call this in the event that writes the go-ahead, or [pause](Stream::pause)
    /// the stream before that: else the earlier session gets the client's first message. If that
    /// session has received bytes behind the client's request, close the connection: they came in
    /// the clear, and an attacker may have put them there.
    ///
    /// The handle may be [awaited](JoinHandle) or [called back](JoinHandle::then) in any color; the
    /// stream stays in its own. A handle that is dropped closes the connection once the handshake
    /// is over, and so does a [cancel](JoinHandle::cancel).
    ///
    /// # Errors
    /// The handle's value, see [`mely::tls`](crate::tls); `TimedOut` after the
    /// [limit](Self::handshake_timeout); `NotConnected` if the connection is over already, and
    /// `ECANCELED` once the runtime was asked to stop.
    pub fn secure(&self, cx: &mut Cx, stream: Stream) -> JoinHandle<io::Result<Stream>> {
        let (asked, handle) = Asked::new(&stream.poster().inner);
        self.begin(cx, stream, |cx, secured| asked.run(cx, |_| secured));
        handle
    }

    /// [`secure`](Self::secure), for a task of the connection's color: returns the stream that the
    /// task reads and writes.
    ///
    /// ```
    /// use mely::net::Stream;
    /// use mely::tls::Acceptor;
    /// use futures::io::AsyncWriteExt;
    /// async fn greet(acceptor: Acceptor, stream: Stream) -> std::io::Result<()> {
    ///     let mut stream = acceptor.accept(stream).await?;
    ///     stream.write_all(b"220 ready\r\n").await?;
    ///     stream.close().await
    /// }
    /// ```
    ///
    /// # Errors
    /// As `secure`; one whose source is a [`Reason`](crate::Reason) outside of tasks, and in those
    /// of another color.
    pub async fn accept(&self, stream: Stream) -> io::Result<AsyncStream> {
        let handle = try_with_cx(|cx| self.secure(cx, stream).cancel_on_drop());
        let stream = handle?.await??;
        Ok(try_with_cx(|cx| AsyncStream::new(cx, stream))??)
    }

    fn begin<F>(&self, cx: &mut Cx, stream: Stream, f: F)
    where
        F: FnOnce(&mut Cx, io::Result<Stream>) + Send + 'static,
    {
        let (config, limit) = (Arc::clone(&self.config.lock().unwrap()), self.limit);
        let make = move || {
            let side = UnbufferedServerConnection::new(config);
            side.map(Records::server).map_err(invalid)
        };
        begin(cx, stream, limit, make, f);
    }
}

/// Begins a handshake: now, if this is an event of the stream's color, else by one.
pub(super) fn begin<M, F>(cx: &mut Cx, stream: Stream, limit: Duration, make: M, f: F)
where
    M: FnOnce() -> io::Result<Records> + Send + 'static,
    F: FnOnce(&mut Cx, io::Result<Stream>) + Send + 'static,
{
    let color = stream.color();
    let (is_here, poster) = (stream.is_here(cx), stream.poster().clone());
    let event = move |cx: &mut Cx| match make() {
        Ok(records) => stream.secure(cx, records, limit, f),
        Err(error) => f(cx, Err(error)),
    };
    if is_here {
        return event(cx);
    }
    // Refused once the end is decided: then the connection is closed with the event.
    let _ = poster.post_own_until(Until::End, Some(Stream::handshake_handler()), color, event);
}

fn checked(config: Arc<ServerConfig>) -> io::Result<Arc<ServerConfig>> {
    if config.max_early_data_size > 0 {
        return Err(invalid(
            "early data is not accepted: `max_early_data_size` is to be 0",
        ));
    }
    Ok(config)
}

impl fmt::Debug for Acceptor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acceptor")
            .field("limit", &self.limit)
            .finish_non_exhaustive()
    }
}

impl Cx {
    /// Listens on `at`, as [`serve`](Self::serve), performs a TLS handshake on each connection, and
    /// makes a session of those that succeed. For the others see [`Acceptor::on_failure`].
    ///
    /// For tasks, use [`listen`](Self::listen) and [`Acceptor::accept`].
    ///
    /// # Errors
    /// As [`listen`](Self::listen).
    pub fn serve_tls<S, F>(
        &mut self,
        at: impl Into<Endpoint>,
        acceptors: Acceptors,
        tls: &Acceptor,
        handler: &'static Handler,
        open: F,
    ) -> io::Result<Listener>
    where
        S: Session,
        F: Fn(&mut Cx, Stream, &WeakColored<S>) -> S + Send + Sync + 'static,
    {
        let (open, tls) = (Arc::new(open), tls.clone());
        self.accept_each(at, acceptors, &ACCEPTED, move |cx, incoming| {
            let (open, on_failure) = (Arc::clone(&open), tls.on_failure.clone());
            tls.begin(
                cx,
                incoming.open_unique(),
                move |cx, secured| match secured {
                    Ok(stream) => {
                        drop(stream.serve(handler, move |cx, stream, me| open(cx, stream, me)))
                    }
                    Err(error) => {
                        // What a stop has ended has not failed.
                        if let Some(on_failure) = on_failure.filter(|_| !is_canceled(&error)) {
                            on_failure(cx, error);
                        }
                    }
                },
            );
        })
    }
}
