//! Measures a machine, and says what a colored program would do on it.
//!
//! [`measure`] writes the file of the machine that it runs on, for `mely-hardware` to read. With
//! the feature `simulate`, `replay` runs a recording on a machine that a file describes.

pub mod measure;
#[cfg(feature = "simulate")]
pub mod replay;
