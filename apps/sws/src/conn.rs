//! One connection, as a state machine without I/O, cut at the handlers of the paper.
//!
//! ```text
//!  bytes ──> read_request ──> parse_request ──> check_in_cache ──> write_response ──> send
//!                 ▲                ▲   │ bad                            ▲   │
//!                 │ Wait           │   └────────────────────────────────┘   │
//!                 └────────────────┴── more in the buffer, room to send ────┴──> Close | Linger
//! ```
//!
//! Each step handles at most one request and says what comes next, so that each can be an event.
//! At most one request is under way: answers leave in the order of the requests, and a late or
//! doubled step finds nothing to do and says [`Next::Wait`].
//!
//! Backpressure: no request is taken up while [`OUTPUT_BYTES_MAX`] or more are queued for sending,
//! so at most that and one response are. [`Conn::wants_input`] turns false when input piles up
//! meanwhile; then the receive should be stopped, and TCP slows the client down.

use crate::request::{self, Parsed, Request, Scanner};
use crate::respond::{self, Live, Reply};
use crate::site::Site;
use crate::status::Status;
use crate::step::{Deadline, Next, Timer, Unfinished};

/// With this much queued for sending, further requests wait.
pub(crate) const OUTPUT_BYTES_MAX: usize = 256 * 1024;
/// With this much unread input, receiving should stop. More than a whole head, so it cannot be
/// reached unless output is stuck.
pub(crate) const INPUT_PAUSE_BYTES: usize = 64 * 1024;
/// With this much, the connection is dropped. Only a receive that was not stopped gets here: what
/// the runtime still delivers after that, `mely::net::AHEAD_BYTES_MAX` at most, fits in between.
pub(crate) const INPUT_BYTES_MAX: usize = 1024 * 1024;
/// How much is read and thrown away after the last answer, so that the client gets to read it.
pub(crate) const LINGER_BYTES_MAX: usize = 1024 * 1024;
/// An empty buffer larger than this is given back: idle connections are many.
const INPUT_KEEP_BYTES: usize = 4 * 1024;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Open,
    Lingering,
    Closed,
}

/// The state of one connection.
#[derive(Debug, Default)]
pub(crate) struct Conn {
    phase: Phase,
    /// The client has sent all it will.
    ended: bool,
    /// Received bytes; those before `start` are done with.
    input: Vec<u8>,
    start: usize,
    /// Bytes of the last request's body yet to be thrown away.
    body_bytes: usize,
    /// The client is sending something that nobody will read.
    unread: bool,
    /// The server is ending: the next answer is the last.
    last: bool,
    scanner: Scanner,
    /// A ParseRequest has been asked for and not yet run.
    parse_due: bool,
    /// Between ParseRequest and CheckInCache. Its ranges count from `start`.
    request: Option<Request>,
    /// Between CheckInCache and WriteResponse.
    reply: Option<Reply>,
    queued_bytes: usize,
    lingered_bytes: usize,
    answers: u64,
    sends: u64,
    /// How often the client was seen to have taken more.
    taken: u64,
}

impl Conn {
    /// How many answers were given, errors included.
    #[cfg(test)]
    pub(crate) fn answers(&self) -> u64 {
        self.answers
    }

    /// Whether to keep receiving.
    pub(crate) fn wants_input(&self) -> bool {
        match self.phase {
            Phase::Open => !self.ended && self.pending().len() < INPUT_PAUSE_BYTES,
            // Only once the last answer has left: a client that floods must not lose it by that.
            Phase::Lingering => !self.ended && self.queued_bytes == 0,
            Phase::Closed => false,
        }
    }

    /// ReadRequest: takes what has arrived.
    pub(crate) fn read_request(&mut self, bytes: &[u8]) -> Next {
        match self.phase {
            Phase::Open => {}
            Phase::Closed => return Next::Wait,
            Phase::Lingering => {
                self.lingered_bytes += bytes.len();
                return if self.lingered_bytes > LINGER_BYTES_MAX {
                    self.abort()
                } else {
                    Next::Wait
                };
            }
        }
        // The answer under way may be the last one. Then nothing after it is of interest.
        if self.reply.as_ref().is_some_and(|reply| reply.close) {
            self.unread = true;
            return Next::Wait;
        }
        let skipped = self.body_bytes.min(bytes.len());
        self.body_bytes -= skipped;
        let bytes = &bytes[skipped..];
        if self.pending().len() + bytes.len() > INPUT_BYTES_MAX {
            return self.abort();
        }
        // Move what is left to the front only when it is the smaller half: linear in total.
        if self.start > self.input.len() / 2 {
            self.input.drain(..self.start);
            self.start = 0;
        }
        self.input.extend_from_slice(bytes);
        self.parse_if_possible()
    }

    /// ParseRequest: makes one request of the input.
    pub(crate) fn parse_request(&mut self) -> Next {
        self.parse_due = false;
        if !self.can_parse() {
            return Next::Wait;
        }
        let empty = request::empty_lines_bytes(self.pending());
        self.consume(empty);
        let pending = &self.input[self.start..];
        // A lone CR may become an empty line, and then it belongs to no request.
        let parsed = match pending {
            [] | [b'\r'] => Parsed::Incomplete,
            _ => self.scanner.advance(pending),
        };
        match parsed {
            Parsed::Incomplete if self.ended => self.close(),
            Parsed::Incomplete => Next::Wait,
            Parsed::Request(request) => {
                self.scanner = Scanner::default();
                self.request = Some(request);
                Next::CheckInCache
            }
            Parsed::Reject(status) => self.refuse(status),
        }
    }

    /// CheckInCache: finds the answer. `live` renders what is different each time, if asked for.
    pub(crate) fn check_in_cache(
        &mut self,
        site: &Site,
        live: impl FnOnce(Live) -> String,
    ) -> Next {
        let Some(mut request) = self.request.take() else {
            return Next::Wait;
        };
        request.keep_alive &= !self.last;
        self.reply = Some(respond::reply_to(site, self.pending(), &request, live));
        self.consume(request.head_bytes);
        match request.body_bytes {
            None => self.unread = true,
            Some(body_bytes) => {
                let skipped = body_bytes.min(self.pending().len());
                self.body_bytes = body_bytes - skipped;
                self.consume(skipped);
            }
        }
        Next::WriteResponse
    }

    /// WriteResponse: hands out the answer to send; `None` if the connection ended meanwhile.
    pub(crate) fn write_response(&mut self) -> (Option<Reply>, Next) {
        let Some(reply) = self.reply.take() else {
            return (None, Next::Wait);
        };
        self.answers += 1;
        self.queued_bytes += reply.len();
        let next = if reply.close || self.last {
            self.finish()
        } else if self.ended && self.pending().is_empty() {
            self.close()
        } else {
            self.parse_if_possible()
        };
        (Some(reply), next)
    }

    /// `bytes` more of what was queued have left for the client.
    pub(crate) fn on_sent(&mut self, bytes: usize) -> Next {
        debug_assert!(bytes <= self.queued_bytes);
        self.queued_bytes = self.queued_bytes.saturating_sub(bytes);
        self.sends += 1;
        self.parse_if_possible()
    }

    /// The client has taken more of what has left.
    pub(crate) fn on_taken(&mut self) {
        self.taken += 1;
    }

    /// All that was queued has left.
    pub(crate) fn on_drained(&mut self) -> Next {
        self.on_sent(self.queued_bytes)
    }

    /// The client has sent all it will. It may still be reading, so what it asked is answered.
    pub(crate) fn on_eof(&mut self) -> Next {
        self.ended = true;
        match self.phase {
            Phase::Closed => Next::Wait,
            Phase::Lingering => self.close(),
            Phase::Open if self.is_at_work() => Next::Wait,
            Phase::Open if self.pending().is_empty() => self.close(),
            // Requests may be waiting for room; else what is there is half a request, and the next
            // ParseRequest closes.
            Phase::Open => self.parse_if_possible(),
        }
    }

    /// `deadline` has passed. A deadline that no longer applies is ignored.
    pub(crate) fn on_deadline(&mut self, deadline: Deadline) -> Next {
        if deadline != self.timer().deadline {
            return Next::Wait;
        }
        match deadline {
            Deadline::None => Next::Wait,
            Deadline::Idle => self.close(),
            // The request was answered already; only its body never came.
            Deadline::Header if self.body_bytes > 0 => self.close(),
            Deadline::Header => self.refuse(Status::RequestTimeout),
            Deadline::Write | Deadline::Linger => self.abort(),
        }
    }

    /// The server is ending. A request under way is still answered, and that is the last answer. If
    /// there is none, one may have arrived that this does not know of.
    pub(crate) fn wind_down(&mut self) -> Next {
        self.last = true;
        if self.phase != Phase::Open || self.is_at_work() {
            return Next::Wait;
        }
        match self.timer().deadline {
            Deadline::Idle => Next::LastLook,
            // Half a request: the rest of it may come. Not so if only a body is left to skip.
            Deadline::Header if self.body_bytes == 0 => Next::Wait,
            // Half a request behind answers on their way, too, unless there may be a whole one:
            // that was not taken up, and will not be.
            Deadline::Write if !self.pending().is_empty() && self.can_parse() => Next::Wait,
            _ => self.finish(),
        }
    }

    /// All that had arrived when the server was told to end is here: if that is nothing, it is
    /// over.
    pub(crate) fn last_look(&mut self) -> Next {
        let is_idle = !self.is_at_work() && self.timer().deadline == Deadline::Idle;
        if self.phase == Phase::Open && is_idle {
            self.close()
        } else {
            Next::Wait
        }
    }

    /// The deadline that applies now.
    pub(crate) fn timer(&self) -> Timer {
        let (deadline, round) = if self.queued_bytes > 0 {
            (Deadline::Write, self.sends + self.taken)
        } else if self.phase == Phase::Lingering {
            (Deadline::Linger, 0)
        } else if self.phase == Phase::Closed || self.request.is_some() || self.reply.is_some() {
            // A ParseRequest that is due does not count: a client that keeps it due by sending
            // byte after byte must not thereby escape the header deadline.
            (Deadline::None, 0)
        } else if self.body_bytes > 0 || !matches!(self.pending(), [] | [b'\r']) {
            (Deadline::Header, self.answers)
        } else {
            (Deadline::Idle, self.answers + self.taken)
        };
        Timer { deadline, round }
    }

    /// What would be lost if the connection were closed now.
    pub(crate) fn unfinished(&self) -> Option<Unfinished> {
        if self.queued_bytes > 0 || self.request.is_some() || self.reply.is_some() {
            return Some(Unfinished::Answer);
        }
        let begun = self.timer().deadline == Deadline::Header && self.body_bytes == 0;
        (begun || self.parse_due).then_some(Unfinished::Request)
    }

    /// What was handed out and has not left yet, as far as this knows.
    pub(crate) fn queued_bytes(&self) -> usize {
        self.queued_bytes
    }

    fn pending(&self) -> &[u8] {
        &self.input[self.start..]
    }

    /// Whether a step is yet to run that will say what comes next.
    pub(crate) fn is_at_work(&self) -> bool {
        self.parse_due || self.request.is_some() || self.reply.is_some()
    }

    fn can_parse(&self) -> bool {
        self.phase == Phase::Open && !self.is_at_work() && self.queued_bytes < OUTPUT_BYTES_MAX
    }

    fn parse_if_possible(&mut self) -> Next {
        if self.pending().is_empty() || !self.can_parse() {
            return Next::Wait;
        }
        self.parse_due = true;
        Next::ParseRequest
    }

    fn consume(&mut self, bytes: usize) {
        self.start += bytes;
        debug_assert!(self.start <= self.input.len());
        if self.start == self.input.len() {
            self.forget_input();
        }
    }

    fn forget_input(&mut self) {
        self.start = 0;
        if self.input.capacity() > INPUT_KEEP_BYTES {
            self.input = Vec::new();
        } else {
            self.input.clear();
        }
    }

    /// Answers a client beyond the limit, before it has asked. What it sends is thrown away until
    /// it has had time to read the answer.
    pub(crate) fn turn_away(&mut self) -> Next {
        self.unread = true;
        self.refuse(Status::Unavailable)
    }

    /// Makes `status` the last answer. What the client sends from here on is thrown away.
    fn refuse(&mut self, status: Status) -> Next {
        // What is wrong with the rest of it does not change what its client will read.
        let head_only = self.pending().starts_with(b"HEAD ");
        self.reply = Some(respond::refuse(status, head_only));
        Next::WriteResponse
    }

    /// After the last answer.
    fn finish(&mut self) -> Next {
        // With all its input read and none to come, the client gets no reset from a plain close. If
        // it was not the client's wish to end here, more may be on its way.
        let unread = self.unread || self.last || !self.pending().is_empty() || self.body_bytes > 0;
        self.forget_input();
        self.body_bytes = 0;
        self.phase = Phase::Lingering;
        if self.ended || !unread {
            self.close()
        } else {
            Next::Linger
        }
    }

    fn close(&mut self) -> Next {
        self.phase = Phase::Closed;
        self.forget_input();
        Next::Close
    }

    fn abort(&mut self) -> Next {
        let _ = self.close();
        (self.request, self.reply, self.queued_bytes) = (None, None, 0);
        Next::Abort
    }
}
