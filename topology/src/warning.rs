//! What was missing or malformed, and what was assumed in its place.

use std::fmt;
use std::path::{Path, PathBuf};

/// Something the machine did not say, or said in a way that makes no sense, and the assumption made
/// in its place. The topology is usable, but stealing may be less well aimed than it could be.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Warning {
    /// The file or folder concerned.
    pub path: PathBuf,
    /// What was wrong with it.
    pub reason: String,
    /// What was assumed instead.
    pub assumed: String,
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}: {}; assumed: {}",
            self.path.display(),
            self.reason,
            self.assumed
        )
    }
}

/// How many warnings a topology keeps. A machine that hides its topology hides it for every core
/// alike, and nobody reads the thousandth warning.
const WARNINGS_MAX: usize = 64;

/// Collects warnings up to a limit, and says so when there were more.
#[derive(Debug, Default)]
pub(crate) struct Warnings {
    kept: Vec<Warning>,
    dropped: usize,
}

impl Warnings {
    pub(crate) fn add(&mut self, path: &Path, reason: impl Into<String>, assumed: &str) {
        if self.kept.len() >= WARNINGS_MAX {
            self.dropped += 1;
            return;
        }
        let (path, reason, assumed) = (path.to_path_buf(), reason.into(), assumed.to_string());
        self.kept.push(Warning {
            path,
            reason,
            assumed,
        });
    }

    /// The warnings; the last one counts those that were dropped, if any were.
    pub(crate) fn into_vec(mut self, root: &Path) -> Vec<Warning> {
        if self.dropped > 0 {
            self.kept.push(Warning {
                path: root.to_path_buf(),
                reason: format!("{} more files missing or malformed", self.dropped),
                assumed: "as above".to_string(),
            });
        }
        self.kept
    }
}
