//! How do I join two connections? A proxy: each client is piped to a connection to the target.
//! `cargo run --release --example proxy -- 127.0.0.1:7000 example.org:80`, and Ctrl-C stops it. Each
//! address may also be that of a Unix socket: `/run/proxy.sock`, `@proxy`.
//!
//! A client and its connection to the target have one color, so the bytes between them stay on one
//! core. An end that does not read holds up its own pipe only, which keeps a bounded number of
//! bytes. A client that finds no place or no target is closed; one that does nothing for
//! `IDLE_MAX` is reset, and its target with it.

use mely::net::{Acceptors, Addr, Incoming, PIPE_BYTES_MAX, Stream};
use mely::{Color, Cx, Handler, Runtime};
use std::{env, io, sync::Arc, time::Duration};

static ACCEPT: Handler = Handler::new("accept");
static CONNECTED: Handler = Handler::new("connected");
static PIPED: Handler = Handler::new("piped");
static STOP: Handler = Handler::new("stop");

/// Clients at once, by default.
const CLIENTS_MAX: usize = 10_000;
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// Longer than any peer is silent that means well.
const IDLE_MAX: Duration = Duration::from_secs(300);

/// Connects to the target, and pipes the client to it. In the client's color.
fn serve(cx: &mut Cx, client: Stream, target: &Addr, place: Arc<()>) -> io::Result<()> {
    let color = client.color();
    let peer = client.peer_addr(cx)?;
    let connected = move |cx: &mut Cx, connection: io::Result<Incoming>| {
        let connection = match connection {
            Ok(connection) => connection,
            // It names the target. The client is dropped, and so closed.
            Err(error) => return eprintln!("{peer}: no connection to {error}"),
        };
        let done = PIPED.on_value(color, move |_cx, piped: io::Result<_>| {
            if let Err(error) = piped {
                eprintln!("{peer}: {error}");
            }
            drop(place); // Whatever else happens, it is dropped with the callback.
        });
        let connection = connection.open(color);
        // None is refused: this is the color of both.
        let _ = client.set_idle_timeout(cx, Some(IDLE_MAX));
        let _ = connection.set_idle_timeout(cx, Some(IDLE_MAX));
        let _ = client.pipe_to(cx, connection, PIPE_BYTES_MAX, done);
    };
    cx.connect(target, CONNECT_MAX, CONNECTED.on_value(color, connected))
}

/// Listens until the runtime ends. Returns the address.
pub(crate) fn listen(
    cx: &mut Cx,
    addr: Addr,
    target: Addr,
    clients_max: usize,
) -> io::Result<Addr> {
    // Each client has a clone.
    let places = Arc::new(());
    let on_accept = ACCEPT.on_each(Color::DEFAULT, move |cx, client: io::Result<Incoming>| {
        let Ok(client) = client else { return };
        let place = Arc::clone(&places);
        if Arc::strong_count(&places) <= clients_max + 1 {
            let client = client.open_unique();
            let target = target.clone();
            cx.post(client.color(), move |cx| {
                if let Err(error) = serve(cx, client, &target, place) {
                    eprintln!("a client is closed: {error}");
                }
            });
        }
    });
    let listener = cx.listen(addr, Acceptors::PerCore, on_accept)?;
    Ok(listener.local_addr())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let addrs: Vec<String> = env::args().skip(1).collect();
    let [addr, target] = &addrs[..] else {
        return Err(
            "usage: proxy LISTEN TARGET, as 127.0.0.1:80, /a/path or (TARGET) name:80".into(),
        );
    };
    let (addr, target) = (addr.parse()?, target.parse()?);
    mely::net::raise_open_file_limit()?;
    let served = Runtime::builder().build()?.run_until(move |cx, finish| {
        let stop = finish.clone();
        let on_stop = STOP.on_each(Color::DEFAULT, move |_cx, ()| stop.finish(Ok(())));
        let listening = listen(cx, addr, target, CLIENTS_MAX);
        match listening.and_then(|addr| cx.on_stop_signal(on_stop).map(|()| addr)) {
            Ok(addr) => println!("listening on {addr}"),
            Err(error) => finish.finish(Err(error)),
        }
    })?;
    Ok(served?)
}
