//! When the watchdog looks.
//!
//! The watchdog ([`crate::host::watchdog`]) looks at the cores every
//! [`Builder::watch_period`](crate::Builder::watch_period). It sleeps while no core is *busy*; and
//! a core is not busy for its first moments after a sleep: in a server with little to do, few cores
//! stay awake for longer. Until then the core watches itself: it takes the time of each of its
//! events, and looks up after one that was long. It becomes busy once it has been awake for longer,
//! or if anything waits behind what it runs: because while that runs, only another could notice. If
//! the watchdog is to tell of long handlers
//! ([`Builder::on_slow_handler`](crate::Builder::on_slow_handler)), a core is busy as soon as it
//! wakes.
//!
//! To become busy and to sleep are one of the protocols in [`super`].

use crate::shared::CoreShared;
use crate::sync::atomic::{AtomicBool, Ordering, fence};
use crate::sync::{Arc, fault};

/// See the module text.
#[derive(Debug)]
pub(crate) struct Vigil {
    asleep: AtomicBool,
    /// A core is busy as soon as it is awake.
    pub(crate) at_once: bool,
}

impl Vigil {
    pub(crate) fn new(at_once: bool) -> Vigil {
        Vigil {
            asleep: AtomicBool::new(false),
            at_once,
        }
    }

    /// This core is busy. True: the caller must call the watchdog.
    #[must_use]
    pub(crate) fn begin_busy(&self, core: &CoreShared) -> bool {
        core.busy.store(true, Ordering::Relaxed);
        if !fault("busy core's fence skipped") {
            fence(Ordering::SeqCst);
        }
        self.asleep.load(Ordering::Relaxed) && self.asleep.swap(false, Ordering::AcqRel)
    }

    /// This core goes to sleep.
    pub(crate) fn end_busy(&self, core: &CoreShared) {
        core.busy.store(false, Ordering::Relaxed);
    }

    /// Whether any of these is busy.
    pub(crate) fn any_busy(&self, cores: &[Arc<CoreShared>]) -> bool {
        cores.iter().any(|core| core.busy.load(Ordering::Relaxed))
    }

    /// The watchdog announces that it will sleep until a core calls it. False: one of these is
    /// busy. Under the lock that the call takes too, so that the call cannot come before the sleep.
    #[must_use]
    pub(crate) fn falls_asleep(&self, cores: &[Arc<CoreShared>]) -> bool {
        self.asleep.store(true, Ordering::Relaxed);
        if !fault("watchdog's fence skipped") {
            fence(Ordering::SeqCst);
        }
        let sleeps = !self.any_busy(cores);
        if !sleeps {
            self.wakes();
        }
        sleeps
    }

    /// The watchdog is awake.
    pub(crate) fn wakes(&self) {
        self.asleep.store(false, Ordering::Relaxed);
    }
}
