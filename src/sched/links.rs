//! How colors are linked: into the core-queue and the stealing-queue, and out of them.
//!
//! All of it under the core's lock ([`super::section`]), in constant time, and touching a color's line
//! and those of its neighbors only.

use super::lists::Ends;
use super::prefetch;
use super::queue::{ColorQueue, Endurance, NIL, State};
use super::section::Section;
use super::slots::Slot;
use crate::sync::{CellMut, fault};

/// A core-queue with fewer colors is in some near cache.
const SCOUTED_MIN: u32 = 1_024;
/// So many colors before they are taken, memory is asked for.
const SCOUT_LEAD: u32 = 8;

impl<'a> Section<'a> {
    /// Links a color that has events at the tail of the core-queue, and into its band.
    #[inline(never)]
    pub(super) fn link(&mut self, slot: u32) {
        self.link_at(slot, self.slots.at(slot), self.queue(slot));
    }

    /// As [`link`](Self::link), for who has the slot at hand.
    #[inline(always)]
    pub(super) fn link_at(&mut self, slot: u32, at: &Slot, mut queue: CellMut<'a, ColorQueue>) {
        let tail = self.lists.core_queue.tail;
        debug_assert!(self.owns(slot));
        at.settle(self.core);
        debug_assert!(queue.state != State::Queued && !queue.fifo.is_empty());
        queue.state = State::Queued;
        queue.core_prev = tail;
        queue.core_next = NIL;
        let (len, endurance) = (queue.fifo.len(), queue.endurance);
        let want = self.want(&queue);
        queue.end();
        if tail == NIL {
            self.lists.core_queue.head = slot;
        } else {
            self.queue(tail).core_next = slot;
        }
        self.lists.core_queue.tail = slot;
        self.lists.queued += 1;
        if self.is_control(slot) {
            self.lists.controls += 1;
            return;
        }
        self.lists.events += u64::from(len);
        if endurance.lasts() {
            self.lists.lasting += 1;
        }
        if want != 0 {
            self.band(slot, want);
        }
    }

    /// Moves the color that was linked last to the head of the core-queue.
    pub(super) fn move_to_front(&mut self, slot: u32) {
        let Ends { head, tail } = self.lists.core_queue;
        debug_assert_eq!(tail, slot);
        if head == slot {
            return;
        }
        let prev = {
            let mut queue = self.queue(slot);
            queue.core_next = head;
            std::mem::replace(&mut queue.core_prev, NIL)
        };
        self.queue(prev).core_next = NIL;
        self.queue(head).core_prev = slot;
        self.lists.core_queue = Ends {
            head: slot,
            tail: prev,
        };
    }

    /// Takes a color out of the core-queue and out of its band. Its state is the caller's to change.
    #[inline]
    pub(super) fn unlink(&mut self, slot: u32) {
        let queue = self.queue(slot);
        debug_assert_eq!(queue.state, State::Queued);
        let (prev, next, band) = (queue.core_prev, queue.core_next, queue.band);
        let (len, endurance) = (queue.fifo.len(), queue.endurance);
        queue.end();
        if band != 0 && !fault("left in its band") {
            self.unband(slot);
        }
        if prev == NIL {
            self.lists.core_queue.head = next;
        } else {
            self.queue(prev).core_next = next;
        }
        if next == NIL {
            self.lists.core_queue.tail = prev;
        } else {
            self.queue(next).core_prev = prev;
        }
        if self.lists.scout == slot {
            self.lists.scout = next;
        }
        debug_assert!(!self.is_control(slot), "they leave by being checked out");
        self.lists.queued -= 1;
        self.lists.events -= u64::from(len);
        self.lists.lasting -= u32::from(endurance.lasts());
    }

    /// Accounts for events that were appended to a queued color, whose borrow this takes.
    #[inline]
    pub(super) fn grown(&mut self, slot: u32, queue: CellMut<'a, ColorQueue>, before: (u32, u32)) {
        if self.is_control(slot) {
            return;
        }
        self.lists.events += u64::from(queue.fifo.len() - before.0);
        let (band, want) = (queue.band, self.want(&queue));
        if band != 0 {
            self.lists.worth_ns += u64::from(queue.worth_ns() - before.1);
        }
        queue.end();
        if band != want {
            self.unband(slot);
            if want != 0 {
                self.band(slot, want);
            }
        }
    }

    /// The color of the core-queue up to which memory was asked for. In a long queue that is some way behind
    /// the head: each color is on a line of its own, which says where the next one is, so one after the
    /// other they would have to be waited for.
    #[inline(always)]
    pub(super) fn scout(&self) -> u32 {
        if self.lists.queued < SCOUTED_MIN || self.lists.scout != NIL {
            return self.lists.scout;
        }
        self.send_scout()
    }

    #[cold]
    fn send_scout(&self) -> u32 {
        (0..SCOUT_LEAD).fold(self.lists.core_queue.head, |at, _| self.ask_for(at))
    }

    /// Asks for the first event of this queued color, and for the next color, which it returns.
    #[inline(always)]
    pub(super) fn ask_for(&self, slot: u32) -> u32 {
        let queue = self.queue(slot);
        prefetch::line(queue.fifo.at());
        let next = queue.core_next;
        if next != NIL {
            prefetch::line(self.slots.at(next));
        }
        next
    }

    /// The band that a color deserves, plus one; 0 for what is not worth stealing, which is most of
    /// what a busy server runs.
    #[inline(always)]
    fn want(&self, queue: &ColorQueue) -> u8 {
        if queue.endurance == Endurance::NONE && queue.fifo.raw_ns() < self.limits.worthy_ns {
            return 0;
        }
        let worth_ns = queue.worth_ns();
        self.shared.policy.band(
            worth_ns.into(),
            queue.penalized_ns().into(),
            self.limits.cost_ns,
        )
    }

    /// Puts a queued color into a band.
    #[inline(never)]
    fn band(&mut self, slot: u32, want: u8) {
        let mut ends = self.lists.bands[usize::from(want) - 1];
        {
            let mut queue = self.queue(slot);
            queue.band = want;
            queue.band_prev = ends.tail;
            queue.band_next = NIL;
            self.lists.worth_ns += u64::from(queue.worth_ns());
        }
        if ends.tail == NIL {
            ends.head = slot;
        } else {
            self.queue(ends.tail).band_next = slot;
        }
        ends.tail = slot;
        self.lists.bands[usize::from(want) - 1] = ends;
        self.lists.worthy += 1;
    }

    /// Takes a color out of its band, if it is in one.
    #[inline(never)]
    pub(super) fn unband(&mut self, slot: u32) {
        let (band, prev, next) = {
            let mut queue = self.queue(slot);
            let band = queue.band;
            if band == 0 {
                return;
            }
            queue.band = 0;
            self.lists.worth_ns -= u64::from(queue.worth_ns());
            (usize::from(band) - 1, queue.band_prev, queue.band_next)
        };
        let Ends { mut head, mut tail } = self.lists.bands[band];
        if prev == NIL {
            head = next;
        } else {
            self.queue(prev).band_next = next;
        }
        if next == NIL {
            tail = prev;
        } else {
            self.queue(next).band_prev = prev;
        }
        self.lists.bands[band] = Ends { head, tail };
        if !fault("band not counted") {
            self.lists.worthy -= 1;
        }
    }

    /// The core-queue, the next to run first.
    #[cfg(all(test, not(loom)))]
    pub(super) fn queued_slots(&self) -> Vec<u32> {
        let mut slots = Vec::new();
        let mut at = self.lists.core_queue.head;
        while at != NIL {
            slots.push(at);
            at = self.queue(at).core_next;
        }
        slots
    }

    /// Walks all lists and checks every invariant.
    #[cfg(any(test, debug_assertions, loom))]
    pub(crate) fn assert_valid(&self) {
        let slots = &self.shared.slots;
        let (mut prev, mut at) = (NIL, self.lists.core_queue.head);
        let (mut queued, mut stealable, mut events, mut lasting) = (0, 0, 0, 0);
        let (mut worthy, mut worth_ns) = (0, 0);
        let mut scouted = self.lists.scout == NIL;
        while at != NIL {
            assert!(
                self.owns(at),
                "slot {at} is queued on a core that does not own it"
            );
            let queue = self.queue(at);
            assert_eq!(queue.state, State::Queued, "slot {at}");
            assert_eq!(queue.core_prev, prev, "slot {at}: back link");
            assert!(!queue.fifo.is_empty(), "slot {at} is queued and empty");
            queued += 1;
            if slots.map.is_control(at) {
                assert_eq!(
                    (queue.band, queue.endurance),
                    (0, Endurance::NONE),
                    "slot {at}: a control color is never worth stealing"
                );
            } else {
                stealable += 1;
                events += u64::from(queue.fifo.len());
                lasting += u32::from(queue.endurance.lasts());
            }
            if queue.band != 0 {
                worthy += 1;
                worth_ns += u64::from(queue.worth_ns());
            }
            scouted |= self.lists.scout == at;
            prev = at;
            at = queue.core_next;
        }
        assert!(scouted, "the scout is in the core-queue");
        let core = self.core;
        assert_eq!(self.lists.core_queue.tail, prev, "core {core}: tail");
        assert_eq!(
            (self.lists.queued, self.lists.stealable()),
            (queued, stealable),
            "core {core}: colors queued"
        );
        assert_eq!(
            (self.lists.events, self.lists.lasting),
            (events, lasting),
            "core {core}: events and lasting colors queued"
        );
        assert_eq!(
            (self.lists.worthy, self.lists.worth_ns),
            (worthy, worth_ns),
            "core {core}: worthy colors"
        );
        let mut banded = 0;
        for (band, ends) in self.lists.bands.iter().enumerate() {
            let (mut prev, mut at) = (NIL, ends.head);
            while at != NIL {
                let queue = self.queue(at);
                assert_eq!(
                    usize::from(queue.band),
                    band + 1,
                    "slot {at} is in another's band"
                );
                assert_eq!(queue.band_prev, prev, "slot {at}: back link in band {band}");
                banded += 1;
                prev = at;
                at = queue.band_next;
            }
            assert_eq!(ends.tail, prev, "core {core}: tail of band {band}");
        }
        assert_eq!(banded, worthy, "core {core}: colors in bands");
    }
}
