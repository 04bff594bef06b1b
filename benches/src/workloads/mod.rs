//! The workloads, written once for every scheduler: a file each, with the tables it makes.
//!
//! To add one, write a file with a type that is [`Work`] and its `TABLES`, and add it to the three
//! lists below.

pub mod affinity;
pub mod cache_efficient;
pub mod chain;
pub mod fresh;
pub mod hop;
mod lines;
pub mod penalty;
mod rounds;
mod spin;
pub mod unbalanced;

use crate::{Context, World};
use std::time::Duration;

/// A workload. Copied about: it is only parameters.
pub trait Work: Copy {
    /// A world for about `events` events on so many cores.
    fn world(self, events: u64, cores: usize) -> World;

    /// All colors it posts to on so many cores are below this: what peers create beforehand.
    fn colors_end(self, cores: usize) -> usize;

    /// Posts the first events, those of colors that start on `cores`. Called once on a scheduler with
    /// all its cores, or once for each core by loops that know nothing of each other.
    fn start<C: Context>(self, cx: &mut C, world: &'static World, cores: &[usize]);

    /// Whether loops that know nothing of each other can run it: nothing is posted across cores, nor by
    /// foreign threads.
    fn separable(self, cores: usize) -> bool {
        cores == 1
    }

    /// Whether it is of the papers: then all modes of mely run it.
    fn is_of_papers(self) -> bool {
        false
    }

    /// What the table says besides the time of an event, by the names of its JSON fields; called after a
    /// run that took so long.
    fn values(self, world: &World, took: Duration) -> Vec<(&'static str, f64)> {
        let _ = (world, took);
        Vec::new()
    }
}

/// A line of output: a workload under the name given to `--table`.
#[derive(Clone, Copy, Debug)]
pub struct Table {
    /// As in `--table`.
    pub name: &'static str,
    /// What is run on so many cores, if anything.
    pub workload: fn(usize) -> Option<Workload>,
    /// What to print below: what the papers got, what a line means.
    pub remarks: &'static [&'static str],
}

/// All tables, in the order in which they are printed.
pub const TABLES: &[&[Table]] = &[
    affinity::TABLES,
    unbalanced::TABLES,
    penalty::TABLES,
    cache_efficient::TABLES,
    chain::TABLES,
    hop::TABLES,
    fresh::TABLES,
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
            /// As [`Work::world`]; leaked, for the life of the process, so that handlers can name it
            /// by a plain reference.
            pub fn world(self, events: u64, cores: usize) -> &'static World {
                Box::leak(Box::new(match self {
                    $(Workload::$name(work) => work.world(events, cores),)*
                }))
            }

            /// As [`Work::colors_end`].
            pub fn colors_end(self, cores: usize) -> usize {
                match self {
                    $(Workload::$name(work) => work.colors_end(cores),)*
                }
            }

            /// As [`Work::start`].
            pub fn start<C: Context>(self, cx: &mut C, world: &'static World, cores: &[usize]) {
                world.begin();
                match self {
                    $(Workload::$name(work) => work.start(cx, world, cores),)*
                }
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
            pub fn values(self, world: &World, took: Duration) -> Vec<(&'static str, f64)> {
                match self {
                    $(Workload::$name(work) => work.values(world, took),)*
                }
            }
        }
    };
}

workloads! {
    Affinity(affinity::Affinity),
    Unbalanced(unbalanced::Unbalanced),
    Penalty(penalty::Penalty),
    CacheEfficient(cache_efficient::CacheEfficient),
    Chain(chain::Chain),
    Hop(hop::Hop),
    Fresh(fresh::Fresh),
}

/// A part of the workload has ended, the last one ends the run.
pub(crate) fn finish<C: Context>(cx: &mut C, world: &'static World) {
    if world.end() {
        cx.stop();
    }
}
