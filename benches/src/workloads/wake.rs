//! Wake-ups from outside: a foreign thread posts to a runtime that has been idle for a while. The
//! time is from the post to the handler's start; and the share of its cores that the runtime burns
//! while it waits.

use super::{Table, Work, Workload, finish, now_ns};
use crate::sync::atomic::{AtomicU64, Ordering::Relaxed};
use crate::world::Verdict;
use crate::{Context, Outside, World, machine, sync};
use std::time::Duration;

/// See the module text.
#[derive(Clone, Copy, Debug)]
pub struct Wake {
    /// At least this is between two posts.
    pub gap: Duration,
}

const fn every(micros: u64) -> Option<Workload> {
    let gap = Duration::from_micros(micros);
    Some(Workload::Wake(Wake { gap }))
}

const REMARKS: &[&str] = &[
    "ns/event is the gap; latencies are from the post to the start of the handler.",
    "Busy share: CPU time per core over wall time, that of the thread that posts apart.",
];

/// The tables of this workload.
pub const TABLES: &[Table] = &[
    Table::new("wake-0.1ms", |_| every(100)),
    Table::new("wake-1ms", |_| every(1_000)),
    Table::new("wake-10ms", |_| every(10_000)).remarks(REMARKS),
];

/// CPU time of the thread that posts.
#[derive(Debug, Default)]
struct Poster {
    cpu_ns: AtomicU64,
}

impl Work for Wake {
    fn world(self, events: u64, cores: usize) -> World {
        let color = self.color(cores);
        let world = World::for_events(events, color as usize + 1, 1, cores, true);
        let length = events.clamp(2, u64::from(u32::MAX)) as u32;
        (0..color).for_each(|unused| world.set_length(unused, 0));
        world.set_length(color, length);
        world.with(Poster::default())
    }

    fn colors_end(self, cores: usize) -> usize {
        self.color(cores) as usize + 1
    }

    fn separable(self, _cores: usize) -> bool {
        false
    }

    fn start<C: Context + ?Sized>(self, cx: &mut C, world: &'static World, cores: &[usize]) {
        let outside = cx.outside();
        let cores = cores.len();
        sync::spawn(move || self.post_all(&outside, world, cores));
    }

    fn values(self, world: &World, verdict: &Verdict) -> Vec<(&'static str, f64)> {
        let poster_ns = world.data::<Poster>().cpu_ns.load(Relaxed);
        // It takes the same for each post.
        let length = world.length_of(self.color(world.cores()));
        let poster = Duration::from_nanos(poster_ns * verdict.ran / u64::from(length));
        let cpu = verdict.cpu.saturating_sub(poster);
        let share = cpu.as_secs_f64() / verdict.took.as_secs_f64() / world.cores() as f64;
        vec![("busy_share", share)]
    }
}

impl Wake {
    /// On a core where the thread that posts is not.
    fn color(self, cores: usize) -> u32 {
        cores as u32 - 1
    }

    fn post_all<C: Context + ?Sized, O: Outside<C>>(
        self,
        outside: &O,
        world: &'static World,
        cores: usize,
    ) {
        machine::pin_foreign(0, cores);
        let color = self.color(cores);
        let length = world.length_of(color);
        for number in 0..length {
            sync::sleep(self.gap);
            if number == 0 {
                world.begin_again();
            }
            let cpu_ns = machine::thread_cpu_time().as_nanos() as u64;
            world.data::<Poster>().cpu_ns.store(cpu_ns, Relaxed);
            let posted_ns = now_ns();
            outside.post(color, move |cx: &mut C| {
                let started_ns = now_ns();
                world.pass(color, number);
                world.sample(started_ns - posted_ns);
                if number + 1 == length {
                    finish(cx, world);
                }
            });
        }
    }
}
