//! Signals as something that becomes readable.

use std::io::{self, ErrorKind, Read};
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;

use signal_hook::SigId;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::low_level::{pipe, unregister};

use super::Fd;

/// Watches for signals that ask the process to stop, instead of dying of them.
///
/// A pair of sockets and not a signalfd: that one needs the signals blocked in every thread of the
/// process, those of foreign libraries included.
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
        for signal in [SIGINT, SIGTERM] {
            signals
                .ids
                .push(pipe::register(signal, write.try_clone()?)?);
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

impl Drop for Signals {
    fn drop(&mut self) {
        for &id in &self.ids {
            unregister(id);
        }
    }
}
