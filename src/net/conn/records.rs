//! TLS records: received bytes in, plaintext and bytes to send out. It knows no connection.
//!
//! rustls's unbuffered interface decrypts records in the receive buffer, and writes sealed ones into
//! the buffer that is sent. Bytes that rustls has not used up must be given to it again, in front of
//! further ones: they are `input`.

use crate::io::{RecvBuf, SendBuf};
use rustls::client::UnbufferedClientConnection;
use rustls::server::{Acceptor, UnbufferedServerConnection};
use rustls::unbuffered::{
    ConnectionState, EncodeError, EncryptError, UnbufferedStatus, WriteTraffic,
};
use rustls::{AlertDescription, CommonState, Error, InvalidMessage};
use std::fmt;

/// What a record needs beside its payload, at most, in the cipher suites of rustls.
const RECORD_OVERHEAD_BYTES: usize = 32;
/// The payload of a record, at most.
const RECORD_BYTES_MAX: usize = 16 << 10;
/// The most bytes of incomplete handshake messages. rustls limits a message to 64 KiB, but keeps it
/// in the records in which it came, and a peer could pad those to any number of bytes.
const WAITING_BYTES_MAX: usize = 192 << 10;

/// One end of a TLS connection.
pub(crate) struct Records {
    side: Side,
    /// Received, and not used up: the beginning of a record, or what came before the connection was
    /// served.
    input: Vec<u8>,
    /// Decrypted, and not given to the application.
    plain: Vec<u8>,
    /// Reads the client's first message, for the name in it.
    hello: Option<Box<Acceptor>>,
    server_name: Option<String>,
    /// There may be whole records in `input`.
    keeps: bool,
    /// The peer has said that it will send no more; `end_told`: which the caller knows.
    peer_closed: bool,
    end_told: bool,
    /// The end was said, or could not be any more: nothing is sealed.
    is_over: bool,
    /// What has ended it, if that is not told yet.
    failure: Option<Error>,
    /// rustls is not to be asked any more.
    has_failed: bool,
    /// What is still to tell the peer that a write has failed.
    unsent: Vec<u8>,
}

enum Side {
    Server(UnbufferedServerConnection),
    Client(UnbufferedClientConnection),
}

/// What a round is for, beside the bytes received.
#[derive(Clone, Copy)]
enum Wish<'a> {
    Nothing,
    Seal(&'a [u8]),
    Close,
}

/// What a step of rustls's has come to.
enum Step {
    Again,
    PeerClosed,
    /// Nothing more without further bytes; `granted`: the wish is.
    Done {
        granted: bool,
    },
}

/// What received bytes have come to.
#[derive(Debug, Default)]
pub(crate) struct Opened {
    /// At least one byte.
    pub(crate) data: Option<RecvBuf>,
    /// To be sent as they are.
    pub(crate) out: Vec<u8>,
    /// The peer will send no more, or has sent something wrong.
    pub(crate) end: Option<Result<(), Error>>,
}

impl Records {
    pub(crate) fn server(side: UnbufferedServerConnection) -> Records {
        Records {
            hello: Some(Box::default()),
            ..Records::new(Side::Server(side))
        }
    }

    pub(crate) fn client(side: UnbufferedClientConnection) -> Records {
        Records::new(Side::Client(side))
    }

    fn new(side: Side) -> Records {
        Records {
            side,
            input: Vec::new(),
            plain: Vec::new(),
            hello: None,
            server_name: None,
            keeps: false,
            peer_closed: false,
            end_told: false,
            is_over: false,
            failure: None,
            has_failed: false,
            unsent: Vec::new(),
        }
    }

    /// What was negotiated, once the handshake is over.
    pub(crate) fn common(&self) -> &CommonState {
        match &self.side {
            Side::Server(side) => side,
            Side::Client(side) => side,
        }
    }

    /// The name that the client has asked for, at the server.
    pub(crate) fn server_name(&self) -> Option<&str> {
        self.server_name.as_deref()
    }

    /// Whether received bytes, or what has ended the connection, wait for [`open`](Self::open).
    pub(super) fn has_unopened(&self) -> bool {
        self.keeps
            || !self.plain.is_empty()
            || self.peer_closed && !self.end_told
            || self.failure.is_some()
    }

    /// Keeps received bytes for a later [`open`](Self::open). Returns how many are kept.
    pub(super) fn keep(&mut self, bytes: &[u8]) -> usize {
        self.keeps |= !bytes.is_empty();
        self.input.extend_from_slice(bytes);
        self.input.len() + self.plain.len()
    }

    /// Goes on with the handshake. `out` is to be sent in any case. True: it is over, and what was
    /// received behind it is kept.
    pub(super) fn shake_hands(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<bool, Error> {
        self.read_hello(bytes);
        self.input.extend_from_slice(bytes);
        let mut input = std::mem::take(&mut self.input);
        let used = self.go_through(&mut input, out, Wish::Nothing).0;
        input.drain(..used);
        self.input = input;
        if !self.common().is_handshaking() {
            // What is wrong behind it is told to the application.
            self.keeps = !self.input.is_empty();
            return Ok(true);
        }
        match self.failure.take() {
            Some(failure) => Err(failure),
            None if self.peer_closed => Err(Error::AlertReceived(AlertDescription::CloseNotify)),
            None => Ok(false),
        }
    }

    /// Looks for the name that the client asks for.
    fn read_hello(&mut self, mut bytes: &[u8]) {
        let Some(hello) = &mut self.hello else {
            return;
        };
        // It takes some thousand bytes at a time.
        while !bytes.is_empty() {
            let read = hello.read_tls(&mut bytes);
            match read.is_ok_and(|read| read > 0).then(|| hello.accept()) {
                Some(Ok(None)) => continue,
                Some(Ok(Some(accepted))) => {
                    let name = accepted.client_hello().server_name().map(String::from);
                    self.server_name = name;
                }
                // What is wrong is told by the connection itself.
                Some(Err(_)) | None => {}
            }
            self.hello = None;
            return;
        }
    }

    /// Opens the records that were received; after the handshake.
    pub(super) fn open(&mut self, mut data: RecvBuf) -> Opened {
        self.keeps = false;
        let mut out = std::mem::take(&mut self.unsent);
        if self.input.is_empty() {
            let used = self.go_through(&mut data, &mut out, Wish::Nothing).0;
            self.input.extend_from_slice(&data[used..]);
        } else {
            self.input.extend_from_slice(&data);
            let mut input = std::mem::take(&mut self.input);
            let used = self.go_through(&mut input, &mut out, Wish::Nothing).0;
            input.drain(..used);
            // A connection that waits has no memory for what comes.
            if !input.is_empty() {
                self.input = input;
            }
        }
        let plain = std::mem::take(&mut self.plain);
        let data = match data.refill(&plain) {
            _ if plain.is_empty() => None,
            true => Some(data),
            false => Some(RecvBuf::owned(plain)),
        };
        let end = match self.failure.take() {
            Some(failure) => Some(Err(failure)),
            None => self.peer_closed.then_some(Ok(())),
        };
        self.end_told |= end.is_some();
        Opened { data, out, end }
    }

    /// Seals these bytes, a buffer a record: so none is so large that the allocator goes to the
    /// kernel for it. None: nothing can be sent any more.
    pub(super) fn seal_parts<'a>(
        &mut self,
        parts: impl Iterator<Item = &'a [u8]>,
    ) -> Option<Vec<SendBuf>> {
        let mut sealed = Vec::new();
        // The beginning of a record whose rest is in another part.
        let mut begun: Vec<u8> = Vec::new();
        let mut parts = parts.filter(|part| !part.is_empty()).peekable();
        while let Some(mut part) = parts.next() {
            while !part.is_empty() {
                let room = RECORD_BYTES_MAX - begun.len();
                let (now, rest) = part.split_at(part.len().min(room));
                part = rest;
                let is_whole = now.len() == room || parts.peek().is_none();
                if begun.is_empty() && is_whole {
                    sealed.push(self.seal(now)?.into());
                    continue;
                }
                begun.extend_from_slice(now);
                if is_whole {
                    sealed.push(self.seal(&begun)?.into());
                    begun.clear();
                }
            }
        }
        Some(sealed)
    }

    /// Seals these bytes, to be sent as what is returned. None: nothing can be sent any more.
    fn seal(&mut self, bytes: &[u8]) -> Option<Vec<u8>> {
        self.send(Wish::Seal(bytes))
    }

    /// Seals a close_notify, unless the handshake is not over, or the connection has failed; once.
    pub(super) fn close(&mut self) -> Option<Vec<u8>> {
        if self.common().is_handshaking() {
            return None;
        }
        let out = self.send(Wish::Close);
        self.is_over = true;
        out
    }

    fn send(&mut self, wish: Wish<'_>) -> Option<Vec<u8>> {
        if self.is_over {
            return None;
        }
        let mut out = Vec::new();
        let mut input = std::mem::take(&mut self.input);
        let (used, granted) = self.go_through(&mut input, &mut out, wish);
        input.drain(..used);
        self.input = input;
        if !granted {
            // Why is told behind what was received, and to the peer by what is to be sent; but not
            // that all was sent, which rustls says when no more can be sealed.
            if self.failure != Some(Error::EncryptError) {
                self.unsent = out;
            }
            return None;
        }
        Some(out)
    }

    fn fail(&mut self, error: Error) {
        self.is_over = true;
        self.failure = Some(error);
        self.has_failed = true;
    }

    /// Has rustls use up what it can of these bytes, and grants the wish. Returns how many bytes
    /// were used up, and whether the wish is granted; what has failed is kept.
    fn go_through(&mut self, input: &mut [u8], out: &mut Vec<u8>, wish: Wish<'_>) -> (usize, bool) {
        let mut used = 0;
        if self.has_failed {
            return (input.len(), false);
        }
        loop {
            let (input, plain) = (&mut input[used..], &mut self.plain);
            let (discard, step) = match &mut self.side {
                Side::Server(side) => step(side.process_tls_records(input), plain, out, wish),
                Side::Client(side) => step(side.process_tls_records(input), plain, out, wish),
            };
            used += discard;
            match step {
                Ok(Step::Again) if self.has_failed && !self.common().wants_write() => {
                    return (used, false);
                }
                Ok(Step::Again) => {}
                Ok(Step::PeerClosed) => self.peer_closed = true,
                Ok(Step::Done { granted }) => {
                    if self.peer_closed {
                        // What comes behind the end is nothing.
                        used = input.len() + used - discard;
                    } else if input.len() - discard > WAITING_BYTES_MAX {
                        let error = InvalidMessage::HandshakePayloadTooLarge;
                        self.fail(error.into());
                        return (input.len() + used - discard, false);
                    }
                    return (used, granted);
                }
                Err(error) => {
                    // What is left is to tell the peer.
                    self.fail(error);
                    if !self.common().wants_write() {
                        return (used, false);
                    }
                }
            }
        }
    }
}

/// One step: takes what it has, or grants the wish. Returns how many bytes it has used up.
fn step<D>(
    status: UnbufferedStatus<'_, '_, D>,
    plain: &mut Vec<u8>,
    out: &mut Vec<u8>,
    wish: Wish<'_>,
) -> (usize, Result<Step, Error>) {
    let UnbufferedStatus { mut discard, state } = status;
    let state = match state {
        Ok(state) => state,
        Err(error) => return (discard, Err(error)),
    };
    let step = match state {
        ConnectionState::ReadTraffic(mut traffic) => loop {
            match traffic.next_record() {
                None => break Ok(Step::Again),
                Some(Err(error)) => break Err(error),
                Some(Ok(record)) => {
                    discard += record.discard;
                    plain.extend_from_slice(record.payload);
                }
            }
        },
        ConnectionState::EncodeTlsData(mut data) => {
            let encoded = fill(out, 0, |space| match data.encode(space) {
                Err(EncodeError::InsufficientSize(more)) => Err(Some(more.required_size)),
                encoded => encoded.map_err(|_| None),
            });
            match encoded {
                true => Ok(Step::Again),
                false => Err(Error::General(
                    "a handshake message was encoded twice".into(),
                )),
            }
        }
        ConnectionState::TransmitTlsData(data) => {
            data.done();
            Ok(Step::Again)
        }
        ConnectionState::PeerClosed => Ok(Step::PeerClosed),
        ConnectionState::WriteTraffic(traffic) => grant(traffic, out, wish),
        ConnectionState::BlockedHandshake | ConnectionState::Closed => {
            Ok(Step::Done { granted: false })
        }
        // Early data, which no acceptor takes.
        _ => Err(Error::General("a state that was not asked for".into())),
    };
    (discard, step)
}

fn grant<D>(
    mut traffic: WriteTraffic<'_, D>,
    out: &mut Vec<u8>,
    wish: Wish<'_>,
) -> Result<Step, Error> {
    let room = match wish {
        Wish::Nothing => return Ok(Step::Done { granted: true }),
        Wish::Seal(bytes) => {
            let records = bytes.len() / RECORD_BYTES_MAX + 1;
            bytes.len() + records * RECORD_OVERHEAD_BYTES
        }
        Wish::Close => 2 * RECORD_OVERHEAD_BYTES,
    };
    let granted = fill(out, room, |space| {
        let written = match wish {
            Wish::Seal(bytes) => traffic.encrypt(bytes, space),
            Wish::Close | Wish::Nothing => traffic.queue_close_notify(space),
        };
        match written {
            Err(EncryptError::InsufficientSize(more)) => Err(Some(more.required_size)),
            written => written.map_err(|_| None),
        }
    });
    match granted {
        true => Ok(Step::Done { granted }),
        false => Err(Error::EncryptError),
    }
}

/// Appends to `out` what `write` writes into the space that it is given: first so much, then as
/// much as it says that it needs. False: it has failed otherwise.
fn fill(
    out: &mut Vec<u8>,
    room: usize,
    mut write: impl FnMut(&mut [u8]) -> Result<usize, Option<usize>>,
) -> bool {
    let start = out.len();
    if start == 0 {
        // Which may be had as zeroes.
        *out = vec![0; room];
    } else {
        out.resize(start + room, 0);
    }
    let written = match write(&mut out[start..]) {
        Err(Some(needed)) => {
            out.resize(start + needed, 0);
            write(&mut out[start..])
        }
        written => written,
    };
    out.truncate(start + *written.as_ref().unwrap_or(&0));
    written.is_ok()
}

impl fmt::Debug for Records {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Records")
            .field("is_handshaking", &self.common().is_handshaking())
            .field("peer_closed", &self.peer_closed)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rcgen::generate_simple_self_signed;
    use rustls::pki_types::{PrivateKeyDer, ServerName};
    use rustls::{ClientConfig, RootCertStore, ServerConfig};
    use std::sync::Arc;

    /// A server and a client of it.
    fn ends() -> [Records; 2] {
        let made = generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
        let mut roots = RootCertStore::empty();
        roots.add(made.cert.der().clone()).unwrap();
        let server = ServerConfig::builder().with_no_client_auth();
        let server = server.with_single_cert(vec![made.cert.der().clone()], key);
        let client = ClientConfig::builder().with_root_certificates(roots);
        let client = client.with_no_client_auth();
        let name = ServerName::try_from("localhost").unwrap();
        [
            Records::server(UnbufferedServerConnection::new(Arc::new(server.unwrap())).unwrap()),
            Records::client(UnbufferedClientConnection::new(Arc::new(client), name).unwrap()),
        ]
    }

    /// Both after their handshake, whose bytes come in pieces of this length.
    fn shaken(piece_bytes: usize) -> [Records; 2] {
        let mut ends = ends();
        let mut sent = Vec::new();
        assert!(!ends[1].shake_hands(&[], &mut sent).unwrap());
        let mut is_over = [false; 2];
        for round in 0.. {
            let (to, mut out) = (round % 2, Vec::new());
            for piece in sent.chunks(piece_bytes) {
                if is_over[to] {
                    // Tickets behind the handshake.
                    let opened = ends[to].open(RecvBuf::owned(piece.to_vec()));
                    assert!(opened.data.is_none() && opened.end.is_none());
                } else {
                    is_over[to] = ends[to].shake_hands(piece, &mut out).unwrap();
                }
            }
            sent = out;
            if sent.is_empty() {
                break;
            }
        }
        assert_eq!(is_over, [true; 2]);
        assert_eq!(ends[0].server_name(), Some("localhost"));
        ends
    }

    /// Everything that comes of these bytes in pieces of this length.
    fn open(
        end: &mut Records,
        bytes: &[u8],
        piece_bytes: usize,
    ) -> (Vec<u8>, Option<Result<(), Error>>) {
        let (mut plain, mut told) = (Vec::new(), None);
        for piece in bytes.chunks(piece_bytes) {
            let opened = end.open(RecvBuf::owned(piece.to_vec()));
            plain.extend_from_slice(opened.data.as_deref().unwrap_or_default());
            assert!(opened.out.is_empty() || opened.end.is_some());
            told = told.or(opened.end);
        }
        (plain, told)
    }

    #[test]
    fn pieces_of_any_length_come_to_the_same() {
        for piece_bytes in (1..40).chain([100, 1_000, 4_096, 16_384, 100_000]) {
            let mut ends = shaken(piece_bytes);
            for to in [0, 1] {
                let texts = [&b"x"[..], &[7; 300], &[9; 20_000], b""];
                let from = 1 - to;
                let mut sealed = Vec::new();
                for text in texts {
                    sealed.extend(ends[from].seal(text).unwrap());
                }
                let plain = open(&mut ends[to], &sealed, piece_bytes);
                assert_eq!(plain.0, texts.concat());
                assert!(plain.1.is_none());
            }
            let end = ends[0].close().unwrap();
            assert!(ends[0].seal(b"late").is_none() && ends[0].close().is_none());
            let told = open(
                &mut ends[1],
                &[&end[..], b"behind the end"].concat(),
                piece_bytes,
            );
            assert_eq!(told, (Vec::new(), Some(Ok(()))));
            // It may still send.
            let last = ends[1].seal(b"last").unwrap();
            assert_eq!(open(&mut ends[0], &last, piece_bytes).0, b"last");
        }
    }

    /// What was received before the connection was served.
    #[test]
    fn what_is_kept_is_opened_first_and_holds_up_nothing_that_is_sent() {
        let mut ends = shaken(4_096);
        let sealed = [ends[1].seal(b"one").unwrap(), ends[1].seal(b"two").unwrap()].concat();
        assert!(!ends[0].has_unopened());
        ends[0].keep(&sealed[..30]);
        let hello = ends[0].seal(b"hello").unwrap();
        assert_eq!(open(&mut ends[1], &hello, 9).0, b"hello");
        assert!(ends[0].has_unopened());
        assert_eq!(open(&mut ends[0], &sealed[30..], 100).0, b"onetwo");
        assert!(!ends[0].has_unopened());
    }

    /// A message of 64 KiB, a byte a record.
    #[test]
    fn a_message_in_any_number_of_records_takes_no_more_than_its_limit() {
        let [mut server, _] = ends();
        let message = [&[1, 0, 0xff, 0xff], &[0; 65_535][..]].concat();
        let mut told = None;
        for (at, &byte) in message.iter().enumerate() {
            let mut out = Vec::new();
            if let Err(error) = server.shake_hands(&[22, 3, 1, 0, 1, byte], &mut out) {
                told = Some((at, error));
                break;
            }
            assert!(server.input.len() <= WAITING_BYTES_MAX);
        }
        let (at, error) = told.unwrap();
        assert!(at * 6 >= WAITING_BYTES_MAX);
        assert_eq!(error, InvalidMessage::HandshakePayloadTooLarge.into());
    }

    /// Behind the handshake, in one piece with its end.
    #[test]
    fn what_is_wrong_behind_the_handshake_is_no_fault_of_it() {
        let [mut server, mut client] = ends();
        let (mut first, mut second, mut last) = (Vec::new(), Vec::new(), Vec::new());
        client.shake_hands(&[], &mut first).unwrap();
        server.shake_hands(&first, &mut second).unwrap();
        assert!(client.shake_hands(&second, &mut last).unwrap());
        last.extend(client.seal(b"text").unwrap());
        last.extend_from_slice(b"nothing of TLS");
        assert!(server.shake_hands(&last, &mut Vec::new()).unwrap());
        assert!(server.has_unopened());
        let opened = server.open(RecvBuf::end());
        assert_eq!(opened.data.as_deref(), Some(&b"text"[..]));
        assert!(matches!(opened.end, Some(Err(_))));
    }

    /// At each byte of a record.
    #[test]
    fn a_byte_that_was_changed_is_told_once_and_by_an_alert() {
        let len = shaken(4_096)[0].seal(b"text").unwrap().len();
        // The version in its header is not looked at (RFC 8446, section 5.1).
        for at in (0..len).filter(|at| ![1, 2].contains(at)) {
            let mut ends = shaken(4_096);
            let mut sealed = ends[0].seal(b"text").unwrap();
            sealed[at] ^= 0x80;
            // A length that is too great waits for what does not come.
            sealed.extend_from_slice(&[0; 40_000]);
            let opened = ends[1].open(RecvBuf::owned(sealed));
            assert!(opened.data.is_none(), "{at}");
            assert!(matches!(opened.end, Some(Err(_))), "{at}: {opened:?}");
            assert!(!opened.out.is_empty());
            assert!(ends[1].seal(b"text").is_none() && ends[1].close().is_none());
            let again = ends[1].open(RecvBuf::owned(vec![1; 10]));
            assert!(again.data.is_none() && again.out.is_empty() && again.end.is_none());
            let told = open(&mut ends[0], &opened.out, 1_000).1;
            assert!(
                matches!(told, Some(Err(Error::AlertReceived(_)))),
                "{told:?}"
            );
        }
    }
}
