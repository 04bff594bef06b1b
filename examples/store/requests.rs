//! What a request of Redis's protocol looks like, what it does, and what it answers.

use ahash::RandomState;
use bytes::Bytes;
use hashbrown::HashMap;
use hashbrown::hash_map::EntryRef;
use nom::bytes::streaming::take_until;
use nom::character::streaming::{char, crlf, u32};
use nom::combinator::verify;
use nom::error::{Error, ErrorKind};
use nom::multi::{count, length_data};
use nom::sequence::{delimited, terminated};
use nom::{IResult, Parser};
use std::time::Duration;

/// Longer requests are not served, nor those with more arguments: what has come of a request is
/// read anew when more comes.
pub(crate) const REQUEST_BYTES_MAX: usize = 4 << 20;
const ARGS_MAX: usize = 1 << 14;
/// Of the answers to what was read at once. What is beyond is an error.
const ANSWER_BYTES_MAX: usize = 16 << 20;

/// The arguments of the first request: an array of them, or the words of a line. `input` is a part
/// of `bytes`.
pub(crate) fn request<'a>(input: &'a [u8], bytes: &Bytes) -> IResult<&'a [u8], Vec<Bytes>> {
    let shared = |arg: &[u8]| bytes.slice_ref(arg);
    if input.first().is_some_and(|&byte| byte != b'*') {
        let (input, line) = terminated(take_until("\n"), char('\n')).parse(input)?;
        let words = line.split(u8::is_ascii_whitespace);
        let words = words.filter(|word| !word.is_empty()).take(ARGS_MAX + 1);
        let words: Vec<_> = words.map(shared).collect();
        return match words.len() <= ARGS_MAX {
            true => Ok((input, words)),
            false => Err(nom::Err::Failure(Error::new(input, ErrorKind::TooLarge))),
        };
    }
    let size = |sign, most| {
        let number = delimited(char(sign), u32, crlf);
        verify(number, move |&number| number as usize <= most)
    };
    let (input, args) = size('*', ARGS_MAX).parse(input)?;
    let arg = terminated(length_data(size('$', REQUEST_BYTES_MAX)), crlf);
    count(arg.map(shared), args as usize).parse(input)
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

    /// Runs a request, whose name is in capitals, and writes its answer.
    pub(crate) fn run(&mut self, request: &[Bytes], out: &mut Vec<u8>) -> Result<(), &'static str> {
        const NO_NUMBER: &str = "value is not an integer or out of range";
        match (&request[0][..], &request[1..]) {
            (b"PING", []) => out.extend(b"+PONG\r\n"),
            (b"PING", [text]) => bulk(out, Some(text))?,
            (b"COMMAND", _) | (b"CONFIG", [_, ..]) => out.extend(b"*0\r\n"),
            (b"GET", [key]) => bulk(out, self.get(key).map(|entry| &entry.value[..]))?,
            (b"MGET", keys @ [_, ..]) => {
                head(out, '*', keys.len() as i64);
                for key in keys {
                    bulk(out, self.get(key).map(|entry| &entry.value[..]))?;
                }
            }
            (b"SET", pair @ [_, _]) | (b"MSET", pair @ [_, _, ..]) if pair.len() % 2 == 0 => {
                for pair in pair.chunks(2) {
                    let entry = self.shard(&pair[0]).entry_ref(&pair[0][..]);
                    entry.insert(Entry::new(&pair[1]));
                }
                out.extend(b"+OK\r\n");
            }
            (b"INCR", [key]) => {
                let now = self.now;
                let entry = self.shard(key).entry_ref(&key[..]);
                let entry = entry.or_insert_with(|| Entry::new(b"0"));
                if entry.is_over(now) {
                    *entry = Entry::new(b"0");
                }
                let new = number(&entry.value).and_then(|old| old.checked_add(1));
                let new = new.ok_or(NO_NUMBER)?;
                entry.value.clear();
                entry
                    .value
                    .extend(itoa::Buffer::new().format(new).as_bytes());
                head(out, ':', new);
            }
            (b"DEL", keys @ [_, ..]) => {
                let mut del = |key: &Bytes| {
                    self.get(key).is_some() && self.shard(key).remove(&key[..]).is_some()
                };
                head(out, ':', keys.iter().filter(|key| del(key)).count() as i64);
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
    out.push(kind as u8);
    out.extend(itoa::Buffer::new().format(number).as_bytes());
    out.extend(b"\r\n");
}

fn bulk(out: &mut Vec<u8>, value: Option<&[u8]>) -> Result<(), &'static str> {
    let Some(value) = value else {
        out.extend(b"$-1\r\n");
        return Ok(());
    };
    if out.len() + value.len() > ANSWER_BYTES_MAX {
        return Err("too long an answer");
    }
    head(out, '$', value.len() as i64);
    out.extend(value);
    out.extend(b"\r\n");
    Ok(())
}
