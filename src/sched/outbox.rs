//! The outbox: posts to other colors, in program order, until they are published.
//!
//! Only consecutive posts to one color become one chunk: regrouping would break causal order.

use super::checkout::Checkout;
use super::mail;
use super::node::{Link, Node};
use super::poke;
use super::queue::Chunk;
use super::section::Section;
use super::shared::Shared;
use super::sleepers::rescue;
use crate::sync::fault;
use arrayvec::ArrayVec;
use std::ptr::NonNull;

/// Most chunks that wait before they are published inside a handler.
pub(super) const OUTBOX_MAX: usize = if cfg!(loom) { 4 } else { 256 };

/// A chunk on its way to a color.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outgoing {
    pub(super) slot: u32,
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
    pub(super) fn last(&self) -> Option<u32> {
        self.0.last().map(|last| last.slot)
    }

    /// Adds an event, which the outbox then holds. The caller publishes at [`OUTBOX_MAX`] at the
    /// latest.
    #[inline(always)]
    pub(super) fn put(&mut self, slot: u32, node: NonNull<Node>) {
        debug_assert!(self.0.len() < OUTBOX_MAX);
        let chunk = Chunk {
            first: node,
            last: node,
        };
        // SAFETY: there is room, because at `OUTBOX_MAX` entries the caller published.
        unsafe { self.0.push_unchecked(Outgoing { slot, chunk }) };
    }

    /// Adds an event to the last post's color. There is one.
    #[inline(never)]
    pub(super) fn join(&mut self, node: NonNull<Node>) {
        let Some(last) = self.0.last_mut() else {
            unreachable!("the caller looked");
        };
        join(&mut last.chunk, node);
    }

    /// Empties the outbox in program order, under the lock of core `id`, whose thread this is. `lone`: what
    /// can go straight to the checkout does, because a quantum is about to begin.
    #[inline]
    pub(super) fn publish(
        &mut self,
        section: &mut Section<'_>,
        shared: &Shared,
        id: u32,
        checkout: &mut Checkout,
        lone: bool,
        bells: &mut Vec<u32>,
    ) {
        if fault("outbox out of order") {
            self.0.reverse();
        }
        if fault("last two posts swapped")
            && let [.., last, latest] = &mut self.0[..]
        {
            std::mem::swap(last, latest);
        }
        let mut calls = Calls {
            core: id,
            colors: ArrayVec::new(),
        };
        let mut rest = &self.0[..];
        loop {
            if lone {
                // SAFETY: the outbox gives up what is taken.
                let taken = unsafe { section.take_lone(rest, checkout) };
                rest = &rest[taken..];
            }
            let Some((&Outgoing { slot, chunk }, others)) = rest.split_first() else {
                break;
            };
            rest = others;
            // SAFETY: the outbox gives its nodes up.
            if !unsafe { section.append(slot, chunk, checkout) } {
                calls.post(shared, slot, chunk, id, bells);
            }
        }
        if !calls.colors.is_empty() {
            calls.send(shared, id, bells);
        }
        self.0.clear();
    }

    /// Empties the outbox into the mailboxes, without poking anybody: when the core ends, and with it
    /// the runtime.
    pub(super) fn abandon(&mut self, shared: &Shared) {
        for Outgoing { slot, chunk } in self.0.drain(..) {
            // SAFETY: the outbox gives its nodes up.
            let _ = unsafe { mail::push(&shared.slots, slot, chunk) };
        }
    }
}

/// Appends a node to a chunk that is not published yet.
#[inline(always)]
fn join(chunk: &mut Chunk, node: NonNull<Node>) {
    let (first, last, node_ptr) = (chunk.first.as_ptr(), chunk.last.as_ptr(), node.as_ptr());
    // SAFETY: the outbox holds the chunk and was given the node.
    let (totals, more) = unsafe { (Node::totals(first, last), Node::totals(node_ptr, node_ptr)) };
    // SAFETY: as above.
    unsafe { Node::header(last).next = node_ptr };
    // SAFETY: as above.
    let mut header = unsafe { Node::header(first) };
    header.count = totals.count + 1;
    header.link = Link {
        sums: totals.times.plus(more.times),
    };
    chunk.last = node;
}

/// Pokes that are due to one other core.
#[derive(Debug)]
struct Calls {
    core: u32,
    colors: ArrayVec<u32, CALLS_MAX>,
}

/// Most pokes that are sent at once.
const CALLS_MAX: usize = if cfg!(loom) { 2 } else { 32 };

impl Calls {
    /// Posts to another core's color. `id`: the poster's core.
    #[inline(never)]
    fn post(&mut self, shared: &Shared, slot: u32, chunk: Chunk, id: u32, bells: &mut Vec<u32>) {
        // SAFETY: the outbox holds the chunk.
        let totals = unsafe { Node::totals(chunk.first.as_ptr(), chunk.last.as_ptr()) };
        let stats = &shared.cores[id as usize].stats;
        stats.posts_remote.add(totals.count.into());
        // SAFETY: the outbox gives its nodes up.
        if unsafe { mail::push(&shared.slots, slot, chunk) } {
            let owner = shared.slots.owner(slot);
            if owner != self.core || self.colors.is_full() {
                self.send(shared, id, bells);
                self.core = owner;
            }
            self.colors.push(slot);
        }
    }

    /// Sends what is due.
    fn send(&mut self, shared: &Shared, id: u32, bells: &mut Vec<u32>) {
        if !self.colors.is_empty() {
            poke::send_all(shared, self.core, &self.colors, bells);
            for &slot in &self.colors {
                rescue(shared, shared.slots.owner(slot), Some(id), bells);
            }
            self.colors.clear();
        }
    }
}
