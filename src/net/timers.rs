//! The timers of a core, by each of two clocks.
//!
//! A timer is in a table by its number. Heaps of moments and numbers say which one is next. A timer
//! that has fired or was canceled leaves its entries in the heaps, where they are recognized by the
//! number; when those outnumber the pending ones, the heap is made anew. Memory that was for many
//! more timers than there are goes back.

use super::timer::{At, Pending};
use super::when::{NEVER_NS, TimerClock};
use crate::color::CoreId;
use crate::handler::Handler;
use crate::host::unfinished::Obstacle;
use crate::sched::core::Core;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::time::Duration;

/// With so few entries, nothing is made anew and no memory goes back.
const FEW: usize = 64;

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
    pending: Table,
    /// When those without slack are due.
    precise: Heap,
    /// When those with slack are due.
    slack: Heap,
    /// When the slack of those is over.
    latest: Heap,
}

/// Timers by their numbers.
type Table = HashMap<u64, Pending, BuildHasherDefault<ByNumber>>;

/// Eight numbers that are given one after the other have places one after the other, since timers
/// that are set together are close in memory then. Beyond that they are spread: where timers were
/// canceled in a long row of full places, the table would look for others for as long.
#[derive(Debug, Default)]
struct ByNumber(u64);

impl Hasher for ByNumber {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|&byte| self.write_u64(byte.into()));
    }

    fn write_u64(&mut self, number: u64) {
        const MIX: u64 = 0x9e37_79b9_7f4a_7c15;
        // The highest bits tell those apart whose places are the same.
        let tag = number.wrapping_mul(MIX) & !(u64::MAX >> 7);
        let place = (number >> 3).wrapping_mul(MIX) << 3 | number & 7;
        self.0 = tag | place & u64::MAX >> 7;
    }
}

/// Moments (ns), and the numbers of timers.
#[derive(Debug, Default)]
struct Heap(BinaryHeap<Reverse<(u64, u64)>>);

impl Heap {
    fn push(&mut self, at_ns: u64, number: u64) {
        self.0.push(Reverse((at_ns, number)));
    }

    /// The first entry of a timer that is there.
    fn first(&mut self, pending: &Table) -> Option<(u64, u64)> {
        while let Some(&Reverse((at_ns, number))) = self.0.peek() {
            if pending.contains_key(&number) {
                return Some((at_ns, number));
            }
            self.0.pop();
        }
        None
    }

    /// Forgets timers that are gone, if those are most, and gives memory back that is not used.
    fn tidy(&mut self, pending: &Table) {
        if self.0.len() > FEW && self.0.len() > 2 * pending.len() {
            self.0
                .retain(|Reverse((_, number))| pending.contains_key(number));
        }
        if let Some(space) = space_to_keep(self.0.len(), self.0.capacity()) {
            self.0.shrink_to(space);
        }
    }
}

/// To how much the space for entries is to shrink, if it is for many times as many as there are.
fn space_to_keep(len: usize, space: usize) -> Option<usize> {
    (space > 4 * FEW && len < space / 8).then_some(FEW.max(2 * len))
}

impl Queue {
    fn insert(&mut self, at_ns: u64, number: u64, pending: Pending) {
        if pending.slack_ns == 0 {
            self.precise.push(at_ns, number);
        } else {
            self.slack.push(at_ns, number);
            let latest_ns = at_ns.saturating_add(pending.slack_ns);
            self.latest.push(latest_ns, number);
        }
        self.pending.insert(number, pending);
    }

    fn remove(&mut self, number: u64) -> Option<Pending> {
        let pending = self.pending.remove(&number)?;
        for heap in [&mut self.precise, &mut self.slack, &mut self.latest] {
            heap.tidy(&self.pending);
        }
        let (len, space) = (self.pending.len(), self.pending.capacity());
        if let Some(space) = space_to_keep(len, space) {
            self.pending.shrink_to(space);
        }
        Some(pending)
    }

    /// When the core has to wake up: the last moment at which none is later than its slack allows.
    /// Never for a timer that never fires, or a simulation would go to that moment.
    fn wake_ns(&mut self) -> Option<u64> {
        let fires = |&(at_ns, _): &(u64, u64)| at_ns < NEVER_NS;
        let precise = self.precise.first(&self.pending).filter(fires);
        let slack = self.slack.first(&self.pending).filter(fires);
        let latest = slack.and_then(|_| self.latest.first(&self.pending));
        let moments = [precise, latest].into_iter().flatten();
        moments.map(|(at_ns, _)| at_ns).min()
    }

    /// The next one, if it is due.
    fn due(&mut self, now_ns: u64) -> Option<Pending> {
        let precise = self.precise.first(&self.pending);
        let slack = self.slack.first(&self.pending);
        let (at_ns, number) = [precise, slack].into_iter().flatten().min()?;
        if at_ns > now_ns {
            return None;
        }
        let heap = match precise == Some((at_ns, number)) {
            true => &mut self.precise,
            false => &mut self.slack,
        };
        heap.0.pop();
        self.remove(number)
    }

    /// When each is due, and its number, in no order.
    fn entries(&self) -> impl Iterator<Item = (u64, u64)> {
        let all = self.precise.0.iter().chain(&self.slack.0);
        all.map(|&Reverse(entry)| entry)
            .filter(|(_, number)| self.pending.contains_key(number))
    }

    /// Takes out all but the deadlines of holds, in the order in which they are due.
    fn take_ordinary(&mut self) -> Vec<Pending> {
        let ordinary = |(_, number): &(u64, u64)| !self.pending[number].passes();
        let mut entries: Vec<_> = self.entries().filter(ordinary).collect();
        entries.sort_unstable();
        let take = |(_, number)| self.remove(number);
        entries.into_iter().filter_map(take).collect()
    }

    /// Those that are due last, at most this many, and for how long each has to wait.
    fn latest(&self, most: usize, now_ns: u64) -> Vec<(Duration, &Pending)> {
        let mut entries: Vec<_> = self.entries().collect();
        // A core asks this once a second while it drains: all are not sorted for a few.
        if entries.len() > most {
            entries.select_nth_unstable_by_key(most, |&entry| Reverse(entry));
            entries.truncate(most);
        }
        let due_in = |at_ns: u64| Duration::from_nanos(at_ns.saturating_sub(now_ns));
        let entries = entries.into_iter();
        entries
            .map(|(at_ns, number)| (due_in(at_ns), &self.pending[&number]))
            .collect()
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

    /// The next timer that is due by the core's clock, of those that are due at the same moment the
    /// one that was set first.
    pub(super) fn due(&mut self, now_ns: u64) -> Option<Pending> {
        self.monotonic.due(now_ns)
    }

    /// The next timer that is due by the time of day.
    pub(super) fn wall_due(&mut self, wall_ns: u64) -> Option<Pending> {
        self.wall.due(wall_ns)
    }

    /// Takes out all but the deadlines of holds, in the order in which they are due.
    pub(super) fn take_ordinary(&mut self) -> Vec<Pending> {
        let mut all = self.monotonic.take_ordinary();
        all.append(&mut self.wall.take_ordinary());
        all
    }

    /// Those that are due last, at most this many; for reports.
    pub(super) fn latest(&self, most: usize, now_ns: u64, wall_ns: u64) -> Vec<Obstacle> {
        let mut all = self.monotonic.latest(most, now_ns);
        all.append(&mut self.wall.latest(most, wall_ns));
        all.sort_by_key(|&(due_in, _)| Reverse(due_in));
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
        self.by(at.clock).remove(at.number)
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
        let all = timers.monotonic.entries();
        let latest = |(at_ns, number)| at_ns + timers.monotonic.pending[&number].slack_ns;
        all.map(latest).min()
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

    #[test]
    fn no_core_wakes_up_for_what_never_fires() {
        let mut timers = Timers::of(CoreId::of(0));
        timers.add(NEVER_NS, pending(1)).unwrap();
        timers.add(NEVER_NS + 5, slack(2, 10)).unwrap();
        timers.add(NEVER_NS, wall(3)).unwrap();
        assert_eq!((timers.next_ns(), timers.next_wall_ns()), (None, None));
        timers.add(10, slack(4, 10)).unwrap();
        assert_eq!(timers.next_ns(), Some(20));
        assert_eq!(color(timers.due(20)), Some(Color::from(4)));
        // An end takes them out.
        assert_eq!((timers.len(), timers.take_ordinary().len()), (3, 3));
        assert!(timers.is_empty());
    }

    /// Whatever is set, canceled and fired in between.
    #[test]
    fn a_core_wakes_up_neither_too_early_nor_too_late() {
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
                    assert_eq!(timers.next_ns(), latest_moment(&timers));
                    if let Some(next_ns) = timers.next_ns() {
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

    #[test]
    fn no_memory_is_kept_for_what_was_canceled_or_has_fired() {
        let kept = |timers: &Timers| {
            let Queue {
                pending,
                precise,
                slack,
                latest,
            } = &timers.monotonic;
            let heaps = [precise, slack, latest].map(|heap| heap.0.capacity());
            heaps.into_iter().max().max(Some(pending.capacity()))
        };
        for slack_ns in [0, 5] {
            // Of few.
            let mut timers = Timers::of(CoreId::of(0));
            let _stays = timers.add(20_000, slack(1, slack_ns)).unwrap();
            for at_ns in 2..10_000 {
                let at = timers.add(at_ns, slack(2, slack_ns)).unwrap();
                if at_ns % 2 == 0 {
                    assert!(timers.cancel(at).is_some());
                } else {
                    assert_eq!(color(timers.due(at_ns)), Some(Color::from(2)));
                }
                assert!(kept(&timers) <= Some(4 * FEW), "{:?}", kept(&timers));
            }
            // Of many.
            for fires in [false, true] {
                let all: Vec<_> = (0..10_000)
                    .map(|at_ns| timers.add(at_ns, slack(3, slack_ns)).unwrap())
                    .collect();
                assert!(kept(&timers) >= Some(10_000));
                for (i, &at) in all.iter().enumerate() {
                    let gone = match fires {
                        true => timers.due(10_000),
                        false => timers.cancel(at),
                    };
                    assert_eq!(color(gone), Some(Color::from(3)));
                    let (kept, left) = (kept(&timers), 10_000 - i);
                    assert!(
                        kept <= Some((32 * left).max(8 * FEW)),
                        "{kept:?} for {left}"
                    );
                }
            }
            assert_eq!(timers.len(), 1);
        }
    }
}
