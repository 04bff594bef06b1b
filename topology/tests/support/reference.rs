//! What a sysfs tree says, read a second time and in the plainest way: from a map of files, with
//! sets instead of ranges, and by the table of `Topology::from_sysfs` alone.
//!
//! The cargo-fuzz package includes this file too.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use mely_topology::{CPUS_MAX, CpuList, Topology};

const SYSFS_BYTES_MAX: usize = 64 * 1024;
const CACHES_MAX: usize = 16;

/// A tree: contents by path. Folders are those that files are in.
pub(crate) type Files = BTreeMap<String, Vec<u8>>;

type Cpus = BTreeSet<u32>;

/// Level, kind and all sharers.
type CacheName = (u8, String, Cpus);

/// The sharers that agree; size and line.
type CacheSaid = (Cpus, Option<u64>, Option<u32>);

/// What a tree says of a machine, or what a topology does.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Said {
    pub(crate) cores: BTreeMap<u32, Core>,
    pub(crate) caches: BTreeMap<CacheName, CacheSaid>,
    /// Something was missing or malformed.
    pub(crate) warned: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Core {
    physical: u32,
    /// Those on the same physical core.
    siblings: Cpus,
    node: u32,
    package: i32,
}

/// A list of CPUs, or `None` of what is none.
pub(crate) fn list(text: &str) -> Option<Cpus> {
    let mut cpus = Cpus::new();
    let text = text.trim_ascii();
    for entry in text.split(',').filter(|_| !text.is_empty()) {
        let ends: Vec<&str> = entry.splitn(2, '-').collect();
        let (first, last) = (number(ends[0])?, number(ends[ends.len() - 1])?);
        if first > last || last >= CPUS_MAX as u64 {
            return None;
        }
        cpus.extend(first as u32..=last as u32);
    }
    Some(cpus)
}

/// Digits and nothing else.
fn number(text: &str) -> Option<u64> {
    let digits = text.bytes().all(|b| b.is_ascii_digit());
    text.parse().ok().filter(|_| digits)
}

fn size(text: &str) -> Option<u64> {
    let unit_bytes = match text.chars().last()? {
        'K' => 1 << 10,
        'M' => 1 << 20,
        'G' => 1 << 30,
        _ => return number(text),
    };
    number(&text[..text.len() - 1])?.checked_mul(unit_bytes)
}

/// The plain numbers N of the entries `<prefix>N` of a folder.
fn entries(files: &Files, folder: &str, prefix: &str) -> BTreeSet<u32> {
    let start = format!("{folder}/{prefix}");
    let numbers = below(files, &start).filter_map(|rest| {
        let name = rest.split('/').next()?;
        let number: u32 = name.parse().ok()?;
        (number.to_string() == name).then_some(number)
    });
    numbers.collect()
}

fn is_folder(files: &Files, path: &str) -> bool {
    below(files, &format!("{path}/")).next().is_some()
}

/// What follows `start` in the paths that begin with it.
fn below<'a>(files: &'a Files, start: &str) -> impl Iterator<Item = &'a str> {
    let paths = files.range(start.to_owned()..).map(|(path, _)| path);
    paths.map_while(move |path| path.strip_prefix(start))
}

/// Reads the files, and notes whether something was wrong with one.
struct Reader<'a> {
    files: &'a Files,
    warned: bool,
}

impl Reader<'_> {
    /// `Err` of a file that is no text, `None` of one that is not there.
    fn text(&self, path: &str) -> Result<Option<String>, ()> {
        match self.files.get(path) {
            Some(bytes) if bytes.len() > SYSFS_BYTES_MAX => Err(()),
            Some(bytes) => match String::from_utf8(bytes.clone()) {
                Ok(text) => Ok(Some(text.trim_ascii().to_owned())),
                Err(_) => Err(()),
            },
            None if is_folder(self.files, path) => Err(()),
            None => Ok(None),
        }
    }

    /// What a file says, if it says something; whether it is missing does not matter.
    fn optional<T>(&mut self, path: &str, parse: impl Fn(&str) -> Option<T>) -> Option<T> {
        match self.text(path) {
            Ok(None) => None,
            Ok(Some(text)) => self.wanted(parse(&text)),
            Err(()) => self.wanted(None),
        }
    }

    fn required<T>(&mut self, path: &str, parse: impl Fn(&str) -> Option<T>) -> Option<T> {
        let parsed = self.optional(path, parse);
        self.wanted(parsed)
    }

    fn wanted<T>(&mut self, value: Option<T>) -> Option<T> {
        self.warned |= value.is_none();
        value
    }

    fn online(&mut self) -> Cpus {
        let nonempty = |text: &str| list(text).filter(|cpus| !cpus.is_empty());
        if let Some(cpus) = self.required("devices/system/cpu/online", nonempty) {
            return cpus;
        }
        let mut cpus = entries(self.files, "devices/system/cpu", "cpu");
        cpus.retain(|cpu| {
            let path = format!("devices/system/cpu/cpu{cpu}/online");
            *cpu < CPUS_MAX as u32 && self.text(&path) != Ok(Some("0".to_owned()))
        });
        cpus
    }

    fn nodes(&mut self, cpus: &Cpus) -> BTreeMap<u32, u32> {
        let ids = entries(self.files, "devices/system/node", "node");
        let mut node_of = BTreeMap::new();
        for id in &ids {
            let path = format!("devices/system/node/node{id}/cpulist");
            for cpu in self.required(&path, list).unwrap_or_default() {
                self.warned |= cpus.contains(&cpu) && node_of.contains_key(&cpu);
                node_of.entry(cpu).or_insert(*id);
            }
        }
        node_of.retain(|cpu, _| cpus.contains(cpu));
        let first = node_of.values().min().copied().unwrap_or(0);
        for cpu in cpus {
            self.warned |= !node_of.contains_key(cpu);
            node_of.entry(*cpu).or_insert(first);
        }
        node_of
    }
}

/// What the tree says; `None` if it has no CPU.
pub(crate) fn said(files: &Files) -> Option<Said> {
    let mut reader = Reader {
        files,
        warned: false,
    };
    let cpus = Some(reader.online()).filter(|cpus| !cpus.is_empty())?;
    if !is_folder(files, "devices/system/cpu") {
        return None;
    }
    let nodes = reader.nodes(&cpus);
    let mut siblings_of = BTreeMap::new();
    let mut packages = BTreeMap::new();
    let mut described: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for &cpu in &cpus {
        let with_itself = |text: &str| list(text).filter(|cpus| cpus.contains(&cpu));
        let folder = format!("devices/system/cpu/cpu{cpu}");
        let topology = format!("{folder}/topology");
        if !is_folder(files, &folder) {
            reader.warned = true;
            siblings_of.insert(cpu, Cpus::from([cpu]));
            packages.insert(cpu, 0);
            continue;
        }
        let [new, old] =
            ["core_cpus_list", "thread_siblings_list"].map(|name| format!("{topology}/{name}"));
        let exists = |path: &str| files.contains_key(path) || is_folder(files, path);
        let path = if !exists(&new) && exists(&old) {
            old
        } else {
            new
        };
        let siblings = reader.required(&path, with_itself);
        siblings_of.insert(cpu, siblings.unwrap_or(Cpus::from([cpu])));
        let signed = |text: &str| {
            let digits = text.strip_prefix('-').unwrap_or(text);
            number(digits).and_then(|_| text.parse::<i32>().ok())
        };
        let package = reader.required(&format!("{topology}/physical_package_id"), signed);
        packages.insert(cpu, package.unwrap_or(0));

        let caches = entries(files, &format!("{folder}/cache"), "index");
        reader.warned |= caches.is_empty();
        for index in caches.into_iter().take(CACHES_MAX) {
            let file = |name: &str| format!("{folder}/cache/index{index}/{name}");
            let level = |text: &str| number(text).filter(|level| (1..10).contains(level));
            let kind = |text: &str| {
                let known = ["Data", "Instruction", "Unified"].contains(&text);
                known.then(|| text.to_ascii_lowercase())
            };
            let Some(level) = reader.required(&file("level"), level) else {
                continue;
            };
            let Some(kind) = reader.required(&file("type"), kind) else {
                continue;
            };
            let sharers = reader.required(&file("shared_cpu_list"), with_itself);
            let line = |text: &str| number(text).and_then(|n| u32::try_from(n).ok());
            let sizes = (
                reader.optional(&file("size"), size),
                reader.optional(&file("coherency_line_size"), line),
            );
            let sharers = sharers.unwrap_or(Cpus::from([cpu]));
            let key = (level as u8, kind, sharers);
            described.entry(key).or_default().push((cpu, sizes));
        }
    }
    let mut caches = BTreeMap::new();
    for (key, by) in described {
        reader.warned |= key.2.intersection(&cpus).count() != by.len();
        let members = by.iter().map(|(cpu, _)| *cpu).collect();
        let (size, line) = by[0].1;
        caches.insert(key, (members, size, line));
    }
    let mut firsts: BTreeMap<_, Vec<u32>> = BTreeMap::new();
    for (cpu, siblings) in &siblings_of {
        firsts.entry(siblings.first()).or_default().push(*cpu);
    }
    let mut cores = BTreeMap::new();
    for &cpu in &cpus {
        let own = &siblings_of[&cpu];
        // All that it names, and all that name the same first one, must say the same.
        let named = own.iter().filter(|other| cpus.contains(other));
        let agree = named
            .chain(&firsts[&own.first()])
            .all(|other| siblings_of[other] == *own);
        reader.warned |= !agree;
        let its = if agree { own } else { &Cpus::from([cpu]) };
        let core = Core {
            physical: its.first().copied().unwrap_or(cpu),
            siblings: its.intersection(&cpus).copied().collect(),
            node: nodes[&cpu],
            package: packages[&cpu],
        };
        cores.insert(cpu, core);
    }
    Some(Said {
        cores,
        caches,
        warned: reader.warned,
    })
}

/// What a topology says, in the same words.
pub(crate) fn told(topology: &Topology) -> Said {
    let cpus_of = |cores: &[usize]| {
        cores
            .iter()
            .map(|&core| topology.cores()[core].cpu)
            .collect()
    };
    let cores = topology.cores().iter().map(|core| {
        let physical = &topology.physical_cores()[core.physical];
        let said = Core {
            physical: physical.first_cpu,
            siblings: cpus_of(&physical.cores),
            node: topology.nodes()[core.node].id,
            package: topology.packages()[core.package].id,
        };
        (core.cpu, said)
    });
    let caches = topology.caches().iter().map(|cache| {
        let key = (
            cache.level,
            cache.kind.to_string(),
            cache.shared_cpus.iter().collect(),
        );
        (
            key,
            (cpus_of(&cache.cores), cache.size_bytes, cache.line_bytes),
        )
    });
    Said {
        cores: cores.collect(),
        caches: caches.collect(),
        warned: !topology.warnings().is_empty(),
    }
}

/// Reads the tree below `root`, which has just these files, and holds it against them.
pub(crate) fn assert_read_as_said(root: &Path, files: &Files) {
    let read = Topology::from_sysfs(root);
    let said = said(files);
    assert_eq!(read.as_ref().ok().map(told), said);
    for warning in read.iter().flat_map(Topology::warnings) {
        // An excerpt of 24 characters, each of them escaped at worst, and some words.
        let chars = warning.reason.chars().count();
        assert!(chars < 400, "too long to be read: {warning}");
    }
}

pub(crate) fn assert_parsed_as_said(text: &str) {
    let parsed = text.parse::<CpuList>().ok();
    let said = list(text);
    assert_eq!(parsed.as_ref().map(|list| list.iter().collect()), said);
    let (Some(parsed), Some(said)) = (parsed, said) else {
        return;
    };
    assert_eq!(
        (parsed.len(), parsed.is_empty()),
        (said.len(), said.is_empty())
    );
    assert_eq!(parsed.first(), said.first().copied());
    for cpu in said
        .iter()
        .flat_map(|&cpu| [cpu.saturating_sub(1), cpu, cpu + 1])
    {
        assert_eq!(parsed.contains(cpu), said.contains(&cpu), "{cpu} in {text}");
    }
    assert_eq!(parsed.to_string().parse().as_ref(), Ok(&parsed));
    assert_eq!(said.into_iter().collect::<CpuList>(), parsed);
}

/// Two packages of two cores of two threads, of which one is offline; one node a package.
pub(crate) fn regular() -> Files {
    let mut files = Files::new();
    let mut put = |path: String, text: &str| drop(files.insert(path, format!("{text}\n").into()));
    put("devices/system/cpu/online".to_owned(), "0-6");
    for cpu in 0..8 {
        let folder = format!("devices/system/cpu/cpu{cpu}");
        let (pair, package) = (["0,4", "1,5", "2,6", "3,7"][cpu % 4], cpu % 4 / 2);
        let near = ["0-1,4-5", "2-3,6-7"][package];
        put(format!("{folder}/online"), if cpu == 7 { "0" } else { "1" });
        put(
            format!("{folder}/topology/physical_package_id"),
            &package.to_string(),
        );
        put(format!("{folder}/topology/core_cpus_list"), pair);
        for (index, text) in [
            format!("1 Data 32K 64 {pair}"),
            format!("2 Unified 1M 64 {pair}"),
            format!("3 Unified 8192K 64 {near}"),
        ]
        .iter()
        .enumerate()
        {
            let names = [
                "level",
                "type",
                "size",
                "coherency_line_size",
                "shared_cpu_list",
            ];
            for (name, text) in names.into_iter().zip(text.split(' ')) {
                put(format!("{folder}/cache/index{index}/{name}"), text);
            }
        }
    }
    for (node, near) in ["0-1,4-5", "2-3,6-7"].into_iter().enumerate() {
        put(format!("devices/system/node/node{node}/cpulist"), near);
    }
    files
}

/// Puts `content` at `path`, in place of what is there; a folder with something in it if `None`.
pub(crate) fn put(files: &mut Files, path: &str, content: Option<&[u8]>) {
    remove(files, path);
    // What was a file is now a folder.
    for (end, _) in path.match_indices('/') {
        files.remove(&path[..end]);
    }
    match content {
        Some(content) => files.insert(path.to_owned(), content.to_vec()),
        None => files.insert(format!("{path}/x"), Vec::new()),
    };
}

/// Removes a file, or a folder and all that is in it.
pub(crate) fn remove(files: &mut Files, path: &str) {
    let below = format!("{path}/");
    files.retain(|other, _| other != path && !other.starts_with(&below));
}

/// Makes the tree below `root` that of `files`, where it has been that of `before`.
pub(crate) fn write(root: &Path, before: &Files, files: &Files) {
    for path in before.keys().filter(|path| !files.contains_key(*path)) {
        fs::remove_file(root.join(path)).unwrap();
        // Folders go with the last thing in them.
        let folders = Path::new(path).ancestors().skip(1);
        let folders = folders.take_while(|folder| !folder.as_os_str().is_empty());
        for folder in folders {
            if fs::remove_dir(root.join(folder)).is_err() {
                break;
            }
        }
    }
    for (path, content) in files
        .iter()
        .filter(|(path, new)| before.get(*path) != Some(new))
    {
        let path = root.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
}
