//! Requests of which it is known, as they are made, what their answer has to be.

use std::fmt;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};

use crate::status::Status;

/// What a request has to be told.
#[derive(Clone, Debug)]
pub(super) enum Told {
    /// What stands at this key of the site, if anything does.
    Key(&'static str),
    /// That it is refused.
    Refused(Status),
}

/// Some bytes with one answer.
#[derive(Clone)]
pub(super) struct Made {
    pub(super) bytes: Vec<u8>,
    /// Up to here there is no answer yet, unless the answer is a refusal.
    pub(super) head_bytes: usize,
    pub(super) told: Told,
    pub(super) head_only: bool,
    pub(super) close: bool,
}

/// As text, so that a failing case can be read.
impl fmt::Debug for Made {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (bytes, told) = (self.bytes.escape_ascii(), &self.told);
        write!(f, "\"{bytes}\" is told {told:?}, close: {}", self.close)
    }
}

const KEYS: &[&str] = &[
    "/",
    "/index.html",
    "/a.txt",
    "/d",
    "/d/",
    "/d/index.html",
    "/a b",
    "/etc/passwd",
    "/_mely",
    "/_mely/values",
    "/nope",
    "/a.txt/",
    "/%2e%2e/a.txt",
    "/\u{e9}",
    "/...",
];

/// Fields that change nothing.
const FILLERS: &[&str] = &[
    "Accept: */*",
    "X:",
    "x-y:\t z \t",
    "Cookie: a=b; c=\"d\"",
    "If-None-Match: \"other\"",
    "If-Modified-Since: never",
    "If-Unmodified-Since: never",
    "If-Range: \"x\"",
    "Range: bytes=0-1",
    "Content-Length-X: 9",
    "X-Bytes: \u{e9}\u{ff}",
];

/// A good target that means `key`: `noise` says how each of its bytes is spelled.
fn spelled(key: &str, noise: &[u8], form: u8) -> String {
    let mut target = String::from(match form % 8 {
        0 => "http://h:80",
        1 => "HTTPS://[::1]",
        _ => "",
    });
    for (at, (byte, noise)) in key.bytes().zip(noise).enumerate() {
        let plain = byte.is_ascii_alphanumeric() || b"._".contains(&byte);
        target += &match (byte, noise % 12) {
            (b'/', 0) => "//".to_owned(),
            (b'/', 1) => "/./".to_owned(),
            (b'/', 2) => "/x/%2E./".to_owned(),
            (b'/', 3) if at > 0 => "%2f".to_owned(),
            (b'/', _) => "/".to_owned(),
            (_, 0) => format!("%{byte:02x}"),
            _ if plain => char::from(byte).to_string(),
            _ => format!("%{byte:02X}"),
        };
    }
    target + ["", "", "", "?", "?q=/../%zz"][usize::from(form / 8 % 5)]
}

fn target() -> impl Strategy<Value = (String, Told)> {
    let good = (select(KEYS), vec(any::<u8>(), 16), any::<u8>())
        .prop_map(|(key, noise, form)| (spelled(key, &noise, form), Told::Key(key)));
    let out = select(
        &[
            "/..",
            "/d/../../a.txt",
            "/%2e%2E/a.txt",
            "//.%2e%2fetc/passwd",
        ][..],
    )
    .prop_map(|out| (out.to_owned(), Told::Refused(Status::Forbidden)));
    prop_oneof![6 => good, 1 => out]
}

/// How the connection is to go on: the field, and what it means in HTTP/1.0 and in HTTP/1.1.
const PERSISTENCE: &[(&str, [bool; 2])] = &[
    ("", [false, true]),
    ("", [false, true]),
    ("Connection: keep-alive", [true, true]),
    ("connection: x ,Keep-Alive", [true, true]),
    ("Connection: closed, keep-alive", [true, true]),
    ("Connection: keep-alive,CLOSE", [false, false]),
];

/// A request that is well-formed and answered in turn.
pub(super) fn good() -> impl Strategy<Value = Made> {
    let method = select(&["GET", "GET", "HEAD", "POST", "DELETE"][..]);
    let body = prop_oneof![2 => Just(None), 1 => vec(any::<u8>(), 0..40).prop_map(Some)];
    let line = (method, target(), 0..2_u8);
    let fields = (vec(select(FILLERS), 0..6), select(PERSISTENCE), body);
    (line, fields, any::<[Index; 3]>(), 0..3_usize).prop_map(|(line, fields, places, empty)| {
        let (method, (target, told), minor) = line;
        let (fillers, (persistence, keeps), body) = fields;
        let mut fields: Vec<String> = fillers.into_iter().map(str::to_owned).collect();
        let length = body.as_ref().map(Vec::len);
        let its = [
            (minor == 1).then(|| "hOST: h:80".to_owned()),
            (!persistence.is_empty()).then(|| persistence.to_owned()),
            length.map(|bytes| format!("Content-Length: 0{bytes}")),
        ];
        for (field, place) in its.into_iter().zip(places) {
            let at = place.index(fields.len() + 1);
            fields.splice(at..at, field);
        }
        let mut text = "\r\n".repeat(empty) + &format!("{method} {target} HTTP/1.{minor}\r\n");
        for field in &fields {
            text += &format!("{field}\r\n");
        }
        let mut bytes = (text + "\r\n").into_bytes();
        let head_bytes = bytes.len();
        bytes.extend(body.unwrap_or_default());
        let told = match method {
            "GET" | "HEAD" => told,
            _ => Told::Refused(Status::MethodNotAllowed),
        };
        Made {
            bytes,
            head_bytes,
            told,
            head_only: method == "HEAD",
            close: !keeps[usize::from(minor)],
        }
    })
}

/// Request lines that are refused, whatever follows.
const BAD_LINES: &[(&str, Status)] = &[
    ("GET", Status::BadRequest),
    ("GET /", Status::BadRequest),
    ("GET  / HTTP/1.1", Status::BadRequest),
    ("GET / HTTP/1.1 ", Status::BadRequest),
    ("GET /\tHTTP/1.1", Status::BadRequest),
    ("GET /\0 HTTP/1.1", Status::BadRequest),
    ("G@T / HTTP/1.1", Status::BadRequest),
    ("GET / http/1.1", Status::BadRequest),
    ("GET / HTTP/1.10", Status::BadRequest),
    ("\nGET / HTTP/1.1", Status::BadRequest),
    ("GET / HTTP/1.1\nX: y", Status::BadRequest),
    ("GET / HTTP/2.0\nX: y", Status::BadRequest),
    ("GET / HTTP/", Status::BadRequest),
    ("\u{16}\u{3}\u{1}\u{2}", Status::BadRequest),
    ("GET / HTTP/2.0", Status::VersionUnsupported),
    ("GET / HTTP/3", Status::VersionUnsupported),
    ("BREW / HTTP/1.1", Status::NotImplemented),
    ("get / HTTP/1.1", Status::NotImplemented),
    ("GET a.txt HTTP/1.1", Status::BadRequest),
    ("GET * HTTP/1.1", Status::BadRequest),
    ("GET /% HTTP/1.1", Status::BadRequest),
    ("GET /%4g HTTP/1.1", Status::BadRequest),
    ("GET /%00 HTTP/1.1", Status::BadRequest),
    ("GET /../%00 HTTP/1.1", Status::BadRequest),
    ("GET /?#x HTTP/1.1", Status::BadRequest),
    ("GET ftp://h/ HTTP/1.1", Status::BadRequest),
    ("GET http://:80/ HTTP/1.1", Status::BadRequest),
    ("GET http://u@h/ HTTP/1.1", Status::BadRequest),
    ("GET http://[::1/ HTTP/1.1", Status::BadRequest),
];

/// Fields that make a good request a refused one.
const BAD_FIELDS: &[(&str, Status)] = &[
    ("Host: again", Status::BadRequest),
    ("no colon", Status::BadRequest),
    (": no name", Status::BadRequest),
    ("Space : x", Status::BadRequest),
    (" folded", Status::BadRequest),
    ("X: a\rb", Status::BadRequest),
    ("X: a\nY: b", Status::BadRequest),
    ("X: a\n", Status::BadRequest),
    ("X: a\n\nGET / HTTP/1.1", Status::BadRequest),
    ("X: \0", Status::BadRequest),
    ("X: \u{7f}", Status::BadRequest),
    ("Content-Length: -1", Status::BadRequest),
    ("Content-Length: +1", Status::BadRequest),
    ("Content-Length: 1, 2", Status::BadRequest),
    ("Content-Length: 1, 1", Status::BadRequest),
    ("Content-Length: 0\r\nContent-Length: 0", Status::BadRequest),
    ("Content-Length: 0\r\nContent-Length: 1", Status::BadRequest),
    ("Content-Length:", Status::BadRequest),
    (
        "Content-Length: 0\r\nTransfer-Encoding: chunked",
        Status::BadRequest,
    ),
    ("Transfer-Encoding: gzip", Status::BadRequest),
    (
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
        Status::BadRequest,
    ),
    ("Transfer-Encoding: gzip, chunked", Status::NotImplemented),
    ("Transfer-Encoding: chunked", Status::ContentTooLarge),
    ("Content-Length: 16385", Status::ContentTooLarge),
    (
        "Content-Length: 340282366920938463463374607431768211457",
        Status::ContentTooLarge,
    ),
];

/// A request that is refused, and the connection with it. All of `bytes` is its head.
pub(super) fn bad() -> impl Strategy<Value = Made> {
    let line =
        select(BAD_LINES).prop_map(|(line, status)| (format!("{line}\r\nHost: h\r\n"), status));
    let field =
        (select(BAD_FIELDS), vec(select(FILLERS), 0..4)).prop_map(|((bad, status), fillers)| {
            let fillers: String = fillers
                .iter()
                .map(|filler| format!("{filler}\r\n"))
                .collect();
            (
                format!("GET / HTTP/1.1\r\nHost: h\r\n{fillers}{bad}\r\n"),
                status,
            )
        });
    let long = prop_oneof![
        (8192..9000_usize).prop_map(|n| (format!("GET /{}", "a".repeat(n)), Status::UriTooLong)),
        (16384..17000_usize).prop_map(|n| {
            let text = format!("GET / HTTP/1.1\r\nHost: h\r\nX: {}", "a".repeat(n));
            (text, Status::HeadersTooLarge)
        }),
        (65..99_usize).prop_map(|n| {
            let text = format!("GET / HTTP/1.1\r\n{}", "X: y\r\n".repeat(n));
            (text, Status::HeadersTooLarge)
        }),
        Just(("GET / HTTP/1.1\r\n".to_owned(), Status::BadRequest)),
    ];
    prop_oneof![3 => line, 3 => field, 1 => long].prop_map(|(text, status)| {
        let bytes = (text + "\r\n").into_bytes();
        Made {
            head_bytes: bytes.len(),
            bytes,
            told: Told::Refused(status),
            head_only: false,
            close: true,
        }
    })
}

/// Words that mean something to the parser, or nearly do.
const WORDS: &[&str] = &[
    "\r\n",
    "\n",
    "\r",
    "\r\n\r\n",
    "\n\r\n",
    " ",
    "\t",
    "\0",
    ":",
    ",",
    "\"",
    "/",
    "%",
    "%2e",
    "..",
    "#",
    "?",
    "\u{e9}",
    "http://",
    "HTTP/1.0",
    "HTTP/1.12",
    "HTTP/1.3",
    "HTTP/2\n",
    "GET ",
    "HEAD ",
    "/_mely",
    "W/\"",
    "Host: h\r\n",
    "Host: [::1]:80\r\n",
    "Host: a:b:c\r\n",
    "Content-Length: 5\r\n",
    "Content-Length: 99999999999999999999\r\n",
    "Transfer-Encoding: chunked\r\n",
    "Expect: x\r\n",
    "Connection: close\r\n",
    "If-None-Match: *\r\n",
    "If-Match: \"x\"\r\n",
    "If-Match: W/\"6-a9bc80cca21f28b3\"\r\n",
    "If-Unmodified-Since: Sun, 06 Nov 1994 08:49:36 GMT\r\n",
    "If-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT\r\n",
];

#[derive(Clone, Debug)]
enum Edit {
    Word(&'static str),
    Byte(u8),
    Remove(usize),
    Repeat(usize),
}

/// A few requests in a row, damaged in a few places.
pub(super) fn damaged() -> impl Strategy<Value = Vec<u8>> {
    let edit = prop_oneof![
        4 => select(WORDS).prop_map(Edit::Word),
        2 => any::<u8>().prop_map(Edit::Byte),
        2 => (1..12_usize).prop_map(Edit::Remove),
        1 => (2..9000_usize).prop_map(Edit::Repeat),
    ];
    let made = prop_oneof![4 => good(), 1 => bad()];
    (vec(made, 0..4), vec((any::<Index>(), edit), 0..6)).prop_map(|(made, edits)| {
        let mut bytes: Vec<u8> = made.into_iter().flat_map(|made| made.bytes).collect();
        for (place, edit) in edits {
            let at = place.index(bytes.len() + 1);
            match edit {
                Edit::Word(word) => drop(bytes.splice(at..at, word.bytes())),
                Edit::Byte(byte) if at < bytes.len() => bytes[at] = byte,
                Edit::Byte(byte) => bytes.push(byte),
                Edit::Remove(n) => drop(bytes.drain(at..bytes.len().min(at + n))),
                Edit::Repeat(n) => {
                    let again = bytes.get(at).copied().unwrap_or(b' ');
                    drop(bytes.splice(at..at, std::iter::repeat_n(again, n)));
                }
            }
        }
        bytes
    })
}
