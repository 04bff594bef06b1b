//! Cores, caches and distances of a machine, and the order in which an idle core should look at the
//! others for work.
//!
//! A work-stealing runtime wants to know, for each core, which other cores are cheap to take work
//! from: the hyper-thread next door, then those behind the same L2, the same L3, the same memory,
//! the same package, and last everybody else. This crate reads that from Linux and answers with
//! plain data.
//!
//! ```
//! use mely_topology::{Distance, Shape, Topology};
//!
//! // Two packages of two pairs of cores, each pair behind one L2: the machine of the Mely paper.
//! let shape = Shape { packages: 2, l2_per_l3: 2, cores_per_l2: 2, ..Shape::default() };
//! let machine = Topology::synthetic(shape)?;
//!
//! assert_eq!(machine.distance(0, 1), Distance::SharedL2);
//! assert_eq!(machine.victims(0)[0], (1, Distance::SharedL2));
//! assert_eq!(machine.victims(0).last(), Some(&(7, Distance::SameMachine)));
//! # Ok::<(), mely_topology::Error>(())
//! ```
//!
//! # Words
//!
//! A **core** here is what one thread of a runtime is pinned to: a *logical* CPU, as Linux numbers
//! them. A **physical core** is the piece of silicon that one or more of them (SMT siblings) share.
//! Cores are addressed by their *index* `0..n` in [`Topology::cores`], never by CPU number: the
//! numbers may have holes, and in a container they do.
//!
//! # Map of the crate
//!
//! - [`Topology`], [`Core`], [`Cache`], [`PhysicalCore`], [`NumaNode`], [`Package`]: the model.
//! - [`Topology::detect`]: this machine, as far as this thread may use it.
//!   [`Topology::from_sysfs`]: any recorded tree.
//! - [`Topology::synthetic`] and [`Topology::flat`]: machines that nobody has at hand.
//! - [`Topology::described`], [`Topology::recorded`], [`Topology::description`]: machines written
//!   down in a few lines.
//! - [`Topology::restrict`] and [`Topology::take`]: fewer cores of the same machine.
//! - [`Distance`], [`Topology::distance`], [`Topology::victims`]: what it is all for.
//! - [`Topology::picture`] and [`Topology::victim_table`]: for people.
//! - [`CpuList`]: the kernel's `0-3,8` notation.
//! - [`Error`] and [`Warning`]: what went wrong, in which file.
//!
//! With the feature `hwloc` the same model also comes from hwloc, live, from an XML file, or from a
//! synthetic description.
//!
//! # What is deliberately absent
//!
//! No binding of threads, no memory placement, no measuring: this crate only reads. Kinds of cores
//! (performance, efficiency) and the relative distances between NUMA nodes are not modeled; a thief
//! sees a remote node as remote, not as how remote.

#![forbid(unsafe_code)]

#[cfg(not(target_os = "linux"))]
compile_error!("mely and mely-topology run on Linux only: what they know of a machine is in sysfs");

mod affinity;
mod cpulist;
mod described;
mod detect;
mod distance;
mod draft;
mod error;
#[cfg(feature = "hwloc")]
mod hwloc;
mod model;
mod picture;
mod read;
mod subset;
mod synthetic;
mod sysfs;
mod victims;
mod warning;

pub use cpulist::{CpuList, CpuListError};
pub use described::DescriptionError;
pub use distance::Distance;
pub use error::Error;
pub use model::{Cache, CacheKind, Core, NumaNode, Package, PhysicalCore, Topology};
pub use synthetic::Shape;
pub use warning::Warning;

/// The most logical CPUs a topology holds, and one more than the highest CPU number it accepts.
///
/// It is the largest `NR_CPUS` that Linux can be built with. A file that names a higher number is
/// malformed, and refusing it keeps a hostile one from costing memory.
pub const CPUS_MAX: usize = 8192;

/// Runs the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
