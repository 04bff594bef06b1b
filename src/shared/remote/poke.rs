//! A core's pokes: a word onto which anybody pushes them, and on which the core sleeps.
//!
//! A *poke* tells a core that one of its colors has mail. It carries no order and no event, so it
//! may be forwarded: a color that moved after the poke was sent gets it from its old owner, or from
//! a thief that took the old owner's pokes. At most one poke exists for a color ([`super::mail`]),
//! so pokes link through the slots themselves. Only who takes more than eight at a time allocates.
//!
//! ```text
//!            a poster's push                  the owner's, or a thief's, take
//!   EMPTY ---------------------> slot + 1 -----------------------------------> EMPTY
//!     |  ^                          ^
//!     |  | wake                     | a poster's push: must ring the doorbell
//!     v  |                          |
//!   PARKED -------------------------+
//! ```
//!
//! That "parked" lives in the same word as the list makes push-and-wake one operation: a push
//! either comes before the owner parks, which then fails, or after, and then the pusher knows that
//! it has to ring. A plain store of "awake" beside the list was shown by loom to lose a wake-up.
//!
//! **Poke against migration.** A poster reads the owner, pushes the poke to that core, then reads
//! the owner again. A thief publishes the new owner, then looks at the victim's pokes once more
//! with a read-modify-write. In the order of that word either the push comes first, and the
//! thief finds the poke and forwards it; or the thief's look comes first, and then the push, an
//! acquiring read-modify-write, makes the new owner visible to the poster's second read: the poster
//! takes the old owner's pokes itself and sends each poke to where its color now is. Either way no
//! poke stays behind the long handler of a core that no longer owns the color.

use crate::color::{CoreId, SlotId};
use crate::shared::Shared;
use crate::shared::queue::slots::Slots;
use crate::sync::atomic::{AtomicU32, Ordering};
use crate::sync::{charge, fault, first_look};
use smallvec::SmallVec;

/// Awake, no pokes.
pub(crate) const EMPTY: u32 = 0;
/// Asleep, or about to be; no pokes.
pub(crate) const PARKED: u32 = u32::MAX;

/// A slot in a word that may be empty.
fn word(slot: SlotId) -> u32 {
    slot.number() + 1
}

/// A core's pokes.
#[derive(Debug, Default)]
pub(crate) struct Pokes(AtomicU32);

impl Pokes {
    /// Whether pokes wait, as a plain look.
    #[inline]
    pub(crate) fn any(&self) -> bool {
        !matches!(self.0.load(Ordering::Acquire), EMPTY | PARKED)
    }

    /// Whether pokes wait, as a read-modify-write: comes after everything this thread did before,
    /// in the eyes of whoever pushes later.
    pub(crate) fn any_ordered(&self) -> bool {
        !matches!(self.0.fetch_or(0, Ordering::AcqRel), EMPTY | PARKED)
    }

    /// Adds the pokes of these colors, at least one, the oldest first. True if the core slept: the
    /// caller must ring its doorbell.
    #[must_use]
    fn push(&self, slots: &Slots, pokes: &[SlotId]) -> bool {
        for pair in pokes.windows(2) {
            let older = word(pair[0]);
            slots.at(pair[1]).poke_next.store(older, Ordering::Relaxed);
        }
        let (oldest, newest) = (pokes[0], pokes[pokes.len() - 1]);
        let mut head = first_look(|| self.0.load(Ordering::Relaxed), EMPTY);
        loop {
            let next = if head == PARKED || fault("earlier pokes cut off") {
                EMPTY
            } else {
                head
            };
            slots.at(oldest).poke_next.store(next, Ordering::Relaxed);
            match self.0.compare_exchange_weak(
                head,
                word(newest),
                Ordering::AcqRel,
                Ordering::Relaxed,
            ) {
                Ok(_) => return head == PARKED && !fault("doorbell not rung"),
                Err(now) => head = now,
            }
        }
    }

    /// Whether the core sleeps, or is about to, and nobody has woken it.
    #[cfg(all(feature = "sim", debug_assertions))]
    pub(crate) fn is_parked(&self) -> bool {
        self.0.load(Ordering::Acquire) == PARKED
    }

    /// Takes all pokes, the oldest first. A parked core stays parked.
    pub(crate) fn take(&self, slots: &Slots) -> Chain {
        let mut head = self.0.load(Ordering::Relaxed);
        loop {
            if matches!(head, EMPTY | PARKED) {
                return Chain::default();
            }
            match self
                .0
                .compare_exchange_weak(head, EMPTY, Ordering::AcqRel, Ordering::Relaxed)
            {
                Ok(_) => return Chain::from(head, slots),
                Err(now) => head = now,
            }
        }
    }

    /// The owner announces that it will sleep. False: pokes are waiting.
    pub(crate) fn park(&self) -> bool {
        if fault("parked stored") {
            self.0.store(PARKED, Ordering::Release);
            return true;
        }
        self.0
            .compare_exchange(EMPTY, PARKED, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }

    /// From parked to awake. True for the one caller who made the change; if that is not the owner
    /// it must ring the owner's doorbell.
    #[must_use]
    pub(crate) fn unpark(&self) -> bool {
        if fault("awake stored") {
            return self.0.swap(EMPTY, Ordering::AcqRel) == PARKED;
        }
        self.0
            .compare_exchange(PARKED, EMPTY, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }
}

/// Pokes that were taken out of a core's. They are iterated from the oldest.
#[derive(Debug, Default)]
#[must_use]
pub(crate) struct Chain {
    newest_first: SmallVec<[SlotId; 8]>,
}

impl Chain {
    /// The chain that begins with this word. All links are read before any poke is sent anywhere
    /// else, which overwrites its link.
    fn from(mut head: u32, slots: &Slots) -> Chain {
        let mut newest_first = SmallVec::new();
        while let Some(slot) = head.checked_sub(1).map(SlotId::of) {
            newest_first.push(slot);
            charge::reach(slots.at(slot));
            head = slots.at(slot).poke_next.load(Ordering::Relaxed);
        }
        Chain { newest_first }
    }
}

impl Iterator for Chain {
    type Item = SlotId;

    #[inline]
    fn next(&mut self) -> Option<SlotId> {
        self.newest_first.pop()
    }
}

/// Sends the poke of `slot` to the core that owns the color; the module text has the argument.
/// Cores whose doorbell must be rung are added to `bells`.
pub(crate) fn send(shared: &Shared, slot: SlotId, bells: &mut Vec<CoreId>) {
    send_all(shared, shared.slots.owner(slot), &[slot], bells);
}

/// Sends the pokes of several colors, at least one, to the core that owned them a moment ago: with
/// one read-modify-write. If one of them has moved since, what lies there is sent on, each poke to
/// where its color now is.
pub(crate) fn send_all(shared: &Shared, core: CoreId, colors: &[SlotId], bells: &mut Vec<CoreId>) {
    let slots = &shared.slots;
    let pokes = &shared.core(core).pokes;
    if pokes.push(slots, colors) {
        bells.push(core);
    }
    let moved = |&slot: &SlotId| slots.owner(slot) != core;
    let colors = if fault("only the last owner read again") {
        &colors[colors.len() - 1..]
    } else {
        colors
    };
    if colors.iter().any(moved) && !fault("owner not read again") {
        for slot in pokes.take(slots) {
            if !fault("pokes of other colors lost") {
                send(shared, slot, bells);
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::color::{ColorMap, HashKey};

    fn id(number: u32) -> SlotId {
        SlotId::of(number)
    }

    fn all(chain: Chain) -> Vec<u32> {
        chain.map(SlotId::number).collect()
    }

    #[test]
    fn pokes_are_a_chain_of_all_that_were_sent() {
        let slots = &Slots::new(ColorMap::new(10, 2, HashKey::random()));
        let pokes = Pokes::default();
        assert!(!pokes.any() && !pokes.any_ordered());
        assert!(!pokes.push(slots, &[id(2)]) && !pokes.push(slots, &[4, 6, 8].map(id)));
        assert!(pokes.any() && pokes.any_ordered() && !pokes.park());
        assert_eq!(all(pokes.take(slots)), [2, 4, 6, 8]);
        assert!(pokes.park() && !pokes.any() && !pokes.any_ordered());
        assert_eq!(all(pokes.take(slots)), []);
        assert!(pokes.push(slots, &[2, 4].map(id)), "it sleeps");
        assert_eq!(all(pokes.take(slots)), [2, 4]);
    }
}
