//! What threads do that are no cores of the runtime: post, and ask for a color to be moved.

use super::mail;
use super::poke;
use super::shared::Shared;
use super::sleepers::rescue;
use crate::Color;
use crate::color::SlotId;
use crate::event::node::Event;
use crate::sync::atomic::Ordering;

/// Publishes an event made by a foreign thread.
pub(crate) fn publish(shared: &Shared, color: Color, event: Event) {
    let mut bells = Vec::new();
    push(shared, shared.slots.map.slot(color), event, &mut bells);
    bells.into_iter().for_each(|core| shared.ring(core));
}

/// Pushes an event into its color's mailbox, and sees to it that it is looked at.
pub(super) fn push(shared: &Shared, slot: SlotId, event: Event, bells: &mut Vec<u32>) {
    if mail::push(&shared.slots, slot, event.into()) {
        poke::send(shared, slot, bells);
        rescue(shared, shared.slots.owner(slot), None, bells);
    }
}

/// Asks for a color to be moved to a core; see [`Cx::place`](crate::Cx::place).
pub(crate) fn place(shared: &Shared, color: Color, core: usize) {
    let cores = shared.cores.len();
    assert!(core < cores, "core {core} of a runtime with {cores} cores");
    let slot = shared.slots.map.slot(color);
    if shared.slots.map.is_control(slot) {
        return;
    }
    let at = shared.slots.at(slot);
    if shared.slots.owner(slot) as usize == core {
        // It is there already; but it must not leave for an earlier wish.
        if at.is_wanted() {
            at.wanted.store(0, Ordering::Relaxed);
        }
        return;
    }
    at.wanted.store(core as u16 + 1, Ordering::Release);
    if mail::mark_poked(&shared.slots, slot) {
        let mut bells = Vec::new();
        poke::send(shared, slot, &mut bells);
        bells.into_iter().for_each(|core| shared.ring(core));
    }
}
