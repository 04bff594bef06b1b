//! The server: the paper's handlers as events, one color a connection.
//!
//! ```text
//!   color 1        Accept --------------------------------------------> DecClientAccepted
//!                    |                                                        ^
//!   color = fd       +-> ReadRequest -> ParseRequest => CheckInCache -> WriteResponse -> Close
//!                             ^                                          |
//!                             +------------------------------------------+
//! ```
//!
//! The paper's Epoll and RegisterFdInEpoll (color 0) are the runtime's own event source and its
//! control colors; CheckInCache, whose color the paper does not state, runs in the connection's:
//! the cache is read-only after start-up.
//!
//! `->` is an event, `=>` a call. Calling is allowed where one color would run both in sequence
//! anyway. CheckInCache is called: it is shorter than an event. And a response that the kernel
//! takes at once, as mostly, is accounted for by WriteResponse; only for what had to wait is there
//! one more event, under ReadRequest. So a request is three events.

use crate::args::Args;
use crate::clients::{ACCEPT_COLOR, Clients};
use crate::clock::{self, Time};
use crate::deadlines::Deadlines;
use crate::figures::{self, Figures};
use crate::places::Places;
use crate::process;
use crate::site::Site;
use crate::status::Status;
use crate::tally::Tally;
use crossbeam_utils::CachePadded;
use mely::runtime::PanicReport;
use mely::state::WeakColored;
use mely::{Color, Poster};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// What does not change while the server runs, and the counters of all connections.
///
/// Leaked at start-up: it lives as long as the process, and a reference that is `'static` costs no
/// count in each of a request's events.
pub(crate) struct Server {
    pub(crate) site: Site,
    pub(crate) args: Args,
    pub(crate) started: Instant,
    pub(crate) deadlines: Deadlines,
    pub(crate) poster: Poster,
    pub(crate) backend: OnceLock<(String, String)>,
    /// The limit of open files.
    pub(crate) files_max: u64,
    /// How many may be connected; known once the server listens.
    pub(crate) places: OnceLock<Places>,
    /// Those that are connected.
    pub(crate) clients: OnceLock<WeakColored<Clients>>,
    /// The panic after which no client can be accepted.
    pub(crate) failed: OnceLock<PanicReport>,
    /// A core each.
    tallies: Box<[CachePadded<Tally>]>,
    pub(crate) accepted: AtomicU64,
    pub(crate) rejected: AtomicU64,
    pub(crate) open: AtomicU64,
    pub(crate) leaving: AtomicU64,
    pub(crate) cut: AtomicU64,
    pub(crate) cut_requests: AtomicU64,
    pub(crate) cut_answers: AtomicU64,
}

impl Server {
    pub(crate) fn new(site: Site, args: Args, files_max: u64, poster: Poster) -> Server {
        let tallies = (0..poster.stats().cores.len()).map(|_| CachePadded::default());
        Server {
            site,
            deadlines: Deadlines::new(&args),
            args,
            started: Instant::now(),
            poster,
            backend: OnceLock::new(),
            files_max,
            places: OnceLock::new(),
            clients: OnceLock::new(),
            failed: OnceLock::new(),
            tallies: tallies.collect(),
            accepted: AtomicU64::new(0),
            rejected: AtomicU64::new(0),
            open: AtomicU64::new(0),
            leaving: AtomicU64::new(0),
            cut: AtomicU64::new(0),
            cut_requests: AtomicU64::new(0),
            cut_answers: AtomicU64::new(0),
        }
    }

    /// Counts an answer on a core.
    pub(crate) fn count(&self, core: usize, status: Status, tick: Time) {
        self.tallies[core].count(status, tick.as_secs());
    }

    /// What the server and its runtime have done so far.
    pub(crate) fn figures(&self) -> Figures {
        let stats = self.poster.stats();
        let nanos = |d: Duration| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX);
        let (backend, backend_reason) = self.backend.get().cloned().unwrap_or_default();
        let cores = stats.cores.iter().map(|core| figures::Core {
            cpu: core.cpu,
            events: core.events,
            posts_local: core.posts_local,
            posts_remote: core.posts_remote,
            steals_tried: core.steals.iter().map(|s| s.tried).sum(),
            steals_won: core.steals.iter().map(|s| s.won).sum(),
            steal_cost_median_ns: core.steal_cost_median.map(nanos),
            stolen: core.steals.iter().map(|steals| steals.stolen).sum(),
            parks: core.parks,
            wakes: core.wakes,
            handler_max_ns: nanos(core.handler_max),
            queued: core.events_queued,
        });
        let steals = stats.steal_cost.iter().map(|&(distance, cost)| {
            let of = || {
                stats
                    .cores
                    .iter()
                    .flat_map(|c| &c.steals)
                    .filter(|s| s.distance == distance)
            };
            figures::Steals {
                distance: distance.to_string(),
                tried: of().map(|s| s.tried).sum(),
                won: of().map(|s| s.won).sum(),
                color_cost_ns: nanos(cost),
            }
        });
        let tallies = || self.tallies.iter();
        let answers = Status::ALL.into_iter().map(|status| {
            let count = tallies().map(|tally| tally.of(status)).sum();
            (status.code(), count)
        });
        let second = clock::now().as_secs();
        let places = self.places.get();
        Figures {
            uptime: self.started.elapsed(),
            answers: answers.collect(),
            last_second: tallies().map(|t| t.in_second_before(second)).sum(),
            process: figures::Process {
                // Where /proc is hidden there are no such figures, and no reason to serve none.
                descriptors: process::descriptors().unwrap_or_default(),
                descriptors_max: self.files_max,
                rss_bytes: process::rss_bytes().unwrap_or_default(),
            },
            backend,
            backend_reason,
            stealing: self.args.stealing,
            connections: figures::Connections {
                open: self.open.load(Ordering::Relaxed),
                accepted: self.accepted.load(Ordering::Relaxed),
                rejected: self.rejected.load(Ordering::Relaxed),
                open_max: places.map_or(0, |places| places.clients),
                leaving: self.leaving.load(Ordering::Relaxed),
                leaving_max: places.map_or(0, |places| places.leaving),
                cut: self.cut.load(Ordering::Relaxed),
                cut_requests: self.cut_requests.load(Ordering::Relaxed),
                cut_answers: self.cut_answers.load(Ordering::Relaxed),
            },
            waiting: stats.events_waiting,
            deepest: self.deepest(),
            cores: cores.collect(),
            steals: steals.collect(),
            steal_cost_median_ns: stats.steal_cost_median.map(nanos),
        }
    }

    /// Where the server falls behind.
    fn deepest(&self) -> Vec<figures::Depth> {
        let depths = self.poster.deepest_colors(figures::DEEPEST);
        let told = depths.iter().map(|depth| figures::Depth {
            color: depth.color.map_or_else(|| "unknown".to_owned(), color_name),
            events: depth.events,
            core: depth.core,
        });
        told.collect()
    }
}

/// A color by what the server uses it for.
fn color_name(color: Color) -> String {
    match color {
        ACCEPT_COLOR => "Accept".to_owned(),
        Color::DEFAULT => "the default color".to_owned(),
        // No other color is made from a value.
        color => format!("connection {color}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colors_are_named_as_the_server_uses_them() {
        assert_eq!(color_name(ACCEPT_COLOR), "Accept");
        assert_eq!(color_name(Color::DEFAULT), "the default color");
        assert_eq!(color_name(Color::from(17)), "connection 17");
    }
}
