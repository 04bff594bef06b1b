//! Exclusion and causal order, checked by every event on its own.
//!
//! A group is a few colors that post to each other, and everybody who posts to them: its *lanes*. A
//! lane is a sequential process: a color of the group (its events succeed each other), a foreign
//! thread, a color of the other runtime. Each post from a lane to a color has a number, from 1.
//! Each color knows, for every color of the group and every lane, how many posts it has heard of: a
//! matrix clock. A post takes along what its poster knows, and the event is in order if its color
//! has had all posts to it that the poster knew of, and all of its lane before it. So a chain A ->
//! c, A -> d, d -> c cannot arrive the other way round unseen, however long.
//!
//! All of it is in relaxed atomics, so that the checks add no order that the runtime does not give.

use crate::verdict::fail;
use mely::Color;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

/// What a lane knows: posts to each color by each lane.
pub(crate) type Clock = Box<[u32]>;

/// A color of a group.
#[derive(Debug)]
pub(crate) struct Cell {
    pub(crate) color: Color,
    inside: AtomicBool,
    /// Events that have begun, counted in one step and in two: with the second, two events at once
    /// count as one.
    begun: AtomicU64,
    begun_in_steps: AtomicU64,
    /// Holds of the color that are out for sure.
    held: AtomicU32,
    /// The last number that came, by lane.
    came: Vec<AtomicU32>,
    known: Vec<AtomicU32>,
    /// Posts to each color of the same group in the other runtime.
    crossed: Vec<AtomicU32>,
}

/// Somebody is inside a color; over when dropped, by a panic too.
#[derive(Debug)]
pub(crate) struct Inside<'a>(&'a AtomicBool);

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        if !self.0.swap(false, Relaxed) {
            fail("two events of a color at once: somebody else has left it");
        }
    }
}

/// A number and a clock: what a post carries.
#[derive(Debug)]
pub(crate) struct Stamp {
    pub(crate) lane: usize,
    pub(crate) number: u32,
    pub(crate) clock: Clock,
}

impl Cell {
    pub(crate) fn new(color: Color, colors: usize, lanes: usize) -> Cell {
        let zeros = |n: usize| (0..n).map(|_| AtomicU32::new(0)).collect::<Vec<_>>();
        Cell {
            color,
            inside: AtomicBool::new(false),
            begun: AtomicU64::new(0),
            begun_in_steps: AtomicU64::new(0),
            held: AtomicU32::new(0),
            came: zeros(lanes),
            known: zeros(lanes * colors),
            crossed: zeros(colors),
        }
    }

    /// An event of the color begins.
    pub(crate) fn enter(&self) -> Inside<'_> {
        let inside = self.enter_through();
        if self.held.load(Relaxed) > 0 {
            fail(&format!(
                "an event of {:?} begins though it is held",
                self.color
            ));
        }
        inside
    }

    /// An event of the color begins that came through its hold.
    pub(crate) fn enter_through(&self) -> Inside<'_> {
        if self.inside.swap(true, Relaxed) {
            fail(&format!("two events of {:?} at once", self.color));
        }
        self.begun.fetch_add(1, Relaxed);
        let begun = self.begun_in_steps.load(Relaxed);
        self.begun_in_steps.store(begun + 1, Relaxed);
        Inside(&self.inside)
    }

    /// Once the runtime has ended: no event has missed what one before it wrote.
    pub(crate) fn must_have_counted(&self) {
        let (begun, in_steps) = (self.begun.load(Relaxed), self.begun_in_steps.load(Relaxed));
        if begun != in_steps {
            fail(&format!(
                "{begun} events of {:?} began, and counted {in_steps} without a lock",
                self.color
            ));
        }
    }

    /// The color is held, or, by one less, no longer for sure.
    pub(crate) fn hold(&self, holds: bool) {
        if holds {
            self.held.fetch_add(1, Relaxed);
        } else {
            self.held.fetch_sub(1, Relaxed);
        }
    }

    /// An event with this stamp has come to the color, the group's `index`-th; the caller is
    /// inside.
    pub(crate) fn arrive(&self, side: usize, index: usize, stamp: &Stamp) {
        let lanes = self.came.len();
        let Stamp {
            lane,
            number,
            clock,
        } = stamp;
        let before = self.came[*lane].swap(*number, Relaxed);
        if before + 1 != *number {
            fail(&format!(
                "FIFO: post {number} of lane {lane} to {:?} of runtime {side} came after post {before}",
                self.color
            ));
        }
        for (other, known) in clock[index * lanes..][..lanes].iter().enumerate() {
            let came = self.came[other].load(Relaxed);
            if came < *known {
                fail(&format!(
                    "causal order: an event of lane {lane} came to {:?} of runtime {side} when {came} of lane {other} had, \
                     and its poster knew of {known}",
                    self.color
                ));
            }
        }
        for (known, news) in self.known.iter().zip(clock) {
            known.store(known.load(Relaxed).max(*news), Relaxed);
        }
        let own = &self.known[index * lanes + lane];
        own.store(own.load(Relaxed).max(*number), Relaxed);
    }

    /// The stamp of the next post from this color, lane `from`, to the group's `to`-th; the caller
    /// is inside. [`posted`](Self::posted) must follow if it is accepted.
    pub(crate) fn stamp(&self, from: usize, to: usize) -> Stamp {
        let clock: Clock = self.known.iter().map(|known| known.load(Relaxed)).collect();
        Stamp {
            lane: from,
            number: clock[to * self.came.len() + from] + 1,
            clock,
        }
    }

    pub(crate) fn posted(&self, from: usize, to: usize, number: u32) {
        self.known[to * self.came.len() + from].store(number, Relaxed);
    }

    /// The same over to the other runtime, which is promised no more than the order of each poster.
    pub(crate) fn cross_stamp(&self, lane: usize, to: usize) -> Stamp {
        Stamp {
            lane,
            number: self.crossed[to].load(Relaxed) + 1,
            clock: self.known.iter().map(|_| 0).collect(),
        }
    }

    pub(crate) fn crossed(&self, to: usize, number: u32) {
        self.crossed[to].store(number, Relaxed);
    }
}
