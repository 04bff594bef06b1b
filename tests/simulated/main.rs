//! Simulated runs: the simulation itself, waiting times in virtual time, arbitrary programs. No
//! test uses the default event source: see `test.sh`.

#[path = "../common/mod.rs"]
mod common;

mod clock;
mod delays;
mod files;
mod planted;
mod programs;
mod seen;
mod sharing;
mod sim;
mod surprises;
