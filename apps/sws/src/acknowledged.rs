//! What a client has taken of its answers, as its own machine tells ours.

use std::ffi::c_int;

/// Bytes that the kernel has of a connection and that the other machine has not acknowledged
/// (SIOCOUTQ in tcp(7)). `None` where the kernel does not tell.
pub(crate) fn unacknowledged_bytes(fd: i32) -> Option<usize> {
    let mut bytes: c_int = 0;
    // SAFETY: this call writes one int, and that is what it gets. `fd` is a number only: of what is
    // not open, or no connection, the kernel tells nothing.
    let done = unsafe { libc::ioctl(fd, libc::TIOCOUTQ, &mut bytes) };
    (done == 0).then(|| usize::try_from(bytes).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsRawFd;

    #[test]
    fn what_the_client_has_is_not_counted() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        server.set_nonblocking(true).unwrap();
        let mut sent = 0;
        while let Ok(bytes) = server.write(&[7; 65_536]) {
            sent += bytes;
        }
        let stuck = unacknowledged_bytes(server.as_raw_fd()).unwrap();
        assert!(stuck > 0 && stuck < sent, "{stuck} of {sent}");
        client.read_exact(&mut vec![0; sent]).unwrap();
        while unacknowledged_bytes(server.as_raw_fd()) != Some(0) {
            std::thread::yield_now();
        }
        assert_eq!(unacknowledged_bytes(-1), None);
    }
}
