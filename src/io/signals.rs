//! Signals as something that becomes readable.

use std::io::{self, ErrorKind, Read};
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;

use rustix::net::{SendFlags, send};
use rustix::process::getpid;
use signal_hook::SigId;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::low_level::{register, unregister};

use super::Fd;

/// Watches for signals that ask the process to stop, instead of dying of them. A signal that the
/// process ignores goes on being ignored.
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
    ids: Vec<SigId>,
}

impl Signals {
    /// Interrupt (from the terminal) and terminate (from whoever manages services).
    pub(crate) fn to_stop() -> io::Result<Signals> {
        let (read, write) = UnixStream::pair()?;
        read.set_nonblocking(true)?;
        let mut signals = Signals {
            read,
            ids: Vec::new(),
        };
        let watched = getpid();
        for signal in [SIGINT, SIGTERM] {
            // SIGINT is, if a shell without job control has started the process in the background.
            if is_ignored(signal) {
                continue;
            }
            let write = write.try_clone()?;
            let tell = move || {
                if getpid() == watched {
                    // If it is full, it is readable.
                    let _ = send(&write, b"X", SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
                }
            };
            // SAFETY: `tell` makes two system calls that a signal handler may make, by a crate that
            // makes them itself: nothing is allocated, locked or cached.
            signals.ids.push(unsafe { register(signal, tell) }?);
        }
        Ok(signals)
    }

    /// Signals that are sent by writing, for tests.
    #[cfg(test)]
    pub(crate) fn written() -> io::Result<(Signals, UnixStream)> {
        let (read, write) = UnixStream::pair()?;
        read.set_nonblocking(true)?;
        let ids = Vec::new();
        Ok((Signals { read, ids }, write))
    }

    /// To be watched with `readable`.
    pub(crate) fn fd(&self) -> Fd {
        Fd::from_raw(self.read.as_raw_fd())
    }

    /// Whether one came since last asked.
    pub(crate) fn take(&self) -> io::Result<bool> {
        let mut came = false;
        loop {
            match (&self.read).read(&mut [0; 64]) {
                Ok(0) => return Ok(came),
                Ok(_) => came = true,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(came),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
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
