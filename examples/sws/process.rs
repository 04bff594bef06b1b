//! What this process takes of the system.

use std::io;

/// How many descriptors it has open.
///
/// # Errors
/// If /proc cannot be read.
pub(crate) fn descriptors() -> io::Result<u64> {
    // Since Linux 6.2 it is the size of the directory, however many there are.
    match std::fs::metadata("/proc/self/fd")?.len() {
        // That of the look itself does not count.
        0 => Ok((std::fs::read_dir("/proc/self/fd")?.count() as u64).saturating_sub(1)),
        open => Ok(open),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    #[test]
    fn descriptors_are_counted() {
        let before = super::descriptors().unwrap();
        let files: Vec<_> = (0..100).map(|_| File::open("/dev/null").unwrap()).collect();
        // Other tests open and close some meanwhile.
        let open = super::descriptors().unwrap();
        assert!(open + 50 >= before + files.len() as u64, "{before}, {open}");
        assert!(before >= 3);
    }
}
