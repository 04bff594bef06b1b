//! The file of a machine: read, and written.
//!
//! ```text
//! # a comment
//! machine 1                               the version of this notation
//! name Two Xeon E5410
//! topology mely-xeon-e5410                one that comes with mely-topology; or a line for each
//!                                         entry of `Topology::described`, each after `topology`
//! cache 1 bytes = 32K ; the paper         a number, and where it comes from
//! cache 1 hit = 1.3 ; assumed
//! ```
//!
//! Each number has a source. A number that is missing is an error and not a default.

use crate::machine::{CORES_MAX, Key, Machine, MachineError, Number, Place};
use mely_topology::{Distance, Topology};
use std::collections::BTreeMap;
use std::fmt::Write;

/// The version of the notation.
const VERSION: &str = "1";
/// Longest file, in bytes.
const FILE_BYTES_MAX: usize = 1 << 20;
/// Most characters of what a message repeats.
const EXCERPT_MAX: usize = 40;

/// The machines that come with the crate.
const SHIPPED: [(&str, &str); 3] = [
    ("xeon-e5410", include_str!("../machines/xeon-e5410.machine")),
    ("epyc-2x64", include_str!("../machines/epyc-2x64.machine")),
    (
        "measured-vm",
        include_str!("../machines/measured-vm.machine"),
    ),
];

impl Machine {
    /// Reads the text of a file.
    ///
    /// # Errors
    /// The first thing that is wrong with it.
    pub fn parse(text: &str) -> Result<Machine, MachineError> {
        let mut file = File::default();
        if text.len() > FILE_BYTES_MAX {
            return Err(wrong(
                0,
                "file",
                format!("longer than {FILE_BYTES_MAX} bytes"),
            ));
        }
        for (at, line) in text.lines().enumerate() {
            let line = line.trim();
            if !line.is_empty() && !line.starts_with('#') {
                file.entry(at + 1, line)?;
            }
        }
        file.finish()
    }

    /// Reads a file.
    ///
    /// # Errors
    /// One sentence: the path, and what is wrong with what is there.
    pub fn read(path: &std::path::Path) -> Result<Machine, String> {
        let said = |reason: &dyn std::fmt::Display| format!("{}: {reason}", path.display());
        let bytes = std::fs::metadata(path).map_err(|error| said(&error))?.len();
        if bytes > FILE_BYTES_MAX as u64 {
            return Err(said(&format!("longer than {FILE_BYTES_MAX} bytes")));
        }
        let text = std::fs::read_to_string(path).map_err(|error| said(&error))?;
        Machine::parse(&text).map_err(|error| said(&error))
    }

    /// A machine that comes with the crate: `xeon-e5410`, `epyc-2x64` or `measured-vm`.
    pub fn shipped(name: &str) -> Option<Machine> {
        let (_, text) = SHIPPED.iter().find(|(its, _)| *its == name)?;
        Some(Machine::parse(text).expect("tested: each is read"))
    }

    /// The names that [`shipped`](Self::shipped) knows.
    pub fn shipped_names() -> impl Iterator<Item = &'static str> {
        SHIPPED.iter().map(|(name, _)| *name)
    }

    /// A machine of this topology with these numbers.
    ///
    /// # Errors
    /// What is missing, or wrong.
    pub fn new(
        name: &str,
        topology: Topology,
        numbers: impl IntoIterator<Item = (Key, Number)>,
    ) -> Result<Machine, MachineError> {
        let machine = Machine {
            name: name.to_owned(),
            recorded: None,
            topology,
            numbers: numbers.into_iter().collect(),
        };
        check_cores(&machine.topology, 0)?;
        machine.check(0, &|_| 0)?;
        Ok(machine)
    }

    /// Writes the text of its file, which [`parse`](Self::parse) reads as the same machine.
    pub fn to_text(&self) -> String {
        let mut text = format!("machine {VERSION}\nname {}\n", self.name);
        match &self.recorded {
            Some(name) => {
                let _ = writeln!(text, "topology {name}");
            }
            None => {
                for line in self.topology.description().lines() {
                    let _ = writeln!(text, "topology {line}");
                }
            }
        }
        text.push('\n');
        for key in Machine::keys(&self.topology) {
            let Number { amount, source } = &self.numbers[&key];
            let amount = match key {
                Key::Bytes(_) if amount % 1024.0 == 0.0 => format!("{}K", amount / 1024.0),
                _ => format!("{amount}"),
            };
            let _ = writeln!(text, "{key} = {amount} ; {source}");
        }
        text
    }
}

fn wrong(line: usize, name: &str, reason: impl Into<String>) -> MachineError {
    MachineError {
        line,
        name: excerpt(name),
        reason: reason.into(),
    }
}

fn excerpt(text: &str) -> String {
    if text.chars().count() <= EXCERPT_MAX {
        return text.to_owned();
    }
    let start: String = text.chars().take(EXCERPT_MAX).collect();
    format!("{start}...")
}

/// What was read so far.
#[derive(Default)]
struct File {
    version: bool,
    name: Option<String>,
    /// With the number of the line that each came from.
    topology: Vec<(usize, String)>,
    numbers: BTreeMap<Key, Number>,
    lines: BTreeMap<Key, usize>,
    /// The last line.
    end: usize,
}

impl File {
    fn entry(&mut self, line: usize, text: &str) -> Result<(), MachineError> {
        self.end = line;
        if let Some((name, rest)) = text.split_once('=') {
            return self.number(line, name.trim(), rest.trim());
        }
        let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
        let rest = rest.trim();
        match word {
            "machine" if self.version => Err(wrong(line, word, "it is there twice")),
            "machine" if rest != VERSION => {
                let reason = format!(
                    "version {:?} of the notation is not known, only {VERSION}",
                    excerpt(rest)
                );
                Err(wrong(line, word, reason))
            }
            "machine" => {
                self.version = true;
                Ok(())
            }
            "name" if self.name.is_some() => Err(wrong(line, word, "it is there twice")),
            "name" if rest.is_empty() => Err(wrong(line, word, "nothing follows")),
            "name" => {
                self.name = Some(rest.to_owned());
                Ok(())
            }
            "topology" => {
                self.topology.push((line, rest.to_owned()));
                Ok(())
            }
            _ => {
                let reason = "an entry is `machine`, `name`, `topology`, or a number: \
                    its name, `=`, the amount, `;` and where it comes from";
                Err(wrong(line, text, reason))
            }
        }
    }

    fn number(&mut self, line: usize, name: &str, rest: &str) -> Result<(), MachineError> {
        let key = key(name).ok_or_else(|| wrong(line, name, "no number has this name"))?;
        let (amount, source) = match rest.split_once(';') {
            Some((amount, source)) if !source.trim().is_empty() => (amount.trim(), source.trim()),
            _ => {
                let reason = "where it comes from is missing: `; measured`, `; assumed` \
                    or a source";
                return Err(wrong(line, name, reason));
            }
        };
        let number = Number {
            amount: self::amount(key, amount).map_err(|reason| wrong(line, name, reason))?,
            source: source.to_owned(),
        };
        if self.numbers.insert(key, number).is_some() {
            let reason = format!("it is there twice, before in line {}", self.lines[&key]);
            return Err(wrong(line, name, reason));
        }
        self.lines.insert(key, line);
        Ok(())
    }

    fn finish(self) -> Result<Machine, MachineError> {
        if !self.version {
            let reason = format!("the entry `machine {VERSION}` is missing");
            return Err(wrong(0, "machine", reason));
        }
        let name = self
            .name
            .ok_or_else(|| wrong(0, "name", "the entry is missing"))?;
        let (recorded, topology) = topology(&self.topology)?;
        let machine = Machine {
            name,
            recorded,
            topology,
            numbers: self.numbers,
        };
        // What is missing is missed at the end.
        let topology_line = self.topology.first().map_or(0, |(line, _)| *line);
        machine.check(topology_line, &|key| {
            self.lines.get(&key).copied().unwrap_or(self.end)
        })?;
        Ok(machine)
    }
}

/// Its name, if it is one that comes with `mely-topology`.
fn topology(lines: &[(usize, String)]) -> Result<(Option<String>, Topology), MachineError> {
    let Some(&(first, ref text)) = lines.first() else {
        return Err(wrong(0, "topology", "the entry is missing"));
    };
    if lines.len() == 1 && !text.contains(' ') {
        let Some(recorded) = Topology::recorded(text) else {
            let names: Vec<_> = Topology::recorded_names().collect();
            let reason = format!("{:?} is none of {}", excerpt(text), names.join(", "));
            return Err(wrong(first, "topology", reason));
        };
        let topology = Topology::described(recorded).expect("tested: each is read");
        return Ok((Some(text.clone()), topology));
    }
    let described: Vec<&str> = lines.iter().map(|(_, text)| text.as_str()).collect();
    let topology = Topology::described(&described.join("\n")).map_err(|error| {
        let line = error.line.checked_sub(1).map_or(first, |at| lines[at].0);
        wrong(line, "topology", error.reason)
    })?;
    check_cores(&topology, first)?;
    Ok((None, topology))
}

fn check_cores(topology: &Topology, line: usize) -> Result<(), MachineError> {
    let cores = topology.cores().len();
    if cores > CORES_MAX {
        let reason = format!("{cores} cores are more than {CORES_MAX}");
        return Err(wrong(line, "topology", reason));
    }
    Ok(())
}

/// The key of this name.
pub(crate) fn key(name: &str) -> Option<Key> {
    let words: Vec<&str> = name.split_whitespace().collect();
    let distance = |name| Distance::ALL.into_iter().find(|d| d.name() == name);
    let level = |text: &str| text.parse().ok().filter(|level| (1..=9).contains(level));
    Some(match words[..] {
        ["cache", of, "bytes"] => Key::Bytes(level(of)?),
        ["cache", of, "hit"] => Key::Hit(Place::Cache(level(of)?)),
        ["cache", of, "row"] => Key::Row(Place::Cache(level(of)?)),
        ["memory", "hit"] => Key::Hit(Place::Memory),
        ["memory", "row"] => Key::Row(Place::Memory),
        ["far-memory", "hit"] => Key::Hit(Place::FarMemory),
        ["far-memory", "row"] => Key::Row(Place::FarMemory),
        ["transfer", over] => Key::Transfer(distance(over)?),
        ["transfer-row", over] => Key::TransferRow(distance(over)?),
        ["rmw", over] => Key::Rmw(distance(over)?),
        ["wake", "waker"] => Key::Waker,
        ["wake", "sleeper"] => Key::Sleeper,
        ["wake", "long-sleeper"] => Key::LongSleeper,
        ["clock"] => Key::Clock,
        ["pause"] => Key::Pause,
        ["post"] => Key::Post,
        ["run"] => Key::Run,
        ["send"] => Key::Send,
        ["turn"] => Key::Turn,
        ["queue"] => Key::Queue,
        ["step"] => Key::Step,
        ["hold"] => Key::Hold,
        ["reorder"] => Key::Reorder,
        ["holders"] => Key::Holders,
        _ => return None,
    })
}

fn amount(key: Key, text: &str) -> Result<f64, String> {
    let not = || format!("{:?} is no number", excerpt(text));
    if text.starts_with('+') {
        return Err(not());
    }
    let Key::Bytes(_) = key else {
        return text.parse().map_err(|_| not());
    };
    let (digits, unit) = match text.char_indices().last() {
        Some((end, 'K')) => (&text[..end], 1u64 << 10),
        Some((end, 'M')) => (&text[..end], 1 << 20),
        Some((end, 'G')) => (&text[..end], 1 << 30),
        _ => (text, 1),
    };
    if digits.starts_with('+') {
        return Err(not());
    }
    let bytes: Option<u64> = digits.parse().ok();
    let bytes = bytes.and_then(|n| n.checked_mul(unit));
    bytes.map(|n| n as f64).ok_or_else(not)
}
