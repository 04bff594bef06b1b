//! What a runtime tells subscribers of `tracing`, with the feature of that name; without it this
//! module is not there.
//!
//! A subscriber is the user's code, and none of that runs inside the scheduler. So a core notes
//! down what is to be told, and tells it between two steps ([`crate::host::worker`]): late by what
//! is left of its quantum. Whether anybody listens at a level is one word, which is read before
//! anything is noted; who else there is to ask is the user's code too.

use crate::Color;
use mely_topology::Distance;
use tracing::level_filters::LevelFilter;
use tracing::{debug, trace, warn};

/// What happened.
#[derive(Debug)]
pub(crate) enum What {
    /// The core has stolen colors.
    Stole {
        victim: usize,
        distance: Distance,
        stuck: bool,
        cost_ns: u64,
        colors: usize,
        events: u64,
    },
    /// The core has slept.
    Slept { slept_ns: u64 },
    /// Something posted was refused.
    Refused { limit: &'static str },
    /// The color is held.
    Held { hold: u64, shared: bool },
    /// A hold of the color is over.
    HoldOver { hold: u64 },
}

/// That, and where.
#[derive(Debug)]
pub(crate) struct Notice {
    pub(crate) core: usize,
    /// The handler that ran; of a steal that of the first event.
    pub(crate) handler: &'static str,
    /// The color that is concerned.
    pub(crate) color: Option<Color>,
    pub(crate) what: What,
}

/// Most notices of a step. What comes beyond that is counted, and the count is told.
const NOTICES_MAX: usize = 256;

/// What is to be told.
#[derive(Debug, Default)]
pub(crate) struct Notices {
    noted: Vec<Notice>,
    left_out: u64,
}

impl What {
    fn level(&self) -> LevelFilter {
        match self {
            What::Stole { .. } | What::Refused { .. } => LevelFilter::DEBUG,
            What::Slept { .. } | What::Held { .. } | What::HoldOver { .. } => LevelFilter::TRACE,
        }
    }

    /// Whether anybody may want to know. Runs no user code.
    pub(crate) fn is_wanted(&self) -> bool {
        self.level() <= LevelFilter::current()
    }
}

impl Notices {
    pub(crate) fn note(&mut self, notice: Notice) {
        if self.noted.len() < NOTICES_MAX {
            self.noted.push(notice);
        } else {
            self.left_out += 1;
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.noted.is_empty()
    }

    /// Tells them. Runs user code.
    pub(crate) fn tell(self, core: usize) {
        self.noted.into_iter().for_each(Notice::tell);
        let left_out = self.left_out;
        if left_out > 0 {
            debug!(target: "mely", core, left_out, "too much to tell at once");
        }
    }
}

impl Notice {
    fn tell(self) {
        let Notice {
            core,
            handler,
            color,
            what,
        } = self;
        let color = color.map(tracing::field::display);
        match what {
            What::Stole {
                victim,
                distance,
                stuck,
                cost_ns,
                colors,
                events,
            } => {
                let distance = tracing::field::display(distance);
                debug!(
                    target: "mely",
                    core, handler, color, victim, distance, stuck, cost_ns, colors, events, "steal"
                );
            }
            What::Slept { slept_ns } => trace!(target: "mely", core, slept_ns, "park"),
            What::Refused { limit } => {
                debug!(target: "mely", core, handler, color, limit, "refused");
            }
            What::Held { hold, shared } => {
                trace!(target: "mely", core, handler, color, hold, shared, "hold");
            }
            What::HoldOver { hold } => {
                trace!(target: "mely", core, handler, color, hold, "hold over");
            }
        }
    }
}

/// Something posted by a thread that is no core was refused. Runs user code.
pub(crate) fn tell_refused_outside(color: Color, limit: &'static str) {
    debug!(target: "mely", color = %color, limit, "refused");
}

/// A handler runs for longer than the limit. Runs user code.
pub(crate) fn tell_slow(core: usize, handler: &'static str, color: Color, running_ns: u64) {
    warn!(target: "mely", core, handler, color = %color, running_ns, "slow handler");
}
