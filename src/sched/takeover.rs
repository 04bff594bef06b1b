//! Colors of a core that sleeps, taken over by a core that posts to them.
//!
//! To wake a core takes the waker some microseconds, and the sleeper several times that until it
//! runs the event. An event that is shorter is run sooner and cheaper by the core that posts it,
//! if that one has little else to do. So the core becomes the color's owner, as a thief would, and
//! the event is one of its own. Where there is little to do, few cores stay awake by it; where
//! there is much, the owner is woken as before, since it would be woken to steal anyway.
//!
//! A color is taken over if nothing of it is queued, if its owner sleeps, and if what this core has
//! queued, the post included, is worth less than a wake-up. Not by a core that is inside a long
//! event, which the color would wait for, nor by one that is retired; and not if the program has
//! placed the color.
//!
//! This core holds its own lock and only tries the owner's, so no two cores wait for each other.
//! A poke that is sent to the old owner meanwhile is found as after a steal: see
//! [`crate::shared::remote::poke`].

use super::exchange::take_mail;
use super::section::Section;
use crate::color::{CoreId, SlotId};
use crate::event::fifo::Chunk;
use crate::policy::wake::{self, Poster};
use crate::shared::idle::{Why, notify};
use crate::shared::queue::color_queue::State;
use crate::sync::fault;

impl Section<'_> {
    /// Makes this core, the section's, the owner of a color that another core owns, to which this
    /// chunk is posted. False: the owner is to be told of the chunk.
    #[inline]
    pub(super) fn takes_over(
        &mut self,
        slot: SlotId,
        chunk: &mut Chunk,
        bells: &mut Vec<CoreId>,
    ) -> bool {
        let shared = self.shared;
        // Most of the time nobody sleeps, and this line is written by nobody.
        shared.idle.sleepers.any() && self.takes_over_from_sleeper(slot, chunk, bells)
    }

    #[inline(never)]
    fn takes_over_from_sleeper(
        &mut self,
        slot: SlotId,
        chunk: &mut Chunk,
        bells: &mut Vec<CoreId>,
    ) -> bool {
        let shared = self.shared;
        let owner = shared.slots.owner(slot);
        let poster = Poster {
            load_ns: self.queues().load_ns() + u64::from(chunk.totals().times.raw_ns()),
            in_long: shared.core(self.core).progress.is_long(),
            is_retired: self.core.number() >= shared.working.count(),
        };
        if !wake::takes_over(&shared.policy, poster, shared.idle.wake_cost.ns())
            || !shared.idle.sleepers.contains(owner)
            || self.is_control(slot)
            || shared.slots.at(slot).wish.is_placed()
        {
            return false;
        }
        let Some(mut theirs) = Section::try_enter(shared, owner) else {
            return false;
        };
        if !theirs.gives_up(slot, self.core) {
            return false;
        }
        if !fault("second look after a takeover skipped") && shared.core(owner).pokes.any_ordered()
        {
            take_mail(&mut theirs, bells);
            theirs.write_hint();
            let left = theirs.queues().core_queue.len;
            drop(theirs);
            if left > 0 {
                notify(shared, owner, Why::Linked, bells);
            }
        }
        true
    }

    /// Makes `to` the owner of a color of this core that has nothing queued, and is not out.
    fn gives_up(&mut self, slot: SlotId, to: CoreId) -> bool {
        if !self.owns(slot) {
            return false;
        }
        let queue = self.guarded.colors.at(slot);
        let is_idle = queue.state == State::Idle && queue.fifo.is_empty();
        let is_idle = is_idle || fault("taken over while it is out");
        queue.end();
        if is_idle {
            self.shared.slots.set_owner(slot, to);
            self.shared.core(to).stats.taken_over.add(1);
        }
        is_idle
    }
}
