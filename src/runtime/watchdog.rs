//! Who has been in its quantum for too long.
//!
//! A core looks at its event source once in some quanta, and a quantum is some hundred events that are
//! thought to be short. If they are not, because the data has grown or a cache is cold, timers and
//! completions of that core would wait for all of them. No clock that the core reads now and then would
//! bound that, and one that it reads for each event would cost more than the event. But the thread that
//! called `run` has nothing else to do: so every period it looks at the cores' counters, which costs them
//! nothing, and it sees a handler that never returns, which no clock read after the handler could.
//!
//! A core that runs and has not looked at its event source for a period
//!
//! - is asked to *look up*: to end its quantum after the event that it is inside of;
//! - is relieved, if something waits there that others may take, and another core sleeps: that one is woken;
//! - and the handler that it is inside of, if it was thought short, is not from now on.
//!
//! And handlers over the limit of [`Builder::warn_over`](crate::Builder::warn_over) are told to the hook.
//!
//! While no core is busy the watchdog sleeps ([`crate::sched::vigil`]).

use super::inner::Inner;
use crate::sched::shared::Bell;
use crate::sched::sleepers::relieve;
use std::sync::Weak;
use std::time::Duration;

/// A handler that is running for longer than the limit of
/// [`Builder::warn_over`](crate::Builder::warn_over).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SlowHandler {
    /// The handler's name, or the closure's type.
    pub handler: &'static str,
    /// The core it runs on.
    pub core: usize,
    /// For how long it has been seen running, to within a quarter of the limit. It goes on.
    pub running_for: Duration,
}

/// What the watchdog saw of a core.
#[derive(Clone, Copy, Debug, Default)]
struct Seen {
    /// It was running something.
    running: bool,
    /// How often it had looked at its event source.
    looks: u64,
    /// How many colors it had run, and since when that is so.
    turns: u64,
    since_ns: u64,
    /// The hook was told of this run.
    told: bool,
}

/// See the module text.
#[derive(Debug)]
pub(crate) struct Watchdog {
    cores: Vec<Seen>,
}

impl Watchdog {
    pub(crate) fn new(cores: usize) -> Watchdog {
        Watchdog {
            cores: vec![Seen::default(); cores],
        }
    }

    /// From one look to the next.
    pub(crate) fn period(inner: &Inner) -> Duration {
        let period = inner.config.watch_period;
        let limit = inner.config.slow.as_ref().map(|(limit, _)| *limit);
        limit.map_or(period, |limit| period.min(limit / 4))
    }

    /// After so many looks at cores on which nothing moves, another makes no difference.
    #[cfg(feature = "sim")]
    pub(crate) fn looks_max(inner: &Inner) -> u32 {
        let limit = inner
            .config
            .slow
            .as_ref()
            .map(|(limit, _)| limit.as_nanos());
        let looks = limit.unwrap_or(0) / Watchdog::period(inner).as_nanos();
        3 + u32::try_from(looks).unwrap_or(u32::MAX / 2)
    }

    /// Looks at every core, at this time of the runtime's clock.
    pub(crate) fn look(&mut self, inner: &Inner, now_ns: u64) {
        let mut bells = Vec::new();
        for (core, seen) in self.cores.iter_mut().enumerate() {
            let shared = &inner.shared.cores[core];
            let (looks, turns) = (shared.stats.looks.get(), shared.progress.turns());
            let Some(profile) = shared.progress.profile() else {
                *seen = Seen::default();
                continue;
            };
            if !seen.running || turns != seen.turns {
                (seen.since_ns, seen.told) = (now_ns, false);
            }
            if seen.running && looks == seen.looks {
                shared.progress.ask_to_look_up();
                relieve(&inner.shared, core as u32, &mut bells);
                if turns == seen.turns {
                    let ns = now_ns - seen.since_ns;
                    let profile = inner.shared.profiles.get(profile);
                    profile.suspect(ns, inner.shared.wake_cost_ns);
                }
            }
            (seen.running, seen.looks, seen.turns) = (true, looks, turns);
            let running_for = Duration::from_nanos(now_ns - seen.since_ns);
            if let Some((limit, hook)) = &inner.config.slow
                && running_for >= *limit
                && !std::mem::replace(&mut seen.told, true)
            {
                hook(&SlowHandler {
                    handler: inner.shared.profiles.get(profile).name(),
                    core,
                    running_for,
                });
            }
        }
        bells.into_iter().for_each(|core| inner.shared.ring(core));
    }
}

/// Wakes the watchdog.
#[derive(Debug)]
pub(crate) struct WatchdogBell(pub(crate) Weak<Inner>);

impl Bell for WatchdogBell {
    fn ring(&self) {
        if let Some(inner) = self.0.upgrade() {
            // Under the lock, so that the watchdog cannot look before and wait after.
            let _outcome = inner.outcome.lock().unwrap();
            inner.changed.notify_all();
        }
    }
}

/// What a core is running now, for the report of a deadline that passed.
pub(crate) fn running(inner: &Inner, core: usize) -> Option<&'static str> {
    let profile = inner.shared.cores[core].progress.profile()?;
    Some(inner.shared.profiles.get(profile).name())
}
