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

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{CWD, FileType, Mode, OFlags, ResolveFlags, fstat, openat, openat2, readlinkat};
use rustix::io::Errno;
use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStringExt;
use std::path::{Component, Path, PathBuf};
use std::sync::OnceLock;

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

impl Resolver {
    /// The kernel, unless it refuses.
    pub(super) fn of_process() -> Resolver {
        static REFUSES: OnceLock<bool> = OnceLock::new();
        let refuses = REFUSES.get_or_init(|| {
            let tried = Resolver::Kernel.open(CWD, Path::new("."), FOUND, Mode::empty());
            // Filters answer with different errors.
            tried.is_err_and(|errno| matches!(errno, Errno::NOSYS | Errno::PERM | Errno::INVAL))
        });
        match refuses {
            true => Resolver::Steps,
            false => Resolver::Kernel,
        }
    }

    /// Opens `path` beneath `dir`; the error is `EXDEV` if the path leads out.
    pub(super) fn open(
        self,
        dir: BorrowedFd<'_>,
        path: &Path,
        flags: OFlags,
        mode: Mode,
    ) -> Result<OwnedFd, Errno> {
        let flags = flags | OFlags::CLOEXEC;
        match self {
            Resolver::Kernel => {
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
            Resolver::Steps => Walk::new(dir, path)?.open(flags, mode),
        }
    }

    /// Returns the parent of the last component of `path`, `None` for `dir` itself, and that
    /// component.
    pub(super) fn parent(
        self,
        dir: BorrowedFd<'_>,
        path: &Path,
    ) -> Result<(Option<OwnedFd>, OsString), Errno> {
        let (parent, name) = split(path)?;
        let parent = match parent {
            None => None,
            Some(parent) => Some(self.open(dir, parent, FOUND, Mode::empty())?),
        };
        Ok((parent, name.to_owned()))
    }
}

/// Splits a path into its parent and its last component. A path that ends in `..` or `.`, or is
/// empty, has no name to create or remove.
pub(crate) fn split(path: &Path) -> Result<(Option<&Path>, &OsStr), Errno> {
    let mut components = path.components();
    match components.next_back() {
        Some(Component::Normal(name)) => {
            let parent = components.as_path();
            Ok(((!parent.as_os_str().is_empty()).then_some(parent), name))
        }
        Some(Component::ParentDir | Component::RootDir) => Err(Errno::XDEV),
        _ => Err(Errno::INVAL),
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
    fn new(dir: BorrowedFd<'a>, path: &Path) -> Result<Walk<'a>, Errno> {
        if path.as_os_str().is_empty() {
            return Err(Errno::NOENT);
        }
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
    fn prepend(&mut self, path: &Path) -> Result<(), Errno> {
        let mut names = Vec::new();
        for component in path.components() {
            match component {
                Component::Prefix(_) | Component::RootDir => return Err(Errno::XDEV),
                Component::CurDir => {}
                Component::ParentDir | Component::Normal(_) => {
                    names.push(component.as_os_str().to_owned());
                }
            }
        }
        for name in names.into_iter().rev() {
            self.left.push_front(name);
        }
        Ok(())
    }

    fn here(&self) -> BorrowedFd<'_> {
        self.way.last().map_or(self.dir, AsFd::as_fd)
    }

    fn follow(&mut self, link: &Path) -> Result<(), Errno> {
        self.links += 1;
        match self.links > LINKS_MAX {
            true => Err(Errno::LOOP),
            false => self.prepend(link),
        }
    }

    /// Enters the directory that the next component names.
    fn step(&mut self, name: &OsStr) -> Result<(), Errno> {
        if name == ".." {
            // The way is empty in the directory itself: this leads out.
            return self.way.pop().map(drop).ok_or(Errno::XDEV);
        }
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let next = openat(self.here(), name, flags, Mode::empty())?;
        match FileType::from_raw_mode(fstat(&next)?.st_mode) {
            FileType::Directory => self.way.push(next),
            FileType::Symlink => self.follow(&target(next.as_fd(), OsStr::new(""))?)?,
            _ => return Err(Errno::NOTDIR),
        }
        Ok(())
    }

    fn open(mut self, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
        loop {
            let Some(name) = self.left.pop_front() else {
                // The path ends in `.` or `..`, or in a link that does.
                return openat(self.here(), ".", flags, mode);
            };
            if name == ".." || !self.left.is_empty() {
                self.step(&name)?;
                continue;
            }
            let asks_for_link = flags.contains(OFlags::NOFOLLOW);
            match openat(self.here(), &name, flags | OFlags::NOFOLLOW, mode) {
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
                        Err(_) => return Err(errno),
                    }
                }
                opened => return opened,
            }
        }
    }
}

/// Returns the target of a link.
fn target(dir: BorrowedFd<'_>, name: &OsStr) -> Result<PathBuf, Errno> {
    let target = readlinkat(dir, name, Vec::new())?;
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

    fn read(resolver: Resolver, dir: &OwnedFd, path: &str) -> Result<String, Errno> {
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
                assert_eq!(read(path), Err(Errno::XDEV), "{resolver:?} {path}");
            }
            assert_eq!(read("loop"), Err(Errno::LOOP), "{resolver:?}");
            assert_eq!(read("dangling"), Err(Errno::NOENT), "{resolver:?}");
            assert_eq!(read("nothing"), Err(Errno::NOENT), "{resolver:?}");
            assert_eq!(read(""), Err(Errno::NOENT), "{resolver:?}");
            assert_eq!(read("a/b/file/x"), Err(Errno::NOTDIR), "{resolver:?}");
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
            let refused = |path, flags, errno| {
                assert_eq!(open(path, flags).err(), Some(errno), "{resolver:?} {path}");
            };
            refused("a/dangling", OFlags::EXCL, Errno::EXIST);
            refused("a/b/file", OFlags::EXCL, Errno::EXIST);
            refused("a/out", OFlags::empty(), Errno::XDEV);
            refused("a", OFlags::empty(), Errno::ISDIR);
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
                Ok((parent.is_some(), name.into_string().unwrap()))
            };
            assert_eq!(parent("new"), Ok((false, "new".to_owned())));
            assert_eq!(parent("a/new/"), Ok((true, "new".to_owned())));
            assert_eq!(parent("a/up/new"), Ok((true, "new".to_owned())));
            for path in ["..", "a/..", "/", "/x", "../x", "a/out/x"] {
                assert_eq!(parent(path), Err(Errno::XDEV), "{resolver:?} {path}");
            }
            assert_eq!(parent("."), Err(Errno::INVAL));
            assert_eq!(parent(""), Err(Errno::INVAL));
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
                    Err(&(Errno::XDEV | Errno::NOENT | Errno::AGAIN)) => seen[1] += 1,
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
