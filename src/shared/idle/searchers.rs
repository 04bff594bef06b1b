//! Cores without work that look for some, until they find it or sleep.
//!
//! They are counted, so that not too many search at a time ([`most`]), and so that nobody is woken
//! to search while somebody does ([`super`]). A count that all cores write is the busiest
//! line of a machine with many cores that have little to do. So there is one for each [`GROUP`] of
//! cores, those of one cache: who begins or ends a search writes that of its group, and who asks
//! whether anybody searches reads them all.
//!
//! The last to end looks last: see [`super`].

use super::core_set::GROUP;
use crate::color::CoreId;
use crate::policy::wake::searchers_max;
use crate::sync::atomic::{AtomicU32, Ordering};
use crossbeam_utils::CachePadded;

/// See the module text.
#[derive(Debug)]
pub(crate) struct Searchers(pub(crate) Box<[CachePadded<AtomicU32>]>);

impl Searchers {
    pub(crate) fn none_of(cores: usize) -> Searchers {
        let count = |_| CachePadded::new(AtomicU32::new(0));
        Searchers((0..cores.div_ceil(GROUP)).map(count).collect())
    }

    fn of(&self, core: CoreId) -> &AtomicU32 {
        &self.0[core.index() / GROUP]
    }

    /// Whether any core searches.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        self.0.iter().any(|count| count.load(Ordering::Relaxed) > 0)
    }

    /// Whether as many of the core's group search as may, if this number of cores work.
    pub(crate) fn are_enough(&self, core: CoreId, working: u32) -> bool {
        self.of(core).load(Ordering::Relaxed) >= most(core, working)
    }

    /// A core begins to search, if not as many of its group do as may.
    pub(crate) fn begin(&self, core: CoreId, working: u32) -> bool {
        if self.are_enough(core, working) {
            return false;
        }
        let count = self.of(core);
        if count.fetch_add(1, Ordering::AcqRel) >= most(core, working) {
            count.fetch_sub(1, Ordering::AcqRel);
            return false;
        }
        true
    }

    /// It ends its search.
    pub(crate) fn end(&self, core: CoreId) {
        self.of(core).fetch_sub(1, Ordering::AcqRel);
    }
}

/// How many of the core's group may search, of those that work.
fn most(core: CoreId, working: u32) -> u32 {
    let first = (core.index() / GROUP * GROUP) as u32;
    let members = working.saturating_sub(first).min(GROUP as u32);
    searchers_max(members)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn half_of_a_group_search_of_those_that_work() {
        for (working, most) in [
            (1, [1, 1]),
            (3, [1, 1]),
            (16, [8, 1]),
            (24, [8, 4]),
            (40, [8, 8]),
        ] {
            let searchers = Searchers::none_of(40);
            for (core, most) in [3, 20].map(CoreId::of).into_iter().zip(most) {
                assert!(!searchers.are_enough(core, working));
                let began = (0..20).filter(|_| searchers.begin(core, working)).count();
                assert_eq!(began, most, "{core} of {working}");
                assert!(searchers.are_enough(core, working) && searchers.any());
                searchers.end(core);
                assert!(searchers.begin(core, working));
                (0..most).for_each(|_| searchers.end(core));
                assert!(!searchers.any());
            }
        }
    }
}
