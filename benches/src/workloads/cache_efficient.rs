//! The Mely paper's *cache efficient* (§V-B, Table VI): rounds in which one core of each pair
//! starts with a hundred events A. Each fills an array and posts two B of two colors to its core,
//! which sort a half each; each B posts a C, and the second C of an array merges the halves.

use super::lines::Lines;
use super::rounds::{self, ForkJoin, Rounds};
use super::{Table, Work, Workload};
use crate::sync::charge;
use crate::world::{SEED, Verdict, computes};
use crate::{Context, Note, World};
use std::sync::{Mutex, MutexGuard, OnceLock};

/// See the module text.
#[derive(Clone, Copy, Debug)]
pub struct CacheEfficient;

/// Arrays of each pair of cores.
const ARRAYS: usize = 100;
/// Numbers in a half of an array. An array fits a core's first-level cache, and so does its merge.
const HALF: usize = 2_048;
/// Events of an array in a round: A, two B, two C.
const EVENTS: u32 = 5;
/// Of these, those of the array's own color: A and both C.
const OWN_EVENTS: u32 = 3;

static A: Note = Note::new("A").time_ns(4_000);
static B: Note = Note::new("B").time_ns(25_000);
static C: Note = Note::new("C").time_ns(5_000);

/// The tables of this workload.
pub const TABLES: &[Table] = &[Table::new("mely-6-cache-efficient", |_| Some(Workload::CacheEfficient(CacheEfficient))).remarks(&[
        "Mely, Table VI, 8 cores, K events/s and L2 misses an event: libasync-smp 1156 and 0,",
        "libasync-smp-ws 1497 and 13, Mely base 1426 and 12, locality-aware 1869 and 2 (x 1.31 of base,",
        "-83 % misses). Here arrays of 16 KiB; for misses: lines last touched by another core.",
    ])];

type Half = Mutex<Vec<u32>>;

/// The halves of all arrays, for the life of the process, behind locks that are never contended:
/// colors keep handlers apart.
fn halves(arrays: usize) -> &'static [[Half; 2]] {
    static HALVES: OnceLock<Vec<[Half; 2]>> = OnceLock::new();
    let half = || Mutex::new(vec![0; HALF]);
    #[cfg(feature = "machine")]
    if crate::simulated::is_set() {
        // Of more cores than this machine has.
        return Vec::leak((0..arrays).map(|_| [half(), half()]).collect());
    }
    let halves = HALVES.get_or_init(|| {
        let pairs = crate::machine::cores().div_ceil(2);
        (0..ARRAYS * pairs).map(|_| [half(), half()]).collect()
    });
    &halves[..arrays]
}

#[derive(Debug)]
struct Data {
    rounds: Rounds,
    halves: &'static [[Half; 2]],
    /// Two pieces for each array.
    lines: Lines,
    /// Where halves are merged, for each core.
    merged: Vec<Mutex<Vec<u32>>>,
}

impl Data {
    fn arrays(&self) -> u32 {
        self.halves.len() as u32
    }

    fn half<X: Context + ?Sized>(
        &self,
        cx: &X,
        array: u32,
        half: usize,
    ) -> MutexGuard<'_, Vec<u32>> {
        self.lines.touch(2 * array as usize + half, cx.core());
        let half = self.halves[array as usize][half].try_lock();
        half.expect("handlers of different colors only meet in C, which comes after B")
    }

    /// The world's color of a B. Those of an array start on its core.
    fn b_index(&self, array: u32, half: u32) -> u32 {
        array + (1 + half) * self.arrays()
    }
}

/// What A puts into an array at `i`, in no order.
fn number_at(array: u32, round: u32, i: u32) -> u32 {
    (array.rotate_left(24) ^ round.rotate_left(12) ^ i).wrapping_mul(0x9E37_79B1)
}

#[inline]
fn fill(numbers: &mut [u32], array: u32, half: u32, round: u32) {
    for (i, number) in (half * HALF as u32..).zip(numbers) {
        *number = number_at(array, round, i);
    }
}

/// What the handlers compute: filling a half, filling and sorting one, merging two.
pub(super) fn computations() -> [Box<dyn FnMut()>; 3] {
    // Others each time, as in a run: a processor learns how numbers are sorted that it has sorted
    // before. New ones are sorted, and one after the other of these merged.
    const OTHERS: u32 = 64;
    let half = |array: u32, half| {
        let mut numbers = vec![0; HALF];
        fill(&mut numbers, array, half, 0);
        numbers
    };
    let mut filled = half(0, 0);
    let sorted = |array: u32, which| {
        let mut numbers = half(array, which);
        numbers.sort_unstable();
        numbers
    };
    let sorted: Vec<_> = (0..OTHERS)
        .map(|array| [0, 1].map(|half| sorted(array, half)))
        .collect();
    let (mut numbers, mut merged) = (half(0, 0), Vec::new());
    let (mut round, mut nth, mut nth_merged) = (0, 0, 0);
    [
        Box::new(move || {
            round += 1;
            fill(&mut filled, 1, 0, round);
        }),
        Box::new(move || {
            nth += 1;
            fill(&mut numbers, 2, 0, nth);
            numbers.sort_unstable();
        }),
        Box::new(move || {
            nth_merged = (nth_merged + 1) % OTHERS as usize;
            merge(&sorted[nth_merged][0], &sorted[nth_merged][1], &mut merged);
        }),
    ]
}

fn a<X: Context + ?Sized>(
    cx: &mut X,
    world: &'static World,
    data: &'static Data,
    array: u32,
    round: u32,
) {
    let ran = world.relay(array, 0, SEED);
    assert_eq!(
        ran,
        round * OWN_EVENTS,
        "array {array}: A before the last C"
    );
    for half in 0..2 {
        let mut numbers = data.half(cx, array, half as usize);
        fill(&mut numbers, array, half, round);
        charge::write(&numbers[..]);
        computes(|costs| costs.fill);
    }
    for half in 0..2 {
        let color = data.rounds.color(data.b_index(array, half));
        let array = array << 1 | half;
        cx.post_noted(color, &B, move |cx| b(cx, world, data, array, round));
    }
}

/// `array`: with the half in its lowest bit.
fn b<X: Context + ?Sized>(
    cx: &mut X,
    world: &'static World,
    data: &'static Data,
    array: u32,
    round: u32,
) {
    let (array, half) = (array >> 1, array & 1);
    let index = data.b_index(array, half);
    world.pass(index, round);
    let mut numbers = data.half(cx, array, half as usize);
    numbers.sort_unstable();
    charge::read(&numbers[..]);
    charge::write(&numbers[..]);
    computes(|costs| costs.sort);
    drop(numbers);
    data.rounds.ended(cx, index);
    let from = array << 1 | half;
    let color = data.rounds.color(array);
    cx.post_noted(color, &C, move |cx| c(cx, world, data, from, round));
}

fn c<X: Context + ?Sized>(
    cx: &mut X,
    world: &'static World,
    data: &'static Data,
    from: u32,
    round: u32,
) {
    let (array, half) = (from >> 1, from & 1);
    let ran = world.relay(array, half as usize, round);
    if ran % OWN_EVENTS == OWN_EVENTS - 1 {
        let mut merged = data.merged[cx.core()].lock().expect("no panic while held");
        let halves = [data.half(cx, array, 0), data.half(cx, array, 1)];
        merge(&halves[0], &halves[1], &mut merged);
        halves.iter().for_each(|half| charge::read(&half[..]));
        charge::write(&merged[..]);
        computes(|costs| costs.merge);
        assert!(merged.is_sorted() && merged.len() == 2 * HALF, "not merged");
        drop((merged, halves));
        rounds::end_chain(cx, world, data, array, round);
    }
}

fn merge(mut left: &[u32], mut right: &[u32], merged: &mut Vec<u32>) {
    merged.clear();
    while let ([l, left_rest @ ..], [r, right_rest @ ..]) = (left, right) {
        if l <= r {
            merged.push(*l);
            left = left_rest;
        } else {
            merged.push(*r);
            right = right_rest;
        }
    }
    merged.extend_from_slice(left);
    merged.extend_from_slice(right);
}

impl ForkJoin for Data {
    fn rounds(&self) -> &Rounds {
        &self.rounds
    }

    fn fork<X: Context + ?Sized>(&'static self, cx: &mut X, world: &'static World, round: u32) {
        if round == 0 {
            for (at, half) in self.halves.iter().flatten().enumerate() {
                charge::name(&half.lock().expect("no panic while held")[..], "halves", at);
            }
        }
        rounds::begin_chains(&self.rounds, self.arrays());
        for array in 0..self.arrays() {
            let color = self.rounds.color(array);
            cx.post_noted(color, &A, move |cx| a(cx, world, self, array, round));
        }
    }
}

impl Work for CacheEfficient {
    fn world(self, events: u64, cores: usize) -> World {
        let arrays = ARRAYS * cores.div_ceil(2);
        let rounds = (events / (u64::from(EVENTS) * arrays as u64)).clamp(1, 1 << 16) as u32;
        World::new(3 * arrays, rounds, 1, 1, true).with(Data {
            rounds: Rounds::on_pairs(rounds, cores),
            halves: halves(arrays),
            lines: Lines::new(2 * arrays, HALF * size_of::<u32>(), cores),
            merged: (0..cores).map(|_| Mutex::default()).collect(),
        })
    }

    fn colors_end(self, cores: usize) -> usize {
        rounds::colors_end(3 * ARRAYS, cores)
    }

    fn start<X: Context + ?Sized>(self, cx: &mut X, world: &'static World, _cores: &[usize]) {
        let data = world.data::<Data>();
        for array in 0..data.arrays() {
            world.set_length(array, data.rounds.number() * OWN_EVENTS);
        }
        rounds::start(cx, world, data);
    }

    fn is_of_papers(self) -> bool {
        true
    }

    fn values(self, world: &World, _verdict: &Verdict) -> Vec<(&'static str, f64)> {
        let data = world.data::<Data>();
        let events = f64::from(data.rounds.number() * EVENTS * data.arrays());
        data.lines.values(events)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn merges() {
        let mut merged = vec![9];
        merge(&[1, 3, 3], &[0, 3, 7, 8], &mut merged);
        assert_eq!(merged, [0, 1, 3, 3, 3, 7, 8]);
    }
}
