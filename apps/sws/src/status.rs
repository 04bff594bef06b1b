//! The status of an answer: the line that it begins with, and the whole of a refusal.

use std::sync::LazyLock;

/// Declares [`Status`] with what is known of each at compile time.
macro_rules! statuses {
    ($($(#[$doc:meta])* $name:ident = $code:literal $reason:literal,)+) => {
        /// Every status that SWS answers with.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Status {
            $($(#[$doc])* $name,)+
        }

        impl Status {
            /// All of them, in the order of their declaration, so that `status as usize` indexes
            /// it.
            pub(crate) const ALL: [Status; [$($code),+].len()] = [$(Status::$name),+];

            /// The number on the status line.
            pub(crate) fn code(self) -> u16 {
                match self { $(Status::$name => $code,)+ }
            }

            fn text(self) -> &'static str {
                match self { $(Status::$name => concat!($code, " ", $reason, "\n"),)+ }
            }
        }

        /// What answers begin with, on connections that go on and on those that end.
        static LEADS: [[&str; 2]; Status::ALL.len()] = [$([
            concat!("HTTP/1.1 ", $code, " ", $reason, "\r\nConnection: keep-alive\r\nDate: "),
            concat!("HTTP/1.1 ", $code, " ", $reason, "\r\nConnection: close\r\nDate: "),
        ]),+];
    };
}

statuses! {
    /// A file, or the live figures.
    Ok = 200 "OK",
    /// A directory was named without its slash.
    MovedPermanently = 301 "Moved Permanently",
    /// The client has this very content.
    NotModified = 304 "Not Modified",
    /// The request is malformed or its framing cannot be trusted.
    BadRequest = 400 "Bad Request",
    /// The path climbs out of the root.
    Forbidden = 403 "Forbidden",
    /// No such path in the map.
    NotFound = 404 "Not Found",
    /// A method that HTTP knows and a static server does not serve.
    MethodNotAllowed = 405 "Method Not Allowed",
    /// The header deadline passed in the middle of a request.
    RequestTimeout = 408 "Request Timeout",
    /// The client wants this content only if it is another one than it is.
    PreconditionFailed = 412 "Precondition Failed",
    /// The announced body is larger than what SWS is willing to skip, or of unknown length.
    ContentTooLarge = 413 "Content Too Large",
    /// The request line is too long.
    UriTooLong = 414 "URI Too Long",
    /// The header section is too large, or has too many fields.
    HeadersTooLarge = 431 "Request Header Fields Too Large",
    /// A method nobody has heard of, or a transfer coding SWS cannot undo.
    NotImplemented = 501 "Not Implemented",
    /// As many clients as there is room for are connected already.
    Unavailable = 503 "Service Unavailable",
    /// Not HTTP/1.
    VersionUnsupported = 505 "HTTP Version Not Supported",
}

/// What a refusal has after the lines that every answer has, and where its body begins.
static REFUSALS: LazyLock<[(String, usize); Status::ALL.len()]> =
    LazyLock::new(|| Status::ALL.map(refusal));

impl Status {
    /// Whether the connection may go on after this answer. Only where the request was understood
    /// whole: after anything else the next byte cannot be trusted to begin a request.
    pub(crate) fn may_keep_alive(self) -> bool {
        matches!(
            self,
            Status::Ok
                | Status::MovedPermanently
                | Status::NotModified
                | Status::Forbidden
                | Status::NotFound
                | Status::MethodNotAllowed
                | Status::PreconditionFailed
        )
    }

    /// What every answer begins with, up to the date.
    pub(crate) fn lead(self, close: bool) -> &'static str {
        LEADS[self as usize][usize::from(close)]
    }

    /// A refusal, after the lines that every answer has; without the body for a HEAD.
    pub(crate) fn refusal(self, head_only: bool) -> &'static str {
        let (text, body_at) = &REFUSALS[self as usize];
        if head_only { &text[..*body_at] } else { text }
    }
}

fn refusal(status: Status) -> (String, usize) {
    let extra = match status {
        Status::MethodNotAllowed => "Allow: GET, HEAD\r\n",
        // A place frees as soon as a client leaves, so a short wait is honest advice.
        Status::Unavailable => "Retry-After: 1\r\n",
        _ => "",
    };
    let body = status.text();
    let length = body.len();
    let fields = format!(
        "Content-Type: text/plain; charset=utf-8\r\nContent-Length: {length}\r\n{extra}\r\n"
    );
    let body_at = fields.len();
    (fields + body, body_at)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_is_in_declaration_order_and_lines_are_exact() {
        for (index, status) in Status::ALL.into_iter().enumerate() {
            assert_eq!(status as usize, index);
            let code = status.code().to_string();
            assert!(status.text().starts_with(&code), "{code}");
        }
        assert_eq!(
            Status::NotFound.lead(false),
            "HTTP/1.1 404 Not Found\r\nConnection: keep-alive\r\nDate: "
        );
        assert_eq!(
            Status::Ok.lead(true),
            "HTTP/1.1 200 OK\r\nConnection: close\r\nDate: "
        );
    }

    #[test]
    fn refusals_are_byte_exact() {
        let plain = "Content-Type: text/plain; charset=utf-8\r\nContent-Length: ";
        for (status, rest) in [
            (Status::NotFound, "14\r\n\r\n"),
            (Status::MethodNotAllowed, "23\r\nAllow: GET, HEAD\r\n\r\n"),
            (Status::Unavailable, "24\r\nRetry-After: 1\r\n\r\n"),
        ] {
            let head = format!("{plain}{rest}");
            assert_eq!(status.refusal(true), head);
            assert_eq!(status.refusal(false), head + status.text());
        }
        assert_eq!(Status::NotFound.text(), "404 Not Found\n");
    }
}
