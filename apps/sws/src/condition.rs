//! Whether a request is to be answered at all, or its client has the content already, or wants
//! another one than there is: the conditions of RFC 9110, section 13.

use std::time::SystemTime;

use crate::fields::{Conditions, Text};
use crate::site::File;

/// What the conditions of a request come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is to be answered.
    Answer,
    /// The client has the content: 304.
    NotModified,
    /// It is not wanted: 412.
    Failed,
}

/// What the conditions say about `file`, in the order of section 13.2.2. A resource that is no file
/// has no validators.
///
/// Dates that cannot be read, and dates beside a tag condition that wins over them, count as not
/// given.
pub(crate) fn verdict(conditions: &Conditions, head: &[u8], file: Option<&File>) -> Verdict {
    let names = |list: &Text, compare| names_tag(list.of(head), file, compare);
    let changed_since = |date: &Text| changed_since(date.of(head), file);
    let unwanted = match (&conditions.if_match, &conditions.if_unmodified_since) {
        (Some(tags), _) => !names(tags, Compare::Strongly),
        (None, Some(date)) => changed_since(date) == Some(true),
        (None, None) => false,
    };
    if unwanted {
        return Verdict::Failed;
    }
    let known = match (&conditions.if_none_match, &conditions.if_modified_since) {
        (Some(tags), _) => names(tags, Compare::Weakly),
        (None, Some(date)) => changed_since(date) == Some(false),
        (None, None) => false,
    };
    if known {
        Verdict::NotModified
    } else {
        Verdict::Answer
    }
}

/// Whether the file changed after a date; `None` if that cannot be told.
fn changed_since(date: &[u8], file: Option<&File>) -> Option<bool> {
    let (modified, text) = file?.modified.as_ref()?;
    // Clients send back what they were given, so most dates need no parsing.
    if date == text.as_bytes() {
        return Some(false);
    }
    let date: SystemTime = httpdate::parse_http_date(std::str::from_utf8(date).ok()?).ok()?;
    Some(*modified > date)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Compare {
    /// `W/"x"` is no tag of SWS's: they are all strong.
    Strongly,
    /// `W/"x"` is as good as `"x"`.
    Weakly,
}

/// Whether a list of tags has the file's; `*` stands for whatever is there. Reading stops at the
/// first thing that is no tag, for what follows it could be anything.
fn names_tag(list: &[u8], file: Option<&File>, compare: Compare) -> bool {
    let mut rest = list.trim_ascii();
    if rest == b"*" {
        return true;
    }
    let Some(file) = file else { return false };
    loop {
        while let [b' ' | b'\t' | b',', after @ ..] = rest {
            rest = after;
        }
        let tag = rest.strip_prefix(b"W/").unwrap_or(rest);
        let weak = tag.len() < rest.len();
        // A tag may hold commas, so it is its quotes that delimit it.
        let [b'"', inner @ ..] = tag else {
            return false;
        };
        let Some(inner_bytes) = inner.iter().position(|&b| b == b'"') else {
            return false;
        };
        let (tag, after) = tag.split_at(inner_bytes + 2);
        if tag == file.etag.as_bytes() && !(weak && compare == Compare::Strongly) {
            return true;
        }
        rest = after;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::{Parsed, Scanner};
    use crate::site::{Entry, Site};
    use std::time::Duration;

    const DATE: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
    const BEFORE: &str = "Sun, 06 Nov 1994 08:49:36 GMT";
    const AFTER: &str = "Sun, 06 Nov 1994 08:49:38 GMT";

    fn file(modified: bool) -> File {
        let at = SystemTime::UNIX_EPOCH + Duration::from_secs(784_111_777);
        let mut site = Site::default();
        site.add_file("/a", b"body".to_vec(), modified.then_some(at));
        match site.get(b"/a") {
            Some(Entry::File(file)) => file.clone(),
            other => panic!("{other:?}"),
        }
    }

    /// 200, 304 or 412 for these fields, one a line, in which `TAG` is the file's.
    fn told(fields: &str, file: Option<&File>) -> u16 {
        let tag = file.map_or("\"none\"", |file| &file.etag);
        let fields = fields.replace("TAG", tag).replace('\n', "\r\n");
        let head = format!("GET / HTTP/1.1\r\nHost: h\r\n{fields}\r\n\r\n");
        let Parsed::Request(request) = Scanner::default().advance(head.as_bytes()) else {
            panic!("{head}")
        };
        let conditions = request.conditions.expect("some");
        match verdict(&conditions, head.as_bytes(), file) {
            Verdict::Answer => 200,
            Verdict::NotModified => 304,
            Verdict::Failed => 412,
        }
    }

    #[test]
    fn tags_compare_weakly_for_caches_and_strongly_for_the_others() {
        for (list, weakly, strongly) in [
            ("TAG", 304, 200),
            ("W/TAG", 304, 412),
            ("\"x\", W/\"y,z\" ,, TAG", 304, 200),
            ("W/TAG, TAG", 304, 200),
            ("*", 304, 200),
            ("\"*\"", 200, 412),
            ("\"xTAG", 200, 412),
            ("x, TAG", 200, 412),
            ("", 200, 412),
        ] {
            let file = file(true);
            let list = list.replace("xTAG", &format!("x{}", file.etag));
            assert_eq!(
                told(&format!("If-None-Match: {list}"), Some(&file)),
                weakly,
                "{list}"
            );
            assert_eq!(
                told(&format!("If-Match: {list}"), Some(&file)),
                strongly,
                "{list}"
            );
        }
        let file = file(true);
        let bare = file.etag.replace('"', "");
        assert_eq!(told(&format!("If-None-Match: {bare}"), Some(&file)), 200);
        let lines = "If-None-Match: \"x\"\nIf-None-Match: TAG";
        assert_eq!(told(lines, Some(&file)), 304);
    }

    #[test]
    fn dates() {
        for (date, modified_since, unmodified_since) in [
            (DATE, 304, 200),
            ("Sunday, 06-Nov-94 08:49:37 GMT", 304, 200),
            ("Sun Nov  6 08:49:37 1994", 304, 200),
            (AFTER, 304, 200),
            (BEFORE, 200, 412),
            ("yesterday", 200, 200),
            ("", 200, 200),
        ] {
            let file = file(true);
            let field = format!("If-Modified-Since: {date}");
            assert_eq!(told(&field, Some(&file)), modified_since, "{date}");
            let field = format!("If-Unmodified-Since: {date}");
            assert_eq!(told(&field, Some(&file)), unmodified_since, "{date}");
        }
        // Without a date of its own, no date says anything about it.
        for field in ["If-Modified-Since", "If-Unmodified-Since"] {
            for date in [BEFORE, DATE, AFTER] {
                let field = format!("{field}: {date}");
                assert_eq!(told(&field, Some(&file(false))), 200, "{field}");
            }
        }
    }

    #[test]
    fn the_order_is_that_of_the_rfc() {
        let file = file(true);
        for (fields, status) in [
            // A tag wins over the date of its kind, whatever either says.
            (format!("If-Match: TAG\nIf-Unmodified-Since: {BEFORE}"), 200),
            (
                format!("If-Match: \"x\"\nIf-Unmodified-Since: {AFTER}"),
                412,
            ),
            (
                format!("If-None-Match: \"x\"\nIf-Modified-Since: {DATE}"),
                200,
            ),
            (
                "If-None-Match: TAG\nIf-Modified-Since: nonsense".to_owned(),
                304,
            ),
            // What may fail is asked first.
            ("If-None-Match: TAG\nIf-Match: \"x\"".to_owned(), 412),
            ("If-None-Match: TAG\nIf-Match: TAG".to_owned(), 304),
            ("If-None-Match: \"x\"\nIf-Match: *".to_owned(), 200),
            (format!("If-Modified-Since: {DATE}\nIf-Match: TAG"), 304),
            (format!("If-Modified-Since: {DATE}\nIf-Match: W/TAG"), 412),
            (
                format!("If-None-Match: TAG\nIf-Unmodified-Since: {BEFORE}"),
                412,
            ),
            (
                format!("If-None-Match: TAG\nIf-Unmodified-Since: {DATE}"),
                304,
            ),
            (
                format!("If-Modified-Since: {DATE}\nIf-Unmodified-Since: {DATE}"),
                304,
            ),
            (
                format!("If-Modified-Since: {BEFORE}\nIf-Unmodified-Since: {BEFORE}"),
                412,
            ),
        ] {
            assert_eq!(told(&fields, Some(&file)), status, "{fields}");
        }
    }

    #[test]
    fn what_is_no_file_has_no_tag_and_no_date() {
        for (fields, status) in [
            ("If-Match: \"x\"".to_owned(), 412),
            ("If-Match: *".to_owned(), 200),
            ("If-None-Match: \"x\"".to_owned(), 200),
            ("If-None-Match: *".to_owned(), 304),
            (format!("If-Unmodified-Since: {BEFORE}"), 200),
            (format!("If-Modified-Since: {AFTER}"), 200),
        ] {
            assert_eq!(told(&fields, None), status, "{fields}");
        }
    }
}
