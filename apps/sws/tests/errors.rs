//! Every refusal, byte for byte.

use crate::client::{Client, is_served};
use crate::on_both;
use crate::setup::Setup;

on_both!(refusals_are_byte_exact, late_requests_are_byte_exact);

/// What a refusal looks like, without its date; `fields` are after the length.
fn refusal(status: &str, fields: &str, connection: &str) -> String {
    format!(
        "HTTP/1.1 {status}\r\nConnection: {connection}\r\n\
         Content-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\n{fields}\r\n{status}\n",
        status.len() + 1
    )
}

fn refusals_are_byte_exact(backend: &str) {
    let server = Setup::new(backend).start();
    let with = |fields: &str| format!("GET / HTTP/1.1\r\nHost: h\r\n{fields}\r\n");
    let not_allowed = "405 Method Not Allowed";
    let too_large = "413 Content Too Large";
    let headers_too_large = "431 Request Header Fields Too Large";
    let ends = "close";
    for (request, status, connection) in [
        ("nonsense\r\n\r\n".to_owned(), "400 Bad Request", ends),
        ("\x16\x03\x01\x02".to_owned(), "400 Bad Request", ends),
        ("GET / HTTP/1.1\r\n\r\n".to_owned(), "400 Bad Request", ends),
        (with("Content-Length: x\r\n"), "400 Bad Request", ends),
        (
            with("Content-Length: 1\r\nContent-Length: 2\r\n"),
            "400 Bad Request",
            ends,
        ),
        (
            with("Content-Length: 1\r\nTransfer-Encoding: chunked\r\n"),
            "400 Bad Request",
            ends,
        ),
        (with(" folded\r\n"), "400 Bad Request", ends),
        (with("Space : x\r\n"), "400 Bad Request", ends),
        (
            "GET /%zz HTTP/1.1\r\nHost: h\r\n\r\n".to_owned(),
            "400 Bad Request",
            ends,
        ),
        (
            "GET /../x HTTP/1.1\r\nHost: h\r\n\r\n".to_owned(),
            "403 Forbidden",
            "keep-alive",
        ),
        (
            "GET /none HTTP/1.1\r\nHost: h\r\n\r\n".to_owned(),
            "404 Not Found",
            "keep-alive",
        ),
        (
            "GET /none HTTP/1.0\r\n\r\n".to_owned(),
            "404 Not Found",
            ends,
        ),
        (
            "POST / HTTP/1.1\r\nHost: h\r\n\r\n".to_owned(),
            not_allowed,
            "keep-alive",
        ),
        (
            "PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc".to_owned(),
            not_allowed,
            "keep-alive",
        ),
        (
            with("If-Match: \"another\"\r\n"),
            "412 Precondition Failed",
            "keep-alive",
        ),
        (with("Content-Length: 16385\r\n"), too_large, ends),
        (with("Content-Length: 1073741824\r\n"), too_large, ends),
        (with("Transfer-Encoding: chunked\r\n"), too_large, ends),
        (
            format!("GET /{} HTTP/1.1\r\n", "a".repeat(8192)),
            "414 URI Too Long",
            ends,
        ),
        (with(&"X: y\r\n".repeat(64)), headers_too_large, ends),
        (
            with(&format!("X: {}\r\n", "y".repeat(16_384))),
            headers_too_large,
            ends,
        ),
        (
            "BREW / HTTP/1.1\r\nHost: h\r\n\r\n".to_owned(),
            "501 Not Implemented",
            ends,
        ),
        (
            with("Transfer-Encoding: gzip, chunked\r\n"),
            "501 Not Implemented",
            ends,
        ),
        (
            "GET / HTTP/2.0\r\n\r\n".to_owned(),
            "505 HTTP Version Not Supported",
            ends,
        ),
    ] {
        let fields = match status {
            "405 Method Not Allowed" => "Allow: GET, HEAD\r\n",
            _ => "",
        };
        let mut client = Client::connect(server.addr());
        client.send(&request);
        let answer = client.answer();
        let text = answer.undated();
        let what = &request[..request.len().min(100)];
        assert_eq!(text, refusal(status, fields, connection), "{what:?}");
        if connection == "close" {
            client.ends();
        } else {
            assert_eq!(client.get("/").status(), 200, "{what:?}");
        }
    }
    // Beyond the limit of clients, before anything was asked.
    let server = Setup::new(backend).args(&["--max-clients", "1"]).start();
    let mut first = Client::connect(server.addr());
    assert_eq!(first.get("/").status(), 200);
    let mut second = Client::connect(server.addr());
    let text = second.answer().undated();
    let expected = refusal("503 Service Unavailable", "Retry-After: 1\r\n", "close");
    assert_eq!(text, expected);
    second.ends();
    assert_eq!(first.get("/").status(), 200);
}

fn late_requests_are_byte_exact(backend: &str) {
    let server = Setup::new(backend)
        .args(&["--header-timeout-ms", "200"])
        .start();
    let mut client = Client::connect(server.addr());
    // The deadline is one for each request, not for the connection.
    assert_eq!(client.get("/").status(), 200);
    client.send("GET / HTTP/1.1\r\nHost: h\r\n");
    let text = client.answer().undated();
    assert_eq!(text, refusal("408 Request Timeout", "", "close"));
    client.ends();
    is_served(server.addr());
}
