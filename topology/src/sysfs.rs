//! Reads the model from a sysfs tree.
//!
//! Every file but the first folder may be missing or malformed: [`Topology::from_sysfs`] documents
//! what is assumed then.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use crate::cpulist::excerpt;
use crate::draft::{DraftCache, DraftCore, assemble};
use crate::model::CacheKind;
use crate::read::{numbered_entries, read_text};
use crate::warning::Warnings;
use crate::{CpuList, Error, Topology};

/// How many caches of a core are read. Real ones have four or five.
pub(crate) const CACHES_MAX: usize = 16;

/// How many NUMA nodes are read: the most that Linux can be built with.
const NODES_MAX: usize = 1024;

impl Topology {
    /// Reads a whole machine, all its online CPUs, from a sysfs tree: `/sys`, or one recorded
    /// elsewhere. What is missing or malformed is replaced by the flattest assumption and recorded
    /// in [`warnings`](Self::warnings):
    ///
    /// | file below `devices/system/` | if missing or malformed |
    /// |---|---|
    /// | `cpu/` | an error: nothing can be said without it |
    /// | `cpu/online` | every `cpu/cpuN` whose own `online` does not say 0 |
    /// | `cpu/cpuN/` | a physical core of its own in package 0 |
    /// | `cpu/cpuN/topology/core_cpus_list`, or `thread_siblings_list` (older kernels) | a physical core of its own |
    /// | `cpu/cpuN/topology/physical_package_id` | package 0 |
    /// | `cpu/cpuN/cache/` | no caches known |
    /// | `cpu/cpuN/cache/indexK/level`, `type` | this cache is left out |
    /// | `cpu/cpuN/cache/indexK/shared_cpu_list` | private to the core |
    /// | `cpu/cpuN/cache/indexK/size`, `coherency_line_size` | unknown; no warning when merely missing, as many machines lack them |
    /// | `node/` | one NUMA node |
    /// | `node/nodeN/cpulist` | a node without cores; a core without a node is in the first one |
    ///
    /// Files that contradict each other count for as much as they agree on: cores share a cache
    /// when each of them names the same sharers, and a physical core when each names the same
    /// siblings.
    ///
    /// For the machine this process runs on use [`detect`](Self::detect), which knows which part of
    /// it the process may use.
    ///
    /// # Errors
    ///
    /// [`Error::File`] when `root` has no readable `devices/system/cpu` with at least one CPU.
    ///
    /// ```
    /// use mely_topology::{Error, Topology};
    /// use std::path::Path;
    ///
    /// let machine = Topology::from_sysfs(Path::new("/sys"))?;
    /// println!("{}", machine.picture());
    ///
    /// let error = Topology::from_sysfs(Path::new("/nowhere")).unwrap_err();
    /// assert_eq!(error.to_string(), "/nowhere/devices/system/cpu: no such folder");
    /// # Ok::<(), Error>(())
    /// ```
    pub fn from_sysfs(root: &Path) -> Result<Topology, Error> {
        let mut reader = Reader::open(root)?;
        let cpus = reader.online()?;
        reader.read(&cpus)
    }

    /// Reads only the CPUs of a mask from a sysfs tree: what a process with this affinity mask sees
    /// of the machine.
    ///
    /// The mask is believed, `online` is not looked at: the kernel puts only CPUs that are online
    /// into masks, whereas container managers are known to paint over that file.
    ///
    /// # Errors
    ///
    /// [`Error::File`] when `root` has no folder `devices/system/cpu`, [`Error::NoCores`] when the
    /// mask is empty.
    ///
    /// ```
    /// use mely_topology::{Error, Topology};
    /// use std::path::Path;
    ///
    /// let sys = Path::new("/sys");
    /// let first = Topology::from_sysfs(sys)?.cores()[0].cpu;
    /// let one = Topology::from_sysfs_masked(sys, &[first].into_iter().collect())?;
    /// assert_eq!(one.cores().len(), 1);
    /// # Ok::<(), Error>(())
    /// ```
    pub fn from_sysfs_masked(root: &Path, mask: &CpuList) -> Result<Topology, Error> {
        Reader::open(root)?.read(mask)
    }
}

struct Reader {
    /// `devices/system/cpu`
    cpus_folder: PathBuf,
    /// `devices/system/node`
    nodes_folder: PathBuf,
    warnings: Warnings,
}

impl Reader {
    fn open(root: &Path) -> Result<Reader, Error> {
        let system = root.join("devices/system");
        let cpus_folder = system.join("cpu");
        if !cpus_folder.is_dir() {
            return Err(Error::File {
                path: cpus_folder,
                reason: "no such folder".to_string(),
            });
        }
        let warnings = Warnings::default();
        Ok(Reader {
            cpus_folder,
            nodes_folder: system.join("node"),
            warnings,
        })
    }

    fn read(mut self, cpus: &CpuList) -> Result<Topology, Error> {
        if cpus.is_empty() {
            return Err(Error::NoCores);
        }
        let nodes = self.nodes(cpus);
        let (mut drafts, siblings): (Vec<DraftCore>, Vec<CpuList>) =
            cpus.iter().map(|cpu| self.core(cpu, nodes[&cpu])).unzip();
        self.check_agreement(cpus, &drafts);
        self.join_siblings(cpus, &mut drafts, &siblings);
        assemble(drafts, self.warnings.into_vec(&self.cpus_folder))
    }

    fn online(&mut self) -> Result<CpuList, Error> {
        let path = self.cpus_folder.join("online");
        let parse = |text: &str| match parse_cpus(text) {
            Ok(cpus) if cpus.is_empty() => Err("lists no CPU".to_string()),
            other => other,
        };
        if let Some(cpus) = self.required(&path, "every CPU that has a folder", parse) {
            return Ok(cpus);
        }
        let folder_error = |reason| Error::File {
            path: self.cpus_folder.clone(),
            reason,
        };
        let found = numbered_entries(&self.cpus_folder, "cpu").map_err(folder_error)?;
        let is_online = |cpu: &u32| {
            let switch = self.cpus_folder.join(format!("cpu{cpu}/online"));
            read_text(&switch) != Ok(Some("0".to_string()))
        };
        let cpus: CpuList = found
            .unwrap_or_default()
            .into_iter()
            .filter(is_online)
            .collect();
        if cpus.is_empty() {
            let path = self.cpus_folder.clone();
            return Err(Error::File {
                path,
                reason: "holds no online CPU".to_string(),
            });
        }
        Ok(cpus)
    }

    /// The NUMA node of each CPU.
    fn nodes(&mut self, cpus: &CpuList) -> BTreeMap<u32, u32> {
        let folder = self.nodes_folder.clone();
        let ids = match numbered_entries(&folder, "node") {
            Ok(Some(ids)) if !ids.is_empty() => ids,
            Ok(Some(_)) => self.no_nodes(&folder, "holds no node"),
            Ok(None) => self.no_nodes(&folder, "no such folder"),
            Err(reason) => self.no_nodes(&folder, &reason),
        };
        let mut node_of = BTreeMap::new();
        for &id in ids.iter().take(NODES_MAX) {
            let path = folder.join(format!("node{id}/cpulist"));
            let Some(local) = self.required(&path, "a node without cores", parse_cpus) else {
                continue;
            };
            for cpu in cpus.iter().filter(|&cpu| local.contains(cpu)) {
                if let Some(other) = node_of.insert(cpu, id) {
                    node_of.insert(cpu, other);
                    let reason = format!("CPU {cpu} is already in node {other}");
                    self.warnings.add(&path, reason, "the lower node");
                }
            }
        }
        let first = node_of.values().copied().min().unwrap_or(0);
        for cpu in cpus.iter() {
            node_of.entry(cpu).or_insert_with(|| {
                if !ids.is_empty() {
                    let reason = format!("CPU {cpu} is in no node");
                    self.warnings
                        .add(&folder, reason, "the first node that has cores");
                }
                first
            });
        }
        node_of
    }

    fn no_nodes(&mut self, folder: &Path, reason: &str) -> Vec<u32> {
        self.warnings.add(folder, reason, "one NUMA node");
        Vec::new()
    }

    /// What is known of a core, on a physical core of its own; and its SMT siblings, itself
    /// included.
    fn core(&mut self, cpu: u32, node: u32) -> (DraftCore, CpuList) {
        let folder = self.cpus_folder.join(format!("cpu{cpu}"));
        let mut core = DraftCore {
            node,
            ..DraftCore::unknown(cpu)
        };
        if !folder.is_dir() {
            self.warnings.add(
                &folder,
                "no such folder",
                "a physical core of its own in package 0",
            );
            return (core, [cpu].into_iter().collect());
        }
        let siblings = self.siblings(&folder, cpu);
        let path = folder.join("topology/physical_package_id");
        core.package = self.required(&path, "package 0", parse_number).unwrap_or(0);
        core.caches = self.caches(&folder, cpu);
        (core, siblings)
    }

    fn siblings(&mut self, folder: &Path, cpu: u32) -> CpuList {
        let current = folder.join("topology/core_cpus_list");
        let older = folder.join("topology/thread_siblings_list");
        let path = if current.exists() || !older.exists() {
            current
        } else {
            older
        };
        let siblings = self.required(&path, "a physical core of its own", cpus_with(cpu));
        siblings.unwrap_or_else(|| [cpu].into_iter().collect())
    }

    /// Puts siblings onto one physical core, if all of them name the same ones.
    fn join_siblings(&mut self, cpus: &CpuList, drafts: &mut [DraftCore], siblings: &[CpuList]) {
        let mut by_first: BTreeMap<Option<u32>, Vec<usize>> = BTreeMap::new();
        for (core, list) in siblings.iter().enumerate() {
            by_first.entry(list.first()).or_default().push(core);
        }
        for (first, cores) in by_first {
            let list = &siblings[cores[0]];
            let alike = cores.iter().all(|&core| siblings[core] == *list);
            if alike && list.iter().filter(|&cpu| cpus.contains(cpu)).count() == cores.len() {
                for core in cores {
                    drafts[core].physical = first.unwrap_or(drafts[core].cpu);
                }
            } else {
                // The longest names the most of those who ought to agree.
                let lists = cores.iter().map(|&core| &siblings[core]);
                let longest = lists.max_by_key(|list| list.len()).unwrap_or(list);
                let named = excerpt(&longest.to_string());
                let reason = format!("the siblings {named} do not all name each other");
                let assumed = "a physical core of its own for each";
                self.warnings.add(&self.cpus_folder, reason, assumed);
            }
        }
    }

    fn caches(&mut self, folder: &Path, cpu: u32) -> Vec<DraftCache> {
        let folder = folder.join("cache");
        let (indices, reason) = match numbered_entries(&folder, "index") {
            Ok(Some(indices)) => (indices, "holds no cache".to_string()),
            Ok(None) => (Vec::new(), "no such folder".to_string()),
            Err(reason) => (Vec::new(), reason),
        };
        if indices.is_empty() {
            self.warnings.add(&folder, reason, "no caches known");
        }
        let folders = indices
            .iter()
            .take(CACHES_MAX)
            .map(|k| folder.join(format!("index{k}")));
        folders
            .filter_map(|folder| self.cache(&folder, cpu))
            .collect()
    }

    fn cache(&mut self, folder: &Path, cpu: u32) -> Option<DraftCache> {
        let left_out = "no such cache";
        let level = self.required(&folder.join("level"), left_out, parse_level)?;
        let kind = self.required(&folder.join("type"), left_out, parse_kind)?;
        let path = folder.join("shared_cpu_list");
        let shared_cpus = self.required(&path, "private to the core", cpus_with(cpu));
        Some(DraftCache {
            level,
            kind,
            shared_cpus: shared_cpus.unwrap_or_else(|| [cpu].into_iter().collect()),
            size_bytes: self.optional(&folder.join("size"), parse_size),
            line_bytes: self.optional(&folder.join("coherency_line_size"), parse_number),
        })
    }

    /// Warns about caches whose sharers do not all describe them alike.
    fn check_agreement(&mut self, cpus: &CpuList, drafts: &[DraftCore]) {
        let mut described: BTreeMap<(u8, CacheKind, &CpuList), usize> = BTreeMap::new();
        for cache in drafts.iter().flat_map(|draft| &draft.caches) {
            *described
                .entry((cache.level, cache.kind, &cache.shared_cpus))
                .or_default() += 1;
        }
        for ((level, kind, sharers), count) in described {
            if sharers.iter().filter(|&cpu| cpus.contains(cpu)).count() != count {
                let sharers = excerpt(&sharers.to_string());
                let reason = format!(
                    "the level {level} {kind} cache of CPUs {sharers} is not described alike by all"
                );
                let assumed = "shared by those who agree";
                self.warnings.add(&self.cpus_folder, reason, assumed);
            }
        }
    }

    /// A file that ought to be there: `None`, and a warning, when it is missing or malformed.
    fn required<T>(&mut self, path: &Path, assumed: &str, parse: impl Parse<T>) -> Option<T> {
        match read_text(path) {
            Ok(None) => {
                self.warnings.add(path, "no such file", assumed);
                None
            }
            read => self.parsed(path, read, assumed, parse),
        }
    }

    /// A file that many machines do without: a warning only when it is malformed.
    fn optional<T>(&mut self, path: &Path, parse: impl Parse<T>) -> Option<T> {
        self.parsed(path, read_text(path), "unknown", parse)
    }

    fn parsed<T>(
        &mut self,
        path: &Path,
        read: Result<Option<String>, String>,
        assumed: &str,
        parse: impl Parse<T>,
    ) -> Option<T> {
        let parsed = read.and_then(|text| text.map(|text| parse(&text)).transpose());
        parsed.unwrap_or_else(|reason| {
            self.warnings.add(path, reason, assumed);
            None
        })
    }
}

/// A parser whose error is a reason in words.
trait Parse<T>: Fn(&str) -> Result<T, String> {}
impl<T, F: Fn(&str) -> Result<T, String>> Parse<T> for F {}

pub(crate) fn parse_cpus(text: &str) -> Result<CpuList, String> {
    text.parse()
        .map_err(|error: crate::CpuListError| error.to_string())
}

/// A list that must name the CPU in whose folder it stands.
fn cpus_with(cpu: u32) -> impl Parse<CpuList> {
    move |text| match parse_cpus(text)? {
        cpus if cpus.contains(cpu) => Ok(cpus),
        cpus => Err(format!(
            "the list {:?} leaves out CPU {cpu} itself",
            excerpt(&cpus.to_string())
        )),
    }
}

pub(crate) fn parse_number<T: std::str::FromStr>(text: &str) -> Result<T, String> {
    // `from_str` takes a plus sign; the kernel never writes one.
    let number = text.parse().ok().filter(|_| !text.starts_with('+'));
    number.ok_or_else(|| format!("{:?} is not a number that fits", excerpt(text)))
}

pub(crate) fn parse_level(text: &str) -> Result<u8, String> {
    match parse_number(text)? {
        level @ 1..=9 => Ok(level),
        level => Err(format!("{level} is not a cache level")),
    }
}

pub(crate) fn parse_kind(text: &str) -> Result<CacheKind, String> {
    match text {
        "Data" => Ok(CacheKind::Data),
        "Instruction" => Ok(CacheKind::Instruction),
        "Unified" => Ok(CacheKind::Unified),
        _ => Err(format!("{:?} is not a type of cache", excerpt(text))),
    }
}

/// `48K`, `32M`, or plain bytes.
pub(crate) fn parse_size(text: &str) -> Result<u64, String> {
    let (digits, unit_bytes) = match text.char_indices().last() {
        Some((end, 'K')) => (&text[..end], 1 << 10),
        Some((end, 'M')) => (&text[..end], 1 << 20),
        Some((end, 'G')) => (&text[..end], 1 << 30),
        _ => (text, 1),
    };
    let size = parse_number::<u64>(digits)
        .ok()
        .and_then(|count| count.checked_mul(unit_bytes));
    size.ok_or_else(|| format!("{:?} is not a size", excerpt(text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        assert_eq!(parse_size("48K"), Ok(48 * 1024));
        assert_eq!(parse_size("32M"), Ok(32 << 20));
        assert_eq!(parse_size("1G"), Ok(1 << 30));
        assert_eq!(parse_size("100"), Ok(100));
        for bad in [
            "",
            "K",
            "-1K",
            "+1K",
            "4.5M",
            "1KB",
            "18446744073709551615K",
            "9é",
        ] {
            assert!(parse_size(bad).is_err(), "{bad:?}");
        }
    }

    #[test]
    fn levels_and_kinds_are_checked() {
        assert_eq!(parse_level("3"), Ok(3));
        assert_eq!(parse_level("0"), Err("0 is not a cache level".into()));
        assert_eq!(
            parse_level("300"),
            Err("\"300\" is not a number that fits".into())
        );
        assert_eq!(parse_kind("Data"), Ok(CacheKind::Data));
        assert_eq!(
            parse_kind("data"),
            Err("\"data\" is not a type of cache".into())
        );
        assert_eq!(
            cpus_with(5)("0-3"),
            Err("the list \"0-3\" leaves out CPU 5 itself".into())
        );
    }
}
