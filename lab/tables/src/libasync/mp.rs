//! libasync-mp: one queue of runnable callbacks for all threads, under one spinlock.
//!
//! A thread takes, of the first eligible callbacks, the one of the largest weight: its priority,
//! plus one if its color is the one that the thread ran last; of equals the left-most. Eligible is
//! a color that runs nowhere else, which a shared table says. A thread that finds nothing sleeps on
//! a pipe of its own, into which whoever inserts a callback writes if the thread waits (thesis,
//! §3.4 and chapter 4). A virtual core sleeps as mely's do instead.
//!
//! Nothing is lost by sleeping although other colors may be queued: they run elsewhere, and who
//! finishes one looks at the queue next.

use super::event::{Depot, Event, Pool};
use super::queue::{EXAMINED, Kind, Lock, Place, Queue};
use super::{Queues, Steals, stopping};
use mely_bench::schedulers::{Extras, Scheduler};
use mely_bench::sync::Pipe;
use mely_bench::sync::atomic::AtomicBool;
use mely_bench::{Workload, World};
use std::time::Duration;

struct Mp {
    state: Lock<State>,
    pipes: Vec<Pipe>,
}

/// What the lock guards.
struct State {
    queue: Queue<Mp>,
    threads: Vec<Thread>,
}

#[derive(Clone, Default)]
struct Thread {
    running: Option<u32>,
    last_color: Option<u32>,
    waiting: bool,
}

impl State {
    fn new(cores: usize) -> State {
        State {
            queue: Queue::default(),
            threads: vec![Thread::default(); cores],
        }
    }

    /// Takes what a thread runs next, and enters it in the table.
    fn take(&mut self, core: usize) -> Option<Box<Event<Mp>>> {
        let last_color = self.threads[core].last_color;
        let runs = |color| self.threads.iter().any(|t| t.running == Some(color));
        let mut best: Option<(i16, Place<Mp>)> = None;
        let eligible = self.queue.iter().filter(|(_, event)| !runs(event.color));
        for (place, event) in eligible.take(EXAMINED) {
            let weight = event.priority + i16::from(last_color == Some(event.color));
            if best.as_ref().is_none_or(|&(most, _)| weight > most) {
                best = Some((weight, place));
            }
        }
        let (_, place) = best?;
        // SAFETY: the place is of this queue, which has not changed since.
        let event = unsafe { self.queue.remove(place) };
        let thread = &mut self.threads[core];
        thread.running = Some(event.color);
        thread.last_color = Some(event.color);
        Some(event)
    }
}

impl Mp {
    fn new(cores: usize) -> Result<Mp, String> {
        let pipes = (0..cores).map(Pipe::new).collect::<Result<_, _>>();
        Ok(Mp {
            state: Lock::new(State::new(cores)),
            pipes: pipes.map_err(|error| error.to_string())?,
        })
    }

    /// Threads that wait, who are to be woken after unlocking.
    fn waiting(state: &mut State) -> impl Iterator<Item = usize> + use<> {
        // A bit a thread: nothing is allocated under the lock.
        let mut bits = 0u64;
        for (core, thread) in state.threads.iter_mut().enumerate() {
            bits |= u64::from(std::mem::take(&mut thread.waiting)) << core;
        }
        (0..u64::BITS as usize).filter(move |core| bits >> core & 1 == 1)
    }
}

impl Queues for Mp {
    fn insert(&self, event: Box<Event<Mp>>, kind: Kind) {
        let mut state = self.state.lock();
        state.of.queue.insert(event, kind);
        let waiting = Mp::waiting(&mut state.of);
        drop(state);
        waiting.for_each(|core| self.pipes[core].write());
    }

    fn next(&self, core: usize, stop: &AtomicBool) -> Option<Box<Event<Mp>>> {
        loop {
            let mut state = self.state.lock();
            if stopping(stop) {
                return None;
            }
            state.of.threads[core].running = None;
            if let Some(event) = state.of.take(core) {
                return Some(event);
            }
            state.of.threads[core].waiting = true;
            drop(state);
            self.pipes[core].read();
        }
    }

    fn wake_all(&self) {
        let waiting = Mp::waiting(&mut self.state.lock().of);
        waiting.for_each(|core| self.pipes[core].write());
    }

    fn waited(&self) -> Duration {
        self.state.lock().waited
    }

    fn steals(&self) -> Option<Steals> {
        None
    }
}

/// The thesis's example (Figure 3-4): how many units of time two threads take for callbacks 1 to 4,
/// of a unit each, of which the last two have color zero; `prioritized`: those have a higher
/// priority.
pub fn schedule_units(prioritized: bool) -> usize {
    let mut state = State::new(2);
    let mut pool = Pool::new(Depot::new(true));
    for color in [1, 2, 0, 0] {
        let mut callback = pool.event(color, 0, |_| {});
        callback.priority = i16::from(prioritized && color == 0);
        state.queue.insert(callback, Kind::Cpucb);
    }
    let mut units = 0;
    while state.queue.iter().next().is_some() {
        for core in 0..2 {
            state.take(core);
        }
        for thread in &mut state.threads {
            thread.running = None;
        }
        units += 1;
    }
    units
}

/// See the module text.
#[derive(Debug)]
pub(crate) struct LibasyncMp {
    /// With free lists. Without, it is the first line of the 2003 paper's Table 2, and only there.
    pub(crate) recycles: bool,
}

impl Scheduler for LibasyncMp {
    fn name(&self) -> &'static str {
        match self.recycles {
            true => "libasync-mp",
            false => "libasync-mp-malloc",
        }
    }

    fn runs(&self, workload: Workload, _: usize) -> bool {
        self.recycles || matches!(workload, Workload::Affinity(_))
    }

    fn run(
        &self,
        workload: Workload,
        world: &'static World,
        cores: usize,
    ) -> Result<Extras, String> {
        super::run(Mp::new(cores)?, self.recycles, workload, world, cores)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_thesis_schedule_takes_three_units_and_two_with_priorities() {
        assert_eq!(schedule_units(false), 3);
        assert_eq!(schedule_units(true), 2);
    }

    #[test]
    fn the_color_that_ran_last_is_preferred_among_the_first_few() {
        let mut state = State::new(1);
        let mut pool = Pool::new(Depot::new(true));
        for color in [1, 2, 3, 4, 1, 2] {
            state
                .queue
                .insert(pool.event(color, 0, |_| {}), Kind::Cpucb);
        }
        let mut order = Vec::new();
        while let Some(event) = state.take(0) {
            order.push(event.color);
            state.threads[0].running = None;
        }
        // The second callback of color 1 is fifth, but fourth once the first has run.
        assert_eq!(order, [1, 1, 2, 2, 3, 4]);
    }
}
