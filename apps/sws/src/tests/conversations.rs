//! A table of byte-exact conversations, each also cut at every position and sent byte by byte.

use super::driver::{DATE, Driver, End, site};
use crate::fields::BODY_BYTES_MAX;
use crate::request::{FIELDS_MAX, HEAD_BYTES_MAX, LINE_BYTES_MAX};
use crate::site::Site;

const MODIFIED: &str = "Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\n";
const HELLO: &str = "ETag: \"6-a9bc80cca21f28b3\"\r\n";

fn answer(status: &str, fields: &str, connection: &str, body: &str) -> String {
    let date = std::str::from_utf8(DATE).unwrap();
    format!("HTTP/1.1 {status}\r\nConnection: {connection}\r\nDate: {date}{fields}\r\n{body}")
}

fn hello(connection: &str, body: &str) -> String {
    let fields = format!(
        "Content-Type: text/plain; charset=utf-8\r\nContent-Length: 6\r\n{HELLO}{MODIFIED}"
    );
    answer("200 OK", &fields, connection, body)
}

fn keep() -> String {
    hello("keep-alive", "hello\n")
}

fn error(line: &str, extra: &str, connection: &str) -> String {
    let body = format!("{line}\n");
    let fields = format!(
        "Content-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\n{extra}",
        body.len()
    );
    answer(line, &fields, connection, &body)
}

fn not_found() -> String {
    error("404 Not Found", "", "keep-alive")
}

fn forbidden() -> String {
    error("403 Forbidden", "", "keep-alive")
}

fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n")
}

fn with(fields: &str) -> String {
    format!("GET /a.txt HTTP/1.1\r\nHost: h\r\n{fields}\r\n")
}

/// What goes in, what comes out, and whether the server then ends the connection.
fn table() -> Vec<(String, String, bool)> {
    let g = get("/a.txt");
    let bad = || error("400 Bad Request", "", "close");
    let not_allowed =
        |connection| error("405 Method Not Allowed", "Allow: GET, HEAD\r\n", connection);
    let not_implemented = || error("501 Not Implemented", "", "close");
    let too_large = || error("413 Content Too Large", "", "close");
    let version = || error("505 HTTP Version Not Supported", "", "close");
    let uri_too_long = || error("414 URI Too Long", "", "close");
    let fields_too_large = || error("431 Request Header Fields Too Large", "", "close");
    let redirect = |location: &str| {
        let body = format!("301 Moved Permanently: {location}\n");
        let fields = format!(
            "Content-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\n\
             Location: {location}\r\n",
            body.len()
        );
        answer("301 Moved Permanently", &fields, "keep-alive", &body)
    };
    let failed = || error("412 Precondition Failed", "", "keep-alive");
    let not_modified = answer(
        "304 Not Modified",
        &format!("{HELLO}{MODIFIED}"),
        "keep-alive",
        "",
    );
    let longest_line = format!("GET /{} HTTP/1.1\r\n", "x".repeat(LINE_BYTES_MAX - 16));
    assert_eq!(longest_line.len(), LINE_BYTES_MAX);
    let room = HEAD_BYTES_MAX - with("X: \r\n").len();
    let closed_by_client = |fields: &str| with(&format!("Connection: close\r\n{fields}"));
    let cases: Vec<(String, String, bool)> = vec![
        // Plain answers, keep-alive and close.
        (g.clone(), keep(), false),
        (g.replace("1.1", "1.0"), hello("close", "hello\n"), true),
        (
            "GET /a.txt HTTP/1.0\r\n\r\n".into(),
            hello("close", "hello\n"),
            true,
        ),
        (
            "GET /a.txt HTTP/1.0\r\nConnection: keep-alive\r\n\r\n".into(),
            keep(),
            false,
        ),
        (closed_by_client(""), hello("close", "hello\n"), true),
        (g.replace("GET", "HEAD"), hello("keep-alive", ""), false),
        (get("/d"), redirect("/d/"), false),
        (get("/d?a=/../%&b"), redirect("/d/?a=/../%&b"), false),
        (get("/a.txt?q=/../%"), keep(), false),
        (get("/./d/..//%61.txt"), keep(), false),
        (get("http://other/a.txt"), keep(), false),
        (
            with(&format!("If-None-Match: \"x\", W/{}", &HELLO[6..])),
            not_modified.clone(),
            false,
        ),
        (
            with(&MODIFIED.replace("Last-Modified", "If-Modified-Since")),
            not_modified.clone(),
            false,
        ),
        (
            with(&format!("If-Match: \"x\", {}", &HELLO[6..])),
            keep(),
            false,
        ),
        (with("If-Match: \"x\"\r\n") + &g, failed() + &keep(), false),
        (
            with(&format!("If-Match: *\r\nIf-None-Match: {}", &HELLO[6..])),
            not_modified,
            false,
        ),
        (
            with("If-Unmodified-Since: Sun, 06 Nov 1994 08:49:36 GMT\r\n"),
            failed(),
            false,
        ),
        // Several at once, in order; and what comes after the last answer is nobody's.
        (g.repeat(3), keep().repeat(3), false),
        (
            get("/nope") + &g.replace("GET", "HEAD") + &get("/..") + &g,
            not_found() + &hello("keep-alive", "") + &forbidden() + &keep(),
            false,
        ),
        (
            g.clone() + &closed_by_client("") + &g,
            keep() + &hello("close", "hello\n"),
            true,
        ),
        (g.clone() + "\0" + &g, keep() + &bad(), true),
        // Empty lines between requests.
        (format!("\r\n\r\n{g}\r\n{g}\r\n"), keep().repeat(2), false),
        // A bare line feed ends no line: not the empty one before a request, not the request's, not
        // a field's, not the head.
        (format!("\n{g}"), bad(), true),
        (format!("{g}\n{g}"), keep() + &bad(), true),
        (g.replace("\r\n", "\n"), bad(), true),
        (g.replacen("\r\n", "\n", 1), bad(), true),
        (with("X: y\n"), bad(), true),
        (with("X: y\n\n") + &g, bad(), true),
        (g.replace("\r\n\r\n", "\r\n\n"), bad(), true),
        (g.replace("\r\n\r\n", "\n\r\n"), bad(), true),
        (format!("\r{g}"), bad(), true),
        ("\r\n\x16".into(), bad(), true),
        (format!(" {g}"), bad(), true),
        // Out of the root.
        (get("/../etc/passwd"), forbidden(), false),
        (get("/%2e%2e/etc/passwd"), forbidden(), false),
        (get("/d/..%2f..%2fetc/passwd"), forbidden(), false),
        (get("/..\\..\\etc\\passwd"), not_found(), false),
        (get("/%252e%252e/etc/passwd"), not_found(), false),
        (get("/%00"), bad(), true),
        (get("/%zz"), bad(), true),
        (get("/a.txt#x"), bad(), true),
        (get("*"), bad(), true),
        // Methods and versions.
        (g.replace("GET", "DELETE"), not_allowed("keep-alive"), false),
        (
            "OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n".into(),
            not_allowed("keep-alive"),
            false,
        ),
        (
            "CONNECT h:1 HTTP/1.1\r\nHost: h:1\r\n\r\n".into(),
            not_allowed("keep-alive"),
            false,
        ),
        (g.replace("GET", "get"), not_implemented(), true),
        (g.replace("GET", "BREW"), not_implemented(), true),
        (g.replace("1.1", "2.0"), version(), true),
        (g.replace("1.1", "1.2"), keep(), false),
        (g.replace("1.1", "1.9") + &g, keep().repeat(2), false),
        (g.replace("1.1", "1.2").replace("Host", "X"), bad(), true),
        (g.replace("1.1", "1.20"), version(), true),
        (
            g.replace("GET /a.txt", "GET  /a.txt").replace("1.1", "1.2"),
            bad(),
            true,
        ),
        (
            get("/d?a HTTP/1.2").replace(" HTTP/1.1", ""),
            redirect("/d/?a"),
            false,
        ),
        (g.replace("1.1", "3"), version(), true),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".into(), version(), true),
        (g.replace("1.1", "x"), bad(), true),
        (g.replace("HTTP", "ICY"), bad(), true),
        (get("/a b"), bad(), true),
        ("GET /\r\n".into(), bad(), true),
        ("hello\r\n".into(), bad(), true),
        // A HEAD is told without a body what is wrong with it.
        (
            g.replace("GET", "HEAD").replace("Host: h", "Host: ["),
            bad().replace("400 Bad Request\n", ""),
            true,
        ),
        (
            "HEAD /\0".into(),
            bad().replace("400 Bad Request\n", ""),
            true,
        ),
        // Garbage shows before its line ends.
        ("\x16\x03\x01\x02".into(), bad(), true),
        ("GET /\x7f".into(), bad(), true),
        // Fields.
        (g.replace("Host: h\r\n", ""), bad(), true),
        (with("Host: h\r\n"), bad(), true),
        (with("X : y\r\n"), bad(), true),
        (with("X: y\r\n folded\r\n"), bad(), true),
        (with("X: y\rz\r\n"), bad(), true),
        (with("X: \0\r\n"), bad(), true),
        (with("nonsense\r\n"), bad(), true),
        (with(&"X: y\r\n".repeat(FIELDS_MAX - 1)), keep(), false),
        (
            with(&"X: y\r\n".repeat(FIELDS_MAX)),
            fields_too_large(),
            true,
        ),
        // Bodies and framing. Of two lengths neither counts, be they the same.
        (
            with("Content-Length: 0\r\nContent-Length: 0\r\n"),
            bad(),
            true,
        ),
        (
            with("Content-Length: 0\r\nContent-Length: 5\r\n"),
            bad(),
            true,
        ),
        (with("Content-Length: 0, 0\r\n"), bad(), true),
        (with("Content-Length : 0\r\n"), bad(), true),
        (with("Content-Length:\r\n 0\r\n"), bad(), true),
        (with("Transfer-Encoding : chunked\r\n"), bad(), true),
        (with("Transfer-Encoding:\r\n chunked\r\n"), bad(), true),
        (
            with("Content-Length: 5\r\n") + "abcde" + &g,
            keep().repeat(2),
            false,
        ),
        (
            g.replace("GET", "POST")
                .replace("\r\n\r\n", "\r\nContent-Length: 5\r\n\r\nabcde")
                + &g,
            not_allowed("keep-alive") + &keep(),
            false,
        ),
        (
            with("Content-Length: 5\r\nExpect: 100-continue\r\n"),
            hello("close", "hello\n"),
            true,
        ),
        (
            with(&format!("Content-Length: {}\r\n", BODY_BYTES_MAX + 1)),
            too_large(),
            true,
        ),
        (
            with("Content-Length: 1073741824\r\n") + "abc",
            too_large(),
            true,
        ),
        (
            with("Transfer-Encoding: chunked\r\n") + "0\r\n\r\n",
            too_large(),
            true,
        ),
        (
            with("Content-Length: 1073741824\r\n").replace("GET", "PUT"),
            not_allowed("close"),
            true,
        ),
        (
            with("Transfer-Encoding: gzip, chunked\r\n"),
            not_implemented(),
            true,
        ),
        (
            with("Transfer-Encoding: chunked\r\nContent-Length: 5\r\n") + &g,
            bad(),
            true,
        ),
        (
            with("Content-Length: 5\r\nContent-Length: 6\r\n") + "abcdef",
            bad(),
            true,
        ),
        // Limits, each met and exceeded by a byte.
        (longest_line.clone() + "Host: h\r\n\r\n", not_found(), false),
        (
            longest_line.replace("/x", "/xx") + "Host: h\r\n\r\n",
            uri_too_long(),
            true,
        ),
        ("x".repeat(LINE_BYTES_MAX - 1), String::new(), false),
        ("x".repeat(LINE_BYTES_MAX), uri_too_long(), true),
        (with(&format!("X: {}\r\n", "y".repeat(room))), keep(), false),
        (
            with(&format!("X: {}\r\n", "y".repeat(room + 1))),
            fields_too_large(),
            true,
        ),
        (
            format!("GET / HTTP/9.9\r\nX: {}", "y".repeat(HEAD_BYTES_MAX)),
            version(),
            true,
        ),
    ];
    cases
}

fn play<'a>(site: &'a Site, chunks: impl IntoIterator<Item = &'a [u8]>) -> (String, bool) {
    let mut driver = Driver::new(site);
    for chunk in chunks {
        driver.bytes(chunk);
    }
    driver.outcome()
}

#[test]
fn every_conversation_is_byte_exact() {
    let site = site();
    for (input, output, over) in table() {
        assert_eq!(play(&site, [input.as_bytes()]), (output, over), "{input:?}");
    }
}

#[test]
fn how_the_bytes_are_cut_changes_nothing() {
    let site = site();
    for (input, output, over) in table() {
        let (input, expected) = (input.as_bytes(), (output, over));
        assert_eq!(play(&site, input.chunks(1)), expected, "{input:?}");
        // Of long inputs, cuts around the ends and at some places between.
        let step = input.len() / 512 + 1;
        let middle = (0..input.len()).step_by(step);
        for cut in middle.chain(input.len().saturating_sub(40)..=input.len()) {
            let (before, after) = input.split_at(cut);
            assert_eq!(
                play(&site, [before, after]),
                expected,
                "{input:?} cut at {cut}"
            );
        }
        for size in [2, 3, 7, 64] {
            assert_eq!(
                play(&site, input.chunks(size)),
                expected,
                "{input:?} by {size}"
            );
        }
    }
}

#[test]
fn a_client_that_ends_early_gets_what_it_asked_for_and_a_close() {
    let site = site();
    for (input, output, _) in table() {
        let mut driver = Driver::new(&site);
        driver.bytes(input.as_bytes());
        if driver.end == End::Open {
            driver.eof();
        }
        assert_eq!(driver.outcome(), (output, true), "{input:?}");
        assert_eq!(driver.end, End::Closed, "{input:?}");
    }
}
