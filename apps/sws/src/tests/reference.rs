//! What SWS has to answer to any bytes, said a second time and in the plainest way: the whole input
//! at once, no httparse, no resumed search, no shortcut. Slow, and easy to hold against RFC 9112.
//!
//! The cargo-fuzz package includes this file too.

use crate::site::{Entry, File, Site};
use crate::status::Status;

const LINE_BYTES_MAX: usize = 8192;
const HEAD_BYTES_MAX: usize = 16_384;
const FIELDS_MAX: usize = 64;
const BODY_BYTES_MAX: u128 = 16_384;

/// The time at which all answers are given here, and the end of its line.
pub(crate) const DATE: &[u8; 31] = b"Tue, 15 Nov 1994 08:12:31 GMT\r\n";

/// What stands in for the page of live figures.
pub(super) const FIGURES: &str = "<figures>";

/// All that is sent in answer to `input`, and whether the client then knows that there is no more.
pub(super) fn conversation(site: &Site, input: &[u8]) -> (Vec<u8>, bool) {
    let (mut sent, mut rest) = (Vec::new(), input);
    loop {
        while let Some(after) = rest.strip_prefix(b"\r\n") {
            rest = after;
        }
        if matches!(rest, [] | [b'\r']) {
            return (sent, false);
        }
        match head_of(rest).and_then(|head| Ok((head, head.map(ask).transpose()?))) {
            Ok((Some(head), Some(asked))) => {
                sent.extend(answer(site, &asked));
                if !asked.keeps() {
                    return (sent, true);
                }
                rest = &rest[head.len()..];
                rest = &rest[asked.body_bytes.unwrap_or(0).min(rest.len())..];
            }
            Ok(_) => return (sent, false),
            Err(status) => {
                sent.extend(refusal(status, true, rest.starts_with(b"HEAD ")));
                return (sent, true);
            }
        }
    }
}

/// What is known of one request.
struct Asked {
    head_only: bool,
    key: Result<Vec<u8>, Status>,
    keep_alive: bool,
    body_bytes: Option<usize>,
    query: Vec<u8>,
    /// If-Match, If-Unmodified-Since, If-None-Match, If-Modified-Since.
    conditions: [Option<Vec<u8>>; 4],
}

impl Asked {
    fn keeps(&self) -> bool {
        let refused_for_good = |status: &Status| {
            !matches!(
                status,
                Status::Forbidden | Status::NotFound | Status::MethodNotAllowed
            )
        };
        self.keep_alive
            && self.body_bytes.is_some()
            && !self.key.as_ref().is_err_and(refused_for_good)
    }
}

/// The head that `bytes` begin with, its empty line included; `None` if it is not all there and
/// nothing is wrong with it so far.
fn head_of(bytes: &[u8]) -> Result<Option<&[u8]>, Status> {
    let line = &bytes[..bytes.len().min(LINE_BYTES_MAX)];
    let is_end = |&b: &u8| b != b'\r' && b.is_ascii_control();
    let line_end = match line.iter().position(is_end) {
        None if line.len() == LINE_BYTES_MAX => return Err(Status::UriTooLong),
        None => return Ok(None),
        Some(at) => at,
    };
    request_line(without_end(&line[..=line_end])?)?;
    for end in line_end + 2..=bytes.len().min(HEAD_BYTES_MAX) {
        let head = &bytes[..end];
        if head.ends_with(b"\n") {
            without_end(head)?;
        }
        if head.ends_with(b"\r\n\r\n") {
            return Ok(Some(head));
        }
    }
    if bytes.len() < HEAD_BYTES_MAX {
        Ok(None)
    } else {
        Err(Status::HeadersTooLarge)
    }
}

/// A line without its end, which has to be `\r\n`.
fn without_end(line: &[u8]) -> Result<&[u8], Status> {
    line.strip_suffix(b"\r\n").ok_or(Status::BadRequest)
}

fn is_token(bytes: &[u8]) -> bool {
    let good = |b: &u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(b);
    !bytes.is_empty() && bytes.iter().all(good)
}

/// Method, target and minor version.
fn request_line(line: &[u8]) -> Result<(&[u8], &[u8], u8), Status> {
    let words: Vec<&[u8]> = line.split(|&b| b == b' ').collect();
    let [method, target, version] = words[..] else {
        return Err(Status::BadRequest);
    };
    let visible = |b: &u8| *b > b' ' && *b != 0x7f;
    let good_target = !target.is_empty() && target.iter().all(visible);
    if !is_token(method) || !good_target || std::str::from_utf8(target).is_err() {
        return Err(Status::BadRequest);
    }
    match version {
        b"HTTP/1.0" => Ok((method, target, 0)),
        b"HTTP/1.1" => Ok((method, target, 1)),
        [b'H', b'T', b'T', b'P', b'/', b'1', b'.', b'2'..=b'9'] => Ok((method, target, 1)),
        // These have a digit too many, which makes no version (RFC 9112, section 2.3).
        _ if version.starts_with(b"HTTP/1.0") || version.starts_with(b"HTTP/1.1") => {
            Err(Status::BadRequest)
        }
        _ => {
            let numbers = version.strip_prefix(b"HTTP/").unwrap_or_default();
            let numbers: Vec<&[u8]> = numbers.split(|&b| b == b'.').collect();
            let is_number = |n: &&[u8]| !n.is_empty() && n.iter().all(u8::is_ascii_digit);
            Err(match numbers.len() <= 2 && numbers.iter().all(is_number) {
                true => Status::VersionUnsupported,
                false => Status::BadRequest,
            })
        }
    }
}

/// Names in lower case, and values.
fn fields_of(lines: &[&[u8]]) -> Result<Vec<(String, Vec<u8>)>, Status> {
    let mut fields = Vec::new();
    for line in lines {
        let colon = line.iter().position(|&b| b == b':');
        let (name, value) = line.split_at(colon.ok_or(Status::BadRequest)?);
        let value = value[1..].trim_ascii();
        if !is_token(name) || line.iter().any(|&b| b.is_ascii_control() && b != b'\t') {
            return Err(Status::BadRequest);
        }
        if fields.len() == FIELDS_MAX {
            return Err(Status::HeadersTooLarge);
        }
        let name = String::from_utf8_lossy(name).to_ascii_lowercase();
        fields.push((name, value.to_vec()));
    }
    Ok(fields)
}

/// Reads a whole head.
fn ask(head: &[u8]) -> Result<Asked, Status> {
    let lines: Vec<&[u8]> = head
        .split_inclusive(|&b| b == b'\n')
        .map(without_end)
        .collect::<Result<_, _>>()?;
    let (method, target, minor) = request_line(lines[0])?;
    let fields = fields_of(&lines[1..lines.len() - 1])?;
    let values = |name: &str| -> Vec<&[u8]> {
        let named = fields.iter().filter(|field| field.0 == name);
        named.map(|field| &field.1[..]).collect()
    };
    let joined =
        |name: &str| Some(values(name).join(&b", "[..])).filter(|_| !values(name).is_empty());
    let listed = |name: &str| -> Vec<Vec<u8>> {
        let all = joined(name).unwrap_or_default().to_ascii_lowercase();
        let items = all.split(|&b| b == b',').map(<[u8]>::trim_ascii);
        items.map(<[u8]>::to_vec).collect()
    };

    let hosts = values("host");
    if hosts.len() > 1 || hosts.iter().any(|host| host_of(host).is_none()) {
        return Err(Status::BadRequest);
    }
    let mut length = None;
    for digits in values("content-length") {
        if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) || length.is_some() {
            return Err(Status::BadRequest);
        }
        let digits = digits.iter().skip_while(|&&b| b == b'0').copied();
        let digits = String::from_utf8(digits.collect()).unwrap_or_default();
        // What has more digits than this is too large, and as good as any other that is.
        let bytes = match digits.len() {
            0 => 0,
            1..=19 => digits.parse::<u128>().map_err(|_| Status::BadRequest)?,
            _ => u128::from(u64::MAX).min(digits.parse().unwrap_or(u128::MAX)),
        };
        length = Some(bytes);
    }
    let codings = values("transfer-encoding");
    if codings.len() > 1
        || (minor == 1 && hosts.is_empty())
        || (!codings.is_empty() && (minor == 0 || length.is_some()))
    {
        return Err(Status::BadRequest);
    }
    let codings = listed("transfer-encoding");
    let refused_body = match codings.iter().map(Vec::as_slice).collect::<Vec<_>>()[..] {
        _ if values("transfer-encoding").is_empty() => {
            (length > Some(BODY_BYTES_MAX)).then_some(Status::ContentTooLarge)
        }
        [b"chunked"] => Some(Status::ContentTooLarge),
        [.., b"chunked"] => Some(Status::NotImplemented),
        _ => return Err(Status::BadRequest),
    };
    let refused_method = match method {
        b"GET" | b"HEAD" => None,
        b"POST" | b"PUT" | b"DELETE" | b"CONNECT" | b"OPTIONS" | b"TRACE" | b"PATCH" => {
            Some(Status::MethodNotAllowed)
        }
        _ => return Err(Status::NotImplemented),
    };
    let key = match (refused_body, refused_method) {
        (Some(Status::NotImplemented), _) => Err(Status::NotImplemented),
        (_, Some(status)) | (Some(status), None) => Err(status),
        (None, None) => key_of(target),
    };
    let says = |option: &[u8]| listed("connection").iter().any(|item| item == option);
    let body_in_doubt = !values("expect").is_empty() && length > Some(0);
    Ok(Asked {
        head_only: method == b"HEAD",
        key,
        keep_alive: !says(b"close") && !body_in_doubt && (minor == 1 || says(b"keep-alive")),
        body_bytes: refused_body
            .is_none()
            .then_some(length.unwrap_or(0) as usize),
        query: match target.iter().position(|&b| b == b'?') {
            Some(at) => target[at..].to_vec(),
            None => Vec::new(),
        },
        conditions: [
            joined("if-match"),
            joined("if-unmodified-since"),
            joined("if-none-match"),
            joined("if-modified-since"),
        ],
    })
}

/// The host of `host[:port]`, if it is one.
fn host_of(authority: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(authority).ok()?;
    // Behind the last colon is the port, unless that colon is of an address.
    let (host, port) = match text.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => (host, port),
        _ => (text, ""),
    };
    let in_name = |b: u8| b.is_ascii_alphanumeric() || b"-._~!$&'()*+;=".contains(&b);
    let is_host = match host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'))
    {
        Some(literal) if literal.starts_with(['v', 'V']) => {
            let (version, address) = literal[1..].split_once('.')?;
            let is_version = version.bytes().all(|b| b.is_ascii_hexdigit());
            let is_address = address.bytes().all(|b| in_name(b) || b == b':');
            is_version && is_address && !version.is_empty() && !address.is_empty()
        }
        Some(literal) => literal.parse::<std::net::Ipv6Addr>().is_ok(),
        None => {
            let mut parts = host.split('%');
            let is_plain = |part: &str| part.bytes().all(in_name);
            let is_first = parts.next().is_some_and(is_plain);
            is_first
                && parts.all(|part| {
                    let digits = part.as_bytes().get(..2).unwrap_or_default();
                    is_plain(part) && digits.len() == 2 && digits.iter().all(u8::is_ascii_hexdigit)
                })
        }
    };
    let is_port = port.bytes().all(|b| b.is_ascii_digit());
    (is_host && is_port).then(|| host.to_owned())
}

/// The key that a request target names.
pub(super) fn key_of(target: &[u8]) -> Result<Vec<u8>, Status> {
    let lower = target.to_ascii_lowercase();
    let scheme_bytes = match lower {
        _ if lower.starts_with(b"/") => None,
        _ if lower.starts_with(b"http://") => Some(7),
        _ if lower.starts_with(b"https://") => Some(8),
        _ => return Err(Status::BadRequest),
    };
    let mut path = target;
    if let Some(scheme_bytes) = scheme_bytes {
        let after = &target[scheme_bytes..];
        let end = after.iter().position(|b| b"/?#".contains(b));
        let (authority, rest) = after.split_at(end.unwrap_or(after.len()));
        if host_of(authority).is_none_or(|host| host.is_empty()) {
            return Err(Status::BadRequest);
        }
        path = rest;
    }
    if path.contains(&b'#') {
        return Err(Status::BadRequest);
    }
    let mut path = path.split(|&b| b == b'?').next().unwrap_or_default();
    let mut decoded = Vec::new();
    while let [first, rest @ ..] = path {
        path = rest;
        let mut byte = *first;
        if byte == b'%' {
            let digits = rest.get(..2).ok_or(Status::BadRequest)?;
            if !digits.iter().all(u8::is_ascii_hexdigit) {
                return Err(Status::BadRequest);
            }
            let digits = String::from_utf8_lossy(digits);
            byte = u8::from_str_radix(&digits, 16).map_err(|_| Status::BadRequest)?;
            path = &rest[2..];
        }
        if byte == 0 {
            return Err(Status::BadRequest);
        }
        decoded.push(byte);
    }
    let mut names: Vec<&[u8]> = Vec::new();
    let mut last: &[u8] = b"";
    for name in decoded.split(|&b| b == b'/') {
        last = name;
        match name {
            b"" | b"." => {}
            b".." => drop(names.pop().ok_or(Status::Forbidden)?),
            name => names.push(name),
        }
    }
    // A directory is named with a slash at the end; the root is one too.
    if matches!(last, b"" | b"." | b"..") {
        names.push(b"");
    }
    Ok([b"/", &names.join(&b'/')[..]].concat())
}

/// An answer on the wire; `rest` is what follows the lines that all have.
pub(super) fn wire(status: Status, close: bool, rest: &[u8]) -> Vec<u8> {
    let connection = if close { "close" } else { "keep-alive" };
    // The text of a refusal is its status line's.
    let text = status.refusal(false);
    let line = text.trim_end().lines().next_back().unwrap_or_default();
    let date = String::from_utf8_lossy(DATE);
    let head = format!("HTTP/1.1 {line}\r\nConnection: {connection}\r\nDate: {date}");
    [head.as_bytes(), rest].concat()
}

/// A refusal on the wire.
pub(super) fn refusal(status: Status, close: bool, head_only: bool) -> Vec<u8> {
    wire(status, close, status.refusal(head_only).as_bytes())
}

/// A redirect on the wire.
pub(super) fn redirect(location: &str, query: &[u8], close: bool, head_only: bool) -> Vec<u8> {
    let mut location = location.to_owned();
    for &byte in query {
        let in_query = |b: u8| b.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@/?%".contains(&b);
        location += &match in_query(byte) {
            true => char::from(byte).to_string(),
            false => format!("%{byte:02X}"),
        };
    }
    let body = format!("301 Moved Permanently: {location}\n");
    let fields = format!(
        "Content-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\n\
         Location: {location}\r\n\r\n",
        body.len()
    );
    let rest = if head_only { fields } else { fields + &body };
    wire(Status::MovedPermanently, close, rest.as_bytes())
}

/// What answers a request for live figures.
pub(super) fn live(content_type: &str, close: bool, head_only: bool) -> Vec<u8> {
    let fields = format!(
        "Content-Type: {content_type}\r\nContent-Length: {}\r\nCache-Control: no-store\r\n\r\n",
        FIGURES.len()
    );
    let rest = if head_only { fields } else { fields + FIGURES };
    wire(Status::Ok, close, rest.as_bytes())
}

/// The bytes of the answer. That the prebuilt ones are right is the business of `site` and
/// `status`.
fn answer(site: &Site, asked: &Asked) -> Vec<u8> {
    let (close, head_only) = (!asked.keeps(), asked.head_only);
    let key = match &asked.key {
        Ok(key) => key,
        Err(status) => return refusal(*status, close, head_only),
    };
    let live_type = match &key[..] {
        b"/_mely" => Some("text/html; charset=utf-8"),
        b"/_mely/values" => Some("application/json"),
        _ => None,
    };
    let file = match (live_type, site.get(key)) {
        (Some(_), _) => None,
        (None, None) => return refusal(Status::NotFound, close, head_only),
        (None, Some(Entry::Redirect(to))) => return redirect(to, &asked.query, close, head_only),
        (None, Some(Entry::File(file))) => Some(file),
    };
    let no_store = b"Cache-Control: no-store\r\n\r\n".as_slice();
    match (verdict(&asked.conditions, file), live_type, file) {
        (412, ..) => refusal(Status::PreconditionFailed, close, head_only),
        (304, ..) => {
            let rest = file.map_or(no_store, File::not_modified);
            wire(Status::NotModified, close, rest)
        }
        (_, Some(content_type), _) => live(content_type, close, head_only),
        (_, None, Some(file)) => wire(Status::Ok, close, file.ok(head_only)),
        (_, None, None) => unreachable!("looked at above"),
    }
}

/// RFC 9110, section 13.2.2, step by step.
fn verdict(conditions: &[Option<Vec<u8>>; 4], file: Option<&File>) -> u16 {
    let [if_match, unmodified, none_match, modified] = conditions;
    let etag = file.map(|file| file.etag.as_bytes());
    let newer_than = |date: &[u8]| {
        let date = httpdate::parse_http_date(std::str::from_utf8(date).ok()?).ok()?;
        Some(file?.modified.as_ref()?.0 > date)
    };
    if let Some(tags) = if_match {
        if !names_tag(tags, etag, false) {
            return 412;
        }
    } else if unmodified.as_deref().and_then(newer_than) == Some(true) {
        return 412;
    }
    if let Some(tags) = none_match {
        return if names_tag(tags, etag, true) {
            304
        } else {
            200
        };
    }
    match modified {
        Some(date) if newer_than(date) == Some(false) => 304,
        _ => 200,
    }
}

/// Whether a list of tags has this one, up to the first thing in it that is no tag.
fn names_tag(list: &[u8], wanted: Option<&[u8]>, weak_too: bool) -> bool {
    if list.trim_ascii() == b"*" {
        return true;
    }
    // Of `"a", W/"b"` every second part stands between quotes.
    let parts: Vec<&[u8]> = list.split(|&b| b == b'"').collect();
    // An odd quote at the end opens nothing.
    for pair in parts.chunks_exact(2).take((parts.len() - 1) / 2) {
        let before = pair[0].strip_suffix(b"W/").unwrap_or(pair[0]);
        if !before.iter().all(|b| b" \t,".contains(b)) {
            return false;
        }
        let strong = before.len() == pair[0].len();
        let tag = [b"\"", pair[1], b"\""].concat();
        if wanted == Some(&tag[..]) && (strong || weak_too) {
            return true;
        }
    }
    false
}
