//! What one send sends: a buffer, or several one after the other, which are not joined by copying.

use super::kernel::Message;
use super::{Fd, SendBuf};
use arrayvec::ArrayVec;
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags, send, sendmsg};
use std::io::IoSlice;
use std::slice;

/// Buffers that one send has at most. The kernel takes up to 1,024.
pub(crate) const PARTS_MAX: usize = 256;

/// See the module text. Like a [`SendBuf`] it keeps no bytes inline.
#[derive(Debug)]
pub(crate) enum Bufs {
    One(SendBuf),
    /// At most [`PARTS_MAX`].
    Several(Vec<SendBuf>),
}

impl Bufs {
    /// Bytes of all of them.
    pub(crate) fn len(&self) -> usize {
        self.parts().iter().map(|part| part.len()).sum()
    }

    fn parts(&self) -> &[SendBuf] {
        match self {
            Bufs::One(buf) => slice::from_ref(buf),
            Bufs::Several(bufs) => bufs,
        }
    }

    /// Without the first bytes.
    pub(crate) fn skip(&mut self, mut bytes: usize) {
        match self {
            Bufs::One(buf) => buf.skip(bytes),
            Bufs::Several(bufs) => {
                let mut gone = 0;
                while let Some(buf) = bufs.get(gone)
                    && buf.len() <= bytes
                {
                    bytes -= buf.len();
                    gone += 1;
                }
                bufs.drain(..gone);
                if let Some(first) = bufs.first_mut() {
                    first.skip(bytes);
                }
            }
        }
    }

    /// The same bytes in memory that may wait: see [`SendBuf::into_lasting`].
    pub(crate) fn into_lasting(self) -> Bufs {
        match self {
            Bufs::One(buf) => Bufs::One(buf.into_lasting()),
            Bufs::Several(bufs) => {
                Bufs::Several(bufs.into_iter().map(SendBuf::into_lasting).collect())
            }
        }
    }

    /// The bytes behind the first `from`, buffer by buffer; none of them is empty.
    fn slices(&self, mut from: usize) -> impl Iterator<Item = &[u8]> {
        self.parts().iter().filter_map(move |part| {
            let skipped = from.min(part.len());
            from -= skipped;
            let rest = &part[skipped..];
            (!rest.is_empty()).then_some(rest)
        })
    }

    /// The bytes behind the first `from`, of the buffer that they begin in.
    pub(super) fn rest(&self, from: usize) -> &[u8] {
        match self {
            Bufs::One(buf) => &buf[from..],
            Bufs::Several(_) => self.slices(from).next().unwrap_or_default(),
        }
    }

    /// What a ring is told of the bytes behind the first `from`, if that takes more than an address.
    pub(super) fn message(&self, from: usize) -> Option<Message> {
        match self {
            Bufs::One(_) => None,
            Bufs::Several(_) => Some(Message::of(self.slices(from))),
        }
    }

    /// Sends what the socket takes of the bytes behind the first `from`, without waiting.
    pub(super) fn send(&self, fd: Fd, from: usize) -> Result<usize, Errno> {
        let (fd, flags) = (fd.borrow(), SendFlags::NOSIGNAL);
        if let Bufs::One(buf) = self {
            return send(fd, &buf[from..], flags);
        }
        // All that one write queues, so that none of it waits where the socket has room.
        let slices = self.slices(from).take(PARTS_MAX).map(IoSlice::new);
        let slices: ArrayVec<_, PARTS_MAX> = slices.collect();
        sendmsg(fd, &slices, &mut SendAncillaryBuffer::default(), flags)
    }
}

impl From<SendBuf> for Bufs {
    fn from(buf: SendBuf) -> Bufs {
        Bufs::One(buf)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
    use std::os::fd::AsRawFd;

    fn three() -> Bufs {
        Bufs::Several(vec![
            "one".into(),
            "".into(),
            b"two".to_vec().into(),
            "three".into(),
        ])
    }

    fn joined(bufs: &Bufs, from: usize) -> Vec<u8> {
        bufs.slices(from).collect::<Vec<_>>().concat()
    }

    #[test]
    fn what_is_skipped_is_gone_across_buffers() {
        for from in 0..=11 {
            let mut bufs = three();
            assert_eq!(bufs.len(), 11);
            assert_eq!(joined(&bufs, from), b"onetwothree"[from..]);
            bufs.skip(from);
            assert_eq!((bufs.len(), joined(&bufs, 0).len()), (11 - from, 11 - from));
            assert_eq!(joined(&bufs, 0), b"onetwothree"[from..]);
            assert_eq!(joined(&bufs.into_lasting(), 0), b"onetwothree"[from..]);
        }
        assert_eq!(
            (three().rest(1), three().rest(3)),
            (&b"ne"[..], &b"two"[..])
        );
        assert_eq!(three().rest(11), b"");
    }

    #[test]
    fn all_are_sent_in_one_call() {
        let (family, flags) = (AddressFamily::UNIX, SocketFlags::empty());
        let (here, there) = socketpair(family, SocketType::STREAM, flags, None).unwrap();
        let fd = Fd::from_raw(here.as_raw_fd());
        for (bufs, from, sent) in [
            (three(), 2, &b"etwothree"[..]),
            (Bufs::One("one".into()), 1, b"ne"),
        ] {
            assert_eq!(bufs.send(fd, from), Ok(sent.len()));
            let mut got = [0; 20];
            let got_len = rustix::io::read(&there, &mut got).unwrap();
            assert_eq!(&got[..got_len], sent);
        }
        // More than one call takes are sent in several.
        let many = Bufs::Several(vec!["12".into(); PARTS_MAX + 1]);
        assert_eq!(many.send(fd, 0), Ok(2 * PARTS_MAX));
        assert_eq!(many.send(fd, 2 * PARTS_MAX), Ok(2));
    }
}
