//! Files to be served.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// A directory that is gone with its owner.
pub struct Directory {
    path: PathBuf,
}

impl Directory {
    pub fn new() -> Directory {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        // Several runs of this test may share the target directory.
        let name = format!(
            "sws-{}-{}",
            std::process::id(),
            COUNT.fetch_add(1, Ordering::Relaxed)
        );
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::create_dir_all(&path).expect("a directory under target/tmp");
        Directory { path }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn write(&self, name: &str, bytes: &[u8]) {
        let path = self.path.join(name);
        fs::create_dir_all(path.parent().expect("it is below the directory")).unwrap();
        fs::write(path, bytes).unwrap();
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

/// A file as a client asks for it.
pub struct Page {
    pub path: String,
    pub body: Vec<u8>,
}

/// A directory with known files.
pub struct Site {
    pub directory: Directory,
    pub pages: Vec<Page>,
}

/// The largest file: more than what the kernel buffers for one sender.
pub const LARGE_BYTES: usize = 5 << 20;
pub const LARGE: &str = "/large.bin";

impl Site {
    /// Files around every size at which something might change: nothing, one receive buffer, the
    /// joining of small sends, the limit of queued output.
    pub fn small() -> Site {
        let sizes_bytes = [
            0, 1, 100, 1024, 4095, 4096, 4097, 16_384, 65_535, 65_536, 65_537,
        ];
        let directory = Directory::new();
        let pages = sizes_bytes.map(|bytes| page(&directory, &format!("{bytes}.bin"), bytes));
        directory.write("index.html", b"<!doctype html><title>index</title>\n");
        Site {
            directory,
            pages: pages.into(),
        }
    }

    /// Those, and some that do not fit into any buffer.
    pub fn full() -> Site {
        let mut site = Site::small();
        for (name, bytes) in [
            ("256k.bin", (256 << 10) + 1),
            ("1m.bin", 1 << 20),
            (LARGE.trim_start_matches('/'), LARGE_BYTES),
        ] {
            let page = page(&site.directory, name, bytes);
            site.pages.push(page);
        }
        site
    }

    pub fn root(&self) -> &Path {
        self.directory.path()
    }

    pub fn body(&self, path: &str) -> &[u8] {
        let page = self.pages.iter().find(|page| page.path == path);
        &page.expect("a page of this site").body
    }
}

fn page(directory: &Directory, name: &str, bytes: usize) -> Page {
    let body = noise(bytes as u64 + 1, bytes);
    directory.write(name, &body);
    Page {
        path: format!("/{name}"),
        body,
    }
}

/// Bytes that repeat nowhere, the same for the same seed: a byte out of place is seen.
pub fn noise(seed: u64, bytes: usize) -> Vec<u8> {
    let mut random = Random(seed);
    let words = (0..bytes.div_ceil(8)).flat_map(|_| random.next().to_le_bytes());
    words.take(bytes).collect()
}

/// SplitMix64.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}
