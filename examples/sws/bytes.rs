//! Bytes on their way to a client, owned in the cheapest way their origin allows.

/// What one send carries. Prebuilt responses are shared, never copied.
#[derive(Clone, Debug)]
pub(crate) enum Bytes {
    /// A prebuilt response, or its head alone for a HEAD, which lives as long as the program.
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
            Bytes::Static(bytes) => bytes,
            Bytes::Owned(bytes) => bytes,
        }
    }
}
