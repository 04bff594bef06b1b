//! Rounds of independent events on the first core: the Mely paper's *unbalanced* (§V-B, Tables III
//! and IV), and rounds of equal events that stand for the two servers of its Table I.
//!
//! Besides its spin an event costs, on every scheduler: when posted, finding its color; when run,
//! the check of its number (see [`crate::world`]), and the look whether it is its color's last of
//! the round and ran elsewhere than it was posted, in which case that is noted under a lock of the
//! core's own. No division by a run-time value, and no read-modify-write but that lock's. A long
//! one computes its length, by two multiplications. All of that counts against the efficiency, and
//! so does the memory of 50,000 events that wait: the floor itself, `boxes`, is below 1 on one
//! core.

use super::rounds::{self, ForkJoin, Rounds};
use super::spin::{iterations, mely_ns, spin};
use super::{Table, Work, Workload};
use crate::machine::thread_cpu_time;
use crate::sync::atomic::{AtomicU32, Ordering::Relaxed};
use crate::world::Verdict;
use crate::{Context, Note, World};

/// See the module text.
#[derive(Clone, Copy, Debug)]
pub struct Unbalanced {
    /// Different colors.
    pub colors: u32,
    /// Events of each color, posted by turns: a color's events lie as far apart in a queue as they
    /// can.
    pub each: u32,
    /// What they take, and who is told.
    pub load: Load,
}

/// What events take.
#[derive(Clone, Copy, Debug)]
pub enum Load {
    /// 98 % take 100 of the paper's cycles, the others 10,000 to 50,000.
    Mixed(Told),
    /// All take as the note says.
    Even(&'static Note),
    /// All take as long as the note says, which the scheduler is not told.
    Untold(&'static Note),
}

/// What the scheduler is told of mixed events.
#[derive(Clone, Copy, Debug)]
pub enum Told {
    /// Two handlers with their mean times.
    Times,
    /// Two handlers.
    Handlers,
    /// Nothing: one handler for both.
    Nothing,
}

/// One event in this many is long.
const LONG_ONE_IN: u32 = 50;
const SHORT_NS: u64 = mely_ns(100);
const LONG_NS_MIN: u64 = mely_ns(10_000);
const LONG_NS_MAX: u64 = mely_ns(50_000);

static SHORT: Note = Note::new("short").time_ns(SHORT_NS);
static LONG: Note = Note::new("long").time_ns((LONG_NS_MIN + LONG_NS_MAX) / 2);
/// A stolen set of four takes the 1,200 Kcycles of Table I.
static CRYPTO: Note = Note::new("crypto").time_ns(mely_ns(1_200_000) / 4);
/// A stolen set of five takes the 20 Kcycles of Table I.
static REQUEST: Note = Note::new("request").time_ns(mely_ns(20_000) / 5);
static CHILD: Note = Note::new("child").time_ns(5_000);
static PLAIN: Note = Note::new("plain").time_ns(2_500);

const fn mixed(told: Told) -> Option<Workload> {
    Some(Workload::Unbalanced(Unbalanced {
        colors: 50_000,
        each: 1,
        load: Load::Mixed(told),
    }))
}

const fn untold(colors: u32, note: &'static Note) -> Option<Workload> {
    Some(Workload::Unbalanced(Unbalanced {
        colors,
        each: 1,
        load: Load::Untold(note),
    }))
}

const fn even(colors: u32, each: u32, note: &'static Note) -> Option<Workload> {
    Some(Workload::Unbalanced(Unbalanced {
        colors,
        each,
        load: Load::Even(note),
    }))
}

/// The tables of this workload.
pub const TABLES: &[Table] = &[
    Table::new("mely-1-sfs", |cores| {
            if cores > 1 {
                even(16, 4, &CRYPTO)
            } else {
                None
            }
        }).remarks(&[
            "Mely, Table I, SFS under libasync-smp-ws: a steal takes 4.8 Kcycles (2,060 ns) and brings",
            "1,200 Kcycles (515,000 ns) of work. Here: 16 colors of 4 events of a quarter of that.",
        ]),
    Table::new("mely-1-web", |cores| {
            if cores > 1 {
                even(200, 5, &REQUEST)
            } else {
                None
            }
        }).remarks(&[
            "Mely, Table I, web server under libasync-smp-ws: a steal takes 197 Kcycles (84,500 ns) and",
            "brings 20 Kcycles (8,580 ns); its fullest queues had 1,000 events. Mely itself: 6 and 23 Kcycles",
            "(§V-C1). Here: 1,000 events, 200 colors of 5 events of a fifth of 20 Kcycles.",
        ]),
    Table::new("mely-3-4-unbalanced", |_| mixed(Told::Times)).remarks(&[
            "Mely, Tables III and IV, 8 cores, K events/s (time in locks; cost of a steal, stolen time):",
            "libasync-smp 1310 (0.93 %), libasync-smp-ws 122 (39.73 %; 28,329 and 484 cycles),",
            "Mely 1265 (0.89 %), base 1195 (1.42 %; 2,261 and 445 cycles), time-left 2042 (-; 49,987 cycles):",
            "base costs 5.5 %, time-left is 1.70 of base. Efficiency: against a bare loop of the same spins.",
        ]),
    Table::new("unbalanced-learned", |_| mixed(Told::Handlers)).remarks(&["As above, without annotations: what a handler takes has to be learned."]),
    Table::new("unbalanced-shared", |_| mixed(Told::Nothing)).remarks(&["As above, short and long events in one handler."]),
    Table::new("fork-join64", |_| untold(64, &CHILD))
        .remarks(&["Rounds of 64 children of 5 us, of a color each."]),
    Table::new("steal-cost-10", |cores| {
            if cores > 1 { even(5, 2, &PLAIN) } else { None }
        }).remarks(&["Rounds of 10 events: what a steal from a short queue takes."]),
    Table::new("steal-cost-100000", |cores| {
            if cores > 1 {
                even(1_000, 100, &PLAIN)
            } else {
                None
            }
        }).remarks(&["Rounds of 100,000 events, 1,000 colors: what a steal from a long queue takes."]),
];

/// What the handlers share.
#[derive(Debug)]
struct Data {
    rounds: Rounds,
    parameters: Unbalanced,
    /// Iterations of a short event, or of any even one.
    short: u32,
    long_min: u32,
    long_max: u32,
    /// The world's colors from this one on have long events.
    long_from: u32,
    /// The last number of the events of this round.
    last: AtomicU32,
}

impl Data {
    /// Long events have the last colors of the world: their cells are apart from those of the
    /// short, which stay on one core.
    fn is_long(&self, index: u32) -> bool {
        index >= self.long_from
    }

    /// The world's color of the `nth` posted: every so-manieth is long.
    fn index(&self, nth: u32) -> u32 {
        let Load::Mixed(_) = self.parameters.load else {
            return nth;
        };
        let long_before = nth / LONG_ONE_IN;
        if nth % LONG_ONE_IN == LONG_ONE_IN - 1 {
            self.long_from + long_before
        } else {
            nth - long_before
        }
    }

    /// Evenly spread, another length in each round.
    fn long(&self, index: u32, number: u32) -> u32 {
        let mixed = (index ^ number.rotate_left(16)).wrapping_mul(0x9E37_79B1) >> 16;
        self.long_min + (((self.long_max - self.long_min) * (mixed >> 4)) >> 12)
    }

    #[inline]
    fn short_event<C: Context + ?Sized>(&self, cx: &C, world: &World, index: u32, number: u32) {
        spin(self.short);
        self.end_event(cx, world, index, number);
    }

    #[inline]
    fn long_event<C: Context + ?Sized>(&self, cx: &C, world: &World, index: u32, number: u32) {
        spin(self.long(index, number));
        self.end_event(cx, world, index, number);
    }

    #[inline]
    fn end_event<C: Context + ?Sized>(&self, cx: &C, world: &World, index: u32, number: u32) {
        world.pass(index, number);
        if number == self.last.load(Relaxed) {
            self.rounds.ended(cx, index);
        }
    }

    /// What the spins of an event take in a bare loop over a round of them, at this moment. In CPU
    /// time: what else runs on the machine does not count as work.
    fn bare_ns(&self) -> f64 {
        let Unbalanced { colors, each, .. } = self.parameters;
        let start = thread_cpu_time();
        for nth in 0..colors {
            let index = self.index(nth);
            for _ in 0..each {
                if self.is_long(index) {
                    spin(self.long(index, 0));
                } else {
                    spin(self.short);
                }
            }
        }
        let took = thread_cpu_time() - start;
        took.as_nanos() as f64 / f64::from(colors * each)
    }
}

impl ForkJoin for Data {
    fn rounds(&self) -> &Rounds {
        &self.rounds
    }

    fn fork<C: Context + ?Sized>(&'static self, cx: &mut C, world: &'static World, round: u32) {
        let Unbalanced { colors, each, load } = self.parameters;
        // The posts that follow carry it to the events.
        self.last.store((round + 1) * each - 1, Relaxed);
        for number in round * each..(round + 1) * each {
            for index in (0..colors).map(|nth| self.index(nth)) {
                let color = self.rounds.color(index);
                let short = move |cx: &mut C| self.short_event(cx, world, index, number);
                let long = move |cx: &mut C| self.long_event(cx, world, index, number);
                match (load, self.is_long(index)) {
                    (Load::Untold(_), _) => cx.post(color, short),
                    (Load::Even(note), _) => cx.post_noted(color, note, short),
                    (Load::Mixed(Told::Times), false) => cx.post_noted(color, &SHORT, short),
                    (Load::Mixed(Told::Times), true) => cx.post_noted(color, &LONG, long),
                    (Load::Mixed(Told::Handlers), false) => cx.post(color, short),
                    (Load::Mixed(Told::Handlers), true) => cx.post(color, long),
                    (Load::Mixed(Told::Nothing), _) => cx.post(color, move |cx: &mut C| {
                        // Looked up again: a closure of more than three words would be boxed.
                        if self.is_long(index) {
                            self.long_event(cx, world, index, number);
                        } else {
                            self.short_event(cx, world, index, number);
                        }
                    }),
                }
            }
        }
        rounds::post_join(cx, world, self, round);
    }
}

impl Work for Unbalanced {
    fn world(self, events: u64, cores: usize) -> World {
        let rounds = (events / u64::from(self.colors * self.each)).clamp(1, 1 << 16) as u32;
        let length = rounds * self.each;
        let (short_ns, long) = match self.load {
            Load::Mixed(_) => (SHORT_NS, self.colors / LONG_ONE_IN),
            Load::Even(note) | Load::Untold(note) => {
                (note.time_ns.expect("even events are annotated"), 0)
            }
        };
        World::new(self.colors as usize, length, 1, 1, false).with(Data {
            rounds: Rounds::on_first_core(rounds, cores),
            parameters: self,
            short: iterations(short_ns),
            long_min: iterations(LONG_NS_MIN),
            long_max: iterations(LONG_NS_MAX),
            long_from: self.colors - long,
            last: AtomicU32::new(0),
        })
    }

    fn colors_end(self, cores: usize) -> usize {
        rounds::colors_end(self.colors as usize, cores)
    }

    fn start<C: Context + ?Sized>(self, cx: &mut C, world: &'static World, _cores: &[usize]) {
        rounds::start(cx, world, world.data::<Data>());
    }

    fn is_of_papers(self) -> bool {
        true
    }

    fn values(self, world: &World, verdict: &Verdict) -> Vec<(&'static str, f64)> {
        let data = world.data::<Data>();
        let bare_ns = data.bare_ns();
        let ideal_ns = bare_ns * verdict.ran as f64 / data.rounds.cores() as f64;
        vec![
            ("bare_ns_per_event", bare_ns),
            ("efficiency", ideal_ns / verdict.took.as_nanos() as f64),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_color_is_posted_once_and_two_in_a_hundred_are_long() {
        let Some(Workload::Unbalanced(parameters)) = mixed(Told::Times) else {
            panic!("the table is of this workload");
        };
        let world = parameters.world(1, 2);
        let data = world.data::<Data>();
        let mut indices: Vec<_> = (0..50_000).map(|nth| data.index(nth)).collect();
        assert_eq!(indices.iter().filter(|&&i| data.is_long(i)).count(), 1_000);
        assert!(data.is_long(indices[49]));
        indices.sort_unstable();
        assert!(indices.into_iter().eq(0..50_000));
    }

    #[test]
    fn long_events_are_spread_over_their_range() {
        let world = mixed(Told::Times).unwrap().world(1, 1);
        let data = world.data::<Data>();
        let long: Vec<_> = (49_000..50_000).map(|index| data.long(index, 3)).collect();
        let range = data.long_max - data.long_min;
        assert!(
            long.iter()
                .all(|n| (data.long_min..=data.long_max).contains(n))
        );
        let mean = long.iter().sum::<u32>() / 1_000;
        let middle = data.long_min + range / 2;
        assert!(mean.abs_diff(middle) < range / 20, "{mean} {middle}");
    }
}
