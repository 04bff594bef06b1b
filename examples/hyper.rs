//! How do I serve HTTP? hyper 1 on mely: a color and a task a connection, HTTP/1 and HTTP/2 by what
//! the client begins with.
//!
//! `cargo run --release --features hyper --example hyper -- 127.0.0.1:8080`, Ctrl-C to stop: what
//! was asked is still answered. Try `/`, `/slow` (which sleeps), and `/echo` and `/count` with a
//! POST.

use http_body_util::{BodyExt, Either, Full};
use hyper::body::{Bytes, Incoming as Body};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::server::conn::auto;
use mely::aio::AsyncStream;
use mely::aio::hyper::{ColorExecutor, TaskTimer};
use mely::net::{Acceptors, Incoming, Stream};
use mely::{Color, Cx, Handler, Runtime, sleep, stopping, with_cx};
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::time::Duration;

static ACCEPT: Handler = Handler::new("accept");
static SERVE: Handler = Handler::new("serve");
static STOP: Handler = Handler::new("stop");

/// A client that says nothing for so long is sent away (HTTP/1), or asked whether it lives
/// (HTTP/2).
const SILENCE_MAX: Duration = Duration::from_secs(30);

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

/// Serves a connection until it ends, or until the runtime stops and it is answered.
async fn serve(stream: Stream) -> Served {
    let (stream, executor) = with_cx(|cx| {
        // A client that is being answered has a say until the end.
        stream.receive_through_stop(cx)?;
        let executor = ColorExecutor::new(cx, stream.color());
        AsyncStream::new(cx, stream).map(|stream| (stream, executor))
    })?;
    let mut builder = auto::Builder::new(executor);
    builder
        .http1()
        .timer(TaskTimer)
        .header_read_timeout(SILENCE_MAX);
    builder
        .http2()
        .timer(TaskTimer)
        .keep_alive_interval(SILENCE_MAX);
    let mut connection = pin!(builder.serve_connection(stream, service_fn(answer)));
    let mut stop = pin!(stopping());
    let mut asked = false;
    poll_fn(|context| {
        if !asked && stop.as_mut().poll(context).is_ready() {
            // Takes no more requests, and ends when those that it has are answered.
            connection.as_mut().graceful_shutdown();
            asked = true;
        }
        connection.as_mut().poll(context)
    })
    .await
}

fn accept(cx: &mut Cx, incoming: io::Result<Incoming>) {
    // Out of descriptors, perhaps: accepting goes on a little later.
    let Ok(incoming) = incoming else { return };
    let stream = incoming.open_unique();
    let color = stream.color();
    let connection = async move {
        if let Err(error) = serve(stream).await {
            eprintln!("a connection failed: {error}");
        }
    };
    cx.spawn_as(&SERVE, color, connection).detach();
}

/// Listens until a signal calls `stop`.
fn start(cx: &mut Cx, addr: SocketAddr, stop: impl Fn() + Send + 'static) -> io::Result<()> {
    let on_accept = ACCEPT.on_each(Color::DEFAULT, accept);
    let listener = cx.listen(addr, Acceptors::PerCore, on_accept)?;
    println!("listening on {}", listener.local_addr());
    // Dropping it would close it: so it lives until the runtime ends.
    listener.detach();
    cx.on_stop_signal(STOP.on_each(Color::DEFAULT, move |_cx, ()| stop()))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let addr = std::env::args().nth(1);
    let addr = addr.as_deref().unwrap_or("127.0.0.1:8080").parse()?;
    mely::net::raise_open_file_limit()?;
    let served = Runtime::builder().build()?.run_until(move |cx, finish| {
        let stop = finish.clone();
        if let Err(error) = start(cx, addr, move || stop.finish(Ok(()))) {
            finish.finish(Err(error));
        }
    })?;
    Ok(served?)
}
