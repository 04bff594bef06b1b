//! The server as a child process.

use crate::program;
use rustix::process::{Pid, Signal, kill_process};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::sync::{Arc, Condvar, LazyLock, Mutex};
use std::thread;
use std::time::{Duration, Instant};

/// How long a server may take to say where it listens: another build may be using the machine.
const START_TIMEOUT: Duration = Duration::from_secs(30);
/// After this the kernel ends a server that a test has lost sight of.
const LIFE_SECONDS_MAX: u32 = 120;

/// Whether the kernel grants rings at all. Asked of the kernel and not of the program, so that a
/// program that fails to use them is not excused.
pub fn kernel_has_io_uring() -> bool {
    static HAS: LazyLock<bool> = LazyLock::new(ask_for_a_ring);
    *HAS
}

fn ask_for_a_ring() -> bool {
    let mut params = [0_u8; 120];
    // SAFETY: the parameters are 120 bytes, zeroed, as the call wants them.
    let fd = unsafe { libc::syscall(libc::SYS_io_uring_setup, 4, params.as_mut_ptr()) };
    if fd < 0 {
        let error = std::io::Error::last_os_error();
        eprintln!("skipped: the kernel refuses io_uring_setup: {error}");
        return false;
    }
    // SAFETY: made above, used nowhere else.
    unsafe { libc::close(fd as i32) };
    true
}

/// A server to be started.
pub struct Setup {
    command: Command,
    heard_once: bool,
}

impl Setup {
    /// A server on a backend, on a free port.
    pub fn new(backend: &str) -> Setup {
        Setup::bare().args(&["--listen", "127.0.0.1:0", "--backend", backend])
    }

    /// A server without any arguments.
    pub fn bare() -> Setup {
        Setup::of(program::sws())
    }

    /// What loads servers, without any arguments.
    pub fn injector() -> Setup {
        Setup::of(program::injector())
    }

    /// One that would load a server that is not there.
    pub fn injector_of_nobody() -> Setup {
        Setup::injector().args(&["--target", "127.0.0.1:9"])
    }

    fn of(program: &Path) -> Setup {
        let mut command = Command::new(program);
        command
            .env_remove("MELY_BACKEND")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        // SAFETY: only async-signal-safe system calls, between fork and exec. Both outlive exec.
        unsafe {
            command.pre_exec(|| {
                libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                libc::alarm(LIFE_SECONDS_MAX);
                Ok(())
            });
        }
        Setup {
            command,
            heard_once: false,
        }
    }

    pub fn args(mut self, args: &[&str]) -> Setup {
        self.command.args(args);
        self
    }

    pub fn root(mut self, root: &Path) -> Setup {
        self.command.arg("--root").arg(root);
        self
    }

    pub fn env(mut self, name: &str, value: &str) -> Setup {
        self.command.env(name, value);
        self
    }

    /// Gives the server another standard output than a pipe that is read to its end.
    pub fn stdout(mut self, to: Stdio) -> Setup {
        self.command.stdout(to);
        self
    }

    /// Gives it another standard error.
    pub fn stderr(mut self, to: Stdio) -> Setup {
        self.command.stderr(to);
        self
    }

    /// Its standard output has a reader until it has said where it listens.
    pub fn heard_once(mut self) -> Setup {
        self.heard_once = true;
        self
    }

    /// Has the server ignore a signal from the start, as nohup does.
    pub fn ignoring(mut self, signal: i32) -> Setup {
        // SAFETY: one async-signal-safe system call, between fork and exec.
        unsafe {
            self.command.pre_exec(move || {
                libc::signal(signal, libc::SIG_IGN);
                Ok(())
            });
        }
        self
    }

    /// Allows the server only so many descriptors, without a way back.
    pub fn files_max(mut self, files: u64) -> Setup {
        // SAFETY: one async-signal-safe system call, between fork and exec.
        unsafe {
            self.command.pre_exec(move || {
                let limit = libc::rlimit {
                    rlim_cur: files,
                    rlim_max: files,
                };
                match libc::setrlimit(libc::RLIMIT_NOFILE, &limit) {
                    0 => Ok(()),
                    _ => Err(std::io::Error::last_os_error()),
                }
            });
        }
        self
    }

    /// Has the kernel refuse these system calls, as a container's filter does.
    pub fn refusing(mut self, calls: &[i64]) -> Setup {
        let rules = calls.iter().map(|&call| (call, Vec::new())).collect();
        let eperm = SeccompAction::Errno(libc::EPERM as u32);
        let arch = std::env::consts::ARCH.try_into().unwrap();
        let filter = SeccompFilter::new(rules, SeccompAction::Allow, eperm, arch).unwrap();
        // Made before the fork: afterwards nothing may allocate.
        let program: BpfProgram = filter.try_into().unwrap();
        // SAFETY: system calls only, between fork and exec.
        unsafe {
            self.command.pre_exec(move || {
                seccompiler::apply_filter(&program)
                    .map_err(|_| std::io::Error::from_raw_os_error(libc::EINVAL))
            });
        }
        self
    }

    /// Starts it and waits until it listens.
    pub fn start(self) -> Server {
        match self.try_start() {
            Ok(server) => server,
            Err(exit) => panic!("the server does not listen: {exit:?}"),
        }
    }

    /// Runs it to its end, which comes before it listens.
    pub fn run(self) -> Exit {
        match self.try_start() {
            Ok(mut server) => panic!("it listens: {:?}", server.end(Signal::KILL)),
            Err(exit) => exit,
        }
    }

    /// Runs it for what it prints.
    pub fn output(mut self) -> Exit {
        let output = self.command.output().expect("the program can be started");
        let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
        Exit {
            code: output.status.code(),
            out: text(&output.stdout),
            err: text(&output.stderr),
        }
    }

    /// Starts it, unless it ends first.
    pub fn try_start(mut self) -> Result<Server, Exit> {
        let mut child = self.command.spawn().expect("the program can be started");
        let (send, lines) = channel();
        if let Some(out) = child.stdout.take() {
            let mut said = BufReader::new(out).lines().map_while(Result::ok);
            if self.heard_once {
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
}

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
            let mut text = self.text.lock().unwrap();
            text.0 += &String::from_utf8_lossy(&chunk[..read]);
            text.1 = read == 0;
            self.changed.notify_all();
            if read == 0 {
                return;
            }
        }
    }

    /// Waits for a line with `part` in it; `None` if there will be none.
    fn line(&self, part: &str) -> Option<String> {
        let mut text = self.text.lock().unwrap();
        loop {
            let whole = text.0.rfind('\n').map_or("", |end| &text.0[..end]);
            if let Some(line) = whole.lines().find(|line| line.contains(part)) {
                return Some(line.to_owned());
            }
            if text.1 {
                return None;
            }
            let waited = self.changed.wait_timeout(text, START_TIMEOUT).unwrap();
            assert!(!waited.1.timed_out(), "it does not say {part:?}");
            text = waited.0;
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
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// What it has said on its standard error so far.
    pub fn said(&self) -> String {
        self.heard.text.lock().unwrap().0.clone()
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
                eprintln!("the server said: {}", self.said());
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
