//! Runs requests, and answers them word for word as Redis 7 does.

use super::reader::integer;
use ahash::RandomState;
use bytes::Bytes;
use hashbrown::HashMap;
use hashbrown::hash_map::EntryRef;
use std::time::{Duration, SystemTime};

/// Of the answers to what was read at once. What is beyond is an error.
const ANSWER_BYTES_MAX: usize = 16 << 20;

const NAMES: [&str; 10] = [
    "PING", "COMMAND", "CONFIG", "GET", "MGET", "SET", "MSET", "INCR", "DEL", "EXPIRE",
];

/// The name of a request in capitals; empty if there is no such command.
pub(crate) fn name(request: &[Bytes]) -> &'static str {
    let is = |name: &&str| name.as_bytes().eq_ignore_ascii_case(&request[0]);
    NAMES.into_iter().find(is).unwrap_or_default()
}

/// Whether this is no client, but a web page that has its browser talk to this port: a POST, or the
/// field that each of a browser's requests has.
pub(crate) fn is_of_a_browser(request: &[Bytes]) -> bool {
    let is = |name: &[u8]| request[0].eq_ignore_ascii_case(name);
    is(b"POST") || is(b"Host:")
}

pub(crate) type Shard = HashMap<Vec<u8>, Entry, RandomState>;

pub(crate) struct Entry {
    value: Vec<u8>,
    /// It is gone from then on, and removed when somebody asks for it.
    end: Option<Duration>,
}

impl Entry {
    fn new(value: &[u8]) -> Entry {
        let (value, end) = (value.to_vec(), None);
        Entry { value, end }
    }

    fn is_over(&self, now: Duration) -> bool {
        self.end.is_some_and(|end| end <= now)
    }
}

/// The number of a key's shard, below `shards`. An attacker might choose keys of one shard, but not
/// of one place in its table, which has seeds of its own.
pub(crate) fn shard_of(key: &[u8], shards: u64) -> u64 {
    RandomState::with_seeds(1, 2, 3, 4).hash_one(key) % shards
}

/// Some shards, while an event has them.
pub(crate) struct Store<'a> {
    /// The numbers of the shards, as bits, and of how many they are.
    pub(crate) which: u64,
    pub(crate) of: u64,
    pub(crate) shards: Vec<&'a mut Shard>,
    pub(crate) now: Duration,
}

impl Store<'_> {
    fn shard(&mut self, key: &[u8]) -> &mut Shard {
        let before = self.which & ((1 << shard_of(key, self.of)) - 1);
        self.shards[before.count_ones() as usize]
    }

    fn get(&mut self, key: &[u8]) -> Option<&mut Entry> {
        let now = self.now;
        match self.shard(key).entry_ref(key) {
            EntryRef::Occupied(entry) if !entry.get().is_over(now) => Some(entry.into_mut()),
            EntryRef::Occupied(entry) => {
                entry.remove();
                None
            }
            EntryRef::Vacant(_) => None,
        }
    }

    /// Runs a request and writes its answer, or gives the error that is the answer.
    pub(crate) fn run(&mut self, request: &[Bytes], out: &mut Vec<u8>) -> Result<(), String> {
        const NO_NUMBER: &str = "value is not an integer or out of range";
        let name = name(request);
        match (name, &request[1..]) {
            ("PING", []) => out.extend(b"+PONG\r\n"),
            ("PING", [text]) => bulk(out, Some(text))?,
            ("COMMAND", _) | ("CONFIG", [_, ..]) => out.extend(b"*0\r\n"),
            ("GET", [key]) => bulk(out, self.get(key).map(|entry| &entry.value[..]))?,
            ("MGET", keys @ [_, ..]) => {
                head(out, '*', keys.len() as i64);
                for key in keys {
                    bulk(out, self.get(key).map(|entry| &entry.value[..]))?;
                }
            }
            ("SET", pair @ [_, _]) | ("MSET", pair @ [_, _, ..]) if pair.len() % 2 == 0 => {
                for pair in pair.chunks(2) {
                    let entry = self.shard(&pair[0]).entry_ref(&pair[0][..]);
                    entry.insert(Entry::new(&pair[1]));
                }
                out.extend(b"+OK\r\n");
            }
            // It has options that are not here.
            ("SET", [_, _, _, ..]) => return Err("syntax error".into()),
            ("INCR", [key]) => {
                // An error leaves the value alone, and makes none.
                let old = match self.get(key) {
                    Some(entry) => integer(&entry.value).ok_or(NO_NUMBER)?,
                    None => 0,
                };
                let new = old.checked_add(1);
                let new = new.ok_or("increment or decrement would overflow")?;
                let entry = self.shard(key).entry_ref(&key[..]);
                let value = &mut entry.or_insert_with(|| Entry::new(b"")).value;
                value.clear();
                value.extend(itoa::Buffer::new().format(new).as_bytes());
                head(out, ':', new);
            }
            ("DEL", keys @ [_, ..]) => {
                let mut del = |key: &Bytes| {
                    self.get(key).is_some() && self.shard(key).remove(&key[..]).is_some()
                };
                head(out, ':', keys.iter().filter(|key| del(key)).count() as i64);
            }
            ("EXPIRE", [key, seconds]) => {
                let seconds = integer(seconds).ok_or(NO_NUMBER)?;
                // Redis has it as milliseconds since 1970.
                let since_1970 = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
                let max = i64::MAX / 1_000 - since_1970.as_secs() as i64;
                if !(i64::MIN / 1_000..=max).contains(&seconds) {
                    return Err("invalid expire time in 'expire' command".into());
                }
                let end = self.now + Duration::from_secs(seconds.max(0) as u64);
                let entry = self.get(key).map(|entry| entry.end = Some(end));
                head(out, ':', entry.is_some() as i64);
            }
            ("EXPIRE", [_, _, option, ..]) => {
                return Err(format!("Unsupported option {}", text(option)));
            }
            ("", _) => return Err(unknown(request)),
            (name, _) => {
                let name = name.to_ascii_lowercase();
                return Err(format!("wrong number of arguments for '{name}' command"));
            }
        }
        Ok(())
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn unknown(request: &[Bytes]) -> String {
    const BYTES_MAX: usize = 128;
    let first = |bytes: &[u8], most: usize| text(&bytes[..bytes.len().min(most)]);
    let mut args = String::new();
    for arg in &request[1..] {
        if args.len() >= BYTES_MAX {
            break;
        }
        args += &format!("'{}' ", first(arg, BYTES_MAX - args.len()));
    }
    let name = first(&request[0], BYTES_MAX);
    format!("unknown command '{name}', with args beginning with: {args}")
}

/// Writes an error as its answer, which is one line.
pub(crate) fn error(out: &mut Vec<u8>, error: &str) {
    out.extend(b"-ERR ");
    let error = error.trim_end_matches(['\r', '\n']);
    out.extend(error.replace(['\r', '\n'], " ").as_bytes());
    out.extend(b"\r\n");
}

fn head(out: &mut Vec<u8>, kind: char, number: i64) {
    out.push(kind as u8);
    out.extend(itoa::Buffer::new().format(number).as_bytes());
    out.extend(b"\r\n");
}

fn bulk(out: &mut Vec<u8>, value: Option<&[u8]>) -> Result<(), String> {
    let Some(value) = value else {
        out.extend(b"$-1\r\n");
        return Ok(());
    };
    if out.len() + value.len() > ANSWER_BYTES_MAX {
        return Err("too long an answer".into());
    }
    head(out, '$', value.len() as i64);
    out.extend(value);
    out.extend(b"\r\n");
    Ok(())
}
