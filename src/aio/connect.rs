//! Connecting to somebody, as a future.

use super::AsyncStream;
use crate::Cx;
use crate::ask::Asked;
use crate::callback::Callback;
use crate::net::{Addr, Incoming};
use crate::task::ambient::try_with_cx;
use std::io;
use std::time::Duration;

/// Connects to `addr`. The stream belongs to the color of the task that polls this future, whose
/// core becomes the connection's home. If there is no connection after `limit` the attempt is
/// ended. A host name is looked up first, as [`Cx::connect`] does. Dropped before it is ready, this
/// future closes what comes of it.
///
/// ```
/// use mely::{Color, Runtime, aio};
/// use std::time::Duration;
/// // Nobody listens there: refused at once, or never answered.
/// let connected = Runtime::builder().build()?.run_until(|cx, finish| {
///     let client = async move {
///         let connected = aio::connect("127.0.0.1:9", Duration::from_secs(1)).await;
///         finish.finish(connected.is_ok());
///     };
///     cx.spawn(Color::from(2), client);
/// })?;
/// # let _ = connected;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
/// If the peer refuses or cannot be reached, or the socket cannot be made; of the kind `TimedOut`,
/// which names the limit; `ECANCELED` once the runtime was asked to stop; one whose source is
/// [`Reason::NoContext`](crate::Reason::NoContext) outside of tasks.
pub async fn connect(addr: impl Into<Addr>, limit: Duration) -> io::Result<AsyncStream> {
    let addr = addr.into();
    let asked = try_with_cx(|cx| {
        let (asked, handle) = Asked::new(&cx.worker_ref().inner);
        let connected = move |cx: &mut Cx, connection: io::Result<Incoming>| {
            asked.run(cx, |cx| {
                let stream = connection?.open(cx.color());
                Ok(AsyncStream::new(cx, stream)?)
            });
        };
        cx.connect(addr, limit, Callback::new(None, cx.color(), connected))?;
        Ok::<_, io::Error>(handle.cancel_on_drop())
    });
    asked??.await?
}
