//! Clients that come while a core is in a long handler.
//!
//! A first request computes for seconds, on one of the server's workers. While it does, clients
//! connect one after the other, send one small request each, and wait for its answer. A server
//! whose other worker takes them all answers each at once; one that leaves connections or
//! answers to the busy worker lets some wait for the end of the handler. In variants the handler
//! first writes, sets a timer or begins to connect.

use super::Bench;
use super::generator::{ask, connect};
use super::realtime;
use super::wire::{First, REQUEST_BYTES, Request, iteration_ns};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::thread;
use std::time::{Duration, Instant};

/// How much of it.
#[derive(Clone, Copy, Debug)]
pub struct Late {
    /// How long the first request computes.
    pub long: Duration,
    /// Clients that come meanwhile.
    pub clients: u32,
    /// Between two of them.
    pub gap: Duration,
}

/// As measured.
pub const LATE: Late = Late {
    long: Duration::from_secs(3),
    clients: 40,
    gap: Duration::from_millis(20),
};

/// From the first request to the first client: the handler runs by then.
const HEAD_START: Duration = Duration::from_millis(100);
/// How long the clients' requests compute.
const SMALL: Duration = Duration::from_micros(20);
/// An answer that takes longer is an error: the handler's end is long past, on any machine.
const ANSWER_MAX: Duration = Duration::from_secs(60);
/// An answer within this is one at once.
pub const AT_ONCE: Duration = Duration::from_millis(5);

/// The waits of the clients of one server.
#[derive(Clone, Debug)]
pub struct Seen {
    /// From the connect to the answer, for each client.
    pub waits: Vec<Duration>,
    /// From the first request to its last answer.
    pub long: Duration,
}

impl Seen {
    /// How many were answered within [`AT_ONCE`].
    pub fn at_once(&self) -> usize {
        self.waits.iter().filter(|&&wait| wait <= AT_ONCE).count()
    }

    /// The longest wait.
    pub fn longest(&self) -> Duration {
        self.waits.iter().copied().max().unwrap_or_default()
    }
}

fn iterations(time: Duration, iteration_ns: f64) -> u64 {
    (time.as_nanos() as f64 / iteration_ns) as u64
}

/// Asks a peer, whose long handler does `first` first.
///
/// # Errors
/// A server that does not start or answers wrongly.
pub fn run(bench: &Bench, peer: &str, first: First, late: Late) -> Result<Seen, String> {
    let server = bench.start(peer, bench.cores)?;
    let addr = server.addrs[0];
    let iteration_ns = iteration_ns();
    // Where the handler connects to.
    let there = TcpListener::bind("127.0.0.1:0").map_err(|error| error.to_string())?;
    let port = there
        .local_addr()
        .map_err(|error| error.to_string())?
        .port();
    let long = Request {
        id: port.into(),
        first,
        iterations: iterations(late.long, iteration_ns),
    };
    thread::scope(|scope| {
        let long = scope.spawn(move || ask_long(addr, long));
        thread::sleep(HEAD_START);
        let small = iterations(SMALL, iteration_ns);
        let clients: Vec<_> = (0..late.clients)
            .map(|number| {
                let due = late.gap * number;
                scope.spawn(move || ask_small(addr, Request::new(number.into(), small), due))
            })
            .collect();
        let waits = clients
            .into_iter()
            .map(|client| client.join().expect("no client panics"));
        let waits: Result<Vec<Duration>, String> = waits.collect();
        let long = long.join().expect("no client panics")?;
        Ok(Seen {
            waits: waits?,
            long,
        })
    })
}

fn ask_long(addr: SocketAddr, request: Request) -> Result<Duration, String> {
    realtime::become_realtime();
    let mut stream = connect(addr)?;
    // It is accepted before the time is taken.
    ask(&mut stream, Request::new(0, 1), ANSWER_MAX)?;
    let start = Instant::now();
    stream
        .write_all(&request.bytes())
        .map_err(|error| error.to_string())?;
    let answers = match request.first {
        First::Write => 2,
        _ => 1,
    };
    let mut answer = vec![0; answers * REQUEST_BYTES];
    stream
        .read_exact(&mut answer)
        .map_err(|error| format!("the long request: {error}"))?;
    match answer == request.bytes().repeat(answers) {
        true => Ok(start.elapsed()),
        false => Err(format!("{request:?} was answered by {answer:?}")),
    }
}

fn ask_small(addr: SocketAddr, request: Request, due: Duration) -> Result<Duration, String> {
    realtime::become_realtime();
    thread::sleep(due);
    let start = Instant::now();
    let mut stream = connect(addr)?;
    ask(&mut stream, request, ANSWER_MAX)?;
    Ok(start.elapsed())
}

/// Asks each of these peers in each variant, and prints the waits.
///
/// # Errors
/// As [`run`].
pub fn measure(bench: &Bench, peers: &[&str], as_json: bool) -> Result<(), String> {
    if !as_json {
        println!(
            "{} clients connect and ask while one of {} workers is in a handler of {} s.\n",
            LATE.clients,
            bench.cores,
            LATE.long.as_secs_f64()
        );
        println!(
            "{:<20} {:<19} {:>15} {:>10} {:>10}",
            "peer",
            "the handler",
            format!("within {} ms", AT_ONCE.as_millis()),
            "longest ms",
            "handler ms"
        );
    }
    for peer in peers {
        for first in First::ALL {
            let failed = |error| format!("{peer}, {}: {error}", first.name());
            let seen = run(bench, peer, first, LATE).map_err(failed)?;
            if as_json {
                println!("{}", line(peer, first, &seen));
            } else {
                println!(
                    "{peer:<20} {:<19} {:>15} {:>10.1} {:>10.0}",
                    first.name(),
                    format!("{} of {}", seen.at_once(), seen.waits.len()),
                    seen.longest().as_secs_f64() * 1e3,
                    seen.long.as_secs_f64() * 1e3,
                );
            }
        }
    }
    Ok(())
}

fn line(peer: &str, first: First, seen: &Seen) -> Value {
    json!({
        "peer": peer,
        "handler": first.name(),
        "clients": seen.waits.len(),
        "at_once": seen.at_once(),
        "longest_ms": seen.longest().as_secs_f64() * 1e3,
        "handler_ms": seen.long.as_secs_f64() * 1e3,
    })
}
