//! What is under way on which descriptor: checks the caller's duties in debug builds, costs nothing
//! in release builds.

#[cfg(debug_assertions)]
use std::collections::HashSet;

use super::{Fd, Kind};

/// The operations under way, by descriptor.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    #[cfg(debug_assertions)]
    under_way: HashSet<(Fd, Kind)>,
}

#[cfg(debug_assertions)]
impl Ledger {
    /// An operation starts: none of its kind may be under way on `fd`.
    pub(super) fn start(&mut self, fd: Fd, kind: Kind) {
        assert!(
            kind == Kind::File || self.under_way.insert((fd, kind)),
            "a second {kind:?} on {fd:?}"
        );
    }

    /// Its terminal completion has been made.
    pub(super) fn end(&mut self, fd: Fd, kind: Kind) {
        assert!(
            kind == Kind::File || self.under_way.remove(&(fd, kind)),
            "a {kind:?} on {fd:?} ended twice"
        );
    }

    /// `fd` is about to be closed: nothing may be under way.
    pub(super) fn close(&self, fd: Fd) {
        for kind in Kind::ALL {
            assert!(
                !self.under_way.contains(&(fd, kind)),
                "{fd:?} closed under a {kind:?}"
            );
        }
    }
}

#[cfg(not(debug_assertions))]
impl Ledger {
    pub(super) fn start(&mut self, _: Fd, _: Kind) {}

    pub(super) fn end(&mut self, _: Fd, _: Kind) {}

    pub(super) fn close(&self, _: Fd) {}
}
