//! What a round is, drawn from its seed.

use mely::net::{Acceptors, Backend};
use mely::runtime::{OnPanic, Stealing};
use mely::{Builder, Runtime};
use std::time::Duration;

/// How a runtime is made to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// By itself, when nothing is left.
    Idle,
    /// Stopped when foreign threads and clients are done.
    AfterAll,
    /// Stopped from outside after a while, whatever is going on.
    Moment(Duration),
    /// Stopped by a handler, when this many events have run.
    Handler(u64),
    /// Stopped with events that post themselves for ever: the deadline must cut it short.
    Deadline(Duration),
    /// Dropped without ever having run.
    NeverRun,
}

/// One runtime of a round.
#[derive(Clone, Debug)]
pub(crate) struct SideDraw {
    pub(crate) cores: usize,
    pub(crate) stealing: Stealing,
    pub(crate) slot_bits: u32,
    pub(crate) batch: u32,
    pub(crate) events_max: Option<usize>,
    pub(crate) on_panic: OnPanic,
    pub(crate) spin: Duration,
    pub(crate) wake_cost: Duration,
    pub(crate) pin: bool,
    pub(crate) warn: bool,
    pub(crate) backend: Backend,
    pub(crate) end: End,
    /// Foreign clients; none: no listener.
    pub(crate) clients: usize,
    pub(crate) acceptors: Acceptors,
}

/// A round.
#[derive(Clone, Debug)]
pub(crate) struct Draw {
    pub(crate) seed: u64,
    pub(crate) sides: Vec<SideDraw>,
    /// Groups of colors among which order is checked, and colors in each.
    pub(crate) groups: usize,
    pub(crate) colors: usize,
    /// Foreign threads at any time, how many live one after the other, and the posts of each.
    pub(crate) lanes: usize,
    pub(crate) lives: usize,
    pub(crate) posts: usize,
    /// Most events of the round.
    pub(crate) tickets: usize,
    /// Children of an event, in percent.
    pub(crate) fan: u32,
    /// Events that do something odd, in percent.
    pub(crate) odd: u32,
    /// Events that panic, in ten thousand.
    pub(crate) panics: u32,
    /// Few colors, and foreign threads that do to them whatever can be done from outside, between
    /// any two posts.
    pub(crate) crowd: bool,
    /// Whether the runtimes are dropped while foreign threads still post.
    pub(crate) drop_early: bool,
}

pub(crate) fn chance(rng: &mut fastrand::Rng, percent: u32) -> bool {
    rng.u32(..100) < percent
}

fn any<T: Copy>(rng: &mut fastrand::Rng, of: &[T]) -> T {
    of[rng.usize(..of.len())]
}

impl Draw {
    pub(crate) fn new(seed: u64, backends: &[Backend]) -> Draw {
        let mut rng = fastrand::Rng::with_seed(seed);
        let panics = if chance(&mut rng, 40) {
            any(&mut rng, &[1, 20, 300])
        } else {
            0
        };
        let sides = 1 + usize::from(chance(&mut rng, 35));
        let draw = Draw {
            seed,
            sides: (0..sides)
                .map(|_| SideDraw::new(&mut rng, backends))
                .collect(),
            groups: any(&mut rng, &[1, 2, 8, 40]),
            colors: rng.usize(2..=6),
            lanes: rng.usize(..=4),
            lives: rng.usize(1..=4),
            posts: any(&mut rng, &[10, 100, 1_000]),
            tickets: any(&mut rng, &[500, 5_000, 50_000]),
            fan: any(&mut rng, &[80, 110, 180]),
            odd: any(&mut rng, &[0, 5, 25]),
            panics,
            crowd: false,
            drop_early: chance(&mut rng, 25),
        };
        if !chance(&mut rng, 20) {
            return draw;
        }
        Draw {
            groups: 1,
            colors: 2,
            lanes: rng.usize(2..=4),
            posts: 10_000,
            tickets: 50_000,
            fan: any(&mut rng, &[0, 80]),
            odd: any(&mut rng, &[0, 5]),
            crowd: true,
            ..draw
        }
    }
}

impl SideDraw {
    fn new(rng: &mut fastrand::Rng, backends: &[Backend]) -> SideDraw {
        let stealing = if chance(rng, 10) {
            Stealing::OFF
        } else {
            Stealing {
                enabled: true,
                locality: rng.bool(),
                time_left: rng.bool(),
                penalty: rng.bool(),
            }
        };
        let end = match rng.u32(..12) {
            0..3 => End::Idle,
            3..6 => End::AfterAll,
            6..8 => End::Moment(Duration::from_micros(rng.u64(..20_000))),
            8..10 => End::Handler(rng.u64(..5_000)),
            10 => End::Deadline(Duration::from_micros(rng.u64(..20_000))),
            _ => End::NeverRun,
        };
        let with_net = !matches!(end, End::Idle | End::NeverRun) && chance(rng, 50);
        SideDraw {
            cores: rng.usize(1..=8),
            stealing,
            slot_bits: rng.u32(4..=16),
            batch: any(rng, &[1, 2, 10, 1_000]),
            events_max: chance(rng, 25).then(|| rng.usize(1..2_000)),
            on_panic: any(rng, &[OnPanic::Stop, OnPanic::DropEvent]),
            spin: Duration::from_micros(any(rng, &[0, 5, 50, 500])),
            wake_cost: Duration::from_micros(any(rng, &[0, 10, 1_000])),
            pin: rng.bool(),
            warn: chance(rng, 20),
            backend: any_backend(rng, backends),
            end,
            clients: if with_net { rng.usize(1..=24) } else { 0 },
            acceptors: any(rng, &[Acceptors::PerCore, Acceptors::Single]),
        }
    }

    /// A builder with all that.
    pub(crate) fn builder(&self) -> Builder {
        let available = std::thread::available_parallelism().map_or(1, |of| of.get());
        let builder = Runtime::builder()
            .cores(self.cores)
            .stealing(self.stealing)
            .color_slots(1 << self.slot_bits)
            .batch(self.batch)
            .on_panic(self.on_panic)
            // The process's hook counts them.
            .panic_hook(|_| ())
            .spin(self.spin)
            .wake_cost(self.wake_cost)
            // More cores than there are processors take turns.
            .pin(self.pin && self.cores <= available)
            .exit_when_idle(self.end == End::Idle)
            .drain_deadline(match self.end {
                End::Deadline(deadline) => deadline,
                _ => Duration::MAX,
            })
            .backend(self.backend.clone());
        let builder = match self.events_max {
            Some(events) => builder.events_max(events),
            None => builder,
        };
        if self.warn {
            builder.on_slow_handler(Duration::from_millis(1), |slow| drop(format!("{slow:?}")))
        } else {
            builder
        }
    }
}

fn any_backend(rng: &mut fastrand::Rng, backends: &[Backend]) -> Backend {
    backends[rng.usize(..backends.len())].clone()
}
