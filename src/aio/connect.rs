//! Connecting to somebody, as a future.

use super::AsyncStream;
use crate::ask::Asked;
use crate::callback::Callback;
use crate::net::Incoming;
use crate::{Cx, try_with_cx};
use std::io;
use std::net::SocketAddr;

/// Connects to `addr`. The stream belongs to the color of the task that polls this future, whose
/// core becomes the connection's home. Dropped before it is ready, it closes what comes of it.
///
/// For how long the system tries to reach a silent peer is the system's matter, minutes as a rule:
/// see [`timeout`](crate::timeout).
///
/// # Errors
/// If the peer refuses or cannot be reached, or the socket cannot be made; `ECANCELED` once the
/// runtime was asked to stop; one whose source is [`NoContext`](crate::NoContext) outside of tasks.
pub async fn connect(addr: SocketAddr) -> io::Result<AsyncStream> {
    let asked = try_with_cx(|cx| {
        let (asked, reply) = Asked::new(&cx.worker_ref().inner);
        let connected = move |cx: &mut Cx, connection: io::Result<Incoming>| {
            asked.run(cx, |cx| {
                AsyncStream::open(cx, connection?).map_err(io::Error::other)
            });
        };
        cx.connect(addr, Callback::new(None, cx.color(), connected))?;
        Ok::<_, io::Error>(reply)
    });
    match asked.map_err(io::Error::other)??.await {
        Ok(connected) => connected,
        Err(no_reply) => Err(io::Error::other(no_reply)),
    }
}
