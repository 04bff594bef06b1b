//! Tests of what a process has: descriptors, limits, signals, and the subscriber of `tracing`.
//! Those that change it run in children of this one.

#[path = "../common/mod.rs"]
mod common;

mod activation;
mod children;
mod files;
mod jobs;
mod ready;
mod record;
mod system;
mod tracing;
