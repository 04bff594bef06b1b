//! How do I write a server? An echo server: a color a connection, so its handlers need no lock and
//! any core may run them. `cargo run --release --example echo -- 127.0.0.1:7000`, Ctrl-C to stop.

use mely::Reason;
use mely::net::{Acceptors, RecvBuf, Session, Stream, Then};
use mely::{Color, Cx, Handler, Rejected, Runtime};
use std::io;
use std::net::SocketAddr;

static ECHO: Handler = Handler::new("echo");
static STOP: Handler = Handler::new("stop");

/// A client who has more than this to read is not listened to until it has read all.
const UNREAD_BYTES_MAX: usize = 256 << 10;

struct Echo;

impl Session for Echo {
    fn data(&mut self, cx: &mut Cx, stream: &Stream, data: RecvBuf) -> Then {
        // Not copied, if the client reads. One that sends and does not read is slowed down at
        // first, and sent away at the limit.
        if let Err(Rejected {
            reason: Reason::NoRoom,
            ..
        }) = stream.write(cx, data)
        {
            return Then::Abort;
        }
        // In the stream's color, where a session is called, its calls are never refused.
        if stream.queued_bytes(cx).unwrap_or(0) > UNREAD_BYTES_MAX {
            let _ = stream.pause(cx);
        }
        Then::Continue
    }

    fn drained(&mut self, cx: &mut Cx, stream: &Stream) -> Then {
        let _ = stream.resume(cx);
        Then::Continue
    }

    fn end(&mut self, _cx: &mut Cx, _stream: &Stream, end: io::Result<()>) -> Then {
        // At a stop, too: it would wait for clients to read.
        end.map_or(Then::Abort, |()| Then::Close)
    }
}

/// Listens until a signal calls `stop`.
fn start(cx: &mut Cx, addr: SocketAddr, stop: impl Fn() + Send + 'static) -> io::Result<()> {
    let listener = cx.serve(addr, Acceptors::PerCore, &ECHO, |_, _, _| Echo)?;
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
