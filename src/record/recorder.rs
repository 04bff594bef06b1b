//! The file of a recording, and its limit.

use super::format::{End, Ended, Header, PAGE_BYTES, PAGE_HEADER_BYTES};
use super::time::Time;
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::charge::uncharged;
use rustix::fs::OFlags;
use rustix::process::{Resource, getrlimit};
use std::fs::{File, FileType};
use std::io::{self, Write};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

/// What the builder was told: where to, and how much.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    pub(crate) path: PathBuf,
    pub(crate) bytes_max: u64,
}

/// How far a recording is: see [`Builder::record`](crate::Builder::record).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RecordingStats {
    /// Bytes written to the file so far. A thread writes when it has a page full (32 KiB), and at
    /// the end.
    pub bytes: u64,
    /// Whether the recording goes on, and why not.
    pub state: RecordingState,
}

/// Whether a recording goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RecordingState {
    /// It does.
    Running,
    /// The run is over, and all of it was recorded.
    Complete,
    /// The file has reached its limit. What came later is not recorded, and costs next to nothing.
    AtTheLimit,
    /// The file could not be written, for this reason. The recording is cut short.
    Failed(String),
}

impl std::fmt::Display for RecordingState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            RecordingState::Running => f.write_str("goes on"),
            RecordingState::Complete => f.write_str("complete"),
            RecordingState::AtTheLimit => f.write_str("ended at its limit"),
            RecordingState::Failed(reason) => write!(f, "failed: {reason}"),
        }
    }
}

/// See the module text.
#[derive(Debug)]
pub(crate) struct Recorder {
    bytes_max: u64,
    /// A simulation's is known once its clock is.
    time: OnceLock<Time>,
    /// Nothing more is to be recorded. Orders nothing: who sees it late, writes for longer.
    over: AtomicBool,
    sink: Mutex<Sink>,
}

#[derive(Debug)]
struct Sink {
    file: File,
    /// Bytes written.
    bytes: u64,
    /// Bytes that logs may write and have not yet.
    promised: u64,
    pages: u64,
    /// When a promise was refused.
    limit_at_ns: Option<u64>,
    failed: Option<String>,
    /// The last page was written.
    closed: bool,
}

/// Opens a regular file, which is made if it is not there, and makes it as long as the header.
/// Nothing else is a recording: a pipe or a terminal may have a reader that does not read, and then
/// cores would wait for it. Never waits.
fn open(path: &Path, header_bytes: u64) -> Result<File, String> {
    // Looked at first, since others may do something when they are opened, or refuse that with
    // an error that says nothing of the reason.
    if let Ok(there) = std::fs::metadata(path) {
        check(path, there.file_type())?;
    }
    let mut options = File::options();
    options.write(true).create(true);
    // Should it have become a pipe meanwhile, it is not waited for.
    options.custom_flags(OFlags::NONBLOCK.bits() as i32);
    let opened = options.open(path).and_then(|file| {
        let is = file.metadata()?.file_type();
        Ok((file, is))
    });
    let (file, is) = opened.map_err(|error| cannot_write(path, &error))?;
    check(path, is)?;
    let sized = || {
        file.set_len(0)?;
        file.set_len(header_bytes)?;
        Ok(file.metadata()?.len())
    };
    match sized().map_err(|error| cannot_write(path, &error))? {
        bytes if bytes == header_bytes => Ok(file),
        // Those of /proc and /sys are regular files by name, and writing to them does something.
        _ => Err(format!(
            "`{}` keeps nothing that is written to it",
            path.display()
        )),
    }
}

/// Refuses what is no regular file.
fn check(path: &Path, is: FileType) -> Result<(), String> {
    let what = match is {
        _ if is.is_file() => return Ok(()),
        _ if is.is_dir() => "a directory",
        _ if is.is_fifo() => "a pipe",
        _ if is.is_socket() => "a socket",
        _ => "a device",
    };
    let path = path.display();
    Err(format!(
        "`{path}` is {what}: a recording is written to a regular file"
    ))
}

fn cannot_write(path: &Path, error: &io::Error) -> String {
    format!("cannot write `{}`: {error}", path.display())
}

/// The smallest file that says more than that it has ended.
pub(crate) const BYTES_MIN: u64 = 1 << 20;

impl Recorder {
    /// Begins the file. The error is a sentence.
    pub(crate) fn create(setting: &Setting, header: &Header) -> Result<Recorder, String> {
        // Beyond the process's own limit (`ulimit -f`) a write would be a signal, which kills.
        let of_process = getrlimit(Resource::Fsize).current.unwrap_or(u64::MAX);
        let bytes_max = setting.bytes_max.min(of_process);
        if bytes_max < BYTES_MIN {
            return Err(format!(
                "a file of at most {bytes_max} bytes: at least {BYTES_MIN} are needed"
            ));
        }
        let header_bytes = header.to_bytes();
        let mut file = open(&setting.path, header_bytes.len() as u64)?;
        file.write_all(&header_bytes)
            .map_err(|error| cannot_write(&setting.path, &error))?;
        let time = OnceLock::new();
        if !header.simulated {
            time.get_or_init(Time::begin);
        }
        Ok(Recorder {
            bytes_max,
            time,
            over: AtomicBool::new(false),
            sink: Mutex::new(Sink {
                file,
                bytes: header_bytes.len() as u64,
                promised: End::BYTES_MAX as u64,
                pages: 0,
                limit_at_ns: None,
                failed: None,
                closed: false,
            }),
        })
    }

    /// It is a simulation's, with this time.
    #[cfg(feature = "sim")]
    pub(crate) fn go_by(&self, time: Time) {
        let _ = self.time.set(time);
    }

    pub(super) fn time(&self) -> &Time {
        self.time.get_or_init(Time::begin)
    }

    /// Whether logs are to end.
    #[inline]
    pub(super) fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// Whether the file has room for one more page, which is then kept for the caller.
    pub(super) fn promise_page(&self) -> bool {
        let page = (PAGE_HEADER_BYTES + PAGE_BYTES) as u64;
        self.with_sink(|sink| {
            let has_room = sink.bytes + sink.promised + page <= self.bytes_max;
            if sink.closed || sink.failed.is_some() || !has_room {
                let now_ns = self.time().now_ns();
                sink.limit_at_ns.get_or_insert(now_ns);
                self.over.store(true, Ordering::Relaxed);
                return false;
            }
            sink.promised += page;
            true
        })
    }

    /// Writes a page that was promised. (After the last page nobody reads what comes.)
    pub(super) fn write_page(&self, page: &[u8]) {
        self.with_sink(|sink| {
            sink.promised -= (PAGE_HEADER_BYTES + PAGE_BYTES) as u64;
            let is_empty = page.len() == PAGE_HEADER_BYTES;
            if !is_empty && !sink.closed && self.write(sink, page) {
                sink.pages += 1;
            }
        });
    }

    /// Calls `f` with the file. On a virtual core that takes no time: not the recording is looked
    /// into, and a core that was left with the lock would never get it back from one that waits
    /// outside of time.
    fn with_sink<R>(&self, f: impl FnOnce(&mut Sink) -> R) -> R {
        uncharged(|| f(&mut self.sink.lock().unwrap()))
    }

    fn write(&self, sink: &mut Sink, bytes: &[u8]) -> bool {
        if sink.failed.is_some() {
            return false;
        }
        match sink.file.write_all(bytes) {
            Ok(()) => sink.bytes += bytes.len() as u64,
            Err(error) => {
                sink.failed = Some(error.to_string());
                self.over.store(true, Ordering::Relaxed);
            }
        }
        sink.failed.is_none()
    }

    /// Ends the file, once; all logs have written what they had, but for those of `cores_left`
    /// cores that have not left.
    pub(crate) fn finish(&self, cores_left: usize) {
        self.with_sink(|sink| {
            if std::mem::replace(&mut sink.closed, true) {
                return;
            }
            self.over.store(true, Ordering::Relaxed);
            let end = End {
                why: match sink.limit_at_ns {
                    Some(_) => Ended::AtTheLimit,
                    None => Ended::WithTheRun,
                },
                at_ns: sink.limit_at_ns.unwrap_or_else(|| self.time().now_ns()),
                pages: sink.pages,
                cores_left: cores_left as u64,
            };
            let _told = self.write(sink, &end.to_bytes());
        });
    }

    pub(crate) fn stats(&self) -> RecordingStats {
        self.with_sink(|sink| {
            let state = match (&sink.failed, sink.limit_at_ns, sink.closed) {
                (Some(reason), ..) => RecordingState::Failed(reason.clone()),
                (None, Some(_), _) => RecordingState::AtTheLimit,
                (None, None, true) => RecordingState::Complete,
                (None, None, false) => RecordingState::Running,
            };
            RecordingStats {
                bytes: sink.bytes,
                state,
            }
        })
    }
}
