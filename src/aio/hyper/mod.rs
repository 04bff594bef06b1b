//! hyper 1 on mely: `hyper::rt` for streams, tasks and time.
//!
//! [`AsyncStream`](super::AsyncStream) implements `hyper::rt::Read` and `hyper::rt::Write`; other
//! streams of futures-io do in an [`Io`].
//! [`ColorExecutor`] spawns hyper's tasks in a color, and [`TaskTimer`] has mely's time. hyper's
//! connections are futures: a task of the stream's color polls them.
//!
//! **At a stop** each request that had arrived is read, and then a stream's reads fail: hyper gives
//! up a request that it has not answered by then. A server that answers first asks its stream for
//! [`AsyncStream::stopping`](super::AsyncStream::stopping) before it gives the stream to hyper, and
//! calls hyper's `graceful_shutdown` when that is ready, as `examples/hyper.rs` does. The run then
//! waits for its connections, until the limit of the stage [drain](crate::runtime::Stage::Drain).
//!
//! ```
//! use http_body_util::{BodyExt, Full};
//! use hyper::body::{Bytes, Incoming};
//! use hyper::{Request, Response, client, server, service::service_fn};
//! use mely::aio::{AsyncStream, connect};
//! use mely::net::{Acceptors, Addr, Stream};
//! use mely::task::with_cx;
//! use mely::{Color, Handler, Runtime};
//! use std::convert::Infallible;
//! use std::error::Error;
//! use std::time::Duration;
//! static ACCEPT: Handler = Handler::new("accept");
//!
//! async fn answer(_request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
//!     Ok(Response::new(Full::from("hello")))
//! }
//!
//! async fn serve(stream: Stream) {
//!     let Ok(stream) = with_cx(|cx| AsyncStream::new(cx, stream)) else { return };
//!     let connection = server::conn::http1::Builder::new();
//!     let _ = connection.serve_connection(stream, service_fn(answer)).await;
//! }
//!
//! async fn ask(addr: Addr) -> Result<Bytes, Box<dyn Error + Send + Sync>> {
//!     let stream = connect(addr, Duration::from_secs(5)).await?;
//!     let (mut sender, connection) = client::conn::http1::handshake(stream).await?;
//!     with_cx(|cx| cx.spawn(cx.color(), connection));
//!     let request = Request::get("/").body(Full::<Bytes>::default())?;
//!     let answer = sender.send_request(request).await?;
//!     Ok(answer.into_body().collect().await?.to_bytes())
//! }
//!
//! let answer = Runtime::builder().build()?.run_until(|cx, finish| {
//!     let on_accept = ACCEPT.on_each(Color::from(1), |cx, incoming: std::io::Result<_>| {
//!         let Ok(incoming) = incoming else { return };
//!         let stream = mely::net::Incoming::open_unique(incoming);
//!         cx.spawn(stream.color(), serve(stream));
//!     });
//!     let listener = cx.listen("127.0.0.1:0", Acceptors::PerCore, on_accept);
//!     let listener = match listener {
//!         Ok(listener) => listener,
//!         Err(error) => return finish.finish(Err(error.into())),
//!     };
//!     let addr = listener.local_addr();
//!     cx.spawn(Color::from(2), async move { finish.finish(ask(addr).await) });
//! })?;
//! assert_eq!(answer.unwrap(), "hello");
//! # Ok::<(), Box<dyn Error>>(())
//! ```

mod executor;
mod io;
mod timer;

pub use self::executor::ColorExecutor;
pub use self::io::Io;
pub use self::timer::TaskTimer;
