//! smol: async-executor on a thread a worker, with async-io, a task a connection.

use super::super::wire::{Bytes, First, REQUEST_BYTES, Request, TIMER_MS, compute};
use super::{Result, listening};
use async_executor::Executor;
use async_io::{Async, Timer, block_on};
use futures_lite::future::pending;
use futures_lite::{AsyncReadExt, AsyncWriteExt};
use std::io;
use std::net::{TcpListener, TcpStream};
use std::thread;
use std::time::Duration;

/// Serves with one executor on `workers` threads.
pub(super) fn serve(workers: usize) -> Result<()> {
    mely::net::raise_open_file_limit()?;
    let executor: &'static Executor<'static> = Box::leak(Box::new(Executor::new()));
    let accepts = executor.spawn(accept(executor));
    for _ in 0..workers {
        thread::spawn(|| block_on(executor.run(pending::<()>())));
    }
    block_on(accepts)
}

async fn accept(executor: &'static Executor<'static>) -> Result<()> {
    let listener = Async::<TcpListener>::bind(([127, 0, 0, 1], 0))?;
    listening(listener.get_ref().local_addr()?)?;
    loop {
        let (stream, _) = listener.accept().await?;
        // A client that leaves is none of the server's errors.
        executor.spawn(respond(executor, stream)).detach();
    }
}

async fn respond(
    executor: &'static Executor<'static>,
    mut stream: Async<TcpStream>,
) -> io::Result<()> {
    stream.get_ref().set_nodelay(true)?;
    let mut bytes: Bytes = [0; REQUEST_BYTES];
    loop {
        stream.read_exact(&mut bytes).await?;
        let request = Request::of(&bytes);
        match request.first {
            First::Nothing => {}
            First::Write => stream.write_all(&bytes).await?,
            First::Timer => {
                let timer = Timer::after(Duration::from_millis(TIMER_MS));
                executor.spawn(timer).detach();
            }
            First::Connect => {
                let connects = Async::<TcpStream>::connect(request.addr());
                executor.spawn(connects).detach();
            }
        }
        compute(request.iterations);
        stream.write_all(&bytes).await?;
    }
}
