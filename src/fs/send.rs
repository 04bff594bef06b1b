//! Sending a file to a connection.
//!
//! For each piece of the file: a read, a write to the stream's queue, and a wait until the queue is
//! empty. So a slow peer keeps one piece in memory. Each step is an event of the stream's color.

use super::file::File;
use crate::ask::{Asked, JoinError, JoinHandle};
use crate::callback::Callback;
use crate::io::SendBuf;
use crate::net::Stream;
use crate::rejected::{Reason, Rejected};
use crate::{Cx, Handler};
use std::io;
use std::ops::Range;

/// The size of a piece, in bytes.
const PIECE_BYTES_MAX: usize = 64 << 10;

/// The handler of its events.
static SEND_FILE: Handler = Handler::new("mely: send file");

/// A file that is being sent.
struct Sending {
    /// Does not own the connection.
    stream: Stream,
    file: File,
    left: Range<u64>,
    sent_bytes: u64,
    /// None once it is settled.
    asked: Option<Asked<io::Result<u64>>>,
}

impl Stream {
    /// Sends the bytes `range` of a file behind the bytes that are queued, or fewer if the file
    /// ends before. Returns the number of bytes that the kernel has taken. The connection stays
    /// open.
    ///
    /// The file is read in pieces of 64 KiB, as by [`File::read_at`], and each piece is written to
    /// the stream once its queue is empty. So a slow peer keeps one piece in memory. (It does not
    /// use sendfile(2), which blocks a thread on a slow disk.) Write nothing to the stream until the
    /// handle has its result: other bytes are sent before the file or between two pieces of it. [`Session::drained`](crate::net::Session::drained) is
    /// called as after other writes.
    ///
    /// [`JoinHandle::cancel`] ends it before its next piece. Dropping the handle does not end it.
    ///
    /// ```
    /// use mely::fs::{Dir, OpenOptions};
    /// use mely::net::{Acceptors, Stream};
    /// use mely::task::with_cx;
    /// use mely::{Color, Cx, Handler, Runtime};
    /// use std::io::{self, Read};
    /// static ACCEPT: Handler = Handler::new("accept");
    ///
    /// async fn send(stream: Stream) -> io::Result<u64> {
    ///     let proc = with_cx(|cx| Dir::open(cx, "/proc/self")).await??;
    ///     let read = OpenOptions::new().read(true);
    ///     let file = with_cx(|cx| proc.open_file(cx, "status", read)).await??;
    ///     with_cx(|cx| stream.send_file(cx, &file, 0..u64::MAX)).await?
    /// }
    ///
    /// let runtime = Runtime::builder().build()?;
    /// let (tell, addr) = std::sync::mpsc::channel();
    /// let client = std::thread::spawn(move || {
    ///     let mut text = String::new();
    ///     std::net::TcpStream::connect(addr.recv().unwrap())?.read_to_string(&mut text)?;
    ///     Ok::<_, io::Error>(text)
    /// });
    /// let sent = runtime.run_until(move |cx, finish| {
    ///     let accepted = ACCEPT.on_each(Color::from(1), move |cx: &mut Cx, incoming: io::Result<_>| {
    ///         let incoming: mely::net::Incoming = incoming.expect("a descriptor");
    ///         let (stream, finish) = (incoming.open_unique(), finish.clone());
    ///         cx.spawn(stream.color(), async move { finish.finish(send(stream).await) });
    ///     });
    ///     let any = "127.0.0.1:0";
    ///     let listener = cx.listen(any, Acceptors::PerCore, accepted).expect("a free port");
    ///     tell.send(listener.local_addr()).unwrap();
    /// })?;
    /// let text = client.join().unwrap()?;
    /// assert!(text.contains("VmRSS:"));
    /// assert_eq!(sent?, text.len() as u64);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`Reason`](crate::Reason) outside the connection's color, as the error's source. An error of
    /// the read, with the file's path: then the connection stays open. An error of the connection;
    /// `NotConnected` if it is closed before all pieces are written.
    pub fn send_file(
        &self,
        cx: &mut Cx,
        file: &File,
        range: Range<u64>,
    ) -> JoinHandle<io::Result<u64>> {
        let (asked, handle) = Asked::new(&cx.worker_ref().inner);
        let mut sending = Sending {
            stream: self.borrowed(),
            file: file.clone(),
            left: range,
            sent_bytes: 0,
            asked: Some(asked),
        };
        match self.queued_bytes(cx) {
            Ok(_) => sending.read(cx),
            Err(reason) => sending.end(Err(io::Error::other(reason))),
        }
        handle
    }
}

impl Sending {
    fn end(&mut self, result: io::Result<u64>) {
        if let Some(mut asked) = self.asked.take() {
            asked.settle(result);
        }
    }

    /// Reads the next piece, unless it was canceled.
    fn read(mut self, cx: &mut Cx) {
        if self.asked.as_ref().is_some_and(Asked::is_canceled) {
            if let Some(mut asked) = self.asked.take() {
                asked.settle_without(JoinError::Canceled);
            }
            return;
        }
        let left = self.left.end.saturating_sub(self.left.start);
        let len = usize::try_from(left).map_or(PIECE_BYTES_MAX, |left| left.min(PIECE_BYTES_MAX));
        if len == 0 {
            let sent_bytes = self.sent_bytes;
            return self.end(Ok(sent_bytes));
        }
        let read = self.file.read_at(cx, self.left.start, len);
        let color = self.stream.color();
        let told = move |cx: &mut Cx, read: Result<io::Result<Vec<u8>>, JoinError>| match read {
            Ok(Ok(bytes)) => self.write(cx, bytes.into()),
            Ok(Err(error)) => self.end(Err(error)),
            Err(error) => self.end(Err(io::Error::other(error))),
        };
        read.then(cx, Callback::new(Some(&SEND_FILE), color, told));
    }

    /// Writes a piece; an empty one is the end of the file.
    fn write(mut self, cx: &mut Cx, bytes: SendBuf) {
        let len = bytes.len() as u64;
        if len == 0 {
            let sent_bytes = self.sent_bytes;
            return self.end(Ok(sent_bytes));
        }
        match self.stream.write_now(cx, bytes) {
            Ok(is_sent) => {
                self.left.start += len;
                self.sent_bytes += len;
                match is_sent {
                    true => self.read(cx),
                    false => self.wait(cx, Sending::read),
                }
            }
            Err(Rejected {
                reason: Reason::NoRoom,
                value,
            }) => self.wait(cx, |this, cx| this.write(cx, value)),
            Err(Rejected { reason, .. }) => self.end(Err(refused(reason))),
        }
    }

    /// Calls `then` once all has been sent that is queued by now.
    fn wait(self, cx: &mut Cx, then: impl FnOnce(Sending, &mut Cx) + Send + 'static) {
        let stream = self.stream.borrowed();
        let mut this = self;
        // If it is refused, or the connection is closed before, the drop of `this` settles.
        let color = stream.color();
        let told = move |cx: &mut Cx, sent: io::Result<()>| match sent {
            Ok(()) => then(this, cx),
            Err(error) => this.end(Err(error)),
        };
        let _ = stream.on_sent(cx, Callback::new(Some(&SEND_FILE), color, told));
    }
}

fn refused(reason: Reason) -> io::Error {
    match reason {
        Reason::Closed => io::ErrorKind::NotConnected.into(),
        reason => io::Error::other(reason),
    }
}

impl Drop for Sending {
    fn drop(&mut self) {
        self.end(Err(io::ErrorKind::NotConnected.into()));
    }
}
