//! Who closes a descriptor where no backend is at hand.

use super::{Fd, SimNet, socket};

/// Whose descriptors the numbers of a backend are.
#[derive(Clone, Debug)]
pub(crate) enum Owner {
    /// The process's.
    Kernel,
    /// The simulated network's.
    Sim(SimNet),
}

impl Owner {
    /// Closes a descriptor from anywhere. No operation is under way on it, and it is the caller's:
    /// given by an accept, a connect or a listen of this owner's, and not closed since.
    pub(crate) fn close(&self, fd: Fd) {
        match self {
            Owner::Kernel => socket::close(fd),
            Owner::Sim(net) => net.close(fd),
        }
    }
}
