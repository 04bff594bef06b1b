//! The client's side.

use super::acceptor::begin;
use super::{HANDSHAKE_LIMIT, invalid};
use crate::Cx;
use crate::aio::AsyncStream;
use crate::ask::{Asked, JoinHandle};
use crate::callback::Callback;
use crate::net::{Addr, Incoming, Records, Stream};
use crate::task::ambient::try_with_cx;
use rustls::ClientConfig;
use rustls::client::UnbufferedClientConnection;
use rustls::pki_types::ServerName;
use std::fmt;
use std::io;
use std::sync::Arc;
use std::time::Duration;

/// The client's side of handshakes. A clone is the same connector, and resumes the same sessions.
///
/// Its configuration is rustls's: who is trusted, a certificate of its own, protocols (ALPN).
/// [`client_config`](super::client_config) makes a simple one.
#[derive(Clone)]
pub struct Connector {
    config: Arc<ClientConfig>,
    limit: Duration,
}

impl Connector {
    /// A connector with this configuration.
    pub fn new(config: impl Into<Arc<ClientConfig>>) -> Connector {
        Connector {
            config: config.into(),
            limit: HANDSHAKE_LIMIT,
        }
    }

    /// Sets how long a handshake may take; 10 s by default.
    pub fn handshake_timeout(mut self, limit: Duration) -> Connector {
        self.limit = limit;
        self
    }

    /// Performs the handshake on a connection, as its client, and gives the stream back. The server
    /// must have a certificate for `name`, a host name or an IP address.
    ///
    /// The connection comes from [`Cx::connect`], or a session gave it away, as after a STARTTLS.
    /// Handle, cancel and limit are as with [`Acceptor::secure`](super::Acceptor::secure).
    ///
    /// # Errors
    /// The handle's value: as with `Acceptor::secure`, and `InvalidInput` if `name` is neither a
    /// host name nor an address.
    pub fn secure(
        &self,
        cx: &mut Cx,
        stream: Stream,
        name: &str,
    ) -> JoinHandle<io::Result<Stream>> {
        let (asked, handle) = Asked::new(&stream.poster().inner);
        let (config, limit) = (Arc::clone(&self.config), self.limit);
        let name = server_name(name);
        let make = move || {
            let side = UnbufferedClientConnection::new(config, name?);
            side.map(Records::client).map_err(invalid)
        };
        begin(cx, stream, limit, make, |cx, secured| {
            asked.run(cx, |_| secured)
        });
        handle
    }

    /// Connects to `addr`, a host name or an IP address and a port, and performs the handshake, in
    /// a task: the connection belongs to the color of the task that polls this future. Both
    /// together take at most `limit`, and the handshake its [own](Self::handshake_timeout) at most.
    /// If the future is dropped before it is ready, the connection is closed.
    ///
    /// # Errors
    /// As [`aio::connect`](crate::aio::connect) and [`secure`](Self::secure).
    pub async fn connect(&self, addr: impl Into<Addr>, limit: Duration) -> io::Result<AsyncStream> {
        let addr = addr.into();
        let name = match &addr {
            Addr::Ip(ip) => ip.ip().to_string(),
            Addr::Name(name) => Addr::host_and_port(name)?.0.to_owned(),
            addr => {
                let text =
                    format!("{addr}: has no name for a certificate: use `Connector::secure`");
                return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
            }
        };
        let connecting = try_with_cx(|cx| {
            let (asked, handle) = Asked::new(&cx.worker_ref().inner);
            let connected = move |cx: &mut Cx, connection: io::Result<Incoming>| {
                asked.run(cx, |cx| Ok::<_, io::Error>(connection?.open(cx.color())));
            };
            let begun = cx.now();
            cx.connect(addr, limit, Callback::new(None, cx.color(), connected))?;
            Ok::<_, io::Error>((begun, handle.cancel_on_drop()))
        });
        let (begun, connected) = connecting??;
        let stream = connected.await??;
        let secured = try_with_cx(|cx| {
            let left = limit.saturating_sub(cx.now().saturating_sub(begun));
            let hurried = self.clone().handshake_timeout(left.min(self.limit));
            hurried.secure(cx, stream, &name).cancel_on_drop()
        });
        let stream = secured?.await??;
        Ok(try_with_cx(|cx| AsyncStream::new(cx, stream))??)
    }
}

fn server_name(name: &str) -> io::Result<ServerName<'static>> {
    let without_dot = name.strip_suffix('.').unwrap_or(name);
    let parsed = ServerName::try_from(without_dot.to_owned());
    parsed.map_err(|_| invalid(format!("{name:?} is neither a host name nor an IP address")))
}

impl fmt::Debug for Connector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Connector")
            .field("limit", &self.limit)
            .finish_non_exhaustive()
    }
}
