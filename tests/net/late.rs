//! Cores that are late: what completed before a timer was due goes before the timer.

use crate::common::calls::Calls;
use crate::common::wire::{ACCEPTING, Client, any_port, with_server_and_poster};
use crate::common::{Bound, backends, cores, eventually};
use mely::Post;
use mely::net::{Backend, Incoming, RecvBuf, Stream};
use mely::{Callback, Color, Colored, Cx, Handler, Poster};
use std::io::{self, Write};
use std::net::{SocketAddr, TcpListener};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

static READ: Handler = Handler::new("read");
static SENT: Handler = Handler::new("sent");

/// The time after which the timers are due, and one by which they are.
const SOON: Duration = Duration::from_millis(1);
const LATER: Duration = Duration::from_millis(5);

/// What happened in each color, in order.
type Log = Arc<Mutex<Vec<(Color, &'static str)>>>;

fn note(log: &Log, cx: &Cx, what: &'static str) {
    log.lock().unwrap().push((cx.color(), what));
}

/// What happened in this color.
fn of(log: &Log, color: Color) -> Vec<&'static str> {
    let log = log.lock().unwrap();
    let its = log.iter().filter(|(its, _)| *its == color);
    its.map(|&(_, what)| what).collect()
}

/// A server of one core. `serve` is given each connection in its color.
fn with_server<S, C>(backend: &Backend, log: &Log, serve: S, client: C)
where
    S: Fn(&mut Cx, Stream) + Send + Sync + 'static,
    C: FnOnce(SocketAddr, &Poster) + Send + 'static,
{
    let (serve, log) = (Arc::new(serve), Arc::clone(log));
    let accept = move |cx: &mut Cx, incoming: Incoming| {
        note(&log, cx, "accepted");
        let (stream, serve) = (incoming.open_unique(), Arc::clone(&serve));
        cx.post(stream.color(), move |cx| serve(cx, stream));
    };
    let builder = cores(1).backend(backend.clone());
    with_server_and_poster("a late core", builder, accept, client);
}

/// Has the core be inside of a handler while `meanwhile` is done, until after timers of these
/// colors are due that the handler has set.
fn late(poster: &Poster, log: &Log, colors: &[Color], meanwhile: impl FnOnce()) {
    let ((begun, begins), (done, is_done)) = (channel(), channel::<()>());
    let (timed, colors) = (Arc::clone(log), colors.to_vec());
    let busy = move |cx: &mut Cx| {
        for color in colors {
            let log = Arc::clone(&timed);
            let due = Callback::anonymous(color, move |cx| note(&log, cx, "timer"));
            cx.timer(SOON, due);
        }
        begun.send(()).unwrap();
        // Until the client is done, or gone.
        let _ = is_done.recv();
        thread::sleep(LATER);
    };
    poster.try_post(Color::from(9), busy).unwrap();
    begins.recv().unwrap();
    meanwhile();
    done.send(()).unwrap();
}

/// Logs what it receives, and gives its color.
fn logs_data(log: &Log, colors: &Arc<Mutex<Vec<Color>>>) -> impl Fn(&mut Cx, Stream) + use<> {
    let (log, colors) = (Arc::clone(log), Arc::clone(colors));
    move |cx, stream| {
        let its = Arc::clone(&log);
        let on_data = move |cx: &mut Cx, _: &Stream, data: io::Result<Option<RecvBuf>>| {
            if data.is_ok_and(|data| data.is_some()) {
                note(&its, cx, "data");
            }
        };
        let session = Calls::new(on_data).serve(stream, &READ);
        // Once it is open.
        let colors = Arc::clone(&colors);
        session.post(cx, move |_, cx| colors.lock().unwrap().push(cx.color()));
    }
}

/// More of them than a look at the event source takes, and than a core has buffers.
#[test]
fn data_goes_before_timers_that_are_due() {
    mely::net::raise_open_file_limit().unwrap();
    for backend in backends() {
        for count in [1, 40, 600, 1_500] {
            let log = Log::default();
            let colors = Arc::<Mutex<Vec<Color>>>::default();
            let (its, all) = (Arc::clone(&log), Arc::clone(&colors));
            let client = move |addr, poster: &Poster| {
                let connect = |_| Client::connect(&Backend::Auto, addr);
                let mut clients: Vec<_> = (0..count).map(connect).collect();
                eventually("all connections", || all.lock().unwrap().len() == count);
                let colors = all.lock().unwrap().clone();
                late(poster, &its, &colors, || {
                    for client in &mut clients {
                        client.write_all(b"in time").unwrap();
                    }
                });
                for color in colors {
                    eventually("data and timer", || of(&its, color).len() == 2);
                    assert_eq!(of(&its, color), ["data", "timer"], "one of {count}");
                }
            };
            eprintln!("{backend:?}, {count}");
            with_server(&backend, &log, logs_data(&log, &colors), client);
        }
    }
}

/// What takes several buffers, too.
#[test]
fn all_data_of_a_message_goes_before_the_timer() {
    const BYTES: usize = 60_000;
    for backend in backends() {
        let log = Log::default();
        let colors = Arc::<Mutex<Vec<Color>>>::default();
        let (its, all) = (Arc::clone(&log), Arc::clone(&colors));
        let client = move |addr, poster: &Poster| {
            let mut client = Client::connect(&Backend::Auto, addr);
            eventually("the connection", || all.lock().unwrap().len() == 1);
            let color = all.lock().unwrap()[0];
            late(poster, &its, &[color], || {
                client.write_all(&[7; BYTES]).unwrap();
            });
            eventually("the timer", || of(&its, color).contains(&"timer"));
            // Behind whatever came with it.
            let (tell, told) = channel();
            let done = move |_: &mut Cx| tell.send(()).unwrap();
            poster.try_post(color, done).unwrap();
            told.recv().unwrap();
            assert_eq!(of(&its, color).last(), Some(&"timer"));
        };
        with_server(&backend, &log, logs_data(&log, &colors), client);
    }
}

#[test]
fn connections_go_before_timers_that_are_due() {
    for backend in backends() {
        let log = Log::default();
        let its = Arc::clone(&log);
        let client = move |addr, poster: &Poster| {
            let mut clients = Vec::new();
            late(poster, &its, &[ACCEPTING], || {
                clients.push(Client::connect(&Backend::Auto, addr));
            });
            eventually("connection and timer", || of(&its, ACCEPTING).len() == 2);
            assert_eq!(of(&its, ACCEPTING), ["accepted", "timer"]);
        };
        with_server(&backend, &log, |_, _| (), client);
    }
}

/// Bytes that are written at a time.
const CHUNK: usize = 1 << 16;

/// Writes until the kernel has taken all that it takes of a client that does not read: then the
/// last chunk, or a part of it, waits. Returns how many bytes were written.
fn fill(poster: &Poster, session: &Colored<Calls>) -> usize {
    let (mut bytes, mut looks) = (0, 0);
    // What the kernel has taken moves on, and makes room.
    while looks < 5 {
        let (tell, told) = channel();
        let look = move |calls: &mut Calls, cx: &mut Cx| {
            let stream = calls.stream();
            let waits = stream.queued_bytes(cx).unwrap() > 0;
            if !waits {
                stream.write(cx, vec![7; CHUNK]).unwrap();
            }
            tell.send(waits).unwrap();
        };
        session.try_post(poster, look).unwrap();
        if told.recv().unwrap() {
            looks += 1;
            thread::sleep(LATER);
        } else {
            (bytes, looks) = (bytes + CHUNK, 0);
        }
    }
    bytes
}

#[test]
fn ends_of_sends_go_before_timers_that_are_due() {
    for backend in backends() {
        let log = Log::default();
        let (tell, told) = channel();
        let sent = Arc::clone(&log);
        let serve = move |_: &mut Cx, stream: Stream| {
            let log = Arc::clone(&sent);
            let on_drained = move |cx: &mut Cx, _: &Stream| note(&log, cx, "sent");
            let session = Calls::none().on_drained(on_drained);
            tell.send(session.serve(stream, &SENT)).unwrap();
        };
        let its = Arc::clone(&log);
        let client = move |addr, poster: &Poster| {
            let mut client = Client::connect(&Backend::Auto, addr);
            let session = told.recv().unwrap();
            let color = session.color();
            let bytes = fill(poster, &session);
            its.lock().unwrap().clear();
            late(poster, &its, &[color], || {
                client.exactly(bytes - CHUNK);
            });
            eventually("end and timer", || of(&its, color).len() == 2);
            assert_eq!(of(&its, color), ["sent", "timer"]);
            client.exactly(CHUNK);
        };
        with_server(&backend, &log, serve, client);
    }
}

/// It is begun at once, not when the handler is over that asked for it: the limit has passed then.
#[test]
fn a_connect_within_its_limit_has_been_made() {
    let _bound = Bound::new("a late connect");
    for backend in backends() {
        let listener = TcpListener::bind(any_port()).unwrap();
        let addr = listener.local_addr().unwrap();
        let runtime = cores(1).backend(backend.clone()).build().unwrap();
        let connected = runtime.run_until(move |cx, finish| {
            let told = move |_: &mut Cx, incoming: io::Result<Incoming>| {
                finish.finish(incoming.map(drop));
            };
            let told = Callback::anonymous_value(Color::from(1), told);
            cx.connect(addr, SOON, told).unwrap();
            // Or waits for ever.
            let _accepted = listener.accept().unwrap();
            thread::sleep(LATER);
        });
        connected
            .unwrap()
            .unwrap_or_else(|error| panic!("{backend:?}: {error}"));
    }
}
