//! Who has been in one handler for too long.
//!
//! The thread that called `run` has nothing else to do, so it looks at the cores' progress from time
//! to time. That costs the cores nothing, and it sees a handler that never returns, which no clock
//! read after the handler could.

use super::inner::Inner;
use std::time::{Duration, Instant};

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

/// What the watchdog last saw of each core.
#[derive(Debug)]
pub(crate) struct Watchdog {
    seen: Vec<(u64, Instant, bool)>,
}

impl Watchdog {
    pub(crate) fn new(cores: usize) -> Watchdog {
        Watchdog {
            seen: vec![(u64::MAX, Instant::now(), false); cores],
        }
    }

    /// Looks at every core and reports each long run once.
    pub(crate) fn look(&mut self, inner: &Inner) {
        let Some((limit, hook)) = &inner.config.slow else {
            return;
        };
        let now = Instant::now();
        for (core, seen) in self.seen.iter_mut().enumerate() {
            let progress = &inner.shared.cores[core].progress;
            let turns = progress.turns();
            let Some(profile) = progress.profile() else {
                *seen = (u64::MAX, now, false);
                continue;
            };
            if turns != seen.0 {
                *seen = (turns, now, false);
            } else if !seen.2 && now - seen.1 >= *limit {
                seen.2 = true;
                hook(&SlowHandler {
                    handler: inner.shared.profiles.get(profile).name(),
                    core,
                    running_for: now - seen.1,
                });
            }
        }
    }
}

/// What a core is running now, for the report of a deadline that passed.
pub(crate) fn running(inner: &Inner, core: usize) -> Option<&'static str> {
    let profile = inner.shared.cores[core].progress.profile()?;
    Some(inner.shared.profiles.get(profile).name())
}
