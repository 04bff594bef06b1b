//! Tables of text.

use std::fmt::{self, Display, Formatter};

/// Columns of text, at most.
const WIDTH_MAX: usize = 100;
/// What a name is cut to, at the least.
const NAME_MIN: usize = 12;

/// Rows of cells: first names, which are cut if there is no room for all, then numbers.
#[derive(Debug)]
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
    /// How many cells are names.
    names: usize,
}

impl Table {
    /// With these headings.
    pub(crate) fn new(names: &[&str], numbers: &[&str]) -> Table {
        let mut table = Table {
            rows: Vec::new(),
            names: names.len(),
        };
        table.row(names, numbers.iter().map(|&heading| heading.to_owned()));
        table
    }

    pub(crate) fn row(&mut self, names: &[&str], numbers: impl IntoIterator<Item = String>) {
        let names = names.iter().map(|name| printable(name));
        self.rows.push(names.chain(numbers).collect());
    }
}

impl Display for Table {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let columns = self.rows[0].len();
        let width = |column: usize| {
            let cells = self.rows.iter().map(|row| row[column].chars().count());
            cells.max().unwrap_or(0)
        };
        let mut widths: Vec<usize> = (0..columns).map(width).collect();
        let numbers: usize = widths[self.names..].iter().map(|width| width + 1).sum();
        let room = WIDTH_MAX.saturating_sub(numbers + self.names - 1) / self.names;
        for width in &mut widths[..self.names] {
            *width = (*width).min(room.max(NAME_MIN));
        }
        for row in &self.rows {
            let mut line = String::new();
            for (column, (cell, &width)) in row.iter().zip(&widths).enumerate() {
                if column > 0 {
                    line.push(' ');
                }
                if column < self.names {
                    line += &format!("{:<width$}", shortened(cell, width));
                } else {
                    line += &format!("{cell:>width$}");
                }
            }
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

/// A name, which may have come from anywhere, on one line.
pub(crate) fn printable(name: &str) -> String {
    let replaced = |c: char| if c.is_control() { '\u{fffd}' } else { c };
    name.chars().map(replaced).collect()
}

/// The end of a name that is too long: the beginning of a closure's type is the crate.
fn shortened(name: &str, width: usize) -> String {
    let length = name.chars().count();
    if length <= width {
        return name.to_owned();
    }
    let dots = "..";
    let end = name.chars().skip(length - width + dots.len());
    dots.chars().chain(end).collect()
}

/// Three digits, in the unit that suits: `850 ns`, `1.25 us`, `12.5 ms`, `125 s`.
pub(crate) fn time(ns: u64) -> String {
    let (mut scaled, mut unit) = (ns as f64, "ns");
    for larger in ["us", "ms", "s"] {
        // What would be rounded to 1000.
        if scaled < 999.5 {
            break;
        }
        (scaled, unit) = (scaled / 1_000.0, larger);
    }
    // What has that many digits once rounded.
    let decimals = match scaled {
        _ if unit == "ns" || scaled >= 99.95 => 0,
        _ if scaled >= 9.995 => 1,
        _ => 2,
    };
    format!("{scaled:.decimals$} {unit}")
}

/// A part of a whole; of nothing it is nothing.
pub(crate) fn percent(part: u64, whole: u64) -> String {
    if whole == 0 {
        return "-".to_owned();
    }
    format!("{:.1}%", part as f64 * 100.0 / whole as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_three_digits() {
        let times = [
            0,
            999,
            1_000,
            9_994,
            9_996,
            99_940,
            99_960,
            999_499,
            999_500,
            61_000_000_000,
        ];
        let told = times.map(time);
        let so = [
            "0 ns", "999 ns", "1.00 us", "9.99 us", "10.0 us", "99.9 us", "100 us", "999 us",
            "1.00 ms", "61.0 s",
        ];
        assert_eq!(told, so);
        assert_eq!([percent(1, 3), percent(1, 0)], ["33.3%", "-"]);
    }

    #[test]
    fn long_names_leave_room_for_the_numbers() {
        let mut table = Table::new(&["handler", "to"], &["posts"]);
        let name = "a::very::long::name::".repeat(9);
        table.row(&[&name, &name], ["123456".to_owned()]);
        table.row(&["b", "c"], ["1".to_owned()]);
        let text = table.to_string();
        assert!(text.lines().all(|line| line.len() <= WIDTH_MAX), "{text}");
        assert!(
            text.lines().any(|line| line.ends_with("name:: 123456")),
            "{text}"
        );
        assert_eq!(text.lines().count(), 3);
    }
}
