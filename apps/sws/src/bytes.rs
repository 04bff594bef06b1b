//! Bytes on their way to a client, owned in the cheapest way their origin allows.

/// What an answer ends with. What was there before the question is shared, never copied.
#[derive(Clone, Debug)]
pub(crate) enum Bytes {
    /// Of the site, or a refusal, which live as long as the program.
    Static(&'static [u8]),
    /// Made for this one answer.
    Owned(Vec<u8>),
}

impl Bytes {
    /// How many there are.
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
