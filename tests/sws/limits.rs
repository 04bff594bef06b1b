//! More clients than the server wants, and than the kernel grants.

use crate::client::{Client, is_served};
use crate::on_both;
use crate::server::Setup;
use std::time::{Duration, Instant};

on_both!(
    a_flood_beyond_the_limit_is_turned_away,
    descriptors_run_out_and_come_back,
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

/// With few descriptors in all, connections wait in the kernel until others leave.
fn descriptors_run_out_and_come_back(backend: &str) {
    const FILES: u64 = 64;
    for accept in ["percore", "single"] {
        let mut server = Setup::new(backend)
            .args(&["--cores", "2", "--accept", accept])
            .files_max(FILES)
            .start();
        let addr = server.addr();
        is_served(addr);
        let mut clients: Vec<Client> = (0..150).map(|_| Client::connect(addr)).collect();
        // All ask; those are answered for whom there was a descriptor.
        for client in &mut clients {
            client.send("GET / HTTP/1.1\r\nHost: h\r\n\r\n");
        }
        let is_there = |client: &Client| {
            client.stream.set_nonblocking(true).unwrap();
            let there = client.stream.peek(&mut [0]).is_ok();
            client.stream.set_nonblocking(false).unwrap();
            there
        };
        let deadline = Instant::now() + Duration::from_secs(20);
        let mut answered = 0;
        while !clients.is_empty() {
            assert!(
                Instant::now() < deadline,
                "{accept}: {answered} answered, {} wait",
                clients.len()
            );
            let (ready, waiting): (Vec<_>, Vec<_>) = clients.into_iter().partition(&is_there);
            if answered == 0 {
                assert!(ready.len() < FILES as usize, "more than there can be");
            }
            // Whoever has the answer leaves, and makes room.
            for mut client in ready {
                assert_eq!(client.answer().status(), 200);
                answered += 1;
            }
            clients = waiting;
            std::thread::sleep(Duration::from_millis(20));
        }
        is_served(addr);
        let exit = server.end(rustix::process::Signal::TERM);
        // It said what happened, and did not drown the log in it.
        let lines = exit.err.lines().count();
        assert!(
            exit.err.contains("accept: ") && lines < 2000,
            "{lines} lines: {exit:?}"
        );
        assert_eq!(exit.summary().requests(), 152);
    }
}
