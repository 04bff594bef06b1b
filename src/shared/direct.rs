//! How to post without an outbox: for threads that are no cores of the runtime, and for what a core
//! posts to several colors at once.

use super::Shared;
use super::mail;
use super::poke;
use crate::Color;
use crate::color::{CoreId, SlotId};
use crate::event::node::Event;
use crate::shared::idle::{Why, notify};

/// Publishes an event.
pub(crate) fn publish(shared: &Shared, color: Color, event: Event) {
    let mut bells = Vec::new();
    push(shared, shared.slots.map.slot(color), event, &mut bells);
    shared.idle.bells.ring_all(&bells);
}

/// Pushes an event into its color's mailbox, and sees to it that it is looked at.
pub(crate) fn push(shared: &Shared, slot: SlotId, event: Event, bells: &mut Vec<CoreId>) {
    if mail::push(&shared.slots, slot, event.into()) {
        announce(shared, slot, bells);
    }
}

/// Sends a color's poke, which is the caller's to send, and sees to it that it is looked at.
pub(crate) fn announce(shared: &Shared, slot: SlotId, bells: &mut Vec<CoreId>) {
    poke::send(shared, slot, bells);
    let owner = shared.slots.owner(slot);
    notify(shared, owner, Why::Mail { by: None }, bells);
}
