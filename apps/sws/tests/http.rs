//! What honest clients rely on.

use crate::client::{Client, get};
use crate::on_both;
use crate::setup::Setup;
use crate::site::{LARGE, Site};
use std::fmt::Write;

on_both!(
    files_of_every_size,
    pipelined_answers_come_in_order,
    a_connection_is_kept_as_asked,
    head_and_conditions,
    names_and_directories,
    every_answer_has_a_date,
    half_closed_clients_are_answered,
    a_request_may_come_byte_by_byte,
);

fn files_of_every_size(backend: &str) {
    let site = Site::full();
    let server = Setup::new(backend).root(site.root()).start();
    let mut client = Client::connect(server.addr());
    for page in &site.pages {
        let answer = client.get(&page.path);
        assert_eq!(answer.status(), 200, "{}", page.path);
        assert!(answer.body() == page.body, "{}", page.path);
        let type_ = answer.field("Content-Type");
        assert_eq!(type_, Some("application/octet-stream"));
    }
    assert_eq!(server.stop().requests(), site.pages.len() as u64);
}

/// Several hundred in one write, files and errors and answers without bodies, large and small.
fn pipelined_answers_come_in_order(backend: &str) {
    let site = Site::full();
    let server = Setup::new(backend).root(site.root()).start();
    let mut client = Client::connect(server.addr());
    let paths: Vec<&str> = (0..600)
        .map(|number| match number {
            // Once more than what may be queued, with others behind it.
            100 | 300 => LARGE,
            _ if number % 7 == 3 => "/nowhere",
            _ => &site.pages[number % (site.pages.len() - 1)].path,
        })
        .collect();
    let is_head = |number: usize| number % 5 == 4;
    let mut requests = String::new();
    for (number, path) in paths.iter().enumerate() {
        let method = if is_head(number) { "HEAD" } else { "GET" };
        let _ = write!(requests, "{method} {path} HTTP/1.1\r\nHost: h\r\n\r\n");
    }
    let mut writer = client.stream.try_clone().unwrap();
    std::thread::scope(|scope| {
        // It may have to wait for the answers to be read.
        scope.spawn(move || std::io::Write::write_all(&mut writer, requests.as_bytes()).unwrap());
        for (number, path) in paths.iter().enumerate() {
            let answer = client.try_answer(is_head(number)).unwrap();
            let what = format!("answer {number}, {path}: {answer:?}");
            if *path == "/nowhere" {
                assert_eq!(answer.status(), 404, "{what}");
            } else if is_head(number) {
                let length = site.body(path).len().to_string();
                assert_eq!(answer.field("Content-Length"), Some(&*length), "{what}");
            } else {
                assert_eq!(answer.status(), 200, "{what}");
                assert!(answer.body() == site.body(path), "{what}");
            }
        }
    });
    assert_eq!(server.stop().requests(), 600);
}

fn a_connection_is_kept_as_asked(backend: &str) {
    let server = Setup::new(backend).start();
    let mut client = Client::connect(server.addr());
    for _ in 0..100 {
        let answer = client.get("/");
        assert_eq!((answer.status(), answer.closes()), (200, false));
    }
    for (request, keeps) in [
        (
            "GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n",
            false,
        ),
        ("GET / HTTP/1.0\r\n\r\n", false),
        ("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", true),
        // Bodies that are small enough are skipped.
        (
            "GET / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello",
            true,
        ),
        ("\r\n\r\nGET / HTTP/1.1\r\nHost: h\r\n\r\n", true),
    ] {
        let mut client = Client::connect(server.addr());
        client.send(request);
        let answer = client.answer();
        assert_eq!(
            (answer.status(), answer.closes()),
            (200, !keeps),
            "{request}"
        );
        if keeps {
            assert_eq!(client.get("/").status(), 200, "{request}");
        } else {
            client.ends();
        }
    }
}

fn head_and_conditions(backend: &str) {
    let site = Site::small();
    let server = Setup::new(backend).root(site.root()).start();
    let mut client = Client::connect(server.addr());
    let whole = client.get("/1024.bin");
    client.send("HEAD /1024.bin HTTP/1.1\r\nHost: h\r\n\r\n");
    let head = client.answer_to_head().undated();
    assert!(whole.undated().starts_with(&head) && head.ends_with("\r\n\r\n"));
    let tag = whole.field("ETag").expect("a tag");
    let date = whole.field("Last-Modified").expect("a date");
    for (condition, status) in [
        (format!("If-None-Match: {tag}"), 304),
        (format!("If-None-Match: \"x\", W/{tag}"), 304),
        ("If-None-Match: \"x\"".to_owned(), 200),
        (format!("If-Modified-Since: {date}"), 304),
        (
            "If-Modified-Since: Sun, 06 Nov 1994 08:49:37 GMT".to_owned(),
            200,
        ),
        (format!("If-Match: {tag}"), 200),
        ("If-Match: *".to_owned(), 200),
        ("If-Match: \"x\"".to_owned(), 412),
        (format!("If-Match: W/{tag}"), 412),
        (format!("If-Match: \"x\"\r\nIf-None-Match: {tag}"), 412),
        (format!("If-Match: {tag}\r\nIf-None-Match: {tag}"), 304),
        (format!("If-Unmodified-Since: {date}"), 200),
        (
            "If-Unmodified-Since: Sun, 06 Nov 1994 08:49:37 GMT".to_owned(),
            412,
        ),
    ] {
        client.send(format!(
            "GET /1024.bin HTTP/1.1\r\nHost: h\r\n{condition}\r\n\r\n"
        ));
        let answer = client.answer();
        assert_eq!(answer.status(), status, "{condition}");
        if status == 304 {
            let expected = format!(
                "HTTP/1.1 304 Not Modified\r\nConnection: keep-alive\r\nETag: {tag}\r\n\
                 Last-Modified: {date}\r\n\r\n"
            );
            assert_eq!(answer.undated(), expected);
        } else if status == 200 {
            assert_eq!(answer.undated(), whole.undated());
        }
    }
}

fn names_and_directories(backend: &str) {
    let site = Site::small();
    for (name, text) in [
        ("a b.txt", "space"),
        ("\u{fc}.txt", "umlaut"),
        ("100%.txt", "percent"),
        ("%41.txt", "not decoded twice"),
        ("sub/index.html", "sub"),
        ("sub/deep/file.txt", "deep"),
    ] {
        site.directory.write(name, text.as_bytes());
    }
    let server = Setup::new(backend).root(site.root()).start();
    let mut client = Client::connect(server.addr());
    for (path, text) in [
        ("/a%20b.txt", "space"),
        ("/%C3%BC.txt", "umlaut"),
        ("/%c3%bc.txt?query", "umlaut"),
        ("/100%25.txt", "percent"),
        ("/%2541.txt", "not decoded twice"),
        ("/sub/", "sub"),
        ("/sub/index.html", "sub"),
        ("//sub/./deep/../deep/%66ile.txt", "deep"),
        ("http://elsewhere/sub/", "sub"),
    ] {
        let answer = client.get(path);
        assert_eq!(
            (
                answer.status(),
                String::from_utf8_lossy(answer.body()).as_ref()
            ),
            (200, text),
            "{path}"
        );
    }
    let index = client.get("/");
    assert_eq!(
        index.field("Content-Type"),
        Some("text/html; charset=utf-8")
    );
    assert!(index.body() == client.get("/index.html").body());
    let moved = client.get("/sub");
    let location = (moved.status(), moved.field("Location"));
    assert_eq!(location, (301, Some("/sub/")));
    let moved = client.get("/sub?a=b&c=/%20");
    assert_eq!(moved.field("Location"), Some("/sub/?a=b&c=/%20"));
}

/// Whatever it is, and also when its second is not that of the one before.
fn every_answer_has_a_date(backend: &str) {
    let site = Site::small();
    site.directory.write("sub/index.html", b"sub");
    let server = Setup::new(backend).root(site.root()).start();
    let mut client = Client::connect(server.addr());
    let mut dates = std::collections::HashSet::new();
    while dates.len() < 3 {
        for path in ["/", "/sub", "/nowhere", "/..", "/_mely", "/65536.bin"] {
            let answer = client.get(path);
            let _ = answer.undated();
            dates.insert(answer.field("Date").map(str::to_owned));
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    client.send("GET / HTTP/1.1\r\nHost: h\r\nIf-None-Match: *\r\n\r\n");
    let _ = client.answer().undated();
    client.send("nonsense\r\n");
    let _ = client.answer().undated();
}

/// A client that has said all it will may still be listening.
fn half_closed_clients_are_answered(backend: &str) {
    let site = Site::full();
    let server = Setup::new(backend).root(site.root()).start();
    for (path, count) in [("/1.bin", 1), ("/1.bin", 20), (LARGE, 1), (LARGE, 3)] {
        let mut client = Client::connect(server.addr());
        client.send(get(path).repeat(count));
        client.half_close();
        for _ in 0..count {
            assert!(client.answer().body() == site.body(path), "{path}");
        }
        client.ends();
    }
    let mut client = Client::connect(server.addr());
    client.send("GET / HTTP/1.1\r\nHo");
    client.half_close();
    client.ends();
}

fn a_request_may_come_byte_by_byte(backend: &str) {
    let server = Setup::new(backend).start();
    let mut client = Client::connect(server.addr());
    for byte in get("/").repeat(20).bytes() {
        client.send([byte]);
    }
    for _ in 0..20 {
        assert_eq!(client.answer().status(), 200);
    }
}
