//! The outbox: posts to other colors, in program order, until they are published.
//!
//! Only consecutive posts to one color become one chunk: regrouping would break causal order.

use crate::color::SlotId;
use crate::event::fifo::Chunk;
use crate::event::node::Event;
use crate::shared::Shared;
use crate::shared::mail;
use crate::sync::fault;
use arrayvec::ArrayVec;

/// Most chunks that wait before they are published inside a handler, and most events of the last
/// one.
pub(super) const OUTBOX_MAX: usize = if cfg!(loom) { 4 } else { 256 };

/// A chunk on its way to a color.
#[derive(Debug)]
pub(super) struct Outgoing {
    pub(super) slot: SlotId,
    pub(super) chunk: Chunk,
}

/// See the module text.
#[derive(Debug)]
pub(super) struct Outbox(Box<ArrayVec<Outgoing, OUTBOX_MAX>>);

impl Outbox {
    pub(super) fn new() -> Outbox {
        Outbox(Box::default())
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    #[inline(always)]
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// The color of the last post.
    #[inline(always)]
    pub(super) fn last(&self) -> Option<SlotId> {
        self.0.last().map(|last| last.slot)
    }

    /// The colors that have posts in it.
    pub(super) fn slots(&self) -> impl Iterator<Item = SlotId> {
        self.0.iter().map(|outgoing| outgoing.slot)
    }

    /// Adds an event. The caller publishes at [`OUTBOX_MAX`] at the latest.
    #[inline(always)]
    pub(super) fn put(&mut self, slot: SlotId, event: Event) {
        let chunk = event.into();
        debug_assert!(self.0.len() < OUTBOX_MAX);
        // SAFETY: there is room: `Core::put_out`, the only caller, flushes once there are
        // `outbox_due`, which is at most `OUTBOX_MAX`, and a flush empties the outbox.
        unsafe { self.0.push_unchecked(Outgoing { slot, chunk }) };
    }

    /// Adds an event to the last post's color. There is one. True if the chunk now has as many
    /// events as the outbox may have chunks, and is due: posts to one color do not wait without an
    /// end.
    #[inline(always)]
    pub(super) fn join(&mut self, event: Event) -> bool {
        let Some(last) = self.0.last_mut() else {
            unreachable!("the caller looked");
        };
        last.chunk.push(event);
        last.chunk.totals().count as usize >= OUTBOX_MAX
    }

    /// What is in it, in program order; leaves it empty.
    #[inline(always)]
    pub(super) fn drain(&mut self) -> arrayvec::Drain<'_, Outgoing, OUTBOX_MAX> {
        if fault("outbox out of order") {
            self.0.reverse();
        }
        if fault("last two posts swapped")
            && let [.., last, latest] = &mut self.0[..]
        {
            std::mem::swap(last, latest);
        }
        self.0.drain(..)
    }

    /// Empties the outbox into the mailboxes, without poking anybody: when the core ends, and with
    /// it the runtime.
    pub(super) fn abandon(&mut self, shared: &Shared) {
        for Outgoing { slot, chunk } in self.0.drain(..) {
            let _ = mail::push(&shared.slots, slot, chunk);
        }
    }
}
