//! Cores, caches and distances of a machine.
