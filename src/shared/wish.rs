//! What is asked of a color: to go to a core ([`place`]), or to have the next turn ([`hurry`]).
//!
//! A *wish* is written into the color's slot, and its core is poked ([`super::mail`]). So it is
//! found by who takes the core's mail, the core itself or a thief, and wherever the color is by
//! then; what was posted before by the same thread is found with it. A color without a wish pays
//! nothing: a slot is searched for wishes when a poke is delivered, and at no other time.
//!
//! Invariant: a wish stays in its color's slot until it is granted or refused, so it goes wherever
//! the color goes. A list of colors that hurry lives on the stack of `take_mail` only, while one
//! section lasts; and each color of it is looked at anew (owner, state and wish) when its turn in
//! the list comes, because a later poke of the same section may have given the color away.
//!
//! **Nothing starves.** Who has hurried is at the head of the core-queue, and of its band in the
//! stealing-queue, and all others are behind. So a core may grant one such wish in two quanta
//! ([`Granted`](crate::policy::head::Granted)). Who has asked first is granted first. What is not
//! granted stays where it is in the queue.

use super::Shared;
use super::mail::{self, announce};
use crate::Color;
use crate::color::{CoreId, SlotId};
use crate::sync::atomic::{AtomicU16, Ordering};
use crate::sync::fault;

/// In the word of a wish: the color is to have the next turn. Beside it 0, or a core plus one.
const HURRY: u16 = 1 << 15;
/// Stays in the word, and is no wish: the color was placed, so nobody takes it over.
const PLACED: u16 = 1 << 14;

/// The word in a color's slot.
#[derive(Debug)]
pub(crate) struct Word(AtomicU16);

impl Word {
    #[cfg_attr(not(loom), allow(dead_code))]
    pub(crate) fn new() -> Word {
        Word(AtomicU16::new(0))
    }

    /// Whether there is a wish, as a plain look.
    #[inline(always)]
    pub(crate) fn any(&self) -> bool {
        self.0.load(Ordering::Relaxed) & !PLACED != 0
    }

    /// Whether the color was placed some time.
    pub(crate) fn is_placed(&self) -> bool {
        self.0.load(Ordering::Relaxed) & PLACED != 0
    }

    /// Takes the wish for a core. The poke that led the caller here came after it.
    #[inline]
    pub(crate) fn take_core(&self) -> Option<CoreId> {
        if self.0.load(Ordering::Relaxed) & !(HURRY | PLACED) == 0 {
            return None;
        }
        let word = self.0.fetch_and(HURRY | PLACED, Ordering::AcqRel);
        let core = (word & !(HURRY | PLACED)).checked_sub(1)?;
        Some(CoreId::of(core.into()))
    }

    /// Whether the color is to have the next turn.
    pub(crate) fn hurries(&self) -> bool {
        self.0.load(Ordering::Relaxed) & HURRY != 0
    }

    /// Takes the wish for the next turn: true for one of its takers.
    pub(crate) fn take_hurry(&self) -> bool {
        self.0.fetch_and(!HURRY, Ordering::AcqRel) & HURRY != 0
    }

    /// Asks for the next turn. The caller sees to it that the color's core is poked.
    pub(crate) fn hurry(&self) {
        if fault("wish written over another") {
            return self.0.store(HURRY, Ordering::Release);
        }
        self.0.fetch_or(HURRY, Ordering::Release);
    }

    /// Asks for a core, or for none.
    fn place(&self, core: Option<CoreId>) {
        let core = core.map_or(0, |core| core.number() as u16 + 1);
        let place = |word| Some(word & HURRY | PLACED | core);
        let _before = (self.0).fetch_update(Ordering::Release, Ordering::Relaxed, place);
    }
}

/// Asks for a color to be moved to a core; see [`Cx::place`](crate::Cx::place).
#[track_caller]
pub(crate) fn place(shared: &Shared, color: Color, core: usize) {
    let cores = shared.cores.len();
    assert!(core < cores, "core {core} of a runtime with {cores} cores");
    let slot = shared.slots.map.slot(color);
    if shared.slots.map.is_control(slot) {
        return;
    }
    let wish = &shared.slots.at(slot).wish;
    if shared.slots.owner(slot).index() == core {
        // It is there already; but it must not leave for an earlier wish.
        if wish.any() || !wish.is_placed() {
            wish.place(None);
        }
        return;
    }
    wish.place(Some(CoreId::of(core)));
    poke(shared, slot);
}

/// Asks for a color's next turn to come before those of other colors; see
/// [`Cx::hurry`](crate::Cx::hurry).
pub(crate) fn hurry(shared: &Shared, color: Color) {
    let slot = shared.slots.map.slot(color);
    if shared.slots.map.is_control(slot) {
        return;
    }
    shared.slots.at(slot).wish.hurry();
    poke(shared, slot);
}

/// Sees to it that the wish is found.
fn poke(shared: &Shared, slot: SlotId) {
    if fault("wish without a poke") {
        return;
    }
    if mail::mark_poked(&shared.slots, slot) {
        let mut bells = Vec::new();
        announce(shared, slot, &mut bells);
        shared.idle.bells.ring_all(&bells);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_place_and_the_next_turn_are_wished_for_apart() {
        let word = Word::new();
        assert_eq!((word.take_core(), word.take_hurry()), (None, false));
        word.place(Some(CoreId::of(511)));
        word.hurry();
        assert_eq!(word.take_core(), Some(CoreId::of(511)));
        assert!(word.any() && word.hurries() && word.take_core().is_none());
        assert!(word.take_hurry() && !word.take_hurry() && !word.any());
        word.hurry();
        word.place(Some(CoreId::of(3)));
        word.place(None);
        assert_eq!((word.take_core(), word.take_hurry()), (None, true));
        word.place(Some(CoreId::of(0)));
        word.place(Some(CoreId::of(1)));
        assert_eq!(
            (word.take_core(), word.take_hurry()),
            (Some(CoreId::of(1)), false)
        );
        word.place(Some(CoreId::of(1)));
        word.place(None);
        assert!(!word.any() && word.is_placed());
    }
}
