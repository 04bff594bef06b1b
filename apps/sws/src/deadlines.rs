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

/// Which deadline a connection is under, since when, and for when its timer is set.
///
/// A connection has one timer, set for its deadline. If activity moves the deadline away, the timer
/// is left alone, and set for the rest of the time when it fires. Only a state whose deadline comes
/// before the timer sets it anew. So an idle connection wakes no core until it is closed, requests
/// set no timers, and a deadline passes neither early nor late.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Watch {
    timer: Timer,
    since: Time,
    /// When the timer that is set fires; [`Time::MAX`] if none is.
    fires: Time,
}

impl Watch {
    /// A connection is under this deadline since now. No timer is set.
    pub(crate) fn new(timer: Timer, now: Time) -> Watch {
        Watch {
            timer,
            since: now,
            fires: Time::MAX,
        }
    }

    /// Whether it has been noted that the connection is under this deadline.
    pub(crate) fn has_noted(&self, timer: Timer) -> bool {
        self.timer == timer
    }

    /// It is under this one now; if that is another, since now.
    pub(crate) fn note(&mut self, timer: Timer, now: Time) {
        if self.timer != timer {
            (self.timer, self.since) = (timer, now);
        }
    }

    /// The timer that was set has fired.
    pub(crate) fn fired(&mut self) {
        self.fires = Time::MAX;
    }

    /// After how long a timer has to fire, if no timer is set that does so before. From then on it
    /// is taken for set.
    pub(crate) fn set(&mut self, deadlines: &Deadlines, now: Time) -> Option<Duration> {
        let left = self.left(deadlines, now);
        let after = match self.timer.deadline {
            Deadline::None => return None,
            // How much the client has taken is seen by looking only.
            Deadline::Write => left.min(deadlines.shortest()),
            _ => left,
        };
        let fires = now + after;
        (fires < self.fires).then(|| {
            self.fires = fires;
            after
        })
    }

    /// The deadline, if it has passed.
    pub(crate) fn passed(&self, deadlines: &Deadlines, now: Time) -> Option<Deadline> {
        let left = self.left(deadlines, now);
        left.is_zero().then_some(self.timer.deadline)
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

    /// A connection that begins each of these states at its time. Returns when its timer fires, and
    /// the last deadline with when it is seen to have passed.
    fn fires(states: &[(Duration, Timer)]) -> (Vec<Duration>, Deadline, Duration) {
        let deadlines = deadlines();
        let mut watch = Watch::new(states[0].1, states[0].0);
        let (mut fires, mut fired) = (Duration::MAX, Vec::new());
        let mut rest = states.iter();
        loop {
            let state = rest.as_slice().first();
            let now = state.map_or(fires, |&(at, _)| at.min(fires));
            if now == fires {
                fired.push(now);
                watch.fired();
                fires = Duration::MAX;
                if let Some(deadline) = watch.passed(&deadlines, now) {
                    assert!(rest.as_slice().is_empty(), "early");
                    return (fired, deadline, now);
                }
            } else if let Some(&(_, timer)) = rest.next() {
                watch.note(timer, now);
            }
            if let Some(after) = watch.set(&deadlines, now) {
                assert!(now + after < fires);
                fires = now + after;
            }
        }
    }

    #[test]
    fn a_timer_fires_at_the_deadline_and_not_before() {
        for (deadline, limit) in [
            (Deadline::Header, 10_000 * MS),
            (Deadline::Linger, 2_000 * MS),
            (Deadline::Idle, 30_000 * MS),
        ] {
            for began_ms in [0, 1, 1_000, 1_999, 2_000, 2_001, 17_333] {
                let began = began_ms * MS;
                let idle = (Duration::ZERO, timer(Deadline::Idle, 0));
                let (fired, passed, at) = fires(&[idle, (began, timer(deadline, 1))]);
                assert_eq!((passed, at), (deadline, began + limit), "{began_ms}");
                // Of one that was set for the first deadline, and found that it has moved.
                let moved = usize::from(deadline == Deadline::Idle && began_ms > 0);
                assert_eq!(fired.len(), 1 + moved, "{fired:?}");
            }
        }
    }

    /// A request each 7 ms for a minute.
    #[test]
    fn requests_set_no_timers() {
        let states = (0..9_000).map(|n| (n * 7 * MS, timer(Deadline::Idle, n.into())));
        let states: Vec<_> = states.collect();
        let (fired, passed, at) = fires(&states);
        let last = states.last().unwrap().0;
        assert_eq!((passed, at), (Deadline::Idle, last + 30_000 * MS));
        assert!(fired.len() <= 4, "{fired:?}");
    }

    /// A client of slow heads: the timer that was set for one of them finds the next.
    #[test]
    fn states_with_shorter_limits_do_not_set_a_timer_each() {
        let states = (0..1_000).map(|n| {
            let deadline = [Deadline::Idle, Deadline::Header][n as usize % 2];
            (n * 7 * MS, timer(deadline, n.into()))
        });
        let states: Vec<_> = states.collect();
        let (fired, passed, at) = fires(&states);
        let last = states.last().unwrap().0;
        assert_eq!((passed, at), (Deadline::Header, last + 10_000 * MS));
        assert_eq!(fired.len(), 2, "{fired:?}");
    }

    /// How much a client has taken is looked at in between.
    #[test]
    fn an_answer_is_looked_at_as_often_as_the_shortest_limit() {
        let (fired, passed, at) = fires(&[(Duration::ZERO, timer(Deadline::Write, 0))]);
        assert_eq!((passed, at), (Deadline::Write, 30_000 * MS));
        assert_eq!(fired.len(), 15);
    }

    #[test]
    fn progress_begins_it_anew_and_nothing_else_does() {
        let deadlines = deadlines();
        let mut watch = Watch::new(timer(Deadline::Header, 3), Duration::ZERO);
        watch.note(timer(Deadline::Header, 3), 9_999 * MS);
        assert_eq!(watch.passed(&deadlines, 9_999 * MS), None);
        assert_eq!(watch.set(&deadlines, 9_999 * MS), Some(MS));
        assert_eq!(watch.set(&deadlines, 9_999 * MS), None);
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
        watch.fired();
        assert_eq!(watch.set(&deadlines, 90_000 * MS), None);
    }
}
