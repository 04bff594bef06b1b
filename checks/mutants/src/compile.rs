//! Which mutants compile, and the one build of those that do.
//!
//! An error inside a mutant's own text is that mutant's fault. Others, such as those of the borrow
//! checker, point anywhere in the function: its mutants are set aside and tried again in halves, in
//! each function at the same time, until what does not compile is alone.

use crate::Result;
use crate::operators::Mutant;
use crate::tree::Tree;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// A build never takes more rounds; more mean that setting mutants aside does not help.
const ROUNDS_MAX: usize = 200;

/// A way to build the copy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Build {
    pub(crate) name: &'static str,
    flags: &'static str,
    packages: &'static [&'static str],
    check: &'static [&'static str],
    test: &'static [&'static str],
}

pub(crate) const TESTS: Build = Build {
    name: "tests",
    flags: "--cap-lints warn",
    packages: &["-p", "mely", "-p", "mely-tests", "-p", "mely-topology"],
    check: &["check", "--profile", "test", "--lib"],
    // Without the programs that need a feature that is off.
    test: &["test", "--no-run", "--tests"],
};

/// And those of the programs in `apps/` and of the examples.
pub(crate) const ALL_TESTS: Build = Build {
    packages: &[],
    test: &["test", "--no-run", "--all-targets"],
    ..TESTS
};

pub(crate) const LOOM: Build = Build {
    name: "loom",
    flags: "--cfg loom --cap-lints warn",
    packages: &["-p", "mely-loom-tests"],
    check: &["check", "--profile", "loom"],
    test: &["test", "--no-run", "--profile", "loom"],
};

impl Build {
    fn cargo(&self, tree: &Path, arguments: &[&str]) -> Result<(bool, Vec<Value>)> {
        let target = tree.with_file_name(format!("build-{}", self.name));
        let output = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()))
            .args(arguments)
            .args(self.packages)
            .args(["--message-format=json", "--quiet", "--target-dir"])
            .arg(target)
            .current_dir(tree)
            .env("RUSTFLAGS", self.flags)
            .stderr(Stdio::inherit())
            .output()?;
        let lines = output.stdout.split(|&byte| byte == b'\n');
        let messages = lines
            .filter_map(|line| serde_json::from_slice(line).ok())
            .collect();
        Ok((output.status.success(), messages))
    }

    /// Builds the copy. The test programs, by name; `wanted`: only these, if there are any.
    pub(crate) fn programs(
        &self,
        tree: &Path,
        wanted: &[String],
    ) -> Result<Vec<(String, PathBuf)>> {
        let mut arguments = self.test.to_vec();
        if !wanted.is_empty() && self.name == TESTS.name {
            arguments = vec!["test", "--no-run"];
            for program in wanted {
                match program.as_str() {
                    "lib" => arguments.push("--lib"),
                    name => arguments.extend(["--test", name]),
                }
            }
        }
        let (success, messages) = self.cargo(tree, &arguments)?;
        if !success {
            let errors: Vec<_> = errors(&messages).map(|error| error.text).collect();
            return Err(format!("the copy does not build:\n{}", errors.join("\n")).into());
        }
        let programs = messages
            .iter()
            .filter(|message| message["profile"]["test"] == true);
        let programs = programs.filter_map(|message| {
            let is_library = message["target"]["kind"][0] == "lib";
            let name = if is_library {
                "lib"
            } else {
                message["target"]["name"].as_str()?
            };
            Some((
                name.to_owned(),
                PathBuf::from(message["executable"].as_str()?),
            ))
        });
        Ok(programs.collect())
    }
}

#[derive(Debug)]
struct CompileError {
    file: String,
    line: usize,
    byte: usize,
    text: String,
}

/// What the compiler complains of. "Aborting due to errors" has no place, and is none.
fn errors(messages: &[Value]) -> impl Iterator<Item = CompileError> {
    let messages = messages.iter().map(|message| &message["message"]);
    let errors = messages.filter(|message| message["level"] == "error");
    errors.filter_map(|error| {
        let spans = error["spans"].as_array()?;
        let at = spans.iter().find(|span| span["is_primary"] == true)?;
        let number = |value: &Value| value.as_u64().unwrap_or(0) as usize;
        Some(CompileError {
            file: at["file_name"].as_str()?.to_owned(),
            line: number(&at["line_start"]),
            byte: number(&at["byte_start"]),
            text: error["rendered"].as_str().unwrap_or_default().to_owned(),
        })
    })
}

/// A function, by its file and first line.
type Function = (String, usize);

/// Finds the mutants that compile.
#[derive(Debug)]
pub(crate) struct Compiling<'m> {
    all: &'m [Mutant],
    pub(crate) dropped: BTreeSet<u32>,
    /// Groups of mutants that are not in the copy, since one of them may not compile.
    aside: BTreeMap<Function, Vec<Vec<u32>>>,
    /// Groups that are in the copy again.
    tried: BTreeMap<Function, Vec<u32>>,
}

impl<'m> Compiling<'m> {
    pub(crate) fn new(all: &'m [Mutant], dropped: BTreeSet<u32>) -> Self {
        let (aside, tried) = Default::default();
        Compiling {
            all,
            dropped,
            aside,
            tried,
        }
    }

    /// Writes the copy with all mutants that are neither dropped nor set aside.
    pub(crate) fn write(&self, tree: &mut Tree) -> Result<()> {
        let aside: BTreeSet<u32> = self.aside.values().flatten().flatten().copied().collect();
        let is_in = |id: u32| !self.dropped.contains(&id) && !aside.contains(&id);
        tree.write(self.all.iter().filter(|mutant| is_in(mutant.id)))
    }

    /// Drops mutants until the copy compiles.
    pub(crate) fn settle(&mut self, tree: &mut Tree, build: &Build) -> Result<()> {
        for round in 1..=ROUNDS_MAX {
            self.write(tree)?;
            let (success, messages) = build.cargo(&tree.path, build.check)?;
            if success && self.aside.is_empty() {
                self.tried.clear();
                return Ok(());
            }
            let errors: Vec<_> = errors(&messages).collect();
            if !success && errors.is_empty() {
                return Err("cargo check fails, and not because of the code".into());
            }
            self.blame(tree, &errors)?;
            eprintln!(
                "compiling {}, round {round}: {} errors, {} mutants dropped, {} functions in question",
                build.name,
                errors.len(),
                self.dropped.len(),
                self.aside.len(),
            );
            let tried = &mut self.tried;
            self.aside.retain(|function, groups| {
                if !tried.contains_key(function) {
                    tried.extend(groups.pop().map(|group| (function.clone(), group)));
                }
                !groups.is_empty()
            });
        }
        Err(format!("the copy does not compile after {ROUNDS_MAX} rounds").into())
    }

    /// Drops or sets aside what the errors are about. What was tried without an error stays.
    fn blame(&mut self, tree: &Tree, errors: &[CompileError]) -> Result<()> {
        let (mut clear, mut unclear) = (BTreeSet::new(), BTreeMap::new());
        for error in errors {
            let around = |mutant: &&Mutant| {
                mutant.file == error.file && (mutant.lines.0..=mutant.lines.1).contains(&error.line)
            };
            let innermost = self
                .all
                .iter()
                .filter(around)
                .max_by_key(|mutant| mutant.lines.0);
            let mutant = innermost.ok_or_else(|| format!("no mutant's fault:\n{}", error.text))?;
            let function = (error.file.clone(), mutant.lines.0);
            match tree.rewritten[&error.file].mutant_at(error.byte) {
                Some(own) => {
                    self.dropped.insert(own);
                    clear.insert(function);
                }
                None => drop(unclear.insert(function, &error.text)),
            }
        }
        // The others of a group in which one was found are still to be tried.
        let mut tried = std::mem::take(&mut self.tried);
        for (function, text) in unclear {
            if clear.contains(&function) {
                continue;
            }
            let mut group = tried.remove(&function).unwrap_or_else(|| {
                let of = |m: &&Mutant| m.file == function.0 && m.lines.0 == function.1;
                self.all.iter().filter(of).map(|mutant| mutant.id).collect()
            });
            let aside = self.aside.entry(function).or_default();
            let known =
                |id: &u32| self.dropped.contains(id) || aside.iter().flatten().any(|a| a == id);
            group.retain(|id| !known(id));
            match group.as_slice() {
                [] => return Err(format!("no mutant's fault:\n{text}").into()),
                [one] => drop(self.dropped.insert(*one)),
                _ => {
                    let half = group.split_off(group.len() / 2);
                    aside.extend([half, group]);
                }
            }
        }
        tried.retain(|function, _| clear.contains(function));
        self.tried = tried;
        Ok(())
    }
}
