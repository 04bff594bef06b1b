//! Colors: their state, their bounds, and what holds them up.

#[path = "../common/mod.rs"]
mod common;

mod bounded;
mod colored;
mod hold;
mod read;
mod together;
