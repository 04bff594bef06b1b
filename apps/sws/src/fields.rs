//! The header fields SWS acts on: framing, persistence and conditions.

use crate::host::host_of;
use crate::status::Status;

/// A body up to this size is read and thrown away, so that the connection can go on; a larger one
/// is refused unseen. A GET has no use for a body at all.
pub(crate) const BODY_BYTES_MAX: u64 = 16 * 1024;

/// Some bytes of a request head, as a range of it where they stood in one piece.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Text {
    /// `head[start..end]`.
    Range(usize, usize),
    /// Put together from several lines, or decoded.
    Owned(Vec<u8>),
}

impl Text {
    /// The bytes, given the head they were found in.
    pub(crate) fn of<'a>(&'a self, head: &'a [u8]) -> &'a [u8] {
        match self {
            Text::Range(start, end) => &head[*start..*end],
            Text::Owned(bytes) => bytes,
        }
    }
}

/// The conditions that a request is made under (RFC 9110, section 13.1), each with its lines
/// joined: two dates make no date, and are ignored as such.
#[derive(Debug, Default)]
pub(crate) struct Conditions {
    /// If-Match.
    pub(crate) if_match: Option<Text>,
    /// If-Unmodified-Since.
    pub(crate) if_unmodified_since: Option<Text>,
    /// If-None-Match.
    pub(crate) if_none_match: Option<Text>,
    /// If-Modified-Since.
    pub(crate) if_modified_since: Option<Text>,
}

/// What the header section says, as far as SWS cares.
#[derive(Debug, Default)]
pub(crate) struct Fields {
    /// Boxed, since most requests have none and all are moved about.
    pub(crate) conditions: Option<Box<Conditions>>,
    hosts: usize,
    close: bool,
    keep_alive: bool,
    expects: bool,
    content_length: Option<u64>,
    transfer_codings: Option<Vec<u8>>,
}

/// How much body follows a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Body {
    /// This many bytes, few enough to be skipped.
    Skip(usize),
    /// Too many, or nobody knows how many.
    TooLarge,
    /// Transfer codings that SWS does not know.
    Unknown,
}

impl Fields {
    /// Reads the parsed fields of the request that begins at `head[0]`.
    pub(crate) fn read(head: &[u8], fields: &[httparse::Header<'_>]) -> Result<Fields, Status> {
        let mut all = Fields::default();
        for field in fields {
            let (name, value) = (field.name, field.value);
            let is = |wanted: &str| name.eq_ignore_ascii_case(wanted);
            let mut condition = |of: fn(&mut Conditions) -> &mut Option<Text>| {
                join(of(all.conditions.get_or_insert_default()), head, value);
            };
            // By length first: most fields of a browser are none of these.
            match name.len() {
                4 if is("host") => all.host(value)?,
                6 if is("expect") => all.expects = true,
                10 if is("connection") => all.connection(value),
                8 if is("if-match") => condition(|c| &mut c.if_match),
                13 if is("if-none-match") => condition(|c| &mut c.if_none_match),
                14 if is("content-length") => all.content_length(value)?,
                17 if is("if-modified-since") => condition(|c| &mut c.if_modified_since),
                19 if is("if-unmodified-since") => condition(|c| &mut c.if_unmodified_since),
                17 if is("transfer-encoding") => all.transfer_encoding(value)?,
                _ => {}
            }
        }
        Ok(all)
    }

    /// Refuses what would let two readers of the same bytes disagree about where the request ends
    /// or whom it is for; else says how much body follows.
    pub(crate) fn framing(&self, http_minor: u8) -> Result<Body, Status> {
        if self.hosts == 0 && http_minor >= 1 {
            return Err(Status::BadRequest);
        }
        match (&self.transfer_codings, self.content_length) {
            (Some(_), Some(_)) => Err(Status::BadRequest),
            // HTTP/1.0 has no transfer codings: somebody on the way did not understand it.
            (Some(_), None) if http_minor == 0 => Err(Status::BadRequest),
            (Some(codings), None) => {
                let mut codings = codings.split(|&b| b == b',').map(<[u8]>::trim_ascii);
                let last = codings.next_back().unwrap_or_default();
                match (last.eq_ignore_ascii_case(b"chunked"), codings.next()) {
                    // Unless the last coding is chunked, nothing tells where the body ends.
                    (false, _) => Err(Status::BadRequest),
                    (true, Some(_)) => Ok(Body::Unknown),
                    (true, None) => Ok(Body::TooLarge),
                }
            }
            (None, Some(bytes)) if bytes > BODY_BYTES_MAX => Ok(Body::TooLarge),
            (None, bytes) => Ok(Body::Skip(bytes.unwrap_or(0) as usize)),
        }
    }

    /// Whether the client wants the connection to go on, and may have it.
    pub(crate) fn keeps_alive(&self, http_minor: u8) -> bool {
        // A client that waits for `100 Continue` may or may not send its body once it has seen the
        // final answer, so the next byte may or may not begin a request.
        let body_in_doubt = self.expects && self.content_length.is_some_and(|bytes| bytes > 0);
        !self.close && !body_in_doubt && (http_minor >= 1 || self.keep_alive)
    }

    fn host(&mut self, value: &[u8]) -> Result<(), Status> {
        self.hosts += 1;
        if self.hosts == 1 && host_of(value).is_some() {
            Ok(())
        } else {
            Err(Status::BadRequest)
        }
    }

    fn connection(&mut self, value: &[u8]) {
        for option in value.split(|&b| b == b',').map(<[u8]>::trim_ascii) {
            self.close |= option.eq_ignore_ascii_case(b"close");
            self.keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
        }
    }

    /// Takes one number. A repeated one, be it the same, is refused, as RFC 9110, section 8.6
    /// allows: readers differ in which of them counts.
    fn content_length(&mut self, value: &[u8]) -> Result<(), Status> {
        let is_number = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
        if !is_number || self.content_length.is_some() {
            return Err(Status::BadRequest);
        }
        // A number that does not fit is too large in any case: it saturates.
        self.content_length = Some(value.iter().fold(0_u64, |sum, digit| {
            sum.saturating_mul(10)
                .saturating_add(u64::from(digit - b'0'))
        }));
        Ok(())
    }

    fn transfer_encoding(&mut self, value: &[u8]) -> Result<(), Status> {
        // Nobody honest spreads it over lines, and readers differ on which one counts.
        match self.transfer_codings.replace(value.to_vec()) {
            None => Ok(()),
            Some(_) => Err(Status::BadRequest),
        }
    }
}

/// Several lines of a list field mean the same as one with their values joined by commas.
fn join(text: &mut Option<Text>, head: &[u8], value: &[u8]) {
    *text = Some(match text.take() {
        None => {
            let start = value.as_ptr().addr() - head.as_ptr().addr();
            Text::Range(start, start + value.len())
        }
        Some(before) => Text::Owned([before.of(head), value].join(&b", "[..])),
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(section: &str) -> Result<Fields, Status> {
        let mut fields = [httparse::EMPTY_HEADER; 8];
        let text = format!("{section}\r\n");
        match httparse::parse_headers(text.as_bytes(), &mut fields).unwrap() {
            httparse::Status::Complete((_, fields)) => Fields::read(text.as_bytes(), fields),
            httparse::Status::Partial => panic!("partial"),
        }
    }

    fn framing(section: &str) -> Result<Body, Status> {
        read(&format!("Host: h\r\n{section}"))?.framing(1)
    }

    #[test]
    fn bodies() {
        let bad = Err(Status::BadRequest);
        for (section, expected) in [
            ("", Ok(Body::Skip(0))),
            ("Content-Length: 0\r\n", Ok(Body::Skip(0))),
            ("Content-Length: 16384\r\n", Ok(Body::Skip(16384))),
            ("Content-Length: 16385\r\n", Ok(Body::TooLarge)),
            ("Content-Length: 1073741824\r\n", Ok(Body::TooLarge)),
            (
                "Content-Length: 99999999999999999999999999\r\n",
                Ok(Body::TooLarge),
            ),
            ("Content-Length: 05\r\n", Ok(Body::Skip(5))),
            ("Content-Length: 5\r\nContent-Length: 5\r\n", bad),
            ("Content-Length: 5, 5\r\n", bad),
            ("Content-Length: 0\r\nContent-Length: 0\r\n", bad),
            ("Content-Length: 5\r\nContent-Length: 6\r\n", bad),
            ("Content-Length: 5, 6\r\n", bad),
            ("Content-Length: +5\r\n", bad),
            ("Content-Length: -5\r\n", bad),
            ("Content-Length: 0x5\r\n", bad),
            ("Content-Length: 5 5\r\n", bad),
            ("Content-Length:\r\n", bad),
            ("Content-Length: ,\r\n", bad),
            ("Transfer-Encoding: chunked\r\n", Ok(Body::TooLarge)),
            ("Transfer-Encoding: Chunked\r\n", Ok(Body::TooLarge)),
            ("Transfer-Encoding: gzip, chunked\r\n", Ok(Body::Unknown)),
            ("Transfer-Encoding: chunked, gzip\r\n", bad),
            ("Transfer-Encoding: identity\r\n", bad),
            ("Transfer-Encoding: xchunked\r\n", bad),
            ("Transfer-Encoding:\r\n", bad),
            (
                "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
                bad,
            ),
            ("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n", bad),
            ("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", bad),
        ] {
            assert_eq!(framing(section), expected, "{section:?}");
        }
        let old = read("Transfer-Encoding: chunked\r\n").unwrap();
        assert_eq!(old.framing(0), Err(Status::BadRequest));
    }

    #[test]
    fn one_valid_host() {
        for (section, minor, good) in [
            ("Host: h\r\n", 1, true),
            ("Host: [::1]:8080\r\n", 1, true),
            ("Host:\r\n", 1, true),
            ("", 0, true),
            ("", 1, false),
            ("Host: a\r\nHost: a\r\n", 1, false),
            ("Host: a\r\nHost: a\r\n", 0, false),
            ("Host: a b\r\n", 1, false),
            ("Host: a,b\r\n", 1, false),
            ("Host: a/b\r\n", 1, false),
            ("Host: u@a\r\n", 1, false),
            ("Host: [\r\n", 1, false),
            ("Host: a:b:c\r\n", 1, false),
            ("Host: %zz\r\n", 1, false),
            ("Host: a:99x\r\n", 1, false),
        ] {
            let result = read(section).and_then(|fields| fields.framing(minor));
            assert_eq!(result.is_ok(), good, "{section:?}");
        }
    }

    #[test]
    fn persistence() {
        for (section, minor, keeps) in [
            ("", 1, true),
            ("", 0, false),
            ("Connection: close\r\n", 1, false),
            ("Connection: Keep-Alive\r\n", 0, true),
            ("Connection: keep-alive, close\r\n", 0, false),
            ("Connection: x, CLOSE ,y\r\n", 1, false),
            ("Connection: closed\r\n", 1, true),
            ("Connection: x\r\nConnection: close\r\n", 1, false),
            ("Expect: 100-continue\r\n", 1, true),
            ("Expect: 100-continue\r\nContent-Length: 3\r\n", 1, false),
        ] {
            assert_eq!(
                read(section).unwrap().keeps_alive(minor),
                keeps,
                "{section:?}"
            );
        }
    }

    #[test]
    fn conditions_are_joined_over_lines() {
        assert!(read("X: y\r\n").unwrap().conditions.is_none());
        let one = "If-None-Match:  \"a\" \r\n";
        let conditions = read(one).unwrap().conditions.unwrap();
        assert_eq!(
            conditions.if_none_match.unwrap().of(one.as_bytes()),
            b"\"a\""
        );
        assert_eq!(conditions.if_match, None);
        let two = "If-Match: \"a\"\r\nX: y\r\nif-match: \"b\"\r\nIf-Unmodified-Since: x\r\n";
        let conditions = read(two).unwrap().conditions.unwrap();
        let joined = Text::Owned(b"\"a\", \"b\"".to_vec());
        assert_eq!(conditions.if_match, Some(joined));
        assert!(conditions.if_unmodified_since.is_some());
    }
}
