//! The error responses, built once and byte-exact: what a client gets when it does not get a file.

use std::sync::LazyLock;

/// Every way SWS refuses a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    /// 400: the request is malformed or its framing cannot be trusted.
    BadRequest,
    /// 403: the path climbs out of the root.
    Forbidden,
    /// 404: no such path in the map.
    NotFound,
    /// 405: a method that HTTP knows and a static server does not serve.
    MethodNotAllowed,
    /// 408: the header deadline passed in the middle of a request.
    RequestTimeout,
    /// 413: the announced body is larger than what SWS is willing to skip, or of unknown length.
    ContentTooLarge,
    /// 414: the request line is too long.
    UriTooLong,
    /// 431: the header section is too large, or has too many fields.
    HeadersTooLarge,
    /// 501: a method nobody has heard of, or a transfer coding SWS cannot undo.
    NotImplemented,
    /// 503: as many clients as allowed are connected already.
    Unavailable,
    /// 505: neither HTTP/1.0 nor HTTP/1.1.
    VersionUnsupported,
}

/// Both wire forms of one error response.
#[derive(Debug)]
struct Page {
    keep: Prebuilt,
    close: Prebuilt,
}

/// One response on the wire; its first `head_bytes` bytes are what answers a HEAD.
#[derive(Debug)]
struct Prebuilt {
    bytes: Vec<u8>,
    head_bytes: usize,
}

static PAGES: LazyLock<[Page; Status::ALL.len()]> = LazyLock::new(|| {
    Status::ALL.map(|status| Page {
        keep: build(status, "keep-alive"),
        close: build(status, "close"),
    })
});

impl Status {
    /// All of them, in the order of their declaration, so that `status as usize` indexes it.
    pub(crate) const ALL: [Status; 11] = [
        Status::BadRequest,
        Status::Forbidden,
        Status::NotFound,
        Status::MethodNotAllowed,
        Status::RequestTimeout,
        Status::ContentTooLarge,
        Status::UriTooLong,
        Status::HeadersTooLarge,
        Status::NotImplemented,
        Status::Unavailable,
        Status::VersionUnsupported,
    ];

    /// The number on the status line.
    #[cfg(test)]
    pub(crate) fn code(self) -> u16 {
        self.line().0
    }

    /// Whether the connection may go on after this answer. Only where the request was understood
    /// whole: after anything else the next byte cannot be trusted to begin a request.
    pub(crate) fn may_keep_alive(self) -> bool {
        matches!(
            self,
            Status::Forbidden | Status::NotFound | Status::MethodNotAllowed
        )
    }

    /// The response on the wire. `head_only` answers a HEAD; `close` says that the connection ends
    /// with it, which it also does for every status that may not keep it open.
    pub(crate) fn response(self, head_only: bool, close: bool) -> &'static [u8] {
        let page = &PAGES[self as usize];
        let form = if close || !self.may_keep_alive() {
            &page.close
        } else {
            &page.keep
        };
        if head_only {
            &form.bytes[..form.head_bytes]
        } else {
            &form.bytes
        }
    }

    fn line(self) -> (u16, &'static str) {
        match self {
            Status::BadRequest => (400, "Bad Request"),
            Status::Forbidden => (403, "Forbidden"),
            Status::NotFound => (404, "Not Found"),
            Status::MethodNotAllowed => (405, "Method Not Allowed"),
            Status::RequestTimeout => (408, "Request Timeout"),
            Status::ContentTooLarge => (413, "Content Too Large"),
            Status::UriTooLong => (414, "URI Too Long"),
            Status::HeadersTooLarge => (431, "Request Header Fields Too Large"),
            Status::NotImplemented => (501, "Not Implemented"),
            Status::Unavailable => (503, "Service Unavailable"),
            Status::VersionUnsupported => (505, "HTTP Version Not Supported"),
        }
    }
}

fn build(status: Status, connection: &str) -> Prebuilt {
    let (code, reason) = status.line();
    let extra = match status {
        Status::MethodNotAllowed => "Allow: GET, HEAD\r\n",
        // A place frees as soon as a client leaves, so a short wait is honest advice.
        Status::Unavailable => "Retry-After: 1\r\n",
        _ => "",
    };
    let body = format!("{code} {reason}\n");
    let mut bytes = format!(
        "HTTP/1.1 {code} {reason}\r\n\
         Content-Type: text/plain; charset=utf-8\r\n\
         Content-Length: {}\r\n\
         {extra}Connection: {connection}\r\n\r\n",
        body.len()
    )
    .into_bytes();
    let head_bytes = bytes.len();
    bytes.extend_from_slice(body.as_bytes());
    Prebuilt { bytes, head_bytes }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_is_in_declaration_order() {
        for (index, status) in Status::ALL.into_iter().enumerate() {
            assert_eq!(status as usize, index);
        }
    }

    #[test]
    fn not_found_is_byte_exact_in_all_four_forms() {
        let head = |connection| {
            format!(
                "HTTP/1.1 404 Not Found\r\nContent-Type: text/plain; charset=utf-8\r\n\
                 Content-Length: 14\r\nConnection: {connection}\r\n\r\n"
            )
        };
        for (close, connection) in [(false, "keep-alive"), (true, "close")] {
            let head = head(connection);
            assert_eq!(Status::NotFound.response(true, close), head.as_bytes());
            let full = head + "404 Not Found\n";
            assert_eq!(Status::NotFound.response(false, close), full.as_bytes());
        }
    }

    #[test]
    fn method_not_allowed_names_the_allowed_ones() {
        let expected = "HTTP/1.1 405 Method Not Allowed\r\n\
            Content-Type: text/plain; charset=utf-8\r\nContent-Length: 23\r\n\
            Allow: GET, HEAD\r\nConnection: keep-alive\r\n\r\n405 Method Not Allowed\n";
        assert_eq!(
            Status::MethodNotAllowed.response(false, false),
            expected.as_bytes()
        );
    }

    #[test]
    fn statuses_that_end_the_connection_say_so_whatever_was_asked() {
        for status in Status::ALL
            .into_iter()
            .filter(|status| !status.may_keep_alive())
        {
            let text = std::str::from_utf8(status.response(false, false)).unwrap();
            assert!(text.contains("\r\nConnection: close\r\n\r\n"), "{text}");
        }
    }

    #[test]
    fn content_length_is_the_length_of_the_body() {
        for status in Status::ALL {
            let text = std::str::from_utf8(status.response(false, true)).unwrap();
            let (head, body) = text.split_once("\r\n\r\n").unwrap();
            assert!(
                head.contains(&format!("\r\nContent-Length: {}\r\n", body.len())),
                "{text}"
            );
            assert!(
                head.starts_with(&format!("HTTP/1.1 {} ", status.code())),
                "{text}"
            );
        }
    }
}
