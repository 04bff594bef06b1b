//! How a connection ends: by either end, by an error, by a drop.

use super::{BIG, READ, big, pattern, settle, simulated, with_stream};
use crate::common::calls::Calls;
use crate::common::wire::{Client, all_backends, on, with_server};
use crate::common::{Alive, LONG, backends};
use mely::Reason;
use mely::net::{Backend, Incoming, RecvBuf, Stream};
use mely::runtime::OnPanic;
use mely::{Colored, Cx, Handler, Rejected};
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

#[test]
fn half_closed_by_the_client() {
    for backend in all_backends() {
        let at = backend.clone();
        let serve = |_: &mut Cx, incoming: Incoming| {
            let mut got = Vec::new();
            let collect = move |cx: &mut Cx, stream: &Stream, data: io::Result<Option<RecvBuf>>| {
                match data.unwrap() {
                    Some(data) => got.extend_from_slice(&data),
                    None => {
                        // After the end of what it said, the answer.
                        got.reverse();
                        stream.write(cx, std::mem::take(&mut got)).unwrap();
                        stream.close(cx);
                    }
                }
            };
            Calls::new(collect).serve(incoming.open_unique(), &READ);
        };
        with_server(
            "half_closed_by_the_client",
            on(&backend),
            serve,
            move |addr| {
                let mut client = Client::connect(&at, addr);
                client.write_all(b"stressed").unwrap();
                client.shutdown_write();
                assert_eq!(client.rest(), b"desserts");
            },
        );
    }
}

/// `write_now` says that everything has left, or `drained` does: never both, never neither.
#[test]
fn what_has_left_is_told_once() {
    for backend in all_backends() {
        let (at, len) = (backend.clone(), big(&backend));
        let simulated = matches!(&backend, Backend::Sim(_));
        let (tell, told) = channel();
        let serve = move |cx: &mut Cx, incoming: Incoming| {
            let tell = tell.clone();
            let waiting = Arc::new(AtomicUsize::new(0));
            let its = Arc::clone(&waiting);
            let drained = move |_: &mut Cx, _: &Stream| {
                tell.send(its.swap(0, Ordering::Relaxed)).unwrap();
            };
            // It is closed when the client has closed, so that what is told late is told.
            let session = Calls::none().on_drained(drained);
            let session = session.serve(incoming.open_unique(), &READ);
            // In an event after the one that opens it, so that it would hear of every send.
            session.post(cx, move |calls, cx| {
                let stream = calls.stream();
                stream.set_write_limit(cx, usize::MAX).unwrap();
                for (bytes, small) in [(pattern(5), true), (pattern(len), false)] {
                    let left = stream.write_now(cx, bytes).unwrap();
                    assert!(left == small || simulated, "{small}");
                    assert_eq!(left, stream.queued_bytes(cx).unwrap() == 0);
                    waiting.fetch_add(usize::from(!left), Ordering::Relaxed);
                }
                if !simulated {
                    // Behind what is under way it waits, however small it is.
                    assert!(!stream.write_now(cx, "last").unwrap());
                    waiting.fetch_add(1, Ordering::Relaxed);
                }
            });
        };
        with_server("what_has_left", on(&backend), serve, move |addr| {
            let mut client = Client::connect(&at, addr);
            assert!(client.exactly(5) == pattern(5));
            assert!(client.exactly(len) == pattern(len));
            if !simulated {
                assert_eq!(client.exactly(4), b"last");
                assert_eq!(told.recv_timeout(LONG), Ok(2));
            }
            client.shutdown_write();
            assert_eq!(client.rest(), b"");
            let late: Vec<usize> = told.try_iter().collect();
            // Simulated kernels take what they like at once, and then nobody is told twice.
            assert!(late.len() <= usize::from(simulated), "{late:?}");
            assert!(late.iter().all(|&waited| waited > 0), "{late:?}");
        });
    }
}

/// The end of the stream follows what is queued; from then on writes are refused, receiving goes
/// on.
#[test]
fn half_closed_by_the_server() {
    for backend in all_backends() {
        let (at, len) = (backend.clone(), big(&backend));
        let (tell, told) = channel();
        let serve = move |_: &mut Cx, incoming: Incoming| {
            let tell = tell.clone();
            let refuses = |cx: &mut Cx, stream: &Stream| {
                let closed = stream.write(cx, "more");
                assert!(
                    matches!(
                        closed,
                        Err(Rejected {
                            reason: Reason::Closed,
                            ..
                        })
                    ),
                    "{closed:?}"
                );
            };
            let mut got = Vec::new();
            let collect = move |_: &mut Cx, _: &Stream, data: io::Result<Option<RecvBuf>>| {
                match data.unwrap() {
                    Some(data) => got.extend_from_slice(&data),
                    None => tell.send(std::mem::take(&mut got)).unwrap(),
                }
            };
            let begins = move |cx: &mut Cx, stream: &Stream| {
                stream.write(cx, pattern(len)).unwrap();
                stream.shutdown_write(cx).unwrap();
                refuses(cx, stream);
            };
            let session = Calls::new(collect).on_drained(refuses);
            session.open(incoming.open_unique(), &READ, begins);
        };
        with_server(
            "half_closed_by_the_server",
            on(&backend),
            serve,
            move |addr| {
                let mut client = Client::connect(&at, addr);
                assert!(client.rest() == pattern(len));
                client.write_all(b"still here").unwrap();
                client.shutdown_write();
                assert_eq!(told.recv_timeout(LONG).unwrap(), b"still here");
            },
        );
    }
}

/// Closes the stream some time after the end was told, however late that comes.
fn close_after(cx: &mut Cx, session: &Colored<Calls>, ends: Arc<AtomicUsize>, was_told: bool) {
    let again = session.clone();
    let look = session.on(&READ, move |calls, cx| {
        if was_told {
            return calls.stream().close(cx);
        }
        let is_told = ends.load(Ordering::Relaxed) > 0;
        close_after(cx, &again, ends, is_told);
    });
    cx.timer(Duration::from_millis(50), look);
}

/// With nothing queued the end of the stream is sent at once; receiving goes on.
#[test]
fn half_closed_with_nothing_queued() {
    let (tell, told) = channel();
    let (mut simulation, mut client) = simulated(move |_, stream| {
        let tell = tell.clone();
        let report = move |_: &mut Cx, _: &Stream, data: io::Result<Option<RecvBuf>>| {
            tell.send(data.unwrap().unwrap().to_vec()).unwrap();
        };
        Calls::new(report).open(stream, &READ, |cx, stream| {
            stream.shutdown_write(cx).unwrap();
        });
    });
    settle(&mut simulation);
    assert_eq!(client.read(&mut [0; 9]).unwrap(), 0, "the end");
    client.write_all(b"still here").unwrap();
    settle(&mut simulation);
    assert_eq!(told.try_recv().unwrap(), b"still here");
}

/// The end of the stream is told once, whatever is asked for afterwards.
#[test]
fn the_end_is_told_once() {
    for backend in all_backends() {
        let at = backend.clone();
        let ends = Arc::new(AtomicUsize::new(0));
        let seen = Arc::clone(&ends);
        let serve = move |cx: &mut Cx, incoming: Incoming| {
            let ends = Arc::clone(&ends);
            let told = Arc::clone(&ends);
            let count = move |cx: &mut Cx, stream: &Stream, data: io::Result<Option<RecvBuf>>| {
                if data.is_ok_and(|data| data.is_none()) {
                    ends.fetch_add(1, Ordering::Relaxed);
                    stream.pause(cx).unwrap();
                    stream.resume(cx).unwrap();
                    stream.resume(cx).unwrap();
                }
            };
            // Half-open: otherwise the end would close it, and nothing could be asked for.
            let session = Calls::new(count).half_open();
            let session = session.serve(incoming.open_unique(), &READ);
            close_after(cx, &session, told, false);
        };
        with_server("the_end_is_told_once", on(&backend), serve, move |addr| {
            let mut client = Client::connect(&at, addr);
            client.shutdown_write();
            assert_eq!(client.rest(), b"");
        });
        assert_eq!(seen.load(Ordering::Relaxed), 1);
    }
}

#[test]
fn a_reset_is_an_error_and_the_last_call() {
    for backend in all_backends() {
        let at = backend.clone();
        let (tell, told) = channel();
        let serve = move |_: &mut Cx, incoming: Incoming| {
            let tell = tell.clone();
            let report = move |_cx: &mut Cx, _: &Stream, data: io::Result<Option<RecvBuf>>| {
                tell.send(data.map(|data| data.unwrap().len())).unwrap();
            };
            Calls::new(report).serve(incoming.open_unique(), &READ);
        };
        with_server("a_reset_is_an_error", on(&backend), serve, move |addr| {
            let mut client = Client::connect(&at, addr);
            client.write_all(b"hello").unwrap();
            assert_eq!(told.recv_timeout(LONG).unwrap().unwrap(), 5);
            client.reset();
            let error = told.recv_timeout(LONG).unwrap().unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ConnectionReset);
            std::thread::sleep(Duration::from_millis(20));
            assert!(told.try_recv().is_err(), "another call after an error");
        });
    }
}

#[test]
fn dropped_anywhere_it_is_closed() {
    for backend in all_backends() {
        for way in [
            "stream elsewhere",
            "stream here",
            "incoming elsewhere",
            "incoming here",
        ] {
            let at = backend.clone();
            let serve = move |cx: &mut Cx, incoming: Incoming| match way {
                "incoming here" => drop(incoming),
                "incoming elsewhere" => drop(std::thread::spawn(move || drop(incoming))),
                _ => {
                    Calls::none()
                        .serve(incoming.open_unique(), &READ)
                        .post(cx, move |calls, cx| {
                            // With a receive under way, and something to say.
                            let stream = calls.take_stream();
                            stream.write(cx, "farewell").unwrap();
                            if way == "stream here" {
                                drop(stream);
                            } else {
                                std::thread::spawn(move || drop(stream));
                            }
                        })
                }
            };
            with_server("dropped_anywhere", on(&backend), serve, move |addr| {
                let mut client = Client::connect(&at, addr);
                let said: &[u8] = if way.starts_with("stream") {
                    b"farewell"
                } else {
                    b""
                };
                assert_eq!(client.rest(), said, "{way}");
            });
            if let Backend::Sim(net) = &backend {
                assert_eq!(net.open_count(), 0, "{way}");
            }
        }
    }
}

/// A peer that reads nothing and then vanishes, with much on its way to it.
#[test]
fn sending_ends_with_an_error_when_the_peer_vanishes() {
    for backend in all_backends() {
        let at = backend.clone();
        let (tell, told) = channel();
        let serve = move |cx: &mut Cx, incoming: Incoming| {
            let tell = tell.clone();
            let ends = move |cx: &mut Cx, stream: &Stream, data: io::Result<Option<RecvBuf>>| {
                let closed = stream.write(cx, "more");
                assert!(
                    matches!(
                        closed,
                        Err(Rejected {
                            reason: Reason::Closed,
                            ..
                        })
                    ),
                    "{closed:?}"
                );
                assert_eq!(stream.queued_bytes(cx), Ok(0));
                tell.send(data.map(drop).map_err(|error| error.kind()))
                    .unwrap();
            };
            let drained = |_: &mut Cx, _: &Stream| unreachable!("nobody reads");
            let session = Calls::new(ends).on_drained(drained);
            let session = session.serve(incoming.open_unique(), &READ);
            session.post(cx, |calls, cx| {
                let stream = calls.stream();
                // Otherwise it may hear of the reset by receiving, before a send has failed.
                stream.pause(cx).unwrap();
                stream.write(cx, pattern(BIG)).unwrap();
                let full = stream.write(cx, "more");
                assert!(
                    matches!(
                        full,
                        Err(Rejected {
                            reason: Reason::NoRoom,
                            ..
                        })
                    ),
                    "{full:?}"
                );
            });
        };
        with_server("the_peer_vanishes", on(&backend), serve, move |addr| {
            let mut client = Client::connect(&at, addr);
            client.exactly(10_000);
            // By then it is paused.
            std::thread::sleep(Duration::from_millis(20));
            client.reset();
            let kind = told.recv_timeout(LONG).unwrap().unwrap_err();
            assert!(
                matches!(kind, ErrorKind::ConnectionReset | ErrorKind::BrokenPipe),
                "{kind:?}"
            );
        });
    }
}

/// What was written before a close, or before a stop, arrives whole.
#[test]
fn what_was_written_arrives_before_the_end() {
    for backend in backends() {
        for stop in [false, true] {
            let at = backend.clone();
            let serve = move |_: &mut Cx, incoming: Incoming| {
                let begins = move |cx: &mut Cx, stream: &Stream| {
                    for part in pattern(BIG / 4).chunks(1 << 20) {
                        let _ = stream.set_write_limit(cx, usize::MAX);
                        stream.write(cx, part.to_vec()).unwrap();
                    }
                    if stop {
                        cx.stop();
                    } else {
                        stream.close(cx);
                    }
                };
                Calls::none().open(incoming.open_unique(), &READ, begins);
            };
            with_server(
                "what_was_written_arrives",
                on(&backend),
                serve,
                move |addr| {
                    let mut client = Client::connect(&at, addr);
                    std::thread::sleep(Duration::from_millis(20));
                    assert!(client.rest() == pattern(BIG / 4), "stop: {stop}");
                },
            );
        }
    }
}

#[test]
fn an_abort_waits_for_nothing() {
    for backend in all_backends() {
        let at = backend.clone();
        let serve = |cx: &mut Cx, incoming: Incoming| {
            with_stream(cx, incoming, |cx, stream| {
                stream.write(cx, pattern(BIG)).unwrap();
                stream.abort(cx);
                let closed = stream.write(cx, "more");
                assert!(
                    matches!(
                        closed,
                        Err(Rejected {
                            reason: Reason::Closed,
                            ..
                        })
                    ),
                    "{closed:?}"
                );
            });
        };
        with_server("an_abort", on(&backend), serve, move |addr| {
            let mut client = Client::connect(&at, addr);
            let mut got = Vec::new();
            // Cut off, although nothing was read until now, and not as if it were all.
            std::thread::sleep(Duration::from_millis(20));
            let error = client.read_to_end(&mut got).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::ConnectionReset, "{at:?}");
            assert!(got.len() < BIG);
        });
    }
}

/// What the kernel has taken arrives, and the end behind it.
#[test]
fn an_abort_with_nothing_queued_loses_nothing() {
    for backend in backends() {
        let at = backend.clone();
        let serve = |cx: &mut Cx, incoming: Incoming| {
            with_stream(cx, incoming, |cx, stream| {
                stream.write(cx, "all of it").unwrap();
                assert_eq!(stream.queued_bytes(cx), Ok(0));
                stream.abort(cx);
            });
        };
        with_server("an_abort_with_nothing", on(&backend), serve, move |addr| {
            assert_eq!(Client::connect(&at, addr).rest(), b"all of it", "{at:?}");
        });
    }
}

/// A panic in a connection's callback resets that connection, and no other: its peer does not take
/// a part for the whole.
#[test]
fn a_panic_in_a_callback_resets_its_connection() {
    for backend in all_backends() {
        let (at, panics) = (backend.clone(), Arc::new(AtomicUsize::new(0)));
        let count = Arc::clone(&panics);
        let builder = on(&backend)
            .on_panic(OnPanic::DropEvent)
            .panic_hook(move |report| {
                assert_eq!(report.handler, "read");
                count.fetch_add(1, Ordering::Relaxed);
            });
        let serve = |_: &mut Cx, incoming: Incoming| {
            let panics_when_drained = Arc::new(AtomicBool::new(false));
            let its = Arc::clone(&panics_when_drained);
            let answer = move |cx: &mut Cx, stream: &Stream, data: io::Result<Option<RecvBuf>>| {
                let Ok(Some(data)) = data else { return };
                assert!(&*data != b"panic", "as asked");
                if &*data == b"after" {
                    let after = |_: &mut Cx| panic!("when all is received");
                    let after = READ.on(stream.color(), after);
                    stream.after_received(cx, after).unwrap();
                }
                panics_when_drained.store(&*data == b"later", Ordering::Relaxed);
                stream.write(cx, data.to_vec()).unwrap();
            };
            let drained = move |_: &mut Cx, _: &Stream| {
                assert!(!its.load(Ordering::Relaxed), "when drained");
            };
            let session = Calls::new(answer).on_drained(drained);
            session.serve(incoming.open_unique(), &READ);
        };
        with_server("a_panic_in_a_callback", builder, serve, move |addr| {
            let mut clients: Vec<_> = (0..6).map(|_| Client::connect(&at, addr)).collect();
            for client in &mut clients {
                client.write_all(b"hello").unwrap();
                assert_eq!(client.exactly(5), b"hello");
            }
            for (i, order) in [(1, b"panic"), (4, b"later"), (3, b"after")] {
                clients[i].write_all(order).unwrap();
                let got = clients[i].is_reset();
                assert!(got.is_empty() || got == order && i != 1, "{got:?}");
            }
            for i in [0, 2, 5] {
                clients[i].write_all(b"still").unwrap();
                assert_eq!(clients[i].exactly(5), b"still");
            }
        });
        assert_eq!(panics.load(Ordering::Relaxed), 3);
    }
}

/// A half-open connection is closed by whoever drops its stream: nobody else would close it.
#[test]
fn dropped_after_its_end_it_is_closed() {
    for backend in backends() {
        let serve = |_: &mut Cx, incoming: Incoming| {
            let (give, me) = channel::<Colored<Calls>>();
            let ends = move |cx: &mut Cx, _: &Stream, data: io::Result<Option<RecvBuf>>| {
                assert!(data.unwrap().is_none());
                me.recv()
                    .unwrap()
                    .post(cx, |calls, _| drop(calls.take_stream()));
            };
            let session = Calls::new(ends).half_open();
            give.send(session.serve(incoming.open_unique(), &READ))
                .unwrap();
        };
        with_server("dropped after its end", on(&backend), serve, |addr| {
            let mut client = TcpStream::connect(addr).unwrap();
            client.set_read_timeout(Some(LONG)).unwrap();
            client.shutdown(std::net::Shutdown::Write).unwrap();
            assert_eq!(client.read(&mut [0]).unwrap(), 0, "closed");
        });
    }
}

/// Who has been told the end costs no more events, whatever is asked for and however the runtime
/// ends.
#[test]
fn nothing_is_received_after_the_end() {
    static ONCE: Handler = Handler::new("once");
    static OTHERS: Handler = Handler::new("others");
    for ends in [
        "by the peer",
        "by the peer's reset",
        "by a stop",
        "by a stop after a pause",
        "by a stop after a pause and a resume",
    ] {
        let (give, given) = channel();
        let (mut simulation, client) = simulated(move |_, stream| {
            // What the test itself posts runs under another handler.
            let session = Calls::none().half_open().serve(stream, &ONCE);
            give.send(session.via(&OTHERS)).unwrap();
        });
        settle(&mut simulation);
        let poster = simulation.poster();
        let session = given.recv().unwrap();
        match ends {
            "by the peer" => client.shutdown_write(),
            "by the peer's reset" => client.reset(),
            _ => {}
        }
        settle(&mut simulation);
        if ends.starts_with("by the peer") {
            for _ in 0..3 {
                let resume = |calls: &mut Calls, cx: &mut Cx| {
                    calls.stream().resume(cx).unwrap();
                };
                session.try_post(&poster, resume).unwrap();
                settle(&mut simulation);
            }
        }
        let stop = move |calls: &mut Calls, cx: &mut Cx| {
            let stream = calls.stream();
            // The receive is being canceled when the end comes.
            if ends.contains("pause") {
                stream.pause(cx).unwrap();
            }
            if ends.contains("resume") {
                stream.resume(cx).unwrap();
            }
            cx.stop();
        };
        session.try_post(&poster, stop).unwrap();
        settle(&mut simulation);
        simulation.end().unwrap();
        let profile = simulation.profile();
        let once = profile.handlers.iter().find(|its| its.name == "once");
        // The event that opens it, and the one that tells the end.
        assert_eq!(once.unwrap().events(), 2, "{ends}");
    }
}

/// What has arrived is lost by a reset, and the connection closed: what waits for it is dropped.
#[test]
fn a_reset_is_also_the_end_of_what_had_arrived() {
    let alive = Alive::default();
    let given = alive.clone();
    let (mut simulation, mut client) = simulated(move |cx, stream| {
        let payload = given.payload();
        let session = Calls::none().serve(stream, &READ);
        session.post(cx, |calls, cx| calls.stream().pause(cx).unwrap());
        let resume = session.on(&READ, |calls, cx| calls.stream().resume(cx).unwrap());
        // Once the client has written.
        let mark = session.on(&READ, move |calls, cx| {
            let stream = calls.stream();
            let never = READ.on(stream.color(), move |_: &mut Cx| {
                let _payload = &payload;
                unreachable!("nothing is given")
            });
            stream.after_received(cx, never).unwrap();
            cx.timer(Duration::from_secs(2), resume);
        });
        cx.timer(Duration::from_secs(1), mark);
    });
    client.write_all(b"lost").unwrap();
    while simulation.now() < Duration::from_secs(2) {
        simulation.step();
    }
    assert_eq!(alive.count(), 1, "it is not given yet");
    client.reset();
    settle(&mut simulation);
    assert_eq!(alive.count(), 0);
}

/// What is queued behind a send that fails is lost with it, and that is said once.
#[test]
fn a_failed_send_is_the_end_of_what_is_queued() {
    let (tell, told) = channel();
    let (mut simulation, client) = simulated(move |cx, stream| {
        let tell = tell.clone();
        let told = tell.clone();
        let ends = move |cx: &mut Cx, stream: &Stream, data: io::Result<Option<RecvBuf>>| {
            let left = stream.queued_bytes(cx).unwrap();
            tell.send((data.is_err(), left)).unwrap();
        };
        let drained = move |_: &mut Cx, _: &Stream| told.send((false, 0)).unwrap();
        let session = Calls::new(ends).on_drained(drained);
        session.serve(stream, &READ).post(cx, |calls, cx| {
            let stream = calls.stream();
            // Otherwise it hears of the reset by receiving.
            stream.pause(cx).unwrap();
            // More than the network holds, and none fits behind another.
            for _ in 0..3 {
                stream.write(cx, pattern(100_000)).unwrap();
            }
        });
    });
    settle(&mut simulation);
    assert!(told.try_recv().is_err());
    client.reset();
    settle(&mut simulation);
    assert_eq!(told.try_iter().collect::<Vec<_>>(), [(true, 0)]);
}

/// What is thrown away by an abort does not count as queued any more.
#[test]
fn an_abort_leaves_queued_what_is_being_sent() {
    let (tell, told) = channel();
    let (mut simulation, _client) = simulated(move |cx, stream| {
        for _ in 0..3 {
            stream.write(cx, pattern(100_000)).unwrap();
        }
        stream.abort(cx);
        tell.send(stream.queued_bytes(cx).unwrap()).unwrap();
    });
    settle(&mut simulation);
    assert_eq!(told.recv(), Ok(100_000));
}
