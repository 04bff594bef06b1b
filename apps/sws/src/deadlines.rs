//! How long a connection may be in each of its states, and how long it has been.

use std::time::Duration;

use crate::args::Args;
use crate::clock::Time;
use crate::step::{Deadline, Timer};

/// The limits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadlines {
    idle: Duration,
    header: Duration,
    linger: Duration,
}

impl Deadlines {
    /// Those that the command line asks for.
    pub(crate) fn new(args: &Args) -> Deadlines {
        Deadlines {
            idle: Duration::from_millis(args.idle_timeout_ms),
            header: Duration::from_millis(args.header_timeout_ms),
            linger: Duration::from_millis(args.linger_timeout_ms),
        }
    }

    fn limit(&self, deadline: Deadline) -> Duration {
        match deadline {
            Deadline::None => Duration::MAX,
            Deadline::Idle | Deadline::Write => self.idle,
            Deadline::Header => self.header,
            Deadline::Linger => self.linger,
        }
    }

    pub(crate) fn shortest(&self) -> Duration {
        self.idle.min(self.header).min(self.linger)
    }
}

/// Which deadline a connection is under, and since when.
///
/// One timer a connection is set again and again, at most the shortest limit ahead, and never
/// beyond the deadline that applies. So a state that began after the timer was set is looked at
/// before its time is over, and a deadline passes neither early nor late, without a timer for each
/// request.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Watch {
    timer: Timer,
    since: Time,
}

impl Watch {
    /// A connection is under this deadline since now.
    pub(crate) fn new(timer: Timer, now: Time) -> Watch {
        Watch { timer, since: now }
    }

    /// It is under this one now; if that is another, since now.
    pub(crate) fn note(&mut self, timer: Timer, now: Time) {
        if self.timer != timer {
            *self = Watch::new(timer, now);
        }
    }

    /// The deadline, if it has passed.
    pub(crate) fn passed(&self, deadlines: &Deadlines, now: Time) -> Option<Deadline> {
        let left = self.left(deadlines, now);
        left.is_zero().then_some(self.timer.deadline)
    }

    /// When to look again.
    pub(crate) fn look_after(&self, deadlines: &Deadlines, now: Time) -> Duration {
        self.left(deadlines, now).min(deadlines.shortest())
    }

    fn left(&self, deadlines: &Deadlines, now: Time) -> Duration {
        let limit = deadlines.limit(self.timer.deadline);
        limit.saturating_sub(now.saturating_sub(self.since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn deadlines() -> Deadlines {
        Deadlines::new(&Args {
            idle_timeout_ms: 30_000,
            header_timeout_ms: 10_000,
            linger_timeout_ms: 2_000,
            ..Args::default()
        })
    }

    fn timer(deadline: Deadline, round: u64) -> Timer {
        Timer { deadline, round }
    }

    /// When a deadline that begins at `began` is seen to have passed, by timers set from 0 on.
    fn seen_after(deadline: Deadline, began: Duration) -> Duration {
        let deadlines = deadlines();
        let mut watch = Watch::new(timer(Deadline::Idle, 0), Duration::ZERO);
        let mut now = Duration::ZERO;
        loop {
            let next = now + watch.look_after(&deadlines, now);
            // As the session does: noted when it begins, and at each look.
            if (now..next).contains(&began) {
                watch.note(timer(deadline, 1), began);
            }
            now = next;
            watch.note(watch.timer, now);
            if watch.passed(&deadlines, now) == Some(deadline) && now > began {
                return now - began;
            }
            assert!(now < began + 60_000 * MS, "never");
        }
    }

    #[test]
    fn a_deadline_passes_when_it_says() {
        for (deadline, limit) in [
            (Deadline::Header, 10_000 * MS),
            (Deadline::Linger, 2_000 * MS),
            (Deadline::Write, 30_000 * MS),
        ] {
            for began_ms in [0, 1, 1_000, 1_999, 2_000, 2_001, 17_333] {
                assert_eq!(seen_after(deadline, began_ms * MS), limit, "{began_ms}");
            }
        }
    }

    #[test]
    fn progress_begins_it_anew_and_nothing_else_does() {
        let deadlines = deadlines();
        let mut watch = Watch::new(timer(Deadline::Header, 3), Duration::ZERO);
        watch.note(timer(Deadline::Header, 3), 9_999 * MS);
        assert_eq!(watch.passed(&deadlines, 9_999 * MS), None);
        assert_eq!(watch.look_after(&deadlines, 9_999 * MS), MS);
        assert_eq!(
            watch.passed(&deadlines, 10_000 * MS),
            Some(Deadline::Header)
        );
        watch.note(timer(Deadline::Header, 4), 10_000 * MS);
        assert_eq!(watch.passed(&deadlines, 19_999 * MS), None);
        // A server at work has no deadline; a clock that is read roughly may be a little behind.
        watch.note(timer(Deadline::None, 0), 20_000 * MS);
        assert_eq!(watch.passed(&deadlines, 19_995 * MS), None);
        assert_eq!(watch.passed(&deadlines, 90_000 * MS), None);
        assert_eq!(watch.look_after(&deadlines, 90_000 * MS), 2_000 * MS);
    }
}
