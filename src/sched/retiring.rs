//! A core that is *retired* ([`crate::shared::remote::working`]): how it learns of that, and what
//! it does in its [exchange](super::exchange) besides.
//!
//! It keeps no color and compares itself with nobody. Once it has returned what it had checked out,
//! published its outbox and taken its mail, it *passes on* all that is queued: each color, with its
//! events, gets another owner, and a poke. What is checked out at the end are events of its own
//! control color.
//!
//! A thief may still come and take what is queued here, or was mailed: that is as good.

use super::core::Core;
use super::section::Section;
use super::steal::ROUND;
use crate::color::CoreId;
use crate::shared::remote::mail::announce;
use crate::sync::fault;

impl Core {
    /// Whether the core is retired, as far as it has seen.
    pub(crate) fn is_retired(&self) -> bool {
        self.id.number() >= self.working
    }

    /// This number of cores works now. True if that is another than before.
    #[cold]
    pub(super) fn work_with(&mut self, working: u32) -> bool {
        let worked = !self.is_retired();
        let before = std::mem::replace(&mut self.working, working);
        if worked && self.is_retired() {
            self.search.levelling = None;
            // Somebody may have counted on this core to search.
            self.end_search(!fault("who retires leaves its search to nobody"));
        }
        before != self.working
    }
}

impl Section<'_> {
    /// Gives a round of colors that are queued here, and are not this core's own, to the cores that
    /// work. False: some may be left.
    pub(super) fn pass_on(&mut self, bells: &mut Vec<CoreId>) -> bool {
        for _ in 0..ROUND {
            let Some(slot) = self.find_stealable(|_| true) else {
                return true;
            };
            self.unlink(slot);
            // Perhaps this very core, which works again and is about to see that.
            let to = self.shared.working.core_for(slot.number());
            if self.give_to(slot, to) && !fault("passed on without a poke") {
                announce(self.shared, slot, bells);
            }
        }
        false
    }
}
