//! TLS on connections, by [`rustls`]; a feature of that name.
//!
//! A handshake takes a [`Stream`] and gives it back. From then on what is written to the stream is
//! sealed, and what it receives is opened: by its session, its task or its pipe, which need not
//! know. An [`Acceptor`] is the server's side, a [`Connector`] the client's. [`Cx::serve_tls`] is
//! [`Cx::serve`] with an acceptor.
//!
//! ```
//! use mely::net::{Acceptors, RecvBuf, Session, Stream};
//! use mely::tls::rustls::RootCertStore;
//! use mely::tls::rustls::pki_types::{CertificateDer, pem::PemObject};
//! use mely::tls::{self, Acceptor, Connector};
//! use mely::{Color, Cx, Handler, Runtime};
//! use futures::io::{AsyncReadExt, AsyncWriteExt};
//! use std::time::Duration;
//! static SERVE: Handler = Handler::new("serve");
//!
//! struct Echo(Stream);
//! impl Session for Echo {
//!     fn data(&mut self, cx: &mut Cx, data: RecvBuf) {
//!         if self.0.write(cx, data).is_err() {
//!             self.0.abort(cx);
//!         }
//!     }
//! }
//!
//! # let made = rcgen::generate_simple_self_signed(["localhost".into()])?;
//! # let dir = std::env::temp_dir().join(format!("mely-tls-{}", std::process::id()));
//! # std::fs::create_dir_all(&dir)?;
//! # let (cert, key) = (dir.join("cert.pem"), dir.join("key.pem"));
//! # std::fs::write(&cert, made.cert.pem())?;
//! # std::fs::write(&key, made.signing_key.serialize_pem())?;
//! let acceptor = Acceptor::new(tls::server_config(&cert, &key)?)?; // paths of PEM files
//! // `tls::system_roots()?` has what the system trusts; this client trusts one authority.
//! let mut roots = RootCertStore::empty();
//! roots.add(CertificateDer::from_pem_file(&cert)?)?;
//! let connector = Connector::new(tls::client_config(roots));
//! let echoed = Runtime::builder().build()?.run_until(move |cx, finish| {
//!     let open = |_: &mut Cx, stream, _: &_| Echo(stream);
//!     let any = "127.0.0.1:0";
//!     let served = cx.serve_tls(any, Acceptors::PerCore, &acceptor, &SERVE, open);
//!     let addr = served.expect("a free port").local_addr();
//!     let ask = async move {
//!         let addr = format!("localhost:{}", addr.ip().expect("of TCP").port());
//!         let mut stream = connector.connect(addr, Duration::from_secs(5)).await?;
//!         stream.write_all(b"hello").await?;
//!         let mut echoed = [0; 5];
//!         stream.read_exact(&mut echoed).await?;
//!         stream.close().await?;
//!         Ok::<_, std::io::Error>(echoed)
//!     };
//!     cx.spawn(Color::from(1), async move { finish.finish(ask.await) });
//! })?;
//! assert_eq!(&echoed?, b"hello");
//! # std::fs::remove_dir_all(&dir)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! **The handshake** runs as events of the connection's color: other cores steal it as any work. (A
//! handler is charged with it that is called `mely: TLS handshake`, unless a session had the
//! connection before.) It has a limit of time. If TLS finds something wrong, the peer is told by an
//! alert. If the handshake fails, the connection is closed, and the error names the peer. A stop
//! ends handshakes once all is received that had arrived.
//!
//! **Errors.** What TLS finds wrong is an error of the kind `InvalidData`, whose source is a
//! [`rustls::Error`]: a certificate that is not trusted, a record that was changed. A peer that
//! ends without `close_notify` is an error of the kind `UnexpectedEof`: what was received may be a
//! part. [`Stream::close`] and [`Stream::shutdown_write`] send `close_notify`; a connection that is
//! reset, aborted, or left over at the end of the run does not.
//!
//! **Counts.** [`Stream::queued_bytes`], the limit of writes and the idle timeout go by the sealed
//! bytes. The first write of an event, and each further one, is at least one record: write small
//! parts together, or with [`Stream::write_vectored`].
//!
//! **Simulation.** Connections of the simulated network are secured like others. rustls takes its
//! random numbers from the system, and certificates are held against the system's clock, unless the
//! configuration names others (its `CryptoProvider` and `time_provider`). So runs of one seed may
//! differ: in the lengths of messages by some bytes, and with them in the order of events.
//!
//! Early data (0-RTT) is not accepted, since it can be replayed. The kernel is given no keys.

mod acceptor;
mod connector;

pub use self::acceptor::Acceptor;
pub use self::connector::Connector;
pub use rustls;

use crate::net::{Records, Stream};
use crate::{Cx, Reason};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{
    CipherSuite, ClientConfig, HandshakeKind, ProtocolVersion, RootCertStore, ServerConfig,
};
use std::error::Error;
use std::fmt::Display;
use std::io::{self, ErrorKind};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// How long a handshake may take, unless the acceptor or the connector says otherwise.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(10);

/// What a handshake has come to; see [`Stream::tls`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Info {
    /// The application protocol (ALPN) that both ends speak, such as `h2`.
    pub protocol: Option<Vec<u8>>,
    /// The name that the client has asked for (SNI); at the server.
    pub server_name: Option<String>,
    /// The certificates of the peer, its own first; of a client if it was asked for them.
    pub peer_certificates: Vec<CertificateDer<'static>>,
    /// The version of TLS.
    pub version: Option<ProtocolVersion>,
    /// How the records are sealed.
    pub cipher_suite: Option<CipherSuite>,
    /// Whether an earlier session went on, without certificates being sent.
    pub is_resumed: bool,
}

impl Info {
    fn of(records: &Records) -> Info {
        let common = records.common();
        Info {
            protocol: common.alpn_protocol().map(Vec::from),
            server_name: records.server_name().map(String::from),
            peer_certificates: common.peer_certificates().unwrap_or_default().to_vec(),
            version: common.protocol_version(),
            cipher_suite: common.negotiated_cipher_suite().map(|its| its.suite()),
            is_resumed: common.handshake_kind() == Some(HandshakeKind::Resumed),
        }
    }
}

impl Stream {
    /// What the TLS handshake of this connection has come to; `None` if it is not under TLS.
    ///
    /// # Errors
    /// [`Reason`](crate::Reason) outside the connection's color.
    pub fn tls(&self, cx: &Cx) -> Result<Option<Info>, Reason> {
        self.with_records(cx, Info::of)
    }
}

/// A server's configuration with the certificate chain and the private key of two PEM files, which
/// asks clients for no certificate. It can be changed, `alpn_protocols` for one, before an
/// [`Acceptor`] is made of it. Reads the files at once, in the calling thread.
///
/// # Errors
/// If a file cannot be read, has no certificate or key, or if the two do not fit; with the path.
pub fn server_config(
    certificates: impl AsRef<Path>,
    key: impl AsRef<Path>,
) -> io::Result<ServerConfig> {
    let (certificates, key) = (certificates.as_ref(), key.as_ref());
    let chain = CertificateDer::pem_file_iter(certificates)
        .and_then(Iterator::collect::<Result<Vec<_>, _>>)
        .map_err(|error| of_file(certificates, error))?;
    if chain.is_empty() {
        return Err(of_file(certificates, pem::Error::NoItemsFound));
    }
    let private = PrivateKeyDer::from_pem_file(key).map_err(|error| of_file(key, error))?;
    let builder = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(invalid)?;
    let config = builder
        .with_no_client_auth()
        .with_single_cert(chain, private);
    config.map_err(|error| {
        let text = format!("{} and {}: {error}", certificates.display(), key.display());
        io::Error::new(ErrorKind::InvalidInput, text)
    })
}

/// A client's configuration that trusts these authorities and has no certificate of its own. It can
/// be changed, `alpn_protocols` for one, before a [`Connector`] is made of it.
///
/// # Panics
/// If the process has installed a `CryptoProvider` that lacks cipher suites of a version of TLS.
pub fn client_config(roots: RootCertStore) -> ClientConfig {
    ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .expect("the provider has cipher suites of both versions")
        .with_root_certificates(roots)
        .with_no_client_auth()
}

/// The authorities that the system trusts, or those of `SSL_CERT_FILE` and `SSL_CERT_DIR`. Reads
/// files, some milliseconds, in the calling thread: once, at the start. Certificates that cannot be
/// read are skipped.
///
/// # Errors
/// If there are none.
pub fn system_roots() -> io::Result<RootCertStore> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(found.certs);
    if roots.is_empty() {
        let why = found.errors.first().map(|error| format!(": {error}"));
        let text = format!(
            "the system has no certificates of authorities{}",
            why.unwrap_or_default()
        );
        return Err(io::Error::new(ErrorKind::NotFound, text));
    }
    Ok(roots)
}

/// The process's, if it has chosen one; else ring's.
fn provider() -> Arc<CryptoProvider> {
    let chosen = CryptoProvider::get_default().cloned();
    chosen.unwrap_or_else(|| Arc::new(rustls::crypto::ring::default_provider()))
}

fn of_file(path: &Path, error: pem::Error) -> io::Error {
    let (kind, text): (_, &dyn Display) = match &error {
        pem::Error::Io(error) => (error.kind(), error),
        pem::Error::NoItemsFound => (ErrorKind::InvalidInput, &"nothing of that kind is in it"),
        error => (ErrorKind::InvalidInput, error),
    };
    io::Error::new(kind, format!("{}: {text}", path.display()))
}

fn invalid(error: impl Into<Box<dyn Error + Send + Sync>>) -> io::Error {
    io::Error::new(ErrorKind::InvalidInput, error)
}
