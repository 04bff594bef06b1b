//! Requests out of the bytes of a connection, as Redis 7 reads them.
//!
//! Each byte is looked at once, in however many pieces a request comes: the reader knows where it
//! is in a request, and up to where it has looked for the end of a line.

use bytes::{Buf, Bytes, BytesMut};

/// Longer requests are not served, nor those with more arguments.
pub(crate) const REQUEST_BYTES_MAX: usize = 4 << 20;
const ARGS_MAX: i64 = 1 << 14;
/// The longest line, which is Redis's.
const LINE_BYTES_MAX: usize = 64 << 10;

/// What has come of a connection and is not yet read.
#[derive(Default)]
pub(crate) struct Reader {
    input: BytesMut,
    /// That many bytes of `input` have no end of a line.
    searched: usize,
    /// The request under way: what is there of it, how many arguments are to come, and how long the
    /// next one is, once that is known.
    args: Vec<Bytes>,
    args_left: usize,
    arg_bytes: Option<usize>,
    /// Of the arguments that are there.
    request_bytes: usize,
    /// Bytes that were looked at, and arguments.
    #[cfg(test)]
    pub(crate) looked_at: usize,
}

impl Reader {
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        self.input.extend_from_slice(bytes);
    }

    /// The arguments of the next request, if it is all there: an array of them, or the words of a
    /// line. The error is what to tell the client, which is not understood any more.
    pub(crate) fn next(&mut self) -> Result<Option<Vec<Bytes>>, String> {
        loop {
            let args = match self.args_left {
                0 => match self.input.first() {
                    None => return Ok(None),
                    Some(b'*') => self.begin()?,
                    Some(_) => self.words()?,
                },
                _ => self.arg()?,
            };
            match args {
                Some(true) if !self.args.is_empty() => {
                    self.request_bytes = 0;
                    return Ok(Some(std::mem::take(&mut self.args)));
                }
                Some(_) => {}
                None if self.request_bytes + self.input.len() > REQUEST_BYTES_MAX => {
                    return Err("too big a request".into());
                }
                None => return Ok(None),
            }
        }
    }

    /// How many arguments there will be. Here and below: whether the request is over; none if more
    /// has to come first.
    fn begin(&mut self) -> Result<Option<bool>, String> {
        let Some(line) = self.line("mbulk count")? else {
            return Ok(None);
        };
        let count = integer(&line[1..]).filter(|&count| count <= ARGS_MAX);
        // Fewer than none are none, too.
        let count = count.ok_or("invalid multibulk length")?.max(0);
        self.args_left = count as usize;
        Ok(Some(count == 0))
    }

    fn arg(&mut self) -> Result<Option<bool>, String> {
        let bytes = match self.arg_bytes {
            Some(bytes) => bytes,
            None => {
                let Some(line) = self.line("bulk count")? else {
                    return Ok(None);
                };
                let len = match line.split_first() {
                    Some((b'$', len)) => integer(len),
                    first => {
                        let got = first.map_or(' ', |(&byte, _)| byte.into());
                        return Err(format!("expected '$', got '{got}'"));
                    }
                };
                let bytes = len.and_then(|len| usize::try_from(len).ok());
                let bytes = bytes.filter(|&bytes| bytes <= REQUEST_BYTES_MAX);
                let bytes = bytes.ok_or("invalid bulk length")?;
                *self.arg_bytes.insert(bytes)
            }
        };
        // Redis does not look at the end of its line either.
        if self.input.len() < bytes + 2 {
            return Ok(None);
        }
        self.count(1);
        self.args.push(self.input.split_to(bytes).freeze());
        self.input.advance(2);
        self.arg_bytes = None;
        self.request_bytes += bytes;
        self.args_left -= 1;
        Ok(Some(self.args_left == 0))
    }

    /// A line that a CR ends, and the byte behind that.
    fn line(&mut self, what: &str) -> Result<Option<BytesMut>, String> {
        let found = self.find(b'\r').filter(|at| at + 2 <= self.input.len());
        let Some(at) = found else {
            return match self.searched > LINE_BYTES_MAX {
                true => Err(format!("too big {what} string")),
                false => Ok(None),
            };
        };
        let line = self.input.split_to(at);
        self.input.advance(2);
        self.searched = 0;
        Ok(Some(line))
    }

    /// The words of a line that an LF ends.
    fn words(&mut self) -> Result<Option<bool>, String> {
        let Some(at) = self.find(b'\n') else {
            return match self.searched > LINE_BYTES_MAX {
                true => Err("too big inline request".into()),
                false => Ok(None),
            };
        };
        let line = self.input.split_to(at);
        self.input.advance(1);
        self.searched = 0;
        self.count(at);
        let line = line.strip_suffix(b"\r").unwrap_or(&line);
        self.args = words(line).ok_or("unbalanced quotes in request")?;
        Ok(Some(true))
    }

    /// Where this byte is, from what was searched before on.
    fn find(&mut self, byte: u8) -> Option<usize> {
        let new = &self.input[self.searched..];
        let found = new.iter().position(|&its| its == byte);
        let without = found.unwrap_or(new.len());
        self.searched += without;
        self.count(without);
        found.map(|_| self.searched)
    }

    fn count(&mut self, looked_at: usize) {
        let _ = looked_at;
        #[cfg(test)]
        {
            self.looked_at += looked_at;
        }
    }
}

/// A number as Redis writes it: no plus, no zeros before it, no spaces.
pub(crate) fn integer(text: &[u8]) -> Option<i64> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    match digits {
        [b'1'..=b'9', ..] => std::str::from_utf8(text).ok()?.parse().ok(),
        [b'0'] if text.len() == 1 => Some(0),
        _ => None,
    }
}

/// The words of a line, some of which may be in quotes. None if a quote is not closed, or something
/// follows it at once.
fn words(mut line: &[u8]) -> Option<Vec<Bytes>> {
    let mut words = Vec::new();
    loop {
        // C's `isspace`, as opposed to what ends a word.
        let is_space = |byte: &u8| matches!(byte, b' ' | b'\t'..=b'\r');
        let blanks = line.iter().take_while(|byte| is_space(byte)).count();
        line = &line[blanks..];
        if line.is_empty() {
            return Some(words);
        }
        let mut word = Vec::new();
        line = loop {
            line = match line {
                [] | [b' ' | b'\t' | b'\r', ..] => break line,
                [quote @ (b'"' | b'\''), rest @ ..] => {
                    let rest = quoted(*quote, rest, &mut word)?;
                    if !rest.first().is_none_or(is_space) {
                        return None;
                    }
                    break rest;
                }
                [byte, rest @ ..] => {
                    word.push(*byte);
                    rest
                }
            };
        };
        words.push(word.into());
    }
}

/// Reads up to the closing quote, and returns what is behind it.
fn quoted<'a>(quote: u8, mut rest: &'a [u8], word: &mut Vec<u8>) -> Option<&'a [u8]> {
    let hex = |digit: u8| char::from(digit).to_digit(16);
    loop {
        let (byte, after) = match (quote, rest) {
            (_, [byte, after @ ..]) if *byte == quote => return Some(after),
            (b'"', [b'\\', b'x', high, low, after @ ..])
                if let (Some(high), Some(low)) = (hex(*high), hex(*low)) =>
            {
                ((high * 16 + low) as u8, after)
            }
            (b'"', [b'\\', byte, after @ ..]) => {
                let byte = match byte {
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    b'b' => 8,
                    b'a' => 7,
                    byte => *byte,
                };
                (byte, after)
            }
            (b'\'', [b'\\', b'\'', after @ ..]) => (b'\'', after),
            (_, [byte, after @ ..]) => (*byte, after),
            (_, []) => return None,
        };
        word.push(byte);
        rest = after;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Read = (Vec<Vec<Bytes>>, Option<String>);

    /// What is read of these bytes in pieces, and how much was looked at.
    fn read(bytes: &[u8], piece: usize) -> (Read, usize) {
        let (mut reader, mut requests, mut wrong) = (Reader::default(), Vec::new(), None);
        for piece in bytes.chunks(piece) {
            reader.push(piece);
            while wrong.is_none() {
                match reader.next() {
                    Ok(Some(request)) => requests.push(request),
                    Ok(None) => break,
                    Err(error) => wrong = Some(error),
                }
            }
        }
        ((requests, wrong), reader.looked_at)
    }

    /// Also a request of many arguments, and a line of many words, that come byte by byte.
    #[test]
    fn what_is_looked_at_does_not_depend_on_the_pieces() {
        let mut array = b"*16000\r\n".to_vec();
        array.extend(b"$3\r\nabc\r\n".repeat(16_000));
        let long = [&b"*2\r\n$3\r\nGET\r\n$100000\r\n"[..], &[b'\n'; 100_002]].concat();
        let line = ["MGET", &" \"a b\"".repeat(10_000), "\r\n"].concat();
        let end = b"*1\r\n$4\r\nPING\r\n*-1\r\n*0\r\n\r\nPING\n*x\r\n".to_vec();
        let all = [array, long, line.into_bytes(), end].concat();
        let (whole, _) = read(&all, all.len());
        let sizes: Vec<_> = whole.0.iter().map(Vec::len).collect();
        assert_eq!(sizes, [16_000, 2, 10_001, 1, 1]);
        assert_eq!(whole.1.as_deref(), Some("invalid multibulk length"));
        for piece in [1, 2, 7, 1_000, all.len()] {
            let (read, looked_at) = read(&all, piece);
            assert!(read == whole, "in pieces of {piece}");
            assert!(looked_at < 2 * all.len(), "{looked_at} of {}", all.len());
        }
    }

    #[test]
    fn what_never_ends_is_given_up() {
        for (begin, wrong) in [
            ("", "too big inline request"),
            ("*", "too big mbulk count string"),
            ("*1\r\n", "too big bulk count string"),
            ("*9\r\n$4000000\r\n", ""),
        ] {
            let mut bytes = begin.as_bytes().to_vec();
            bytes.resize(70_000, b'1');
            let ((requests, error), _) = read(&bytes, 1_000);
            assert_eq!(
                (requests.len(), error.unwrap_or_default()),
                (0, wrong.into())
            );
        }
        let arg = ["$1000000\r\n", &"x".repeat(1_000_000), "\r\n"].concat();
        let bytes = ["*9\r\n", &arg.repeat(5)].concat();
        let ((_, error), _) = read(bytes.as_bytes(), 1_000);
        assert_eq!(error.as_deref(), Some("too big a request"));
    }
}
