//! Directories, and what is named in them.

use super::beneath::Resolver;
use super::error::{failed, invalid, unresolved};
use super::file::{File, Handle, Opened};
use super::options::{Kind, Metadata, OpenOptions};
use super::{on_pool, settled, simulated};
use crate::Cx;
use crate::ask::JoinHandle;
use crate::io::{HowOpened, SimCall, SimHandle};
use crate::net::simulated_disk;
use crate::sync::{Arc, Mutex};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, RawDir, fstat, fstatvfs, fsync, linkat, mkdirat};
use rustix::fs::{openat, renameat, unlinkat};
use rustix::io::Errno;
use std::ffi::{CStr, OsStr, OsString};
use std::fmt;
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// What one [`Dir::list`] takes of the kernel at most, in bytes: some thousand names.
const LIST_BYTES_MAX: usize = 32 << 10;
/// The names of one list in a simulation.
const SIMULATED_LIST_MAX: usize = 64;
const DIR: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::CLOEXEC);
/// Found without the right to read it: enough to be asked about.
const FOUND: OFlags = OFlags::PATH.union(OFlags::CLOEXEC);

/// A directory that is open.
struct Root {
    handle: Handle,
    /// As it was opened by, for errors.
    path: PathBuf,
}

/// How far a listing is.
enum Listing {
    AtStart,
    /// A description of its own, which has the position.
    Kernel(OwnedFd),
    /// In a simulation, after this name.
    After(OsString),
}

/// A directory that is open, to open and to change what is in it. Clones are the same directory;
/// each of them [lists](Self::list) for itself.
///
/// Paths are relative to the directory, and never leave it, whatever other processes do meanwhile:
/// a path that would, by `..`, because it is absolute, or through a symbolic link, is an error of
/// the kind `PermissionDenied`. A path within may have `..` and links.
///
/// Each operation is one call of the kernel, or a few, on a thread for blocking work. An error
/// names the path.
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

    /// Whether it is a regular file. On some file systems a listing does not tell: see
    /// [`Dir::metadata`].
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

/// The room on a file system, from [`Dir::space`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Space {
    /// All of it, in bytes.
    pub total_bytes: u64,
    /// What this process may still use, in bytes.
    pub available_bytes: u64,
}

impl Dir {
    fn new(handle: Handle, path: PathBuf) -> Dir {
        Dir {
            root: Arc::new(Root { handle, path }),
            listing: Arc::new(Mutex::new(Listing::AtStart)),
        }
    }

    /// Opens a directory by a path of the process's: absolute, or relative to its working
    /// directory. This is the one call that goes anywhere. In a simulation it opens a directory of
    /// the simulated disk.
    ///
    /// # Errors
    /// With the path: as of open(2), also if it may not be read.
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
                    let relative = name.strip_prefix("/").unwrap_or(&name);
                    let relative = match relative.as_os_str().is_empty() {
                        true => Path::new("."),
                        false => relative,
                    };
                    let handle = its.root().open(relative, simulated_dir())?;
                    Ok(Dir::new(Handle::Simulated(handle), name))
                })
            }
            Err(error) => settled(cx, Err(super::error::named(&path, error, None))),
        }
    }

    /// The path that it was opened by. It may have another one by now.
    pub fn path(&self) -> &Path {
        &self.root.path
    }

    /// Opens a file.
    ///
    /// # Errors
    /// With the path: as of open(2); `InvalidInput` if nothing can be opened with these options.
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
    /// With the path: as of open(2), also if it may not be read.
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

    /// Returns what is known of a file or directory; of a symbolic link, that of what it leads to.
    ///
    /// # Errors
    /// With the path, as of stat(2).
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

    /// Gives `from` the name `to` in the directory `to_dir`, which may be this one. A file that is
    /// there is replaced, at one moment: who opens it gets the one or the other.
    ///
    /// # Errors
    /// With the path `from`: as of rename(2).
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

    /// Gives the file `from` another name, `to` in the directory `to_dir`, which may be this one.
    /// A symbolic link is not followed.
    ///
    /// # Errors
    /// With the path `from`: as of link(2).
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
            |(old_dir, old), (new_dir, new)| linkat(old_dir, old, new_dir, new, AtFlags::empty()),
            SimHandle::link,
        )
    }

    /// Removes a file, or a symbolic link. It lives on for those that have it open.
    ///
    /// # Errors
    /// With the path: as of unlink(2).
    pub fn remove_file(&self, cx: &mut Cx, path: impl AsRef<Path>) -> JoinHandle<io::Result<()>> {
        self.one(
            cx,
            path.as_ref(),
            |dir, name| unlinkat(dir, name, AtFlags::empty()),
            |dir, path| dir.remove(path, false),
        )
    }

    /// Makes a directory, which may be used as the process's umask says.
    ///
    /// # Errors
    /// With the path: as of mkdir(2), also if there is something of that name.
    pub fn create_dir(&self, cx: &mut Cx, path: impl AsRef<Path>) -> JoinHandle<io::Result<()>> {
        self.one(
            cx,
            path.as_ref(),
            |dir, name| mkdirat(dir, name, Mode::from_raw_mode(0o777)),
            |dir, path| dir.create_dir(path, 0o777),
        )
    }

    /// Removes a directory that is empty.
    ///
    /// # Errors
    /// With the path: as of rmdir(2).
    pub fn remove_dir(&self, cx: &mut Cx, path: impl AsRef<Path>) -> JoinHandle<io::Result<()>> {
        self.one(
            cx,
            path.as_ref(),
            |dir, name| unlinkat(dir, name, AtFlags::REMOVEDIR),
            |dir, path| dir.remove(path, true),
        )
    }

    /// Returns the next names in this directory, without `.` and `..`, in an order of the file
    /// system's: up to some thousand, and none at the end. The call after that begins anew. So it
    /// is called until it returns none.
    ///
    /// Names that are made or removed during a listing may be in it or not; others are in it once.
    /// The position is this value's: a clone begins at the start.
    ///
    /// # Errors
    /// With the path of the directory: as of getdents(2).
    pub fn list(&self, cx: &mut Cx) -> JoinHandle<io::Result<Vec<DirEntry>>> {
        let (its, simulated_its) = (Arc::clone(&self.listing), Arc::clone(&self.listing));
        self.call(
            cx,
            Path::new(""),
            SimCall::FileChange,
            move |dir, _| list(dir, &mut its.lock().unwrap()),
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

    /// Returns the room on the file system that the directory is on.
    ///
    /// # Errors
    /// With the path of the directory: as of statvfs(2).
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

    /// Has the system write the names in this directory to the disk: those that were made, removed
    /// or renamed before. Of what they name, see [`File::sync`].
    ///
    /// # Errors
    /// With the path of the directory: as of fsync(2).
    pub fn sync(&self, cx: &mut Cx) -> JoinHandle<io::Result<()>> {
        self.call(
            cx,
            Path::new(""),
            SimCall::FileSync,
            |dir, _| fsync(dir),
            |dir| {
                dir.sync();
                Ok(())
            },
        )
    }

    /// Starts a call on what `path` names, for errors to name.
    fn call<T: Send + 'static>(
        &self,
        cx: &mut Cx,
        path: &Path,
        which: SimCall,
        kernel: impl FnOnce(BorrowedFd<'_>, Resolver) -> Result<T, Errno> + Send + 'static,
        simulated: impl FnOnce(&SimHandle) -> Result<T, Errno> + Send + 'static,
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
                    Handle::Kernel(_) => Err(Errno::BADF),
                };
                simulated::run(cx, path, handle.disk(), which, call)
            }
        }
    }

    /// A change of one name.
    fn one(
        &self,
        cx: &mut Cx,
        path: &Path,
        kernel: fn(BorrowedFd<'_>, &OsStr) -> Result<(), Errno>,
        simulated: fn(&SimHandle, &Path) -> Result<(), Errno>,
    ) -> JoinHandle<io::Result<()>> {
        self.call(
            cx,
            path,
            SimCall::FileChange,
            with(path, move |path, dir, resolver: Resolver| {
                let (parent, name) = resolver.parent(dir, path)?;
                kernel(parent.as_ref().map_or(dir, AsFd::as_fd), &name)
            }),
            simulated_with(path, move |path, dir| simulated(dir, path)),
        )
    }

    /// A change of two names.
    fn two(
        &self,
        cx: &mut Cx,
        from: &Path,
        to_dir: &Dir,
        to: &Path,
        kernel: fn(Named<'_>, Named<'_>) -> Result<(), Errno>,
        simulated: fn(&SimHandle, &Path, &SimHandle, &Path) -> Result<(), Errno>,
    ) -> JoinHandle<io::Result<()>> {
        let (other, simulated_other) = (Arc::clone(&to_dir.root), Arc::clone(&to_dir.root));
        let (to, simulated_to) = (to.to_owned(), to.to_owned());
        self.call(
            cx,
            from,
            SimCall::FileChange,
            with(from, move |from, dir, resolver: Resolver| {
                let Handle::Kernel(other) = &other.handle else {
                    return Err(Errno::BADF);
                };
                let (old, old_name) = resolver.parent(dir, from)?;
                let (new, new_name) = resolver.parent(other.as_fd(), &to)?;
                let old = old.as_ref().map_or(dir, AsFd::as_fd);
                let new = new.as_ref().map_or(other.as_fd(), AsFd::as_fd);
                kernel((old, &old_name), (new, &new_name))
            }),
            simulated_with(from, move |from, dir| match &simulated_other.handle {
                Handle::Simulated(other) => simulated(dir, from, other, &simulated_to),
                Handle::Kernel(_) => Err(Errno::BADF),
            }),
        )
    }
}

/// A name in a directory.
type Named<'a> = (BorrowedFd<'a>, &'a OsStr);

/// What needs the path of a call on the kernel.
fn with<T>(
    path: &Path,
    f: impl FnOnce(&Path, BorrowedFd<'_>, Resolver) -> Result<T, Errno> + Send + 'static,
) -> impl FnOnce(BorrowedFd<'_>, Resolver) -> Result<T, Errno> + Send + 'static {
    let path = path.to_owned();
    move |dir, resolver| f(&path, dir, resolver)
}

fn simulated_with<T>(
    path: &Path,
    f: impl FnOnce(&Path, &SimHandle) -> Result<T, Errno> + Send + 'static,
) -> impl FnOnce(&SimHandle) -> Result<T, Errno> + Send + 'static {
    let path = path.to_owned();
    move |dir| f(&path, dir)
}

fn simulated_dir() -> HowOpened {
    HowOpened {
        dir: true,
        ..HowOpened::default()
    }
}

/// The next names, on a description of the listing's own: that of the handle has one position.
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
        // One fill of the buffer: another one would be another call.
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
        // None is the end: the dots alone are not.
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
