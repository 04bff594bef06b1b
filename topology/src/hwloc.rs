//! The same model from hwloc, which reads more systems than sysfs describes, and XML files that
//! people send.
//!
//! Two habits of hwloc matter here. It honors the process's cpuset but not the affinity mask unless
//! told to. And its NUMA nodes hang beside the tree of cores, not in it, so a core's node is found
//! by comparing sets.
//!
//! hwloc trusts its XML: a file made to mislead it can stop the process in C, beyond our reach.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;

use hwlocality::bitmap::BitmapRef;
use hwlocality::cpu::cpuset::CpuSet;
use hwlocality::object::TopologyObject;
use hwlocality::object::attributes::ObjectAttributes;
use hwlocality::object::types::{CacheType, ObjectType};
use hwlocality::topology::builder::{BuildFlags, TopologyBuilder, TypeFilter};

use crate::draft::{DraftCache, DraftCore, assemble};
use crate::model::CacheKind;
use crate::read::read_text_up_to;
use crate::{CPUS_MAX, CpuList, Error, Topology};

/// Far more than a machine of all the cores we accept takes.
const XML_BYTES_MAX: u64 = 64 << 20;

impl Topology {
    /// Reads this machine through hwloc: like [`detect`](Self::detect), only the CPUs on which this
    /// process may run, with a CPU quota taken into
    /// [`usable_parallelism`](Self::usable_parallelism). Needs the feature `hwloc`.
    ///
    /// # Errors
    ///
    /// [`Error::Hwloc`] when hwloc cannot read the machine.
    ///
    /// ```
    /// let machine = mely_topology::Topology::from_hwloc()?;
    /// println!("{}", machine.picture());
    /// # Ok::<(), mely_topology::Error>(())
    /// ```
    pub fn from_hwloc() -> Result<Topology, Error> {
        let build = || {
            let flags = BuildFlags::ASSUME_THIS_SYSTEM | BuildFlags::RESTRICT_CPU_TO_THIS_PROCESS;
            load(TopologyBuilder::new().with_flags(flags).map_err(in_words)?)
        };
        Ok(read("live machine", build)?.limited_by_quota())
    }

    /// Reads a machine from a file that hwloc's `lstopo machine.xml` wrote. Needs the feature
    /// `hwloc`.
    ///
    /// # Errors
    ///
    /// [`Error::Hwloc`] when there is no such file or hwloc does not understand it.
    ///
    /// ```
    /// use mely_topology::Topology;
    /// use std::path::Path;
    ///
    /// assert!(Topology::from_hwloc_xml(Path::new("/nowhere.xml")).is_err());
    /// ```
    pub fn from_hwloc_xml(path: &Path) -> Result<Topology, Error> {
        read(&path.display().to_string(), || {
            // Read here, because the binding panics when hwloc finds no such file.
            let xml = read_text_up_to(path, XML_BYTES_MAX)?.ok_or("no such file")?;
            load(TopologyBuilder::new().from_xml(&xml).map_err(in_words)?)
        })
    }

    /// A machine made up in hwloc's synthetic notation. Needs the feature `hwloc`.
    ///
    /// # Errors
    ///
    /// [`Error::Hwloc`] when hwloc does not understand the description, [`Error::TooManyCores`]
    /// when it is for more than [`CPUS_MAX`] cores.
    ///
    /// ```
    /// use mely_topology::{Distance, Topology};
    ///
    /// let xeons = Topology::from_hwloc_synthetic("pack:2 l2:2 core:2 pu:1")?;
    /// assert_eq!(xeons.cores().len(), 8);
    /// assert_eq!(xeons.victims(0)[0], (1, Distance::SharedL2));
    /// # Ok::<(), mely_topology::Error>(())
    /// ```
    pub fn from_hwloc_synthetic(description: &str) -> Result<Topology, Error> {
        // hwloc would happily build a billion cores.
        if described_cores(description) > CPUS_MAX {
            return Err(Error::TooManyCores);
        }
        read(description, || {
            load(
                TopologyBuilder::new()
                    .from_synthetic(description)
                    .map_err(in_words)?,
            )
        })
    }
}

/// The product of all counts of a synthetic description: at least the number of its cores.
fn described_cores(description: &str) -> usize {
    let mut cores = 1_usize;
    let mut depth = 0_usize;
    let mut digits = String::new();
    // Attributes in parentheses hold sizes and indices, not counts.
    for char in description.chars().chain([' ']) {
        match char {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            '0'..='9' if depth == 0 => digits.push(char),
            // `l2:4` is four of them; in `l2`, the digit belongs to the name.
            ':' => digits.clear(),
            _ => {}
        }
        if !digits.is_empty() && !char.is_ascii_digit() {
            let count = digits.parse().unwrap_or(usize::MAX);
            cores = cores.saturating_mul(count);
            digits.clear();
        }
    }
    cores
}

fn in_words(error: impl std::fmt::Display) -> String {
    error.to_string()
}

/// Builds with the instruction caches too, as sysfs has them.
fn load(builder: TopologyBuilder) -> Result<hwlocality::Topology, String> {
    let builder = builder
        .with_cpu_cache_type_filter(TypeFilter::KeepAll)
        .map_err(in_words)?;
    let builder = builder
        .with_cpu_icache_type_filter(TypeFilter::KeepAll)
        .map_err(in_words)?;
    builder.build().map_err(in_words)
}

fn read(
    input: &str,
    build: impl FnOnce() -> Result<hwlocality::Topology, String>,
) -> Result<Topology, Error> {
    let error = |reason| Error::Hwloc {
        input: input.to_string(),
        reason,
    };
    // The binding panics at failures it does not expect of hwloc.
    let built = catch_unwind(AssertUnwindSafe(build));
    let topology = built
        .unwrap_or_else(|_| Err("the binding panicked".into()))
        .map_err(error)?;
    let cores = topology
        .objects_with_type(ObjectType::PU)
        .map(|pu| draft(&topology, pu));
    let drafts = cores.collect::<Result<Vec<_>, _>>().map_err(error)?;
    let mut cpus: Vec<u32> = drafts.iter().map(|draft| draft.cpu).collect();
    cpus.sort_unstable();
    if let Some(twice) = cpus.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(error(format!("two PUs have the number {}", twice[0])));
    }
    assemble(drafts, Vec::new())
}

fn draft(topology: &hwlocality::Topology, pu: &TopologyObject) -> Result<DraftCore, String> {
    let cpu = pu.os_index().unwrap_or_else(|| pu.logical_index());
    if cpu >= CPUS_MAX {
        return Err(format!("CPU {cpu} is beyond the limit of {CPUS_MAX}"));
    }
    let cpu = cpu as u32;
    let physical = pu.first_ancestor_with_type(ObjectType::Core);
    let package = pu.first_ancestor_with_type(ObjectType::Package);
    Ok(DraftCore {
        cpu,
        physical: physical
            .and_then(|core| cpus_of(core).first())
            .unwrap_or(cpu),
        node: node_of(topology, pu),
        package: package.map_or(0, |package| number_of(package) as i32),
        caches: pu.ancestors().filter_map(cache).collect(),
    })
}

/// The number of the NUMA node nearest to a core. Of several that are local to it, as on machines
/// with two kinds of memory, the one with the fewest cores, then the lowest.
fn node_of(topology: &hwlocality::Topology, pu: &TopologyObject) -> u32 {
    let Some(local) = pu.nodeset() else { return 0 };
    let nodes = topology.objects_with_type(ObjectType::NUMANode);
    let local = nodes.filter(|node| match node.nodeset() {
        Some(set) => local.intersects(set),
        None => false,
    });
    let nearest = local.min_by_key(|node| (cpus_of(node).len(), number_of(node)));
    nearest.map_or(0, |node| number_of(node) as u32)
}

fn number_of(object: &TopologyObject) -> usize {
    object.os_index().unwrap_or_else(|| object.logical_index())
}

fn cache(object: &TopologyObject) -> Option<DraftCache> {
    let Some(ObjectAttributes::Cache(cache)) = object.attributes() else {
        return None;
    };
    let kind = match cache.cache_type() {
        CacheType::Data => CacheKind::Data,
        CacheType::Instruction => CacheKind::Instruction,
        CacheType::Unified => CacheKind::Unified,
        _ => return None,
    };
    Some(DraftCache {
        level: u8::try_from(cache.depth()).ok()?,
        kind,
        shared_cpus: cpus_of(object),
        size_bytes: cache.size().map(u64::from),
        line_bytes: cache
            .line_size()
            .and_then(|bytes| u32::try_from(bytes.get()).ok()),
    })
}

/// The CPU numbers under an object, also of those that are offline or not ours to use.
fn cpus_of(object: &TopologyObject) -> CpuList {
    match object.complete_cpuset() {
        // A set may be infinite; no list holds more than the limit anyway.
        Some(set) => numbers(set),
        None => CpuList::default(),
    }
}

fn numbers(set: BitmapRef<'_, CpuSet>) -> CpuList {
    set.iter_set()
        .take(CPUS_MAX)
        .map(|index| usize::from(index) as u32)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_a_description_are_multiplied() {
        assert_eq!(described_cores("pack:2 l2:2 core:2 pu:1"), 8);
        assert_eq!(
            described_cores("pack:2 l3:4(size=33554432) core:8 pu:2"),
            128
        );
        assert_eq!(described_cores("2 3 4"), 24);
        assert_eq!(
            described_cores("core:99999999999999999999999 pu:2"),
            usize::MAX
        );
        assert_eq!(described_cores(""), 1);
    }
}
