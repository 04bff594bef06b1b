//! How much processor time a process has used: the sum over its threads, as the kernel's scheduler
//! counts it (to the nanosecond, where /proc/PID/stat counts in ticks of 10 ms).

use std::fs;
use std::io;
use std::path::Path;
use std::time::Duration;

/// Of a process, until now. Threads that have ended are left out: a server's workers last.
///
/// # Errors
/// If there is no such process, or the kernel does not keep these counts.
pub(crate) fn used_by(pid: u32) -> io::Result<Duration> {
    let named = |error: io::Error| io::Error::new(error.kind(), format!("process {pid}: {error}"));
    let mut sum = Duration::ZERO;
    for thread in
        fs::read_dir(Path::new("/proc").join(pid.to_string()).join("task")).map_err(named)?
    {
        match fs::read_to_string(thread?.path().join("schedstat")) {
            Ok(text) => {
                sum += on_processor(&text).ok_or_else(|| {
                    named(io::Error::new(io::ErrorKind::InvalidData, text.clone()))
                })?;
            }
            // It ended while we looked, before the file was opened or before it was read.
            Err(error)
                if error.kind() == io::ErrorKind::NotFound
                    || error.raw_os_error() == Some(libc::ESRCH) => {}
            Err(error) => return Err(named(error)),
        }
    }
    Ok(sum)
}

/// The first of the three numbers in `schedstat`.
fn on_processor(text: &str) -> Option<Duration> {
    let ns = text.split_whitespace().next()?.parse().ok()?;
    Some(Duration::from_nanos(ns))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_number_is_it() {
        assert_eq!(
            on_processor("1165086 71878 3\n"),
            Some(Duration::from_nanos(1_165_086))
        );
        assert_eq!(on_processor(""), None);
        assert_eq!(on_processor("x 1 2"), None);
    }

    #[test]
    fn work_shows() {
        let me = std::process::id();
        let before = used_by(me).unwrap();
        let start = std::time::Instant::now();
        // Until it shows: whoever shares this machine may keep us from the processor meanwhile.
        while used_by(me).unwrap() < before + Duration::from_millis(20) {
            assert!(start.elapsed() < Duration::from_secs(20));
        }
    }

    #[test]
    fn a_process_that_is_none_is_an_error() {
        let error = used_by(u32::MAX).unwrap_err();
        assert!(error.to_string().contains("process 4294967295"), "{error}");
    }
}
