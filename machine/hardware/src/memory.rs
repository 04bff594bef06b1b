//! Lines of memory: in which caches each is, who wrote it last, and until when it is on its way.
//!
//! What is kept of a line is the protocol that all coherent machines have in common. A line is in
//! any number of caches, or has an *owner*: a core that may write it, and that others must ask. To
//! write, a core takes the line from all caches that are not on its own way to memory; what that
//! takes is decided by the farthest. To read, it gets a copy from its nearest cache that has one,
//! else from the nearest other, else from memory.
//!
//! Caches are finite: sets of eight lines, the oldest of which leaves. Level 2 includes level 1,
//! and no other level includes another.

use crate::costs::{Costs, Hop, Ps};

/// Lines of a set.
const WAYS: usize = 8;
const EMPTY: u32 = u32::MAX;
/// Of a line that belongs to no core.
pub(crate) const NOBODY: u16 = u16::MAX;
/// Steps in one direction that make a row.
const STEPS_MIN: u32 = 2;
/// Rows that a core's prefetcher follows.
const ROWS: usize = 16;
/// Lines that a core can have asked for and not got yet.
const IN_FLIGHT_MAX: usize = 16;
/// Stores that a core can have made and that are not in its cache yet.
const STORES_MAX: u32 = 48;
/// Lines of a page, whose memory is on one node.
const PAGE_LINES: usize = 64;
const NO_NODE: u16 = u16::MAX;

/// How a line is accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Load,
    /// A load that the next one waits for: a link of a list.
    Follow,
    Store,
    Rmw,
}

/// What came of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Done,
    /// The line is on its way to another core until then.
    Busy(Ps),
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Line {
    /// Who may write it.
    pub(crate) owner: u16,
    /// Who used it last, or is getting it.
    pub(crate) user: u16,
    /// Until then nobody but its user gets it.
    pub(crate) free_at: Ps,
    /// Who was its owner before, and until when that one has it still: whoever asks for a line takes
    /// half of the way to be heard.
    before: u16,
    leaves_at: Ps,
}

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

/// What a core has under way.
#[derive(Clone, Debug)]
pub(crate) struct Core {
    pub(crate) now: Ps,
    /// When all its stores are in its cache, and the line of the last.
    drained_at: Ps,
    drained_line: u32,
    /// One of them takes its line from another core.
    drains_transfer: bool,
    stores: u32,
    rows: [Row; ROWS],
    next_row: usize,
    in_flight: Vec<(u32, Ps)>,
    in_flight_until: Ps,
    /// Since the last pause every access hit a line that it has, and none was a read-modify-write.
    pub(crate) quiet: bool,
    /// Accesses so far.
    pub(crate) accesses: u64,
}

impl Core {
    fn new() -> Core {
        Core {
            now: 0,
            drained_at: 0,
            drained_line: 0,
            drains_transfer: false,
            stores: 0,
            rows: [Row::NONE; ROWS],
            next_row: 0,
            in_flight: Vec::new(),
            in_flight_until: 0,
            quiet: false,
            accesses: 0,
        }
    }

    #[cold]
    fn find_arrival(&self, line: u32) -> Option<Ps> {
        let is_it = |&&(other, ready): &&(u32, Ps)| other == line && ready > self.now;
        let asked = self.in_flight.iter().filter(is_it);
        // To be read, and then to be written: the later one has it all.
        asked.map(|&(_, ready)| ready).max()
    }

    /// Whether the line goes on a row of lines that is known for one; it is the row's last from now
    /// on, or the first of a new one.
    #[inline]
    fn is_in_row(&mut self, line: u32) -> bool {
        for row in &mut self.rows {
            let step = line.wrapping_sub(row.last) as i32;
            if step.unsigned_abs() == 1 {
                row.steps = if step == row.step { row.steps + 1 } else { 1 };
                (row.last, row.step) = (line, step);
                return row.steps >= STEPS_MIN;
            }
        }
        self.rows[self.next_row] = Row {
            last: line,
            step: 0,
            steps: 0,
        };
        self.next_row = (self.next_row + 1) % ROWS;
        false
    }
}

/// Lines one behind the other, up or down.
#[derive(Clone, Copy, Debug)]
struct Row {
    last: u32,
    step: i32,
    steps: u32,
}

impl Row {
    const NONE: Row = Row {
        last: EMPTY,
        step: 0,
        steps: 0,
    };
}

/// What is in a cache, set by set. What was taken away is still here until its place is needed.
#[derive(Debug)]
struct Tags {
    lines: Box<[u32]>,
    next: Box<[u8]>,
}

impl Tags {
    fn new(lines: usize) -> Tags {
        let sets = lines.div_ceil(WAYS);
        Tags {
            lines: vec![EMPTY; sets * WAYS].into(),
            next: vec![0; sets].into(),
        }
    }

    #[inline]
    fn set_of(&self, line: u32) -> usize {
        // Neighbors are in different sets, and which is in which does not repeat with a power of
        // two.
        let mixed = u64::from(line.wrapping_mul(0x9E37_79B1));
        ((mixed * self.next.len() as u64) >> 32) as usize
    }

    /// Puts a line in; returns what was in its place.
    #[inline]
    fn insert(&mut self, line: u32) -> Option<u32> {
        let set = self.set_of(line);
        let ways = &mut self.lines[set * WAYS..(set + 1) * WAYS];
        if let Some(way) = ways.iter().position(|&its| its == line || its == EMPTY) {
            ways[way] = line;
            return None;
        }
        let way = usize::from(self.next[set]) % WAYS;
        self.next[set] = self.next[set].wrapping_add(1);
        Some(std::mem::replace(&mut ways[way], line))
    }
}

/// See the module text.
#[derive(Debug)]
pub(crate) struct Memory {
    pub(crate) costs: Costs,
    pub(crate) cores: Vec<Core>,
    lines: Vec<Line>,
    cost: Vec<Cost>,
    /// Of each line: in which caches it is.
    bits: Vec<u64>,
    tags: Vec<Tags>,
    homes: Vec<u16>,
    /// Cores of whose first cache a line was taken, since this was last emptied.
    pub(crate) robbed: Vec<(u16, u32)>,
}

impl Memory {
    pub(crate) fn new(costs: Costs) -> Memory {
        Memory {
            cores: vec![Core::new(); costs.cores],
            lines: Vec::new(),
            cost: Vec::new(),
            bits: Vec::new(),
            tags: costs
                .caches
                .iter()
                .map(|cache| Tags::new(cache.lines))
                .collect(),
            homes: Vec::new(),
            robbed: Vec::new(),
            costs,
        }
    }

    /// Makes room for this many lines.
    #[inline]
    pub(crate) fn grow(&mut self, lines: usize) {
        if lines > self.lines.len() {
            self.grow_to(lines.next_multiple_of(4096));
        }
    }

    #[cold]
    fn grow_to(&mut self, lines: usize) {
        let line = Line {
            owner: NOBODY,
            user: NOBODY,
            free_at: 0,
            before: NOBODY,
            leaves_at: 0,
        };
        self.lines.resize(lines, line);
        self.cost.resize(lines, Cost::default());
        self.bits.resize(lines * self.costs.words, 0);
        self.homes.resize(lines / PAGE_LINES, NO_NODE);
    }

    pub(crate) fn line(&mut self, line: u32) -> &mut Line {
        &mut self.lines[line as usize]
    }

    pub(crate) fn cost(&self, line: u32) -> Cost {
        self.cost.get(line as usize).copied().unwrap_or_default()
    }

    /// Forgets what lines have cost.
    pub(crate) fn forget_costs(&mut self) {
        self.cost.fill(Cost::default());
    }

    #[inline]
    fn has(&self, line: u32, cache: usize) -> bool {
        self.bits[line as usize * self.costs.words + cache / 64] >> (cache % 64) & 1 != 0
    }

    #[inline]
    fn set(&mut self, line: u32, cache: usize) {
        self.bits[line as usize * self.costs.words + cache / 64] |= 1 << (cache % 64);
    }

    #[inline]
    fn clear(&mut self, line: u32, cache: usize) {
        self.bits[line as usize * self.costs.words + cache / 64] &= !(1 << (cache % 64));
    }

    #[inline]
    fn first(&self, core: usize) -> Hop {
        self.costs.paths[core][0]
    }

    /// Whether a core could read the line without asking anybody.
    #[inline]
    fn hits(&self, core: usize, line: u32) -> bool {
        let owner = self.lines[line as usize].owner;
        (owner == NOBODY || owner == core as u16) && self.has(line, self.first(core).cache)
    }

    /// Accesses a line, by a core at its own time.
    #[inline]
    pub(crate) fn access(&mut self, core: usize, line: u32, kind: Kind) -> Access {
        self.cores[core].accesses += 1;
        match kind {
            Kind::Load => self.load(core, line, false),
            Kind::Follow => self.load(core, line, true),
            Kind::Store => {
                self.store(core, line);
                Access::Done
            }
            Kind::Rmw => self.rmw(core, line),
        }
    }

    #[inline]
    fn load(&mut self, core: usize, line: u32, follow: bool) -> Access {
        if self.hits(core, line) {
            let its = &mut self.lines[line as usize];
            let now = self.cores[core].now;
            if its.owner == core as u16 {
                its.free_at = its.free_at.max(now);
            }
            self.arrive(core, line);
            if follow {
                self.cores[core].now += self.costs.first_hit;
            }
            return Access::Done;
        }
        self.fetch(core, line)
    }

    /// When a line arrives that was asked for early, if it is still on its way.
    #[inline]
    fn arrival(&self, core: usize, line: u32) -> Option<Ps> {
        let its = &self.cores[core];
        (its.now < its.in_flight_until)
            .then(|| its.find_arrival(line))
            .flatten()
    }

    /// Waits for the rest, if the line was asked for before.
    #[inline]
    fn arrive(&mut self, core: usize, line: u32) {
        if let Some(ready) = self.arrival(core, line) {
            let its = &mut self.cores[core];
            self.cost[line as usize].missed += ready - its.now;
            its.now = ready;
            its.quiet = false;
        }
    }

    /// Whether a core still has a line that another has asked for.
    #[inline]
    fn has_still(&self, core: usize, line: u32) -> bool {
        let its = &self.lines[line as usize];
        its.before == core as u16 && self.cores[core].now < its.leaves_at
    }

    /// Writes a line that the core still has: who has asked for it sees what is written.
    fn write_still(&mut self, core: usize, line: u32) {
        let mut others = Vec::new();
        self.each_other(core, line, |cache| {
            others.extend(self.costs.first_of[cache])
        });
        self.robbed
            .extend(others.into_iter().map(|other| (other as u16, line)));
    }

    #[inline(never)]
    fn fetch(&mut self, core: usize, line: u32) -> Access {
        let now = self.cores[core].now;
        self.cores[core].quiet = false;
        if self.has_still(core, line) {
            return Access::Done;
        }
        let its = self.lines[line as usize];
        if its.free_at > now && its.user != core as u16 {
            return Access::Busy(its.free_at);
        }
        let takes = self.bring(core, line, now);
        self.cores[core].now = now + takes;
        Access::Done
    }

    /// Gets a copy of a line, beginning at `start`; returns what that takes.
    fn bring(&mut self, core: usize, line: u32, start: Ps) -> Ps {
        let row = self.cores[core].is_in_row(line);
        let owner = self.lines[line as usize].owner;
        let from_other = owner != NOBODY && owner != core as u16;
        let (takes, levels) = if from_other {
            let distance = self.costs.distance(core, owner.into());
            (self.transfer(distance, row), usize::MAX)
        } else if let Some((at, hop)) = self.nearest_own(core, line) {
            (if row { hop.row } else { hop.hit }, at)
        } else if let Some(distance) = self.nearest_other(core, line) {
            (self.transfer(distance, row), usize::MAX)
        } else {
            (self.memory_ps(core, line, row), usize::MAX)
        };
        let cost = &mut self.cost[line as usize];
        if from_other {
            // Until it is here, others wait; copies of it are made side by side.
            cost.transfers += 1;
            cost.waited += takes;
            let its = &mut self.lines[line as usize];
            (its.before, its.leaves_at) = (owner, start + takes / 2);
            (its.owner, its.user, its.free_at) = (NOBODY, core as u16, start + takes);
        } else {
            cost.missed += takes;
        }
        self.fill(core, line, levels);
        takes
    }

    fn transfer(&self, distance: usize, row: bool) -> Ps {
        if row {
            self.costs.transfer_row[distance]
        } else {
            self.costs.transfer[distance]
        }
    }

    /// The nearest cache on the core's way to memory that has the line.
    fn nearest_own(&self, core: usize, line: u32) -> Option<(usize, Hop)> {
        let path = self.costs.paths[core].iter().copied().enumerate();
        let mut path = path.filter(|(_, hop)| self.has(line, hop.cache));
        path.next()
    }

    /// The distance of the nearest other cache that has it.
    fn nearest_other(&self, core: usize, line: u32) -> Option<usize> {
        let mut nearest = None;
        self.each_other(core, line, |cache| {
            let distance = self.costs.cache_distance(core, cache);
            nearest = Some(nearest.map_or(distance, |before: usize| before.min(distance)));
        });
        nearest
    }

    /// Calls `f` with each cache that has the line and is not on the core's way to memory.
    #[inline]
    fn each_other(&self, core: usize, line: u32, mut f: impl FnMut(usize)) {
        let words = self.costs.words;
        let bits = &self.bits[line as usize * words..(line as usize + 1) * words];
        for (word, (&has, &own)) in bits.iter().zip(self.costs.path_of(core)).enumerate() {
            let mut rest = has & !own;
            while rest != 0 {
                f(word * 64 + rest.trailing_zeros() as usize);
                rest &= rest - 1;
            }
        }
    }

    fn memory_ps(&mut self, core: usize, line: u32, row: bool) -> Ps {
        let node = self.costs.node[core] as u16;
        let home = &mut self.homes[line as usize / PAGE_LINES];
        if *home == NO_NODE {
            *home = node;
        }
        let far = usize::from(*home != node);
        if row {
            self.costs.memory_row[far]
        } else {
            self.costs.memory[far]
        }
    }

    /// Puts a line into the core's caches, the nearest `levels` of them.
    fn fill(&mut self, core: usize, line: u32, levels: usize) {
        for at in 0..self.costs.paths[core].len().min(levels) {
            let cache = self.costs.paths[core][at].cache;
            if !self.has(line, cache) {
                self.set(line, cache);
                if let Some(old) = self.tags[cache].insert(line)
                    && self.has(old, cache)
                {
                    self.evict(old, cache);
                }
            }
        }
    }

    /// A line leaves a cache because there is no room.
    fn evict(&mut self, line: u32, cache: usize) {
        self.clear(line, cache);
        if self.costs.caches[cache].level == 2 {
            for at in 0..self.costs.caches[cache].cores.len() {
                let core = self.costs.caches[cache].cores[at];
                let first = self.first(core).cache;
                if first != cache && self.has(line, first) {
                    self.clear(line, first);
                    self.robbed.push((core as u16, line));
                }
            }
        }
        let owner = self.lines[line as usize].owner;
        if owner == NOBODY {
            return;
        }
        let near = |hop: &Hop| self.costs.caches[hop.cache].level <= 2 && self.has(line, hop.cache);
        if !self.costs.paths[usize::from(owner)].iter().any(near) {
            // Written back: whoever wants it next need not ask its last owner.
            self.lines[line as usize].owner = NOBODY;
        }
    }

    /// Takes the line from all caches but the core's own; returns the index of the distance to the
    /// farthest that had it.
    fn take(&mut self, core: usize, line: u32) -> Option<usize> {
        let words = self.costs.words;
        let owner = self.lines[line as usize].owner;
        let mut farthest = None;
        if owner != NOBODY && owner != core as u16 {
            farthest = Some(self.costs.distance(core, owner.into()));
        }
        for word in 0..words {
            let own = self.costs.path_bits[core * words + word];
            let at = line as usize * words + word;
            let mut rest = self.bits[at] & !own;
            self.bits[at] &= own;
            while rest != 0 {
                let cache = word * 64 + rest.trailing_zeros() as usize;
                rest &= rest - 1;
                let distance = self.costs.cache_distance(core, cache);
                farthest = Some(farthest.map_or(distance, |before: usize| before.max(distance)));
                if let Some(other) = self.costs.first_of[cache] {
                    self.robbed.push((other as u16, line));
                }
            }
        }
        farthest
    }

    /// A core's first cache has it, and no cache but the core's own.
    fn is_alone(&self, core: usize, line: u32) -> bool {
        let words = self.costs.words;
        let bits = &self.bits[line as usize * words..(line as usize + 1) * words];
        let mut pairs = bits.iter().zip(self.costs.path_of(core));
        pairs.all(|(&has, &own)| has & !own == 0)
    }

    #[inline]
    fn store(&mut self, core: usize, line: u32) {
        let is_here = self.has(line, self.first(core).cache);
        let is_own = self.lines[line as usize].owner == core as u16;
        if is_own || is_here && self.is_alone(core, line) {
            let now = self.cores[core].now;
            let its = &mut self.lines[line as usize];
            (its.owner, its.user) = (core as u16, core as u16);
            its.free_at = its.free_at.max(now);
            if let Some(ready) = self.arrival(core, line) {
                // It is in the cache when the line is.
                let its = &mut self.cores[core];
                if ready > its.drained_at {
                    (its.drained_at, its.drained_line) = (ready, line);
                }
            }
            if is_here {
                return;
            }
        }
        self.cores[core].quiet = false;
        self.store_later(core, line);
    }

    /// A store whose line is not here: the core goes on, and the line comes meanwhile.
    #[inline(never)]
    fn store_later(&mut self, core: usize, line: u32) {
        if self.has_still(core, line) {
            return self.write_still(core, line);
        }
        let its = self.lines[line as usize];
        let by_other = if its.user == core as u16 {
            0
        } else {
            its.free_at
        };
        let start = self.cores[core]
            .now
            .max(self.cores[core].drained_at)
            .max(by_other);
        let transfers = self.cost[line as usize].transfers;
        let takes = self.own(core, line, false, start);
        let transferred = self.cost[line as usize].transfers > transfers;
        let its = &mut self.lines[line as usize];
        its.free_at = start + takes;
        let its = &mut self.cores[core];
        its.drained_at = start + takes;
        its.drained_line = line;
        its.drains_transfer |= transferred;
        its.stores += 1;
        if its.stores > STORES_MAX {
            self.drain(core);
        }
    }

    /// Makes the core the owner; returns what that takes.
    fn own(&mut self, core: usize, line: u32, rmw: bool, start: Ps) -> Ps {
        let row = self.cores[core].is_in_row(line);
        let had = self.nearest_own(core, line);
        let owner = self.lines[line as usize].owner;
        let takes = match self.take(core, line) {
            Some(distance) => {
                let takes = if rmw {
                    self.costs.rmw[distance]
                } else {
                    self.transfer(distance, row)
                };
                let cost = &mut self.cost[line as usize];
                cost.transfers += 1;
                if rmw {
                    cost.waited += takes;
                }
                takes
            }
            None => {
                let miss = match had {
                    Some((_, hop)) if row => hop.row,
                    Some((_, hop)) => hop.hit,
                    None => self.memory_ps(core, line, row),
                };
                if rmw {
                    self.cost[line as usize].missed += miss;
                    miss + self.costs.rmw[0]
                } else {
                    miss
                }
            }
        };
        self.fill(core, line, usize::MAX);
        let its = &mut self.lines[line as usize];
        if owner != NOBODY && owner != core as u16 {
            (its.before, its.leaves_at) = (owner, start + takes / 2);
        }
        (its.owner, its.user) = (core as u16, core as u16);
        takes
    }

    /// Waits until the core's stores are in its cache.
    pub(crate) fn drain(&mut self, core: usize) {
        let its = &mut self.cores[core];
        if its.drained_at > its.now {
            let cost = &mut self.cost[its.drained_line as usize];
            if its.drains_transfer {
                cost.waited += its.drained_at - its.now;
            } else {
                cost.missed += its.drained_at - its.now;
            }
            its.now = its.drained_at;
            its.quiet = false;
        }
        (its.stores, its.drains_transfer) = (0, false);
    }

    fn rmw(&mut self, core: usize, line: u32) -> Access {
        self.cores[core].quiet = false;
        self.drain(core);
        let mut now = self.cores[core].now;
        let its = self.lines[line as usize];
        let takes = if its.owner == core as u16 && self.has(line, self.first(core).cache) {
            self.arrive(core, line);
            now = self.cores[core].now;
            self.costs.rmw[0]
        } else if self.has_still(core, line) {
            self.cores[core].now = now + self.costs.rmw[0];
            self.write_still(core, line);
            return Access::Done;
        } else if its.free_at > now && its.user != core as u16 {
            return Access::Busy(its.free_at);
        } else {
            self.own(core, line, true, now)
        };
        let its = &mut self.lines[line as usize];
        its.user = core as u16;
        its.free_at = now + takes;
        self.cores[core].now = now + takes;
        Access::Done
    }

    /// A fence: all stores are in the cache.
    pub(crate) fn fence(&mut self, core: usize) {
        self.drain(core);
        self.cores[core].now += self.costs.rmw[0];
    }

    /// Asks for a line, without waiting for it.
    pub(crate) fn prefetch(&mut self, core: usize, line: u32, to_write: bool) {
        let now = self.cores[core].now;
        let its = self.lines[line as usize];
        let is_here = self.hits(core, line)
            && (!to_write || its.owner == core as u16 || self.is_alone(core, line));
        if is_here || its.free_at > now && its.user != core as u16 {
            return;
        }
        if self.cores[core].in_flight.len() >= IN_FLIGHT_MAX {
            self.cores[core].in_flight.retain(|&(_, ready)| ready > now);
            if self.cores[core].in_flight.len() >= IN_FLIGHT_MAX {
                return;
            }
        }
        self.cores[core].quiet = false;
        let before = self.cost[line as usize];
        let takes = if to_write {
            let takes = self.own(core, line, false, now);
            let its = &mut self.lines[line as usize];
            its.free_at = its.free_at.max(now + takes);
            takes
        } else {
            self.bring(core, line, now)
        };
        // Nobody has waited so far.
        let cost = &mut self.cost[line as usize];
        (cost.waited, cost.missed) = (before.waited, before.missed);
        let its = &mut self.cores[core];
        its.in_flight.push((line, now + takes));
        its.in_flight_until = its.in_flight_until.max(now + takes);
    }

    /// A core that waits for the lock in this line looks at once when it was written.
    pub(crate) fn look(&mut self, core: usize, line: u32) {
        self.lines[line as usize].owner = NOBODY;
        self.cost[line as usize].transfers += 1;
        self.fill(core, line, usize::MAX);
    }

    /// A lock is handed to a core that waits for it, at this moment.
    pub(crate) fn hand_over(&mut self, line: u32, to: usize, at: Ps) {
        let _ = self.take(to, line);
        self.fill(to, line, usize::MAX);
        let its = &mut self.lines[line as usize];
        (its.owner, its.user, its.free_at) = (to as u16, to as u16, at);
        self.cost[line as usize].transfers += 1;
    }

    /// A core waited for a line that was on its way to others, or for the lock in it.
    pub(crate) fn waited(&mut self, line: u32, for_ps: Ps) {
        self.cost[line as usize].waited += for_ps;
    }
}
