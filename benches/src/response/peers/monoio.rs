//! monoio: a runtime a thread, pinned, each with a listener of its own (`SO_REUSEPORT`) and its own
//! connections for good; on io_uring, or epoll where that is refused.

use super::super::wire::{First, REQUEST_BYTES, Request, TIMER_MS, compute};
use super::{Result, listening};
use crate::machine;
use monoio::io::{AsyncReadRentExt, AsyncWriteRentExt};
use monoio::net::{ListenerOpts, TcpListener, TcpStream};
use monoio::{FusionDriver, RuntimeBuilder};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

/// Serves with a runtime and a listener on each of `workers` threads.
pub(super) fn serve(workers: usize) -> Result<()> {
    mely::net::raise_open_file_limit()?;
    machine::detect();
    let mut addr = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let mut threads = Vec::new();
    for worker in 0..workers {
        let (tell, told) = channel();
        threads.push(thread::spawn(move || -> Result<()> {
            machine::pin(worker);
            let mut runtime = RuntimeBuilder::<FusionDriver>::new()
                .enable_timer()
                .build()?;
            runtime.block_on(async {
                let options = ListenerOpts::new().reuse_port(true);
                let listener = TcpListener::bind_with_config(addr, &options)?;
                tell.send(listener.local_addr()?)?;
                accept(listener).await
            })
        }));
        match told.recv() {
            // The port that port 0 became is the others' too.
            Ok(listens) => addr = listens,
            Err(_) => break,
        }
    }
    if threads.iter().all(|thread| !thread.is_finished()) {
        listening(addr)?;
    }
    for thread in threads.into_iter().rev() {
        thread.join().expect("no thread panics")?;
    }
    Ok(())
}

async fn accept(listener: TcpListener) -> Result<()> {
    loop {
        let (stream, _) = listener.accept().await?;
        // A client that leaves is none of the server's errors.
        monoio::spawn(respond(stream));
    }
}

async fn respond(mut stream: TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut buffer = vec![0; REQUEST_BYTES];
    loop {
        let (read, bytes) = stream.read_exact(buffer).await;
        read?;
        let request = Request::of(&bytes[..].try_into().expect("a request was read"));
        buffer = bytes;
        match request.first {
            First::Nothing => {}
            First::Write => {
                let written;
                (written, buffer) = stream.write_all(buffer).await;
                written?;
            }
            First::Timer => {
                monoio::spawn(monoio::time::sleep(Duration::from_millis(TIMER_MS)));
            }
            First::Connect => {
                monoio::spawn(TcpStream::connect_addr(request.addr()));
            }
        }
        compute(request.iterations);
        let written;
        (written, buffer) = stream.write_all(buffer).await;
        written?;
    }
}
