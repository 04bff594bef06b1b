//! What a simulation did, as a number to compare and, on demand, as text to read.

use crate::Cx;
use std::hash::{DefaultHasher, Hash, Hasher};

/// The environment variable that makes simulations print each event.
const TRACE: &str = "MELY_SIM_TRACE";

/// See the module text.
#[derive(Debug)]
pub(super) struct Trace {
    /// Of cores, colors and handlers, in the order of events. Without keys: the same in every run.
    hasher: DefaultHasher,
    printed: bool,
}

impl Trace {
    pub(super) fn new() -> Trace {
        Trace {
            hasher: DefaultHasher::new(),
            printed: std::env::var_os(TRACE).is_some_and(|value| !value.is_empty()),
        }
    }

    /// An event has run.
    pub(super) fn event(&mut self, now_ns: u64, cx: &Cx) {
        let (core, color, handler) = (cx.core(), cx.color(), cx.handler());
        (core, color, handler).hash(&mut self.hasher);
        if self.printed {
            let us = now_ns as f64 / 1e3;
            eprintln!("{us:12.3} us core {core} color {color} {handler}");
        }
    }

    pub(super) fn fingerprint(&self) -> u64 {
        self.hasher.finish()
    }
}
