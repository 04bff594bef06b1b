//! The floor of a wake-up from outside: one thread asleep in an eventfd, and no scheduler.

use super::{Extras, Scheduler};
use crate::{Context, Outside, Workload, World, machine};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fd::OwnedFd;
use rustix::io::{read, write};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::thread;

type Job = Box<dyn FnOnce(&mut Cx) + Send>;

struct Shared {
    jobs: Mutex<VecDeque<Job>>,
    bell: OwnedFd,
}

struct Cx {
    shared: Arc<Shared>,
    core: usize,
    stopped: bool,
}

#[derive(Clone)]
struct Remote(Arc<Shared>);

impl Outside<Cx> for Remote {
    fn post<F>(&self, _color: u32, f: F)
    where
        F: FnOnce(&mut Cx) + Send + 'static,
    {
        let mut jobs = self.0.jobs.lock().expect("no panic while held");
        jobs.push_back(Box::new(f));
        drop(jobs);
        write(&self.0.bell, &1u64.to_ne_bytes()).expect("an eventfd takes a one");
    }
}

impl Context for Cx {
    type Outside = Remote;

    fn post<F>(&mut self, color: u32, f: F)
    where
        F: FnOnce(&mut Self) + Send + 'static,
    {
        self.outside().post(color, f);
    }

    fn core(&self) -> usize {
        self.core
    }

    fn outside(&self) -> Remote {
        Remote(self.shared.clone())
    }

    fn stop(&mut self) {
        self.stopped = true;
    }
}

/// See the module text.
#[derive(Debug)]
pub(super) struct BareWake;

impl Scheduler for BareWake {
    fn name(&self) -> &'static str {
        "bare-wake"
    }

    fn is_floor(&self) -> bool {
        true
    }

    fn runs(&self, workload: Workload, _: usize) -> bool {
        matches!(workload, Workload::Wake(_))
    }

    fn run(
        &self,
        workload: Workload,
        world: &'static World,
        cores: usize,
    ) -> Result<Extras, String> {
        let bell = eventfd(0, EventfdFlags::empty()).map_err(|error| error.to_string())?;
        let shared = Arc::new(Shared {
            jobs: Mutex::default(),
            bell,
        });
        thread::scope(|scope| {
            scope.spawn(move || {
                // Where the workload's color is at home; the thread that posts is on another.
                let core = cores - 1;
                machine::pin(core);
                let mut cx = Cx {
                    shared: shared.clone(),
                    core,
                    stopped: false,
                };
                workload.start_all(&mut cx, world, cores);
                while !cx.stopped {
                    let mut rung = [0; 8];
                    read(&shared.bell, &mut rung).expect("an eventfd can be read");
                    let jobs =
                        std::mem::take(&mut *shared.jobs.lock().expect("no panic while held"));
                    jobs.into_iter().for_each(|job| job(&mut cx));
                }
            });
        });
        Ok(Extras::default())
    }
}
