//! Paths that lead out of a directory.

use super::{HERE, NEW, READ, Scratch, create, done, errno, in_task};
use crate::common::child_passes;
use crate::system::starting::refuse;
use mely::Runtime;
use mely::fs::{Dir, OpenOptions};
use mely::task::with_cx;
use std::io::{self, ErrorKind};
use std::os::unix::fs::symlink;
use std::path::PathBuf;

#[test]
fn a_path_does_not_leave_its_directory() {
    in_task("a_path_does_not_leave", |base, path| async move {
        std::fs::create_dir_all(path.join("in/sub")).unwrap();
        std::fs::write(path.join("secret"), "out").unwrap();
        symlink("../secret", path.join("in/link")).unwrap();
        symlink("/etc", path.join("in/etc")).unwrap();
        symlink("../..", path.join("in/sub/up")).unwrap();
        let dir = done!(|cx| base.open_dir(cx, "in")).unwrap();
        let file = create(&dir, "file").await;
        done!(|cx| file.write_at(cx, 0, "in")).unwrap();
        let refused = |result: io::Result<()>, path: &str| {
            let error = result.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{path}: {error}");
            assert!(
                error.to_string().ends_with("leads out of its directory"),
                "{error}"
            );
        };
        let secret = path.join("secret").into_os_string().into_string().unwrap();
        for out in [
            "../secret",
            "sub/../../secret",
            "link",
            "etc/passwd",
            "sub/up/secret",
            &secret,
        ] {
            let read = done!(|cx| dir.open_file(cx, out, READ));
            refused(read.map(drop), out);
            let known = done!(|cx| dir.metadata(cx, out));
            refused(known.map(drop), out);
        }
        for out in ["..", "etc", "sub/up", "/"] {
            let opened = done!(|cx| dir.open_dir(cx, out));
            refused(opened.map(drop), out);
        }
        for out in ["../new", "etc/new", "sub/up/new", "/new", "sub/../../new"] {
            let made = done!(|cx| dir.open_file(cx, out, NEW));
            refused(made.map(drop), out);
            refused(done!(|cx| dir.create_dir(cx, out)), out);
            refused(done!(|cx| dir.remove_file(cx, out)), out);
            refused(done!(|cx| dir.remove_dir(cx, out)), out);
            refused(done!(|cx| dir.rename(cx, "file", &dir, out)), out);
            refused(done!(|cx| dir.rename(cx, out, &dir, "file")), out);
            refused(done!(|cx| dir.hard_link(cx, "file", &dir, out)), out);
            refused(done!(|cx| dir.hard_link(cx, out, &dir, "new")), out);
        }
        // A link itself can be renamed and removed.
        done!(|cx| dir.rename(cx, "link", &dir, "other")).unwrap();
        done!(|cx| dir.remove_file(cx, "other")).unwrap();
        assert_eq!(std::fs::read(path.join("secret")).unwrap(), b"out");
        assert_eq!(std::fs::read_dir(&path).unwrap().count(), 2);
    });
}

/// Where old filters refuse the one call, each component is looked at.
#[test]
fn a_path_does_not_leave_where_openat2_is_refused() {
    child_passes("files::beneath::child_where_openat2_is_refused", &[]);
}

#[test]
#[ignore = "run in a process of its own"]
fn child_where_openat2_is_refused() {
    // It is not refused at first.
    a_directory_that_is_moved_is_the_same();
    refuse(&[libc::SYS_openat2]);
    let here = rustix::fs::CWD;
    let (flags, mode) = (rustix::fs::OFlags::PATH, rustix::fs::Mode::empty());
    let resolve = rustix::fs::ResolveFlags::empty();
    let refused = rustix::fs::openat2(here, ".", flags, mode, resolve);
    assert_eq!(refused.err(), Some(rustix::io::Errno::PERM));
    a_path_does_not_leave_its_directory();
    a_directory_that_is_moved_is_the_same();
    a_slash_says_that_a_directory_is_meant();
}

async fn with_slashes(dir: Dir) {
    let write = OpenOptions::new().write(true).create(true);
    create(&dir, "file").await;
    done!(|cx| dir.create_dir(cx, "dir/")).unwrap();
    done!(|cx| dir.metadata(cx, "dir/.")).unwrap();
    done!(|cx| dir.open_dir(cx, "dir//")).unwrap();
    let refused = |result: io::Result<()>, number, call: &str| {
        let error = result.unwrap_err();
        assert_eq!(errno(&error), Some(number), "{call}: {error}");
    };
    let read = done!(|cx| dir.open_file(cx, "file/", READ));
    refused(read.map(drop), libc::ENOTDIR, "open");
    let created = done!(|cx| dir.open_file(cx, "new/", write));
    refused(created.map(drop), libc::EISDIR, "create");
    let created = done!(|cx| dir.open_file(cx, "new/", NEW));
    refused(created.map(drop), libc::EISDIR, "create a new one");
    let created = done!(|cx| dir.open_file(cx, "new/.", write));
    refused(created.map(drop), libc::ENOENT, "create in a new one");
    let known = done!(|cx| dir.metadata(cx, "file/."));
    refused(known.map(drop), libc::ENOTDIR, "metadata");
    for (result, number, call) in [
        (
            done!(|cx| dir.remove_file(cx, "file/")),
            libc::ENOTDIR,
            "remove",
        ),
        (
            done!(|cx| dir.remove_file(cx, "file/.")),
            libc::EINVAL,
            "remove .",
        ),
        (
            done!(|cx| dir.remove_file(cx, "dir/")),
            libc::EISDIR,
            "remove a dir",
        ),
        (
            done!(|cx| dir.remove_file(cx, "no/")),
            libc::ENOENT,
            "remove nothing",
        ),
        (
            done!(|cx| dir.remove_dir(cx, "dir/.")),
            libc::EINVAL,
            "rmdir .",
        ),
        (
            done!(|cx| dir.remove_dir(cx, "file/")),
            libc::ENOTDIR,
            "rmdir a file",
        ),
        (
            done!(|cx| dir.create_dir(cx, "file/")),
            libc::EEXIST,
            "mkdir",
        ),
        (
            done!(|cx| dir.rename(cx, "file", &dir, "new/")),
            libc::ENOTDIR,
            "rename to",
        ),
        (
            done!(|cx| dir.rename(cx, "file/", &dir, "new")),
            libc::ENOTDIR,
            "rename from",
        ),
        (
            done!(|cx| dir.hard_link(cx, "file/", &dir, "new")),
            libc::ENOTDIR,
            "link from",
        ),
        (
            done!(|cx| dir.hard_link(cx, "dir/", &dir, "new")),
            libc::EPERM,
            "link a dir",
        ),
        (
            done!(|cx| dir.hard_link(cx, "file", &dir, "new/")),
            libc::ENOENT,
            "link to",
        ),
        (
            done!(|cx| dir.hard_link(cx, "file", &dir, "dir/")),
            libc::EEXIST,
            "link over",
        ),
    ] {
        refused(result, number, call);
    }
    done!(|cx| dir.rename(cx, "dir/", &dir, "other/")).unwrap();
    done!(|cx| dir.remove_dir(cx, "other//")).unwrap();
    done!(|cx| dir.remove_file(cx, "file")).unwrap();
}

/// Also in a simulation.
#[test]
fn a_slash_says_that_a_directory_is_meant() {
    in_task("a_slash_says", |base, _| with_slashes(base));
    let mut simulation = Runtime::builder().simulate(1).unwrap();
    simulation.disk().create_dir("/data").unwrap();
    let run = simulation.run_until(|cx, finish| {
        cx.spawn(HERE, async move {
            let dir = done!(|cx| Dir::open(cx, "/data")).unwrap();
            with_slashes(dir).await;
            finish.finish(());
        });
    });
    run.unwrap();
}

/// It is no path that leads out.
#[test]
fn a_name_on_another_file_system_is_told_as_such() {
    let other = Scratch::all().pop().unwrap();
    let there = other.0.clone();
    in_task("another_file_system", move |base, path| {
        let other = there.clone();
        async move {
            let device =
                |path| std::os::unix::fs::MetadataExt::dev(&std::fs::metadata(path).unwrap());
            if device(&path) == device(&other) {
                return;
            }
            create(&base, "file").await;
            let there = done!(|cx| Dir::open(cx, &other)).unwrap();
            for result in [
                done!(|cx| base.rename(cx, "file", &there, "file")),
                done!(|cx| base.hard_link(cx, "file", &there, "file")),
            ] {
                let error = result.unwrap_err();
                let found = (error.kind(), errno(&error));
                assert_eq!(found, (ErrorKind::CrossesDevices, Some(libc::EXDEV)));
            }
        }
    });
    drop(other);
}

/// An open directory stays the same one, though its path leads elsewhere by now.
#[test]
fn a_directory_that_is_moved_is_the_same() {
    in_task("a_directory_that_is_moved", |base, path| async move {
        std::fs::create_dir(path.join("a")).unwrap();
        let dir: Dir = done!(|cx| base.open_dir(cx, "a")).unwrap();
        done!(|cx| base.rename(cx, "a", &base, "b")).unwrap();
        symlink("/etc", path.join("a")).unwrap();
        create(&dir, "file").await;
        assert!(path.join("b/file").exists());
        let (of, there): (PathBuf, _) = (path.join("a"), dir.path());
        assert_eq!(there, of);
    });
}
