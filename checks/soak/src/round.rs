//! One round: runtimes are built, run, ended and dropped, and everything is accounted for.

use crate::bounds::Bound;
use crate::draw::{Draw, End, SideDraw};
use crate::event::Place;
use crate::options::Plant;
use crate::order::Cell;
use crate::process::Holdings;
use crate::verdict::{self, PANICS, fail};
use crate::world::World;
use crate::{client, lane, server};
use mely::Post;
use mely::metrics::Stats;
use mely::runtime::OnPanic;
use mely::{Color, Cx, RunError, Runtime};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::thread::JoinHandle;
use std::time::Duration;

/// What rounds have come to.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sums {
    pub(crate) rounds: u64,
    pub(crate) events: u64,
    pub(crate) steals: u64,
    pub(crate) panics: u64,
    pub(crate) refused: u64,
    pub(crate) left: u64,
    pub(crate) connections: u64,
}

/// How a runtime has ended.
struct Ran {
    stats: Stats,
    /// Events it reported as left. None: it has not run, and reported nothing.
    left: Option<u64>,
}

/// How often to look whether others are done.
const LOOK_EVERY: Duration = Duration::from_micros(200);

pub(crate) fn run(draw: Draw, plant: Option<Plant>, sums: &mut Sums) {
    let before = Holdings::now();
    let panics_before = PANICS.load(Relaxed);
    verdict::round_begins(draw.seed, format!("{draw:#?}"));
    let world = Arc::new(World::new(draw, plant));
    let draw = &world.draw;
    if world.lies(Plant::Descriptor) {
        std::mem::forget(std::fs::File::open("/dev/null"));
    }
    let runtimes: Vec<Runtime> = draw.sides.iter().map(build).collect();
    for ((side, its), runtime) in world.sides.iter().zip(&draw.sides).zip(&runtimes) {
        let _ = side.poster.set(runtime.poster());
        let _ = side.bounds.set(Bound::all(&runtime.poster(), its.cores));
        verdict::watch(runtime.poster());
    }
    verdict::phase("running");
    let mut threads: Vec<JoinHandle<()>> = Vec::new();
    for lane in 0..draw.lanes {
        threads.push(lane::start(&world, lane));
    }
    for (side, its) in draw.sides.iter().enumerate() {
        threads.extend((0..its.clients).map(|n| client::start(&world, side, n)));
    }
    // Each runtime has a thread of its own to run and to drop it: they end in any order.
    let runners: Vec<_> = (0..draw.sides.len())
        .zip(runtimes)
        .map(|(side, runtime)| {
            let world = Arc::clone(&world);
            threads.push(closer(&world, side));
            std::thread::spawn(move || run_side(&world, side, runtime))
        })
        .collect();
    let ran: Vec<Ran> = runners.into_iter().map(joined).collect();
    verdict::phase("joining threads");
    threads.into_iter().for_each(joined);
    verdict::phase("settling");
    verdict::unwatch();
    world.clear();
    account(world, &ran, PANICS.load(Relaxed) - panics_before, sums);
    before.must_return();
    sums.rounds += 1;
}

fn joined<T>(thread: JoinHandle<T>) -> T {
    thread
        .join()
        .unwrap_or_else(|_| fail("a thread of the soak died"))
}

fn build(draw: &SideDraw) -> Runtime {
    match draw.builder().build() {
        Ok(runtime) => runtime,
        Err(error) => fail(&format!("cannot be built: {error}")),
    }
}

/// Waits until foreign threads and clients are done.
fn await_all(world: &World) {
    while world.busy.load(Acquire) > 0 {
        std::thread::sleep(LOOK_EVERY);
    }
}

/// The thread that ends a runtime from outside, if nothing else is to.
fn closer(world: &Arc<World>, side: usize) -> JoinHandle<()> {
    let world = Arc::clone(world);
    std::thread::spawn(move || {
        let its = &world.sides[side];
        let mut rng = fastrand::Rng::with_seed(world.draw.seed ^ (side as u64 + 1) << 50);
        if rng.u32(..3) == 0 {
            std::thread::sleep(Duration::from_micros(rng.u64(..5_000)));
            its.listener_closed.store(true, Relaxed);
            if let Some(listener) = its.listener.lock().unwrap().take() {
                listener.close();
            }
        }
        match world.draw.sides[side].end {
            End::Idle | End::NeverRun => return,
            End::Moment(after) => std::thread::sleep(after),
            End::AfterAll | End::Handler(_) | End::Deadline(_) => await_all(&world),
        }
        its.stopping.store(true, Relaxed);
        if let Some(poster) = its.poster.get() {
            poster.stop();
        }
    })
}

fn run_side(world: &Arc<World>, side: usize, runtime: Runtime) -> Ran {
    let draw = &world.draw.sides[side];
    let its = Arc::clone(world);
    let poster = runtime.poster();
    let outcome = match draw.end {
        End::NeverRun => {
            drop(runtime);
            None
        }
        _ => Some(runtime.run(move |cx| begin(cx, &its, side))),
    };
    world.sides[side].stopping.store(true, Relaxed);
    let left = match outcome {
        None => None,
        Some(Ok(())) => Some(0),
        Some(Err(RunError::Panicked { events_left, .. })) if draw.on_panic == OnPanic::Stop => {
            Some(events_left)
        }
        Some(Err(RunError::Deadline {
            events_left, stuck, ..
        })) if matches!(draw.end, End::Deadline(_)) && stuck.is_empty() => Some(events_left),
        Some(Err(error)) => fail(&format!("runtime {side} ended with: {error}")),
    };
    if !world.draw.drop_early && left == Some(0) {
        await_all(world);
    }
    let stats = poster.stats();
    Ran { stats, left }
}

/// The first event of a runtime.
fn begin(cx: &mut Cx, world: &Arc<World>, side: usize) {
    server::start(cx, world, side);
    if matches!(world.draw.sides[side].end, End::Deadline(_)) {
        for_ever(cx);
    }
    let lane = world.start_lane();
    let mut sent = world.sent();
    for group in 0..world.draw.groups {
        for color in 0..world.draw.colors {
            // Refused at the limit.
            let _ = lane::post(world, lane, Place { side, group, color }, &mut sent);
        }
    }
}

fn for_ever(cx: &mut Cx) {
    // Refused at the limit: then it ends after all, and the runtime may end well.
    let _ = cx.try_post(Color::from(3 << 40), for_ever);
}

/// Whether everything came to a good end.
fn account(world: Arc<World>, ran: &[Ran], panics: u64, sums: &mut Sums) {
    let holders = Arc::strong_count(&world);
    let Some(world) = Arc::into_inner(world) else {
        fail(&format!(
            "{} closures or states were never dropped",
            holders - 1
        ));
    };
    let bounds = world.sides.iter().filter_map(|side| side.bounds.get());
    bounds.flatten().for_each(|bound| bound.must_be_empty());
    let groups = world.sides.iter().flat_map(|side| &side.groups);
    groups.flatten().for_each(Cell::must_have_counted);
    let tickets = world.book.sums();
    let left: Option<u64> = ran.iter().map(|ran| ran.left).sum();
    if left.is_some_and(|left| tickets.dropped > left) {
        fail(&format!(
            "{} events were accepted and dropped, {left:?} were reported as left",
            tickets.dropped
        ));
    }
    let events: u64 = ran.iter().map(|ran| ran.stats.events()).sum();
    if tickets.ran > events {
        fail(&format!(
            "{} events ran, the statistics say {events}",
            tickets.ran
        ));
    }
    let cores = || ran.iter().flat_map(|ran| &ran.stats.cores);
    let counted: u64 = cores().map(|core| core.panics).sum();
    if counted != panics {
        fail(&format!(
            "{panics} handlers panicked, the statistics say {counted}"
        ));
    }
    sums.events += tickets.ran;
    sums.steals += ran.iter().map(|ran| ran.stats.steals()).sum::<u64>();
    sums.panics += panics;
    sums.refused += tickets.refused;
    sums.left += tickets.dropped;
    sums.connections += world.served.load(Relaxed);
}
