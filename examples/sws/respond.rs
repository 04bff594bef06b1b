//! Which bytes answer a request. Nothing is computed here that could have been at start-up, except
//! whether the client's copy is still good.

use crate::bytes::Bytes;
use crate::request::{Method, Request};
use crate::site::{Entry, File, Forms, Site};
use crate::status::Status;

/// The path of the live figures. It is looked up before the site, which cannot have such a file.
pub(crate) const FIGURES_PATH: &[u8] = b"/_mely";

/// One answer, ready to be sent.
#[derive(Debug)]
pub(crate) struct Reply {
    /// Head and body.
    pub(crate) bytes: Bytes,
    /// Whether the connection ends with it.
    pub(crate) close: bool,
}

/// Answers `request`, whose head is `head`. `figures_page` renders the page of live figures; it is
/// called only if that is what was asked for.
pub(crate) fn reply_to(
    site: &Site,
    head: &[u8],
    request: &Request,
    figures_page: impl FnOnce() -> String,
) -> Reply {
    let head_only = request.method == Method::Head;
    let close = !request.keep_alive;
    let key = match &request.path {
        Ok(path) => path.of(head),
        Err(status) => return error(*status, head_only, close),
    };
    if key == FIGURES_PATH {
        return Reply {
            bytes: Bytes::Owned(live(figures_page(), head_only, close)),
            close,
        };
    }
    let (forms, head_only) = match site.get(key) {
        None => return error(Status::NotFound, head_only, close),
        Some(Entry::Redirect(forms)) => (forms, head_only),
        Some(Entry::File(file)) if is_fresh(file, head, request) => (&file.not_modified, false),
        Some(Entry::File(file)) => (&file.ok, head_only),
    };
    Reply {
        bytes: prebuilt(forms, head_only, close),
        close,
    }
}

/// Answers bytes that are no request, a deadline, or a client too many; always the last answer.
pub(crate) fn refuse(status: Status) -> Reply {
    error(status, false, true)
}

fn error(status: Status, head_only: bool, close: bool) -> Reply {
    let close = close || !status.may_keep_alive();
    Reply {
        bytes: Bytes::Static(status.response(head_only, close)),
        close,
    }
}

fn prebuilt(forms: &Forms, head_only: bool, close: bool) -> Bytes {
    let form = forms.pick(close);
    Bytes::Static(if head_only {
        &form.all[..form.head_bytes]
    } else {
        form.all
    })
}

fn live(page: String, head_only: bool, close: bool) -> Vec<u8> {
    let connection = if close { "close" } else { "keep-alive" };
    let mut bytes = format!(
        "HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {}\r\n\
         Cache-Control: no-store\r\nConnection: {connection}\r\n\r\n",
        page.len()
    );
    if !head_only {
        bytes += &page;
    }
    bytes.into_bytes()
}

/// Whether the client has this very content: by tag if it gave tags, else by date (RFC 9110,
/// section 13.2.2). A date that cannot be read counts as not given.
fn is_fresh(file: &File, head: &[u8], request: &Request) -> bool {
    if let Some(tags) = &request.if_none_match {
        return any_tag_matches(tags.of(head), file.etag.as_bytes());
    }
    let (Some(since), Some((modified, date))) = (&request.if_modified_since, &file.modified) else {
        return false;
    };
    let since = since.of(head);
    // Clients send back what they were given, so most dates need no parsing.
    since == date.as_bytes()
        || std::str::from_utf8(since)
            .ok()
            .and_then(|text| httpdate::parse_http_date(text).ok())
            .is_some_and(|since| *modified <= since)
}

/// Compares weakly, as If-None-Match wants: `W/"x"` matches `"x"`. Reading stops at the first thing
/// that is no tag, for what follows it could be anything.
fn any_tag_matches(list: &[u8], etag: &[u8]) -> bool {
    let mut rest = list.trim_ascii();
    if rest == b"*" {
        return true;
    }
    loop {
        while let [b' ' | b'\t' | b',', after @ ..] = rest {
            rest = after;
        }
        let tag = rest.strip_prefix(b"W/").unwrap_or(rest);
        // A tag may hold commas, so it is its quotes that delimit it.
        let [b'"', inner @ ..] = tag else {
            return false;
        };
        let Some(inner_bytes) = inner.iter().position(|&b| b == b'"') else {
            return false;
        };
        let (tag, after) = tag.split_at(inner_bytes + 2);
        if tag == etag {
            return true;
        }
        rest = after;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::{Parsed, Scanner};
    use std::time::{Duration, SystemTime};

    const DATE: &str = "Sun, 06 Nov 1994 08:49:37 GMT";

    fn site() -> Site {
        let mut site = Site::default();
        let at = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
        site.add_file("/a", b"body", Some(at));
        site.add_file("/d/index.html", b"index", None);
        site
    }

    fn etag() -> String {
        match site().get(b"/a") {
            Some(Entry::File(file)) => file.etag.clone(),
            other => panic!("{other:?}"),
        }
    }

    fn ask(method_and_path: &str, fields: &str) -> String {
        let head = format!("{method_and_path} HTTP/1.1\r\nHost: h\r\n{fields}\r\n");
        let Parsed::Request(request) = Scanner::default().advance(head.as_bytes()) else {
            panic!("{head}")
        };
        let reply = reply_to(&site(), head.as_bytes(), &request, || {
            "<figures>".to_owned()
        });
        let text = String::from_utf8(reply.bytes.as_ref().to_vec()).unwrap();
        assert_eq!(reply.close, text.contains("\r\nConnection: close\r\n"));
        text
    }

    #[test]
    fn head_is_get_without_the_body() {
        for path in ["/a", "/d", "/nope", "/../x"] {
            let get = ask(&format!("GET {path}"), "");
            let head = ask(&format!("HEAD {path}"), "");
            let (expected, body) = get.split_once("\r\n\r\n").unwrap();
            assert_eq!(head, format!("{expected}\r\n\r\n"));
            assert!(!body.is_empty(), "{path}");
        }
    }

    #[test]
    fn tags_win_over_dates_and_compare_weakly() {
        let tag = etag();
        for (fields, fresh) in [
            (format!("If-None-Match: {tag}\r\n"), true),
            (format!("If-None-Match: W/{tag}\r\n"), true),
            (
                format!("If-None-Match: \"x\", W/\"y,z\" ,, {tag}\r\n"),
                true,
            ),
            (
                format!("If-None-Match: \"x\"\r\nIf-None-Match: {tag}\r\n"),
                true,
            ),
            ("If-None-Match: *\r\n".to_owned(), true),
            ("If-None-Match: \"*\"\r\n".to_owned(), false),
            (format!("If-None-Match: \"x{tag}\r\n"), false),
            (format!("If-None-Match: x, {tag}\r\n"), false),
            (
                format!("If-None-Match: {}\r\n", tag.replace('"', "")),
                false,
            ),
            ("If-None-Match:\r\n".to_owned(), false),
            (
                format!("If-None-Match: \"x\"\r\nIf-Modified-Since: {DATE}\r\n"),
                false,
            ),
            (
                format!("If-None-Match: {tag}\r\nIf-Modified-Since: nonsense\r\n"),
                true,
            ),
        ] {
            for method in ["GET", "HEAD"] {
                let answer = ask(&format!("{method} /a"), &fields);
                assert_eq!(
                    answer.starts_with("HTTP/1.1 304 "),
                    fresh,
                    "{fields}\n{answer}"
                );
                assert!(!fresh || answer.ends_with("\r\n\r\n"));
            }
        }
    }

    #[test]
    fn dates() {
        for (date, fresh) in [
            (DATE, true),
            ("Sunday, 06-Nov-94 08:49:37 GMT", true),
            ("Sun Nov  6 08:49:37 1994", true),
            ("Sun, 06 Nov 1994 08:49:38 GMT", true),
            ("Sun, 06 Nov 1994 08:49:36 GMT", false),
            ("yesterday", false),
            ("", false),
        ] {
            let answer = ask("GET /a", &format!("If-Modified-Since: {date}\r\n"));
            assert_eq!(answer.starts_with("HTTP/1.1 304 "), fresh, "{date}");
        }
        // The index has no date, so no date can vouch for a copy of it.
        let answer = ask("GET /d/", &format!("If-Modified-Since: {DATE}\r\n"));
        assert!(answer.starts_with("HTTP/1.1 200 "));
    }

    #[test]
    fn conditions_do_not_touch_what_is_no_file() {
        assert!(ask("GET /nope", "If-None-Match: *\r\n").starts_with("HTTP/1.1 404 "));
        assert!(ask("GET /d", "If-None-Match: *\r\n").starts_with("HTTP/1.1 301 "));
        assert!(ask("GET /_mely", "If-None-Match: *\r\n").ends_with("\r\n\r\n<figures>"));
    }

    #[test]
    fn the_figures_are_rendered_only_for_those_who_ask() {
        let head = b"GET /a HTTP/1.0\r\n\r\n";
        let Parsed::Request(request) = Scanner::default().advance(head) else {
            panic!()
        };
        reply_to(&site(), head, &request, || panic!("rendered"));
        let page = ask("HEAD /_mely?x", "");
        assert!(
            page.contains("\r\nContent-Length: 9\r\nCache-Control: no-store\r\n"),
            "{page}"
        );
    }
}
