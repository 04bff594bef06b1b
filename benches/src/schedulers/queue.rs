//! A color for schedulers that know none: a queue under a lock, which is handed to the scheduler as
//! one task whenever it has jobs and is not there yet. The task swaps out what waits, and keeps
//! what it does not get to for its next turn, so that a queue of any length costs a lock now and
//! then, not one a job.

use spin::mutex::SpinMutex;
use spin::relax::Yield;
use std::cell::UnsafeCell;

/// A turn of a color: as many events as Mely runs of one color in a row.
pub(super) const TURN_EVENTS: usize = 10;

/// A color, on a cache line of its own, as what several cores write must be; on one, since there
/// may be many colors.
#[repr(align(64))]
pub(super) struct ColorQueue<J> {
    /// A spin lock, which one store opens, where the standard library's takes a second
    /// read-modify-write. It is held for a few instructions. Who finds it taken gives up its
    /// processor: the holder may wait for that.
    posted: SpinMutex<Posted<J>, Yield>,
    /// What was swapped out and has not run, the next one last: only for the task, of which there
    /// is one at a time. It looks at it when its turn begins and when it ends, since the line is
    /// the posters' too.
    taken: UnsafeCell<Vec<J>>,
}

struct Posted<J> {
    jobs: Vec<J>,
    /// Whether a task of the scheduler stands for this color.
    scheduled: bool,
}

// SAFETY: only `run` touches `taken`. `push` says true once until `run` has said that the color is
// not to be handed on, both under the lock of `scheduled`: so one `run` is under way at a time, and
// each sees what the one before it wrote, as long as the caller hands the color to one thread.
unsafe impl<J: Send> Sync for ColorQueue<J> {}

impl<J> Default for ColorQueue<J> {
    fn default() -> ColorQueue<J> {
        const { assert!(size_of::<ColorQueue<J>>() == 64) };
        ColorQueue {
            posted: SpinMutex::new(Posted {
                jobs: Vec::new(),
                scheduled: false,
            }),
            taken: UnsafeCell::new(Vec::new()),
        }
    }
}

impl<J> ColorQueue<J> {
    /// Adds a job. True if the caller is to hand the color to the scheduler.
    #[inline]
    pub(super) fn push(&self, job: J) -> bool {
        let mut posted = self.posted.lock();
        posted.jobs.push(job);
        !std::mem::replace(&mut posted.scheduled, true)
    }

    /// A turn. True if there may be more, and the caller is to hand the color on again.
    ///
    /// # Safety
    /// Called once for each time that `push` or the call before it said true.
    #[inline]
    pub(super) unsafe fn run(&self, mut run: impl FnMut(J)) -> bool {
        let taken = self.taken.get();
        // SAFETY: there is one `run` at a time, and this is the only place that looks at it.
        let mut rest = std::mem::take(unsafe { &mut *taken });
        for _ in 0..TURN_EVENTS {
            let job = match rest.pop() {
                Some(job) => job,
                None => {
                    let mut posted = self.posted.lock();
                    // A color that never has two needs no second list, nor the memory for it.
                    if posted.jobs.len() > 1 {
                        std::mem::swap(&mut posted.jobs, &mut rest);
                        drop(posted);
                        rest.reverse();
                        rest.pop().expect("there are two")
                    } else if let Some(job) = posted.jobs.pop() {
                        job
                    } else {
                        // Before the next `run` may begin. SAFETY: as above.
                        unsafe { *taken = rest };
                        posted.scheduled = false;
                        return false;
                    }
                }
            };
            run(job);
        }
        // SAFETY: as above.
        unsafe { *taken = rest };
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::thread;

    #[test]
    fn a_turn_is_ten_jobs_in_their_order() {
        let queue = ColorQueue::default();
        let mut ran = Vec::new();
        // SAFETY: once for each time that the queue asked for it.
        let turn = |ran: &mut Vec<i32>| unsafe { queue.run(|job| ran.push(job)) };
        assert!(queue.push(0));
        (1..8).for_each(|job| assert!(!queue.push(job)));
        assert!(!turn(&mut ran));
        assert!(queue.push(8));
        (9..20).for_each(|job| assert!(!queue.push(job)));
        assert!(turn(&mut ran));
        assert_eq!(ran.len(), 18);
        assert!(!queue.push(20));
        assert!(!turn(&mut ran));
        assert!(ran.into_iter().eq(0..=20));
    }

    #[test]
    fn nothing_is_lost_and_each_posters_order_is_kept() {
        const POSTERS: usize = 3;
        const EACH: usize = if cfg!(miri) { 50 } else { 20_000 };
        let queue = ColorQueue::default();
        let (asked, asks) = std::sync::mpsc::channel();
        let mut seen = [0; POSTERS];
        thread::scope(|scope| {
            for from in 0..POSTERS {
                let (queue, asked) = (&queue, asked.clone());
                scope.spawn(move || {
                    for number in 0..EACH {
                        if queue.push((from, number)) {
                            asked.send(()).expect("the receiver waits for all");
                        }
                    }
                });
            }
            while seen.iter().sum::<usize>() < POSTERS * EACH {
                asks.recv().expect("a sender is kept");
                let turn = |(from, number): (usize, usize)| {
                    assert_eq!(seen[from], number);
                    seen[from] += 1;
                };
                // SAFETY: once for each time that the queue asked for it.
                if unsafe { queue.run(turn) } {
                    asked.send(()).expect("this thread receives");
                }
            }
        });
    }
}
