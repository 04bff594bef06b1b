//! Tests whose own code is optimized, with an allocator that counts, and those of the repository's
//! pages.

#[path = "../common/mod.rs"]
mod common;

mod allocations;
mod architecture;
mod large;
mod promises;
