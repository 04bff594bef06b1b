//! Reads a directory into a [`Site`], once, at start-up.
//!
//! What is served is what lies under the root at that moment: each file is opened by its canonical
//! path, which must be under the canonical root and have no name in it that begins with a dot. So
//! a symbolic link publishes neither what lies outside nor what is hidden inside; others are
//! followed. Whoever can rewrite the tree while it is being read could still race this check, but
//! could as well put the content there.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Component, Path, PathBuf};

use crate::site::Site;

const MIB: u64 = 1024 * 1024;
/// Of things that are left out for one reason, this many are named.
const NAMED_MAX: u64 = 10;
/// Room in front of a file for what an answer says before it.
const FIELDS_BYTES: usize = 512;

/// Bounds on what is read, so that `--root /` ends in a sentence and not in swap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Limits {
    /// Files and directories.
    pub(crate) entries_max: usize,
    /// Bytes of all files together, which are kept in memory.
    pub(crate) bytes_max: u64,
    /// Directories below each other; links can make a tree deeper than the disk knows.
    pub(crate) depth_max: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            entries_max: 65_536,
            bytes_max: 256 * MIB,
            depth_max: 64,
        }
    }
}

/// A site, and what was left out of it and why.
#[derive(Debug)]
pub(crate) struct Loaded {
    /// The site.
    pub(crate) site: Site,
    /// One sentence each.
    pub(crate) warnings: Vec<String>,
}

/// Reads `root`. What cannot be served is skipped with a warning; an unreadable root and a reached
/// limit are errors, in words for the user.
pub(crate) fn read_directory(root: &Path, limits: Limits) -> Result<Loaded, String> {
    let real_root = root
        .canonicalize()
        .map_err(|error| format!("--root {root:?}: {error}"))?;
    if !real_root.is_dir() {
        return Err(format!("--root {root:?}: not a directory"));
    }
    // A root that cannot be listed is a mistake; a directory below it that cannot, a warning.
    fs::read_dir(&real_root).map_err(|error| format!("--root {root:?}: {error}"))?;
    let loaded = Loaded {
        site: Site::default(),
        warnings: Vec::new(),
    };
    let mut loader = Loader {
        root: &real_root,
        limits,
        entries: 0,
        bytes: 0,
        skipped: BTreeMap::new(),
        loaded,
    };
    loader.directory("/", &mut vec![real_root.clone()])?;
    let mut loaded = loader.loaded;
    for (why, count) in loader.skipped {
        if count > NAMED_MAX {
            let more = count - NAMED_MAX;
            loaded.warnings.push(format!("skipping {more} more: {why}"));
        }
    }
    if loaded.site.get(b"/").is_none() {
        loaded
            .warnings
            .push(format!("{root:?} has no index.html: / is a 404"));
    }
    Ok(loaded)
}

struct Loader<'a> {
    root: &'a Path,
    limits: Limits,
    entries: usize,
    bytes: u64,
    /// How many were left out, by the reason.
    skipped: BTreeMap<String, u64>,
    loaded: Loaded,
}

impl Loader<'_> {
    /// Reads the last directory of `trail`, the canonical directories from the root down to it,
    /// whose key is `key`.
    fn directory(&mut self, key: &str, trail: &mut Vec<PathBuf>) -> Result<(), String> {
        let here = trail[trail.len() - 1].clone();
        let mut names = Vec::new();
        match fs::read_dir(&here) {
            Err(error) => self.skip(&here, &error.to_string()),
            Ok(entries) => {
                for entry in entries {
                    match entry {
                        Ok(entry) => names.push(entry.file_name()),
                        Err(error) => self.skip(&here, &error.to_string()),
                    }
                    self.check(self.entries + names.len())?;
                }
            }
        }
        // The same tree gives the same warnings, whatever order the disk keeps.
        names.sort();
        for name in names {
            let path = here.join(&name);
            self.entries += 1;
            self.check(self.entries)?;
            let Some(name) = name.to_str() else {
                self.skip(&path, "its name is not UTF-8");
                continue;
            };
            if is_hidden(name.as_bytes()) {
                self.skip(&path, "its name begins with a dot");
                continue;
            }
            self.entry(&format!("{key}{name}"), &path, trail)?;
        }
        Ok(())
    }

    fn entry(&mut self, key: &str, path: &Path, trail: &mut Vec<PathBuf>) -> Result<(), String> {
        // `path` extends a canonical directory, so this resolves at most its last part.
        let (real, kind) = match path.canonicalize().and_then(|real| {
            let kind = fs::symlink_metadata(&real)?.file_type();
            Ok((real, kind))
        }) {
            Ok(found) => found,
            Err(error) => {
                self.skip(path, &error.to_string());
                return Ok(());
            }
        };
        let Ok(below) = real.strip_prefix(self.root) else {
            self.skip(path, "it is a link that leads out of the root");
            return Ok(());
        };
        let hides = |part: Component<'_>| is_hidden(part.as_os_str().as_encoded_bytes());
        if below.components().any(hides) {
            self.skip(path, "it is a link to a name that begins with a dot");
        } else if key == "/_mely" {
            self.skip(path, "/_mely is the server's own page");
        } else if kind.is_dir() {
            if trail.contains(&real) {
                self.skip(path, "it is a link to a directory it lies in");
            } else if trail.len() >= self.limits.depth_max {
                self.skip(path, "it lies too deep below the root");
            } else {
                trail.push(real);
                self.directory(&format!("{key}/"), trail)?;
                trail.pop();
            }
        } else if kind.is_file() {
            match self.file(key, &real) {
                Err(error) => self.skip(path, &error.to_string()),
                Ok(None) => {}
                Ok(Some(bytes)) => return Err(self.too_large(path, bytes)),
            }
        } else {
            // Opening a pipe would wait for somebody to write to it.
            self.skip(path, "it is neither a file nor a directory");
        }
        Ok(())
    }

    /// Adds a file. If it does not fit, it gives the bytes that it has.
    fn file(&mut self, key: &str, real: &Path) -> io::Result<Option<u64>> {
        // Whatever becomes of it meanwhile, a pipe say: nothing here is to wait for anybody.
        let mut options = fs::File::options();
        let file = options
            .read(true)
            .custom_flags(libc::O_NONBLOCK)
            .open(real)?;
        let metadata = file.metadata()?;
        let room = self.limits.bytes_max - self.bytes;
        if metadata.len() > room {
            return Ok(Some(metadata.len()));
        }
        let mut body = Vec::with_capacity(metadata.len() as usize + FIELDS_BYTES);
        // One byte more than allowed, to tell "just fits" from "more", however fast the file grows.
        let bytes = file.take(room.saturating_add(1)).read_to_end(&mut body)? as u64;
        if bytes > room {
            return Ok(Some(bytes));
        }
        self.bytes += bytes;
        let modified = metadata.modified().ok();
        self.loaded.site.add_file(key, body, modified);
        Ok(None)
    }

    fn too_large(&self, path: &Path, bytes: u64) -> String {
        let (max, taken) = (self.limits.bytes_max, self.bytes);
        // Also if the limit is no whole number of them, as in tests.
        let mib = |bytes: u64| bytes as f64 / MIB as f64;
        let needed = (taken + bytes).div_ceil(MIB);
        format!(
            "{path:?} has {:.1} MiB, {:.1} MiB of other files were read before it, and SWS keeps \
             {:.1} MiB in memory: take some out of --root, or give --max-site-mib {needed} or more",
            mib(bytes),
            mib(taken),
            mib(max)
        )
    }

    fn check(&self, entries: usize) -> Result<(), String> {
        let entries_max = self.limits.entries_max;
        if entries <= entries_max {
            return Ok(());
        }
        Err(format!(
            "{:?} holds more than {entries_max} files and directories: give --max-files if that is \
             meant",
            self.root
        ))
    }

    fn skip(&mut self, path: &Path, why: &str) {
        let count = self.skipped.entry(why.to_owned()).or_default();
        *count += 1;
        if *count > NAMED_MAX {
            return;
        }
        // Names are quoted with escapes: a file name must not be able to draw on a terminal.
        let warnings = &mut self.loaded.warnings;
        warnings.push(format!("skipping {path:?}: {why}"));
    }
}

/// Whether a name says that it is not for others.
fn is_hidden(name: &[u8]) -> bool {
    name.starts_with(b".") && name != b".well-known"
}
