//! mely as a user gets it, and in its other modes.

use super::{Extras, NO_WATCHDOG, Scheduler, Steals};
use crate::{Context, Note, Outside, Workload, World};
use mely::Post;
use mely::runtime::Stealing;
use mely::{Color, Cx, Poster, Runtime};
use std::sync::atomic::Ordering;
use std::time::Duration;

/// Where the workloads' colors begin, so that none of them is the default color, in which the first
/// event runs. A multiple of any sensible number of cores: color `c` still starts on core `c %
/// cores`.
const FIRST_COLOR: u64 = 5_040;

fn color_of(color: u32) -> Color {
    Color::new(FIRST_COLOR + u64::from(color))
}

impl Context for Cx {
    type Outside = Poster;

    #[inline]
    fn post<F>(&mut self, color: u32, f: F)
    where
        F: FnOnce(&mut Self) + Send + 'static,
    {
        Cx::post(self, color_of(color), f);
    }

    #[inline]
    fn post_noted<F>(&mut self, color: u32, note: &'static Note, f: F)
    where
        F: FnOnce(&mut Self) + Send + 'static,
    {
        note.handler.on(color_of(color), f).post(self);
    }

    fn flush(&mut self) {
        Cx::flush(self);
    }

    fn place(&mut self, color: u32, core: usize) {
        Cx::place(self, color_of(color), core);
    }

    fn core(&self) -> usize {
        Cx::core(self)
    }

    fn outside(&self) -> Poster {
        self.poster()
    }

    fn stop(&mut self) {
        Cx::stop(self);
    }
}

impl Outside<Cx> for Poster {
    fn post<F>(&self, color: u32, f: F)
    where
        F: FnOnce(&mut Cx) + Send + 'static,
    {
        self.try_post(color_of(color), f)
            .expect("the run has not ended");
    }
}

/// As many as mely takes.
const SLOTS_MAX: usize = 1 << 20;

/// See the module text.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mely {
    name: &'static str,
    stealing: Stealing,
    /// Only for the papers' tables, not the further workloads.
    papers_only: bool,
}

const fn one(name: &'static str, locality: bool, time_left: bool, penalty: bool) -> Mely {
    Mely {
        name,
        stealing: Stealing {
            enabled: true,
            locality,
            time_left,
            penalty,
        },
        papers_only: true,
    }
}

/// As a user gets it; without stealing; libasync-smp's algorithm on mely's structures; and each of
/// Mely's heuristics alone.
pub(super) const MODES: [Mely; 6] = [
    Mely {
        papers_only: false,
        ..one("mely", true, true, true)
    },
    Mely {
        name: "mely-no-stealing",
        stealing: Stealing::OFF,
        papers_only: false,
    },
    one("mely-base", false, false, false),
    one("mely-locality", true, false, false),
    one("mely-time-left", false, true, false),
    one("mely-penalty", false, false, true),
];

impl Scheduler for Mely {
    fn name(&self) -> &'static str {
        self.name
    }

    fn runs(&self, workload: Workload, cores: usize) -> bool {
        // On one core there is nobody to steal from: they are all the same.
        let differs = cores > 1 || self.name == "mely";
        differs && (!self.papers_only || workload.is_of_papers())
    }

    fn run(
        &self,
        workload: Workload,
        world: &'static World,
        cores: usize,
    ) -> Result<Extras, String> {
        // Values in the lower half of the slots have one each, up to the most that there are.
        let slots = 2 * (FIRST_COLOR as usize + workload.colors_end(cores)).min(SLOTS_MAX / 2);
        let mut builder = Runtime::builder()
            .cores(cores)
            .pin(true)
            .color_slots(slots.next_power_of_two().max(1 << 16))
            .stealing(self.stealing);
        if NO_WATCHDOG.load(Ordering::Relaxed) {
            builder = builder.watchdog(Duration::MAX);
        }
        #[cfg(feature = "machine")]
        if let Some(simulator) = crate::simulated::simulator() {
            let observer = simulator.run_mely(builder, workload, world, cores)?;
            return Ok(self.extras(&observer, cores));
        }
        let runtime = builder.build().map_err(|error| error.to_string())?;
        let observer = runtime.poster();
        runtime
            .run(move |cx| {
                workload.start_all(cx, world, cores);
            })
            .map_err(|error| error.to_string())?;
        Ok(self.extras(&observer, cores))
    }
}

impl Mely {
    fn extras(&self, observer: &Poster, cores: usize) -> Extras {
        let stats = observer.stats();
        let mut steals = Steals::default();
        for core in &stats.cores {
            steals.parks += core.parks;
            for of in &core.steals {
                steals.won += of.won;
                steals.colors += of.colors;
                steals.cost += of.cost;
                steals.stolen += of.stolen;
            }
        }
        let stealing = cores > 1 && self.stealing.enabled;
        Extras {
            steals: stealing.then_some(steals),
            ..Extras::default()
        }
    }
}
