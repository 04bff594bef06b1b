//! One response, from whatever pieces it arrives in.

use crate::work::Check;

/// Longer heads are not ours.
const HEAD_BYTES_MAX: usize = 16 * 1024;
const HEADERS_MAX: usize = 64;

/// What is wrong with a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wrong {
    /// No head of HTTP/1.1 with a length, or something after the response.
    Framing,
    /// Another status than 200.
    Status,
    /// Not the file that was asked for.
    Body,
}

/// How far a response is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// There is more to come.
    More,
    /// That was all of it.
    Done {
        /// The server will close.
        close: bool,
    },
}

/// Reads one response after the other.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    /// A head that has arrived in part.
    head: Vec<u8>,
    body: Option<Body>,
}

#[derive(Clone, Copy, Debug)]
struct Body {
    length: usize,
    got: usize,
    close: bool,
}

impl Reader {
    /// Takes what has arrived of the response to a request for `expected`.
    ///
    /// # Errors
    /// What is wrong; the connection is of no more use.
    pub(crate) fn advance(
        &mut self,
        bytes: &[u8],
        expected: &[u8],
        check: Check,
    ) -> Result<Progress, Wrong> {
        match self.body {
            Some(body) => self.body(body, bytes, expected, check),
            None if self.head.is_empty() => {
                let Some(head_bytes) = end_of_head(bytes, 0) else {
                    self.head.extend_from_slice(bytes);
                    return self.more();
                };
                let (head, rest) = bytes.split_at(head_bytes);
                self.body(parse(head)?, rest, expected, check)
            }
            None => {
                // The blank line may have arrived in two.
                let known = self.head.len().saturating_sub(3);
                self.head.extend_from_slice(bytes);
                let Some(head_bytes) = end_of_head(&self.head, known) else {
                    return self.more();
                };
                let body = parse(&self.head[..head_bytes])?;
                let rest = &bytes[bytes.len() - (self.head.len() - head_bytes)..];
                self.head.clear();
                self.body(body, rest, expected, check)
            }
        }
    }

    fn more(&self) -> Result<Progress, Wrong> {
        if self.head.len() >= HEAD_BYTES_MAX {
            return Err(Wrong::Framing);
        }
        Ok(Progress::More)
    }

    fn body(
        &mut self,
        mut body: Body,
        bytes: &[u8],
        expected: &[u8],
        check: Check,
    ) -> Result<Progress, Wrong> {
        if check != Check::None && body.length != expected.len() {
            return Err(Wrong::Body);
        }
        let end = body.got + bytes.len();
        // A wrong byte before one too many: they may also have come one after the other.
        if check == Check::Bytes {
            let wanted = &expected[body.got..end.min(body.length)];
            if &bytes[..wanted.len()] != wanted {
                return Err(Wrong::Body);
            }
        }
        if end > body.length {
            return Err(Wrong::Framing);
        }
        body.got = end;
        if body.got < body.length {
            self.body = Some(body);
            return Ok(Progress::More);
        }
        self.body = None;
        Ok(Progress::Done { close: body.close })
    }
}

/// Where the head ends, blank line included; nothing before `from` has to be looked at. One that is
/// too long has no end, whether it came in pieces or at once.
fn end_of_head(bytes: &[u8], from: usize) -> Option<usize> {
    let window = &bytes[from..bytes.len().min(HEAD_BYTES_MAX)];
    memchr::memmem::find(window, b"\r\n\r\n").map(|at| from + at + 4)
}

fn parse(head: &[u8]) -> Result<Body, Wrong> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut response = httparse::Response::new(&mut headers);
    match response.parse(head) {
        Ok(httparse::Status::Complete(bytes)) if bytes == head.len() => {}
        // An end before the one we found, `\n\n`, would make the rest of it body.
        _ => return Err(Wrong::Framing),
    }
    let (mut length, mut close, mut keep_alive) = (None, false, false);
    for header in response.headers.iter() {
        let is = |name: &str| header.name.eq_ignore_ascii_case(name);
        if is("content-length") {
            let bytes = length_of(header.value)?;
            if length.is_some_and(|before| before != bytes) {
                return Err(Wrong::Framing);
            }
            length = Some(bytes);
        } else if is("transfer-encoding") {
            // It would outweigh the length, and nobody was asked for it.
            return Err(Wrong::Framing);
        } else if is("connection") {
            for option in header.value.split(|&b| b == b',') {
                close |= option.trim_ascii().eq_ignore_ascii_case(b"close");
                keep_alive |= option.trim_ascii().eq_ignore_ascii_case(b"keep-alive");
            }
        }
    }
    if response.code != Some(200) {
        return Err(Wrong::Status);
    }
    Ok(Body {
        length: length.ok_or(Wrong::Framing)?,
        got: 0,
        close: close || (response.version == Some(0) && !keep_alive),
    })
}

fn length_of(value: &[u8]) -> Result<usize, Wrong> {
    // `usize::from_str` takes a sign.
    let digits = value.iter().all(u8::is_ascii_digit);
    let text = std::str::from_utf8(value).ok().filter(|_| digits);
    text.and_then(|text| text.parse().ok())
        .ok_or(Wrong::Framing)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(response: &str, piece: usize, check: Check) -> Result<Progress, Wrong> {
        let mut reader = Reader::default();
        let mut last = Ok(Progress::More);
        for bytes in response.as_bytes().chunks(piece) {
            assert_eq!(last, Ok(Progress::More), "in pieces of {piece}");
            last = reader.advance(bytes, b"hello", check);
            if last.is_err() {
                break;
            }
        }
        last
    }

    const GOOD: &str = "HTTP/1.1 200 OK\r\nServer: x\r\ncontent-length: 5\r\n\r\nhello";

    #[test]
    fn in_whatever_pieces() {
        for piece in 1..=GOOD.len() {
            assert_eq!(
                read(GOOD, piece, Check::Bytes),
                Ok(Progress::Done { close: false }),
                "in pieces of {piece}"
            );
        }
    }

    #[test]
    fn one_after_the_other() {
        let mut reader = Reader::default();
        for _ in 0..3 {
            let (first, second) = GOOD.as_bytes().split_at(20);
            let more = reader.advance(first, b"hello", Check::Bytes);
            assert_eq!(more, Ok(Progress::More));
            let done = reader.advance(second, b"hello", Check::Bytes);
            assert_eq!(done, Ok(Progress::Done { close: false }));
        }
    }

    #[test]
    fn what_is_wrong_is_told() {
        let all = |response: &str, check| read(response, response.len(), check);
        let other = GOOD.replace("hello", "hallo");
        assert_eq!(all(&other, Check::Bytes), Err(Wrong::Body));
        assert_eq!(
            all(&other, Check::Length),
            Ok(Progress::Done { close: false })
        );
        let short = GOOD.replace("5\r\n\r\nhello", "4\r\n\r\nhell");
        assert_eq!(all(&short, Check::Length), Err(Wrong::Body));
        assert_eq!(
            all(&short, Check::None),
            Ok(Progress::Done { close: false })
        );
        let missing = GOOD.replace("200", "404");
        assert_eq!(all(&missing, Check::None), Err(Wrong::Status));
        let endless = GOOD.replace("content-length: 5", "x: y");
        assert_eq!(all(&endless, Check::None), Err(Wrong::Framing));
        let long = format!("{GOOD}!");
        assert_eq!(all(&long, Check::None), Err(Wrong::Framing));
        let junk = "SSH-2.0\r\n\r\n";
        assert_eq!(all(junk, Check::None), Err(Wrong::Framing));
        let flood = "x".repeat(HEAD_BYTES_MAX + 1);
        assert_eq!(all(&flood, Check::None), Err(Wrong::Framing));
    }

    #[test]
    fn a_server_that_closes_says_so() {
        let close = GOOD.replace("Server: x", "Connection: close");
        assert_eq!(
            read(&close, 7, Check::Bytes),
            Ok(Progress::Done { close: true })
        );
        let old = GOOD.replace("HTTP/1.1", "HTTP/1.0");
        assert_eq!(
            read(&old, 7, Check::Bytes),
            Ok(Progress::Done { close: true })
        );
    }

    #[test]
    fn two_opinions_on_the_framing_are_wrong() {
        for (good, bad) in [
            (
                "content-length: 5",
                "content-length: 5\r\nContent-Length: 6",
            ),
            (
                "content-length: 5",
                "content-length: 6\r\nContent-Length: 5",
            ),
            ("content-length: 5", "content-length: +5"),
            ("Server: x", "Transfer-Encoding: chunked"),
            // The first blank line ends the head for some, the second for others.
            ("5\r\n\r\nhello", "5\n\nhello\r\n\r\nhello"),
            ("HTTP", "\r\n\r\nHTTP"),
        ] {
            let response = GOOD.replace(good, bad);
            for piece in [1, response.len()] {
                let last = read(&response, piece, Check::Bytes);
                assert_eq!(last, Err(Wrong::Framing), "{bad:?} in pieces of {piece}");
            }
        }
        let twice = GOOD.replace("Server: x", "Content-Length: 5");
        assert_eq!(
            read(&twice, 9, Check::Bytes),
            Ok(Progress::Done { close: false })
        );
    }

    #[test]
    fn what_is_wrong_does_not_depend_on_the_pieces() {
        let filler = "x".repeat(HEAD_BYTES_MAX);
        let long = GOOD.replace("Server: x", &format!("Server: {filler}"));
        let other_and_long = format!("{}!", GOOD.replace("hello", "hallo"));
        for piece in [1, 1000, usize::MAX] {
            assert_eq!(read(&long, piece, Check::None), Err(Wrong::Framing));
            assert_eq!(read(&other_and_long, piece, Check::Bytes), Err(Wrong::Body));
        }
    }

    #[test]
    fn close_may_be_one_of_several_options() {
        for (version, options, close) in [
            ("1.1", "x, Close", true),
            ("1.1", "close\r\nConnection: x", true),
            ("1.1", "closed", false),
            ("1.0", "x", true),
            ("1.0", "Keep-Alive", false),
        ] {
            let response = GOOD
                .replace("1.1", version)
                .replace("Server: x", &format!("Connection: {options}"));
            let last = read(&response, 7, Check::Bytes);
            assert_eq!(last, Ok(Progress::Done { close }), "{version} {options}");
        }
    }
}
