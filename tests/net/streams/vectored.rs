//! Writes of several parts, and callbacks of what has been sent.

use super::*;
use mely::runtime::OnPanic;

/// Parts of many sizes, whose bytes are those of the pattern, in every form.
fn parts(bytes: &[u8]) -> Vec<SendBuf> {
    let sizes = [1, 0, 17, 300, 4_096, 2, 20_000].into_iter().cycle();
    let (mut parts, mut rest) = (Vec::new(), bytes);
    for (i, size) in sizes.enumerate() {
        if rest.is_empty() {
            return parts;
        }
        let (part, behind) = rest.split_at(size.min(rest.len()));
        parts.push(match i % 3 {
            0 => SendBuf::from(part.to_vec()),
            1 => SendBuf::from(Arc::<[u8]>::from(part)),
            _ => SendBuf::from(bytes::Bytes::copy_from_slice(part)),
        });
        rest = behind;
    }
    unreachable!("the sizes go on for ever")
}

/// Mixed with other writes, before and after what the kernel does not take at once.
#[test]
fn parts_are_sent_in_order_with_other_writes() {
    for backend in all_backends() {
        let len = big(&backend) / 4;
        let serve = move |cx: &mut Cx, incoming: Incoming| {
            with_stream(cx, incoming, move |cx, stream| {
                stream.set_write_limit(cx, usize::MAX).unwrap();
                let bytes = pattern(len);
                let mut rest = &bytes[..];
                for (i, size) in [0, 1_000, 50_000, 3, len, 100, 10].into_iter().enumerate() {
                    let (now, behind) = rest.split_at(size.min(rest.len() / 2));
                    rest = behind;
                    if i % 3 == 2 {
                        stream.write(cx, now.to_vec()).unwrap();
                    } else {
                        stream.write_vectored(cx, parts(now)).unwrap();
                    }
                }
                stream.write_vectored(cx, parts(rest)).unwrap();
                stream.write_vectored(cx, Vec::<SendBuf>::new()).unwrap();
                stream.close(cx);
            });
        };
        let at = backend.clone();
        with_server("parts", on(&backend), serve, move |addr| {
            let mut client = Client::connect(&at, addr);
            assert!(client.rest() == pattern(len));
        });
    }
}

/// Also of a received buffer, which is given back.
#[test]
fn a_header_and_what_was_received_are_one_answer() {
    for backend in all_backends() {
        let answer = |cx: &mut Cx, incoming: Incoming| {
            let answer = |cx: &mut Cx, stream: &Stream, data: io::Result<Option<RecvBuf>>| {
                if let Ok(Some(data)) = data {
                    let header = SendBuf::from(format!("{}:", data.len()));
                    stream.write_vectored(cx, [header, data.into()]).unwrap();
                }
            };
            let _ = cx;
            Calls::new(answer).serve(incoming.open_unique(), &READ);
        };
        let at = backend.clone();
        with_server("a header", on(&backend), answer, move |addr| {
            let mut client = Client::connect(&at, addr);
            for _ in 0..200 {
                client.write_all(b"hello").unwrap();
                assert_eq!(client.exactly(7), b"5:hello");
            }
        });
    }
}

#[test]
fn the_write_limit_is_for_all_parts_together() {
    for backend in all_backends() {
        let (tell, told) = channel();
        let serve = move |cx: &mut Cx, incoming: Incoming| {
            let tell = tell.clone();
            with_stream(cx, incoming, move |cx, stream| {
                stream.set_write_limit(cx, 1_000).unwrap();
                // With nothing queued one write is always taken.
                let len = stream
                    .write_vectored(cx, parts(&pattern(BIG / 2)))
                    .map(|()| 0);
                let refused = stream
                    .write_vectored(cx, ["to", "o ", "mu", "ch"])
                    .unwrap_err();
                let joined = refused.value.iter().map(|part| part.to_vec());
                tell.send((
                    len.is_ok(),
                    refused.reason,
                    joined.collect::<Vec<_>>().concat(),
                ))
                .unwrap();
                stream.abort(cx);
                let closed = stream.write_vectored(cx, ["late"]).unwrap_err();
                tell.send((true, closed.reason, closed.value[0].to_vec()))
                    .unwrap();
                let color = stream.color();
                cx.post(Color::from(u64::MAX), move |cx| {
                    let refused = stream.write_vectored(cx, ["x"]).unwrap_err();
                    let sent = Callback::anonymous_value(color, |_: &mut Cx, _: io::Result<()>| ());
                    assert!(stream.on_sent(cx, sent).is_err());
                    tell.send((true, refused.reason, Vec::new())).unwrap();
                });
            });
        };
        let at = backend.clone();
        with_server("the write limit", on(&backend), serve, move |addr| {
            let client = Client::connect(&at, addr);
            let next = || told.recv_timeout(LONG).unwrap();
            assert_eq!(next(), (true, Reason::NoRoom, b"too much".to_vec()));
            assert_eq!(next(), (true, Reason::Closed, b"late".to_vec()));
            assert!(matches!(next(), (true, Reason::OtherColor { .. }, _)));
            drop(client);
        });
    }
}

/// Small and empty parts take memory too.
#[test]
fn the_write_limit_bounds_the_number_of_parts() {
    for backend in all_backends() {
        let (tell, told) = channel();
        let len = big(&backend);
        let serve = move |cx: &mut Cx, incoming: Incoming| {
            let tell = tell.clone();
            with_stream(cx, incoming, move |cx, stream| {
                // Nobody reads it yet.
                stream.write(cx, pattern(len)).unwrap();
                let queued_bytes = stream.queued_bytes(cx).unwrap();
                assert!(queued_bytes > 0);
                stream.set_write_limit(cx, queued_bytes + 1_000).unwrap();
                stream.write_vectored(cx, ["c", "", "d"]).unwrap();
                stream.write_vectored(cx, vec![""; 100_000]).unwrap();
                let refused = stream.write_vectored(cx, ["x"; 20]).unwrap_err();
                tell.send((refused.reason, refused.value.len())).unwrap();
                stream.close(cx);
            });
        };
        let at = backend.clone();
        with_server("parts are counted", on(&backend), serve, move |addr| {
            let mut client = Client::connect(&at, addr);
            assert_eq!(told.recv_timeout(LONG).unwrap(), (Reason::NoRoom, 20));
            assert!(client.exactly(len) == pattern(len));
            assert_eq!(client.rest(), b"cd");
        });
    }
}

/// Told in order, each once: of what went at once, and of what had to wait, before what is behind.
#[test]
fn each_part_is_told_when_it_is_sent() {
    for backend in all_backends() {
        let len = big(&backend);
        let (tell, told) = channel();
        let serve = move |cx: &mut Cx, incoming: Incoming| {
            let tell = tell.clone();
            with_stream(cx, incoming, move |cx, stream| {
                stream.set_write_limit(cx, usize::MAX).unwrap();
                let mark = |cx: &mut Cx, name: &'static str| {
                    let tell = tell.clone();
                    let sent = move |cx: &mut Cx, result: io::Result<()>| {
                        result.unwrap();
                        let _ = cx;
                        tell.send(name).unwrap();
                    };
                    let callback = Callback::anonymous_value(stream.color(), sent);
                    stream.on_sent(cx, callback).unwrap();
                };
                mark(cx, "nothing");
                stream.write(cx, "a").unwrap();
                mark(cx, "first");
                mark(cx, "first again");
                stream.write(cx, "b").unwrap();
                stream.write(cx, "c").unwrap();
                mark(cx, "gathered");
                stream.write_vectored(cx, parts(&pattern(len))).unwrap();
                mark(cx, "parts");
                stream.write(cx, pattern(len)).unwrap();
                mark(cx, "more");
                stream.write(cx, "z").unwrap();
                mark(cx, "last");
                // Those that wait are told also then.
                stream.close(cx);
                assert_eq!(
                    stream.on_sent(
                        cx,
                        Callback::anonymous_value(
                            stream.color(),
                            |_: &mut Cx, _: io::Result<()>| ()
                        )
                    ),
                    Err(Reason::Closed)
                );
            });
        };
        let at = backend.clone();
        with_server("marks", on(&backend), serve, move |addr| {
            let mut client = Client::connect(&at, addr);
            let names = |count: usize| {
                let next = |_| told.recv_timeout(LONG).unwrap();
                (0..count).map(next).collect::<Vec<_>>()
            };
            assert_eq!(client.exactly(3), b"abc");
            let mut seen = names(4);
            assert_eq!(seen, ["nothing", "first", "first again", "gathered"]);
            if !matches!(at, Backend::Sim(_)) {
                // Of what nobody reads not all is sent.
                assert!(told.recv_timeout(Duration::from_millis(20)).is_err());
            }
            assert!(client.exactly(len) == pattern(len));
            seen.extend(names(1));
            assert!(client.exactly(len) == pattern(len));
            assert_eq!(client.rest(), b"z");
            seen.extend(names(2));
            assert_eq!(seen[4..], ["parts", "more", "last"]);
            assert!(told.try_recv().is_err());
        });
    }
}

/// What cannot be sent is told with the error; an abort drops the callback in its color.
#[test]
fn what_is_not_sent_is_told_or_dropped() {
    for backend in all_backends() {
        for aborts in [false, true] {
            let len = big(&backend);
            let (tell, told) = channel();
            let alive = Alive::default();
            let given = alive.clone();
            let serve = move |cx: &mut Cx, incoming: Incoming| {
                let (tell, payload) = (tell.clone(), given.payload());
                with_stream(cx, incoming, move |cx, stream| {
                    stream.set_write_limit(cx, usize::MAX).unwrap();
                    stream.write_vectored(cx, parts(&pattern(len))).unwrap();
                    let its = tell.clone();
                    let sent = move |_: &mut Cx, result: io::Result<()>| {
                        drop(payload);
                        its.send(result.is_err()).unwrap();
                    };
                    let callback = Callback::anonymous_value(stream.color(), sent);
                    stream.on_sent(cx, callback).unwrap();
                    let sent = move |_: &mut Cx, result: io::Result<()>| {
                        tell.send(result.is_err()).unwrap();
                    };
                    let callback = Callback::anonymous_value(stream.color(), sent);
                    stream.on_sent(cx, callback).unwrap();
                    if aborts {
                        stream.abort(cx);
                    } else {
                        // Kept until the peer has gone.
                        Calls::new(|_, _, _| ()).serve(stream, &READ);
                    }
                });
            };
            let builder = on(&backend).on_panic(OnPanic::Stop);
            let at = backend.clone();
            with_server("not sent", builder, serve, move |addr| {
                let mut client = Client::connect(&at, addr);
                if aborts {
                    eventually("the callback is dropped", || alive.count() == 0);
                    assert!(told.try_recv().is_err(), "and not called");
                } else {
                    // With much unread: a reset.
                    client.exactly(10);
                    drop(client);
                    let next = || told.recv_timeout(LONG).unwrap();
                    assert!(next() && next());
                }
            });
        }
    }
}

/// As a panic of any callback of a connection; other marks are dropped.
#[test]
fn a_callback_that_panics_resets_its_connection() {
    for backend in all_backends() {
        let alive = Alive::default();
        let given = alive.clone();
        let serve = move |cx: &mut Cx, incoming: Incoming| {
            let payload = given.payload();
            with_stream(cx, incoming, move |cx, stream| {
                stream.set_write_limit(cx, usize::MAX).unwrap();
                stream.write(cx, "all").unwrap();
                let panics = |_: &mut Cx, _: io::Result<()>| panic!("on purpose");
                let callback = Callback::anonymous_value(stream.color(), panics);
                stream.on_sent(cx, callback).unwrap();
                stream.write(cx, vec![0; 64 << 20]).unwrap();
                let never = move |_: &mut Cx, _: io::Result<()>| {
                    drop(payload);
                    unreachable!();
                };
                let callback = Callback::anonymous_value(stream.color(), never);
                stream.on_sent(cx, callback).unwrap();
                Calls::none().serve(stream, &READ);
            });
        };
        let builder = on(&backend).on_panic(OnPanic::DropEvent);
        let at = backend.clone();
        with_server("a panic", builder, serve, move |addr| {
            let mut client = Client::connect(&at, addr);
            // What it got before may be lost with that.
            client.is_reset();
            eventually("the other callback is dropped", || alive.count() == 0);
        });
    }
}
