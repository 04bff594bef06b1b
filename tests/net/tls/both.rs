//! mely at both ends: in a simulation, by pipes, after a STARTTLS, at a stop and at a panic.

use super::*;
use crate::common::LONG;
use crate::common::wire::{all_backends, on, with_server};
use futures::io::{AsyncReadExt, AsyncWriteExt};
use mely::net::{Acceptors, Incoming};
use mely::runtime::OnPanic;
use mely::task::with_cx;
use mely::tls::Connector;
use mely::{Color, Runtime};
use std::io::Write;
use std::sync::Mutex;
use std::sync::mpsc::channel;
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(20);

/// A server of sessions and a client in one simulation, whose network cuts what is sent to pieces.
#[test]
fn a_simulation_has_both_ends() {
    for seed in 0..10 {
        let config = AUTHORITY.server("server.example", |_| ());
        let acceptor = Acceptor::new(config).unwrap();
        let mut simulation = Runtime::builder().cores(2).simulate(seed).unwrap();
        let net = simulation.network().clone();
        net.add_host("server.example", &[[127, 0, 0, 1].into()]);
        let start = move |cx: &mut Cx, finish: mely::runtime::Finish<_>| {
            let open = move |_: &mut Cx, stream, _: &_| Echo {
                stream,
                tell: channel().0,
            };
            let served = cx.serve_tls("127.0.0.1:443", Acceptors::PerCore, &acceptor, &SERVE, open);
            served.unwrap();
            cx.spawn(Color::from(2), async move {
                let connector = Connector::new(trusting());
                let mut stream = connector
                    .connect("server.example:443", LIMIT)
                    .await
                    .unwrap();
                let sent = pattern(40_000);
                stream.write_all(&sent).await.unwrap();
                let mut echoed = vec![0; sent.len()];
                stream.read_exact(&mut echoed).await.unwrap();
                assert!(sent == echoed);
                stream.close().await.unwrap();
                let end = stream.read(&mut [0]).await;
                finish.finish(end.map_err(|error| error.kind()));
            });
        };
        assert_eq!(simulation.run_until(start).unwrap(), Ok(0), "seed {seed}");
    }
}

/// A proxy that ends TLS, and one that begins it: the clear bytes are between them.
#[test]
fn pipes_join_what_is_secured_and_what_is_not() {
    for backend in all_backends() {
        let (at, acceptor) = (backend.clone(), acceptor());
        let connector = Connector::new(trusting());
        let hops = std::sync::atomic::AtomicUsize::new(0);
        let me = Arc::new(Mutex::new(None));
        let addr_of = Arc::clone(&me);
        // The client is the first hop's, which connects to the second; and that one to the third,
        // which echoes under TLS.
        let serve = move |cx: &mut Cx, incoming: Incoming| {
            let hop = hops.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            let me: std::net::SocketAddr = addr_of.lock().unwrap().unwrap();
            let (acceptor, connector) = (acceptor.clone(), connector.clone());
            let stream = incoming.open_unique();
            let color = stream.color();
            cx.spawn(color, async move {
                let secure = async |stream| {
                    with_cx(|cx| acceptor.secure(cx, stream))
                        .await
                        .unwrap()
                        .unwrap()
                };
                let connect = async || {
                    let (tell, told) = tokio::sync::oneshot::channel();
                    with_cx(|cx| {
                        let connected = |_: &mut Cx, incoming: io::Result<Incoming>| {
                            let _ = tell.send(incoming.unwrap().open_unique());
                        };
                        cx.connect(me, LIMIT, SERVE.on_value(Color::from(8), connected))
                            .unwrap();
                    });
                    told.await.unwrap()
                };
                let (from, to) = match hop {
                    0 => (secure(stream).await, connect().await),
                    1 => {
                        let to = connect().await;
                        let secured = with_cx(|cx| connector.secure(cx, to, "localhost")).await;
                        (stream, secured.unwrap().unwrap())
                    }
                    _ => {
                        let stream = secure(stream).await;
                        stream.serve(&SERVE, |_, stream, _| Echo {
                            stream,
                            tell: channel().0,
                        });
                        return;
                    }
                };
                with_cx(|cx| {
                    let over =
                        SERVE.on_value(color, |_: &mut Cx, piped: io::Result<(u64, u64)>| {
                            assert_eq!(piped.unwrap(), (500_000, 500_000));
                        });
                    from.pipe_to(cx, to, 100_000, over).unwrap();
                });
            });
        };
        let run = move |addr| {
            *me.lock().unwrap() = Some(addr);
            let mut client = tls_client(trusting(), Client::connect(&at, addr));
            let sent = pattern(500_000);
            let mut echoed = vec![0; sent.len()];
            for part in sent.chunks(10_000).zip(echoed.chunks_mut(10_000)) {
                client.write_all(part.0).unwrap();
                client.read_exact(part.1).unwrap();
            }
            assert!(sent == echoed);
            assert_eq!(close(client), b"");
        };
        with_server("pipes", on(&backend), serve, run);
    }
}

/// Answers lines in the clear until it is told to go on under TLS.
struct Clear {
    stream: Option<Stream>,
    acceptor: Acceptor,
}

impl Session for Clear {
    fn data(&mut self, cx: &mut Cx, data: RecvBuf) {
        assert_eq!(&data[..], b"STARTTLS\r\n");
        let stream = self.stream.take().unwrap();
        stream.write(cx, "220 go on\r\n").unwrap();
        let secured = self.acceptor.secure(cx, stream);
        let secured_twice = self.acceptor.clone();
        let then = move |cx: &mut Cx, secured: Result<io::Result<Stream>, _>| {
            let stream = secured.unwrap().unwrap();
            stream.write(cx, "hello").unwrap();
            let again = secured_twice.secure(cx, stream);
            let refused = |_: &mut Cx, again: Result<io::Result<Stream>, _>| {
                let error = again.unwrap().err().unwrap();
                assert!(error.to_string().contains("already"), "{error}");
            };
            again.then(cx, SERVE.on_value(cx.color(), refused));
        };
        secured.then(cx, SERVE.on_value(cx.color(), then));
    }
}

#[test]
fn a_session_goes_on_under_tls() {
    for backend in all_backends() {
        let (at, acceptor) = (backend.clone(), acceptor());
        let serve = move |_: &mut Cx, incoming: Incoming| {
            let acceptor = acceptor.clone();
            incoming.serve(&SERVE, move |_, stream, _| Clear {
                stream: Some(stream),
                acceptor,
            });
        };
        let run = move |addr| {
            let mut client = Client::connect(&at, addr);
            client.write_all(b"STARTTLS\r\n").unwrap();
            assert_eq!(client.exactly(11), b"220 go on\r\n");
            let mut client = tls_client(trusting(), client);
            let mut heard = Vec::new();
            client.read_to_end(&mut heard).unwrap();
            assert_eq!(heard, b"hello");
        };
        with_server("STARTTLS", on(&backend), serve, run);
    }
}

/// Says goodbye at the end, or panics when it is told to.
struct Leaves(Stream);

impl Session for Leaves {
    fn data(&mut self, cx: &mut Cx, data: RecvBuf) {
        assert!(&data[..] != b"panic", "as asked");
        self.0.write(cx, data).unwrap();
        cx.stop();
    }

    fn end(&mut self, cx: &mut Cx, _: io::Result<()>) {
        let _ = self.0.write(cx, "goodbye");
    }
}

/// Connections end in order at a stop; those in their handshake are closed, and their callers told.
#[test]
fn a_stop_says_goodbye_under_tls() {
    for backend in all_backends() {
        let (at, acceptor) = (backend.clone(), acceptor());
        let (tell, told) = channel();
        let tell = Mutex::new(tell);
        let serve = move |cx: &mut Cx, incoming: Incoming| {
            let tell = tell.lock().unwrap().clone();
            let secured = acceptor.secure(cx, incoming.open_unique());
            let then = move |_: &mut Cx, secured: Result<io::Result<Stream>, _>| match secured {
                Ok(Ok(stream)) => drop(stream.serve(&SERVE, |_, stream, _| Leaves(stream))),
                Ok(Err(error)) => tell.send(error.raw_os_error()).unwrap(),
                Err(_) => tell.send(None).unwrap(),
            };
            secured.then(cx, SERVE.on_value(Color::from(6), then));
        };
        let run = move |addr| {
            let mut silent = Client::connect(&at, addr);
            let mut client = tls_client(trusting(), Client::connect(&at, addr));
            client.write_all(b"stop").unwrap();
            let mut heard = Vec::new();
            client.read_to_end(&mut heard).unwrap();
            assert_eq!(heard, b"stopgoodbye");
            assert_eq!(silent.read(&mut [0]).unwrap_or(0), 0);
        };
        with_server("a stop", on(&backend), serve, run);
        let told = told.recv_timeout(LONG).unwrap();
        assert_eq!(told, Some(libc::ECANCELED));
    }
}

#[test]
fn a_panic_is_no_end_of_tls() {
    for backend in all_backends() {
        let (at, acceptor) = (backend.clone(), acceptor());
        let serve = serving(acceptor, Leaves);
        let run = move |addr| {
            let mut client = tls_client(trusting(), Client::connect(&at, addr));
            client.write_all(b"panic").unwrap();
            let error = client.read(&mut [0]).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::ConnectionReset, "{error}");
        };
        let builder = on(&backend).on_panic(OnPanic::DropEvent).panic_hook(|_| ());
        with_server("a panic", builder, serve, run);
    }
}
