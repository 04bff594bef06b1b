//! Tests that run in processes of their own, which are children of this one: descriptors, signals,
//! limits of the system. The subscriber of `tracing` is one of the whole process.

#[path = "../common/mod.rs"]
mod common;

mod jobs;
mod record;
mod system;
mod tracing;
