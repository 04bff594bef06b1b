//! More clients than the server wants, and than the kernel grants.

use crate::client::{Client, PATIENCE, get, is_served};
use crate::on_both;
use crate::setup::Setup;
use crate::site::{LARGE, Site};
use std::io::{Read, Write};
use std::time::{Duration, Instant};

on_both!(
    a_flood_beyond_the_limit_is_turned_away,
    with_few_descriptors_all_are_answered,
    those_who_linger_are_no_clients,
    those_who_linger_are_bounded,
    those_who_read_slowly_do_not_make_room,
    those_who_ask_much_at_once_and_read_get_all,
);

fn a_flood_beyond_the_limit_is_turned_away(backend: &str) {
    let server = Setup::new(backend)
        .args(&["--max-clients", "50", "--cores", "2"])
        .start();
    let mut inside: Vec<Client> = (0..50).map(|_| Client::connect(server.addr())).collect();
    for client in &mut inside {
        assert_eq!(client.get("/").status(), 200);
    }
    for round in 0..3 {
        let flood: Vec<Client> = (0..200).map(|_| Client::connect(server.addr())).collect();
        for (number, mut client) in flood.into_iter().enumerate() {
            // Whether it has asked already or not.
            if number % 2 == 0 {
                client.try_send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
            }
            let answer = client.answer();
            assert_eq!((answer.status(), answer.closes()), (503, true));
            assert_eq!(answer.field("Retry-After"), Some("1"));
            client.ends();
        }
        for client in &mut inside {
            assert_eq!(client.get("/").status(), 200, "round {round}");
        }
    }
    // Places become free as clients leave.
    inside.truncate(40);
    let deadline = Instant::now() + Duration::from_secs(5);
    while inside.len() < 50 {
        let mut client = Client::connect(server.addr());
        client.try_send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
        match client.answer().status() {
            200 => inside.push(client),
            status => assert_eq!(status, 503),
        }
        assert!(Instant::now() < deadline, "no place becomes free");
    }
    let [accepted, rejected, _] = server.stop().connections();
    assert_eq!(accepted, 60);
    assert!(rejected >= 600, "{rejected}");
}

/// With few descriptors in all, those are served for whom there is one, and the others are told.
fn with_few_descriptors_all_are_answered(backend: &str) {
    const FILES: u64 = 64;
    for accept in ["percore", "single"] {
        let mut server = Setup::new(backend)
            .args(&["--cores", "2", "--accept", accept])
            .files_max(FILES)
            .start();
        let warning = server.says("the limit of open files is 64");
        let room = places(&warning);
        for part in ["--max-clients 10000", "503", "ulimit -n"] {
            assert!(warning.contains(part), "{part}: {warning}");
        }
        assert!(room > 10 && room < FILES as usize, "{warning}");
        let addr = server.addr();
        // Those who are served stay.
        let mut inside: Vec<Client> = (0..room).map(|_| Client::connect(addr)).collect();
        for client in &mut inside {
            assert_eq!(client.get("/").status(), 200);
        }
        for _ in 0..2 {
            let mut outside: Vec<Client> = (0..300).map(|_| Client::connect(addr)).collect();
            for client in &mut outside {
                client.try_send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
            }
            // Whoever comes while no descriptor is free waits for a moment, and nobody in vain.
            for client in &mut outside {
                let answer = client.answer();
                assert_eq!((answer.status(), answer.closes()), (503, true));
            }
            for client in &mut inside {
                assert_eq!(client.get("/").status(), 200);
            }
        }
        drop(inside);
        server.settles_at(FILES as usize - room, Duration::from_secs(20));
        is_served(addr);
        let exit = server.end(rustix::process::Signal::TERM);
        // It said what happened, each kind of thing once in five seconds, and how often.
        assert!(exit.err.contains("a new one gets a 503"), "{exit:?}");
        assert!(exit.err.contains(" times more)"), "{exit:?}");
        let lines = exit.err.lines().count();
        assert!(lines < 40, "{lines} lines: {exit:?}");
        let [accepted, rejected, open] = exit.summary().connections();
        assert_eq!((accepted, open), (room as u64 + 1, 0));
        assert_eq!(rejected, 600);
    }
}

/// How many clients a warning says there is room for.
fn places(warning: &str) -> usize {
    let (_, rest) = warning.split_once("is 64: ").expect("the numbers");
    rest.split(' ').next().unwrap().parse().unwrap()
}

/// Whatever the limit, it serves somebody and says how many, or it does not start and says why.
#[test]
fn with_hardly_any_descriptors_it_does_not_start() {
    let mut refused = 0;
    let mut served = 0;
    // Below that the program's own libraries cannot be loaded.
    for files in 5..30 {
        let exit = match Setup::new("epoll")
            .args(&["--cores", "1"])
            .files_max(files)
            .try_start()
        {
            Ok(mut server) => {
                served += 1;
                is_served(server.addr());
                server.end(rustix::process::Signal::TERM)
            }
            Err(exit) => {
                assert_eq!(exit.code, Some(1), "{files}: {exit:?}");
                assert_eq!(served, 0, "it started with less than {files}: {exit:?}");
                refused += 1;
                exit
            }
        };
        for part in ["limit of open files", &format!("{files}"), "ulimit -n"] {
            assert!(exit.err.contains(part), "{files}: {part}: {exit:?}");
        }
        assert!(!exit.err.contains("panicked"), "{exit:?}");
    }
    assert!(refused > 5 && served > 5, "{refused} {served}");
}

/// Longer than any test.
const FOR_EVER: &str = "86400000";

/// A client that had its last answer and does not leave takes nobody's place.
fn those_who_linger_are_no_clients(backend: &str) {
    let server = Setup::new(backend)
        .args(&["--cores", "2", "--max-clients", "20"])
        .args(&[
            "--header-timeout-ms",
            "300",
            "--linger-timeout-ms",
            FOR_EVER,
        ])
        .start();
    let mut slow: Vec<Client> = (0..20).map(|_| Client::connect(server.addr())).collect();
    for client in &mut slow {
        client.send("GET / HTTP/1.1\r\nHo");
    }
    for client in &mut slow {
        assert_eq!(client.answer().status(), 408);
    }
    // They all stay connected. The last of them may not have been counted out yet.
    let deadline = Instant::now() + PATIENCE;
    loop {
        let mut client = Client::connect(server.addr());
        client.try_send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
        if client.answer().status() == 200 {
            break;
        }
        assert!(Instant::now() < deadline, "they keep all others out");
    }
}

/// Who still gets a last answer does not count as leaving, however long it takes.
fn those_who_read_slowly_do_not_make_room(backend: &str) {
    let site = Site::full();
    let server = Setup::new(backend)
        .root(site.root())
        .args(&["--cores", "2", "--max-clients", "1"])
        .args(&["--linger-timeout-ms", FOR_EVER])
        .start();
    let mut slow = Client::connect_with_little_room(server.addr());
    // Something follows the last request, so that the connection lingers after its answer.
    let last = get(LARGE).replace("Host", "Connection: close\r\nHost");
    slow.send(last + "more");
    assert!(slow.receive());
    let mut outside: Vec<Client> = (0..100).map(|_| Client::connect(server.addr())).collect();
    for client in &mut outside {
        assert_eq!(client.answer().status(), 503);
    }
    assert!(slow.answer().body() == site.body(LARGE));
}

/// However far ahead of the answers the requests are: TCP slows them down, and nobody is cut off.
fn those_who_ask_much_at_once_and_read_get_all(backend: &str) {
    const ASKED: usize = 60_000;
    let server = Setup::new(backend).args(&["--cores", "2"]).start();
    let requests = get("/nowhere").repeat(ASKED);
    std::thread::scope(|scope| {
        for _ in 0..8 {
            let mut client = Client::connect(server.addr());
            let mut writer = client.stream.try_clone().unwrap();
            let requests = &requests;
            scope.spawn(move || writer.write_all(requests.as_bytes()).unwrap());
            scope.spawn(move || {
                // All answers are of one length.
                let all_bytes = ASKED * client.answer().bytes.len();
                let mut bytes = all_bytes / ASKED + client.unread_bytes();
                let mut chunk = vec![0; 1 << 20];
                while bytes < all_bytes {
                    let read = client.stream.read(&mut chunk).unwrap();
                    assert!(read > 0, "cut off after {bytes} bytes of {all_bytes}");
                    bytes += read;
                }
                assert_eq!(bytes, all_bytes);
            });
        }
    });
    assert_eq!(server.stop().requests(), 8 * ASKED as u64);
}

/// However many are turned away and do not leave: the oldest of them make room.
fn those_who_linger_are_bounded(backend: &str) {
    let server = Setup::new(backend)
        .args(&["--cores", "2", "--max-clients", "10"])
        .args(&["--linger-timeout-ms", FOR_EVER])
        .start();
    let mut inside: Vec<Client> = (0..10).map(|_| Client::connect(server.addr())).collect();
    for client in &mut inside {
        assert_eq!(client.get("/").status(), 200);
    }
    let descriptors = server.descriptors_at_rest();
    let mut outside = Vec::new();
    for number in 0..500 {
        let mut client = Client::connect(server.addr());
        assert_eq!(client.answer().status(), 503);
        // It stays, and so do all before it.
        outside.push(client);
        if number % 100 == 99 {
            server.settles_at(descriptors + 16, PATIENCE);
        }
    }
    // Not more of them are closed than need be.
    assert_eq!(server.descriptors_at_rest(), descriptors + 16);
    for client in &mut inside {
        assert_eq!(client.get("/").status(), 200);
    }
    let text = server.stop().text;
    assert!(text.contains("to make room: 484"), "{text}");
}
