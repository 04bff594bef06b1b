//! How do I keep state by key, and change several keys at once? A store with Redis's protocol, for
//! redis-cli and redis-benchmark. `cargo run --release --example store -- 127.0.0.1:6379`, Ctrl-C
//! to stop: each request that has arrived by then, or [`ARRIVAL_MAX`] later, is answered, also of
//! clients that wait to be accepted. They have [`FINISH_MAX`] to take the answers.
//!
//! A key lies in one of as many shards as cores, each the state of a color: more would run in
//! parallel no better, and be more events for several requests. A connection is a task. The
//! requests that it has read at once are one event, which has the shards of all their keys: nobody
//! sees one of them done and the next one not. Events without a shard in common run in parallel.

mod reader;
mod requests;

use bytes::Bytes;
use futures::FutureExt;
use futures::channel::oneshot;
use futures::future::{Either, select};
use futures::io::{AsyncReadExt, AsyncWriteExt, copy, sink};
use mely::aio::AsyncStream;
use mely::net::{Acceptors, Incoming, Listener, Stream};
use mely::{Color, Colored, Cx, Handler, Poster, Runtime};
use mely::{sleep, stopping, timeout, with_cx};
use mimalloc::MiMalloc;
use reader::Reader;
use requests::{Shard, Store};
use std::sync::{Arc, mpsc::channel};
use std::{io, net::SocketAddr, pin::pin, time::Duration};

/// As redis-server brings an allocator of its own. With glibc's a SET of a new key takes a third
/// longer.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

static ACCEPT: Handler = Handler::new("accept");
static SERVE: Handler = Handler::new("serve");
static STOP: Handler = Handler::new("stop");

/// How long requests that were on their way when the server was asked to stop may take to arrive.
pub(crate) const ARRIVAL_MAX: Duration = Duration::from_millis(250);
/// How long clients may take to read their answers once the server was asked to stop. Then they are
/// cut off.
pub(crate) const FINISH_MAX: Duration = Duration::from_secs(5);

/// Requests of a connection that were read and not yet run.
#[derive(Default)]
struct Batch {
    requests: Vec<Vec<Bytes>>,
    /// The shards of their keys, and of how many they are.
    which: u64,
    of: u64,
}

/// Why a connection is ended.
enum Wrong {
    /// It is told so.
    Protocol(String),
    /// At once and without a word, as Redis does.
    Browser,
}

impl Batch {
    /// Takes all whole requests out of `input`.
    fn read(&mut self, input: &mut Reader) -> Result<(), Wrong> {
        while let Some(request) = input.next().map_err(Wrong::Protocol)? {
            if requests::is_of_a_browser(&request) {
                return Err(Wrong::Browser);
            }
            self.add(request);
        }
        Ok(())
    }

    fn add(&mut self, request: Vec<Bytes>) {
        let (most, step) = match requests::name(&request) {
            "GET" | "SET" | "INCR" | "EXPIRE" => (1, 1),
            "DEL" | "MGET" => (usize::MAX, 1),
            "MSET" => (usize::MAX, 2),
            _ => (0, 1),
        };
        let keys = request[1..].iter().step_by(step).take(most);
        self.which = keys.fold(self.which, |all, key| {
            all | 1 << requests::shard_of(key, self.of)
        });
        self.requests.push(request);
    }

    /// Runs all requests, and returns their answers.
    fn run(self, shards: Vec<&mut Shard>, now: Duration) -> Vec<u8> {
        let (mut out, which, of) = (Vec::new(), self.which, self.of);
        let mut store = Store {
            which,
            of,
            shards,
            now,
        };
        for request in self.requests {
            let begin = out.len();
            if let Err(error) = store.run(&request, &mut out) {
                out.truncate(begin);
                requests::error(&mut out, &error);
            }
        }
        out
    }
}

/// Stops the runtime when it is dropped: the listener has it until the last client is accepted, and
/// each connection until a stop no longer ends its receives.
struct Open(Poster);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.stop();
    }
}

/// Serves a connection until it ends, or until the runtime stops and all that came is answered.
async fn serve(stream: Stream, shards: &[Colored<Shard>], open: Arc<Open>) -> io::Result<()> {
    let stream = with_cx(|cx| {
        stream.receive_through_stop(cx)?;
        AsyncStream::new(cx, stream)
    });
    let mut stream = stream.map_err(io::Error::other)?;
    drop(open);
    match select(
        pin!(answer(&mut stream, shards)),
        pin!(after_stop(FINISH_MAX)),
    )
    .await
    {
        Either::Left((answered, _)) => return answered,
        Either::Right(_) => {}
    }
    // The client does not read, and is not waited for.
    with_cx(|cx| stream.abort(cx));
    Ok(())
}

/// Returns this long after the runtime was asked to stop.
async fn after_stop(time: Duration) {
    stopping().await;
    sleep(time).await;
}

/// Answers all that can be read, until the client ends, or all that has arrived was read after a
/// stop.
async fn answer(stream: &mut AsyncStream, shards: &[Colored<Shard>]) -> io::Result<()> {
    let (mut input, mut space) = (Reader::default(), vec![0; 16 << 10]);
    // First the stop, false; then that all which has arrived by then can be read, true.
    let mut end = after_stop(ARRIVAL_MAX).map(|()| false).boxed();
    loop {
        // What can be read goes first.
        let len = match select(stream.read(&mut space), &mut end).await {
            Either::Left((len, _)) => len?,
            Either::Right((true, _)) => 0,
            Either::Right((false, _)) => {
                let (tell, arrived) = oneshot::channel::<()>();
                let asked = with_cx(|cx| stream.after_received(cx, &STOP, |_cx| drop(tell)));
                asked.map_err(io::Error::other)?;
                end = arrived.map(|_| true).boxed();
                continue;
            }
        };
        if len == 0 {
            return stream.close().await;
        }
        input.push(&space[..len]);
        let mut batch = Batch {
            of: shards.len() as u64,
            ..Batch::default()
        };
        let read = batch.read(&mut input);
        if !batch.requests.is_empty() {
            // What has no key has a shard too, so that nothing is answered in another way.
            batch.which = batch.which.max(1);
            let asked = (0..shards.len()).filter(|shard| batch.which & 1 << shard != 0);
            let asked: Vec<_> = asked.map(|shard| shards[shard].clone()).collect();
            let answers =
                with_cx(|cx| cx.ask_all(asked, move |shards, cx| batch.run(shards, cx.now())));
            let answers = answers.await;
            stream
                .write_all(&answers.map_err(io::Error::other)?)
                .await?;
        }
        if let Err(wrong) = read {
            let Wrong::Protocol(error) = wrong else {
                return Ok(());
            };
            let mut answer = Vec::new();
            requests::error(&mut answer, &format!("Protocol error: {error}"));
            stream.write_all(&answer).await?;
            stream.close().await?;
            // If it were closed with bytes unread the client might not get the error.
            let _ = timeout(Duration::from_secs(1), copy(stream, &mut sink())).await;
            return Ok(());
        }
    }
}

/// Listens until the listener is closed. Then clients that wait for it are still accepted, and the
/// runtime stops.
pub(crate) fn listen(cx: &mut Cx, addr: SocketAddr) -> io::Result<Listener> {
    let open = Arc::new(Open(cx.poster()));
    let shard = |number| Colored::new(cx, Color::from(number), Shard::default());
    let shards: Arc<[_]> = (1..=cx.cores().min(64) as u64).map(shard).collect();
    let accept = move |cx: &mut Cx, incoming: io::Result<Incoming>| {
        // Out of descriptors, perhaps: accepting goes on a little later.
        let Ok(incoming) = incoming else { return };
        let stream = incoming.open_unique();
        let (color, shards, open) = (stream.color(), Arc::clone(&shards), Arc::clone(&open));
        // A connection that fails is gone, and nobody is left to be told.
        let served = async move { drop(serve(stream, &shards, open).await) };
        cx.spawn_as(&SERVE, color, served).detach();
    };
    let on_accept = ACCEPT.on_each(Color::DEFAULT, accept);
    cx.listen(addr, Acceptors::PerCore, on_accept)
}

/// Listens until a signal asks to stop.
fn start(cx: &mut Cx, addr: SocketAddr) -> io::Result<()> {
    let listener = listen(cx, addr)?;
    let addr = listener.local_addr();
    let mut listener = Some(listener);
    let stop = move |_: &mut Cx, ()| listener.take().map_or((), Listener::close);
    cx.on_stop_signal(STOP.on_each(Color::DEFAULT, stop))?;
    println!("listening on {addr}");
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let addr = std::env::args().nth(1);
    let addr = addr.as_deref().unwrap_or("127.0.0.1:6379").parse()?;
    mely::net::raise_open_file_limit()?;
    let (tell, started) = channel();
    // If it cannot start, the listener is dropped, which stops the runtime.
    Runtime::builder().build()?.run(move |cx| {
        let _ = tell.send(start(cx, addr));
    })?;
    Ok(started.recv()??)
}
