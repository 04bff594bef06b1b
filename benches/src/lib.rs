//! What mely costs, measured beside what it is compared to. What studies mely, and the published
//! schedulers rebuilt, is in `lab/tables`, which depends on this and not this on that.
//!
//! ```text
//! context.rs      what the handlers of a workload post with
//! workloads/      what is run: handlers written once, for any scheduler that is a `Context`
//! world.rs        what each event checks: order and count in its color
//! schedulers/     who runs it: a file each
//! command.rs      the program that measures tables
//! rows.rs         which workload on how many cores makes which line of the table
//! measure.rs      repetitions, interleaved; medians and spreads
//! run.rs          one run, in a process of its own
//! guard.rs        a run that went wrong ends
//! report.rs       the table and the JSON lines
//! chart.rs        the main comparison as an SVG
//! machine.rs      pinning, CPU time, and the cost of moving a cache line
//! options.rs      the command line
//! response/       servers whose requests compute, beside an ideal queue
//! tasks/          mely's tasks beside tokio's: hosts, workloads and table of their own
//! sync.rs         where atomics, locks and the clock come from
//! costs.rs        what handlers compute, in ns
//! simulated.rs    where a simulated machine takes the place of threads
//! shape.rs        how large closures are, and how many events wait
//! ```
//!
//! To compare another scheduler, implement [`Context`] for whatever its handlers post with and
//! [`Scheduler`] for whatever starts it, and list it in [`schedulers::all`]. A workload is added in
//! [`workloads`].

pub mod chart;
pub mod command;
pub mod context;
pub mod costs;
pub mod guard;
pub mod machine;
pub mod measure;
pub mod options;
pub mod report;
pub mod response;
pub mod rows;
pub mod run;
pub mod schedulers;
pub mod shape;
#[cfg(feature = "machine")]
pub mod simulated;
pub mod sync;
pub mod tasks;
pub mod web;
pub mod workloads;
pub mod world;

pub use context::{Context, Note, Outside};
pub use measure::Figure;
pub use schedulers::{Extras, Scheduler};
pub use workloads::{Table, Work, Workload};
pub use world::World;
