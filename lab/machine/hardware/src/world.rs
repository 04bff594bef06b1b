//! The cores of a machine while something runs on it: whose turn it is, and what each waits for.

use crate::chance::Chance;
use crate::costs::{Costs, Ps, ps};
use crate::machine::Machine;
use crate::memory::{Access, Kind, Memory, Robbed};
use crate::names::Names;
use crate::run::Options;
use crate::turns::Turns;
use crate::waiters::Waiters;
use std::collections::HashMap;
use std::thread::panicking;

/// No core: what is looked at from outside.
pub(crate) const OUTSIDE: usize = usize::MAX;
/// Addresses that a core which polls looks at in each pause.
const AT_HAND_MAX: usize = 4;
/// Who has a line and changes it by one more read-modify-write, while another asks for it at the
/// same moment to change it, comes behind that one once in so many times. Measured with two threads
/// that take one lock every 6 to 60 ns, which each takes again as often: once in 4 to 12.
const OVERTAKEN_ONE_IN: u64 = 8;

/// What a core does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    /// Runs, or will at its time.
    Runs,
    /// Waits for a line that is on its way to another core, to access it so.
    WaitsForLine(u32, Kind),
    /// Polls the lock in a line that it has, until that is taken from it; then waits to look again.
    WaitsForLock(u32),
    /// Waits for the lock in a line, asleep: until it is drawn when that is released.
    SleepsForLock(u32),
    /// Polls lines that it has, until one is taken from it.
    Polls,
    /// Sleeps in the kernel.
    Sleeps,
    /// Has ended.
    Ended,
}

impl Status {
    /// Whether it waits for a line to change it by a read-modify-write, or for the lock in it.
    fn wants_to_change(self) -> bool {
        matches!(
            self,
            Status::WaitsForLine(_, Kind::Rmw) | Status::WaitsForLock(_)
        )
    }
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
    /// Turns that nobody runs ahead of. The first of those that wait for a line has its turn here
    /// as well if one of them waits to change it.
    strict: Turns,
    waiters: Waiters,
    /// Who runs.
    pub(crate) current: usize,
    /// Up to here it may.
    limit: Ps,
    /// And nobody any farther than this.
    pub(crate) bound: Ps,
    pub(crate) ahead: Ps,
    /// Who sleeps for the lock at an address.
    asleep: HashMap<usize, Vec<usize>>,
    pub(crate) now: Ps,
    pub(crate) switches: u64,
    pub(crate) counted_from: Ps,
    pub(crate) counted_to: Option<Ps>,
}

impl World {
    pub(crate) fn new(machine: &Machine, options: &Options) -> World {
        let costs = Costs::of(machine);
        let ahead = options.ahead_ns.map_or(costs.hold, ps);
        let core = |_| Core {
            status: Status::Ended,
            rung: false,
            until: Ps::MAX,
            read_clock: false,
            round_at: 0,
            at_hand: [u32::MAX; AT_HAND_MAX],
            waits_since: 0,
            worked: 0,
            slept: 0,
            polled: 0,
        };
        World {
            cores: (0..costs.cores).map(core).collect(),
            turns: Turns::new(costs.cores),
            strict: Turns::new(costs.cores),
            waiters: Waiters::default(),
            memory: Memory::new(costs, Chance::new(options.seed, options.varies)),
            names: Names::new(),
            current: OUTSIDE,
            limit: 0,
            bound: Ps::MAX,
            ahead,
            asleep: HashMap::new(),
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
            let rank = self.memory.chance.rank();
            self.turns.queue(core, 0, rank);
        }
    }

    /// A core begins now.
    pub(crate) fn begin_now(&mut self, core: usize) {
        self.cores[core].status = Status::Runs;
        let now = self.now;
        self.queue_at(core, now);
    }

    #[inline]
    fn clock(&mut self) -> &mut Ps {
        &mut self.memory.cores[self.current].now
    }

    pub(crate) fn now_of(&self, core: usize) -> Ps {
        self.memory.cores.get(core).map_or(self.now, |its| its.now)
    }

    /// Queues a core that waits for no line, instead of any turn that it had: before who waits for
    /// one that it has.
    fn queue_at(&mut self, core: usize, at: Ps) {
        self.turns.queue(core, at, 0);
        if core != self.current {
            // Adjacent loads and stores keep a line that others wait for, in the store buffer.
            self.limit = self.limit.min(at.saturating_add(self.ahead));
        }
    }

    /// Queues a core for a line, which is free at this time or later: if it is drawn among those
    /// that wait for it.
    fn queue_for(&mut self, core: usize, line: u32, at: Ps) {
        let before = self.waiters.first(line);
        self.waiters.add(line, core);
        let Some(first) = before else {
            return self.queue_first(line, at);
        };
        let waiters = self.waiters.of(line).len();
        let its = self.turns.of(first);
        if at < its || at == its && self.memory.chance.draw(waiters as u64) == 0 {
            self.take_turn(first);
            self.waiters.set_first(line, waiters - 1);
            self.queue_first(line, at);
        } else if self.cores[core].status.wants_to_change() {
            self.strict.queue(first, its, 0);
            self.limit = self.limit.min(its);
        }
    }

    /// Queues the first of those that wait for a line: after whoever has it, and by chance among
    /// others.
    fn queue_first(&mut self, line: u32, at: Ps) {
        let Some(first) = self.waiters.first(line) else {
            return;
        };
        let rank = self.memory.chance.rank();
        let at = at.max(self.memory.cores[first].now);
        self.turns.queue(first, at, rank);
        let mut waiters = self.waiters.of(line).iter();
        if waiters.any(|&core| self.cores[usize::from(core)].status.wants_to_change()) {
            self.strict.queue(first, at, 0);
            self.limit = self.limit.min(at);
        } else {
            self.strict.remove(first);
            self.limit = self.limit.min(at.saturating_add(self.ahead));
        }
    }

    /// Draws who is the first of those that wait for a line, and queues it.
    fn draw_first(&mut self, line: u32, at: Ps) {
        let waiters = self.waiters.of(line).len() as u64;
        let place = self.memory.chance.draw(waiters);
        self.waiters.set_first(line, place as usize);
        self.queue_first(line, at);
    }

    fn take_turn(&mut self, core: usize) {
        self.turns.remove(core);
        self.strict.remove(core);
    }

    /// Who goes next, and may from now on; none if nobody can.
    pub(crate) fn next(&mut self) -> Option<usize> {
        loop {
            let (at, core) = self.turns.first()?;
            self.now = self.now.max(at);
            match self.cores[core].status {
                Status::WaitsForLine(line, _) | Status::WaitsForLock(line) => {
                    if let Some(until) = self.memory.wait_for(core, line, at) {
                        // Somebody else was first.
                        self.take_turn(core);
                        self.draw_first(line, until);
                        continue;
                    }
                    let waited = at - self.cores[core].waits_since;
                    let changes = self.cores[core].status.wants_to_change();
                    self.memory.serve(line, waited, changes);
                    self.take_turn(core);
                    self.waiters.remove_first(line);
                    self.draw_first(line, at);
                }
                Status::Polls => {
                    let since = self.memory.cores[core].now;
                    self.cores[core].polled += at.saturating_sub(since);
                }
                Status::Sleeps => {
                    let since = self.memory.cores[core].now;
                    self.cores[core].slept += at.saturating_sub(since);
                }
                Status::Runs | Status::SleepsForLock(_) | Status::Ended => {}
            }
            self.turns.remove(core);
            self.cores[core].status = Status::Runs;
            self.memory.stall_until(core, at);
            self.current = core;
            let at = |turns: &Turns| turns.first().map_or(Ps::MAX, |(at, _)| at);
            let next = at(&self.turns).saturating_add(self.ahead);
            self.limit = next.min(at(&self.strict)).min(self.bound);
            self.switches += 1;
            return Some(core);
        }
    }

    /// When the next turn is.
    pub(crate) fn next_at(&self) -> Option<Ps> {
        self.turns.first().map(|(at, _)| at)
    }

    /// What follows when the current core's clock went on.
    #[inline]
    fn flow(&mut self) -> Flow {
        self.go_on();
        if self.is_ahead() {
            self.leave()
        } else {
            Flow::Go
        }
    }

    /// The same, but for whether the current core is left.
    #[inline]
    fn go_on(&mut self) {
        if !self.memory.robbed.is_empty() {
            let now = *self.clock();
            self.see_to_robbed(now);
        }
        self.memory.settle(self.current);
    }

    /// Whether the current core is farther than it may go before the others.
    #[inline]
    pub(crate) fn is_ahead(&mut self) -> bool {
        *self.clock() > self.limit
    }

    #[cold]
    pub(crate) fn leave(&mut self) -> Flow {
        let (core, at) = (self.current, *self.clock());
        self.queue_at(core, at);
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
            if self.lets_others_change(line, kind) {
                return self.leave_last();
            }
            match self.memory.access(self.current, line, kind) {
                Access::Done if kind == Kind::Rmw => {
                    // The caller makes it first: others see it from its beginning on. Who makes it
                    // is left at its next charge.
                    self.go_on();
                    return Flow::Go;
                }
                Access::Done => return self.flow(),
                // Who unwinds would not come back.
                Access::Busy(until) if panicking() => {
                    self.memory.stall_until(self.current, until);
                    self.memory.serve(line, 0, false);
                }
                Access::Busy(until) => return self.wait_for_line(line, kind, until),
                Access::Late => {
                    self.go_on();
                    if self.is_ahead() && !panicking() {
                        self.leave();
                        return Flow::Again;
                    }
                }
            }
        }
    }

    /// Whether others may change the line before the current core does, which has their turn at
    /// this very moment: always before a store, which is behind a read-modify-write in the store
    /// buffer, and now and then before a read-modify-write.
    fn lets_others_change(&mut self, line: u32, kind: Kind) -> bool {
        let now = *self.clock();
        if self.turns.first().is_none_or(|(at, _)| at > now) || panicking() {
            return false;
        }
        let one_in = match kind {
            Kind::Store => 1,
            Kind::Rmw => OVERTAKEN_ONE_IN,
            Kind::Load | Kind::Reach | Kind::Follow => return false,
        };
        let first = self.waiters.first(line);
        let is_wanted = first.is_some_and(|first| self.strict.of(first) <= now);
        is_wanted && self.memory.chance.draw(one_in) == 0
    }

    /// Lets all others go first that have their turn now.
    fn leave_last(&mut self) -> Flow {
        let (core, at) = (self.current, *self.clock());
        self.turns.queue(core, at, u16::MAX);
        Flow::Again
    }

    #[cold]
    fn wait_for_line(&mut self, line: u32, kind: Kind, until: Ps) -> Flow {
        let (core, now) = (self.current, *self.clock());
        self.cores[core].status = Status::WaitsForLine(line, kind);
        self.cores[core].waits_since = now;
        self.queue_for(core, line, until);
        Flow::Again
    }

    /// Cores whose first caches have lost lines: who polls goes on, who waits for the lock there
    /// looks once it is where it goes.
    #[cold]
    fn see_to_robbed(&mut self, now: Ps) {
        let mut robbed = std::mem::take(&mut self.memory.robbed);
        for Robbed {
            core,
            line,
            is_taken,
        } in robbed.drain(..)
        {
            let core = usize::from(core);
            if is_taken {
                // Not if it is still to be woken.
                let works = self.cores[core].status == Status::Runs
                    && self.turns.of(core) == self.memory.cores[core].now;
                self.memory.cores[core].lose(line, now, works);
            }
            match self.cores[core].status {
                Status::Polls => self.go_on_polling(core, line, now),
                Status::WaitsForLock(its) if its == line => self.look_again(core, line, now),
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
        let at =
            now.max(self.memory.line(line).free_at).max(since) + self.memory.chance.draw(round);
        self.memory.cores[core].end_polling();
        // Of two lines that it lost the first one counts.
        self.cores[core].status = Status::Runs;
        self.cores[core].polled += at - since;
        self.queue_at(core, at);
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
        let time = self.memory.chance.vary(time);
        let end = self.clock().saturating_add(time);
        assert!(end < Ps::MAX / 2, "work to beyond 106 days of virtual time");
        let core = self.current;
        self.cores[core].worked += time;
        self.memory.cores[core].quiet = false;
        self.spend(time)
    }

    /// The time of the core that asks, which takes a while.
    pub(crate) fn read_clock(&mut self) -> Flow {
        self.cores[self.current].read_clock = true;
        self.end_loads();
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

    /// What was loaded is here before anything that comes later is.
    fn end_loads(&mut self) {
        self.memory.complete(self.current);
        self.memory.cores[self.current].set_barrier();
    }

    fn end_round(&mut self, pause: Ps) -> Flow {
        let (core, jitter) = (self.current, self.memory.chance.draw(pause / 8));
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
            self.queue_at(core, until);
        }
        Flow::Leave
    }

    /// The current core polls the lock at an address until its line is taken, or sleeps until it is
    /// drawn. What it takes to sleep and to be woken is not charged.
    pub(crate) fn wait_for_lock(&mut self, address: usize, asleep: bool) -> Flow {
        let line = self.names.at(address);
        self.memory.grow(self.names.len());
        self.end_loads();
        let (core, now) = (self.current, *self.clock());
        self.cores[core].waits_since = now;
        if asleep {
            self.cores[core].status = Status::SleepsForLock(line);
            self.asleep.entry(address).or_default().push(core);
            return Flow::Leave;
        }
        self.cores[core].status = Status::WaitsForLock(line);
        if !self.memory.hits(core, line) {
            self.look_again(core, line, now);
        }
        Flow::Leave
    }

    /// One of those that sleep for the lock at an address looks at it.
    fn wake_one(&mut self, address: usize, line: u32) {
        let Some(asleep) = self.asleep.get_mut(&address) else {
            return;
        };
        let at = self.memory.chance.draw(asleep.len() as u64);
        let core = asleep.swap_remove(at as usize);
        if asleep.is_empty() {
            self.asleep.remove(&address);
        }
        self.cores[core].status = Status::WaitsForLock(line);
        let now = *self.clock();
        self.look_again(core, line, now);
    }

    /// A core that waits for the lock in a line has that no more. It looks again once it gets it, and
    /// asks for it now: its next looks are under way while it pauses.
    fn look_again(&mut self, core: usize, line: u32, now: Ps) {
        let now = now.max(self.memory.cores[core].now);
        let waited = now - std::mem::replace(&mut self.cores[core].waits_since, now);
        self.memory.waited(line, waited);
        if !self.waiters.of(line).contains(&(core as u16)) {
            let at = now.max(self.memory.line(line).free_at);
            self.queue_for(core, line, at);
        }
    }

    /// A lock is released, by a store that others see after all that was stored before.
    pub(crate) fn unlock(&mut self, address: usize) -> Flow {
        let line = self.names.at(address);
        let flow = self.access(address, Kind::Store);
        if flow != Flow::Again {
            self.memory.release(self.current, line);
            self.wake_one(address, line);
        }
        flow
    }

    /// Sleeps in the kernel until it is woken, or until this time; to wake takes a while then, too.
    pub(crate) fn sleep(&mut self, until: Option<Ps>) -> Flow {
        let core = self.current;
        if std::mem::take(&mut self.cores[core].rung) {
            return self.flow();
        }
        let now = *self.clock();
        self.memory.cores[core].set_barrier();
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
        self.memory.chance.vary(sleeper)
    }

    /// A core that sleeps will be woken at this time.
    fn wake_at(&mut self, core: usize, at: Ps) {
        let until = at.saturating_add(self.wakes_in(core, at));
        self.cores[core].until = until;
        self.queue_at(core, until);
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
                    self.queue_at(core, at);
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
        self.queue_at(core, now + sleeper);
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
            Status::WaitsForLine(line, _) => {
                format!("waits for the line {}", self.names.text(line))
            }
            Status::WaitsForLock(line) | Status::SleepsForLock(line) => {
                format!("waits for the lock {}", self.names.text(line))
            }
            Status::Polls => "polls lines that nobody writes".into(),
            Status::Sleeps => "sleeps".into(),
            Status::Ended => "has ended".into(),
        }
    }
}
