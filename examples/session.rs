//! How do I keep state per connection? A server that numbers the lines of each of its clients.
//! `cargo run --release --example session -- 127.0.0.1:7000`, then `nc 127.0.0.1 7000`; Ctrl-C to
//! stop.
//!
//! A session is the state of a connection, in a color of its own, and owns the connection's stream.
//! When the connection is over, the session is dropped, with nothing to be done for it.

use mely::net::{Acceptors, Lines, RecvBuf, Session, Stream};
use mely::{Color, Cx, Handler, Runtime};
use std::io;
use std::net::SocketAddr;

static LINE: Handler = Handler::new("line");
static STOP: Handler = Handler::new("stop");

/// A client who sends more than this without ending a line is sent away.
const LINE_BYTES_MAX: usize = 64 << 10;

struct Numbers {
    stream: Stream,
    lines: Lines,
    count: u64,
}

impl Session for Numbers {
    fn data(&mut self, cx: &mut Cx, data: RecvBuf) {
        self.lines.push(&data);
        loop {
            match self.lines.next_line() {
                Ok(Some(line)) => {
                    self.count += 1;
                    let number = format!("{}: ", self.count);
                    let answer = [number.as_bytes(), line, b"\n"].concat();
                    // A client who sends and does not read gets no further than the limit.
                    if self.stream.write(cx, answer).is_err() {
                        return self.stream.abort(cx);
                    }
                }
                Ok(None) => return,
                Err(_too_long) => return self.stream.close(cx),
            }
        }
    }
}

/// Listens until a signal calls `stop`.
fn start(cx: &mut Cx, addr: SocketAddr, stop: impl Fn() + Send + 'static) -> io::Result<()> {
    let listener = cx.serve(addr, Acceptors::PerCore, &LINE, |_, stream, _| Numbers {
        stream,
        lines: Lines::new(LINE_BYTES_MAX),
        count: 0,
    })?;
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
