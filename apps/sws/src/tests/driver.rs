//! Drives a connection the way the server does, and notes what a client would see.

use std::time::{Duration, SystemTime};

pub(crate) use super::reference::DATE;
use crate::conn::Conn;
use crate::respond::Reply;
use crate::site::Site;
use crate::step::{Deadline, Next};

/// An answer as it is sent.
pub(crate) fn wire(reply: &Reply) -> Vec<u8> {
    [reply.lead().as_bytes(), DATE, reply.rest.as_ref()].concat()
}

/// How a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// It has not.
    Open,
    /// `Close`, or `Linger`, which differ only in what the kernel does with unread input.
    Closed,
    /// Dropped in mid-air.
    Aborted,
}

/// A connection, its client and all that was sent.
pub(super) struct Driver<'a> {
    pub(super) conn: Conn,
    pub(super) sent: Vec<u8>,
    pub(super) end: End,
    pub(super) lingers: bool,
    /// Whether the client takes what it is sent at once.
    pub(super) drains: bool,
    /// Whether a last look is had at once.
    pub(super) looks: bool,
    site: &'a Site,
}

impl<'a> Driver<'a> {
    pub(super) fn new(site: &'a Site) -> Driver<'a> {
        let (conn, sent) = (Conn::default(), Vec::new());
        Driver {
            conn,
            sent,
            end: End::Open,
            lingers: false,
            drains: true,
            looks: true,
            site,
        }
    }

    pub(super) fn bytes(&mut self, bytes: &[u8]) {
        let next = self.conn.read_request(bytes);
        self.run(next);
    }

    pub(super) fn eof(&mut self) {
        let next = self.conn.on_eof();
        self.run(next);
    }

    pub(super) fn deadline(&mut self, deadline: Deadline) {
        let next = self.conn.on_deadline(deadline);
        self.run(next);
    }

    pub(super) fn wind_down(&mut self) {
        let next = self.conn.wind_down();
        self.run(next);
    }

    pub(super) fn drained(&mut self) {
        let next = self.conn.on_drained();
        self.run(next);
    }

    pub(super) fn last_look(&mut self) {
        let next = self.conn.last_look();
        self.run(next);
    }

    fn run(&mut self, mut next: Next) {
        loop {
            next = match next {
                Next::Wait => break,
                Next::ParseRequest => self.conn.parse_request(),
                Next::CheckInCache => self
                    .conn
                    .check_in_cache(self.site, |_| "<figures>".to_owned()),
                Next::WriteResponse => {
                    let (reply, next) = self.conn.write_response();
                    self.sent.extend(wire(&reply.expect("an answer")));
                    next
                }
                // Unless a test says otherwise, nothing has arrived.
                Next::LastLook if self.looks => self.conn.last_look(),
                Next::LastLook => break,
                Next::Close => {
                    assert_eq!(self.end, End::Open);
                    self.end = End::Closed;
                    break;
                }
                Next::Linger => {
                    assert_eq!(self.end, End::Open);
                    self.lingers = true;
                    break;
                }
                Next::Abort => {
                    self.end = End::Aborted;
                    break;
                }
            };
        }
        if self.drains && self.conn.timer().deadline == Deadline::Write {
            self.drained();
        }
    }

    /// Whether the client knows that there is no more to come.
    pub(super) fn is_over(&self) -> bool {
        self.lingers || self.end != End::Open
    }

    /// What the client has read, and whether it knows that there is no more.
    pub(super) fn outcome(&self) -> (String, bool) {
        (
            String::from_utf8_lossy(&self.sent).into_owned(),
            self.is_over(),
        )
    }
}

/// A small site whose answers the tests know by heart.
pub(super) fn site() -> Site {
    let mut site = Site::default();
    let at = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
    site.add_file("/index.html", b"<p>index\n".to_vec(), Some(at));
    site.add_file("/a.txt", b"hello\n".to_vec(), Some(at));
    site.add_file("/d/index.html", b"<p>d\n".to_vec(), Some(at));
    site.add_file("/a b", b"space".to_vec(), None);
    site.add_file("/etc/passwd", b"public".to_vec(), None);
    site
}
