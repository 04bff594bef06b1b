//! Connections that a runtime opens.

use super::{READ, a_thousand_wait, echo, pattern, settle, simulated_listener};
use crate::common::calls::Calls;
use crate::common::wire::{ACCEPTING, all_backends, any_port, on};
use crate::common::{Bound, LONG, backends};
use mely::net::{Acceptors, Backend, Incoming, RecvBuf, Stream};
use mely::runtime::Finish;
use mely::{Callback, Color, Cx};
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

#[test]
fn a_refused_connect_is_an_error() {
    for backend in all_backends() {
        let _bound = Bound::new("a_refused_connect");
        // A port that was somebody's a moment ago.
        let addr = match &backend {
            Backend::Sim(_) => "127.0.0.1:9".parse().unwrap(),
            _ => TcpListener::bind(any_port()).unwrap().local_addr().unwrap(),
        };
        let run = move |cx: &mut Cx, finish: Finish<ErrorKind>| {
            let connected = move |_cx: &mut Cx, result: io::Result<Incoming>| {
                finish.finish(result.unwrap_err().kind());
            };
            cx.connect(
                addr,
                LONG,
                Callback::anonymous_value(Color::from(2), connected),
            )
            .unwrap();
        };
        let kind = on(&backend).build().unwrap().run_until(run).unwrap();
        assert_eq!(kind, ErrorKind::ConnectionRefused);
    }
}

/// Connects until somebody is kept waiting, by a queue that is full, for longer than the limit.
fn connect_until_late(
    cx: &mut Cx,
    addr: SocketAddr,
    mut before: Vec<Incoming>,
    finish: Finish<io::Error>,
) {
    const LIMIT: Duration = Duration::from_millis(50);
    let begun = cx.now();
    let connected = move |cx: &mut Cx, result: io::Result<Incoming>| match result {
        Ok(incoming) => {
            before.push(incoming);
            assert!(before.len() < 64, "the queue is longer than was asked for");
            connect_until_late(cx, addr, before, finish);
        }
        Err(error) => {
            assert!(cx.now() - begun >= LIMIT, "early");
            finish.finish(error);
        }
    };
    let connected = Callback::anonymous_value(Color::from(2), connected);
    cx.connect(addr, LIMIT, connected).unwrap();
}

#[test]
fn a_connect_gives_up_at_its_limit() {
    for backend in backends() {
        let _bound = Bound::new("a_connect_gives_up");
        // Nobody accepts.
        let listener = TcpListener::bind(any_port()).unwrap();
        rustix::net::listen(&listener, 0).unwrap();
        let addr = listener.local_addr().unwrap();
        let run = move |cx: &mut Cx, finish| connect_until_late(cx, addr, Vec::new(), finish);
        let error = on(&backend).build().unwrap().run_until(run).unwrap();
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        let late = "not connected within the limit of 50ms";
        assert_eq!(error.to_string(), format!("{addr}: {late}"));
    }
}

/// What comes before the limit is told as it is, and no timer is left: the run would not end.
#[test]
fn a_connect_within_its_limit_leaves_no_timer() {
    for backend in all_backends() {
        let _bound = Bound::new("a_connect_within_its_limit");
        let free = TcpListener::bind(any_port()).unwrap();
        let (open, closed) = match &backend {
            Backend::Sim(_) => (None, "127.0.0.1:9".parse().unwrap()),
            _ => {
                let closed = TcpListener::bind(any_port()).unwrap();
                (
                    Some(free.local_addr().unwrap()),
                    closed.local_addr().unwrap(),
                )
            }
        };
        let told = Arc::new(Mutex::new(Vec::new()));
        let tell = Arc::clone(&told);
        let hour = Duration::from_secs(3_600);
        let builder = on(&backend).exit_when_idle(true);
        builder
            .build()
            .unwrap()
            .run(move |cx| {
                for addr in open.into_iter().chain([closed]) {
                    let tell = Arc::clone(&tell);
                    let connected = move |_cx: &mut Cx, result: io::Result<Incoming>| {
                        tell.lock()
                            .unwrap()
                            .push(result.err().map(|error| error.kind()));
                    };
                    let connected = Callback::anonymous_value(Color::from(2), connected);
                    cx.connect(addr, hour, connected).unwrap();
                }
            })
            .unwrap();
        let mut told = told.lock().unwrap();
        told.sort_by_key(Option::is_some);
        let refused = Some(ErrorKind::ConnectionRefused);
        assert_eq!(*told, open.map_or(vec![refused], |_| vec![None, refused]));
    }
}

/// Both ends in one runtime, by its own connect.
#[test]
fn connects_to_itself() {
    for backend in all_backends() {
        let _bound = Bound::new("connects_to_itself");
        let run = |cx: &mut Cx, finish: Finish<Vec<u8>>| {
            let on_accept =
                Callback::anonymous_each(ACCEPTING, |cx: &mut Cx, incoming: io::Result<_>| {
                    echo(cx, incoming.unwrap());
                });
            let listener = cx
                .listen(any_port(), Acceptors::PerCore, on_accept)
                .unwrap();
            let addr = listener.local_addr();
            let server = addr.clone();
            let connected = move |_: &mut Cx, result: io::Result<Incoming>| {
                let incoming = result.unwrap();
                assert_eq!(incoming.peer_addr().unwrap(), server);
                let mut got = Vec::new();
                let collect = move |cx: &mut Cx, stream: &Stream, data: io::Result<_>| {
                    let data: Option<RecvBuf> = data.unwrap();
                    // A connection that no core has accepted yet would end with its listener.
                    let _listener = &listener;
                    got.extend_from_slice(&data.unwrap());
                    if got.len() == 100_000 {
                        stream.close(cx);
                        finish.finish(std::mem::take(&mut got));
                    }
                };
                Calls::new(collect).open(incoming.open_unique(), &READ, |cx, stream| {
                    stream.write(cx, pattern(100_000)).unwrap();
                });
            };
            cx.connect(
                addr,
                LONG,
                Callback::anonymous_value(Color::from(2), connected),
            )
            .unwrap();
        };
        let back = on(&backend).build().unwrap().run_until(run).unwrap();
        assert!(back == pattern(100_000));
    }
}

/// Also behind the colors of a thousand others.
#[test]
fn who_connects_does_not_wait_for_a_turn_of_each_color() {
    let ran = Arc::new(AtomicUsize::new(0));
    let before = Arc::new(AtomicUsize::new(usize::MAX));
    let (count, told) = (Arc::clone(&ran), Arc::clone(&before));
    let (mut simulation, addr) = simulated_listener(move |_cx, _incoming| {
        told.store(count.load(Ordering::Relaxed), Ordering::Relaxed);
    });
    a_thousand_wait(&mut simulation, &ran);
    let _client = simulation.network().connect(addr).unwrap();
    settle(&mut simulation);
    assert_eq!(ran.load(Ordering::Relaxed), 1_000);
    let before = before.load(Ordering::Relaxed);
    assert!(before < 100, "{before} went before");
}
