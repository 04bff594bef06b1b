//! Paths beneath a directory: their components, and why one leads nowhere.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::io::Errno;

/// The kernel's limit, with the zero at the end.
const PATH_BYTES_MAX: usize = 4_096;

/// Why a call on a path fails. An `EXDEV` of the system is not a path that leads out: a rename
/// between two file systems has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PathError {
    /// The path leads out of its directory.
    Outside,
    System(Errno),
}

impl From<Errno> for PathError {
    fn from(errno: Errno) -> PathError {
        PathError::System(errno)
    }
}

impl From<PathError> for std::io::Error {
    fn from(error: PathError) -> std::io::Error {
        match error {
            PathError::Outside => {
                let text = "the path leads out of its directory";
                std::io::Error::new(std::io::ErrorKind::PermissionDenied, text)
            }
            PathError::System(errno) => errno.into(),
        }
    }
}

/// Returns the components of a path, `..` among them. A path that ends in `/` or `/.` has to lead
/// to a directory: then its last component is `/` or `.`.
pub(crate) fn components(path: &Path) -> Result<Vec<OsString>, PathError> {
    let path = path.as_os_str().as_bytes();
    check_length(path)?;
    if path.is_empty() {
        return Err(Errno::NOENT.into());
    }
    if path.starts_with(b"/") {
        return Err(PathError::Outside);
    }
    let names = path.split(|&byte| byte == b'/');
    let names = names.filter(|name| !name.is_empty());
    let last = names.clone().next_back();
    let end = match last {
        Some(b".") => Some("."),
        _ if path.ends_with(b"/") => Some("/"),
        _ => None,
    };
    let names = names.filter(|name| *name != b".").map(OsStr::from_bytes);
    Ok(names
        .chain(end.map(OsStr::new))
        .map(OsStr::to_owned)
        .collect())
}

/// Whether a component only says that the path leads to a directory.
pub(crate) fn is_end(component: &OsStr) -> bool {
    component == "/" || component == "."
}

/// Splits a path into its parent and its last component, with the `/` behind it if there is one:
/// the kernel takes such a name for a directory only. A path that ends in `..` or `.`, or is empty,
/// has no name to create or remove.
pub(crate) fn split(path: &Path) -> Result<(Option<&Path>, OsString), PathError> {
    let all = path.as_os_str().as_bytes();
    check_length(all)?;
    let slashes = all.iter().rev().take_while(|&&byte| byte == b'/').count();
    let named = &all[..all.len() - slashes];
    let begin = named.iter().rposition(|&byte| byte == b'/');
    let (parent, name) = match begin {
        // The root is a parent, which leads out.
        Some(0) => (Some(&b"/"[..]), &named[1..]),
        Some(slash) => (Some(&named[..slash]), &named[slash + 1..]),
        None => (None, named),
    };
    match name {
        b"" if slashes == 0 => Err(Errno::INVAL.into()),
        b"." => Err(Errno::INVAL.into()),
        b"" | b".." => Err(PathError::Outside),
        name => {
            let mut name = OsStr::from_bytes(name).to_owned();
            if slashes > 0 {
                name.push("/");
            }
            let parent = parent.map(|parent| Path::new(OsStr::from_bytes(parent)));
            Ok((parent, name))
        }
    }
}

/// Returns the name without the `/` behind it, and whether it had one.
pub(crate) fn without_slash(name: &OsStr) -> (&OsStr, bool) {
    match name.as_bytes().strip_suffix(b"/") {
        Some(name) => (OsStr::from_bytes(name), true),
        None => (name, false),
    }
}

fn check_length(path: &[u8]) -> Result<(), PathError> {
    match path.len() >= PATH_BYTES_MAX {
        true => Err(Errno::NAMETOOLONG.into()),
        false => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_path_is_kept() {
        for (path, expected) in [
            ("a", &["a"][..]),
            ("./a//b", &["a", "b"]),
            ("a/", &["a", "/"]),
            ("a//", &["a", "/"]),
            ("a/.", &["a", "."]),
            ("a/./", &["a", "."]),
            (".", &["."]),
            ("../a/..", &["..", "a", ".."]),
        ] {
            let found = components(Path::new(path)).unwrap();
            assert_eq!(found, expected, "{path}");
        }
        let failed = |path: &str| components(Path::new(path)).unwrap_err();
        assert_eq!(failed(""), PathError::System(Errno::NOENT));
        assert_eq!(failed("/a"), PathError::Outside);
        assert_eq!(failed(&"a/".repeat(2_048)), Errno::NAMETOOLONG.into());
        assert!(components(Path::new(&"a/".repeat(2_047))).is_ok());
    }

    #[test]
    fn a_name_keeps_its_slash() {
        for (path, parent, name) in [
            ("a", None, "a"),
            ("a/", None, "a/"),
            ("a/b//", Some("a"), "b/"),
            ("./b", Some("."), "b"),
            ("/b", Some("/"), "b"),
        ] {
            let found = split(Path::new(path)).unwrap();
            assert_eq!(found, (parent.map(Path::new), name.into()), "{path}");
        }
        let failed = |path: &str| split(Path::new(path)).unwrap_err();
        for path in ["", ".", "a/.", "a/./"] {
            assert_eq!(failed(path), Errno::INVAL.into(), "{path}");
        }
        for path in ["/", "//", "..", "a/..", "a/../"] {
            assert_eq!(failed(path), PathError::Outside, "{path}");
        }
        assert_eq!(failed(&"a".repeat(4_096)), Errno::NAMETOOLONG.into());
        assert_eq!(without_slash(OsStr::new("a/")), (OsStr::new("a"), true));
        assert_eq!(without_slash(OsStr::new("a")), (OsStr::new("a"), false));
    }
}
