//! How often each handler ran on a core, and how many of its events the core stole.
//!
//! Counted by runs: a core adds to a handler's counter when an event of another handler begins, when it
//! finds nothing more to run, and now and then in between; never for an event by itself. The counters are the core's own, so
//! adding is a load and a store on a line that no other core writes.

use super::profile::PROFILES_MAX;
use crate::sync::relaxed::{Counter, OnceLock};
use crossbeam_utils::CachePadded;

/// Profiles whose counters are allocated at once: most programs have fewer.
const CHUNK: usize = 64;

/// The counters of one profile.
#[derive(Debug, Default)]
pub(crate) struct Count {
    pub(crate) events: Counter,
    pub(crate) stolen: Counter,
}

/// Padded, because the neighbor in memory may be another core's chunk.
type Chunk = CachePadded<[Count; CHUNK]>;

/// The counters of one core, by profile: written by its thread alone, read by anyone.
#[derive(Debug)]
pub(crate) struct Counts([OnceLock<Box<Chunk>>; PROFILES_MAX / CHUNK]);

impl Counts {
    pub(crate) fn new() -> Counts {
        Counts(std::array::from_fn(|_| OnceLock::new()))
    }

    /// To add to. By the core's thread.
    #[inline]
    pub(crate) fn of(&self, profile: u32) -> &Count {
        let index = profile as usize % PROFILES_MAX;
        let chunk = &self.0[index / CHUNK];
        let chunk = match chunk.get() {
            Some(chunk) => chunk,
            None => Counts::begin(chunk),
        };
        &chunk[index % CHUNK]
    }

    #[cold]
    fn begin(chunk: &OnceLock<Box<Chunk>>) -> &Chunk {
        chunk.get_or_init(|| Box::new(CachePadded::new(std::array::from_fn(|_| Count::default()))))
    }

    /// Events run and events stolen so far.
    pub(crate) fn get(&self, profile: u32) -> (u64, u64) {
        let index = profile as usize % PROFILES_MAX;
        let chunk = self.0[index / CHUNK].get();
        chunk.map_or((0, 0), |chunk| {
            let count = &chunk[index % CHUNK];
            (count.events.get(), count.stolen.get())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_profile_has_its_own_counters() {
        let counts = Counts::new();
        let last = PROFILES_MAX as u32 - 1;
        for profile in [0, 1, last - 1, last] {
            assert_eq!(counts.get(profile), (0, 0));
            counts.of(profile).events.add(u64::from(profile) + 5);
            counts.of(profile).stolen.add(3);
            counts.of(profile).events.add(1);
            assert_eq!(counts.get(profile), (u64::from(profile) + 6, 3));
        }
        assert_eq!(
            counts.get(2),
            (0, 0),
            "its neighbors are not counted for it"
        );
        assert_eq!(counts.0.iter().filter(|c| c.get().is_some()).count(), 2);
    }
}
