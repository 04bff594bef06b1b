//! How do I write a server? An echo server: a color a connection, so its handlers need no lock and
//! any core may run them. `cargo run --release --example echo -- 127.0.0.1:7000`, Ctrl-C to stop.

use mely::net::{Acceptors, RecvBuf, Session, Stream};
use mely::{Color, Cx, Handler, Runtime};
use std::io;
use std::net::SocketAddr;

static ECHO: Handler = Handler::new("echo");
static STOP: Handler = Handler::new("stop");

/// A client who has more than this to read is not listened to until it has read all.
const UNREAD_BYTES_MAX: usize = 256 << 10;

struct Echo(Stream);

impl Session for Echo {
    fn data(&mut self, cx: &mut Cx, data: RecvBuf) {
        // Not copied, if the client reads. One that sends and does not read is slowed down at
        // first, and sent away at the limit.
        if self.0.write(cx, data).is_err() {
            return self.0.abort(cx);
        }
        // In the stream's color, where a session is called, its calls are never refused.
        if self.0.queued_bytes(cx).unwrap_or(0) > UNREAD_BYTES_MAX {
            let _ = self.0.pause(cx);
        }
    }

    fn drained(&mut self, cx: &mut Cx) {
        let _ = self.0.resume(cx);
    }

    fn end(&mut self, cx: &mut Cx, end: io::Result<()>) {
        // At a stop, too: a close would wait for clients to read.
        if end.is_err() {
            self.0.abort(cx);
        }
    }
}

/// Listens until a signal calls `stop`.
fn start(cx: &mut Cx, addr: SocketAddr, stop: impl Fn() + Send + 'static) -> io::Result<()> {
    let listener = cx.serve(addr, Acceptors::PerCore, &ECHO, |_, stream, _| Echo(stream))?;
    println!("listening on {}", listener.local_addr());
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
