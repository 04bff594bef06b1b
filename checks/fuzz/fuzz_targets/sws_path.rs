//! Any request target has the key that the reference says, and no key climbs.
#![no_main]
#![allow(
    dead_code,
    reason = "modules of the program, of which this needs a part"
)]

#[path = "../../../apps/sws/src/fields.rs"]
mod fields;
#[path = "../../../apps/sws/src/host.rs"]
mod host;
#[path = "../../../apps/sws/src/path.rs"]
mod path;
#[path = "../../../apps/sws/src/tests/reference.rs"]
mod reference;
#[path = "../../../apps/sws/src/site.rs"]
mod site;
#[path = "../../../apps/sws/src/status.rs"]
mod status;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|target: &[u8]| {
    let key = path::key_of(target).map(|key| key.of(target).to_vec());
    assert_eq!(key, reference::key_of(target), "{}", target.escape_ascii());
    if let Ok(key) = key {
        let climbs = |name: &[u8]| matches!(name, b"." | b"..");
        assert!(!key.split(|&b| b == b'/').any(climbs));
        assert!(key.starts_with(b"/"));
    }
});
