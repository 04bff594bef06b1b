//! Every connection's descriptor is given back.

use crate::client::{Client, is_served};
use crate::on_both;
use crate::setup::Setup;
use std::time::Duration;

on_both!(twenty_thousand_connections_leave_nothing);

const CONNECTIONS: usize = 20_000;

/// Connected and closed at once, with a reset or without; some have asked something before.
fn twenty_thousand_connections_leave_nothing(backend: &str) {
    let server = Setup::new(backend).args(&["--cores", "2"]).start();
    let addr = server.addr();
    is_served(addr);
    let descriptors = server.descriptors_at_rest();
    let most = std::thread::scope(|scope| {
        for thread in 0..2 {
            scope.spawn(move || {
                for number in (thread..CONNECTIONS).step_by(2) {
                    let mut client = Client::connect(addr);
                    // An answer now and then keeps the loop from overtaking the server.
                    if number % 16 < 2 {
                        assert_eq!(client.get("/").status(), 200);
                    }
                    if number % 4 < 2 {
                        client.reset();
                    }
                }
            });
        }
        let samples = (0..20).map(|_| {
            std::thread::sleep(Duration::from_millis(20));
            server.descriptors()
        });
        samples.max().unwrap_or(0)
    });
    println!("{backend}: {descriptors} descriptors at rest, {most} at most");
    server.settles_at(descriptors, Duration::from_secs(10));
    assert!(most < descriptors + 2_000, "{most}");
    let summary = server.stop();
    let [accepted, rejected, open] = summary.connections();
    // One that was reset while it waited to be accepted may never have been seen, and one that
    // still waited when the server was told to stop was turned away.
    let text = &summary.text;
    assert!(accepted + rejected <= CONNECTIONS as u64 + 1, "{text}");
    assert_eq!(open, 0, "{text}");
    let answered = CONNECTIONS as u64 / 8 + 1;
    let counted = summary.requests();
    assert!(
        (answered..=answered + rejected).contains(&counted),
        "{text}"
    );
}
