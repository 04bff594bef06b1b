//! A sysfs tree with any contents in some of its files is the machine that the reference says.
#![no_main]
#![allow(dead_code, reason = "the reference also reads lists")]

#[path = "../../../topology/tests/support/reference.rs"]
mod reference;

use libfuzzer_sys::fuzz_target;
use reference::{Files, assert_read_as_said, put, regular, remove, write};
use std::cell::RefCell;
use std::path::{Path, PathBuf};

/// Names beside those of the regular tree.
const NAMES: [&str; 8] = [
    "devices/system/cpu",
    "devices/system/cpu/cpu1",
    "devices/system/cpu/cpu2/cache",
    "devices/system/cpu/cpu2/topology/thread_siblings_list",
    "devices/system/cpu/cpu012/x",
    "devices/system/cpu/cpu9/x",
    "devices/system/node",
    "devices/system/node/node12/cpulist",
];

struct Disk {
    root: PathBuf,
    paths: Vec<String>,
    files: Files,
}

thread_local! {
    // What is on disk stays there between inputs, so that each writes only what differs.
    static DISK: RefCell<Disk> = RefCell::new(Disk::new());
}

impl Disk {
    fn new() -> Disk {
        let shm = Path::new("/dev/shm");
        let folder = if shm.is_dir() {
            shm.to_owned()
        } else {
            std::env::temp_dir()
        };
        let root = folder.join(format!("mely-fuzz-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&root);
        std::fs::create_dir_all(&root).unwrap();
        let mut paths: Vec<String> = regular().into_keys().collect();
        paths.extend(NAMES.map(str::to_owned));
        Disk {
            root,
            paths,
            files: Files::new(),
        }
    }
}

// Edits, one after the other: a byte for the path, one for what is done, and for how many bytes.
fuzz_target!(|data: &[u8]| {
    DISK.with_borrow_mut(|disk| {
        let mut files = regular();
        let mut rest = data;
        while let [path, edit, after @ ..] = rest {
            rest = after;
            let path = &disk.paths[usize::from(*path) % disk.paths.len()];
            match edit {
                255 => remove(&mut files, path),
                254 => put(&mut files, path, None),
                253 => put(&mut files, path, Some(&[b' '; 64 * 1024 + 1])),
                bytes => {
                    let (content, after) = rest.split_at(rest.len().min(usize::from(bytes % 32)));
                    put(&mut files, path, Some(content));
                    rest = after;
                }
            }
        }
        write(&disk.root, &disk.files, &files);
        disk.files = files;
        assert_read_as_said(&disk.root, &disk.files);
    });
});
