//! A core's counters: written by its thread alone, read by anyone at any time.

use crate::sync::relaxed::Counter;
use mely_topology::Distance;

/// The counters of one core; what each means is documented on [`CoreStats`](crate::CoreStats).
#[derive(Debug, Default)]
pub(crate) struct Stats {
    pub(crate) events: Counter,
    /// All posts, as of the last exchange.
    pub(crate) posts: Counter,
    pub(crate) posts_remote: Counter,
    pub(crate) quanta: Counter,
    pub(crate) steals: [StealStats; Distance::COUNT],
    pub(crate) parks: Counter,
    pub(crate) wakes: Counter,
    pub(crate) handler_ns_max: Counter,
    pub(crate) hostage: Counter,
    pub(crate) panics: Counter,
}

/// Steals over one distance.
#[derive(Debug, Default)]
pub(crate) struct StealStats {
    pub(crate) tried: Counter,
    pub(crate) won: Counter,
    pub(crate) colors: Counter,
    pub(crate) cost_ns: Counter,
    pub(crate) stolen_ns: Counter,
}
