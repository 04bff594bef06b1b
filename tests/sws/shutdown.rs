//! Asked to stop, the server finishes what is under way, says what it did, and ends.

use crate::client::{Client, Cut, get, is_served};
use crate::on_both;
use crate::server::{Server, Setup};
use crate::site::{LARGE, Site};
use crate::swarm::{Swarm, Until};
use rustix::process::Signal;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

on_both!(
    under_load,
    under_pipelined_load,
    idle_clients_do_not_delay_it,
    a_request_under_way_is_finished,
    clients_that_never_read_do_not_prevent_it,
    large_answers_are_finished,
);

fn setup(backend: &str, site: &Site) -> Setup {
    Setup::new(backend)
        .root(site.root())
        .args(&["--cores", "2"])
}

/// No answer is cut, and the server counted what the clients have.
fn stop_under_load(backend: &str, signal: Signal, depth: usize) {
    let site = Site::small();
    let mut server = setup(backend, &site).start();
    let stopping = AtomicBool::new(false);
    let swarm = Swarm {
        addr: server.addr(),
        site: &site,
        clients: 200,
        depth,
        until: Until::Closed(&stopping),
    };
    let tally = thread::scope(|scope| {
        let tally = scope.spawn(move || swarm.run());
        thread::sleep(Duration::from_millis(500));
        stopping.store(true, Ordering::Release);
        let began = Instant::now();
        let exit = server.end(signal);
        let took = began.elapsed();
        let mut tally = tally.join().unwrap();
        tally.print(&format!("{backend}, stopped in {took:.2?}"));
        tally.assert_faultless();
        // Clients that keep asking must not keep it: well before what the never-reading get.
        assert!(took < Duration::from_secs(4), "{took:?}");
        let summary = exit.summary();
        assert_eq!(summary.requests(), tally.total(), "{}", summary.text);
        // Every answer was parsed for, and the profile says so, in no more than 100 columns.
        let row = |name: &str| {
            let row = summary.text.lines().find(|line| line.starts_with(name));
            let row = row.unwrap_or_else(|| panic!("no {name} in {}", summary.text));
            assert!(row.chars().count() <= 100, "{row}");
            row.split_whitespace().nth(1).unwrap().to_owned()
        };
        assert_eq!(row("handler"), "events");
        let parsed: u64 = row("ParseRequest").parse().unwrap();
        assert!(parsed >= tally.total(), "{}", summary.text);
        tally
    });
    assert!(tally.answers.iter().all(|&answers| answers > 0));
}

fn under_load(backend: &str) {
    stop_under_load(backend, Signal::TERM, 1);
    stop_under_load(backend, Signal::INT, 1);
}

fn under_pipelined_load(backend: &str) {
    stop_under_load(backend, Signal::TERM, 8);
}

fn stops_within(server: &mut Server, time: Duration) -> u64 {
    let began = Instant::now();
    let exit = server.end(Signal::TERM);
    let took = began.elapsed();
    assert!(took < time, "it took {took:?}");
    exit.summary().requests()
}

fn idle_clients_do_not_delay_it(backend: &str) {
    let site = Site::small();
    let mut server = setup(backend, &site).start();
    let mut clients: Vec<Client> = (0..100).map(|_| Client::connect(server.addr())).collect();
    for client in clients.iter_mut().step_by(2) {
        assert_eq!(client.get("/").status(), 200);
    }
    // The others have been accepted, too.
    is_served(server.addr());
    assert_eq!(stops_within(&mut server, Duration::from_secs(3)), 51);
    for client in &mut clients {
        client.ends();
    }
}

/// Half of the head is here when the signal comes, the other half a little later.
fn a_request_under_way_is_finished(backend: &str) {
    let site = Site::small();
    let mut server = setup(backend, &site).start();
    let mut client = Client::connect(server.addr());
    assert_eq!(client.get("/").status(), 200);
    client.send("GET /65537.bin HTTP/1.1\r\nHo");
    thread::sleep(Duration::from_millis(100));
    server.signal(Signal::TERM);
    thread::sleep(Duration::from_millis(200));
    client.send("st: h\r\n\r\n");
    client.send(get("/1.bin"));
    let answer = client.answer();
    assert!(answer.body() == site.body("/65537.bin"));
    assert!(
        answer.closes(),
        "the client is told that there will be no more"
    );
    client.ends();
    let summary = server.wait_for_end().summary();
    assert_eq!(summary.requests(), 2);
    assert_eq!(summary.connections(), [1, 0, 0]);
}

/// One has not read its answer; one has asked so much that it is no longer read from either.
fn clients_that_never_read_do_not_prevent_it(backend: &str) {
    let site = Site::full();
    let mut server = setup(backend, &site).start();
    let mut quiet = Client::connect_with_little_room(server.addr());
    quiet.send(get(LARGE).repeat(3));
    let mut loud = Client::connect_with_little_room(server.addr());
    loud.stream
        .set_write_timeout(Some(Duration::from_millis(300)))
        .unwrap();
    let requests = get("/65536.bin").repeat(1000);
    while loud.try_send(&requests) {}
    let mut idle = Client::connect(server.addr());
    assert_eq!(idle.get("/").status(), 200);
    stops_within(&mut server, Duration::from_secs(9));
    idle.ends();
    for client in [&mut quiet, &mut loud] {
        while client.try_answer(false).is_ok() {}
    }
}

/// Answers larger than any buffer, under way to clients that read them when the signal comes.
fn large_answers_are_finished(backend: &str) {
    let site = Site::full();
    let mut server = setup(backend, &site).start();
    let addr = server.addr();
    let clients: Vec<Client> = (0..20)
        .map(|_| {
            let mut client = Client::connect_with_little_room(addr);
            client.send(get(LARGE).repeat(3));
            // The first answer has begun.
            assert!(client.receive());
            client
        })
        .collect();
    let counted = thread::scope(|scope| {
        let readers: Vec<_> = clients
            .into_iter()
            .map(|mut client| {
                let site = &site;
                scope.spawn(move || {
                    let mut answers = 0;
                    loop {
                        match client.try_answer(false) {
                            Ok(answer) => assert!(answer.body() == site.body(LARGE)),
                            Err(Cut::Before) => return answers,
                            Err(cut) => panic!("{cut:?} after {answers} answers"),
                        }
                        answers += 1;
                    }
                })
            })
            .collect();
        server.signal(Signal::INT);
        readers.into_iter().map(|r| r.join().unwrap()).sum::<u64>()
    });
    assert!(counted >= 20, "{counted}");
    assert_eq!(server.wait_for_end().summary().requests(), counted);
}
