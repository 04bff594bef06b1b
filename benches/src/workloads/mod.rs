//! The workloads, written once for every scheduler: a file each, with the tables it makes.
//!
//! To add one, write a file with a type that is [`Work`] and its `TABLES`, and add it to the three
//! lists below.

pub mod affinity;
#[cfg(test)]
mod any_order;
pub mod burst;
pub mod busy;
pub mod cache_efficient;
pub mod chain;
pub mod drag;
pub mod fan_in;
pub mod fresh;
pub mod hop;
mod lines;
pub mod penalty;
pub mod ping_pong;
mod rounds;
pub mod skew;
pub(crate) mod spin;
pub mod tokens;
pub mod unbalanced;
pub mod wake;

use self::burst::Burst;
use self::fan_in::{Place, Producers};
use crate::shape::{Packing, Shape};
use crate::world::Verdict;
use crate::{Context, World};
use std::ptr;
use std::sync::atomic::{
    AtomicPtr, AtomicUsize, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
};

/// A workload. Copied about: it is only parameters.
pub trait Work: Copy {
    /// A world for about `events` events on this many cores.
    fn world(self, events: u64, cores: usize) -> World;

    /// All colors it posts to on this many cores are below this: what peers create beforehand.
    fn colors_end(self, cores: usize) -> usize;

    /// Posts the first events, those of colors that start on `cores`. Called once on a scheduler
    /// with all its cores, or once for each core by loops that know nothing of each other.
    fn start<C: Context + ?Sized>(self, cx: &mut C, world: &'static World, cores: &[usize]);

    /// Whether loops that know nothing of each other can run it: nothing is posted across cores,
    /// nor by foreign threads.
    fn separable(self, cores: usize) -> bool {
        cores == 1
    }

    /// Whether it is of the papers: then all modes of mely run it.
    fn is_of_papers(self) -> bool {
        false
    }

    /// What the table says besides the time of an event, by the names of its JSON fields; called
    /// after the run.
    fn values(self, world: &World, verdict: &Verdict) -> Vec<(&'static str, f64)> {
        let _ = (world, verdict);
        Vec::new()
    }
}

/// A line of output: a workload under the name given to `--table`.
#[derive(Clone, Copy, Debug)]
pub struct Table {
    /// As in `--table`.
    pub name: &'static str,
    /// What is run on this many cores, if anything.
    pub workload: fn(usize) -> Option<Workload>,
    /// What is run beside each repetition, to give the table's time as a multiple of its.
    pub beside: Option<fn(usize) -> Option<Workload>>,
    /// What to print below: what the papers got, what a line means.
    pub remarks: &'static [&'static str],
}

impl Table {
    /// With nothing beside it, and no remarks.
    pub const fn new(name: &'static str, workload: fn(usize) -> Option<Workload>) -> Table {
        Table {
            name,
            workload,
            beside: None,
            remarks: &[],
        }
    }

    /// Beside each repetition this is run.
    pub const fn beside(self, workload: fn(usize) -> Option<Workload>) -> Table {
        Table {
            beside: Some(workload),
            ..self
        }
    }

    /// What to print below.
    pub const fn remarks(self, remarks: &'static [&'static str]) -> Table {
        Table { remarks, ..self }
    }
}

/// All tables, in the order in which they are printed.
pub const TABLES: &[&[Table]] = &[
    affinity::TABLES,
    unbalanced::TABLES,
    penalty::TABLES,
    drag::TABLES,
    cache_efficient::TABLES,
    chain::TABLES,
    hop::TABLES,
    fresh::TABLES,
    fan_in::TABLES,
    burst::TABLES,
    ping_pong::TABLES,
    skew::TABLES,
    tokens::TABLES,
    wake::TABLES,
    busy::TABLES,
];

/// An enum of all workloads, so that schedulers are objects and workloads generic over them.
macro_rules! workloads {
    ($($name:ident($type:path),)*) => {
        /// What is run.
        #[derive(Clone, Copy, Debug)]
        pub enum Workload {
            $(
                #[allow(missing_docs, reason = "each is documented where it is defined")]
                $name($type),
            )*
        }

        impl Workload {
            /// As [`Work::world`]; leaked, for the life of the process, so that handlers can name
            /// it by a plain reference. It is what `world` says from now on.
            pub fn world(self, events: u64, cores: usize) -> &'static World {
                let world = Box::leak(Box::new(match self {
                    $(Workload::$name(work) => work.world(events, cores),)*
                }));
                WORLD.store(world, Release);
                world
            }

            /// As [`Work::colors_end`].
            pub fn colors_end(self, cores: usize) -> usize {
                match self {
                    $(Workload::$name(work) => work.colors_end(cores),)*
                }
            }

            /// As [`Work::start`].
            pub fn start<C: Context + ?Sized>(self, cx: &mut C, world: &'static World, cores: &[usize]) {
                world.begin();
                if !self.has_sizes() {
                    return match self {
                        $(Workload::$name(work) => work.start(cx, world, cores),)*
                    };
                }
                match CLOSURE_BYTES.load(Relaxed) {
                    8 => self.start_packed(Packing::<C, 1>::of(cx), world, cores),
                    0 => self.start_packed(Packing::<C, 3>::of(cx), world, cores),
                    32 => self.start_packed(Packing::<C, 4>::of(cx), world, cores),
                    64 => self.start_packed(Packing::<C, 8>::of(cx), world, cores),
                    96 => self.start_packed(Packing::<C, 12>::of(cx), world, cores),
                    200 => self.start_packed(Packing::<C, 25>::of(cx), world, cores),
                    other => unreachable!("{other} bytes: the options were checked"),
                }
            }

            /// As [`start`](Self::start), for all of these cores together.
            pub fn start_all<C: Context + ?Sized>(self, cx: &mut C, world: &'static World, cores: usize) {
                self.start(cx, world, &Vec::from_iter(0..cores));
            }

            /// As [`Work::separable`].
            pub fn separable(self, cores: usize) -> bool {
                match self {
                    $(Workload::$name(work) => work.separable(cores),)*
                }
            }

            /// As [`Work::is_of_papers`].
            pub fn is_of_papers(self) -> bool {
                match self {
                    $(Workload::$name(work) => work.is_of_papers(),)*
                }
            }

            /// As [`Work::values`].
            pub fn values(self, world: &World, verdict: &Verdict) -> Vec<(&'static str, f64)> {
                match self {
                    $(Workload::$name(work) => work.values(world, verdict),)*
                }
            }
        }
    };
}

workloads! {
    Affinity(affinity::Affinity),
    Unbalanced(unbalanced::Unbalanced),
    Penalty(penalty::Penalty),
    Drag(drag::Drag),
    CacheEfficient(cache_efficient::CacheEfficient),
    Chain(chain::Chain),
    Hop(hop::Hop),
    Fresh(fresh::Fresh),
    FanIn(fan_in::FanIn),
    Burst(burst::Burst),
    PingPong(ping_pong::PingPong),
    Skew(skew::Skew),
    Tokens(tokens::Tokens),
    Wake(wake::Wake),
    Busy(busy::Busy),
    Posts(crate::response::posts::Posts),
}

/// The world of the one run of this process.
static WORLD: AtomicPtr<World> = AtomicPtr::new(ptr::null_mut());

/// The world of what runs. Handlers of closures that may be of 8 bytes ask for it: they have no
/// room for a reference.
#[inline]
pub(crate) fn world() -> &'static World {
    // SAFETY: set by `Workload::world`, before anything is started in it, and leaked there.
    unsafe { &*WORLD.load(Acquire) }
}

/// What [`Shape::closure_bytes`] says of the one run of this process, or 0.
static CLOSURE_BYTES: AtomicUsize = AtomicUsize::new(0);

/// Closures of what this process runs from now on are of the shape's size.
pub fn set_closure_bytes(shape: Shape) {
    CLOSURE_BYTES.store(shape.closure_bytes.unwrap_or(0), Relaxed);
}

impl Workload {
    /// Whether foreign threads share the scheduler's cores all the time.
    pub fn oversubscribes(self) -> bool {
        let Workload::FanIn(fan_in) = self else {
            return false;
        };
        matches!(fan_in.producers, Producers::Threads(_, Place::Over))
    }

    /// Whether its events can be of all sizes.
    pub fn has_sizes(self) -> bool {
        use Workload::{Burst, Chain, FanIn, Fresh, Hop};
        matches!(self, Chain(_) | Hop(_) | Fresh(_) | FanIn(_) | Burst(_))
    }

    /// The same in another shape, of which the size of closures is set apart
    /// ([`set_closure_bytes`]); none if it has none but its own.
    pub fn shaped(self, shape: Shape) -> Option<Workload> {
        match (self, shape.depth) {
            _ if shape.closure_bytes.is_some() && !self.has_sizes() => None,
            (_, None) => Some(self),
            (Workload::FanIn(fan_in), Some(depth)) => Some(Workload::FanIn(fan_in.deep(depth))),
            (Workload::Burst(_), Some(events)) => Some(Workload::Burst(Burst { events })),
            _ => None,
        }
    }

    /// Those that have sizes.
    fn start_packed<C: Context + ?Sized>(self, cx: &mut C, world: &'static World, cores: &[usize]) {
        match self {
            Workload::Chain(work) => work.start(cx, world, cores),
            Workload::Hop(work) => work.start(cx, world, cores),
            Workload::Fresh(work) => work.start(cx, world, cores),
            Workload::FanIn(work) => work.start(cx, world, cores),
            Workload::Burst(work) => work.start(cx, world, cores),
            other => unreachable!("{other:?} has one shape"),
        }
    }
}

/// What handlers compute, with all data at hand, for [`crate::costs::Costs::measure`].
pub(crate) fn computations() -> [Box<dyn FnMut()>; 8] {
    let world: &World = Box::leak(Box::new(World::new(1, 1, 1, 1, true)));
    let (mut passed, mut relayed) = (0, 0);
    let [write_part, read_part] = penalty::computations();
    let [fill, sort, merge] = cache_efficient::computations();
    let other: &World = Box::leak(Box::new(World::new(1, 1, 1, 1, true)));
    [
        Box::new(move || {
            world.pass(0, passed);
            passed += 1;
        }),
        Box::new(move || {
            other.relay(0, 0, relayed);
            relayed += 1;
        }),
        fan_in::computation(),
        write_part,
        read_part,
        fill,
        sort,
        merge,
    ]
}

/// A part of the workload has ended, the last one ends the run.
pub(crate) fn finish<C: Context + ?Sized>(cx: &mut C, world: &'static World) {
    if world.end() {
        cx.stop();
    }
}

/// The times as this workload's foreign threads and handlers tell them each other, in a word.
pub(crate) fn now_ns() -> u64 {
    crate::sync::now().as_nanos() as u64
}
