//! TLS: mely's ends against rustls's own, on every backend.

mod both;
mod client;
mod ends;
mod server;

use crate::common::wire::Client;
use mely::net::{Incoming, RecvBuf, Session, Stream};
use mely::tls::rustls::pki_types::{PrivateKeyDer, ServerName};
use mely::tls::rustls::{
    ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection, StreamOwned,
};
use mely::tls::{Acceptor, client_config};
use mely::{Color, Cx, Handler};
use rcgen::{CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use std::io::{self, Read};
use std::sync::mpsc::Sender;
use std::sync::{Arc, LazyLock};

static SERVE: Handler = Handler::new("serve");

/// An authority, and what it issues.
struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    fn new(name: &str) -> Authority {
        let mut params = CertificateParams::default();
        params
            .distinguished_name
            .push(rcgen::DnType::CommonName, name);
        params.is_ca = IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let issuer = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
        Authority { issuer }
    }

    fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        roots.add(self.issuer.der().clone()).unwrap();
        roots
    }

    /// A configuration of a server with a certificate for this name, which `change` may change.
    fn server(&self, name: &str, change: impl FnOnce(&mut CertificateParams)) -> ServerConfig {
        let (chain, key) = self.issue(name, change);
        let builder = ServerConfig::builder().with_no_client_auth();
        builder.with_single_cert(chain, key).unwrap()
    }

    fn issue(
        &self,
        name: &str,
        change: impl FnOnce(&mut CertificateParams),
    ) -> (
        Vec<mely::tls::rustls::pki_types::CertificateDer<'static>>,
        PrivateKeyDer<'static>,
    ) {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new([name.to_owned()]).unwrap();
        change(&mut params);
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        (vec![certificate.der().clone()], key)
    }
}

/// Of all tests, and its server "localhost".
static AUTHORITY: LazyLock<Authority> = LazyLock::new(|| Authority::new("trusted"));

fn acceptor() -> Acceptor {
    Acceptor::new(AUTHORITY.server("localhost", |_| ())).unwrap()
}

fn trusting() -> ClientConfig {
    client_config(AUTHORITY.roots())
}

type TlsClient = StreamOwned<ClientConnection, Client>;

/// rustls's client on a blocking one.
fn tls_client(config: impl Into<Arc<ClientConfig>>, below: Client) -> TlsClient {
    let name = ServerName::try_from("localhost").unwrap();
    let connection = ClientConnection::new(config.into(), name).unwrap();
    StreamOwned::new(connection, below)
}

/// rustls's server on a blocking one.
fn tls_server<B: io::Read + io::Write>(
    config: impl Into<Arc<ServerConfig>>,
    below: B,
) -> StreamOwned<ServerConnection, B> {
    StreamOwned::new(ServerConnection::new(config.into()).unwrap(), below)
}

/// Says the end, as TLS has it, and waits for the other's.
fn close(mut client: TlsClient) -> Vec<u8> {
    while client.conn.is_handshaking() {
        client.conn.complete_io(&mut client.sock).unwrap();
    }
    client.conn.send_close_notify();
    let mut rest = Vec::new();
    client.read_to_end(&mut rest).unwrap();
    rest
}

/// Sends back what comes, and tells its end.
struct Echo {
    stream: Stream,
    tell: Sender<String>,
}

impl Session for Echo {
    fn data(&mut self, cx: &mut Cx, data: RecvBuf) {
        assert!(!data.is_empty());
        assert_eq!(cx.handler(), "serve");
        let limit = 64 << 20;
        self.stream.set_write_limit(cx, limit).unwrap();
        if self.stream.write(cx, data).is_err() {
            // Behind it came what has ended the connection.
            let _ = self.tell.send("refused".into());
        }
    }

    fn end(&mut self, _: &mut Cx, end: io::Result<()>) {
        let end = end.map_err(|error| format!("{:?}: {error}", error.kind()));
        let _ = self.tell.send(format!("{end:?}"));
    }
}

/// Secures each connection, and makes a session of it.
fn serving<S: Session>(
    acceptor: Acceptor,
    open: impl Fn(Stream) -> S + Clone + Send + Sync + 'static,
) -> impl Fn(&mut Cx, Incoming) + Send + Sync + 'static {
    move |cx, incoming| {
        let open = open.clone();
        let secured = acceptor.secure(cx, incoming.open_unique());
        let then = move |_: &mut Cx, secured: Result<io::Result<Stream>, _>| {
            let stream = secured.unwrap().unwrap();
            stream.serve(&SERVE, move |_, stream, _| open(stream));
        };
        secured.then(cx, SERVE.on_value(Color::from(4), then));
    }
}

fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at * 31 + at / 251) as u8).collect()
}
