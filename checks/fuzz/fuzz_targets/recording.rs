//! Any bytes are a recording, or there is a sentence that says why they are none; as a file, and as
//! the records in a file's pages.
#![no_main]
#![allow(dead_code, reason = "the tests also make recordings by hand")]

#[path = "../../../lab/recording/tests/support/mod.rs"]
mod support;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    support::assert_sound(bytes);
    support::assert_sound(&support::of_pages(bytes));
});
