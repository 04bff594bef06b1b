//! tokio: its scheduler of several threads, a task a connection.

use super::super::wire::{Bytes, First, REQUEST_BYTES, Request, TIMER_MS, compute};
use super::{Result, listening};
use std::io;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Builder;
use tokio::task::block_in_place;

/// Requests compute where they are read.
pub(super) fn serve(workers: usize) -> Result<()> {
    run(workers, false)
}

/// By `block_in_place`, which tokio advises for long computations: another thread takes over the
/// worker's tasks meanwhile. More threads than there are workers may compute then.
pub(super) fn serve_in_place(workers: usize) -> Result<()> {
    run(workers, true)
}

fn run(workers: usize, in_place: bool) -> Result<()> {
    mely::net::raise_open_file_limit()?;
    let runtime = Builder::new_multi_thread()
        .worker_threads(workers)
        .enable_all()
        .build()?;
    // The listener is one of the tasks: the thread that blocks here is none of the workers.
    runtime.block_on(runtime.spawn(accept(in_place)))?
}

async fn accept(in_place: bool) -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    listening(listener.local_addr()?)?;
    loop {
        let (stream, _) = listener.accept().await?;
        // A client that leaves is none of the server's errors.
        tokio::spawn(async move { respond(stream, in_place).await.ok() });
    }
}

async fn respond(mut stream: TcpStream, in_place: bool) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut bytes: Bytes = [0; REQUEST_BYTES];
    loop {
        stream.read_exact(&mut bytes).await?;
        let request = Request::of(&bytes);
        match request.first {
            First::Nothing => {}
            First::Write => stream.write_all(&bytes).await?,
            First::Timer => {
                tokio::spawn(tokio::time::sleep(Duration::from_millis(TIMER_MS)));
            }
            First::Connect => {
                tokio::spawn(TcpStream::connect(request.addr()));
            }
        }
        if in_place {
            block_in_place(|| compute(request.iterations));
        } else {
            compute(request.iterations);
        }
        stream.write_all(&bytes).await?;
    }
}
