//! The cores of a machine while something runs on it: whose turn it is, and what each waits for.

use crate::costs::{Costs, Ps, ps};
use crate::machine::Machine;
use crate::memory::{Access, Kind, Memory};
use crate::names::Names;
use crate::turns::Turns;
use std::collections::HashMap;

/// No core: what is looked at from outside.
pub(crate) const OUTSIDE: usize = usize::MAX;
/// Work takes this part of its time more or less, by chance: equal costs resonate.
const JITTER: u64 = 64;
/// Addresses that a core which polls looks at in each pause.
const AT_HAND_MAX: usize = 4;

/// What a core does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    /// Runs, or will at its time.
    Runs,
    /// Waits for a line that is on its way to another core.
    WaitsForLine(u32),
    /// Waits for the lock in a line.
    WaitsForLock(u32),
    /// Polls lines that it has, until one is taken from it.
    Polls,
    /// Sleeps in the kernel.
    Sleeps,
    /// Has ended.
    Ended,
}

/// A virtual core, but for its clock and its caches.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) status: Status,
    /// It was woken before it slept.
    rung: bool,
    /// While it sleeps or polls: when it goes on by itself.
    until: Ps,
    /// It read the clock since the last pause.
    read_clock: bool,
    /// When its round of polling began.
    round_at: Ps,
    at_hand: [u32; AT_HAND_MAX],
    /// When it began to wait for what it waits for.
    waits_since: Ps,
    /// The line of a lock that it may try since that was released. If it waits for this one again,
    /// somebody else was there before.
    tries: Option<u32>,
    pub(crate) worked: Ps,
    pub(crate) slept: Ps,
    pub(crate) polled: Ps,
}

/// What a core does after an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Flow {
    /// Goes on.
    Go,
    /// Lets others go first.
    Leave,
    /// Lets others go first, and makes the access again.
    Again,
}

/// See the module text.
#[derive(Debug)]
pub(crate) struct World {
    pub(crate) memory: Memory,
    pub(crate) names: Names,
    pub(crate) cores: Vec<Core>,
    turns: Turns,
    /// Who runs.
    pub(crate) current: usize,
    /// Up to here it may.
    limit: Ps,
    /// And nobody any farther than this.
    pub(crate) bound: Ps,
    pub(crate) ahead: Ps,
    random: fastrand::Rng,
    /// Who waits for the lock in a line.
    lock_queues: HashMap<u32, Vec<usize>>,
    pub(crate) now: Ps,
    pub(crate) switches: u64,
    pub(crate) counted_from: Ps,
    pub(crate) counted_to: Option<Ps>,
}

impl World {
    pub(crate) fn new(machine: &Machine, seed: u64, ahead_ns: Option<f64>) -> World {
        let costs = Costs::of(machine);
        let ahead = ahead_ns.map_or(costs.hold, ps);
        let core = |_| Core {
            status: Status::Ended,
            rung: false,
            until: Ps::MAX,
            read_clock: false,
            round_at: 0,
            at_hand: [u32::MAX; AT_HAND_MAX],
            waits_since: 0,
            tries: None,
            worked: 0,
            slept: 0,
            polled: 0,
        };
        World {
            cores: (0..costs.cores).map(core).collect(),
            turns: Turns::new(costs.cores),
            memory: Memory::new(costs),
            names: Names::new(),
            current: OUTSIDE,
            limit: 0,
            bound: Ps::MAX,
            ahead,
            random: fastrand::Rng::with_seed(seed),
            lock_queues: HashMap::new(),
            now: 0,
            switches: 0,
            counted_from: 0,
            counted_to: None,
        }
    }

    /// The first of them begin.
    pub(crate) fn begin(&mut self, cores: usize) {
        for core in 0..cores {
            self.cores[core].status = Status::Runs;
            self.queue_at(core, 0, true);
        }
    }

    /// A core begins now.
    pub(crate) fn begin_now(&mut self, core: usize) {
        self.cores[core].status = Status::Runs;
        let now = self.now;
        self.queue_at(core, now, false);
    }

    #[inline]
    fn clock(&mut self) -> &mut Ps {
        &mut self.memory.cores[self.current].now
    }

    pub(crate) fn now_of(&self, core: usize) -> Ps {
        self.memory.cores.get(core).map_or(self.now, |its| its.now)
    }

    /// A number below `end`, or 0.
    fn draw(&mut self, end: Ps) -> Ps {
        if end == 0 { 0 } else { self.random.u64(0..end) }
    }

    /// Queues a core, instead of any turn that it had; `drawn`: after whoever has what it wants,
    /// and by chance among others that want it.
    fn queue_at(&mut self, core: usize, at: Ps, drawn: bool) {
        let rank = if drawn { self.random.u32(1..) } else { 0 };
        self.turns.queue(core, at, rank);
        if self.current != OUTSIDE && core != self.current {
            self.limit = self.limit.min(at.saturating_add(self.ahead));
        }
    }

    /// Who goes next, and may from now on; none if nobody can, or somebody only looked at a lock.
    pub(crate) fn next(&mut self) -> Option<usize> {
        loop {
            let (at, core) = self.turns.first()?;
            self.turns.remove(core);
            self.now = self.now.max(at);
            match self.cores[core].status {
                Status::WaitsForLine(line) => {
                    if let Some(until) = self.memory.wait_for(core, line, at) {
                        // Somebody else was first.
                        self.queue_at(core, until, true);
                        continue;
                    }
                    let waited = at - self.cores[core].waits_since;
                    self.memory.serve(line, waited);
                }
                Status::WaitsForLock(line) => {
                    if let Some(until) = self.memory.look(core, line, at) {
                        self.queue_at(core, until, true);
                    }
                    self.see_to_robbed(at);
                    return None;
                }
                Status::Polls => {
                    let since = self.memory.cores[core].now;
                    self.cores[core].polled += at.saturating_sub(since);
                }
                Status::Sleeps => {
                    let since = self.memory.cores[core].now;
                    self.cores[core].slept += at.saturating_sub(since);
                }
                Status::Runs | Status::Ended => {}
            }
            self.cores[core].status = Status::Runs;
            self.memory.stall_until(core, at);
            self.current = core;
            let next = self.turns.first().map_or(Ps::MAX, |(at, _)| at);
            self.limit = next.saturating_add(self.ahead).min(self.bound);
            self.switches += 1;
            return Some(core);
        }
    }

    /// When the next turn is.
    pub(crate) fn next_at(&self) -> Option<Ps> {
        self.turns.first().map(|(at, _)| at)
    }

    /// After the current core's clock went on.
    #[inline]
    fn flow(&mut self) -> Flow {
        if !self.memory.robbed.is_empty() {
            let now = *self.clock();
            self.see_to_robbed(now);
        }
        self.memory.settle(self.current);
        if *self.clock() <= self.limit {
            return Flow::Go;
        }
        self.leave()
    }

    #[cold]
    fn leave(&mut self) -> Flow {
        let (core, at) = (self.current, *self.clock());
        self.queue_at(core, at, false);
        Flow::Leave
    }

    /// The current core was to be left, and goes on all the same: who runs has no turn to come.
    pub(crate) fn stay(&mut self) {
        self.turns.remove(self.current);
        self.cores[self.current].status = Status::Runs;
    }

    /// Accesses the line at an address.
    #[inline]
    pub(crate) fn access(&mut self, address: usize, kind: Kind) -> Flow {
        let line = self.names.at(address);
        self.memory.grow(self.names.len());
        loop {
            match self.memory.access(self.current, line, kind) {
                Access::Done => return self.flow(),
                Access::Busy(until) => return self.wait_for_line(line, until),
                Access::Late if self.flow() == Flow::Go => {}
                Access::Late => return Flow::Again,
            }
        }
    }

    #[cold]
    fn wait_for_line(&mut self, line: u32, until: Ps) -> Flow {
        let (core, now) = (self.current, *self.clock());
        self.cores[core].status = Status::WaitsForLine(line);
        self.cores[core].waits_since = now;
        self.queue_at(core, until, true);
        Flow::Again
    }

    /// Cores whose first caches have lost lines: who polls goes on, who waits for the lock there
    /// looks once it is where it goes.
    #[cold]
    fn see_to_robbed(&mut self, now: Ps) {
        let mut robbed = std::mem::take(&mut self.memory.robbed);
        for (core, line) in robbed.drain(..) {
            let core = usize::from(core);
            self.memory.cores[core].lose(line);
            match self.cores[core].status {
                Status::Polls => self.go_on_polling(core, line, now),
                Status::WaitsForLock(its) if its == line => {
                    let at = now.max(self.memory.line(line).free_at);
                    self.queue_at(core, at, true);
                }
                // It may be about to poll, having looked at the line before: it looks once more.
                _ => self.memory.cores[core].quiet = false,
            }
        }
        self.memory.robbed = robbed;
    }

    /// A core that polls has lost a line, which it sees at some moment of its next round.
    fn go_on_polling(&mut self, core: usize, line: u32, now: Ps) {
        let its = &self.cores[core];
        let since = self.memory.cores[core].now;
        let round = if its.at_hand.contains(&line) {
            self.memory.costs.pause
        } else {
            since - its.round_at
        };
        let at = now.max(self.memory.line(line).free_at).max(since) + self.draw(round);
        // Of two lines that it lost the first one counts.
        self.cores[core].status = Status::Runs;
        self.cores[core].polled += at - since;
        self.queue_at(core, at, false);
    }

    pub(crate) fn fence(&mut self) -> Flow {
        self.memory.fence(self.current);
        self.flow()
    }

    pub(crate) fn prefetch(&mut self, address: usize, to_write: bool) -> Flow {
        let line = self.names.at(address);
        self.memory.grow(self.names.len());
        self.memory.prefetch(self.current, line, to_write);
        self.flow()
    }

    /// Instructions, in ps.
    #[inline]
    pub(crate) fn spend(&mut self, time: Ps) -> Flow {
        *self.clock() += time;
        self.flow()
    }

    /// A handler's work.
    pub(crate) fn work(&mut self, time: Ps) -> Flow {
        let by = time / JITTER;
        let time = time - by / 2 + self.draw(by);
        let core = self.current;
        self.cores[core].worked += time;
        self.memory.cores[core].quiet = false;
        self.spend(time)
    }

    /// The time of the core that asks, which takes a while.
    pub(crate) fn read_clock(&mut self) -> Flow {
        self.cores[self.current].read_clock = true;
        self.memory.complete(self.current);
        let takes = self.memory.costs.clock;
        self.spend(takes)
    }

    /// A pause in a loop that polls. After a round of hits nothing will be different until a line
    /// is taken away.
    pub(crate) fn pause(&mut self, pauses: u32) -> Flow {
        self.end_loads();
        if self.memory.cores[self.current].quiet && !self.cores[self.current].read_clock {
            self.poll(None)
        } else {
            let pause = self.memory.costs.pause * u64::from(pauses);
            self.end_round(pause)
        }
    }

    /// The same for a loop that reads the clock, makes `pauses` a round, looks at these lines in
    /// each of them, and would do something else at `until`.
    pub(crate) fn idle(&mut self, pauses: u32, at_hand: &[usize], until: Ps) -> Flow {
        self.end_loads();
        let pause = self.memory.costs.pause * u64::from(pauses);
        if !self.memory.cores[self.current].quiet {
            return self.end_round(pause);
        }
        let core = self.current;
        self.cores[core].at_hand = [u32::MAX; AT_HAND_MAX];
        for (at, &address) in at_hand.iter().take(AT_HAND_MAX).enumerate() {
            self.cores[core].at_hand[at] = self.names.at(address);
        }
        self.poll(Some(until))
    }

    /// What was polled is here, and known.
    fn end_loads(&mut self) {
        self.memory.complete(self.current);
    }

    fn end_round(&mut self, pause: Ps) -> Flow {
        let (core, jitter) = (self.current, self.draw(pause / 8));
        let now = *self.clock() + pause + jitter;
        self.cores[core].polled += pause + jitter;
        *self.clock() = now;
        self.cores[core].round_at = now;
        self.cores[core].read_clock = false;
        self.memory.cores[core].quiet = true;
        self.flow()
    }

    fn poll(&mut self, until: Option<Ps>) -> Flow {
        let core = self.current;
        let now = *self.clock();
        self.cores[core].status = Status::Polls;
        self.cores[core].read_clock = false;
        let until = until.map(|until| until.max(now + 1));
        self.cores[core].until = until.unwrap_or(Ps::MAX);
        if let Some(until) = until {
            self.queue_at(core, until, false);
        }
        Flow::Leave
    }

    /// Waits for the lock in the line at an address, whose holder has it for the moment.
    pub(crate) fn wait_for_lock(&mut self, address: usize) -> Flow {
        let line = self.names.at(address);
        let core = self.current;
        self.cores[core].status = Status::WaitsForLock(line);
        self.cores[core].waits_since = *self.clock();
        self.lock_queues.entry(line).or_default().push(core);
        Flow::Leave
    }

    /// A lock is released: the seed draws who of those that wait tries to take it. Who comes before
    /// it has seen the release, the one that released it above all, is first; but not twice in a
    /// row.
    pub(crate) fn unlock(&mut self, address: usize) -> Flow {
        let line = self.names.at(address);
        self.memory.grow(self.names.len());
        let its = &mut self.cores[self.current];
        if its.tries == Some(line) {
            // It had tried, and got it.
            its.tries = None;
        }
        loop {
            match self.memory.access(self.current, line, Kind::Store) {
                Access::Done => break,
                // Nothing comes between: who unwinds would not come back.
                Access::Busy(until) => self.memory.stall_until(self.current, until),
                Access::Late => {}
            }
        }
        let seen_at = self.memory.release(self.current, line);
        if let Some(queue) = self.lock_queues.get_mut(&line) {
            let was_overtaken = |&core: &usize| self.cores[core].tries == Some(line);
            let overtaken = queue.iter().position(was_overtaken);
            let at = overtaken.unwrap_or_else(|| self.random.usize(0..queue.len()));
            let to = queue.swap_remove(at);
            if queue.is_empty() {
                self.lock_queues.remove(&line);
            }
            let distance = self.memory.costs.distance(self.current, to);
            if overtaken.is_some() {
                self.memory.hand_over(line, to);
            } else {
                self.memory.look(to, line, seen_at);
            }
            // The read-modify-write that takes it comes on top: of an own line, if all of it was
            // sent, else of a copy, for which it races.
            let is_whole = self.memory.line(line).owner == to as u16;
            let costs = &self.memory.costs;
            let rmw = costs.rmw[if is_whole { 0 } else { distance }];
            let at = seen_at + costs.handoff[distance].saturating_sub(rmw);
            let its = self.memory.line(line);
            let at = at.max(its.free_at);
            if is_whole {
                its.free_at = at;
            }
            if overtaken.is_some() {
                // Nobody runs ahead of it this time.
                self.limit = self.limit.min(at);
            }
            let waited = at.saturating_sub(self.cores[to].waits_since);
            self.memory.waited(line, waited);
            self.cores[to].tries = Some(line);
            self.cores[to].status = Status::Runs;
            self.queue_at(to, at, false);
        }
        self.flow()
    }

    /// Sleeps in the kernel until it is woken, or until this time; to wake takes a while then, too.
    pub(crate) fn sleep(&mut self, until: Option<Ps>) -> Flow {
        let core = self.current;
        if std::mem::take(&mut self.cores[core].rung) {
            return self.flow();
        }
        let now = *self.clock();
        self.cores[core].status = Status::Sleeps;
        self.cores[core].until = Ps::MAX;
        if let Some(until) = until {
            self.wake_at(core, until.max(now));
        }
        Flow::Leave
    }

    /// Draws how long a core that sleeps takes to run, if it is woken at this time.
    fn wakes_in(&mut self, core: usize, at: Ps) -> Ps {
        let slept = at.saturating_sub(self.memory.cores[core].now);
        let sleeper = self.memory.costs.sleeper(slept);
        sleeper - sleeper / JITTER / 2 + self.draw(sleeper / JITTER)
    }

    /// A core that sleeps will be woken at this time.
    fn wake_at(&mut self, core: usize, at: Ps) {
        let until = at.saturating_add(self.wakes_in(core, at));
        self.cores[core].until = until;
        self.queue_at(core, until, false);
    }

    /// From outside something comes to a core at this time, which costs no other core anything: it
    /// ends a sleep and a round of polling. Who does neither looks by itself.
    pub(crate) fn announce(&mut self, core: usize, at: Ps) -> Flow {
        let at = at.max(self.memory.cores[core].now);
        if at < self.cores[core].until {
            match self.cores[core].status {
                Status::Sleeps => self.wake_at(core, at),
                Status::Polls => {
                    self.cores[core].until = at;
                    self.queue_at(core, at, false);
                }
                _ => {}
            }
        }
        Flow::Go
    }

    /// Wakes a core, from a core or from outside.
    pub(crate) fn wake(&mut self, core: usize) -> Flow {
        let (from, outside) = (self.current, self.current == OUTSIDE);
        if self.cores[core].status != Status::Sleeps {
            self.cores[core].rung = true;
            // Nobody has to be woken: that is not counted.
            return if outside { Flow::Go } else { self.flow() };
        }
        let now = if outside {
            self.now
        } else {
            self.memory.cores[from].now
        };
        let sleeper = self.wakes_in(core, now);
        let since = self.memory.cores[core].now;
        self.cores[core].slept += (now + sleeper).saturating_sub(since);
        self.cores[core].status = Status::Runs;
        self.queue_at(core, now + sleeper, false);
        if outside {
            return Flow::Go;
        }
        let waker = self.memory.costs.waker;
        self.memory.cores[from].quiet = false;
        self.spend(waker)
    }

    /// From now on it is counted what lines cost.
    pub(crate) fn count_from_here(&mut self) {
        self.memory.forget_costs();
        self.counted_from = self.now_of(self.current);
        self.counted_to = None;
    }

    /// What a core does, in words.
    pub(crate) fn describe(&self, core: usize) -> String {
        match self.cores[core].status {
            Status::Runs => "runs".into(),
            Status::WaitsForLine(line) => format!("waits for the line {}", self.names.text(line)),
            Status::WaitsForLock(line) => format!("waits for the lock {}", self.names.text(line)),
            Status::Polls => "polls lines that nobody writes".into(),
            Status::Sleeps => "sleeps".into(),
            Status::Ended => "has ended".into(),
        }
    }
}
