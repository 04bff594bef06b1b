//! How many cores work: the first ones, by their numbers. The others are *retired*.
//!
//! A retired core keeps its thread, its event source and its control color, and nothing else. What
//! it owns it passes on to the cores that work; it takes nothing from others, and nobody wakes it
//! to. Its ring still receives for the connections that are at home there, and its timers fire;
//! what they post runs elsewhere.
//!
//! ```text
//!             the number falls to this core's, or below
//!    working ------------------------------------------> retired
//!            <------------------------------------------
//!             the number rises above it
//! ```
//!
//! **The number changes** by one swap, whoever makes it; of several, the last one in the order of
//! that word holds. Whoever has changed it asks every core to look up, and then wakes all. A core
//! that is awake looks at the word between two quanta, because it is asked to look up; one that
//! slept, when it rises. Who is asked looks by a read-modify-write, so what it sees is at least as
//! new as the change that it was asked for. Who rises looks plainly: if it misses a change, it has
//! the question before it. (All cores share this word, and rise often.) From then on a core goes by
//! what it has seen, until it looks again: within a step it is one or the other.
//!
//! **None sleeps through a change.** A core that goes to sleep (1) parks; (2) fences; (3) looks at
//! the word once more. Who changes the number (1) swaps; (2) fences; (3) looks for parked cores. So
//! either the core sees the change and stays, or it is seen parked and is woken.
//!
//! **A post knows nothing of all this.** A color's owner may be retired: the poke goes there as to
//! any other owner and wakes it, and its next critical section passes the color on, the mail with
//! it, as a color that was placed elsewhere goes ([`crate::shared::queue::wish`]). From then on the
//! color has another owner. A color that nobody posts to stays where it is.
//!
//! What can never happen: a step of a retired core that begins an event which is not of its control
//! color, or takes a color from another core; a retired core among the sleepers; no core that
//! works.

use crate::color::CoreId;
use crate::rejected::Reason;
use crate::shared::Shared;
use crate::sync::atomic::{AtomicU32, Ordering};
use crate::sync::fault;

/// See the module text.
#[derive(Debug)]
pub(crate) struct Working(AtomicU32);

impl Working {
    pub(crate) fn all(cores: usize) -> Working {
        Working(AtomicU32::new(cores as u32))
    }

    /// How many cores work.
    pub(crate) fn count(&self) -> u32 {
        self.0.load(Ordering::Acquire)
    }

    /// The same, no older than what the caller was told of.
    pub(crate) fn latest(&self) -> u32 {
        self.0.fetch_or(0, Ordering::AcqRel)
    }

    /// Has this many work. True if that is another number than before.
    pub(crate) fn set(&self, cores: usize) -> bool {
        self.0.swap(cores as u32, Ordering::AcqRel) != cores as u32
    }

    /// The core that has what a core of this number, or a color of a slot of this number, would
    /// have if all worked.
    pub(crate) fn core_for(&self, number: u32) -> CoreId {
        CoreId::of((number % self.count()) as usize)
    }
}

/// Has this number of cores work; see
/// [`Poster::set_working_cores`](crate::Poster::set_working_cores).
pub(crate) fn set_working(shared: &Shared, cores: usize) -> Result<(), Reason> {
    let all = shared.cores.len();
    if cores == 0 || cores > all {
        return Err(Reason::WorkingCores { asked: cores, all });
    }
    if shared.working.set(cores) {
        for core in &shared.cores {
            core.progress.ask_to_look_up();
        }
        if !fault("nobody woken to work") {
            shared.wake_all();
        }
    }
    Ok(())
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn what_a_retired_core_would_have_goes_to_those_that_work() {
        let working = Working::all(4);
        let cores = |working: &Working| [0, 1, 2, 3, 6].map(|it| working.core_for(it).index());
        assert_eq!(cores(&working), [0, 1, 2, 3, 2]);
        assert!(working.set(3) && !working.set(3));
        assert_eq!(cores(&working), [0, 1, 2, 0, 0]);
        assert_eq!((working.count(), working.latest()), (3, 3));
    }
}
