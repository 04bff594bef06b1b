//! Fan-in: a few producers, handlers or foreign threads, post to the same colors by turns. What is
//! under way is bounded: a producer has at most two windows that have not run.
//!
//! A window has run when its last event in each of sixteen colors has, and the next window asks
//! other colors. One color alone would not do: what runs it may be ahead of the others, and then
//! the others' queues grow as long as the run lasts.
//!
//! The sinks check the order of each producer's posts. It is promised because all windows of a
//! producing handler are posted by events of one color, one after the other.
//!
//! **Foreign threads** are beside the scheduler, on the cores that it leaves free, or over it, on
//! its own cores. Each posts the same number of events. When the first of several has posted all
//! of its, the table says how far the least has come: a thread whose posts others' starve is behind
//! then.

use super::{Table, Work, Workload, finish, world};
use crate::sync::atomic::{AtomicU32, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed};
use crate::world::{Verdict, computes};
use crate::{Context, Outside, World, machine};
use std::sync::OnceLock;
use std::thread::{self, Thread};

/// See the module text.
#[derive(Clone, Copy, Debug)]
pub struct FanIn {
    /// Where events go.
    pub sinks: usize,
    /// Who posts them.
    pub producers: Producers,
    /// Events of a window, a power of two.
    pub window: u32,
}

/// Who posts.
#[derive(Clone, Copy, Debug)]
pub enum Producers {
    /// Two handlers.
    Handlers,
    /// This many foreign threads.
    Threads(usize, Place),
}

/// Where foreign threads run.
#[derive(Clone, Copy, Debug)]
pub enum Place {
    /// On cores that the scheduler leaves free.
    Beside,
    /// On the scheduler's cores.
    Over,
}

impl Producer {
    /// Colors that have not run this window: none if it has run, or the last but one before it.
    fn left(&self, window: u32) -> &AtomicU32 {
        &self.left[(window % AHEAD) as usize]
    }
}

impl Producers {
    fn count(self) -> usize {
        match self {
            Producers::Handlers => 2,
            Producers::Threads(threads, _) => threads,
        }
    }
}

impl FanIn {
    /// With about `depth` events under way.
    pub fn deep(self, depth: u32) -> FanIn {
        let window = (depth / (self.producers.count() as u32 * AHEAD)).max(1);
        FanIn {
            window: 1 << window.ilog2(),
            ..self
        }
    }
}

const fn to(sinks: usize, producers: Producers) -> Option<Workload> {
    Some(Workload::FanIn(FanIn {
        sinks,
        producers,
        window: WINDOW,
    }))
}

const fn handlers(sinks: usize) -> Option<Workload> {
    to(sinks, Producers::Handlers)
}

fn beside(threads: usize, sinks: usize, cores: usize) -> Option<Workload> {
    if cores < machine::cores() {
        to(sinks, Producers::Threads(threads, Place::Beside))
    } else {
        None
    }
}

const fn over(threads: usize, sinks: usize) -> Option<Workload> {
    to(sinks, Producers::Threads(threads, Place::Over))
}

/// The tables of this workload: `foreign2-64` is 2 threads that post to 64 colors.
pub const TABLES: &[Table] = &[
    Table::new("fan-in1", |_| handlers(1)),
    Table::new("fan-in64", |_| handlers(64)),
    Table::new("fan-in4096", |_| handlers(4_096)),
    Table::new("foreign1-1", |cores| beside(1, 1, cores)),
    Table::new("foreign2-1", |cores| beside(2, 1, cores)),
    Table::new("foreign4-1", |cores| beside(4, 1, cores)),
    Table::new("foreign1-64", |cores| beside(1, 64, cores)),
    Table::new("foreign2-64", |cores| beside(2, 64, cores)),
    Table::new("foreign4-64", |cores| beside(4, 64, cores)),
    Table::new("foreign1-4096", |cores| beside(1, 4_096, cores)),
    Table::new("foreign2-4096", |cores| beside(2, 4_096, cores)),
    Table::new("foreign4-4096", |cores| beside(4, 4_096, cores)),
    Table::new("foreign1-1-over", |_| over(1, 1)),
    Table::new("foreign2-1-over", |_| over(2, 1)),
    Table::new("foreign4-1-over", |_| over(4, 1)),
    Table::new("foreign1-64-over", |_| over(1, 64)),
    Table::new("foreign2-64-over", |_| over(2, 64)),
    Table::new("foreign4-64-over", |_| over(4, 64)),
    Table::new("foreign1-4096-over", |_| over(1, 4_096)),
    Table::new("foreign2-4096-over", |_| over(2, 4_096)),
    Table::new("foreign4-4096-over", |_| over(4, 4_096)).remarks(&[
        "Least thread: what the slowest had posted when the first was done, over the mean of all.",
    ]),
];

/// Events of a window, unless another depth is asked for.
const WINDOW: u32 = 1_024;
/// Windows that are under way.
const AHEAD: u32 = 2;
/// Colors that say when a window has run.
const ASKED_MAX: u32 = 16;

/// What the producers and the sinks share.
struct Windows {
    /// Events of each.
    events: u32,
    /// The foreign threads, to be told how many of their windows have run.
    producers: Vec<Producer>,
    /// What [`Work::values`] says of them.
    least_share: OnceLock<f64>,
}

#[derive(Default)]
#[repr(align(128))]
struct Producer {
    /// Of each window that is under way, how many colors have not run it yet.
    left: [AtomicU32; AHEAD as usize],
    /// Windows that it has posted.
    posted: AtomicU32,
    /// Of a handler, how often it has looked for windows that there is room for.
    looked: AtomicU32,
    thread: OnceLock<Thread>,
}

impl Work for FanIn {
    fn world(self, events: u64, cores: usize) -> World {
        let producers = self.producers.count();
        // Whole windows, and as many to each color; one at least, or nobody would ever end the run.
        let unit = (self.sinks as u64).max(u64::from(self.window));
        let most = u64::from(u32::MAX) / producers as u64 / unit * unit;
        let posts = events.div_ceil(producers as u64).max(1);
        let posts = posts.next_multiple_of(unit).min(most);
        let length = (posts * producers as u64 / self.sinks as u64) as u32;
        // A handler's last look, which may find nothing, can come after the last event that is run.
        let parts = match self.producers {
            Producers::Handlers => self.sinks + producers,
            Producers::Threads(..) => self.sinks,
        };
        World::new(self.sinks, length, parts, cores, true).with(Windows {
            events: self.window,
            producers: (0..producers).map(|_| Producer::default()).collect(),
            least_share: OnceLock::new(),
        })
    }

    fn colors_end(self, cores: usize) -> usize {
        self.sinks.next_multiple_of(cores) + self.producers.count()
    }

    fn separable(self, cores: usize) -> bool {
        cores == 1 && matches!(self.producers, Producers::Handlers)
    }

    fn start<C: Context + ?Sized>(self, cx: &mut C, world: &'static World, cores: &[usize]) {
        for from in 0..self.producers.count() as u16 {
            match self.producers {
                Producers::Handlers => {
                    cx.post(producer_color(world, from), move |cx| produce(cx, from));
                }
                Producers::Threads(_, place) => {
                    let outside = cx.outside();
                    let cores = cores.len();
                    thread::spawn(move || {
                        match place {
                            Place::Beside => machine::pin_foreign(from.into(), cores),
                            Place::Over => machine::pin_over(from.into(), cores),
                        }
                        produce_outside(&outside, from);
                    });
                }
            }
        }
    }

    fn values(self, world: &World, _: &Verdict) -> Vec<(&'static str, f64)> {
        match self.producers {
            Producers::Threads(2.., _) => {
                let share = world.data::<Windows>().least_share.get();
                vec![("least_thread", *share.expect("all threads have posted"))]
            }
            _ => Vec::new(),
        }
    }
}

/// The color of a handler that produces: on a core of its own, if there are several.
fn producer_color(world: &World, from: u16) -> u32 {
    world.colors().next_multiple_of(world.cores()) as u32 + u32::from(from)
}

/// Windows of each producer.
fn windows(world: &World) -> u32 {
    let Windows {
        events, producers, ..
    } = world.data::<Windows>();
    let all = u64::from(world.length) * world.colors() as u64;
    (all / producers.len() as u64 / u64::from(*events)) as u32
}

/// Color and number of the events of a window, and whether the window waits for them.
fn window_of(world: &World, window: u32) -> impl Iterator<Item = (u16, u32, bool)> + use<> {
    let sinks = world.colors() as u32;
    let events = world.data::<Windows>().events;
    // The last events in each color are at the end.
    let colors = sinks.min(events);
    let apart = colors / asked(world);
    let first = window * events;
    let end = first + events;
    (first..end).map(move |event| {
        let to_end = end - 1 - event;
        let is_asked = to_end < colors && to_end % apart == window % apart;
        ((event % sinks) as u16, event / sinks, is_asked)
    })
}

/// What a producer computes for an event that it posts.
pub(super) fn computation() -> Box<dyn FnMut()> {
    let fan_in = FanIn {
        sinks: 64,
        producers: Producers::Handlers,
        window: WINDOW,
    };
    let world: &World = Box::leak(Box::new(fan_in.world(1 << 20, 1)));
    let mut windows = (0..u32::MAX).flat_map(|window| window_of(world, window % 512));
    Box::new(move || _ = std::hint::black_box(windows.next()))
}

/// The colors that a window waits for: so many, and other ones than the window before.
fn asked(world: &World) -> u32 {
    let colors = world.colors() as u32;
    colors.min(world.data::<Windows>().events).min(ASKED_MAX)
}

/// The window of an event, by its color and number.
fn window_with(world: &World, color: u16, number: u32) -> u32 {
    let event = number * world.colors() as u32 + u32::from(color);
    event / world.data::<Windows>().events
}

/// Looks for windows that there is room for: once at first, and when a window has run that another
/// follows.
fn produce<C: Context + ?Sized>(cx: &mut C, from: u16) {
    let world = world();
    let producer = &world.data::<Windows>().producers[usize::from(from)];
    post_windows(cx, producer, from);
    let looked = producer.looked.load(Relaxed) + 1;
    producer.looked.store(looked, Relaxed);
    if looked == 1 + windows(world).saturating_sub(AHEAD) {
        finish(cx, world);
    }
}

/// Posts the next window, and the one after it if that had run before.
fn post_windows<C: Context + ?Sized>(cx: &mut C, producer: &'static Producer, from: u16) {
    let world = world();
    for _ in 0..AHEAD {
        let window = producer.posted.load(Relaxed);
        let left = producer.left(window);
        if window == windows(world) || left.load(Acquire) > 0 {
            return;
        }
        left.store(asked(world), Relaxed);
        producer.posted.store(window + 1, Relaxed);
        for (color, number, is_asked) in window_of(world, window) {
            computes(|costs| costs.window);
            // Closures of 8 bytes.
            if is_asked {
                cx.post(color.into(), move |cx| {
                    sink(cx, color, from, number);
                    if has_run(color, from, number) {
                        let producer = producer_color(self::world(), from);
                        cx.post(producer, move |cx| produce(cx, from));
                    }
                });
            } else {
                cx.post(color.into(), move |cx| sink(cx, color, from, number));
            }
        }
    }
}

fn sink<C: Context + ?Sized>(cx: &mut C, color: u16, from: u16, number: u32) {
    let world = world();
    let ran = world.relay(color.into(), from.into(), number);
    if ran + 1 == world.length {
        finish(cx, world);
    }
}

/// A color that its window waits for has run it. True for the last of them, if there are windows
/// left to post: else the run may be over, and peers gone with it.
fn has_run(color: u16, from: u16, number: u32) -> bool {
    let world = world();
    let producer = &world.data::<Windows>().producers[usize::from(from)];
    let window = window_with(world, color, number);
    let more = window + AHEAD < windows(world);
    producer.left(window).fetch_sub(1, AcqRel) == 1 && more
}

fn produce_outside<C, O>(outside: &O, from: u16)
where
    C: Context + ?Sized,
    O: Outside<C>,
{
    let world = world();
    let all = world.data::<Windows>();
    let producer = &all.producers[usize::from(from)];
    producer.thread.get_or_init(thread::current);
    for window in 0..windows(world) {
        let left = producer.left(window);
        while left.load(Acquire) > 0 {
            thread::park();
        }
        left.store(asked(world), Relaxed);
        if window + 1 == windows(world) {
            all.least_share.get_or_init(|| least_share(all));
        }
        for (color, number, is_asked) in window_of(world, window) {
            computes(|costs| costs.window);
            // Closures of 8 bytes.
            if is_asked {
                outside.post(color.into(), move |cx: &mut C| {
                    acknowledge(color, from, number);
                    sink(cx, color, from, number);
                });
            } else {
                outside.post(color.into(), move |cx: &mut C| {
                    sink(cx, color, from, number);
                });
            }
        }
        producer.posted.store(window + 1, Relaxed);
    }
}

/// A color that a thread's window waits for has run it.
fn acknowledge(color: u16, from: u16, number: u32) {
    if has_run(color, from, number) {
        let producer = &world().data::<Windows>().producers[usize::from(from)];
        if let Some(thread) = producer.thread.get() {
            thread.unpark();
        }
    }
}

/// What the least of the producers has posted, over the mean.
fn least_share(windows: &Windows) -> f64 {
    let posted = windows.producers.iter().map(|of| of.posted.load(Relaxed));
    let (least, sum) = posted.fold((u32::MAX, 0), |(least, sum), posted| {
        (least.min(posted), sum + u64::from(posted))
    });
    if sum == 0 {
        // One window each: too short to tell.
        return 1.0;
    }
    f64::from(least) * windows.producers.len() as f64 / sum as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_events_window_is_found_by_its_color_and_number() {
        for sinks in [1, 64, 4_096] {
            let Some(Workload::FanIn(fan_in)) = over(4, sinks) else {
                panic!("the table is of this workload");
            };
            for depth in [10, 65_536] {
                let world = fan_in.deep(depth).world(100_000, 2);
                for window in 0..windows(&world) {
                    let events: Vec<_> = window_of(&world, window).collect();
                    let of =
                        |&(color, number, _): &(u16, u32, bool)| window_with(&world, color, number);
                    assert!(events.iter().map(of).all(|its| its == window));
                    let asked: Vec<_> = events.iter().filter(|event| event.2).collect();
                    assert_eq!(asked.len() as u32, super::asked(&world));
                    // None has a later event in this window.
                    for (color, number, _) in asked {
                        let later =
                            |other: &&(u16, u32, bool)| other.0 == *color && other.1 > *number;
                        assert_eq!(events.iter().find(later), None);
                    }
                }
            }
        }
    }

    #[test]
    fn fewer_events_than_producers_are_a_run_too() {
        for sinks in [1, 64, 4_096] {
            let Some(Workload::FanIn(fan_in)) = over(4, sinks) else {
                panic!("the table is of this workload");
            };
            for events in 0..5 {
                assert!(windows(&fan_in.world(events, 1)) > 0, "{events} to {sinks}");
            }
        }
    }

    #[test]
    fn the_least_share_is_that_of_the_thread_that_is_behind() {
        let producers = [8, 2, 5].map(|posted| Producer {
            posted: AtomicU32::new(posted),
            ..Producer::default()
        });
        let windows = Windows {
            events: 1,
            producers: producers.into(),
            least_share: OnceLock::new(),
        };
        assert_eq!(least_share(&windows), 0.4);
    }
}
