//! Options of an open, and metadata.

use crate::io::{HowOpened, NodeKind, NodeStat};
use rustix::fs::{FileType, Mode, OFlags, Stat};
use std::time::{Duration, SystemTime};

/// Options of [`Dir::open_file`](super::Dir::open_file). None is set at first.
///
/// ```
/// use mely::fs::OpenOptions;
/// const LOG: OpenOptions = OpenOptions::new().append(true).create(true).mode(0o640);
/// # let _ = LOG;
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenOptions {
    read: bool,
    write: bool,
    append: bool,
    truncate: bool,
    create: bool,
    create_new: bool,
    mode: u32,
}

impl Default for OpenOptions {
    fn default() -> OpenOptions {
        OpenOptions::new()
    }
}

impl OpenOptions {
    /// Returns options with none set. A new file has the mode `0o666`, as with std.
    pub const fn new() -> OpenOptions {
        OpenOptions {
            read: false,
            write: false,
            append: false,
            truncate: false,
            create: false,
            create_new: false,
            mode: 0o666,
        }
    }

    /// Opens the file to read.
    #[must_use]
    pub const fn read(mut self, read: bool) -> OpenOptions {
        self.read = read;
        self
    }

    /// Opens the file to write.
    #[must_use]
    pub const fn write(mut self, write: bool) -> OpenOptions {
        self.write = write;
        self
    }

    /// Opens the file to write at its end, and nowhere else.
    #[must_use]
    pub const fn append(mut self, append: bool) -> OpenOptions {
        self.append = append;
        self
    }

    /// Empties a file that exists; needs [`write`](Self::write).
    #[must_use]
    pub const fn truncate(mut self, truncate: bool) -> OpenOptions {
        self.truncate = truncate;
        self
    }

    /// Creates a file that does not exist; needs [`write`](Self::write) or
    /// [`append`](Self::append).
    #[must_use]
    pub const fn create(mut self, create: bool) -> OpenOptions {
        self.create = create;
        self
    }

    /// Creates the file, and fails if the name exists; needs
    /// [`write`](Self::write) or [`append`](Self::append).
    #[must_use]
    pub const fn create_new(mut self, create_new: bool) -> OpenOptions {
        self.create_new = create_new;
        self
    }

    /// Sets the permissions of a file that is created, less those of the process's umask; `0o666`
    /// by default.
    #[must_use]
    pub const fn mode(mut self, mode: u32) -> OpenOptions {
        self.mode = mode;
        self
    }

    pub(super) fn can_read(&self) -> bool {
        self.read
    }

    pub(super) fn can_write(&self) -> bool {
        self.write || self.append
    }

    pub(super) fn appends(&self) -> bool {
        self.append
    }

    /// Why no file can be opened with these options.
    pub(super) fn refusal(&self) -> Option<&'static str> {
        let writes = self.write || self.append;
        if !self.read && !writes {
            Some("a file is opened to read, to write or to append: none of these is set")
        } else if (self.create || self.create_new) && !writes {
            Some("a file that is created has to be opened with `write` or `append`")
        } else if self.truncate && (!self.write || self.append) {
            Some("a file that is truncated has to be opened with `write`, and not with `append`")
        } else {
            None
        }
    }

    pub(super) fn flags(&self) -> OFlags {
        let mut flags = match (self.read, self.write || self.append) {
            (true, true) => OFlags::RDWR,
            (false, true) => OFlags::WRONLY,
            (_, false) => OFlags::RDONLY,
        };
        // A terminal that is opened does not become the controlling one of the process.
        flags |= OFlags::NOCTTY;
        flags.set(OFlags::APPEND, self.append);
        flags.set(OFlags::TRUNC, self.truncate);
        flags.set(OFlags::CREATE, self.create || self.create_new);
        flags.set(OFlags::EXCL, self.create_new);
        flags
    }

    pub(super) fn created_mode(&self) -> Mode {
        match self.create || self.create_new {
            true => Mode::from_raw_mode(self.mode & 0o7777),
            // openat2 refuses a mode if it creates nothing.
            false => Mode::empty(),
        }
    }

    pub(super) fn simulated(&self) -> HowOpened {
        HowOpened {
            write: self.write || self.append,
            truncate: self.truncate,
            create: self.create,
            create_new: self.create_new,
            dir: false,
            mode: self.mode,
        }
    }
}

/// The kind of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    File,
    Dir,
    Link,
    /// A pipe, a socket or a device; or the file system does not tell.
    Other,
}

impl From<FileType> for Kind {
    fn from(kind: FileType) -> Kind {
        match kind {
            FileType::RegularFile => Kind::File,
            FileType::Directory => Kind::Dir,
            FileType::Symlink => Kind::Link,
            _ => Kind::Other,
        }
    }
}

impl From<NodeKind> for Kind {
    fn from(kind: NodeKind) -> Kind {
        match kind {
            NodeKind::File => Kind::File,
            NodeKind::Dir => Kind::Dir,
            NodeKind::Link => Kind::Link,
        }
    }
}

// Their types depend on the architecture.
#[allow(clippy::useless_conversion, reason = "not on each architecture")]
fn links(stat: &Stat) -> u64 {
    stat.st_nlink.into()
}

#[allow(clippy::unnecessary_cast, reason = "not on each architecture")]
fn modified_ns(stat: &Stat) -> u64 {
    stat.st_mtime_nsec as u64
}

/// Metadata of a file or directory, from [`File::metadata`](super::File::metadata) or
/// [`Dir::metadata`](super::Dir::metadata).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Metadata {
    kind: Kind,
    len: u64,
    mode: u32,
    links: u64,
    modified: SystemTime,
}

impl Metadata {
    pub(super) fn of(stat: &Stat) -> Metadata {
        let since = Duration::from_secs(stat.st_mtime.unsigned_abs());
        let epoch = SystemTime::UNIX_EPOCH;
        let seconds = match stat.st_mtime < 0 {
            true => epoch.checked_sub(since),
            false => epoch.checked_add(since),
        };
        let nanoseconds = Duration::from_nanos(modified_ns(stat));
        let modified = seconds.and_then(|seconds| seconds.checked_add(nanoseconds));
        Metadata {
            kind: FileType::from_raw_mode(stat.st_mode).into(),
            len: u64::try_from(stat.st_size).unwrap_or(0),
            mode: stat.st_mode & 0o7777,
            links: links(stat),
            modified: modified.unwrap_or(epoch),
        }
    }

    pub(super) fn simulated(stat: &NodeStat) -> Metadata {
        Metadata {
            kind: stat.kind.into(),
            len: stat.len,
            mode: stat.mode & 0o7777,
            links: stat.links,
            modified: SystemTime::UNIX_EPOCH + Duration::from_secs(stat.changed),
        }
    }

    /// Returns the length in bytes. That of a directory depends on its file system.
    #[expect(clippy::len_without_is_empty, reason = "std's has none either")]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether it is a regular file.
    pub fn is_file(&self) -> bool {
        self.kind == Kind::File
    }

    /// Whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.kind == Kind::Dir
    }

    /// Returns the permissions, as of chmod(2).
    pub fn mode(&self) -> u32 {
        self.mode
    }

    /// Returns the number of hard links; 0 after the last was removed.
    pub fn links(&self) -> u64 {
        self.links
    }

    /// Returns the time of the last change of its bytes, or of the names in it. In a simulation it
    /// is no time of day, but a later change has a later time.
    pub fn modified(&self) -> SystemTime {
        self.modified
    }
}
