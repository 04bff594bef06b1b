//! A color's FIFO of events, and the private part of its slot.
//!
//! ```text
//!            append (owner or thief under the lock)          check out (same)
//!   Idle ---------------------------------------> Queued -------------------> CheckedOut
//!    ^                                              ^                              |
//!    |                    something left            +------------------------------+
//!    +-------------------------------- nothing left -------------------------------+
//! ```
//!
//! The private part belongs to whoever holds the lock of the owning core, always. Checking a color out
//! moves its events out of the slot and into the checkout of the thread that will run them, and until it is
//! returned the slot's FIFO stays empty: what comes meanwhile goes to the checkout or stays in the mailbox
//! ([`super::checkout`]). An `Idle` color may hold events for a moment: one that was placed on another core
//! is linked there when its poke arrives ([`super::section`]).

use super::lists::EVENT_NS;
use super::node::Node;
use super::times::Times;
use std::hint::select_unpredictable;
use std::ptr::NonNull;

/// "No slot" in a link.
pub(crate) const NIL: u32 = u32::MAX;

/// Where a color-queue is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum State {
    /// In no list.
    Idle = 0,
    /// In its owner's core-queue.
    Queued = 1,
    /// Taken by its owner's thread to be run without the lock.
    CheckedOut = 2,
}

/// Events on their way to a color, in order, linked from `first` to `last`. The first node's header
/// has their number and summed times ([`Node::totals`]).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Chunk {
    pub(crate) first: NonNull<Node>,
    pub(crate) last: NonNull<Node>,
}

/// How many events, and what they are taken to last.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Totals {
    pub(crate) count: u32,
    pub(crate) times: Times,
}

/// Events in order, with their sums. All zero is empty.
///
/// A sum of times that reaches four seconds stays there until the FIFO is empty: by then a color is
/// worth stealing over any distance, and checked out alone.
//
// Packed, because 28 bytes instead of 32 let a color fit into one cache line.
#[derive(Clone, Copy, Debug)]
#[repr(C, packed(4))]
pub(crate) struct Fifo {
    pub(super) head: *mut Node,
    pub(super) tail: *mut Node,
    pub(super) times: Times,
    pub(super) len: u32,
}

impl Fifo {
    pub(crate) const EMPTY: Fifo = Fifo {
        head: std::ptr::null_mut(),
        tail: std::ptr::null_mut(),
        times: Times::ZERO,
        len: 0,
    };

    /// A FIFO of one event.
    ///
    /// # Safety
    /// The caller holds the node and gives it up.
    #[inline(always)]
    pub(crate) unsafe fn of(node: NonNull<Node>) -> Fifo {
        // SAFETY: held by the caller.
        let header = unsafe { Node::header(node.as_ptr()) };
        Fifo {
            head: node.as_ptr(),
            tail: node.as_ptr(),
            times: header.times,
            len: 1,
        }
    }

    #[inline(always)]
    pub(crate) fn len(&self) -> u32 {
        self.len
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

    /// The first event, of a FIFO that is not empty.
    #[inline(always)]
    pub(crate) fn first(&self) -> NonNull<Node> {
        debug_assert!(self.len > 0);
        // SAFETY: the head of a FIFO that is not empty was set by `append` or `pop`, to a node.
        unsafe { NonNull::new_unchecked(self.head) }
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

    /// Appends events, whose nodes the FIFO then holds.
    ///
    /// # Safety
    /// The caller owns this FIFO, and gives up the nodes, of which `totals` says the number.
    #[inline(always)]
    pub(crate) unsafe fn append(
        &mut self,
        first: NonNull<Node>,
        last: NonNull<Node>,
        totals: Totals,
    ) {
        if self.len == 0 {
            self.head = first.as_ptr();
        } else {
            // SAFETY: the tail is held by this FIFO, which the caller owns.
            unsafe { Node::header(self.tail).next = first.as_ptr() };
        }
        self.tail = last.as_ptr();
        self.len += totals.count;
        self.times = self.times().plus(totals.times);
    }

    /// Appends one event, whose node the FIFO then holds; returns whether it is the only one. Without a
    /// branch: where events hop from color to color, whether they meet is as good as random.
    ///
    /// # Safety
    /// The caller owns this FIFO, and gives up the node.
    #[inline(always)]
    pub(crate) unsafe fn append_one(&mut self, node: NonNull<Node>) -> bool {
        let (ptr, alone) = (node.as_ptr(), self.len == 0);
        // The last node's link means nothing, so a lone one may be linked to itself.
        let last = select_unpredictable(alone, ptr, self.tail);
        // SAFETY: the tail is held by this FIFO, which the caller owns, and the node is the caller's.
        unsafe { Node::header(last).next = ptr };
        // SAFETY: as above.
        let times = unsafe { Node::header(ptr).times };
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
        let fifo = *self;
        self.len = 0;
        self.times = Times::ZERO;
        fifo
    }

    /// Takes the first event out, which the caller then holds, of a FIFO that is to be discarded: the sums
    /// stay as they are.
    ///
    /// # Safety
    /// The caller owns this FIFO, and it is not empty.
    pub(crate) unsafe fn pop(&mut self) -> NonNull<Node> {
        let node = self.first();
        self.len -= 1;
        // SAFETY: queued nodes are held by the FIFO, which the caller owns.
        self.head = unsafe { Node::header(node.as_ptr()).next };
        node
    }
}

/// For how long a color has run without ever being finished: about what its turns took, since it last had
/// no events left.
///
/// What has lasted is expected to last as long again. A color that posts to itself has a single event
/// queued, of some nanoseconds, whenever it is looked at: by that it would never be worth stealing,
/// however long it goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Endurance(u16);

impl Endurance {
    pub(crate) const NONE: Endurance = Endurance(0);
    /// Counted in so many ns.
    const UNIT_NS: u64 = 128;
    /// The least that is the [most](Self::most).
    const MOST_MIN_NS: u64 = 16_384;
    /// From here on it is likely to keep a core busy for longer than a steal takes.
    const LASTS: u64 = 2_048;

    /// Beyond this, all that go on count the same: what is shared are colors and not their pasts. It is at least
    /// what a wake-up costs (up to 8 ms), or nobody would ever be woken for them.
    pub(crate) fn most(wake_cost_ns: u64) -> Endurance {
        let units = wake_cost_ns
            .max(Endurance::MOST_MIN_NS)
            .div_ceil(Endurance::UNIT_NS);
        Endurance(u16::try_from(units).unwrap_or(u16::MAX))
    }

    /// As it is after one more turn.
    #[inline]
    pub(crate) fn and(self, turn_ns: u64, most: Endurance) -> Endurance {
        let turn = turn_ns.div_ceil(Endurance::UNIT_NS);
        Endurance((u64::from(self.0) + turn).min(most.0.into()) as u16)
    }

    #[inline(always)]
    pub(crate) fn ns(self) -> u32 {
        u32::from(self.0) * Endurance::UNIT_NS as u32
    }

    #[inline(always)]
    pub(crate) fn lasts(self) -> bool {
        self.0 >= (Endurance::LASTS / Endurance::UNIT_NS) as u16
    }
}

/// The private part of a color slot. All zero is an idle, empty queue.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct ColorQueue {
    pub(crate) fifo: Fifo,
    pub(crate) state: State,
    /// 0: not in the stealing-queue, else its band plus one. Stored, because the steal cost that
    /// decided on it may have moved since.
    pub(crate) band: u8,
    /// See [`Endurance`].
    pub(crate) endurance: Endurance,
    /// The color before this one in the core-queue; while it is checked out, see [`ColorQueue::taken`].
    pub(crate) core_prev: u32,
    pub(crate) core_next: u32,
    pub(crate) band_prev: u32,
    pub(crate) band_next: u32,
}

impl ColorQueue {
    /// Time-left by which thieves judge, in ns: what is queued, and what is expected besides.
    #[inline(always)]
    pub(crate) fn worth_ns(&self) -> u32 {
        self.fifo.raw_ns().saturating_add(self.endurance.ns())
    }

    /// What it has to do, in ns: the same, and what the scheduler takes for its events.
    pub(crate) fn load_ns(&self) -> u64 {
        u64::from(self.worth_ns()) + u64::from(self.fifo.len()) * EVENT_NS
    }

    /// [`worth_ns`](Self::worth_ns) divided by penalties, in ns.
    #[inline(always)]
    pub(crate) fn penalized_ns(&self) -> u32 {
        let times = self.fifo.times();
        let (raw_ns, penalized_ns) = (times.raw_ns(), times.penalized_ns());
        let expected_ns = self.endurance.ns();
        let expected_ns = if raw_ns == penalized_ns {
            expected_ns
        } else {
            (u64::from(expected_ns) * u64::from(penalized_ns) / u64::from(raw_ns.max(1))) as u32
        };
        penalized_ns.saturating_add(expected_ns)
    }

    /// The color is checked out with so many events.
    #[inline(always)]
    pub(crate) fn check_out(&mut self, events: u32) {
        self.state = State::CheckedOut;
        self.core_prev = events;
    }

    /// With how many events it was checked out, if it is. For reports: it may have run some of them.
    pub(crate) fn taken(&self) -> Option<u32> {
        (self.state == State::CheckedOut).then_some(self.core_prev)
    }

    /// In no list and without events.
    #[inline(always)]
    pub(crate) fn is_unused(&self) -> bool {
        self.state == State::Idle && self.fifo.len == 0
    }

    #[cfg_attr(not(loom), allow(dead_code))]
    pub(crate) fn new() -> ColorQueue {
        ColorQueue {
            fifo: Fifo::EMPTY,
            core_prev: 0,
            core_next: 0,
            band_prev: 0,
            band_next: 0,
            state: State::Idle,
            band: 0,
            endurance: Endurance::NONE,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::sched::pool::{Depot, Pool};

    fn fifo(len: u32, raw_ns: u32, penalized_ns: u32) -> Fifo {
        Fifo {
            len,
            times: Times::new(raw_ns, penalized_ns),
            ..Fifo::EMPTY
        }
    }

    #[test]
    fn a_turn_takes_what_its_batch_does() {
        let turn_ns = |len, raw_ns, batch| fifo(len, raw_ns, raw_ns).turn_ns(batch);
        // All of it exactly, or the mean of so many.
        assert_eq!(turn_ns(10, 1_005, 10), 1_005);
        assert_eq!(turn_ns(20, 2_019, 10), 1_000);
        assert_eq!(turn_ns(3, 10, 2), 6);
        let mut all = fifo(3, 10, 5);
        assert_eq!(all.take().len(), 3);
        assert_eq!((all.len(), all.raw_ns()), (0, 0));
    }

    #[test]
    fn events_leave_in_the_order_of_their_arrival() {
        let mut pool = Pool::new(Depot::new(3, 1));
        let nodes = [(); 3].map(|()| pool.alloc().unwrap());
        // SAFETY: fresh nodes, which are given up, to a FIFO that nobody else has.
        let mut fifo = unsafe { Fifo::of(nodes[0]) };
        for &node in &nodes[1..] {
            // SAFETY: as above.
            assert!(!unsafe { fifo.append_one(node) });
        }
        // SAFETY: it has three.
        let left = [(); 3].map(|()| unsafe { fifo.pop() });
        assert_eq!((left, fifo.len()), (nodes, 0));
    }

    #[test]
    fn endurance_is_counted_in_units_up_to_a_bound() {
        let after = |ns| Endurance::NONE.and(ns, Endurance::most(0));
        assert_eq!(
            [0, 1, 128, 129].map(|ns| after(ns).ns()),
            [0, 128, 128, 256]
        );
        assert_eq!(after(129).and(1, Endurance::most(0)).ns(), 384);
        assert_eq!(
            [16_384, 16_385, 1 << 40].map(|ns| after(ns).ns()),
            [16_384; 3]
        );
        assert_eq!([1_920, 1_921].map(|ns| after(ns).lasts()), [false, true]);
    }

    #[test]
    fn a_color_has_its_events_and_what_they_cost_to_do() {
        let mut queue = ColorQueue::new();
        queue.endurance = Endurance::NONE.and(128, Endurance::most(0));
        queue.fifo = fifo(3, 10, 5);
        assert_eq!(queue.load_ns(), 10 + 128 + 3 * EVENT_NS);
    }

    #[test]
    fn a_color_is_worth_what_is_queued_and_what_is_expected() {
        let mut queue = ColorQueue::new();
        let mut worth = |endurance_ns, raw_ns, penalized_ns| {
            queue.endurance = Endurance::NONE.and(endurance_ns, Endurance::most(0));
            queue.fifo = fifo(1, raw_ns, penalized_ns);
            (queue.worth_ns(), queue.penalized_ns())
        };
        assert_eq!(worth(0, 100, 10), (100, 10));
        assert_eq!(worth(1_280, 100, 100), (1_380, 1_380));
        // Expected events are as penalized as the queued ones.
        assert_eq!(worth(1_280, 1_000, 100), (2_280, 228));
        assert_eq!(worth(1_280, 0, 0), (1_280, 1_280));
        assert_eq!(worth(1_280, u32::MAX, u32::MAX), (u32::MAX, u32::MAX));
    }
}
