//! Small text files and numbered folders, with limits on everything.

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::Path;

/// Longer files than this are not what sysfs writes (a list of all 8,192 CPUs with every second one
/// missing takes 20 KB).
const SYSFS_BYTES_MAX: u64 = 64 * 1024;

/// How many entries of a folder are looked at.
const ENTRIES_MAX: usize = 64 * 1024;

/// A sysfs file's text without white space around it; `None` when there is no such file; an error,
/// in words, when it cannot be read as text.
pub(crate) fn read_text(path: &Path) -> Result<Option<String>, String> {
    let text = read_text_up_to(path, SYSFS_BYTES_MAX)?;
    Ok(text.map(|text| text.trim_ascii().to_string()))
}

/// A file's text; `None` when there is no such file; an error, in words, when it cannot be read as
/// text of at most this length.
pub(crate) fn read_text_up_to(path: &Path, bytes_max: u64) -> Result<Option<String>, String> {
    match try_read(path, bytes_max) {
        Ok(text) => text.map(Some),
        Err(error) if is_missing(&error) => Ok(None),
        Err(error) => Err(in_words(&error)),
    }
}

/// Outer: what the system said. Inner: what is wrong with what it gave.
fn try_read(path: &Path, bytes_max: u64) -> io::Result<Result<String, String>> {
    // Looked at before opening: opening a FIFO would wait for a writer.
    if !fs::metadata(path)?.is_file() {
        return Ok(Err("not a regular file".to_string()));
    }
    let mut bytes = Vec::new();
    File::open(path)?
        .take(bytes_max + 1)
        .read_to_end(&mut bytes)?;
    if bytes.len() as u64 > bytes_max {
        return Ok(Err(format!("longer than {bytes_max} bytes")));
    }
    Ok(String::from_utf8(bytes).map_err(|_| "not text".to_string()))
}

/// The numbers N of the entries `<prefix>N` of a folder, ascending; `None` when there is no such
/// folder.
pub(crate) fn numbered_entries(folder: &Path, prefix: &str) -> Result<Option<Vec<u32>>, String> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if is_missing(&error) => return Ok(None),
        Err(error) => return Err(in_words(&error)),
    };
    let names = entries
        .take(ENTRIES_MAX)
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut numbers: Vec<u32> = names
        .filter_map(|name| plain_number(name.strip_prefix(prefix)?))
        .collect();
    numbers.sort_unstable();
    Ok(Some(numbers))
}

/// Decimal digits, as the kernel writes them: no sign, no leading zero. So two entries of a folder
/// never stand for one number.
fn plain_number(digits: &str) -> Option<u32> {
    let plain = digits == "0" || !digits.starts_with(['0', '+']);
    digits.parse().ok().filter(|_| plain)
}

fn is_missing(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory
    )
}

/// The error without the number, which differs between systems and says nothing more.
pub(crate) fn in_words(error: &io::Error) -> String {
    let text = error.to_string();
    match text.find(" (os error") {
        Some(end) => text[..end].to_string(),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_plain_numbers_count() {
        let numbers = [
            "0",
            "7",
            "12",
            "",
            "00",
            "07",
            "+1",
            "-1",
            "1a",
            "99999999999",
        ];
        let accepted: Vec<u32> = numbers.into_iter().filter_map(plain_number).collect();
        assert_eq!(accepted, [0, 7, 12]);
    }

    #[test]
    fn folders_and_endless_files_are_not_text() {
        assert_eq!(read_text(Path::new("/")), Err("not a regular file".into()));
        assert_eq!(
            read_text(Path::new("/dev/zero")),
            Err("not a regular file".into())
        );
        assert_eq!(read_text(Path::new("/nowhere/at/all")), Ok(None));
        assert_eq!(numbered_entries(Path::new("/nowhere"), "cpu"), Ok(None));
    }
}
