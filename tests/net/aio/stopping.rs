//! Streams that tasks use, at the end of a run.

use super::{CANCELED, big, code, pattern, task};
use crate::common::wire::{ACCEPTING, Client, all_backends, any_port, on, with_server};
use crate::common::{Bound, LONG, backends};
use futures::io::{AsyncReadExt, AsyncWriteExt};
use mely::aio::{AsyncStream, UNREAD_BYTES_MAX};
use mely::net::{Acceptors, Incoming};
use mely::task::{stopping, with_cx};
use mely::{Callback, Cx};
use std::io::{self, Write};
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;

/// Who reads is told of a stop; what was written still leaves.
#[test]
fn a_stop_is_an_error_to_readers_and_lets_writers_finish() {
    for backend in all_backends() {
        let (at, len) = (backend.clone(), big(&backend));
        let (tell, told) = channel();
        let serve = move |cx: &mut Cx, incoming| {
            let tell = tell.clone();
            task(cx, incoming, move |mut stream| async move {
                let mut space = [0; 4];
                stream.read_exact(&mut space).await.unwrap();
                with_cx(|cx| cx.stop());
                let error = stream.read(&mut space).await.unwrap_err();
                tell.send(code(&error)).unwrap();
                stream.write_all(pattern(len)).await.unwrap();
                stream.close().await.unwrap();
                let error = stream.read(&mut space).await.unwrap_err();
                tell.send(code(&error)).unwrap();
            });
        };
        let ((back, codes), _) =
            with_server("a_stop_is_an_error", on(&backend), serve, move |addr| {
                let mut client = Client::connect(&at, addr);
                client.write_all(b"four").unwrap();
                let codes = [told.recv().unwrap(), CANCELED];
                // Slower than the server.
                thread::sleep(Duration::from_millis(20));
                (client.exactly(len), [codes[0], told.recv().unwrap()])
            });
        assert!(back == pattern(len), "{backend:?}");
        assert_eq!(codes, [CANCELED; 2], "{backend:?}");
    }
}

/// A task whose reads are paused when the stop comes.
#[test]
fn a_stop_in_the_middle_of_a_transfer() {
    for backend in backends() {
        let at = backend.clone();
        let (tell, told) = channel();
        let serve = move |cx: &mut Cx, incoming| {
            let tell = tell.clone();
            task(cx, incoming, move |mut stream| async move {
                // Reads nothing until the stop, by when receiving is paused.
                stopping().await;
                let mut all = Vec::new();
                let error = stream.read_to_end(&mut all).await.unwrap_err();
                tell.send((code(&error), all)).unwrap();
            });
        };
        let ((), _) = with_server("a_stop_in_the_middle", on(&backend), serve, move |addr| {
            let Client::Tcp(mut client) = Client::connect(&at, addr) else {
                unreachable!()
            };
            client
                .set_write_timeout(Some(Duration::from_secs(1)))
                .unwrap();
            while client.write(pattern(64 << 10)).is_ok() {}
        });
        let (error, all) = told.recv_timeout(LONG).unwrap();
        assert_eq!(error, CANCELED, "{backend:?}");
        assert!(
            (64 << 10..=UNREAD_BYTES_MAX).contains(&all.len()),
            "{}",
            all.len()
        );
        let expected = pattern(64 << 10).repeat(all.len() / (64 << 10) + 1);
        assert!(
            all == expected[..all.len()],
            "{backend:?}: other bytes came"
        );
    }
}

/// A connection that asked for it receives until it is closed: and the run waits for that.
#[test]
fn received_through_a_stop() {
    for backend in all_backends() {
        let (at, (tell, told)) = (backend.clone(), channel());
        let serve = move |cx: &mut Cx, incoming: Incoming| {
            let stream = incoming.open_unique();
            let (color, tell) = (stream.color(), tell.clone());
            let conversation = async move {
                let mut stream = with_cx(|cx| {
                    stream.set_under_way(cx, true)?;
                    AsyncStream::new(cx, stream)
                })
                .unwrap();
                tell.send(()).unwrap();
                stopping().await;
                tell.send(()).unwrap();
                // More than makes it pause.
                let mut asked = vec![0; 200_000];
                stream.read_exact(&mut asked).await.unwrap();
                stream.write_all(&asked).await.unwrap();
                assert_eq!(stream.read(&mut asked).await.unwrap(), 0);
            };
            cx.spawn(color, conversation);
        };
        let builder = on(&backend);
        let _bound = Bound::new("received_through_a_stop");
        let runtime = builder.build().unwrap();
        let poster = runtime.poster();
        let (give, addr) = channel();
        let client = thread::spawn(move || {
            let mut client = Client::connect(&at, addr.recv().unwrap());
            told.recv_timeout(LONG).unwrap();
            poster.stop();
            told.recv_timeout(LONG).unwrap();
            thread::sleep(Duration::from_millis(20));
            let asked = pattern(200_000);
            client.write_all(asked).unwrap();
            client.shutdown_write();
            assert!(client.rest() == asked);
        });
        runtime
            .run(move |cx| {
                let serve = move |cx: &mut Cx, incoming: io::Result<Incoming>| {
                    serve(cx, incoming.unwrap());
                };
                let on_accept = Callback::anonymous_each(ACCEPTING, serve);
                let listener = cx.listen(any_port(), Acceptors::Single, on_accept).unwrap();
                give.send(listener.local_addr().ip().unwrap()).unwrap();
            })
            .unwrap();
        client.join().unwrap();
    }
}

/// Such a connection may be dropped by a thread while the run waits for just that.
#[test]
fn dropped_by_a_thread_after_a_stop() {
    for backend in all_backends() {
        let (at, (tell, told)) = (backend.clone(), channel());
        let serve = move |cx: &mut Cx, incoming: Incoming| {
            let stream = incoming.open_unique();
            let tell: Sender<AsyncStream> = tell.clone();
            cx.post(stream.color(), move |cx| {
                stream.set_under_way(cx, true).unwrap();
                let stream = AsyncStream::new(cx, stream).unwrap();
                cx.stop();
                tell.send(stream).unwrap();
            });
        };
        with_server("dropped_by_a_thread", on(&backend), serve, move |addr| {
            let mut client = Client::connect(&at, addr);
            let stream = told.recv_timeout(LONG).unwrap();
            thread::sleep(Duration::from_millis(50));
            drop(stream);
            assert_eq!(client.rest(), b"");
        });
    }
}

/// Said as often as a protocol likes: a stop is told to a task that waits for its next message.
#[test]
fn under_way_no_more_a_task_is_told_of_a_stop() {
    for backend in all_backends() {
        let at = backend.clone();
        // The stage drain would last for half of that.
        let builder = on(&backend).drain_deadline(2 * LONG);
        let serve = |cx: &mut Cx, incoming: Incoming| {
            task(cx, incoming, |mut stream| async move {
                stream.read_exact(&mut [0]).await.unwrap();
                with_cx(|cx| {
                    stream.get_ref().set_under_way(cx, true).unwrap();
                    stream.get_ref().set_under_way(cx, false).unwrap();
                });
                stream.write_all(b"?").await.unwrap();
                let error = stream.read(&mut [0]).await.unwrap_err();
                assert_eq!(code(&error), CANCELED);
            });
        };
        let client = move |addr| {
            let mut client = Client::connect(&at, addr);
            client.write_all(b"!").unwrap();
            assert_eq!(client.exactly(1), b"?");
            client
        };
        let began = std::time::Instant::now();
        let client = with_server("under_way_no_more", builder, serve, client);
        assert!(began.elapsed() < LONG);
        drop(client);
    }
}
