//! What answers a request. Nothing is computed here that could have been at start-up, except what
//! the conditions of the request come to.

use crate::bytes::Bytes;
use crate::condition::{self, Verdict};
use crate::request::{Method, Request};
use crate::site::{Entry, File, Site};
use crate::status::Status;

/// The length of what follows [`Status::lead`]: a date of HTTP and the end of its line.
pub(crate) const DATE_BYTES: usize = 31;

/// What is live is not for caches; with the empty line.
const NO_STORE: &str = "Cache-Control: no-store\r\n\r\n";

/// What is not in the site, since it is different each time. These paths are looked up before the
/// site, which cannot have such files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Live {
    /// The page of live figures.
    Page,
    /// What its script asks for, to renew the figures in place.
    Values,
}

impl Live {
    fn at(key: &[u8]) -> Option<Live> {
        // Whatever else is asked for, this is all that it costs.
        match key.strip_prefix(b"/_mely")? {
            b"" => Some(Live::Page),
            b"/values" => Some(Live::Values),
            _ => None,
        }
    }

    fn content_type(self) -> &'static str {
        match self {
            Live::Page => "text/html; charset=utf-8",
            Live::Values => "application/json",
        }
    }
}

/// One answer, all but its date.
#[derive(Debug)]
pub(crate) struct Reply {
    /// Its status.
    pub(crate) status: Status,
    /// Whether the connection ends with it.
    pub(crate) close: bool,
    /// The fields that are not in every answer, the empty line, and the body.
    pub(crate) rest: Bytes,
}

impl Reply {
    /// How many bytes go out.
    pub(crate) fn len(&self) -> usize {
        self.lead().len() + DATE_BYTES + self.rest.len()
    }

    /// What goes out before the date; after it comes `rest`.
    pub(crate) fn lead(&self) -> &'static str {
        self.status.lead(self.close)
    }
}

/// Answers `request`, whose head is `head`. `live` renders what is different each time; it is
/// called only if that is what was asked for.
pub(crate) fn reply_to(
    site: &Site,
    head: &[u8],
    request: &Request,
    live: impl FnOnce(Live) -> String,
) -> Reply {
    let found = match &request.path {
        Ok(path) => find(site, head, path.of(head), request, live),
        Err(status) => Err(*status),
    };
    let (status, rest) = match found {
        Ok((status, rest)) => (status, rest),
        Err(status) => {
            let head_only = request.method == Method::Head;
            let text = status.refusal(head_only);
            (status, Bytes::Static(text.as_bytes()))
        }
    };
    Reply {
        status,
        close: !request.keep_alive || !status.may_keep_alive(),
        rest,
    }
}

/// Answers bytes that are no request, a deadline, or a client too many; always the last answer.
pub(crate) fn refuse(status: Status, head_only: bool) -> Reply {
    Reply {
        status,
        close: true,
        rest: Bytes::Static(status.refusal(head_only).as_bytes()),
    }
}

fn find(
    site: &Site,
    head: &[u8],
    key: &[u8],
    request: &Request,
    live: impl FnOnce(Live) -> String,
) -> Result<(Status, Bytes), Status> {
    let verdict = |file: Option<&File>| match &request.conditions {
        Some(conditions) => condition::verdict(conditions, head, file),
        None => Verdict::Answer,
    };
    let head_only = request.method == Method::Head;
    if let Some(which) = Live::at(key) {
        return match verdict(None) {
            Verdict::Answer => Ok((Status::Ok, figures(which, live(which), head_only))),
            Verdict::NotModified => Ok((Status::NotModified, Bytes::Static(NO_STORE.as_bytes()))),
            Verdict::Failed => Err(Status::PreconditionFailed),
        };
    }
    let file = match site.get(key) {
        None => return Err(Status::NotFound),
        Some(Entry::Redirect(location)) => {
            let rest = redirect(location, request.query(head), head_only);
            return Ok((Status::MovedPermanently, rest));
        }
        Some(Entry::File(file)) => file,
    };
    match verdict(Some(file)) {
        Verdict::Answer => Ok((Status::Ok, Bytes::Static(file.ok(head_only)))),
        Verdict::NotModified => Ok((Status::NotModified, Bytes::Static(file.not_modified()))),
        Verdict::Failed => Err(Status::PreconditionFailed),
    }
}

/// Fields, with the empty line, and the text that they announce.
fn with_text(fields: String, text: &str, head_only: bool) -> Bytes {
    let text = if head_only { "" } else { text };
    Bytes::Owned((fields + text).into_bytes())
}

fn figures(which: Live, text: String, head_only: bool) -> Bytes {
    let (content_type, length) = (which.content_type(), text.len());
    let fields = format!("Content-Type: {content_type}\r\nContent-Length: {length}\r\n{NO_STORE}");
    with_text(fields, &text, head_only)
}

/// To a directory's name with the slash that it lacked, and with the query that was asked for.
fn redirect(location: &str, query: &[u8], head_only: bool) -> Bytes {
    let mut location = location.to_owned();
    for &byte in query {
        // What RFC 3986 allows in a query, and nothing that means something in a header.
        if byte.is_ascii_alphanumeric() || b"-._~!$&'()*+,;=:@/?%".contains(&byte) {
            location.push(char::from(byte));
        } else {
            location += &format!("%{byte:02X}");
        }
    }
    let text = format!("301 Moved Permanently: {location}\n");
    let fields = format!(
        "Content-Type: text/plain; charset=utf-8\r\nContent-Length: {}\r\n\
         Location: {location}\r\n\r\n",
        text.len()
    );
    with_text(fields, &text, head_only)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::{Parsed, Scanner};
    use crate::tests::driver::wire;

    fn site() -> Site {
        let mut site = Site::default();
        site.add_file("/a", b"body".to_vec(), None);
        site.add_file("/d/index.html", b"index".to_vec(), None);
        site
    }

    fn ask(method_and_path: &str, fields: &str) -> String {
        let head = format!("{method_and_path} HTTP/1.1\r\nHost: h\r\n{fields}\r\n");
        let Parsed::Request(request) = Scanner::default().advance(head.as_bytes()) else {
            panic!("{head}")
        };
        let figures = |which| format!("<{which:?}>");
        let reply = reply_to(&site(), head.as_bytes(), &request, figures);
        let text = String::from_utf8(wire(&reply)).unwrap();
        assert_eq!(reply.len(), text.len());
        assert_eq!(reply.close, text.contains("\r\nConnection: close\r\n"));
        text
    }

    #[test]
    fn head_is_get_without_the_body() {
        for path in ["/a", "/d", "/d?x", "/nope", "/../x", "/_mely"] {
            let get = ask(&format!("GET {path}"), "");
            let head = ask(&format!("HEAD {path}"), "");
            let (expected, body) = get.split_once("\r\n\r\n").unwrap();
            assert_eq!(head, format!("{expected}\r\n\r\n"));
            let length = format!("\r\nContent-Length: {}\r\n", body.len());
            assert!(!body.is_empty() && head.contains(&length), "{path}");
        }
        let refused = "If-Match: \"x\"\r\n";
        let head = ask("HEAD /a", refused);
        assert!(head.starts_with("HTTP/1.1 412 ") && head.ends_with("\r\n\r\n"));
        let get = ask("GET /a", refused);
        assert!(get.ends_with("\r\n\r\n412 Precondition Failed\n"), "{get}");
    }

    #[test]
    fn conditions_do_not_touch_what_is_no_200() {
        for condition in ["If-None-Match: *\r\n", "If-Match: \"x\"\r\n"] {
            assert!(ask("GET /nope", condition).starts_with("HTTP/1.1 404 "));
            assert!(ask("GET /d", condition).starts_with("HTTP/1.1 301 "));
            assert!(ask("GET /..", condition).starts_with("HTTP/1.1 403 "));
            assert!(ask("PUT /a", condition).starts_with("HTTP/1.1 405 "));
        }
    }

    #[test]
    fn a_redirect_keeps_the_query_and_lets_nothing_else_through() {
        for (target, location) in [
            ("/d", "/d/"),
            ("/d?", "/d/?"),
            ("/%64?a=b&c=%20/?+", "/d/?a=b&c=%20/?+"),
            ("http://h//d?x", "/d/?x"),
            ("/d?\"<\u{e9}>'", "/d/?%22%3C%C3%A9%3E'"),
        ] {
            let answer = ask(&format!("GET {target}"), "");
            let field = format!("\r\nLocation: {location}\r\n");
            assert!(answer.contains(&field), "{target}: {answer}");
            let text = format!("\r\n\r\n301 Moved Permanently: {location}\n");
            assert!(answer.ends_with(&text), "{target}: {answer}");
        }
    }

    #[test]
    fn the_figures_are_rendered_only_for_those_who_ask() {
        let head = b"GET /a HTTP/1.0\r\n\r\n";
        let Parsed::Request(request) = Scanner::default().advance(head) else {
            panic!()
        };
        reply_to(&site(), head, &request, |_| panic!("rendered"));
        for (path, content_type, text) in [
            ("/_mely?x", "text/html; charset=utf-8", "<Page>"),
            ("/_mely/values", "application/json", "<Values>"),
        ] {
            let page = ask(&format!("GET {path}"), "");
            for expected in [
                format!("\r\nContent-Type: {content_type}\r\n"),
                "\r\nCache-Control: no-store\r\n".to_owned(),
                format!("\r\n\r\n{text}"),
            ] {
                assert!(page.contains(&expected), "{page}");
            }
        }
        assert!(ask("GET /_mely/", "").starts_with("HTTP/1.1 404 "));
    }
}
