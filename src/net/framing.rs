//! Framing: received bytes, cut into lines or into frames with their lengths before them.
//!
//! Bytes come in pieces that say nothing about where a message ends. These types collect the pieces
//! and give back whole messages. They know no connection: bytes in, messages out.

use std::io;

/// Cuts received bytes into lines, and into bodies between them.
///
/// A line ends with a line feed, or with a carriage return and a line feed; neither is part of the
/// line. What is kept is at most one unfinished line, besides what was pushed and not yet taken.
/// Space for more goes back when [`next_line`](Self::next_line) finds no whole line.
///
/// ```
/// use mely::net::Lines;
/// let mut lines = Lines::new(80);
/// lines.push(b"HELO here\r\nQU");
/// assert_eq!(lines.next_line()?, Some(&b"HELO here"[..]));
/// assert_eq!(lines.next_line()?, None);
/// lines.push(b"IT\n");
/// assert_eq!(lines.next_line()?, Some(&b"QUIT"[..]));
/// lines.push(&[b'x'; 81]);
/// let too_long = lines.next_line().unwrap_err();
/// assert_eq!(too_long.to_string(), "a line is longer than the limit of 80 bytes");
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Lines {
    unread: Unread,
    line_bytes_max: usize,
    /// Of what is unread, this much has no line feed.
    searched: usize,
}

impl Lines {
    /// Lines of at most this many bytes, without their ends.
    pub fn new(line_bytes_max: usize) -> Lines {
        Lines {
            unread: Unread::default(),
            line_bytes_max,
            searched: 0,
        }
    }

    /// Adds bytes that came after all that was added before.
    pub fn push(&mut self, bytes: &[u8]) {
        self.unread.push(bytes);
    }

    /// Takes the next whole line, or none until more is pushed.
    ///
    /// # Errors
    /// `InvalidData` if a line is too long, also one whose end has not come. It is told again each
    /// time: where the next line begins is not known.
    pub fn next_line(&mut self) -> io::Result<Option<&[u8]>> {
        let unread = self.unread.bytes();
        let found = unread[self.searched..]
            .iter()
            .position(|&byte| byte == b'\n');
        let end = found.map_or(unread.len(), |at| self.searched + at);
        let line = &unread[..end];
        // Also of an unfinished one: the carriage return may belong to the line's end.
        let line_bytes = line.strip_suffix(b"\r").unwrap_or(line).len();
        if line_bytes > self.line_bytes_max {
            return Err(too_long("a line", self.line_bytes_max));
        }
        if found.is_none() {
            self.searched = end;
            self.unread.forget_taken();
            return Ok(None);
        }
        self.searched = 0;
        Ok(Some(&self.unread.take(end + 1)[..line_bytes]))
    }

    /// Takes the next `bytes` bytes, whatever is in them, or none until all of them are pushed: for
    /// protocols that send a body behind a line that tells its length. What is kept is at most
    /// these, besides what was pushed and not yet taken: check the length first, if the peer tells
    /// it.
    ///
    /// ```
    /// use mely::net::Lines;
    /// let mut lines = Lines::new(80);
    /// lines.push(b"SET 6\r\na\nb");
    /// assert_eq!(lines.next_line()?, Some(&b"SET 6"[..]));
    /// assert_eq!(lines.next_exact(6), None);
    /// lines.push(b"cd\nGET\n");
    /// assert_eq!(lines.next_exact(6), Some(&b"a\nbcd\n"[..]));
    /// assert_eq!(lines.next_line()?, Some(&b"GET"[..]));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn next_exact(&mut self, bytes: usize) -> Option<&[u8]> {
        if self.unread.bytes().len() < bytes {
            self.unread.forget_taken();
            return None;
        }
        self.searched = 0;
        Some(self.unread.take(bytes))
    }

    /// Takes what is there of the next bytes, at most `bytes_max`; nothing if nothing is there. For
    /// a body that is passed on piece by piece, and never kept as a whole.
    pub fn next_up_to(&mut self, bytes_max: usize) -> &[u8] {
        let bytes = self.unread.bytes().len().min(bytes_max);
        if bytes == 0 {
            self.unread.forget_taken();
        } else {
            self.searched = 0;
        }
        self.unread.take(bytes)
    }

    /// What is not taken: after the last whole line an unfinished one. At the end of a stream it is
    /// for the protocol to say what that means.
    pub fn rest(&self) -> &[u8] {
        self.unread.bytes()
    }
}

/// Cuts received bytes into frames, each with its length before it, and puts lengths before what is
/// sent.
///
/// The length is that of the frame without the length itself. What is kept is at most one
/// unfinished frame, besides what was pushed and not yet taken; no space is set aside for what has
/// only been announced. Space for more goes back when [`next_frame`](Self::next_frame) finds no
/// whole frame.
///
/// ```
/// use mely::net::LengthPrefixed;
/// let mut frames = LengthPrefixed::big_endian(2, 1_000);
/// let mut sent = Vec::new();
/// frames.prefix(b"hello", &mut sent)?;
/// assert_eq!(sent, b"\0\x05hello");
/// frames.push(&sent[..3]);
/// assert_eq!(frames.next_frame()?, None);
/// frames.push(&sent[3..]);
/// assert_eq!(frames.next_frame()?, Some(&b"hello"[..]));
/// frames.push(b"\xff\xff");
/// let too_long = frames.next_frame().unwrap_err();
/// let told = "a frame of 65535 bytes is longer than the limit of 1000 bytes";
/// assert_eq!(too_long.to_string(), told);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct LengthPrefixed {
    unread: Unread,
    prefix_bytes: usize,
    is_big_endian: bool,
    frame_bytes_max: usize,
}

impl LengthPrefixed {
    /// Frames of at most `frame_bytes_max` bytes, each behind its length in `prefix_bytes` bytes,
    /// the most significant one first.
    ///
    /// # Panics
    /// If the length has no bytes, or more than 8.
    #[track_caller]
    pub fn big_endian(prefix_bytes: usize, frame_bytes_max: usize) -> LengthPrefixed {
        LengthPrefixed::new(prefix_bytes, true, frame_bytes_max)
    }

    /// Like [`big_endian`](Self::big_endian), with the least significant byte first.
    ///
    /// # Panics
    /// As [`big_endian`](Self::big_endian).
    #[track_caller]
    pub fn little_endian(prefix_bytes: usize, frame_bytes_max: usize) -> LengthPrefixed {
        LengthPrefixed::new(prefix_bytes, false, frame_bytes_max)
    }

    #[track_caller]
    fn new(prefix_bytes: usize, is_big_endian: bool, frame_bytes_max: usize) -> LengthPrefixed {
        assert!(
            (1..=8).contains(&prefix_bytes),
            "a length of {prefix_bytes} bytes: it has 1 to 8"
        );
        LengthPrefixed {
            unread: Unread::default(),
            prefix_bytes,
            is_big_endian,
            frame_bytes_max,
        }
    }

    /// Adds bytes that came after all that was added before.
    pub fn push(&mut self, bytes: &[u8]) {
        self.unread.push(bytes);
    }

    /// Takes the next whole frame, or none until more is pushed.
    ///
    /// # Errors
    /// `InvalidData` if a frame is too long, as soon as the length is there. It is told again each
    /// time.
    pub fn next_frame(&mut self) -> io::Result<Option<&[u8]>> {
        let Some(prefix) = self.unread.bytes().get(..self.prefix_bytes) else {
            self.unread.forget_taken();
            return Ok(None);
        };
        let add = |length: u64, &byte: &u8| length << 8 | u64::from(byte);
        let length = match self.is_big_endian {
            true => prefix.iter().fold(0, add),
            false => prefix.iter().rev().fold(0, add),
        };
        let Some(frame_bytes) = self.admitted(length) else {
            return Err(self.too_long(length));
        };
        // The limit may be all that there is.
        let whole = self.prefix_bytes.saturating_add(frame_bytes);
        if self.unread.bytes().len() < whole {
            self.unread.forget_taken();
            return Ok(None);
        }
        Ok(Some(&self.unread.take(whole)[self.prefix_bytes..]))
    }

    /// What is not taken: after the last whole frame an unfinished one, with its length.
    pub fn rest(&self) -> &[u8] {
        self.unread.bytes()
    }

    /// Appends a frame to `out`, behind its length.
    ///
    /// # Errors
    /// `InvalidData` if the frame is longer than the limit, or than its length can say; then
    /// nothing is appended.
    pub fn prefix(&self, frame: &[u8], out: &mut Vec<u8>) -> io::Result<()> {
        let length = frame.len() as u64;
        if self.admitted(length).is_none() {
            return Err(self.too_long(length));
        }
        match self.is_big_endian {
            true => out.extend_from_slice(&length.to_be_bytes()[8 - self.prefix_bytes..]),
            false => out.extend_from_slice(&length.to_le_bytes()[..self.prefix_bytes]),
        }
        out.extend_from_slice(frame);
        Ok(())
    }

    /// The longest frame that is within the limit and whose length has a place.
    fn bytes_max(&self) -> usize {
        let unused_bits = 64 - 8 * self.prefix_bytes;
        let sayable = usize::try_from(u64::MAX >> unused_bits).unwrap_or(usize::MAX);
        self.frame_bytes_max.min(sayable)
    }

    fn admitted(&self, length: u64) -> Option<usize> {
        let bytes = usize::try_from(length).ok()?;
        (bytes <= self.bytes_max()).then_some(bytes)
    }

    fn too_long(&self, length: u64) -> io::Error {
        too_long(&format!("a frame of {length} bytes"), self.bytes_max())
    }
}

/// Space that is kept for bytes to come, however few there are now. More goes back once nothing
/// whole is left: one long message does not cost its connection space for ever.
const KEPT_BYTES: usize = 16 << 10;

/// Bytes that were pushed and not taken.
#[derive(Clone, Debug, Default)]
struct Unread {
    bytes: Vec<u8>,
    /// Of these, the first ones are taken. They go with the next push, or when nothing whole is
    /// left: whoever took them may look at them until then.
    taken: usize,
}

impl Unread {
    fn bytes(&self) -> &[u8] {
        &self.bytes[self.taken..]
    }

    fn push(&mut self, bytes: &[u8]) {
        self.forget_taken();
        self.bytes.extend_from_slice(bytes);
    }

    /// Forgets what was taken, and gives space back of which less than a quarter is used.
    fn forget_taken(&mut self) {
        self.bytes.drain(..std::mem::take(&mut self.taken));
        if self.bytes.capacity() > KEPT_BYTES && self.bytes.len() < self.bytes.capacity() / 4 {
            self.bytes.shrink_to(KEPT_BYTES);
        }
    }

    fn take(&mut self, len: usize) -> &[u8] {
        let start = self.taken;
        self.taken += len;
        &self.bytes[start..self.taken]
    }
}

/// What is told of a message that is longer than its limit.
pub(crate) fn too_long(message: &str, bytes_max: usize) -> io::Error {
    let text = format!("{message} is longer than the limit of {bytes_max} bytes");
    io::Error::new(io::ErrorKind::InvalidData, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Also of a connection on which nothing comes after the long one.
    #[test]
    fn a_long_message_leaves_no_space_behind() {
        const LONG: usize = 1 << 20;
        let mut lines = Lines::new(LONG);
        lines.push(&[b'x'; LONG]);
        assert_eq!(lines.next_line().unwrap(), None);
        lines.push(b"\nbegun");
        assert_eq!(lines.next_line().unwrap().map(<[u8]>::len), Some(LONG));
        assert_eq!(lines.next_line().unwrap(), None);
        assert!(lines.unread.bytes.capacity() <= KEPT_BYTES);
        lines.push(b"\n");
        assert_eq!(lines.next_line().unwrap(), Some(&b"begun"[..]));
        let mut frames = LengthPrefixed::big_endian(4, LONG);
        let mut sent = Vec::new();
        frames.prefix(&[7; LONG], &mut sent).unwrap();
        for begun in [&b""[..], b"\0\0\0\x02h"] {
            frames.push(&sent);
            frames.push(begun);
            assert_eq!(frames.next_frame().unwrap().map(<[u8]>::len), Some(LONG));
            assert_eq!(frames.next_frame().unwrap(), None);
            assert!(frames.unread.bytes.capacity() <= KEPT_BYTES);
        }
        frames.push(b"i");
        assert_eq!(frames.next_frame().unwrap(), Some(&b"hi"[..]));
    }
}
