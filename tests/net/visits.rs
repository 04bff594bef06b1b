//! What comes for a core that computes, while another one idles: it is seen by that one.

use crate::common::calls::Calls;
use crate::common::wire::{Client, with_server_and_poster};
use crate::common::{LONG, backends, cores};
use mely::net::{Backend, Incoming, Stream};
use mely::{Callback, Color, Cx, Handler, Poster};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

static ECHO: Handler = Handler::new("echo");
static LONG_ONE: Handler = Handler::new("long").time(Duration::from_millis(3));
static SURPRISE: Handler = Handler::new("a surprise");
const CLIENTS: usize = 40;

/// A server of two cores that answers what it is sent, with a client, and what the client tells to
/// end it.
fn with_server<C>(backend: &Backend, client: C)
where
    C: FnOnce(SocketAddr, &Poster) + Send + 'static,
{
    let accept = |_: &mut Cx, incoming: Incoming| echo(incoming.open_unique());
    let builder = cores(2).backend(backend.clone());
    with_server_and_poster("cores that visit", builder, accept, client);
}

fn echo(stream: Stream) {
    let answer = |cx: &mut Cx, stream: &Stream, data: io::Result<Option<mely::net::RecvBuf>>| {
        if let Ok(Some(data)) = data {
            stream.write(cx, data).unwrap();
        }
    };
    Calls::new(answer).serve(stream, &ECHO);
}

/// What a handler does before it computes.
type Before = fn(&mut Cx, SocketAddr);

/// Has one core compute until `meanwhile` is done.
fn computing(
    poster: &Poster,
    handler: &'static Handler,
    addr: SocketAddr,
    before: Before,
    meanwhile: impl FnOnce(),
) {
    let (begun, begins) = channel();
    let done = Arc::new(AtomicBool::new(false));
    let is_done = Arc::clone(&done);
    let busy = move |cx: &mut Cx| {
        before(cx, addr);
        begun.send(()).unwrap();
        let since = Instant::now();
        while !is_done.load(Ordering::Relaxed) {
            assert!(since.elapsed() < LONG, "nobody else has seen to it");
        }
    };
    handler.on(Color::from(99), busy).try_post(poster).unwrap();
    begins.recv().unwrap();
    meanwhile();
    done.store(true, Ordering::Relaxed);
}

fn ask(client: &mut Client) {
    client.write_all(b"?").unwrap();
    assert_eq!(client.exactly(1), b"?");
}

/// Those that were connected before, and those that connect meanwhile.
#[test]
fn clients_are_answered_while_a_core_computes() {
    let nothing: Before = |_, _| ();
    let timer: Before = |cx, _| {
        let color = cx.color();
        cx.timer(Duration::from_secs(600), Callback::anonymous(color, |_| ()));
    };
    let connect: Before = |cx, addr| {
        let on_connected = ECHO.on_value(Color::from(98), |_: &mut Cx, incoming| {
            drop::<io::Result<Incoming>>(incoming);
        });
        cx.connect(addr, LONG, on_connected).unwrap();
    };
    for backend in backends() {
        for handler in [&LONG_ONE, &SURPRISE] {
            for before in [nothing, timer, connect] {
                let its = backend.clone();
                with_server(&backend, move |addr, poster| {
                    let mut clients: Vec<_> =
                        (0..CLIENTS).map(|_| Client::connect(&its, addr)).collect();
                    clients.iter_mut().for_each(ask);
                    computing(poster, handler, addr, before, || {
                        clients.iter_mut().for_each(ask);
                        for _ in 0..CLIENTS {
                            let mut client = Client::connect(&its, addr);
                            ask(&mut client);
                            ask(&mut client);
                        }
                    });
                });
            }
        }
    }
}
