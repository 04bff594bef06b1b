//! Who is told of what comes to the event source of a core that is inside an event.
//!
//! A core that idles sleeps. While it does, the source of a core in an event that takes as long as
//! a wake-up and a steal together, several times
//! ([`WATCHED_NS`](crate::policy::numbers::WATCHED_NS)), is *watched*: by a thread that sleeps in
//! the kernel until something comes, and then wakes a core that sleeps, to
//! [visit](crate::host::sources) that source.
//!
//! **To begin such an event**, a core (1) says so; (2) fences; (3) has its source watched, if
//! another core sleeps. **To sleep**, a core (1) joins those that sleep; (2) fences; (3) has the
//! sources of cores in such events watched. Each fence is between the own word and the look at the
//! other's, so at least one of the two sees to it. A source in which something is already is seen
//! at once. An event that was thought shorter is found by the watchdog; and where that sleeps, of a
//! core that has just woken ([`super::vigil`]), each event is taken for such a one.
//!
//! A source that was seen is not watched any more, until one of these has it watched again, or who
//! visits it does, if yet another core sleeps. Who was woken to visit and has something long to run
//! instead wakes another.

use super::{Why, notify};
use crate::color::CoreId;
use crate::shared::Shared;
use crate::sync::atomic::{Ordering, fence};
use crate::sync::fault;
use std::fmt::Debug;

/// What came of having a source watched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Watched {
    /// From now on somebody is told; or nobody can be.
    Yes,
    /// Something is there, or due.
    IsThere,
    /// Somebody is at that source: it is to be tried again.
    Later,
}

/// Watches sources.
pub(crate) trait Lookout: Debug + Send + Sync {
    /// Watches a core's source until something has come, or is due, there. `waits`: for whoever is
    /// at that source, as only its own core does.
    fn watch(&self, core: CoreId, waits: bool) -> Watched;
}

impl Shared {
    fn watch(&self, core: CoreId, waits: bool) -> Watched {
        let lookout = self.idle.lookout.get();
        lookout.map_or(Watched::Yes, |lookout| lookout.watch(core, waits))
    }

    /// A core begins an event in which its source is to be watched, and has said so. `passes_on`:
    /// it may have been woken to visit, and has something to run instead.
    #[inline(never)]
    pub(crate) fn begin_watched(&self, core: CoreId, passes_on: bool) {
        if !fault("watched core's fence skipped") {
            fence(Ordering::SeqCst);
        }
        if !self.idle.sleepers.any() {
            return;
        }
        // Whoever was told of that before is about to visit.
        if self.watch(core, true) == Watched::IsThere && !self.idle.to_visit.contains(core) {
            self.seen(core);
        }
        if passes_on && self.idle.to_visit.any() {
            let all = (0..self.cores.len()).map(CoreId::of);
            all.filter(|&other| other != core && self.idle.to_visit.contains(other))
                .for_each(|other| self.seen(other));
        }
    }

    /// The watchdog has found a core in such an event.
    pub(crate) fn stays_watched(&self, core: CoreId) {
        if self.idle.sleepers.any() && self.watch(core, false) == Watched::IsThere {
            self.seen(core);
        }
    }

    /// This core goes to sleep, and has said so, with a fence behind. False: it is not to sleep
    /// yet.
    pub(crate) fn watch_others(&self, core: CoreId) -> bool {
        let mut sleeps = true;
        for &(other, _) in &self.core(core).victims {
            if self.core(other).progress.is_watched() {
                let watched = self.watch(other, false);
                if watched == Watched::IsThere {
                    self.idle.to_visit.set(other);
                }
                sleeps &= watched == Watched::Yes;
            }
        }
        sleeps
    }

    /// Something has come to the source of a core: unless the core is to see that itself, has one
    /// that sleeps visit it.
    pub(crate) fn seen(&self, core: CoreId) {
        self.idle.to_visit.set(core);
        let mut bells = Vec::new();
        notify(self, core, Why::Source, &mut bells);
        self.idle.bells.ring_all(&bells);
    }
}
