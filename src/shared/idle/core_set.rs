//! A set of cores: a bit a core, and a line for the bits of sixteen cores, those of one cache.

use crate::color::CoreId;
use crate::sync::atomic::{AtomicU64, Ordering};
use crossbeam_utils::CachePadded;

/// Cores that share a line of what many of them write: those of one cache.
pub(crate) const GROUP: usize = if cfg!(loom) { 4 } else { 16 };

/// See the module text.
#[derive(Debug)]
pub(crate) struct CoreSet(pub(crate) Box<[CachePadded<AtomicU64>]>);

impl CoreSet {
    /// None of this number of cores.
    pub(crate) fn none_of(cores: usize) -> CoreSet {
        let word = |_| CachePadded::new(AtomicU64::new(0));
        CoreSet((0..cores.div_ceil(GROUP)).map(word).collect())
    }

    /// The word of a core, and its bit.
    fn at(&self, core: CoreId) -> (&AtomicU64, u64) {
        (&self.0[core.index() / GROUP], 1 << (core.index() % GROUP))
    }

    pub(crate) fn set(&self, core: CoreId) {
        let (word, bit) = self.at(core);
        word.fetch_or(bit, Ordering::AcqRel);
    }

    /// True if it was in the set.
    pub(crate) fn clear(&self, core: CoreId) -> bool {
        let (word, bit) = self.at(core);
        word.fetch_and(!bit, Ordering::AcqRel) & bit != 0
    }

    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.0.iter().any(|word| word.load(Ordering::Acquire) != 0)
    }

    pub(crate) fn contains(&self, core: CoreId) -> bool {
        let (word, bit) = self.at(core);
        word.load(Ordering::Acquire) & bit != 0
    }

    /// Takes one out: the first one from this core on, by their numbers and around. Several who
    /// take at once from cores of their own seldom want the same.
    pub(crate) fn take_from(&self, core: CoreId) -> Option<CoreId> {
        let (words, first) = (self.0.len(), core.index() / GROUP);
        // The first word twice: from the core on, and at last up to it.
        (0..=words).find_map(|i| {
            let at = (first + i) % words;
            let bits = self.0[at].load(Ordering::Acquire);
            let from = if i == 0 {
                u64::MAX << (core.index() % GROUP)
            } else {
                u64::MAX
            };
            self.take_of(at, bits & from)
        })
    }

    /// Takes out one of these cores of a word, if one is still there.
    fn take_of(&self, at: usize, mut bits: u64) -> Option<CoreId> {
        while bits != 0 {
            let core = CoreId::of(at * GROUP + bits.trailing_zeros() as usize);
            if self.clear(core) {
                return Some(core);
            }
            bits &= bits - 1;
        }
        None
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    const CORES: usize = 130;

    fn core(number: usize) -> CoreId {
        CoreId::of(number)
    }

    #[test]
    fn each_core_has_a_bit() {
        let set = CoreSet::none_of(CORES);
        let members = || (0..CORES).filter(|&number| set.contains(core(number)));
        assert!(!set.any());
        for number in 0..CORES {
            set.set(core(number));
            assert!(set.any());
            assert!(members().eq([number]), "core {number}");
            assert!(set.clear(core(number)) && !set.clear(core(number)));
            assert!(!set.any());
        }
        (0..CORES).for_each(|number| set.set(core(number)));
        assert!(set.clear(core(64)));
        assert_eq!(members().count(), CORES - 1);
        assert!(!set.contains(core(64)));
    }

    #[test]
    fn each_is_taken_once_from_a_core_on_and_around() {
        for (from, order) in [
            (0, [3, 63, 64, 70, 129]),
            (63, [63, 64, 70, 129, 3]),
            (66, [70, 129, 3, 63, 64]),
            (129, [129, 3, 63, 64, 70]),
        ] {
            let set = CoreSet::none_of(CORES);
            order.iter().for_each(|&number| set.set(core(number)));
            let taken = std::iter::from_fn(|| set.take_from(core(from)));
            assert!(taken.map(CoreId::index).eq(order), "from {from}");
        }
    }
}
