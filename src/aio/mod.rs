//! Streams that tasks read and write.
//!
//! [`AsyncStream`] is a connection as futures know one: it implements [`AsyncRead`] and
//! [`AsyncWrite`] of the crate `futures-io`, so that whatever is written for those works on mely.
//! With the feature `hyper` it implements the traits of hyper 1 as well, and `mely::aio::hyper` has
//! an executor and a timer for it: HTTP/1 and HTTP/2, as server and as client.
//!
//! Below is a [`Stream`](crate::net::Stream), whose callbacks put what was received into a cell of
//! the connection's color. Polls are events of that color too, so nothing here is locked, and a
//! poll in another color is an error.
//!
//! | | at most, in bytes |
//! |---|---|
//! | received and not yet read | [`UNREAD_BYTES_MAX`]; receiving pauses below that, and what the peer sends then waits in the kernel and in the end with the peer |
//! | written and not yet with the kernel | [`QUEUED_BYTES_MAX`]; then a write waits until all has left |
//!
//! An echo server, and a client of it:
//!
//! ```
//! use futures::io::{AsyncReadExt, AsyncWriteExt, copy};
//! use mely::aio::{AsyncStream, connect};
//! use mely::net::{Acceptors, Addr, Incoming, Stream};
//! use mely::task::with_cx;
//! use mely::{Color, Cx, Handler, Runtime};
//! use std::io;
//! use std::time::Duration;
//! static ACCEPT: Handler = Handler::new("accept");
//!
//! async fn echo(stream: Stream) -> io::Result<()> {
//!     let stream = with_cx(|cx| AsyncStream::new(cx, stream))?;
//!     let (from, mut to) = stream.split();
//!     copy(from, &mut to).await?;
//!     // The end of the stream. The connection is closed when both halves are dropped.
//!     to.close().await
//! }
//!
//! fn accept(cx: &mut Cx, incoming: io::Result<Incoming>) {
//!     let Ok(incoming) = incoming else { return };
//!     let stream = incoming.open_unique();
//!     cx.spawn(stream.color(), echo(stream));
//! }
//!
//! async fn ask(addr: Addr) -> io::Result<String> {
//!     let mut stream = connect(addr, Duration::from_secs(5)).await?;
//!     stream.write_all(b"hello").await?;
//!     stream.close().await?;
//!     let mut answer = String::new();
//!     stream.read_to_string(&mut answer).await?;
//!     Ok(answer)
//! }
//!
//! let answer = Runtime::builder().build()?.run_until(|cx, finish| {
//!     let on_accept = ACCEPT.on_each(Color::from(1), accept);
//!     let any_port = "127.0.0.1:0";
//!     let listener = match cx.listen(any_port, Acceptors::PerCore, on_accept) {
//!         Ok(listener) => listener,
//!         Err(error) => return finish.finish(Err(error)),
//!     };
//!     let addr = listener.local_addr();
//!     let client = async move { finish.finish(ask(addr).await) };
//!     cx.spawn(Color::from(2), client);
//! })?;
//! assert_eq!(answer?, "hello");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! [`AsyncRead`]: futures_io::AsyncRead
//! [`AsyncWrite`]: futures_io::AsyncWrite

mod child;
mod connect;
mod datagram;
#[cfg(feature = "hyper")]
pub mod hyper;
mod ready;
mod state;
mod stream;

pub use self::connect::connect;
pub use self::ready::{readable, writable};
pub use self::state::UNREAD_BYTES_MAX;
pub use self::stream::{AsyncStream, QUEUED_BYTES_MAX};
