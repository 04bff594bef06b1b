//! A core's clock, what it has asked for, and for how long it goes on without it.
//!
//! Who loads goes on with what follows while the line is on its way, for the *reorder window*: so
//! much work, not so much time. Time that passes while the core can do nothing, here called stalls,
//! brings no load nearer to the end of its window. A line that was asked for early is waited for by
//! nobody until it is loaded. Stores wait for their lines beside each other; others see them in
//! their order, and after the loads before them.
//!
//! Seen from the load, the window is how far ahead of its turn it is made: if another core takes its
//! line in between, the load is made again in its turn, and all that follows is thrown away. So it
//! is with the load of a line that was polled, which is predicted to find what it found before. No
//! load is made ahead of a *barrier*: a fence, a reading of the clock, a pause, a sleep, a load that
//! is made again. (Loads are made ahead of read-modify-writes.)

use crate::costs::Ps;
use crate::rows::Rows;

/// Lines that a core can have asked for and not got yet.
const ASKED_MAX: usize = 16;
/// Lines that others have taken from a core: as many of the last ones are known.
const LOST_MAX: usize = 8;

/// What a line has cost.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Cost {
    /// How often it came from another core, or was taken from one.
    pub(crate) transfers: u64,
    /// What cores waited for that.
    pub(crate) waited: Ps,
    /// What cores waited for it to come from their own farther caches, or from memory.
    pub(crate) missed: Ps,
}

/// A line on its way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    pub(crate) line: u32,
    /// It comes from another core.
    pub(crate) is_transfer: bool,
    pub(crate) arrives_at: Ps,
}

/// What a core has under way.
#[derive(Clone, Debug)]
pub(crate) struct Core {
    pub(crate) now: Ps,
    /// The time in which it could do nothing: the rest of its time is work.
    stalled: Ps,
    /// The end of the last such time.
    stalled_until: Ps,
    reorder: Ps,
    /// Each with the work after which the core stops until it is here: never, if it was asked for
    /// early. Loads are in their order.
    asked: Vec<(Asked, Ps)>,
    /// The end of the first load's window; never, if there is none.
    stops_after: Ps,
    /// When all that was asked for is here.
    arrived_at: Ps,
    /// When all that was loaded is.
    loaded_at: Ps,
    /// The store that is in the cache last. Its time may be over.
    last_store: Asked,
    pub(crate) rows: Rows,
    /// Lines that others have taken from it lately, each with the work that it had done then.
    lost: [(u32, Ps); LOST_MAX],
    lost_next: usize,
    /// The work that it had done at the last barrier.
    barrier: Ps,
    /// It polled at the barrier: what it loads first of that which it lost meanwhile was polled.
    polled: bool,
    /// Since the last pause every access hit a line that it has, and none was a read-modify-write.
    pub(crate) quiet: bool,
    /// Accesses so far.
    pub(crate) accesses: u64,
}

impl Core {
    pub(crate) fn new(reorder: Ps) -> Core {
        Core {
            now: 0,
            stalled: 0,
            stalled_until: 0,
            reorder,
            asked: Vec::new(),
            stops_after: Ps::MAX,
            arrived_at: 0,
            loaded_at: 0,
            last_store: Asked {
                line: 0,
                is_transfer: false,
                arrives_at: 0,
            },
            rows: Rows::new(),
            lost: [(u32::MAX, 0); LOST_MAX],
            lost_next: 0,
            barrier: 0,
            polled: false,
            quiet: false,
            accesses: 0,
        }
    }

    /// It can do nothing for this time.
    #[inline]
    pub(crate) fn stall(&mut self, time: Ps) {
        self.stall_from(self.now, time);
    }

    /// The same from an earlier time on: what it seems to have done since then is done later.
    #[inline]
    fn stall_from(&mut self, start: Ps, time: Ps) {
        self.now += time;
        self.stalled += time;
        self.stalled_until = self.stalled_until.max(start + time);
    }

    fn worked(&self) -> Ps {
        self.now - self.stalled
    }

    /// Another core has taken a line from it, at a time at which its own clock need not be yet, or
    /// no more: each goes ahead of others, and makes a step at once. If it `works` it does until
    /// then.
    pub(crate) fn lose(&mut self, line: u32, at: Ps, works: bool) {
        self.find_lost(line);
        let since = self.now.saturating_sub(at.max(self.stalled_until));
        let until = if works {
            at.saturating_sub(self.now)
        } else {
            0
        };
        self.lost[self.lost_next] = (line, self.worked() - since + until);
        self.lost_next = (self.lost_next + 1) % LOST_MAX;
    }

    /// The line is here again: returns the work that it had done when that was taken, if it was
    /// lately.
    pub(crate) fn find_lost(&mut self, line: u32) -> Option<Ps> {
        let lost = self.lost.iter_mut().find(|(its, _)| *its == line)?;
        lost.0 = u32::MAX;
        Some(lost.1)
    }

    /// It has polled, and lost a line.
    pub(crate) fn end_polling(&mut self) {
        self.polled = true;
    }

    /// No load that comes later is made before this.
    pub(crate) fn set_barrier(&mut self) {
        self.barrier = self.worked();
        self.polled = false;
    }

    /// Whether a line that it loads now was polled, or taken from it when it may have been loaded,
    /// ahead of its turn: the load is made again, and what comes later is not made before.
    pub(crate) fn loads_again(&mut self, line: u32) -> bool {
        let worked = self.worked();
        let again = self.find_lost(line).is_some_and(|at| {
            if at > self.barrier {
                worked.saturating_sub(at) < self.reorder
            } else {
                // It does no work while it polls, or sleeps.
                self.polled && at == self.barrier
            }
        });
        if again {
            self.set_barrier();
        }
        again
    }

    /// It can do nothing until this line is here; it stopped at `stopped_at`, and what it seems to
    /// have done since then is done later.
    pub(crate) fn wait(&mut self, asked: Asked, stopped_at: Ps, costs: &mut [Cost]) {
        let time = asked.arrives_at.saturating_sub(stopped_at);
        let cost = &mut costs[asked.line as usize];
        if asked.is_transfer {
            cost.waited += time;
        } else {
            cost.missed += time;
        }
        self.stall_from(stopped_at, time);
    }

    /// The same of one that it has under way.
    fn wait_for(&mut self, at: usize, stopped_at: Ps, costs: &mut [Cost]) {
        let (asked, _) = self.asked.remove(at);
        self.wait(asked, stopped_at, costs);
        self.find_first();
    }

    #[inline(never)]
    fn wait_for_first(&mut self, stopped_at: Ps, costs: &mut [Cost]) {
        let is_first = |&(_, stops_after): &(Asked, Ps)| stops_after == self.stops_after;
        let at = self.asked.iter().position(is_first);
        self.wait_for(at.expect("of the first load"), stopped_at, costs);
    }

    fn find_first(&mut self) {
        let ends = self.asked.iter().map(|&(_, stops_after)| stops_after);
        self.stops_after = ends.min().unwrap_or(Ps::MAX);
    }

    /// Waits for what it has gone on without for too long. To be called after each step of the
    /// clock.
    #[inline]
    pub(crate) fn settle(&mut self, costs: &mut [Cost]) {
        while self.now - self.stalled > self.stops_after {
            self.wait_for_first(self.stops_after + self.stalled, costs);
        }
    }

    /// Waits for all loads.
    pub(crate) fn complete(&mut self, costs: &mut [Cost]) {
        self.settle(costs);
        while self.stops_after != Ps::MAX {
            self.wait_for_first(self.now, costs);
        }
    }

    /// Waits for all loads, and until all stores are in the cache.
    pub(crate) fn drain(&mut self, costs: &mut [Cost]) {
        self.complete(costs);
        if self.last_store.arrives_at > self.now {
            self.wait(self.last_store, self.now, costs);
            self.quiet = false;
        }
    }

    /// Whether one more can be asked for.
    pub(crate) fn has_room(&mut self) -> bool {
        if self.asked.len() == ASKED_MAX {
            self.asked.retain(|(asked, _)| asked.arrives_at > self.now);
            self.find_first();
        }
        self.asked.len() < ASKED_MAX
    }

    /// Waits until one more can be asked for; returns whether it had to.
    pub(crate) fn make_room(&mut self, costs: &mut [Cost]) -> bool {
        if self.has_room() {
            return false;
        }
        let lines = self.asked.iter().enumerate();
        let next = lines.min_by_key(|(_, (asked, _))| asked.arrives_at);
        let (at, _) = next.expect("all the room is taken");
        self.wait_for(at, self.now, costs);
        true
    }

    /// A line is on its way, and nobody waits for it. There is room.
    pub(crate) fn ask(&mut self, asked: Asked) {
        self.arrived_at = self.arrived_at.max(asked.arrives_at);
        self.asked.push((asked, Ps::MAX));
    }

    /// A line is on its way that was loaded. There is room.
    pub(crate) fn load(&mut self, asked: Asked) {
        let stops_after = self.now - self.stalled + self.reorder;
        self.stops_after = self.stops_after.min(stops_after);
        self.arrived_at = self.arrived_at.max(asked.arrives_at);
        self.loaded_at = self.loaded_at.max(asked.arrives_at);
        self.asked.push((asked, stops_after));
    }

    /// A line that is here or on its way is loaded; if `waits`, what follows needs it at once.
    #[inline]
    pub(crate) fn load_again(&mut self, line: u32, waits: bool, costs: &mut [Cost]) {
        let Some(at) = self.find(line) else {
            return;
        };
        self.quiet = false;
        if waits {
            self.wait_for(at, self.now, costs);
        } else if self.asked[at].1 == Ps::MAX {
            let (asked, _) = self.asked.remove(at);
            self.load(asked);
        }
    }

    /// A line that is here or on its way is written: the store is in the cache when that is here.
    #[inline]
    pub(crate) fn store_again(&mut self, line: u32) {
        if let Some(at) = self.find(line) {
            self.store(self.asked[at].0);
        }
    }

    /// Where a line that is on its way stands among what was asked for.
    #[inline]
    fn find(&self, line: u32) -> Option<usize> {
        if self.now < self.arrived_at {
            self.find_asked(line)
        } else {
            None
        }
    }

    #[cold]
    fn find_asked(&self, line: u32) -> Option<usize> {
        // To be read, and then to be written: the later one has it all.
        let is_it = |(asked, _): &(Asked, Ps)| asked.line == line && asked.arrives_at > self.now;
        self.asked.iter().rposition(is_it)
    }

    /// One more store, whose line is on its way.
    pub(crate) fn store(&mut self, asked: Asked) {
        if asked.arrives_at > self.last_store.arrives_at {
            self.last_store = asked;
        }
    }

    /// When others can see what it stores now: not before what it has loaded is here, and what it
    /// has stored before is in its cache.
    #[inline]
    pub(crate) fn seen_at(&self) -> Ps {
        let stored_at = self.last_store.arrives_at;
        self.now.max(self.loaded_at).max(stored_at)
    }
}
