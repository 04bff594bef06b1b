//! The peer of the web bench: hyper 1 on tokio, as a server is written today. The responses' bodies
//! are in memory. `hyper ADDR:PORT DIR CORES`

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use mely_bench::web::responses;
use std::collections::HashMap;
use std::convert::Infallible;
use std::error::Error;
use std::io::Write;
use std::net::SocketAddr;
use std::path::Path;
use tokio::net::TcpListener;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [addr, dir, cores] = &arguments[..] else {
        return Err("usage: hyper ADDR:PORT DIR CORES".into());
    };
    mely::net::raise_open_file_limit()?;
    let addr: SocketAddr = addr.parse()?;
    let files = responses::files(Path::new(dir))?;
    let files = files
        .into_iter()
        .map(|(path, body)| (path, Bytes::from(body)));
    let files: &'static HashMap<String, Bytes> = Box::leak(Box::new(files.collect()));
    let runtime = match cores.parse()? {
        1 => tokio::runtime::Builder::new_current_thread()
            .enable_io()
            .build()?,
        cores => tokio::runtime::Builder::new_multi_thread()
            .worker_threads(cores)
            .enable_io()
            .build()?,
    };
    runtime.block_on(serve(addr, files))
}

async fn serve(addr: SocketAddr, files: &'static HashMap<String, Bytes>) -> Result<()> {
    let listener = TcpListener::bind(addr).await?;
    println!("listening on {}", listener.local_addr()?);
    std::io::stdout().flush()?;
    loop {
        let (stream, _) = listener.accept().await?;
        tokio::spawn(async move {
            let answer = service_fn(move |request| async move { answer(&request, files) });
            let http = hyper::server::conn::http1::Builder::new();
            // A client that leaves is none of our errors.
            let _ = http.serve_connection(TokioIo::new(stream), answer).await;
        });
    }
}

fn answer(
    request: &Request<Incoming>,
    files: &HashMap<String, Bytes>,
) -> std::result::Result<Response<Full<Bytes>>, Infallible> {
    let mut response = Response::default();
    match files.get(request.uri().path()) {
        Some(body) => *response.body_mut() = Full::new(body.clone()),
        None => *response.status_mut() = StatusCode::NOT_FOUND,
    }
    Ok(response)
}
