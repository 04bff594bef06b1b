//! A server to be started: what it is given, and what is withheld from it.

use crate::server::{Exit, Server};
use rustix::process::Signal;
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::LazyLock;

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
        let error = io::Error::last_os_error();
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
        // The clients are this process's, a thousand in some tests. If fewer are allowed, these fail.
        let _ = mely::net::raise_open_file_limit();
        let mut command = Command::new(env!("CARGO_BIN_EXE_sws"));
        command
            .env_remove("MELY_BACKEND")
            .env_remove("RUST_MIN_STACK")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        // SAFETY: only async-signal-safe system calls, between fork and exec. What they do outlives
        // exec. `signal` fails for two signals, which nothing ignores.
        unsafe {
            command.pre_exec(|| {
                // Whatever the tests were started with: nohup has them ignore SIGHUP.
                (1..32).for_each(|signal| {
                    libc::signal(signal, libc::SIG_DFL);
                });
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

    /// Allows the server only this many descriptors, without a way back. None of them is taken by
    /// what the tests themselves were started with.
    pub fn files_max(mut self, files: u64) -> Setup {
        // SAFETY: async-signal-safe system calls only, between fork and exec.
        unsafe {
            self.command.pre_exec(move || {
                let (first, last, close_on_exec) =
                    (3, libc::c_uint::MAX, libc::CLOSE_RANGE_CLOEXEC);
                if libc::close_range(first, last, close_on_exec as libc::c_int) != 0 {
                    return Err(io::Error::last_os_error());
                }
                let limit = libc::rlimit {
                    rlim_cur: files,
                    rlim_max: files,
                };
                match libc::setrlimit(libc::RLIMIT_NOFILE, &limit) {
                    0 => Ok(()),
                    _ => Err(io::Error::last_os_error()),
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
                    .map_err(|_| io::Error::from_raw_os_error(libc::EINVAL))
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
    pub fn try_start(self) -> Result<Server, Exit> {
        Server::start(self.command, self.heard_once)
    }
}
