//! Paths that lead out of a directory.

use super::{NEW, READ, create, done, in_task};
use crate::common::child_passes;
use crate::system::starting::refuse;
use mely::fs::Dir;
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
    refuse(&[libc::SYS_openat2]);
    let here = rustix::fs::CWD;
    let (flags, mode) = (rustix::fs::OFlags::PATH, rustix::fs::Mode::empty());
    let resolve = rustix::fs::ResolveFlags::empty();
    let refused = rustix::fs::openat2(here, ".", flags, mode, resolve);
    assert_eq!(refused.err(), Some(rustix::io::Errno::PERM));
    a_path_does_not_leave_its_directory();
    a_directory_that_is_moved_is_the_same();
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
