//! Measures a machine, and says what a colored program would do on it.
//!
//! [`measure`] writes the file of the machine that it runs on, for `mely-hardware` to read.

pub mod measure;
