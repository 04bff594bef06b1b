//! A machine made of numbers: code runs on its virtual cores, and time follows from what each access
//! to memory, each lock and each wake-up costs there.
//!
//! loom runs the code that ships under every order; this runs it under a clock. mely imports its
//! atomics, cells and locks from one place, and with its feature `machine` that place has those of
//! [`sync`], which are std's with a charge. What has no type of its own is charged by [`charge`].
//! Both are mely's: during a [`run`] they tell this crate by a hook. Outside of a run all of it is
//! std's.
//!
//! Without the feature `simulate` there are descriptions of machines only ([`Machine`]): what
//! measures one runs the scheduler that ships.
//!
//! # What is modeled
//!
//! - *Lines* of 64 bytes: which caches have one, and which core may write it. A transfer takes what
//!   the distance of the two cores takes. One transfer of a line at a time; copies for readers are
//!   made side by side.
//! - *Caches* of the sizes of the machine: sets of eight, the oldest leaves.
//! - *Loads and stores* do not wait for their lines, within limits; read-modify-writes, fences,
//!   pauses and readings of the clock do, and loads of what a link leads to, of a row, and of what
//!   another core has taken shortly before.
//! - *Rows*: lines one behind the other, up or down, are read ahead. Lines that are asked for early
//!   come meanwhile.
//! - *Locks*: who waits for a spin lock polls its line, and asks for that whenever it was taken.
//!   Who waits for std's mutex sleeps, and costs nothing; on release the seed draws one of those.
//! - *Polling*: a round that hits only lines that the core has, and makes no read-modify-write, is
//!   not repeated until one of the lines is written.
//! - *Sleep*: what it costs to wake, and what it takes to be woken.
//! - *Chance*, by the seed: who gets a line or a lock that several wait for, when in its round a
//!   poller looks, one part in 64 of what work takes.
//!
//! # What is not
//!
//! Instructions, but by the numbers for a post, a run, a turn and a step; branch prediction;
//! translation of addresses; bandwidth of memory and of interconnects; hyper-threads that slow each
//! other down; frequency; the kernel's scheduler; other programs.

#[cfg(feature = "simulate")]
mod chance;
#[cfg(feature = "simulate")]
mod costs;
mod file;
#[cfg(feature = "simulate")]
mod hook;
mod machine;
#[cfg(feature = "simulate")]
mod memory;
#[cfg(feature = "simulate")]
mod names;
#[cfg(feature = "simulate")]
mod on_machine;
#[cfg(feature = "simulate")]
mod report;
#[cfg(feature = "simulate")]
mod rows;
#[cfg(feature = "simulate")]
mod run;
#[cfg(feature = "simulate")]
mod turns;
#[cfg(feature = "simulate")]
mod waiters;
#[cfg(feature = "simulate")]
mod window;
#[cfg(feature = "simulate")]
mod world;

#[cfg(feature = "simulate")]
pub mod charge;

pub use machine::{
    CACHE_BYTES_MAX, CORES_MAX, Key, LONG_SLEEP_NS, Machine, MachineError, NS_MAX, Number, Place,
    SHORT_SLEEP_NS,
};
#[cfg(feature = "simulate")]
pub use {
    mely::sim::machine::{Outside, charge::is_charged, sync},
    on_machine::{OnMachine, SimulateOn, Unfinished},
    report::{CoreUse, LineCost, Report},
    run::{Body, Options, Stopped, Tick, begin, run},
};
