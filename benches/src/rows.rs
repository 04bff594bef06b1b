//! The lines of the table of events.

use crate::Workload;

/// A workload on so many cores.
#[derive(Clone, Copy, Debug)]
pub struct Row {
    /// As in `--table`.
    pub table: &'static str,
    /// What is run.
    pub workload: Workload,
    /// On how many cores.
    pub cores: usize,
}

/// The workload of a table on so many cores; some exist on several cores only.
pub fn workload(table: &str, cores: usize) -> Option<Workload> {
    let step = cores;
    Some(match table {
        // Every core needs a chain of its own.
        "chain1" if cores == 1 => Workload::Chain { colors: 1 },
        "chain2" if cores == 2 => Workload::Chain { colors: 2 },
        "chain16" => Workload::Chain { colors: 16 },
        "chain1000" => Workload::Chain { colors: 1_000 },
        "hop16" => Workload::Hop { colors: 16, step },
        "hop1000" => Workload::Hop {
            colors: 1_000,
            step,
        },
        "cross16" if cores > 1 => Workload::Hop {
            colors: 16,
            step: 1,
        },
        "cross1000" if cores > 1 => Workload::Hop {
            colors: 1_000,
            step: 1,
        },
        "fresh50000" => Workload::Fresh { colors: 50_000 },
        _ => return None,
    })
}

/// All tables, in the order in which they are printed.
pub const TABLES: [&str; 9] = [
    "chain1",
    "chain2",
    "chain16",
    "chain1000",
    "hop16",
    "hop1000",
    "cross16",
    "cross1000",
    "fresh50000",
];

/// The rows whose table begins with `prefix`, on each of these numbers of cores.
pub fn select(prefix: &str, cores: &[usize]) -> Vec<Row> {
    let row = |table, cores| {
        workload(table, cores).map(|workload| Row {
            table,
            workload,
            cores,
        })
    };
    cores
        .iter()
        .flat_map(|&cores| {
            TABLES
                .into_iter()
                .filter(|table| table.starts_with(prefix))
                .filter_map(move |table| row(table, cores))
        })
        .collect()
}
