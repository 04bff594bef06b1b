//! A few hundred tokens that go from color to color, and compute in each: by chance, after Zipf's
//! law, so that few colors have most of the events; or round a pipeline of stages.

use super::hop::mixed;
use super::spin::{iterations, spin};
use super::{Table, Work, Workload, finish, world};
use crate::world::SEED;
use crate::{Context, World};

/// See the module text.
#[derive(Clone, Copy, Debug)]
pub struct Tokens {
    /// As many are under way.
    pub tokens: u32,
    /// Where they go.
    pub way: Way,
}

/// Where tokens go, and what they do there.
#[derive(Clone, Copy, Debug)]
pub enum Way {
    /// To one of as many colors, of which the `n`th has a share of `1 / n`, and its events take
    /// 0.2 to 20 us.
    Zipf(u32),
    /// To the next of as many stages, each of which takes 0.25 us.
    Pipeline(u32),
}

/// The tables of this workload.
pub const TABLES: &[Table] = &[
    Table::new("zipf10000", |_| tokens(256, Way::Zipf(10_000))),
    Table::new("pipeline5", |_| tokens(64, Way::Pipeline(5)))
        .remarks(&["Efficiency: against a bare loop of the same spins on as many cores."]),
];

#[expect(clippy::unnecessary_wraps, reason = "as tables want it")]
const fn tokens(tokens: u32, way: Way) -> Option<Workload> {
    Some(Workload::Tokens(Tokens { tokens, way }))
}

const STAGE_NS: u64 = 250;

/// What tokens share.
#[derive(Debug)]
struct Data {
    /// By drawn number: colors in proportion to their shares.
    drawn: Vec<u16>,
    /// What an event of each color computes.
    iterations: Vec<u32>,
    /// Steps of each token.
    steps: u32,
    pipeline: bool,
}

impl Data {
    fn new(way: Way, steps: u32) -> Data {
        match way {
            Way::Pipeline(stages) => Data {
                drawn: Vec::new(),
                iterations: vec![iterations(STAGE_NS); stages as usize],
                steps,
                pipeline: true,
            },
            Way::Zipf(colors) => {
                let share = |color: u32| 1.0 / f64::from(color + 1);
                let all: f64 = (0..colors).map(share).sum();
                let mut drawn = Vec::with_capacity(1 << 16);
                let mut sum = 0.0;
                for color in 0..colors {
                    sum += share(color);
                    let until = (sum / all * 65_536.0).round() as usize;
                    drawn.resize(until.max(drawn.len()), color as u16);
                }
                // From 0.2 to 20 us, evenly by the logarithm.
                let ns = |color: u32| 200.0 * 100f64.powf(f64::from(mixed(color) >> 16) / 65_536.0);
                Data {
                    drawn,
                    iterations: (0..colors)
                        .map(|color| iterations(ns(color) as u64))
                        .collect(),
                    steps,
                    pipeline: false,
                }
            }
        }
    }

    /// Where a token is after this many steps.
    #[inline]
    fn color(&self, token: u32, step: u32) -> u32 {
        if self.pipeline {
            return (token + step) % self.iterations.len() as u32;
        }
        let number = mixed(token.wrapping_mul(0x9E37_79B1) ^ step) >> 16;
        self.drawn[number as usize].into()
    }
}

impl Work for Tokens {
    fn world(self, events: u64, cores: usize) -> World {
        let colors = self.colors_end(cores);
        let steps = (events / u64::from(self.tokens)).clamp(1, u64::from(u32::MAX)) as u32;
        let data = Data::new(self.way, steps);
        let mut lengths = vec![0; colors];
        for token in 0..self.tokens {
            for step in 0..steps {
                lengths[data.color(token, step) as usize] += 1;
            }
        }
        let world = World::new(colors, 0, self.tokens as usize, cores, true).with(data);
        for (color, length) in (0..).zip(lengths) {
            world.set_length(color, length);
        }
        world
    }

    fn colors_end(self, _cores: usize) -> usize {
        match self.way {
            Way::Zipf(colors) => colors as usize,
            Way::Pipeline(stages) => stages as usize,
        }
    }

    fn start<C: Context + ?Sized>(self, cx: &mut C, world: &'static World, _cores: &[usize]) {
        let data: &'static Data = world.data();
        for token in 0..self.tokens {
            cx.post(data.color(token, 0), move |cx| go(cx, data, token, 0));
        }
    }

    fn values(self, world: &World, verdict: &crate::world::Verdict) -> Vec<(&'static str, f64)> {
        let data = world.data::<Data>();
        let (mut events, mut all) = (0.0, 0.0);
        for (color, &iterations) in (0..).zip(&data.iterations) {
            let ran = f64::from(world.passed(color));
            events += ran;
            all += ran * f64::from(iterations);
        }
        let ideal_ns = all / events * super::spin::step_ns() / world.cores() as f64;
        let ns = verdict.took.as_nanos() as f64 / verdict.ran as f64;
        vec![("efficiency", ideal_ns / ns)]
    }
}

fn go<C: Context + ?Sized>(cx: &mut C, data: &'static Data, token: u32, step: u32) {
    let color = data.color(token, step);
    // Tokens overtake each other.
    world().relay(color, 0, SEED);
    spin(data.iterations[color as usize]);
    if step + 1 == data.steps {
        finish(cx, world());
    } else {
        let next = step + 1;
        cx.post(data.color(token, next), move |cx| go(cx, data, token, next));
    }
}
