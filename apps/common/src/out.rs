//! What a program says: results on standard output, everything else on standard error.
//!
//! Nothing here panics, whatever has become of the outputs: a closed pipe and a full disk are
//! errors of whoever reads, and the program's work goes on. `println!` and its like panic there,
//! so that the programs that use this module forbid them.

use std::fmt::Display;
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// A pipe that is ready takes this many bytes without a wait (`PIPE_BUF`).
const LINE_BYTES_MAX: usize = 4096;

/// Lines that [`try_say`] could not write since the last one that it could.
static LOST: AtomicU64 = AtomicU64::new(0);

/// Writes `text` to standard output, all of it.
///
/// # Errors
/// If it is closed, full or broken.
pub fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()
}

/// Writes a line's `text` to standard output, if that takes it at once.
///
/// # Errors
/// If it does not, is closed, full or broken.
pub fn try_print(text: &str) -> io::Result<()> {
    if takes_a_line(&io::stdout()) {
        print(text)
    } else {
        Err(io::Error::new(io::ErrorKind::WouldBlock, "nobody reads it"))
    }
}

/// Writes a line to standard error, and waits until somebody takes it: for the time before the
/// work begins and after it has ended.
pub fn say(program: &str, message: impl Display) {
    // Nobody is left to be told of an error.
    let _ = io::stderr().write_all(format!("{program}: {message}\n").as_bytes());
}

/// Writes a line to standard error, or drops it where writing would wait for a reader: for events,
/// which must not hold their core up. The next line says how many were dropped.
pub fn try_say(program: &str, message: impl Display) {
    if !takes_a_line(&io::stderr()) {
        LOST.fetch_add(1, Ordering::Relaxed);
        return;
    }
    let lost = match LOST.swap(0, Ordering::Relaxed) {
        0 => String::new(),
        lost => format!(" ({lost} lines before this one found no reader)"),
    };
    let mut line = format!("{program}: {message}{lost}").into_bytes();
    line.truncate(LINE_BYTES_MAX - 1);
    line.push(b'\n');
    let _ = io::stderr().write_all(&line);
}

fn takes_a_line(output: &impl AsFd) -> bool {
    let mut polled = [PollFd::new(output, PollFlags::OUT)];
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // A broken pipe is ready too, with an error: the write that follows does not wait.
    poll(&mut polled, Some(&now)).is_ok_and(|ready| ready > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    #[test]
    fn a_full_pipe_takes_no_line_and_a_broken_one_does_not_wait() {
        let (reader, mut writer) = io::pipe().unwrap();
        assert!(takes_a_line(&writer));
        while takes_a_line(&writer) {
            writer.write_all(&[b'x'; LINE_BYTES_MAX]).unwrap();
        }
        drop(reader);
        assert!(takes_a_line(&writer));
        assert!(writer.write_all(b"x").is_err());
        assert!(takes_a_line(&File::create("/dev/full").unwrap()));
    }
}
