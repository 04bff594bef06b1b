//! Kicks: how another thread has the owner of a ring enter it, while that computes.
//!
//! The kernel puts completions into a deferred ring's queue when the thread that made the ring
//! enters it, and takes submissions from that thread only. While the thread is in a long handler
//! others see that there are some, in a flag, and cannot get at them. A *kick* is a signal to that
//! thread, whose handler enters the ring: some 15 us of the owner's time, and 20 until the entries
//! are there. The signal is SIGURG, whose default is to be ignored: so Go preempts. A handler that
//! the program had before is called as well. If it installs one later, or blocks the signal, nobody
//! is kicked, and completions wait for the owner.
//!
//! The visitor that kicks has the lock of the source ([`crate::host::sources`]), so the owner is
//! not at its queues meanwhile. If the signal comes late, the owner may be there: it then finds
//! some entries submitted before it gets to that, which is as good. A signal that nobody has sent
//! here enters in vain.
//!
//! The kernel does not restart some calls of the user's that block: poll, nanosleep, sockets with a
//! timeout. A kick ends these with EINTR. (std's functions for sleeping try again.)

use std::cell::Cell;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::ptr;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use io_uring::IoUring;
use signal_hook::low_level::register;

use super::super::Fd;
use crate::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use crate::sync::{Arc, charge};

/// From one kick of a core to the next.
const PERIOD: Duration = Duration::from_micros(100);
/// For how long the entries are waited for. A thread that has no processor comes later, and tells
/// the lookout when it does.
const WAIT_MAX: Duration = Duration::from_micros(100);

/// What came of a kick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kicked {
    /// The owner has entered the ring.
    Entered,
    /// It was kicked just now.
    TooSoon,
    /// It has no processor, and tells the lookout when it has entered.
    UnderWay,
    /// It cannot be kicked.
    Never,
}

/// Who kicks the thread that made a ring.
#[derive(Debug)]
pub(super) struct Kick {
    entry: Arc<Entry>,
    thread: libc::pthread_t,
    last: Option<Instant>,
    works: bool,
}

/// What the handler needs.
#[derive(Debug)]
struct Entry {
    ring: RawFd,
    /// Not a child's of its.
    process: libc::pid_t,
    /// Submissions that the handler hands over. No more than there are: the kernel would not look
    /// at completions.
    submissions: AtomicU32,
    /// How many kicks there were, and how many of them the handler has answered.
    asked: AtomicU32,
    answered: AtomicU32,
    /// Nobody waits for the last one any more: the handler is to tell.
    tells: AtomicBool,
    /// The eventfd that it then writes to.
    told: AtomicU32,
}

std::thread_local! {
    /// Of the last ring that this thread has made.
    static ENTRY: Cell<*const Entry> = const { Cell::new(ptr::null()) };
}

impl Kick {
    /// Of a ring that this thread makes. Nobody is kicked before it [begins](Self::begin).
    pub(super) fn new(ring: &IoUring) -> Kick {
        let entry = Arc::new(Entry {
            ring: ring.as_raw_fd(),
            process: rustix::process::getpid().as_raw_nonzero().get(),
            submissions: AtomicU32::new(0),
            asked: AtomicU32::new(0),
            answered: AtomicU32::new(0),
            tells: AtomicBool::new(false),
            told: AtomicU32::new(0),
        });
        Kick {
            entry,
            // SAFETY: it has no preconditions.
            thread: unsafe { libc::pthread_self() },
            last: None,
            works: false,
        }
    }

    /// From now on the owner, whose thread this is, may be kicked. It writes to `eventfd` when it
    /// answers late.
    pub(super) fn begin(&mut self, eventfd: BorrowedFd<'_>) {
        let told = eventfd.as_raw_fd() as u32;
        self.entry.told.store(told, Ordering::Release);
        ENTRY.set(Arc::as_ptr(&self.entry));
        self.works = install();
    }

    /// Has the owner enter its ring, in whose queue there are this many submissions, and waits for
    /// that. Called with the lock of the source, which its owner gives up before its thread ends.
    pub(super) fn kick(&mut self, submissions: usize) -> Kicked {
        if !self.works {
            return Kicked::Never;
        }
        if self.is_under_way() {
            return Kicked::UnderWay;
        }
        let now = Instant::now();
        if self.last.is_some_and(|last| now - last < PERIOD) {
            return Kicked::TooSoon;
        }
        self.last = Some(now);
        let entry = &*self.entry;
        entry
            .submissions
            .store(submissions as u32, Ordering::Relaxed);
        entry.asked.fetch_add(1, Ordering::Release);
        // SAFETY: the thread has not ended: it takes its source away before it does, under the lock
        // that the caller has.
        if unsafe { libc::pthread_kill(self.thread, libc::SIGURG) } != 0 {
            self.works = false;
            return Kicked::Never;
        }
        while !entry.is_answered() {
            if now.elapsed() > WAIT_MAX {
                return match self.is_under_way() {
                    true => Kicked::UnderWay,
                    false => Kicked::Entered,
                };
            }
            charge::pause();
        }
        Kicked::Entered
    }

    /// Whether the owner was kicked and has not answered yet. If so, it tells when it does.
    pub(super) fn is_under_way(&self) -> bool {
        if self.entry.is_answered() {
            return false;
        }
        // The handler answers first and looks then, so one of the two sees the other.
        self.entry.tells.store(true, Ordering::SeqCst);
        !self.entry.is_answered()
    }

    pub(super) fn can(&self) -> bool {
        self.works
    }
}

impl Drop for Kick {
    fn drop(&mut self) {
        if ENTRY.get() == Arc::as_ptr(&self.entry) {
            ENTRY.set(ptr::null());
        }
    }
}

impl Entry {
    fn is_answered(&self) -> bool {
        self.answered.load(Ordering::SeqCst) == self.asked.load(Ordering::Relaxed)
    }

    /// In the handler.
    fn answer(&self) {
        let asked = self.asked.load(Ordering::Acquire);
        let submissions = self.submissions.swap(0, Ordering::Relaxed);
        // SAFETY: the descriptor is the ring's, which is closed after its kick is dropped. The
        // kernel takes complete submissions only, by the queue's tail, and is given no memory.
        unsafe {
            libc::syscall(
                libc::SYS_io_uring_enter,
                self.ring,
                submissions,
                0_u32,
                io_uring::EnterFlags::GETEVENTS.bits(),
                ptr::null::<libc::sigset_t>(),
                0_usize,
            );
        }
        self.answered.store(asked, Ordering::SeqCst);
        if self.tells.swap(false, Ordering::SeqCst) {
            let told = Fd::from_raw(self.told.load(Ordering::Acquire) as RawFd);
            // It is there as long as the ring is.
            let _ = rustix::io::write(told.borrow(), &1_u64.to_ne_bytes());
        }
    }
}

/// Only what may be done inside a signal handler: reads of this thread's memory and system calls.
fn on_kick() {
    let entry = ENTRY.get();
    if entry.is_null() {
        return;
    }
    // SAFETY: `errno` is this thread's. It has set the entry in `Kick::begin`, and that one's drop,
    // which is on this thread too (`Uring`, by the contract of `EventSource`), takes it back before
    // it gives up its reference. It is shared with who kicks, and all that changes is atomic.
    unsafe {
        let errno = *libc::__errno_location();
        let entry = &*entry;
        if libc::getpid() == entry.process {
            entry.answer();
        }
        *libc::__errno_location() = errno;
    }
}

/// Adds the handler to the process's, once, and lets the signal through to this thread, which may
/// have been started with it blocked. False: it is refused.
fn install() -> bool {
    static INSTALLED: OnceLock<bool> = OnceLock::new();
    // SAFETY: `on_kick` does only what is allowed in a handler.
    let install = || unsafe { register(libc::SIGURG, on_kick) }.is_ok();
    let mut set = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: `set` is written by the first call and read by the last.
    let unblock = || unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), libc::SIGURG);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, set.as_ptr(), ptr::null_mut()) == 0
    };
    *INSTALLED.get_or_init(install) && { unblock }()
}
