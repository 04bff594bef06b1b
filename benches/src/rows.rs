//! The lines of output: each table on each number of cores.

use crate::Workload;
use crate::run::Which;
use crate::shape::{DEFAULT_BYTES, Shape};
use crate::workloads::{TABLES, Table};

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
pub fn tables() -> impl Iterator<Item = &'static Table> {
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

/// The rows whose table begins with one of the `prefixes`, which commas separate, on each of these
/// numbers of cores; those that have this shape.
pub fn select(prefixes: &str, shape: Shape, cores: &[usize]) -> Vec<Row> {
    let chosen = |&cores: &usize| {
        let chosen = tables().filter(|table| {
            let mut prefixes = prefixes.split(',');
            prefixes.any(|prefix| table.name.starts_with(prefix))
        });
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
