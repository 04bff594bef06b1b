//! Signals: what the process is told by others.

use std::fmt;

/// A signal, by its number on this system. See [`Cx::on_signal`](crate::Cx::on_signal).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Signal(i32);

impl Signal {
    /// The terminal is gone; by convention, to a service: read the configuration anew.
    pub const HUP: Signal = Signal(libc::SIGHUP);
    /// Ctrl-C.
    pub const INT: Signal = Signal(libc::SIGINT);
    /// Ctrl-\.
    pub const QUIT: Signal = Signal(libc::SIGQUIT);
    /// To end at once; cannot be handled, so it is for children.
    pub const KILL: Signal = Signal(libc::SIGKILL);
    /// For the program's own purposes.
    pub const USR1: Signal = Signal(libc::SIGUSR1);
    /// For the program's own purposes.
    pub const USR2: Signal = Signal(libc::SIGUSR2);
    /// To end, from whoever manages services.
    pub const TERM: Signal = Signal(libc::SIGTERM);
    /// A child has ended or stopped.
    pub const CHLD: Signal = Signal(libc::SIGCHLD);
    /// To go on after a stop.
    pub const CONT: Signal = Signal(libc::SIGCONT);
    /// The terminal's size has changed.
    pub const WINCH: Signal = Signal(libc::SIGWINCH);

    /// Its number.
    pub const fn number(self) -> i32 {
        self.0
    }
}

impl From<i32> for Signal {
    /// The signal of a number, whether there is one or not.
    fn from(number: i32) -> Signal {
        Signal(number)
    }
}

impl fmt::Display for Signal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match signal_hook::low_level::signal_name(self.0) {
            Some(name) => f.write_str(name),
            None => write!(f, "signal {}", self.0),
        }
    }
}
