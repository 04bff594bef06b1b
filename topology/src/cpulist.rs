//! The kernel's list notation for sets of CPUs: `0-3,8,10-11`.

use std::fmt;
use std::str::FromStr;

use crate::CPUS_MAX;

/// A set of logical CPU numbers, in the notation that sysfs and `/proc` use.
///
/// Parsing costs time and memory in proportion to the text, never to the numbers in it: ranges stay
/// ranges. Numbers from [`CPUS_MAX`] on are refused. Overlapping and unordered entries are accepted
/// and put in order; white space is accepted only around the whole list. An empty list is a valid
/// one (`/sys/devices/system/cpu/offline` is empty on most machines).
///
/// ```
/// use mely_topology::CpuList;
///
/// let list: CpuList = "8,0-2,1-3\n".parse()?;
/// assert_eq!(list.iter().collect::<Vec<_>>(), [0, 1, 2, 3, 8]);
/// assert_eq!(list.to_string(), "0-3,8");
/// assert!("0-4294967295".parse::<CpuList>().is_err());
/// # Ok::<(), mely_topology::CpuListError>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CpuList {
    /// First and last of each range; ascending, with a gap of at least one number between two.
    ranges: Vec<(u32, u32)>,
}

impl CpuList {
    /// The numbers, ascending, each once.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.ranges.iter().flat_map(|&(first, last)| first..=last)
    }

    /// How many numbers the set holds; at most [`CPUS_MAX`].
    pub fn len(&self) -> usize {
        self.ranges
            .iter()
            .map(|&(first, last)| (last - first) as usize + 1)
            .sum()
    }

    /// Whether the set holds nothing.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Whether `cpu` is in the set.
    pub fn contains(&self, cpu: u32) -> bool {
        let after = self.ranges.partition_point(|&(first, _)| first <= cpu);
        after > 0 && cpu <= self.ranges[after - 1].1
    }

    /// The lowest number, or `None` of an empty set.
    pub fn first(&self) -> Option<u32> {
        self.ranges.first().map(|&(first, _)| first)
    }

    /// Puts ranges in order and joins those that overlap or touch.
    fn from_ranges(mut ranges: Vec<(u32, u32)>) -> Self {
        ranges.sort_unstable();
        let mut joined: Vec<(u32, u32)> = Vec::with_capacity(ranges.len());
        for (first, last) in ranges {
            match joined.last_mut() {
                Some(previous) if first <= previous.1.saturating_add(1) => {
                    previous.1 = previous.1.max(last);
                }
                _ => joined.push((first, last)),
            }
        }
        CpuList { ranges: joined }
    }
}

/// Collects numbers into a set. Numbers from [`CPUS_MAX`] on are left out, as no list may hold
/// them.
impl FromIterator<u32> for CpuList {
    fn from_iter<I: IntoIterator<Item = u32>>(cpus: I) -> Self {
        let in_limit = cpus.into_iter().filter(|&cpu| (cpu as usize) < CPUS_MAX);
        Self::from_ranges(in_limit.map(|cpu| (cpu, cpu)).collect())
    }
}

impl FromStr for CpuList {
    type Err = CpuListError;

    fn from_str(text: &str) -> Result<Self, CpuListError> {
        let text = text.trim_ascii();
        if text.is_empty() {
            return Ok(CpuList::default());
        }
        let ranges = text
            .split(',')
            .map(parse_range)
            .collect::<Result<Vec<_>, _>>()?;
        Ok(Self::from_ranges(ranges))
    }
}

impl fmt::Display for CpuList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, &(first, last)) in self.ranges.iter().enumerate() {
            let comma = if i == 0 { "" } else { "," };
            if first == last {
                write!(f, "{comma}{first}")?;
            } else {
                write!(f, "{comma}{first}-{last}")?;
            }
        }
        Ok(())
    }
}

fn parse_range(entry: &str) -> Result<(u32, u32), CpuListError> {
    let (first, last) = match entry.split_once('-') {
        Some((first, last)) => (parse_cpu(first)?, parse_cpu(last)?),
        None => {
            let cpu = parse_cpu(entry)?;
            (cpu, cpu)
        }
    };
    if first > last {
        return Err(CpuListError::Descending { first, last });
    }
    Ok((first, last))
}

fn parse_cpu(digits: &str) -> Result<u32, CpuListError> {
    // `u32::from_str` takes a sign; the kernel never writes one.
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(CpuListError::NotANumber(excerpt(digits)));
    }
    match digits.parse::<u32>() {
        Ok(cpu) if (cpu as usize) < CPUS_MAX => Ok(cpu),
        _ => Err(CpuListError::TooLarge(excerpt(digits))),
    }
}

/// Enough of a bad word to recognize it, however long it is.
pub(crate) fn excerpt(text: &str) -> String {
    const SHOWN_CHARS: usize = 24;
    let mut shown: String = text.chars().take(SHOWN_CHARS).collect();
    if text.chars().nth(SHOWN_CHARS).is_some() {
        shown.push_str("...");
    }
    shown
}

/// Why a text is not a [`CpuList`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CpuListError {
    /// Something other than decimal digits where a CPU number belongs (its first characters).
    NotANumber(String),
    /// A CPU number of [`CPUS_MAX`] or more (its first digits).
    TooLarge(String),
    /// A range whose end lies before its start.
    Descending {
        /// The range's first number.
        first: u32,
        /// The range's last number.
        last: u32,
    },
}

impl fmt::Display for CpuListError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotANumber(word) => write!(f, "{word:?} is not a CPU number"),
            Self::TooLarge(word) => write!(f, "CPU {word} is beyond the limit of {CPUS_MAX}"),
            Self::Descending { first, last } => write!(f, "range {first}-{last} runs backwards"),
        }
    }
}

impl std::error::Error for CpuListError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<CpuList, CpuListError> {
        text.parse()
    }

    #[test]
    fn accepts_what_the_kernel_writes() {
        for (text, cpus) in [
            ("", vec![]),
            ("\n", vec![]),
            ("0\n", vec![0]),
            ("0-3", vec![0, 1, 2, 3]),
            ("0,2-3,7", vec![0, 2, 3, 7]),
            ("5,1,1-2,2-3", vec![1, 2, 3, 5]),
            ("8191", vec![8191]),
        ] {
            let list = parse(text).unwrap();
            assert_eq!(list.iter().collect::<Vec<_>>(), cpus, "{text:?}");
            assert_eq!(list.len(), cpus.len(), "{text:?}");
            assert_eq!(list.is_empty(), cpus.is_empty());
            assert_eq!(list.first(), cpus.first().copied());
            assert_eq!(parse(&list.to_string()).unwrap(), list);
            for cpu in 0..10 {
                assert_eq!(list.contains(cpu), cpus.contains(&cpu), "{cpu} in {text:?}");
            }
        }
    }

    #[test]
    fn refuses_the_rest_and_says_why() {
        let not_a_number = |word: &str| Err(CpuListError::NotANumber(word.into()));
        let too_large = |word: &str| Err(CpuListError::TooLarge(word.into()));
        assert_eq!(parse("0,,1"), not_a_number(""));
        assert_eq!(parse("-1"), not_a_number(""));
        assert_eq!(parse("+1"), not_a_number("+1"));
        assert_eq!(parse("0 - 3"), not_a_number("0 "));
        assert_eq!(parse("0-1-2"), not_a_number("1-2"));
        assert_eq!(parse("0-7:2/4"), not_a_number("7:2/4"));
        assert_eq!(parse("ff"), not_a_number("ff"));
        assert_eq!(parse("٣"), not_a_number("٣"));
        assert_eq!(
            parse("3-1"),
            Err(CpuListError::Descending { first: 3, last: 1 })
        );
        assert_eq!(parse("8192"), too_large("8192"));
        assert_eq!(parse("0-4294967295"), too_large("4294967295"));
        assert_eq!(
            parse(&"9".repeat(99)),
            too_large("999999999999999999999999...")
        );
    }

    #[test]
    fn a_full_list_is_one_range() {
        let list = parse("0-8191").unwrap();
        assert_eq!((list.ranges.len(), list.len()), (1, CPUS_MAX));
        assert_eq!((0..10_000).collect::<CpuList>(), list);
    }
}
