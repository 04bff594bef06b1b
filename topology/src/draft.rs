//! From "each core says what it belongs to" to the cross-referenced model. Every reader ends here,
//! so that all of them agree on numbering and order.

use std::collections::BTreeMap;

use crate::model::{Cache, CacheKind, Core, NumaNode, Package, PhysicalCore};
use crate::{CPUS_MAX, CpuList, Error, Topology, Warning};

/// What a reader found out about one core.
#[derive(Clone, Debug)]
pub(crate) struct DraftCore {
    pub(crate) cpu: u32,
    /// Lowest CPU number among its SMT siblings, itself included.
    pub(crate) physical: u32,
    pub(crate) node: u32,
    pub(crate) package: i32,
    pub(crate) caches: Vec<DraftCache>,
}

impl DraftCore {
    /// A core of which nothing is known but its number.
    pub(crate) fn unknown(cpu: u32) -> Self {
        DraftCore {
            cpu,
            physical: cpu,
            node: 0,
            package: 0,
            caches: Vec::new(),
        }
    }
}

/// A cache as one core describes it. Two cores share a cache when both describe the same level,
/// kind and sharers: sharing is symmetric by construction, whatever the files claim.
#[derive(Clone, Debug)]
pub(crate) struct DraftCache {
    pub(crate) level: u8,
    pub(crate) kind: CacheKind,
    pub(crate) shared_cpus: CpuList,
    pub(crate) size_bytes: Option<u64>,
    pub(crate) line_bytes: Option<u32>,
}

/// Builds the model. CPU numbers must differ.
pub(crate) fn assemble(
    mut drafts: Vec<DraftCore>,
    warnings: Vec<Warning>,
) -> Result<Topology, Error> {
    if drafts.is_empty() {
        return Err(Error::NoCores);
    }
    if drafts.len() > CPUS_MAX {
        return Err(Error::TooManyCores);
    }
    drafts.sort_by_key(|draft| draft.cpu);

    let physical = Groups::of(drafts.iter().map(|draft| draft.physical));
    let nodes = Groups::of(drafts.iter().map(|draft| draft.node));
    let packages = Groups::of(drafts.iter().map(|draft| draft.package));
    let (caches, caches_of) = gather_caches(&drafts);

    let cores: Vec<Core> = drafts
        .iter()
        .zip(caches_of)
        .map(|(draft, caches)| Core {
            cpu: draft.cpu,
            physical: physical.position(&draft.physical),
            node: nodes.position(&draft.node),
            package: packages.position(&draft.package),
            caches,
        })
        .collect();
    Ok(Topology {
        usable_parallelism: cores.len(),
        cores,
        physical_cores: physical.into_list(|first_cpu, cores| PhysicalCore { first_cpu, cores }),
        caches,
        nodes: nodes.into_list(|id, cores| NumaNode { id, cores }),
        packages: packages.into_list(|id, cores| Package { id, cores }),
        warnings,
    })
}

/// Cores by a key, in the order of the keys.
struct Groups<K> {
    groups: Vec<(K, Vec<usize>)>,
}

impl<K: Ord> Groups<K> {
    fn of(keys: impl Iterator<Item = K>) -> Self {
        let mut map: BTreeMap<K, Vec<usize>> = BTreeMap::new();
        for (core, key) in keys.enumerate() {
            map.entry(key).or_default().push(core);
        }
        Groups {
            groups: map.into_iter().collect(),
        }
    }

    fn position(&self, key: &K) -> usize {
        self.groups.partition_point(|(other, _)| other < key)
    }

    fn into_list<T>(self, make: impl Fn(K, Vec<usize>) -> T) -> Vec<T> {
        self.groups
            .into_iter()
            .map(|(key, cores)| make(key, cores))
            .collect()
    }
}

/// The distinct caches, and for each core the indices of its own, nearest first.
fn gather_caches(drafts: &[DraftCore]) -> (Vec<Cache>, Vec<Vec<usize>>) {
    let mut found: BTreeMap<(u8, CacheKind, &CpuList), Cache> = BTreeMap::new();
    for (core, draft) in drafts.iter().enumerate() {
        for cache in &draft.caches {
            let key = (cache.level, cache.kind, &cache.shared_cpus);
            let cores = &mut found
                .entry(key)
                .or_insert_with(|| Cache {
                    level: cache.level,
                    kind: cache.kind,
                    size_bytes: cache.size_bytes,
                    line_bytes: cache.line_bytes,
                    shared_cpus: cache.shared_cpus.clone(),
                    cores: Vec::new(),
                })
                .cores;
            // A broken tree may describe the same cache twice for one core.
            if cores.last() != Some(&core) {
                cores.push(core);
            }
        }
    }
    let mut caches: Vec<Cache> = found.into_values().collect();
    caches.sort_by_key(|cache| (cache.level, cache.kind, cache.cores[0]));

    let mut caches_of = vec![Vec::new(); drafts.len()];
    for (index, cache) in caches.iter().enumerate() {
        for &core in &cache.cores {
            caches_of[core].push(index);
        }
    }
    (caches, caches_of)
}
