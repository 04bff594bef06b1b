//! What mely costs, measured beside what it is compared to.
//!
//! ```text
//! workload.rs     what is run: handlers written once, for any scheduler that is a `Context`
//! world.rs        what each event checks: order and count in its color
//! schedulers/     who runs it: a file each
//! rows.rs         which workload on how many cores makes which line of the table
//! measure.rs      repetitions, interleaved; medians and spreads
//! report.rs       the table and the JSON lines
//! machine.rs      pinning, and the cost of moving a cache line
//! options.rs      the command line
//! ```
//!
//! To compare another scheduler, implement [`Context`] for whatever its handlers post with and
//! [`Scheduler`] for whatever starts it, and list it in [`schedulers::all`]. Workloads, checks and
//! reports need no change.

pub mod machine;
pub mod measure;
pub mod options;
pub mod report;
pub mod rows;
pub mod schedulers;
pub mod web;
pub mod workload;
pub mod world;

pub use measure::Figure;
pub use schedulers::{Extras, Scheduler};
pub use workload::{Context, Workload};
pub use world::World;
