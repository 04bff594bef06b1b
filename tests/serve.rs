//! Sessions: connections that are served by one value, on every backend.

mod common;

use common::wire::{ACCEPTING, Client, all_backends, any_port, on, with_server};
use common::{Alive, Bound, LONG, Payload, eventually};
use mely::net::{Acceptors, Backend, Incoming, Link, RecvBuf, Session, Stream, Then};
use mely::runtime::OnPanic;
use mely::{Callback, Color, Cx, Handler, Reason};
use std::io::{self, Write};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Mutex};

static SERVE: Handler = Handler::new("serve");
static ANSWER: Handler = Handler::new("answer");

/// Does what its client says, and counts as alive.
struct Puppet {
    link: Link<Puppet>,
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
    fn data(&mut self, cx: &mut Cx, stream: &Stream, data: RecvBuf) -> Then {
        assert_eq!((cx.color(), cx.handler()), (stream.color(), "serve"));
        assert!(!data.is_empty());
        self.got.extend_from_slice(&data);
        let Some(order) = self.got.strip_suffix(b"\n") else {
            return Then::Continue;
        };
        let order = String::from_utf8(order.to_vec()).unwrap();
        self.got.clear();
        match &order[..] {
            "close" => {
                stream.write(cx, vec![7; 100_000]).unwrap();
                return Then::Close;
            }
            "abort" => return Then::Abort,
            "panic" => panic!("as asked"),
            "panic later" => self
                .link
                .post(cx, |_: &mut Puppet, _: &mut Cx, _: &Stream| {
                    panic!("as asked")
                }),
            _ => stream.write(cx, order).unwrap(),
        }
        Then::Continue
    }

    fn drained(&mut self, cx: &mut Cx, stream: &Stream) -> Then {
        assert_eq!((cx.color(), cx.handler()), (stream.color(), "serve"));
        match self.got.is_empty() {
            true => Then::Continue,
            // The answer to what had no end of line.
            false => Then::Close,
        }
    }

    fn end(&mut self, cx: &mut Cx, stream: &Stream, end: io::Result<()>) -> Then {
        assert_eq!((cx.color(), cx.handler()), (stream.color(), "serve"));
        match end {
            Ok(()) => self.tell("end"),
            Err(error) => self.tell(&format!("error {}", error.raw_os_error().unwrap_or(0))),
        }
        if self.got.is_empty() {
            return Then::Close;
        }
        // Answered by another color, long after the end of what the client has said.
        let answer = self
            .link
            .on(&ANSWER, |puppet: &mut Puppet, cx: &mut Cx, stream| {
                assert_eq!(cx.handler(), "answer");
                puppet.got.reverse();
                stream.write(cx, puppet.got.clone()).unwrap();
            });
        cx.post(Color::from(99), |cx| answer.post(cx));
        Then::Continue
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
            incoming.serve(&SERVE, move |_cx, _stream, link| Puppet {
                link: link.clone(),
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
fn what_data_returns_decides() {
    with_puppets("what_data_returns", |backend, addr, told| {
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
/// the session says so.
#[test]
fn what_end_returns_decides() {
    with_puppets("what_end_returns", |backend, addr, told| {
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
            incoming.serve(&SERVE, move |_cx, _stream, _link| Told(tell, alive));
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
    Sender<Option<i32>>,
    #[allow(dead_code, reason = "for its drop")] Payload,
);

impl Session for Told {
    fn data(&mut self, cx: &mut Cx, stream: &Stream, data: RecvBuf) -> Then {
        stream.write(cx, data).unwrap();
        Then::Continue
    }

    fn end(&mut self, cx: &mut Cx, stream: &Stream, end: io::Result<()>) -> Then {
        stream.write(cx, "bye").unwrap();
        self.0.send(end.unwrap_err().raw_os_error()).unwrap();
        Then::Close
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

struct PanicsWhenDrained;

impl Session for PanicsWhenDrained {
    fn data(&mut self, cx: &mut Cx, stream: &Stream, data: RecvBuf) -> Then {
        stream.write(cx, data).unwrap();
        Then::Continue
    }

    fn drained(&mut self, _cx: &mut Cx, _stream: &Stream) -> Then {
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
            incoming.serve(&SERVE, move |cx, stream, _link| {
                stream.write(cx, "opened").unwrap();
                assert_ne!(opened.fetch_add(1, Ordering::Relaxed), 0, "the first");
                PanicsWhenDrained
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

/// What is posted through the link of a connection that is over is dropped and does not run.
#[test]
fn a_link_keeps_nothing_alive_and_reaches_nobody_after_the_end() {
    struct Shown(Payload);
    impl Session for Shown {
        fn data(&mut self, _: &mut Cx, _: &Stream, _: RecvBuf) -> Then {
            let _alive = &self.0;
            Then::Continue
        }
    }
    for backend in all_backends() {
        let at = backend.clone();
        let (alive, closures) = (Alive::default(), Alive::default());
        let (sessions, posted) = (alive.clone(), closures.clone());
        let (give, links) = channel();
        let give = Mutex::new(give);
        let serve = move |cx: &mut Cx, incoming: Incoming| {
            let (give, alive, poster) = (give.lock().unwrap().clone(), alive.clone(), cx.poster());
            incoming.serve(&SERVE, move |_cx, _stream, link| {
                give.send((link.clone(), poster)).unwrap();
                Shown(alive.payload())
            });
        };
        with_server("a_link", on(&backend), serve, move |addr| {
            let mut client = Client::connect(&at, addr);
            let (link, poster) = links.recv_timeout(LONG).unwrap();
            let say = |_: &mut Shown, cx: &mut Cx, stream: &Stream| {
                stream.write(cx, "from a thread").unwrap();
            };
            link.try_post(&poster, say).unwrap();
            assert_eq!(client.exactly(13), b"from a thread");
            assert!(!link.is_gone());
            // Closed by another color, through the link.
            let close = |_: &mut Shown, cx: &mut Cx, stream: &Stream| stream.close(cx);
            link.try_post(&poster, close).unwrap();
            assert_eq!(client.rest(), b"");
            eventually("the session is dropped", || sessions.count() == 0);
            eventually("the link knows", || link.is_gone());
            let witness = posted.payload();
            let never = move |_: &mut Shown, _: &mut Cx, _: &Stream| {
                let _witness = &witness;
                unreachable!()
            };
            link.try_post(&poster, never).unwrap();
            assert_eq!(posted.count(), 0);
            let never = |_: &mut Shown, _: &mut Cx, _: &Stream| unreachable!();
            link.on(&ANSWER, never).try_post(&poster).unwrap();
        });
        assert_eq!(closures.count(), 0);
    }
}

/// Its sending fails while it is paused: then it is not paused any more, gets what has arrived, and
/// hears of the end once, with the error.
#[test]
fn sending_that_fails_ends_a_session_that_is_paused() {
    struct Paused(Sender<&'static str>);
    impl Session for Paused {
        fn data(&mut self, cx: &mut Cx, stream: &Stream, _: RecvBuf) -> Then {
            stream.pause(cx).unwrap();
            // More than the kernel takes.
            stream.write(cx, vec![1; 32 << 20]).unwrap();
            self.0.send("paused").unwrap();
            Then::Continue
        }
        fn drained(&mut self, _: &mut Cx, _: &Stream) -> Then {
            unreachable!("nobody reads")
        }
        fn end(&mut self, _: &mut Cx, _: &Stream, end: io::Result<()>) -> Then {
            assert!(end.is_err());
            self.0.send("end").unwrap();
            // Whatever is returned.
            Then::Continue
        }
    }
    impl Drop for Paused {
        fn drop(&mut self) {
            let _ = self.0.send("dropped");
        }
    }
    for backend in common::backends() {
        let at = backend.clone();
        let (tell, told) = channel();
        let tell = Mutex::new(tell);
        let serve = move |_cx: &mut Cx, incoming: Incoming| {
            let tell = tell.lock().unwrap().clone();
            incoming.serve(&SERVE, move |_cx, _stream, _link| Paused(tell));
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

/// `Cx::serve` gives each connection a color of its own, and the listener can be closed.
#[test]
fn each_connection_has_a_color_of_its_own() {
    struct Colors;
    impl Session for Colors {
        fn data(&mut self, cx: &mut Cx, stream: &Stream, _: RecvBuf) -> Then {
            let color = format!("{}\n", cx.color());
            stream.write(cx, color).unwrap();
            Then::Close
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
            let listener = cx.serve(any_port(), Acceptors::PerCore, &SERVE, |_, _, _| Colors);
            let listener = listener.unwrap();
            tell.send(listener.local_addr()).unwrap();
            let never = Callback::anonymous(ACCEPTING, move |_| drop(listener));
            cx.timer(2 * LONG, never);
        });
        let mut colors = client.join().unwrap();
        outcome.unwrap();
        colors.sort();
        colors.dedup();
        assert_eq!(colors.len(), 3);
    }
}

/// Elsewhere than in its color a stream is not served, and is closed.
#[test]
fn a_stream_is_served_in_its_color_only() {
    for backend in all_backends() {
        let at = backend.clone();
        let serve = |cx: &mut Cx, incoming: Incoming| {
            let stream = incoming.open_unique();
            let refused = stream.serve(cx, &SERVE, |_, _, _| PanicsWhenDrained);
            assert!(matches!(refused, Err(Reason::OtherColor { .. })));
        };
        with_server("in its color only", on(&backend), serve, move |addr| {
            assert_eq!(Client::connect(&at, addr).rest(), b"");
        });
    }
}
