//! An answer as what is handed to the kernel: one buffer if it is small, whatever parts it has.

use std::cell::RefCell;
use std::sync::Arc;

use mely::net::SendBuf;

use crate::bytes::Bytes;
use crate::clock::Date;
use crate::respond::{DATE_BYTES, Reply};

/// An answer up to this size is copied into one buffer, which costs less than a second send. Of a
/// larger one so much is.
const COPIED_BYTES_MAX: usize = 16 * 1024;
/// The rest is cut into pieces of this size, so that a slow client is seen to make progress.
const PIECE_BYTES_MAX: usize = 64 * 1024;

/// Where a core puts its answers together.
struct Desk {
    /// In use by a send only while the client does not take all at once.
    buffer: Arc<[u8]>,
    /// What stands at the beginning of it: mostly, the next answer begins with the same.
    lead: &'static str,
    date: Date,
}

thread_local! {
    static DESK: RefCell<Desk> = RefCell::new(Desk {
        buffer: Arc::new([]),
        lead: "",
        date: [0; DATE_BYTES],
    });
}

/// Hands the buffers of an answer to `send`, in order. `alone`: nothing that was said before is
/// still to be sent, so that this is most likely taken at once.
pub(crate) fn each(reply: Reply, date: &Date, alone: bool, mut send: impl FnMut(SendBuf)) {
    let lead = reply.lead();
    let rest = reply.rest.as_ref();
    let copied_bytes = rest.len().min(COPIED_BYTES_MAX - lead.len() - date.len());
    let first = if alone {
        DESK.with_borrow_mut(|desk| desk.put_together(lead, date, &rest[..copied_bytes]))
    } else {
        // It waits with others: of its own size, for there may be many.
        [lead.as_bytes(), date, &rest[..copied_bytes]]
            .concat()
            .into()
    };
    send(first);
    if rest.len() > copied_bytes {
        each_of_rest(reply.rest, copied_bytes, send);
    }
}

/// The buffers of what is more than one.
#[inline(never)]
fn each_of_rest(rest: Bytes, copied_bytes: usize, mut send: impl FnMut(SendBuf)) {
    match rest {
        Bytes::Static(bytes) => {
            let pieces = bytes[copied_bytes..].chunks(PIECE_BYTES_MAX);
            pieces.map(SendBuf::from).for_each(send);
        }
        Bytes::Owned(mut bytes) => {
            bytes.drain(..copied_bytes);
            send(bytes.into());
        }
    }
}

impl Desk {
    fn put_together(&mut self, lead: &'static str, date: &Date, rest: &[u8]) -> SendBuf {
        let (date_at, rest_at) = (lead.len(), lead.len() + date.len());
        let end = rest_at + rest.len();
        let buffer = match Arc::get_mut(&mut self.buffer) {
            Some(buffer) if !buffer.is_empty() => buffer,
            // None yet, or a client has not taken all of it.
            _ => {
                self.buffer = Arc::new([0; COPIED_BYTES_MAX]);
                self.lead = "";
                Arc::get_mut(&mut self.buffer).expect("just made")
            }
        };
        if !std::ptr::eq(self.lead, lead) || self.date != *date {
            buffer[..date_at].copy_from_slice(lead.as_bytes());
            buffer[date_at..rest_at].copy_from_slice(date);
            (self.lead, self.date) = (lead, *date);
        }
        buffer[rest_at..end].copy_from_slice(rest);
        SendBuf::shared(Arc::clone(&self.buffer), 0..end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::status::Status;
    use crate::tests::driver::{DATE, wire};

    fn reply(rest: Bytes) -> Reply {
        Reply {
            status: Status::Ok,
            close: false,
            rest,
        }
    }

    fn noise(bytes: usize) -> Vec<u8> {
        (0..bytes).map(|at| (at * 7 + at / 251) as u8).collect()
    }

    #[test]
    fn the_buffers_are_the_answer_whatever_its_size() {
        let head_bytes = wire(&reply(Bytes::Static(b""))).len();
        for alone in [true, false] {
            for body_bytes in [
                0,
                1,
                1000,
                COPIED_BYTES_MAX - head_bytes,
                COPIED_BYTES_MAX - head_bytes + 1,
                COPIED_BYTES_MAX + PIECE_BYTES_MAX - head_bytes,
                COPIED_BYTES_MAX + PIECE_BYTES_MAX - head_bytes + 1,
                1_000_000,
            ] {
                let body = noise(body_bytes);
                let leaked: &'static [u8] = body.clone().leak();
                for body in [Bytes::Static(leaked), Bytes::Owned(body)] {
                    let expected = wire(&reply(body.clone()));
                    let small = expected.len() <= COPIED_BYTES_MAX;
                    let mut buffers = Vec::new();
                    each(reply(body), DATE, alone, |buffer| buffers.push(buffer));
                    let sent: Vec<u8> = buffers.iter().flat_map(|b| b.to_vec()).collect();
                    assert!(sent == expected, "{body_bytes} bytes");
                    assert_eq!(buffers.len() == 1, small, "{body_bytes} bytes");
                }
            }
        }
    }

    #[test]
    fn a_buffer_that_is_still_being_sent_is_left_alone() {
        let make = |text: &'static [u8]| {
            let mut all = Vec::new();
            each(reply(Bytes::Static(text)), DATE, true, |one| all.push(one));
            all.pop().expect("one")
        };
        let slow = make(b"slow");
        let quick = make(b"quick");
        assert!(slow.ends_with(b"slow") && quick.ends_with(b"quick"));
    }
}
