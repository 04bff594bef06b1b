//! When a timer fires, and how late it may.

use crate::host::inner::Inner;
use std::time::{Duration, Instant, SystemTime};

/// When a timer is due, and its *slack*: how late it may fire.
///
/// Made from a [`Duration`] after now, an [`Instant`] or a [`SystemTime`]. A timer never fires
/// early. One that is due in the past fires at once; one that is due in more than 292 years never
/// fires.
///
/// | due at | its clock | the clock is set | while the machine is suspended |
/// |---|---|---|---|
/// | `Duration`, `Instant` | monotonic (`CLOCK_MONOTONIC`) | makes no difference | stands still: the timer is late by the suspension |
/// | `SystemTime` | the time of day (`CLOCK_REALTIME`) | forward past the timer's time: it fires at once; back: it waits until the clock shows that time again | goes on: the timer fires on resume |
///
/// The first timer of a core that is due at a `SystemTime` costs an operation of the event source,
/// and each that becomes the next one a system call.
///
/// In a [simulation](crate::Builder::simulate) both clocks are virtual: see [`Cx::instant`] and
/// [`Cx::system_time`].
///
/// # Slack
/// Timers of a core that are within each other's slack fire together, after one wake-up of the
/// core, in the order in which they are due. So a program with many timers and some slack takes a
/// fraction of the processor's time. No slack, the default, is for a timer that is to fire as
/// precisely as the system allows: that adds up to 50 us (see `PR_SET_TIMERSLACK` in prctl(2)).
///
/// ```
/// use mely::net::When;
/// use mely::{Callback, Color, Runtime};
/// use std::time::{Duration, SystemTime};
/// Runtime::builder().build()?.run(|cx| {
///     // Some time between 2 and 3 ms from now.
///     let soon = When::from(Duration::from_millis(2)).slack(Duration::from_millis(1));
///     cx.timer(soon, Callback::anonymous(Color::from(3), |cx| {
///         // When the clock on the wall shows this, also if somebody sets it.
///         let time = SystemTime::now() + Duration::from_millis(1);
///         cx.timer(time, Callback::anonymous(Color::from(3), |cx| cx.stop()));
///     }));
/// })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// [`Cx::instant`]: crate::Cx::instant
/// [`Cx::system_time`]: crate::Cx::system_time
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct When {
    time: Time,
    pub(super) slack_ns: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Time {
    After(Duration),
    At(Instant),
    Wall(SystemTime),
}

/// What a timer's time is counted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TimerClock {
    /// The runtime's own: from when it was built.
    Monotonic,
    /// The time of day: since 1970.
    Wall,
}

impl When {
    /// With this slack instead of none.
    pub fn slack(mut self, slack: Duration) -> When {
        self.slack_ns = in_ns(slack);
        self
    }

    /// The duration, if it is one.
    pub(super) fn duration(&self) -> Option<Duration> {
        match self.time {
            Time::After(after) => Some(after),
            Time::At(_) | Time::Wall(_) => None,
        }
    }

    /// By which clock it is due, and when, in ns of that.
    pub(super) fn due(&self, inner: &Inner, now_ns: u64) -> (TimerClock, u64) {
        match self.time {
            Time::After(after) => {
                let at_ns = now_ns.saturating_add(in_ns(after));
                (TimerClock::Monotonic, at_ns)
            }
            Time::At(instant) => {
                let since = instant.saturating_duration_since(inner.start);
                (TimerClock::Monotonic, in_ns(since))
            }
            Time::Wall(time) => {
                let since = time.duration_since(SystemTime::UNIX_EPOCH);
                (TimerClock::Wall, since.map_or(0, in_ns))
            }
        }
    }
}

impl From<Duration> for When {
    /// That long after the call that takes it.
    fn from(after: Duration) -> When {
        When::of(Time::After(after))
    }
}

impl From<Instant> for When {
    fn from(instant: Instant) -> When {
        When::of(Time::At(instant))
    }
}

impl From<SystemTime> for When {
    fn from(time: SystemTime) -> When {
        When::of(Time::Wall(time))
    }
}

impl When {
    fn of(time: Time) -> When {
        When { time, slack_ns: 0 }
    }
}

/// Three hundred years are for ever: a timer that is due then never fires.
pub(super) const NEVER_NS: u64 = u64::MAX / 2;

pub(super) fn in_ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos())
        .unwrap_or(u64::MAX)
        .min(NEVER_NS)
}
