//! Wakes a core that sleeps in its backend.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{EventfdFlags, eventfd};

use crate::sync::Arc;
use crate::sync::atomic::{AtomicBool, Ordering};

/// Makes the current or the next `wait` of one backend return. From any thread, at any time, also
/// when the backend is gone: then it does nothing.
///
/// Costs one system call, so the layer above rings only for a core that said it is going to sleep.
#[derive(Clone, Debug)]
pub(crate) struct Doorbell(BellKind);

#[derive(Clone, Debug)]
enum BellKind {
    /// Nobody ever reads the counter: the backends watch for the *edge* that each write makes, and
    /// 2^64 rings are more than there will be. That saves a read for each wake-up.
    Eventfd(Arc<OwnedFd>),
    /// The simulator's `wait` never sleeps; the flag is there so that tests can see the ring.
    Flag(Arc<AtomicBool>),
}

impl Doorbell {
    pub(super) fn eventfd() -> io::Result<Doorbell> {
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Doorbell(BellKind::Eventfd(Arc::new(fd))))
    }

    pub(super) fn flag() -> Doorbell {
        Doorbell(BellKind::Flag(Arc::new(AtomicBool::new(false))))
    }

    /// Rings. Many rings before the core looks are one.
    pub(crate) fn ring(&self) {
        match &self.0 {
            BellKind::Eventfd(fd) => {
                // The only failure possible is a full counter, and then it is still ringing.
                let _ = rustix::io::write(fd, &1u64.to_ne_bytes());
            }
            BellKind::Flag(flag) => {
                flag.swap(true, Ordering::AcqRel);
            }
        }
    }

    /// What the backend watches; `None` in the simulator.
    pub(super) fn watched(&self) -> Option<BorrowedFd<'_>> {
        match &self.0 {
            BellKind::Eventfd(fd) => Some(fd.as_fd()),
            BellKind::Flag(_) => None,
        }
    }

    /// Whether it was rung since last asked; the simulator only.
    pub(super) fn take_flag(&self) -> bool {
        match &self.0 {
            BellKind::Eventfd(_) => false,
            BellKind::Flag(flag) => flag.swap(false, Ordering::AcqRel),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_child_process_inherits_it() {
        use rustix::io::{FdFlags, fcntl_getfd};
        let doorbell = Doorbell::eventfd().unwrap();
        let flags = fcntl_getfd(doorbell.watched().unwrap()).unwrap();
        assert!(flags.contains(FdFlags::CLOEXEC));
    }
}
