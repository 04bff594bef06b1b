//! How many answers a core has given, by status, and how many in the last second.

use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

use crate::status::Status;

/// One core's counts. Only that core writes, so nothing needs to be added atomically.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    answers: [AtomicU64; Status::ALL.len()],
    /// The second of the last answer, on the monotonic clock.
    second: AtomicU64,
    /// Answers before that second.
    before: AtomicU64,
    /// Answers in the second before that.
    last: AtomicU64,
}

impl Tally {
    /// Counts an answer that is given in this second.
    pub(crate) fn count(&self, status: Status, second: u64) {
        if second != self.second.load(Relaxed) {
            self.turn(second);
        }
        let count = &self.answers[status as usize];
        count.store(count.load(Relaxed) + 1, Relaxed);
    }

    #[cold]
    fn turn(&self, second: u64) {
        let before = self.sum();
        let last = match self.second.load(Relaxed) + 1 == second {
            true => before - self.before.load(Relaxed),
            false => 0,
        };
        self.last.store(last, Relaxed);
        self.before.store(before, Relaxed);
        self.second.store(second, Relaxed);
    }

    /// How many answers of this status there were.
    pub(crate) fn of(&self, status: Status) -> u64 {
        self.answers[status as usize].load(Relaxed)
    }

    /// How many answers there were.
    pub(crate) fn sum(&self) -> u64 {
        Status::ALL.into_iter().map(|status| self.of(status)).sum()
    }

    /// How many were given in the second before this one. Asked on another core it may be off by
    /// what happens meanwhile.
    pub(crate) fn in_second_before(&self, second: u64) -> u64 {
        match second.saturating_sub(self.second.load(Relaxed)) {
            0 => self.last.load(Relaxed),
            1 => self.sum().saturating_sub(self.before.load(Relaxed)),
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_counted_by_status_and_by_second() {
        let tally = Tally::default();
        for _ in 0..5 {
            tally.count(Status::Ok, 100);
        }
        tally.count(Status::NotFound, 100);
        assert_eq!((tally.of(Status::Ok), tally.sum()), (5, 6));
        assert_eq!(tally.in_second_before(100), 0);
        // A second without any answer is not seen by who answers, and told all the same.
        assert_eq!(tally.in_second_before(101), 6);
        assert_eq!(tally.in_second_before(102), 0);
        tally.count(Status::Ok, 101);
        assert_eq!(tally.in_second_before(101), 6);
        assert_eq!(tally.in_second_before(102), 1);
        tally.count(Status::Ok, 110);
        assert_eq!(tally.in_second_before(110), 0);
        assert_eq!((tally.in_second_before(111), tally.sum()), (1, 8));
    }
}
