//! Sessions: connections that are served by one value, on every backend.

use crate::common::wire::{Client, all_backends, any_port, on, with_server};
use crate::common::{Alive, Bound, LONG, Payload, eventually};
use mely::Post;
use mely::net::{Acceptors, Backend, Incoming, RecvBuf, Session, Stream};
use mely::runtime::OnPanic;
use mely::state::WeakColored;
use mely::{Color, Cx, Handler, Reason};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};

static SERVE: Handler = Handler::new("serve");
static ANSWER: Handler = Handler::new("answer");

/// Does what its client says, and counts as alive.
struct Puppet {
    stream: Stream,
    me: WeakColored<Puppet>,
    /// What its end was, and what it was called for.
    tell: Sender<String>,
    got: Vec<u8>,
    _alive: Payload,
}

impl Puppet {
    fn tell(&self, what: &str) {
        // Nobody listens any more: the test is over.
        let _ = self.tell.send(what.to_owned());
    }
}

impl Drop for Puppet {
    fn drop(&mut self) {
        self.tell("dropped");
    }
}

impl Session for Puppet {
    fn data(&mut self, cx: &mut Cx, data: RecvBuf) {
        assert_eq!((cx.color(), cx.handler()), (self.stream.color(), "serve"));
        assert!(!data.is_empty());
        self.got.extend_from_slice(&data);
        let Some(order) = self.got.strip_suffix(b"\n") else {
            return;
        };
        let order = String::from_utf8(order.to_vec()).unwrap();
        self.got.clear();
        match &order[..] {
            "close" => {
                self.stream.write(cx, vec![7; 100_000]).unwrap();
                self.stream.close(cx);
            }
            "abort" => self.stream.abort(cx),
            "panic" => panic!("as asked"),
            "panic later" => self.me.post(cx, |_, _| panic!("as asked")),
            _ => self.stream.write(cx, order).unwrap(),
        }
    }

    fn drained(&mut self, cx: &mut Cx) {
        assert_eq!((cx.color(), cx.handler()), (self.stream.color(), "serve"));
        if !self.got.is_empty() {
            // That was the answer to what had no end of line.
            self.stream.close(cx);
        }
    }

    fn end(&mut self, cx: &mut Cx, end: io::Result<()>) {
        assert_eq!((cx.color(), cx.handler()), (self.stream.color(), "serve"));
        match end {
            Ok(()) => self.tell("end"),
            Err(error) => self.tell(&format!("error {}", error.raw_os_error().unwrap_or(0))),
        }
        if self.got.is_empty() {
            return;
        }
        // Answered by another color, long after the end of what the client has said.
        self.stream.set_half_open(cx, true).unwrap();
        let answer = self.me.on(&ANSWER, |puppet, cx| {
            assert_eq!(cx.handler(), "answer");
            puppet.got.reverse();
            puppet.stream.write(cx, puppet.got.clone()).unwrap();
        });
        cx.post(Color::from(99), |cx| answer.post(cx));
    }
}

/// A server of puppets on each backend, and a client against it, who is told what the puppets tell.
fn with_puppets(
    what: &'static str,
    client: fn(&Backend, SocketAddr, &std::sync::mpsc::Receiver<String>),
) {
    for backend in all_backends() {
        let at = backend.clone();
        let (tell, told) = channel();
        let alive = Alive::default();
        let all = alive.clone();
        let builder = on(&backend).on_panic(OnPanic::DropEvent).panic_hook(|_| ());
        let tell = Mutex::new(tell);
        let serve = move |_cx: &mut Cx, incoming: Incoming| {
            let (tell, alive) = (tell.lock().unwrap().clone(), alive.clone());
            incoming.serve(&SERVE, move |_cx, stream, me| Puppet {
                stream,
                me: me.clone(),
                tell,
                got: Vec::new(),
                _alive: alive.payload(),
            });
        };
        with_server(what, builder, serve, move |addr| client(&at, addr, &told));
        assert_eq!(all.count(), 0, "{what}");
    }
}

fn ask(client: &mut Client, order: &str) {
    client.write_all(format!("{order}\n").as_bytes()).unwrap();
    assert_eq!(client.exactly(order.len()), order.as_bytes());
}

fn next(told: &std::sync::mpsc::Receiver<String>) -> String {
    told.recv_timeout(LONG).unwrap()
}

#[test]
fn what_data_does_to_its_stream_decides() {
    with_puppets("what_data_does", |backend, addr, told| {
        let mut other = Client::connect(backend, addr);
        let mut client = Client::connect(backend, addr);
        ask(&mut client, "hello");
        client.write_all(b"close\n").unwrap();
        // All that was written before.
        assert_eq!(client.rest(), vec![7; 100_000]);
        assert_eq!(next(told), "dropped");
        let mut client = Client::connect(backend, addr);
        client.write_all(b"abort\n").unwrap();
        assert_eq!(client.rest(), b"");
        assert_eq!(next(told), "dropped");
        ask(&mut other, "still");
    });
}

/// The session hears of the end once, and whoever only sends the end of its stream is answered if
/// the session has the connection half-open.
#[test]
fn a_session_is_closed_at_its_end_unless_it_is_half_open() {
    with_puppets("closed_at_its_end", |backend, addr, told| {
        let mut client = Client::connect(backend, addr);
        ask(&mut client, "hello");
        client.shutdown_write();
        assert_eq!(client.rest(), b"");
        assert_eq!([next(told), next(told)], ["end", "dropped"]);
        let mut client = Client::connect(backend, addr);
        client.write_all(b"stressed").unwrap();
        client.shutdown_write();
        assert_eq!(client.rest(), b"desserts");
        assert_eq!([next(told), next(told)], ["end", "dropped"]);
    });
}

#[test]
fn a_reset_is_told_as_an_error() {
    with_puppets("a_reset", |backend, addr, told| {
        let mut client = Client::connect(backend, addr);
        ask(&mut client, "hello");
        client.reset();
        let reset = rustix::io::Errno::CONNRESET.raw_os_error();
        assert_eq!(next(told), format!("error {reset}"));
        assert_eq!(next(told), "dropped");
    });
}

/// What a session writes on hearing of the stop arrives.
#[test]
fn a_stop_is_told_and_sessions_are_dropped() {
    for backend in all_backends() {
        let (tell, told) = channel();
        let (tell, alive) = (Mutex::new(tell), Alive::default());
        let all = alive.clone();
        let serve = move |_cx: &mut Cx, incoming: Incoming| {
            let (tell, alive) = (tell.lock().unwrap().clone(), alive.payload());
            incoming.serve(&SERVE, move |_cx, stream, _me| Told(stream, tell, alive));
        };
        let at = backend.clone();
        let client = move |addr| {
            let mut client = Client::connect(&at, addr);
            client.write_all(b"?").unwrap();
            assert_eq!(client.exactly(1), b"?");
            client
        };
        let (mut client, _) = with_server("a_stop", on(&backend), serve, client);
        let canceled = rustix::io::Errno::CANCELED.raw_os_error();
        assert_eq!(told.recv_timeout(LONG).unwrap(), Some(canceled));
        assert_eq!(all.count(), 0);
        assert_eq!(client.rest(), b"bye");
    }
}

struct Told(
    Stream,
    Sender<Option<i32>>,
    #[allow(dead_code, reason = "for its drop")] Payload,
);

impl Session for Told {
    fn data(&mut self, cx: &mut Cx, data: RecvBuf) {
        self.0.write(cx, data).unwrap();
    }

    fn end(&mut self, cx: &mut Cx, end: io::Result<()>) {
        self.0.write(cx, "bye").unwrap();
        self.1.send(end.unwrap_err().raw_os_error()).unwrap();
    }
}

/// And the peer does not take a part for the whole.
#[test]
fn a_panic_costs_its_own_connection_only() {
    with_puppets("a_panic", |backend, addr, told| {
        let mut other = Client::connect(backend, addr);
        ask(&mut other, "hello");
        for order in ["panic", "panic later"] {
            let mut client = Client::connect(backend, addr);
            ask(&mut client, "hello");
            client.write_all(format!("{order}\n").as_bytes()).unwrap();
            assert_eq!(client.is_reset(), b"", "{order}");
            assert_eq!(next(told), "dropped", "{order}");
            ask(&mut other, "still");
        }
    });
}

struct PanicsWhenDrained(Stream);

impl Session for PanicsWhenDrained {
    fn data(&mut self, cx: &mut Cx, data: RecvBuf) {
        self.0.write(cx, data).unwrap();
    }

    fn drained(&mut self, _cx: &mut Cx) {
        panic!("when drained")
    }
}

/// The first connection is refused by a panic, the second one panics later, the third is served.
#[test]
fn a_panic_while_opening_or_drained_closes_the_connection() {
    for backend in all_backends() {
        let (at, opened) = (backend.clone(), Arc::new(AtomicUsize::new(0)));
        let builder = on(&backend).on_panic(OnPanic::DropEvent).panic_hook(|_| ());
        let serve = move |_cx: &mut Cx, incoming: Incoming| {
            let opened = Arc::clone(&opened);
            incoming.serve(&SERVE, move |cx, stream, _me| {
                stream.write(cx, "opened").unwrap();
                assert_ne!(opened.fetch_add(1, Ordering::Relaxed), 0, "the first");
                PanicsWhenDrained(stream)
            });
        };
        with_server("a_panic_while_opening", builder, serve, move |addr| {
            for _ in 0..2 {
                let mut client = Client::connect(&at, addr);
                let got = client.is_reset();
                assert!(got.is_empty() || got == b"opened", "{got:?}");
            }
        });
    }
}

/// What is posted through the weak handle of a session whose connection is over is dropped and does
/// not run.
#[test]
fn a_weak_handle_keeps_nothing_alive_and_reaches_nobody_after_the_end() {
    struct Shown(Stream, Payload);
    impl Session for Shown {
        fn data(&mut self, _: &mut Cx, _: RecvBuf) {
            let _alive = &self.1;
        }
    }
    for backend in all_backends() {
        let at = backend.clone();
        let (alive, closures) = (Alive::default(), Alive::default());
        let (sessions, posted) = (alive.clone(), closures.clone());
        let (give, handles) = channel();
        let give = Mutex::new(give);
        let serve = move |cx: &mut Cx, incoming: Incoming| {
            let (give, alive, poster) = (give.lock().unwrap().clone(), alive.clone(), cx.poster());
            incoming.serve(&SERVE, move |_cx, stream, me| {
                give.send((me.clone(), poster)).unwrap();
                Shown(stream, alive.payload())
            });
        };
        with_server("a_weak_handle", on(&backend), serve, move |addr| {
            let mut client = Client::connect(&at, addr);
            let (me, poster) = handles.recv_timeout(LONG).unwrap();
            let say = |shown: &mut Shown, cx: &mut Cx| {
                shown.0.write(cx, "from a thread").unwrap();
            };
            me.upgrade().unwrap().try_post(&poster, say).unwrap();
            assert_eq!(client.exactly(13), b"from a thread");
            assert!(me.upgrade().is_some());
            // Closed by another color, through the handle.
            let (color, its) = (Color::from(98), me.clone());
            let close = move |cx: &mut Cx| its.post(cx, |shown, cx| shown.0.close(cx));
            poster.try_post(color, close).unwrap();
            assert_eq!(client.rest(), b"");
            eventually("the session is dropped", || sessions.count() == 0);
            eventually("the handle knows", || me.upgrade().is_none());
            let (witness, (tell, told)) = (posted.payload(), channel());
            let late = move |cx: &mut Cx| {
                me.post(cx, move |_, _| {
                    let _witness = &witness;
                    unreachable!()
                });
                me.on(&ANSWER, |_, _| unreachable!()).post(cx);
                tell.send(posted.count()).unwrap();
            };
            poster.try_post(color, late).unwrap();
            assert_eq!(told.recv_timeout(LONG), Ok(0));
        });
        assert_eq!(closures.count(), 0);
    }
}

/// A strong handle keeps the session, whose stream then refuses what is written.
#[test]
fn a_strong_handle_reaches_the_session_after_the_end() {
    for backend in all_backends() {
        let at = backend.clone();
        let (give, handles) = channel();
        let give = Mutex::new(give);
        let serve = move |cx: &mut Cx, incoming: Incoming| {
            let session = incoming.serve(&SERVE, |_cx, stream, _me| Echoes(stream));
            let give = give.lock().unwrap().clone();
            give.send((session, cx.poster())).unwrap();
        };
        with_server("a_strong_handle", on(&backend), serve, move |addr| {
            let mut client = Client::connect(&at, addr);
            let (session, poster) = handles.recv_timeout(LONG).unwrap();
            client.write_all(b"?").unwrap();
            assert_eq!(client.exactly(1), b"?");
            client.shutdown_write();
            assert_eq!(client.rest(), b"");
            let (tell, told) = channel();
            let late = move |echoes: &mut Echoes, cx: &mut Cx| {
                tell.send(echoes.0.write(cx, "late").unwrap_err().reason)
                    .unwrap();
            };
            session.try_post(&poster, late).unwrap();
            assert_eq!(told.recv_timeout(LONG), Ok(Reason::Closed));
        });
    }
}

/// Its sending fails while it is paused: then it is not paused any more, gets what has arrived, and
/// hears of the end once, with the error.
#[test]
fn sending_that_fails_ends_a_session_that_is_paused() {
    struct Paused(Stream, Sender<&'static str>);
    impl Session for Paused {
        fn data(&mut self, cx: &mut Cx, _: RecvBuf) {
            self.0.pause(cx).unwrap();
            // More than the kernel takes.
            self.0.write(cx, vec![1; 32 << 20]).unwrap();
            self.1.send("paused").unwrap();
        }
        fn drained(&mut self, _: &mut Cx) {
            unreachable!("nobody reads")
        }
        fn end(&mut self, cx: &mut Cx, end: io::Result<()>) {
            assert!(end.is_err());
            self.1.send("end").unwrap();
            // It is closed all the same.
            self.0.set_half_open(cx, true).unwrap();
        }
    }
    impl Drop for Paused {
        fn drop(&mut self) {
            let _ = self.1.send("dropped");
        }
    }
    for backend in crate::common::backends() {
        let at = backend.clone();
        let (tell, told) = channel();
        let tell = Mutex::new(tell);
        let serve = move |_cx: &mut Cx, incoming: Incoming| {
            let tell = tell.lock().unwrap().clone();
            incoming.serve(&SERVE, move |_cx, stream, _me| Paused(stream, tell));
        };
        with_server("sending_that_fails", on(&backend), serve, move |addr| {
            let mut client = Client::connect(&at, addr);
            client.write_all(b"!").unwrap();
            assert_eq!(told.recv_timeout(LONG), Ok("paused"));
            client.reset();
            assert_eq!(told.recv_timeout(LONG), Ok("end"));
            assert_eq!(told.recv_timeout(LONG), Ok("dropped"));
        });
    }
}

/// It is not received from until it is resumed.
#[test]
fn a_session_that_is_opened_paused_is_given_nothing() {
    for backend in all_backends() {
        let at = backend.clone();
        let (give, handles) = channel();
        let give = Mutex::new(give);
        let serve = move |cx: &mut Cx, incoming: Incoming| {
            let session = incoming.serve(&SERVE, |cx, stream, _me| {
                stream.pause(cx).unwrap();
                stream.write(cx, "opened").unwrap();
                Echoes(stream)
            });
            let give = give.lock().unwrap().clone();
            give.send((session, cx.poster())).unwrap();
        };
        with_server("opened paused", on(&backend), serve, move |addr| {
            let mut client = Client::connect(&at, addr);
            let (session, poster) = handles.recv_timeout(LONG).unwrap();
            assert_eq!(client.exactly(6), b"opened");
            client.write_all(b"echo").unwrap();
            std::thread::sleep(std::time::Duration::from_millis(20));
            let resume = |echoes: &mut Echoes, cx: &mut Cx| {
                echoes.0.write(cx, "first, ").unwrap();
                echoes.0.resume(cx).unwrap();
            };
            session.try_post(&poster, resume).unwrap();
            assert_eq!(client.exactly(11), b"first, echo");
        });
    }
}

/// `Cx::serve` gives each connection a color of its own, and the listener can be closed.
#[test]
fn each_connection_has_a_color_of_its_own() {
    struct Colors(Stream);
    impl Session for Colors {
        fn data(&mut self, cx: &mut Cx, _: RecvBuf) {
            let color = format!("{}\n", cx.color());
            self.0.write(cx, color).unwrap();
            self.0.close(cx);
        }
    }
    for backend in all_backends() {
        let _bound = Bound::new("a color of its own");
        let runtime = on(&backend).build().unwrap();
        let poster = runtime.poster();
        let (tell, addr) = channel();
        let client = std::thread::spawn(move || {
            let addr = addr.recv().unwrap();
            let mut clients: Vec<_> = (0..3).map(|_| Client::connect(&backend, addr)).collect();
            let mut colors = Vec::new();
            for client in &mut clients {
                client.write_all(b"?").unwrap();
            }
            for client in &mut clients {
                colors.push(client.rest());
            }
            poster.stop();
            colors
        });
        let outcome = runtime.run(move |cx| {
            let open = |_: &mut Cx, stream: Stream, _: &_| Colors(stream);
            let listener = cx
                .serve(any_port(), Acceptors::PerCore, &SERVE, open)
                .unwrap();
            tell.send(listener.local_addr().ip().unwrap()).unwrap();
        });
        let mut colors = client.join().unwrap();
        outcome.unwrap();
        colors.sort();
        colors.dedup();
        assert_eq!(colors.len(), 3);
    }
}

struct Echoes(Stream);

impl Session for Echoes {
    fn data(&mut self, cx: &mut Cx, data: RecvBuf) {
        self.0.write(cx, data).unwrap();
    }
}

/// From another color, and from a thread: it is opened in its color, and posts through the handle
/// come after that.
#[test]
fn a_stream_is_served_from_anywhere_in_its_color() {
    fn serve(stream: Stream, post: impl FnOnce(mely::Colored<Echoes>)) {
        let color = stream.color();
        post(stream.serve(&SERVE, move |cx, stream, me| {
            assert_eq!((cx.color(), cx.handler()), (color, "serve"));
            assert_eq!(me.color(), color);
            stream.write(cx, "opened, ").unwrap();
            Echoes(stream)
        }));
    }
    let greets = |echoes: &mut Echoes, cx: &mut Cx| {
        assert_eq!((cx.color(), cx.handler()), (echoes.0.color(), "serve"));
        echoes.0.write(cx, "posted").unwrap();
    };
    for backend in all_backends() {
        for from_thread in [false, true] {
            let at = backend.clone();
            let accept = move |cx: &mut Cx, incoming: Incoming| {
                let stream = incoming.open_unique();
                if from_thread {
                    let poster = cx.poster();
                    let posts = move |session: mely::Colored<_>| {
                        session.try_post(&poster, greets).unwrap();
                    };
                    std::thread::spawn(move || serve(stream, posts));
                } else {
                    serve(stream, |session| session.post(cx, greets));
                }
            };
            with_server("from anywhere", on(&backend), accept, move |addr| {
                let mut client = Client::connect(&at, addr);
                assert_eq!(client.exactly(14), b"opened, posted");
                client.write_all(b"echo").unwrap();
                assert_eq!(client.exactly(4), b"echo");
            });
        }
    }
}
