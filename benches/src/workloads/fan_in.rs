//! Fan-in: two producers, handlers or foreign threads, post to the same colors by turns. What is
//! under way is bounded: a producer is at most two windows ahead of what has been acknowledged, by
//! the last event of each window.
//!
//! The sinks check the order of each producer's posts. It is promised because a producing handler's
//! windows follow from each other, all in its color. The first two are one event's: posted as two
//! events by `start`, which is no event, the first could have run on another core, and with it the
//! window that its last event asks for, before `start` had posted the second.

use super::{Table, Work, Workload, finish};
use crate::{Context, Outside, World, machine};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering::Acquire, Ordering::Release};
use std::thread::{self, Thread};

/// See the module text.
#[derive(Clone, Copy, Debug)]
pub struct FanIn {
    /// Where events go.
    pub sinks: usize,
    /// Foreign threads produce, not handlers.
    pub foreign: bool,
    /// Events of a window, a power of two.
    pub window: u32,
}

impl FanIn {
    /// With about `depth` events under way.
    pub fn deep(self, depth: u32) -> FanIn {
        let window = (depth / (PRODUCERS as u32 * AHEAD)).max(1);
        FanIn {
            window: 1 << window.ilog2(),
            ..self
        }
    }
}

const fn handlers(sinks: usize) -> Option<Workload> {
    producers(sinks, false)
}

const fn threads(sinks: usize) -> Option<Workload> {
    producers(sinks, true)
}

const fn producers(sinks: usize, foreign: bool) -> Option<Workload> {
    Some(Workload::FanIn(FanIn {
        sinks,
        foreign,
        window: WINDOW,
    }))
}

/// The tables of this workload.
pub const TABLES: &[Table] = &[
    Table::new("fan-in1", |_| handlers(1)),
    Table::new("fan-in64", |_| handlers(64)),
    Table::new("fan-in4096", |_| handlers(4_096)),
    Table::new("foreign1", |_| threads(1)),
    Table::new("foreign64", |_| threads(64)),
    Table::new("foreign4096", |_| threads(4_096)),
];

const PRODUCERS: usize = 2;
/// Events of a window, unless another depth is asked for.
const WINDOW: u32 = 1_024;
/// Windows that are under way.
const AHEAD: u32 = 2;

/// The foreign producers, to be told how many of their windows have run.
#[derive(Default)]
struct Windows {
    /// Events of each.
    events: u32,
    producers: [Acknowledged; PRODUCERS],
}

#[derive(Default)]
#[repr(align(128))]
struct Acknowledged {
    windows: AtomicU32,
    thread: OnceLock<Thread>,
}

impl Work for FanIn {
    fn world(self, events: u64, cores: usize) -> World {
        // Whole windows, and as many to each color.
        let unit = (self.sinks as u64).max(u64::from(self.window));
        let posts = (events / PRODUCERS as u64)
            .next_multiple_of(unit)
            .min((u64::from(u32::MAX) / 2 / unit) * unit);
        let length = (posts * PRODUCERS as u64 / self.sinks as u64) as u32;
        World::new(self.sinks, length, self.sinks, cores, true).with(Windows {
            events: self.window,
            ..Windows::default()
        })
    }

    fn colors_end(self, cores: usize) -> usize {
        self.sinks.next_multiple_of(cores) + PRODUCERS
    }

    fn separable(self, cores: usize) -> bool {
        cores == 1 && !self.foreign
    }

    fn start<C: Context + ?Sized>(self, cx: &mut C, world: &'static World, cores: &[usize]) {
        for from in 0..PRODUCERS as u32 {
            if self.foreign {
                let outside = cx.outside();
                let cores = cores.len();
                thread::spawn(move || produce_outside(&outside, world, from, cores));
            } else {
                cx.post(producer_color(world, from), move |cx| {
                    let first = 0..AHEAD.min(windows(world));
                    first.for_each(|window| produce(cx, world, from, window));
                });
            }
        }
    }
}

/// The color of a handler that produces: on a core of its own, if there are several.
fn producer_color(world: &World, from: u32) -> u32 {
    world.colors().next_multiple_of(world.cores()) as u32 + from
}

fn window_events(world: &World) -> u32 {
    world.data::<Windows>().events
}

/// Windows of each producer.
fn windows(world: &World) -> u32 {
    let events = u64::from(world.length) * world.colors() as u64;
    (events / PRODUCERS as u64 / u64::from(window_events(world))) as u32
}

fn produce<C: Context + ?Sized>(cx: &mut C, world: &'static World, from: u32, window: u32) {
    for (color, number, last) in window_of(world, window) {
        if last {
            cx.post(color, move |cx| {
                sink(cx, world, color, from, number);
                // Only what is still to run: the run may be over, and peers gone with it.
                if window + AHEAD < windows(world) {
                    cx.post(producer_color(world, from), move |cx| {
                        produce(cx, world, from, window + AHEAD);
                    });
                }
            });
        } else {
            cx.post(color, move |cx| sink(cx, world, color, from, number));
        }
    }
}

/// Color, number and whether it is the last, of the events of a window.
fn window_of(world: &World, window: u32) -> impl Iterator<Item = (u32, u32, bool)> {
    let sinks = world.colors() as u32;
    let first = window * window_events(world);
    let last = first + window_events(world) - 1;
    (first..=last).map(move |event| (event % sinks, event / sinks, event == last))
}

fn sink<C: Context + ?Sized>(
    cx: &mut C,
    world: &'static World,
    color: u32,
    from: u32,
    number: u32,
) {
    let ran = world.relay(color, from as usize, number);
    if ran + 1 == world.length {
        finish(cx, world);
    }
}

fn produce_outside<C, O>(outside: &O, world: &'static World, from: u32, cores: usize)
where
    C: Context + ?Sized,
    O: Outside<C>,
{
    machine::pin_foreign(from as usize, cores);
    let acknowledged = &world.data::<Windows>().producers[from as usize];
    acknowledged.thread.get_or_init(thread::current);
    for window in 0..windows(world) {
        while acknowledged.windows.load(Acquire) + AHEAD <= window {
            thread::park();
        }
        for (color, number, last) in window_of(world, window) {
            if last {
                outside.post(color, move |cx: &mut C| {
                    // Not a store: windows end on different colors, so not always in order.
                    acknowledged.windows.fetch_max(window + 1, Release);
                    if let Some(thread) = acknowledged.thread.get() {
                        thread.unpark();
                    }
                    sink(cx, world, color, from, number);
                });
            } else {
                outside.post(color, move |cx: &mut C| {
                    sink(cx, world, color, from, number)
                });
            }
        }
    }
}
