//! The word in a color's slot in which something is asked of it
//! ([`crate::shared::remote::wishes`]).

use crate::color::CoreId;
use crate::sync::atomic::{AtomicU16, Ordering};
use crate::sync::fault;

/// In the word of a wish: the color is to have the next turn. Beside it 0, or a core plus one.
const HURRY: u16 = 1 << 15;
/// Stays in the word, and is no wish: the color was placed, so nobody takes it over.
const PLACED: u16 = 1 << 14;

/// See the module text.
#[derive(Debug)]
pub(crate) struct Wish(AtomicU16);

impl Wish {
    #[cfg_attr(not(loom), allow(dead_code))]
    pub(crate) fn new() -> Wish {
        Wish(AtomicU16::new(0))
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
    pub(crate) fn place(&self, core: Option<CoreId>) {
        let core = core.map_or(0, |core| core.number() as u16 + 1);
        let place = |word| Some(word & HURRY | PLACED | core);
        let _before = (self.0).fetch_update(Ordering::Release, Ordering::Relaxed, place);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_place_and_the_next_turn_are_wished_for_apart() {
        let word = Wish::new();
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
