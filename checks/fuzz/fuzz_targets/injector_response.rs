//! The injector's reader takes any response for what the reference says, whatever the pieces.
#![no_main]
#![allow(
    dead_code,
    reason = "modules of the program, of which this needs a part"
)]

#[path = "../../../apps/injector/src/file_set.rs"]
mod file_set;
#[path = "../../../apps/injector/src/tests/reference.rs"]
mod reference;
#[path = "../../../apps/injector/src/response.rs"]
mod response;
#[path = "../../../apps/injector/src/work.rs"]
mod work;

use libfuzzer_sys::fuzz_target;
use response::{Progress, Reader};
use work::Check;

// The first byte says how long the pieces are, the second how closely is looked.
fuzz_target!(|data: &[u8]| {
    let [piece, check, input @ ..] = data else {
        return;
    };
    let check = [Check::None, Check::Length, Check::Bytes][usize::from(check % 3)];
    for piece_bytes in [usize::from(*piece) + 1, usize::MAX] {
        let mut reader = Reader::default();
        let mut read = 0;
        for piece in input.chunks(piece_bytes) {
            read += piece.len();
            let found = reader.advance(piece, b"hello", check);
            // The reference begins anew with each piece: not for the smallest of long inputs.
            if found != Ok(Progress::More) || read == input.len() || piece_bytes > 16 {
                let told = reference::read(&input[..read], b"hello", check);
                assert_eq!(found, told, "{}", input[..read].escape_ascii());
            }
            if found != Ok(Progress::More) {
                break;
            }
        }
    }
});
