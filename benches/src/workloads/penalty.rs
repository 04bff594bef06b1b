//! The Mely paper's *penalty* (§V-B, Table V): many events A on the first core, of different
//! colors. Each writes an array that fits a core's cache and posts the first B of its color; each B
//! touches the next part of its parent's array and posts the next B, until the array is through.
//! Rounds of that.

use super::lines::Lines;
use super::rounds::{self, ForkJoin, Rounds};
use super::{Table, Work, Workload};
use crate::sync::charge;
use crate::world::{Verdict, computes};
use crate::{Context, Note, World};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// See the module text.
#[derive(Clone, Copy, Debug)]
pub struct Penalty {
    /// Events A of a round: the paper says "many".
    pub arrays: u32,
}

/// Events A of a round where nothing else is said, and in the table that has many.
const ARRAYS: u32 = 64;
const MANY_ARRAYS: u32 = 512;
/// Parts of an array, for one B each.
const PARTS: u32 = 64;
const LINES_PER_PART: usize = 16;
const WORDS_PER_LINE: usize = 8;
/// Events of a color in a round.
const EVENTS: u32 = 1 + PARTS;

static A: Note = Note::new("A").time_ns(4_000);
static B: Note = Note::new("B").time_ns(150).penalty(1_000);

#[expect(clippy::unnecessary_wraps, reason = "as tables want it")]
const fn penalty(arrays: u32) -> Option<Workload> {
    Some(Workload::Penalty(Penalty { arrays }))
}

/// The tables of this workload.
pub const TABLES: &[Table] = &[
    Table::new("mely-5-penalty", |_| penalty(ARRAYS)).remarks(&[
            "Mely, Table V, 8 cores, K events/s and L2 misses an event: libasync-smp 1103 and 29,",
            "libasync-smp-ws 190 and 167 K, Mely base 1386 and 42 K, penalty-aware 2122 and 2 K (x 1.53 of",
            "base, -95 % misses). Here 64 arrays of 64 KiB; for misses: lines last touched by another core.",
        ]),
    Table::new("penalty-512", |_| penalty(MANY_ARRAYS))
        .remarks(&["As `mely-5-penalty`, with 512 arrays."]),
];

/// What one B touches.
#[repr(align(64))]
struct Part([AtomicU64; LINES_PER_PART * WORDS_PER_LINE]);

/// The parts of all arrays, for the life of the process: to allocate an array each time would be a
/// system call, and a page fault for each part, which takes longer than a B.
fn parts(arrays: u32) -> &'static [Part] {
    static PARTS_OF_ALL: [OnceLock<Vec<Part>>; 2] = [const { OnceLock::new() }; 2];
    let part = |_| Part(std::array::from_fn(|_| AtomicU64::new(0)));
    let make = || (0..arrays * PARTS).map(part).collect();
    PARTS_OF_ALL[usize::from(arrays > ARRAYS)].get_or_init(make)
}

#[inline]
fn write_part(part: &Part, number: u64) {
    for word in &part.0 {
        word.store(number, Relaxed);
    }
}

/// Reads what the parent wrote, and writes the number there.
#[inline]
fn read_part(part: &Part, parent: u64, number: u64) {
    for line in part.0.chunks_exact(WORDS_PER_LINE) {
        let word = &line[0];
        assert!(word.load(Relaxed) == parent, "not what the parent wrote");
        word.store(number, Relaxed);
    }
}

/// What the handlers compute for a part: the parent's, and a child's.
pub(super) fn computations() -> [Box<dyn FnMut()>; 2] {
    let part = || Part(std::array::from_fn(|_| AtomicU64::new(0)));
    let (written, read) = (part(), part());
    let (mut number, mut parent) = (0, 0);
    [
        Box::new(move || {
            number += 1;
            write_part(&written, number);
        }),
        Box::new(move || {
            read_part(&read, parent, parent + 1);
            parent += 1;
        }),
    ]
}

struct Data {
    rounds: Rounds,
    parts: &'static [Part],
    lines: Lines,
    parameters: Penalty,
}

impl Data {
    fn touch<C: Context + ?Sized>(&self, cx: &C, part: usize) -> &'static Part {
        self.lines.touch(part, cx.core());
        &self.parts[part]
    }

    /// Posts an event of the array `index`, with its handler's annotations.
    fn post<C, F>(&self, cx: &mut C, index: u32, note: &'static Note, f: F)
    where
        C: Context + ?Sized,
        F: FnOnce(&mut C) + Send + 'static,
    {
        self.rounds.post(cx, index, note, f);
    }
}

/// The array's parts are written with the event's number in its color.
fn a<C: Context + ?Sized>(
    cx: &mut C,
    world: &'static World,
    data: &'static Data,
    index: u32,
    number: u32,
) {
    world.pass(index, number);
    for part in index * PARTS..(index + 1) * PARTS {
        let part = data.touch(cx, part as usize);
        write_part(part, u64::from(number));
        charge::write(part);
        computes(|costs| costs.write_part);
    }
    post_b(cx, world, data, index, number + 1);
}

fn b<C: Context + ?Sized>(
    cx: &mut C,
    world: &'static World,
    data: &'static Data,
    index: u32,
    number: u32,
) {
    world.pass(index, number);
    let nth = number % EVENTS - 1;
    let part = data.touch(cx, (index * PARTS + nth) as usize);
    let parent = u64::from(number - nth - 1);
    charge::read(part);
    charge::write(part);
    computes(|costs| costs.read_part);
    read_part(part, parent, u64::from(number));
    if nth + 1 < PARTS {
        post_b(cx, world, data, index, number + 1);
    } else {
        rounds::end_chain(cx, world, data, index, number / EVENTS);
    }
}

fn post_b<C: Context + ?Sized>(
    cx: &mut C,
    world: &'static World,
    data: &'static Data,
    index: u32,
    number: u32,
) {
    let b = move |cx: &mut C| b(cx, world, data, index, number);
    data.post(cx, index, &B, b);
}

impl ForkJoin for Data {
    fn rounds(&self) -> &Rounds {
        &self.rounds
    }

    fn fork<C: Context + ?Sized>(&'static self, cx: &mut C, world: &'static World, round: u32) {
        if round == 0 {
            charge::name(self.parts, "parts", 0);
        }
        let arrays = self.parameters.arrays;
        rounds::begin_chains(&self.rounds, arrays);
        let number = round * EVENTS;
        for index in 0..arrays {
            let a = move |cx: &mut C| a(cx, world, self, index, number);
            self.post(cx, index, &A, a);
        }
    }
}

impl Work for Penalty {
    fn world(self, events: u64, cores: usize) -> World {
        let arrays = self.arrays;
        let rounds = (events / u64::from(arrays * EVENTS)).clamp(1, 1 << 16) as u32;
        World::new(arrays as usize, rounds * EVENTS, 1, 1, true).with(Data {
            rounds: Rounds::on_first_core(rounds, cores),
            parts: parts(arrays),
            lines: Lines::new((arrays * PARTS) as usize, size_of::<Part>(), cores),
            parameters: self,
        })
    }

    fn colors_end(self, cores: usize) -> usize {
        rounds::colors_end(self.arrays as usize, cores)
    }

    fn start<C: Context + ?Sized>(self, cx: &mut C, world: &'static World, _cores: &[usize]) {
        rounds::start(cx, world, world.data::<Data>());
    }

    fn is_of_papers(self) -> bool {
        true
    }

    fn values(self, world: &World, _verdict: &Verdict) -> Vec<(&'static str, f64)> {
        let events = f64::from(world.length) * f64::from(self.arrays);
        world.data::<Data>().lines.values(events)
    }
}
