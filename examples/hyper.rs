//! How do I serve HTTP? hyper 1 on mely: a color and a task a connection, HTTP/1 and HTTP/2 by what
//! the client begins with.
//!
//! `cargo run --release --features hyper,tls --example hyper -- 127.0.0.1:8080`. Try `/`, `/slow`
//! (which sleeps), and `/echo` and `/count` with a POST. With the PEM files of a certificate and
//! its key behind the address it serves HTTPS; after a SIGHUP it reads them anew.
//!
//! Ctrl-C to stop: each request that has arrived by then, or [`ARRIVAL_MAX`] later, is answered, also
//! of clients that wait to be accepted. Clients in the middle of a request or of an answer may finish,
//! for as long as the runtime's stage `drain` lasts.

use futures::FutureExt;
use futures::future::{Either as First, select};
use http_body_util::{BodyExt, Either, Full};
use hyper::body::{Bytes, Incoming as Body};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::server::conn::auto;
use mely::aio::AsyncStream;
use mely::aio::hyper::{ColorExecutor, TaskTimer};
use mely::net::{Acceptors, Addr, Incoming, Stream};
use mely::process::Signal;
use mely::task::{sleep, with_cx};
use mely::tls::rustls::ServerConfig;
use mely::tls::{self, Acceptor};
use mely::{Color, Cx, Handler, Reason, Runtime};
use std::io;
use std::pin::pin;
use std::sync::mpsc::channel;
use std::time::Duration;

static ACCEPT: Handler = Handler::new("accept");
static SERVE: Handler = Handler::new("serve");
static STOP: Handler = Handler::new("stop");
static RELOAD: Handler = Handler::new("reload");

/// A client that sends no request for this long is sent away (HTTP/1), or asked whether it lives
/// (HTTP/2). If nothing at all moves for twice as long, the connection is closed.
pub(crate) const SILENCE_MAX: Duration = Duration::from_secs(30);
/// How long requests that were on their way when the server was asked to stop may take to arrive.
pub(crate) const ARRIVAL_MAX: Duration = Duration::from_millis(250);

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
async fn serve(stream: Stream, acceptor: Option<Acceptor>) -> Served {
    let stream = match acceptor {
        Some(acceptor) => acceptor.accept(stream).await?,
        None => with_cx(|cx| AsyncStream::new(cx, stream))?,
    };
    let (executor, stop) = with_cx(|cx| {
        let below = stream.get_ref();
        below.set_idle_timeout(cx, Some(2 * SILENCE_MAX))?;
        Ok::<_, Reason>((ColorExecutor::new(cx, below.color()), stream.stopping(cx)?))
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
    // hyper has begun each request that had arrived, and each that was on its way.
    let stop = pin!(stop.then(|()| sleep(ARRIVAL_MAX)));
    if let First::Left((served, _)) = select(connection.as_mut(), stop).await {
        return served;
    }
    // Takes no more requests, and ends when those that it has are answered.
    connection.as_mut().graceful_shutdown();
    match connection.await {
        // The client has not even said which version it speaks.
        Err(error) if is_interrupted(&*error) => Ok(()),
        served => served,
    }
}

fn is_interrupted(error: &(dyn std::error::Error + Send + Sync + 'static)) -> bool {
    let error = error.downcast_ref::<io::Error>();
    error.is_some_and(|error| error.kind() == io::ErrorKind::Interrupted)
}

fn accept(cx: &mut Cx, incoming: io::Result<Incoming>, acceptor: Option<Acceptor>) {
    // Out of descriptors, perhaps: accepting goes on a little later.
    let Ok(incoming) = incoming else { return };
    let stream = incoming.open_unique();
    let color = stream.color();
    let connection = async move {
        if let Err(error) = serve(stream, acceptor).await {
            eprintln!("a connection failed: {error}");
        }
    };
    SERVE.spawn(cx, color, connection);
}

/// Listens until the runtime stops.
pub(crate) fn listen(cx: &mut Cx, addr: Addr, acceptor: Option<Acceptor>) -> io::Result<Addr> {
    let accept = move |cx: &mut Cx, incoming: _| accept(cx, incoming, acceptor.clone());
    let on_accept = ACCEPT.on_each(Color::DEFAULT, accept);
    let listener = cx.listen(addr, Acceptors::PerCore, on_accept)?;
    Ok(listener.local_addr())
}

/// The PEM files of a certificate and of its key.
type Files = (String, String);

fn config((certificate, key): &Files) -> io::Result<ServerConfig> {
    let mut config = tls::server_config(certificate, key)?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

/// Serves until a signal asks to stop.
fn start(cx: &mut Cx, addr: Addr, files: Option<Files>) -> io::Result<()> {
    let acceptor = files.as_ref().map(|files| Acceptor::new(config(files)?));
    let acceptor = acceptor.transpose()?;
    if let Some((files, acceptor)) = files.zip(acceptor.clone()) {
        let reload = move |_: &mut Cx, _: Signal| {
            if let Err(error) = config(&files).and_then(|config| acceptor.set_config(config)) {
                eprintln!("the certificate stays as it is: {error}");
            }
        };
        let _ = cx.on_signal([Signal::HUP], RELOAD.on_each(Color::DEFAULT, reload))?;
    }
    cx.on_stop_signal(STOP.on_each(Color::DEFAULT, |cx, ()| cx.stop()))?;
    println!("listening on {}", listen(cx, addr, acceptor)?);
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let addr = args.next();
    let addr = addr.as_deref().unwrap_or("127.0.0.1:8080").parse()?;
    let files = args.next().zip(args.next());
    mely::net::raise_open_file_limit()?;
    let builder = Runtime::builder().on_drain(|unfinished| eprintln!("{unfinished}"));
    let (tell, started) = channel();
    builder.build()?.run(move |cx| {
        let start = start(cx, addr, files);
        if start.is_err() {
            cx.stop();
        }
        let _ = tell.send(start);
    })?;
    Ok(started.recv()??)
}
