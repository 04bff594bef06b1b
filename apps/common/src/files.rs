//! How many descriptors a program may have: each connection takes one.

use rustix::process::{Resource, getrlimit};

use crate::out;

/// How many it may have, after an attempt to be allowed more. Its messages begin with the name of
/// the program.
pub fn limit(program: &str) -> u64 {
    mely::net::raise_open_file_limit().unwrap_or_else(|error| {
        out::say(
            program,
            format_args!("the limit of open files stays as it is: {error}"),
        );
        getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)
    })
}
