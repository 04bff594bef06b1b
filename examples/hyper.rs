//! How do I serve HTTP? hyper 1 on mely: a color and a task a connection, HTTP/1 and HTTP/2 by what
//! the client begins with.
//!
//! `cargo run --release --features hyper --example hyper -- 127.0.0.1:8080`. Try `/`, `/slow` (which
//! sleeps), and `/echo` and `/count` with a POST.
//!
//! Ctrl-C to stop: each request that has arrived by then, or [`ARRIVAL_MAX`] later, is answered, also
//! of clients that wait to be accepted. Clients in the middle of a request or of an answer have
//! [`FINISH_MAX`] to finish.

use futures::FutureExt;
use futures::channel::oneshot;
use futures::future::{BoxFuture, Either as First, Fuse, FusedFuture, select};
use http_body_util::{BodyExt, Either, Full};
use hyper::body::{Bytes, Incoming as Body};
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::server::conn::auto;
use mely::aio::AsyncStream;
use mely::aio::hyper::{ColorExecutor, TaskTimer};
use mely::net::{Acceptors, Incoming, Listener, Stream};
use mely::{Color, Cx, Handler, Poster, Runtime, sleep, stopping, try_with_cx, with_cx};
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::task::{Context, Poll};
use std::time::Duration;

static ACCEPT: Handler = Handler::new("accept");
static SERVE: Handler = Handler::new("serve");
static STOP: Handler = Handler::new("stop");

/// A client that sends no request for this long is sent away (HTTP/1), or asked whether it lives
/// (HTTP/2). If nothing at all moves for twice as long, the connection is closed.
pub(crate) const SILENCE_MAX: Duration = Duration::from_secs(30);
/// How long requests that were on their way when the server was asked to stop may take to arrive.
pub(crate) const ARRIVAL_MAX: Duration = Duration::from_millis(250);
/// How long a connection may take to finish once the server was asked to stop. Then it is reset.
pub(crate) const FINISH_MAX: Duration = Duration::from_secs(5);

type Answer = Response<Either<Full<Bytes>, Body>>;

async fn answer(request: Request<Body>) -> hyper::Result<Answer> {
    let (head, body) = request.into_parts();
    let text = |text: String| Response::new(Either::Left(Full::from(text)));
    Ok(match head.uri.path() {
        "/" => {
            let (color, core) = with_cx(|cx| (cx.color(), cx.core()));
            text(format!("hello from color {color} on core {core}\n"))
        }
        "/slow" => {
            sleep(Duration::from_millis(300)).await;
            text("slept\n".into())
        }
        // Whoever sends faster than it reads is slowed down.
        "/echo" => Response::new(Either::Right(body)),
        "/count" => text(format!(
            "{} bytes\n",
            body.collect().await?.to_bytes().len()
        )),
        _ => {
            let mut missing = text("not here\n".into());
            *missing.status_mut() = StatusCode::NOT_FOUND;
            missing
        }
    })
}

type Served = Result<(), Box<dyn std::error::Error + Send + Sync>>;

/// Stops the runtime when it is dropped: the listener has it until the last client is accepted, and
/// each connection until a stop no longer ends its receives.
struct Open(Poster);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// A connection's bytes, as hyper reads and writes them.
struct Wire {
    stream: AsyncStream,
    /// Ready [`ARRIVAL_MAX`] after the stop.
    late: Fuse<BoxFuture<'static, ()>>,
    /// Asked for then: ready when all bytes that have arrived can be read.
    arrived: Option<oneshot::Receiver<()>>,
    /// hyper has read those bytes, and waits for more. It reads only when it holds no whole request
    /// that it has not begun: so by then it has begun all that have arrived.
    all_begun: Arc<AtomicBool>,
}

impl Read for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        space: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let read = Read::poll_read(Pin::new(&mut this.stream), context, space);
        if read.is_ready()
            || !this.late.is_terminated() && this.late.poll_unpin(context).is_pending()
        {
            return read;
        }
        let arrived = match &mut this.arrived {
            Some(arrived) => arrived,
            none => {
                let (tell, arrived) = oneshot::channel::<()>();
                let tell = move |_: &mut Cx| drop(tell);
                let asked = with_cx(|cx| this.stream.after_received(cx, &STOP, tell));
                asked.map_err(io::Error::other)?;
                none.insert(arrived)
            }
        };
        if arrived.poll_unpin(context).is_ready() {
            this.all_begun.store(true, Ordering::Relaxed);
        }
        read
    }
}

impl Write for Wire {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Write::poll_write(Pin::new(&mut self.stream), context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Write::poll_flush(Pin::new(&mut self.stream), context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Write::poll_shutdown(Pin::new(&mut self.stream), context)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Write::poll_write_vectored(Pin::new(&mut self.stream), context, bufs)
    }
}

impl Drop for Wire {
    /// Waits for no client that does not read. hyper has flushed all bytes by now, unless it was cut
    /// short; then the connection is reset, so that the client does not take a part for the whole.
    fn drop(&mut self) {
        let _ = try_with_cx(|cx| self.stream.abort(cx));
    }
}

/// Serves a connection until it ends, or until the runtime stops and it is answered.
async fn serve(stream: Stream, open: Arc<Open>) -> Served {
    let all_begun = Arc::new(AtomicBool::new(false));
    let (wire, executor) = with_cx(|cx| {
        stream.receive_through_stop(cx)?;
        stream.set_idle_timeout(cx, Some(2 * SILENCE_MAX))?;
        let executor = ColorExecutor::new(cx, stream.color());
        AsyncStream::new(cx, stream).map(|stream| {
            let wire = Wire {
                stream,
                late: after_stop(ARRIVAL_MAX).boxed().fuse(),
                arrived: None,
                all_begun: Arc::clone(&all_begun),
            };
            (wire, executor)
        })
    })?;
    drop(open);
    let mut builder = auto::Builder::new(executor);
    builder
        .http1()
        .timer(TaskTimer)
        .header_read_timeout(SILENCE_MAX);
    builder
        .http2()
        .timer(TaskTimer)
        .keep_alive_interval(SILENCE_MAX);
    let mut connection = pin!(builder.serve_connection(wire, service_fn(answer)));
    let mut told = false;
    let served = poll_fn(|context| {
        let served = connection.as_mut().poll(context);
        if served.is_ready() || told || !all_begun.load(Ordering::Relaxed) {
            return served;
        }
        // Takes no more requests, and ends when those that it has are answered. Of HTTP/1, it has no
        // more than a part of the next request's head, which is dropped.
        connection.as_mut().graceful_shutdown();
        told = true;
        match connection.as_mut().poll(context) {
            // Of a client that has not even said which version it speaks.
            Poll::Ready(Err(error)) if is_interrupted(&*error) => Poll::Ready(Ok(())),
            served => served,
        }
    });
    match select(served, pin!(after_stop(FINISH_MAX))).await {
        First::Left((served, _)) => served,
        First::Right(_) => Err(format!("not over {FINISH_MAX:?} after the stop: reset").into()),
    }
}

/// Returns this long after the runtime was asked to stop.
async fn after_stop(time: Duration) {
    stopping().await;
    sleep(time).await;
}

fn is_interrupted(error: &(dyn std::error::Error + Send + Sync + 'static)) -> bool {
    let error = error.downcast_ref::<io::Error>();
    error.is_some_and(|error| error.kind() == io::ErrorKind::Interrupted)
}

fn accept(cx: &mut Cx, incoming: io::Result<Incoming>, open: &Arc<Open>) {
    // Out of descriptors, perhaps: accepting goes on a little later.
    let Ok(incoming) = incoming else { return };
    let stream = incoming.open_unique();
    let (color, open) = (stream.color(), Arc::clone(open));
    let connection = async move {
        if let Err(error) = serve(stream, open).await {
            eprintln!("a connection failed: {error}");
        }
    };
    cx.spawn_as(&SERVE, color, connection).detach();
}

/// Listens until the listener is closed. Then clients that wait for it are still accepted, and the
/// runtime stops.
pub(crate) fn listen(cx: &mut Cx, addr: SocketAddr) -> io::Result<Listener> {
    let open = Arc::new(Open(cx.poster()));
    let accept = move |cx: &mut Cx, incoming: io::Result<_>| accept(cx, incoming, &open);
    cx.listen(
        addr,
        Acceptors::PerCore,
        ACCEPT.on_each(Color::DEFAULT, accept),
    )
}

/// Listens until a signal asks to stop.
fn start(cx: &mut Cx, addr: SocketAddr) -> io::Result<()> {
    let listener = listen(cx, addr)?;
    let addr = listener.local_addr();
    let mut listener = Some(listener);
    let stop = move |_: &mut Cx, ()| listener.take().map_or((), Listener::close);
    cx.on_stop_signal(STOP.on_each(Color::DEFAULT, stop))?;
    println!("listening on {addr}");
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let addr = std::env::args().nth(1);
    let addr = addr.as_deref().unwrap_or("127.0.0.1:8080").parse()?;
    mely::net::raise_open_file_limit()?;
    let (tell, started) = channel();
    // If it cannot start, the listener is dropped, which stops the runtime.
    Runtime::builder().build()?.run(move |cx| {
        let _ = tell.send(start(cx, addr));
    })?;
    Ok(started.recv()??)
}
