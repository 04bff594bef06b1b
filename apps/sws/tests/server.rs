//! The server as a child process.

use rustix::process::{Pid, Signal, kill_process};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::process::{Child, Command};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How long a server may take to say where it listens: another build may be using the machine.
const START_TIMEOUT: Duration = Duration::from_secs(30);

/// What a server has said on its standard error so far.
#[derive(Default)]
struct Heard {
    /// The text, and whether there will be no more.
    text: Mutex<(String, bool)>,
    changed: Condvar,
}

impl Heard {
    fn listen(&self, mut err: impl Read) {
        let mut chunk = [0; 4096];
        loop {
            let read = err.read(&mut chunk).unwrap_or(0);
            let mut text = self.text();
            text.0 += &String::from_utf8_lossy(&chunk[..read]);
            text.1 = read == 0;
            self.changed.notify_all();
            if read == 0 {
                return;
            }
        }
    }

    /// Also after a panic of a thread that had it: a test that fails wants to know, and asks for it
    /// in a destructor, where a second panic would end all tests.
    fn text(&self) -> MutexGuard<'_, (String, bool)> {
        self.text.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn said(&self) -> String {
        self.text().0.clone()
    }

    /// Waits for a line with `part` in it; `None` if there will be none.
    fn line(&self, part: &str) -> Option<String> {
        let mut text = self.text();
        loop {
            let whole = text.0.rfind('\n').map_or("", |end| &text.0[..end]);
            if let Some(line) = whole.lines().find(|line| line.contains(part)) {
                return Some(line.to_owned());
            }
            if text.1 {
                return None;
            }
            let waited = self.changed.wait_timeout(text, START_TIMEOUT);
            let waited = waited.unwrap_or_else(PoisonError::into_inner);
            let timed_out = waited.1.timed_out();
            text = waited.0;
            if timed_out {
                // The lock is needed to tell what it has said instead.
                drop(text);
                panic!("it does not say {part:?}");
            }
        }
    }
}

/// A server that listens. It is killed with its owner.
pub struct Server {
    child: Child,
    lines: Receiver<String>,
    heard: Arc<Heard>,
    listener: Option<thread::JoinHandle<()>>,
    addr: SocketAddr,
    exited: bool,
}

impl Server {
    /// Starts a program and waits until it listens, unless it ends first. `heard_once`: its
    /// standard output has a reader until then.
    pub fn start(mut command: Command, heard_once: bool) -> Result<Server, Exit> {
        let mut child = command.spawn().expect("the program can be started");
        let (send, lines) = channel();
        if let Some(out) = child.stdout.take() {
            let mut said = BufReader::new(out).lines().map_while(Result::ok);
            if heard_once {
                // Gone when this returns, and not a little later.
                said.next().map(|line| send.send(line));
                drop(said);
            } else {
                thread::spawn(move || said.all(|line| send.send(line).is_ok()));
            }
        } else {
            drop(send);
        }
        let heard = Arc::new(Heard::default());
        let listener = child.stderr.take().map(|err| {
            let heard = Arc::clone(&heard);
            thread::spawn(move || heard.listen(err))
        });
        let mut server = Server {
            child,
            lines,
            heard,
            listener,
            addr: SocketAddr::from(([0, 0, 0, 0], 0)),
            exited: false,
        };
        let line = match server.lines.recv_timeout(START_TIMEOUT) {
            Ok(line) => line,
            // Said on the other output, if this one is gone from the start.
            Err(RecvTimeoutError::Disconnected) => match server.heard.line("listening on ") {
                Some(line) => line,
                None => return Err(server.wait(String::new())),
            },
            Err(RecvTimeoutError::Timeout) => panic!("the server says nothing"),
        };
        let addr = line.split_once("listening on ");
        let (_, addr) = addr.unwrap_or_else(|| panic!("the first line is {line:?}"));
        let end = addr.find([';', ' ']).unwrap_or(addr.len());
        server.addr = addr[..end].parse().expect("an address");
        Ok(server)
    }

    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// What it has said on its standard error so far.
    pub fn said(&self) -> String {
        self.heard.said()
    }

    /// Waits until it says something on its standard error; the line.
    pub fn says(&self, part: &str) -> String {
        let line = self.heard.line(part);
        line.unwrap_or_else(|| panic!("it ended without {part:?}: {}", self.said()))
    }

    fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).expect("the server lives");
    }

    /// Sends a signal and waits for the end.
    pub fn end(&mut self, signal: Signal) -> Exit {
        self.signal(signal);
        self.wait_for_end()
    }

    /// Asks it to stop as a service manager does; its summary.
    pub fn stop(mut self) -> Summary {
        self.end(Signal::TERM).summary()
    }

    pub fn wait_for_end(&mut self) -> Exit {
        let mut out = String::new();
        // Its output ends when it does.
        let deadline = Instant::now() + START_TIMEOUT;
        loop {
            match self
                .lines
                .recv_timeout(deadline.saturating_duration_since(Instant::now()))
            {
                Ok(line) => out = out + &line + "\n",
                Err(RecvTimeoutError::Disconnected) => return self.wait(out),
                Err(RecvTimeoutError::Timeout) => panic!("the server does not end"),
            }
        }
    }

    fn wait(&mut self, out: String) -> Exit {
        let status = self.child.wait().expect("it is our child");
        self.exited = true;
        if let Some(listener) = self.listener.take() {
            listener.join().expect("it only reads");
        }
        Exit {
            code: status.code(),
            out,
            err: self.said(),
        }
    }

    /// How many descriptors it has open.
    pub fn descriptors(&self) -> usize {
        let path = format!("/proc/{}/fd", self.child.id());
        std::fs::read_dir(path).expect("the server lives").count()
    }

    /// How many it has open when nobody is connected: those who have left may still be on their way
    /// out, so it has to stay the same for a while.
    pub fn descriptors_at_rest(&self) -> usize {
        let deadline = Instant::now() + START_TIMEOUT;
        let (mut count, mut since) = (self.descriptors(), Instant::now());
        while since.elapsed() < Duration::from_millis(100) {
            thread::sleep(Duration::from_millis(5));
            let now = self.descriptors();
            if now != count {
                (count, since) = (now, Instant::now());
            }
            assert!(Instant::now() < deadline, "it never rests");
        }
        count
    }

    /// Its memory, in KiB.
    pub fn rss_kib(&self) -> u64 {
        let path = format!("/proc/{}/status", self.child.id());
        let status = std::fs::read_to_string(path).expect("the server lives");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let number = line.and_then(|line| line.split_whitespace().next());
        number.and_then(|n| n.parse().ok()).expect("VmRSS: N kB")
    }

    /// Waits until no more descriptors are open than `most`.
    pub fn settles_at(&self, most: usize, within: Duration) {
        let deadline = Instant::now() + within;
        loop {
            let now = self.descriptors();
            if now <= most {
                return;
            }
            assert!(
                Instant::now() < deadline,
                "{now} descriptors are open, {most} were at the start"
            );
            thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if !self.exited {
            let _ = self.child.kill();
            let _ = self.child.wait();
            if thread::panicking() {
                if let Some(listener) = self.listener.take() {
                    let _ = listener.join();
                }
                let said = self.said();
                // Not by a macro that panics if standard error is gone.
                let _ = writeln!(std::io::stderr(), "the server said: {said}");
            }
        }
    }
}

/// How a server ended.
#[derive(Debug)]
pub struct Exit {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Exit {
    /// The summary of a server that ended well.
    pub fn summary(self) -> Summary {
        self.summary_with(0)
    }

    /// The summary of one that ended with this code.
    pub fn summary_with(self, code: i32) -> Summary {
        assert_eq!(self.code, Some(code), "{self:?}");
        Summary { text: self.out }
    }
}

/// What a server prints at its end.
#[derive(Debug)]
pub struct Summary {
    pub text: String,
}

impl Summary {
    fn line(&self, name: &str) -> &str {
        let mut lines = self.text.lines();
        let line = lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        line.unwrap_or_else(|| panic!("no {name:?} in {}", self.text))
    }

    pub fn requests(&self) -> u64 {
        self.line("requests").parse().expect("a number")
    }

    pub fn backend(&self) -> &str {
        self.line("backend")
    }

    /// Accepted, rejected, still open.
    pub fn connections(&self) -> [u64; 3] {
        let mut numbers = self.line("connections").split(", ").map(|part| {
            let number = part.split(' ').next().expect("a word");
            number.parse().expect("a number")
        });
        [(); 3].map(|()| numbers.next().expect("three numbers"))
    }

    /// Steals that brought something, at all distances.
    pub fn steals(&self) -> u64 {
        let lines = self.text.lines();
        let of = |line: &str| {
            let (_, counts) = line.strip_prefix("steals at ")?.split_once(": ")?;
            let (won, _) = counts.split_once(" of ")?;
            won.replace(',', "").parse::<u64>().ok()
        };
        lines.filter_map(of).sum()
    }
}

#[test]
fn the_words_of_a_server_can_be_asked_for_after_a_panic() {
    let heard = Arc::new(Heard::default());
    heard.listen(&b"its words\n"[..]);
    let its = Arc::clone(&heard);
    let panics = thread::spawn(move || {
        let _text = its.text.lock();
        panic!("planted");
    });
    assert!(panics.join().is_err() && heard.text.is_poisoned());
    assert_eq!(heard.said(), "its words\n");
}
