//! The simulated disk: a file system in memory, with faults.
//!
//! A directory owns the nodes that it names, and an open handle owns its node. So a file that is
//! removed while it is open exists until it is closed, as on the kernel's file systems.
//!
//! Each node has its present content, and that of its last sync. A crash restores
//! the synced content: the bytes of a file, the names of a directory.
//!
//! Invariant: the present content has no cycle. No node knows its parent, and a directory has one
//! name; a rename into itself is refused, and a crash gives a directory that has two synced names
//! the first one only. The synced content may have cycles, of directories that were each synced
//! while the other was in it. So a list has all nodes, and the drop of the disk empties them.

use std::collections::{BTreeMap, VecDeque};
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Weak;
use std::time::Duration;

use rustix::io::Errno;

use super::super::path::{PathError, components, is_end, split, without_slash};
use super::client::SimCall;
use crate::random::Random;
use crate::sync::{Arc, Mutex, MutexGuard};

/// As the kernel.
const LINKS_MAX: usize = 40;
/// The largest file, in bytes: it is in memory.
const FILE_BYTES_MAX: usize = 1 << 30;

/// A file system in memory, which [`fs`](crate::fs) uses in a simulation. Clones are the same file
/// system. It is empty at first, and has no faults.
///
/// A disk belongs to a [`SimNet`](crate::net::SimNet). A second simulation on the same network
/// finds the same disk, and after a [`crash`](Self::crash) the synced content.
///
/// ```
/// use mely::fs::{Dir, OpenOptions};
/// use mely::net::SimCall;
/// use mely::task::with_cx;
/// use mely::{Color, Runtime};
/// type Error = Box<dyn std::error::Error + Send + Sync>;
///
/// async fn read_twice() -> Result<Vec<u8>, Error> {
///     let db = with_cx(|cx| Dir::open(cx, "/var/db")).await??;
///     let read = OpenOptions::new().read(true);
///     let log = with_cx(|cx| db.open_file(cx, "log", read)).await??;
///     let broken = with_cx(|cx| log.read_at(cx, 0, 3)).await?;
///     assert!(broken.is_err_and(|error| error.to_string().starts_with("/var/db/log: ")));
///     Ok(with_cx(|cx| log.read_at(cx, 0, 3)).await??)
/// }
///
/// let mut simulation = Runtime::builder().simulate(1)?;
/// simulation.disk().write("/var/db/log", "one")?;
/// simulation.disk().fail_next(SimCall::FileRead, libc::EIO);
/// let read = simulation.run_until(|cx, finish| {
///     cx.spawn(Color::from(1), async move { finish.finish(read_twice().await) });
/// })?;
/// assert_eq!(read.expect("a file"), b"one");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct SimDisk(Arc<Mutex<Disk>>);

struct Disk {
    random: Random,
    root: Arc<Node>,
    /// All nodes, and some that are gone.
    nodes: Vec<Weak<Node>>,
    faults: BTreeMap<SimCall, VecDeque<Errno>>,
    /// One of this many calls fails; 0: none.
    fault_odds: usize,
    move_bytes_max: usize,
    capacity_bytes: u64,
    latency: (Duration, Duration),
    open_count: usize,
    next_node: u64,
    /// The number of changes so far, which stands for the time.
    changes: u64,
}

struct Node {
    number: u64,
    mode: u32,
    body: Mutex<Body>,
}

struct Body {
    content: Content,
    synced: Content,
    /// The number of its names.
    links: u64,
    changed: u64,
}

#[derive(Clone)]
enum Content {
    File(Vec<u8>),
    Dir(BTreeMap<OsString, Arc<Node>>),
    Link(PathBuf),
}

/// The kind of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NodeKind {
    File,
    Dir,
    Link,
}

/// Metadata of a node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NodeStat {
    pub(crate) kind: NodeKind,
    pub(crate) len: u64,
    pub(crate) links: u64,
    pub(crate) mode: u32,
    /// The number of the disk's changes at the last change of this node.
    pub(crate) changed: u64,
}

/// Options of an open.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HowOpened {
    pub(crate) write: bool,
    pub(crate) truncate: bool,
    pub(crate) create: bool,
    pub(crate) create_new: bool,
    pub(crate) dir: bool,
    pub(crate) mode: u32,
}

impl Node {
    fn body(&self) -> MutexGuard<'_, Body> {
        self.body
            .lock()
            .expect("no call on the simulated disk panics")
    }

    fn kind(&self) -> NodeKind {
        match self.body().content {
            Content::File(_) => NodeKind::File,
            Content::Dir(_) => NodeKind::Dir,
            Content::Link(_) => NodeKind::Link,
        }
    }

    fn child(&self, name: &OsStr) -> Result<Arc<Node>, Errno> {
        match &self.body().content {
            Content::Dir(names) => names.get(name).cloned().ok_or(Errno::NOENT),
            _ => Err(Errno::NOTDIR),
        }
    }

    fn with_names<R>(
        &self,
        changes: u64,
        f: impl FnOnce(&mut BTreeMap<OsString, Arc<Node>>) -> Result<R, Errno>,
    ) -> Result<R, Errno> {
        let mut body = self.body();
        match &mut body.content {
            Content::Dir(names) => {
                let result = f(names)?;
                body.changed = changes;
                Ok(result)
            }
            _ => Err(Errno::NOTDIR),
        }
    }

    fn with_bytes<R>(&self, f: impl FnOnce(&mut Vec<u8>) -> R) -> Result<R, Errno> {
        match &mut self.body().content {
            Content::File(bytes) => Ok(f(bytes)),
            Content::Dir(_) => Err(Errno::ISDIR),
            Content::Link(_) => Err(Errno::INVAL),
        }
    }

    fn bytes(&self) -> u64 {
        let body = self.body();
        match &body.content {
            Content::File(bytes) => bytes.len() as u64,
            Content::Dir(names) => names.values().map(|node| node.bytes()).sum(),
            Content::Link(_) => 0,
        }
    }
}

/// The end of a path: the node, if there is one, and its directory and name.
struct Place {
    way: Vec<Arc<Node>>,
    /// `None` if the path ends in `.` or `..`.
    name: Option<OsString>,
    node: Option<Arc<Node>>,
}

impl Place {
    fn parent(&self) -> &Arc<Node> {
        self.way.last().expect("the directory that it began at")
    }

    /// Fails if no name can be created here: the directory was removed, and is open.
    fn admits_names(&self) -> Result<(), Errno> {
        match self.parent().body().links {
            0 => Err(Errno::NOENT),
            _ => Ok(()),
        }
    }
}

impl Disk {
    fn node(&mut self, content: Content, mode: u32) -> Arc<Node> {
        self.next_node += 1;
        // Until its first sync it is empty after a crash.
        let synced = match &content {
            Content::File(_) => Content::File(Vec::new()),
            Content::Dir(_) => Content::Dir(BTreeMap::new()),
            Content::Link(to) => Content::Link(to.clone()),
        };
        let node = Arc::new(Node {
            number: self.next_node,
            mode,
            body: Mutex::new(Body {
                content,
                synced,
                links: 1,
                changed: self.changes,
            }),
        });
        if self.nodes.len() == self.nodes.capacity() {
            self.nodes.retain(|node| node.strong_count() > 0);
        }
        self.nodes.push(Arc::downgrade(&node));
        node
    }

    /// Restores the synced content.
    fn restore(&mut self) {
        let all: Vec<Arc<Node>> = self.nodes.iter().filter_map(Weak::upgrade).collect();
        for node in all.iter().chain([&self.root]) {
            let mut body = node.body();
            body.content = body.synced.clone();
            body.links = 0;
        }
        // From the root, a directory after those above it: the first name is the one to stay.
        self.root.body().links = 1;
        let mut found = VecDeque::from([Arc::clone(&self.root)]);
        while let Some(dir) = found.pop_front() {
            // Its own lock is not held while others are taken: it may be one of its names.
            let names = match &dir.body().content {
                Content::Dir(names) => names.clone(),
                Content::File(_) | Content::Link(_) => continue,
            };
            for (name, node) in names {
                let is_dir = node.kind() == NodeKind::Dir;
                let mut body = node.body();
                let is_second = is_dir && body.links > 0;
                body.links += u64::from(!is_second);
                drop(body);
                if is_second {
                    if let Content::Dir(names) = &mut dir.body().content {
                        names.remove(&name);
                    }
                } else if is_dir {
                    found.push_back(node);
                }
            }
        }
        // Those that are open and have no name: their names may be a cycle.
        for node in &all {
            let mut body = node.body();
            if body.links == 0 && matches!(body.content, Content::Dir(_)) {
                body.content = Content::Dir(BTreeMap::new());
            }
        }
    }

    /// Resolves `path` within these bounds.
    fn resolve(within: Within<'_>, path: &Path, how: How) -> Result<Place, PathError> {
        let mut way = vec![Arc::clone(within.dir())];
        let mut left: VecDeque<OsString> = within.components(path)?.into();
        let mut links = 0;
        while let Some(name) = left.pop_front() {
            if name == ".." {
                match (way.len(), within) {
                    (1, Within::Disk(_)) => {}
                    (1, Within::Dir(_)) => return Err(PathError::Outside),
                    _ => drop(way.pop()),
                }
                continue;
            }
            if is_end(&name) {
                continue;
            }
            let here = way.last().expect("not above the directory");
            if how == How::Creates && left.len() == 1 && left[0] == "/" {
                // As the kernel, which does not look the name up.
                return Err(Errno::ISDIR.into());
            }
            let node = match here.child(&name) {
                Err(Errno::NOENT) if left.is_empty() => None,
                node => Some(node?),
            };
            let link = match node.as_ref().map(|node| node.body()) {
                Some(body) => match &body.content {
                    Content::Link(to) if how != How::Keeps || !left.is_empty() => Some(to.clone()),
                    _ => None,
                },
                None => None,
            };
            if let Some(to) = link {
                links += 1;
                if links > LINKS_MAX {
                    return Err(Errno::LOOP.into());
                }
                if to.is_absolute() && matches!(within, Within::Disk(_)) {
                    way.truncate(1);
                }
                for name in within.components(&to)?.into_iter().rev() {
                    left.push_front(name);
                }
                continue;
            }
            if left.is_empty() {
                let name = Some(name);
                return Ok(Place { way, name, node });
            }
            match node {
                Some(node) if node.kind() == NodeKind::Dir => way.push(node),
                // Also before `..`.
                Some(_) => return Err(Errno::NOTDIR.into()),
                None => return Err(Errno::NOENT.into()),
            }
        }
        let node = way.last().cloned();
        let name = None;
        Ok(Place { way, name, node })
    }

    /// Resolves a path that ends in a name, which need not exist. True: a slash is behind it.
    fn named(within: Within<'_>, path: &Path) -> Result<(Place, OsString, bool), PathError> {
        let (parent, name) = split(path)?;
        let parent = match parent {
            Some(parent) => Disk::resolve(within, parent, How::Follows)?.node,
            None => Some(Arc::clone(within.dir())),
        };
        let parent = parent.ok_or(Errno::NOENT)?;
        let (name, has_slash) = without_slash(&name);
        let node = match parent.child(name) {
            Err(Errno::NOENT) => None,
            node => Some(node?),
        };
        let place = Place {
            way: vec![parent],
            name: Some(name.to_owned()),
            node,
        };
        Ok((place, name.to_owned(), has_slash))
    }

    fn make(
        &mut self,
        place: &Place,
        name: OsString,
        content: Content,
        mode: u32,
    ) -> Result<Arc<Node>, Errno> {
        place.admits_names()?;
        let node = self.node(content, mode);
        self.changes += 1;
        let its = Arc::clone(&node);
        place.parent().with_names(self.changes, |names| {
            names.insert(name, its);
            Ok(())
        })?;
        Ok(node)
    }

    fn remove(&mut self, dir: &Arc<Node>, path: &Path, is_dir: bool) -> Result<(), PathError> {
        let (place, name, has_slash) = Disk::named(Within::Dir(dir), path)?;
        let node = place.node.as_ref().ok_or(Errno::NOENT)?;
        check_removal(node, is_dir)?;
        if has_slash && !is_dir {
            return Err(Errno::NOTDIR.into());
        }
        self.changes += 1;
        place
            .parent()
            .with_names(self.changes, |names| Ok(names.remove(&name)))?;
        node.body().links -= 1;
        Ok(())
    }

    fn rename(
        &mut self,
        from: (&Arc<Node>, &Path),
        to: (&Arc<Node>, &Path),
    ) -> Result<(), PathError> {
        let (source, old, old_slash) = Disk::named(Within::Dir(from.0), from.1)?;
        let (target, new, new_slash) = Disk::named(Within::Dir(to.0), to.1)?;
        let node = source.node.as_ref().ok_or(Errno::NOENT)?;
        if (old_slash || new_slash) && node.kind() != NodeKind::Dir {
            return Err(Errno::NOTDIR.into());
        }
        target.admits_names()?;
        // Not by the way, which begins at a handle: the node may be above that.
        let is_within = |below: &Arc<Node>, above: &Arc<Node>| {
            let mut nodes = vec![Arc::clone(above)];
            while let Some(node) = nodes.pop() {
                if Arc::ptr_eq(&node, below) {
                    return true;
                }
                if let Content::Dir(names) = &node.body().content {
                    nodes.extend(names.values().cloned());
                }
            }
            false
        };
        if node.kind() == NodeKind::Dir && is_within(target.parent(), node) {
            return Err(Errno::INVAL.into());
        }
        let replaced = target.node.as_ref();
        if replaced.is_some_and(|replaced| is_within(source.parent(), replaced)) {
            return Err(Errno::NOTEMPTY.into());
        }
        if let Some(there) = &target.node {
            if Arc::ptr_eq(there, node) {
                return Ok(());
            }
            check_removal(there, node.kind() == NodeKind::Dir)?;
            there.body().links -= 1;
        }
        self.changes += 1;
        source
            .parent()
            .with_names(self.changes, |names| Ok(names.remove(&old)))?;
        let node = Arc::clone(node);
        target
            .parent()
            .with_names(self.changes, |names| Ok(names.insert(new, node)))?;
        Ok(())
    }

    fn link(
        &mut self,
        from: (&Arc<Node>, &Path),
        to: (&Arc<Node>, &Path),
    ) -> Result<(), PathError> {
        let (source, _, is_dir) = Disk::named(Within::Dir(from.0), from.1)?;
        let (target, name, has_slash) = Disk::named(Within::Dir(to.0), to.1)?;
        let node = source.node.as_ref().ok_or(Errno::NOENT)?;
        let kind = node.kind();
        if is_dir && kind != NodeKind::Dir {
            return Err(Errno::NOTDIR.into());
        }
        match &target.node {
            Some(_) => return Err(Errno::EXIST.into()),
            None if has_slash => return Err(Errno::NOENT.into()),
            None => target.admits_names()?,
        }
        if kind == NodeKind::Dir {
            return Err(Errno::PERM.into());
        }
        self.changes += 1;
        let its = Arc::clone(node);
        target
            .parent()
            .with_names(self.changes, |names| Ok(names.insert(name, its)))?;
        node.body().links += 1;
        Ok(())
    }

    /// Between 1 and `len` bytes move.
    fn portion(&mut self, len: usize) -> usize {
        match self.move_bytes_max {
            usize::MAX => len,
            most => 1 + self.random.below(len.min(most).max(1)),
        }
    }

    /// Fails if the disk has no room for this growth.
    fn admit(&self, grows_by: u64) -> Result<(), Errno> {
        let is_full = self.capacity_bytes != u64::MAX
            && self.root.bytes().saturating_add(grows_by) > self.capacity_bytes;
        match is_full && grows_by > 0 {
            true => Err(Errno::NOSPC),
            false => Ok(()),
        }
    }

    fn fault(&mut self, call: SimCall) -> Result<(), Errno> {
        if let Some(errno) = self.faults.get_mut(&call).and_then(VecDeque::pop_front) {
            return Err(errno);
        }
        let odds = self.fault_odds;
        match odds > 0 && self.random.below(odds) == 0 {
            true if call == SimCall::FileWrite && self.random.below(2) == 0 => Err(Errno::NOSPC),
            true => Err(Errno::IO),
            false => Ok(()),
        }
    }
}

/// Fails if a node cannot be removed or replaced, as a file or as a directory.
fn check_removal(node: &Arc<Node>, is_dir: bool) -> Result<(), Errno> {
    match (&node.body().content, is_dir) {
        (Content::Dir(names), true) if names.is_empty() => Ok(()),
        (Content::Dir(_), true) => Err(Errno::NOTEMPTY),
        (Content::Dir(_), false) => Err(Errno::ISDIR),
        (_, true) => Err(Errno::NOTDIR),
        (_, false) => Ok(()),
    }
}

/// Where a path begins, and where it has to stay.
#[derive(Clone, Copy)]
enum Within<'a> {
    /// In this directory.
    Dir(&'a Arc<Node>),
    /// On the disk: this is the root, which an absolute path begins at, and whose parent it is.
    Disk(&'a Arc<Node>),
}

impl<'a> Within<'a> {
    fn dir(self) -> &'a Arc<Node> {
        match self {
            Within::Dir(dir) | Within::Disk(dir) => dir,
        }
    }

    fn components(self, path: &Path) -> Result<Vec<OsString>, PathError> {
        match (self, path.strip_prefix("/")) {
            (Within::Disk(_), Ok(rest)) if rest.as_os_str().is_empty() => Ok(Vec::new()),
            (Within::Disk(_), Ok(rest)) => components(rest),
            (Within::Disk(_) | Within::Dir(_), _) => components(path),
        }
    }
}

/// How a path is resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum How {
    /// A link at its end is followed.
    Follows,
    /// The same, and a file is created if there is none.
    Creates,
    /// A link at its end is the result.
    Keeps,
}

impl SimDisk {
    pub(super) fn new(random: Random) -> SimDisk {
        let mut disk = Disk {
            random,
            nodes: Vec::new(),
            root: Arc::new(Node {
                number: 0,
                mode: 0o755,
                body: Mutex::new(Body {
                    content: Content::Dir(BTreeMap::new()),
                    synced: Content::Dir(BTreeMap::new()),
                    links: 1,
                    changed: 0,
                }),
            }),
            faults: BTreeMap::new(),
            fault_odds: 0,
            move_bytes_max: usize::MAX,
            capacity_bytes: u64::MAX,
            latency: (Duration::ZERO, Duration::ZERO),
            open_count: 0,
            next_node: 0,
            changes: 0,
        };
        disk.changes = 1;
        SimDisk(Arc::new(Mutex::new(disk)))
    }

    fn with<R>(&self, f: impl FnOnce(&mut Disk) -> R) -> R {
        f(&mut self.0.lock().expect("no call on the simulated disk panics"))
    }

    /// Replaces the content of a file, or creates it with the directories above it. It is synced at
    /// once, and no fault applies.
    ///
    /// # Errors
    /// If a part of the path is not a directory, or the path is a directory.
    pub fn write(&self, path: impl AsRef<Path>, bytes: impl AsRef<[u8]>) -> std::io::Result<()> {
        let path = path.as_ref();
        self.create_dir(path.parent().unwrap_or(Path::new("")))?;
        self.with(|disk| {
            let (place, name, has_slash) = Disk::named(Within::Disk(&disk.root), path)?;
            if has_slash {
                return Err(Errno::ISDIR.into());
            }
            let node = match &place.node {
                Some(node) => Arc::clone(node),
                None => disk.make(&place, name, Content::File(Vec::new()), 0o644)?,
            };
            node.with_bytes(|content| *content = bytes.as_ref().to_vec())?;
            sync(&node);
            sync(place.parent());
            Ok(())
        })
    }

    /// Creates a directory and those above it, if they do not exist. They are synced at once, and
    /// no fault applies.
    ///
    /// # Errors
    /// If a part of the path is not a directory.
    pub fn create_dir(&self, path: impl AsRef<Path>) -> std::io::Result<()> {
        self.with(|disk| {
            let mut way = vec![Arc::clone(&disk.root)];
            let path = Path::new("/").join(path);
            for name in Within::Disk(&disk.root).components(&path)? {
                if name == ".." && way.len() > 1 {
                    way.pop();
                }
                if name == ".." || is_end(&name) {
                    continue;
                }
                let here = Arc::clone(way.last().expect("the root stays"));
                let next = match here.child(&name) {
                    Err(Errno::NOENT) => {
                        let place = Place {
                            way: vec![Arc::clone(&here)],
                            name: None,
                            node: None,
                        };
                        disk.make(&place, name, Content::Dir(BTreeMap::new()), 0o755)?
                    }
                    node => node?,
                };
                sync(&here);
                way.push(next);
            }
            match way.last().expect("the root stays").kind() {
                NodeKind::Dir => Ok(()),
                NodeKind::File | NodeKind::Link => Err(Errno::NOTDIR.into()),
            }
        })
    }

    /// Creates a symbolic link at `path` to `target`. It is synced at once, and no fault applies.
    ///
    /// # Errors
    /// If `path` exists, or its directory does not.
    pub fn symlink(&self, target: impl AsRef<Path>, path: impl AsRef<Path>) -> std::io::Result<()> {
        self.with(|disk| {
            let (place, name, has_slash) = Disk::named(Within::Disk(&disk.root), path.as_ref())?;
            if place.node.is_some() {
                return Err(Errno::EXIST.into());
            }
            if has_slash {
                return Err(Errno::NOENT.into());
            }
            disk.make(
                &place,
                name,
                Content::Link(target.as_ref().to_owned()),
                0o777,
            )?;
            sync(place.parent());
            Ok(())
        })
    }

    /// Returns the content of a file. No fault applies.
    ///
    /// # Errors
    /// If the file does not exist.
    pub fn read(&self, path: impl AsRef<Path>) -> std::io::Result<Vec<u8>> {
        self.with(|disk| {
            let place = Disk::resolve(Within::Disk(&disk.root), path.as_ref(), How::Follows)?;
            let node = place.node.ok_or(Errno::NOENT)?;
            Ok(node.with_bytes(|bytes| bytes.clone())?)
        })
    }

    /// Makes the next such call fail with the error number `errno` of the operating system; several
    /// queue up.
    ///
    /// # Panics
    /// If `errno` is not in 1 to 4,095, or `call` is a call of the network.
    #[track_caller]
    pub fn fail_next(&self, call: SimCall, errno: i32) {
        assert!((1..=4_095).contains(&errno), "{errno} is no error number");
        assert!(
            call.is_of_files(),
            "{call:?} is a call of the network: `SimNet::fail_next`"
        );
        let errno = Errno::from_raw_os_error(errno);
        self.with(|disk| disk.faults.entry(call).or_default().push_back(errno));
    }

    /// Makes one of `odds` calls fail, on average, as the seed draws them: with EIO, and writes
    /// also with ENOSPC. 0, the default, makes none fail.
    pub fn set_fault_odds(&self, odds: usize) {
        self.with(|disk| disk.fault_odds = odds);
    }

    /// Moves a random number of at most `bytes` in each read and write, so that they are short. By
    /// default they move all bytes that they can.
    pub fn set_move_bytes_max(&self, bytes: usize) {
        self.with(|disk| disk.move_bytes_max = bytes.max(1));
    }

    /// Limits the bytes of all files together. Writes beyond fail with ENOSPC. No limit by default.
    pub fn set_capacity_bytes(&self, bytes: u64) {
        self.with(|disk| disk.capacity_bytes = bytes);
    }

    /// Sets how long a call takes, in virtual time: the seed draws a time from `min` to `max`. By
    /// default it takes none.
    pub fn set_latency(&self, min: Duration, max: Duration) {
        self.with(|disk| disk.latency = (min, max.max(min)));
    }

    /// Returns the number of open files and directories.
    pub fn open_count(&self) -> usize {
        self.with(|disk| disk.open_count)
    }

    /// Restores the synced content, as a loss of power may do: the bytes of each file at its last
    /// sync, and the names of each directory at its own. Open files stay open. A directory that is
    /// in two others, since both were synced while it was in them, is in one of them.
    ///
    /// Real disks may keep more. A program that relies on synced content only is right on each.
    pub fn crash(&self) {
        self.with(Disk::restore);
    }

    pub(crate) fn root(&self) -> SimHandle {
        let node = self.with(|disk| Arc::clone(&disk.root));
        SimHandle::new(self, node)
    }

    /// Draws the time of the next call.
    pub(crate) fn draw_latency(&self) -> Duration {
        self.with(|disk| {
            let (min, max) = disk.latency;
            let span = usize::try_from((max - min).as_nanos()).unwrap_or(usize::MAX - 1);
            match span {
                0 => min,
                span => min + Duration::from_nanos(disk.random.below(span + 1) as u64),
            }
        })
    }

    /// Fails if a fault is set or drawn for this call.
    pub(crate) fn fault(&self, call: SimCall) -> Result<(), Errno> {
        self.with(|disk| disk.fault(call))
    }
}

/// Changes a file's length; zeros fill it.
fn resized(node: &Node, disk: &mut Disk, len: usize) -> Result<(), Errno> {
    node.with_bytes(|bytes| {
        bytes
            .try_reserve(len.saturating_sub(bytes.len()))
            .map_err(|_| Errno::NOSPC)?;
        bytes.resize(len, 0);
        Ok(())
    })??;
    disk.changes += 1;
    node.body().changed = disk.changes;
    Ok(())
}

fn sync(node: &Node) {
    let mut body = node.body();
    body.synced = body.content.clone();
}

impl fmt::Debug for SimDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimDisk")
            .field("open_count", &self.open_count())
            .finish_non_exhaustive()
    }
}

impl Drop for Disk {
    /// Synced names may be a cycle of references.
    fn drop(&mut self) {
        for node in self.nodes.iter().filter_map(Weak::upgrade) {
            let mut body = node.body();
            let nothing = || Content::File(Vec::new());
            let its = (
                std::mem::replace(&mut body.content, nothing()),
                std::mem::replace(&mut body.synced, nothing()),
            );
            // The last reference to another node may be among them.
            drop(body);
            drop(its);
        }
    }
}

/// An open node.
pub(crate) struct SimHandle {
    disk: SimDisk,
    node: Arc<Node>,
}

impl SimHandle {
    fn new(disk: &SimDisk, node: Arc<Node>) -> SimHandle {
        disk.with(|disk| disk.open_count += 1);
        SimHandle {
            disk: disk.clone(),
            node,
        }
    }

    pub(crate) fn disk(&self) -> &SimDisk {
        &self.disk
    }

    /// Opens a path beneath this directory.
    pub(crate) fn open(&self, path: &Path, how: HowOpened) -> Result<SimHandle, PathError> {
        self.open_within(Within::Dir(&self.node), path, how)
    }

    /// Opens a path of the disk, whose root this is; it is also the working directory.
    pub(crate) fn open_anywhere(
        &self,
        path: &Path,
        how: HowOpened,
    ) -> Result<SimHandle, PathError> {
        self.open_within(Within::Disk(&self.node), path, how)
    }

    fn open_within(
        &self,
        within: Within<'_>,
        path: &Path,
        how: HowOpened,
    ) -> Result<SimHandle, PathError> {
        let node = self.disk.with(|disk| {
            let resolved = match (how.create_new, how.create) {
                // A slash at the end is not for a file, also a new one.
                (true, _) if path.as_os_str().as_encoded_bytes().ends_with(b"/") => How::Creates,
                (true, _) => How::Keeps,
                (false, true) => How::Creates,
                (false, false) => How::Follows,
            };
            let place = Disk::resolve(within, path, resolved)?;
            let node = match (&place.node, &place.name) {
                (Some(_), _) if how.create_new => return Err(Errno::EXIST.into()),
                (Some(node), _) => Arc::clone(node),
                (None, Some(name)) if how.create || how.create_new => {
                    disk.make(&place, name.clone(), Content::File(Vec::new()), how.mode)?
                }
                (None, _) => return Err(Errno::NOENT.into()),
            };
            match (node.kind(), how.dir) {
                (NodeKind::Dir, false) if how.write => return Err(Errno::ISDIR.into()),
                (NodeKind::File, true) => return Err(Errno::NOTDIR.into()),
                (NodeKind::Link, _) => return Err(Errno::LOOP.into()),
                _ => {}
            }
            if how.truncate {
                resized(&node, disk, 0)?;
            }
            Ok::<_, PathError>(node)
        })?;
        Ok(SimHandle::new(&self.disk, node))
    }

    pub(crate) fn stat(&self) -> NodeStat {
        let (kind, body) = (self.node.kind(), self.node.body());
        NodeStat {
            kind,
            len: match &body.content {
                Content::File(bytes) => bytes.len() as u64,
                Content::Dir(_) | Content::Link(_) => 0,
            },
            links: body.links,
            mode: self.node.mode,
            changed: body.changed,
        }
    }

    pub(crate) fn read(&self, space: &mut [u8], offset: u64) -> Result<usize, Errno> {
        self.disk.with(|disk| {
            self.node.with_bytes(|bytes| {
                let start = usize::try_from(offset)
                    .unwrap_or(usize::MAX)
                    .min(bytes.len());
                let len = match space.len().min(bytes.len() - start) {
                    0 => 0,
                    most => disk.portion(most),
                };
                space[..len].copy_from_slice(&bytes[start..start + len]);
                len
            })
        })
    }

    /// Writes at `offset`; at the end if it is none.
    pub(crate) fn write(&self, new: &[u8], offset: Option<u64>) -> Result<usize, Errno> {
        self.disk.with(|disk| {
            // As on the kernel's file systems, it does not reach to `offset` then.
            if new.is_empty() {
                return Ok(0);
            }
            let len = disk.portion(new.len());
            let size = self.node.with_bytes(|bytes| bytes.len())?;
            let start = match offset {
                None => size,
                Some(offset) => usize::try_from(offset).map_err(|_| Errno::FBIG)?,
            };
            let room = FILE_BYTES_MAX.saturating_sub(start);
            if room == 0 {
                return Err(Errno::FBIG);
            }
            let len = len.min(room);
            let end = start + len;
            disk.admit(end.saturating_sub(size) as u64)?;
            resized(&self.node, disk, size.max(end))?;
            self.node
                .with_bytes(|bytes| bytes[start..end].copy_from_slice(&new[..len]))?;
            Ok(len)
        })
    }

    pub(crate) fn truncate(&self, len: u64) -> Result<(), Errno> {
        self.disk.with(|disk| {
            if i64::try_from(len).is_err() {
                // The kernel takes it for a negative number.
                return Err(Errno::INVAL);
            }
            let len = usize::try_from(len).map_err(|_| Errno::FBIG)?;
            if len > FILE_BYTES_MAX {
                return Err(Errno::FBIG);
            }
            let size = self.node.with_bytes(|bytes| bytes.len())?;
            disk.admit(len.saturating_sub(size) as u64)?;
            resized(&self.node, disk, len)
        })
    }

    pub(crate) fn sync(&self) {
        self.disk.with(|_| sync(&self.node));
    }

    pub(crate) fn rename(&self, from: &Path, dir: &SimHandle, to: &Path) -> Result<(), PathError> {
        self.disk
            .with(|disk| disk.rename((&self.node, from), (&dir.node, to)))
    }

    pub(crate) fn link(&self, from: &Path, dir: &SimHandle, to: &Path) -> Result<(), PathError> {
        self.disk
            .with(|disk| disk.link((&self.node, from), (&dir.node, to)))
    }

    pub(crate) fn remove(&self, path: &Path, is_dir: bool) -> Result<(), PathError> {
        self.disk.with(|disk| disk.remove(&self.node, path, is_dir))
    }

    pub(crate) fn create_dir(&self, path: &Path, mode: u32) -> Result<(), PathError> {
        self.disk.with(|disk| {
            let (place, name, _) = Disk::named(Within::Dir(&self.node), path)?;
            if place.node.is_some() {
                return Err(Errno::EXIST.into());
            }
            disk.make(&place, name, Content::Dir(BTreeMap::new()), mode)?;
            Ok(())
        })
    }

    /// Returns at most `most` names after `after`, in order.
    pub(crate) fn list(
        &self,
        after: Option<&OsStr>,
        most: usize,
    ) -> Result<Vec<(OsString, NodeKind)>, Errno> {
        self.disk.with(|_| {
            let body = self.node.body();
            let Content::Dir(names) = &body.content else {
                return Err(Errno::NOTDIR);
            };
            // It was removed, and is open.
            if body.links == 0 {
                return Err(Errno::NOENT);
            }
            let is_after = |name: &OsStr| after.is_none_or(|after| name > after);
            let names = names.iter().filter(|(name, _)| is_after(name)).take(most);
            Ok(names
                .map(|(name, node)| (name.clone(), node.kind()))
                .collect())
        })
    }

    /// Returns the capacity and the free room, in bytes; without a limit, the capacity is a large
    /// number.
    pub(crate) fn space(&self) -> (u64, u64) {
        self.disk.with(|disk| {
            let all = disk.capacity_bytes.min(1 << 50);
            (all, all.saturating_sub(disk.root.bytes()))
        })
    }

    /// The number of the node.
    pub(crate) fn number(&self) -> u64 {
        self.node.number
    }
}

impl Drop for SimHandle {
    fn drop(&mut self) {
        self.disk.with(|disk| disk.open_count -= 1);
    }
}

impl fmt::Debug for SimHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimHandle")
            .field("node", &self.number())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn synced_names_in_a_circle_are_let_go() {
        let disk = SimDisk::new(Random::new(1));
        disk.create_dir("/a").unwrap();
        disk.create_dir("/b").unwrap();
        let dir = |path: &str| {
            let how = HowOpened {
                dir: true,
                ..HowOpened::default()
            };
            disk.root().open_anywhere(Path::new(path), how).unwrap()
        };
        let (root, a, b) = (disk.root(), dir("/a"), dir("b/"));
        let [name_a, name_b] = ["a", "b"].map(Path::new);
        root.rename(name_b, &a, name_b).unwrap();
        a.sync();
        a.rename(name_b, &root, name_b).unwrap();
        root.rename(name_a, &b, name_a).unwrap();
        b.sync();
        let nodes = disk.with(|disk| disk.nodes.clone());
        drop((root, a, b));
        disk.crash();
        assert!(nodes.iter().all(|node| node.strong_count() > 0));
        drop(disk);
        assert!(nodes.iter().all(|node| node.strong_count() == 0));
    }
}
