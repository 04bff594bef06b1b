//! The private part of a color: its FIFO of events, what it is worth, and where it is linked.
//!
//! ```text
//!            append (owner or thief under the lock)          check out (same)
//!   Idle ---------------------------------------> Queued -------------------> CheckedOut
//!    ^                                              ^                              |
//!    |                    something left            +------------------------------+
//!    +---------------------- nothing left (mailbox looked at) ---------------------+
//! ```
//!
//! `Idle` and `Queued` belong to whoever holds the lock of the owning core; `CheckedOut` belongs to
//! that core's thread, without the lock. The state itself changes under the owner's lock only, and
//! lives in the shared half of the slot, so that a thief can see that a color is checked out without
//! touching what its owner is working on. An `Idle` color may hold events for a moment: one that was
//! placed on another core is linked there when its poke arrives ([`super::section`]).

use super::node::Node;
use std::ptr::NonNull;

/// "No slot" in a link.
pub(crate) const NIL: u32 = u32::MAX;

/// Where a color-queue is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum State {
    /// In no list.
    Idle = 0,
    /// In its owner's core-queue.
    Queued = 1,
    /// Taken by its owner's thread to be run without the lock.
    CheckedOut = 2,
}

/// Events on their way, in order, linked from `first` to `last`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chunk {
    pub(crate) first: NonNull<Node>,
    pub(crate) last: NonNull<Node>,
    pub(crate) count: u32,
    /// Holds an event of unknown or varying duration.
    pub(crate) solo: bool,
    pub(crate) raw_ns: u64,
    pub(crate) penalized_ns: u64,
}

/// The private part of a color slot. All zero is an idle, empty queue.
#[repr(C, align(64))]
#[derive(Debug)]
pub(crate) struct ColorQueue {
    head: *mut Node,
    tail: *mut Node,
    /// Time-left: the sum over the queued events, in ns.
    pub(crate) raw_ns: u64,
    /// Time-left with each event's share divided by its penalty.
    pub(crate) penalized_ns: u64,
    len: u32,
    pub(crate) core_prev: u32,
    pub(crate) core_next: u32,
    pub(crate) band_prev: u32,
    pub(crate) band_next: u32,
    /// 0: not in the stealing-queue, else its band plus one. Stored, because the steal cost that
    /// decided on it may have moved since.
    pub(crate) band: u8,
    /// Holds (or held since it was last empty) an event of unknown or varying duration.
    pub(crate) solo: bool,
}

impl ColorQueue {
    #[cfg_attr(not(loom), allow(dead_code))]
    pub(crate) fn new() -> ColorQueue {
        ColorQueue {
            head: std::ptr::null_mut(),
            tail: std::ptr::null_mut(),
            raw_ns: 0,
            penalized_ns: 0,
            len: 0,
            core_prev: 0,
            core_next: 0,
            band_prev: 0,
            band_next: 0,
            band: 0,
            solo: false,
        }
    }

    #[inline]
    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    /// What one turn of at most `batch` events will take, in ns: exact for a short queue, else by
    /// the mean.
    #[inline]
    pub(crate) fn turn_ns(&self, batch: u32) -> u64 {
        if self.len <= batch {
            self.raw_ns
        } else {
            self.raw_ns / u64::from(self.len) * u64::from(batch)
        }
    }

    /// Appends a chunk, whose nodes the queue then holds.
    ///
    /// # Safety
    /// The caller owns this private part, and gives up the chunk's nodes.
    #[inline]
    pub(crate) unsafe fn append(&mut self, chunk: Chunk) {
        if self.len == 0 {
            self.head = chunk.first.as_ptr();
            self.solo = chunk.solo;
        } else {
            // SAFETY: the tail is held by this queue, which the caller owns.
            unsafe { Node::header(self.tail).next = chunk.first.as_ptr() };
            self.solo |= chunk.solo;
        }
        self.tail = chunk.last.as_ptr();
        self.len += chunk.count;
        self.raw_ns += chunk.raw_ns;
        self.penalized_ns += chunk.penalized_ns;
    }

    /// Takes the first event, which the caller then holds.
    ///
    /// # Safety
    /// The caller owns this private part.
    #[inline]
    pub(crate) unsafe fn pop(&mut self) -> Option<NonNull<Node>> {
        if self.len == 0 {
            return None;
        }
        // SAFETY: the head of a queue that is not empty was set by `append` or below, to a node.
        let node = unsafe { NonNull::new_unchecked(self.head) };
        // SAFETY: queued nodes are held by the queue, which the caller owns.
        let header = unsafe { Node::header(node.as_ptr()) };
        self.raw_ns -= u64::from(header.raw_ns);
        self.penalized_ns -= u64::from(header.penalized_ns);
        // The last node's link is not read: it was never set.
        self.len -= 1;
        if self.len > 0 {
            self.head = header.next;
        }
        Some(node)
    }
}
