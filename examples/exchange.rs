//! How do I take a feed by UDP and answer by HTTPS? A ticker of prices, a color for each symbol.
//!
//! `cargo run --release --features hyper,tls --example exchange -- FEED SERVE [CERTIFICATE KEY]`,
//! with two addresses such as `127.0.0.1:9000 127.0.0.1:8443`, and PEM files. A datagram has lines
//! `SYMBOL PRICE`; `GET /SYMBOL` answers with the last price, the lowest and the highest, and
//! `GET /` with how much was received. Without a certificate it is HTTP.
//!
//! A price is an event of its symbol's color, so prices of one symbol are taken in order, those of
//! different ones in parallel, and a request reads the state of its symbol there. While a symbol
//! has too many prices that wait, further ones are dropped and counted: the next one is newer.

use http_body_util::Full;
use hyper::body::{Bytes, Incoming as Body};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use mely::aio::AsyncStream;
use mely::net::{Acceptors, Addr, Datagram, Incoming, Stream};
use mely::state::Bounded;
use mely::task::{JoinError, with_cx};
use mely::tls::{self, Acceptor};
use mely::{Color, Colored, Cx, Handler, Runtime};
use std::collections::HashMap;
use std::io;
use std::sync::mpsc::channel;
use std::time::Duration;

static ACCEPT: Handler = Handler::new("accept");
static FEED: Handler = Handler::new("feed");
static PRICE: Handler = Handler::new("price");
static SERVE: Handler = Handler::new("serve");
static STOP: Handler = Handler::new("stop");

/// Symbols that are known at most; lines of further ones are dropped.
const SYMBOLS_MAX: usize = 10_000;
/// The length of a symbol's name at most.
const NAME_BYTES_MAX: usize = 32;
/// How long a client may be silent.
const SILENCE_MAX: Duration = Duration::from_secs(30);
/// Prices that wait for their symbol at most.
const WAITING_MAX: usize = 1_000;

/// The state of a symbol.
#[derive(Clone, Copy)]
struct Prices {
    last: f64,
    low: f64,
    high: f64,
}

/// The state of the feed's color.
#[derive(Default)]
struct Table {
    symbols: HashMap<String, Bounded<Option<Prices>>>,
    prices: u64,
    dropped: u64,
}

impl Table {
    /// The symbol's state, made if it is new and there is room.
    fn symbol(&mut self, cx: &mut Cx, name: &str) -> Option<Bounded<Option<Prices>>> {
        if !self.symbols.contains_key(name) {
            if self.symbols.len() == SYMBOLS_MAX {
                return None;
            }
            let state = Colored::new_unique(cx, None).via(&PRICE);
            self.symbols
                .insert(name.to_owned(), state.bounded(WAITING_MAX));
        }
        self.symbols.get(name).cloned()
    }

    /// Takes one line. `None`: it is dropped.
    fn take(&mut self, cx: &mut Cx, line: &str) -> Option<()> {
        let (name, price) = line.split_once(' ')?;
        let price: f64 = price.trim().parse().ok()?;
        if name.len() > NAME_BYTES_MAX {
            return None;
        }
        let set = move |prices: &mut Option<Prices>, _: &mut Cx| {
            let before = prices.map_or((price, price), |its| (its.low, its.high));
            *prices = Some(Prices {
                last: price,
                low: before.0.min(price),
                high: before.1.max(price),
            });
        };
        self.symbol(cx, name)?.try_post(cx, set).ok()
    }

    fn take_all(&mut self, cx: &mut Cx, lines: &str) {
        for line in lines.lines() {
            match self.take(cx, line) {
                Some(()) => self.prices += 1,
                None => self.dropped += 1,
            }
        }
    }
}

/// Listens to the feed until the runtime stops.
fn feed(cx: &mut Cx, addr: Addr, table: &Colored<Table>) -> io::Result<Addr> {
    let socket = cx.bind(addr)?;
    let its = table.clone();
    let take = move |cx: &mut Cx, datagram: io::Result<Datagram>| {
        // The next one may be all right.
        let Ok(datagram) = datagram else { return };
        let lines = String::from_utf8_lossy(&datagram.data);
        let taken = its.with(cx, |table, cx| table.take_all(cx, &lines));
        taken.expect("this is its color");
    };
    let addr = socket.local_addr();
    socket.on_datagram(cx, FEED.on_each(table.color(), take))?;
    Ok(addr)
}

/// The answer to a request: an event of the table's color, and one of the symbol's.
async fn text(path: &str, table: &Colored<Table>) -> Result<Option<String>, JoinError> {
    let name = path.trim_start_matches('/').to_owned();
    if name.is_empty() {
        let counts = table.call(|table, _| (table.prices, table.dropped)).await?;
        return Ok(Some(format!("{} prices, {} dropped\n", counts.0, counts.1)));
    }
    let symbol = table.call(move |table, _| table.symbols.get(&name).cloned());
    let Some(symbol) = symbol.await? else {
        return Ok(None);
    };
    let prices = symbol.state().call(|prices, _| *prices).await?;
    Ok(prices.map(|its| format!("{} {} {}\n", its.last, its.low, its.high)))
}

async fn answer(
    request: Request<Body>,
    table: Colored<Table>,
) -> io::Result<Response<Full<Bytes>>> {
    let text = text(request.uri().path(), &table).await?;
    let status = match text {
        Some(_) => StatusCode::OK,
        None => StatusCode::NOT_FOUND,
    };
    let mut response = Response::new(Full::from(text.unwrap_or_default()));
    *response.status_mut() = status;
    Ok(response)
}

/// Serves a connection until it ends.
async fn serve(
    stream: Stream,
    acceptor: Option<Acceptor>,
    table: Colored<Table>,
) -> io::Result<()> {
    let stream = match acceptor {
        Some(acceptor) => acceptor.accept(stream).await?,
        None => with_cx(|cx| AsyncStream::new(cx, stream))?,
    };
    with_cx(|cx| stream.get_ref().set_idle_timeout(cx, Some(SILENCE_MAX)))?;
    let service = service_fn(|request| answer(request, table.clone()));
    let served = http1::Builder::new().serve_connection(stream, service);
    served.await.map_err(io::Error::other)
}

/// Starts all of it. Returns where it listens: to the feed, and for requests.
pub(crate) fn start(
    cx: &mut Cx,
    feed_at: Addr,
    serve_at: Addr,
    acceptor: Option<Acceptor>,
) -> io::Result<(Addr, Addr)> {
    let table = Colored::new_unique(cx, Table::default());
    let fed_at = feed(cx, feed_at, &table)?;
    let accept = move |cx: &mut Cx, incoming: io::Result<Incoming>| {
        let Ok(incoming) = incoming else { return };
        let stream = incoming.open_unique();
        let color = stream.color();
        let served = serve(stream, acceptor.clone(), table.clone());
        SERVE.spawn(cx, color, async move {
            if let Err(error) = served.await {
                eprintln!("a connection failed: {error}");
            }
        });
    };
    let on_accept = ACCEPT.on_each(Color::DEFAULT, accept);
    let listener = cx.listen(serve_at, Acceptors::PerCore, on_accept)?;
    Ok((fed_at, listener.local_addr()))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [feed_at, serve_at, files @ ..] = &args[..] else {
        return Err("usage: exchange FEED SERVE [CERTIFICATE KEY]".into());
    };
    let (feed_at, serve_at) = (Addr::from(feed_at), Addr::from(serve_at));
    let acceptor = match files {
        [certificate, key] => Some(Acceptor::new(tls::server_config(certificate, key)?)?),
        _ => None,
    };
    let (tell, started) = channel();
    Runtime::builder().build()?.run(move |cx| {
        let stops = cx.on_stop_signal(STOP.on_each(Color::DEFAULT, |cx, ()| cx.stop()));
        let started = stops.and_then(|_| start(cx, feed_at, serve_at, acceptor));
        match &started {
            Ok((feed, addr)) => println!("fed on {feed}, listening on {addr}"),
            Err(_) => cx.stop(),
        }
        let _ = tell.send(started);
    })?;
    started.recv()??;
    Ok(())
}
