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
use futures::future::{Either, select};
use futures::io::{AsyncReadExt, AsyncWriteExt, copy, sink};
use mely::aio::AsyncStream;
use mely::net::{Acceptors, Addr, Incoming, Stream};
use mely::task::{sleep, stopping, timeout, with_cx};
use mely::{Color, Colored, Cx, Handler, Runtime};
use mimalloc::MiMalloc;
use reader::Reader;
use requests::{Shard, Store};
use std::sync::{Arc, mpsc::channel};
use std::{io, pin::pin, time::Duration};

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

/// Serves a connection until it ends, or until the runtime stops and all that came is answered.
async fn serve(stream: Stream, shards: &[Colored<Shard>]) -> io::Result<()> {
    let stream = with_cx(|cx| AsyncStream::new(cx, stream));
    let mut stream = stream?;
    let finish = pin!(stopping().then(|()| sleep(FINISH_MAX)));
    if let Either::Left((answered, _)) = select(pin!(answer(&mut stream, shards)), finish).await {
        return answered;
    }
    // The client does not read, and is not waited for.
    with_cx(|cx| stream.get_ref().abort(cx));
    Ok(())
}

/// Answers all that can be read, until the client ends, or all that has arrived was read after a
/// stop.
async fn answer(stream: &mut AsyncStream, shards: &[Colored<Shard>]) -> io::Result<()> {
    let (mut input, mut space) = (Reader::default(), vec![0; 16 << 10]);
    // A request that is on its way has a moment.
    let stop = with_cx(|cx| stream.stopping(cx))?;
    let mut stop = pin!(stop.then(|()| sleep(ARRIVAL_MAX)));
    loop {
        // What can be read goes first.
        let len = match select(stream.read(&mut space), stop.as_mut()).await {
            Either::Left((len, _)) => len?,
            Either::Right(_) => 0,
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
                with_cx(|cx| cx.with_all(asked, move |shards, cx| batch.run(shards, cx.now())));
            let answers = answers.await;
            stream.write_all(&answers?).await?;
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

/// Listens until the runtime stops.
pub(crate) fn listen(cx: &mut Cx, addr: Addr) -> io::Result<Addr> {
    let shard = |number| Colored::new(cx, Color::from(number), Shard::default());
    let shards: Arc<[_]> = (1..=cx.cores().min(64) as u64).map(shard).collect();
    let accept = move |cx: &mut Cx, incoming: io::Result<Incoming>| {
        // Out of descriptors, perhaps: accepting goes on a little later.
        let Ok(incoming) = incoming else { return };
        let stream = incoming.open_unique();
        let (color, shards) = (stream.color(), Arc::clone(&shards));
        // A connection that fails is gone, and nobody is left to be told.
        let served = async move { drop(serve(stream, &shards).await) };
        SERVE.spawn(cx, color, served);
    };
    let on_accept = ACCEPT.on_each(Color::DEFAULT, accept);
    let listener = cx.listen(addr, Acceptors::PerCore, on_accept)?;
    Ok(listener.local_addr())
}

/// Serves until a signal asks to stop.
fn start(cx: &mut Cx, addr: Addr) -> io::Result<()> {
    cx.on_stop_signal(STOP.on_each(Color::DEFAULT, |cx, ()| cx.stop()))?;
    println!("listening on {}", listen(cx, addr)?);
    Ok(())
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let addr = std::env::args().nth(1);
    let addr = addr.as_deref().unwrap_or("127.0.0.1:6379").parse()?;
    mely::net::raise_open_file_limit()?;
    let (tell, started) = channel();
    Runtime::builder().build()?.run(move |cx| {
        let start = start(cx, addr);
        if start.is_err() {
            cx.stop();
        }
        let _ = tell.send(start);
    })?;
    Ok(started.recv()??)
}
