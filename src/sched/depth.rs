//! How many events wait in each color: for reports.
//!
//! They are in the color's FIFO and in its mailbox, put aside at a gate ([`crate::gate`]), or
//! checked out by the core that owns it; what is in an outbox nobody else sees. Whoever holds the
//! owner's lock may look at the first two, and knows how many were checked out. One color at a
//! time, so that no core waits for more than a moment.

use super::section::Section;
use crate::Color;
use crate::color::{CoreId, SlotId};
use crate::shared::Shared;
use crate::shared::remote::mail;
use std::collections::BTreeMap;

/// What waits in a color slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Depth {
    pub(crate) slot: SlotId,
    /// The color of one of the events, if any can be seen.
    pub(crate) color: Option<Color>,
    pub(crate) core: CoreId,
    pub(crate) events: u64,
    pub(crate) running: bool,
}

impl Section<'_> {
    /// What waits in a color of this core.
    fn depth(&mut self, slot: SlotId) -> Depth {
        let mut queue = self.guarded.colors.at(slot);
        let (queued, taken) = (queue.fifo.len(), queue.taken());
        let color = queue.fifo.color();
        queue.end();
        let (mailed, mailed_color) = mail::count(&mut self.guarded.colors, slot);
        Depth {
            slot,
            color: color.or(mailed_color),
            core: self.core,
            events: u64::from(taken.unwrap_or(queued)) + mailed,
            running: taken.is_some(),
        }
    }
}

/// The `most` color slots with the most events, deepest first, of those that have any.
pub(crate) fn deepest(shared: &Shared, most: usize) -> Vec<Depth> {
    let mut held: BTreeMap<SlotId, (Color, u64)> = BTreeMap::new();
    for (slot, color, events) in shared.gates.depths() {
        held.entry(slot).or_insert((color, 0)).1 += events;
    }
    let mut all = Vec::new();
    for slot in shared.slots.map.of_users() {
        if shared.slots.at(slot).was_never_used() {
            continue;
        }
        let mut section = Section::of_slot(shared, slot);
        let mut depth = section.depth(slot);
        drop(section);
        if let Some(&(color, events)) = held.get(&slot) {
            depth.color.get_or_insert(color);
            depth.events += events;
        }
        if depth.events > 0 {
            all.push(depth);
        }
        // Not more than twice as many are kept at a time.
        if all.len() > most.max(32).saturating_mul(2) {
            keep(&mut all, most);
        }
    }
    keep(&mut all, most);
    all
}

fn keep(all: &mut Vec<Depth>, most: usize) {
    all.sort_by_key(|depth| (std::cmp::Reverse(depth.events), depth.slot));
    all.truncate(most);
}
