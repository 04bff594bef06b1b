//! Connecting to somebody, as a future.

use super::AsyncStream;
use crate::Cx;
use crate::ask::Asked;
use crate::callback::Callback;
use crate::net::Incoming;
use crate::task::ambient::try_with_cx;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

/// What is told of it.
type Connected = Box<dyn FnOnce(&mut Cx, io::Result<Incoming>) + Send>;

/// Connects to `addr`. The stream belongs to the color of the task that polls this future, whose
/// core becomes the connection's home. Dropped before it is ready, it closes what comes of it.
///
/// For how long the system tries to reach a silent peer is the system's matter, minutes as a rule,
/// also if this future is dropped meanwhile; [`connect_within`] ends the attempt.
///
/// # Errors
/// If the peer refuses or cannot be reached, or the socket cannot be made; `ECANCELED` once the
/// runtime was asked to stop; one whose source is [`Reason::NoContext`](crate::Reason::NoContext)
/// outside of tasks.
pub async fn connect(addr: SocketAddr) -> io::Result<AsyncStream> {
    connected(|cx, callback| cx.connect(addr, callback)).await
}

/// Like [`connect`], and gives up if there is no connection after `limit`; see
/// [`Cx::connect_within`].
///
/// ```
/// use mely::aio::connect_within;
/// use mely::{Color, Runtime};
/// use std::time::Duration;
/// // Nobody listens there: refused at once, or never answered.
/// let addr = ([127, 0, 0, 1], 9).into();
/// let connected = Runtime::builder().build()?.run_until(move |cx, finish| {
///     let client = async move {
///         let connected = connect_within(addr, Duration::from_secs(1)).await;
///         finish.finish(connected.is_ok());
///     };
///     cx.spawn(Color::from(2), client);
/// })?;
/// # let _ = connected;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// As [`connect`]; and of the kind `TimedOut`, which names the limit.
pub async fn connect_within(addr: SocketAddr, limit: Duration) -> io::Result<AsyncStream> {
    connected(|cx, callback| cx.connect_within(addr, limit, callback)).await
}

/// What becomes of the connection that `begin` begins to make.
async fn connected(
    begin: impl FnOnce(&mut Cx, Callback<Connected>) -> io::Result<()>,
) -> io::Result<AsyncStream> {
    let asked = try_with_cx(|cx| {
        let (asked, handle) = Asked::new(&cx.worker_ref().inner);
        let connected = move |cx: &mut Cx, connection: io::Result<Incoming>| {
            asked.run(cx, |cx| {
                let stream = connection?.open(cx.color());
                AsyncStream::new(cx, stream).map_err(io::Error::other)
            });
        };
        begin(cx, Callback::new(None, cx.color(), Box::new(connected)))?;
        Ok::<_, io::Error>(handle.cancel_on_drop())
    });
    match asked.map_err(io::Error::other)??.await {
        Ok(connected) => connected,
        Err(error) => Err(io::Error::other(error)),
    }
}
