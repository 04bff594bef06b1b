//! What the server and what loads it share: how a program sets up its runtime and how it speaks.

pub mod cores;
pub mod files;
pub mod options;
pub mod out;
