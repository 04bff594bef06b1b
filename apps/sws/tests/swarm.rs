//! Many clients that are quick: each asks, reads the answer, compares it with the file, asks again.

use crate::client::{PATIENCE, frame};
use crate::site::{Page, Site};
use rustix::event::{Timespec, epoll};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// When a client has asked enough.
#[derive(Clone, Copy)]
pub enum Until<'a> {
    /// After this many answers.
    Answers(u64),
    /// When all have had enough, or after [`PATIENCE`].
    Each(&'a Enough),
    /// When the server closes, which it may do between answers once `may` is set.
    Closed {
        may: &'a AtomicBool,
        enough: &'a Enough,
    },
}

/// How many clients have had this many answers. A busy machine lets some wait for seconds, and
/// nothing can be said of clients that hardly had the time to ask.
#[derive(Debug)]
pub struct Enough {
    answers: u64,
    clients: AtomicUsize,
}

impl Enough {
    pub fn answers(answers: u64) -> Enough {
        Enough {
            answers,
            clients: AtomicUsize::new(0),
        }
    }

    fn have(&self, clients: usize) -> bool {
        self.clients.load(Ordering::Relaxed) >= clients
    }

    /// Waits until this many clients have had enough.
    pub fn wait_for(&self, clients: usize) {
        let deadline = Instant::now() + PATIENCE;
        while !self.have(clients) {
            assert!(Instant::now() < deadline, "{self:?} of {clients}");
            thread::sleep(Duration::from_millis(1));
        }
    }
}

/// What clients do.
#[derive(Clone, Copy)]
pub struct Swarm<'a> {
    pub addr: SocketAddr,
    pub site: &'a Site,
    pub clients: usize,
    /// Requests that are sent before the first answer has come.
    pub depth: usize,
    pub until: Until<'a>,
    pub began: Instant,
}

/// What came of it.
#[derive(Debug, Default)]
pub struct Tally {
    /// Whole and right answers, by client.
    pub answers: Vec<u64>,
    pub latencies: Vec<Duration>,
    pub took: Duration,
    /// What went wrong, a sentence each.
    pub faults: Vec<String>,
}

impl Tally {
    pub fn total(&self) -> u64 {
        self.answers.iter().sum()
    }

    /// For people: what this machine did. Tests do not judge it.
    pub fn print(&mut self, what: &str) {
        self.latencies.sort_unstable();
        let at = |share: f64| {
            let index = (self.latencies.len() as f64 * share) as usize;
            self.latencies.get(index).copied().unwrap_or_default()
        };
        println!(
            "{what}: {} answers in {:.2?}, {:.0} a second, median {:.2?}, p99 {:.2?}, longest {:.2?}",
            self.total(),
            self.took,
            self.total() as f64 / self.took.as_secs_f64(),
            at(0.5),
            at(0.99),
            self.latencies.last().copied().unwrap_or_default(),
        );
    }

    pub fn assert_faultless(&self) {
        let (count, first) = (self.faults.len(), self.faults.first());
        assert_eq!(count, 0, "{first:?}");
    }
}

/// Two are enough to keep a server busy that has two cores, and leave it some of the machine.
const THREADS: usize = 2;

impl Swarm<'_> {
    pub fn run(self) -> Tally {
        let mut tally = Tally::default();
        thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS)
                .map(|thread| scope.spawn(move || self.run_share(thread)))
                .collect();
            for thread in threads {
                let share = thread.join().expect("clients do not panic");
                tally.answers.extend(share.answers);
                tally.latencies.extend(share.latencies);
                tally.faults.extend(share.faults);
            }
        });
        tally.took = self.began.elapsed();
        tally
    }

    fn run_share(self, thread: usize) -> Tally {
        let poll = epoll::create(epoll::CreateFlags::CLOEXEC).expect("epoll");
        let mut tally = Tally::default();
        let mut members = Vec::new();
        for number in (thread..self.clients).step_by(THREADS) {
            match TcpStream::connect_timeout(&self.addr, PATIENCE) {
                Ok(stream) => {
                    stream.set_nonblocking(true).unwrap();
                    stream.set_nodelay(true).unwrap();
                    let data = epoll::EventData::new_u64(members.len() as u64);
                    epoll::add(&poll, &stream, data, epoll::EventFlags::IN).unwrap();
                    members.push(Member::new(stream, number));
                }
                Err(error) => tally.faults.push(format!("client {number}: {error}")),
            }
        }
        for member in &mut members {
            member.ask(&self);
        }
        let mut open = members.iter().filter(|member| member.open).count();
        let mut events = Vec::with_capacity(256);
        let second = Timespec {
            tv_sec: 1,
            tv_nsec: 0,
        };
        let mut progress = Instant::now();
        while open > 0 {
            events.clear();
            match epoll::wait(
                &poll,
                rustix::buffer::spare_capacity(&mut events),
                Some(&second),
            ) {
                Ok(0) if progress.elapsed() > PATIENCE => {
                    tally
                        .faults
                        .push(format!("{open} clients wait for answers"));
                    break;
                }
                Ok(0) => continue,
                Ok(_) => progress = Instant::now(),
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => panic!("epoll: {error}"),
            }
            for event in &events {
                let member = &mut members[event.data.u64() as usize];
                if member.open {
                    member.readable(&self, &mut tally.latencies);
                    open -= usize::from(!member.open);
                }
            }
        }
        for member in members {
            tally.answers.push(member.answered);
            tally.faults.extend(member.fault);
        }
        tally
    }

    fn page(&self, client: usize, request: u64) -> &Page {
        // Neighbors begin with different files and go through them in the same order.
        let pages = &self.site.pages;
        &pages[(client + request as usize) % pages.len()]
    }

    fn wants_more(&self, asked: u64) -> bool {
        match self.until {
            Until::Answers(most) => asked < most,
            Until::Each(enough) => !enough.have(self.clients) && self.began.elapsed() < PATIENCE,
            Until::Closed { .. } => true,
        }
    }

    /// A client has had its `answered`-th answer.
    fn has_answered(&self, answered: u64) {
        if let Until::Each(enough) | Until::Closed { enough, .. } = self.until
            && answered == enough.answers
        {
            enough.clients.fetch_add(1, Ordering::Relaxed);
        }
    }
}

struct Member {
    stream: TcpStream,
    number: usize,
    asked: u64,
    answered: u64,
    asked_at: Instant,
    input: Vec<u8>,
    open: bool,
    fault: Option<String>,
}

impl Member {
    fn new(stream: TcpStream, number: usize) -> Member {
        Member {
            stream,
            number,
            asked: 0,
            answered: 0,
            asked_at: Instant::now(),
            input: Vec::new(),
            open: true,
            fault: None,
        }
    }

    fn fail(&mut self, what: String) {
        self.fault = Some(format!("client {}: {what}", self.number));
        self.open = false;
    }

    /// Sends the next requests, if all answers are here.
    fn ask(&mut self, swarm: &Swarm<'_>) {
        if self.answered < self.asked {
            return;
        }
        let mut requests = String::new();
        for _ in 0..swarm.depth {
            if swarm.wants_more(self.asked) {
                let path = &swarm.page(self.number, self.asked).path;
                requests += &format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n");
                self.asked += 1;
            }
        }
        if requests.is_empty() {
            self.open = false;
            return;
        }
        self.asked_at = Instant::now();
        match self.stream.write(requests.as_bytes()) {
            Ok(bytes) if bytes == requests.len() => {}
            Ok(bytes) => self.fail(format!("only {bytes} bytes of a request were taken")),
            // How it ended is seen when reading.
            Err(error) if is_end(&error) => {}
            Err(error) => self.fail(format!("a request was not taken: {error}")),
        }
    }

    fn readable(&mut self, swarm: &Swarm<'_>, latencies: &mut Vec<Duration>) {
        let mut chunk = [0; 65_536];
        match self.stream.read(&mut chunk) {
            Ok(0) => self.ended(swarm),
            Ok(bytes) => {
                self.input.extend_from_slice(&chunk[..bytes]);
                self.take_answers(swarm, latencies);
            }
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(error) if is_end(&error) => self.ended(swarm),
            Err(error) => self.fail(error.to_string()),
        }
    }

    fn take_answers(&mut self, swarm: &Swarm<'_>, latencies: &mut Vec<Duration>) {
        while self.answered < self.asked {
            let Some((head_bytes, end)) = frame(&self.input, false) else {
                return;
            };
            if self.input.len() < end {
                return;
            }
            let page = swarm.page(self.number, self.answered);
            if !self.input.starts_with(b"HTTP/1.1 200 ") || self.input[head_bytes..end] != page.body
            {
                let head = String::from_utf8_lossy(&self.input[..head_bytes]).into_owned();
                return self.fail(format!("wrong answer for {}: {head:?}", page.path));
            }
            self.input.drain(..end);
            self.answered += 1;
            swarm.has_answered(self.answered);
            latencies.push(self.asked_at.elapsed());
        }
        if self.input.is_empty() {
            self.ask(swarm);
        } else {
            self.fail("an answer that nobody asked for".to_owned());
        }
    }

    fn ended(&mut self, swarm: &Swarm<'_>) {
        let may = matches!(swarm.until, Until::Closed { may, .. } if may.load(Ordering::Acquire));
        if may && self.input.is_empty() {
            self.open = false;
            // The server waits for that, having been polite.
            let _ = self.stream.shutdown(Shutdown::Both);
            return;
        }
        let bytes = self.input.len();
        self.fail(format!("closed after {bytes} bytes of an answer"));
    }
}

fn is_end(error: &std::io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::ConnectionReset | ErrorKind::BrokenPipe
    )
}
