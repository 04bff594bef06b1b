//! What the process has open.

use crate::verdict::fail;
use std::time::{Duration, Instant};

/// How long to wait for what the kernel frees behind our backs: threads that have been joined are
/// listed for a moment longer, and so are a ring's own workers.
const SETTLES_IN: Duration = Duration::from_secs(20);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Holdings {
    descriptors: usize,
    threads: usize,
}

impl Holdings {
    pub(crate) fn now() -> Holdings {
        let count = |of: &str| std::fs::read_dir(of).map_or(0, Iterator::count);
        Holdings {
            descriptors: count("/proc/self/fd"),
            threads: count("/proc/self/task"),
        }
    }

    /// Fails unless the process comes back to this.
    pub(crate) fn must_return(self) {
        let begun = Instant::now();
        loop {
            let now = Holdings::now();
            if now == self {
                return;
            }
            if begun.elapsed() > SETTLES_IN {
                fail(&format!(
                    "left behind: {now:?}, before the round {self:?}\n{}",
                    open()
                ));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// What each descriptor is, and the name of each thread.
fn open() -> String {
    let entries = |of: &str| std::fs::read_dir(of).into_iter().flatten().flatten();
    let descriptors = entries("/proc/self/fd").map(|entry| {
        format!(
            "{:?} is {:?}\n",
            entry.file_name(),
            std::fs::read_link(entry.path()).ok()
        )
    });
    let threads = entries("/proc/self/task").map(|entry| {
        let name = std::fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
        format!("thread {:?} is {name}", entry.file_name())
    });
    descriptors.chain(threads).collect()
}

/// Resident memory, in bytes.
pub(crate) fn resident_bytes() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm")
        .ok()
        .and_then(|text| text.split(' ').nth(1)?.parse::<u64>().ok());
    pages.unwrap_or(0) * rustix::param::page_size() as u64
}
