//! The paper's cache: a map from path to prebuilt responses, filled once and only read afterwards.
//!
//! Responses carry no Date. RFC 9110 asks a server with a clock for one, and this is a deliberate
//! omission: a date would make every response either a copy, patched each second, or two sends,
//! while the paper's point (taken from Flash) is that an answer is one buffer that exists before
//! the question. Recipients are told to note the time of receipt where there is no Date, so caches
//! and conditional requests work as well. It also keeps every answer byte-exact for tests.

use std::collections::HashMap;
use std::time::SystemTime;

/// One response on the wire, shared by all who ask.
#[derive(Clone, Debug)]
pub(crate) struct Prebuilt {
    /// Head and body. Leaked: they are there as long as the program, and a reference that is
    /// `'static` costs no count in each answer.
    pub(crate) all: &'static [u8],
    /// Length of the head, which alone answers a HEAD.
    pub(crate) head_bytes: usize,
}

/// A response in the two forms that differ by their Connection field. The body is there twice:
/// memory is cheap beside a second send for every connection's last answer.
#[derive(Clone, Debug)]
pub(crate) struct Forms {
    keep: Prebuilt,
    close: Prebuilt,
}

impl Forms {
    /// The form for a connection that goes on, or for one that ends.
    pub(crate) fn pick(&self, close: bool) -> &Prebuilt {
        if close { &self.close } else { &self.keep }
    }

    /// `head` is the status line and the fields, each with its line end, without Connection.
    fn new(head: &str, body: &[u8]) -> Forms {
        let form = |connection| {
            let head = format!("{head}Connection: {connection}\r\n\r\n");
            Prebuilt {
                all: [head.as_bytes(), body].concat().leak(),
                head_bytes: head.len(),
            }
        };
        Forms {
            keep: form("keep-alive"),
            close: form("close"),
        }
    }
}

/// What is known about one path.
#[derive(Clone, Debug)]
pub(crate) enum Entry {
    /// A file.
    File(File),
    /// A directory named without its slash: 301 to the name with it, so that the relative links of
    /// its index work. The query of the request, meaningless to static files, is not carried over.
    Redirect(Forms),
}

/// A file and its validators.
#[derive(Clone, Debug)]
pub(crate) struct File {
    /// 200 with the body.
    pub(crate) ok: Forms,
    /// 304.
    pub(crate) not_modified: Forms,
    /// The strong entity tag, with its quotes.
    pub(crate) etag: String,
    /// When it last changed, if known, as sent; whole seconds, since HTTP dates have no more.
    pub(crate) modified: Option<(SystemTime, String)>,
}

/// All paths. Keys are as `path::key_of` makes them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Site {
    /// A fast hash will do: the keys are the server's own, and nobody else can add any.
    entries: HashMap<Box<[u8]>, Entry, foldhash::fast::RandomState>,
}

impl Site {
    /// What `key` names.
    pub(crate) fn get(&self, key: &[u8]) -> Option<&Entry> {
        self.entries.get(key)
    }

    /// How many paths there are, redirects included.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Adds a file at `key`. An `index.html` also answers for its directory, with and without the
    /// slash at the end.
    pub(crate) fn add_file(&mut self, key: &str, body: &[u8], modified: Option<SystemTime>) {
        let entry = Entry::File(File::new(content_type(key), body, modified));
        if let Some(directory) = key.strip_suffix("index.html")
            && directory.ends_with('/')
        {
            self.insert(directory, entry.clone());
            if let Some(name @ [_, ..]) = directory.strip_suffix('/').map(str::as_bytes) {
                self.entries.insert(name.into(), redirect_to(directory));
            }
        }
        self.insert(key, entry);
    }

    fn insert(&mut self, key: &str, entry: Entry) {
        self.entries.insert(key.as_bytes().into(), entry);
    }
}

impl File {
    fn new(content_type: &str, body: &[u8], modified: Option<SystemTime>) -> File {
        let etag = etag(body);
        // A file from the future would be one that never changed for any client: not later than now.
        // Nor before the epoch or after the year 9999, which HTTP dates cannot say.
        let modified = modified
            .map(|at| at.clamp(SystemTime::UNIX_EPOCH, SystemTime::now()))
            .map(httpdate::fmt_http_date)
            .and_then(|text| Some((httpdate::parse_http_date(&text).ok()?, text)));
        let mut validators = format!("ETag: {etag}\r\n");
        if let Some((_, text)) = &modified {
            validators += &format!("Last-Modified: {text}\r\n");
        }
        let ok = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: {content_type}\r\nContent-Length: {}\r\n{validators}",
            body.len()
        );
        let not_modified = format!("HTTP/1.1 304 Not Modified\r\n{validators}");
        File {
            ok: Forms::new(&ok, body),
            not_modified: Forms::new(&not_modified, b""),
            etag,
            modified,
        }
    }
}

fn redirect_to(key: &str) -> Entry {
    let location = percent_encode(key);
    let body = format!("301 Moved Permanently: {location}\n");
    let head = format!(
        "HTTP/1.1 301 Moved Permanently\r\nContent-Type: text/plain; charset=utf-8\r\n\
         Content-Length: {}\r\nLocation: {location}\r\n",
        body.len()
    );
    Entry::Redirect(Forms::new(&head, body.as_bytes()))
}

/// Everything but the unreserved characters and the slash, so that a name can add neither a line
/// nor a query to a Location.
fn percent_encode(key: &str) -> String {
    let mut encoded = String::with_capacity(key.len());
    for byte in key.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded += &format!("%{byte:02X}");
        }
    }
    encoded
}

/// A strong tag from the content alone: the same bytes have the same tag on every machine and
/// after every restart. 64-bit FNV-1a and the length are enough against chance, and the content
/// is the operator's own, so nobody gains from making two files collide.
fn etag(body: &[u8]) -> String {
    let hash = body.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    format!("\"{:x}-{hash:016x}\"", body.len())
}

fn content_type(key: &str) -> &'static str {
    let name = key.rsplit('/').next().unwrap_or(key);
    let extension = name.rsplit_once('.').map_or("", |(_, extension)| extension);
    match extension.to_ascii_lowercase().as_str() {
        "html" | "htm" => "text/html; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "js" | "mjs" => "text/javascript; charset=utf-8",
        "txt" | "md" | "log" | "toml" | "rs" => "text/plain; charset=utf-8",
        "csv" => "text/csv; charset=utf-8",
        "xml" => "application/xml",
        "json" | "map" => "application/json",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "jpg" | "jpeg" => "image/jpeg",
        "gif" => "image/gif",
        "webp" => "image/webp",
        "avif" => "image/avif",
        "ico" => "image/x-icon",
        "woff" => "font/woff",
        "woff2" => "font/woff2",
        "ttf" => "font/ttf",
        "otf" => "font/otf",
        "mp3" => "audio/mpeg",
        "ogg" => "audio/ogg",
        "wav" => "audio/wav",
        "mp4" => "video/mp4",
        "webm" => "video/webm",
        "pdf" => "application/pdf",
        "wasm" => "application/wasm",
        "zip" => "application/zip",
        "gz" | "tgz" => "application/gzip",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn text(prebuilt: &Prebuilt) -> &str {
        std::str::from_utf8(prebuilt.all).unwrap()
    }

    fn file<'a>(site: &'a Site, key: &str) -> &'a File {
        match site.get(key.as_bytes()) {
            Some(Entry::File(file)) => file,
            other => panic!("{key}: {other:?}"),
        }
    }

    #[test]
    fn responses_are_byte_exact() {
        let mut site = Site::default();
        let at = SystemTime::UNIX_EPOCH + Duration::from_millis(784_111_777_999);
        site.add_file("/a.txt", b"hello\n", Some(at));
        let file = file(&site, "/a.txt");
        let validators = "ETag: \"6-a9bc80cca21f28b3\"\r\n\
            Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\n";
        let ok = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=utf-8\r\n\
             Content-Length: 6\r\n{validators}Connection: keep-alive\r\n\r\nhello\n"
        );
        assert_eq!(text(file.ok.pick(false)), ok);
        assert_eq!(file.ok.pick(false).head_bytes, ok.len() - 6);
        assert_eq!(text(file.ok.pick(true)), ok.replace("keep-alive", "close"));
        let not_modified =
            format!("HTTP/1.1 304 Not Modified\r\n{validators}Connection: keep-alive\r\n\r\n");
        assert_eq!(text(file.not_modified.pick(false)), not_modified);
    }

    #[test]
    fn an_index_answers_for_its_directory() {
        let mut site = Site::default();
        site.add_file("/index.html", b"root", None);
        site.add_file("/a b/index.html", b"sub", None);
        site.add_file("/notindex.html", b"x", None);
        assert!(text(file(&site, "/").ok.pick(false)).ends_with("\r\n\r\nroot"));
        assert!(text(file(&site, "/a b/").ok.pick(false)).ends_with("\r\n\r\nsub"));
        assert!(text(file(&site, "/a b/index.html").ok.pick(false)).ends_with("\r\n\r\nsub"));
        let Some(Entry::Redirect(forms)) = site.get(b"/a b") else {
            panic!("no redirect")
        };
        let expected = "HTTP/1.1 301 Moved Permanently\r\n\
            Content-Type: text/plain; charset=utf-8\r\nContent-Length: 31\r\n\
            Location: /a%20b/\r\nConnection: keep-alive\r\n\r\n301 Moved Permanently: /a%20b/\n";
        assert_eq!(text(forms.pick(false)), expected);
        assert_eq!(site.len(), 6);
        assert!(site.get(b"").is_none() && site.get(b"/not").is_none());
    }

    #[test]
    fn odd_times_become_dates_that_http_can_say() {
        let before = SystemTime::UNIX_EPOCH - Duration::from_secs(10);
        let after = SystemTime::now() + Duration::from_secs(400 * 365 * 86_400 * 20);
        for (at, expected) in [
            (before, Some("Thu, 01 Jan 1970 00:00:00 GMT")),
            (after, None),
        ] {
            let (time, date) = File::new("x/y", b"", Some(at)).modified.unwrap();
            assert!(time <= SystemTime::now());
            assert!(expected.is_none_or(|expected| expected == date), "{date}");
        }
    }

    #[test]
    fn content_types_go_by_the_last_extension() {
        for (key, expected) in [
            ("/a.HTML", "text/html; charset=utf-8"),
            ("/a.b/c", "application/octet-stream"),
            ("/a.tar.gz", "application/gzip"),
            ("/x.svg", "image/svg+xml"),
        ] {
            assert_eq!(content_type(key), expected, "{key}");
        }
    }
}
