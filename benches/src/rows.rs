//! The lines of output: each table on each number of cores.

use crate::options::Options;
use crate::run::Which;
use crate::shape::{DEFAULT_BYTES, Shape};
use crate::workloads::{TABLES, Table};
use crate::{Scheduler, Workload};

/// A table on this many cores.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// The table.
    pub table: &'static Table,
    /// In this shape.
    pub shape: Shape,
    /// What is run.
    pub workload: Workload,
    /// On how many cores.
    pub cores: usize,
}

impl Row {
    /// The size of closures; none for tables that have theirs, of at most [`DEFAULT_BYTES`].
    pub fn closure_bytes(&self) -> Option<usize> {
        let bytes = self.shape.closure_bytes.unwrap_or(DEFAULT_BYTES);
        self.workload.has_sizes().then_some(bytes)
    }
}

/// All tables, in the order in which they are printed.
pub fn tables() -> impl Iterator<Item = &'static Table> + Clone {
    TABLES.iter().copied().flatten()
}

/// A workload of a table in this shape on this many cores; some exist on several cores only, some
/// have one shape.
pub fn workload(table: &str, which: Which, shape: Shape, cores: usize) -> Option<Workload> {
    let table = tables().find(|t| t.name == table)?;
    let workload = match which {
        Which::Itself => (table.workload)(cores),
        Which::Beside => (table.beside?)(cores),
    };
    workload?.shaped(shape)
}

/// The rows of the tables that are chosen by name, on each of these numbers of cores; those that
/// have this shape.
pub fn select(is_chosen: impl Fn(&str) -> bool, shape: Shape, cores: &[usize]) -> Vec<Row> {
    let chosen = |&cores: &usize| {
        let chosen = tables().filter(|table| is_chosen(table.name));
        chosen.filter_map(move |table| {
            (table.workload)(cores)
                .and_then(|workload| workload.shaped(shape))
                .map(|workload| Row {
                    table,
                    shape,
                    workload,
                    cores,
                })
        })
    };
    cores.iter().flat_map(chosen).collect()
}

/// The names of all tables, the first of which is `exact` if that is one: a table without times.
pub fn names(exact: Option<&'static str>) -> impl Iterator<Item = &'static str> + Clone {
    exact.into_iter().chain(tables().map(|table| table.name))
}

/// Whether the table without times, `exact`, was asked for, and the rows that were, of which one of
/// these schedulers at least runs each.
///
/// # Errors
/// If something was asked for that is not there, or nothing is.
pub fn chosen(
    options: &Options,
    cores: &[usize],
    schedulers: &[Box<dyn Scheduler>],
    exact: Option<&'static str>,
) -> Result<(bool, Vec<Row>), String> {
    options.check_tables(names(exact))?;
    let shaped = |shape| select(|name| options.has(name), shape, cores);
    let mut rows: Vec<Row> = options.shapes().into_iter().flat_map(shaped).collect();
    let is_there = |prefix: &str| {
        let begins = |row: &Row| row.table.name.starts_with(prefix);
        exact.is_some_and(|name| name.starts_with(prefix)) || rows.iter().any(begins)
    };
    if let Some(prefix) = options.tables.iter().find(|prefix| !is_there(prefix)) {
        return Err(format!(
            "--table {prefix}: not on that number of cores, with events of that shape"
        ));
    }
    rows.retain(|row| {
        let mut each = schedulers.iter();
        each.any(|scheduler| scheduler.runs(row.workload, row.cores))
    });
    let exact = exact.is_some_and(|name| options.has(name));
    if rows.is_empty() && !exact {
        return Err("--schedulers: none of them runs any of these tables".into());
    }
    Ok((exact, rows))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::ALL;
    use crate::schedulers;

    fn chosen(line: &str, cores: usize) -> Result<(bool, Vec<&'static str>), String> {
        let words = line.split_whitespace().map(str::to_owned);
        let options = Options::from_args(words, &ALL).unwrap().unwrap();
        let schedulers = schedulers::chosen(&options.schedulers).unwrap();
        let (exact, rows) = super::chosen(&options, &[cores], &schedulers, Some("units"))?;
        Ok((exact, rows.iter().map(|row| row.table.name).collect()))
    }

    #[test]
    fn tables_are_chosen_by_their_beginnings() {
        assert_eq!(chosen("--table units", 1), Ok((true, vec![])));
        let both = (true, vec!["chain16"]);
        assert_eq!(chosen("--table units,chain16", 1), Ok(both.clone()));
        assert_eq!(chosen("--table chain16,uni", 1), Ok(both));
        let by_name = "--table mely-3-4 --schedulers tokio";
        let its = (false, vec!["mely-3-4-unbalanced"]);
        assert_eq!(chosen(by_name, 2), Ok(its));
        let (exact, all) = chosen("", 2).unwrap();
        assert!(exact && all.len() > 20, "{all:?}");
    }

    #[test]
    fn a_choice_of_nothing_is_refused() {
        for (line, complaint) in [
            ("--table nothing", "`nothing`"),
            ("--table chain16,nothing", "`nothing`"),
            (
                "--table chain16,cross1000",
                "--table cross1000: not on that",
            ),
            (
                "--table chain16 --depth 1000",
                "--table chain16: not on that",
            ),
            (
                "--table chain16 --schedulers bare-wake",
                "none of them runs",
            ),
        ] {
            let refused = chosen(line, 1).unwrap_err();
            assert!(refused.contains(complaint), "{line}: {refused}");
        }
    }
}
