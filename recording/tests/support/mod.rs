//! Recordings made by hand.
#![allow(dead_code, reason = "each test file takes what it needs")]
#![allow(unreachable_pub, reason = "a module of each test program")]

use mely_recording::format::{
    Cause, Color, ColorKind, Definition, End, Ended, Header, LogId, Page, Record,
};

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
            touches_bytes: None,
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

pub const CORE_0: LogId = LogId::core(0);
pub const CORE_1: LogId = LogId::core(1);
