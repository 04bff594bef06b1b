//! Clients that do not speak HTTP.

use crate::client::{Client, Cut, get, is_served};
use crate::on_both;
use crate::setup::Setup;
use crate::site::Random;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

on_both!(random_bytes, damaged_requests, headers_without_end);

/// What the server says, if anything, is an error or an answer, whole; then it closes.
fn reads_well(mut client: Client, what: &str) -> u64 {
    client.half_close();
    let mut answers = 0;
    loop {
        match client.try_answer(false) {
            Ok(answer) => {
                assert!(answer.status() >= 200, "{what}: {answer:?}");
                answers += 1;
            }
            Err(Cut::Before) => return answers,
            Err(cut) => panic!("{what}: {cut:?}"),
        }
    }
}

fn random_bytes(backend: &str) {
    let server = Setup::new(backend).start();
    let descriptors = server.descriptors_at_rest();
    let mut answers = 0;
    for seed in 0..300 {
        let mut random = Random(seed);
        let length = 1 + random.below(6000);
        let bytes: Vec<u8> = (0..length)
            .map(|_| match seed % 3 {
                0 => random.next() as u8,
                // Text with many ends of lines gets further.
                1 => b"GET /:aZ09\r\n\t %.,\"-"[random.below(19) as usize],
                _ => b"\r\n \t:"[random.below(5) as usize],
            })
            .collect();
        let mut client = Client::connect(server.addr());
        client.try_send(&bytes);
        answers += reads_well(client, &format!("seed {seed}"));
    }
    is_served(server.addr());
    server.settles_at(descriptors, Duration::from_secs(5));
    assert_eq!(server.stop().requests(), answers + 1);
}

/// Good requests with a few bytes changed, gone or doubled, several in a row.
fn damaged_requests(backend: &str) {
    let server = Setup::new(backend).start();
    let descriptors = server.descriptors_at_rest();
    let good = "GET /how/index.html?q HTTP/1.1\r\nHost: localhost:80\r\nAccept: */*\r\n\
                Content-Length: 3\r\nIf-None-Match: \"a\", W/\"b\"\r\nConnection: keep-alive\r\n\r\nabc";
    let mut answers = 0;
    for seed in 0..600 {
        let mut random = Random(seed);
        let mut bytes = good.repeat(3).into_bytes();
        for _ in 0..=random.below(4) {
            let at = random.below(bytes.len() as u64) as usize;
            match random.below(4) {
                0 => bytes[at] ^= 1 << random.below(8),
                1 => bytes[at] = random.next() as u8,
                2 => drop(bytes.remove(at)),
                _ => bytes.insert(at, bytes[at]),
            }
        }
        let mut client = Client::connect(server.addr());
        client.send(&bytes);
        answers += reads_well(client, &format!("seed {seed}"));
    }
    server.settles_at(descriptors, Duration::from_secs(5));
    let summary = server.stop();
    assert_eq!(summary.requests(), answers, "{}", summary.text);
}

/// A gigabyte of header, or as much of it as the server takes, which is not much.
fn headers_without_end(backend: &str) {
    let server = Setup::new(backend).start();
    is_served(server.addr());
    let before_kib = server.rss_kib();
    let chunk = vec![b'a'; 1 << 20];
    for (start, status) in [
        ("GET /", 414),
        ("GET / HTTP/1.1\r\nHost: h\r\nX: ", 431),
        (
            "GET / HTTP/1.1\r\nHost: h\r\nContent-Length: 1073741824\r\n\r\n",
            413,
        ),
    ] {
        let mut clients: Vec<Client> = (0..8).map(|_| Client::connect(server.addr())).collect();
        for client in &mut clients {
            client.send(start);
        }
        let answered = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for mut client in clients {
                let mut writer = client.stream.try_clone().unwrap();
                let chunk = &chunk;
                scope.spawn(move || {
                    use std::io::Write;
                    let sent = (0..1024).take_while(|_| writer.write_all(chunk).is_ok());
                    let sent_mib = sent.count();
                    // What the kernel's buffers hold comes on top of what the server reads.
                    assert!(sent_mib < 64, "the server took {sent_mib} MiB");
                });
                let answered = &answered;
                scope.spawn(move || {
                    // A server that reads on for a bounded time resets who writes for longer, and
                    // with that the kernel drops the answer of a client that has not looked yet.
                    let Ok(answer) = client.try_answer(false) else {
                        return;
                    };
                    assert_eq!((answer.status(), answer.closes()), (status, true));
                    answered.fetch_add(1, Ordering::Relaxed);
                });
            }
        });
        assert!(answered.into_inner() > 0, "nobody was told {status}");
        is_served(server.addr());
        let growth_kib = server.rss_kib().saturating_sub(before_kib);
        assert!(growth_kib < 32 * 1024, "{status}: {growth_kib} KiB more");
    }
    // Nobody else was harmed.
    let mut client = Client::connect(server.addr());
    client.send(get("/").repeat(3));
    for _ in 0..3 {
        assert_eq!(client.answer().status(), 200);
    }
}
