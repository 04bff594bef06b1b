//! Recordings made by hand, and what holds of any bytes.
#![allow(dead_code, reason = "each test file takes what it needs")]
#![allow(unreachable_pub, reason = "a module of each test program")]

use mely_recording::format::{
    Cause, Color, ColorKind, Definition, End, Ended, Header, LogId, Page, Record,
};
use mely_recording::{Recording, Timeline};

/// A file that is being made.
pub struct Made {
    bytes: Vec<u8>,
    pages: u64,
}

impl Made {
    /// With this many cores.
    pub fn new(cores: usize) -> Made {
        let header = Header {
            cores,
            stealing: "locality".to_owned(),
            batch: 10,
            ..Header::default()
        };
        Made {
            bytes: header.to_bytes(),
            pages: 0,
        }
    }

    /// A page.
    pub fn page(mut self, log: LogId, from_ns: u64, records: &[Record]) -> Made {
        let mut page = Page::new();
        records.iter().for_each(|record| page.put(record));
        self.bytes.extend_from_slice(page.close(log, from_ns));
        self.pages += 1;
        self
    }

    /// The file, as long as it is.
    pub fn cut(self) -> Vec<u8> {
        self.bytes
    }

    /// The file, with the page that says how it ended.
    pub fn end(self) -> Vec<u8> {
        let pages = self.pages;
        self.ended(End {
            why: Ended::WithTheRun,
            at_ns: 1_000_000,
            pages,
            cores_left: 0,
        })
    }

    pub fn ended(mut self, end: End) -> Vec<u8> {
        self.bytes.extend_from_slice(&end.to_bytes());
        self.bytes
    }
}

pub fn define(profile: u32, name: &str) -> Record {
    Record::Define {
        profile,
        definition: Definition {
            name: name.to_owned(),
            is_handler: true,
            time_ns: 0,
            penalty: 1,
            working_set_bytes: None,
        },
    }
}

pub fn color(value: u64) -> Color {
    let kind = ColorKind::Given;
    Color { kind, value }
}

pub fn begin(profile: u32, value: u64, cause: Cause) -> Record {
    Record::Begin {
        profile,
        color: color(value),
        cause,
        gap_ns: 100,
    }
}

pub const OVER: Record = Record::End {
    took_ns: 1_000,
    panicked: false,
    waits: false,
};

pub fn post(profile: u32, value: u64) -> Record {
    Record::Post {
        profile,
        color: Some(color(value)),
        after_ns: None,
    }
}

pub fn arrival(profile: u32, value: u64) -> Record {
    Record::Arrival {
        profile,
        color: color(value),
        gap_ns: 10,
    }
}

/// A file whose pages have these bytes, so that most of what is read are records. Each page begins
/// with a byte for its log and one for its length.
pub fn of_pages(mut bytes: &[u8]) -> Vec<u8> {
    let mut made = Made::new(3);
    while let [log, len, rest @ ..] = bytes {
        let log = match log % 5 {
            4 => LogId::outside(0),
            core => LogId::core(usize::from(core)),
        };
        let (records, rest) = rest.split_at(rest.len().min(usize::from(*len)));
        // The header that `Page` would have written, and these bytes.
        let mut page = Page::new().close(log, 0).to_vec();
        page[..4].copy_from_slice(&(records.len() as u32).to_le_bytes());
        made.bytes.extend(page);
        made.bytes.extend(records);
        made.pages += 1;
        bytes = rest;
    }
    made.end()
}

/// What holds of any bytes: they are read, or there is a sentence; and what is read is sound.
pub fn assert_sound(bytes: &[u8]) {
    let whole = Recording::read(bytes);
    let rest = Recording::read_what_is_there(bytes);
    if let Err(error) = &whole {
        let text = error.to_string();
        assert!(!text.is_empty() && !text.contains('\n'), "{text}");
    }
    if let Ok(whole) = &whole {
        let rest = rest.as_ref().expect("what can be read whole can be read");
        assert_eq!(whole.events.len(), rest.events.len());
        assert!(whole.end.is_some());
    }
    let Ok(recording) = whole.or(rest) else {
        return;
    };
    let mut posts = 0;
    for (place, event) in recording.events.iter().enumerate() {
        assert!(event.core < recording.header.cores);
        assert!(event.end_ns() <= recording.last_ns);
        posts += recording.posts_of(event).len();
        if let Some(cause) = event.cause {
            let post = &recording[cause];
            assert_eq!(post.event.map(|event| event.index()), Some(place));
            assert!(post.color == event.color && !post.refused);
            assert!((post.earliest_ns..=post.latest_ns).contains(&post.at_ns));
        }
        let _ = recording.poster(event);
    }
    assert!(posts <= recording.posts.len());
    assert!(recording.events.is_sorted_by_key(|event| event.begin_ns));
    let text = recording.summary().to_string();
    assert!(!text.contains("NaN") && !text.contains("inf%"), "{text}");
    for arrows in [false, true] {
        let mut options = Timeline::default();
        options.posts = arrows;
        let mut json = Vec::new();
        recording.timeline(options, &mut json).unwrap();
        serde_json::from_slice::<serde_json::Value>(&json).unwrap();
    }
}

pub const CORE_0: LogId = LogId::core(0);
pub const CORE_1: LogId = LogId::core(1);
