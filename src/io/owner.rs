//! Who closes a descriptor where no backend is at hand.

use std::os::fd::{FromRawFd, OwnedFd};

use super::{Fd, SimNet};

/// Whose descriptors the numbers of a backend are.
#[derive(Clone, Debug)]
pub(crate) enum Owner {
    /// The process's.
    Kernel,
    /// The simulated network's.
    Sim(SimNet),
}

impl Owner {
    /// Closes a descriptor from anywhere. No operation is under way on it, and it is the caller's: given
    /// by an accept, a connect or a listen of this owner's, and not closed since.
    pub(crate) fn close(&self, fd: Fd) {
        match self {
            Owner::Kernel => {
                debug_assert!(fd.raw() >= 0, "{fd:?} is not a descriptor");
                // SAFETY: the caller owns the descriptor and gives it up.
                drop(unsafe { OwnedFd::from_raw_fd(fd.raw()) });
            }
            Owner::Sim(net) => net.close(fd),
        }
    }
}
