//! How do I keep state by key, and change several keys at once? A store with Redis's protocol, for
//! redis-cli and redis-benchmark. `cargo run --release --example store -- 127.0.0.1:6379`, Ctrl-C
//! to stop: what has come by then is answered.
//!
//! A key lies in one of as many shards as cores, each the state of a color: more would run in
//! parallel no better, and be more events for several requests. A connection is a task. The
//! requests that it has read at once are one event, which has the shards of all their keys: nobody
//! sees one of them done and the next one not. Events without a shard in common run in parallel.

mod requests;

use bytes::{Bytes, BytesMut};
use futures::io::{AsyncReadExt, AsyncWriteExt, copy, sink};
use mely::aio::AsyncStream;
use mely::net::{Acceptors, Incoming, Stream};
use mely::{Color, Colored, Cx, Handler, Runtime, timeout, with_cx};
use mimalloc::MiMalloc;
use requests::{REQUEST_BYTES_MAX, Shard, Store};
use std::{io, io::Write, net::SocketAddr, sync::Arc, time::Duration};

/// As redis-server brings an allocator of its own. With glibc's a SET of a new key takes a third
/// longer.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

static ACCEPT: Handler = Handler::new("accept");
static SERVE: Handler = Handler::new("serve");
static STOP: Handler = Handler::new("stop");

/// What has come of a connection, and was not yet run.
#[derive(Default)]
struct Batch {
    /// With their names in capitals.
    requests: Vec<Vec<Bytes>>,
    /// The shards of their keys, and of how many they are.
    which: u64,
    of: u64,
}

impl Batch {
    /// Takes whole requests out of `input`.
    fn read(&mut self, input: &mut BytesMut) -> Result<(), &'static str> {
        let bytes = std::mem::take(input).freeze();
        let mut rest = &bytes[..];
        let wrong = loop {
            match requests::request(rest, &bytes) {
                Ok((after, request)) => {
                    self.add(request);
                    rest = after;
                }
                Err(error) => break !error.is_incomplete(),
            }
        };
        let rest = bytes.slice_ref(rest);
        drop(bytes);
        *input = rest.into();
        match wrong {
            true => Err("Protocol error: not a request"),
            false if input.len() > REQUEST_BYTES_MAX => Err("Protocol error: too big a request"),
            false => Ok(()),
        }
    }

    fn add(&mut self, mut request: Vec<Bytes>) {
        let Some(name) = request.first_mut() else {
            return;
        };
        *name = name.to_ascii_uppercase().into();
        let (most, step) = match &name[..] {
            b"GET" | b"SET" | b"INCR" | b"EXPIRE" => (1, 1),
            b"DEL" | b"MGET" => (usize::MAX, 1),
            b"MSET" => (usize::MAX, 2),
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
                let _ = write!(out, "-ERR {error}\r\n");
            }
        }
        out
    }
}

/// Serves a connection until it ends, or until the runtime stops and all that came is answered.
async fn serve(stream: Stream, shards: Arc<[Colored<Shard>]>) -> io::Result<()> {
    let stream = with_cx(|cx| AsyncStream::new(cx, stream));
    let mut stream = stream.map_err(io::Error::other)?;
    let (mut input, mut space) = (BytesMut::new(), vec![0; 16 << 10]);
    loop {
        let len = stream.read(&mut space).await?;
        if len == 0 {
            return stream.close().await;
        }
        input.extend_from_slice(&space[..len]);
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
        if let Err(error) = read {
            stream
                .write_all(format!("-ERR {error}\r\n").as_bytes())
                .await?;
            stream.close().await?;
            // If it were closed with bytes unread the client might not get the error.
            let _ = timeout(Duration::from_secs(1), copy(&mut stream, &mut sink())).await;
            return Ok(());
        }
    }
}

/// Listens until the runtime ends. Returns the address.
pub(crate) fn listen(cx: &mut Cx, addr: SocketAddr) -> io::Result<SocketAddr> {
    let shard = |number| Colored::new(cx, Color::from(number), Shard::default());
    let shards: Arc<[_]> = (1..=cx.cores().min(64) as u64).map(shard).collect();
    let accept = move |cx: &mut Cx, incoming: io::Result<Incoming>| {
        // Out of descriptors, perhaps: accepting goes on a little later.
        let Ok(incoming) = incoming else { return };
        let stream = incoming.open_unique();
        let (color, shards) = (stream.color(), Arc::clone(&shards));
        // A connection that fails is gone, and nobody is left to be told.
        let served = async move { drop(serve(stream, shards).await) };
        cx.spawn_as(&SERVE, color, served).detach();
    };
    let on_accept = ACCEPT.on_each(Color::DEFAULT, accept);
    let listener = cx.listen(addr, Acceptors::PerCore, on_accept)?;
    let addr = listener.local_addr();
    listener.detach();
    Ok(addr)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let addr = std::env::args().nth(1);
    let addr = addr.as_deref().unwrap_or("127.0.0.1:6379").parse()?;
    mely::net::raise_open_file_limit()?;
    let served = Runtime::builder().build()?.run_until(move |cx, finish| {
        let stop = finish.clone();
        let on_stop = STOP.on_each(Color::DEFAULT, move |_cx, ()| stop.finish(Ok(())));
        let listening = cx.on_stop_signal(on_stop).and_then(|()| listen(cx, addr));
        match listening {
            Ok(addr) => println!("listening on {addr}"),
            Err(error) => finish.finish(Err(error)),
        }
    })?;
    Ok(served?)
}
