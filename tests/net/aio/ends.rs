//! How a stream that tasks use ends: by either end, by an error, by a drop.

use super::{HERE, THERE, big, code, echo, pattern, settle, simulated, task};
use crate::common::calls::Calls;
use crate::common::wire::{ACCEPTING, Client, all_backends, any_port, on, with_server};
use crate::common::{Alive, Bound, LONG};
use futures::io::{AsyncReadExt, AsyncWriteExt};
use futures::{AsyncRead, AsyncWrite};
use mely::aio::AsyncStream;
use mely::net::{Acceptors, Incoming, Stream};
use mely::runtime::{OnPanic, Stage};
use mely::task::{sleep, with_cx};
use mely::{Callback, Colored, Cx, Handler, Reason, RunError};
use std::future::poll_fn;
use std::io::{self, ErrorKind, Read, Write};
use std::pin::Pin;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;

#[test]
fn half_closed_by_either_end() {
    for backend in all_backends() {
        let at = backend.clone();
        let (tell, told) = channel();
        let serve = move |cx: &mut Cx, incoming| {
            let tell = tell.clone();
            task(cx, incoming, move |mut stream| async move {
                // Ours first: the client sees the end, and can still send.
                stream.write_all(b"first").await.unwrap();
                stream.close().await.unwrap();
                stream.close().await.unwrap();
                let mut theirs = Vec::new();
                stream.read_to_end(&mut theirs).await.unwrap();
                assert_eq!(theirs, pattern(50_000));
                // The end is told again.
                assert_eq!(stream.read(&mut [0; 8]).await.unwrap(), 0);
                tell.send(()).unwrap();
            });
        };
        with_server("half_closed", on(&backend), serve, move |addr| {
            let mut client = Client::connect(&at, addr);
            assert_eq!(client.rest(), b"first");
            client.write_all(pattern(50_000)).unwrap();
            client.shutdown_write();
            told.recv_timeout(LONG).unwrap();
        });
        let (at, len) = (backend.clone(), big(&backend));
        let serve = move |cx: &mut Cx, incoming| {
            task(cx, incoming, move |mut stream| async move {
                let mut asked = Vec::new();
                stream.read_to_end(&mut asked).await.unwrap();
                assert_eq!(asked, b"how many?");
                // Queued, and sent after the drop.
                stream.write_all(pattern(len)).await.unwrap();
            });
        };
        with_server("half_closed", on(&backend), serve, move |addr| {
            let mut client = Client::connect(&at, addr);
            client.write_all(b"how many?").unwrap();
            client.shutdown_write();
            assert!(client.rest() == pattern(len));
        });
    }
}

/// What was received before is read before; then both directions fail, again and again.
#[test]
fn reset_by_the_peer() {
    for backend in all_backends() {
        let (at, (tell, told)) = (backend.clone(), channel());
        let serve = move |cx: &mut Cx, incoming| {
            let tell = tell.clone();
            task(cx, incoming, move |mut stream| async move {
                let mut space = [0; 4];
                stream.read_exact(&mut space).await.unwrap();
                tell.send(None).unwrap();
                let read = loop {
                    match stream.read(&mut space).await {
                        Ok(0) => panic!("a reset is no end"),
                        Ok(_) => {}
                        Err(error) => break error,
                    }
                };
                let again = stream.read(&mut space).await.unwrap_err();
                assert_eq!(code(&read), code(&again));
                let written = loop {
                    if let Err(error) = stream.write_all(&[0; 1_000]).await {
                        break error;
                    }
                    if let Err(error) = stream.flush().await {
                        break error;
                    }
                };
                for failed in [stream.flush().await, stream.close().await] {
                    assert_eq!(failed.unwrap_err().kind(), written.kind());
                }
                tell.send(Some((read.kind(), written.kind()))).unwrap();
            });
        };
        let seen = with_server("reset_by_the_peer", on(&backend), serve, move |addr| {
            let mut client = Client::connect(&at, addr);
            client.write_all(b"four").unwrap();
            assert_eq!(told.recv_timeout(LONG).unwrap(), None);
            client.reset();
            told.recv_timeout(LONG).unwrap().expect("both fail")
        });
        let (read, written) = seen.0;
        assert_eq!(read, ErrorKind::ConnectionReset, "{backend:?}");
        let broken = [ErrorKind::BrokenPipe, ErrorKind::ConnectionReset];
        assert!(broken.contains(&written), "{backend:?}: {written}");
    }
}

/// Polls each of its calls once.
fn poll_all(stream: &mut AsyncStream) -> [io::Error; 4] {
    let context = &mut Context::from_waker(Waker::noop());
    let mut stream = Pin::new(stream);
    fn refused<R>(polled: Poll<io::Result<R>>) -> io::Error {
        match polled {
            Poll::Ready(Err(error)) => error,
            _ => panic!("not refused"),
        }
    }
    [
        refused(stream.as_mut().poll_read(context, &mut [0; 8])),
        refused(stream.as_mut().poll_write(context, b"no")),
        refused(stream.as_mut().poll_flush(context)),
        refused(stream.as_mut().poll_close(context)),
    ]
}

#[test]
fn refused_in_other_colors_and_outside_of_tasks() {
    for backend in all_backends() {
        let at = backend.clone();
        let serve = |cx: &mut Cx, incoming: Incoming| {
            cx.place(HERE, incoming.home());
            let first = async move {
                let made = with_cx(|cx| {
                    cx.spawn(HERE, async move {
                        with_cx(|cx| AsyncStream::new(cx, incoming.open(HERE))).unwrap()
                    })
                });
                let mut stream = made.await.unwrap();
                // Here, in another color.
                for error in poll_all(&mut stream) {
                    let expected = Reason::OtherColor {
                        state: HERE,
                        handler: THERE,
                    };
                    let source = error.into_inner().unwrap();
                    assert_eq!(source.downcast_ref(), Some(&expected));
                }
                // On a thread that is no core.
                let outside = move || {
                    for error in poll_all(&mut stream) {
                        let source = error.into_inner().unwrap();
                        assert_eq!(source.downcast_ref(), Some(&Reason::NoContext));
                    }
                    stream
                };
                let stream = thread::spawn(outside).join().unwrap();
                // And back: it works, and nothing of that was sent.
                with_cx(|cx| cx.spawn(HERE, echo(stream)));
            };
            cx.spawn(THERE, first);
        };
        with_server(
            "refused_in_other_colors",
            on(&backend),
            serve,
            move |addr| {
                let mut client = Client::connect(&at, addr);
                client.write_all(b"hello").unwrap();
                assert_eq!(client.exactly(5), b"hello");
                client.shutdown_write();
                assert_eq!(client.rest(), b"");
            },
        );
    }
}

#[test]
fn made_in_another_color_it_is_refused_and_closed() {
    let _bound = Bound::new("made_in_another_color");
    let (tell, told) = channel();
    let (mut simulation, mut client) = simulated(1, move |cx, incoming| {
        let stream = incoming.open(THERE);
        tell.send(AsyncStream::new(cx, stream).map(drop)).unwrap();
    });
    settle(&mut simulation);
    let refused = told.recv().unwrap().unwrap_err();
    assert!(matches!(refused, Reason::OtherColor { .. }), "{refused}");
    assert_eq!(client.read(&mut [0; 8]).unwrap(), 0);
}

/// A connection whose end came before reads as one that is gone, and does not wait for ever.
#[test]
fn made_of_a_stream_that_has_ended() {
    static READ: Handler = Handler::new("read");
    let _bound = Bound::new("made_of_a_stream");
    let (tell, told) = channel();
    let (mut simulation, client) = simulated(1, move |_, incoming| {
        let tell = tell.clone();
        let (give, given) = channel::<Colored<Calls>>();
        let at_its_end = move |cx: &mut Cx, _: &Stream, data: io::Result<Option<_>>| {
            assert!(data.unwrap().is_none());
            let tell = tell.clone();
            given.recv().unwrap().post(cx, |calls, cx| {
                let stream = calls.take_stream();
                let late = async move {
                    let mut stream = with_cx(|cx| AsyncStream::new(cx, stream)).unwrap();
                    tell.send(stream.read(&mut [0; 8]).await).unwrap();
                };
                cx.spawn(cx.color(), late);
            });
        };
        let session = Calls::new(at_its_end).half_open();
        give.send(session.serve(incoming.open_unique(), &READ))
            .unwrap();
    });
    client.shutdown_write();
    settle(&mut simulation);
    let read = told.recv().unwrap();
    assert_eq!(read.unwrap_err().kind(), ErrorKind::NotConnected);
}

/// By a task of its color or another, by a thread, by whoever cancels the task that waits for it.
#[test]
fn dropped_wherever_it_is_closed() {
    for backend in all_backends() {
        let (at, alive) = (backend.clone(), Alive::default());
        let (count, number) = (alive.clone(), AtomicUsize::new(0));
        let serve = move |cx: &mut Cx, incoming: Incoming| {
            let payload = count.payload();
            let number = number.fetch_add(1, Ordering::Relaxed);
            task(cx, incoming, move |mut stream| async move {
                let _payload = payload;
                stream.write_all(b"bye").await.unwrap();
                match number {
                    0 => drop(stream),
                    1 => drop(with_cx(|cx| cx.spawn(THERE, async move { drop(stream) })).await),
                    2 => drop(thread::spawn(move || drop(stream))),
                    _ => {
                        let reading = async move { stream.read(&mut [0; 8]).await };
                        let reading = with_cx(|cx| cx.spawn(cx.color(), reading));
                        sleep(Duration::from_millis(1)).await;
                        drop(reading.cancel_on_drop());
                    }
                }
            });
        };
        with_server("dropped_wherever", on(&backend), serve, move |addr| {
            for _ in 0..4 {
                let mut client = Client::connect(&at, addr);
                assert_eq!(client.rest(), b"bye");
            }
        });
        assert_eq!(alive.count(), 0);
    }
}

/// The waker that a stream has is of the task that owns the stream.
#[test]
fn a_run_that_is_cut_short_leaves_nothing() {
    for backend in all_backends() {
        let _bound = Bound::new("a_run_that_is_cut_short");
        let alive = Alive::default();
        let payload = alive.payload();
        let builder = on(&backend).drain_deadline(Duration::from_millis(50));
        // Its read waits until then.
        let builder = builder.stage_limit(Stage::Drain, LONG);
        let runtime = builder.build().unwrap();
        let (poster, net) = (runtime.poster(), backend.clone());
        let result = runtime.run(move |cx| {
            let (tell, addr) = channel();
            let payload = Mutex::new(Some(payload));
            let serve = move |cx: &mut Cx, incoming: io::Result<Incoming>| {
                let payload = payload.lock().unwrap().take();
                let stream = incoming.unwrap().open_unique();
                cx.post(stream.color(), move |cx| {
                    stream.set_under_way(cx, true).unwrap();
                    let mut stream = AsyncStream::new(cx, stream).unwrap();
                    let waits = async move {
                        let _payload = payload;
                        with_cx(|cx| cx.stop());
                        let _ = stream.read(&mut [0; 8]).await.unwrap();
                    };
                    cx.spawn(cx.color(), waits);
                });
            };
            let on_accept = Callback::anonymous_each(ACCEPTING, serve);
            let listener = cx.listen(any_port(), Acceptors::Single, on_accept).unwrap();
            tell.send(listener.local_addr()).unwrap();
            thread::spawn(move || {
                let client = Client::connect(&net, addr.recv().unwrap().ip().unwrap());
                thread::sleep(Duration::from_millis(500));
                drop(client);
            });
        });
        assert!(
            matches!(result, Err(RunError::Deadline { .. })),
            "{result:?}"
        );
        drop(poster);
        assert_eq!(alive.count(), 0, "{backend:?}");
    }
}

/// Panics when it is polled, and has a stream.
struct PanicsWhenPolled(#[allow(dead_code, reason = "for its drop")] AsyncStream);

impl Future for PanicsWhenPolled {
    type Output = ();

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        panic!("when it is polled")
    }
}

/// It is not closed: its peer would take a part for the whole.
#[test]
fn a_task_that_panics_resets_its_connection() {
    for backend in all_backends() {
        let at = backend.clone();
        let builder = on(&backend).on_panic(OnPanic::DropEvent);
        let serve = |cx: &mut Cx, incoming| {
            task(cx, incoming, |mut stream| async move {
                let mut order = [0; 4];
                stream.read_exact(&mut order).await.unwrap();
                stream.write_all(b"a part").await.unwrap();
                match &order {
                    b"here" => panic!("as asked"),
                    b"task" => {
                        with_cx(|cx| cx.spawn(cx.color(), PanicsWhenPolled(stream)));
                    }
                    _ => stream.close().await.unwrap(),
                }
            });
        };
        let client = move |addr| {
            for order in [b"here", b"task", b"well"] {
                let mut client = Client::connect(&at, addr);
                client.write_all(order).unwrap();
                if order == b"well" {
                    assert_eq!(client.rest(), b"a part");
                } else {
                    let got = client.is_reset();
                    assert!(got.is_empty() || got == b"a part", "{got:?}");
                }
            }
        };
        let ((), poster) = with_server(
            "a_task_that_panics",
            builder.panic_hook(|_| ()),
            serve,
            client,
        );
        assert_eq!(poster.stats().panics(), 2);
    }
}

/// Whoever closes the connection below, and with bytes under way: nobody waits for ever.
#[test]
fn closed_below_who_waits_is_told() {
    for backend in all_backends() {
        for writes in [false, true] {
            let at = backend.clone();
            let (tell, told) = channel();
            let tell = Mutex::new(tell);
            let much = big(&backend);
            let serve = move |cx: &mut Cx, incoming: Incoming| {
                let tell = tell.lock().unwrap().clone();
                task(cx, incoming, move |mut stream| async move {
                    let mut closed = false;
                    let ended = poll_fn(|context| {
                        let mut pinned = Pin::new(&mut stream);
                        let polled = match writes {
                            true => pinned.as_mut().poll_write(context, pattern(much)),
                            false => pinned.as_mut().poll_read(context, &mut [0; 8]),
                        };
                        match polled {
                            // More of it.
                            Poll::Ready(Ok(_)) => context.waker().wake_by_ref(),
                            Poll::Ready(Err(error)) => return Poll::Ready(error),
                            Poll::Pending if closed => {}
                            Poll::Pending => {
                                closed = true;
                                with_cx(|cx| stream.get_ref().abort(cx));
                            }
                        }
                        Poll::Pending
                    });
                    tell.send(ended.await.kind()).unwrap();
                });
            };
            with_server("closed_below", on(&backend), serve, move |addr| {
                let client = Client::connect(&at, addr);
                let end = told.recv_timeout(LONG).unwrap();
                assert_eq!(end, ErrorKind::NotConnected, "{at:?}, writes: {writes}");
                drop(client);
            });
        }
    }
}
