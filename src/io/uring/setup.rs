//! Making a ring, from the best flags to the barest.

use std::fmt;
use std::io;

use io_uring::{IoUring, Probe, opcode};

use super::super::Config;

/// How completions get from the kernel to us.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::io) enum Flavor {
    /// When we ask (kernel 6.1): no interruption, the best batches.
    Deferred,
    /// With our next system call (6.0).
    Cooperative,
    /// At once, by interrupting us.
    Bare,
}

/// In the order in which they are tried.
pub(in crate::io) const FLAVORS: [Flavor; 3] =
    [Flavor::Deferred, Flavor::Cooperative, Flavor::Bare];

impl fmt::Display for Flavor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Flavor::Deferred => "single issuer, deferred task work",
            Flavor::Cooperative => "single issuer, cooperative task work",
            Flavor::Bare => "no flags",
        })
    }
}

/// A ring that can do all that this backend needs, or the reason why not.
pub(super) fn ring(flavor: Flavor, config: &Config) -> io::Result<IoUring> {
    if is_under_valgrind() {
        // It takes the call in which a core sleeps for one that does not block, and lets no other
        // thread run meanwhile, nor any signal through: nothing could ever wake the core.
        let text =
            "valgrind runs this program, and stops all of it while a thread sleeps in a ring";
        return Err(io::Error::new(io::ErrorKind::Unsupported, text));
    }
    let mut builder = IoUring::builder();
    // A child process must not share our queues.
    builder.dontfork().setup_cqsize(config.completions);
    match flavor {
        // The task-run flag goes with both: without it a submit that does not wait would never
        // learn that there are completions to be run.
        Flavor::Deferred => builder.setup_single_issuer().setup_defer_taskrun(),
        Flavor::Cooperative => builder.setup_single_issuer().setup_coop_taskrun(),
        Flavor::Bare => &mut builder,
    };
    if flavor != Flavor::Bare {
        builder.setup_taskrun_flag().setup_submit_all();
    }
    let ring = builder.build(config.submissions).map_err(explain)?;
    let mut probe = Probe::new();
    ring.submitter().register_probe(&mut probe)?;
    // A kernel on which this was never run is not trusted with it: 6.0 is the first with
    // completions that are deferred as we need them, and is told by zero-copy send, which came with
    // it. What came earlier is there then: no completion is dropped, and a wait can have a timeout.
    if !probe.is_supported(opcode::SendZc::CODE) {
        let text = "the kernel is older than 6.0";
        return Err(io::Error::new(io::ErrorKind::Unsupported, text));
    }
    Ok(ring)
}

/// Whether valgrind runs this program, whichever its tool: it then has a library of valgrind's.
fn is_under_valgrind() -> bool {
    let preloaded = std::env::var_os("LD_PRELOAD").unwrap_or_default();
    preloaded.to_string_lossy().contains("vgpreload_")
}

/// The usual refusals, with what can be done about them.
fn explain(error: io::Error) -> io::Error {
    use rustix::io::Errno;
    let hint = match Errno::from_io_error(&error) {
        Some(Errno::PERM | Errno::ACCESS) => {
            "refused by a seccomp filter, as containers have it, or by kernel.io_uring_disabled"
        }
        Some(Errno::NOSYS) => "this kernel has no io_uring",
        Some(Errno::NOMEM) => "too little locked memory allowed (RLIMIT_MEMLOCK)",
        Some(Errno::MFILE | Errno::NFILE) => "no file descriptors left",
        Some(Errno::INVAL) => "the kernel does not know these flags or sizes",
        _ => return error,
    };
    io::Error::new(error.kind(), format!("{error}: {hint}"))
}
