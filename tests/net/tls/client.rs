//! mely as the client, of rustls's server on threads.

use super::*;
use crate::common::wire::on;
use crate::common::{Bound, backends};
use futures::io::{AsyncReadExt, AsyncWriteExt};
use mely::Color;
use mely::net::Backend;
use mely::task::with_cx;
use mely::tls::Connector;
use mely::tls::rustls::{self, CertificateError};
use std::error::Error;
use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

const LIMIT: Duration = Duration::from_secs(20);

/// Answers connections by `serve` on a thread, until the process ends.
fn server(serve: impl Fn(TcpStream) + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            serve(stream.unwrap());
        }
    });
    addr
}

/// A server with this configuration, which says what it has heard, and ends in order.
fn echo_server(config: ServerConfig) -> SocketAddr {
    let config = Arc::new(config);
    server(move |stream| {
        let mut stream = tls_server(Arc::clone(&config), stream);
        let mut space = [0; 20_000];
        loop {
            match stream.read(&mut space) {
                Ok(0) => break,
                Ok(len) => stream.write_all(&space[..len]).unwrap(),
                // The client does not like the certificate.
                Err(_) => return,
            }
        }
        stream.conn.send_close_notify();
        let _ = stream.flush();
    })
}

/// What a task makes of the connection, on each of the kernel's backends.
fn tasks<T, F>(f: impl Fn() -> F) -> Vec<T>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let run = |backend: Backend| {
        let _bound = Bound::new("a client");
        let task = f();
        let runtime = on(&backend).build().unwrap();
        let outcome = runtime.run_until(move |cx, finish| {
            cx.spawn(Color::from(3), async move { finish.finish(task.await) });
        });
        outcome.unwrap()
    };
    backends().into_iter().map(run).collect()
}

#[test]
fn a_client_is_echoed() {
    let addr = echo_server(AUTHORITY.server("localhost", |_| ()));
    let connector = Connector::new(trusting());
    let echoed = tasks(|| {
        let connector = connector.clone();
        async move {
            let name = format!("localhost:{}", addr.port());
            let mut stream = connector.connect(name, LIMIT).await?;
            let sent = pattern(300_000);
            let mut echoed = vec![0; sent.len()];
            for part in sent.chunks(30_000).zip(echoed.chunks_mut(30_000)) {
                stream.write_all(part.0).await?;
                stream.read_exact(part.1).await?;
            }
            assert!(echoed == sent);
            stream.close().await?;
            // In order.
            assert_eq!(stream.read(&mut [0]).await?, 0);
            let info = with_cx(|cx| stream.get_ref().tls(cx)).unwrap().unwrap();
            Ok::<_, io::Error>((info.peer_certificates.len(), info.is_resumed))
        }
    });
    for (at, echoed) in echoed.into_iter().enumerate() {
        // The second one is the first one's session.
        assert_eq!(echoed.unwrap(), (1, at > 0));
    }
}

/// As the site badssl.com has them.
#[test]
fn bad_certificates_are_refused_and_named() {
    type Change = fn(&mut CertificateParams);
    let long_ago = |params: &mut CertificateParams| {
        params.not_after = rcgen::date_time_ymd(2001, 1, 1);
        params.not_before = rcgen::date_time_ymd(2000, 1, 1);
    };
    let far_off = |params: &mut CertificateParams| {
        params.not_before = rcgen::date_time_ymd(3000, 1, 1);
        params.not_after = rcgen::date_time_ymd(3001, 1, 1);
    };
    let for_clients = |params: &mut CertificateParams| {
        params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
    };
    let other = Authority::new("another");
    let cases: [(&str, &Authority, &str, Change); 5] = [
        ("expired", &AUTHORITY, "localhost", long_ago),
        ("not valid yet", &AUTHORITY, "localhost", far_off),
        ("not valid for", &AUTHORITY, "elsewhere.example", |_| ()),
        ("UnknownIssuer", &other, "localhost", |_| ()),
        ("extended key usage", &AUTHORITY, "localhost", for_clients),
    ];
    for (named, authority, name, change) in cases {
        let addr = echo_server(authority.server(name, change));
        let errors = tasks(|| {
            let connector = Connector::new(trusting());
            let name = format!("localhost:{}", addr.port());
            async move { connector.connect(name, LIMIT).await.err() }
        });
        for error in errors {
            let error = error.unwrap_or_else(|| panic!("{named}: trusted"));
            assert_eq!(error.kind(), io::ErrorKind::InvalidData);
            let text = error.to_string();
            assert!(
                text.contains(named) && text.contains(&addr.to_string()),
                "{text}"
            );
            let source = error.source().and_then(|its| its.downcast_ref());
            let Some(rustls::Error::InvalidCertificate(source)) = source else {
                panic!("{named}: {error:?}");
            };
            assert_ne!(*source, CertificateError::BadEncoding);
        }
    }
}

#[test]
fn servers_that_are_none_are_named() {
    let silent = server(std::mem::forget);
    let closing = server(drop);
    let talking = server(|mut stream| {
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        let _ = stream.read(&mut [0; 9]);
    });
    let cases = [
        (silent, io::ErrorKind::TimedOut),
        (closing, io::ErrorKind::UnexpectedEof),
        (talking, io::ErrorKind::InvalidData),
    ];
    for (addr, kind) in cases {
        let errors = tasks(|| async move {
            let connector = Connector::new(trusting());
            let connector = connector.handshake_timeout(Duration::from_millis(200));
            connector.connect(addr, LIMIT).await.err()
        });
        for error in errors {
            let error = error.unwrap();
            // A connection that is closed with unread bytes is reset.
            let is_reset = error.kind() == io::ErrorKind::ConnectionReset;
            let is_that = error.kind() == kind && error.to_string().contains(&addr.to_string());
            assert!(
                is_that || is_reset && kind == io::ErrorKind::UnexpectedEof,
                "{error:?}"
            );
        }
    }
}

#[test]
fn names_that_are_none_are_refused_at_once() {
    let addr = echo_server(AUTHORITY.server("localhost", |_| ()));
    let told = tasks(|| async move {
        let connector = Connector::new(trusting());
        let path = connector.connect("/nowhere", LIMIT).await.unwrap_err();
        assert_eq!(path.kind(), io::ErrorKind::InvalidInput, "{path}");
        let stream = mely::aio::connect(addr, LIMIT).await.unwrap();
        drop(stream);
        let (tell, told) = std::sync::mpsc::channel();
        with_cx(|cx| {
            let connected = move |cx: &mut Cx, incoming: io::Result<mely::net::Incoming>| {
                let stream = incoming.unwrap().open_unique();
                tell.send(connector.secure(cx, stream, "not a name"))
                    .unwrap();
            };
            let callback = SERVE.on_value(Color::from(9), connected);
            cx.connect(addr, LIMIT, callback).unwrap();
        });
        loop {
            if let Ok(handle) = told.try_recv() {
                return handle.await.unwrap().err().unwrap();
            }
            mely::task::sleep(Duration::from_millis(1)).await;
        }
    });
    for error in told {
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
        assert!(error.to_string().contains("not a name"), "{error}");
    }
}

#[test]
fn a_connector_without_a_task_says_so() {
    let connector = Connector::new(trusting());
    let connecting = std::pin::pin!(connector.connect("localhost:1", LIMIT));
    let refused = futures::FutureExt::now_or_never(connecting).unwrap();
    let refused = refused.err().unwrap();
    assert!(refused.get_ref().unwrap().is::<mely::Reason>(), "{refused}");
}
