//! The only door to std's shared memory (a stand-in: the crate brings its own).

pub(crate) use std::sync::{Arc, Mutex, atomic};
