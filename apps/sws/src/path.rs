//! From a request target to a key of the site's map.
//!
//! A key is absolute, percent-decoded and normal: it begins with `/` and has no empty, `.` or `..`
//! segment. Nothing here touches a file system, and the map holds only what was under the root at
//! start-up, so no spelling of a path can leave the root; one that tries is told 403 all the same.
//!
//! The order is: decode once, then normalize. So `%2e%2e` and `%2F` count as `..` and `/`, while
//! `%252e` names a file that is called `%2e`. Repeated slashes are one. A backslash is an ordinary
//! byte, as in Linux file names.

use crate::fields::Text;
use crate::host::host_of;
use crate::status::Status;

/// Reads the target of a GET or HEAD: `/path?query`, or `http://authority/path?query`, which
/// clients send to proxies and servers must take too. The query does not matter to static files.
/// The key is a range of the target where no byte had to change.
pub(crate) fn key_of(target: &[u8]) -> Result<Text, Status> {
    // The usual case, in one pass: all of it is the key.
    if target.first() == Some(&b'/') && is_plain(target) {
        return Ok(Text::Range(0, target.len()));
    }
    let start = match target.first() {
        Some(b'/') => 0,
        _ => authority_end(target).ok_or(Status::BadRequest)?,
    };
    let rest = &target[start..];
    // A fragment never belongs on the wire; guessing what was meant is how proxies get fooled.
    if rest.contains(&b'#') {
        return Err(Status::BadRequest);
    }
    let path_bytes = rest.iter().position(|&b| b == b'?').unwrap_or(rest.len());
    let path = &rest[..path_bytes];
    if path.first() == Some(&b'/') && is_plain(path) {
        return Ok(Text::Range(start, start + path_bytes));
    }
    normalize(&percent_decode(path)?).map(Text::Owned)
}

/// The index after `http://authority`, if that is how `target` begins: with a host, and nobody's
/// name.
fn authority_end(target: &[u8]) -> Option<usize> {
    let after_scheme = ["http://", "https://"].iter().find_map(|scheme| {
        let head = target.get(..scheme.len())?;
        head.eq_ignore_ascii_case(scheme.as_bytes())
            .then_some(scheme.len())
    })?;
    let authority_bytes = target[after_scheme..]
        .iter()
        .position(|b| matches!(b, b'/' | b'?' | b'#'))
        .unwrap_or(target.len() - after_scheme);
    let end = after_scheme + authority_bytes;
    let host = host_of(&target[after_scheme..end])?;
    (!host.is_empty()).then_some(end)
}

/// Whether `path` is already a key, and nothing comes after it. Any segment that begins with a dot
/// takes the slow way, which costs such names an allocation and keeps this loop simple: it looks at
/// every byte of every request's path, so it has no branch but its end.
fn is_plain(path: &[u8]) -> bool {
    let mut refused = 0;
    let mut forbidden = SPECIAL;
    for &byte in path {
        let class = CLASSES[usize::from(byte)];
        refused |= class & forbidden;
        forbidden = SPECIAL | ((class & SLASH) * (AFTER_SLASH / SLASH));
    }
    refused == 0
}

/// Never in a plain path.
const SPECIAL: u8 = 1;
/// A slash.
const SLASH: u8 = 2;
/// Not after a slash.
const AFTER_SLASH: u8 = 4;

const CLASSES: [u8; 256] = {
    let mut classes = [0; 256];
    classes[0] = SPECIAL;
    classes[b'%' as usize] = SPECIAL;
    classes[b'?' as usize] = SPECIAL;
    classes[b'#' as usize] = SPECIAL;
    classes[b'/' as usize] = SLASH | AFTER_SLASH;
    classes[b'.' as usize] = AFTER_SLASH;
    classes
};

fn percent_decode(path: &[u8]) -> Result<Vec<u8>, Status> {
    let digit = |byte: Option<&u8>| {
        byte.and_then(|&b| char::from(b).to_digit(16))
            .map(|value| value as u8)
    };
    let mut decoded = Vec::with_capacity(path.len());
    let mut bytes = path.iter();
    while let Some(&byte) = bytes.next() {
        let byte = match byte {
            b'%' => match (digit(bytes.next()), digit(bytes.next())) {
                (Some(high), Some(low)) => high << 4 | low,
                _ => return Err(Status::BadRequest),
            },
            byte => byte,
        };
        // No file name has one, and C code behind a server would end the name here.
        if byte == 0 {
            return Err(Status::BadRequest);
        }
        decoded.push(byte);
    }
    Ok(decoded)
}

fn normalize(path: &[u8]) -> Result<Vec<u8>, Status> {
    let mut key = Vec::with_capacity(path.len() + 1);
    let mut ends_in_directory = true;
    for segment in path.split(|&b| b == b'/') {
        ends_in_directory = matches!(segment, b"" | b"." | b"..");
        match segment {
            b"" | b"." => {}
            b".." => {
                let parent = key
                    .iter()
                    .rposition(|&b| b == b'/')
                    .ok_or(Status::Forbidden)?;
                key.truncate(parent);
            }
            name => {
                key.push(b'/');
                key.extend_from_slice(name);
            }
        }
    }
    if ends_in_directory {
        key.push(b'/');
    }
    Ok(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(target: &str) -> Result<String, Status> {
        key_of(target.as_bytes()).map(|key| match key {
            Text::Range(start, end) => target[start..end].to_owned(),
            Text::Owned(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        })
    }

    #[test]
    fn plain_paths_are_borrowed() {
        for (target, expected) in [
            ("/", Text::Range(0, 1)),
            ("/a/b.html", Text::Range(0, 9)),
            ("/a/?x=/../#%".trim_end_matches("#%"), Text::Range(0, 3)),
            ("http://h/a", Text::Range(8, 10)),
            ("HTTPS://h:1/", Text::Range(11, 12)),
        ] {
            assert_eq!(key_of(target.as_bytes()), Ok(expected), "{target}");
        }
    }

    #[test]
    fn every_spelling_of_a_path_has_one_key() {
        for (target, expected) in [
            ("/a%20b", "/a b"),
            ("/%41%c3%a9", "/A\u{e9}"),
            ("//a///b", "/a/b"),
            ("/a//", "/a/"),
            ("/./a/./b/.", "/a/b/"),
            ("/a/../b", "/b"),
            ("/a/b/..", "/a/"),
            ("/a/%2e%2E/b", "/b"),
            ("/a%2Fb", "/a/b"),
            ("/a/..b/...", "/a/..b/..."),
            ("/.well-known/x", "/.well-known/x"),
            ("/%252e%252e/x", "/%2e%2e/x"),
            ("/a\\..\\b", "/a\\..\\b"),
            ("http://h", "/"),
            ("http://h?q", "/"),
            ("http://h//a", "/a"),
        ] {
            assert_eq!(key(target), Ok(expected.to_owned()), "{target}");
        }
    }

    #[test]
    fn climbing_out_of_the_root_is_forbidden() {
        for target in [
            "/..",
            "/../",
            "/../etc/passwd",
            "/a/../../etc/passwd",
            "/%2e%2e/etc/passwd",
            "/.%2e/x",
            "/..%2f..%2fetc/passwd",
            "/%2e%2e%2fetc%2fpasswd",
            "//../x",
            "/./../x",
            "http://h/../x",
        ] {
            assert_eq!(key(target), Err(Status::Forbidden), "{target}");
        }
    }

    #[test]
    fn nonsense_is_a_bad_request() {
        for target in [
            "",
            "*",
            "a",
            "h:80",
            "http://",
            "http:///x",
            "http://:80/x",
            "http://u@h/x",
            "http://u:p@h/x",
            "http://h:80x/",
            "http://a:b:c/",
            "http://[::1/",
            "http://%zz/",
            "ftp://h/",
            "/%",
            "/%4",
            "/%zz",
            "/%+1",
            "/%00",
            "/a%00.html",
            "/a\0.html",
            "/#a",
            "/a#",
            "?q",
        ] {
            assert_eq!(key(target), Err(Status::BadRequest), "{target}");
        }
    }

    #[test]
    fn a_key_is_a_fixed_point_unless_it_holds_a_percent_sign() {
        for target in ["//a/./b/../c", "/x/%2e/y/", "/.a", "/"] {
            let once = key(target).unwrap();
            assert_eq!(key(&once), Ok(once.clone()), "{target}");
        }
    }
}
