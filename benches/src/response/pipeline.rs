//! Three requests in one packet, while other handlers wait for their turn.
//!
//! Each worker is first held by a request of [`HELD`]. Meanwhile one connection sends three
//! requests in one packet, and then as many others as there are workers send one of [`LONG`] each.
//! So the three come first, and behind each of them a long handler waits for the same workers.
//! Printed is when each answer of the three comes, counted from the end of the holding requests,
//! and in how many reads and segments. A server that answers a request when it is computed sends
//! three segments, a millisecond apart. One that keeps answers back until it has computed all
//! requests of a packet sends them together, or only after the long handlers.

use super::Bench;
use super::generator::{ask, connect};
use super::realtime;
use super::wire::{REQUEST_BYTES, Request, iteration_ns};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::AsRawFd;
use std::thread;
use std::time::{Duration, Instant};

/// How long each worker is held at first.
pub const HELD: Duration = Duration::from_millis(30);
/// Of each of the three.
const SHORT: Duration = Duration::from_millis(1);
/// Of those that wait behind them.
pub const LONG: Duration = Duration::from_millis(100);
/// The three.
const REQUESTS: u64 = 3;
/// From a send to the next: the bytes have arrived by then.
const GAP: Duration = Duration::from_millis(2);
/// An answer that takes longer is given up.
const ANSWER_MAX: Duration = Duration::from_secs(60);

/// The answers to the connection of three requests, and to the others.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// When each answer came, since the last holding request was answered; negative: before.
    pub answers_ms: Vec<f64>,
    /// When each long one was answered.
    pub long_ms: Vec<f64>,
    /// Reads that the three answers took.
    pub reads: usize,
    /// Segments with data that brought them.
    pub segments: u32,
}

fn request(id: u64, time: Duration, iteration_ns: f64) -> Request {
    Request::new(id, (time.as_nanos() as f64 / iteration_ns) as u64)
}

fn text(error: std::io::Error) -> String {
    error.to_string()
}

/// Asks a peer.
///
/// # Errors
/// A server that does not start or answers wrongly.
pub fn run(bench: &Bench, peer: &str) -> Result<Seen, String> {
    let server = bench.start(peer, bench.cores)?;
    let ns = iteration_ns();
    let conn = || {
        let mut stream = connect(server.addrs[0])?;
        ask(&mut stream, Request::new(0, 1), ANSWER_MAX)?;
        Ok::<TcpStream, String>(stream)
    };
    let conns = || {
        (0..bench.cores)
            .map(|_| conn())
            .collect::<Result<Vec<_>, _>>()
    };
    let (holding, long, mut three) = (conns()?, conns()?, conn()?);
    let segments_before = segments(&three).map_err(text)?;
    thread::scope(|scope| {
        let holding = holding.into_iter().map(|mut stream| {
            scope.spawn(move || {
                realtime::become_realtime();
                ask(&mut stream, request(1, HELD, ns), ANSWER_MAX).map(|()| Instant::now())
            })
        });
        let holding: Vec<_> = holding.collect();
        thread::sleep(GAP);
        let three = scope.spawn(move || {
            realtime::become_realtime();
            ask_three(&mut three, ns, segments_before)
        });
        thread::sleep(GAP);
        let long = long.into_iter().map(|mut stream| {
            scope.spawn(move || {
                realtime::become_realtime();
                ask(&mut stream, request(2, LONG, ns), ANSWER_MAX).map(|()| Instant::now())
            })
        });
        let long: Vec<_> = long.collect();
        let mut free = None;
        for held in holding {
            let held = held.join().expect("no client panics")?;
            free = free.max(Some(held));
        }
        let free = free.ok_or("no worker")?;
        let since = |at: Instant| match at.checked_duration_since(free) {
            Some(after) => after.as_secs_f64() * 1e3,
            None => -(free - at).as_secs_f64() * 1e3,
        };
        let (answers, reads, segments) = three.join().expect("no client panics")?;
        let long = long
            .into_iter()
            .map(|long| long.join().expect("no client panics"));
        let long: Result<Vec<Instant>, String> = long.collect();
        Ok(Seen {
            answers_ms: answers.into_iter().map(since).collect(),
            long_ms: long?.into_iter().map(since).collect(),
            reads,
            segments,
        })
    })
}

type Three = (Vec<Instant>, usize, u32);

fn ask_three(stream: &mut TcpStream, ns: f64, segments_before: u32) -> Result<Three, String> {
    let requests: Vec<_> = (0..REQUESTS)
        .map(|id| request(id, SHORT, ns).bytes())
        .collect();
    let requests = requests.concat();
    stream.write_all(&requests).map_err(text)?;
    stream.set_read_timeout(Some(ANSWER_MAX)).map_err(text)?;
    let mut buffer = vec![0; requests.len()];
    let (mut got, mut reads, mut answers) = (0, 0, Vec::new());
    while got < buffer.len() {
        match stream.read(&mut buffer[got..]).map_err(text)? {
            0 => return Err("the server closed a connection".to_owned()),
            more => got += more,
        }
        reads += 1;
        answers.resize(got / REQUEST_BYTES, Instant::now());
    }
    if buffer != requests {
        return Err(format!("three requests were answered by {buffer:?}"));
    }
    Ok((
        answers,
        reads,
        segments(stream).map_err(text)? - segments_before,
    ))
}

/// Segments with data that a connection has received.
fn segments(stream: &TcpStream) -> std::io::Result<u32> {
    /// The place of `tcpi_data_segs_in` in the kernel's `tcp_info`, which the C library's lacks.
    const DATA_SEGMENTS_IN: usize = 152 / 4;
    let mut info = [0u32; 64];
    let mut size = size_of_val(&info) as libc::socklen_t;
    // SAFETY: `info` and `size` are this frame's, `size` is that of `info`, and the kernel writes
    // no more than that.
    let got = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            info.as_mut_ptr().cast(),
            &raw mut size,
        )
    };
    match got {
        0 => Ok(info[DATA_SEGMENTS_IN]),
        _ => Err(std::io::Error::last_os_error()),
    }
}

/// Asks each of these peers, and prints when the answers came.
///
/// # Errors
/// As [`run`].
pub fn measure(bench: &Bench, peers: &[&str], as_json: bool) -> Result<(), String> {
    if !as_json {
        println!(
            "Three requests of {} ms in one packet, and behind them {} of {} ms, to {} workers; \
             times since the workers became free.\n",
            SHORT.as_millis(),
            bench.cores,
            LONG.as_millis(),
            bench.cores,
        );
        println!(
            "{:<20} {:>24} {:>5} {:>8} {:>18}",
            "peer", "answers ms", "reads", "segments", "long ms"
        );
    }
    for peer in peers {
        let seen = run(bench, peer).map_err(|error| format!("{peer}: {error}"))?;
        if as_json {
            println!("{}", line(peer, &seen));
        } else {
            println!(
                "{peer:<20} {:>24} {:>5} {:>8} {:>18}",
                list(&seen.answers_ms),
                seen.reads,
                seen.segments,
                list(&seen.long_ms)
            );
        }
    }
    Ok(())
}

fn list(all_ms: &[f64]) -> String {
    let all: Vec<_> = all_ms.iter().map(|ms| format!("{ms:.1}")).collect();
    all.join(", ")
}

fn line(peer: &str, seen: &Seen) -> Value {
    json!({
        "peer": peer,
        "answers_ms": seen.answers_ms,
        "long_ms": seen.long_ms,
        "reads": seen.reads,
        "segments": seen.segments,
    })
}
