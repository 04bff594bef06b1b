//! From the bytes of a file to a [`Recording`].

use crate::error::Error;
use crate::format::{MAGIC, PAGE_BYTES};
use crate::input::{Fault, Input, Paged};
use crate::log::{Log, Names};
use crate::model::Recording;
use crate::together::put_together;
use std::collections::BTreeMap;
use std::path::Path;

impl Recording {
    /// Reads a file.
    ///
    /// # Errors
    /// As [`Recording::read`], or if the file cannot be read.
    pub fn open(path: impl AsRef<Path>) -> Result<Recording, Error> {
        Recording::read(&std::fs::read(path)?)
    }

    /// Reads the bytes of a file.
    ///
    /// # Errors
    /// If they are not a recording, or one that was cut short, or damaged; see [`Error`].
    pub fn read(bytes: &[u8]) -> Result<Recording, Error> {
        read(bytes, true)
    }

    /// Reads what is there of a recording that was cut short, or whose run left cores behind in
    /// their handlers. Some events are missing then, and of others what they were posted by.
    ///
    /// # Errors
    /// As [`Recording::read`] otherwise.
    pub fn read_what_is_there(bytes: &[u8]) -> Result<Recording, Error> {
        read(bytes, false)
    }
}

/// Most events and posts of a recording: their ids have 32 bits, and a page that exceeds it has
/// been read by then.
const ENTRIES_MAX: usize = u32::MAX as usize - PAGE_BYTES;

fn read(bytes: &[u8], whole: bool) -> Result<Recording, Error> {
    let mut input = Input::new(bytes);
    if bytes.len() >= MAGIC.len() && !bytes.starts_with(&MAGIC) || !MAGIC.starts_with(first(bytes))
    {
        return Err(Error::NotARecording);
    }
    let cut_short = || Error::CutShort { bytes: bytes.len() };
    let header = match input.header() {
        Ok(Ok(header)) => header,
        Ok(Err(found)) => return Err(Error::Version { found }),
        Err(Fault::Short) => return Err(cut_short()),
        Err(Fault::Not(what)) => return Err(Error::Damaged { at: input.at, what }),
    };
    let (mut names, mut logs) = (Names::default(), BTreeMap::new());
    let mut pages = 0;
    let end = loop {
        let at = input.at;
        let damaged = |what| Error::Damaged { at, what };
        match input.page() {
            Ok(Paged::Log(id, from_ns, records)) => {
                if id.as_core().is_some_and(|core| core >= header.cores) {
                    return Err(damaged("a page is of a core that the run does not have"));
                }
                let log = logs.entry(id).or_insert_with(|| Log::new(id, header.cores));
                log.begin_page(from_ns).map_err(damaged)?;
                log.read(&mut names, records)?;
                let entries = logs.values().map(|log| log.events.len() + log.posts.len());
                if entries.sum::<usize>() > ENTRIES_MAX {
                    return Err(Error::TooLong);
                }
            }
            Ok(Paged::End(end)) => break Some(end),
            Err(Fault::Short) if whole => return Err(cut_short()),
            Err(Fault::Short) => break None,
            Err(Fault::Not(what)) => return Err(damaged(what)),
        }
        pages += 1;
    };
    if let Some(end) = &end {
        let damaged = |what| Error::Damaged { at: input.at, what };
        if !input.is_empty() {
            return Err(damaged("something comes after the last page"));
        }
        if end.pages != pages {
            return Err(damaged(
                "the last page tells another number of pages before it",
            ));
        }
        if end.cores_left > 0 && whole {
            let cores = end.cores_left;
            return Err(Error::CoresLeft { cores });
        }
    }
    put_together(header, end, names, logs.into_values().collect(), whole)
}

/// As many bytes as [`MAGIC`] has, or as there are.
fn first(bytes: &[u8]) -> &[u8] {
    &bytes[..bytes.len().min(MAGIC.len())]
}
