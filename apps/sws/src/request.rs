//! One request head out of the bytes of a connection, as they come.
//!
//! The verdict on a request is a function of the bytes alone, never of how they were cut: it is
//! decided by the first prefix that decides it, and that prefix is looked at in the same order
//! whether it came byte by byte or in one piece.
//!
//! Cost: bytes are scanned once for line ends, resuming where the last chunk stopped. httparse runs
//! at most three times a request (at the first chunk, at the end of the request line, at the end
//! of the head), on at most [`HEAD_BYTES_MAX`] bytes, so a slow sender of n bytes costs O(n).

use std::mem::MaybeUninit;

use crate::fields::{Body, Conditions, Fields, Text};
use crate::path;
use crate::status::Status;

/// The longest request line, its end included (RFC 9112 wants at least 8,000).
pub(crate) const LINE_BYTES_MAX: usize = 8 * 1024;
/// The longest head: request line, fields and the empty line.
pub(crate) const HEAD_BYTES_MAX: usize = 16 * 1024;
/// The most header fields.
pub(crate) const FIELDS_MAX: usize = 64;

/// What was asked to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Method {
    /// GET.
    Get,
    /// HEAD: the same answer without its body.
    Head,
    /// A method that is always refused.
    Other,
}

/// A request whose framing is sound, so that it has a place in the order of answers even if it is
/// refused. Ranges count from its first byte.
#[derive(Debug)]
pub(crate) struct Request {
    /// The method.
    pub(crate) method: Method,
    /// The key to look up, or why not.
    pub(crate) path: Result<Text, Status>,
    /// Whether the connection goes on after the answer.
    pub(crate) keep_alive: bool,
    /// Where in the head its target is.
    target: (u32, u32),
    /// The conditions, if there are any.
    pub(crate) conditions: Option<Box<Conditions>>,
    /// Bytes of the head, to be consumed.
    pub(crate) head_bytes: usize,
    /// Bytes of body after it, to be skipped; `None` if it is refused, so that nothing after the
    /// head means anything.
    pub(crate) body_bytes: Option<usize>,
}

/// What the bytes so far amount to.
#[derive(Debug)]
pub(crate) enum Parsed {
    /// Not a whole head yet.
    Incomplete,
    /// A request.
    Request(Request),
    /// No request can be made out; answer this and close.
    Reject(Status),
}

/// Bytes of empty lines before a request, which RFC 9112 asks servers to tolerate.
pub(crate) fn empty_lines_bytes(buffer: &[u8]) -> usize {
    let mut rest = buffer;
    while let Some(after) = rest.strip_prefix(b"\r\n") {
        rest = after;
    }
    buffer.len() - rest.len()
}

/// Where the search for the end of one head stands. A fresh one for each request.
#[derive(Debug, Default)]
pub(crate) struct Scanner {
    /// Bytes already searched.
    scanned: usize,
    /// Index after the end of the request line, once found.
    line_end: Option<usize>,
    /// How often httparse ran, to hold it against the bound above.
    #[cfg(test)]
    runs: u32,
}

impl Scanner {
    /// Looks at `buffer`, which begins with the request's first byte and holds at least what it
    /// held at the last call.
    pub(crate) fn advance(&mut self, buffer: &[u8]) -> Parsed {
        if self.scanned == 0 {
            self.count_run();
            if let Some(parsed) = whole(buffer) {
                return parsed;
            }
        }
        match self.search(buffer) {
            Ok(None) => Parsed::Incomplete,
            Ok(Some(head_bytes)) => {
                self.count_run();
                match parse(&buffer[..head_bytes]) {
                    Ok(request) => Parsed::Request(request),
                    Err(status) => Parsed::Reject(status),
                }
            }
            Err(status) => Parsed::Reject(status),
        }
    }

    fn count_run(&mut self) {
        #[cfg(test)]
        {
            self.runs += 1;
        }
    }

    /// The length of the head, once its end is there.
    fn search(&mut self, buffer: &[u8]) -> Result<Option<usize>, Status> {
        let line_end = match self.line_end {
            Some(line_end) => line_end,
            None => {
                let window = &buffer[..buffer.len().min(LINE_BYTES_MAX)];
                let is_end = |&b: &u8| b == b'\n' || (b < b' ' && b != b'\r') || b == 0x7f;
                match window[self.scanned..].iter().position(is_end) {
                    Some(at) if window[self.scanned + at] == b'\n' => {
                        let line_end = self.scanned + at + 1;
                        check_end(&window[..line_end])?;
                        self.count_run();
                        check_line(&window[..line_end])?;
                        self.line_end = Some(line_end);
                        // The line's own end may be the first half of the head's.
                        self.scanned = line_end - 1;
                        line_end
                    }
                    // TLS, terminals and other accidents show at once, not at a deadline.
                    Some(_) => return Err(Status::BadRequest),
                    None if window.len() == LINE_BYTES_MAX => return Err(Status::UriTooLong),
                    None => {
                        self.scanned = window.len();
                        return Ok(None);
                    }
                }
            }
        };
        debug_assert!(self.scanned + 1 >= line_end);
        let window = &buffer[..buffer.len().min(HEAD_BYTES_MAX)];
        while let Some(at) = window[self.scanned..].iter().position(|&b| b == b'\n') {
            let end = self.scanned + at;
            check_end(&window[..=end])?;
            match window[end + 1..] {
                [b'\r', b'\n', ..] => return Ok(Some(end + 3)),
                // Cannot tell yet: come back to this line end.
                [] | [b'\r'] => {
                    self.scanned = end;
                    return incomplete(window);
                }
                _ => self.scanned = end + 1,
            }
        }
        self.scanned = window.len();
        incomplete(window)
    }
}

/// Refuses a line that does not end with CRLF. A single LF may be taken for an end too (RFC 9112,
/// section 2.2), and readers differ in whether they do: so a request could be smuggled in its line.
fn check_end(line: &[u8]) -> Result<(), Status> {
    match line.ends_with(b"\r\n") {
        true => Ok(()),
        false => Err(Status::BadRequest),
    }
}

/// Whether some LF does not end a line as [`check_end`] wants it.
fn has_bare_lf(head: &[u8]) -> bool {
    // Without an early end: so it is done many bytes at once.
    let pairs = head.iter().zip(&head[1..]);
    pairs.fold(head[0] == b'\n', |bare, (&before, &byte)| {
        bare | (byte == b'\n' && before != b'\r')
    })
}

fn incomplete(window: &[u8]) -> Result<Option<usize>, Status> {
    if window.len() < HEAD_BYTES_MAX {
        Ok(None)
    } else {
        Err(Status::HeadersTooLarge)
    }
}

/// The common case in one pass: a whole, good head within the limits. Anything else gets its exact
/// verdict from the search.
fn whole(buffer: &[u8]) -> Option<Parsed> {
    // Left uninitialized: filling the table would cost more than most heads do.
    let mut fields = [const { MaybeUninit::uninit() }; FIELDS_MAX];
    let mut request = httparse::Request::new(&mut []);
    let parsed = request.parse_with_uninit_headers(buffer, &mut fields);
    let Ok(httparse::Status::Complete(head_bytes)) = parsed else {
        return None;
    };
    // Method, target, two spaces, HTTP/1.x and CRLF: at most one byte more than the line has.
    let line_bytes = request.method?.len() + request.path?.len() + 12;
    let head = &buffer[..head_bytes];
    if head_bytes > HEAD_BYTES_MAX || line_bytes > LINE_BYTES_MAX || has_bare_lf(head) {
        return None;
    }
    Some(match judge(head, &request) {
        Ok(request) => Parsed::Request(request),
        Err(status) => Parsed::Reject(status),
    })
}

/// Refuses a bad request line as soon as it ends.
fn check_line(line: &[u8]) -> Result<(), Status> {
    let mut request = httparse::Request::new(&mut []);
    match request.parse(line) {
        Ok(_) => Ok(()),
        Err(error) => match as_http_1_1(error, line) {
            Some(line) => check_line(&line),
            None => Err(status_of(error, line)),
        },
    }
}

fn parse(head: &[u8]) -> Result<Request, Status> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS_MAX];
    let mut request = httparse::Request::new(&mut fields);
    match request.parse(head) {
        Ok(httparse::Status::Complete(bytes)) if bytes == head.len() => judge(head, &request),
        // Two opinions on where the head ends would be a hole to smuggle through.
        Ok(_) => Err(Status::BadRequest),
        Err(error) => match as_http_1_1(error, head) {
            Some(head) => parse(&head),
            None => Err(status_of(error, head)),
        },
    }
}

/// A copy of the head of an HTTP/1.2 to HTTP/1.9 request, as one of HTTP/1.1: what a higher minor
/// version adds may be ignored (RFC 9110, section 2.5). Nobody speaks them, so that a copy is cheap
/// enough.
fn as_http_1_1(error: httparse::Error, head: &[u8]) -> Option<Vec<u8>> {
    let line_bytes = head.iter().position(|&b| b == b'\n')?;
    let line = head[..line_bytes].strip_suffix(b"\r");
    let line = line.unwrap_or(&head[..line_bytes]);
    let (minor, version) = line.split_last()?;
    let is_higher = error == httparse::Error::Version
        && version.ends_with(b" HTTP/1.")
        && (b'2'..=b'9').contains(minor);
    is_higher.then(|| {
        let mut head = head.to_vec();
        head[version.len()] = b'1';
        head
    })
}

fn status_of(error: httparse::Error, head: &[u8]) -> Status {
    match error {
        httparse::Error::TooManyHeaders => Status::HeadersTooLarge,
        httparse::Error::Version if speaks_another_version(head) => Status::VersionUnsupported,
        _ => Status::BadRequest,
    }
}

/// Whether the request line is `method target HTTP/digits[.digits]`.
fn speaks_another_version(head: &[u8]) -> bool {
    let line = head.split(|&b| b == b'\n').next().unwrap_or_default();
    let mut words = line
        .strip_suffix(b"\r")
        .unwrap_or(line)
        .split(|&b| b == b' ')
        .skip(2);
    let (Some(version), None) = (words.next(), words.next()) else {
        return false;
    };
    let Some(number) = version.strip_prefix(b"HTTP/") else {
        return false;
    };
    let mut parts = number.split(|&b| b == b'.');
    let is_number = |part: &[u8]| !part.is_empty() && part.iter().all(u8::is_ascii_digit);
    parts.next().is_some_and(is_number)
        && parts.next().is_none_or(is_number)
        && parts.next().is_none()
}

/// From well-formed to meant: framing first, since it decides whether the connection can go on.
fn judge(head: &[u8], parsed: &httparse::Request<'_, '_>) -> Result<Request, Status> {
    let (Some(method), Some(target), Some(minor)) = (parsed.method, parsed.path, parsed.version)
    else {
        return Err(Status::BadRequest);
    };
    let fields = Fields::read(head, parsed.headers)?;
    let body = fields.framing(minor)?;
    let method = match method {
        "GET" => Method::Get,
        "HEAD" => Method::Head,
        "POST" | "PUT" | "DELETE" | "CONNECT" | "OPTIONS" | "TRACE" | "PATCH" => Method::Other,
        _ => return Err(Status::NotImplemented),
    };
    let offset = target.as_ptr().addr() - head.as_ptr().addr();
    let path = match (body, method) {
        (Body::Unknown, _) => Err(Status::NotImplemented),
        (_, Method::Other) => Err(Status::MethodNotAllowed),
        (Body::TooLarge, _) => Err(Status::ContentTooLarge),
        (Body::Skip(_), _) => key_text(offset, target),
    };
    let body_bytes = if let Body::Skip(bytes) = body {
        Some(bytes)
    } else {
        None
    };
    let may_keep_alive = path
        .as_ref()
        .err()
        .is_none_or(|status| status.may_keep_alive());
    Ok(Request {
        method,
        path,
        keep_alive: fields.keeps_alive(minor) && body_bytes.is_some() && may_keep_alive,
        target: (offset as u32, (offset + target.len()) as u32),
        conditions: fields.conditions,
        head_bytes: head.len(),
        body_bytes,
    })
}

impl Request {
    /// The query of its target, with the question mark; empty if there is none. `head` is the
    /// request's.
    pub(crate) fn query<'a>(&self, head: &'a [u8]) -> &'a [u8] {
        let target = &head[self.target.0 as usize..self.target.1 as usize];
        match target.iter().position(|&b| b == b'?') {
            Some(at) => &target[at..],
            None => b"",
        }
    }
}

/// The key of a target that stands at `offset` of the head.
fn key_text(offset: usize, target: &str) -> Result<Text, Status> {
    Ok(match path::key_of(target.as_bytes())? {
        Text::Range(start, end) => Text::Range(offset + start, offset + end),
        owned => owned,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_request_is_all_ranges() {
        let head = b"GET /a?b HTTP/1.1\r\nHost: h\r\nIf-None-Match: \"x\"\r\n\r\nGET";
        let mut scanner = Scanner::default();
        let Parsed::Request(request) = scanner.advance(head) else {
            panic!()
        };
        assert_eq!(request.path, Ok(Text::Range(4, 6)));
        assert_eq!(request.query(head), b"?b");
        let conditions = request.conditions.unwrap();
        assert_eq!(conditions.if_none_match.unwrap().of(head), b"\"x\"");
        assert_eq!(
            (request.head_bytes, request.body_bytes),
            (head.len() - 3, Some(0))
        );
        assert_eq!((request.method, request.keep_alive), (Method::Get, true));
        assert_eq!(scanner.runs, 1);
    }

    #[test]
    fn a_slow_sender_costs_three_parses() {
        let line = "X-Filler: 0123456789\r\n".repeat(FIELDS_MAX - 1);
        let head = format!("GET / HTTP/1.1\r\nHost: h\r\n{line}\r\n");
        let mut scanner = Scanner::default();
        for bytes in 1..head.len() {
            let parsed = scanner.advance(&head.as_bytes()[..bytes]);
            assert!(matches!(parsed, Parsed::Incomplete));
            assert!(
                scanner.scanned + 3 > bytes,
                "nothing is searched twice but a line end"
            );
        }
        assert!(matches!(
            scanner.advance(head.as_bytes()),
            Parsed::Request(_)
        ));
        assert_eq!(scanner.runs, 3);
    }

    #[test]
    fn empty_lines() {
        for (text, bytes) in [
            ("", 0),
            ("\r", 0),
            ("\r\n\r\nG", 4),
            ("\r\n\n\r\nG", 2),
            ("\r\r\n", 0),
            ("G\r\n", 0),
        ] {
            assert_eq!(empty_lines_bytes(text.as_bytes()), bytes, "{text:?}");
        }
    }
}
