//! Files that are sent to connections.

use super::{HERE, READ, Scratch, done, pattern};
use crate::common::{Bound, LONG, backends, cores};
use mely::fs::{Dir, File, OpenOptions};
use mely::net::{Acceptors, Backend, Incoming, Stream};
use mely::task::{JoinError, with_cx};
use mely::{Color, Cx, Handler};
use std::io::{self, ErrorKind, Read};
use std::net::TcpStream;
use std::sync::mpsc::channel;
use std::time::Duration;

static ACCEPT: Handler = Handler::new("accept");
const SIZE: usize = 5_000_001;

/// Has a task serve the one client of a server, which has a file open.
fn serve<R, T>(
    backend: Backend,
    client: impl FnOnce(TcpStream) + Send + 'static,
    task: impl Fn(Stream, File) -> R + Clone + Send + Sync + 'static,
) -> T
where
    R: Future<Output = T> + Send + 'static,
    T: Send + 'static,
{
    let scratch = Scratch::all().pop().unwrap();
    std::fs::write(scratch.0.join("file"), pattern(1, 0, SIZE)).unwrap();
    let path = scratch.0.clone();
    let (tell, addr) = channel();
    let clients = std::thread::spawn(move || {
        let stream = TcpStream::connect(addr.recv().unwrap()).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        client(stream);
    });
    let run = cores(2)
        .backend(backend)
        .build()
        .unwrap()
        .run_until(move |cx, finish| {
            let accepted = move |cx: &mut Cx, incoming: io::Result<Incoming>| {
                let stream = incoming.unwrap().open_unique();
                let (task, path, finish) = (task.clone(), path.clone(), finish.clone());
                cx.spawn(stream.color(), async move {
                    let dir = done!(|cx| Dir::open(cx, path)).unwrap();
                    let file = done!(|cx| dir.open_file(cx, "file", READ)).unwrap();
                    finish.finish(task(stream, file).await);
                });
            };
            let any = "127.0.0.1:0";
            let accepted = ACCEPT.on_each(HERE, accepted);
            let listener = cx.listen(any, Acceptors::Single, accepted).unwrap();
            tell.send(listener.local_addr()).unwrap();
        });
    let result = run.unwrap();
    clients.join().unwrap();
    result
}

#[test]
fn a_file_is_sent_whole_and_in_its_place() {
    let _bound = Bound::new("a_file_is_sent_whole");
    for backend in backends() {
        let (tell, got) = channel();
        let client = move |mut stream: TcpStream| {
            let mut all = Vec::new();
            let mut bytes = vec![0; 300_000];
            loop {
                // Slower than the disk.
                std::thread::sleep(Duration::from_millis(1));
                match stream.read(&mut bytes).unwrap() {
                    0 => break,
                    n => all.extend_from_slice(&bytes[..n]),
                }
            }
            tell.send(all).unwrap();
        };
        let sent = serve(backend, client, |stream, file| async move {
            with_cx(|cx| stream.write(cx, "before ")).unwrap();
            let mut sends = with_cx(|cx| stream.send_file(cx, &file, 0..u64::MAX));
            // One piece at most waits for the peer.
            let mut most = 0;
            let sent = loop {
                if let Some(sent) = sends.try_recv() {
                    break sent.unwrap().unwrap();
                }
                most = most.max(with_cx(|cx| stream.queued_bytes(cx)).unwrap());
                mely::task::sleep(Duration::from_micros(200)).await;
            };
            assert!(most <= 64 << 10, "{most}");
            let part = with_cx(|cx| stream.send_file(cx, &file, 8..200_008));
            let part = part.await.unwrap().unwrap();
            let none = done!(|cx| stream.send_file(cx, &file, 7..7)).unwrap();
            let behind = done!(|cx| stream.send_file(cx, &file, 1 << 40..1 << 41)).unwrap();
            with_cx(|cx| stream.write(cx, " after")).unwrap();
            (sent, part, none, behind)
        });
        assert_eq!(sent, (SIZE as u64, 200_000, 0, 0));
        let expected = [
            b"before ",
            &pattern(1, 0, SIZE)[..],
            &pattern(1, 8, 200_000),
            b" after",
        ];
        assert!(got.recv().unwrap() == expected.concat());
    }
}

#[test]
fn a_send_ends_with_its_connection() {
    let _bound = Bound::new("a_send_ends_with_its");
    for backend in backends() {
        // The peer goes away in the middle.
        let client = |mut stream: TcpStream| stream.read_exact(&mut [0; 100_000]).unwrap();
        serve(backend.clone(), client, |stream, file| async move {
            let sent = done!(|cx| stream.send_file(cx, &file, 0..u64::MAX));
            let kind = sent.unwrap_err().kind();
            let kinds = [ErrorKind::ConnectionReset, ErrorKind::BrokenPipe];
            assert!(kinds.contains(&kind), "{kind}");
            let sent = done!(|cx| stream.send_file(cx, &file, 0..10));
            assert_eq!(sent.unwrap_err().kind(), ErrorKind::NotConnected);
        });
        // It is closed here, while the peer does not read.
        let (go, end) = channel::<()>();
        let client = move |stream: TcpStream| {
            let _closed = end.recv();
            drop(stream);
        };
        let go = std::sync::Arc::new(std::sync::Mutex::new(Some(go)));
        serve(backend, client, move |stream, file| {
            let go = go.clone();
            async move {
                let large = with_cx(|cx| stream.send_file(cx, &file, 0..u64::MAX));
                let again = with_cx(|cx| stream.send_file(cx, &file, 0..u64::MAX));
                while with_cx(|cx| stream.queued_bytes(cx)).unwrap() < 50_000 {
                    mely::task::sleep(Duration::from_millis(1)).await;
                }
                with_cx(|cx| stream.abort(cx));
                for sent in [large, again] {
                    assert_eq!(
                        sent.await.unwrap().unwrap_err().kind(),
                        ErrorKind::NotConnected
                    );
                }
                drop(go.lock().unwrap().take());
            }
        });
    }
}

#[test]
fn a_send_is_canceled_between_its_pieces() {
    let _bound = Bound::new("a_send_is_canceled");
    for backend in backends() {
        let (tell, got) = channel();
        let client = move |mut stream: TcpStream| {
            let mut all = Vec::new();
            stream.read_to_end(&mut all).unwrap();
            tell.send(all).unwrap();
        };
        let outcomes = serve(backend, client, |stream, file| async move {
            let sends = with_cx(|cx| stream.send_file(cx, &file, 0..u64::MAX));
            sends.cancel();
            let canceled = sends.await;
            // In another color.
            let (tell, refused) = channel();
            with_cx(|cx| {
                let stream = stream;
                cx.post(Color::from(12_345), move |cx| {
                    let mut sends = stream.send_file(cx, &file, 0..10);
                    tell.send(
                        sends
                            .try_recv()
                            .unwrap()
                            .unwrap()
                            .map_err(|error| error.to_string()),
                    )
                    .unwrap();
                });
                cx.flush();
            });
            let refused = loop {
                match refused.try_recv() {
                    Ok(refused) => break refused,
                    Err(_) => mely::task::sleep(Duration::from_millis(1)).await,
                }
            };
            (
                canceled.map(|sent| sent.map_err(|error| error.to_string())),
                refused,
            )
        });
        assert_eq!(outcomes.0, Err(JoinError::Canceled));
        assert!(outcomes.1.unwrap_err().contains("color"));
        let got = got.recv().unwrap();
        assert!(got.len() <= 64 << 10 && got == pattern(1, 0, got.len()));
    }
}

/// An error of the file is told, with its path, and the connection goes on.
#[test]
fn an_error_of_the_file_leaves_the_connection() {
    let _bound = Bound::new("an_error_of_the_file");
    for backend in backends() {
        let (tell, got) = channel();
        let client = move |mut stream: TcpStream| {
            let mut all = String::new();
            stream.read_to_string(&mut all).unwrap();
            tell.send(all).unwrap();
        };
        serve(backend, client, |stream, file| async move {
            let above = file.path().parent().unwrap().to_owned();
            let dir = done!(|cx| Dir::open(cx, above)).unwrap();
            let write = OpenOptions::new().write(true);
            let file = done!(|cx| dir.open_file(cx, "file", write)).unwrap();
            let error = done!(|cx| stream.send_file(cx, &file, 0..10)).unwrap_err();
            assert!(error.to_string().contains("/file: "), "{error}");
            with_cx(|cx| stream.write(cx, "sorry")).unwrap();
        });
        assert_eq!(got.recv().unwrap(), "sorry");
    }
}
