//! Events in order: one by itself, a chunk on its way to a color, and a color's FIFO.
//!
//! All three own the nodes of their events. None can be copied, so a node has one owner at any
//! time: appending moves it, and popping moves it back. Nobody else reads or writes a node that is
//! owned. (Dropping one of them would leak the nodes and the closures in them: whoever has one
//! passes it on.)

use super::node::{Link, Node};
use super::tag::{ProfileId, Tag};
use super::times::{Times, Totals};
use crate::Color;
use std::hint::select_unpredictable;
use std::ptr::NonNull;

/// One event that is in no chunk and in no FIFO.
#[derive(Debug)]
#[must_use]
pub(crate) struct Event(NonNull<Node>);

impl Event {
    /// # Safety
    /// The node holds a closure and its header is filled; the caller holds it and gives it up.
    #[inline(always)]
    pub(crate) unsafe fn new(node: NonNull<Node>) -> Event {
        Event(node)
    }

    /// Gives the node to the caller, who then holds it.
    #[inline(always)]
    pub(crate) fn into_node(self) -> NonNull<Node> {
        self.0
    }

    #[inline(always)]
    pub(crate) fn times(&self) -> Times {
        // SAFETY: the event owns its node.
        unsafe { Node::header(self.0.as_ptr()) }.times
    }

    /// The color's value, and the tag.
    #[inline(always)]
    pub(crate) fn color_and_tag(&self) -> (u64, Tag) {
        // SAFETY: the event owns its node.
        let header = unsafe { Node::header(self.0.as_ptr()) };
        (header.color, header.tag)
    }
}

/// Events on their way to one color, linked from `first` to `last`. Of several, the first node's
/// header has their number and summed times.
#[derive(Debug)]
#[must_use]
pub(crate) struct Chunk {
    first: NonNull<Node>,
    last: NonNull<Node>,
}

impl From<Event> for Chunk {
    #[inline(always)]
    fn from(Event(node): Event) -> Chunk {
        Chunk {
            first: node,
            last: node,
        }
    }
}

impl Chunk {
    /// The ends, whose nodes the caller then holds.
    #[inline(always)]
    pub(crate) fn into_ends(self) -> (NonNull<Node>, NonNull<Node>) {
        (self.first, self.last)
    }

    #[inline(always)]
    pub(crate) fn totals(&self) -> Totals {
        // SAFETY: the chunk owns its nodes.
        unsafe { Node::totals(self.first.as_ptr(), self.last.as_ptr()) }
    }

    /// Appends an event.
    #[inline(always)]
    pub(crate) fn push(&mut self, event: Event) {
        let totals = self.totals();
        let times = totals.times.plus(event.times());
        let node = event.into_node();
        // SAFETY: the chunk owns its nodes.
        unsafe { Node::header(self.last.as_ptr()) }.next = node.as_ptr();
        // SAFETY: as above.
        let mut header = unsafe { Node::header(self.first.as_ptr()) };
        header.count = totals.count + 1;
        header.link = Link { sums: times };
        self.last = node;
    }
}

/// The events of a color, in order, with their sums. All zero is empty.
///
/// A sum of times that reaches four seconds stays there until the FIFO is empty: by then a color is
/// worth stealing over any distance, and checked out alone.
//
// Packed, because 28 bytes instead of 32 let a color fit into one cache line.
#[derive(Debug)]
#[repr(C, packed(4))]
pub(crate) struct Fifo {
    head: *mut Node,
    tail: *mut Node,
    times: Times,
    len: u32,
}

impl From<Event> for Fifo {
    #[inline(always)]
    fn from(event: Event) -> Fifo {
        let times = event.times();
        let node = event.into_node().as_ptr();
        Fifo {
            head: node,
            tail: node,
            times,
            len: 1,
        }
    }
}

impl From<Chunk> for Fifo {
    #[inline(always)]
    fn from(chunk: Chunk) -> Fifo {
        let Totals { count, times } = chunk.totals();
        let (first, last) = chunk.into_ends();
        Fifo {
            head: first.as_ptr(),
            tail: last.as_ptr(),
            times,
            len: count,
        }
    }
}

impl Fifo {
    pub(crate) const EMPTY: Fifo = Fifo {
        head: std::ptr::null_mut(),
        tail: std::ptr::null_mut(),
        times: Times::ZERO,
        len: 0,
    };

    /// # Safety
    /// The caller holds `len` linked nodes from `head` to `tail`, and gives them up. (Without any,
    /// whatever the ends are.)
    #[inline(always)]
    pub(crate) unsafe fn new(head: *mut Node, tail: *mut Node, times: Times, len: u32) -> Fifo {
        Fifo {
            head,
            tail,
            times,
            len,
        }
    }

    /// The ends, whose nodes the caller then holds, the sums and the number; leaves an empty FIFO,
    /// whose sums are not set right.
    #[inline(always)]
    pub(crate) fn take_parts(&mut self) -> (*mut Node, *mut Node, Times, u32) {
        let parts = (self.head, self.tail, self.times, self.len);
        self.len = 0;
        parts
    }

    #[inline(always)]
    pub(crate) fn len(&self) -> u32 {
        self.len
    }

    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Time-left: the sums over the events.
    #[inline(always)]
    pub(crate) fn times(&self) -> Times {
        self.times
    }

    /// Unpenalized time-left, in ns.
    #[inline(always)]
    pub(crate) fn raw_ns(&self) -> u32 {
        self.times().raw_ns()
    }

    /// Where the first event is, for [`crate::prefetch`]; dangling if there is none.
    #[inline(always)]
    pub(crate) fn at(&self) -> *const Node {
        self.head
    }

    /// The profile of the first event, of a FIFO that is not empty.
    #[inline(always)]
    pub(crate) fn profile(&self) -> ProfileId {
        assert!(self.len > 0);
        // SAFETY: the FIFO owns its nodes, and has one.
        unsafe { Node::header(self.head) }.tag.profile()
    }

    /// The color of the first event, if there is one; for reports.
    pub(crate) fn color(&self) -> Option<Color> {
        // SAFETY: the FIFO owns its nodes.
        (self.len > 0).then(|| unsafe { Node::color(NonNull::new_unchecked(self.head)) })
    }

    /// What one turn of at most `batch` events will take, in ns: exact for a short queue, else by
    /// the mean.
    #[inline(always)]
    pub(crate) fn turn_ns(&self, batch: u32) -> u64 {
        if self.len <= batch {
            self.raw_ns().into()
        } else {
            u64::from(self.raw_ns() / self.len) * u64::from(batch)
        }
    }

    /// Appends the events of a chunk.
    #[inline(always)]
    pub(crate) fn append(&mut self, chunk: Chunk) {
        let totals = chunk.totals();
        let (first, last) = chunk.into_ends();
        // SAFETY: the chunk's nodes, which it gave up.
        unsafe { self.append_linked(first, last, totals) };
    }

    /// # Safety
    /// The nodes from `first` to `last` are linked, and `totals` says what they are; the caller
    /// holds them and gives them up.
    #[inline(always)]
    pub(crate) unsafe fn append_linked(
        &mut self,
        first: NonNull<Node>,
        last: NonNull<Node>,
        totals: Totals,
    ) {
        if self.len == 0 {
            self.head = first.as_ptr();
        } else {
            // SAFETY: the FIFO owns its nodes.
            unsafe { Node::header(self.tail) }.next = first.as_ptr();
        }
        self.tail = last.as_ptr();
        self.len += totals.count;
        self.times = self.times().plus(totals.times);
    }

    /// Appends one event; returns whether it is the only one. Without a branch: where events hop
    /// from color to color, whether they meet is as good as random.
    #[inline(always)]
    pub(crate) fn push(&mut self, event: Event) -> bool {
        let times = event.times();
        let (ptr, alone) = (event.into_node().as_ptr(), self.len == 0);
        // The last node's link means nothing, so a lone one may be linked to itself.
        let last = select_unpredictable(alone, ptr, self.tail);
        // SAFETY: the FIFO owns its nodes, and was given this one.
        unsafe { Node::header(last) }.next = ptr;
        self.head = select_unpredictable(alone, ptr, self.head);
        self.tail = ptr;
        self.len += 1;
        let before = select_unpredictable(alone, Times::ZERO, self.times());
        self.times = before.plus(times);
        alone
    }

    /// Takes all events out and leaves an empty FIFO.
    #[inline(always)]
    pub(crate) fn take(&mut self) -> Fifo {
        let (head, tail, times, len) = self.take_parts();
        self.times = Times::ZERO;
        Fifo {
            head,
            tail,
            times,
            len,
        }
    }

    /// Takes the first event out of a FIFO that is to be discarded: the sums stay as they are.
    pub(crate) fn pop(&mut self) -> Option<Event> {
        self.len = self.len.checked_sub(1)?;
        // SAFETY: it was not empty, and what leads from its first node is the next one's address.
        let node = unsafe { NonNull::new_unchecked(self.head) };
        // SAFETY: the FIFO owns its nodes.
        self.head = unsafe { Node::header(node.as_ptr()) }.next;
        Some(Event(node))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::event::pool::{Depot, Pool};

    impl Fifo {
        /// As if it had this many events.
        pub(crate) fn pretend(len: u32, raw_ns: u32, penalized_ns: u32) -> Fifo {
            Fifo {
                len,
                times: Times::new(raw_ns, penalized_ns),
                ..Fifo::EMPTY
            }
        }
    }

    #[test]
    fn a_turn_takes_what_its_batch_does() {
        let turn_ns = |len, raw_ns, batch| Fifo::pretend(len, raw_ns, raw_ns).turn_ns(batch);
        // All of it exactly, or the mean of the batch.
        assert_eq!(turn_ns(10, 1_005, 10), 1_005);
        assert_eq!(turn_ns(20, 2_019, 10), 1_000);
        assert_eq!(turn_ns(3, 10, 2), 6);
        let mut all = Fifo::pretend(3, 10, 5);
        assert_eq!(all.take().len(), 3);
        assert_eq!((all.len(), all.raw_ns()), (0, 0));
    }

    #[test]
    fn events_leave_in_the_order_of_their_arrival() {
        let mut pool = Pool::new(Depot::new(3, 1));
        let nodes = [(); 3].map(|()| pool.alloc().unwrap());
        // SAFETY: fresh nodes, which are given up; nobody looks for closures in them.
        let [first, second, third] = nodes.map(|node| unsafe { Event::new(node) });
        let mut fifo = Fifo::from(first);
        let mut chunk = Chunk::from(second);
        chunk.push(third);
        assert_eq!(chunk.totals().count, 2);
        fifo.append(chunk);
        assert_eq!(fifo.len(), 3);
        let left = [(); 3].map(|()| fifo.pop().unwrap().into_node());
        assert_eq!(left, nodes);
        assert!(fifo.pop().is_none());
    }
}
