//! Lines of memory, by name and by address.
//!
//! A line is known by its region, an index in that region, and how far into the object it is; and
//! inside the hardware by a number. Addresses lead to these numbers and decide nothing else: where
//! the system puts memory that is named changes no result. What nobody named is numbered as it is
//! first touched, and which of it shares a line is the allocator's choice.

use std::collections::HashMap;
use std::fmt;
use std::hash::{BuildHasherDefault, Hasher};

/// Bytes of a unit, as a power of two: where an object may begin. One that is named begins a line,
/// whatever the allocator put beside it.
const UNIT_LOG: u32 = 4;
/// Units of a line, and of a page, as powers of two.
const LINE_LOG: u32 = 2;
const PAGE_LOG: u32 = 8;
const PAGE_UNITS: usize = 1 << PAGE_LOG;
/// Entries of the table of what was found last.
const RECENT: usize = 1024;

/// Where no line was touched yet.
const UNSEEN: u32 = u32::MAX;

/// What a line is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Name {
    pub(crate) region: u32,
    pub(crate) index: u32,
    pub(crate) line: u32,
}

/// A multiplication is enough for what are page numbers.
#[derive(Default)]
pub(crate) struct PageHasher(u64);

impl Hasher for PageHasher {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, _bytes: &[u8]) {
        unreachable!("pages are numbers");
    }
    fn write_usize(&mut self, page: usize) {
        self.0 = (page as u64)
            .wrapping_mul(0x9E37_79B9_7F4A_7C15)
            .rotate_left(26);
    }
}

/// See the module text.
pub(crate) struct Names {
    pages: Vec<[u32; PAGE_UNITS]>,
    by_page: HashMap<usize, u32, BuildHasherDefault<PageHasher>>,
    /// Pages that were found last, and where they are.
    recent: Box<[(usize, u32)]>,
    regions: Vec<String>,
    /// Of each region.
    next_index: Vec<u32>,
    names: Vec<Name>,
    unnamed: u32,
}

impl fmt::Debug for Names {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Names")
            .field("lines", &self.names.len())
            .finish_non_exhaustive()
    }
}

/// The region of what nobody named.
const UNNAMED: u32 = 0;

impl Names {
    pub(crate) fn new() -> Names {
        Names {
            pages: Vec::new(),
            by_page: HashMap::default(),
            recent: vec![(usize::MAX, 0); RECENT].into(),
            regions: vec!["unnamed".to_owned()],
            next_index: vec![0],
            names: Vec::new(),
            unnamed: 0,
        }
    }

    /// How many lines there are.
    pub(crate) fn len(&self) -> usize {
        self.names.len()
    }

    /// The number of the line at an address.
    #[inline]
    pub(crate) fn at(&mut self, address: usize) -> u32 {
        let unit = address >> UNIT_LOG;
        let (page, within) = (unit >> PAGE_LOG, unit % PAGE_UNITS);
        let (recent, at) = self.recent[page % RECENT];
        let at = if recent == page { at } else { self.page(page) };
        let number = self.pages[at as usize][within];
        if number == UNSEEN {
            return self.first_touch(at, within);
        }
        number
    }

    #[cold]
    fn first_touch(&mut self, at: u32, within: usize) -> u32 {
        let name = Name {
            region: UNNAMED,
            index: self.unnamed,
            line: 0,
        };
        self.unnamed += 1;
        let number = self.add(name);
        // What lies beside it in memory is not known: a number that is nobody's keeps others from
        // seeming to.
        self.add(name);
        // The rest of the line, as far as nothing in it is named.
        let first = within >> LINE_LOG << LINE_LOG;
        for unit in &mut self.pages[at as usize][first..first + (1 << LINE_LOG)] {
            if *unit == UNSEEN {
                *unit = number;
            }
        }
        number
    }

    fn add(&mut self, name: Name) -> u32 {
        let number = self.names.len() as u32;
        self.names.push(name);
        number
    }

    fn page(&mut self, page: usize) -> u32 {
        let pages = &mut self.pages;
        let at = *self.by_page.entry(page).or_insert_with(|| {
            pages.push([UNSEEN; PAGE_UNITS]);
            (pages.len() - 1) as u32
        });
        self.recent[page % RECENT] = (page, at);
        at
    }

    /// Names the lines of an object: by its region, and its index in there. The object begins a
    /// line; one that was named before keeps its lines, as far as they go.
    pub(crate) fn name(&mut self, address: usize, bytes: usize, region: &str, index: u32) {
        let region = self.region(region);
        let first = address >> UNIT_LOG;
        let last = (address + bytes.max(1) - 1) >> UNIT_LOG;
        let mut number = UNSEEN;
        for unit in first..=last {
            let name = Name {
                region,
                index,
                line: ((unit - first) >> LINE_LOG) as u32,
            };
            let (page, within) = (unit >> PAGE_LOG, unit % PAGE_UNITS);
            let at = self.page(page) as usize;
            if (unit - first).is_multiple_of(1 << LINE_LOG) {
                let known = self.pages[at][within];
                let is_its = known != UNSEEN && self.names[known as usize].region != UNNAMED;
                number = if is_its { known } else { self.add(name) };
                self.names[number as usize] = name;
            }
            self.pages[at][within] = number;
        }
    }

    fn region(&mut self, name: &str) -> u32 {
        let known = self.regions.iter().rposition(|its| its == name);
        let at = known.unwrap_or_else(|| {
            self.regions.push(name.to_owned());
            self.next_index.push(0);
            self.regions.len() - 1
        });
        at as u32
    }

    /// An index in a region that this has not returned before.
    pub(crate) fn next_index(&mut self, region: &str) -> u32 {
        let region = self.region(region);
        let next = &mut self.next_index[region as usize];
        *next += 1;
        *next - 1
    }

    pub(crate) fn name_of(&self, line: u32) -> Name {
        self.names[line as usize]
    }

    pub(crate) fn region_name(&self, region: u32) -> &str {
        &self.regions[region as usize]
    }

    /// `hint[3].0`.
    pub(crate) fn text(&self, line: u32) -> String {
        let Name {
            region,
            index,
            line,
        } = self.name_of(line);
        format!("{}[{index}].{line}", self.region_name(region))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_known_by_its_name_and_not_by_its_address() {
        let numbers = |base: usize| {
            let mut names = Names::new();
            names.name(base, 130, "queue", 7);
            let touched = [base + 129, base + 0x9_0000, base, base + 64, base + 127];
            let numbers = touched.map(|address| names.at(address));
            (numbers, numbers.map(|number| names.text(number)))
        };
        let (numbers, texts) = (numbers(0x7000_0000), numbers(0x1234_5000));
        assert_eq!(numbers, texts);
        assert_eq!(numbers.0, [2, 3, 0, 1, 1]);
        let expected = [
            "queue[7].2",
            "unnamed[0].0",
            "queue[7].0",
            "queue[7].1",
            "queue[7].1",
        ];
        assert_eq!(texts.1, expected.map(str::to_owned));
    }

    #[test]
    fn the_last_name_counts() {
        let mut names = Names::new();
        names.name(0x4fc0, 128, "all", 0);
        let line = names.at(0x5000);
        assert_eq!(names.text(line), "all[0].1");
        names.name(0x5000, 8, "part", 1);
        assert_eq!(
            (names.at(0x5001), names.text(line)),
            (line, "part[1].0".into())
        );
    }

    #[test]
    fn what_is_named_begins_a_line() {
        for base in [0x5000, 0x5010, 0x5020, 0x5030] {
            let mut names = Names::new();
            let before = names.at(base - 1);
            names.name(base, 100, "object", 0);
            let lines = [0, 63, 64, 99].map(|at| names.at(base + at));
            let first = lines[0];
            assert_eq!(lines, [first, first, first + 1, first + 1], "{base:x}");
            assert_ne!(first, before);
            assert_eq!(names.at(base - 1), before);
            assert!(names.at(base + 112) != lines[3]);
        }
    }
}
