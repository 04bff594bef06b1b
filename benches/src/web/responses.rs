//! The files that the floor and hyper serve, read once.

use std::collections::HashMap;
use std::fs;
use std::io;
use std::path::Path;

/// All files below `dir`, by the path that a client asks for.
///
/// # Errors
/// Of the file system.
pub fn files(dir: &Path) -> io::Result<Vec<(String, Vec<u8>)>> {
    let mut files = Vec::new();
    let mut dirs = vec![(String::new(), dir.to_owned())];
    while let Some((prefix, dir)) = dirs.pop() {
        for entry in fs::read_dir(&dir)? {
            let entry = entry?;
            let path = format!("{prefix}/{}", entry.file_name().to_string_lossy());
            if entry.file_type()?.is_dir() {
                dirs.push((path, entry.path()));
            } else {
                files.push((path, fs::read(entry.path())?));
            }
        }
    }
    Ok(files)
}

/// Whole responses, built beforehand.
#[derive(Debug)]
pub struct Responses {
    by_path: HashMap<Vec<u8>, Vec<u8>>,
    /// For what is not there; or, if there is one file only, for everything.
    otherwise: Vec<u8>,
}

impl Responses {
    /// For all files below `dir`.
    ///
    /// # Errors
    /// Of the file system.
    pub fn read(dir: &Path) -> io::Result<Responses> {
        let mut by_path = HashMap::new();
        for (path, body) in files(dir)? {
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
            by_path.insert(path.into_bytes(), [head.into_bytes(), body].concat());
        }
        let mut otherwise = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n".to_vec();
        if by_path.len() == 1 {
            otherwise = by_path
                .drain()
                .map(|(_, response)| response)
                .collect::<Vec<_>>()
                .concat();
        }
        Ok(Responses { by_path, otherwise })
    }

    /// The response to a whole request.
    pub fn answer(&self, request: &[u8]) -> &[u8] {
        let path = request.split(|&byte| byte == b' ').nth(1);
        let found = path
            .filter(|_| !self.by_path.is_empty())
            .and_then(|path| self.by_path.get(path));
        found.unwrap_or(&self.otherwise)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers() {
        let dir = std::env::temp_dir().join(format!("mely-bench-{}", std::process::id()));
        fs::create_dir_all(dir.join("d")).unwrap();
        fs::write(dir.join("d/a"), "one").unwrap();
        let one = Responses::read(&dir).unwrap();
        fs::write(dir.join("b"), "two").unwrap();
        let two = Responses::read(&dir).unwrap();
        fs::remove_dir_all(&dir).unwrap();
        assert!(
            one.answer(b"GET /anything HTTP/1.1\r\n\r\n")
                .ends_with(b"\r\n\r\none")
        );
        assert!(
            two.answer(b"GET /d/a HTTP/1.1\r\n\r\n")
                .ends_with(b"\r\n\r\none")
        );
        assert!(
            two.answer(b"GET /b HTTP/1.1\r\n\r\n")
                .ends_with(b"\r\n\r\ntwo")
        );
        assert!(
            two.answer(b"GET /c HTTP/1.1\r\n\r\n")
                .starts_with(b"HTTP/1.1 404 ")
        );
    }
}
