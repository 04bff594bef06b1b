//! Reading, writing and syncing a file, in pieces.
//!
//! One call of the kernel moves one piece or a part of it; then the operation names the next piece.
//! So short reads and writes are not seen above, and one call takes a thread or a ring only for as
//! long as a piece takes.

use super::SendBuf;
use rustix::fd::BorrowedFd;
use rustix::io::Errno;

/// The largest piece, in bytes.
const PIECE_BYTES_MAX: usize = 64 << 10;

/// Reads, writes or syncs a file. It owns the bytes until it is over.
#[derive(Debug)]
pub(crate) enum FileOp {
    Read {
        /// The bytes that were read, and behind them room for the next piece.
        bytes: Vec<u8>,
        read_bytes: usize,
        offset: u64,
        /// The bytes that are still to be read, the piece included.
        left_bytes: usize,
    },
    Write {
        bytes: SendBuf,
        written_bytes: usize,
        offset: u64,
    },
    Sync {
        data_only: bool,
    },
}

/// One call of the kernel.
#[derive(Debug)]
pub(crate) enum Piece<'a> {
    Read(&'a mut [u8], u64),
    Write(&'a [u8], u64),
    Sync { data_only: bool },
}

impl FileOp {
    /// Reads from `offset` until there are `len` bytes, or the file ends.
    pub(crate) fn read(offset: u64, len: usize) -> FileOp {
        FileOp::Read {
            bytes: Vec::new(),
            read_bytes: 0,
            offset,
            left_bytes: len,
        }
    }

    /// Writes all of `bytes` from `offset` on, or at the end of a file that is open to append.
    pub(crate) fn write(offset: u64, bytes: SendBuf) -> FileOp {
        FileOp::Write {
            // A buffer to receive into must not wait for a disk.
            bytes: bytes.into_lasting(),
            written_bytes: 0,
            offset,
        }
    }

    /// Returns the next piece.
    pub(crate) fn piece(&mut self) -> Piece<'_> {
        match self {
            FileOp::Read {
                bytes,
                read_bytes,
                offset,
                left_bytes,
            } => {
                // Memory grows with the bytes that are read: `left_bytes` may be far more.
                let piece = PIECE_BYTES_MAX.min(*left_bytes);
                if *read_bytes < PIECE_BYTES_MAX {
                    // The call behind the last bytes of a small file doubles nothing.
                    bytes.reserve_exact(*read_bytes + piece - bytes.len());
                }
                bytes.resize(*read_bytes + piece, 0);
                Piece::Read(&mut bytes[*read_bytes..], *offset + *read_bytes as u64)
            }
            FileOp::Write {
                bytes,
                written_bytes,
                offset,
            } => {
                let left = &bytes[*written_bytes..];
                let piece = PIECE_BYTES_MAX.min(left.len());
                Piece::Write(&left[..piece], *offset + *written_bytes as u64)
            }
            FileOp::Sync { data_only } => Piece::Sync {
                data_only: *data_only,
            },
        }
    }

    /// Notes that the piece has moved this many bytes. True: the operation is over.
    pub(crate) fn moved(&mut self, moved_bytes: usize) -> Result<bool, Errno> {
        match self {
            FileOp::Read {
                read_bytes,
                left_bytes,
                ..
            } => {
                *read_bytes += moved_bytes;
                *left_bytes -= moved_bytes;
                Ok(moved_bytes == 0 || *left_bytes == 0)
            }
            FileOp::Write {
                bytes,
                written_bytes,
                ..
            } => {
                *written_bytes += moved_bytes;
                let is_over = *written_bytes == bytes.len();
                // A write of 0 bytes is not said to happen; going on could last forever.
                match moved_bytes == 0 && !is_over {
                    true => Err(Errno::IO),
                    false => Ok(is_over),
                }
            }
            FileOp::Sync { .. } => Ok(true),
        }
    }

    /// Returns the bytes that were read.
    pub(crate) fn into_read(self) -> Vec<u8> {
        match self {
            FileOp::Read {
                mut bytes,
                read_bytes,
                ..
            } => {
                bytes.truncate(read_bytes);
                // The caller may keep it.
                if bytes.capacity() > 2 * bytes.len() {
                    bytes.shrink_to_fit();
                }
                bytes
            }
            FileOp::Write { .. } | FileOp::Sync { .. } => Vec::new(),
        }
    }

    /// Returns the number of bytes that were written, and of all.
    pub(crate) fn written(&self) -> Option<(usize, usize)> {
        match self {
            FileOp::Write {
                bytes,
                written_bytes,
                ..
            } => Some((*written_bytes, bytes.len())),
            FileOp::Read { .. } | FileOp::Sync { .. } => None,
        }
    }

    /// Does all pieces, on a thread that may block. A file without a position (a pipe, a terminal)
    /// is read and written as it comes, as a ring does.
    pub(crate) fn block(&mut self, fd: BorrowedFd<'_>) -> Result<(), Errno> {
        loop {
            let moved = match self.piece() {
                Piece::Read(space, offset) => match rustix::io::pread(fd, &mut *space, offset) {
                    Err(Errno::SPIPE) => rustix::io::read(fd, space),
                    read => read,
                },
                Piece::Write(bytes, offset) => match rustix::io::pwrite(fd, bytes, offset) {
                    Err(Errno::SPIPE) => rustix::io::write(fd, bytes),
                    written => written,
                },
                Piece::Sync { data_only: true } => rustix::fs::fdatasync(fd).map(|()| 0),
                Piece::Sync { data_only: false } => rustix::fs::fsync(fd).map(|()| 0),
            };
            match moved {
                Ok(moved_bytes) => {
                    if self.moved(moved_bytes)? {
                        return Ok(());
                    }
                }
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fd::AsFd;

    fn piece(op: &mut FileOp) -> (usize, u64) {
        match op.piece() {
            Piece::Read(space, offset) => (space.len(), offset),
            Piece::Write(bytes, offset) => (bytes.len(), offset),
            Piece::Sync { .. } => (0, 0),
        }
    }

    #[test]
    fn pieces_follow_what_was_moved() {
        let len = PIECE_BYTES_MAX + 10;
        let ops = [
            FileOp::read(100, len),
            FileOp::write(100, vec![0; len].into()),
        ];
        for mut op in ops {
            assert_eq!(piece(&mut op), (PIECE_BYTES_MAX, 100));
            assert_eq!(op.moved(1), Ok(false));
            assert_eq!(piece(&mut op), (PIECE_BYTES_MAX, 101));
            assert_eq!(op.moved(PIECE_BYTES_MAX), Ok(false));
            assert_eq!(piece(&mut op), (9, 101 + PIECE_BYTES_MAX as u64));
            assert_eq!(op.moved(9), Ok(true));
        }
    }

    #[test]
    fn nothing_moved_is_the_end_of_a_read_and_an_error_of_a_write() {
        let mut read = FileOp::read(0, 10);
        assert_eq!(piece(&mut read), (10, 0));
        assert_eq!(read.moved(4), Ok(false));
        assert_eq!(read.moved(0), Ok(true));
        assert_eq!(read.into_read().len(), 4);
        let mut write = FileOp::write(0, "1234".into());
        assert_eq!(write.moved(3), Ok(false));
        assert_eq!(write.moved(0), Err(Errno::IO));
        assert_eq!(write.written(), Some((3, 4)));
        let mut nothing = FileOp::write(0, "".into());
        assert_eq!(piece(&mut nothing), (0, 0));
        assert_eq!(nothing.moved(0), Ok(true));
    }

    /// A read of all there is takes no more memory than that.
    #[test]
    fn memory_grows_with_what_is_read() {
        let mut read = FileOp::read(0, usize::MAX);
        for _ in 0..10 {
            piece(&mut read);
            assert_eq!(read.moved(PIECE_BYTES_MAX), Ok(false));
        }
        piece(&mut read);
        let FileOp::Read { bytes, .. } = &read else {
            unreachable!("it reads");
        };
        assert!(bytes.capacity() <= 22 * PIECE_BYTES_MAX);
    }

    /// Where the caller asks for more than there is.
    #[test]
    fn a_small_file_takes_little_memory() {
        let mut read = FileOp::read(0, 1 << 20);
        piece(&mut read);
        assert_eq!(read.moved(100), Ok(false));
        piece(&mut read);
        let FileOp::Read { bytes, .. } = &read else {
            unreachable!("it reads");
        };
        assert!(bytes.capacity() <= PIECE_BYTES_MAX + 100);
        assert_eq!(read.moved(0), Ok(true));
        let bytes = read.into_read();
        assert_eq!(bytes.len(), 100);
        assert!(bytes.capacity() <= 200);
    }

    #[test]
    fn a_pipe_is_read_and_written_without_offsets() {
        let (reads, writes) = std::io::pipe().unwrap();
        let mut write = FileOp::write(7, "hello".into());
        assert_eq!(write.block(writes.as_fd()), Ok(()));
        drop(writes);
        let mut read = FileOp::read(7, 100);
        assert_eq!(read.block(reads.as_fd()), Ok(()));
        assert_eq!(read.into_read(), b"hello");
    }
}
