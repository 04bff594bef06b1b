//! Bytes on their way to a client, owned in the cheapest way their origin allows.

use std::sync::Arc;

/// What one send carries. Prebuilt responses are shared, never copied.
#[derive(Clone, Debug)]
pub(crate) enum Bytes {
    /// The first `end` bytes of a prebuilt response: all of it, or its head alone for a HEAD.
    Shared {
        /// The whole response.
        all: Arc<[u8]>,
        /// How much of it to send.
        end: usize,
    },
    /// An error response, which lives as long as the program.
    Static(&'static [u8]),
    /// A page rendered for this one request.
    Owned(Vec<u8>),
}

impl Bytes {
    /// How many bytes go out.
    pub(crate) fn len(&self) -> usize {
        self.as_ref().len()
    }
}

impl AsRef<[u8]> for Bytes {
    fn as_ref(&self) -> &[u8] {
        match self {
            Bytes::Shared { all, end } => &all[..*end],
            Bytes::Static(bytes) => bytes,
            Bytes::Owned(bytes) => bytes,
        }
    }
}
