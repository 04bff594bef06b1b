//! A worker's event source, as the worker sees it.

use crate::sched::core::Core;
use crate::sched::shared::Bell;
use crate::sync::{Arc, Condvar, Mutex};

/// Where a core's completions come from, and what it sleeps on.
#[derive(Debug)]
pub(crate) enum Source {
    /// Nothing ever completes; sleeps on a condition variable. For models and for unit tests.
    #[allow(
        dead_code,
        reason = "the loom models and the scheduler's own tests construct it"
    )]
    Null(Arc<NullBell>),
    /// The models', which completes what a model's thread says.
    #[cfg(loom)]
    Wire(Arc<crate::model::Wire>),
    /// The network.
    #[cfg(not(loom))]
    Net(Box<crate::net::Driver>),
}

impl Source {
    /// Turns completions into posts.
    #[inline]
    pub(crate) fn reap(&mut self, core: &mut Core) {
        match self {
            Source::Null(_) => {
                let _ = core;
            }
            #[cfg(loom)]
            Source::Wire(wire) => wire.reap(core),
            #[cfg(not(loom))]
            Source::Net(driver) => driver.reap(core),
        }
    }

    /// Whether `reap` would do something, as far as can be known without a system call.
    pub(crate) fn has_work(&self) -> bool {
        match self {
            Source::Null(_) => false,
            #[cfg(loom)]
            Source::Wire(wire) => wire.has_work(),
            #[cfg(not(loom))]
            Source::Net(driver) => driver.has_work(),
        }
    }

    /// When `reap` will have something to do though nothing completes.
    #[cfg(feature = "sim")]
    pub(crate) fn next_ns(&mut self) -> Option<u64> {
        match self {
            Source::Null(_) => None,
            Source::Net(driver) => driver.next_ns(),
        }
    }

    /// Blocks until there is something to do.
    pub(crate) fn wait(&mut self, core: &Core) {
        match self {
            Source::Null(bell) => {
                let _ = core;
                bell.wait();
            }
            #[cfg(loom)]
            Source::Wire(wire) => wire.wait(&core.clock),
            #[cfg(not(loom))]
            Source::Net(driver) => driver.wait(core.clock.now_ns()),
        }
    }

    /// The network's driver, if there is a network.
    #[cfg(not(loom))]
    pub(crate) fn driver(&mut self) -> Option<&mut crate::net::Driver> {
        match self {
            Source::Null(_) => None,
            Source::Net(driver) => Some(driver),
        }
    }

    /// The runtime ends: cancels what waits for the world.
    pub(crate) fn begin_drain(&mut self, core: &mut Core) {
        match self {
            Source::Null(_) => {
                let _ = core;
            }
            #[cfg(loom)]
            Source::Wire(_) => {}
            #[cfg(not(loom))]
            Source::Net(driver) => driver.begin_drain(core),
        }
    }

    /// Whether nothing is under way that will still become an event.
    pub(crate) fn is_quiet(&self) -> bool {
        match self {
            Source::Null(_) => true,
            #[cfg(loom)]
            Source::Wire(wire) => wire.is_quiet(),
            #[cfg(not(loom))]
            Source::Net(driver) => driver.is_quiet(),
        }
    }
}

/// A doorbell without an event source.
#[derive(Debug)]
pub(crate) struct NullBell {
    rung: Mutex<bool>,
    changed: Condvar,
}

#[allow(dead_code, reason = "see `Source::Null`")]
impl NullBell {
    pub(crate) fn new() -> Arc<NullBell> {
        Arc::new(NullBell {
            rung: Mutex::new(false),
            changed: Condvar::new(),
        })
    }

    fn wait(&self) {
        let mut rung = self.rung.lock().unwrap();
        while !*rung {
            rung = self.changed.wait(rung).unwrap();
        }
        *rung = false;
    }
}

impl Bell for Arc<NullBell> {
    fn ring(&self) {
        *self.rung.lock().unwrap() = true;
        self.changed.notify_one();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::sched::clock::Clock;
    use crate::{Cores, Runtime};
    use std::time::Instant;

    /// Else a core would find its doorbell rung for ever, and never sleep.
    #[test]
    fn a_wait_uses_up_the_ring() {
        let runtime = Runtime::builder().cores(Cores::Count(1)).build().unwrap();
        let shared = Arc::clone(&runtime.inner.shared);
        let core = Core::new(shared, 0, Clock::Real(Instant::now()));
        let bell = NullBell::new();
        let mut source = Source::Null(Arc::clone(&bell));
        for _ in 0..2 {
            bell.ring();
            source.wait(&core);
            assert!(!*bell.rung.lock().unwrap());
        }
    }
}
