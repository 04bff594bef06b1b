//! libasync-smp: a queue of runnable callbacks for each core under a spinlock each, and a map from
//! colors to cores.
//!
//! A core takes, of the first few callbacks of its queue, the first of the color that it ran last;
//! or else the left-most (2003, §3.4). With workstealing, a core whose queue is empty takes all
//! callbacks of one color from another one's (Mely, §II-B and Figure 2):
//!
//! - Victims: the core with the most queued callbacks first, then by number, round about.
//! - A victim has at least two colors.
//! - The first color in the queue that the victim does not run and that has fewer than half of the
//!   queued callbacks goes.
//! - All of its callbacks go, found by scanning the queue until the color's counter says that it
//!   was the last; they are appended to the thief's queue, and the map is changed.
//!
//! Where the papers' text has a race, or leaves a choice:
//!
//! - A poster reads the map, locks the core, and reads the map again: it may have been stolen from
//!   between (checklist N3).
//! - Figure 2 unlocks the victim before it locks the thief. Meanwhile the set is in neither queue,
//!   and what is posted to the color could overtake it or run beside it (N2). Here the map says
//!   that the color is on its way, and who posts to it waits; or the thief holds both locks, taken
//!   in the order of their numbers ([`super::open`]).
//! - With the 2003 paper's 1,024 entries, colors that share one must move together, of which no
//!   text speaks. The map here is exact, an entry for each color of the workload, as Mely's paper
//!   has it for both of its systems (N1).
//! - What an idle core does is not told: it spins. So whatever it may steal never waits, as the
//!   2003 paper promises (N6).

use super::event::Event;
use super::open::Open;
use super::queue::{EXAMINED, Kind, Lock, Locked, Queue};
use super::thief::{ON_ITS_WAY, lock_owner, victims};
use super::{Queues, Steals, stopping};
use crossbeam_utils::CachePadded;
use mely_bench::schedulers::{Extras, Scheduler};
use mely_bench::sync::atomic::{
    AtomicBool, AtomicU32, AtomicUsize, Ordering::Relaxed, Ordering::Release,
};
use mely_bench::sync::{self, SpinMutexGuard, charge};
use mely_bench::{Workload, World};
use std::time::Duration;

struct Smp {
    cores: Vec<CachePadded<Core>>,
    /// The core of each color, changed under the lock of the core that it says.
    owners: Vec<AtomicUsize>,
    /// Queued callbacks of each color, under the lock of its core.
    pending: Vec<AtomicU32>,
    stealing: bool,
    open: Open,
}

struct Core {
    queue: Lock<CoreQueue>,
    /// As in the queue, for who has not locked it: the victims' order, and whether to look.
    len: AtomicUsize,
}

#[derive(Default)]
struct CoreQueue {
    queue: Queue<Smp>,
    len: usize,
    /// Different colors in the queue.
    colors: usize,
    /// What the core runs.
    current: Option<u32>,
    /// As a thief.
    steals: Steals,
}

impl Smp {
    fn new(colors: usize, cores: usize, stealing: bool) -> Smp {
        let core = |_| {
            CachePadded::new(Core {
                queue: Lock::new(CoreQueue::default()),
                len: AtomicUsize::new(0),
            })
        };
        Smp {
            cores: (0..cores).map(core).collect(),
            owners: (0..colors)
                .map(|color| AtomicUsize::new(color % cores))
                .collect(),
            pending: (0..colors).map(|_| AtomicU32::new(0)).collect(),
            stealing,
            open: Open::get(),
        }
    }

    /// Locks the core that has a color.
    fn lock_owner(&self, color: u32) -> (&Core, SpinMutexGuard<'_, Locked<CoreQueue>>) {
        let owner = &self.owners[color as usize];
        let (number, queue) = lock_owner(owner, |core| &self.cores[core].queue);
        (&self.cores[number], queue)
    }

    /// Takes what a core runs next.
    fn take(&self, core: usize) -> Option<Box<Event<Smp>>> {
        let core = &self.cores[core];
        let queue = &mut core.queue.lock().of;
        let last_color = queue.current.take();
        let same = |(_, event): &(_, &Event<Smp>)| last_color == Some(event.color);
        let place = queue.queue.iter().take(EXAMINED).find(same);
        let (place, _) = place.or_else(|| queue.queue.iter().next())?;
        // SAFETY: the place is of this queue, which has not changed since.
        let event = unsafe { queue.queue.remove(place) };
        queue.current = Some(event.color);
        let pending = &self.pending[event.color as usize];
        // No read-modify-write: the lock is what excludes others.
        pending.store(pending.load(Relaxed) - 1, Relaxed);
        queue.colors -= usize::from(pending.load(Relaxed) == 0);
        queue.len -= 1;
        core.len.store(queue.len, Relaxed);
        Some(event)
    }

    /// Mely's Figure 2. True if anything was stolen.
    fn steal(&self, thief: usize) -> bool {
        let start = sync::now();
        let len = |core: usize| self.cores[core].len.load(Relaxed);
        victims(thief, self.cores.len(), len).any(|victim| self.steal_from(victim, thief, start))
    }

    fn steal_from(&self, victim: usize, thief: usize, start: Duration) -> bool {
        if self.open.look && self.cores[victim].len.load(Relaxed) < 2 {
            return false;
        }
        if self.open.one_lock {
            let Some(mut from) = self.open.lock(&self.cores[victim].queue) else {
                return false;
            };
            let Some(color) = self.choose(&from.of) else {
                return false;
            };
            let mut set = Queue::default();
            let (count, time_ns) = self.take_color(color, victim, &mut from.of, &mut set);
            self.owners[color as usize].store(ON_ITS_WAY, Release);
            drop(from);
            let own = &mut self.cores[thief].queue.lock().of;
            set.move_color(color, count, false, &mut own.queue);
            self.give_color(color, count, thief, own);
            own.steals.stolen += time_ns;
            own.steals.cost += sync::now() - start;
            return true;
        }
        let queue = |core: usize| &self.cores[core].queue;
        let Some((mut own, mut from)) = self.open.lock_both(thief, victim, queue) else {
            return false;
        };
        let (own, from) = (&mut own.of, &mut from.of);
        let Some(color) = self.choose(from) else {
            return false;
        };
        let (count, time_ns) = self.take_color(color, victim, from, &mut own.queue);
        self.give_color(color, count, thief, own);
        own.steals.stolen += time_ns;
        own.steals.cost += sync::now() - start;
        true
    }

    /// Which color goes, if any.
    fn choose(&self, from: &CoreQueue) -> Option<u32> {
        if from.colors < 2 {
            return None;
        }
        let pending = |color: u32| self.pending[color as usize].load(Relaxed);
        let mut events = from.queue.iter().map(|(_, event)| event);
        let choice = events.find(|event| {
            let few = 2 * (pending(event.color) as usize) < from.len;
            from.current != Some(event.color) && few
        });
        choice.map(|event| event.color)
    }

    /// Takes a color out of a victim: how many callbacks, and what they take.
    fn take_color(
        &self,
        color: u32,
        victim: usize,
        from: &mut CoreQueue,
        to: &mut Queue<Smp>,
    ) -> (u32, Duration) {
        let count = self.pending[color as usize].load(Relaxed);
        let time = from
            .queue
            .move_color(color, count, self.open.scan_to_end, to);
        from.colors -= 1;
        from.len -= count as usize;
        self.cores[victim].len.store(from.len, Relaxed);
        (count, time)
    }

    /// Counts a color that the thief has got.
    fn give_color(&self, color: u32, count: u32, thief: usize, own: &mut CoreQueue) {
        own.colors += 1;
        own.len += count as usize;
        self.owners[color as usize].store(thief, Release);
        self.cores[thief].len.store(own.len, Relaxed);
        own.steals.won += 1;
        own.steals.colors += 1;
    }
}

impl Queues for Smp {
    fn insert(&self, event: Box<Event<Smp>>, kind: Kind) {
        let color = event.color;
        let (core, mut queue) = self.lock_owner(color);
        let queue = &mut queue.of;
        let pending = &self.pending[color as usize];
        queue.colors += usize::from(pending.load(Relaxed) == 0);
        pending.store(pending.load(Relaxed) + 1, Relaxed);
        queue.len += 1;
        core.len.store(queue.len, Relaxed);
        queue.queue.insert(event, kind);
    }

    fn next(&self, core: usize, stop: &AtomicBool) -> Option<Box<Event<Smp>>> {
        loop {
            if stopping(stop) {
                return None;
            }
            if let Some(event) = self.take(core) {
                return Some(event);
            }
            while self.cores[core].len.load(Relaxed) == 0 && !stopping(stop) {
                if self.stealing && self.steal(core) {
                    break;
                }
                charge::pauses(self.open.pauses);
            }
        }
    }

    fn place(&self, color: u32, core: usize) {
        let (_, queue) = self.lock_owner(color);
        let idle = self.pending[color as usize].load(Relaxed) == 0;
        if idle && queue.of.current != Some(color) {
            self.owners[color as usize].store(core, Relaxed);
        }
    }

    fn name(&self) {
        for (at, core) in self.cores.iter().enumerate() {
            charge::name(core, "core", at);
        }
        charge::name(&self.owners[..], "map", 0);
        charge::name(&self.pending[..], "pending", 0);
    }

    fn waited(&self) -> Duration {
        self.cores.iter().map(|core| core.queue.lock().waited).sum()
    }

    fn steals(&self) -> Option<Steals> {
        let of = |core: &CachePadded<Core>| core.queue.lock().of.steals;
        self.stealing
            .then(|| Steals::sum(self.cores.iter().map(of)))
    }
}

/// See the module text.
#[derive(Debug)]
pub(crate) struct LibasyncSmp {
    pub(crate) stealing: bool,
    /// With free lists. Without, it is the second line of the 2003 paper's Table 2, and only there.
    pub(crate) recycles: bool,
}

impl Scheduler for LibasyncSmp {
    fn name(&self) -> &'static str {
        match (self.stealing, self.recycles) {
            (true, _) => "libasync-smp-ws",
            (false, true) => "libasync-smp",
            (false, false) => "libasync-smp-malloc",
        }
    }

    fn runs(&self, workload: Workload, cores: usize) -> bool {
        // On one core there is nobody to steal from.
        let stealing = cores > 1 || !self.stealing;
        // Its cores spin, for work and for locks: with other threads on them, those that it waits
        // for get a processor once in a time slice.
        let alone = !workload.oversubscribes();
        alone && stealing && (self.recycles || matches!(workload, Workload::Affinity(_)))
    }

    fn run(
        &self,
        workload: Workload,
        world: &'static World,
        cores: usize,
    ) -> Result<Extras, String> {
        let queues = Smp::new(workload.colors_end(cores), cores, self.stealing);
        super::run(queues, self.recycles, workload, world, cores)
    }
}

#[cfg(test)]
mod tests {
    use super::super::event::{Depot, Pool};
    use super::*;

    /// Queues callbacks of these colors on core 0 of two.
    fn queued(colors: &[u32]) -> Smp {
        let smp = Smp::new(100, 2, true);
        let mut pool = Pool::new(Depot::new(true));
        for &color in colors {
            assert_eq!(color % 2, 0, "a color of core 0");
            smp.insert(pool.event(color, 7, |_| {}), Kind::Cpucb);
        }
        smp
    }

    fn colors_of(smp: &Smp, core: usize) -> Vec<u32> {
        let queue = smp.cores[core].queue.lock();
        queue
            .of
            .queue
            .iter()
            .map(|(_, event)| event.color)
            .collect()
    }

    #[test]
    fn a_thief_takes_the_first_color_with_fewer_than_half_of_the_callbacks() {
        let smp = queued(&[2, 4, 2, 6, 4, 2]);
        assert!(smp.steal(1));
        assert_eq!(colors_of(&smp, 0), [2, 2, 6, 2]);
        assert_eq!(colors_of(&smp, 1), [4, 4]);
        let steals = smp.steals().unwrap();
        assert_eq!((steals.won, steals.stolen.as_nanos()), (1, 14));
        // What is posted from now on goes to the thief.
        let mut pool = Pool::new(Depot::new(true));
        smp.insert(pool.event(4, 0, |_| {}), Kind::Cpucb);
        assert_eq!(colors_of(&smp, 1), [4, 4, 4]);
    }

    #[test]
    fn neither_half_nor_a_lone_color_nor_what_runs_is_stolen() {
        assert!(!queued(&[2, 4]).steal(1));
        assert!(!queued(&[2, 2]).steal(1));
        let smp = queued(&[2, 2, 4, 4, 4]);
        drop(smp.take(0));
        // Of 2, 4, 4, 4 only the color that runs is in the minority.
        assert!(!smp.steal(1));
    }

    #[test]
    fn only_an_idle_color_is_placed() {
        let smp = queued(&[2]);
        smp.place(2, 1);
        smp.place(4, 1);
        assert_eq!(smp.owners[2].load(Relaxed), 0);
        assert_eq!(smp.owners[4].load(Relaxed), 1);
    }
}
