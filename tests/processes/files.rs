//! Files: real ones, on tmpfs and on a disk, on each event source.

mod beneath;
mod limits;
mod model;
mod send;
mod verify;

use crate::common::{Bound, backends, cores};
use mely::Color;
use mely::fs::{Dir, DirEntry, File, OpenOptions};
use mely::task::with_cx;
use std::collections::BTreeSet;
use std::error::Error;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

const HERE: Color = Color::new(7);
const READ: OpenOptions = OpenOptions::new().read(true);
const NEW: OpenOptions = OpenOptions::new().read(true).write(true).create_new(true);
/// Larger than a piece, and no multiple of one.
const LARGE: usize = 3 * (64 << 10) + 1_234;

/// Starts an operation, and waits for it.
macro_rules! done {
    (|$cx:ident| $call:expr) => {
        with_cx(|$cx| $call).await.unwrap()
    };
}
use done;

/// A directory of a test's own.
#[derive(Debug)]
struct Scratch(PathBuf);

impl Scratch {
    fn new(base: &Path) -> Scratch {
        static NEXT: AtomicUsize = AtomicUsize::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = base.join(format!("mely-files-{}-{number}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        Scratch(path)
    }

    /// One in memory, and one on a disk, where this machine has both.
    fn all() -> Vec<Scratch> {
        let disk = std::env::current_exe().unwrap();
        let bases = [Path::new("/dev/shm"), disk.parent().unwrap()];
        let found = bases.into_iter().filter(|base| base.is_dir());
        found.map(Scratch::new).collect()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Runs a task in each directory and on each backend, to its end.
fn in_task<R, T>(name: &'static str, task: impl Fn(Dir, PathBuf) -> R + Clone + Send + 'static)
where
    R: Future<Output = T> + Send + 'static,
    T: Send + 'static,
{
    let _bound = Bound::new(name);
    for backend in backends() {
        for scratch in Scratch::all() {
            let (task, path) = (task.clone(), scratch.0.clone());
            let builder = cores(2).backend(backend.clone());
            let run = builder.build().unwrap().run_until(move |cx, finish| {
                cx.spawn(HERE, async move {
                    let dir = done!(|cx| Dir::open(cx, &path)).unwrap();
                    finish.finish(task(dir, path).await);
                });
            });
            run.unwrap();
        }
    }
}

/// A pattern that says of each eight bytes where they belong, as fio's verification has it.
fn pattern(seed: u64, offset: u64, len: usize) -> Vec<u8> {
    assert_eq!(offset % 8, 0);
    let mut bytes = vec![0; len];
    for (word, space) in (offset / 8..).zip(bytes.chunks_mut(8)) {
        let word = word.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ seed;
        space.copy_from_slice(&word.to_le_bytes()[..space.len()]);
    }
    bytes
}

/// The number of the system's error that is this one's source.
fn errno(error: &io::Error) -> Option<i32> {
    error.source()?.downcast_ref::<io::Error>()?.raw_os_error()
}

async fn create(dir: &Dir, name: &str) -> File {
    done!(|cx| dir.open_file(cx, name, NEW)).unwrap()
}

async fn names(dir: &Dir) -> Vec<DirEntry> {
    let mut all = Vec::new();
    loop {
        let piece = done!(|cx| dir.list(cx)).unwrap();
        if piece.is_empty() {
            return all;
        }
        all.extend(piece);
    }
}

#[test]
fn bytes_are_where_they_were_written() {
    in_task("bytes_are_where", |dir, path| async move {
        let file = create(&dir, "file").await;
        // Out of order, of all lengths, and with a hole.
        let pieces = [
            (LARGE as u64 / 8 * 8 + 4_096, 8),
            (0, LARGE),
            (8, 0),
            (1 << 20, 64 << 10),
            (2 << 20, 1),
        ];
        for (seed, &(offset, len)) in (0..).zip(&pieces) {
            let bytes = pattern(seed, offset, len);
            done!(|cx| file.write_at(cx, offset, bytes)).unwrap();
        }
        for (seed, &(offset, len)) in (0..).zip(&pieces) {
            let read = done!(|cx| file.read_at(cx, offset, len)).unwrap();
            assert!(read == pattern(seed, offset, len), "piece {seed}");
        }
        let hole = done!(|cx| file.read_at(cx, 1 << 19, 1_000)).unwrap();
        assert_eq!(hole, [0; 1_000]);
        // All there is, less than was asked for; and nothing behind the end.
        let all = done!(|cx| file.read_at(cx, 0, usize::MAX)).unwrap();
        assert!(all == std::fs::read(path.join("file")).unwrap());
        assert_eq!(all.len(), (2 << 20) + 1);
        let (last, behind) = ((2 << 20) as u64, u64::from(u32::MAX));
        assert_eq!(done!(|cx| file.read_at(cx, last, 9)).unwrap().len(), 1);
        assert!(done!(|cx| file.read_at(cx, behind, 9)).unwrap().is_empty());
        assert!(
            done!(|cx| file.read_at(cx, i64::MAX as u64, 9))
                .unwrap()
                .is_empty()
        );
        done!(|cx| file.sync(cx)).unwrap();
        done!(|cx| file.sync_data(cx)).unwrap();
        done!(|cx| file.truncate(cx, 5)).unwrap();
        let five = done!(|cx| file.read_at(cx, 0, 100)).unwrap();
        assert_eq!(five, pattern(1, 0, 5));
        done!(|cx| file.truncate(cx, 7)).unwrap();
        let seven = done!(|cx| file.read_at(cx, 0, 100)).unwrap();
        assert_eq!(seven[5..], [0, 0]);
    });
}

/// Many operations on one file at the same time, each of several pieces.
#[test]
fn operations_on_one_file_go_on_at_the_same_time() {
    in_task("operations_on_one_file", |dir, _| async move {
        let file = create(&dir, "file").await;
        let part = |i: u64| (i * 400_000, 400_000 - (i as usize % 3) * 8);
        let writes: Vec<_> = (0..12)
            .map(|i| {
                let (offset, len) = part(i);
                let bytes = pattern(i, offset, len);
                with_cx(|cx| file.write_at(cx, offset, bytes))
            })
            .collect();
        for write in writes {
            write.await.unwrap().unwrap();
        }
        let reads: Vec<_> = (0..12)
            .map(|i| {
                let (offset, len) = part(i);
                with_cx(|cx| file.read_at(cx, offset, len))
            })
            .collect();
        for (i, read) in (0..).zip(reads) {
            let (offset, len) = part(i);
            assert!(
                read.await.unwrap().unwrap() == pattern(i, offset, len),
                "{i}"
            );
        }
    });
}

#[test]
fn appends_are_at_the_end_and_whole() {
    in_task("appends_are_at_the_end", |dir, path| async move {
        std::fs::write(path.join("log"), "first\n").unwrap();
        let options = OpenOptions::new().append(true);
        let log = done!(|cx| dir.open_file(cx, "log", options)).unwrap();
        let line = |i: usize| format!("{i:05} {}\n", "x".repeat(i * 37 % 500));
        let appends: Vec<_> = (0..100)
            .map(|i| with_cx(|cx| log.append(cx, line(i))))
            .collect();
        for append in appends {
            append.await.unwrap().unwrap();
        }
        let text = std::fs::read_to_string(path.join("log")).unwrap();
        let lines: BTreeSet<String> = text.split_inclusive('\n').map(str::to_owned).collect();
        let expected = (0..100).map(line).chain(["first\n".to_owned()]);
        assert_eq!(lines, expected.collect());
        let large = "y".repeat(LARGE);
        done!(|cx| log.append(cx, large.clone())).unwrap();
        assert!(std::fs::read_to_string(path.join("log")).unwrap() == text + &large);
    });
}

#[test]
fn names_are_changed() {
    in_task("names_are_changed", |dir, path| async move {
        let file = create(&dir, "a").await;
        done!(|cx| file.write_at(cx, 0, "hello")).unwrap();
        done!(|cx| dir.create_dir(cx, "sub")).unwrap();
        let sub = done!(|cx| dir.open_dir(cx, "sub")).unwrap();
        done!(|cx| dir.hard_link(cx, "a", &sub, "b")).unwrap();
        assert_eq!(done!(|cx| file.metadata(cx)).unwrap().links(), 2);
        done!(|cx| sub.rename(cx, "b", &dir, "sub/../c")).unwrap();
        assert_eq!(std::fs::read(path.join("c")).unwrap(), b"hello");
        assert!(!path.join("sub/b").exists());
        // The one that is there is replaced.
        std::fs::write(path.join("old"), "old").unwrap();
        done!(|cx| dir.rename(cx, "c", &dir, "old")).unwrap();
        assert_eq!(std::fs::read(path.join("old")).unwrap(), b"hello");
        done!(|cx| dir.remove_file(cx, "old")).unwrap();
        done!(|cx| dir.remove_file(cx, "a")).unwrap();
        // A file that is open exists until it is closed.
        let known = done!(|cx| file.metadata(cx)).unwrap();
        assert!(known.is_file() && !known.is_dir());
        assert_eq!((known.links(), known.len()), (0, 5));
        assert_eq!(done!(|cx| file.read_at(cx, 0, 9)).unwrap(), b"hello");
        let not_empty = done!(|cx| dir.remove_file(cx, "sub")).unwrap_err();
        assert_eq!(errno(&not_empty), Some(libc::EISDIR), "{not_empty}");
        done!(|cx| dir.remove_dir(cx, "sub")).unwrap();
        done!(|cx| dir.sync(cx)).unwrap();
        assert_eq!(std::fs::read_dir(path).unwrap().count(), 0);
    });
}

#[test]
fn what_is_known_is_told() {
    in_task("what_is_known", |dir, path| async move {
        let options = NEW.mode(0o640);
        let file = done!(|cx| dir.open_file(cx, "file", options)).unwrap();
        done!(|cx| file.write_at(cx, 0, "12345")).unwrap();
        std::os::unix::fs::symlink("file", path.join("link")).unwrap();
        let by_link = done!(|cx| dir.metadata(cx, "link")).unwrap();
        assert_eq!(by_link, done!(|cx| file.metadata(cx)).unwrap());
        assert_eq!(by_link.len(), 5);
        assert_eq!(by_link.mode() & !0o640, 0);
        let age = SystemTime::now().duration_since(by_link.modified());
        assert!(age.unwrap_or_default() < Duration::from_secs(3_600));
        assert!(done!(|cx| dir.metadata(cx, ".")).unwrap().is_dir());
        let space = done!(|cx| dir.space(cx)).unwrap();
        assert!(space.available_bytes <= space.total_bytes && space.total_bytes > 1 << 20);
        assert_eq!(dir.path(), path);
        assert_eq!(file.path(), path.join("file"));
    });
}

#[test]
fn a_listing_comes_in_pieces() {
    in_task("a_listing_comes", |dir, path| async move {
        let empty = done!(|cx| dir.list(cx)).unwrap();
        assert!(empty.is_empty());
        let name = |i: u32| format!("{i:04}{}", "n".repeat(120));
        for i in 0..2_000 {
            std::fs::write(path.join(name(i)), "").unwrap();
        }
        std::fs::create_dir(path.join("dir")).unwrap();
        std::os::unix::fs::symlink("nowhere", path.join("link")).unwrap();
        let first = done!(|cx| dir.list(cx)).unwrap();
        assert!((1..1_000).contains(&first.len()), "{}", first.len());
        // A clone begins at the start, and this one where it was.
        let clone = names(&dir.clone()).await;
        let mut all = names(&dir).await;
        all.extend(first);
        // And then anew.
        let again = names(&dir).await;
        for all in [all, clone, again] {
            assert_eq!(all.len(), 2_002);
            let kinds = |is: fn(&DirEntry) -> bool| all.iter().filter(|entry| is(entry)).count();
            assert_eq!(kinds(DirEntry::is_file), 2_000);
            assert_eq!(kinds(DirEntry::is_dir), 1);
            assert_eq!(kinds(DirEntry::is_symlink), 1);
            let distinct: BTreeSet<_> = all.iter().map(DirEntry::name).collect();
            assert_eq!(distinct.len(), 2_002);
        }
        // Entries can be removed during the listing.
        loop {
            let piece = done!(|cx| dir.list(cx)).unwrap();
            if piece.is_empty() {
                break;
            }
            for entry in piece {
                match entry.is_dir() {
                    true => done!(|cx| dir.remove_dir(cx, entry.name())).unwrap(),
                    false => done!(|cx| dir.remove_file(cx, entry.name())).unwrap(),
                }
            }
        }
        assert_eq!(std::fs::read_dir(path).unwrap().count(), 0);
    });
}

#[test]
fn an_error_names_the_path() {
    in_task("an_error_names", |dir, path| async move {
        let file = create(&dir, "file").await;
        let checked = |result: io::Result<()>, path: PathBuf, kind, number| {
            let error = result.unwrap_err();
            let text = error.to_string();
            assert!(text.starts_with(&format!("{}: ", path.display())), "{text}");
            assert_eq!((error.kind(), errno(&error)), (kind, number), "{text}");
            text
        };
        let missing = path.join("no/such");
        let no = Some(libc::ENOENT);
        let opened = done!(|cx| dir.open_file(cx, "no/such", READ));
        checked(opened.map(drop), missing.clone(), ErrorKind::NotFound, no);
        let opened = done!(|cx| dir.open_dir(cx, "no/such"));
        checked(opened.map(drop), missing.clone(), ErrorKind::NotFound, no);
        let opened = done!(|cx| Dir::open(cx, &missing));
        checked(opened.map(drop), missing.clone(), ErrorKind::NotFound, no);
        let known = done!(|cx| dir.metadata(cx, "no/such"));
        checked(known.map(drop), missing.clone(), ErrorKind::NotFound, no);
        for result in [
            done!(|cx| dir.remove_file(cx, "no/such")),
            done!(|cx| dir.remove_dir(cx, "no/such")),
            done!(|cx| dir.create_dir(cx, "no/such")),
            done!(|cx| dir.rename(cx, "no/such", &dir, "new")),
            done!(|cx| dir.hard_link(cx, "no/such", &dir, "new")),
        ] {
            checked(result, missing.clone(), ErrorKind::NotFound, no);
        }
        let there = Some(libc::EEXIST);
        let opened = done!(|cx| dir.open_file(cx, "file", NEW));
        checked(
            opened.map(drop),
            path.join("file"),
            ErrorKind::AlreadyExists,
            there,
        );
        // A device that is always full says how much it took.
        let devices = done!(|cx| Dir::open(cx, "/dev")).unwrap();
        let full = done!(|cx| devices.open_file(cx, "full", OpenOptions::new().write(true)));
        let written = done!(|cx| full.as_ref().unwrap().write_at(cx, 0, "12345"));
        let text = checked(
            written,
            "/dev/full".into(),
            ErrorKind::StorageFull,
            Some(libc::ENOSPC),
        );
        assert!(text.ends_with(", 0 of 5 bytes were written"), "{text}");
        // Operations that the file was not opened for.
        let read_only = done!(|cx| dir.open_file(cx, "file", READ)).unwrap();
        let append = OpenOptions::new().append(true);
        let append_only = done!(|cx| dir.open_file(cx, "file", append)).unwrap();
        for (result, says) in [
            (
                done!(|cx| read_only.write_at(cx, 0, "x")),
                "OpenOptions::write",
            ),
            (done!(|cx| read_only.truncate(cx, 0)), "OpenOptions::write"),
            (done!(|cx| file.append(cx, "x")), "OpenOptions::append"),
            (
                done!(|cx| append_only.write_at(cx, 0, "x")),
                "open to append",
            ),
            (
                done!(|cx| append_only.read_at(cx, 0, 1)).map(drop),
                "OpenOptions::read",
            ),
            (
                done!(|cx| file.write_at(cx, i64::MAX as u64, "x")),
                "so many bytes",
            ),
            (
                done!(|cx| file.read_at(cx, u64::MAX, 1)).map(drop),
                "so many bytes",
            ),
        ] {
            let text = checked(result, path.join("file"), ErrorKind::InvalidInput, None);
            assert!(text.contains(says), "{text}");
        }
        for options in [
            OpenOptions::new(),
            READ.create(true),
            READ.truncate(true),
            OpenOptions::new().append(true).truncate(true),
        ] {
            let opened = done!(|cx| dir.open_file(cx, "file", options)).map(drop);
            checked(opened, path.join("file"), ErrorKind::InvalidInput, None);
        }
    });
}
