//! One client that looks closely.

use rustix::net::{AddressFamily, SocketType, connect, socket, sockopt};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant, SystemTime};

/// How long a client waits for anything: long enough for a machine that is busy with other things.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// An answer as it came.
#[derive(Clone, PartialEq, Eq)]
pub struct Answer {
    pub bytes: Vec<u8>,
    head_bytes: usize,
}

impl Answer {
    pub fn head(&self) -> &str {
        std::str::from_utf8(&self.bytes[..self.head_bytes]).expect("heads are ASCII")
    }

    pub fn body(&self) -> &[u8] {
        &self.bytes[self.head_bytes..]
    }

    pub fn status(&self) -> u16 {
        let number = self.head().strip_prefix("HTTP/1.1 ").map(|rest| &rest[..3]);
        number.and_then(|n| n.parse().ok()).expect("a status line")
    }

    /// The value of a field that is there once.
    pub fn field(&self, name: &str) -> Option<&str> {
        field(self.head(), name)
    }

    /// The answer without its date, as text; its date is that of its time.
    pub fn undated(&self) -> String {
        let date = self.field("Date").expect("every answer has a date");
        let at = httpdate::parse_http_date(date).expect("a date");
        // To the second, and some for a test that was held up since the answer came.
        let age = SystemTime::now().duration_since(at);
        assert!(age.is_ok_and(|age| age < 2 * PATIENCE), "{date}");
        let head = self.head().replacen(&format!("Date: {date}\r\n"), "", 1);
        head + &String::from_utf8_lossy(self.body())
    }

    pub fn closes(&self) -> bool {
        self.field("Connection") == Some("close")
    }
}

impl std::fmt::Debug for Answer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} + {} bytes", self.head(), self.body().len())
    }
}

fn field<'a>(head: &'a str, name: &str) -> Option<&'a str> {
    let mut values = head.split("\r\n").filter_map(|line| {
        let (key, value) = line.split_once(": ")?;
        key.eq_ignore_ascii_case(name).then_some(value)
    });
    let value = values.next();
    assert_eq!(values.next(), None, "two {name} in {head}");
    value
}

/// Where the first answer in `bytes` has its body and its end, once its head is there.
pub fn frame(bytes: &[u8], bodiless: bool) -> Option<(usize, usize)> {
    let head_bytes = bytes.windows(4).position(|end| end == b"\r\n\r\n")? + 4;
    let head = std::str::from_utf8(&bytes[..head_bytes]).expect("heads are ASCII");
    let status = head.strip_prefix("HTTP/1.1 ").map(|rest| &rest[..4]);
    let status = status.unwrap_or_else(|| panic!("{head:?} is no head"));
    let body_bytes = match field(head, "Content-Length") {
        _ if bodiless || status == "304 " => 0,
        Some(length) => length.parse().expect("a length"),
        None => panic!("no length in {head:?}"),
    };
    Some((head_bytes, head_bytes + body_bytes))
}

/// How an answer failed to come.
#[derive(Debug, PartialEq, Eq)]
pub enum Cut {
    /// The connection ended before it began.
    Before,
    /// The connection ended in the middle of it.
    Within(usize),
}

/// A connection.
pub struct Client {
    pub stream: TcpStream,
    input: Vec<u8>,
}

impl Client {
    pub fn connect(addr: SocketAddr) -> Client {
        let stream = TcpStream::connect_timeout(&addr, PATIENCE).expect("the server listens");
        Client::from(stream)
    }

    /// One that lets the kernel keep next to nothing for it, so that the server notices soon when
    /// it does not read.
    pub fn connect_with_little_room(addr: SocketAddr) -> Client {
        let fd = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
        sockopt::set_socket_recv_buffer_size(&fd, 4096).unwrap();
        connect(&fd, &addr).expect("the server listens");
        Client::from(TcpStream::from(fd))
    }

    fn from(stream: TcpStream) -> Client {
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Client {
            stream,
            input: Vec::new(),
        }
    }

    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        let sent = self.stream.write_all(bytes.as_ref());
        sent.expect("the server takes it");
    }

    /// Sends what the server may refuse to take.
    pub fn try_send(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        self.stream.write_all(bytes.as_ref()).is_ok()
    }

    pub fn half_close(&self) {
        self.stream.shutdown(Shutdown::Write).unwrap();
    }

    /// Closes with a reset.
    pub fn reset(self) {
        sockopt::set_socket_linger(&self.stream, Some(Duration::ZERO)).unwrap();
    }

    /// Receives once; false at the end. A reset counts as an end.
    pub fn receive(&mut self) -> bool {
        let mut chunk = [0; 65_536];
        match self.stream.read(&mut chunk) {
            Ok(0) => false,
            Ok(bytes) => {
                self.input.extend_from_slice(&chunk[..bytes]);
                true
            }
            Err(error) if error.kind() == ErrorKind::ConnectionReset => false,
            // With a timeout the kernel does not go on by itself.
            Err(error) if error.kind() == ErrorKind::Interrupted => self.receive(),
            Err(error) => panic!(
                "no answer: {error}; so far {:?}",
                String::from_utf8_lossy(&self.input[..self.input.len().min(300)])
            ),
        }
    }

    /// Bytes received behind the last answer.
    pub fn unread_bytes(&self) -> usize {
        self.input.len()
    }

    /// The next answer, or how the connection ended.
    pub fn try_answer(&mut self, bodiless: bool) -> Result<Answer, Cut> {
        let mut framed = None;
        loop {
            framed = framed.or_else(|| frame(&self.input, bodiless));
            if let Some((head_bytes, end)) = framed
                && self.input.len() >= end
            {
                let rest = self.input.split_off(end);
                let bytes = std::mem::replace(&mut self.input, rest);
                return Ok(Answer { bytes, head_bytes });
            }
            if !self.receive() {
                return Err(match self.input.len() {
                    0 => Cut::Before,
                    bytes => Cut::Within(bytes),
                });
            }
        }
    }

    pub fn answer(&mut self) -> Answer {
        self.try_answer(false).expect("an answer")
    }

    pub fn answer_to_head(&mut self) -> Answer {
        self.try_answer(true).expect("an answer")
    }

    pub fn get(&mut self, path: &str) -> Answer {
        self.send(get(path));
        self.answer()
    }

    /// The server has nothing more to say and closes.
    pub fn ends(&mut self) {
        while self.receive() {}
        let text = String::from_utf8_lossy(&self.input);
        assert_eq!(text, "", "something follows");
    }
}

/// A plain request.
pub fn get(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nHost: h\r\n\r\n")
}

/// A server that answers a client of its own is well, whatever others are doing to it.
pub fn is_served(addr: SocketAddr) {
    let began = Instant::now();
    assert_eq!(Client::connect(addr).get("/").status(), 200);
    // Far more than it takes, far less than any deadline that the server might have waited for.
    let took = began.elapsed();
    assert!(took < Duration::from_secs(5), "it took {took:?}");
}
