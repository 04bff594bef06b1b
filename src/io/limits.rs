//! The process's limit on open descriptors.

use std::io;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Allows this process as many descriptors as it may have without asking anybody, and says how many
/// that is. The limit a shell hands out is made for programs that still use `select`; a server with
/// one descriptor a connection needs the hard one.
pub(crate) fn raise_open_file_limit() -> io::Result<u64> {
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current != maximum {
        setrlimit(
            Resource::Nofile,
            Rlimit {
                current: maximum,
                maximum,
            },
        )?;
    }
    Ok(maximum.unwrap_or(u64::MAX))
}
