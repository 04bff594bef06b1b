//! How do I write a server? An echo server: a color a connection, so its handlers need no lock and
//! any core may run them. `cargo run --release --example echo -- 127.0.0.1:7000`, Ctrl-C to stop.

use mely::net::{Acceptors, Incoming, RecvBuf, Stream, WriteError};
use mely::{Color, Cx, Handler, Runtime};
use std::io;
use std::net::SocketAddr;

static ACCEPT: Handler = Handler::new("accept");
static ECHO: Handler = Handler::new("echo");
static STOP: Handler = Handler::new("stop");

/// A client who has more than this to read is not listened to until it has read all.
const UNREAD_BYTES_MAX: usize = 256 << 10;

fn accept(cx: &mut Cx, incoming: io::Result<Incoming>) {
    // Out of descriptors, perhaps: accepting goes on a little later.
    let Ok(incoming) = incoming else { return };
    let stream = incoming.open_unique();
    // The stream belongs to its color: what is to be done with it is done there. There its calls
    // are never refused.
    cx.post(stream.color(), move |cx| {
        let resume = |cx: &mut Cx, stream: &Stream, sent: io::Result<()>| {
            if sent.is_ok() {
                let _ = stream.resume(cx);
            }
        };
        let _ = stream.on_drained(cx, &ECHO, resume);
        let _ = stream.on_data(cx, &ECHO, echo);
        // From here on it lives by its callbacks, until the peer closes.
        let _ = stream.detach(cx);
    });
}

fn echo(cx: &mut Cx, stream: &Stream, data: io::Result<RecvBuf>) {
    let Ok(data) = data else { return };
    // Not copied, if the client reads. One that sends and does not read is slowed down at first,
    // and sent away at the limit.
    if let Err(WriteError::Full(_)) = stream.write(cx, data) {
        return stream.abort(cx);
    }
    if stream.queued_bytes(cx).unwrap_or(0) > UNREAD_BYTES_MAX {
        let _ = stream.pause(cx);
    }
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
    let addr = std::env::args()
        .nth(1)
        .unwrap_or_else(|| "127.0.0.1:7000".into())
        .parse()?;
    mely::net::raise_open_file_limit()?;
    let runtime = Runtime::builder().build()?;
    let served = runtime.run_until(move |cx, finish| {
        let stop = finish.clone();
        if let Err(error) = start(cx, addr, move || stop.finish(Ok(()))) {
            finish.finish(Err(error));
        }
    })?;
    Ok(served?)
}
