//! Directories, and operations on the names in them.

use super::beneath::Resolver;
use super::error::{failed, invalid, unresolved};
use super::file::{File, Handle, Opened};
use super::options::{Kind, Metadata, OpenOptions};
use super::{on_pool, settled, simulated};
use crate::Cx;
use crate::ask::JoinHandle;
use crate::io::{HowOpened, PathError, SimCall, SimHandle, without_slash};
use crate::net::simulated_disk;
use crate::sync::{Arc, Mutex};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{
    AtFlags, CWD, FileType, Mode, OFlags, RawDir, fstat, fstatvfs, fsync, linkat, mkdirat,
};
use rustix::fs::{openat, renameat, statat, unlinkat};
use rustix::io::Errno;
use std::ffi::{CStr, OsStr, OsString};
use std::fmt;
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The largest answer that one [`Dir::list`] takes from the kernel, in bytes: some thousand names.
const LIST_BYTES_MAX: usize = 32 << 10;
/// The names that one list returns in a simulation.
const SIMULATED_LIST_MAX: usize = 64;
const DIR: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::CLOEXEC);
/// Enough for metadata: the file need not be readable.
const FOUND: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);

/// A directory that is open.
struct Root {
    handle: Handle,
    /// As it was opened by, for errors.
    path: PathBuf,
}

/// The position of a listing.
enum Listing {
    AtStart,
    /// An open file description of its own, which keeps the position.
    Kernel(OwnedFd),
    /// In a simulation: after this name.
    After(OsString),
}

/// An open directory: opens files in it, and creates, renames and removes names.
///
/// Paths are relative to the directory and never leave it, whatever other processes do meanwhile. A
/// path that leads out, by `..`, by a leading `/` or through a symbolic link, is an error of the
/// kind `PermissionDenied`. `..` and relative links that stay in the directory are followed; an
/// absolute link is refused wherever it leads.
///
/// A path that ends in `/` or `/.` is that of a directory, as for the system. A name that is to be
/// created, renamed or removed cannot be `.` or `..`: that is an error.
///
/// If a filter of system calls refuses openat2(2), paths are resolved in several calls. Then a
/// mount's `nosymfollow` and the system's `protected_symlinks` do not apply.
///
/// Each operation runs on a thread for blocking work, and its error names the path. Clones are the
/// same directory; each clone has a [listing](Self::list) of its own. Once the last clone is
/// dropped and the last operation is over, the directory is closed by the thread that drops it
/// last, as a [`File`].
pub struct Dir {
    root: Arc<Root>,
    listing: Arc<Mutex<Listing>>,
}

/// A name in a directory, from [`Dir::list`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DirEntry {
    name: OsString,
    kind: Kind,
}

impl DirEntry {
    /// The name, a path from the directory.
    pub fn name(&self) -> &OsStr {
        &self.name
    }

    /// Whether it is a regular file. Some file systems do not tell the kind in a listing: then all
    /// three are `false`, and [`Dir::metadata`] tells.
    pub fn is_file(&self) -> bool {
        self.kind == Kind::File
    }

    /// Whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.kind == Kind::Dir
    }

    /// Whether it is a symbolic link.
    pub fn is_symlink(&self) -> bool {
        self.kind == Kind::Link
    }
}

/// The size of a file system, and the free room on it; from [`Dir::space`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Space {
    /// The size, in bytes.
    pub total_bytes: u64,
    /// The free room for this process, in bytes.
    pub available_bytes: u64,
}

impl Dir {
    fn new(handle: Handle, path: PathBuf) -> Dir {
        Dir {
            root: Arc::new(Root { handle, path }),
            listing: Arc::new(Mutex::new(Listing::AtStart)),
        }
    }

    /// Opens a directory by an absolute path, or one relative to the working directory of the
    /// process. This is the only operation that any path can be given to. In a simulation it opens
    /// a directory of the [`SimDisk`](super::SimDisk).
    ///
    /// # Errors
    /// Those of open(2), also if the directory is not readable.
    pub fn open(cx: &mut Cx, path: impl AsRef<Path>) -> JoinHandle<io::Result<Dir>> {
        let path = path.as_ref().to_owned();
        match simulated_disk(cx) {
            Ok(None) => on_pool(cx, &path.clone(), move || {
                match openat(CWD, &path, DIR, Mode::empty()) {
                    Ok(fd) => Ok(Dir::new(Handle::Kernel(Arc::new(fd)), path)),
                    Err(errno) => Err(failed(&path, errno)),
                }
            }),
            Ok(Some(disk)) => {
                let name = path.clone();
                let its = disk.clone();
                simulated::run(cx, path, &disk, SimCall::FileOpen, move || {
                    let handle = its.root().open_anywhere(&name, simulated_dir())?;
                    Ok(Dir::new(Handle::Simulated(handle), name))
                })
            }
            Err(error) => settled(cx, Err(super::error::named(&path, error, None))),
        }
    }

    /// Returns the path that the directory was opened by. It may have been renamed since.
    pub fn path(&self) -> &Path {
        &self.root.path
    }

    /// Opens a file. The open of a pipe waits for its other end, and keeps a thread meanwhile.
    ///
    /// # Errors
    /// Those of open(2); `InvalidInput` if the options contradict each other, or none of `read`,
    /// `write` and `append` is set.
    pub fn open_file(
        &self,
        cx: &mut Cx,
        path: impl AsRef<Path>,
        options: OpenOptions,
    ) -> JoinHandle<io::Result<File>> {
        let relative = path.as_ref().to_owned();
        let path = self.root.path.join(&relative);
        if let Some(text) = options.refusal() {
            return settled(cx, Err(invalid(&path, text)));
        }
        let opened = move |handle: Handle| {
            File::new(Opened {
                handle,
                path,
                can_read: options.can_read(),
                can_write: options.can_write(),
                appends: options.appends(),
            })
        };
        let simulated_opened = opened.clone();
        let name = relative.clone();
        self.call(
            cx,
            &relative.clone(),
            SimCall::FileOpen,
            move |dir, resolver| {
                let (flags, mode) = (options.flags(), options.created_mode());
                let fd = resolver.open(dir, &name, flags, mode)?;
                Ok(opened(Handle::Kernel(Arc::new(fd))))
            },
            move |dir| {
                let handle = dir.open(&relative, options.simulated())?;
                Ok(simulated_opened(Handle::Simulated(handle)))
            },
        )
    }

    /// Opens a directory.
    ///
    /// # Errors
    /// Those of open(2), also if the directory is not readable.
    pub fn open_dir(&self, cx: &mut Cx, path: impl AsRef<Path>) -> JoinHandle<io::Result<Dir>> {
        let relative = path.as_ref().to_owned();
        let opened = self.root.path.join(&relative);
        let (simulated_path, name) = (opened.clone(), relative.clone());
        self.call(
            cx,
            path.as_ref(),
            SimCall::FileOpen,
            move |dir, resolver| {
                let fd = resolver.open(dir, &name, DIR, Mode::empty())?;
                Ok(Dir::new(Handle::Kernel(Arc::new(fd)), opened))
            },
            move |dir| {
                let handle = dir.open(&relative, simulated_dir())?;
                Ok(Dir::new(Handle::Simulated(handle), simulated_path))
            },
        )
    }

    /// Returns the metadata of a file or directory. A symbolic link is followed.
    ///
    /// # Errors
    /// Those of stat(2).
    pub fn metadata(
        &self,
        cx: &mut Cx,
        path: impl AsRef<Path>,
    ) -> JoinHandle<io::Result<Metadata>> {
        let path = path.as_ref();
        self.call(
            cx,
            path,
            SimCall::FileChange,
            with(path, |path, dir, resolver: Resolver| {
                let found = resolver.open(dir, path, FOUND, Mode::empty())?;
                Ok(Metadata::of(&fstat(found)?))
            }),
            simulated_with(path, |path, dir| {
                let found = dir.open(path, HowOpened::default())?;
                Ok(Metadata::simulated(&found.stat()))
            }),
        )
    }

    /// Renames `from` to `to` in the directory `to_dir`, which may be this one. A file `to` is
    /// replaced atomically: an open at the same time gets the old file or the new one.
    ///
    /// # Errors
    /// Those of rename(2), with the path `from`: `CrossesDevices` between two file systems.
    pub fn rename(
        &self,
        cx: &mut Cx,
        from: impl AsRef<Path>,
        to_dir: &Dir,
        to: impl AsRef<Path>,
    ) -> JoinHandle<io::Result<()>> {
        self.two(
            cx,
            from.as_ref(),
            to_dir,
            to.as_ref(),
            |(old_dir, old), (new_dir, new)| renameat(old_dir, old, new_dir, new),
            SimHandle::rename,
        )
    }

    /// Creates a second name for the file `from`: `to` in the directory `to_dir`, which may be this
    /// one. A symbolic link is not followed.
    ///
    /// # Errors
    /// Those of link(2), with the path `from`: `CrossesDevices` between two file systems.
    pub fn hard_link(
        &self,
        cx: &mut Cx,
        from: impl AsRef<Path>,
        to_dir: &Dir,
        to: impl AsRef<Path>,
    ) -> JoinHandle<io::Result<()>> {
        self.two(
            cx,
            from.as_ref(),
            to_dir,
            to.as_ref(),
            link,
            SimHandle::link,
        )
    }

    /// Removes a file or a symbolic link. A [`File`] that has it open keeps it until it is dropped.
    ///
    /// # Errors
    /// Those of unlink(2).
    pub fn remove_file(&self, cx: &mut Cx, path: impl AsRef<Path>) -> JoinHandle<io::Result<()>> {
        self.one(
            cx,
            path.as_ref(),
            |dir, name| unlinkat(dir, name, AtFlags::empty()),
            |dir, path| dir.remove(path, false),
        )
    }

    /// Creates a directory, with the permissions `0o777` less those of the process's umask.
    ///
    /// # Errors
    /// Those of mkdir(2), also if the name exists.
    pub fn create_dir(&self, cx: &mut Cx, path: impl AsRef<Path>) -> JoinHandle<io::Result<()>> {
        self.one(
            cx,
            path.as_ref(),
            |dir, name| mkdirat(dir, name, Mode::from_raw_mode(0o777)),
            |dir, path| dir.create_dir(path, 0o777),
        )
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// Those of rmdir(2).
    pub fn remove_dir(&self, cx: &mut Cx, path: impl AsRef<Path>) -> JoinHandle<io::Result<()>> {
        self.one(
            cx,
            path.as_ref(),
            |dir, name| unlinkat(dir, name, AtFlags::REMOVEDIR),
            |dir, path| dir.remove(path, true),
        )
    }

    /// Returns the next entries of this directory, some thousand at most, without `.` and `..`. An
    /// empty result is the end: call it until then. The next call begins a new listing.
    ///
    /// The file system decides the order. A name that is created or removed during the listing may
    /// be missing or not; each other name is in it once. Each clone of a `Dir` has a position of
    /// its own, which begins at the start. A call whose handle is dropped or canceled may have read
    /// names, which the next call does not return: to have each name, begin again with a
    /// clone.
    ///
    /// # Errors
    /// Those of getdents(2), with the path of the directory.
    pub fn list(&self, cx: &mut Cx) -> JoinHandle<io::Result<Vec<DirEntry>>> {
        let (its, simulated_its) = (Arc::clone(&self.listing), Arc::clone(&self.listing));
        self.call(
            cx,
            Path::new(""),
            SimCall::FileChange,
            move |dir, _| Ok(list(dir, &mut its.lock().unwrap())?),
            move |dir| {
                let mut listing = simulated_its.lock().unwrap();
                let after = match &*listing {
                    Listing::After(name) => Some(name.as_os_str()),
                    Listing::AtStart | Listing::Kernel(_) => None,
                };
                let names = dir.list(after, SIMULATED_LIST_MAX)?;
                *listing = match names.last() {
                    Some((name, _)) => Listing::After(name.clone()),
                    None => Listing::AtStart,
                };
                let entry = |(name, kind)| DirEntry {
                    name,
                    kind: Kind::from(kind),
                };
                Ok(names.into_iter().map(entry).collect())
            },
        )
    }

    /// Returns the size of the file system that the directory is on, and the free room on it.
    ///
    /// # Errors
    /// Those of statvfs(2), with the path of the directory.
    pub fn space(&self, cx: &mut Cx) -> JoinHandle<io::Result<Space>> {
        self.call(
            cx,
            Path::new(""),
            SimCall::FileChange,
            |dir, _| {
                let stat = fstatvfs(dir)?;
                Ok(Space {
                    total_bytes: stat.f_blocks.saturating_mul(stat.f_frsize),
                    available_bytes: stat.f_bavail.saturating_mul(stat.f_frsize),
                })
            },
            |dir| {
                let (total_bytes, available_bytes) = dir.space();
                Ok(Space {
                    total_bytes,
                    available_bytes,
                })
            },
        )
    }

    /// Writes the names in this directory to the disk: names that were created, removed or renamed
    /// before this call survive a loss of power. The files themselves take a [`File::sync`].
    ///
    /// # Errors
    /// Those of fsync(2), with the path of the directory.
    pub fn sync(&self, cx: &mut Cx) -> JoinHandle<io::Result<()>> {
        self.call(
            cx,
            Path::new(""),
            SimCall::FileSync,
            |dir, _| Ok(fsync(dir)?),
            |dir| {
                dir.sync();
                Ok(())
            },
        )
    }

    /// Starts a call; errors name `path`, or the directory if it is empty.
    fn call<T: Send + 'static>(
        &self,
        cx: &mut Cx,
        path: &Path,
        which: SimCall,
        kernel: impl FnOnce(BorrowedFd<'_>, Resolver) -> Result<T, PathError> + Send + 'static,
        simulated: impl FnOnce(&SimHandle) -> Result<T, PathError> + Send + 'static,
    ) -> JoinHandle<io::Result<T>> {
        let path = match path.as_os_str().is_empty() {
            true => self.root.path.clone(),
            false => self.root.path.join(path),
        };
        match &self.root.handle {
            Handle::Kernel(fd) => {
                let fd = Arc::clone(fd);
                on_pool(cx, &path.clone(), move || {
                    let result = kernel(fd.as_fd(), Resolver::of_process());
                    result.map_err(|errno| unresolved(&path, errno))
                })
            }
            Handle::Simulated(handle) => {
                let root = Arc::clone(&self.root);
                let call = move || match &root.handle {
                    Handle::Simulated(handle) => simulated(handle),
                    Handle::Kernel(_) => Err(Errno::BADF.into()),
                };
                simulated::run(cx, path, handle.disk(), which, call)
            }
        }
    }

    /// Starts a call on one name.
    fn one(
        &self,
        cx: &mut Cx,
        path: &Path,
        kernel: fn(BorrowedFd<'_>, &OsStr) -> Result<(), Errno>,
        simulated: fn(&SimHandle, &Path) -> Result<(), PathError>,
    ) -> JoinHandle<io::Result<()>> {
        self.call(
            cx,
            path,
            SimCall::FileChange,
            with(path, move |path, dir, resolver: Resolver| {
                let (parent, name) = resolver.parent(dir, path)?;
                Ok(kernel(parent.as_ref().map_or(dir, AsFd::as_fd), &name)?)
            }),
            simulated_with(path, move |path, dir| simulated(dir, path)),
        )
    }

    /// Starts a call on two names.
    fn two(
        &self,
        cx: &mut Cx,
        from: &Path,
        to_dir: &Dir,
        to: &Path,
        kernel: fn(Named<'_>, Named<'_>) -> Result<(), Errno>,
        simulated: fn(&SimHandle, &Path, &SimHandle, &Path) -> Result<(), PathError>,
    ) -> JoinHandle<io::Result<()>> {
        let (other, simulated_other) = (Arc::clone(&to_dir.root), Arc::clone(&to_dir.root));
        let (to, simulated_to) = (to.to_owned(), to.to_owned());
        self.call(
            cx,
            from,
            SimCall::FileChange,
            with(from, move |from, dir, resolver: Resolver| {
                let Handle::Kernel(other) = &other.handle else {
                    return Err(Errno::BADF.into());
                };
                let (old, old_name) = resolver.parent(dir, from)?;
                let (new, new_name) = resolver.parent(other.as_fd(), &to)?;
                let old = old.as_ref().map_or(dir, AsFd::as_fd);
                let new = new.as_ref().map_or(other.as_fd(), AsFd::as_fd);
                Ok(kernel((old, &old_name), (new, &new_name))?)
            }),
            simulated_with(from, move |from, dir| match &simulated_other.handle {
                Handle::Simulated(other) => simulated(dir, from, other, &simulated_to),
                Handle::Kernel(_) => Err(Errno::BADF.into()),
            }),
        )
    }
}

/// A name in a directory.
type Named<'a> = (BorrowedFd<'a>, &'a OsStr);

/// Creates a second name for a file.
fn link((old_dir, old): Named<'_>, (new_dir, new): Named<'_>) -> Result<(), Errno> {
    let (name, is_dir) = without_slash(old);
    if is_dir {
        // With the slash, the kernel would follow a link, wherever it leads.
        let stat = statat(old_dir, name, AtFlags::SYMLINK_NOFOLLOW)?;
        return match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => Err(Errno::PERM),
            _ => Err(Errno::NOTDIR),
        };
    }
    linkat(old_dir, old, new_dir, new, AtFlags::empty())
}

/// Gives a call of the kernel a path of its own.
fn with<T>(
    path: &Path,
    f: impl FnOnce(&Path, BorrowedFd<'_>, Resolver) -> Result<T, PathError> + Send + 'static,
) -> impl FnOnce(BorrowedFd<'_>, Resolver) -> Result<T, PathError> + Send + 'static {
    let path = path.to_owned();
    move |dir, resolver| f(&path, dir, resolver)
}

fn simulated_with<T>(
    path: &Path,
    f: impl FnOnce(&Path, &SimHandle) -> Result<T, PathError> + Send + 'static,
) -> impl FnOnce(&SimHandle) -> Result<T, PathError> + Send + 'static {
    let path = path.to_owned();
    move |dir| f(&path, dir)
}

fn simulated_dir() -> HowOpened {
    HowOpened {
        dir: true,
        ..HowOpened::default()
    }
}

/// Reads the next names. Not from `dir` itself, whose clones share one position.
fn list(dir: BorrowedFd<'_>, listing: &mut Listing) -> Result<Vec<DirEntry>, Errno> {
    let fd = match std::mem::replace(listing, Listing::AtStart) {
        Listing::Kernel(fd) => fd,
        Listing::AtStart | Listing::After(_) => openat(dir, ".", DIR, Mode::empty())?,
    };
    let mut space = vec![MaybeUninit::uninit(); LIST_BYTES_MAX];
    loop {
        let mut names = Vec::new();
        let mut raw = RawDir::new(&fd, &mut space);
        let mut has_ended = true;
        // The buffer is filled once: each fill is a call of the kernel.
        while let Some(entry) = raw.next() {
            has_ended = false;
            let entry = entry?;
            let name: &CStr = entry.file_name();
            if name != c"." && name != c".." {
                names.push(DirEntry {
                    name: OsStr::from_bytes(name.to_bytes()).to_owned(),
                    kind: entry.file_type().into(),
                });
            }
            if raw.is_buffer_empty() {
                break;
            }
        }
        if has_ended {
            return Ok(names);
        }
        // An empty result would be the end, but there may be more behind `.` and `..`.
        if !names.is_empty() {
            *listing = Listing::Kernel(fd);
            return Ok(names);
        }
    }
}

impl Clone for Dir {
    fn clone(&self) -> Dir {
        Dir {
            root: Arc::clone(&self.root),
            listing: Arc::new(Mutex::new(Listing::AtStart)),
        }
    }
}

impl fmt::Debug for Dir {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dir")
            .field("path", &self.root.path)
            .finish_non_exhaustive()
    }
}
