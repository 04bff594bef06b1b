//! How do I fetch a page over HTTPS? Looks the host name up, performs a TLS handshake, and asks by
//! hyper's client.
//!
//! `cargo run --release --features hyper,tls --example fetch -- https://example.org/`. The system's
//! authorities are trusted, and no others, unless the PEM file of one is named behind the address.

use http_body_util::{BodyExt, Empty};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::HOST;
use hyper::{Request, Uri};
use mely::aio::{self, AsyncStream};
use mely::task::with_cx;
use mely::tls::rustls::RootCertStore;
use mely::tls::rustls::pki_types::{CertificateDer, pem::PemObject};
use mely::tls::{self, Connector};
use mely::{Color, Runtime};
use std::io::{self, Write};
use std::process::ExitCode;
use std::time::Duration;

/// How long a connection and its handshake may take.
const LIMIT: Duration = Duration::from_secs(10);

type Failed = Box<dyn std::error::Error + Send + Sync>;

fn connector(authority: Option<String>) -> Result<Connector, Failed> {
    let roots = match authority {
        None => tls::system_roots()?,
        Some(path) => {
            let mut roots = RootCertStore::empty();
            for certificate in CertificateDer::pem_file_iter(path)? {
                roots.add(certificate?)?;
            }
            roots
        }
    };
    Ok(Connector::new(tls::client_config(roots)))
}

async fn connect(uri: &Uri, connector: &Connector) -> Result<AsyncStream, Failed> {
    let host = uri
        .host()
        .ok_or("an address such as https://example.org/ is needed")?;
    let is_secure = uri.scheme_str() == Some("https");
    let port = uri.port_u16().unwrap_or(if is_secure { 443 } else { 80 });
    let addr = format!("{host}:{port}");
    Ok(match is_secure {
        true => connector.connect(addr, LIMIT).await?,
        false => aio::connect(addr, LIMIT).await?,
    })
}

async fn fetch(uri: Uri, connector: Connector) -> Result<(), Failed> {
    let stream = connect(&uri, &connector).await?;
    let (mut sender, connection) = http1::handshake(stream).await?;
    // It is driven by a task of the same color, until there is nothing left to be asked.
    let driven = with_cx(|cx| cx.spawn(cx.color(), connection));
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    let port = uri
        .port()
        .map(|port| format!(":{port}"))
        .unwrap_or_default();
    let host = format!("{}{port}", uri.host().unwrap_or_default());
    let request = Request::get(path).header(HOST, host);
    let mut answer = sender
        .send_request(request.body(Empty::<Bytes>::new())?)
        .await?;
    eprintln!("{}", answer.status());
    while let Some(frame) = answer.frame().await {
        if let Some(data) = frame?.data_ref() {
            io::stdout().write_all(data)?;
        }
    }
    drop(sender);
    // A server that ends an answer of unknown length by leaving, without close_notify, is noticed
    // here.
    Ok(driven.await??)
}

fn run() -> Result<(), Failed> {
    let mut args = std::env::args().skip(1);
    let uri = args.next().ok_or("usage: fetch ADDRESS [AUTHORITY.pem]")?;
    let (uri, connector) = (uri.parse()?, connector(args.next())?);
    Runtime::builder().build()?.run_until(move |cx, finish| {
        cx.spawn(Color::from(1), async move {
            finish.finish(fetch(uri, connector).await);
        });
    })?
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
