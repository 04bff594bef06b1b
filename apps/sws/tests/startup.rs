//! How the server starts, or says why it does not.

use crate::client::{Client, PATIENCE};
use crate::on_both;
use crate::server::Exit;
use crate::setup::Setup;
use crate::site::Directory;
use rustix::thread::sched_getaffinity;
use std::net::TcpListener;
use std::thread::available_parallelism;
use std::time::{Duration, Instant};

on_both!(a_port_in_use_is_an_error, the_live_page);

fn fails(exit: &Exit, code: i32, expected: &[&str]) {
    assert_eq!(exit.code, Some(code), "{exit:?}");
    assert_eq!(exit.out, "", "{exit:?}");
    assert!(exit.err.starts_with("sws: "), "{exit:?}");
    for part in expected {
        assert!(exit.err.contains(part), "{part}: {exit:?}");
    }
    assert!(!exit.err.contains("panicked"), "{exit:?}");
}

fn a_port_in_use_is_an_error(backend: &str) {
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = other.local_addr().unwrap().to_string();
    // By another program, and by another server of this kind, which shares ports with itself.
    let first = Setup::new(backend).args(&["--cores", "2"]).start();
    for addr in [taken, first.addr().to_string()] {
        for cores in ["1", "2"] {
            let exit = Setup::bare()
                .args(&["--backend", backend, "--cores", cores, "--listen", &addr])
                .run();
            fails(&exit, 1, &["cannot serve on", &addr, "in use"]);
        }
    }
}

#[test]
fn an_address_of_another_machine_is_an_error() {
    // From a block that is for documentation only.
    let exit = Setup::bare().args(&["--listen", "192.0.2.1:80"]).run();
    fails(&exit, 1, &["cannot serve on 192.0.2.1:80"]);
}

#[test]
fn bad_arguments_are_explained() {
    for (args, expected) in [
        (&["--port", "1"][..], "--port"),
        (&["--cores", "0"], "--cores wants"),
        (&["--listen", "8080"], "--listen wants"),
        (&["--max-clients"], "--max-clients"),
        (&["--backend", "kqueue"], "--backend wants"),
        (&["www"], "www"),
    ] {
        let exit = Setup::bare().args(args).run();
        fails(&exit, 2, &[expected, "sws --help"]);
    }
    let exit = Setup::bare().args(&["--help"]).output();
    assert_eq!((exit.code, exit.err.as_str()), (Some(0), ""));
    assert!(exit.out.contains("--max-clients N"));
}

#[test]
fn a_root_that_is_none_is_an_error() {
    let directory = Directory::new();
    directory.write("file", b"");
    for (name, why) in [("missing", "No such file"), ("file", "not a directory")] {
        let exit = Setup::bare().root(&directory.path().join(name)).run();
        fails(&exit, 1, &["--root", name, why]);
    }
}

#[test]
fn more_cores_than_there_are_is_an_error() {
    for (cores, expected) in [("5000", "--cores: 5000"), ("511", "--cores 511: ")] {
        let exit = Setup::new("epoll").args(&["--cores", cores]).output();
        assert_eq!((exit.code, &*exit.out), (Some(1), ""), "{exit:?}");
        assert!(exit.err.contains(expected), "{exit:?}");
        // No setting of the library's, which the program has not.
        assert!(!exit.err.contains("oversubscribe"), "{exit:?}");
    }
}

/// As a sandbox may have it: it runs all the same, and says what is not as it should be.
#[test]
fn refused_affinity_is_said_as_such() {
    let server = Setup::new("epoll")
        .refusing(&[libc::SYS_sched_setaffinity])
        .start();
    // Of processors that a CPU quota keeps from it, it has some only, and pins nothing anyway.
    let masked = sched_getaffinity(None).unwrap().count() as usize;
    if available_parallelism().unwrap().get() == masked {
        let said = server.says("not pinned");
        assert!(said.contains("sched_setaffinity to processor"), "{said}");
        assert!(said.contains("os error 1"), "{said}");
    }
    let page = Client::connect(server.addr()).get("/_mely");
    assert!(String::from_utf8_lossy(page.body()).contains("not pinned"));
    let summary = server.stop();
    assert!(
        summary.text.contains("core 0 (not pinned): "),
        "{}",
        summary.text
    );
    assert_eq!(summary.requests(), 1);
}

/// What a newcomer does first.
#[test]
fn without_arguments_the_built_in_site_is_on_port_8080() {
    // Not ours to take if somebody has it.
    match TcpListener::bind("127.0.0.1:8080") {
        Ok(listener) => drop(listener),
        Err(error) => return eprintln!("skipped: port 8080: {error}"),
    }
    let server = match Setup::bare().try_start() {
        Ok(server) => server,
        // Another run of this test was faster.
        Err(exit) if exit.err.contains("in use") => return eprintln!("skipped: {}", exit.err),
        Err(exit) => panic!("{exit:?}"),
    };
    assert_eq!(server.addr(), "127.0.0.1:8080".parse().unwrap());
    let mut client = Client::connect(server.addr());
    for path in ["/", "/how/", "/_mely"] {
        let page = client.get(path);
        assert_eq!(page.status(), 200);
        is_a_page_without_help(path, page.body());
    }
    let icon = client.get("/favicon.svg");
    assert_eq!(icon.field("Content-Type"), Some("image/svg+xml"));
    assert_eq!(server.stop().requests(), 4);
}

/// HTML that asks no other host for anything. The one script is that of the live page, in place.
fn is_a_page_without_help(path: &str, body: &[u8]) {
    let text = std::str::from_utf8(body).expect("UTF-8");
    assert!(text.starts_with("<!doctype html>"), "{path}");
    for elsewhere in ["http:", "https:", "//", "src=", "@import", "url("] {
        assert!(!text.contains(elsewhere), "{path}: {elsewhere}");
    }
    let scripts = text.matches("<script").count();
    assert_eq!(scripts, usize::from(path == "/_mely"), "{path}");
}

fn the_live_page(backend: &str) {
    let server = Setup::new(backend)
        .args(&["--cores", "2", "--max-clients", "77"])
        .start();
    let mut client = Client::connect(server.addr());
    for _ in 0..41 {
        client.get("/");
    }
    for _ in 0..3 {
        client.get("/nowhere");
    }
    let page = client.get("/_mely");
    assert_eq!(page.field("Content-Type"), Some("text/html; charset=utf-8"));
    assert_eq!(page.field("Cache-Control"), Some("no-store"));
    is_a_page_without_help("/_mely", page.body());
    let text = std::str::from_utf8(page.body()).unwrap();
    let figure = |text: &str, name: &str| {
        let (_, rest) = text
            .split_once(&format!("<dt>{name}</dt><dd id=\""))
            .expect("it is there");
        let (id, rest) = rest.split_once("\">").unwrap();
        (id.to_owned(), rest.split('<').next().unwrap().to_owned())
    };
    for (name, value) in [
        ("answers", "44"),
        ("200", "41"),
        ("404", "3"),
        ("503", "0"),
        ("clients now", "1 of 77"),
        ("leaving now", "0 of 19"),
        ("event source", backend),
    ] {
        assert_eq!(figure(text, name).1, value, "{name}");
    }
    let descriptors = figure(text, "open descriptors").1;
    let (open, max) = descriptors.split_once(" of ").unwrap();
    assert_eq!(
        open.parse::<usize>().unwrap(),
        server.descriptors(),
        "{max}"
    );
    let memory = figure(text, "memory (resident)").1;
    let mib: f64 = memory.strip_suffix(" MiB").unwrap().parse().unwrap();
    let rss_mib = server.rss_kib() as f64 / 1024.0;
    assert!(mib > 1.0 && (mib - rss_mib).abs() < 4.0, "{mib} {rss_mib}");
    for core in ["0 (cpu ", "1 (cpu "] {
        assert!(
            text.contains(&format!("<tr><th scope=\"row\">{core}")),
            "{text}"
        );
    }
    // What its script asks for is live: it has counted what was answered since.
    let (id, _) = figure(text, "answers");
    let values = client.get("/_mely/values");
    assert_eq!(values.field("Content-Type"), Some("application/json"));
    assert_eq!(values.field("Cache-Control"), Some("no-store"));
    let values: serde_json::Value = serde_json::from_slice(values.body()).unwrap();
    assert_eq!(values[&id], "45");
    // Asked until a second with answers is over, it tells how many they were.
    let (id, _) = figure(text, "answers in the last second");
    let deadline = Instant::now() + PATIENCE;
    loop {
        client.get("/");
        let values = client.get("/_mely/values");
        let values: serde_json::Value = serde_json::from_slice(values.body()).unwrap();
        if values[&id] != "0" {
            break;
        }
        assert!(Instant::now() < deadline, "{values}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// As in a container whose filter of system calls does not know rings.
#[test]
fn a_refused_ring_is_epoll_and_it_says_so_once() {
    let server = Setup::new("auto")
        .refusing(&[libc::SYS_io_uring_setup])
        .start();
    let mut client = Client::connect(server.addr());
    for _ in 0..10 {
        assert_eq!(client.get("/").status(), 200);
    }
    let said = server.says("runs on epoll, since io_uring: ");
    let page = client.get("/_mely");
    let page = String::from_utf8_lossy(page.body()).into_owned();
    let summary = server.stop();
    assert_eq!(summary.requests(), 11);
    let backend = summary.backend();
    assert!(backend.starts_with("epoll (io_uring: "), "{backend}");
    // For whichever flavor of ring on whichever core: the reason is the same.
    for text in [&said, &page, backend] {
        assert_eq!(text.matches("os error 1").count(), 1, "{text}");
        assert_eq!(text.matches("seccomp").count(), 1, "{text}");
    }
}

#[test]
fn a_forced_ring_that_is_refused_is_an_error() {
    let refusing = [libc::SYS_io_uring_setup];
    let exit = Setup::new("io_uring").refusing(&refusing).run();
    fails(&exit, 1, &["io_uring", "os error 1"]);
    let server = Setup::new("auto").env("MELY_BACKEND", "epoll").start();
    assert_eq!(server.stop().backend(), "epoll");
    // An option that names one is stronger, and the help says so.
    let server = Setup::new("epoll").env("MELY_BACKEND", "io_uring").start();
    assert_eq!(server.stop().backend(), "epoll");
    let help = Setup::bare().args(&["--help"]).output().out;
    assert!(help.contains("override the variable"), "{help}");
}

#[test]
fn with_both_backends_refused_the_error_tells_of_both() {
    let refusing = [libc::SYS_io_uring_setup, libc::SYS_epoll_create1];
    let exit = Setup::new("auto").refusing(&refusing).run();
    fails(&exit, 1, &["no event source", "io_uring", "epoll: "]);
}
