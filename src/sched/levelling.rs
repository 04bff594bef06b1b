//! Levelling: a core that is never idle takes colors from one that has more of those that go on.
//!
//! This is not in the papers, which steal when idle. Colors that post to themselves would stay
//! where they started: a core with a single one of them is never idle again, whatever another core
//! has. So every [`LEVEL_NS`] each core [compares](compare) itself with the others, by the number
//! of colors that last ([`crate::policy::worth::Endurance`]): however many events each of
//! them has, it goes on. From one that has [enough more](levels) it takes some, until both have
//! the same.

use super::core::Core;
use super::section::Section;
use super::steal::{Loot, Search};
use crate::ablation::{Rule, without};
use crate::clock::Clock;
use crate::policy::numbers::LEVEL_NS;
use crate::policy::victim::levels;
use crate::shared::CoreShared;
use crate::shared::idle::Why;

impl Core {
    /// Takes colors from the victim of this rank, if it still has more of those that last.
    #[inline(never)]
    pub(super) fn level(&mut self, rank: usize) {
        self.search.levelling = None;
        let (victim, _) = self.own.victims[rank];
        let (lasting, has_ns) = {
            let section = Section::enter(&self.shared, self.id);
            let lasting = section.queues().all_lasting();
            (lasting, section.queues().lasting_ns(lasting))
        };
        if levels(self.shared.core(victim).hint.lasting(), lasting) {
            let now_ns = self.clock.now_ns();
            let mut loot = Loot::new();
            if self.visit(rank, now_ns, has_ns, &mut loot) {
                self.search.levels_at_ns = now_ns + LEVEL_NS;
                self.shared.core(victim).hint.ask(false);
                self.link_loot(loot, false);
            }
            // The victim's hint may have risen by its mail, which was linked: see `end_search`.
            self.notify(Why::Searched);
        }
    }
}

/// Looks, if it is time to, whether a victim has more colors that last than this core, whose lock
/// is held: neither would ever be idle, and steal. The rank of that victim.
#[inline(never)]
pub(super) fn compare(
    section: &Section<'_>,
    own: &CoreShared,
    search: &mut Search,
    clock: &Clock,
) -> Option<usize> {
    if !section.shared.policy.stealing.enabled || without(Rule::Compare) {
        return None;
    }
    let now_ns = clock.now_ns();
    if now_ns < search.levels_at_ns {
        return None;
    }
    let rank = search.compared;
    let (victim, _) = *own.victims.get(rank)?;
    let hint = &section.shared.core(victim).hint;
    let more = levels(hint.lasting(), section.queues().all_lasting());
    // All of them may fit into one quantum: then there is nothing to take unless it leaves some.
    hint.ask(more);
    if more {
        return Some(rank);
    }
    search.compared = (rank + 1) % own.victims.len();
    if search.compared == 0 {
        search.levels_at_ns = now_ns + LEVEL_NS;
    }
    None
}
