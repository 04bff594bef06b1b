//! Levelling: a core that has work of its own takes colors from one that has clearly more.
//!
//! This is not in the papers, which steal when idle. Two things make it necessary. A steal moves at
//! most a round of colors in one critical section ([`super::steal`]); what is due beyond that is
//! taken round by round, after each of the thief's next quanta, until thief and victim have the
//! same. And colors that post to themselves would stay where they started: a core with a single one
//! of them is never idle again, whatever another core has. So every core now and then
//! [compares](compare) itself with another, by the number of colors that last
//! ([`crate::shared::color_queue::Endurance`]): however many events each of them has, it goes on.
//!
//! **Rotation.** Of three such colors on two cores one has a core to itself. So a core that has had
//! fewer than another for some time ([`ROTATION_NS`]) takes one also if the difference is a single
//! color: then it is the other one that has fewer, and takes one in its turn.

use super::core::Core;
use super::section::Section;
use super::steal::{Loot, Search};
use crate::ablation::{Rule, without};
use crate::clock::Clock;
use crate::shared::CoreShared;
use crate::shared::hint::Hint;
use crate::shared::queues::{EVENT_NS, Queues};
use crate::sync::atomic::{Ordering, fence};

/// For so long a core has a color that lasts less than another: as many as a thousand steals take.
const ROTATION_NS: u64 = 2_000_000;

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
            let excess = Excess::of(hint, queues);
            (
                queues.load_ns(),
                self.search.is_due(excess, &self.clock),
                lasting_ns,
            )
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
                self.search.rotates_at_ns = None;
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

/// Looks, now and then and at one after the other, whether a victim has more colors that last than
/// this core, whose lock is held: neither would ever be idle, and steal. The rank of that victim.
#[inline(never)]
pub(super) fn compare(
    section: &Section<'_>,
    own: &CoreShared,
    looks: u64,
    search: &mut Search,
    clock: &Clock,
) -> Option<usize> {
    if !section.shared.policy.stealing || without(Rule::Compare) {
        return None;
    }
    let rank = (looks as usize).checked_rem(own.victims.len())?;
    let (victim, _) = own.victims[rank];
    let hint = &section.shared.core(victim).hint;
    let more = search.is_due(Excess::of(hint, section.queues()), clock);
    // All of them may fit into one quantum: then there is nothing to take unless it leaves some.
    hint.ask(more);
    more.then_some(rank)
}

/// By how much a victim has more colors that last, among more colors in all. (Where hundreds wait
/// on both cores, it does not matter where the few are that happen to be in the middle of
/// something.)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Excess {
    None,
    /// By one, or by not much.
    Some,
    /// Enough to be worth a levelling at once.
    Clear,
}

impl Excess {
    fn of(theirs: &Hint, ours: &Queues) -> Excess {
        let lasting = (theirs.lasting(), ours.all_lasting());
        let rivals = (theirs.stealable().max(theirs.lasting()), ours.rivals());
        let both = |more: fn((u32, u32)) -> bool| more(lasting) && more(rivals);
        // A quarter more, and more than one more.
        if both(|(theirs, ours)| theirs > 1 + ours + ours / 4) {
            Excess::Clear
        } else if both(|(theirs, ours)| theirs > ours) {
            Excess::Some
        } else {
            Excess::None
        }
    }
}

impl Search {
    /// Whether this is reason to take some now.
    fn is_due(&mut self, excess: Excess, clock: &Clock) -> bool {
        if excess != Excess::Some || without(Rule::Rotation) {
            self.rotates_at_ns = None;
            return excess == Excess::Clear;
        }
        let now_ns = clock.now_ns();
        now_ns >= *self.rotates_at_ns.get_or_insert(now_ns + ROTATION_NS)
    }
}
