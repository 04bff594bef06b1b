//! The color that runs: what is left of its events, what it posts to itself, and its batch.

use super::fifo::Fifo;
use super::node::{Event, Node};
use super::times::Times;
use std::ptr::NonNull;

/// See the module text. Between turns it has no events and its batch is over.
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
        (self.head, self.tail, self.times, self.len) = fifo.take_parts();
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
        // SAFETY: the running color's nodes are ours, and given up.
        unsafe {
            Fifo::new(
                self.head,
                self.tail,
                self.times,
                std::mem::take(&mut self.len),
            )
        }
    }

    /// Gives back an event that was just popped and did not run.
    #[inline(never)]
    pub(crate) fn put_front(&mut self, event: Event, times: Times) {
        // Its link leads to the next event still, if there is one; else it is the tail still.
        self.head = event.into_node().as_ptr();
        self.len += 1;
        self.batch_left += 1;
        self.left_ns += i64::from(times.raw_ns());
        self.penalized_ns -= u64::from(times.penalized_ns());
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
        let node = event.into_node();
        if self.len == 0 {
            self.head = node.as_ptr();
        } else {
            // SAFETY: the tail is one of the running color's nodes, which are ours.
            unsafe { Node::header(self.tail).next = node.as_ptr() };
        }
        self.tail = node.as_ptr();
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
        // SAFETY: the head of a FIFO that is not empty is a node.
        let node = unsafe { NonNull::new_unchecked(self.head) };
        let times = {
            // SAFETY: the running color's nodes are ours.
            let header = unsafe { Node::header(self.head) };
            // The last node's link means nothing, but whether there is a next one is hard to
            // predict.
            self.head = header.next;
            header.times
        };
        self.len -= 1;
        self.batch_left -= 1;
        self.left_ns -= i64::from(times.raw_ns());
        self.penalized_ns += u64::from(times.penalized_ns());
        // SAFETY: a node of ours, with an event in it, which is given up.
        (unsafe { Event::new(node) }, times)
    }
}
