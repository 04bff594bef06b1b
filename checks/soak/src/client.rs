//! Foreign clients of a round: plain sockets, polite and otherwise.

use crate::draw::chance;
use crate::server::{byte, manner};
use crate::verdict::fail;
use crate::world::World;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// How long an answer may take before it counts as lost; a round is called hung not much later.
const ANSWERS_IN: Duration = Duration::from_secs(60);
/// How many connections a client makes, one after the other.
const CONNECTIONS_MAX: usize = 12;
/// Most bytes of one: less than a connection may have queued, so that nobody waits for each other.
const BYTES_MAX: usize = 300_000;

pub(crate) fn start(world: &Arc<World>, side: usize, number: usize) -> JoinHandle<()> {
    let world = Arc::clone(world);
    let busy = world.busy();
    std::thread::spawn(move || {
        let _busy = busy;
        let seed = world.draw.seed ^ ((side * 1_000 + number + 1) as u64) << 40;
        let mut rng = fastrand::Rng::with_seed(seed);
        let Some(addr) = addr(&world, side) else {
            return;
        };
        for _ in 0..rng.usize(1..=CONNECTIONS_MAX) {
            let manner = manner::ALL[rng.usize(..manner::ALL.len())];
            let mut told = None;
            let result = TcpStream::connect(addr).and_then(|mut stream| {
                talk(&mut stream, manner, &mut rng).inspect(|complete| told = Some(*complete))
            });
            match (told, result) {
                (Some(true), _) => drop(world.served.fetch_add(1, Relaxed)),
                (Some(false), _) => {}
                (None, Err(error)) if must_serve(&world, side, manner) => {
                    fail(&format!(
                        "a connection in manner {}: {error}",
                        char::from(manner)
                    ));
                }
                (None, _) => {}
            }
        }
    })
}

/// Where to connect to, once known. None: the runtime ended before it listened.
fn addr(world: &World, side: usize) -> Option<std::net::SocketAddr> {
    let begun = Instant::now();
    let its = &world.sides[side];
    while its.addr.get().is_none() {
        if its.stopping.load(Relaxed) || begun.elapsed() > ANSWERS_IN {
            return its.addr.get().copied();
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    its.addr.get().copied()
}

/// Whether nothing has happened that excuses an unfinished connection.
fn must_serve(world: &World, side: usize, manner: u8) -> bool {
    let its = &world.sides[side];
    manner::POLITE.contains(&manner)
        && world.draw.sides[side].events_max.is_none()
        && !its.listener_closed.load(Relaxed)
        && !its.stopping.load(Relaxed)
}

/// One connection. True: all came back.
fn talk(stream: &mut TcpStream, manner: u8, rng: &mut fastrand::Rng) -> io::Result<bool> {
    stream.set_read_timeout(Some(ANSWERS_IN))?;
    stream.set_write_timeout(Some(ANSWERS_IN))?;
    let len = match rng.u32(..3) {
        0 => 1,
        1 => rng.usize(1..1_000),
        _ => rng.usize(1..BYTES_MAX),
    };
    let bytes: Vec<u8> = (0..len).map(|n| byte(manner, n)).collect();
    let piece = rng.usize(1..=len);
    let cut = chance(rng, 20).then(|| rng.usize(..len));
    for (n, part) in bytes.chunks(piece.max(len / 20 + 1)).enumerate() {
        if cut.is_some_and(|cut| n * piece >= cut) {
            // Gone in the middle, with an end or with a reset, having read nothing.
            if rng.bool() {
                rustix::net::sockopt::set_socket_linger(&*stream, Some(Duration::ZERO))?;
            }
            return Ok(false);
        }
        stream.write_all(part)?;
        if chance(rng, 10) {
            std::thread::sleep(Duration::from_micros(rng.u64(..1_000)));
        }
    }
    let half_closed = rng.bool();
    if half_closed {
        stream.shutdown(Shutdown::Write)?;
    }
    let complete = read_back(stream, &bytes, half_closed)?;
    if !half_closed && rng.bool() {
        rustix::net::sockopt::set_socket_linger(&*stream, Some(Duration::ZERO))?;
    }
    Ok(complete)
}

/// What comes back must be what was sent, and nothing after it.
fn read_back(stream: &mut TcpStream, sent: &[u8], to_the_end: bool) -> io::Result<bool> {
    let mut got = 0;
    let mut space = vec![0; 1 << 14];
    while got < sent.len() || to_the_end {
        match stream.read(&mut space) {
            Ok(0) if got == sent.len() => return Ok(true),
            Ok(0) => return Err(ErrorKind::UnexpectedEof.into()),
            Ok(len) => {
                if sent.get(got..got + len) != Some(&space[..len]) {
                    fail(&format!(
                        "bytes {got}.. of a connection are not what was sent"
                    ));
                }
                got += len;
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                fail("no answer, no end and no error");
            }
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}
