//! Errors that name a path.

use crate::io::PathError;
use rustix::io::Errno;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// An error with the path of the operation. Its source is the error of the system.
#[derive(Debug)]
struct Named {
    path: PathBuf,
    /// How far a write got.
    detail: Option<String>,
    error: io::Error,
}

impl fmt::Display for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Named {
            path,
            detail,
            error,
        } = self;
        write!(f, "{}: {error}", path.display())?;
        detail
            .as_ref()
            .map_or(Ok(()), |detail| write!(f, ", {detail}"))
    }
}

impl std::error::Error for Named {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.error)
    }
}

/// Names the path of an error of the system.
pub(super) fn failed(path: &Path, errno: Errno) -> io::Error {
    failed_with(path, errno, None)
}

pub(super) fn failed_with(path: &Path, errno: Errno, detail: Option<String>) -> io::Error {
    named(path, errno.into(), detail)
}

/// Names the path of an error of a call on a path.
pub(super) fn unresolved(path: &Path, error: PathError) -> io::Error {
    named(path, error.into(), None)
}

pub(super) fn invalid(path: &Path, text: &str) -> io::Error {
    let error = io::Error::new(io::ErrorKind::InvalidInput, text);
    named(path, error, None)
}

pub(super) fn named(path: &Path, error: io::Error, detail: Option<String>) -> io::Error {
    let kind = error.kind();
    let path = path.to_owned();
    io::Error::new(
        kind,
        Named {
            path,
            detail,
            error,
        },
    )
}
