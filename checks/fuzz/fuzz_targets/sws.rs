//! A connection of SWS: any bytes, in any pieces, get what the reference says, and nothing else.
#![no_main]
#![allow(
    dead_code,
    reason = "modules of the program, of which this needs a part"
)]

#[path = "../../../apps/sws/src/bytes.rs"]
mod bytes;
#[path = "../../../apps/sws/src/condition.rs"]
mod condition;
#[path = "../../../apps/sws/src/conn.rs"]
mod conn;
#[path = "../../../apps/sws/src/tests/driver.rs"]
mod driver;
#[path = "../../../apps/sws/src/fields.rs"]
mod fields;
#[path = "../../../apps/sws/src/host.rs"]
mod host;
#[path = "../../../apps/sws/src/path.rs"]
mod path;
#[path = "../../../apps/sws/src/tests/reference.rs"]
mod reference;
#[path = "../../../apps/sws/src/request.rs"]
mod request;
#[path = "../../../apps/sws/src/respond.rs"]
mod respond;
#[path = "../../../apps/sws/src/site.rs"]
mod site;
#[path = "../../../apps/sws/src/status.rs"]
mod status;
#[path = "../../../apps/sws/src/step.rs"]
mod step;

use driver::{Driver, End};
use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;

static SITE: LazyLock<site::Site> = LazyLock::new(driver::site);

// The first byte says how long the pieces are.
fuzz_target!(|data: &[u8]| {
    let Some((&piece, input)) = data.split_first() else {
        return;
    };
    let expected = reference::conversation(&SITE, input);
    for piece_bytes in [usize::from(piece) + 1, usize::MAX] {
        let mut driver = Driver::new(&SITE);
        for piece in input.chunks(piece_bytes) {
            driver.bytes(piece);
        }
        let over = driver.is_over();
        assert_eq!(
            (driver.sent.escape_ascii().to_string(), over),
            (expected.0.escape_ascii().to_string(), expected.1),
            "in pieces of {piece_bytes}: {}",
            input.escape_ascii()
        );
        driver.eof();
        assert_eq!(
            (driver.end, driver.sent.len()),
            (End::Closed, expected.0.len())
        );
    }
});
