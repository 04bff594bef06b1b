//! How do I keep state per connection? A server that numbers the lines of each of its clients.
//! `cargo run --release --example session -- 127.0.0.1:7000`, then `nc 127.0.0.1 7000`; Ctrl-C to
//! stop.
//!
//! A session is the state of a connection, in a color of its own, and owns the connection's stream.
//! The stream's callback holds a handle to the session. That looks like a ring that nobody will
//! ever drop; but the callback is dropped after its last call, which is the end of the stream or an
//! error, and with it the session, and with that the stream: the connection is closed, with nothing
//! to be done for it.

use mely::Reason;
use mely::net::{Acceptors, Incoming, RecvBuf, Stream};
use mely::{Color, Colored, Cx, Handler, Rejected, Runtime};
use std::io;
use std::net::SocketAddr;

static ACCEPT: Handler = Handler::new("accept");
static LINE: Handler = Handler::new("line");
static STOP: Handler = Handler::new("stop");

/// A client who sends more than this without ending a line is sent away.
const LINE_BYTES_MAX: usize = 64 << 10;

struct Session {
    stream: Stream,
    /// The beginning of a line whose end has not come.
    rest: Vec<u8>,
    lines: u64,
}

impl Session {
    fn received(&mut self, cx: &mut Cx, data: &[u8]) {
        self.rest.extend_from_slice(data);
        while let Some(end) = self.rest.iter().position(|&byte| byte == b'\n') {
            let line: Vec<u8> = self.rest.drain(..=end).collect();
            self.lines += 1;
            let answer = [format!("{}: ", self.lines).as_bytes(), &line].concat();
            // A client who sends and does not read gets no further than the limit.
            if let Err(Rejected {
                reason: Reason::NoRoom,
                ..
            }) = self.stream.write(cx, answer)
            {
                return self.stream.abort(cx);
            }
        }
        if self.rest.len() > LINE_BYTES_MAX {
            self.stream.close(cx);
        }
    }
}

fn accept(cx: &mut Cx, incoming: io::Result<Incoming>) {
    let Ok(incoming) = incoming else { return };
    let stream = incoming.open_unique();
    let color = stream.color();
    let session = Session {
        stream,
        rest: Vec::new(),
        lines: 0,
    };
    let session = Colored::new(cx, color, session);
    let handle = session.clone();
    // The stream belongs to the session's color: what is to be done with it is done there.
    let begin = move |session: &mut Session, cx: &mut Cx| {
        let on_data = move |cx: &mut Cx, stream: &Stream, data: io::Result<RecvBuf>| {
            if let Ok(data) = data {
                let received = |session: &mut Session, cx: &mut Cx| session.received(cx, &data);
                if handle.with(cx, received).is_err() {
                    // An event of the session has panicked.
                    stream.abort(cx);
                }
            }
        };
        let _ = session.stream.on_data(cx, &LINE, on_data);
    };
    session.post(cx, begin);
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
