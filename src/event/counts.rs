//! How often each handler ran on a core, and how many of its events the core stole.
//!
//! Counted by runs: a core adds to a handler's counter when an event of another handler begins,
//! when it finds nothing more to run, and now and then in between; never for an event by itself.
//! The counters are the core's own, so adding is a load and a store on a line that no other core
//! writes.

use super::tag::{PROFILES_MAX, ProfileId};
use crate::memory::{self, Zeroed};
use crate::sync::relaxed::Counter;

/// The counters of one profile.
#[derive(Debug, Default)]
pub(crate) struct Count {
    pub(crate) events: Counter,
    pub(crate) stolen: Counter,
}

/// The counters of one core, by profile: written by its thread alone, read by anyone.
///
/// A flat table of zeroed memory, which the system provides page by page as profiles are used: a
/// server's events change their handler each time, and a table of two levels took more instructions
/// than the counting. (Not padded, though the neighbor in memory may be another core's: at its ends
/// are profiles that hardly any program has.)
#[derive(Debug)]
pub(crate) struct Counts(pub(crate) Box<[Count; PROFILES_MAX]>);

// SAFETY: two zero numbers.
unsafe impl Zeroed for Count {}

impl Counts {
    pub(crate) fn new() -> Counts {
        let counts = memory::zeroed(PROFILES_MAX).try_into();
        Counts(counts.expect("as many as asked for"))
    }

    /// Those of a profile: for the core's thread to add to, for others to read.
    #[inline]
    pub(crate) fn of(&self, profile: ProfileId) -> &Count {
        &self.0[profile.index()]
    }
}

/// Events of one handler that a core ran in a row.
#[derive(Debug, Default)]
pub(crate) struct Run {
    pub(crate) profile: ProfileId,
    /// How many events of the core came before, or are counted already.
    counted: u64,
}

impl Run {
    /// Counts those up to the `begun`-th event of the core.
    #[inline]
    pub(crate) fn count(&mut self, counts: &Counts, begun: u64) {
        let events = begun - std::mem::replace(&mut self.counted, begun);
        counts.of(self.profile).events.add(events);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_profile_has_its_own_counters() {
        let counts = Counts::new();
        let of = |place| counts.of(ProfileId::new(place).unwrap());
        let get = |place| (of(place).events.get(), of(place).stolen.get());
        let last = PROFILES_MAX - 1;
        for place in [0, 1, last - 1, last] {
            assert_eq!(get(place), (0, 0));
            of(place).events.add(place as u64 + 5);
            of(place).stolen.add(3);
            of(place).events.add(1);
            assert_eq!(get(place), (place as u64 + 6, 3));
        }
        assert_eq!(get(2), (0, 0), "its neighbors' are not its own");
        assert_eq!(ProfileId::new(PROFILES_MAX), None);
    }
}
