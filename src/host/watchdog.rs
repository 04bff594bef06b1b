//! Who has been in its quantum for too long.
//!
//! A core looks at its event source once in some quanta, and a quantum is some hundred events that
//! are thought to be short. If they are not, because the data has grown or a cache is cold, timers
//! and completions of that core would wait for all of them. No clock that the core reads now and
//! then would bound that, and one that it reads for each event would cost more than the event. But
//! the thread that called `run` has nothing else to do: so every period it looks at the cores'
//! counters, which costs them nothing, and it sees a handler that never returns, which no clock
//! read after the handler could.
//!
//! A core that runs and has not looked at its event source for a period
//!
//! - is asked to *look up*: to end its quantum after the event that it is inside of;
//! - is relieved, if something waits there that others may take, and another core sleeps: that one
//!   is woken;
//! - and while the handler goes on, its core's event source is watched
//!   ([`crate::shared::idle::lookout`]).
//!
//! And handlers over the limit of [`Builder::on_slow_handler`](crate::Builder::on_slow_handler) are
//! told to the hook, and, with the feature `tracing`, to subscribers.
//!
//! While no core is busy the watchdog sleeps ([`crate::shared::idle::vigil`]).

use super::inner::Inner;
use crate::color::CoreId;
use crate::event::profile::ClosureProfile;
use crate::policy::numbers::WATCH_LOOKS;
use crate::shared::idle::bells::Bell;
use crate::shared::idle::{Why, notify};
use std::sync::Weak;
use std::time::Duration;

/// A handler that is running for longer than the limit of
/// [`Builder::on_slow_handler`](crate::Builder::on_slow_handler).
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
    /// So often in a row no core was busy.
    idle_looks: u32,
}

/// What is slow for subscribers of `tracing`, unless the builder says.
const SLOW: Duration = Duration::from_millis(10);
impl Watchdog {
    pub(crate) fn new(cores: usize) -> Watchdog {
        Watchdog {
            cores: vec![Seen::default(); cores],
            idle_looks: 0,
        }
    }

    /// How long until the next look; none if it sleeps until a core calls it. Under the lock of the
    /// outcome, which that call takes too.
    pub(crate) fn next_look(&mut self, inner: &Inner) -> Option<Duration> {
        let (vigil, cores) = (&inner.shared.idle.vigil, &inner.shared.cores);
        self.idle_looks = if vigil.any_busy(cores) {
            0
        } else {
            self.idle_looks + 1
        };
        let sleeps = self.idle_looks > WATCH_LOOKS && vigil.falls_asleep(cores);
        (!sleeps).then(|| Watchdog::period(inner))
    }

    /// From one look to the next.
    pub(crate) fn period(inner: &Inner) -> Duration {
        let period = inner.config.watch_period;
        hook_limit(inner).map_or(period, |limit| period.min(limit / 4))
    }

    /// Looks at cores on which nothing moves, after which another one makes no difference.
    #[cfg(feature = "sim")]
    pub(crate) fn looks_max(inner: &Inner) -> u32 {
        let limit_ns = hook_limit(inner).map_or(0, |limit| limit.as_nanos());
        let looks = limit_ns / Watchdog::period(inner).as_nanos();
        3 + u32::try_from(looks).unwrap_or(u32::MAX / 2)
    }

    /// Looks at every core, at this time of the runtime's clock.
    pub(crate) fn look(&mut self, inner: &Inner, now_ns: u64) {
        // Who was to ring them may wait for a processor.
        inner.shared.idle.bells.ring_due();
        for (core, seen) in self.cores.iter_mut().enumerate() {
            let shared = &inner.shared.cores[core];
            let (looks, turns) = (shared.stats.looks.get(), shared.progress.turns());
            let Some(profile) = profile_on(inner, core) else {
                *seen = Seen::default();
                continue;
            };
            if !seen.running || turns != seen.turns {
                (seen.since_ns, seen.told) = (now_ns, false);
            }
            let is_stuck = seen.running && looks == seen.looks && turns == seen.turns;
            if is_stuck {
                shared.progress.set_stuck(turns);
                inner.shared.stays_watched(CoreId::of(core));
            }
            if seen.running && looks == seen.looks {
                shared.progress.ask_to_look_up();
                // At once: the hook below may panic.
                let mut bells = Vec::new();
                notify(&inner.shared, CoreId::of(core), Why::Stuck, &mut bells);
                inner.shared.idle.bells.ring_all(&bells);
            }
            (seen.running, seen.looks, seen.turns) = (true, looks, turns);
            let running_for = Duration::from_nanos(now_ns - seen.since_ns);
            let Some(limit) = slow_limit(inner) else {
                continue;
            };
            if running_for >= limit && !std::mem::replace(&mut seen.told, true) {
                #[cfg(feature = "tracing")]
                {
                    let running_ns = now_ns - seen.since_ns;
                    let color = shared.progress.color();
                    crate::notice::tell_slow(core, profile.name(), color, running_ns);
                }
                if let Some((_, hook)) = &inner.config.slow {
                    hook(&SlowHandler {
                        handler: profile.name(),
                        core,
                        running_for,
                    });
                }
            }
        }
    }
}

/// From when on the builder's hook is told of a handler, if there is one.
fn hook_limit(inner: &Inner) -> Option<Duration> {
    inner.config.slow.as_ref().map(|(limit, _)| *limit)
}

/// From when on a handler is slow, if that is to be told.
fn slow_limit(inner: &Inner) -> Option<Duration> {
    hook_limit(inner).or(cfg!(feature = "tracing").then_some(SLOW))
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
    Some(profile_on(inner, core)?.name())
}

/// The profile of the event that a core runs: none between events, and none as long as this thread
/// does not see that profile. What a core notes down orders nothing.
fn profile_on(inner: &Inner, core: usize) -> Option<&ClosureProfile> {
    let profile = inner.shared.cores[core].progress.profile()?;
    inner.shared.profiles.find(profile)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::event::tag::ProfileId;
    use crate::shared::idle::bells::Rings;
    use crate::sync::relaxed::Ordering;
    use crate::{Color, Handler, Runtime};
    use std::sync::{Arc, Mutex};

    const LIMIT: Duration = Duration::from_millis(4);
    static SLOW: Handler = Handler::new("slow").time(Duration::from_nanos(50));

    fn runtime(limit: Option<Duration>) -> (Runtime, Arc<Mutex<Vec<SlowHandler>>>) {
        let told = Arc::new(Mutex::new(Vec::new()));
        let tell = Arc::clone(&told);
        let builder = Runtime::builder().cores(2);
        let mut builder = builder.pin(false);
        if let Some(limit) = limit {
            builder =
                builder.on_slow_handler(limit, move |slow| tell.lock().unwrap().push(slow.clone()));
        }
        (builder.build().unwrap(), told)
    }

    /// Of a core that is owed a ring, by whoever has left that to others.
    #[test]
    fn who_is_due_is_rung_at_the_next_look() {
        let (runtime, _) = runtime(None);
        let (bells, rings) = (&runtime.inner.shared.idle.bells, Rings::default());
        let rung = Arc::clone(&rings.0);
        bells.hang(CoreId::of(1), Box::new(rings));
        let mut watchdog = Watchdog::new(2);
        for expected in [0, 1, 1] {
            watchdog.look(&runtime.inner, 0);
            assert_eq!(rung.load(Ordering::Relaxed), expected);
            if expected == 0 {
                bells.due.set(CoreId::of(1));
            }
        }
    }

    #[test]
    fn looks_are_a_quarter_of_the_limit_apart_at_most() {
        for (limit, period_us, looks) in [
            (None, 500, 3),
            (Some(1), 250, 3 + 4),
            (Some(200), 500, 3 + 400),
        ] {
            let (runtime, _) = runtime(limit.map(Duration::from_millis));
            let period = Watchdog::period(&runtime.inner);
            assert_eq!(period, Duration::from_micros(period_us), "{limit:?}");
            #[cfg(feature = "sim")]
            assert_eq!(Watchdog::looks_max(&runtime.inner), looks, "{limit:?}");
            let _ = looks;
        }
    }

    #[test]
    fn it_sleeps_when_no_core_was_busy_for_some_looks() {
        let (runtime, _) = runtime(None);
        let inner = &runtime.inner;
        let (vigil, core) = (&inner.shared.idle.vigil, &inner.shared.cores[1]);
        let period = Some(Watchdog::period(inner));
        let mut watchdog = Watchdog::new(2);
        for _ in 0..2 {
            assert!(!vigil.begin_busy(core));
            for _ in 0..2 * WATCH_LOOKS {
                assert_eq!(watchdog.next_look(inner), period);
            }
            vigil.end_busy(core);
            for _ in 0..WATCH_LOOKS {
                assert_eq!(watchdog.next_look(inner), period);
            }
            assert_eq!(watchdog.next_look(inner), None);
            assert!(vigil.begin_busy(core), "it is to be called");
        }
    }

    /// A core of a runtime whose progress the test makes.
    struct Watched {
        runtime: Runtime,
        told: Arc<Mutex<Vec<SlowHandler>>>,
        watchdog: Watchdog,
        profile: ProfileId,
    }

    impl Watched {
        fn new() -> Watched {
            let (runtime, told) = runtime(Some(LIMIT));
            // Makes the handler known.
            let callback = SLOW.on(Color::from(1), |_cx| ());
            callback.try_post(&runtime.poster()).unwrap();
            let mut profiles = runtime.inner.shared.profiles.iter();
            let (profile, _) = profiles.find(|(_, known)| known.name() == "slow").unwrap();
            drop(profiles);
            Watched {
                runtime,
                told,
                watchdog: Watchdog::new(2),
                profile,
            }
        }

        /// The core begins to run the next color.
        fn runs(&self) {
            let progress = &self.runtime.inner.shared.cores[1].progress;
            progress.advance();
            progress.set_running(Some(self.profile));
        }

        fn rests(&self) {
            self.runtime.inner.shared.cores[1]
                .progress
                .set_running(None);
        }

        /// It looks at its event source.
        fn looks(&self) {
            self.runtime.inner.shared.cores[1].stats.looks.add(1);
        }

        /// Whether a look of the watchdog's asks the core to look up.
        fn is_asked(&mut self, now_ns: u64) -> bool {
            self.watchdog.look(&self.runtime.inner, now_ns);
            self.runtime.inner.shared.cores[1].progress.answer_look_up()
        }
    }

    #[test]
    fn who_ran_for_a_period_without_a_look_is_asked_for_one() {
        let mut core = Watched::new();
        core.runs();
        assert!(!core.is_asked(1_000), "it was not running before");
        assert!(core.is_asked(2_000) && core.is_asked(3_000));
        core.looks();
        assert!(!core.is_asked(4_000), "it has looked");
        assert!(core.is_asked(5_000));
        core.rests();
        assert!(!core.is_asked(6_000));
        core.runs();
        assert!(!core.is_asked(7_000), "it has rested");
        core.runs();
        assert!(core.is_asked(8_000), "another color, and no look");
    }

    #[test]
    fn a_profile_that_is_not_seen_yet_is_passed_over() {
        let mut core = Watched::new();
        let profiles = &core.runtime.inner.shared.profiles;
        core.profile = ProfileId::new(profiles.iter().count()).unwrap();
        core.runs();
        assert!(!core.is_asked(1_000) && !core.is_asked(100_000_000));
        assert_eq!(super::running(&core.runtime.inner, 1), None);
        assert!(core.told.lock().unwrap().is_empty());
    }

    #[test]
    fn a_run_of_the_limit_is_told_once() {
        let mut core = Watched::new();
        let limit_ns = LIMIT.as_nanos() as u64;
        for begins_ns in [1_000, 2 * limit_ns] {
            core.runs();
            core.is_asked(begins_ns);
            core.is_asked(begins_ns + limit_ns - 1);
            assert_eq!(*core.told.lock().unwrap(), []);
            core.is_asked(begins_ns + limit_ns);
            core.is_asked(begins_ns + limit_ns + 1);
            let slow = SlowHandler {
                handler: "slow",
                core: 1,
                running_for: LIMIT,
            };
            assert_eq!(std::mem::take(&mut *core.told.lock().unwrap()), [slow]);
        }
    }
}
