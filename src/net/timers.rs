//! The timers of a core: a tree by when they are due, for each of two clocks.
//!
//! A canceled timer is taken out at once, with its memory.

use super::timer::{At, Pending};
use super::when::TimerClock;
use crate::color::CoreId;
use crate::handler::Handler;
use crate::host::unfinished::Obstacle;
use crate::sched::core::Core;
use std::collections::BTreeMap;
use std::mem;
use std::sync::Arc;
use std::time::Duration;

/// Timers that are looked at to find when a core has to wake up. If all of these may wait for the
/// one behind them, the core wakes up for that one: with so many in one wake-up, a later one would
/// save next to nothing.
const LOOKED_AT_MAX: usize = 64;

/// See the module text.
///
/// Those that are due at the same moment fire in the order in which they were set.
#[derive(Debug)]
pub(super) struct Timers {
    core: CoreId,
    monotonic: Queue,
    wall: Queue,
    /// Timers set so far.
    set: u64,
}

/// The timers that go by one clock.
#[derive(Debug, Default)]
struct Queue {
    /// By when each is due (ns), and by its number.
    pending: BTreeMap<(u64, u64), Pending>,
    /// What [`wake_ns`](Self::wake_ns) has found, unless that may have changed.
    wake_ns: Option<u64>,
}

impl Queue {
    fn insert(&mut self, at_ns: u64, number: u64, pending: Pending) {
        let latest_ns = at_ns.saturating_add(pending.slack_ns);
        match &mut self.wake_ns {
            Some(wake_ns) => *wake_ns = latest_ns.min(*wake_ns),
            // Else it is found when it is asked for.
            None if self.pending.is_empty() => self.wake_ns = Some(latest_ns),
            None => {}
        }
        self.pending.insert((at_ns, number), pending);
    }

    fn remove(&mut self, at_ns: u64, number: u64) -> Option<Pending> {
        let pending = self.pending.remove(&(at_ns, number))?;
        self.left(at_ns, &pending);
        Some(pending)
    }

    /// This one is taken out.
    fn left(&mut self, at_ns: u64, pending: &Pending) {
        let latest_ns = at_ns.saturating_add(pending.slack_ns);
        if self.wake_ns.is_some_and(|wake_ns| latest_ns <= wake_ns) || self.pending.is_empty() {
            self.wake_ns = None;
        }
    }

    /// When the core has to wake up: the last moment at which none is later than its slack allows,
    /// or a moment before.
    fn wake_ns(&mut self) -> Option<u64> {
        if self.wake_ns.is_none() {
            let mut wake_ns = None;
            for (looked_at, (&(at_ns, _), pending)) in self.pending.iter().enumerate() {
                if wake_ns.is_some_and(|wake_ns| at_ns >= wake_ns) {
                    break;
                }
                if looked_at == LOOKED_AT_MAX {
                    wake_ns = Some(at_ns);
                    break;
                }
                let latest_ns = at_ns.saturating_add(pending.slack_ns);
                wake_ns = Some(wake_ns.map_or(latest_ns, |wake_ns: u64| wake_ns.min(latest_ns)));
            }
            self.wake_ns = wake_ns;
        }
        self.wake_ns
    }

    /// The next one, if it is due.
    fn due(&mut self, now_ns: u64) -> Option<Pending> {
        let next = self.pending.first_entry();
        let Some(entry) = next.filter(|entry| entry.key().0 <= now_ns) else {
            // The core has woken up in vain, if those that it was to do so for are canceled.
            self.wake_ns = self.wake_ns.filter(|&wake_ns| wake_ns > now_ns);
            return None;
        };
        let ((at_ns, _), pending) = entry.remove_entry();
        self.left(at_ns, &pending);
        Some(pending)
    }

    /// Takes out all but the deadlines of holds, in the order in which they are due.
    fn take_ordinary(&mut self) -> impl Iterator<Item = Pending> + use<> {
        let (passing, ordinary): (BTreeMap<_, _>, BTreeMap<_, _>) = mem::take(&mut self.pending)
            .into_iter()
            .partition(|(_, pending)| pending.passes());
        *self = Queue {
            pending: passing,
            wake_ns: None,
        };
        ordinary.into_values()
    }

    /// The last ones, the last first, for how long they have still to wait.
    fn latest(&self, now_ns: u64) -> impl Iterator<Item = (Duration, &Pending)> {
        let due_in = move |(&(at_ns, _), pending): (&(u64, u64), _)| {
            let due_in = Duration::from_nanos(at_ns.saturating_sub(now_ns));
            (due_in, pending)
        };
        self.pending.iter().rev().map(due_in)
    }
}

impl Timers {
    pub(super) fn of(core: CoreId) -> Timers {
        Timers {
            core,
            monotonic: Queue::default(),
            wall: Queue::default(),
            set: 0,
        }
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.monotonic.pending.len() + self.wall.pending.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.monotonic.pending.is_empty() && self.has_no_wall()
    }

    /// Whether none goes by the time of day.
    pub(super) fn has_no_wall(&self) -> bool {
        self.wall.pending.is_empty()
    }

    fn by(&mut self, clock: TimerClock) -> &mut Queue {
        match clock {
            TimerClock::Monotonic => &mut self.monotonic,
            TimerClock::Wall => &mut self.wall,
        }
    }

    /// Adds a timer, unless it was canceled.
    fn add(&mut self, at_ns: u64, pending: Pending) -> Result<At, Pending> {
        let place = Arc::clone(&pending.place);
        let Some(mut its) = place.lock_unless_canceled() else {
            return Err(pending);
        };
        let at = At {
            core: self.core,
            clock: pending.clock,
            at_ns,
            number: self.set,
        };
        self.set += 1;
        *its = Some(at);
        self.by(at.clock).insert(at_ns, at.number, pending);
        Ok(at)
    }

    /// Adds a timer, or drops its callback in its color if it was canceled.
    pub(super) fn set(&mut self, at_ns: u64, pending: Pending, core: &mut Core) {
        if let Err(pending) = self.add(at_ns, pending) {
            pending.discard(core);
        }
    }

    /// When the core has to wake up next, by its own clock.
    pub(super) fn next_ns(&mut self) -> Option<u64> {
        self.monotonic.wake_ns()
    }

    /// When it has to wake up next, by the time of day.
    pub(super) fn next_wall_ns(&mut self) -> Option<u64> {
        self.wall.wake_ns()
    }

    /// The next timer that is due by the core's clock.
    pub(super) fn due(&mut self, now_ns: u64) -> Option<Pending> {
        self.monotonic.due(now_ns)
    }

    /// The next timer that is due by the time of day.
    pub(super) fn wall_due(&mut self, wall_ns: u64) -> Option<Pending> {
        self.wall.due(wall_ns)
    }

    /// Takes out all but the deadlines of holds, in the order in which they are due.
    pub(super) fn take_ordinary(&mut self) -> impl Iterator<Item = Pending> + use<> {
        let monotonic = self.monotonic.take_ordinary();
        monotonic.chain(self.wall.take_ordinary())
    }

    /// Those that are due last, at most this many; for reports.
    pub(super) fn latest(&self, most: usize, now_ns: u64, wall_ns: u64) -> Vec<Obstacle> {
        let monotonic = self.monotonic.latest(now_ns).take(most);
        let mut all: Vec<_> = monotonic
            .chain(self.wall.latest(wall_ns).take(most))
            .collect();
        all.sort_by_key(|&(due_in, _)| std::cmp::Reverse(due_in));
        all.truncate(most);
        let obstacle = |(due_in, pending): (Duration, &Pending)| Obstacle::Timer {
            color: pending.color,
            handler: (pending.handler).map_or("(deadline of a hold)", Handler::name),
            due_in,
        };
        all.into_iter().map(obstacle).collect()
    }

    /// Takes a canceled timer out, if it is one of these and has not fired.
    pub(super) fn cancel(&mut self, at: At) -> Option<Pending> {
        if at.core != self.core {
            return None;
        }
        self.by(at.clock).remove(at.at_ns, at.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Color;

    /// A timer of this color, by which it is told from the others.
    fn pending(color: u64) -> Pending {
        slack(color, 0)
    }

    /// One that may be this late.
    fn slack(color: u64, slack_ns: u64) -> Pending {
        let mut pending = Pending::of_color(Color::from(color));
        pending.slack_ns = slack_ns;
        pending
    }

    fn wall(color: u64) -> Pending {
        let mut pending = pending(color);
        pending.clock = TimerClock::Wall;
        pending
    }

    fn color(pending: Option<Pending>) -> Option<Color> {
        pending.map(|pending| pending.color)
    }

    #[test]
    fn canceled_timers_are_gone() {
        let mut timers = Timers::of(CoreId::of(0));
        let first = timers.add(10, pending(1)).unwrap();
        let _second = timers.add(20, pending(2)).unwrap();
        let third = timers.add(30, pending(3)).unwrap();
        let _fourth = timers.add(40, pending(4)).unwrap();
        assert_eq!(color(timers.cancel(first)), Some(Color::from(1)));
        assert!(timers.cancel(first).is_none(), "only once");
        assert_eq!(timers.next_ns(), Some(20));
        assert!(timers.due(19).is_none());
        assert_eq!(color(timers.due(20)), Some(Color::from(2)));
        let _fifth = timers.add(30, pending(5)).unwrap();
        assert!(timers.cancel(third).is_some());
        assert!(timers.cancel(third).is_none(), "though another is due then");
        let elsewhere = Timers::of(CoreId::of(1)).add(40, pending(6)).unwrap();
        assert!(timers.cancel(elsewhere).is_none());
        assert_eq!(color(timers.due(50)), Some(Color::from(5)));
        assert!(!timers.is_empty());
        assert_eq!(color(timers.due(50)), Some(Color::from(4)));
        assert!(timers.due(50).is_none() && timers.is_empty());
        assert_eq!(timers.next_ns(), None);
    }

    #[test]
    fn the_latest_are_named() {
        let mut timers = Timers::of(CoreId::of(0));
        // In no order.
        let at = |i: u64| i * 37 % 101;
        for i in 0..101 {
            // By the time of day it is 1,000.
            let added = match at(i) % 2 {
                0 => timers.add(at(i), pending(at(i))),
                _ => timers.add(1_000 + at(i), wall(at(i))),
            };
            if at(i) == 99 {
                timers.cancel(added.unwrap());
            }
        }
        for (most, last) in [(3, &[100, 98, 97][..]), (0, &[])] {
            let latest = timers.latest(most, 0, 1_000).into_iter();
            let colors = latest.map(|named| match named {
                Obstacle::Timer { color, due_in, .. } => {
                    assert_eq!(due_in, Duration::from_nanos(color.value()));
                    color.value()
                }
                other => panic!("{other:?}"),
            });
            assert!(colors.eq(last.iter().copied()));
        }
        assert_eq!(timers.latest(200, 0, 1_000).len(), 100);
        assert_eq!(timers.len(), 100);
    }

    #[test]
    fn the_two_clocks_are_apart() {
        let mut timers = Timers::of(CoreId::of(0));
        let canceled = timers.add(10, wall(1)).unwrap();
        timers.add(20, wall(2)).unwrap();
        timers.add(30, pending(3)).unwrap();
        assert_eq!(
            (timers.next_wall_ns(), timers.next_ns()),
            (Some(10), Some(30))
        );
        assert_eq!(color(timers.cancel(canceled)), Some(Color::from(1)));
        assert!(timers.due(29).is_none() && timers.wall_due(19).is_none());
        assert_eq!(color(timers.wall_due(100)), Some(Color::from(2)));
        assert!(timers.wall_due(100).is_none() && timers.has_no_wall());
        assert!(!timers.is_empty());
        assert_eq!(color(timers.due(100)), Some(Color::from(3)));
        assert!(timers.is_empty());
    }

    /// The moment to wake up at, by looking at all.
    fn latest_moment(timers: &Timers) -> Option<u64> {
        let all = timers.monotonic.pending.iter();
        all.map(|(&(at_ns, _), its)| at_ns + its.slack_ns).min()
    }

    #[test]
    fn a_core_wakes_up_when_the_slack_of_one_is_over() {
        let mut timers = Timers::of(CoreId::of(0));
        timers.add(10, slack(1, 100)).unwrap();
        assert_eq!(timers.next_ns(), Some(110));
        let middle = timers.add(50, slack(2, 20)).unwrap();
        assert_eq!(timers.next_ns(), Some(70));
        timers.add(60, slack(3, 1_000)).unwrap();
        timers.add(80, pending(4)).unwrap();
        assert_eq!(timers.next_ns(), Some(70));
        assert!(timers.cancel(middle).is_some());
        assert_eq!(timers.next_ns(), Some(80));
        for last in [Some(1), Some(3), Some(4), None] {
            assert_eq!(color(timers.due(80)), last.map(Color::from));
        }
        timers.add(90, slack(5, u64::MAX)).unwrap();
        assert_eq!(timers.next_ns(), Some(u64::MAX));
    }

    /// Whatever is set, canceled and fired in between; and not much before it has to.
    #[test]
    fn no_core_wakes_up_too_late() {
        let mut random = 1_u64;
        let mut below = |most: u64| {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (random >> 33) % most
        };
        let (mut timers, mut set, mut now_ns) = (Timers::of(CoreId::of(0)), Vec::new(), 0);
        let (mut fired, mut wakes) = (0, 0);
        for _ in 0..10_000 {
            match below(8) {
                0 if !set.is_empty() => {
                    let at = set.swap_remove(below(set.len() as u64) as usize);
                    timers.cancel(at);
                }
                1 => {
                    if let Some(next_ns) = timers.next_ns() {
                        assert!(next_ns <= latest_moment(&timers).unwrap());
                        now_ns = next_ns.max(now_ns);
                        wakes += 1;
                        let before = fired;
                        while let Some(pending) = timers.due(now_ns) {
                            assert!(pending.color.value() <= now_ns, "early");
                            fired += 1;
                        }
                        assert!(fired > before, "in vain");
                    }
                }
                _ => {
                    let (at_ns, slack_ns) = (now_ns + below(1_000), below(4) * below(500));
                    set.push(timers.add(at_ns, slack(at_ns, slack_ns)).unwrap());
                }
            }
        }
        assert!(fired > 2 * wakes, "{fired} in {wakes}");
    }

    /// With very many that may wait for each other, not all are looked at.
    #[test]
    fn a_core_does_not_wait_for_very_many() {
        let mut timers = Timers::of(CoreId::of(0));
        let mut add = |at_ns| timers.add(at_ns, slack(1, 1_000_000)).unwrap();
        let all: Vec<_> = (0..1_000).map(&mut add).collect();
        timers.monotonic.wake_ns = None;
        let most = LOOKED_AT_MAX as u64;
        assert_eq!(timers.next_ns(), Some(most));
        // Those that it is to wake up for are canceled: it does so once in vain.
        let canceled = all.into_iter().filter(|at| at.at_ns <= most);
        assert!(
            canceled
                .map(|at| timers.cancel(at))
                .all(|its| its.is_some())
        );
        assert_eq!(timers.next_ns(), Some(most));
        assert!(timers.due(most).is_none());
        assert_eq!(timers.next_ns(), Some(2 * most + 1));
    }
}
