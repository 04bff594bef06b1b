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

use super::mail::{self, announce};
use crate::Color;
use crate::color::{CoreId, SlotId};
use crate::shared::Shared;
use crate::sync::fault;

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
