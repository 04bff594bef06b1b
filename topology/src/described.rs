//! Machines written down in a few lines, and back: the notation of `fixtures/README.md`.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::cpulist::excerpt;
use crate::draft::{DraftCache, DraftCore, assemble};
use crate::model::{Cache, CacheKind};
use crate::sysfs::{CACHES_MAX, parse_cpus, parse_kind, parse_level, parse_number, parse_size};
use crate::{CpuList, Topology};

/// Machines in `fixtures/` that are written down in this notation.
const RECORDED: [(&str, &str); 4] = [
    (
        "mely-xeon-e5410",
        include_str!("../fixtures/mely-xeon-e5410.machine"),
    ),
    (
        "mely-amd-16",
        include_str!("../fixtures/mely-amd-16.machine"),
    ),
    ("epyc-2x64", include_str!("../fixtures/epyc-2x64.machine")),
    (
        "intel-hybrid",
        include_str!("../fixtures/intel-hybrid.machine"),
    ),
];

/// What is wrong with a description, and in which of its lines, counted from 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DescriptionError {
    /// The line; 0 for the whole.
    pub line: usize,
    /// In words.
    pub reason: String,
}

impl std::fmt::Display for DescriptionError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.line {
            0 => f.write_str(&self.reason),
            line => write!(f, "line {line}: {}", self.reason),
        }
    }
}

impl std::error::Error for DescriptionError {}

impl Topology {
    /// Reads a description: one entry a line, `#` starts a comment line.
    ///
    /// ```text
    /// online 0-7                            the CPUs, first of all
    /// package 1: 4-7                        in package 0 unless said otherwise
    /// node 0: 0-7                           in node 0 unless said otherwise
    /// core: 0-7 by 2                        SMT siblings: 0-1, 2-3, 4-5, 6-7
    /// cache 2 Unified 6144K 64: 0,4; 2,6    level, type, size, line size: who shares each
    /// ```
    ///
    /// ```
    /// use mely_topology::{Distance, Topology};
    ///
    /// let pairs = "online 0-3\ncache 2 Unified 6144K 64: 0-3 by 2";
    /// assert_eq!(Topology::described(pairs)?.distance(0, 1), Distance::SharedL2);
    /// # Ok::<(), mely_topology::DescriptionError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// The line that is malformed, or names a CPU that is not online; or that no CPU is.
    pub fn described(text: &str) -> Result<Topology, DescriptionError> {
        let mut machine = Described::default();
        for (at, line) in text.lines().enumerate() {
            let line = line.trim();
            if !line.is_empty() && !line.starts_with('#') {
                let entry = machine.entry(line);
                entry.map_err(|reason| DescriptionError {
                    line: at + 1,
                    reason,
                })?;
            }
        }
        let drafts = machine.cores.into_values().collect();
        assemble(drafts, Vec::new()).map_err(|error| DescriptionError {
            line: 0,
            reason: error.to_string(),
        })
    }

    /// A machine that comes with this crate, as a [description](Self::described):
    /// `mely-xeon-e5410`, `mely-amd-16`, `epyc-2x64` or `intel-hybrid`. None if it is another name.
    ///
    /// ```
    /// use mely_topology::Topology;
    ///
    /// let epyc = Topology::recorded("epyc-2x64").expect("it comes with the crate");
    /// assert_eq!(Topology::described(epyc)?.cores().len(), 128);
    /// # Ok::<(), mely_topology::DescriptionError>(())
    /// ```
    pub fn recorded(name: &str) -> Option<&'static str> {
        let mut all = RECORDED.iter();
        all.find(|(its, _)| *its == name).map(|(_, text)| *text)
    }

    /// The names that [`recorded`](Self::recorded) knows.
    pub fn recorded_names() -> impl Iterator<Item = &'static str> {
        RECORDED.iter().map(|(name, _)| *name)
    }

    /// Writes it down as a [description](Self::described), which is read as an equal topology if
    /// none of its parts is shared with CPUs that it leaves out.
    ///
    /// ```
    /// use mely_topology::{Shape, Topology};
    ///
    /// let machine = Topology::synthetic(Shape { packages: 2, cores_per_l2: 2, ..Shape::default() })?;
    /// assert_eq!(Topology::described(&machine.description()).as_ref(), Ok(&machine));
    /// # Ok::<(), mely_topology::Error>(())
    /// ```
    pub fn description(&self) -> String {
        let list = |cores: &[usize]| -> String {
            let cpus = cores.iter().map(|&core| self.cores[core].cpu);
            cpus.collect::<CpuList>().to_string()
        };
        let all: Vec<usize> = (0..self.cores.len()).collect();
        let mut text = format!("online {}\n", list(&all));
        for package in &self.packages {
            let _ = writeln!(text, "package {}: {}", package.id, list(&package.cores));
        }
        for node in &self.nodes {
            let _ = writeln!(text, "node {}: {}", node.id, list(&node.cores));
        }
        let siblings = self.physical_cores.iter().map(|core| list(&core.cores));
        let _ = writeln!(text, "core: {}", siblings.collect::<Vec<_>>().join("; "));
        let alike = |a: &Cache, b: &Cache| {
            let what = |of: &Cache| (of.level, of.kind, of.size_bytes, of.line_bytes);
            what(a) == what(b)
        };
        for caches in self.caches.chunk_by(alike) {
            let Cache { level, kind, .. } = caches[0];
            let kind = match kind {
                CacheKind::Data => "Data",
                CacheKind::Instruction => "Instruction",
                CacheKind::Unified => "Unified",
            };
            let size = caches[0].size_bytes.map_or("?".into(), |bytes| {
                if bytes % 1024 == 0 {
                    format!("{}K", bytes / 1024)
                } else {
                    bytes.to_string()
                }
            });
            let line = caches[0].line_bytes.map_or("?".into(), |b| b.to_string());
            let sharers = caches.iter().map(|cache| list(&cache.cores));
            let sharers = sharers.collect::<Vec<_>>().join("; ");
            let _ = writeln!(text, "cache {level} {kind} {size} {line}: {sharers}");
        }
        text
    }
}

/// What was read so far.
#[derive(Default)]
struct Described {
    cores: BTreeMap<u32, DraftCore>,
}

impl Described {
    fn entry(&mut self, line: &str) -> Result<(), String> {
        let (word, rest) = line.split_once([' ', ':']).unwrap_or((line, ""));
        let rest = rest.trim();
        let with_id = || {
            let (id, list) = rest.split_once(':').ok_or_else(|| {
                format!(
                    "`{word}` is followed by a number, a colon and CPUs, such as `{word} 0: 0-3`"
                )
            })?;
            Ok::<_, String>((id.trim(), parse_cpus(list.trim())?))
        };
        match word {
            "online" => {
                for cpu in parse_cpus(rest)?.iter() {
                    self.cores.insert(cpu, DraftCore::unknown(cpu));
                }
            }
            "package" => {
                let (id, cpus) = with_id()?;
                let id = parse_number(id)?;
                self.change(&cpus, |core| core.package = id)?;
            }
            "node" => {
                let (id, cpus) = with_id()?;
                let id = parse_number(id)?;
                self.change(&cpus, |core| core.node = id)?;
            }
            "core" => {
                for group in groups(rest)? {
                    let first = group.first();
                    self.change(&group, |core| core.physical = first.unwrap_or(core.cpu))?;
                }
            }
            "cache" => self.caches(rest)?,
            other => {
                return Err(format!(
                    "{:?} is none of online, package, node, core and cache",
                    excerpt(other)
                ));
            }
        }
        Ok(())
    }

    fn caches(&mut self, rest: &str) -> Result<(), String> {
        let what = || {
            let (what, sharers) = rest.split_once(':')?;
            let mut words = what.split_whitespace();
            let words = [words.next()?, words.next()?, words.next()?, words.next()?];
            Some((words, sharers.trim()))
        };
        let Some(([level, kind, size, line], sharers)) = what() else {
            return Err(
                "a cache is a level, a type, a size, the size of a line, a colon and who \
                 shares it, such as `cache 2 Unified 512K 64: 0-7 by 1`"
                    .into(),
            );
        };
        let known = |text| (text != "?").then_some(text);
        let cache = DraftCache {
            level: parse_level(level)?,
            kind: parse_kind(kind)?,
            shared_cpus: CpuList::default(),
            size_bytes: known(size).map(parse_size).transpose()?,
            line_bytes: known(line).map(parse_number).transpose()?,
        };
        for group in groups(sharers)? {
            let cache = DraftCache {
                shared_cpus: group.clone(),
                ..cache.clone()
            };
            let mut too_many = false;
            self.change(&group, |core| {
                too_many |= core.caches.len() == CACHES_MAX;
                core.caches.push(cache.clone());
            })?;
            if too_many {
                return Err(format!("more than {CACHES_MAX} caches of one CPU"));
            }
        }
        Ok(())
    }

    fn change(
        &mut self,
        cpus: &CpuList,
        mut change: impl FnMut(&mut DraftCore),
    ) -> Result<(), String> {
        for cpu in cpus.iter() {
            let core = self.cores.get_mut(&cpu);
            change(core.ok_or_else(|| format!("CPU {cpu} is not online"))?);
        }
        Ok(())
    }
}

/// `0,4; 2,6` is two groups; `0-7 by 2` is four, `0-1` to `6-7`.
fn groups(text: &str) -> Result<Vec<CpuList>, String> {
    let mut groups = Vec::new();
    for part in text.split(';') {
        let (list, size) = match part.split_once(" by ") {
            Some((list, size)) => (list, parse_number::<usize>(size.trim())?),
            None => (part, usize::MAX),
        };
        if size == 0 {
            return Err("groups of 0 CPUs".into());
        }
        let cpus: Vec<u32> = parse_cpus(list.trim())?.iter().collect();
        let chunks = cpus.chunks(size.min(cpus.len().max(1)));
        groups.extend(chunks.map(|chunk| chunk.iter().copied().collect::<CpuList>()));
    }
    Ok(groups)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        Topology::described(text).unwrap_err().to_string()
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        assert_eq!(error(""), "no core is left to run on");
        assert_eq!(
            error("online 0-1\n\npackage 0: 7"),
            "line 3: CPU 7 is not online"
        );
        assert_eq!(
            error("# a\nlevel 1"),
            "line 2: \"level\" is none of online, package, node, core and cache"
        );
        assert_eq!(
            error("online 0\nnode 1"),
            "line 2: `node` is followed by a number, a colon and CPUs, such as `node 0: 0-3`"
        );
        assert!(error("online 0\ncache 1 Data 32K: 0").starts_with("line 2: a cache is a level"));
        assert_eq!(
            error("online 0\ncache 1 Data 32KB 64: 0"),
            "line 2: \"32KB\" is not a size"
        );
        let cache = "cache 1 Data 32K 64: 0\n".repeat(17);
        assert_eq!(
            error(&format!("online 0\n{cache}")),
            "line 18: more than 16 caches of one CPU"
        );
        assert_eq!(
            error("online 0-1\ncore: 0-1 by 0"),
            "line 2: groups of 0 CPUs"
        );
        assert_eq!(
            error("online 0\npackage +1: 0"),
            "line 2: \"+1\" is not a number that fits"
        );
    }

    #[test]
    fn recorded_machines_are_written_as_they_are_read() {
        for name in Topology::recorded_names() {
            let machine = Topology::described(Topology::recorded(name).unwrap()).unwrap();
            let again = Topology::described(&machine.description()).unwrap();
            assert_eq!(machine, again, "{name}");
        }
        assert_eq!(Topology::recorded("none"), None);
    }
}
