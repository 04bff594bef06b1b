//! Machines written down in `fixtures/*.machine`, and temporary folders to unfold them in.
#![allow(dead_code, reason = "each test file uses its part")]

pub(crate) mod reference;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{env, fs, process};

use mely_topology::{CpuList, Topology};

/// Every machine in `fixtures/`.
pub(crate) const MACHINES: [&str; 6] = [
    "build-vm",
    "mely-xeon-e5410",
    "mely-amd-16",
    "epyc-2x64",
    "intel-hybrid",
    "broken",
];

pub(crate) fn fixture_path(file: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("fixtures")
        .join(file)
}

/// A sysfs tree in memory: contents by path.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tree {
    pub(crate) files: BTreeMap<String, String>,
    next_cache: BTreeMap<u32, usize>,
}

impl Tree {
    /// Reads `fixtures/<name>.machine`; `fixtures/README.md` explains the format.
    pub(crate) fn of(name: &str) -> Tree {
        let path = fixture_path(&format!("{name}.machine"));
        let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        Tree::parse(&text)
    }

    pub(crate) fn parse(text: &str) -> Tree {
        let mut tree = Tree::default();
        for line in text
            .lines()
            .filter(|line| !line.is_empty() && !line.starts_with('#'))
        {
            let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
            match word.trim_end_matches(':') {
                "file" => {
                    let (path, content) = rest.split_once(" =").expect(line);
                    tree.put(path, content.trim_start());
                }
                "remove" => {
                    let below = format!("{rest}/");
                    tree.files
                        .retain(|path, _| path != rest && !path.starts_with(&below));
                }
                "online" => tree.put("devices/system/cpu/online", rest),
                "package" | "node" => {
                    let (id, list) = rest.split_once(": ").expect(line);
                    tree.put_group(word, id, list);
                }
                "core" => tree.put_cores(rest),
                "cache" => {
                    let (what, groups) = rest.split_once(": ").expect(line);
                    tree.put_caches(what, groups);
                }
                other => panic!("unknown word {other:?} in line {line:?}"),
            }
        }
        tree
    }

    fn put(&mut self, path: &str, content: &str) {
        self.files.insert(path.to_string(), format!("{content}\n"));
    }

    fn put_cpu(&mut self, cpu: u32, file: &str, content: &str) {
        self.put(&format!("devices/system/cpu/cpu{cpu}/{file}"), content);
    }

    fn put_group(&mut self, word: &str, id: &str, list: &str) {
        let cpus: CpuList = list.parse().unwrap();
        if word == "node" {
            let folder = format!("devices/system/node/node{id}");
            self.put(&format!("{folder}/cpulist"), list);
            return self.put(&format!("{folder}/cpumap"), &mask_of(&cpus));
        }
        for cpu in cpus.iter() {
            self.put_cpu(cpu, "topology/physical_package_id", id);
            self.put_masks(cpu, "topology/package_cpus", &cpus);
        }
    }

    fn put_cores(&mut self, groups: &str) {
        for group in groups_of(groups) {
            for cpu in group.iter() {
                self.put_masks(cpu, "topology/core_cpus", &group);
                self.put_cpu(cpu, "topology/core_id", &group.first().unwrap().to_string());
            }
        }
    }

    fn put_caches(&mut self, what: &str, groups: &str) {
        let [level, kind, size, line] = what.split(' ').collect::<Vec<_>>()[..] else {
            panic!("a cache is `<level> <kind> <size> <line>`, not {what:?}");
        };
        for group in groups_of(groups) {
            for cpu in group.iter() {
                let next = self.next_cache.entry(cpu).or_default();
                let folder = format!("cache/index{next}");
                *next += 1;
                self.put_cpu(cpu, &format!("{folder}/level"), level);
                self.put_cpu(cpu, &format!("{folder}/type"), kind);
                self.put_cpu(cpu, &format!("{folder}/size"), size);
                self.put_cpu(cpu, &format!("{folder}/coherency_line_size"), line);
                self.put_cpu(
                    cpu,
                    &format!("{folder}/shared_cpu_list"),
                    &group.to_string(),
                );
                self.put_cpu(cpu, &format!("{folder}/shared_cpu_map"), &mask_of(&group));
            }
        }
    }

    /// The list that we read, and the mask that hwloc reads.
    fn put_masks(&mut self, cpu: u32, file: &str, group: &CpuList) {
        self.put_cpu(cpu, &format!("{file}_list"), &group.to_string());
        self.put_cpu(cpu, file, &mask_of(group));
    }

    /// Writes the tree below `root`.
    pub(crate) fn unfold(&self, root: &Path) {
        for (path, content) in &self.files {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
    }

    /// Unfolds the tree and reads it.
    pub(crate) fn read(&self) -> Topology {
        let folder = TempFolder::new();
        self.unfold(folder.path());
        Topology::from_sysfs(folder.path()).unwrap()
    }
}

/// `0,4; 2,6` is two groups; `0-7 by 2` is four, `0-1` to `6-7`.
fn groups_of(text: &str) -> Vec<CpuList> {
    let mut groups = Vec::new();
    for part in text.split("; ") {
        let (list, size) = match part.split_once(" by ") {
            Some((list, size)) => (list, size.parse().unwrap()),
            None => (part, usize::MAX),
        };
        let cpus: Vec<u32> = list.parse::<CpuList>().unwrap().iter().collect();
        let size = size.min(cpus.len());
        groups.extend(
            cpus.chunks(size)
                .map(|chunk| chunk.iter().copied().collect::<CpuList>()),
        );
    }
    groups
}

/// The kernel's notation of masks: 32-bit words in hexadecimal, highest first.
fn mask_of(cpus: &CpuList) -> String {
    let mut words = vec![0_u32; cpus.iter().last().unwrap_or(0) as usize / 32 + 1];
    for cpu in cpus.iter() {
        words[cpu as usize / 32] |= 1 << (cpu % 32);
    }
    let words: Vec<String> = words
        .iter()
        .rev()
        .map(|word| format!("{word:08x}"))
        .collect();
    words.join(",")
}

/// A folder that goes away with the value.
pub(crate) struct TempFolder(PathBuf);

impl TempFolder {
    pub(crate) fn new() -> TempFolder {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("mely-topology-{}-{number}", process::id());
        // In memory where possible: a tree has thousands of files, and a slow disk takes seconds.
        let in_memory = Path::new("/dev/shm").join(&name);
        if fs::create_dir(&in_memory).is_ok() {
            return TempFolder(in_memory);
        }
        let path = env::temp_dir().join(name);
        fs::create_dir_all(&path).unwrap();
        TempFolder(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TempFolder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Numbers that look random and are the same on every run (xorshift).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit as u64) as usize
    }
}

/// What must hold of any topology, however broken its source.
pub(crate) fn assert_valid(topology: &Topology) {
    let n = topology.cores().len();
    assert!(n > 0, "no cores");
    assert!((1..=n).contains(&topology.usable_parallelism()));
    assert!(
        topology.cores().is_sorted_by(|a, b| a.cpu < b.cpu),
        "CPU numbers out of order"
    );
    let members: Vec<&[usize]> = (topology.packages().iter().map(|package| &package.cores[..]))
        .chain(topology.nodes().iter().map(|node| &node.cores[..]))
        .chain(
            topology
                .physical_cores()
                .iter()
                .map(|physical| &physical.cores[..]),
        )
        .chain(topology.caches().iter().map(|cache| &cache.cores[..]))
        .collect();
    for cores in members {
        assert!(!cores.is_empty(), "a part without cores");
        assert!(cores.is_sorted_by(|a, b| a < b) && cores[cores.len() - 1] < n);
    }
    for (index, core) in topology.cores().iter().enumerate() {
        assert!(topology.packages()[core.package].cores.contains(&index));
        assert!(topology.nodes()[core.node].cores.contains(&index));
        assert!(
            topology.physical_cores()[core.physical]
                .cores
                .contains(&index)
        );
        for &cache in &core.caches {
            assert!(topology.caches()[cache].cores.contains(&index));
            assert!(topology.caches()[cache].shared_cpus.contains(core.cpu));
        }
    }
    assert_orders_valid(topology);
}

/// Symmetric distances; victims a permutation of the others, nearest first.
fn assert_orders_valid(topology: &Topology) {
    let n = topology.cores().len();
    for thief in 0..n {
        let victims = topology.victims(thief);
        let mut seen: Vec<usize> = victims.iter().map(|&(victim, _)| victim).collect();
        seen.sort_unstable();
        let others: Vec<usize> = (0..n).filter(|&core| core != thief).collect();
        assert_eq!(seen, others, "victims of {thief} are not all the others");
        assert!(
            victims.is_sorted_by_key(|&(_, distance)| distance),
            "{thief} goes far too early"
        );
        for &(victim, distance) in &victims {
            assert_eq!(distance, topology.distance(thief, victim));
            assert_eq!(distance, topology.distance(victim, thief), "not symmetric");
            assert!(distance.index() > 0, "only a core itself is at distance 0");
        }
        assert_eq!(topology.distance(thief, thief).index(), 0);
    }
}
