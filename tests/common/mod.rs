//! What the tests of the public face share.
#![allow(dead_code, reason = "each test file takes what it needs")]
#![allow(
    unreachable_pub,
    missing_docs,
    reason = "a module of each test program"
)]
#![allow(missing_debug_implementations, reason = "of no use in tests")]

pub mod calls;
pub mod wire;

use mely::net::{Backend, SimNet};
use mely::runtime::OnPanic;
use mely::topology::Topology;
use mely::{Builder, RunError, Runtime};
use std::os::unix::process::CommandExt;
use std::process::{Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::time::{Duration, Instant};

/// Longer than anything here takes on a machine that is busy with something else: what is waited
/// for comes at once or never.
pub const LONG: Duration = Duration::from_secs(30);

/// A builder with this many cores, also on a machine with fewer processors. An assertion that fails
/// in a handler ends the run.
pub fn cores(n: usize) -> Builder {
    let builder = Runtime::builder().on_panic(OnPanic::Stop).cores(n);
    if !cfg!(miri) {
        let fit = std::thread::available_parallelism().is_ok_and(|of| n <= of.get());
        return if fit { builder } else { builder.pin(false) };
    }
    // Miri has no kernel, and thinks long about each slot of the table.
    builder
        .topology(Topology::flat(n).unwrap())
        .pin(false)
        .backend(Backend::Sim(SimNet::new(0)))
        .color_slots(64)
        // Miri is some thousand times as slow.
        .drain_deadline(Duration::from_secs(600))
}

/// Ends the process if a test hangs: a runtime that does not end would otherwise hang the suite,
/// and say nothing.
pub struct Bound {
    _alive: Sender<()>,
}

impl Bound {
    pub fn new(what: &'static str) -> Bound {
        let (alive, gone) = channel();
        if cfg!(miri) {
            // Its time is not ours: whoever runs it bounds it.
            return Bound { _alive: alive };
        }
        std::thread::spawn(move || {
            if gone.recv_timeout(2 * LONG) == Err(RecvTimeoutError::Timeout) {
                eprintln!("{what}: hangs");
                std::process::abort();
            }
        });
        Bound { _alive: alive }
    }
}

/// Waits for a condition, and fails if it does not come.
pub fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !condition() {
        assert!(begun.elapsed() < LONG, "{what}: has not come");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Counts how many of its [`Payload`]s are alive.
#[derive(Clone, Default)]
pub struct Alive(Arc<AtomicU64>);

impl Alive {
    pub fn payload(&self) -> Payload {
        self.0.fetch_add(1, Ordering::Relaxed);
        Payload(self.clone())
    }

    pub fn count(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }
}

pub struct Payload(Alive);

impl Drop for Payload {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Release);
    }
}

/// The kernel's backends that this machine has: containers often refuse io_uring.
pub fn backends() -> Vec<Backend> {
    let all = [Backend::IoUring, Backend::Epoll];
    let has = |choice: &Backend| match cores(1)
        .backend(choice.clone())
        .build()
        .unwrap()
        .run(|cx| cx.stop())
    {
        Ok(()) => true,
        Err(RunError::Start(error)) => {
            eprintln!("left out: {error}");
            false
        }
        Err(error) => panic!("{error}"),
    };
    let has: Vec<_> = all.into_iter().filter(has).collect();
    assert!(!has.is_empty());
    has
}

/// Runs an ignored test of the calling test program in a process of its own.
pub fn child(test: &str, variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", test, "--ignored", "--nocapture"])
        // What the suite was told to run on is not what a child is to be told, unless it says so.
        .env_remove("MELY_BACKEND")
        .envs(variables.iter().copied())
        .stdin(Stdio::null());
    undisturbed(&mut command).output().unwrap()
}

/// Has a program to be started ignore no signal, whatever this one ignores: SIGHUP under nohup,
/// SIGINT in the background of a script.
pub fn undisturbed(command: &mut Command) -> &mut Command {
    // SAFETY: system calls that are allowed between fork and exec. They fail for two signals, which
    // nothing ignores.
    unsafe {
        command.pre_exec(|| {
            (1..32).for_each(|signal| {
                libc::signal(signal, libc::SIG_DFL);
            });
            Ok(())
        })
    }
}

/// Runs such a test and insists that it passes.
pub fn child_passes(test: &str, variables: &[(&str, &str)]) {
    let output = child(test, variables);
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{test} {variables:?}: {text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

/// Descriptors that this process has open. Meaningful only in a process of its own.
pub fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}
