//! Rates, latencies and the use of cores: of a recorded run and of simulated ones by the same rules.

use super::program::Program;
use mely_recording::{Quantiles, Recording};

/// Of a hundred events, as many at either end are not in the rate: neither how a run begins nor
/// what comes by the clock when all else is done, a signal to stop say.
const APART: usize = 5;

/// When an event was posted, began and ended, in ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Times {
    /// None: the recording does not have its post.
    pub posted_ns: Option<u64>,
    /// It began.
    pub began_ns: u64,
    /// It was over.
    pub ended_ns: u64,
}

/// What a run came to, in figures.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures {
    /// Events.
    pub events: usize,
    /// From the beginning of the first event to the end of the last, in ns.
    pub span_ns: u64,
    /// Events a second, in the middle nine tenths of the events by their ends; 0 if they took no
    /// time.
    pub rate: f64,
    /// How long an event waited from its post to its beginning, in ns.
    pub waited_ns: Quantiles,
    /// From an arrival's post to the end of the last event of its chain, in ns.
    pub chain_ns: Quantiles,
    /// How late the core to which an arrival came took it, in ns. A recording does not say.
    pub late_ns: Option<Quantiles>,
    /// By core.
    pub cores: Vec<CoreShare>,
}

/// What a core spent its time on, each from 0 to 1. The rest is taking steps, looking for work and
/// waiting awake.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CoreShare {
    /// In events, with what they wait for.
    pub busy: f64,
    /// In steals that brought something.
    pub stealing: f64,
    /// Asleep.
    pub asleep: f64,
    /// The rest.
    pub rest: f64,
}

impl Figures {
    /// Those of a recorded run.
    pub(super) fn recorded(recording: &Recording, program: &Program) -> Figures {
        let times: Vec<Times> = (recording.events.iter())
            .map(|event| Times {
                posted_ns: event.cause.map(|cause| recording[cause].at_ns),
                began_ns: event.begin_ns,
                ended_ns: event.end_ns(),
            })
            .collect();
        let mut figures = Figures::of(program, &times);
        let all_ns = recording.span_ns() as f64;
        for core in recording.summary().cores {
            let ns = [core.busy_ns, core.stealing_ns, core.asleep_ns];
            let [busy_ns, stealing_ns, asleep_ns] = ns.map(|ns| ns as f64);
            figures.add_core(busy_ns, stealing_ns, asleep_ns, all_ns);
        }
        figures
    }

    /// Those of a run in which the program's events had these times.
    pub(super) fn of(program: &Program, times: &[Times]) -> Figures {
        let began_ns = times.iter().map(|times| times.began_ns).min().unwrap_or(0);
        let mut ended_ns: Vec<u64> = times.iter().map(|times| times.ended_ns).collect();
        ended_ns.sort_unstable();
        let last_ns = ended_ns.last().copied().unwrap_or(0);
        let waited = times.iter().filter_map(|times| {
            let posted_ns = times.posted_ns?;
            Some(times.began_ns.saturating_sub(posted_ns))
        });
        let mut chains = vec![(0, 0); program.arrivals.len()];
        for (arrival, chain) in program.arrivals.iter().zip(&mut chains) {
            let its = &times[arrival.event as usize];
            *chain = (its.posted_ns.unwrap_or(its.began_ns), its.ended_ns);
        }
        for (event, times) in program.events.iter().zip(times) {
            let (_, ended_ns) = &mut chains[event.chain as usize];
            *ended_ns = times.ended_ns.max(*ended_ns);
        }
        let took = |(posted_ns, ended_ns): (u64, u64)| ended_ns.saturating_sub(posted_ns);
        Figures {
            events: times.len(),
            span_ns: last_ns.saturating_sub(began_ns),
            rate: rate(began_ns, &ended_ns),
            waited_ns: Quantiles::of(waited.collect()),
            chain_ns: Quantiles::of(chains.into_iter().map(took).collect()),
            late_ns: None,
            cores: Vec::new(),
        }
    }

    /// How late arrivals were taken.
    pub(super) fn late_ns(&mut self, late_ns: Vec<u64>) {
        self.late_ns = Some(Quantiles::of(late_ns));
    }

    /// The next core: times in ns, of `all_ns`.
    pub(super) fn add_core(&mut self, busy_ns: f64, stealing_ns: f64, asleep_ns: f64, all_ns: f64) {
        let share = |ns: f64| {
            if all_ns > 0.0 {
                (ns / all_ns).clamp(0.0, 1.0)
            } else {
                0.0
            }
        };
        let (busy, stealing, asleep) = (share(busy_ns), share(stealing_ns), share(asleep_ns));
        let rest = if all_ns > 0.0 { 1.0 } else { 0.0 } - busy - stealing - asleep;
        self.cores.push(CoreShare {
            busy,
            stealing,
            asleep,
            rest: rest.max(0.0),
        });
    }

    /// The mean over the cores.
    pub fn mean(&self) -> CoreShare {
        let mean = |of: fn(&CoreShare) -> f64| {
            self.cores.iter().map(of).sum::<f64>() / self.cores.len().max(1) as f64
        };
        CoreShare {
            busy: mean(|core| core.busy),
            stealing: mean(|core| core.stealing),
            asleep: mean(|core| core.asleep),
            rest: mean(|core| core.rest),
        }
    }
}

/// Events a second; see [`Figures::rate`].
fn rate(began_ns: u64, ended_ns: &[u64]) -> f64 {
    let (from, to) = middle(ended_ns.len());
    let from_ns = from
        .checked_sub(1)
        .map_or(began_ns, |before| ended_ns[before]);
    match ended_ns
        .get(to.saturating_sub(1))
        .map(|to_ns| to_ns.saturating_sub(from_ns))
    {
        None | Some(0) => 0.0,
        Some(ns) => 1e9 * (to - from) as f64 / ns as f64,
    }
}

/// Where the middle of this number of things begins and ends.
pub(super) fn middle(of: usize) -> (usize, usize) {
    let apart = of * APART / 100;
    (apart, of - apart)
}
