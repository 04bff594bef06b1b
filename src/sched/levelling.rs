//! Levelling: a core that has work of its own takes colors from one that has clearly more.
//!
//! This is not in the papers, which steal when idle. Two things make it necessary. A steal moves at
//! most a round of colors in one critical section ([`super::steal`]); what is due beyond that is
//! taken round by round, after each of the thief's next quanta, until thief and victim have the
//! same. And colors that post to themselves would stay where they started: a core with a single one
//! of them is never idle again, whatever another core has. So every core now and then
//! [compares](compare) itself with another, by the number of colors that last
//! ([`crate::shared::color_queue::Endurance`]): however many events each of them has, it goes on.

use super::core::Core;
use super::section::Section;
use super::steal::Loot;
use crate::shared::CoreShared;
use crate::shared::hint::Hint;
use crate::shared::queues::{EVENT_NS, Queues};
use crate::sync::atomic::{Ordering, fence};

impl Core {
    /// Takes a round from the victim of this rank, unless that has no more than we do.
    #[inline(never)]
    pub(super) fn level(&mut self, rank: usize) {
        self.search.levelling = None;
        let (victim, _) = self.own.victims[rank];
        let hint = &self.shared.core(victim).hint;
        let events_ns = hint.events() * EVENT_NS;
        // Without the time-left heuristic the hint is `u64::MAX` or 0.
        let theirs_ns = hint.worth_ns().saturating_add(events_ns);
        let (ours_ns, more_lasting, lasting_ns) = {
            let section = Section::enter(&self.shared, self.id);
            let queues = section.queues();
            let lasting_ns = queues.lasting_ns(queues.all_lasting());
            (queues.load_ns(), has_more_lasting(hint, queues), lasting_ns)
        };
        // Colors that last are shared by their number: however many events each has, it goes on.
        let has_ns = if more_lasting {
            Some(lasting_ns)
        } else {
            (theirs_ns > ours_ns).then_some(ours_ns)
        };
        if let Some(has_ns) = has_ns {
            let now_ns = self.clock.now_ns();
            let mut loot = Loot::new();
            if self.visit(rank, now_ns, has_ns, &mut loot) {
                self.link_loot(loot, false);
            }
            // We may have raised the victim's hint by linking its mail: see `end_search`.
            fence(Ordering::SeqCst);
            if self.is_more_to_steal() {
                self.wake_one();
            }
            self.ring();
        }
    }
}

/// Looks, now and then and at one after the other, whether a victim has clearly more colors that
/// last than this core, whose lock is held: neither would ever be idle, and steal. The rank of that
/// victim.
#[inline(never)]
pub(super) fn compare(section: &Section<'_>, own: &CoreShared, looks: u64) -> Option<usize> {
    if !section.shared.policy.stealing {
        return None;
    }
    let rank = (looks as usize).checked_rem(own.victims.len())?;
    let (victim, _) = own.victims[rank];
    let hint = &section.shared.core(victim).hint;
    let more = has_more_lasting(hint, section.queues());
    // All of them may fit into one quantum: then there is nothing to take unless it leaves some.
    hint.ask(more);
    more.then_some(rank)
}

/// Whether a victim has clearly more colors that last, and they have to share it with clearly more
/// colors in all. (Where hundreds wait on both cores, it does not matter where the few are that
/// happen to be in the middle of something.)
fn has_more_lasting(theirs: &Hint, ours: &Queues) -> bool {
    has_clearly_more(theirs.lasting(), ours.all_lasting())
        && has_clearly_more(theirs.stealable().max(theirs.lasting()), ours.rivals())
}

/// Whether `theirs` is more than `ours` by enough to be worth a levelling.
fn has_clearly_more(theirs: u32, ours: u32) -> bool {
    theirs > 1 + ours + ours / 4
}
