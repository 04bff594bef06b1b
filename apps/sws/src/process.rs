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

/// How much memory it has in use.
///
/// # Errors
/// If /proc cannot be read.
pub(crate) fn rss_bytes() -> io::Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok());
    // The kernel's words: `VmRSS:    1234 kB`.
    kib.map(|kib| kib * 1024)
        .ok_or_else(|| io::ErrorKind::InvalidData.into())
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

    #[test]
    fn memory_is_counted() {
        let before = super::rss_bytes().unwrap();
        let bytes = vec![1_u8; 64 << 20];
        // Other tests free some meanwhile.
        assert!(super::rss_bytes().unwrap() + (32 << 20) > before + bytes.len() as u64);
    }
}
