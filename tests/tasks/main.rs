//! What returns something: events that are asked, blocking work, and tasks.

#[path = "../common/mod.rs"]
mod common;

mod ask;
mod blocking;
mod task;
