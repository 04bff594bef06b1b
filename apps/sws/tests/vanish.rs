//! Clients that leave in the middle.

use crate::client::{Client, get, is_served};
use crate::on_both;
use crate::setup::Setup;
use crate::site::{LARGE, Random, Site};
use std::time::Duration;

on_both!(leaving_at_any_point);

#[derive(Clone, Copy, Debug)]
enum How {
    Close,
    Reset,
    HalfClose,
}

/// Before, within and after the request; before, within and after the answer; politely and not.
fn leaving_at_any_point(backend: &str) {
    let site = Site::full();
    let server = Setup::new(backend).root(site.root()).start();
    is_served(server.addr());
    let descriptors = server.descriptors_at_rest();
    let mut random = Random(7);
    let mut warm_kib = 0;
    for round in 0..400 {
        let path = ["/1.bin", "/65537.bin", LARGE][random.below(3) as usize];
        let requests = get(path).repeat(1 + random.below(3) as usize);
        let request_bytes = random.below(requests.len() as u64 + 1) as usize;
        let how = [How::Close, How::Reset, How::HalfClose][random.below(3) as usize];
        let mut client = if round % 2 == 0 {
            Client::connect(server.addr())
        } else {
            Client::connect_with_little_room(server.addr())
        };
        client.send(&requests[..request_bytes]);
        // Some of the answer, if there is one.
        if request_bytes == requests.len() && random.below(2) == 0 {
            client.receive();
        }
        match how {
            How::Close => drop(client),
            How::Reset => client.reset(),
            How::HalfClose => {
                client.half_close();
                drop(client);
            }
        }
        if round % 50 == 0 {
            is_served(server.addr());
        }
        if round == 200 {
            warm_kib = server.rss_kib();
        }
    }
    is_served(server.addr());
    server.settles_at(descriptors, Duration::from_secs(10));
    let growth_kib = server.rss_kib().saturating_sub(warm_kib);
    assert!(growth_kib < 8 * 1024, "{growth_kib} KiB more");
    let summary = server.stop();
    assert_eq!(summary.connections()[2], 0, "{}", summary.text);
}
