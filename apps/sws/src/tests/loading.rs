//! Reading a directory, with real files: what is published, and above all what is not.

use crate::load::{Limits, Loaded, read_directory};
use crate::site::Entry;
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
        error.contains("holds more than 3 files and directories") && error.contains("--max-files"),
        "{error}"
    );
    let error = scratch
        .load(Limits {
            bytes_max: bytes - 1,
            ..limits
        })
        .unwrap_err();
    // The file that did not fit any more, and the way out.
    assert!(error.contains("/root/d/c\" has "), "{error}");
    assert!(
        error.ends_with("or give --max-site-mib 1 or more"),
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
fn a_file_that_does_not_fit_is_named_with_its_size() {
    let scratch = Scratch::new(&["root/a"]);
    let large = fs::File::create(scratch.0.join("root/large.iso")).unwrap();
    // It is not read: a sparse file has no end that one would like to wait for.
    large.set_len(300 << 30).unwrap();
    let error = scratch.load(Limits::default()).unwrap_err();
    for part in [
        "large.iso\" has 307200.0 MiB",
        "keeps 256.0 MiB",
        "--max-site-mib 307201",
    ] {
        assert!(error.contains(part), "{part}: {error}");
    }
}

#[test]
fn links_to_what_is_hidden_publish_nothing() {
    let scratch = Scratch::new(&[
        "root/.env",
        "root/.git/config",
        "root/.well-known/shown",
        "root/sub/.hidden/deep/x",
        "root/shown",
    ]);
    let root = scratch.0.join("root");
    symlink(".env", root.join("file")).unwrap();
    symlink(".git", root.join("directory")).unwrap();
    symlink("../root/.git/config", root.join("around")).unwrap();
    symlink("sub/.hidden/deep", root.join("below")).unwrap();
    symlink("file", root.join("twice")).unwrap();
    symlink(".well-known/shown", root.join("known")).unwrap();
    symlink("shown", root.join("plain")).unwrap();
    let loaded = scratch.load(Limits::default()).unwrap();
    for key in ["/known", "/plain", "/shown", "/.well-known/shown"] {
        assert!(has(&loaded, key), "{key}");
    }
    assert_eq!(loaded.site.len(), 4);
    for name in ["file", "directory", "around", "below", "twice"] {
        let why = "a link to a name that begins with a dot";
        assert!(warned(&loaded, name, why), "{:?}", loaded.warnings);
    }
}

#[test]
fn of_many_that_are_left_out_some_are_named() {
    let files: Vec<String> = (0..500).map(|n| format!("root/.{n}")).collect();
    let scratch = Scratch::new(&files.iter().map(|name| &name[..]).collect::<Vec<_>>());
    fs::write(scratch.0.join("root/index.html"), "").unwrap();
    let loaded = scratch.load(Limits::default()).unwrap();
    assert_eq!(loaded.warnings.len(), 11, "{:?}", loaded.warnings);
    assert!(warned(&loaded, "490 more", "dot"), "{:?}", loaded.warnings);
}

#[test]
fn a_root_that_is_none_is_an_error() {
    let scratch = Scratch::new(&["root/a"]);
    let missing = read_directory(&scratch.0.join("missing"), Limits::default()).unwrap_err();
    assert!(missing.starts_with("--root "), "{missing}");
    let file = read_directory(&scratch.0.join("root/a"), Limits::default()).unwrap_err();
    assert!(file.ends_with("not a directory"), "{file}");
}

#[test]
fn no_limit_is_too_large_to_count_to() {
    let scratch = Scratch::new(&["root/a.txt"]);
    let limits = Limits {
        bytes_max: u64::MAX,
        ..Limits::default()
    };
    let loaded = scratch.load(limits).unwrap();
    let Some(Entry::File(file)) = loaded.site.get(b"/a.txt") else {
        panic!()
    };
    assert!(file.ok(false).ends_with(b"\r\n\r\nroot/a.txt"));
}
