//! The model: plain data, cross-referenced by index.

use std::fmt;

use crate::{CpuList, Warning};

/// The cores of a machine, or of the part of it that a process may use.
///
/// All references between its lists are indices into [`cores`](Self::cores),
/// [`caches`](Self::caches), [`physical_cores`](Self::physical_cores), [`nodes`](Self::nodes) and
/// [`packages`](Self::packages), and always valid. Cores are in ascending order of CPU number,
/// there is at least one, and none of the other lists has an entry without cores.
///
/// ```
/// let topology = mely_topology::Topology::detect()?;
/// for core in topology.cores() {
///     let package = &topology.packages()[core.package];
///     println!("CPU {} in package {} of {} cores", core.cpu, package.id, package.cores.len());
/// }
/// # Ok::<(), mely_topology::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    pub(crate) cores: Vec<Core>,
    pub(crate) physical_cores: Vec<PhysicalCore>,
    pub(crate) caches: Vec<Cache>,
    pub(crate) nodes: Vec<NumaNode>,
    pub(crate) packages: Vec<Package>,
    pub(crate) usable_parallelism: usize,
    pub(crate) warnings: Vec<Warning>,
}

impl Topology {
    /// The cores, in ascending order of CPU number. Never empty.
    ///
    /// The position in this slice is the core's *index*, by which everything else refers to it.
    pub fn cores(&self) -> &[Core] {
        &self.cores
    }

    /// The physical cores, ordered by their lowest core index.
    pub fn physical_cores(&self) -> &[PhysicalCore] {
        &self.physical_cores
    }

    /// The caches, ordered by level, then kind, then lowest core index.
    pub fn caches(&self) -> &[Cache] {
        &self.caches
    }

    /// The NUMA nodes that have cores, in ascending order of the kernel's number.
    pub fn nodes(&self) -> &[NumaNode] {
        &self.nodes
    }

    /// The packages (sockets), in ascending order of the kernel's number.
    pub fn packages(&self) -> &[Package] {
        &self.packages
    }

    /// How many threads can usefully run at once: the number of cores, or fewer when this process
    /// has a CPU quota (a container's `--cpus 2`) below it. At least 1.
    ///
    /// Only [`Topology::detect`] and the live hwloc reader know of quotas; for every other source
    /// it is the number of cores. A runtime that wants one thread a core counts its cores like
    /// this:
    ///
    /// ```
    /// use mely_topology::Topology;
    ///
    /// let machine = Topology::detect()?;
    /// let mine = machine.take(machine.usable_parallelism())?;
    /// assert_eq!(mine.cores().len(), machine.usable_parallelism());
    /// # Ok::<(), mely_topology::Error>(())
    /// ```
    pub fn usable_parallelism(&self) -> usize {
        self.usable_parallelism
    }

    /// What was missing or malformed in the source, and what was assumed in its place. Empty on an
    /// ordinary machine. At most 65, the last one counting those beyond.
    pub fn warnings(&self) -> &[Warning] {
        &self.warnings
    }

    /// The index of the core with this CPU number, or `None` when the topology does not have it.
    ///
    /// ```
    /// use mely_topology::Topology;
    ///
    /// let third_and_fourth = Topology::flat(4)?.restrict(&[2, 3])?;
    /// assert_eq!(third_and_fourth.index_of(3), Some(1));
    /// assert_eq!(third_and_fourth.index_of(0), None);
    /// # Ok::<(), mely_topology::Error>(())
    /// ```
    pub fn index_of(&self, cpu: u32) -> Option<usize> {
        self.cores.binary_search_by_key(&cpu, |core| core.cpu).ok()
    }
}

/// One core: a logical CPU.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Core {
    /// The kernel's number of the logical CPU: what a thread is pinned to.
    pub cpu: u32,
    /// Index into [`Topology::physical_cores`].
    pub physical: usize,
    /// Index into [`Topology::nodes`].
    pub node: usize,
    /// Index into [`Topology::packages`].
    pub package: usize,
    /// Indices into [`Topology::caches`] of the caches this core sees, nearest level first.
    pub caches: Vec<usize>,
}

/// A physical core: the SMT siblings that share one pipeline.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PhysicalCore {
    /// The lowest CPU number among the siblings the machine has, also of those that this topology
    /// leaves out. It tells physical cores apart.
    pub first_cpu: u32,
    /// Indices of its cores in this topology, ascending.
    pub cores: Vec<usize>,
}

/// A cache and those who share it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Cache {
    /// 1 is nearest to the core.
    pub level: u8,
    /// What it holds.
    pub kind: CacheKind,
    /// Its size in bytes, where the machine says (many ARM kernels do not).
    pub size_bytes: Option<u64>,
    /// The size of a line in bytes, where the machine says.
    pub line_bytes: Option<u32>,
    /// CPU numbers of all who share it, also of those that this topology leaves out.
    pub shared_cpus: CpuList,
    /// Indices of the cores in this topology that share it, ascending.
    pub cores: Vec<usize>,
}

/// What a cache holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum CacheKind {
    /// Data only.
    Data,
    /// Instructions only. Sharing one brings no data nearer, so [`Distance`](crate::Distance)
    /// ignores it.
    Instruction,
    /// Data and instructions.
    Unified,
}

impl fmt::Display for CacheKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Data => "data",
            Self::Instruction => "instruction",
            Self::Unified => "unified",
        })
    }
}

/// A NUMA node: the cores to which one memory is local.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NumaNode {
    /// The kernel's number of the node.
    pub id: u32,
    /// Indices of its cores, ascending.
    pub cores: Vec<usize>,
}

/// A package: what is put into one socket.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Package {
    /// The kernel's number of the package; -1 is what it says when the firmware does not tell.
    pub id: i32,
    /// Indices of its cores, ascending.
    pub cores: Vec<usize>,
}
