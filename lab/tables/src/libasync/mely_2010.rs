//! Mely as its paper has it (2010, §III and §IV): a queue for each color, those of a core chained to
//! the *core-queue*, under one spinlock a core that each registration and each dispatch takes.
//!
//! - A core runs the first event of the first color-queue; after ten of a color comes the next one.
//! - An empty color-queue leaves the core-queue; the first post to a color brings it back.
//! - A steal unlinks one color-queue, whatever its length, and links it to the thief's core-queue.
//! - *Base*: victims and color as libasync-smp chooses them ([`super::smp`]).
//! - *Locality*: victims by distance, then by number, round about.
//! - *Time-left*: a color is worthy if its events take longer than a steal. Worthy colors are chained
//!   to the core's *stealing-queue*, in three intervals; a thief takes one of the highest. A core
//!   without any is no victim. What a steal costs is measured: the mean of the last ones.
//! - *Penalty*: what an event counts for is divided by its handler's penalty. Without time-left there
//!   is nothing that this would change, so it has that too.
//!
//! Color-queues are an array here, a line each, so that the map leads to one without a search; in
//! the paper they are allocated. The map is exact (as in [`super::smp`]).

use super::event::{Event, Link};
use super::open::Open;
use super::queue::{Kind, Lock, Locked, push_back, take_out};
use super::thief::{ON_ITS_WAY, lock_owner, victims};
use super::{Queues, Steals, stopping};
use crossbeam_utils::CachePadded;
use intrusive_collections::LinkedList;
use mely_bench::schedulers::{Extras, Scheduler};
use mely_bench::sync::atomic::{
    AtomicBool, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering::*,
};
use mely_bench::sync::{self, SpinMutexGuard, charge};
use mely_bench::{Workload, World, machine};
use std::cell::UnsafeCell;
use std::time::Duration;

/// Events of a color that a core runs before it goes on to the next color.
const THRESHOLD: u32 = 10;
/// Parts of a stealing-queue.
const INTERVALS: usize = 3;
const NONE: u32 = u32::MAX;
/// Steals over which the cost of one is averaged.
const AVERAGED: u64 = 8;

/// What a thief goes by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Heuristics {
    pub(crate) locality: bool,
    pub(crate) time_left: bool,
    pub(crate) penalty: bool,
}

struct Mely {
    cores: Vec<CachePadded<Core>>,
    /// The core of each color, changed under the lock of the core that it says.
    owners: Vec<AtomicUsize>,
    colors: Vec<ColorQueue>,
    /// Of each core, the others by distance.
    nearest: Vec<Vec<usize>>,
    steal_cost_ns: CachePadded<AtomicU64>,
    stealing: Option<Heuristics>,
    open: Open,
}

struct Core {
    queue: Lock<CoreQueue>,
    /// Queued events, for who has not locked it.
    len: AtomicUsize,
    /// What can be stolen, as far as that is known without the lock.
    stealable: AtomicUsize,
}

/// Neighbors in a chain of color-queues.
struct Links {
    next: AtomicU32,
    prev: AtomicU32,
}

impl Links {
    fn new() -> Links {
        Links {
            next: AtomicU32::new(NONE),
            prev: AtomicU32::new(NONE),
        }
    }
}

/// Changed under the lock of its core only: no read-modify-writes.
#[repr(align(64))]
struct ColorQueue {
    in_core: Links,
    in_stealing: Links,
    count: AtomicU32,
    /// Of the stealing-queue, from 1; 0 if it is not worthy.
    interval: AtomicU8,
    time_ns: AtomicU64,
    weight_ns: AtomicU64,
    events: UnsafeCell<LinkedList<Link<Mely>>>,
}

// SAFETY: `events` is used only by who has locked the core that the map says (`Mely::events`).
unsafe impl Sync for ColorQueue {}
// SAFETY: events are `Send`.
unsafe impl Send for ColorQueue {}

impl ColorQueue {
    fn new() -> ColorQueue {
        ColorQueue {
            in_core: Links::new(),
            in_stealing: Links::new(),
            count: AtomicU32::new(0),
            interval: AtomicU8::new(0),
            time_ns: AtomicU64::new(0),
            weight_ns: AtomicU64::new(0),
            events: UnsafeCell::new(LinkedList::new(Link::new())),
        }
    }
}

/// The ends of a chain of color-queues.
struct Chain {
    links: fn(&ColorQueue) -> &Links,
    head: u32,
    tail: u32,
}

impl Chain {
    fn new(links: fn(&ColorQueue) -> &Links) -> Chain {
        Chain {
            links,
            head: NONE,
            tail: NONE,
        }
    }

    fn push_back(&mut self, colors: &[ColorQueue], color: u32) {
        let its = (self.links)(&colors[color as usize]);
        its.next.store(NONE, Relaxed);
        its.prev.store(self.tail, Relaxed);
        match self.tail {
            NONE => self.head = color,
            tail => (self.links)(&colors[tail as usize])
                .next
                .store(color, Relaxed),
        }
        self.tail = color;
    }

    fn remove(&mut self, colors: &[ColorQueue], color: u32) {
        let its = (self.links)(&colors[color as usize]);
        let (next, prev) = (its.next.load(Relaxed), its.prev.load(Relaxed));
        match prev {
            NONE => self.head = next,
            prev => (self.links)(&colors[prev as usize])
                .next
                .store(next, Relaxed),
        }
        match next {
            NONE => self.tail = prev,
            next => (self.links)(&colors[next as usize])
                .prev
                .store(prev, Relaxed),
        }
    }

    fn iter<'a>(&self, colors: &'a [ColorQueue]) -> impl Iterator<Item = u32> + use<'a> {
        let links = self.links;
        charge::reach(self);
        let some = |color: u32| (color != NONE).then_some(color);
        std::iter::successors(some(self.head), move |&color| {
            let its = &colors[color as usize];
            charge::follow(its);
            some(links(its).next.load(Relaxed))
        })
    }
}

struct CoreQueue {
    queue: Chain,
    stealing: [Chain; INTERVALS],
    /// Worthy colors.
    worthy: usize,
    colors: usize,
    len: usize,
    /// What the core runs, and how many of it one after the other.
    current: Option<u32>,
    batch: u32,
    /// As a thief.
    steals: Steals,
}

fn add(to: &AtomicU64, ns: u32) {
    to.store(to.load(Relaxed) + u64::from(ns), Relaxed);
}

fn subtract(from: &AtomicU64, ns: u32) {
    from.store(from.load(Relaxed) - u64::from(ns), Relaxed);
}

impl Mely {
    fn new(
        colors: usize,
        cores: usize,
        stealing: Option<Heuristics>,
        nearest: Vec<Vec<usize>>,
    ) -> Mely {
        let open = Open::get();
        let queue = || CoreQueue {
            queue: Chain::new(|color| &color.in_core),
            stealing: std::array::from_fn(|_| Chain::new(|color| &color.in_stealing)),
            worthy: 0,
            colors: 0,
            len: 0,
            current: None,
            batch: 0,
            steals: Steals::default(),
        };
        let core = |_| {
            CachePadded::new(Core {
                queue: Lock::new(queue()),
                len: AtomicUsize::new(0),
                stealable: AtomicUsize::new(0),
            })
        };
        Mely {
            cores: (0..cores).map(core).collect(),
            owners: (0..colors)
                .map(|color| AtomicUsize::new(color % cores))
                .collect(),
            colors: (0..colors).map(|_| ColorQueue::new()).collect(),
            nearest,
            steal_cost_ns: CachePadded::new(AtomicU64::new(open.first_cost_ns)),
            stealing,
            open,
        }
    }

    /// Locks the core that has a color.
    fn lock_owner(&self, color: u32) -> (&Core, SpinMutexGuard<'_, Locked<CoreQueue>>) {
        let owner = &self.owners[color as usize];
        let (number, queue) = lock_owner(owner, |core| &self.cores[core].queue);
        (&self.cores[number], queue)
    }

    /// A color's events, for who has locked the core that has it.
    #[expect(clippy::mut_from_ref, reason = "the lock excludes others")]
    fn events(&self, color: u32, _locked: &mut CoreQueue) -> &mut LinkedList<Link<Mely>> {
        // SAFETY: whoever calls this has locked the color's core, keeps the list no longer than the
        // lock, and asks for no other meanwhile.
        unsafe { &mut *self.colors[color as usize].events.get() }
    }

    fn goes_by_time(&self) -> bool {
        self.stealing.is_some_and(|by| by.time_left || by.penalty)
    }

    /// Puts a color where it belongs in its core's stealing-queue.
    fn classify(&self, queue: &mut CoreQueue, color: u32) {
        if !self.goes_by_time() {
            return;
        }
        let its = &self.colors[color as usize];
        let weight_ns = its.weight_ns.load(Relaxed);
        let mut from_ns = self.steal_cost_ns.load(Relaxed);
        let mut interval = 0;
        while weight_ns > from_ns && usize::from(interval) < INTERVALS {
            interval += 1;
            from_ns = from_ns.saturating_mul(self.open.interval_factor);
        }
        let before = its.interval.load(Relaxed);
        if interval != before {
            self.leave_stealing(queue, color);
            if interval > 0 {
                queue.stealing[usize::from(interval) - 1].push_back(&self.colors, color);
                queue.worthy += 1;
            }
            its.interval.store(interval, Relaxed);
        }
    }

    fn leave_stealing(&self, queue: &mut CoreQueue, color: u32) {
        let its = &self.colors[color as usize];
        let interval = usize::from(its.interval.load(Relaxed));
        if interval > 0 {
            queue.stealing[interval - 1].remove(&self.colors, color);
            queue.worthy -= 1;
            its.interval.store(0, Relaxed);
        }
    }

    /// Tells those who have not locked the core.
    fn publish(&self, core: &Core, queue: &CoreQueue) {
        core.len.store(queue.len, Relaxed);
        if self.open.look {
            let stealable = if self.goes_by_time() {
                queue.worthy
            } else {
                queue.colors.saturating_sub(1)
            };
            core.stealable.store(stealable, Relaxed);
        }
    }

    /// Takes what a core runs next.
    fn take(&self, core: usize) -> Option<Box<Event<Mely>>> {
        let core = &self.cores[core];
        let queue = &mut core.queue.lock().of;
        let last_color = queue.current.take();
        charge::reach(&queue.queue);
        let color = match queue.queue.head {
            NONE => return None,
            color => color,
        };
        let its = &self.colors[color as usize];
        charge::reach(its);
        let events = self.events(color, queue);
        charge::store(&raw const *events);
        if let Some(first) = events.front().get() {
            charge::reach(first);
        }
        let event = take_out(&mut events.front_mut()).expect("who is in the core-queue has events");
        queue.len -= 1;
        let count = its.count.load(Relaxed) - 1;
        its.count.store(count, Relaxed);
        subtract(&its.time_ns, event.time_ns);
        subtract(&its.weight_ns, self.weight_ns(&event));
        queue.batch = match last_color == Some(color) {
            true => queue.batch + 1,
            false => 1,
        };
        if count == 0 {
            queue.queue.remove(&self.colors, color);
            queue.colors -= 1;
        } else if queue.batch >= THRESHOLD && queue.queue.tail != color {
            queue.queue.remove(&self.colors, color);
            queue.queue.push_back(&self.colors, color);
            queue.batch = 0;
        }
        self.classify(queue, color);
        queue.current = Some(color);
        self.publish(core, queue);
        Some(event)
    }

    fn weight_ns(&self, event: &Event<Mely>) -> u32 {
        match self.stealing {
            Some(by) if by.penalty => event.weight_ns,
            _ => event.time_ns,
        }
    }

    /// Mely's Figure 2. True if anything was stolen.
    fn steal(&self, thief: usize, by: Heuristics) -> bool {
        let start = sync::now();
        if by.locality {
            let mut victims = self.nearest[thief].iter();
            return victims.any(|&victim| self.steal_from(victim, thief, start));
        }
        let len = |core: usize| self.cores[core].len.load(Relaxed);
        victims(thief, self.cores.len(), len).any(|victim| self.steal_from(victim, thief, start))
    }

    fn steal_from(&self, victim: usize, thief: usize, start: Duration) -> bool {
        if self.open.look && self.cores[victim].stealable.load(Relaxed) == 0 {
            return false;
        }
        if self.open.one_lock {
            let Some(mut from) = self.open.lock(&self.cores[victim].queue) else {
                return false;
            };
            let Some(color) = self.take_color(victim, &mut from.of) else {
                return false;
            };
            self.owners[color as usize].store(ON_ITS_WAY, Release);
            drop(from);
            let mut own = self.cores[thief].queue.lock();
            self.give_color(color, thief, &mut own.of, start);
            return true;
        }
        let queue = |core: usize| &self.cores[core].queue;
        let Some((mut own, mut from)) = self.open.lock_both(thief, victim, queue) else {
            return false;
        };
        let color = self.take_color(victim, &mut from.of);
        if let Some(color) = color {
            self.give_color(color, thief, &mut own.of, start);
        }
        color.is_some()
    }

    /// Which color goes, if any.
    fn choose(&self, from: &CoreQueue) -> Option<u32> {
        if self.goes_by_time() {
            let mut worthy = from.stealing.iter().rev();
            return worthy.find_map(|interval| {
                let mut colors = interval.iter(&self.colors);
                colors.find(|&color| from.current != Some(color))
            });
        }
        if from.colors < 2 {
            return None;
        }
        let count = |color: u32| self.colors[color as usize].count.load(Relaxed);
        let mut colors = from.queue.iter(&self.colors);
        colors.find(|&color| from.current != Some(color) && 2 * (count(color) as usize) < from.len)
    }

    /// Takes a color out of a victim.
    fn take_color(&self, victim: usize, from: &mut CoreQueue) -> Option<u32> {
        let color = self.choose(from)?;
        from.queue.remove(&self.colors, color);
        self.leave_stealing(from, color);
        from.colors -= 1;
        from.len -= self.colors[color as usize].count.load(Relaxed) as usize;
        self.publish(&self.cores[victim], from);
        Some(color)
    }

    fn give_color(&self, color: u32, thief: usize, own: &mut CoreQueue, start: Duration) {
        let its = &self.colors[color as usize];
        own.queue.push_back(&self.colors, color);
        own.colors += 1;
        own.len += its.count.load(Relaxed) as usize;
        self.classify(own, color);
        self.owners[color as usize].store(thief, Release);
        self.publish(&self.cores[thief], own);
        let cost = sync::now() - start;
        let mean_ns = self.steal_cost_ns.load(Relaxed);
        let mean_ns = mean_ns - mean_ns / AVERAGED + cost.as_nanos() as u64 / AVERAGED;
        self.steal_cost_ns.store(mean_ns, Relaxed);
        own.steals.won += 1;
        own.steals.colors += 1;
        own.steals.cost += cost;
        own.steals.stolen += Duration::from_nanos(its.time_ns.load(Relaxed));
    }
}

impl Queues for Mely {
    fn insert(&self, event: Box<Event<Mely>>, _kind: Kind) {
        let color = event.color;
        let (core, mut queue) = self.lock_owner(color);
        let queue = &mut queue.of;
        let its = &self.colors[color as usize];
        let count = its.count.load(Relaxed);
        if count == 0 {
            queue.queue.push_back(&self.colors, color);
            queue.colors += 1;
        }
        its.count.store(count + 1, Relaxed);
        queue.len += 1;
        add(&its.time_ns, event.time_ns);
        add(&its.weight_ns, self.weight_ns(&event));
        let events = self.events(color, queue);
        charge::store(&raw const *events);
        push_back(events, event);
        self.classify(queue, color);
        self.publish(core, queue);
    }

    fn next(&self, core: usize, stop: &AtomicBool) -> Option<Box<Event<Mely>>> {
        loop {
            if stopping(stop) {
                return None;
            }
            if let Some(event) = self.take(core) {
                return Some(event);
            }
            while self.cores[core].len.load(Relaxed) == 0 && !stopping(stop) {
                if self.stealing.is_some_and(|by| self.steal(core, by)) {
                    break;
                }
                charge::pauses(self.open.pauses);
            }
        }
    }

    fn place(&self, color: u32, core: usize) {
        let (_, queue) = self.lock_owner(color);
        let idle = self.colors[color as usize].count.load(Relaxed) == 0;
        if idle && queue.of.current != Some(color) {
            self.owners[color as usize].store(core, Relaxed);
        }
    }

    fn name(&self) {
        for (at, core) in self.cores.iter().enumerate() {
            charge::name(core, "core", at);
        }
        charge::name(&self.owners[..], "map", 0);
        charge::name(&self.colors[..], "color-queue", 0);
        charge::name(&self.steal_cost_ns, "steal-cost", 0);
    }

    fn waited(&self) -> Duration {
        self.cores.iter().map(|core| core.queue.lock().waited).sum()
    }

    fn steals(&self) -> Option<Steals> {
        let of = |core: &CachePadded<Core>| core.queue.lock().of.steals;
        self.stealing
            .is_some()
            .then(|| Steals::sum(self.cores.iter().map(of)))
    }
}

/// See the module text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mely2010 {
    name: &'static str,
    stealing: Option<Heuristics>,
}

const fn one(name: &'static str, locality: bool, time_left: bool, penalty: bool) -> Mely2010 {
    Mely2010 {
        name,
        stealing: Some(Heuristics {
            locality,
            time_left,
            penalty,
        }),
    }
}

/// With all heuristics, without stealing, with libasync-smp's algorithm, and with each heuristic.
pub(crate) const MODES: [Mely2010; 6] = [
    one("mely-2010", true, true, true),
    Mely2010 {
        name: "mely-2010-no-stealing",
        stealing: None,
    },
    one("mely-2010-base", false, false, false),
    one("mely-2010-locality", true, false, false),
    one("mely-2010-time-left", false, true, false),
    one("mely-2010-penalty", false, false, true),
];

impl Scheduler for Mely2010 {
    fn name(&self) -> &'static str {
        self.name
    }

    fn runs(&self, workload: Workload, cores: usize) -> bool {
        // On one core there is nobody to steal from.
        (cores > 1 || self.stealing.is_none()) && workload.is_of_papers()
    }

    fn run(
        &self,
        workload: Workload,
        world: &'static World,
        cores: usize,
    ) -> Result<Extras, String> {
        let nearest = machine::nearest(cores)?;
        let queues = Mely::new(workload.colors_end(cores), cores, self.stealing, nearest);
        super::run(queues, true, workload, world, cores)
    }
}

#[cfg(test)]
mod tests {
    use super::super::event::{Depot, Pool};
    use super::*;

    /// Queues events, each of a color and of a time in ns, on core 0 of two.
    fn queued(by: Heuristics, events: &[(u32, u32)]) -> Mely {
        let mely = Mely::new(100, 2, Some(by), vec![vec![1], vec![0]]);
        for &(color, time_ns) in events {
            assert_eq!(color % 2, 0, "a color of core 0");
            insert(&mely, color, time_ns);
        }
        mely
    }

    fn insert(mely: &Mely, color: u32, time_ns: u32) {
        let mut pool = Pool::new(Depot::new(true));
        mely.insert(pool.event(color, time_ns, |_| {}), Kind::Cpucb);
    }

    const BASE: Heuristics = Heuristics {
        locality: false,
        time_left: false,
        penalty: false,
    };
    const TIME_LEFT: Heuristics = Heuristics {
        time_left: true,
        ..BASE
    };

    fn colors_of(mely: &Mely, core: usize) -> Vec<u32> {
        let queue = mely.cores[core].queue.lock();
        queue.of.queue.iter(&mely.colors).collect()
    }

    #[test]
    fn colors_take_turns_of_ten_events() {
        let events: Vec<_> = (0..25).map(|nth| (2 + 2 * (nth % 2), 1)).collect();
        let mely = queued(BASE, &events);
        let ran = std::iter::from_fn(|| mely.take(0).map(|event| event.color));
        let ran: Vec<_> = ran.collect();
        let expected = [(2, 10), (4, 10), (2, 3), (4, 2)];
        let expected = expected.iter().flat_map(|&(color, n)| vec![color; n]);
        assert_eq!(ran, expected.collect::<Vec<_>>());
        assert_eq!(colors_of(&mely, 0), [] as [u32; 0]);
    }

    #[test]
    fn a_base_thief_takes_the_first_color_with_fewer_than_half_of_the_events() {
        let events = [(2, 7), (4, 7), (2, 7), (6, 7), (4, 7), (2, 7)];
        let mely = queued(BASE, &events);
        assert!(mely.steal(1, BASE));
        assert_eq!(
            (colors_of(&mely, 0), colors_of(&mely, 1)),
            (vec![2, 6], vec![4])
        );
        let steals = mely.steals().unwrap();
        assert_eq!((steals.won, steals.stolen.as_nanos()), (1, 14));
        // What is posted from now on goes to the thief.
        insert(&mely, 4, 0);
        assert_eq!(mely.cores[1].len.load(Relaxed), 3);
    }

    #[test]
    fn time_left_takes_of_the_highest_interval_and_nothing_that_is_not_worth_it() {
        let mely = queued(TIME_LEFT, &[(2, 900), (4, 3_000), (6, 20_000), (8, 5_000)]);
        assert!(mely.steal(1, TIME_LEFT));
        assert_eq!(colors_of(&mely, 1), [6]);
        // Three more, which are not worth it any longer once the cost is known.
        mely.steal_cost_ns.store(100_000, Relaxed);
        insert(&mely, 4, 0);
        insert(&mely, 8, 0);
        assert!(!mely.steal(1, TIME_LEFT));
        // A second post makes a color worthy, and a run takes that back.
        mely.steal_cost_ns.store(1_000, Relaxed);
        insert(&mely, 2, 200);
        assert_eq!(mely.cores[0].queue.lock().of.worthy, 1);
        assert_eq!(mely.take(0).unwrap().color, 2);
        assert_eq!(mely.cores[0].queue.lock().of.worthy, 0);
    }

    #[test]
    fn what_runs_is_not_stolen() {
        let mely = queued(TIME_LEFT, &[(2, 9_000), (2, 9_000)]);
        drop(mely.take(0));
        assert!(!mely.steal(1, TIME_LEFT));
    }

    #[test]
    fn both_locks_at_once_move_the_same() {
        let mut mely = queued(BASE, &[(2, 7), (4, 7), (2, 7)]);
        mely.open.one_lock = false;
        assert!(mely.steal(1, BASE));
        assert_eq!(
            (colors_of(&mely, 0), colors_of(&mely, 1)),
            (vec![2], vec![4])
        );
        assert_eq!(mely.owners[4].load(Relaxed), 1);
    }
}
