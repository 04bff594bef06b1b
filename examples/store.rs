//! How do I keep state by key, and change several keys at once? A store with Redis's protocol, for
//! redis-cli and redis-benchmark. `cargo run --release --example store -- 127.0.0.1:6379`, Ctrl-C
//! to stop: what has come by then is answered.
//!
//! A key lies in one of a few shards, each the state of a color. A connection is a task. What it
//! has read is a batch of requests: an event for each of their shards, in parallel, and one write
//! of all answers. A batch with a request for several shards is one event that has all of them.
//!
//! Two requests of a batch for different shards may be seen in either order by other connections.

use futures::io::{AsyncReadExt, AsyncWriteExt, copy, sink};
use mely::aio::AsyncStream;
use mely::net::{Acceptors, Incoming, Stream};
use mely::{Color, Colored, Cx, Handler, NoReply, Reply, Runtime, timeout, with_cx};
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Write;
use std::net::SocketAddr;
use std::{io, mem, ops::Range, sync::Arc, time::Duration};

static ACCEPT: Handler = Handler::new("accept");
static SERVE: Handler = Handler::new("serve");
static STORE: Handler = Handler::new("store");
static STOP: Handler = Handler::new("stop");

/// More of them are more that run in parallel, and more events for a batch.
const SHARDS: u64 = 4;
/// A client that sends a longer request is told so, and sent away.
const REQUEST_BYTES_MAX: usize = 4 << 20;
const LINE_BYTES_MAX: usize = 16 << 10;
/// Of what a shard answers to one batch. What is beyond is an error.
const ANSWER_BYTES_MAX: usize = 16 << 20;

type Shard = HashMap<Box<[u8]>, Entry>;

struct Entry {
    value: Vec<u8>,
    /// It is gone from then on, and removed when somebody asks for it.
    end: Option<Duration>,
}

/// The shard of a key, as a set: a bit for each shard.
fn shard_of(key: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    key.hash(&mut hasher);
    1 << (hasher.finish() % SHARDS)
}

/// How many of these shards come before this one.
fn place_in(shards: u64, shard: u64) -> usize {
    (shards & (shard - 1)).count_ones() as usize
}

/// Some shards, while an event has them.
struct Store<'a> {
    which: u64,
    shards: Vec<&'a mut Shard>,
    now: Duration,
}

impl Store<'_> {
    fn shard(&mut self, key: &[u8]) -> &mut Shard {
        match &mut self.shards[..] {
            [only] => only,
            all => all[place_in(self.which, shard_of(key))],
        }
    }

    fn get(&mut self, key: &[u8]) -> Option<&mut Entry> {
        let now = self.now;
        let shard = self.shard(key);
        if shard.get(key)?.end.is_some_and(|end| end <= now) {
            shard.remove(key);
        }
        shard.get_mut(key)
    }

    fn set(&mut self, key: &[u8], value: &[u8]) {
        let (value, end) = (value.to_vec(), None);
        self.shard(key).insert(key.into(), Entry { value, end });
    }

    fn del(&mut self, key: &[u8]) -> bool {
        self.get(key).is_some() && self.shard(key).remove(key).is_some()
    }

    /// Runs a request and writes its answer.
    fn run(&mut self, request: &[&[u8]], out: &mut Vec<u8>) -> Result<(), &'static str> {
        const NO_NUMBER: &str = "value is not an integer or out of range";
        match (request[0], &request[1..]) {
            (b"PING", []) => out.extend(b"+PONG\r\n"),
            (b"PING", [text]) => bulk(out, Some(text)),
            (b"COMMAND", _) | (b"CONFIG", [_, ..]) => out.extend(b"*0\r\n"),
            (b"GET", [key]) => bulk(out, self.get(key).map(|entry| &entry.value[..])),
            (b"MGET", keys @ [_, ..]) => {
                head(out, '*', keys.len() as i64);
                for key in keys {
                    bulk(out, self.get(key).map(|entry| &entry.value[..]));
                    if out.len() > ANSWER_BYTES_MAX {
                        break;
                    }
                }
            }
            (b"SET", [key, value]) => {
                self.set(key, value);
                out.extend(b"+OK\r\n");
            }
            (b"MSET", pairs @ [_, _, ..]) if pairs.len().is_multiple_of(2) => {
                pairs.chunks(2).for_each(|pair| self.set(pair[0], pair[1]));
                out.extend(b"+OK\r\n");
            }
            (b"INCR", [key]) => {
                let old = self.get(key).map_or(Some(0), |entry| number(&entry.value));
                let new = old.and_then(|old| old.checked_add(1)).ok_or(NO_NUMBER)?;
                match self.get(key) {
                    Some(entry) => entry.value = new.to_string().into(),
                    None => self.set(key, new.to_string().as_bytes()),
                }
                head(out, ':', new);
            }
            (b"DEL", keys @ [_, ..]) => {
                let gone = keys.iter().filter(|key| self.del(key)).count();
                head(out, ':', gone as i64);
            }
            (b"EXPIRE", [key, seconds]) => {
                let seconds = number(seconds).ok_or(NO_NUMBER)?;
                let end = self.now + Duration::from_secs(seconds.max(0) as u64);
                let entry = self.get(key).map(|entry| entry.end = Some(end));
                head(out, ':', entry.is_some() as i64);
            }
            _ => return Err("unknown command, or wrong number of arguments"),
        }
        Ok(())
    }
}

fn number(text: &[u8]) -> Option<i64> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

fn head(out: &mut Vec<u8>, kind: char, number: i64) {
    let _ = write!(out, "{kind}{number}\r\n");
}

fn bulk(out: &mut Vec<u8>, value: Option<&[u8]>) {
    let Some(value) = value else {
        return out.extend(b"$-1\r\n");
    };
    head(out, '$', value.len() as i64);
    out.extend(value);
    out.extend(b"\r\n");
}

/// What has come of a connection: whole requests, and the beginning of the next one.
#[derive(Default)]
struct Batch {
    bytes: Vec<u8>,
    /// Arguments of all requests, in `bytes`; `requests` says which are whose, and the shards.
    args: Vec<Range<usize>>,
    requests: Vec<(Range<usize>, u64)>,
    /// Where the last whole request ends, and how far the one after it is read.
    whole: usize,
    at: usize,
    /// The arguments that it has yet to get.
    missing: usize,
}

impl Batch {
    /// Reads on, as far as there are whole lines and arguments.
    fn read(&mut self) -> Result<(), &'static str> {
        loop {
            if self.bytes.len() - self.whole > REQUEST_BYTES_MAX {
                return Err("Protocol error: too big request");
            }
            let rest = &self.bytes[self.at..];
            let Some(len) = rest.iter().position(|&byte| byte == b'\n') else {
                let long = rest.len() > LINE_BYTES_MAX;
                return if long {
                    Err("Protocol error: too big line")
                } else {
                    Ok(())
                };
            };
            let (line, mut next) = (rest[..len].trim_ascii_end(), self.at + len + 1);
            if self.missing > 0 || line.first() == Some(&b'*') {
                let size = number(line.get(1..).unwrap_or_default()).unwrap_or(-1);
                let size = usize::try_from(size).unwrap_or(usize::MAX);
                if size > REQUEST_BYTES_MAX {
                    return Err("Protocol error: invalid length");
                } else if self.missing == 0 {
                    self.missing = size;
                } else if line[0] != b'$' {
                    return Err("Protocol error: expected '$'");
                } else {
                    let arg = next..next + size;
                    let Some(end) = self.bytes.get(arg.end..arg.end + 2) else {
                        return Ok(());
                    };
                    if end != b"\r\n" {
                        return Err("Protocol error: invalid end of an argument");
                    }
                    next = arg.end + 2;
                    self.args.push(arg);
                    self.missing -= 1;
                }
            } else {
                // A request of one line.
                let mut from = self.at;
                for word in line.split(u8::is_ascii_whitespace) {
                    self.args
                        .extend((!word.is_empty()).then(|| from..from + word.len()));
                    from += word.len() + 1;
                }
            }
            self.at = next;
            if self.missing == 0 {
                self.complete();
            }
        }
    }

    fn complete(&mut self) {
        self.whole = self.at;
        let args = self.requests.last().map_or(0, |(args, _)| args.end)..self.args.len();
        let Some(name) = self.args[args.clone()].first() else {
            return;
        };
        self.bytes[name.clone()].make_ascii_uppercase();
        let (most, step) = match &self.bytes[name.clone()] {
            b"GET" | b"SET" | b"INCR" | b"EXPIRE" => (1, 1),
            b"DEL" | b"MGET" => (usize::MAX, 1),
            b"MSET" => (usize::MAX, 2),
            _ => (0, 1),
        };
        let keys = self.args[args.clone()][1..].iter().step_by(step).take(most);
        let shards = keys.fold(0, |all, key| all | shard_of(&self.bytes[key.clone()]));
        // Whatever has no key asks the first shard, so that nothing is answered in another way.
        self.requests.push((args, shards.max(1)));
    }

    /// Takes the whole requests out. What is read of the next one is read again.
    fn take(&mut self) -> Batch {
        let bytes = self.bytes.split_off(self.whole);
        mem::replace(
            self,
            Batch {
                bytes,
                ..Batch::default()
            },
        )
    }

    /// Runs the requests for these shards. Returns the answers, and where each ends.
    fn run(&self, which: u64, shards: Vec<&mut Shard>, cx: &Cx) -> (Vec<u8>, Vec<usize>) {
        let mut store = Store {
            which,
            shards,
            now: cx.now(),
        };
        let (mut out, mut ends, mut request) = (Vec::new(), Vec::new(), Vec::new());
        for (args, _) in self
            .requests
            .iter()
            .filter(|(_, shards)| shards & which != 0)
        {
            let begin = out.len();
            request.clear();
            request.extend(
                self.args[args.clone()]
                    .iter()
                    .map(|arg| &self.bytes[arg.clone()]),
            );
            let mut done = store.run(&request, &mut out);
            if out.len() > ANSWER_BYTES_MAX {
                done = Err("too long an answer");
            }
            if let Err(error) = done {
                out.truncate(begin);
                let _ = write!(out, "-ERR {error}\r\n");
            }
            ends.push(out.len());
        }
        (out, ends)
    }

    /// All answers, in the order of the requests.
    async fn answer(self, all: &[Colored<Shard>]) -> Result<Vec<u8>, NoReply> {
        let which = self
            .requests
            .iter()
            .fold(0, |all, (_, shards)| all | shards);
        let spans = self
            .requests
            .iter()
            .any(|(_, shards)| !shards.is_power_of_two());
        let asked = (0..SHARDS).filter(|shard| which & 1 << shard != 0);
        let batch = &Arc::new(self);
        let replies: Vec<Reply<_>> = with_cx(|cx| {
            let its = Arc::clone(batch);
            if spans {
                let asked: Vec<_> = asked.map(|shard| all[shard as usize].clone()).collect();
                return vec![cx.ask_all(asked, move |shards, cx| its.run(which, shards, cx))];
            }
            let ask = |shard| {
                let its = Arc::clone(batch);
                let run = move |state: &mut _, cx: &mut Cx| its.run(1u64 << shard, vec![state], cx);
                all[shard as usize].ask_as(cx, &STORE, run)
            };
            asked.map(ask).collect()
        });
        let mut parts = Vec::new();
        for reply in replies {
            let (out, ends) = reply.await?;
            parts.push((out, ends.into_iter(), 0));
        }
        if let [(only, ..)] = &mut parts[..] {
            return Ok(mem::take(only));
        }
        let mut whole = Vec::new();
        for (_, shard) in &batch.requests {
            let (out, ends, begin) = &mut parts[place_in(which, *shard)];
            let end = ends.next().expect("one for each request");
            whole.extend(&out[mem::replace(begin, end)..end]);
        }
        Ok(whole)
    }
}

/// Serves a connection until it ends, or until the runtime stops and all that came is answered.
async fn serve(stream: Stream, shards: Arc<[Colored<Shard>]>) -> io::Result<()> {
    let stream = with_cx(|cx| AsyncStream::new(cx, stream));
    let mut stream = stream.map_err(io::Error::other)?;
    let (mut input, mut space) = (Batch::default(), vec![0; 16 << 10]);
    loop {
        let len = stream.read(&mut space).await?;
        if len == 0 {
            return stream.close().await;
        }
        input.bytes.extend_from_slice(&space[..len]);
        let read = input.read();
        if !input.requests.is_empty() {
            let answers = input
                .take()
                .answer(&shards)
                .await
                .map_err(io::Error::other)?;
            stream.write_all(&answers).await?;
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
    let shard = |number| Colored::new(cx, Color::from(number), Shard::new());
    let shards: Arc<[_]> = (1..=SHARDS).map(shard).collect();
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
