//! The paper's cache: a map from path to what answers it, filled once and only read afterwards.
//!
//! An answer exists before the question, but for the line that says how the connection goes on and
//! the date, which every answer begins with ([`Status::lead`](crate::status::Status::lead)). So
//! there is one copy of each file, whatever is asked for and however.

use std::collections::HashMap;
use std::time::SystemTime;

/// What is known about one path.
#[derive(Clone, Debug)]
pub(crate) enum Entry {
    /// A file.
    File(File),
    /// A directory named without its slash: where it is, percent-encoded. The client is sent there,
    /// so that the relative links of its index work.
    Redirect(String),
}

/// A file and its validators.
#[derive(Clone, Debug)]
pub(crate) struct File {
    /// The fields of a 200 that are not in every answer, the empty line and the content. Leaked:
    /// they are there as long as the program, and a reference that is `'static` costs no count in
    /// each answer.
    all: &'static [u8],
    /// Where the content begins.
    body_at: usize,
    /// Where those fields begin that a 304 has, too.
    validators_at: usize,
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
    pub(crate) fn add_file(&mut self, key: &str, body: Vec<u8>, modified: Option<SystemTime>) {
        let entry = Entry::File(File::new(content_type(key), body, modified));
        if let Some(directory) = key.strip_suffix("index.html")
            && directory.ends_with('/')
        {
            self.insert(directory, entry.clone());
            if let Some(name @ [_, ..]) = directory.strip_suffix('/').map(str::as_bytes) {
                let redirect = Entry::Redirect(percent_encode(directory));
                self.entries.insert(name.into(), redirect);
            }
        }
        self.insert(key, entry);
    }

    fn insert(&mut self, key: &str, entry: Entry) {
        self.entries.insert(key.as_bytes().into(), entry);
    }
}

impl File {
    fn new(content_type: &str, mut body: Vec<u8>, modified: Option<SystemTime>) -> File {
        let etag = etag(&body);
        // A file from the future would be one that never changed for any client: not later than
        // now. Nor before the epoch or after the year 9999, which HTTP dates cannot say.
        let modified = modified
            .map(|at| at.clamp(SystemTime::UNIX_EPOCH, SystemTime::now()))
            .map(httpdate::fmt_http_date)
            .and_then(|text| Some((httpdate::parse_http_date(&text).ok()?, text)));
        let length = body.len();
        let mut fields = format!("Content-Type: {content_type}\r\nContent-Length: {length}\r\n");
        let validators_at = fields.len();
        fields += &format!("ETag: {etag}\r\n");
        if let Some((_, text)) = &modified {
            fields += &format!("Last-Modified: {text}\r\n");
        }
        fields += "\r\n";
        let body_at = fields.len();
        // In place, if there is room: a large file is not to be there twice even for a moment.
        body.splice(0..0, fields.into_bytes());
        File {
            all: body.leak(),
            body_at,
            validators_at,
            etag,
            modified,
        }
    }

    /// What a 200 has after the lines that every answer has; without the body for a HEAD.
    pub(crate) fn ok(&self, head_only: bool) -> &'static [u8] {
        if head_only {
            &self.all[..self.body_at]
        } else {
            self.all
        }
    }

    /// The same of a 304.
    pub(crate) fn not_modified(&self) -> &'static [u8] {
        &self.all[self.validators_at..self.body_at]
    }
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

    fn file<'a>(site: &'a Site, key: &str) -> &'a File {
        match site.get(key.as_bytes()) {
            Some(Entry::File(file)) => file,
            other => panic!("{key}: {other:?}"),
        }
    }

    #[test]
    fn answers_are_byte_exact() {
        let mut site = Site::default();
        let at = SystemTime::UNIX_EPOCH + Duration::from_millis(784_111_777_999);
        site.add_file("/a.txt", b"hello\n".to_vec(), Some(at));
        let file = file(&site, "/a.txt");
        let validators = "ETag: \"6-a9bc80cca21f28b3\"\r\n\
            Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\n\r\n";
        let fields =
            format!("Content-Type: text/plain; charset=utf-8\r\nContent-Length: 6\r\n{validators}");
        assert_eq!(file.ok(true), fields.as_bytes());
        assert_eq!(file.ok(false), (fields + "hello\n").as_bytes());
        assert_eq!(file.not_modified(), validators.as_bytes());
    }

    #[test]
    fn a_body_is_there_once_and_where_it_was_read() {
        let mut body = Vec::with_capacity(1000);
        body.extend_from_slice(b"<p>index");
        let read_at = body.as_ptr();
        let mut site = Site::default();
        site.add_file("/d/index.html", body, None);
        for key in ["/d/", "/d/index.html"] {
            assert_eq!(file(&site, key).ok(false).as_ptr(), read_at, "{key}");
        }
    }

    #[test]
    fn an_index_answers_for_its_directory() {
        let mut site = Site::default();
        site.add_file("/index.html", b"root".to_vec(), None);
        site.add_file("/a b/index.html", b"sub".to_vec(), None);
        site.add_file("/notindex.html", b"x".to_vec(), None);
        for (key, body) in [("/", "root"), ("/a b/", "sub"), ("/a b/index.html", "sub")] {
            assert!(
                file(&site, key).ok(false).ends_with(body.as_bytes()),
                "{key}"
            );
        }
        let Some(Entry::Redirect(location)) = site.get(b"/a b") else {
            panic!("no redirect")
        };
        assert_eq!(location, "/a%20b/");
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
            let (time, date) = File::new("x/y", Vec::new(), Some(at)).modified.unwrap();
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
