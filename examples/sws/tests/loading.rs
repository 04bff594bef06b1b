//! Reading a directory, with real files: what is published, and above all what is not.

use crate::load::{Limits, Loaded, read_directory};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

/// A directory of one test, gone when it ends.
struct Scratch(PathBuf);

impl Scratch {
    fn new(files: &[&str]) -> Scratch {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("sws-{}-{next}", std::process::id()));
        fs::create_dir_all(path.join("root")).unwrap();
        let scratch = Scratch(path);
        for file in files {
            let path = scratch.0.join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(&path, file).unwrap();
        }
        scratch
    }

    fn load(&self, limits: Limits) -> Result<Loaded, String> {
        read_directory(&self.0.join("root"), limits)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn has(loaded: &Loaded, key: &str) -> bool {
    loaded.site.get(key.as_bytes()).is_some()
}

fn warned(loaded: &Loaded, name: &str, why: &str) -> bool {
    loaded
        .warnings
        .iter()
        .any(|warning| warning.contains(name) && warning.contains(why))
}

#[test]
fn files_directories_and_indexes_get_their_paths() {
    let scratch = Scratch::new(&["root/index.html", "root/a.txt", "root/d/e/index.html"]);
    let loaded = scratch.load(Limits::default()).unwrap();
    for key in [
        "/",
        "/index.html",
        "/a.txt",
        "/d/e",
        "/d/e/",
        "/d/e/index.html",
    ] {
        assert!(has(&loaded, key), "{key}");
    }
    for key in ["", "/d", "/d/", "/a.txt/"] {
        assert!(!has(&loaded, key), "{key}");
    }
    assert_eq!(loaded.warnings, [""; 0]);
}

#[test]
fn links_out_of_the_root_publish_nothing() {
    let scratch = Scratch::new(&["secret/key", "rootless/x", "root/in/a", "root/b"]);
    let root = scratch.0.join("root");
    symlink("../secret/key", root.join("relative")).unwrap();
    symlink(scratch.0.join("secret"), root.join("absolute")).unwrap();
    // A name that merely begins like the root's.
    symlink(scratch.0.join("rootless"), root.join("prefix")).unwrap();
    symlink("nowhere", root.join("dangling")).unwrap();
    symlink("..", root.join("in/up")).unwrap();
    symlink("loop", root.join("loop")).unwrap();
    symlink("in/a", root.join("inside")).unwrap();
    symlink("in", root.join("also-in")).unwrap();
    let loaded = scratch.load(Limits::default()).unwrap();
    for key in ["/inside", "/also-in/a", "/in/a", "/b"] {
        assert!(has(&loaded, key), "{key}");
    }
    assert_eq!(loaded.site.len(), 4);
    for name in ["relative", "absolute", "prefix"] {
        assert!(
            warned(&loaded, name, "out of the root"),
            "{:?}",
            loaded.warnings
        );
    }
    assert!(warned(&loaded, "up", "lies in"));
    assert!(warned(&loaded, "dangling", "") && warned(&loaded, "loop", ""));
}

#[test]
fn what_has_no_place_on_the_web_is_skipped_aloud() {
    let scratch = Scratch::new(&["root/.git/config", "root/.well-known/a", "root/_mely"]);
    let root = scratch.0.join("root");
    fs::write(root.join(OsStr::from_bytes(b"bad\xff")), "x").unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(root.join("socket")).unwrap();
    let loaded = scratch.load(Limits::default()).unwrap();
    assert!(has(&loaded, "/.well-known/a"));
    assert_eq!(loaded.site.len(), 1);
    assert!(
        warned(&loaded, "bad\\xFF", "UTF-8"),
        "{:?}",
        loaded.warnings
    );
    assert!(warned(&loaded, ".git", "dot"));
    assert!(warned(&loaded, "socket", "neither"));
    assert!(warned(&loaded, "_mely", "own page"));
    assert!(warned(&loaded, "root", "no index.html"));
}

#[test]
fn limits_are_errors_and_exact() {
    let scratch = Scratch::new(&["root/a", "root/b", "root/d/c"]);
    let bytes = ["root/a", "root/b", "root/d/c"]
        .map(str::len)
        .iter()
        .sum::<usize>() as u64;
    let limits = Limits {
        entries_max: 4,
        bytes_max: bytes,
        depth_max: 2,
    };
    assert_eq!(scratch.load(limits).unwrap().site.len(), 3);
    let error = scratch
        .load(Limits {
            entries_max: 3,
            ..limits
        })
        .unwrap_err();
    assert!(
        error.ends_with("holds more than 3 files and directories"),
        "{error}"
    );
    let error = scratch
        .load(Limits {
            bytes_max: bytes - 1,
            ..limits
        })
        .unwrap_err();
    assert!(
        error.ends_with(&format!("holds more than {} bytes", bytes - 1)),
        "{error}"
    );
    let loaded = scratch
        .load(Limits {
            depth_max: 1,
            ..limits
        })
        .unwrap();
    assert!(!has(&loaded, "/d/c") && warned(&loaded, "d", "too deep"));
}

#[test]
fn a_root_that_is_none_is_an_error() {
    let scratch = Scratch::new(&["root/a"]);
    let missing = read_directory(&scratch.0.join("missing"), Limits::default()).unwrap_err();
    assert!(missing.starts_with("--root "), "{missing}");
    let file = read_directory(&scratch.0.join("root/a"), Limits::default()).unwrap_err();
    assert!(file.ends_with("not a directory"), "{file}");
}
