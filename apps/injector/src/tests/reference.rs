//! What the injector has to find of any response, said a second time and in the plainest way: all
//! of it at once, no httparse, no pieces.
//!
//! The cargo-fuzz package includes this file too.

use crate::response::{Progress, Wrong};
use crate::work::Check;

const HEAD_BYTES_MAX: usize = 16_384;
const FIELDS_MAX: usize = 64;

/// What is known once all of `input` has arrived.
pub(super) fn read(input: &[u8], expected: &[u8], check: Check) -> Result<Progress, Wrong> {
    let ends = |end: &usize| input[..*end].ends_with(b"\r\n\r\n");
    let Some(end) = (4..=input.len().min(HEAD_BYTES_MAX)).find(ends) else {
        let may_come = input.len() < HEAD_BYTES_MAX;
        return may_come.then_some(Progress::More).ok_or(Wrong::Framing);
    };
    let (length, close) = head(&input[..end])?;
    let body = &input[end..];
    if check != Check::None && length != expected.len() as u64 {
        return Err(Wrong::Body);
    }
    // A wrong byte counts when it comes, and so before one too many.
    if check == Check::Bytes && body.iter().zip(expected).any(|(got, wanted)| got != wanted) {
        return Err(Wrong::Body);
    }
    match (body.len() as u64).cmp(&length) {
        std::cmp::Ordering::Less => Ok(Progress::More),
        std::cmp::Ordering::Equal => Ok(Progress::Done { close }),
        std::cmp::Ordering::Greater => Err(Wrong::Framing),
    }
}

/// The length of the body, and whether the server will close.
fn head(head: &[u8]) -> Result<(u64, bool), Wrong> {
    // A line may also end in a mere `\n`, but not so the empty one: then there would be two
    // opinions on where the body begins.
    let lines = head.strip_suffix(b"\r\n").ok_or(Wrong::Framing)?;
    let without_end = |line: &'_ [u8]| -> usize {
        let line = line.strip_suffix(b"\n").unwrap_or(line);
        line.strip_suffix(b"\r").unwrap_or(line).len()
    };
    let lines = lines.split_inclusive(|&b| b == b'\n');
    let mut lines = lines.map(|line| &line[..without_end(line)]);
    // Empty lines before it are let pass, as in a request.
    let status = lines.find(|line| !line.is_empty()).ok_or(Wrong::Framing)?;
    let (version, rest) = status.split_at_checked(9).ok_or(Wrong::Framing)?;
    let old = match version {
        b"HTTP/1.0 " => true,
        b"HTTP/1.1 " => false,
        _ => return Err(Wrong::Framing),
    };
    let (code, reason) = rest.split_at_checked(3).ok_or(Wrong::Framing)?;
    let is_text = |bytes: &[u8]| bytes.iter().all(|&b| b == b'\t' || !b.is_ascii_control());
    let good_reason = reason.is_empty() || reason[0] == b' ';
    if !code.iter().all(u8::is_ascii_digit) || !good_reason || !is_text(reason) {
        return Err(Wrong::Framing);
    }
    let (mut length, mut options, mut fields, mut coded) = (None, Vec::new(), 0, false);
    let mut contradiction = false;
    for line in lines {
        let colon = line.iter().position(|&b| b == b':');
        let (name, value) = line.split_at(colon.ok_or(Wrong::Framing)?);
        let in_name = |b: &u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(b);
        fields += 1;
        if name.is_empty() || !name.iter().all(in_name) || !is_text(value) || fields > FIELDS_MAX {
            return Err(Wrong::Framing);
        }
        let value = value[1..].trim_ascii().to_ascii_lowercase();
        match &name.to_ascii_lowercase()[..] {
            b"content-length" => {
                let text = String::from_utf8_lossy(&value).into_owned();
                let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
                let bytes = text.parse::<u64>().ok().filter(|_| digits);
                contradiction |= bytes.is_none() || length.is_some_and(|before| before != bytes);
                length = Some(bytes);
            }
            b"transfer-encoding" => coded = true,
            b"connection" => options.extend(
                value
                    .split(|&b| b == b',')
                    .map(|option| option.trim_ascii().to_vec()),
            ),
            _ => {}
        }
    }
    if contradiction || coded {
        return Err(Wrong::Framing);
    }
    if code != b"200" {
        return Err(Wrong::Status);
    }
    let says = |option: &[u8]| options.iter().any(|other| other == option);
    let length = length.flatten().ok_or(Wrong::Framing)?;
    Ok((length, says(b"close") || (old && !says(b"keep-alive"))))
}
