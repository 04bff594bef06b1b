//! Arbitrary servers on virtual cores: while a core idles, nothing that has come for another one
//! waits. At each step a debug build's simulation checks that no core sleeps while something has
//! come for a core that computes.

use crate::common::calls::Calls;
use crate::common::cores;
use mely::net::{Acceptors, Incoming, RecvBuf, SimClient, Stream};
use mely::sim::{self, Simulation, Step};
use mely::{Callback, Color, Cx, Handler};
use std::collections::{HashMap, VecDeque};
use std::io::{self, ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const US: u64 = 1_000;
/// How long their events take, in ns. Of the last nobody knows.
static SHORT: Handler = Handler::new("short").time(Duration::from_nanos(500));
static MEDIUM: Handler = Handler::new("medium").time(Duration::from_micros(200));
static LONG: Handler = Handler::new("long").time(Duration::from_millis(5));
static UNKNOWN: Handler = Handler::new("unknown");

/// Numbers that a seed determines.
struct Draws(u64);

impl Draws {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

/// How many bytes each client has sent.
type Sent = Arc<Mutex<HashMap<SocketAddr, usize>>>;

/// A connection as its color knows it.
#[derive(Clone)]
struct Served {
    sent: Sent,
    peer: SocketAddr,
    /// How many bytes the color was given.
    given: Arc<AtomicUsize>,
}

/// What each byte of a connection has its handler do: before it computes, or after.
fn act(cx: &mut Cx, stream: &Stream, byte: u8, served: &Served) {
    match byte % 7 {
        0 => {
            let color = cx.color();
            let after = Duration::from_nanos(u64::from(byte) * 10 * US);
            cx.timer(after, SHORT.on(color, |_| ()));
        }
        1 => SHORT
            .on(Color::from(u64::from(byte)), |cx| {
                sim::work(cx, Duration::from_nanos(300));
            })
            .post(cx),
        2 => {
            stream.pause(cx).unwrap();
            stream.resume(cx).unwrap();
        }
        3 => {
            // Whoever has found them for this core, they come first.
            let arrived = served.sent.lock().unwrap()[&served.peer];
            let given = Arc::clone(&served.given);
            let after = move |_: &mut Cx| {
                let given = given.load(Ordering::Relaxed);
                assert!(given >= arrived, "{given} of {arrived} bytes");
            };
            let after = SHORT.on(stream.color(), after);
            stream.after_received(cx, after).unwrap();
        }
        4 => {
            let color = cx.color();
            let never = SHORT.on(color, |_| ());
            cx.timer(Duration::from_secs(5), never).cancel(cx);
        }
        5 => MEDIUM
            .on(Color::from(u64::from(byte)), |cx| {
                sim::work(cx, Duration::from_nanos(200 * US));
            })
            .post(cx),
        _ => {}
    }
}

/// Answers each byte, in order, with itself.
fn serve(cx: &mut Cx, stream: Stream, sent: Sent, handler: &'static Handler, works_ns: u64) {
    let served = Served {
        sent,
        peer: stream.peer_addr(cx).unwrap().ip().unwrap(),
        given: Arc::default(),
    };
    let mut next = 0_u8;
    let answer = move |cx: &mut Cx, stream: &Stream, data: io::Result<Option<RecvBuf>>| {
        let Ok(Some(data)) = data else { return };
        for &byte in &*data {
            assert_eq!(byte, next, "bytes in order, none lost, none twice");
            next = next.wrapping_add(1);
        }
        served.given.fetch_add(data.len(), Ordering::Relaxed);
        let Some(&last) = data.last() else { return };
        let first = last.is_multiple_of(3);
        if first {
            sim::work(cx, Duration::from_nanos(works_ns));
        }
        for &byte in &*data {
            act(cx, stream, byte, &served);
        }
        stream.write(cx, data).unwrap();
        if !first {
            sim::work(cx, Duration::from_nanos(works_ns));
        }
    };
    Calls::new(answer).serve(stream, handler);
}

/// A simulated server, and where it listens.
fn server(cores_count: usize, seed: u64, sent: &Sent) -> (Simulation, SocketAddr) {
    let mut simulation = cores(cores_count).simulate(seed).unwrap();
    let (tell, addr) = channel();
    let (mut number, sent) = (0, Arc::clone(sent));
    let accept = move |cx: &mut Cx, incoming: io::Result<Incoming>| {
        let stream = incoming.unwrap().open_unique();
        number += 1;
        let kinds = [
            (&SHORT, 100),
            (&MEDIUM, 200 * US),
            (&LONG, 10_000 * US),
            (&UNKNOWN, 2_000 * US),
        ];
        let (handler, works_ns) = kinds[number % kinds.len()];
        let sent = Arc::clone(&sent);
        cx.post(stream.color(), move |cx| {
            serve(cx, stream, sent, handler, works_ns);
        });
    };
    let begin = move |cx: &mut Cx| {
        let any = "127.0.0.1:0";
        let on_accept = Callback::anonymous_each(Color::from(1 << 20), accept);
        let listener = cx.listen(any, Acceptors::Single, on_accept).unwrap();
        tell.send(listener.local_addr()).unwrap();
    };
    simulation.start(begin).unwrap();
    while !matches!(simulation.step(), Step::Stalled) {}
    (simulation, addr.recv().unwrap().ip().unwrap())
}

/// A client, how many bytes it sends in all, has sent, and has heard.
struct Asks {
    client: SimClient,
    addr: SocketAddr,
    bytes: usize,
    sent: usize,
    heard: usize,
}

impl Asks {
    fn ask(&mut self, sent: &Sent) {
        if self.sent < self.bytes {
            self.sent += self.client.write(&[self.sent as u8]).unwrap();
            sent.lock().unwrap().insert(self.addr, self.sent);
        }
    }

    /// Whether it has heard all.
    fn hear(&mut self) -> bool {
        let mut space = [0; 16];
        match self.client.read(&mut space) {
            Ok(len) => {
                for &byte in &space[..len] {
                    assert_eq!(byte, self.heard as u8, "answers in order");
                    self.heard += 1;
                }
            }
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
        self.heard == self.bytes
    }
}

#[test]
fn nothing_that_has_come_waits_while_a_core_idles() {
    for cores_count in [2, 4, 16] {
        for seed in 1..=12_u64 {
            let mut draws = Draws(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
            let sent = Sent::default();
            let (mut simulation, addr) = server(cores_count, seed, &sent);
            let net = simulation.network().clone();
            let mut clients = VecDeque::new();
            let mut left = 3 * cores_count;
            let mut steps = 0_u64;
            while left > 0 || !clients.is_empty() {
                steps += 1;
                assert!(steps < 3_000_000, "answers do not come");
                if left > 0 && draws.below(20) == 0 {
                    left -= 1;
                    let client = net.connect(addr).unwrap();
                    clients.push_back(Asks {
                        addr: client.local_addr().unwrap().ip().unwrap(),
                        client,
                        bytes: 1 + draws.below(12) as usize,
                        sent: 0,
                        heard: 0,
                    });
                }
                if draws.below(8) == 0
                    && let Some(mut asks) = clients.pop_front()
                {
                    asks.ask(&sent);
                    if !asks.hear() {
                        clients.push_back(asks);
                    }
                }
                simulation.step();
            }
            simulation.poster().stop();
            while simulation.step() != Step::Ended {}
            simulation.end().unwrap();
        }
    }
}
