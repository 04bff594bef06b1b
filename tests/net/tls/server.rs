//! mely as the server.

use super::*;
use crate::common::LONG;
use crate::common::wire::{all_backends, on, with_server};
use mely::net::{Backend, Incoming};
use mely::tls::Info;
use mely::tls::rustls::server::WebPkiClientVerifier;
use mely::tls::rustls::{self, version};
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// A server that echoes, on each backend, and a client against it, which is told each end of a
/// session and each handshake that has failed.
fn with_echo(
    what: &'static str,
    acceptor: Acceptor,
    client: impl Fn(&Backend, SocketAddr, &Receiver<String>) + Clone + Send + 'static,
) {
    for backend in all_backends() {
        let (tell, told) = channel();
        let (at, client, acceptor) = (backend.clone(), client.clone(), acceptor.clone());
        let tell = Mutex::new(tell);
        let serve = move |cx: &mut Cx, incoming: Incoming| {
            let tell = tell.lock().unwrap().clone();
            let secured = acceptor.secure(cx, incoming.open_unique());
            let then =
                move |_: &mut Cx, secured: Result<io::Result<Stream>, _>| match secured.unwrap() {
                    Ok(stream) => {
                        stream.serve(&SERVE, |_, stream, _| Echo { stream, tell });
                    }
                    Err(error) => {
                        let told = format!("{:?}: {error}", error.kind());
                        let _ = tell.send(told);
                    }
                };
            secured.then(cx, SERVE.on_value(mely::Color::from(5), then));
        };
        let run = move |addr| client(&at, addr, &told);
        with_server(what, on(&backend), serve, run);
    }
}

#[test]
fn bytes_of_any_length_are_echoed() {
    with_echo("echo", acceptor(), |backend, addr, told| {
        let mut client = tls_client(trusting(), Client::connect(backend, addr));
        for bytes in [
            1, 2, 5, 100, 4_000, 16_383, 16_384, 16_385, 100_000, 300_000,
        ] {
            let sent = pattern(bytes);
            let mut echoed = vec![0; bytes];
            for part in sent.chunks(50_000).zip(echoed.chunks_mut(50_000)) {
                io::Write::write_all(&mut client, part.0).unwrap();
                client.read_exact(part.1).unwrap();
            }
            assert_eq!(sent, echoed, "{bytes}");
        }
        assert_eq!(close(client), b"");
        assert_eq!(told.recv_timeout(LONG).unwrap(), "Ok(())");
    });
}

/// With the client's last message of the handshake, in one packet, and the end behind it.
#[test]
fn what_comes_with_the_handshake_is_not_lost() {
    with_echo("with the handshake", acceptor(), |backend, addr, told| {
        for bytes in [0, 10, 60_000] {
            let mut client = tls_client(trusting(), Client::connect(backend, addr));
            let sent = pattern(bytes);
            while client.conn.wants_write() {
                client.conn.write_tls(&mut client.sock).unwrap();
            }
            while client.conn.is_handshaking() {
                client.conn.read_tls(&mut client.sock).unwrap();
                client.conn.process_new_packets().unwrap();
            }
            // Its last message of the handshake is not sent yet.
            io::Write::write_all(&mut client.conn.writer(), &sent).unwrap();
            client.conn.send_close_notify();
            let mut all = Vec::new();
            while client.conn.wants_write() {
                client.conn.write_tls(&mut all).unwrap();
            }
            io::Write::write_all(&mut client.sock, &all).unwrap();
            client.sock.shutdown_write();
            let mut echoed = Vec::new();
            client.read_to_end(&mut echoed).unwrap();
            assert_eq!(echoed, sent);
            assert_eq!(told.recv_timeout(LONG).unwrap(), "Ok(())");
        }
    });
}

#[test]
fn an_end_without_close_notify_is_an_error() {
    with_echo("cut off", acceptor(), |backend, addr, told| {
        let mut client = tls_client(trusting(), Client::connect(backend, addr));
        io::Write::write_all(&mut client, b"part").unwrap();
        client.read_exact(&mut [0; 4]).unwrap();
        client.sock.shutdown_write();
        let told = told.recv_timeout(LONG).unwrap();
        assert!(
            told.contains("UnexpectedEof") && told.contains("close_notify"),
            "{told}"
        );
    });
}

#[test]
fn what_is_no_tls_is_refused_by_an_alert() {
    with_echo("no TLS", acceptor(), |backend, addr, told| {
        for wrong in [
            &b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"[..],
            &[22, 3, 1, 0, 4, 99, 0, 0, 0],
            &[0xff; 9],
        ] {
            let mut client = Client::connect(backend, addr);
            io::Write::write_all(&mut client, wrong).unwrap();
            let mut answer = Vec::new();
            // Closed, perhaps with a reset behind the alert.
            let _ = client.read_to_end(&mut answer);
            if !answer.is_empty() {
                assert_eq!(answer[0], 21, "an alert: {answer:?}");
            }
            let told = told.recv_timeout(LONG).unwrap();
            assert!(told.starts_with("InvalidData: TLS with "), "{told}");
        }
    });
}

#[test]
fn a_record_that_was_changed_ends_the_connection() {
    with_echo("changed", acceptor(), |backend, addr, told| {
        let mut client = tls_client(trusting(), Client::connect(backend, addr));
        io::Write::write_all(&mut client, b"right").unwrap();
        client.read_exact(&mut [0; 5]).unwrap();
        let mut records = Vec::new();
        for text in [&b"right"[..], b"wrong"] {
            io::Write::write_all(&mut client.conn.writer(), text).unwrap();
            client.conn.write_tls(&mut records).unwrap();
        }
        *records.last_mut().unwrap() ^= 1;
        io::Write::write_all(&mut client.sock, &records).unwrap();
        let error = client.read(&mut [0; 5]).unwrap_err();
        assert!(error.to_string().contains("BadRecordMac"), "{error}");
        let mut told = told.iter().skip_while(|told| told == "refused");
        let told = told.next().unwrap();
        assert!(
            told.contains("InvalidData") && told.contains("decrypt"),
            "{told}"
        );
    });
}

#[test]
fn a_handshake_has_a_limit() {
    let acceptor = acceptor().handshake_timeout(Duration::from_millis(30));
    with_echo("slow", acceptor, |backend, addr, told| {
        for begun in [&b""[..], &[22, 3, 1, 2, 0, 1, 0, 1, 252]] {
            let mut client = Client::connect(backend, addr);
            io::Write::write_all(&mut client, begun).unwrap();
            let told = told.recv_timeout(LONG).unwrap();
            assert!(
                told.starts_with("TimedOut: the TLS handshake with "),
                "{told}"
            );
            assert_eq!(client.read(&mut [0; 9]).unwrap_or(0), 0);
        }
        // A client that has left before it has begun.
        drop(Client::connect(backend, addr));
        assert!(
            told.recv_timeout(LONG)
                .unwrap()
                .starts_with("UnexpectedEof")
        );
    });
}

#[test]
fn clients_may_change_their_keys() {
    with_echo("keys", acceptor(), |backend, addr, _| {
        let mut client = tls_client(trusting(), Client::connect(backend, addr));
        for round in 0..5 {
            let sent = pattern(10_000 + round);
            io::Write::write_all(&mut client, &sent).unwrap();
            let mut echoed = vec![0; sent.len()];
            client.read_exact(&mut echoed).unwrap();
            assert_eq!(echoed, sent);
            client.conn.refresh_traffic_keys().unwrap();
        }
        close(client);
    });
}

/// Serves each connection by what is negotiated.
fn negotiated(
    config: ServerConfig,
    client: impl Fn(&Backend, SocketAddr) + Clone + Send + 'static,
) -> Vec<Info> {
    let mut infos = Vec::new();
    let acceptor = Acceptor::new(config).unwrap();
    for backend in all_backends() {
        let (tell, told) = channel();
        let (at, client, acceptor) = (backend.clone(), client.clone(), acceptor.clone());
        let tell = Mutex::new(tell);
        let serve = move |cx: &mut Cx, incoming: Incoming| {
            let tell = tell.lock().unwrap().clone();
            let (stream, acceptor) = (incoming.open_unique(), acceptor.clone());
            assert!(stream.tls(cx).is_err(), "another color");
            cx.spawn(stream.color(), async move {
                let Ok(mut stream) = acceptor.accept(stream).await else {
                    return;
                };
                let info = mely::task::with_cx(|cx| stream.get_ref().tls(cx));
                tell.send(info.unwrap().unwrap()).unwrap();
                futures::io::AsyncWriteExt::write_all(&mut stream, b"hello")
                    .await
                    .unwrap();
                futures::io::AsyncWriteExt::close(&mut stream)
                    .await
                    .unwrap();
            });
        };
        let run = move |addr| client(&at, addr);
        with_server("negotiated", on(&backend), serve, run);
        infos.extend(told.try_iter());
    }
    infos
}

fn hello(config: impl Into<Arc<ClientConfig>>, backend: &Backend, addr: SocketAddr) {
    let mut client = tls_client(config, Client::connect(backend, addr));
    let mut heard = Vec::new();
    client.read_to_end(&mut heard).unwrap();
    assert_eq!(heard, b"hello");
}

#[test]
fn protocol_and_names_are_told() {
    let mut config = AUTHORITY.server("localhost", |_| ());
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let infos = negotiated(config, |backend, addr| {
        let mut config = trusting();
        config.alpn_protocols = vec![b"spdy".to_vec(), b"http/1.1".to_vec()];
        hello(config, backend, addr);
    });
    for info in infos {
        assert_eq!(info.protocol.as_deref(), Some(&b"http/1.1"[..]));
        assert_eq!(info.server_name.as_deref(), Some("localhost"));
        assert_eq!(info.version, Some(rustls::ProtocolVersion::TLSv1_3));
        assert!(info.peer_certificates.is_empty() && !info.is_resumed);
        assert!(info.cipher_suite.is_some());
    }
}

#[test]
fn sessions_are_resumed_in_both_versions() {
    for version in [&version::TLS12, &version::TLS13] {
        let infos = negotiated(AUTHORITY.server("localhost", |_| ()), |backend, addr| {
            let config = ClientConfig::builder_with_protocol_versions(&[version]);
            let config = config.with_root_certificates(AUTHORITY.roots());
            let config = Arc::new(config.with_no_client_auth());
            hello(Arc::clone(&config), backend, addr);
            hello(config, backend, addr);
        });
        let resumed: Vec<bool> = infos.iter().map(|info| info.is_resumed).collect();
        assert_eq!(
            resumed,
            [false, true].repeat(infos.len() / 2),
            "{version:?}"
        );
    }
}

#[test]
fn a_client_is_asked_for_its_certificate() {
    let verifier = WebPkiClientVerifier::builder(AUTHORITY.roots().into())
        .build()
        .unwrap();
    let (chain, key) = AUTHORITY.issue("localhost", |_| ());
    let config = ServerConfig::builder().with_client_cert_verifier(verifier);
    let config = config.with_single_cert(chain, key).unwrap();
    let infos = negotiated(config, |backend, addr| {
        let (chain, key) = AUTHORITY.issue("client", |_| ());
        let config = ClientConfig::builder().with_root_certificates(AUTHORITY.roots());
        hello(
            config.with_client_auth_cert(chain, key).unwrap(),
            backend,
            addr,
        );
        // One without any.
        let mut client = tls_client(trusting(), Client::connect(backend, addr));
        let refused = client.read(&mut [0; 5]).unwrap_err();
        assert!(
            refused.to_string().contains("CertificateRequired"),
            "{refused}"
        );
    });
    for info in infos {
        assert_eq!(info.peer_certificates.len(), 1);
    }
}

#[test]
fn certificates_are_renewed_while_connections_go_on() {
    let acceptor = acceptor();
    let its = acceptor.clone();
    with_echo("renewed", acceptor, move |backend, addr, _| {
        let serial = |client: &TlsClient| client.conn.peer_certificates().unwrap()[0].clone();
        let mut old = tls_client(trusting(), Client::connect(backend, addr));
        io::Write::write_all(&mut old, b"one").unwrap();
        old.read_exact(&mut [0; 3]).unwrap();
        its.set_config(AUTHORITY.server("localhost", |_| ()))
            .unwrap();
        let mut new = tls_client(trusting(), Client::connect(backend, addr));
        for client in [&mut old, &mut new] {
            io::Write::write_all(client, b"two").unwrap();
            client.read_exact(&mut [0; 3]).unwrap();
        }
        assert_ne!(serial(&old), serial(&new));
        let mut early = AUTHORITY.server("localhost", |_| ());
        early.max_early_data_size = 100;
        let refused = its.set_config(early).unwrap_err();
        assert!(
            refused.to_string().contains("max_early_data_size"),
            "{refused}"
        );
    });
}

#[test]
fn failed_handshakes_are_told_and_closed() {
    for backend in all_backends() {
        let (tell, told) = channel();
        let tell = Mutex::new(tell);
        let acceptor = acceptor().on_failure(move |_, error| {
            tell.lock().unwrap().send(error.to_string()).unwrap();
        });
        let runtime = on(&backend).build().unwrap();
        let (poster, (give, addr)) = (runtime.poster(), channel());
        let at = backend.clone();
        let client = std::thread::spawn(move || {
            let addr: SocketAddr = addr.recv().unwrap();
            for _ in 0..20 {
                let mut client = Client::connect(&at, addr);
                io::Write::write_all(&mut client, b"no TLS").unwrap();
                let _ = client.read_to_end(&mut Vec::new());
                assert!(told.recv_timeout(LONG).unwrap().starts_with("TLS with "));
            }
            let mut client = tls_client(trusting(), Client::connect(&at, addr));
            io::Write::write_all(&mut client, b"hi").unwrap();
            client.read_exact(&mut [0; 2]).unwrap();
            poster.stop();
            // The stop ends it in order.
            assert_eq!(client.read(&mut [0; 2]).unwrap(), 0);
        });
        runtime
            .run(move |cx| {
                let (tell, _) = channel();
                let tell = Mutex::new(tell);
                let open = move |_: &mut Cx, stream, _: &_| Echo {
                    stream,
                    tell: tell.lock().unwrap().clone(),
                };
                let any = "127.0.0.1:0";
                let listener =
                    cx.serve_tls(any, mely::net::Acceptors::PerCore, &acceptor, &SERVE, open);
                give.send(listener.unwrap().local_addr().ip().unwrap())
                    .unwrap();
            })
            .unwrap();
        client.join().unwrap();
    }
}
