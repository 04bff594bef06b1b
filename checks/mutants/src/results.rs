//! What is known so far, in `target/mutants/results`: an interrupted run goes on where it was.

use crate::Result;
use crate::trial::Verdict;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// The verdicts of one suite on one tree: a file with a line each.
#[derive(Debug)]
pub(crate) struct Results {
    pub(crate) known: BTreeMap<u32, Verdict>,
    file: Mutex<File>,
}

impl Results {
    /// `name`: of the tree and the suite.
    pub(crate) fn open(directory: &Path, name: &str, fresh: bool) -> Result<Results> {
        fs::create_dir_all(directory)?;
        let path = directory.join(name);
        if fresh {
            fs::write(&path, "")?;
        }
        let file = OpenOptions::new().create(true).append(true).open(&path)?;
        // A line that was cut off is no result.
        let lines = fs::read_to_string(&path)?;
        let values = lines
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok());
        let known = values.filter_map(|value| {
            let id = u32::try_from(value["id"].as_u64()?).ok()?;
            Some((id, Verdict::from_json(&value)?))
        });
        Ok(Results {
            known: known.collect(),
            file: Mutex::new(file),
        })
    }

    pub(crate) fn add(&self, id: u32, verdict: &Verdict) -> Result<()> {
        let mut value = verdict.to_json();
        value["id"] = json!(id);
        let mut file = self.file.lock().expect("nobody panics with it");
        Ok(writeln!(file, "{value}")?)
    }
}

/// The mutants of a tree that do not compile, if that was found out before.
pub(crate) fn known_dropped(path: &PathBuf) -> Option<BTreeSet<u32>> {
    let ids = fs::read_to_string(path).ok()?;
    ids.split_whitespace().map(|id| id.parse().ok()).collect()
}

pub(crate) fn keep_dropped(path: &PathBuf, dropped: &BTreeSet<u32>) -> Result<()> {
    let ids: Vec<_> = dropped.iter().map(u32::to_string).collect();
    Ok(fs::write(path, ids.join("\n"))?)
}
