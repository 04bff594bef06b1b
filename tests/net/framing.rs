//! Framing against splitters that see all bytes at once.

use mely::net::{LengthPrefixed, Lines};
use proptest::collection::vec;
use proptest::prelude::*;

/// The pieces of these bytes between the cuts.
fn pieces<'a>(bytes: &'a [u8], cuts: &[usize]) -> Vec<&'a [u8]> {
    let mut cuts: Vec<_> = cuts.iter().map(|cut| cut % (bytes.len() + 1)).collect();
    cuts.extend([0, bytes.len()]);
    cuts.sort_unstable();
    cuts.windows(2).map(|cut| &bytes[cut[0]..cut[1]]).collect()
}

/// Lines with bodies behind them, whole or piece by piece, however the bytes come.
#[test]
fn bodies_come_between_lines() {
    let bytes = b"4\r\na\nb\n0\n\n11\n0123456789\n2\r\n\r\n3\nabc";
    let bodies = [&b"a\nb\n"[..], b"", b"0123456789\n", b"\r\n", b"abc"];
    for cut in 1..bytes.len() {
        for whole in [true, false] {
            let (mut lines, mut got) = (Lines::new(2), Vec::new());
            // What is left of a body.
            let mut left = None;
            for piece in bytes.chunks(cut) {
                lines.push(piece);
                loop {
                    let Some(body_bytes) = left else {
                        match lines.next_line().unwrap() {
                            // What is behind the empty body.
                            Some(b"") => continue,
                            Some(line) => {
                                let text = std::str::from_utf8(line).unwrap();
                                left = Some(text.parse::<usize>().unwrap());
                                got.push(Vec::new());
                                continue;
                            }
                            None => break,
                        }
                    };
                    let part = match whole {
                        true => lines.next_exact(body_bytes).unwrap_or_default(),
                        false => lines.next_up_to(body_bytes),
                    };
                    got.last_mut().unwrap().extend_from_slice(part);
                    left = (part.len() < body_bytes).then(|| body_bytes - part.len());
                    if part.is_empty() && body_bytes > 0 {
                        break;
                    }
                }
            }
            assert_eq!(got, bodies, "in pieces of {cut}, whole: {whole}");
            assert_eq!((lines.rest(), left), (&b""[..], None));
            assert_eq!(lines.next_exact(1), None);
            assert_eq!(lines.next_up_to(9), b"");
        }
    }
}

type Got = (Vec<Vec<u8>>, Option<String>, Vec<u8>);

fn lines(pieces: &[&[u8]], line_bytes_max: usize) -> Got {
    let (mut lines, mut got) = (Lines::new(line_bytes_max), Vec::new());
    for piece in pieces {
        lines.push(piece);
        loop {
            match lines.next_line() {
                Ok(Some(line)) => got.push(line.to_vec()),
                Ok(None) => break,
                Err(too_long) => {
                    let again = lines.next_line().unwrap_err();
                    assert_eq!(again.to_string(), too_long.to_string(), "told again");
                    return (got, Some(too_long.to_string()), Vec::new());
                }
            }
        }
    }
    let rest = lines.rest().to_vec();
    (got, None, rest)
}

/// Whole lines before the first one that is too long, whether there is one, and the rest.
fn split_lines(bytes: &[u8], line_bytes_max: usize) -> (Vec<Vec<u8>>, bool, Vec<u8>) {
    let mut got = Vec::new();
    let mut parts = bytes.split(|&byte| byte == b'\n').peekable();
    while let Some(part) = parts.next() {
        let line = part.strip_suffix(b"\r").unwrap_or(part);
        if line.len() > line_bytes_max {
            return (got, true, Vec::new());
        }
        if parts.peek().is_none() {
            return (got, false, part.to_vec());
        }
        got.push(line.to_vec());
    }
    unreachable!("there is a last part");
}

fn frames(mut frames: LengthPrefixed, pieces: &[&[u8]]) -> Got {
    let mut got = Vec::new();
    for piece in pieces {
        frames.push(piece);
        loop {
            match frames.next_frame() {
                Ok(Some(frame)) => got.push(frame.to_vec()),
                Ok(None) => break,
                Err(too_long) => {
                    let again = frames.next_frame().unwrap_err();
                    assert_eq!(again.to_string(), too_long.to_string(), "told again");
                    return (got, Some(too_long.to_string()), Vec::new());
                }
            }
        }
    }
    let rest = frames.rest().to_vec();
    (got, None, rest)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn lines_are_those_of_all_bytes_at_once(
        bytes in vec(prop_oneof![Just(b'\n'), Just(b'\r'), Just(b'x'), any::<u8>()], 0..60),
        cuts in vec(any::<usize>(), 0..20),
        line_bytes_max in 0..12_usize,
    ) {
        let (got, too_long, rest) = lines(&pieces(&bytes, &cuts), line_bytes_max);
        let is_too_long = too_long.is_some();
        prop_assert_eq!((got, is_too_long, rest), split_lines(&bytes, line_bytes_max));
        let told = format!("a line is longer than the limit of {line_bytes_max} bytes");
        prop_assert!(too_long.is_none_or(|error| error == told));
    }

    #[test]
    fn frames_are_what_was_prefixed(
        sent in vec(vec(any::<u8>(), 0..300), 0..8),
        cuts in vec(any::<usize>(), 0..20),
        (prefix_bytes, is_big_endian) in (1..=8_usize, any::<bool>()),
        frame_bytes_max in 0..400_usize,
        kept in any::<prop::sample::Index>(),
    ) {
        let make = if is_big_endian {
            LengthPrefixed::big_endian
        } else {
            LengthPrefixed::little_endian
        };
        let (codec, mut bytes, mut ends) = (make(prefix_bytes, usize::MAX), Vec::new(), Vec::new());
        let sayable = if prefix_bytes == 1 { 255 } else { usize::MAX };
        for frame in &sent {
            let before = bytes.len();
            let prefixed = codec.prefix(frame, &mut bytes);
            prop_assert_eq!(prefixed.is_err(), frame.len() > sayable);
            prop_assert_eq!(bytes.len() == before, prefixed.is_err());
            if prefixed.is_ok() {
                ends.push(bytes.len());
            }
        }
        // The last ones do not come whole.
        bytes.truncate(kept.index(bytes.len() + 1));
        let whole = ends.iter().filter(|&&end| end <= bytes.len()).count();
        let frames_sent = sent.iter().filter(|frame| frame.len() <= sayable);
        let fits = |frame: &&Vec<u8>| frame.len() <= frame_bytes_max;
        let expected: Vec<_> = frames_sent.take(whole).take_while(fits).cloned().collect();
        let (got, too_long, rest) =
            frames(make(prefix_bytes, frame_bytes_max), &pieces(&bytes, &cuts));
        prop_assert_eq!(&got, &expected);
        match too_long {
            None => {
                let end = whole.checked_sub(1).map_or(0, |last| ends[last]);
                prop_assert_eq!((got.len(), &rest[..]), (whole, &bytes[end..]));
            }
            Some(error) => {
                let limit = frame_bytes_max.min(sayable);
                let told = format!("is longer than the limit of {limit} bytes");
                prop_assert!(error.ends_with(&told), "{error}");
            }
        }
    }
}

/// A length takes no memory, and is an error as soon as it is there.
#[test]
fn a_length_that_is_too_long_is_an_error_at_once() {
    for (prefix, length) in [(&[0xff; 8][..], u64::MAX), (&[0, 0, 1, 1], 257)] {
        let mut frames = LengthPrefixed::big_endian(prefix.len(), 256);
        frames.push(&prefix[..prefix.len() - 1]);
        assert_eq!(frames.next_frame().unwrap(), None);
        frames.push(&prefix[prefix.len() - 1..]);
        let text = format!("a frame of {length} bytes is longer than the limit of 256 bytes");
        let error = frames.next_frame().unwrap_err();
        assert_eq!(error.to_string(), text);
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidData);
    }
    // Of all lengths that can be said, with a limit beyond them: it just does not come.
    let mut frames = LengthPrefixed::little_endian(8, usize::MAX);
    frames.push(&[0xff; 16]);
    assert_eq!(frames.next_frame().unwrap(), None);
}

#[test]
#[should_panic(expected = "a length of 9 bytes: it has 1 to 8")]
fn a_length_has_at_most_eight_bytes() {
    let _ = LengthPrefixed::big_endian(9, 1);
}
