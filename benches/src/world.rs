//! What the events of one run share, and what each of them checks.
//!
//! Every event carries its number within its color, and compares it with the number that its color
//! expects: a lost, repeated or reordered event, or two of one color at once, shows as a mismatch,
//! which panics and so fails the run. After the run every color must expect what it should. The
//! cost is a load, a comparison and a store, the same for every scheduler.

use crate::costs::Costs;
use crate::machine;
use crate::sync::atomic::{AtomicU32, AtomicUsize, Ordering::AcqRel, Ordering::Relaxed};
use crate::sync::{self, charge};
use std::any::Any;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};
use std::thread;
use std::time::Duration;

/// Cells of a cache line, two of which prefetchers fetch together.
const CELLS_PER_LINE: usize = 32;

/// The number of an event in [`World::relay`] that others may overtake: one that starts a color.
pub const SEED: u32 = u32::MAX;

/// What the events of one run share.
///
/// Cells are plain loads and stores through atomics: the scheduler under test is what makes them
/// exclusive.
#[derive(Debug)]
pub struct World {
    cells: Vec<AtomicU32>,
    /// The number of cores over which colors are spread: color `c` starts on core `c % cores`.
    cores: usize,
    /// Distance in cells between the colors of one core.
    stride: usize,
    /// Distance in cells between the regions of two cores.
    region: usize,
    colors: usize,
    /// Events that each color gets, those apart for which [`World::set_length`] says otherwise.
    pub length: u32,
    /// Parts of the workload that have not ended: chains, or posters.
    running: AtomicUsize,
    times: Mutex<Times>,
    /// What the workload has besides: see [`World::with`].
    data: Option<Box<dyn Any + Send + Sync>>,
}

/// What is written a few times in a run.
#[derive(Debug, Default)]
struct Times {
    began: Option<Moment>,
    /// When the warm-up was over, and how many events had run by then.
    warm: Option<(Moment, u64)>,
    ended: Option<Moment>,
    lengths: HashMap<u32, u32>,
    samples_ns: Vec<u64>,
}

#[derive(Clone, Copy, Debug)]
struct Moment {
    at: Duration,
    cpu: Duration,
}

impl Moment {
    fn now() -> Moment {
        Moment {
            at: sync::now(),
            cpu: machine::cpu_time(),
        }
    }
}

/// What a handler computes takes a while where runs are simulated; elsewhere it computes.
#[inline(always)]
pub(crate) fn computes(which: fn(&Costs) -> f64) {
    #[cfg(feature = "machine")]
    if let Some(simulator) = crate::simulated::simulator() {
        simulator.compute(which);
    }
    let _ = which;
}

/// Where runs are simulated, what lines cost counts from here, or up to here.
fn counting(from_here: bool) {
    #[cfg(feature = "machine")]
    if let Some(simulator) = crate::simulated::simulator() {
        simulator.count(from_here);
    }
    let _ = from_here;
}

/// A run of which every event has been accounted for.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// From the end of the warm-up, or the first post if there was none, to the last event.
    pub took: Duration,
    /// The CPU time of the whole process meanwhile.
    pub cpu: Duration,
    /// Events meanwhile.
    pub ran: u64,
    /// From the first post to the last event.
    pub whole: Duration,
    /// What [`World::sample`] was told.
    pub samples_ns: Vec<u64>,
}

impl World {
    /// A world of `colors` colors with `length` events each, over when `parts` parts have ended.
    /// `padded`: a cache line for each color, for colors that run again and again; else the cells
    /// of one core's colors are packed, and only the cores are apart.
    pub fn new(colors: usize, length: u32, parts: usize, cores: usize, padded: bool) -> World {
        let stride = if padded { CELLS_PER_LINE } else { 1 };
        let region = colors.div_ceil(cores) * stride + CELLS_PER_LINE;
        World {
            cells: (0..region * cores).map(|_| AtomicU32::new(0)).collect(),
            cores,
            stride,
            region,
            colors,
            length,
            running: AtomicUsize::new(parts),
            times: Mutex::default(),
            data: None,
        }
    }

    /// As [`World::new`], with the length that makes about `events` events.
    pub fn for_events(
        events: u64,
        colors: usize,
        parts: usize,
        cores: usize,
        padded: bool,
    ) -> World {
        let length = (events / colors as u64).clamp(1, u64::from(SEED)) as u32;
        World::new(colors, length, parts, cores, padded)
    }

    /// Adds what else the workload needs; its `start` fetches it once, by [`World::data`].
    pub fn with<T: Any + Send + Sync>(self, data: T) -> World {
        World {
            data: Some(Box::new(data)),
            ..self
        }
    }

    /// What [`World::with`] was given.
    ///
    /// # Panics
    /// If that was another type.
    pub fn data<T: Any>(&self) -> &T {
        let data = self.data.as_ref().and_then(|data| data.downcast_ref());
        data.expect("the workload asks for what it gave")
    }

    /// The colors of this world that start on one of `cores`.
    pub fn colors_on<'a>(&'a self, cores: &'a [usize]) -> impl Iterator<Item = u32> + 'a {
        (0..self.colors as u32).filter(|&color| cores.contains(&(color as usize % self.cores)))
    }

    /// The colors of this world.
    pub fn colors(&self) -> usize {
        self.colors
    }

    /// The cores over which the colors are spread.
    pub fn cores(&self) -> usize {
        self.cores
    }

    fn cell(&self, color: u32) -> &AtomicU32 {
        &self.cells[self.index(color)]
    }

    fn index(&self, color: u32) -> usize {
        let color = color as usize;
        if self.cores == 1 {
            return color * self.stride;
        }
        color % self.cores * self.region + color / self.cores * self.stride
    }

    /// Event `number` of `color` runs.
    #[inline]
    pub fn pass(&self, color: u32, number: u32) {
        computes(|costs| costs.pass);
        let cell = self.cell(color);
        let expected = cell.load(Relaxed);
        if expected != number {
            wrong(color, expected, number);
        }
        cell.store(number + 1, Relaxed);
    }

    /// An event of a padded world's `color` runs, the `number`-th of those that poster `from`, one
    /// of a few, sent there; or the one that started everything, [`SEED`], which others may
    /// overtake. Returns how many events of `color` have run before.
    #[inline]
    pub fn relay(&self, color: u32, from: usize, number: u32) -> u32 {
        debug_assert!(self.stride == CELLS_PER_LINE && from + 1 < CELLS_PER_LINE);
        computes(|costs| costs.relay);
        let cell = self.cell(color);
        let ran = cell.load(Relaxed);
        cell.store(ran + 1, Relaxed);
        if number != SEED {
            let from = &self.cells[self.index(color) + 1 + from];
            let expected = from.load(Relaxed);
            if expected != number {
                wrong(color, expected, number);
            }
            from.store(number + 1, Relaxed);
        }
        ran
    }

    /// How many events of `color` have run.
    pub fn passed(&self, color: u32) -> u32 {
        self.cell(color).load(Relaxed)
    }

    fn times(&self) -> MutexGuard<'_, Times> {
        self.times.lock().expect("no panic while held")
    }

    /// The first event is about to be posted. With several starters the first counts.
    pub fn begin(&self) {
        charge::name(&self.cells[..], "cells", 0);
        let now = Moment::now();
        counting(true);
        self.times().began.get_or_insert(now);
    }

    /// Sets the clock back to zero: what came before was to get ready. Not with several starters.
    pub fn begin_again(&self) {
        let now = Moment::now();
        counting(true);
        self.times().began = Some(now);
    }

    /// Counts from `warm_up` after the first post on, if the run lasts longer: memory has been
    /// fetched and recycled by then. Another thread looks how many events have run, so that no
    /// event has to.
    pub fn warm_up(&'static self, warm_up: Duration) {
        thread::spawn(move || {
            loop {
                let due = self.times().began.map(|began| began.at + warm_up);
                // What begins again is waited for again.
                match due.map(|due| due.saturating_sub(sync::now())) {
                    None => thread::sleep(Duration::from_millis(1)),
                    Some(Duration::ZERO) => break,
                    Some(left) => thread::sleep(left),
                }
            }
            let before = Moment::now();
            let ran = self.ran();
            let took = sync::now() - before.at;
            let mut times = self.times();
            if times.ended.is_none() {
                let at = before.at + took / 2;
                times.warm = Some((Moment { at, ..before }, ran));
            }
        });
    }

    /// Events so far.
    fn ran(&self) -> u64 {
        let colors = 0..self.colors as u32;
        colors.map(|color| u64::from(self.passed(color))).sum()
    }

    /// A part of the workload has ended. True for the last one: the run is over.
    pub fn end(&self) -> bool {
        let last = self.running.fetch_sub(1, AcqRel) == 1;
        if last {
            let now = Moment::now();
            counting(false);
            self.times().ended = Some(now);
        }
        last
    }

    /// This color gets another number of events than the rest.
    pub fn set_length(&self, color: u32, length: u32) {
        self.times().lengths.insert(color, length);
    }

    /// The number of events that this color gets.
    pub fn length_of(&self, color: u32) -> u32 {
        let lengths = &self.times().lengths;
        lengths.get(&color).copied().unwrap_or(self.length)
    }

    /// A latency, of which the median and the 99th percentile over all repetitions are printed.
    pub fn sample(&self, ns: u64) {
        self.times().samples_ns.push(ns);
    }

    /// What the run was, once every event has been accounted for.
    ///
    /// # Errors
    /// What is missing.
    pub fn verdict(&self) -> Result<Verdict, String> {
        let times = self.times();
        for color in 0..self.colors as u32 {
            let passed = self.passed(color);
            let length = times.lengths.get(&color).copied().unwrap_or(self.length);
            if passed != length {
                return Err(format!("color {color} ran {passed} events of {length}"));
            }
        }
        let (Some(began), Some(ended)) = (times.began, times.ended) else {
            return Err("the run has not ended".to_owned());
        };
        let all = self.ran();
        // Not if the last event ran meanwhile.
        let warm = times.warm.filter(|&(_, before)| before < all);
        let (from, before) = warm.unwrap_or((began, 0));
        Ok(Verdict {
            took: ended.at - from.at,
            cpu: ended.cpu.saturating_sub(from.cpu),
            ran: all - before,
            whole: ended.at - began.at,
            samples_ns: times.samples_ns.clone(),
        })
    }
}

#[cold]
#[inline(never)]
fn wrong(color: u32, expected: u32, number: u32) -> ! {
    panic!("color {color}: event {number} ran where {expected} was due");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_color_has_its_own_cell() {
        for padded in [false, true] {
            for (colors, cores) in [(1, 1), (16, 2), (17, 2), (50, 3)] {
                let world = World::new(colors, 1, 1, cores, padded);
                for color in 0..colors as u32 {
                    world.pass(color, 0);
                }
                world.begin();
                assert!(world.end());
                assert!(world.verdict().is_ok());
            }
        }
    }

    #[test]
    fn a_missing_event_is_an_error() {
        let world = World::new(2, 2, 1, 1, true);
        world.begin();
        world.pass(0, 0);
        world.pass(0, 1);
        world.pass(1, 0);
        world.end();
        let error = world.verdict().unwrap_err();
        assert_eq!(error, "color 1 ran 1 events of 2");
        world.set_length(1, 1);
        assert_eq!(world.verdict().unwrap().ran, 3);
    }

    #[test]
    fn what_warms_up_is_not_counted() {
        let world: &World = Box::leak(Box::new(World::new(1, 3, 1, 1, true)));
        world.warm_up(Duration::from_millis(20));
        // Before the first post there is nothing to warm up.
        thread::sleep(Duration::from_millis(40));
        world.begin();
        world.pass(0, 0);
        while world.times().warm.is_none() {
            thread::sleep(Duration::from_millis(1));
        }
        (1..3).for_each(|number| world.pass(0, number));
        world.end();
        let verdict = world.verdict().unwrap();
        assert_eq!(verdict.ran, 2);
        assert!(verdict.whole - verdict.took >= Duration::from_millis(20));
    }

    #[test]
    #[should_panic(expected = "color 0: event 1 ran where 0 was due")]
    fn disorder_panics() {
        World::new(1, 2, 1, 1, true).pass(0, 1);
    }
}
