//! Clients that take their time, and those that take too much of it.

use crate::client::{Client, get, is_served};
use crate::on_both;
use crate::server::Server;
use crate::setup::Setup;
use crate::site::{LARGE, LARGE_BYTES, Site};
use std::io::Read;
use std::time::{Duration, Instant};

on_both!(
    a_byte_now_and_then_is_a_408,
    idle_clients_are_closed,
    idle_clients_set_off_no_timers,
    a_client_that_never_reads_is_cut,
    a_client_that_only_asks_is_cut,
    a_slow_reader_gets_all,
    a_reader_slower_than_the_kernels_buffer_gets_all,
    who_asks_of_a_stopped_server_in_time_is_answered,
    a_stopped_server_finishes_what_was_asked_in_time,
);

/// Progress is not enough: the deadline is for the whole head.
fn a_byte_now_and_then_is_a_408(backend: &str) {
    let server = Setup::new(backend)
        .args(&["--header-timeout-ms", "600"])
        .start();
    let mut slow: Vec<Client> = (0..50).map(|_| Client::connect(server.addr())).collect();
    let head = format!("GET / HTTP/1.1\r\nHost: h\r\nX: {}", "x".repeat(1000));
    let began = Instant::now();
    for byte in head.bytes() {
        let all = slow.iter_mut().all(|client| client.try_send([byte]));
        if !all || began.elapsed() > Duration::from_secs(3) {
            break;
        }
        is_served(server.addr());
        std::thread::sleep(Duration::from_millis(50));
    }
    for mut client in slow {
        let answer = client.answer();
        assert_eq!((answer.status(), answer.closes()), (408, true));
        client.ends();
    }
    // Within half of the deadline, and some for a machine that is busy with other things.
    let took = began.elapsed();
    assert!(
        took >= Duration::from_millis(600) && took < Duration::from_secs(8),
        "{took:?}"
    );
}

fn idle_clients_are_closed(backend: &str) {
    const IDLE: Duration = Duration::from_millis(1_500);
    let server = Setup::new(backend)
        .args(&["--idle-timeout-ms", &IDLE.as_millis().to_string()])
        .start();
    // Whom a busy machine lets wait for so long is idle, and begins anew.
    let is_answered = |client: &mut Client, since: Instant| {
        client.try_send(get("/"));
        match client.try_answer(false) {
            Ok(answer) => assert_eq!(answer.status(), 200),
            Err(_) if since.elapsed() >= IDLE => *client = Client::connect(server.addr()),
            Err(cut) => panic!("{cut:?} after {:?}", since.elapsed()),
        }
    };
    let mut silent = Client::connect(server.addr());
    let mut since = Instant::now();
    let mut once = Client::connect(server.addr());
    is_answered(&mut once, since);
    let mut busy = Client::connect(server.addr());
    let waits = std::thread::spawn(move || {
        // Closed without a word: an answer would be taken for the next request's.
        for client in [&mut silent, &mut once] {
            client.ends();
        }
    });
    while !waits.is_finished() {
        is_answered(&mut busy, since);
        since = Instant::now();
        std::thread::sleep(Duration::from_millis(50));
    }
    waits.join().unwrap();
    is_answered(&mut busy, since);
}

/// Before their own deadline, however short others are: a timer that fires wakes a core.
fn idle_clients_set_off_no_timers(backend: &str) {
    let server = Setup::new(backend)
        .args(&["--linger-timeout-ms", "50"])
        .start();
    let mut clients: Vec<Client> = (0..50).map(|_| Client::connect(server.addr())).collect();
    for client in clients.iter_mut().step_by(2) {
        assert_eq!(client.get("/").status(), 200);
    }
    std::thread::sleep(Duration::from_secs(1));
    let summary = server.stop();
    let row = |name: &str| summary.text.lines().find(|line| line.starts_with(name));
    assert!(row("WriteResponse").is_some(), "{}", summary.text);
    assert_eq!(row("Deadline"), None);
}

/// Asks for more than the kernel buffers, never reads; the write deadline ends it.
fn a_client_that_never_reads_is_cut(backend: &str) {
    let site = Site::full();
    let server = Setup::new(backend)
        .root(site.root())
        .args(&["--idle-timeout-ms", "400"])
        .start();
    is_served(server.addr());
    let (descriptors, before_kib) = (server.descriptors_at_rest(), server.rss_kib());
    let mut clients: Vec<Client> = (0..20)
        .map(|_| Client::connect_with_little_room(server.addr()))
        .collect();
    for client in &mut clients {
        client.send(get(LARGE).repeat(2));
    }
    is_served(server.addr());
    // The answers are shared, not copied for each who asks.
    let growth_kib = server.rss_kib().saturating_sub(before_kib);
    assert!(growth_kib < 16 * 1024, "{growth_kib} KiB more");
    server.settles_at(descriptors, Duration::from_secs(10));
    for client in &mut clients {
        assert!(client.try_answer(false).is_err(), "it was cut");
    }
}

/// Asks without end, never reads: it is no longer read from, then cut.
fn a_client_that_only_asks_is_cut(backend: &str) {
    let site = Site::full();
    let server = Setup::new(backend)
        .root(site.root())
        .args(&["--idle-timeout-ms", "400"])
        .start();
    is_served(server.addr());
    let before_kib = server.rss_kib();
    let mut client = Client::connect_with_little_room(server.addr());
    let requests = get("/65536.bin").repeat(1000);
    let began = Instant::now();
    let mut sent_bytes = 0;
    while client.try_send(&requests) {
        sent_bytes += requests.len();
        assert!(sent_bytes < 64 << 20, "the server takes all");
    }
    assert!(began.elapsed() < Duration::from_secs(10));
    is_served(server.addr());
    let growth_kib = server.rss_kib().saturating_sub(before_kib);
    assert!(growth_kib < 16 * 1024, "{growth_kib} KiB more");
}

/// A client with little room that has asked for the large file, and whom its server lets stand
/// still for this long.
fn asks_for_the_large_file(backend: &str, idle_timeout_ms: &str) -> (Site, Server, Client) {
    let site = Site::full();
    let server = Setup::new(backend)
        .root(site.root())
        .args(&["--idle-timeout-ms", idle_timeout_ms])
        .start();
    let mut client = Client::connect_with_little_room(server.addr());
    client.send(get(LARGE));
    (site, server, client)
}

/// What is left of the large file is read at once, and is right.
fn the_rest_comes(site: &Site, client: &mut Client, mut bytes: Vec<u8>) {
    let head_bytes = bytes.windows(4).position(|end| end == b"\r\n\r\n").unwrap() + 4;
    let left = (head_bytes + LARGE_BYTES - bytes.len()) as u64;
    let rest = client.stream.by_ref().take(left).read_to_end(&mut bytes);
    assert_eq!(rest.unwrap() as u64, left);
    assert!(bytes[head_bytes..] == *site.body(LARGE));
}

/// Slower than the write deadline would allow for the whole, but never standing still for so long.
fn a_slow_reader_gets_all(backend: &str) {
    let (site, _server, mut client) = asks_for_the_large_file(backend, "2000");
    let began = Instant::now();
    let mut bytes = Vec::new();
    let mut chunk = [0; 16_384];
    while bytes.len() < LARGE_BYTES {
        let read = client.stream.read(&mut chunk);
        let read = read.unwrap_or_else(|error| panic!("after {} bytes: {error}", bytes.len()));
        assert!(read > 0, "closed after {} bytes", bytes.len());
        bytes.extend_from_slice(&chunk[..read]);
        // At this pace all of it takes five seconds.
        let pace = Duration::from_secs_f64(5.0 * bytes.len() as f64 / LARGE_BYTES as f64);
        std::thread::sleep(pace.saturating_sub(began.elapsed()));
    }
    the_rest_comes(&site, &mut client, bytes);
    assert!(began.elapsed() > Duration::from_millis(1800));
}

/// So slow that the kernel takes nothing more from the server for longer than the deadline, since
/// its buffer has to become empty by a third first; and yet the client takes a little all the time.
fn a_reader_slower_than_the_kernels_buffer_gets_all(backend: &str) {
    let (site, _server, mut client) = asks_for_the_large_file(backend, "3000");
    let began = Instant::now();
    let (mut bytes, mut chunk) = (Vec::new(), [0; 2_048]);
    while began.elapsed() < Duration::from_secs(8) {
        let read = client.stream.read(&mut chunk).unwrap();
        assert!(read > 0, "closed after {} bytes", bytes.len());
        bytes.extend_from_slice(&chunk[..read]);
        std::thread::sleep(Duration::from_millis(50));
    }
    the_rest_comes(&site, &mut client, bytes);
    assert_eq!(client.get("/1.bin").status(), 200);
}

/// Clients, each with the rest of its request.
type Asking = Vec<(Client, &'static str)>;

const ASKED: usize = 20;
const HEAD: &str = "GET / HTTP/1.1\r\nHo";
const REST: &str = "st: h\r\n\r\n";

/// This many have sent nothing, and as many the half of a head.
fn half_asked(server: &Server) -> Asking {
    let mut asking = Asking::new();
    for _ in 0..ASKED {
        let mut begun = Client::connect(server.addr());
        begun.send(HEAD);
        asking.push((begun, REST));
        let silent = Client::connect(server.addr());
        asking.push((silent, "GET / HTTP/1.1\r\nHost: h\r\n\r\n"));
    }
    is_served(server.addr());
    asking
}

/// Stops the server for this long. All that is asked has arrived by then.
fn stop_for(server: &Server, time: Duration, asking: &mut Asking) {
    server.signal(rustix::process::Signal::STOP);
    for (client, rest) in asking {
        client.send(rest);
    }
    std::thread::sleep(time);
    server.signal(rustix::process::Signal::CONT);
}

/// A core that goes on after a while finds deadlines passed, and requests that were in time.
fn who_asks_of_a_stopped_server_in_time_is_answered(backend: &str) {
    let limits = ["--idle-timeout-ms", "1000", "--header-timeout-ms", "1000"];
    let args = ["--cores", "2", "--linger-timeout-ms", "1000"];
    let server = Setup::new(backend).args(&limits).args(&args).start();
    let mut asking = half_asked(&server);
    stop_for(&server, Duration::from_millis(1_500), &mut asking);
    for (number, (client, _)) in asking.iter_mut().enumerate() {
        let answer = client.answer();
        assert_eq!(answer.status(), 200, "{number}");
    }
}

/// Requests that were begun before a stop are answered within the time to finish.
fn a_stopped_server_finishes_what_was_asked_in_time(backend: &str) {
    let args = ["--cores", "2", "--finish-timeout-ms", "1000"];
    let mut server = Setup::new(backend).args(&args).start();
    let mut asking = half_asked(&server);
    // The others have sent nothing, and are sent away.
    asking.retain(|&(_, rest)| rest == REST);
    server.signal(rustix::process::Signal::TERM);
    server.says("asked to stop");
    stop_for(&server, Duration::from_millis(1_500), &mut asking);
    for (number, (client, _)) in asking.iter_mut().enumerate() {
        // Whether it says that it closes is open: the signal may have come before its color was
        // told of the end.
        assert_eq!(client.answer().status(), 200, "{number}");
        client.ends();
    }
    assert_eq!(server.wait_for_end().code, Some(0));
}
