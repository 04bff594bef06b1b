//! Signals as something that becomes readable.

use std::io::{self, ErrorKind, Read};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
// The signal handler's own: whatever the crate's atomics are made of, it may do no more than this.
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::net::{SendFlags, send};
use rustix::process::getpid;
use signal_hook::SigId;
use signal_hook::consts::FORBIDDEN;
use signal_hook::low_level::{register, unregister};

/// Watches for signals, instead of dying of them. A signal that the process ignores goes on being
/// ignored.
///
/// A pair of sockets and not a signalfd: that one needs the signals blocked in every thread of the
/// process, those of foreign libraries included.
///
/// A forked child has the handler and the sockets until it calls exec. There the handler does
/// nothing: this process would be told of a signal for the child.
///
/// After the drop the signals have no effect, rather than the deadly one of before.
#[derive(Debug)]
pub(crate) struct Signals {
    read: UnixStream,
    came: Raises,
    ids: Vec<SigId>,
}

/// What signals have come and were not taken.
#[derive(Clone, Debug)]
pub(crate) struct Raises {
    /// A bit for each.
    came: Arc<AtomicU64>,
    /// Those that are watched.
    watched: u64,
    /// Whether they are told of by this alone, and the system does not come into it.
    simulated: bool,
}

impl Raises {
    /// Notes that a signal has come. False: it is not watched.
    #[cfg(feature = "sim")]
    pub(crate) fn raise(&self, signal: i32) -> bool {
        let bit = bit(signal) & self.watched;
        self.came.fetch_or(bit, Ordering::Release);
        bit != 0
    }
}

/// A signal's bit.
fn bit(signal: i32) -> u64 {
    match signal {
        1..=64 => 1 << (signal - 1),
        _ => 0,
    }
}

impl Signals {
    /// Whether these are signals that a program may handle.
    ///
    /// # Errors
    /// `InvalidInput` for those that are not.
    pub(crate) fn check(signals: &[i32]) -> io::Result<()> {
        for &signal in signals {
            let refuse = |why: &str| {
                let text = format!("signal {signal} {why}");
                Err(io::Error::new(ErrorKind::InvalidInput, text))
            };
            if bit(signal) == 0 {
                return refuse("does not exist");
            }
            if FORBIDDEN.contains(&signal) || signal == libc::SIGBUS {
                return refuse("cannot be handled");
            }
            // Those between are the C library's own.
            if (32..libc::SIGRTMIN()).contains(&signal) {
                return refuse("is the system's");
            }
            if signal == libc::SIGURG {
                return refuse("is what cores tell each other by");
            }
        }
        Ok(())
    }

    /// Of these signals, which were checked.
    pub(crate) fn new(signals: &[i32], simulated: bool) -> io::Result<Signals> {
        let (read, write) = UnixStream::pair()?;
        read.set_nonblocking(true)?;
        let mut watched = Signals {
            read,
            came: Raises {
                came: Arc::default(),
                watched: 0,
                simulated,
            },
            ids: Vec::new(),
        };
        let process = getpid();
        for &signal in signals {
            watched.came.watched |= bit(signal);
            if simulated {
                continue;
            }
            // SIGINT is, if a shell without job control has started the process in the background.
            if is_ignored(signal) && signal != libc::SIGPIPE {
                continue;
            }
            let (write, came) = (write.try_clone()?, Arc::clone(&watched.came.came));
            let tell = move || {
                if getpid() == process {
                    came.fetch_or(bit(signal), Ordering::Release);
                    // If it is full, it is readable.
                    let _ = send(&write, b"X", SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
                }
            };
            // SAFETY: `tell` writes to an atomic and makes two system calls that a signal handler
            // may make, by a crate that makes them itself: nothing is allocated, locked or cached.
            watched.ids.push(unsafe { register(signal, tell) }?);
        }
        Ok(watched)
    }

    /// What raises them in a simulation.
    pub(crate) fn raises(&self) -> Raises {
        self.came.clone()
    }

    /// Those that came since last asked, each once, in the order of their numbers.
    pub(crate) fn take(&self) -> impl Iterator<Item = i32> + use<> {
        let mut any = self.came.simulated;
        loop {
            match (&self.read).read(&mut [0; 64]) {
                Ok(0) => break,
                Ok(_) => any = true,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // Empty: what it tells of was noted before it was written.
                Err(_) => break,
            }
        }
        let came = match any {
            true => self.came.came.swap(0, Ordering::Acquire),
            false => 0,
        };
        (1..=u64::BITS as i32).filter(move |&signal| came & bit(signal) != 0)
    }
}

impl AsFd for Signals {
    /// To be watched until it is readable.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.read.as_fd()
    }
}

/// Whether the process ignores a signal.
fn is_ignored(signal: i32) -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: the system is asked only, and `action` has room for the answer. Where there is none
    // it is zeroes, which are a `sigaction` as well: that of the default.
    let action = unsafe {
        libc::sigaction(signal, std::ptr::null(), action.as_mut_ptr());
        action.assume_init()
    };
    action.sa_sigaction == libc::SIG_IGN
}

impl Drop for Signals {
    fn drop(&mut self) {
        for &id in &self.ids {
            unregister(id);
        }
    }
}
