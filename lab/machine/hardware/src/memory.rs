//! Lines of memory: in which caches each is, who wrote it last, and until when it is on its way.
//!
//! What is kept of a line is the protocol that all coherent machines have in common. A line is in
//! any number of caches, or has an *owner*: a core that may write it, and that others must ask. To
//! write, a core takes the line from all caches that are not on its own way to memory; what that
//! takes is decided by the farthest. To read, it gets a copy from its nearest cache that has one,
//! else from the nearest other, else from memory.
//!
//! On some machines lines *migrate*: who loads a line that its owner has written gets it whole,
//! with the right to write it, and the owner has it no more. What the new owner has not written
//! when the next one loads it is copied. On other machines it is copied each time.
//!
//! Who loads goes on while the line is on its way ([`crate::window`]), but where everything before
//! must be done: at a read-modify-write, a fence, a reading of the clock, a pause. Waited for at
//! once are what a link leads to; a line of a row, which is on its way already, behind all others;
//! and a line that was polled, or that another core has taken shortly before: its load was made too
//! early, and is made again.
//!
//! Caches are finite: sets of eight lines, the oldest of which leaves. Level 2 includes level 1,
//! and no other level includes another.

use crate::chance::Chance;
use crate::costs::{Costs, Hop, Ps};
use crate::window::{Asked, Core, Cost};

/// Lines of a set.
const WAYS: usize = 8;
const EMPTY: u32 = u32::MAX;
/// Of a line that belongs to no core.
pub(crate) const NOBODY: u16 = u16::MAX;
/// Lines of a page, whose memory is on one node.
const PAGE_LINES: usize = 64;
const NO_NODE: u16 = u16::MAX;

/// How a line is accessed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Load,
    /// A load that the next one waits for: of what a link leads to.
    Reach,
    /// The same, in a loop that does little else: what is in the first cache takes its time, too.
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
    /// The core had to wait before it could begin: it is to begin anew, after who comes before it.
    Late,
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
    /// For how long who got it to change it had asked for it.
    asked_for: Ps,
    /// Its owner has written it since it got it.
    written: bool,
    /// Stores that are not done keep it until then at the latest: once somebody waits for it, what
    /// its user has under way at that moment, and nothing that comes later. `MAX` if nobody does.
    keeps_until: Ps,
}

impl Line {
    /// It goes from its owner to another core. The owner has it until it hears of that, half of the
    /// way after it was asked for.
    fn leave(&mut self, owner: u16, start: Ps, takes: Ps) {
        let hears = (takes / 2).saturating_sub(self.asked_for);
        (self.before, self.leaves_at, self.asked_for) = (owner, start + hears, 0);
    }
}

/// A line that was brought to a core.
#[derive(Clone, Copy, Debug)]
struct Brought {
    takes: Ps,
    /// It goes on a row.
    in_row: bool,
    /// The index of the distance from which it comes, if it comes from another core.
    from: Option<usize>,
}

impl Brought {
    fn asked(self, line: u32, start: Ps) -> Asked {
        Asked {
            line,
            is_transfer: self.from.is_some(),
            arrives_at: start + self.takes,
        }
    }
}

/// A core that has a line no longer in its first cache, or no longer as it was.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Robbed {
    pub(crate) core: u16,
    pub(crate) line: u32,
    /// Another core has taken it. Else it left for want of room, or was written by who still had
    /// it, or by who shares its first cache.
    pub(crate) is_taken: bool,
}

impl Robbed {
    fn not_taken(core: u16, line: u32) -> Robbed {
        Robbed {
            core,
            line,
            is_taken: false,
        }
    }
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
    pub(crate) chance: Chance,
    pub(crate) costs: Costs,
    pub(crate) cores: Vec<Core>,
    lines: Vec<Line>,
    cost: Vec<Cost>,
    /// Of each line: in which caches it is.
    bits: Vec<u64>,
    tags: Vec<Tags>,
    homes: Vec<u16>,
    /// Since this was last emptied.
    pub(crate) robbed: Vec<Robbed>,
}

impl Memory {
    pub(crate) fn new(costs: Costs, chance: Chance) -> Memory {
        Memory {
            chance,
            cores: vec![Core::new(costs.reorder); costs.cores],
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
            asked_for: 0,
            written: false,
            keeps_until: Ps::MAX,
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
    pub(crate) fn hits(&self, core: usize, line: u32) -> bool {
        let owner = self.lines[line as usize].owner;
        (owner == NOBODY || owner == core as u16) && self.has(line, self.first(core).cache)
    }

    /// Accesses a line, by a core at its own time.
    #[inline]
    pub(crate) fn access(&mut self, core: usize, line: u32, kind: Kind) -> Access {
        self.cores[core].accesses += 1;
        match kind {
            Kind::Load | Kind::Reach | Kind::Follow => self.load(core, line, kind),
            Kind::Store => self.store(core, line),
            Kind::Rmw => self.rmw(core, line),
        }
    }

    #[inline]
    fn load(&mut self, core: usize, line: u32, kind: Kind) -> Access {
        if !self.hits(core, line) {
            return self.fetch(core, line, kind);
        }
        let (its, of_core) = (&mut self.lines[line as usize], &mut self.cores[core]);
        if its.owner == core as u16 {
            its.free_at = its.free_at.max(of_core.now);
        }
        of_core.load_again(line, kind != Kind::Load, &mut self.cost);
        if kind == Kind::Follow {
            of_core.stall(self.costs.first_hit);
        }
        Access::Done
    }

    /// A core has waited up to this time.
    pub(crate) fn stall_until(&mut self, core: usize, at: Ps) {
        let its = &mut self.cores[core];
        its.stall(at.saturating_sub(its.now));
    }

    /// After each step of a core's clock: it waits for what it has gone on without for too long.
    #[inline]
    pub(crate) fn settle(&mut self, core: usize) {
        self.cores[core].settle(&mut self.cost);
    }

    /// Waits for all loads.
    pub(crate) fn complete(&mut self, core: usize) {
        self.cores[core].complete(&mut self.cost);
    }

    /// Waits for all loads, and until the core's stores are in its cache.
    pub(crate) fn drain(&mut self, core: usize) {
        self.cores[core].drain(&mut self.cost);
    }

    /// Whether a core still has a line that another has asked for.
    #[inline]
    fn has_still(&self, core: usize, line: u32) -> bool {
        let its = &self.lines[line as usize];
        its.before == core as u16 && self.cores[core].now < its.leaves_at
    }

    /// Writes a line that the core still has: who has asked for it sees what is written.
    fn write_still(&mut self, core: usize, line: u32) {
        let mut robbed = std::mem::take(&mut self.robbed);
        self.each_other(core, line, |cache| {
            let of = self.costs.first_of[cache].iter();
            robbed.extend(of.map(|&core| Robbed::not_taken(core, line)));
        });
        self.robbed = robbed;
    }

    /// Writes a line that is in the core's first cache: who shares that has lost nothing, but may
    /// poll it.
    #[inline]
    fn tell_siblings(&mut self, core: usize, line: u32) {
        let sharing = &self.costs.first_of[self.first(core).cache];
        if sharing.len() > 1 {
            let others = sharing.iter().filter(|&&other| usize::from(other) != core);
            let robbed = others.map(|&other| Robbed::not_taken(other, line));
            self.robbed.extend(robbed);
        }
    }

    #[inline(never)]
    fn fetch(&mut self, core: usize, line: u32, kind: Kind) -> Access {
        let its = &mut self.cores[core];
        its.quiet = false;
        if its.make_room(&mut self.cost) {
            return Access::Late;
        }
        let now = its.now;
        if self.has_still(core, line) {
            return Access::Done;
        }
        if let Some(busy) = self.busy(core, line) {
            return busy;
        }
        let brought = self.bring(core, line, now);
        let asked = brought.asked(line, now);
        let its = &mut self.cores[core];
        if kind != Kind::Load || brought.in_row || its.loads_again(line) {
            its.wait(asked, now, &mut self.cost);
        } else {
            its.load(asked);
        }
        Access::Done
    }

    /// A line that is on its way to another core, or still that one's: the core waits for it.
    fn busy(&mut self, core: usize, line: u32) -> Option<Access> {
        let until = self.wait_for(core, line, self.cores[core].now)?;
        Some(Access::Busy(until))
    }

    /// The same at this time: until when it waits. From then on what its user stores holds the line
    /// no longer.
    pub(crate) fn wait_for(&mut self, core: usize, line: u32, at: Ps) -> Option<Ps> {
        let until = self.busy_until(core, line, at)?;
        let its = &mut self.lines[line as usize];
        if its.keeps_until == Ps::MAX {
            its.keeps_until = self.cores[usize::from(its.user)].seen_at();
        }
        Some(until)
    }

    fn busy_until(&self, core: usize, line: u32, at: Ps) -> Option<Ps> {
        let its = &self.lines[line as usize];
        (its.free_at > at && its.user != core as u16).then_some(its.free_at)
    }

    /// A core has waited for a line, for the lock in it if `locks`, and gets it now. Whoever still
    /// waits says so in its turn.
    pub(crate) fn serve(&mut self, line: u32, waited: Ps, locks: bool) {
        let its = &mut self.lines[line as usize];
        (its.keeps_until, its.asked_for) = (Ps::MAX, if locks { waited } else { 0 });
        self.waited(line, waited);
    }

    /// Gets a line to read it, beginning at `start`: a copy, or all of it if it migrates.
    fn bring(&mut self, core: usize, line: u32, start: Ps) -> Brought {
        let Line { owner, written, .. } = self.lines[line as usize];
        let from_other = owner != NOBODY && owner != core as u16;
        if from_other && written && self.costs.migrates {
            let brought = self.own(core, line, start);
            self.lines[line as usize].written = false;
            return brought;
        }
        let in_row = self.cores[core].rows.go_on(line);
        let mut from = None;
        let (takes, levels) = if from_other {
            let distance = self.costs.distance(core, owner.into());
            from = Some(distance);
            (self.transfer(distance, in_row), usize::MAX)
        } else if let Some((at, hop)) = self.nearest_own(core, line) {
            (if in_row { hop.row } else { hop.hit }, at)
        } else if let Some(distance) = self.nearest_other(core, line) {
            (self.transfer(distance, in_row), usize::MAX)
        } else {
            (self.memory_ps(core, line, in_row), usize::MAX)
        };
        if from_other {
            // Until it is here, others wait; copies of it are made side by side.
            self.cost[line as usize].transfers += 1;
            let its = &mut self.lines[line as usize];
            its.leave(owner, start, takes);
            (its.owner, its.user, its.free_at) = (NOBODY, core as u16, start + takes);
        }
        self.fill(core, line, levels);
        Brought {
            takes,
            in_row,
            from,
        }
    }

    fn transfer(&mut self, distance: usize, row: bool) -> Ps {
        if row {
            self.costs.transfer_row[distance]
        } else {
            self.chance.vary_transfer(self.costs.transfer[distance])
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
        if let of @ [_, _, ..] = &self.costs.first_of[cache][..] {
            // Who polls it does nothing else, and has lost it to who shares the cache.
            let robbed = of.iter().map(|&core| Robbed::not_taken(core, line));
            self.robbed.extend(robbed);
        }
        if self.costs.caches[cache].level == 2 {
            for at in 0..self.costs.caches[cache].cores.len() {
                let core = self.costs.caches[cache].cores[at];
                let first = self.first(core).cache;
                if first != cache && self.has(line, first) {
                    self.clear(line, first);
                    self.robbed.push(Robbed::not_taken(core as u16, line));
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
                let of = self.costs.first_of[cache].iter();
                self.robbed.extend(of.map(|&core| Robbed {
                    core,
                    line,
                    is_taken: true,
                }));
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
    fn store(&mut self, core: usize, line: u32) -> Access {
        let is_here = self.has(line, self.first(core).cache);
        let is_own = self.lines[line as usize].owner == core as u16;
        if !is_here || !is_own && !self.is_alone(core, line) {
            return self.store_later(core, line);
        }
        let (its, of_core) = (&mut self.lines[line as usize], &mut self.cores[core]);
        of_core.store_again(line);
        let seen_at = of_core.seen_at().min(its.keeps_until).max(of_core.now);
        (its.owner, its.user, its.written) = (core as u16, core as u16, true);
        its.free_at = its.free_at.max(seen_at);
        self.tell_siblings(core, line);
        Access::Done
    }

    /// A store whose line is not here: the core goes on, and the line comes meanwhile, beside those
    /// of other stores. They are seen in their order.
    #[inline(never)]
    fn store_later(&mut self, core: usize, line: u32) -> Access {
        let its = &mut self.cores[core];
        its.quiet = false;
        if its.make_room(&mut self.cost) {
            return Access::Late;
        }
        let now = its.now;
        if self.has_still(core, line) {
            self.write_still(core, line);
            return Access::Done;
        }
        // It goes behind who waits, or else stores by turns would let nobody else in.
        if self.lines[line as usize].keeps_until != Ps::MAX
            && let Some(busy) = self.busy(core, line)
        {
            return busy;
        }
        let start = self.busy_until(core, line, now).unwrap_or(now);
        let brought = self.own(core, line, start);
        let asked = brought.asked(line, start);
        let its = &mut self.cores[core];
        if brought.in_row {
            // There are more stores to lines before it than can wait.
            its.wait(asked, now, &mut self.cost);
        } else {
            its.ask(asked);
        }
        its.store(asked);
        self.lines[line as usize].free_at = its.seen_at();
        Access::Done
    }

    /// Makes the core the owner, beginning at `start`.
    fn own(&mut self, core: usize, line: u32, start: Ps) -> Brought {
        let in_row = self.cores[core].rows.go_on(line);
        let had = self.nearest_own(core, line);
        let owner = self.lines[line as usize].owner;
        let from = self.take(core, line);
        let takes = match (from, had) {
            (Some(distance), _) => self.transfer(distance, in_row),
            (None, Some((_, hop))) if in_row => hop.row,
            (None, Some((_, hop))) => hop.hit,
            (None, None) => self.memory_ps(core, line, in_row),
        };
        self.cost[line as usize].transfers += u64::from(from.is_some());
        self.fill(core, line, usize::MAX);
        let its = &mut self.lines[line as usize];
        if owner != NOBODY && owner != core as u16 {
            its.leave(owner, start, takes);
        }
        (its.owner, its.user) = (core as u16, core as u16);
        its.free_at = its.free_at.max(start + takes);
        its.written = true;
        Brought {
            takes,
            in_row,
            from,
        }
    }

    fn rmw(&mut self, core: usize, line: u32) -> Access {
        let its = &mut self.cores[core];
        let began = its.now;
        its.quiet = false;
        its.drain(&mut self.cost);
        its.load_again(line, true, &mut self.cost);
        its.find_lost(line);
        let now = its.now;
        if now > began {
            return Access::Late;
        }
        let is_own = self.lines[line as usize].owner == core as u16;
        let is_here = is_own && self.has(line, self.first(core).cache);
        let mut takes = self.costs.rmw[0];
        // The next owner may have written already. Its value is in memory since its turn, though by
        // the clock the line is not there yet: made now, earlier by the clock, this would find it.
        let is_written = self.lines[line as usize].written;
        if !is_here && !is_written && self.has_still(core, line) {
            self.cores[core].now = now + takes;
            self.write_still(core, line);
            return Access::Done;
        }
        if !is_here {
            if let Some(busy) = self.busy(core, line) {
                return busy;
            }
            let brought = self.own(core, line, now);
            let cost = &mut self.cost[line as usize];
            if let Some(distance) = brought.from {
                takes = self.chance.vary_transfer(self.costs.rmw[distance]);
                cost.waited += takes;
            } else {
                takes += brought.takes;
                cost.missed += brought.takes;
            }
        }
        let its = &mut self.lines[line as usize];
        (its.user, its.written) = (core as u16, true);
        its.free_at = now + takes;
        self.cores[core].now = now + takes;
        self.tell_siblings(core, line);
        Access::Done
    }

    /// A fence: all loads are here, and all stores are in the cache.
    pub(crate) fn fence(&mut self, core: usize) {
        self.drain(core);
        self.cores[core].set_barrier();
        self.cores[core].now += self.costs.rmw[0];
    }

    /// Asks for a line, without waiting for it.
    pub(crate) fn prefetch(&mut self, core: usize, line: u32, to_write: bool) {
        let now = self.cores[core].now;
        let is_own = self.lines[line as usize].owner == core as u16;
        let is_here = self.hits(core, line) && (!to_write || is_own || self.is_alone(core, line));
        let is_busy = self.busy_until(core, line, now).is_some();
        if is_here || is_busy || !self.cores[core].has_room() {
            return;
        }
        let brought = if to_write {
            // Assumed to count as written, as on AMD, where it marks the line modified: who loads
            // it next gets it whole.
            self.own(core, line, now)
        } else {
            self.bring(core, line, now)
        };
        let its = &mut self.cores[core];
        its.quiet = false;
        its.ask(brought.asked(line, now));
    }

    /// A lock is released by the store that was charged last. It is seen after all before it,
    /// whoever waits, unless the core had the line only still.
    pub(crate) fn release(&mut self, core: usize, line: u32) {
        let its = &mut self.lines[line as usize];
        its.free_at = its.free_at.max(self.cores[core].seen_at());
    }

    /// A core waited for a line that was on its way to others, or for the lock in it.
    pub(crate) fn waited(&mut self, line: u32, for_ps: Ps) {
        self.cost[line as usize].waited += for_ps;
    }
}
