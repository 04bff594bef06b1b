//! The floor: a plain loop over a queue of boxed closures, knowing nothing of colors. On several
//! cores as many loops that know nothing of each other.

use super::{Extras, Scheduler};
use crate::{Context, Outside, Workload, World, machine};
use std::collections::VecDeque;
use std::sync::Barrier;

type Job = Box<dyn FnOnce(&mut Loop) + Send>;

struct Loop {
    core: usize,
    queue: VecDeque<Job>,
}

/// No thread but its own can post to a loop.
#[derive(Clone)]
enum Nobody {}

impl Outside<Loop> for Nobody {
    fn post<F>(&self, _color: u32, _f: F)
    where
        F: FnOnce(&mut Loop) + Send + 'static,
    {
        match *self {}
    }
}

impl Context for Loop {
    type Outside = Nobody;

    #[inline]
    fn post<F>(&mut self, _color: u32, f: F)
    where
        F: FnOnce(&mut Self) + Send + 'static,
    {
        self.queue.push_back(Box::new(f));
    }

    fn core(&self) -> usize {
        self.core
    }

    fn outside(&self) -> Nobody {
        unreachable!("`runs` refuses what needs this")
    }

    fn stop(&mut self) {}
}

/// See the module text.
#[derive(Debug)]
pub(super) struct Boxes;

impl Scheduler for Boxes {
    fn name(&self) -> &'static str {
        "boxes"
    }

    fn is_floor(&self) -> bool {
        true
    }

    fn runs(&self, workload: Workload, cores: usize) -> bool {
        workload.separable(cores)
    }

    fn run(
        &self,
        workload: Workload,
        world: &'static World,
        cores: usize,
    ) -> Result<Extras, String> {
        let barrier = Barrier::new(cores);
        // On threads of their own even if it is only one: allocation is dearer in a process that
        // has several, and any runtime has.
        std::thread::scope(|scope| {
            let barrier = &barrier;
            let threads: Vec<_> = (0..cores)
                .map(|core| {
                    scope.spawn(move || {
                        machine::pin(core);
                        barrier.wait();
                        let mut queue = Loop {
                            core,
                            queue: VecDeque::new(),
                        };
                        workload.start(&mut queue, world, &[core]);
                        while let Some(job) = queue.queue.pop_front() {
                            job(&mut queue);
                        }
                    })
                })
                .collect();
            threads.into_iter().try_for_each(|thread| {
                thread
                    .join()
                    .map_err(|_| "a loop panicked; its message is above".to_owned())
            })
        })?;
        Ok(Extras::default())
    }
}
