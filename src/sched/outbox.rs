//! The outbox: posts to other colors, in program order, until they are published.
//!
//! Only consecutive posts to one color become one chunk: regrouping would break causal order.

use crate::color::SlotId;
use crate::event::fifo::{Chunk, Recent};
use crate::event::node::Event;
use crate::shared::Shared;
use crate::shared::remote::mail;
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
pub(super) struct Outbox {
    chunks: Box<ArrayVec<Outgoing, OUTBOX_MAX>>,
    /// How many chunks, the first ones, were posted by events: what follows, if anything, is what
    /// the event source brought.
    by_events: usize,
    /// Of the last chunk.
    recent: Recent,
    /// With this many chunks it is to be published: one, while an event runs that is known or
    /// feared to be long; but after its first post see [`super::timing`].
    due: usize,
}

impl Outbox {
    pub(super) fn new() -> Outbox {
        Outbox {
            chunks: Box::default(),
            by_events: 0,
            recent: Recent::NONE,
            due: OUTBOX_MAX,
        }
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    #[inline(always)]
    pub(super) fn is_due(&self) -> bool {
        self.chunks.len() >= self.due
    }

    /// Whether each post is to be published at once.
    pub(super) fn is_hasty(&self) -> bool {
        self.due == 1
    }

    /// From now on each post is to be published at once, or as many as there is room for.
    pub(super) fn hasten(&mut self, hasty: bool) {
        self.due = if hasty { 1 } else { OUTBOX_MAX };
    }

    /// The color of the last post.
    #[inline(always)]
    pub(super) fn last(&self) -> Option<SlotId> {
        self.chunks.last().map(|last| last.slot)
    }

    /// The colors that have posts in it.
    pub(super) fn slots(&self) -> impl Iterator<Item = SlotId> {
        self.chunks.iter().map(|outgoing| outgoing.slot)
    }

    /// Adds an event. The caller publishes at [`OUTBOX_MAX`] at the latest.
    #[inline(always)]
    pub(super) fn put(&mut self, slot: SlotId, event: Event) {
        let chunk = event.into();
        debug_assert!(self.chunks.len() < OUTBOX_MAX);
        // SAFETY: there is room: `Core::put_out` flushes once there are `due`, which is at most
        // `OUTBOX_MAX`, `Core::post_home`, the only other caller, flushes at once, and a flush
        // empties the outbox.
        unsafe { self.chunks.push_unchecked(Outgoing { slot, chunk }) };
    }

    /// Adds an event to the last post's color. There is one. True if the chunk now has as many
    /// events as the outbox may have chunks, and is due: posts to one color do not wait without an
    /// end.
    #[inline(always)]
    pub(super) fn join(&mut self, event: Event) -> bool {
        let Some(last) = self.chunks.last_mut() else {
            unreachable!("the caller looked");
        };
        last.chunk.push(event, &mut self.recent);
        last.chunk.totals().count as usize >= OUTBOX_MAX
    }

    /// What is in it so far was posted by events.
    #[inline(always)]
    pub(super) fn end_turns(&mut self) {
        self.by_events = self.chunks.len();
    }

    /// What is in it, in program order, and whether events have posted it; leaves it empty.
    #[inline(always)]
    pub(super) fn drain(&mut self) -> impl Iterator<Item = (Outgoing, bool)> {
        let by_events = std::mem::take(&mut self.by_events);
        if fault("outbox out of order") {
            self.chunks.reverse();
        }
        if fault("last two posts swapped")
            && let [.., last, latest] = &mut self.chunks[..]
        {
            std::mem::swap(last, latest);
        }
        let all = self.chunks.drain(..).enumerate();
        all.map(move |(i, outgoing)| (outgoing, i < by_events))
    }

    /// Empties the outbox into the mailboxes, without poking anybody: when the core ends, and with
    /// it the runtime.
    pub(super) fn abandon(&mut self, shared: &Shared) {
        for Outgoing { slot, chunk } in self.chunks.drain(..) {
            let _ = mail::push(&shared.slots, slot, chunk);
        }
    }
}
