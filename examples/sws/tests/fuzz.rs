//! Seeded mutations of good and bad requests. Whatever comes: no panic, nothing but well-formed
//! answers with known bodies, and no dependence on how the bytes were cut.

use super::driver::{Driver, site};
use crate::path;
use crate::site::Site;

/// xorshift64*: enough to mutate with, and a failure names the seed that repeats it.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    fn pick<'a>(&mut self, from: &[&'a [u8]]) -> &'a [u8] {
        from[self.below(from.len())]
    }
}

const SEEDS: &[&[u8]] = &[
    b"GET / HTTP/1.1\r\nHost: h\r\n\r\n",
    b"HEAD /a.txt HTTP/1.1\r\nHost: h\r\nIf-None-Match: \"x\", W/\"y\"\r\n\r\n",
    b"GET /d/../a%20b?q HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
    b"POST /d HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nabcde",
    b"GET /_mely HTTP/1.1\r\nHost: h\r\nIf-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT\r\n\r\n",
    b"GET /x/../../etc/passwd HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
];

const PIECES: &[&[u8]] = &[
    b"\r\n",
    b"\n",
    b"\r",
    b" ",
    b"\0",
    b"%",
    b"%2e",
    b"..",
    b"/",
    b"//",
    b"\\",
    b":",
    b",",
    b"\"",
    b"\r\n\r\n",
    b"\t",
    b"\xff",
    b"http://",
    b"HTTP/1.0",
    b"HTTP/2.0",
    b"Content-Length: 5\r\n",
    b"Content-Length: 99999999999999999999\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"Host: h\r\n",
    b"Connection: close\r\n",
    b"Expect: 100-continue\r\n",
    b"GET ",
    b"HEAD ",
    b"/_mely",
    b"*",
];

fn mutated(random: &mut Random) -> Vec<u8> {
    let mut bytes = Vec::new();
    for _ in 0..1 + random.below(3) {
        bytes.extend_from_slice(random.pick(SEEDS));
    }
    for _ in 0..random.below(6) {
        let at = random.below(bytes.len() + 1);
        let to = (at + random.below(8)).min(bytes.len());
        match random.below(5) {
            0 => drop(bytes.drain(at..to)),
            1 => drop(bytes.splice(at..at, random.pick(PIECES).iter().copied())),
            2 => drop(bytes.splice(at..to, random.pick(PIECES).iter().copied())),
            3 if at < bytes.len() => bytes[at] = random.next() as u8,
            _ => bytes.truncate(bytes.len() - random.below(bytes.len() / 4 + 1)),
        }
    }
    bytes
}

fn play(site: &Site, chunks: &[&[u8]]) -> (Vec<u8>, bool) {
    let mut driver = Driver::new(site);
    for chunk in chunks {
        driver.bytes(chunk);
    }
    let (_, over) = driver.outcome();
    (driver.sent, over)
}

/// Splits what was sent into answers; each must be one that this site can give.
fn assert_known_answers(mut sent: &[u8], case: &str) {
    let bodies: &[&[u8]] = &[
        b"<p>index\n",
        b"hello\n",
        b"<p>d\n",
        b"space",
        b"public",
        b"<figures>",
    ];
    while !sent.is_empty() {
        let head_bytes = sent
            .windows(4)
            .position(|four| four == b"\r\n\r\n")
            .expect(case)
            + 4;
        let head = std::str::from_utf8(&sent[..head_bytes]).expect(case);
        sent = &sent[head_bytes..];
        let status = head
            .strip_prefix("HTTP/1.1 ")
            .expect(case)
            .split("\r\n")
            .next()
            .unwrap();
        // The answer to a HEAD is followed by the next answer or by nothing, never by its body.
        if sent.is_empty() || sent.starts_with(b"HTTP/1.1 ") {
            continue;
        }
        let length = head
            .split("Content-Length: ")
            .nth(1)
            .expect(case)
            .split('\r')
            .next();
        let (body, rest) = sent.split_at(length.unwrap().parse().expect(case));
        let good = match &status[..3] {
            "200" => bodies.contains(&body),
            "301" => body == b"301 Moved Permanently: /d/\n",
            _ => body == format!("{status}\n").as_bytes(),
        };
        assert!(good, "{case}: {head}{}", body.escape_ascii());
        sent = rest;
    }
}

#[test]
fn whatever_comes_gets_a_known_answer_that_does_not_depend_on_the_cuts() {
    let site = site();
    for seed in 1..=40_000_u64 {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let input = mutated(&mut random);
        let case = format!("seed {seed}: {}", input.escape_ascii());
        let whole = play(&site, &[&input]);
        assert_known_answers(&whole.0, &case);
        let (one, two) = (random.below(input.len() + 1), random.below(input.len() + 1));
        let (one, two) = (one.min(two), one.max(two));
        let cut = play(&site, &[&input[..one], &input[one..two], &input[two..]]);
        assert_eq!(whole, cut, "{case} cut at {one} and {two}");
        if seed % 8 == 0 {
            let bytes: Vec<&[u8]> = input.chunks(1).collect();
            assert_eq!(whole, play(&site, &bytes), "{case} byte by byte");
        }
    }
}

#[test]
fn no_target_makes_a_key_that_climbs() {
    let pieces: &[&[u8]] = &[
        b"/",
        b"..",
        b".",
        b"%2e",
        b"%2E",
        b"%2f",
        b"%5c",
        b"\\",
        b"a",
        b"%61",
        b"%",
        b"%00",
        b"?",
        b"%25",
        b"http://h",
        b"\xc3\xa9",
        b" ",
        b"//",
    ];
    for seed in 1..=200_000_u64 {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut target = if random.below(8) == 0 {
            Vec::new()
        } else {
            b"/".to_vec()
        };
        for _ in 0..random.below(10) {
            target.extend_from_slice(random.pick(pieces));
        }
        let Ok(key) = path::key_of(&target) else {
            continue;
        };
        let key = key.of(&target);
        let case = format!(
            "seed {seed}: {} -> {}",
            target.escape_ascii(),
            key.escape_ascii()
        );
        assert!(key.starts_with(b"/"), "{case}");
        let mut segments = key[1..].split(|&b| b == b'/');
        let last = segments.next_back().unwrap();
        assert!(
            segments.all(|name| !matches!(name, b"" | b"." | b"..")),
            "{case}"
        );
        assert!(!matches!(last, b"." | b".."), "{case}");
        assert!(!key.contains(&0), "{case}");
    }
}
