//! Following the processors that the process may use, if the builder asks for it.
//!
//! How many there are is what the standard library finds: the affinity mask of the calling thread,
//! which is the one that called `run` and is not pinned, and the CPU quota of the process's control
//! group and of those above it. The mask and the quota change without a word to the process, so
//! that thread looks every [`PERIOD`]. A look reads some small files; a core pays nothing for it.

use std::thread::available_parallelism;
use std::time::{Duration, Instant};

/// From one look to the next. Who changes a quota thinks in seconds, and a look takes some tens of
/// microseconds.
const PERIOD: Duration = Duration::from_secs(1);

/// See the module text.
#[derive(Debug)]
pub(super) struct Processors {
    looks_at: Instant,
    /// How many there were at the last look.
    seen: Option<usize>,
}

impl Processors {
    /// Looks first at this moment.
    pub(super) fn new(now: Instant) -> Processors {
        Processors {
            looks_at: now,
            seen: None,
        }
    }

    /// How long until the next look.
    pub(super) fn next_look(&self, now: Instant) -> Duration {
        self.looks_at.saturating_duration_since(now)
    }

    /// How many of a runtime's cores are to work from now on, if that is another number than at the
    /// last look: so a number that somebody has set stays until the processors change.
    pub(super) fn look(&mut self, now: Instant, cores: usize) -> Option<usize> {
        // What cannot be read now is as it was.
        self.look_with(now, cores, || Some(available_parallelism().ok()?.get()))
    }

    fn look_with(
        &mut self,
        now: Instant,
        cores: usize,
        available: impl FnOnce() -> Option<usize>,
    ) -> Option<usize> {
        if now < self.looks_at {
            return None;
        }
        self.looks_at = now + PERIOD;
        let working = available()?.clamp(1, cores);
        (self.seen.replace(working) != Some(working)).then_some(working)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_are_a_period_apart() {
        let begin = Instant::now();
        let mut processors = Processors::new(begin);
        assert_eq!(processors.next_look(begin), Duration::ZERO);
        assert_eq!(processors.look_with(begin, 8, || Some(3)), Some(3));
        assert_eq!(processors.next_look(begin), PERIOD);
        let early = begin + PERIOD - Duration::from_nanos(1);
        assert_eq!(
            processors.look_with(early, 8, || unreachable!("early")),
            None
        );
        assert_eq!(processors.look_with(begin + PERIOD, 8, || Some(2)), Some(2));
        assert_eq!(processors.next_look(begin + PERIOD), PERIOD);
    }

    #[test]
    fn a_change_is_told_once_and_what_is_unknown_is_none() {
        let mut now = Instant::now();
        let mut processors = Processors::new(now);
        let mut look = |available| {
            let told = processors.look_with(now, 4, || available);
            now += PERIOD;
            told
        };
        let looks = [Some(2), Some(2), None, Some(2), Some(9), Some(4), Some(0)];
        let told = [Some(2), None, None, None, Some(4), None, Some(1)];
        assert_eq!(looks.map(&mut look), told);
    }
}
