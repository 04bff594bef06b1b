//! A machine for people: an indented tree, and the victims of each core.

use std::fmt::Write;

use crate::model::{Cache, CacheKind};
use crate::{Distance, Topology};

impl Topology {
    /// The machine as an indented tree: packages, NUMA nodes, caches, and in brackets the CPU
    /// numbers of each physical core. Parts that have but one part inside share its line, and equal
    /// private caches side by side are counted.
    ///
    /// ```
    /// use mely_topology::{Shape, Topology};
    ///
    /// let shape = Shape {
    ///     l3_per_node: 2,
    ///     cores_per_l2: 2,
    ///     threads_per_core: 2,
    ///     ..Shape::default()
    /// };
    /// let picture = Topology::synthetic(shape)?.picture();
    /// assert_eq!(picture, "\
    /// 8 cores on 4 physical cores, 1 package, 1 NUMA node
    /// package 0 > node 0
    /// ├─ L3 > L2 > 2 x L1: [0 1] [2 3]
    /// └─ L3 > L2 > 2 x L1: [4 5] [6 7]
    /// ");
    /// # Ok::<(), mely_topology::Error>(())
    /// ```
    pub fn picture(&self) -> String {
        let mut text = format!(
            "{} on {}, {}, {}\n",
            count(self.cores.len(), "core"),
            count(self.physical_cores.len(), "physical core"),
            count(self.packages.len(), "package"),
            count(self.nodes.len(), "NUMA node"),
        );
        let machine = self.tree(
            "machine".to_string(),
            (0..self.cores.len()).collect(),
            &LAYERS,
        );
        if self.packages.len() == 1 {
            machine.without_root().draw("", &mut text);
        } else {
            machine.draw("", &mut text);
        }
        text
    }

    /// The victims of each core, one core a line, in CPU numbers: nearest first, with the name of
    /// each distance before the victims that are at it. Runs of three or more are written `4-7`.
    ///
    /// ```
    /// use mely_topology::{Shape, Topology};
    ///
    /// let shape = Shape { packages: 2, l2_per_l3: 3, ..Shape::default() };
    /// let table = Topology::synthetic(shape)?.victim_table();
    /// assert_eq!(table.lines().nth(1), Some("1: L3 2 0 | machine 4 5 3"));
    /// # Ok::<(), mely_topology::Error>(())
    /// ```
    pub fn victim_table(&self) -> String {
        let mut text = String::new();
        let width = self
            .cores
            .last()
            .map_or(1, |core| core.cpu.to_string().len());
        for (thief, core) in self.cores.iter().enumerate() {
            let _ = write!(text, "{:width$}:", core.cpu);
            let victims = self.victims(thief);
            let classes = victims.chunk_by(|a, b| a.1 == b.1);
            for (i, class) in classes.enumerate() {
                let bar = if i == 0 { "" } else { " |" };
                let cpus: Vec<u32> = class
                    .iter()
                    .map(|&(index, _)| self.cores[index].cpu)
                    .collect();
                let distance: Distance = class[0].1;
                let _ = write!(text, "{bar} {distance} {}", runs(&cpus));
            }
            text.push('\n');
        }
        text
    }

    /// The tree of these cores under the given layers.
    fn tree(&self, label: String, cores: Vec<usize>, layers: &[Layer]) -> Tree {
        let Some((layer, deeper)) = layers.split_first() else {
            return Tree {
                label,
                cores: self.brackets(&cores),
                parts: Vec::new(),
            };
        };
        let mut parts: Vec<(Option<usize>, Vec<usize>)> = Vec::new();
        for core in cores {
            let key = self.part_at(core, *layer);
            match parts.iter_mut().find(|(other, _)| *other == key) {
                Some((_, members)) => members.push(core),
                None => parts.push((key, vec![core])),
            }
        }
        if let [(None, _)] = parts[..] {
            // Nobody here has such a cache.
            let (_, cores) = parts.remove(0);
            return self.tree(label, cores, deeper);
        }
        let part = |(key, cores)| self.tree(self.label_at(key, *layer), cores, deeper);
        Tree {
            label,
            cores: Vec::new(),
            parts: parts.into_iter().map(part).collect(),
        }
        .tidy()
    }

    /// Which part of a layer the core belongs to.
    fn part_at(&self, core: usize, layer: Layer) -> Option<usize> {
        let core = &self.cores[core];
        match layer {
            Layer::Package => Some(core.package),
            Layer::Node => Some(core.node),
            Layer::Cache(level) => core.caches.iter().copied().find(|&index| {
                let cache = &self.caches[index];
                cache.level == level && cache.kind != CacheKind::Instruction
            }),
        }
    }

    fn label_at(&self, part: Option<usize>, layer: Layer) -> String {
        match (layer, part) {
            (Layer::Package, Some(index)) => format!("package {}", self.packages[index].id),
            (Layer::Node, Some(index)) => format!("node {}", self.nodes[index].id),
            (Layer::Cache(_), Some(index)) => cache_label(&self.caches[index]),
            (Layer::Cache(level), None) => format!("no L{level}"),
            (_, None) => String::new(),
        }
    }

    /// `[0 1]` for each physical core among these.
    fn brackets(&self, cores: &[usize]) -> Vec<String> {
        let mut physical: Vec<(usize, Vec<String>)> = Vec::new();
        for &core in cores {
            let (key, cpu) = (self.cores[core].physical, self.cores[core].cpu.to_string());
            match physical.iter_mut().find(|(other, _)| *other == key) {
                Some((_, cpus)) => cpus.push(cpu),
                None => physical.push((key, vec![cpu])),
            }
        }
        physical
            .into_iter()
            .map(|(_, cpus)| format!("[{}]", cpus.join(" ")))
            .collect()
    }
}

#[derive(Clone, Copy)]
enum Layer {
    Package,
    Node,
    Cache(u8),
}

/// From the outside in.
const LAYERS: [Layer; 5] = [
    Layer::Package,
    Layer::Node,
    Layer::Cache(3),
    Layer::Cache(2),
    Layer::Cache(1),
];

/// A part of the machine: either parts inside it, or the brackets of its physical cores.
struct Tree {
    label: String,
    cores: Vec<String>,
    parts: Vec<Tree>,
}

impl Tree {
    /// Counts equal private parts side by side, then joins a part with its only one inside.
    fn tidy(mut self) -> Tree {
        let mut tidied: Vec<(usize, Tree)> = Vec::new();
        for part in self.parts {
            match tidied.last_mut() {
                Some((times, previous))
                    if part.cores.len() == 1
                        && previous.cores.len() == *times
                        && part.label == previous.label =>
                {
                    previous.cores.extend(part.cores);
                    *times += 1;
                }
                _ => tidied.push((1, part)),
            }
        }
        self.parts = tidied
            .into_iter()
            .map(|(times, part)| part.counted(times))
            .collect();
        if self.parts.len() == 1 {
            let only = self.parts.remove(0);
            return Tree {
                label: format!("{} > {}", self.label, only.label),
                ..only
            };
        }
        self
    }

    fn counted(mut self, times: usize) -> Tree {
        if times > 1 {
            self.label = format!("{times} x {}", self.label);
        }
        self
    }

    /// Drops the machine's own name in front of its only package.
    fn without_root(mut self) -> Tree {
        if let Some((_, rest)) = self.label.split_once(" > ") {
            self.label = rest.to_string();
        }
        self
    }

    fn draw(&self, indent: &str, text: &mut String) {
        text.push_str(&self.label);
        if !self.cores.is_empty() {
            let _ = write!(text, ": {}", self.cores.join(" "));
        }
        text.push('\n');
        for (i, part) in self.parts.iter().enumerate() {
            let is_last = i + 1 == self.parts.len();
            let (branch, below) = if is_last {
                ("└─ ", "   ")
            } else {
                ("├─ ", "│  ")
            };
            let _ = write!(text, "{indent}{branch}");
            part.draw(&format!("{indent}{below}"), text);
        }
    }
}

fn cache_label(cache: &Cache) -> String {
    let level = cache.level;
    match cache.size_bytes {
        None => format!("L{level}"),
        Some(bytes) if bytes >= 1 << 20 && bytes % (1 << 18) == 0 => {
            format!("L{level} {} MiB", bytes as f64 / f64::from(1 << 20))
        }
        Some(bytes) if bytes % 1024 == 0 => format!("L{level} {} KiB", bytes / 1024),
        Some(bytes) => format!("L{level} {bytes} B"),
    }
}

fn count(n: usize, what: &str) -> String {
    let plural = if n == 1 { "" } else { "s" };
    format!("{n} {what}{plural}")
}

/// Numbers in the order given, with runs of three or more that count up by one as `first-last`.
fn runs(cpus: &[u32]) -> String {
    let mut words = Vec::new();
    for run in cpus.chunk_by(|a, b| a + 1 == *b) {
        match run {
            [first, _, .., last] => words.push(format!("{first}-{last}")),
            _ => words.extend(run.iter().map(u32::to_string)),
        }
    }
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_keep_the_order() {
        assert_eq!(runs(&[5, 6, 7, 0, 1, 3]), "5-7 0 1 3");
        assert_eq!(runs(&[]), "");
        assert_eq!(runs(&[2, 1, 0]), "2 1 0");
    }

    #[test]
    fn a_machine_without_caches_is_its_cores() {
        let picture = Topology::flat(2).unwrap().picture();
        let expected =
            "2 cores on 2 physical cores, 1 package, 1 NUMA node\npackage 0 > node 0: [0] [1]\n";
        assert_eq!(picture, expected);
    }
}
