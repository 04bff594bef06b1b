//! Hosts, as the Host field and the authority of a target name them (RFC 3986, section 3.2).

use std::net::Ipv6Addr;

/// The host of `host[:port]`, which may be empty; `None` for what is no such thing. User
/// information is refused as RFC 9110, section 4.2.4 advises, and a comma, which proxies take for
/// two hosts.
pub(crate) fn host_of(authority: &[u8]) -> Option<&[u8]> {
    // The usual case.
    if authority.iter().all(|&b| IN_NAME[usize::from(b)]) {
        return Some(authority);
    }
    let is_end = |&b: &u8| match authority.first() {
        Some(b'[') => b == b']',
        _ => b == b':',
    };
    let end = authority.iter().position(is_end);
    let (host, port) = match (authority.first(), end) {
        (Some(b'['), Some(end)) => authority.split_at(end + 1),
        (Some(b'['), None) => return None,
        (_, end) => authority.split_at(end.unwrap_or(authority.len())),
    };
    let is_port = match port {
        [] => true,
        [colon, digits @ ..] => *colon == b':' && digits.iter().all(u8::is_ascii_digit),
    };
    let is_host = match host {
        [b'[', literal @ .., b']'] => is_literal(literal),
        name => is_name(name),
    };
    (is_host && is_port).then_some(host)
}

/// An address of IPv6, or of a version to come: `v1.x`.
fn is_literal(literal: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(literal) else {
        return false;
    };
    let Some(future) = text.strip_prefix(['v', 'V']) else {
        return text.parse::<Ipv6Addr>().is_ok();
    };
    let Some((version, address)) = future.split_once('.') else {
        return false;
    };
    let is_version = !version.is_empty() && version.bytes().all(|b| b.is_ascii_hexdigit());
    let in_address = |b: u8| b == b':' || IN_NAME[usize::from(b)];
    is_version && !address.is_empty() && address.bytes().all(in_address)
}

/// A name, in which anything else is percent-encoded.
fn is_name(name: &[u8]) -> bool {
    let mut rest = name;
    while let [byte, after @ ..] = rest {
        rest = match (byte, after) {
            (b'%', [high, low, after @ ..])
                if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() =>
            {
                after
            }
            (&byte, after) if IN_NAME[usize::from(byte)] => after,
            _ => return false,
        };
    }
    true
}

/// What stands for itself in a name.
const IN_NAME: [bool; 256] = {
    let mut table = [false; 256];
    let marks = b"-._~!$&'()*+;=";
    let mut byte = 0u8;
    while byte < 128u8 {
        table[byte as usize] = byte.is_ascii_alphanumeric();
        byte += 1;
    }
    let mut mark = 0;
    while mark < marks.len() {
        table[marks[mark] as usize] = true;
        mark += 1;
    }
    table
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts() {
        for (authority, host) in [
            ("", ""),
            ("h", "h"),
            ("a.b-c_d~!$&'()*+;=", "a.b-c_d~!$&'()*+;="),
            ("h:", "h"),
            ("h:80", "h"),
            (":80", ""),
            ("127.0.0.1:8080", "127.0.0.1"),
            ("%41%c3", "%41%c3"),
            ("[::1]", "[::1]"),
            ("[::1]:8080", "[::1]"),
            ("[2001:db8::7]", "[2001:db8::7]"),
            ("[v1f.a:b]:", "[v1f.a:b]"),
        ] {
            let found = host_of(authority.as_bytes());
            assert_eq!(found, Some(host.as_bytes()), "{authority}");
        }
    }

    #[test]
    fn what_is_no_host() {
        for authority in [
            "[",
            "]",
            "[]",
            "[::1",
            "::1",
            "[::1]x",
            "[::1]8",
            "[::g]",
            "[1.2.3.4]",
            "[v.a]",
            "[v1]",
            "[v1.]",
            "[vx.a]",
            "a:b:c",
            "a:99x",
            "a:80:80",
            "a:-1",
            "%",
            "%4",
            "%zz",
            "a%",
            "u@h",
            "u:p@h",
            "a,b",
            "a b",
            "a/b",
            "a?b",
            "a#b",
            "\u{e9}",
            "[fe80::1%25eth0]",
        ] {
            assert_eq!(host_of(authority.as_bytes()), None, "{authority}");
        }
    }
}
