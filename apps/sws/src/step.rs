//! What a connection says to whoever drives it: the next step, and the deadline it is under.

/// What to do after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Next {
    /// Nothing until bytes, a drained send or a deadline come.
    Wait,
    /// Call [`crate::conn::Conn::parse_request`].
    ParseRequest,
    /// Call [`crate::conn::Conn::check_in_cache`].
    CheckInCache,
    /// Call [`crate::conn::Conn::write_response`].
    WriteResponse,
    /// Hand over what has arrived, then call [`crate::conn::Conn::last_look`].
    LastLook,
    /// Close once all that was queued has been sent; the write deadline still counts.
    Close,
    /// Once all that was queued has been sent, shut down the sending half and go on passing input
    /// to [`crate::conn::Conn::read_request`], which throws it away. Closing at once would make the
    /// kernel answer the client's unread bytes with a reset, which can destroy the answer on its
    /// way.
    Linger,
    /// Close now, whatever is still queued.
    Abort,
}

/// What a connection is in the middle of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Unfinished {
    /// Some of a request is here.
    Request,
    /// An answer is being made or sent.
    Answer,
}

/// Which deadline a connection is under.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deadline {
    /// None: the server itself is at work, or it is over.
    None,
    /// Nothing has been asked.
    Idle,
    /// A request has begun and is not whole.
    Header,
    /// Something is queued and the client must take it.
    Write,
    /// The last answer is sent and the client should leave.
    Linger,
}

/// A deadline and a number that changes when it starts anew: two equal values mean that no
/// progress was made in between. So one timer a connection is enough, without touching it for each
/// request: when it fires, compare with the value seen when it was set, and either pass the
/// deadline to [`crate::conn::Conn::on_deadline`] or set the timer again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Timer {
    /// What kind it is.
    pub(crate) deadline: Deadline,
    /// Differs between two deadlines of one kind.
    pub(crate) round: u64,
}
