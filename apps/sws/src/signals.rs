//! A second signal that asks to stop ends the process, whatever it is doing; SIGHUP asks as well.
//! One that is ignored from the start is nothing: SIGHUP under nohup, SIGINT where a shell without
//! job control has started the server in the background.
//!
//! The first SIGINT or SIGTERM is an event of the runtime's. What is here is beside that, in the
//! signal's own handler: the second one shall help when events do not run any more.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::low_level;

/// Signals that come so soon after the first are the same wish: `timeout` of the GNU coreutils
/// sends each twice, to the process and to its group.
const SAME_NS: u64 = 100_000_000;
/// What is said then, as bytes: nothing can be put together in a signal handler.
const LAST_WORDS: &[u8] = b"sws: asked to stop again: ends at once\n";

/// When the first signal came, on the monotonic clock; 0: none came.
static FIRST_NS: AtomicU64 = AtomicU64::new(0);

/// Has second signals end the process, and SIGHUP ask to stop. To be called when the runtime
/// listens to SIGINT and SIGTERM: before, these kill, as they should.
///
/// # Errors
/// If the system refuses.
pub(crate) fn install() -> io::Result<()> {
    for signal in [SIGINT, SIGTERM] {
        // Nor does the runtime listen to it.
        if is_ignored(signal) {
            continue;
        }
        // SAFETY: `asked` is safe in a signal handler, see there.
        unsafe { low_level::register(signal, move || asked(signal)) }?;
    }
    if !is_ignored(SIGHUP) {
        let hang_up = || {
            asked(SIGHUP);
            // Which the runtime takes for what it is told.
            let _ = low_level::raise(SIGTERM);
        };
        // SAFETY: `asked` is safe in a signal handler, and so is raising another signal.
        unsafe { low_level::register(SIGHUP, hang_up) }?;
    }
    Ok(())
}

/// Ends the process if this is not the first time. Only does what a signal handler may: reads a
/// clock, changes an atomic, writes to a descriptor, exits without running anything.
fn asked(signal: i32) {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: it writes a `timespec`, which `time` is, and keeps nothing.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    let now_ns = (time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64).max(1);
    let first = FIRST_NS.compare_exchange(0, now_ns, Ordering::Relaxed, Ordering::Relaxed);
    if first.is_err_and(|first_ns| now_ns.saturating_sub(first_ns) > SAME_NS) {
        say_why();
        low_level::exit(128 + signal);
    }
}

/// If standard error takes it at once: a pipe that nobody reads must not keep the process.
fn say_why() {
    let mut polled = libc::pollfd {
        fd: libc::STDERR_FILENO,
        events: libc::POLLOUT,
        revents: 0,
    };
    // SAFETY: one `pollfd`, which `polled` is.
    if unsafe { libc::poll(&raw mut polled, 1, 0) } == 1 {
        let (text, bytes) = (LAST_WORDS.as_ptr(), LAST_WORDS.len());
        // SAFETY: that many bytes are there, as long as the program.
        unsafe { libc::write(libc::STDERR_FILENO, text.cast(), bytes) };
    }
}

fn is_ignored(signal: i32) -> bool {
    let mut action = std::mem::MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: asks only; `action` is a `sigaction` for the answer.
    let failed = unsafe { libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr()) };
    // SAFETY: zeroes are a `sigaction`, and what the system writes is one.
    failed == 0 && unsafe { action.assume_init() }.sa_sigaction == libc::SIG_IGN
}
