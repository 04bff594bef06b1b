//! What the thieves of libasync-smp and of Mely as published have in common: Mely's Figure 2, with
//! what it leaves open ([`super::open`]).

use super::open::Open;
use super::queue::{Lock, Locked};
use mely_bench::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use mely_bench::sync::{SpinMutexGuard, charge};
use std::cmp::Reverse;

/// The core of a color that is between two.
pub(super) const ON_ITS_WAY: usize = usize::MAX;

type Guard<'a, T> = SpinMutexGuard<'a, Locked<T>>;

/// Locks the core that has a color, and returns its number. `owner` says which, and is changed under
/// the lock of that core.
pub(super) fn lock_owner<'a, T>(
    owner: &AtomicUsize,
    queue: impl Fn(usize) -> &'a Lock<T>,
) -> (usize, Guard<'a, T>) {
    loop {
        let number = owner.load(Relaxed);
        if number == ON_ITS_WAY {
            charge::pauses(1);
            continue;
        }
        let locked = queue(number).lock();
        if owner.load(Relaxed) == number {
            return (number, locked);
        }
    }
}

/// The victims of a thief, in the order in which they are tried: the core that has the most, then by
/// number, round about.
pub(super) fn victims(
    thief: usize,
    cores: usize,
    len: impl Fn(usize) -> usize,
) -> impl Iterator<Item = usize> {
    let fullest = (0..cores).max_by_key(|&core| (len(core), Reverse(core)));
    core_set(fullest.expect("there is a core"), cores).filter(move |&victim| victim != thief)
}

fn core_set(fullest: usize, cores: usize) -> impl Iterator<Item = usize> {
    (fullest..fullest + cores).map(move |core| core % cores)
}

impl Open {
    /// Locks a victim's queue; or a thief's own, while it has the other one. None if it is taken, and
    /// the thief goes on.
    pub(super) fn lock<T>(self, queue: &Lock<T>) -> Option<Guard<'_, T>> {
        match self.try_lock {
            true => queue.try_lock(),
            false => Some(queue.lock()),
        }
    }

    /// Locks the thief's queue and the victim's, in the order of their numbers, and returns them in
    /// that one.
    pub(super) fn lock_both<'a, T>(
        self,
        thief: usize,
        victim: usize,
        queue: impl Fn(usize) -> &'a Lock<T>,
    ) -> Option<(Guard<'a, T>, Guard<'a, T>)> {
        let first = self.lock(queue(victim.min(thief)))?;
        let second = self.lock(queue(victim.max(thief)))?;
        Some(match thief < victim {
            true => (first, second),
            false => (second, first),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn victims_are_tried_from_the_fullest_on() {
        let order: Vec<_> = core_set(6, 8).collect();
        assert_eq!(order, [6, 7, 0, 1, 2, 3, 4, 5]);
    }
}
