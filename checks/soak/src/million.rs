//! A million connections' life: connect, ask, be answered, close; memory must stay flat.

use crate::options::Options;
use crate::process::{Holdings, resident_bytes};
use crate::soak::backends;
use crate::verdict;
use mely::net::{Acceptors, Backend, Incoming, RecvBuf, Session, Stream};
use mely::{Callback, Color, Cx, Handler, Runtime};
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

static ANSWER: Handler = Handler::new("answer");
const ACCEPT: Color = Color::new(1);
const CORES: usize = 2;
const CLIENTS: u64 = 4;
/// This many loopback addresses: those who close first keep their pair of ports for a minute.
const ADDRESSES: u8 = 8;
/// Lines of the table.
const SAMPLES: u64 = 20;
/// What comes before this share of the connections is warm-up.
const WARM: u64 = SAMPLES / 5;
const PATIENCE: Duration = Duration::from_secs(60);
const REQUEST_BYTES: usize = 64;
const ANSWER_BYTES: usize = 500;

/// The request's first byte: who closes.
const SERVER_CLOSES: u8 = b's';
const CLIENT_CLOSES: u8 = b'c';

/// What was measured after this many connections.
#[derive(Clone, Copy)]
struct Sample {
    connections: u64,
    resident_bytes: u64,
    holdings: Holdings,
}

pub(crate) fn run(options: &Options) -> ExitCode {
    mely::net::raise_open_file_limit().expect("the limit of descriptors");
    verdict::set_panic_hook();
    let mut good = true;
    for backend in backends(options) {
        let before = Holdings::now();
        good &= life(options, backend);
        before.must_return();
    }
    if good {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// All connections on one backend. False: memory or descriptors grew.
fn life(options: &Options, backend: Backend) -> bool {
    println!(
        "{backend:?}, {} connections, {} at once",
        options.connections, options.at_once
    );
    let built = Runtime::builder()
        .cores(CORES)
        .pin(false)
        .backend(backend)
        .build();
    let runtime = built.expect("a runtime");
    let poster = runtime.poster();
    let (tell, told) = channel();
    let options = options.clone();
    let leak_bytes = options.leak_bytes;
    let loader = std::thread::spawn(move || {
        let addrs: Vec<SocketAddr> = told.recv().expect("listeners");
        let samples = load(&options, &addrs);
        let event_bytes = poster.stats().event_bytes;
        poster.stop();
        (verdict_of(&options, &samples), event_bytes)
    });
    let outcome = runtime.run(move |cx| {
        let listeners = (1..=ADDRESSES).map(|n| {
            let accept =
                Callback::anonymous_each(ACCEPT, move |_: &mut Cx, incoming: io::Result<_>| {
                    serve(incoming.expect("a connection"), leak_bytes);
                });
            let addr = SocketAddr::from(([127, 0, 0, n], 0));
            let listener = cx
                .listen(addr, Acceptors::PerCore, accept)
                .expect("a listener");
            listener.local_addr().ip().expect("an IP address")
        });
        tell.send(listeners.collect()).expect("the loader");
    });
    outcome.expect("a run that ends well");
    let (good, event_bytes) = loader.join().expect("the loader");
    println!("{event_bytes} bytes of event memory\n");
    good
}

/// Answers one request, and closes if asked to.
struct Answers {
    stream: Stream,
    /// Bytes received so far.
    got: usize,
}

impl Session for Answers {
    fn data(&mut self, cx: &mut Cx, data: RecvBuf) {
        self.got += data.len();
        if self.got == REQUEST_BYTES {
            // Refused if the client has gone.
            let _ = self.stream.write(cx, vec![b'a'; ANSWER_BYTES]);
            if data[0] == SERVER_CLOSES {
                self.stream.close(cx);
            }
        }
    }
}

fn serve(incoming: Incoming, leak_bytes: usize) {
    incoming.serve(&ANSWER, move |_, stream, _| {
        std::mem::forget(vec![1u8; leak_bytes]);
        Answers { stream, got: 0 }
    });
}

/// Makes the connections, and takes a sample after each part of them.
fn load(options: &Options, addrs: &[SocketAddr]) -> Vec<Sample> {
    let begun = Instant::now();
    let each = options.connections.div_ceil(SAMPLES);
    let numbers = Arc::new(AtomicU64::new(0));
    let mut samples: Vec<Sample> = Vec::new();
    for part in 1..=SAMPLES {
        let most = (part * each).min(options.connections);
        std::thread::scope(|scope| {
            for client in 0..CLIENTS {
                let (numbers, at_once) = (&numbers, options.at_once.div_ceil(CLIENTS));
                scope.spawn(move || {
                    while let Some(batch) = batch(numbers, at_once, most) {
                        if let Err(error) = talk(batch, addrs) {
                            verdict::fail(&format!("client {client}: {error}"));
                        }
                    }
                });
            }
        });
        let sample = Sample {
            connections: most,
            resident_bytes: resident_bytes(),
            holdings: Holdings::now(),
        };
        println!(
            "{:9} connections  {:8} KiB  {:?}  {:.0} s",
            sample.connections,
            sample.resident_bytes / 1024,
            sample.holdings,
            begun.elapsed().as_secs_f64()
        );
        samples.push(sample);
    }
    samples
}

/// The numbers of the next connections.
fn batch(numbers: &AtomicU64, at_once: u64, most: u64) -> Option<std::ops::Range<u64>> {
    let next = |first: u64| (first < most).then(|| most.min(first + at_once));
    let first = numbers.fetch_update(Relaxed, Relaxed, next).ok()?;
    Some(first..most.min(first + at_once))
}

/// Connections that are open at the same time, from connect to close.
fn talk(numbers: std::ops::Range<u64>, addrs: &[SocketAddr]) -> io::Result<()> {
    let connect = |n: u64| {
        let stream = TcpStream::connect(addrs[n as usize % addrs.len()])?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok((n, stream))
    };
    let mut streams = numbers.map(connect).collect::<io::Result<Vec<_>>>()?;
    for (n, stream) in &mut streams {
        let who = if n.is_multiple_of(4) {
            SERVER_CLOSES
        } else {
            CLIENT_CLOSES
        };
        stream.write_all(&[who; REQUEST_BYTES])?;
    }
    for (n, mut stream) in streams {
        let mut answer = [0; ANSWER_BYTES];
        stream.read_exact(&mut answer)?;
        match n % 4 {
            // The server has closed: its side keeps the ports for a while.
            0 => drop(stream.read(&mut [0; 1])?),
            // Ours does.
            1 => {}
            // Nobody does.
            _ => rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO))?,
        }
    }
    Ok(())
}

/// Whether memory was flat after the warm-up.
fn verdict_of(options: &Options, samples: &[Sample]) -> bool {
    let (warm, end) = (samples[WARM as usize - 1], samples[samples.len() - 1]);
    let growth_bytes = end.resident_bytes as f64 - warm.resident_bytes as f64;
    let each_bytes = growth_bytes / (end.connections - warm.connections).max(1) as f64;
    let flat = each_bytes <= options.growth_max_bytes;
    println!(
        "{}: {each_bytes:.2} bytes a connection after the first {}, at most {} allowed",
        if flat { "flat" } else { "VIOLATION: grows" },
        warm.connections,
        options.growth_max_bytes,
    );
    flat
}
