//! Asked to stop, the server finishes what is under way, says what it did, and ends.

use crate::client::{Client, Cut, get, is_served};
use crate::on_both;
use crate::server::Server;
use crate::setup::Setup;
use crate::site::{LARGE, Site};
use crate::swarm::{Enough, Swarm, Until};
use rustix::process::Signal;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

on_both!(
    under_load,
    under_pipelined_load,
    idle_clients_do_not_delay_it,
    a_request_under_way_is_finished,
    what_came_before_the_signal_is_answered,
    clients_that_never_read_do_not_prevent_it,
    large_answers_are_finished,
    what_is_cut_off_is_told,
    asked_again_it_ends_at_once,
    a_hangup_asks_to_stop,
);

fn setup(backend: &str, site: &Site) -> Setup {
    Setup::new(backend)
        .root(site.root())
        .args(&["--cores", "2"])
}

/// Clients that ask as fast as they can.
const CLIENTS: usize = 200;

/// No answer is cut, and the server counted what the clients have.
fn stop_under_load(backend: &str, signal: Signal, depth: usize) {
    let site = Site::small();
    let mut server = setup(backend, &site).start();
    let stopping = AtomicBool::new(false);
    let enough = Enough::answers(1);
    let swarm = Swarm {
        addr: server.addr(),
        site: &site,
        clients: CLIENTS,
        depth,
        until: Until::Closed {
            may: &stopping,
            enough: &enough,
        },
        began: Instant::now(),
    };
    thread::scope(|scope| {
        let tally = scope.spawn(move || swarm.run());
        enough.wait_for(CLIENTS);
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
    });
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

/// Those who are connected and those who are not accepted yet: the server is held up while they
/// ask, and hears the signal first.
fn what_came_before_the_signal_is_answered(backend: &str) {
    let site = Site::small();
    for accept in ["percore", "single"] {
        let mut server = setup(backend, &site).args(&["--accept", accept]).start();
        let mut clients: Vec<Client> = (0..20).map(|_| Client::connect(server.addr())).collect();
        for client in &mut clients {
            assert_eq!(client.get("/").status(), 200);
        }
        server.signal(Signal::STOP);
        server.signal(Signal::TERM);
        clients.extend((0..20).map(|_| Client::connect(server.addr())));
        for client in &mut clients {
            client.send(get("/1.bin"));
        }
        // One who asks nothing is no reason to stay.
        let mut silent = Client::connect(server.addr());
        server.signal(Signal::CONT);
        for client in &mut clients {
            // Maybe before the server has heard the signal: then it does not say that it closes.
            assert_eq!(client.answer().status(), 200);
            client.ends();
        }
        silent.ends();
        drop((clients, silent));
        assert_eq!(server.wait_for_end().summary().requests(), 60);
    }
}

/// One has not read its answer; one has asked so much that it is no longer read from either.
fn clients_that_never_read_do_not_prevent_it(backend: &str) {
    let site = Site::full();
    let mut server = setup(backend, &site)
        .args(&["--finish-timeout-ms", "1000"])
        .start();
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
    let exit = server.end(Signal::TERM);
    let text = exit.summary_with(3).text;
    let cut =
        "cut off when the time to finish was over: 2 connections, 2 in the middle of an answer";
    assert!(text.contains(cut), "{text}");
    idle.ends();
    for client in [&mut quiet, &mut loud] {
        while client.try_answer(false).is_ok() {}
    }
}

/// Answers larger than any buffer, under way to clients that read them when the signal comes.
fn large_answers_are_finished(backend: &str) {
    let site = Site::full();
    // Whatever else the machine does: how long it may take is not in question here.
    let mut server = setup(backend, &site)
        .args(&["--finish-timeout-ms", "60000"])
        .start();
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

/// A client that has sent half a request, of which the server knows: its one core has looked at all
/// that came before what it answers now.
fn half_a_request(server: &Server) -> Client {
    let mut client = Client::connect(server.addr());
    assert_eq!(client.get("/").status(), 200);
    client.send("GET / HTTP/1.1\r\nHo");
    is_served(server.addr());
    is_served(server.addr());
    client
}

/// The server was asked to stop, and still answers the other half.
fn is_finished_at_the_end(mut server: Server, mut client: Client) {
    server.says("asked to stop: ");
    client.send("st: h\r\n\r\n");
    assert_eq!(client.answer().status(), 200);
    drop(client);
    assert_eq!(server.wait_for_end().summary().requests(), 4);
}

/// Half a request and an answer that is not read: both are counted, those that are well are not.
fn what_is_cut_off_is_told(backend: &str) {
    let site = Site::full();
    let mut server = setup(backend, &site)
        .args(&["--cores", "1", "--finish-timeout-ms", "500"])
        .start();
    let mut quiet = Client::connect_with_little_room(server.addr());
    quiet.send(get(LARGE).repeat(3));
    assert!(quiet.receive());
    let _half = half_a_request(&server);
    let mut idle = Client::connect(server.addr());
    assert_eq!(idle.get("/").status(), 200);
    let exit = server.end(Signal::TERM);
    for asked in ["asked to stop: ", "500 ms to finish (--finish-timeout-ms)"] {
        assert!(exit.err.contains(asked), "{exit:?}");
    }
    let text = exit.summary_with(3).text;
    let cut = "cut off when the time to finish was over: 2 connections, 1 in the middle of an \
               answer, 1 of a request\n";
    assert!(text.contains(cut), "{text}");
}

/// Longer than any test.
const FOR_EVER: &str = "86400000";

fn asked_again_it_ends_at_once(backend: &str) {
    let site = Site::full();
    for (first, again, code) in [
        (Signal::INT, Signal::INT, 130),
        (Signal::INT, Signal::TERM, 143),
        (Signal::HUP, Signal::INT, 130),
    ] {
        let mut server = setup(backend, &site)
            .args(&["--cores", "1", "--finish-timeout-ms", FOR_EVER])
            .start();
        let _half = half_a_request(&server);
        server.signal(first);
        server.says("asked to stop: ");
        // Signals that come together are one wish.
        thread::sleep(Duration::from_millis(300));
        let exit = server.end(again);
        assert_eq!((exit.code, exit.out.as_str()), (Some(code), ""), "{exit:?}");
        assert!(exit.err.contains("asked to stop again"), "{exit:?}");
    }
}

/// Not when the terminal goes away, and not by halves: what is under way is finished.
fn a_hangup_asks_to_stop(backend: &str) {
    let site = Site::small();
    let server = setup(backend, &site).args(&["--cores", "1"]).start();
    let client = half_a_request(&server);
    server.signal(Signal::HUP);
    is_finished_at_the_end(server, client);
}

/// As `timeout` does it: to the process, and to its group.
#[test]
fn two_signals_in_a_row_are_one_wish() {
    let site = Site::small();
    let server = setup("epoll", &site).args(&["--cores", "1"]).start();
    let client = half_a_request(&server);
    // Held up, so that both come at the same time, however busy this machine is.
    for signal in [Signal::STOP, Signal::INT, Signal::TERM, Signal::CONT] {
        server.signal(signal);
    }
    is_finished_at_the_end(server, client);
}

/// A hangup under nohup, an interrupt in the background of a script.
#[test]
fn what_was_ignored_from_the_start_is_nothing() {
    let site = Site::small();
    for (ignored, signal) in [(libc::SIGHUP, Signal::HUP), (libc::SIGINT, Signal::INT)] {
        let server = setup("epoll", &site).ignoring(ignored).start();
        for _ in 0..3 {
            server.signal(signal);
            is_served(server.addr());
        }
        assert_eq!(server.stop().requests(), 3);
    }
}
