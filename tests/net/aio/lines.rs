//! Lines that tasks read.

use super::*;

/// The lines that a task reads of these pieces, and what has no end, or why it goes no further.
fn read(backend: &Backend, pieces: &[&[u8]], line_bytes_max: usize) -> (Vec<String>, String) {
    let (tell, told) = channel();
    let serve = move |cx: &mut Cx, incoming: Incoming| {
        let tell = tell.clone();
        task(cx, incoming, move |mut stream| async move {
            let (mut lines, mut line) = (Vec::new(), Vec::new());
            let text = |line: &Vec<u8>| String::from_utf8(line.clone()).unwrap();
            let end = loop {
                match stream.read_line(&mut line, line_bytes_max).await {
                    Ok(true) => lines.push(text(&line)),
                    Ok(false) => break text(&line),
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::InvalidData);
                        assert!(line.len() <= line_bytes_max + 1);
                        break error.to_string();
                    }
                }
                line.clear();
            };
            tell.send((lines, end)).unwrap();
            // The client has more to send, and is not to be reset.
            stream.read_to_end(&mut line).await.unwrap();
        });
    };
    let (at, pieces) = (backend.clone(), pieces.iter().map(|piece| piece.to_vec()));
    let pieces: Vec<_> = pieces.collect();
    let (got, _) = with_server("lines", on(backend), serve, move |addr| {
        let mut client = Client::connect(&at, addr);
        for piece in pieces {
            client.write_all(&piece).unwrap();
            if !matches!(at, Backend::Sim(_)) {
                // Apart, mostly.
                thread::sleep(Duration::from_millis(1));
            }
        }
        client.shutdown_write();
        told.recv_timeout(LONG).unwrap()
    });
    got
}

#[test]
fn lines_are_read_as_they_come() {
    for backend in all_backends() {
        let pieces: [&[u8]; 6] = [b"one\r\n\ntw", b"o\nthr\ree\r", b"\nf", b"o", b"u\r", b"r"];
        let (lines, end) = read(&backend, &pieces, 80);
        assert_eq!(lines, ["one", "", "two", "thr\ree"]);
        assert_eq!(end, "fou\rr", "it has no end");
        assert_eq!(read(&backend, &[], 80), (vec![], String::new()));
    }
}

/// Exactly the limit, with either end, is a line; one more is an error, with no end in sight too.
#[test]
fn a_line_that_is_too_long_is_an_error() {
    let too_long = "a line is longer than the limit of 4 bytes";
    for backend in all_backends() {
        for long in [
            &b"12345\n"[..],
            b"12345",
            b"123456789",
            b"1234\r5\n",
            b"12345\r\n",
        ] {
            let cuts = [long.len(), 4, 5];
            for cut in cuts.map(|cut| cut.min(long.len())) {
                let pieces = [b"1234\n1234\r\n", &long[..cut], &long[cut..]];
                let (lines, end) = read(&backend, &pieces, 4);
                assert_eq!(lines, ["1234", "1234"]);
                assert_eq!(end, too_long, "{long:?} cut at {cut}");
            }
        }
        // Longer than a stream keeps unread.
        let much = vec![b'x'; UNREAD_BYTES_MAX + 100_000];
        let (lines, end) = read(&backend, &[&much, b"\nnext\n"], usize::MAX);
        assert!(lines[0].len() == much.len() && lines[1..] == ["next"] && end.is_empty());
    }
}

/// A read that is canceled in the middle of a line leaves what it has read.
#[test]
fn a_canceled_read_goes_on() {
    for backend in all_backends() {
        let (tell, told) = channel();
        let serve = move |cx: &mut Cx, incoming: Incoming| {
            let tell = tell.clone();
            task(cx, incoming, move |mut stream| async move {
                let mut line = Vec::new();
                while line != b"begun" {
                    let read = stream.read_line(&mut line, 80);
                    let canceled = mely::task::timeout(Duration::from_millis(1), read).await;
                    assert!(canceled.is_err(), "it has no end yet");
                }
                tell.send(Vec::new()).unwrap();
                assert!(stream.read_line(&mut line, 80).await.unwrap());
                tell.send(line).unwrap();
                let mut body = [0; 3];
                stream.read_exact(&mut body).await.unwrap();
                tell.send(body.to_vec()).unwrap();
            });
        };
        let at = backend.clone();
        with_server("canceled", on(&backend), serve, move |addr| {
            let mut client = Client::connect(&at, addr);
            client.write_all(b"begun").unwrap();
            assert_eq!(told.recv_timeout(LONG).unwrap(), b"");
            client.write_all(b" and ended\r\na\nb").unwrap();
            assert_eq!(told.recv_timeout(LONG).unwrap(), b"begun and ended");
            assert_eq!(told.recv_timeout(LONG).unwrap(), b"a\nb");
        });
    }
}
