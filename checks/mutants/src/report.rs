//! What a run says.

use crate::Result;
use crate::accepted::Accepted;
use crate::operators::Mutant;
use crate::trial::Verdict;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::Path;

/// Where a mutant is, and what it does.
pub(crate) fn place(mutant: &Mutant) -> String {
    let Mutant {
        file,
        line,
        column,
        function,
        what,
        ..
    } = mutant;
    format!("{file}:{line}:{column} {function}: {what}")
}

/// A mutant and what became of it.
pub(crate) fn line(mutant: &Mutant, verdict: &Verdict) -> String {
    let became = match verdict {
        Verdict::Killed { by, how, .. } => format!("{how}: {by}"),
        Verdict::Survived { reached_by: 0, .. } => "survived, reached by no test".to_owned(),
        Verdict::Survived { reached_by, .. } => format!("survived {reached_by} tests"),
    };
    format!("{} [{}] {became}", place(mutant), mutant.id)
}

#[derive(Debug)]
pub(crate) struct Report<'a> {
    pub(crate) mutants: &'a [Mutant],
    pub(crate) chosen: &'a [&'a Mutant],
    pub(crate) dropped: &'a BTreeSet<u32>,
    pub(crate) accepted: &'a Accepted,
    /// The tests', and loom's.
    pub(crate) suites: [&'a BTreeMap<u32, Verdict>; 2],
}

impl Report<'_> {
    fn survived(&self, mutant: &Mutant) -> Option<&Verdict> {
        let of = |suite: &BTreeMap<u32, Verdict>| {
            matches!(suite.get(&mutant.id), Some(Verdict::Killed { .. }))
        };
        if self.suites.iter().any(|suite| of(suite)) {
            return None;
        }
        self.suites
            .iter()
            .rev()
            .find_map(|suite| suite.get(&mutant.id))
    }

    /// Prints the figures, and writes the survivors to a file, in the form that accepts them. False
    /// if a survivor is new or an entry stale. `whole`: the run was no shard.
    pub(crate) fn write(&self, path: &Path, whole: bool) -> Result<bool> {
        let mut figures = BTreeMap::<String, usize>::new();
        for suite in self.suites {
            for mutant in self.chosen {
                if let Some(Verdict::Killed { by, how, .. }) = suite.get(&mutant.id) {
                    let program = by.split(' ').next().unwrap_or_default();
                    *figures.entry(format!("{program}, {how}")).or_default() += 1;
                }
            }
        }
        println!(
            "\n{} mutants, {} of all do not compile. Noticed by:",
            self.chosen.len(),
            self.dropped.len()
        );
        for (by, count) in &figures {
            println!("  {count:5} {by}");
        }
        let survivors: Vec<_> = self
            .chosen
            .iter()
            .filter_map(|mutant| Some((*mutant, self.survived(mutant)?)))
            .collect();
        let mut text = String::new();
        let mut new = 0;
        let mut function = "";
        for (mutant, verdict) in &survivors {
            if function != mutant.function {
                writeln!(text)?;
            }
            function = &mutant.function;
            let [tests, loom] = self.suites.map(|suite| match suite.get(&mutant.id) {
                Some(Verdict::Survived { reached_by, .. }) => *reached_by,
                _ => 0,
            });
            let at = format!("{}:{}", mutant.line, mutant.column);
            writeln!(
                text,
                "# {at} [{}], reached by {tests} tests and {loom} models",
                mutant.id
            )?;
            if let Verdict::Survived { unsure, .. } = verdict {
                for test in unsure {
                    writeln!(text, "# once: {test}")?;
                }
            }
            let reason = self.accepted.reason(mutant);
            new += usize::from(reason.is_none());
            writeln!(text, "{}\n    {}", mutant.key(), reason.unwrap_or("???"))?;
        }
        std::fs::write(path, &text)?;
        println!(
            "{} survived, of which {new} are not accepted. See {}",
            survivors.len(),
            path.display()
        );
        let stale = self.stale(whole);
        for entry in &stale {
            println!("checks/mutants/survivors.txt: {entry}");
        }
        print!("{}", if new > 0 { &text } else { "" });
        Ok(new == 0 && stale.is_empty())
    }

    /// Entries that do not survive any more, or name nothing.
    fn stale(&self, whole: bool) -> Vec<String> {
        let tried = self
            .chosen
            .iter()
            .filter(|mutant| self.accepted.reason(mutant).is_some());
        let noticed = tried.filter(|mutant| self.survived(mutant).is_none());
        let mut stale: Vec<_> = noticed
            .map(|mutant| format!("is noticed now: {}", mutant.key()))
            .collect();
        if whole {
            let unknown = self.accepted.unknown(self.mutants).into_iter();
            stale.extend(unknown.map(|entry| format!("no such mutant: {entry}")));
        }
        stale
    }
}
