//! Paths that never leave a directory.
//!
//! The kernel resolves a path beneath a directory in one call, `openat2` with `RESOLVE_BENEATH`
//! (Linux 5.6). It refuses `..` above the directory, absolute paths and absolute links, also if
//! another process renames or replaces a part meanwhile. If a seccomp filter refuses that call, the
//! path is resolved here, one component after the other.
//!
//! **Step by step.** Each component is opened with `O_PATH` and `O_NOFOLLOW`, relative to the
//! descriptor of the component before. So a link that replaces a component meanwhile is not
//! followed. The descriptors of all directories on the way are kept: `..` goes back to the last of
//! them, and never asks the kernel for a parent. A link is read through its own descriptor, and its
//! components take its place. Invariant: each kept descriptor was reached from the directory by
//! names alone. So a path leads to a directory that was beneath when its component was looked up.
//! If that directory is moved out afterwards, the path leads there, as an open descriptor does.
//!
//! A rename, a link, a removal and a new directory take a name that need not exist. Of their path,
//! the parent is resolved as above. The last component is one name, which these calls do not
//! follow.
//!
//! The steps do not apply two rules that the kernel has for links: `nosymfollow` of a mount, and
//! `protected_symlinks` (links of other users in a sticky directory that all may write to).

use crate::io::{PathError, components, is_end, split};
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, fstat, openat, openat2, readlinkat};
use rustix::io::{Errno, retry_on_intr};
use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
// Of the process, and no part of a protocol.
use std::sync::atomic::{AtomicU8, Ordering};

/// As the kernel.
const LINKS_MAX: usize = 40;
/// How often the kernel is asked again if a directory was renamed while it resolved `..`.
const RACES_MAX: usize = 128;

/// The two ways to resolve a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Resolver {
    Kernel,
    Steps,
}

/// For a directory that need not be readable.
const FOUND: OFlags = OFlags::PATH.union(OFlags::DIRECTORY);

/// Whether the process may call `openat2`.
static OPENAT2: AtomicU8 = AtomicU8::new(UNKNOWN);
const UNKNOWN: u8 = 0;
const ALLOWED: u8 = 1;
const REFUSED: u8 = 2;

impl Resolver {
    /// The kernel, unless it refuses.
    pub(super) fn of_process() -> Resolver {
        match OPENAT2.load(Ordering::Relaxed) {
            UNKNOWN => Resolver::probe(),
            REFUSED => Resolver::Steps,
            _ => Resolver::Kernel,
        }
    }

    /// Tries a call that only a filter refuses.
    fn probe() -> Resolver {
        let tried = beneath(CWD, Path::new("."), FOUND, Mode::empty());
        // Filters answer with different errors.
        let is_refused = tried.is_err_and(is_refusal);
        let (found, resolver) = match is_refused {
            true => (REFUSED, Resolver::Steps),
            false => (ALLOWED, Resolver::Kernel),
        };
        OPENAT2.store(found, Ordering::Relaxed);
        resolver
    }

    /// Opens `path` beneath `dir`.
    pub(super) fn open(
        self,
        dir: BorrowedFd<'_>,
        path: &Path,
        flags: OFlags,
        mode: Mode,
    ) -> Result<OwnedFd, PathError> {
        let flags = flags | OFlags::CLOEXEC;
        if self == Resolver::Kernel {
            match beneath(dir, path, flags, mode) {
                // The process may have got a filter since the first call.
                Err(errno) if is_refusal(errno) && Resolver::probe() == Resolver::Steps => {}
                // Somebody renames all the time: the steps do not mind.
                Err(Errno::AGAIN) => {}
                Err(Errno::XDEV) => return Err(PathError::Outside),
                opened => return Ok(opened?),
            }
        }
        Walk::new(dir, path)?.open(flags, mode)
    }

    /// Returns the parent of the last component of `path`, `None` for `dir` itself, and that
    /// component; see [`split`].
    pub(super) fn parent(
        self,
        dir: BorrowedFd<'_>,
        path: &Path,
    ) -> Result<(Option<OwnedFd>, OsString), PathError> {
        let (parent, name) = split(path)?;
        let parent = match parent {
            None => None,
            Some(parent) => Some(self.open(dir, parent, FOUND, Mode::empty())?),
        };
        Ok((parent, name))
    }
}

fn is_refusal(errno: Errno) -> bool {
    matches!(errno, Errno::NOSYS | Errno::PERM | Errno::INVAL)
}

/// Has the kernel open a path; the error is `EXDEV` if the path leads out.
fn beneath(dir: BorrowedFd<'_>, path: &Path, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    let mut races = 0;
    loop {
        match openat2(dir, path, flags, mode, resolve) {
            Err(Errno::AGAIN) if races < RACES_MAX => races += 1,
            Err(Errno::INTR) => {}
            opened => return opened,
        }
    }
}

/// The state of a resolution, step by step.
struct Walk<'a> {
    dir: BorrowedFd<'a>,
    /// The directories that lead here, without `dir`.
    way: Vec<OwnedFd>,
    /// The components that are still to be resolved.
    left: VecDeque<OsString>,
    links: usize,
}

impl<'a> Walk<'a> {
    fn new(dir: BorrowedFd<'a>, path: &Path) -> Result<Walk<'a>, PathError> {
        let mut walk = Walk {
            dir,
            way: Vec::new(),
            left: VecDeque::new(),
            links: 0,
        };
        walk.prepend(path)?;
        Ok(walk)
    }

    /// Puts the components of a path, or of a link, before the ones that are left.
    fn prepend(&mut self, path: &Path) -> Result<(), PathError> {
        for name in components(path)?.into_iter().rev() {
            self.left.push_front(name);
        }
        Ok(())
    }

    fn here(&self) -> BorrowedFd<'_> {
        self.way.last().map_or(self.dir, AsFd::as_fd)
    }

    fn follow(&mut self, link: &Path) -> Result<(), PathError> {
        self.links += 1;
        match self.links > LINKS_MAX {
            true => Err(Errno::LOOP.into()),
            false => self.prepend(link),
        }
    }

    /// Enters the directory that the next component names.
    fn step(&mut self, name: &OsStr) -> Result<(), PathError> {
        if name == ".." {
            // The way is empty in the directory itself: this leads out.
            return self.way.pop().map(drop).ok_or(PathError::Outside);
        }
        let next = self.open_here(name, OFlags::PATH | OFlags::NOFOLLOW, Mode::empty())?;
        match FileType::from_raw_mode(fstat(&next)?.st_mode) {
            FileType::Directory => self.way.push(next),
            FileType::Symlink => self.follow(&target(next.as_fd(), OsStr::new(""))?)?,
            _ => return Err(Errno::NOTDIR.into()),
        }
        Ok(())
    }

    fn open_here(&self, name: &OsStr, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
        retry_on_intr(|| openat(self.here(), name, flags | OFlags::CLOEXEC, mode))
    }

    fn open(mut self, flags: OFlags, mode: Mode) -> Result<OwnedFd, PathError> {
        loop {
            let Some(name) = self.left.pop_front() else {
                // The path ends in `.`, `..` or `/`, or in a link that does.
                return Ok(self.open_here(OsStr::new("."), flags, mode)?);
            };
            if is_end(&name) {
                continue;
            }
            let creates = flags.contains(OFlags::CREATE) && name != "..";
            if creates && self.left.len() == 1 && self.left[0] == "/" {
                // Before the name is looked up, as the kernel.
                return Err(Errno::ISDIR.into());
            }
            if name == ".." || !self.left.is_empty() {
                self.step(&name)?;
                continue;
            }
            let asks_for_link = flags.contains(OFlags::NOFOLLOW);
            match self.open_here(&name, flags | OFlags::NOFOLLOW, mode) {
                // By `O_PATH` a link itself is opened.
                Ok(opened) if flags.contains(OFlags::PATH) && !asks_for_link => {
                    let kind = FileType::from_raw_mode(fstat(&opened)?.st_mode);
                    if kind != FileType::Symlink {
                        return Ok(opened);
                    }
                    self.follow(&target(opened.as_fd(), OsStr::new(""))?)?;
                }
                Err(errno @ (Errno::LOOP | Errno::NOTDIR)) if !asks_for_link => {
                    match target(self.here(), &name) {
                        Ok(link) => self.follow(&link)?,
                        Err(_) => return Err(errno.into()),
                    }
                }
                opened => return Ok(opened?),
            }
        }
    }
}

/// Returns the target of a link.
fn target(dir: BorrowedFd<'_>, name: &OsStr) -> Result<PathBuf, Errno> {
    let target = retry_on_intr(|| readlinkat(dir, name, Vec::new()))?;
    Ok(OsString::from_vec(target.into_bytes()).into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;
    use std::sync::atomic::{AtomicBool, Ordering};

    /// A directory with a tree in it, and a file beside it that must not be reached.
    struct Tree(PathBuf);

    impl Tree {
        fn new(name: &str) -> Tree {
            let base =
                std::env::temp_dir().join(format!("mely-beneath-{}-{name}", std::process::id()));
            let _ = fs::remove_dir_all(&base);
            fs::create_dir_all(base.join("in/a/b")).unwrap();
            fs::write(base.join("secret"), "out").unwrap();
            fs::write(base.join("in/a/b/file"), "in").unwrap();
            Tree(base)
        }

        fn dir(&self) -> OwnedFd {
            openat(CWD, self.0.join("in"), FOUND, Mode::empty()).unwrap()
        }
    }

    impl Drop for Tree {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn read(resolver: Resolver, dir: &OwnedFd, path: &str) -> Result<String, PathError> {
        let opened = resolver.open(dir.as_fd(), Path::new(path), OFlags::RDONLY, Mode::empty())?;
        Ok(std::io::read_to_string(fs::File::from(opened)).unwrap_or_else(|_| "(dir)".to_owned()))
    }

    const BOTH: [Resolver; 2] = [Resolver::Kernel, Resolver::Steps];

    #[test]
    fn both_resolve_alike() {
        let tree = Tree::new("alike");
        let link =
            |target: &str, name: &str| symlink(target, tree.0.join("in").join(name)).unwrap();
        link("a/b", "to_dir");
        link("file", "a/b/to_file");
        link("../secret", "out");
        link("/etc/passwd", "absolute");
        link("a/../../in/a", "out_and_in");
        link("loop", "loop");
        link("nothing", "dangling");
        link("/proc/self/root", "root");
        link("a/b/file/", "file_slash");
        link("a/b/", "dir_slash");
        let dir = tree.dir();
        for resolver in BOTH {
            let read = |path| read(resolver, &dir, path);
            for path in [
                "a/b/file",
                "./a//b/./file",
                "a/../a/b/../b/file",
                "to_dir/file",
                "to_dir/to_file",
                "to_dir/../b/to_file",
            ] {
                assert_eq!(read(path), Ok("in".to_owned()), "{resolver:?} {path}");
            }
            for path in [".", "a", "a/b/..", "to_dir", "a/b/../.."] {
                assert_eq!(read(path), Ok("(dir)".to_owned()), "{resolver:?} {path}");
            }
            for path in [
                "..",
                "../secret",
                "a/../../secret",
                "/etc/passwd",
                "out",
                "absolute",
                "out_and_in/b/file",
                "root/etc/passwd",
                "to_dir/../../../secret",
            ] {
                assert_eq!(read(path), Err(PathError::Outside), "{resolver:?} {path}");
            }
            for path in [
                "a/b/file/",
                "a/b/file/.",
                "to_dir/to_file/",
                "file_slash",
                "a/b/file//.",
            ] {
                assert_eq!(read(path), Err(Errno::NOTDIR.into()), "{resolver:?} {path}");
            }
            for path in ["a/", "to_dir/", "to_dir/.", "dir_slash", "./"] {
                assert_eq!(read(path), Ok("(dir)".to_owned()), "{resolver:?} {path}");
            }
            let long = "a/../".repeat(819);
            assert_eq!(read(&long), Ok("(dir)".to_owned()), "{resolver:?}");
            let long = format!("{long}a");
            let expected = Err(Errno::NAMETOOLONG.into());
            assert_eq!(read(&long), expected, "{resolver:?}");
            assert_eq!(read("loop"), Err(Errno::LOOP.into()), "{resolver:?}");
            assert_eq!(read("dangling"), Err(Errno::NOENT.into()), "{resolver:?}");
            assert_eq!(read("nothing"), Err(Errno::NOENT.into()), "{resolver:?}");
            assert_eq!(read(""), Err(Errno::NOENT.into()), "{resolver:?}");
            assert_eq!(
                read("a/b/file/x"),
                Err(Errno::NOTDIR.into()),
                "{resolver:?}"
            );
        }
    }

    #[test]
    fn both_create_alike() {
        let tree = Tree::new("create");
        symlink("made", tree.0.join("in/a/dangling")).unwrap();
        symlink("../../made", tree.0.join("in/a/out")).unwrap();
        let dir = tree.dir();
        for resolver in BOTH {
            let open = |path: &str, flags| {
                let mode = Mode::from_raw_mode(0o600);
                let flags = OFlags::WRONLY | OFlags::CREATE | flags;
                resolver.open(dir.as_fd(), Path::new(path), flags, mode)
            };
            // A dangling link creates its target, unless the file has to be new.
            assert!(open("a/dangling", OFlags::empty()).is_ok(), "{resolver:?}");
            fs::remove_file(tree.0.join("in/a/made")).unwrap();
            let refused = |path, flags, error: PathError| {
                assert_eq!(open(path, flags).err(), Some(error), "{resolver:?} {path}");
            };
            refused("a/dangling", OFlags::EXCL, Errno::EXIST.into());
            refused("a/b/file", OFlags::EXCL, Errno::EXIST.into());
            refused("a/out", OFlags::empty(), PathError::Outside);
            refused("a", OFlags::empty(), Errno::ISDIR.into());
            // A slash says that a directory is meant.
            for name in ["new/", "a/b/file/", "a/", "./new//", "a/dangling/"] {
                refused(name, OFlags::empty(), Errno::ISDIR.into());
            }
            refused("new/.", OFlags::empty(), Errno::NOENT.into());
            refused("no/new/", OFlags::empty(), Errno::NOENT.into());
            refused("a/b/file/.", OFlags::empty(), Errno::NOTDIR.into());
            assert!(!tree.0.join("made").exists());
        }
    }

    #[test]
    fn a_name_has_a_parent_beneath() {
        let tree = Tree::new("parent");
        symlink("..", tree.0.join("in/a/up")).unwrap();
        symlink("../..", tree.0.join("in/a/out")).unwrap();
        let dir = tree.dir();
        for resolver in BOTH {
            let parent = |path: &str| {
                let (parent, name) = resolver.parent(dir.as_fd(), Path::new(path))?;
                Ok::<_, PathError>((parent.is_some(), name.into_string().unwrap()))
            };
            assert_eq!(parent("new"), Ok((false, "new".to_owned())));
            assert_eq!(parent("a/new/"), Ok((true, "new/".to_owned())));
            assert_eq!(parent("a/up/new"), Ok((true, "new".to_owned())));
            for path in ["..", "a/..", "/", "/x", "../x", "a/out/x"] {
                assert_eq!(parent(path), Err(PathError::Outside), "{resolver:?} {path}");
            }
            assert_eq!(parent("."), Err(Errno::INVAL.into()));
            assert_eq!(parent(""), Err(Errno::INVAL.into()));
        }
    }

    /// Another thread replaces a directory by a link to outside, all the time.
    #[test]
    fn a_race_with_a_link_leads_nowhere_else() {
        let tree = Tree::new("race");
        let inside = tree.0.join("in");
        fs::create_dir(tree.0.join("b")).unwrap();
        fs::write(tree.0.join("b/file"), "out").unwrap();
        symlink("../../b", inside.join("evil")).unwrap();
        let over = AtomicBool::new(false);
        let dir = tree.dir();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                use rustix::fs::{RenameFlags, renameat_with};
                let (b, evil) = (inside.join("a/b"), inside.join("evil"));
                while !over.load(Ordering::Relaxed) {
                    let _ = renameat_with(CWD, &b, CWD, &evil, RenameFlags::EXCHANGE);
                }
            });
            let mut seen = [0; 2];
            for round in 0..20_000 {
                match read(BOTH[round % 2], &dir, "a/b/file").as_deref() {
                    Ok("in") => seen[0] += 1,
                    Err(PathError::Outside | PathError::System(Errno::NOENT | Errno::AGAIN)) => {
                        seen[1] += 1
                    }
                    other => {
                        over.store(true, Ordering::Relaxed);
                        panic!("{other:?}");
                    }
                }
            }
            over.store(true, Ordering::Relaxed);
            assert!(seen[0] > 0, "{seen:?}");
        });
    }
}
