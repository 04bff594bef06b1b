//! Secured connections that are given away, served late, left, or stopped.

use super::*;
use crate::common::wire::{all_backends, on, with_server, with_server_and_poster};
use crate::common::{LONG, backends, eventually};
use futures::io::{AsyncReadExt, AsyncWriteExt};
use mely::aio::AsyncStream;
use mely::net::Incoming;
use mely::task::{sleep, with_cx};
use mely::tls::rustls;
use mely::{Color, Reason};
use std::error::Error;
use std::io::Write;
use std::sync::Mutex;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

/// After a handshake, a client with all of this to send, an end behind it, in one piece.
fn sealed(client: &mut TlsClient, texts: &[&[u8]], end: bool) -> Vec<u8> {
    while client.conn.is_handshaking() {
        client.conn.complete_io(&mut client.sock).unwrap();
    }
    client.conn.set_buffer_limit(None);
    let mut all = Vec::new();
    for text in texts {
        client.conn.writer().write_all(text).unwrap();
    }
    if end {
        client.conn.send_close_notify();
    }
    while client.conn.wants_write() {
        client.conn.write_tls(&mut all).unwrap();
    }
    all
}

/// A task that is late reads all of it, in order, and a bounded part at a time.
#[test]
fn what_came_before_the_application_is_read_by_it() {
    for backend in all_backends() {
        let (at, acceptor) = (backend.clone(), acceptor());
        let serve = move |cx: &mut Cx, incoming: Incoming| {
            let stream = incoming.open_unique();
            let acceptor = acceptor.clone();
            cx.spawn(stream.color(), async move {
                let secured = with_cx(|cx| acceptor.secure(cx, stream)).await;
                sleep(Duration::from_millis(20)).await;
                let stream = with_cx(|cx| AsyncStream::new(cx, secured.unwrap().unwrap()));
                let mut stream = stream.unwrap();
                let mut heard = Vec::new();
                stream.read_to_end(&mut heard).await.unwrap();
                assert!(heard == pattern(1_000_000));
                stream.write_all(b"all").await.unwrap();
                stream.close().await.unwrap();
            });
        };
        let run = move |addr| {
            let mut client = tls_client(trusting(), Client::connect(&at, addr));
            let all = sealed(&mut client, &[&pattern(1_000_000)], true);
            client.sock.write_all(&all).unwrap();
            let mut heard = Vec::new();
            client.read_to_end(&mut heard).unwrap();
            assert_eq!(heard, b"all");
        };
        with_server("late", on(&backend), serve, run);
    }
}

/// Gives its stream to another session with the first bytes.
struct First(Option<Stream>, std::sync::mpsc::Sender<String>);

impl Session for First {
    fn data(&mut self, cx: &mut Cx, data: RecvBuf) {
        let stream = self.0.take().expect("no bytes for it any more");
        stream.write(cx, data).unwrap();
        let tell = self.1.clone();
        stream.serve(&SERVE, |_, stream, _| Echo { stream, tell });
    }

    fn end(&mut self, _: &mut Cx, _: io::Result<()>) {
        panic!("the end is for the second");
    }
}

#[test]
fn an_end_with_the_bytes_is_told_to_the_session_that_has_the_stream_then() {
    for backend in all_backends() {
        let (at, acceptor) = (backend.clone(), acceptor());
        let (tell, told) = channel();
        let serve = serving(acceptor, move |stream| First(Some(stream), tell.clone()));
        let run = move |addr| {
            let mut client = tls_client(trusting(), Client::connect(&at, addr));
            let all = sealed(&mut client, &[b"first"], true);
            client.sock.write_all(&all).unwrap();
            let mut heard = Vec::new();
            client.read_to_end(&mut heard).unwrap();
            assert_eq!(heard, b"first");
        };
        with_server("given away", on(&backend), serve, run);
        assert_eq!(told.recv_timeout(LONG).unwrap(), "Ok(())");
    }
}

/// A client that says nothing, or half of its first message, does not hold up a stop, which comes
/// while a task waits for its handshake.
#[test]
fn a_stop_ends_the_handshakes_of_tasks() {
    for backend in all_backends() {
        let (at, acceptor) = (backend.clone(), acceptor());
        let (tell, told) = channel();
        let tell = Mutex::new(tell);
        let serve = move |cx: &mut Cx, incoming: Incoming| {
            let (stream, acceptor) = (incoming.open_unique(), acceptor.clone());
            let tell = tell.lock().unwrap().clone();
            cx.spawn(stream.color(), async move {
                tell.send(None).unwrap();
                let error = acceptor.accept(stream).await.err().unwrap();
                tell.send(error.raw_os_error()).unwrap();
            });
        };
        let builder = on(&backend).drain_deadline(Duration::from_secs(100));
        let begun = Instant::now();
        with_server_and_poster("a stop", builder, serve, move |addr, poster| {
            let silent = Client::connect(&at, addr);
            let mut half = Client::connect(&at, addr);
            half.write_all(&[22, 3, 1, 2, 0, 1, 0, 1, 252]).unwrap();
            assert_eq!(told.recv_timeout(LONG).unwrap(), None);
            assert_eq!(told.recv_timeout(LONG).unwrap(), None);
            poster.stop();
            for _ in 0..2 {
                assert_eq!(told.recv_timeout(LONG).unwrap(), Some(libc::ECANCELED));
            }
            drop((silent, half));
        });
        // A half of the deadline is the stage's that it would take.
        assert!(begun.elapsed() < Duration::from_secs(40));
    }
}

/// Pauses before it says that TLS may begin, and leaves that to a task.
struct Paused(Option<Stream>, Acceptor);

impl Session for Paused {
    fn data(&mut self, cx: &mut Cx, _: RecvBuf) {
        let stream = self.0.take().expect("nothing comes behind the pause");
        let acceptor = self.1.clone();
        stream.pause(cx).unwrap();
        stream.write(cx, "go on").unwrap();
        cx.spawn(stream.color(), async move {
            sleep(Duration::from_millis(5)).await;
            let mut stream = acceptor.accept(stream).await.unwrap();
            let mut heard = [0; 5];
            stream.read_exact(&mut heard).await.unwrap();
            stream.write_all(&heard).await.unwrap();
            stream.close().await.unwrap();
        });
    }
}

#[test]
fn a_paused_stream_is_secured_by_a_task_later() {
    for backend in all_backends() {
        let (at, acceptor) = (backend.clone(), acceptor());
        let serve = move |_: &mut Cx, incoming: Incoming| {
            let acceptor = acceptor.clone();
            incoming.serve(&SERVE, |_, stream, _| Paused(Some(stream), acceptor));
        };
        let run = move |addr| {
            let mut client = Client::connect(&at, addr);
            client.write_all(b"STARTTLS").unwrap();
            assert_eq!(client.exactly(5), b"go on");
            let mut client = tls_client(trusting(), client);
            client.write_all(b"hello").unwrap();
            let mut heard = Vec::new();
            client.read_to_end(&mut heard).unwrap();
            assert_eq!(heard, b"hello");
        };
        with_server("paused", on(&backend), serve, run);
    }
}

/// Begins TLS in the event that says so, or when it is opened; must hear nothing after that.
struct Begins {
    stream: Option<Stream>,
    acceptor: Acceptor,
    tell: std::sync::mpsc::Sender<String>,
}

impl Begins {
    fn begin(&mut self, cx: &mut Cx) {
        let stream = self.stream.take().expect("no bytes for it any more");
        stream.write(cx, "go on").unwrap();
        let tell = self.tell.clone();
        let secured = self.acceptor.secure(cx, stream);
        let then = |_: &mut Cx, secured: Result<io::Result<Stream>, _>| {
            let stream = secured.unwrap().unwrap();
            stream.serve(&SERVE, |_, stream, _| Echo { stream, tell });
        };
        secured.then(cx, SERVE.on_value(Color::from(44), then));
    }
}

impl Session for Begins {
    fn data(&mut self, cx: &mut Cx, _: RecvBuf) {
        self.begin(cx);
    }

    fn drained(&mut self, _: &mut Cx) {
        assert!(self.stream.is_some(), "nothing of its own is sent");
    }

    fn end(&mut self, _: &mut Cx, _: io::Result<()>) {
        panic!("the end is another's");
    }
}

/// However soon the client goes on.
#[test]
fn a_session_that_has_begun_tls_hears_nothing_more() {
    for backend in all_backends() {
        for at_once in [false, true] {
            let (at, acceptor) = (backend.clone(), acceptor());
            let (tell, told) = channel();
            let tell = Mutex::new(tell);
            let serve = move |_: &mut Cx, incoming: Incoming| {
                let (acceptor, tell) = (acceptor.clone(), tell.lock().unwrap().clone());
                incoming.serve(&SERVE, move |cx, stream, _| {
                    let stream = Some(stream);
                    let mut begins = Begins {
                        stream,
                        acceptor,
                        tell,
                    };
                    if at_once {
                        begins.begin(cx);
                    }
                    begins
                });
            };
            let run = move |addr| {
                for _ in 0..10 {
                    let mut client = Client::connect(&at, addr);
                    if !at_once {
                        client.write_all(b"STARTTLS").unwrap();
                    }
                    assert_eq!(client.exactly(5), b"go on");
                    let mut client = tls_client(trusting(), client);
                    let all = sealed(&mut client, &[b"EHLO", &pattern(9_000)], true);
                    for part in all.chunks(1_000) {
                        client.sock.write_all(part).unwrap();
                    }
                    let mut heard = Vec::new();
                    client.read_to_end(&mut heard).unwrap();
                    assert!(heard == [&b"EHLO"[..], &pattern(9_000)].concat());
                }
            };
            with_server("begins", on(&backend), serve, run);
            assert!(told.iter().all(|told| told == "Ok(())"));
        }
    }
}

/// What a task is told has the peer and the source, as often as it asks.
#[test]
fn a_task_is_told_what_was_wrong() {
    for backend in all_backends() {
        let (at, acceptor) = (backend.clone(), acceptor());
        let (tell, told) = channel();
        let tell = Mutex::new(tell);
        let serve = move |cx: &mut Cx, incoming: Incoming| {
            let (stream, acceptor) = (incoming.open_unique(), acceptor.clone());
            let tell = tell.lock().unwrap().clone();
            cx.spawn(stream.color(), async move {
                let mut stream = acceptor.accept(stream).await.unwrap();
                let mut heard = [0; 5];
                stream.read_exact(&mut heard).await.unwrap();
                for _ in 0..2 {
                    tell.send(stream.read(&mut heard).await.unwrap_err())
                        .unwrap();
                }
            });
        };
        let run = move |addr| {
            let mut client = tls_client(trusting(), Client::connect(&at, addr));
            let mut all = sealed(&mut client, &[b"hello", b"wrong"], false);
            *all.last_mut().unwrap() ^= 1;
            client.sock.write_all(&all).unwrap();
            let _ = client.read(&mut [0]);
        };
        with_server("told", on(&backend), serve, run);
        for error in told.iter() {
            assert_eq!(error.kind(), io::ErrorKind::InvalidData);
            assert!(error.to_string().contains("TLS with 127.0.0.1:"), "{error}");
            let source = error.source().unwrap().downcast_ref();
            assert_eq!(source, Some(&rustls::Error::DecryptError));
        }
    }
}

/// Stays open after the end of what it is sent, and then says more.
struct HalfOpen(Stream);

impl Session for HalfOpen {
    fn data(&mut self, _: &mut Cx, data: RecvBuf) {
        assert_eq!(&data[..], b"hello");
    }

    fn end(&mut self, cx: &mut Cx, end: io::Result<()>) {
        end.unwrap();
        self.0.set_half_open(cx, true).unwrap();
        self.0.write(cx, "one").unwrap();
        let parts: Vec<Vec<u8>> = vec![b"two".to_vec(), vec![3; 20_000], b"four".to_vec()];
        self.0.write_vectored(cx, parts).unwrap();
        self.0.close(cx);
    }
}

#[test]
fn after_the_end_of_one_side_the_other_goes_on() {
    for backend in all_backends() {
        let (at, acceptor) = (backend.clone(), acceptor());
        let serve = serving(acceptor, HalfOpen);
        let run = move |addr| {
            let mut client = tls_client(trusting(), Client::connect(&at, addr));
            let mut all = sealed(&mut client, &[b"hello"], true);
            all.extend_from_slice(b"nothing of TLS behind the end");
            client.sock.write_all(&all).unwrap();
            let mut heard = Vec::new();
            client.read_to_end(&mut heard).unwrap();
            assert!(heard == [&b"onetwo"[..], &[3; 20_000], b"four"].concat());
        };
        with_server("half open", on(&backend), serve, run);
    }
}

/// Both for a stream that is over and for one of another color.
#[test]
fn streams_that_are_over_are_refused_and_those_elsewhere_taken() {
    for backend in backends() {
        let (at, acceptor) = (backend.clone(), acceptor());
        let (tell, told) = channel();
        let tell = Mutex::new(tell);
        let serve = move |cx: &mut Cx, incoming: Incoming| {
            let tell = tell.lock().unwrap().clone();
            let (stream, acceptor) = (incoming.open(Color::from(70)), acceptor.clone());
            cx.spawn(Color::from(71), async move {
                // In another color: the stream stays in its own.
                let stream = with_cx(|cx| acceptor.secure(cx, stream))
                    .await
                    .unwrap()
                    .unwrap();
                assert_eq!(stream.color(), Color::from(70));
                let foreign = with_cx(|cx| AsyncStream::new(cx, stream)).unwrap_err();
                assert!(matches!(foreign, Reason::OtherColor { .. }));
                tell.send(()).unwrap();
            });
        };
        let run = move |addr| {
            let mut client = tls_client(trusting(), Client::connect(&at, addr));
            let _ = client.read(&mut [0]);
            told.recv_timeout(LONG).unwrap();
        };
        with_server("over", on(&backend), serve, run);
    }
}

/// Whatever becomes of its handle, the connection is closed.
#[test]
fn a_handshake_that_nobody_waits_for_ends_with_the_connection_closed() {
    for backend in all_backends() {
        for cancels in [false, true] {
            let (at, acceptor) = (backend.clone(), acceptor());
            let serve = move |cx: &mut Cx, incoming: Incoming| {
                let secured = acceptor.secure(cx, incoming.open_unique());
                match cancels {
                    true => drop(secured.cancel_on_drop()),
                    false => drop(secured),
                }
            };
            let run = move |addr| {
                let mut client = tls_client(trusting(), Client::connect(&at, addr));
                assert_eq!(client.read(&mut [0]).unwrap_or(0), 0);
                eventually("closed", || {
                    client.sock.read(&mut [0]).is_ok_and(|read| read == 0)
                });
            };
            with_server("nobody", on(&backend), serve, run);
        }
    }
}
