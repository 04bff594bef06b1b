//! Where and when events run on real threads: placement, load, timers, working cores.

#[path = "../common/mod.rs"]
mod common;

mod placement;
mod stress;
mod timers;
mod when;
mod working;
