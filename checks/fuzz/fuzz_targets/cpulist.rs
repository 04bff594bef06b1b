//! Any text is the list that the reference says, or none.
#![no_main]
#![allow(dead_code, reason = "the reference also reads trees")]

#[path = "../../../topology/tests/support/reference.rs"]
mod reference;

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| reference::assert_parsed_as_said(text));
