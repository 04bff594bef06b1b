//! Ten thousand requests, a thousand clients: right answers for all, whoever runs the colors.

use crate::on_both;
use crate::setup::Setup;
use crate::site::Site;
use crate::swarm::{Enough, Swarm, Until};
use std::time::{Duration, Instant};

const CLIENTS: usize = 1000;

on_both!(
    ten_thousand_requests_on_one_core,
    ten_thousand_requests_on_two_cores,
    pipelining_clients_move_between_cores,
    a_thousand_clients_are_treated_alike,
);

/// All home on one core (`--accept single`): what the other core does, it has stolen.
fn ten_thousand_requests(backend: &str, cores: &str, stealing: &str, depth: usize) -> u64 {
    let site = Site::small();
    let server = Setup::new(backend)
        .root(site.root())
        .args(&[
            "--cores",
            cores,
            "--stealing",
            stealing,
            "--accept",
            "single",
        ])
        .start();
    let swarm = Swarm {
        addr: server.addr(),
        site: &site,
        clients: CLIENTS,
        depth,
        until: Until::Answers(10),
        began: Instant::now(),
    };
    let mut tally = swarm.run();
    tally.print(&format!(
        "{backend}, cores {cores}, stealing {stealing}, depth {depth}"
    ));
    tally.assert_faultless();
    assert_eq!(tally.total(), 10_000);
    let summary = server.stop();
    assert_eq!(summary.requests(), 10_000, "{}", summary.text);
    assert_eq!(summary.connections(), [1000, 0, 0], "{}", summary.text);
    assert!(summary.backend().starts_with(backend), "{}", summary.text);
    summary.steals()
}

fn ten_thousand_requests_on_one_core(backend: &str) {
    for stealing in ["on", "off"] {
        assert_eq!(ten_thousand_requests(backend, "1", stealing, 1), 0);
    }
}

fn ten_thousand_requests_on_two_cores(backend: &str) {
    assert!(ten_thousand_requests(backend, "2", "on", 1) > 0);
    assert_eq!(ten_thousand_requests(backend, "2", "off", 1), 0);
}

/// Each color has a queue of its own to be stolen with; the order of its answers is kept.
fn pipelining_clients_move_between_cores(backend: &str) {
    assert!(ten_thousand_requests(backend, "2", "on", 10) > 0);
}

/// A listener on every core, and nobody starves while a thousand ask as fast as they can.
fn a_thousand_clients_are_treated_alike(backend: &str) {
    let site = Site::small();
    let server = Setup::new(backend)
        .root(site.root())
        .args(&["--cores", "2"])
        .start();
    let swarm = |answers| {
        let enough = Enough::answers(answers);
        let swarm = Swarm {
            addr: server.addr(),
            site: &site,
            clients: CLIENTS,
            depth: 1,
            until: Until::Each(&enough),
            began: Instant::now(),
        };
        let mut tally = swarm.run();
        tally.print(&format!("{backend}, a thousand clients"));
        tally.assert_faultless();
        tally
    };
    // Pools and tables grow to their size first.
    let warm = swarm(10);
    let (rss_kib, descriptors) = (server.rss_kib(), server.descriptors_at_rest());
    let tally = swarm(60);
    let fewest = tally.answers.iter().min().copied().unwrap_or(0);
    let average = tally.total() / CLIENTS as u64;
    // A fair server is far better than this; a starving client gets a handful.
    assert!(
        fewest * 10 >= average,
        "one client got {fewest} answers, the average {average}"
    );
    let growth_kib = server.rss_kib().saturating_sub(rss_kib);
    assert!(growth_kib < 16 * 1024, "{growth_kib} KiB more");
    // The clients of the second round have left as those of the first have.
    server.settles_at(descriptors, Duration::from_secs(5));
    let counted = warm.total() + tally.total();
    assert_eq!(server.stop().requests(), counted);
}
