//! Streams that are paused and resumed.

use super::{READ, pattern, pattern_at, settle, simulated};
use crate::common::calls::Calls;
use crate::common::wire::{Client, all_backends, on, with_server};
use crate::common::{LONG, backends, cores};
use mely::Cx;
use mely::net::{AHEAD_BYTES_MAX, Incoming, RecvBuf, Stream};
use mely::runtime::Stealing;
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// A color is held up while its home core receives. After a pause comes no more than the library
/// says, and after that all of it.
#[test]
fn what_comes_in_spite_of_a_pause_is_bounded() {
    // More than the buffers of a core.
    const ALL: usize = 8 << 20;
    for backend in backends() {
        let (release, released) = channel::<()>();
        let released = Arc::new(Mutex::new(released));
        let (tell, told) = channel();
        let (give, given) = channel();
        let serve = move |cx: &mut Cx, incoming: Incoming| {
            let (released, tell) = (Arc::clone(&released), tell.clone());
            let away = 1 - incoming.home();
            let stream = incoming.open_unique();
            let color = stream.color();
            let (mut seen, mut is_first) = (0, true);
            let count = move |cx: &mut Cx, stream: &Stream, data: io::Result<Option<RecvBuf>>| {
                let Ok(data) = data else { return };
                let Some(data) = data else {
                    return tell.send((seen, true)).unwrap();
                };
                let expected = (seen..).map(pattern_at);
                assert!(data.iter().copied().zip(expected).all(|(a, b)| a == b));
                seen += data.len();
                tell.send((seen, false)).unwrap();
                if std::mem::take(&mut is_first) {
                    stream.pause(cx).unwrap();
                }
            };
            let session = Calls::new(count).serve(stream, &READ);
            give.send((cx.poster(), session.clone())).unwrap();
            session.post(cx, move |_, cx| {
                // Away from its home, where it waits.
                cx.place(color, away);
                cx.post(color, move |_| released.lock().unwrap().recv().unwrap());
            });
        };
        let (at, builder) = (backend.clone(), on(&backend).stealing(Stealing::OFF));
        with_server("what_comes_in_spite", builder, serve, move |addr| {
            let Client::Tcp(mut client) = Client::connect(&at, addr) else {
                unreachable!()
            };
            let (bytes, mut sent) = (pattern(ALL), 0);
            let soon = Duration::from_millis(300);
            client.set_write_timeout(Some(soon)).unwrap();
            // As much as the kernel and the home core take.
            while sent < ALL
                && let Ok(len) = client.write(&bytes[sent..])
            {
                sent += len;
            }
            release.send(()).unwrap();
            let (mut first, mut seen) = (0, 0);
            while let Ok((bytes, _)) = told.recv_timeout(soon) {
                seen = bytes;
                first = if first == 0 { bytes } else { first };
            }
            let most = AHEAD_BYTES_MAX;
            assert!(
                seen - first <= most,
                "{} of {sent} bytes came",
                seen - first
            );
            let (poster, session) = given.recv_timeout(LONG).unwrap();
            let resume = |calls: &mut Calls, cx: &mut Cx| calls.stream().resume(cx).unwrap();
            session.try_post(&poster, resume).unwrap();
            client.set_write_timeout(Some(LONG)).unwrap();
            client.write_all(&bytes[sent..]).unwrap();
            client.shutdown(std::net::Shutdown::Write).unwrap();
            while told.recv_timeout(LONG).unwrap() != (ALL, true) {}
        });
    }
}

/// Bytes arrive while the only core is held up: they are all given before what is to come after
/// them.
#[test]
fn what_has_arrived_comes_before_what_is_to_be_after_it() {
    for backend in all_backends() {
        let (tell, told) = channel::<()>();
        let (sent, was_sent) = channel::<()>();
        let was_sent = Arc::new(Mutex::new(was_sent));
        let (tell_seen, seen) = channel();
        let serve = move |cx: &mut Cx, incoming: Incoming| {
            let (tell, was_sent) = (tell.clone(), Arc::clone(&was_sent));
            let tell_seen = tell_seen.clone();
            let bytes = Arc::new(AtomicUsize::new(0));
            let its = Arc::clone(&bytes);
            let count = move |_: &mut Cx, _: &Stream, data: io::Result<Option<RecvBuf>>| {
                if let Ok(Some(data)) = data {
                    its.fetch_add(data.len(), Ordering::Relaxed);
                }
            };
            let session = Calls::new(count).serve(incoming.open_unique(), &READ);
            // With the receive under way.
            session.post(cx, move |calls, cx| {
                let stream = calls.stream();
                for _ in 0..2 {
                    tell.send(()).unwrap();
                    was_sent.lock().unwrap().recv().unwrap();
                    let (bytes, tell_seen) = (Arc::clone(&bytes), tell_seen.clone());
                    let after = READ.on(stream.color(), move |_: &mut Cx| {
                        tell_seen.send(bytes.load(Ordering::Relaxed)).unwrap();
                    });
                    stream.after_received(cx, after).unwrap();
                }
            });
        };
        let (at, builder) = (backend.clone(), cores(1).backend(backend.clone()));
        with_server("what_has_arrived", builder, serve, move |addr| {
            let mut client = Client::connect(&at, addr);
            for part in [10_000, 20_000] {
                told.recv_timeout(LONG).unwrap();
                client.write_all(&pattern(part)).unwrap();
                sent.send(()).unwrap();
            }
            // The last buffer of these may hold some of the others.
            assert!(seen.recv_timeout(LONG).unwrap() >= 10_000);
            assert_eq!(seen.recv_timeout(LONG), Ok(30_000));
        });
    }
}

#[test]
fn paused_data_waits_and_comes_whole() {
    for backend in all_backends() {
        let at = backend.clone();
        let paused = Arc::new(AtomicBool::new(false));
        let (set, (give, given)) = (Arc::clone(&paused), channel());
        let serve = move |cx: &mut Cx, incoming: Incoming| {
            let paused = Arc::clone(&set);
            let echo = move |cx: &mut Cx, stream: &Stream, data: io::Result<Option<RecvBuf>>| {
                assert!(!paused.load(Ordering::Acquire), "data while paused");
                let Ok(Some(data)) = data else { return };
                stream.write(cx, data.to_vec()).unwrap();
                if &*data == b"pause" {
                    stream.pause(cx).unwrap();
                }
            };
            let session = Calls::new(echo).serve(incoming.open_unique(), &READ);
            give.send((cx.poster(), session)).unwrap();
        };
        with_server("paused_data_waits", on(&backend), serve, move |addr| {
            let mut client = Client::connect(&at, addr);
            let (poster, session) = given.recv_timeout(LONG).unwrap();
            client.write_all(b"pause").unwrap();
            assert_eq!(client.exactly(5), b"pause");
            // The cancel goes to the home core; a moment later it is done.
            std::thread::sleep(Duration::from_millis(50));
            paused.store(true, Ordering::Release);
            client.write_all(&pattern(10_000)).unwrap();
            std::thread::sleep(Duration::from_millis(50));
            paused.store(false, Ordering::Release);
            let resume = |calls: &mut Calls, cx: &mut Cx| calls.stream().resume(cx).unwrap();
            session.try_post(&poster, resume).unwrap();
            assert!(client.exactly(10_000) == pattern(10_000));
        });
    }
}

/// Who has paused, and pauses again, is told nothing.
#[test]
fn a_second_pause_changes_nothing() {
    let calls = Arc::new(AtomicUsize::new(0));
    let its = Arc::clone(&calls);
    let (give, given) = channel();
    let (mut simulation, mut client) = simulated(move |_, stream| {
        let its = Arc::clone(&its);
        let count = move |_: &mut Cx, _: &Stream, _: io::Result<Option<RecvBuf>>| {
            its.fetch_add(1, Ordering::Relaxed);
        };
        give.send(Calls::new(count).serve(stream, &READ)).unwrap();
    });
    settle(&mut simulation);
    let (poster, session) = (simulation.poster(), given.recv().unwrap());
    for _ in 0..3 {
        let pause = |calls: &mut Calls, cx: &mut Cx| calls.stream().pause(cx).unwrap();
        session.try_post(&poster, pause).unwrap();
        settle(&mut simulation);
    }
    client.write_all(b"hello").unwrap();
    settle(&mut simulation);
    assert_eq!(calls.load(Ordering::Relaxed), 0);
    let resume = |calls: &mut Calls, cx: &mut Cx| calls.stream().resume(cx).unwrap();
    session.try_post(&poster, resume).unwrap();
    settle(&mut simulation);
    assert_eq!(calls.load(Ordering::Relaxed), 1);
}

/// Pauses and resumes from wherever the color happens to be: the last one asked for holds.
#[test]
fn pauses_and_resumes_arrive_in_order() {
    for backend in backends() {
        let at = backend.clone();
        let serve = |_: &mut Cx, incoming: Incoming| {
            let mut calls = 0usize;
            let echo = move |cx: &mut Cx, stream: &Stream, data: io::Result<Option<RecvBuf>>| {
                let Ok(Some(data)) = data else { return };
                stream.write(cx, data.to_vec()).unwrap();
                for _ in 0..3 {
                    calls += 1;
                    stream.pause(cx).unwrap();
                    cx.place(cx.color(), calls % 2);
                    stream.resume(cx).unwrap();
                }
            };
            Calls::new(echo).serve(incoming.open_unique(), &READ);
        };
        with_server("pauses_and_resumes", on(&backend), serve, move |addr| {
            let mut clients: Vec<_> = (0..8).map(|_| Client::connect(&at, addr)).collect();
            for round in 0..200u8 {
                clients
                    .iter_mut()
                    .for_each(|c| c.write_all(&[round; 100]).unwrap());
                for client in &mut clients {
                    assert_eq!(client.exactly(100), [round; 100]);
                }
            }
        });
    }
}
