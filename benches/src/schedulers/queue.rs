//! A color for schedulers that know none: a queue under a mutex, whose jobs are taken out in
//! batches, and which is handed to the scheduler as one task whenever it has jobs and is not there
//! yet.

use std::collections::VecDeque;
use std::sync::Mutex;

/// A task takes this many batches of its color at most before others get their turn: as many as
/// Mely runs events of one color in a row.
const BATCHES_MAX: usize = 10;

/// A color; on cache lines of its own, as what several cores write must be.
#[repr(align(128))]
pub(super) struct ColorQueue<J>(Mutex<State<J>>);

struct State<J> {
    jobs: VecDeque<J>,
    /// Whether a task of the scheduler stands for this color.
    scheduled: bool,
}

impl<J> Default for ColorQueue<J> {
    fn default() -> ColorQueue<J> {
        ColorQueue(Mutex::new(State {
            jobs: VecDeque::new(),
            scheduled: false,
        }))
    }
}

impl<J> ColorQueue<J> {
    /// Adds a job. True if the caller is to hand the color to the scheduler.
    #[inline]
    pub(super) fn push(&self, job: J) -> bool {
        let mut state = self.0.lock().expect("no panic while held");
        state.jobs.push_back(job);
        !std::mem::replace(&mut state.scheduled, true)
    }

    /// Runs what is there. True if there is more, and the caller is to hand the color on again.
    /// `batch` is empty, and lends its memory.
    #[inline]
    pub(super) fn run(&self, batch: &mut VecDeque<J>, mut run: impl FnMut(J)) -> bool {
        for _ in 0..BATCHES_MAX {
            {
                let mut state = self.0.lock().expect("no panic while held");
                if state.jobs.is_empty() {
                    state.scheduled = false;
                    return false;
                }
                std::mem::swap(&mut state.jobs, batch);
            }
            batch.drain(..).for_each(&mut run);
        }
        true
    }
}
