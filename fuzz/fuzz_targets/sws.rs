//! A connection of SWS: any bytes, in any pieces, get what the reference says, and nothing else.
#![no_main]
#![allow(
    dead_code,
    reason = "modules of the example, of which this needs a part"
)]

#[path = "../../examples/sws/bytes.rs"]
mod bytes;
#[path = "../../examples/sws/condition.rs"]
mod condition;
#[path = "../../examples/sws/conn.rs"]
mod conn;
#[path = "../../examples/sws/tests/driver.rs"]
mod driver;
#[path = "../../examples/sws/fields.rs"]
mod fields;
#[path = "../../examples/sws/host.rs"]
mod host;
#[path = "../../examples/sws/path.rs"]
mod path;
#[path = "../../examples/sws/tests/reference.rs"]
mod reference;
#[path = "../../examples/sws/request.rs"]
mod request;
#[path = "../../examples/sws/respond.rs"]
mod respond;
#[path = "../../examples/sws/site.rs"]
mod site;
#[path = "../../examples/sws/status.rs"]
mod status;
#[path = "../../examples/sws/step.rs"]
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
