//! How do I write a server? An echo server: a color a connection, so its handlers need no lock and
//! any core may run them. `cargo run --release --example echo -- 127.0.0.1:7000`, Ctrl-C to stop.

use mely::net::{Acceptors, Incoming, RecvBuf, Stream, WriteError, listen};
use mely::{Callback, Color, Cx, Handler, Runtime};
use std::io;

static ACCEPT: Handler = Handler::new("accept");
static ECHO: Handler = Handler::new("echo");

fn accept(cx: &mut Cx, incoming: io::Result<Incoming>) {
    let Ok(incoming) = incoming else { return };
    let stream = incoming.open_unique(cx);
    // The stream belongs to its color: what is to be done with it is done there.
    cx.post(stream.color(), move |cx: &mut Cx| {
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
    match stream.write(cx, data.to_vec()) {
        // A peer that sends and does not read gets no further than the limit: its connection is
        // closed. One that merely reads slowly is slowed down first.
        Err(WriteError::Full(_)) => stream.abort(cx),
        _ if stream
            .queued_bytes(cx)
            .is_ok_and(|queued| queued > 256 << 10) =>
        {
            let _ = stream.pause(cx);
        }
        _ => {}
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let addr = std::env::args()
        .nth(1)
        .unwrap_or_else(|| "127.0.0.1:7000".into())
        .parse()?;
    mely::net::raise_open_file_limit()?;
    let mut runtime = Runtime::builder().build()?;
    let failed = runtime.run_until(move |cx, finish| {
        let on_accept = ACCEPT.on(Color::DEFAULT, accept);
        match listen(cx, addr, Acceptors::PerCore, on_accept) {
            Ok(listener) => {
                println!("listening on {}", listener.local_addr());
                // Dropping the listener would close it: it stays with the signal's callback.
                let stop = move |_cx: &mut Cx| {
                    let _ = &listener;
                    let _ = finish.finish(None);
                };
                let stop = Callback::anonymous(Color::DEFAULT, stop);
                cx.on_stop_signal(stop)
                    .expect("a descriptor for the signals");
            }
            Err(error) => drop(finish.finish(Some(error))),
        }
    })?;
    failed.map_or(Ok(()), |error| Err(error.into()))
}
