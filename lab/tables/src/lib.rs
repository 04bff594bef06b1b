//! Tables that study mely: the papers' own, with the published schedulers rebuilt; what each rule of
//! the scheduler is worth; and simulated machines, beside real ones.
//!
//! The workloads, mely's peers and how they are measured are those of `mely-bench`, in `benches/`.
//!
//! ```text
//! libasync/       libasync-mp, libasync-smp and Mely as of 2010, rebuilt from their papers
//! thesis.rs       a table without times: the priority schedule
//! simulated/      runs on the virtual cores of a machine that a file describes
//! validation.rs   what is run on real cores and on the same in simulation
//! ```

pub mod libasync;
#[cfg(feature = "machine")]
pub mod simulated;
pub mod thesis;
pub mod validation;

use mely_bench::schedulers::{More, add};
use std::sync::Once;

/// Adds the published schedulers to those of `mely-bench`: what each program here does first.
pub fn add_published() {
    static ADDED: Once = Once::new();
    ADDED.call_once(|| {
        add(More {
            beside: libasync::beside,
            by_name: libasync::by_name,
        });
    });
}
