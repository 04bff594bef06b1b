//! The event sources of the cores, each behind a lock of its core.
//!
//! What has completed for a core is seen by whoever looks at its source. If that were its own
//! thread only, all of it would wait while the core is inside an event, and other cores idle. So a
//! source is *open*:
//!
//! **Who has the lock.** The owner, from when it looks until what it has found is published, and
//! inside an event for single calls, which start an operation or set a timer. (While it sleeps on
//! the source, it has taken it away.) No code of the user's runs under it, so inside an event the
//! lock is free. Then a core that idles *visits* the source
//! ([`Worker::visit_others`](super::worker::Worker::visit_others)): it tries the lock, brings out
//! some of what has completed, and posts that as its own.
//!
//! **Watching.** If a core begins an event of [some length](crate::shared::idle::lookout) while
//! another sleeps, it has its source watched. A core that goes to sleep has the sources of those
//! watched that are in such events. If something comes, a sleeper is woken to visit.
//!
//! **Order.** A core publishes what it has found before it lets go of the lock, so later bytes of a
//! connection come behind earlier ones. A visitor's posts may lie in the mailbox of a color that
//! runs. So an event of that color does not append to its own color what it posts for the source,
//! but posts it behind the mailbox ([`Core::post_home`](crate::sched::core::Core::post_home)).
//!
//! **The end.** After the end was asked for, nobody visits: each core cancels what its source waits
//! for, and counts that it has. A core *rests* if nothing is under way at its source. Until it runs
//! something again, nobody visits that source, since nobody would count what begins there. A core
//! that leaves takes its source with it: the kernel wants a ring given up where it was made.
//!
//! What can never happen: two threads at one source; bytes of one connection out of order; somebody
//! who waits for a lock whose holder sleeps.

use super::inner::Inner;
use super::source::Source;
use crate::color::CoreId;
use crate::shared::idle::lookout::{Lookout, Watched};
use crate::sync::Arc;
use crate::sync::lock::{CoreLock, Guard};
use crossbeam_utils::CachePadded;
use std::sync::Weak;

/// See the module text.
#[derive(Debug)]
pub(crate) struct Sources(Box<[CachePadded<CoreLock<Open>>]>);

/// A core's source, for who has its lock.
#[derive(Debug, Default)]
pub(crate) struct Open {
    /// None before its core begins, while that sleeps on it, and once it has left.
    pub(super) source: Option<Box<dyn Source>>,
    /// Its core counts as one that rests.
    pub(super) rests: bool,
}

impl Sources {
    pub(crate) fn of(cores: usize) -> Sources {
        let none = |_| CachePadded::new(CoreLock::new(Open::default()));
        Sources((0..cores).map(none).collect())
    }

    /// Takes the lock of a core's source. By its owner, or where its owner is in no step.
    #[inline]
    pub(crate) fn lock(&self, core: CoreId) -> Guard<'_, Open> {
        self.0[core.index()].lock()
    }

    /// The source of a core that is inside an event, for another core.
    pub(crate) fn try_visit(&self, core: CoreId) -> Result<Guard<'_, Open>, Closed> {
        let Some(open) = self.0[core.index()].try_lock() else {
            return Err(Closed::ForNow);
        };
        if open.rests || open.source.is_none() {
            return Err(Closed::ToOthers);
        }
        Ok(open)
    }
}

/// Why a source cannot be visited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Closed {
    /// Somebody is there, for a moment.
    ForNow,
    /// Its core sleeps on it, or rests, or has left.
    ToOthers,
}

impl Open {
    /// # Panics
    /// If the core has not begun, or has left.
    #[inline]
    pub(crate) fn source(&mut self) -> &mut dyn Source {
        &mut **self.source.as_mut().expect("its core has it")
    }
}

/// Has sources of this runtime watched.
#[derive(Debug)]
pub(crate) struct Watches(pub(crate) Weak<Inner>);

impl Lookout for Watches {
    fn watch(&self, core: CoreId, waits: bool) -> Watched {
        // After the end was asked for nobody visits.
        let inner = self.0.upgrade().filter(|inner| !inner.is_stopping());
        let Some(inner) = inner else {
            return Watched::Yes;
        };
        let lock = &inner.sources.0[core.index()];
        let open = if waits {
            Some(lock.lock())
        } else {
            lock.try_lock()
        };
        let Some(mut open) = open else {
            return Watched::Later;
        };
        match open.source.is_some() && open.source().watch() {
            true => Watched::IsThere,
            false => Watched::Yes,
        }
    }
}

/// Whose drop takes the source away and drops it, on the thread of its core.
#[derive(Debug)]
pub(super) struct Installed(pub(super) Arc<Inner>, pub(super) CoreId);

impl Drop for Installed {
    fn drop(&mut self) {
        let source = self.0.sources.lock(self.1).source.take();
        // With the lock free: it takes its time.
        drop(source);
    }
}
