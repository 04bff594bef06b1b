//! What stops a topology from being made at all. What merely makes it poorer is a [`Warning`].
//!
//! [`Warning`]: crate::Warning

use std::fmt;
use std::path::PathBuf;

use crate::CPUS_MAX;

/// Why there is no topology.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// A file or folder without which nothing can be said is missing, unreadable or malformed.
    File {
        /// Which one.
        path: PathBuf,
        /// What was wrong with it.
        reason: String,
    },
    /// Not a single core is left: of a subset, a mask, or a machine described with a zero.
    NoCores,
    /// More than [`CPUS_MAX`] cores were asked for.
    TooManyCores,
    /// A subset names a CPU that the topology does not have.
    UnknownCpu(u32),
    /// The kernel would not say on which CPUs this thread may run.
    Affinity(String),
    /// hwloc could not build a topology (feature `hwloc`).
    Hwloc {
        /// What it was asked to read: `live machine`, a path, or a synthetic description.
        input: String,
        /// What it answered.
        reason: String,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { path, reason } => write!(f, "{}: {reason}", path.display()),
            Self::NoCores => write!(f, "no core is left to run on"),
            Self::TooManyCores => write!(f, "more than {CPUS_MAX} cores"),
            Self::UnknownCpu(cpu) => write!(f, "the topology has no CPU {cpu}"),
            Self::Affinity(reason) => write!(f, "cannot read this thread's CPU mask: {reason}"),
            Self::Hwloc { input, reason } => write!(f, "hwloc, reading {input:?}: {reason}"),
        }
    }
}

impl std::error::Error for Error {}
