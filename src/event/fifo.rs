//! Events in a row: a chunk on its way to a color, a color's FIFO, and what runs of it.
//!
//! Each owns the nodes of its events. None can be copied, so a node has one owner at any time:
//! appending moves it, and popping moves it back. Nobody else reads or writes a node that is owned.
//! (Dropping one of them would leak the nodes and the closures in them: whoever has one passes it
//! on.)
//!
//! A node links to the next in the row. In a chunk of several it also says where to *jump*: to the
//! event [some places](JUMP) behind it, whose memory is asked for when this one is popped
//! ([`super::prefetch`]). A jump is never followed: it may lead to any node.
//!
//! On its way the first node of a chunk of several has their number and, in the place of a jump,
//! their summed times. In a mailbox a chunk is a ring: its last node links back to the first, and
//! to the last node of the chunk that came before.

use super::node::{Event, Header, Node, Owned};
use super::tag::ProfileId;
use super::times::{Times, Totals};
use crate::Color;
use crate::ablation::{Rule, without};
use crate::memory::{PREFETCH_LEAD, prefetch};
use crate::sync::{CellMut, charge};
use std::hint::select_unpredictable;
use std::ptr::NonNull;

/// Events on their way to one color, linked from `first` to `last`. Of several, the first node's
/// header has their number and summed times.
#[derive(Debug)]
#[must_use]
pub(crate) struct Chunk {
    first: Owned,
    last: *mut Node,
}

impl From<Event> for Chunk {
    #[inline(always)]
    fn from(event: Event) -> Chunk {
        let first = event.into_node();
        let last = first.at();
        Chunk { first, last }
    }
}

/// How many places behind an event of a chunk the one is to which it jumps. The last ones of a
/// chunk, and the first one of several, jump to themselves.
pub(super) const JUMP: usize = PREFETCH_LEAD as usize;

/// The last events of a chunk that grows, whose jumps are still to be set.
#[derive(Debug)]
pub(crate) struct Recent([*mut Node; JUMP]);

impl Recent {
    pub(crate) const NONE: Recent = Recent([std::ptr::null_mut(); JUMP]);
}

impl Chunk {
    #[inline(always)]
    fn last(&mut self) -> CellMut<'_, Header> {
        // SAFETY: the chunk owns its nodes, and is borrowed mutably.
        unsafe { Node::header(self.last) }
    }

    #[inline(always)]
    pub(crate) fn totals(&mut self) -> Totals {
        let is_one = self.first.at() == self.last;
        let header = self.first.header();
        let times = Times::from_bits(header.link.addr() as u64);
        // Both are read: whether two posts in a row are to one color may be as good as random.
        Totals {
            count: select_unpredictable(is_one, 1, header.count),
            times: select_unpredictable(is_one, header.times, times),
        }
    }

    /// Closes the ring for a mailbox, in which `older` is the newest chunk's last node so far, or
    /// null. Returns this chunk's.
    #[inline(always)]
    pub(crate) fn close(&mut self, older: *mut Node) -> *mut Node {
        let first = self.first.at();
        let mut last = self.last();
        last.next = first;
        last.link = older;
        self.last
    }

    /// The chunk that was closed, by its last node; and the older one's.
    ///
    /// # Safety
    /// The last node of a chunk that was closed, and whose nodes the caller owns.
    #[inline(always)]
    pub(crate) unsafe fn open(last: NonNull<Node>) -> (Chunk, *mut Node) {
        charge::reach(last.as_ptr());
        let (next, older) = {
            // SAFETY: the caller's promise.
            let header = unsafe { Node::header(last.as_ptr()) };
            (header.next, header.link)
        };
        let first = NonNull::new(next).expect("a closed ring leads to its first node");
        // SAFETY: the caller's promise, and so `close` left it.
        let first = unsafe { Owned::from_raw(first) };
        let last = last.as_ptr();
        (Chunk { first, last }, older)
    }

    /// The color of the last event; for reports.
    pub(crate) fn color(&mut self) -> Color {
        self.last().color()
    }

    /// Appends an event. `recent` is the same for all events of the chunk.
    #[inline(always)]
    pub(crate) fn push(&mut self, mut event: Event, recent: &mut Recent) {
        let totals = self.totals();
        let times = totals.times.plus(event.times());
        let node = event.into_node().at();
        self.last().next = node;
        let count = totals.count as usize;
        let recent = &mut recent.0[count % JUMP];
        if count > JUMP {
            // SAFETY: what was pushed this many events ago is one of the chunk's, which is borrowed
            // mutably.
            unsafe { Node::header(*recent) }.link = node;
        }
        *recent = node;
        let mut first = self.first.header();
        first.count = totals.count + 1;
        first.link = std::ptr::without_provenance_mut(times.to_bits() as usize);
        first.end();
        self.last = node;
    }
}

const _: () = assert!(
    size_of::<usize>() == size_of::<Times>(),
    "a link holds the sums"
);

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
    fn from(mut event: Event) -> Fifo {
        let times = event.times();
        let node = event.into_node().at();
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
    fn from(mut chunk: Chunk) -> Fifo {
        let Totals { count, times } = chunk.totals();
        let first = chunk.first.at();
        chunk.first.header().link = first;
        Fifo {
            head: first,
            tail: chunk.last,
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

    /// Where the first event is, for [`prefetch`]; dangling if there is none.
    #[inline(always)]
    pub(crate) fn at(&self) -> *mut Node {
        self.head
    }

    /// The header of the node at the head or at the tail, if there is one.
    #[inline(always)]
    fn end(&mut self, end: FifoEnd) -> Option<CellMut<'_, Header>> {
        let node = match end {
            FifoEnd::Head => self.head,
            FifoEnd::Tail => self.tail,
        };
        // SAFETY: the FIFO owns its nodes, has one, and is borrowed mutably.
        (self.len > 0).then(|| unsafe { Node::header(node) })
    }

    /// The profile of the first event, of a FIFO that is not empty.
    #[inline(always)]
    pub(crate) fn profile(&mut self) -> ProfileId {
        charge::reach(self.head);
        self.end(FifoEnd::Head).expect("it is not empty").profile()
    }

    /// The color of the first event, if there is one; for reports.
    pub(crate) fn color(&mut self) -> Option<Color> {
        self.end(FifoEnd::Head).map(|first| first.color())
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
        self.append_all(chunk.into());
    }

    /// Appends the events of another, which is not empty.
    #[inline(always)]
    pub(crate) fn append_all(&mut self, other: Fifo) {
        match self.end(FifoEnd::Tail) {
            Some(mut last) => last.next = other.head,
            None => self.head = other.head,
        }
        self.tail = other.tail;
        self.len += other.len;
        self.times = self.times().plus(other.times);
    }

    /// Puts the events of a chunk before those that are there.
    pub(crate) fn prepend(&mut self, mut chunk: Chunk) {
        // Out of a mailbox it may lead to an older chunk still.
        let last = chunk.last;
        chunk.last().link = last;
        let mut all = Fifo::from(chunk);
        if self.len > 0 {
            all.append_all(self.take());
        }
        *self = all;
    }

    /// Appends one event; returns whether it is the only one. Without a branch: where events hop
    /// from color to color, whether they meet is as good as random.
    #[inline(always)]
    pub(crate) fn push(&mut self, mut event: Event) -> bool {
        let times = event.times();
        let (ptr, alone) = (event.into_node().at(), self.len == 0);
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
        let Fifo {
            head,
            tail,
            times,
            len,
        } = *self;
        (self.len, self.times) = (0, Times::ZERO);
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
        let next = self.end(FifoEnd::Head)?.next;
        self.head = next;
        self.len -= 1;
        // SAFETY: owned, and given up.
        Some(unsafe { Event::from_raw(node) })
    }
}

/// An end of a FIFO.
#[derive(Clone, Copy)]
enum FifoEnd {
    Head,
    Tail,
}

/// The color that runs: what is left of its events, what it posts to itself, and its batch. Between
/// turns it has no events and its batch is over.
//
// The order of the fields keeps apart what stands side by side in a FIFO, and the two counters that
// each event takes one from. Else the compiler handles two fields with one load; and what was
// stored as two pieces a moment ago cannot be loaded as one before both have reached the cache.
// That was a fifth of an event, for two colors that post to each other.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Running {
    times: Times,
    head: *mut Node,
    len: u32,
    /// Most events in the batch.
    batch: u32,
    tail: *mut Node,
    /// Time left of the batch, and what that was when `times` last agreed with the events, in ns.
    left_ns: i64,
    settled_ns: i64,
    /// The penalized time of what ran since then.
    penalized_ns: u64,
    /// Events left of the batch.
    batch_left: u32,
}

impl Running {
    pub(crate) const NONE: Running = Running {
        times: Times::ZERO,
        head: std::ptr::null_mut(),
        len: 0,
        batch: 0,
        tail: std::ptr::null_mut(),
        left_ns: 0,
        settled_ns: 0,
        penalized_ns: 0,
        batch_left: 0,
    };

    /// Begins a turn of at most `batch` events, and of no more once they took `batch_ns`.
    #[inline(always)]
    pub(crate) fn begin(&mut self, fifo: &mut Fifo, batch: u32, batch_ns: u32) {
        self.take_up(fifo);
        (self.batch, self.batch_left) = (batch, batch);
        (self.left_ns, self.settled_ns) = (batch_ns.into(), batch_ns.into());
        self.penalized_ns = 0;
    }

    /// Takes the color's events.
    #[inline(always)]
    pub(crate) fn take_up(&mut self, fifo: &mut Fifo) {
        (self.head, self.tail, self.times, self.len) = (fifo.head, fifo.tail, fifo.times, fifo.len);
        // The sums are set right when the events come back.
        fifo.len = 0;
    }

    /// Gives away what is left of the color's events.
    pub(crate) fn put_down(&mut self) -> Fifo {
        if self.len == 0 {
            self.times = Times::ZERO;
        } else if self.times.raw_ns() != u32::MAX {
            // A sum that reached its end stays there, until there are no events.
            self.times = Times::new(
                self.times.raw_ns() - (self.settled_ns - self.left_ns) as u32,
                self.times.penalized_ns() - self.penalized_ns as u32,
            );
        }
        (self.settled_ns, self.penalized_ns) = (self.left_ns, 0);
        Fifo {
            head: self.head,
            tail: self.tail,
            times: self.times,
            len: std::mem::take(&mut self.len),
        }
    }

    /// Gives back an event that was just popped and did not run.
    #[inline(never)]
    pub(crate) fn unpop(&mut self, event: Event, times: Times) {
        // Its link leads to the next event still, if there is one; else it is the tail still.
        self.head = event.into_node().at();
        self.len += 1;
        self.batch_left += 1;
        self.left_ns += i64::from(times.raw_ns());
        self.penalized_ns -= u64::from(times.penalized_ns());
    }

    /// Puts an event before all others, which was not among them.
    pub(crate) fn put_first(&mut self, event: Event) {
        let mut fifo = self.put_down();
        fifo.prepend(event.into());
        self.take_up(&mut fifo);
    }

    /// An event that has begun does not count as one; of the batch it was one all the same.
    pub(crate) fn forget_begun(&mut self) {
        self.batch -= 1;
    }

    /// The turn is over after the event that runs, or that is about to.
    pub(crate) fn cut(&mut self) {
        // What `put_down` reckons with is the difference.
        self.settled_ns -= self.left_ns;
        self.left_ns = 0;
    }

    /// Whether the color's events are finished, or its batch is over.
    #[inline(always)]
    pub(crate) fn is_over(&self) -> bool {
        self.len == 0 || self.batch_left == 0 || self.left_ns <= 0
    }

    #[inline(always)]
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Events of the batch that have begun.
    #[inline(always)]
    pub(crate) fn begun(&self) -> u64 {
        u64::from(self.batch - self.batch_left)
    }

    /// Ends the batch, of a color that was put down or has no events.
    #[inline(always)]
    pub(crate) fn end(&mut self) {
        debug_assert!(self.is_empty());
        self.batch_left = self.batch;
    }

    /// Appends an event that the color posted to itself, whose times these are.
    #[inline(always)]
    pub(crate) fn push(&mut self, event: Event, times: Times) {
        let node = event.into_node().at();
        if self.len == 0 {
            self.head = node;
        } else {
            // SAFETY: the tail is one of the running color's nodes, which are ours.
            unsafe { Node::header(self.tail) }.next = node;
        }
        self.tail = node;
        self.len += 1;
        self.times = self.times.plus(times);
    }

    /// The next event, with its times.
    ///
    /// # Safety
    /// There is one.
    #[inline(always)]
    pub(crate) unsafe fn pop(&mut self) -> (Event, Times) {
        debug_assert!(self.len > 0);
        charge::reach(self.head);
        // SAFETY: the head of a FIFO that is not empty is a node with an event in it. It is ours,
        // and given up.
        let mut event = unsafe { Event::from_raw(NonNull::new_unchecked(self.head)) };
        let (times, ahead) = {
            let header = event.header();
            // The last node's link means nothing, but whether there is a next one is hard to
            // predict.
            self.head = header.next;
            (header.times, header.link)
        };
        if !without(Rule::Jump) {
            prefetch(ahead);
        }
        self.len -= 1;
        self.batch_left -= 1;
        self.left_ns -= i64::from(times.raw_ns());
        self.penalized_ns += u64::from(times.penalized_ns());
        (event, times)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::Cx;
    use crate::event::maker::Maker;
    use crate::event::node::Sort;
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

    /// Makes events of the colors it is given.
    fn makes() -> impl FnMut(u64) -> Event {
        let profiles = Profiles::new(false);
        let mut maker = Maker::new(&Depot::new(100, 1));
        move |color| {
            let color = Color::from(color);
            let made = maker.make(
                &profiles,
                None,
                color,
                |_: &mut Cx| (),
                Sort::ORDINARY,
                |f| f,
            );
            made.unwrap_or_else(|_| panic!("there is room")).0
        }
    }

    /// Where the events of a row are, and where each of them jumps to, by their places.
    fn jumps(mut row: Fifo) -> Vec<Option<usize>> {
        let mut links = Vec::new();
        while let Some(event) = row.pop() {
            let mut node = event.into_node();
            let link = node.header().link;
            links.push((node.at(), link));
        }
        let place = |link| links.iter().position(|&(at, _)| at == link);
        links.iter().map(|&(_, link)| place(link)).collect()
    }

    #[test]
    fn an_event_of_a_chunk_jumps_ahead_or_stays() {
        const COUNT: usize = 2 * JUMP + 3;
        let mut make = makes();
        let mut recent = Recent::NONE;
        // The second chunk goes through a mailbox, behind one of a single event.
        for mailed in [false, true] {
            let mut row = Fifo::EMPTY;
            let mut lone = Chunk::from(make(0));
            let mut chunk = Chunk::from(make(0));
            (1..COUNT).for_each(|_| chunk.push(make(0), &mut recent));
            if mailed {
                let older = lone.close(std::ptr::null_mut());
                let last = NonNull::new(chunk.close(older)).unwrap();
                // SAFETY: just closed, and owned.
                let (chunk, older) = unsafe { Chunk::open(last) };
                row.prepend(chunk);
                // SAFETY: the same.
                row.prepend(unsafe { Chunk::open(NonNull::new(older).unwrap()) }.0);
            } else {
                row.append(lone);
                row.append(chunk);
            }
            let expected = (0..=COUNT).map(|i| match i {
                2.. if i + JUMP <= COUNT => Some(i + JUMP),
                _ => Some(i),
            });
            assert_eq!(jumps(row), Vec::from_iter(expected), "mailed: {mailed}");
        }
    }

    #[test]
    fn events_leave_in_the_order_of_their_arrival() {
        let mut make = makes();
        let mut fifo = Fifo::from(make(2));
        let mut chunk = Chunk::from(make(3));
        let mut recent = Recent::NONE;
        chunk.push(make(4), &mut recent);
        assert_eq!(chunk.totals().count, 2);
        fifo.append(chunk);
        assert_eq!(fifo.len(), 3);
        let mut chunk = Chunk::from(make(0));
        chunk.push(make(1), &mut recent);
        fifo.prepend(chunk);
        let left: Vec<_> = std::iter::from_fn(|| fifo.pop())
            .map(|mut event| event.color_and_tag().0)
            .collect();
        assert_eq!(left, [0, 1, 2, 3, 4]);
    }
}
