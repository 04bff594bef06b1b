//! Events in a row: a chunk on its way to a color, and a color's FIFO.
//!
//! Both own the nodes of their events. Neither can be copied, so a node has one owner at any time:
//! appending moves it, and popping moves it back. Nobody else reads or writes a node that is owned.
//! (Dropping one of them would leak the nodes and the closures in them: whoever has one passes it
//! on.)
//!
//! A node links to the next in the row. The first node of a chunk of several has their number and
//! their summed times. In a mailbox a chunk is a ring: its last node links back to the first, and
//! to the last node of the chunk that came before.

use super::node::{Event, Header, Link, Node};
use super::tag::ProfileId;
use super::times::{Times, Totals};
use crate::Color;
use crate::sync::CellMut;
use std::hint::select_unpredictable;
use std::ptr::NonNull;

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
    fn from(event: Event) -> Chunk {
        let node = event.into_node();
        Chunk {
            first: node,
            last: node,
        }
    }
}

impl Chunk {
    #[inline(always)]
    fn first(&self) -> CellMut<'_, Header> {
        // SAFETY: the chunk owns its nodes. Here and below, whoever calls this ends the borrow
        // before the next one.
        unsafe { Node::header(self.first.as_ptr()) }
    }

    #[inline(always)]
    fn last(&self) -> CellMut<'_, Header> {
        // SAFETY: the chunk owns its nodes.
        unsafe { Node::header(self.last.as_ptr()) }
    }

    #[inline(always)]
    pub(crate) fn totals(&self) -> Totals {
        let header = self.first();
        if self.first == self.last {
            return Totals {
                count: 1,
                times: header.times,
            };
        }
        Totals {
            count: header.count,
            // SAFETY: the first node of a chunk of several has the sums.
            times: unsafe { header.link.sums },
        }
    }

    /// Closes the ring for a mailbox, in which `older` is the newest chunk's last node so far, or
    /// null. Returns this chunk's.
    #[inline(always)]
    pub(crate) fn close(&mut self, older: *mut Node) -> *mut Node {
        let mut last = self.last();
        last.next = self.first.as_ptr();
        last.link = Link { older };
        self.last.as_ptr()
    }

    /// The chunk that was closed, by its last node; and the older one's.
    ///
    /// # Safety
    /// The last node of a chunk that was closed, and whose nodes the caller owns.
    #[inline(always)]
    pub(crate) unsafe fn open(last: NonNull<Node>) -> (Chunk, *mut Node) {
        // SAFETY: the caller's promise.
        let header = unsafe { Node::header(last.as_ptr()) };
        let first = NonNull::new(header.next).expect("a closed ring leads to its first node");
        // SAFETY: so `close` left it.
        (Chunk { first, last }, unsafe { header.link.older })
    }

    /// The color of the last event; for reports.
    pub(crate) fn color(&self) -> Color {
        self.last().color()
    }

    /// Appends an event.
    #[inline(always)]
    pub(crate) fn push(&mut self, event: Event) {
        let totals = self.totals();
        let times = totals.times.plus(event.times());
        let node = event.into_node();
        self.last().next = node.as_ptr();
        let mut first = self.first();
        first.count = totals.count + 1;
        first.link = Link { sums: times };
        first.end();
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
        Fifo {
            head: chunk.first.as_ptr(),
            tail: chunk.last.as_ptr(),
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

    #[inline(always)]
    fn first(&self) -> Option<CellMut<'_, Header>> {
        // SAFETY: the FIFO owns its nodes, and has one; see `Chunk::first`.
        (self.len > 0).then(|| unsafe { Node::header(self.head) })
    }

    #[inline(always)]
    fn last(&self) -> Option<CellMut<'_, Header>> {
        // SAFETY: as above.
        (self.len > 0).then(|| unsafe { Node::header(self.tail) })
    }

    /// The profile of the first event, of a FIFO that is not empty.
    #[inline(always)]
    pub(crate) fn profile(&self) -> ProfileId {
        self.first().expect("it is not empty").profile()
    }

    /// The color of the first event, if there is one; for reports.
    pub(crate) fn color(&self) -> Option<Color> {
        self.first().map(|first| first.color())
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
        let Totals { count, times } = chunk.totals();
        match self.last() {
            Some(mut last) => last.next = chunk.first.as_ptr(),
            None => self.head = chunk.first.as_ptr(),
        }
        self.tail = chunk.last.as_ptr();
        self.len += count;
        self.times = self.times().plus(times);
    }

    /// Appends the events of another, which is not empty.
    #[inline(always)]
    pub(crate) fn append_all(&mut self, other: Fifo) {
        match self.last() {
            Some(mut last) => last.next = other.head,
            None => self.head = other.head,
        }
        self.tail = other.tail;
        self.len += other.len;
        self.times = self.times().plus(other.times);
    }

    /// Puts the events of a chunk before those that are there.
    pub(crate) fn prepend(&mut self, chunk: Chunk) {
        let Totals { count, times } = chunk.totals();
        if self.len == 0 {
            self.tail = chunk.last.as_ptr();
        } else {
            chunk.last().next = self.head;
        }
        self.head = chunk.first.as_ptr();
        self.len += count;
        self.times = self.times().plus(times);
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
        let node = NonNull::new(self.head)?;
        let next = self.first()?.next;
        self.head = next;
        self.len -= 1;
        // SAFETY: owned, and given up.
        Some(unsafe { Event::new(node) })
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::Cx;
    use crate::event::maker::Maker;
    use crate::event::pool::Depot;
    use crate::event::profile::Profiles;

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
        let profiles = Profiles::new();
        let mut maker = Maker::new(&Depot::new(5, 1));
        let mut make = |color| {
            let made = maker.make(&profiles, None, Color::from(color), |_: &mut Cx| (), |f| f);
            made.unwrap_or_else(|_| panic!("there is room")).0
        };
        let mut fifo = Fifo::from(make(2));
        let mut chunk = Chunk::from(make(3));
        chunk.push(make(4));
        assert_eq!(chunk.totals().count, 2);
        fifo.append(chunk);
        assert_eq!(fifo.len(), 3);
        let mut chunk = Chunk::from(make(0));
        chunk.push(make(1));
        fifo.prepend(chunk);
        let left: Vec<_> = std::iter::from_fn(|| fifo.pop())
            .map(|event| event.color_and_tag().0)
            .collect();
        assert_eq!(left, [0, 1, 2, 3, 4]);
    }
}
