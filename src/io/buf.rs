//! Bytes on their way out, owned by the operation until its completion gives them back.

use super::RecvBuf;
use bytes::{Buf, Bytes};
use std::fmt;
use std::ops::{Deref, Range};
// The users' own, whatever the crate's own atomics are made of.
use std::sync::Arc;

/// Bytes to send.
///
/// Owned, because the kernel reads them after the call has returned. Cheap to make from what a
/// server has at hand: a response known at compile time, a prebuilt one shared by many
/// connections, one just written, or what was received.
///
/// A received buffer ([`RecvBuf`]) goes back to the core that received it when the `SendBuf` is
/// dropped: until then that core has one buffer fewer to receive into.
/// [`Stream::write`](crate::net::Stream::write) gives it back before it returns: what the kernel
/// does not take at once is copied, so that peers who do not read keep no buffers. A clone is a
/// copy too. [`Bytes`] that were made of a received buffer are not copied.
#[derive(Clone)]
pub struct SendBuf(Repr);

enum Repr {
    Static(&'static [u8]),
    Shared {
        bytes: Arc<[u8]>,
        start: usize,
        end: usize,
    },
    Bytes(Bytes),
    Owned(Vec<u8>),
    /// From `start` on.
    Received {
        buf: RecvBuf,
        start: usize,
    },
}

impl Clone for Repr {
    fn clone(&self) -> Repr {
        match self {
            Repr::Static(bytes) => Repr::Static(bytes),
            Repr::Shared { bytes, start, end } => Repr::Shared {
                bytes: Arc::clone(bytes),
                start: *start,
                end: *end,
            },
            Repr::Bytes(bytes) => Repr::Bytes(bytes.clone()),
            Repr::Owned(bytes) => Repr::Owned(bytes.clone()),
            Repr::Received { buf, start } => Repr::Owned(buf[*start..].to_vec()),
        }
    }
}

impl SendBuf {
    /// A part of a shared buffer.
    ///
    /// # Panics
    ///
    /// When `range` is not within `bytes`.
    #[track_caller]
    pub fn shared(bytes: Arc<[u8]>, range: Range<usize>) -> SendBuf {
        assert!(
            range.start <= range.end && range.end <= bytes.len(),
            "{range:?} is not within the {} bytes of the buffer",
            bytes.len()
        );
        SendBuf(Repr::Shared {
            bytes,
            start: range.start,
            end: range.end,
        })
    }

    /// Without its first bytes.
    pub(crate) fn skip(&mut self, bytes: usize) {
        match &mut self.0 {
            Repr::Static(all) => *all = &all[bytes..],
            Repr::Shared { start, end, .. } => *start = (*start + bytes).min(*end),
            Repr::Bytes(all) => all.advance(bytes),
            // Moves what is left; rare, for a peer that reads slower than we write.
            Repr::Owned(all) => drop(all.drain(..bytes)),
            Repr::Received { start, .. } => *start += bytes,
        }
    }

    /// The same bytes in memory that may wait: received ones are copied, and their buffer goes
    /// back.
    pub(crate) fn into_lasting(self) -> SendBuf {
        match self.0 {
            Repr::Received { .. } => self.clone(),
            _ => self,
        }
    }
}

/// The address of the bytes does not change when the `SendBuf` is moved: none of the five forms
/// keeps them inline ([`Bytes::from_owner`] boxes its owner). The ring backend relies on that while
/// the kernel reads them.
impl Deref for SendBuf {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match &self.0 {
            Repr::Static(bytes) => bytes,
            Repr::Shared { bytes, start, end } => &bytes[*start..*end],
            Repr::Bytes(bytes) => bytes,
            Repr::Owned(bytes) => bytes,
            Repr::Received { buf, start } => &buf[*start..],
        }
    }
}

impl AsRef<[u8]> for SendBuf {
    fn as_ref(&self) -> &[u8] {
        self
    }
}

impl Default for SendBuf {
    fn default() -> SendBuf {
        SendBuf(Repr::Static(&[]))
    }
}

impl From<&'static [u8]> for SendBuf {
    fn from(bytes: &'static [u8]) -> SendBuf {
        SendBuf(Repr::Static(bytes))
    }
}

impl From<&'static str> for SendBuf {
    fn from(text: &'static str) -> SendBuf {
        SendBuf(Repr::Static(text.as_bytes()))
    }
}

impl<const N: usize> From<&'static [u8; N]> for SendBuf {
    fn from(bytes: &'static [u8; N]) -> SendBuf {
        SendBuf(Repr::Static(bytes))
    }
}

impl From<Vec<u8>> for SendBuf {
    fn from(bytes: Vec<u8>) -> SendBuf {
        SendBuf(Repr::Owned(bytes))
    }
}

impl From<String> for SendBuf {
    fn from(text: String) -> SendBuf {
        SendBuf(Repr::Owned(text.into_bytes()))
    }
}

impl From<Arc<[u8]>> for SendBuf {
    fn from(bytes: Arc<[u8]>) -> SendBuf {
        let end = bytes.len();
        SendBuf(Repr::Shared {
            bytes,
            start: 0,
            end,
        })
    }
}

/// Without a copy, also of what has to wait. So of received bytes, a [`RecvBuf`] is better given as
/// it is: a peer that does not read would keep the buffers that its core receives into.
impl From<Bytes> for SendBuf {
    fn from(bytes: Bytes) -> SendBuf {
        SendBuf(Repr::Bytes(bytes))
    }
}

/// Without a copy: until the last clone and slice is dropped, the core that received it has one
/// buffer fewer to receive into.
impl From<RecvBuf> for Bytes {
    fn from(buf: RecvBuf) -> Bytes {
        Bytes::from_owner(buf)
    }
}

/// Without a copy: see [`SendBuf`] for what that costs.
impl From<RecvBuf> for SendBuf {
    fn from(buf: RecvBuf) -> SendBuf {
        SendBuf(Repr::Received { buf, start: 0 })
    }
}

impl fmt::Debug for SendBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let form = match &self.0 {
            Repr::Static(_) => "static",
            Repr::Shared { .. } => "shared",
            Repr::Bytes(_) => "bytes",
            Repr::Owned(_) => "owned",
            Repr::Received { .. } => "received",
        };
        write!(f, "SendBuf({form}, {} bytes)", self.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_skipped_is_gone_in_every_form() {
        let whole: Arc<[u8]> = (*b"-hello-").into();
        let forms: [SendBuf; 4] = [
            "hello".into(),
            Bytes::from(b"-hello".to_vec()).slice(1..).into(),
            SendBuf::shared(whole, 1..6),
            b"hello".to_vec().into(),
        ];
        for mut buf in forms {
            buf.skip(2);
            assert_eq!(&*buf, b"llo");
            buf.skip(3);
            assert!(buf.is_empty());
        }
    }

    #[test]
    fn it_is_made_from_what_is_at_hand() {
        let shared: Arc<[u8]> = (*b"hello").into();
        let forms: [SendBuf; 7] = [
            b"hello".into(),
            (&b"hello"[..]).into(),
            "hello".into(),
            "hello".to_owned().into(),
            b"hello".to_vec().into(),
            shared.into(),
            Bytes::from_static(b"hello").into(),
        ];
        for (form, buf) in forms.into_iter().enumerate() {
            assert_eq!(&*buf, b"hello", "{form}");
        }
        assert!(SendBuf::default().is_empty());
    }
}
