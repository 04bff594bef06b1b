//! What is to be asked for: by one injector, in words that a master can send to others.

use crate::file_set::{FileSet, Kind};
use std::net::SocketAddr;
use std::time::Duration;

/// How much of a response is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Check {
    /// Its status and framing.
    None,
    /// Its length too.
    Length,
    /// Each byte.
    Bytes,
}

/// When it ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Until {
    /// After a time that is not measured and one that is.
    Time {
        /// Not measured.
        warm_up: Duration,
        /// Measured.
        measured: Duration,
    },
    /// After this many responses or errors, all of them measured.
    Total(u64),
}

/// What one injector does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Work {
    /// The server; or its copies, each on a port of its own, with as many clients.
    pub(crate) targets: Vec<SocketAddr>,
    /// Virtual clients, each with one connection at a time.
    pub(crate) clients: usize,
    /// After this many a client connects anew; 0: never.
    pub(crate) requests_per_connection: u64,
    /// When it ends.
    pub(crate) until: Until,
    /// If nothing comes from the server for this long, it ends.
    pub(crate) silence_max: Duration,
    /// What is asked for.
    pub(crate) set: FileSet,
    /// How responses are checked.
    pub(crate) check: Check,
}

/// Descriptors that are taken before anybody connects, on a few cores, and some to spare.
const OTHER_FILES: u64 = 64;

impl Work {
    /// Whether this many descriptors are enough: measuring how connections fail helps nobody.
    ///
    /// # Errors
    /// A sentence for the user, if they are not.
    pub(crate) fn fits(&self, files_max: u64) -> Result<(), String> {
        let (clients, needed) = (
            self.clients,
            (self.clients as u64).saturating_add(OTHER_FILES),
        );
        if needed <= files_max {
            return Ok(());
        }
        Err(format!(
            "the limit of open files is {files_max}, and --clients {clients} need {needed}: raise \
             it (ulimit -n), or give fewer clients"
        ))
    }

    /// The options that say the same; see [`crate::args::parse`].
    pub(crate) fn to_options(&self) -> Vec<String> {
        let mut options = vec![
            format!("--clients={}", self.clients),
            format!("--requests-per-connection={}", self.requests_per_connection),
            format!("--seed={}", self.set.seed),
            format!("--silence={}", self.silence_max.as_secs_f64()),
        ];
        options.extend(self.targets.iter().map(|addr| format!("--target={addr}")));
        options.push(match self.until {
            Until::Total(responses) => format!("--total={responses}"),
            Until::Time { measured, .. } => format!("--seconds={}", measured.as_secs_f64()),
        });
        if let Until::Time { warm_up, .. } = self.until {
            options.push(format!("--warm-up={}", warm_up.as_secs_f64()));
        }
        options.push(match self.set.kind {
            Kind::One { bytes } => format!("--file-bytes={bytes}"),
            Kind::SpecWeb99 => "--set=specweb99".to_owned(),
        });
        options.push(match self.check {
            Check::None => "--check=none".to_owned(),
            Check::Length => "--check=length".to_owned(),
            Check::Bytes => "--check=bytes".to_owned(),
        });
        options
    }
}
