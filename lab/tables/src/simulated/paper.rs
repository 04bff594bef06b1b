//! The tables of Mely's paper, on its machine.
//!
//! Each cell is *fitted* (a number of the machine's file was set by it), *predicted*, or *not
//! derivable* from what was published. Predicted ones are swept over what the papers leave open
//! ([`Open`]), one choice at a time; who changes twofold within that is unstable. A run that is not
//! over after [`NS_MAX`] of virtual time is given up, and counts as one that reaches nothing.

use super::{Outcome, Setup, once};
use crate::libasync::open::Open;
use std::fmt::Write;

const CORES: usize = 8;
/// Of virtual time: a little more than the slowest of these takes that ends.
const NS_MAX: f64 = 5e8;
/// Of the machine's processor.
const GHZ: f64 = 2.33;
/// Choices beside the defaults.
const SWEEP: [&str; 6] = [
    "",
    "scan=end",
    "look=yes",
    "lock=try",
    "locks=2",
    "look=yes,lock=try,pauses=256",
];

/// What a cell is about.
#[derive(Clone, Copy)]
enum Cell {
    /// K events/s.
    Rate,
    /// The same, over that of the first line of the table.
    Ratio,
    /// Share of the cores' time that is waited for locks, in percent.
    Locking,
    /// Of a steal, in cycles.
    Cost,
    /// What a steal brings, in cycles.
    Stolen,
}

impl Cell {
    fn name(self) -> &'static str {
        match self {
            Cell::Rate => "K events/s",
            Cell::Ratio => "of the first line",
            Cell::Locking => "time in locks, %",
            Cell::Cost => "cost of a steal, cycles",
            Cell::Stolen => "stolen time, cycles",
        }
    }

    /// None if the run has no such number; nothing a second if it was given up.
    fn of(self, outcome: Option<&Outcome>, first: Option<&Outcome>) -> Option<f64> {
        let Some(outcome) = outcome else {
            return matches!(self, Cell::Rate | Cell::Ratio).then_some(0.0);
        };
        let per_steal = |ns: fn(&mely_bench::schedulers::Steals) -> u128| {
            let steals = outcome.steals.as_ref().filter(|steals| steals.won > 0)?;
            Some(ns(steals) as f64 / steals.won as f64 * GHZ)
        };
        match self {
            Cell::Rate => Some(1e6 / outcome.ns),
            Cell::Ratio => first.map(|first| first.ns / outcome.ns),
            Cell::Locking => outcome
                .value("lock_waiting_share")
                .map(|share| 100.0 * share),
            Cell::Cost => per_steal(|steals| steals.cost.as_nanos()),
            Cell::Stolen => per_steal(|steals| steals.stolen.as_nanos()),
        }
    }
}

struct Line {
    scheduler: &'static str,
    cells: &'static [(Cell, f64, &'static str)],
}

struct Published {
    name: &'static str,
    table: &'static str,
    events: u64,
    lines: &'static [Line],
    remark: &'static str,
}

const PREDICTED: &str = "predicted";
const GIVEN: &str = "given by the workload";

use Cell::{Cost, Locking, Rate, Ratio, Stolen};

const PENALTY: &[Line] = &[
    Line {
        scheduler: "libasync-smp",
        cells: &[(Rate, 1_103.0, "not derivable")],
    },
    Line {
        scheduler: "libasync-smp-ws",
        cells: &[(Ratio, 190.0 / 1_103.0, PREDICTED)],
    },
    Line {
        scheduler: "mely-2010-base",
        cells: &[(Ratio, 1_386.0 / 1_103.0, PREDICTED)],
    },
    Line {
        scheduler: "mely-2010-penalty",
        cells: &[(Ratio, 2_122.0 / 1_103.0, PREDICTED)],
    },
];

const PUBLISHED: [Published; 6] = [
    Published {
        name: "Table I, SFS",
        table: "mely-1-sfs",
        events: 1_000,
        lines: &[Line {
            scheduler: "libasync-smp-ws",
            cells: &[(Cost, 4_800.0, PREDICTED), (Stolen, 1_200_000.0, GIVEN)],
        }],
        remark: "The queues' lengths are not published: 16 colors of 4 events.",
    },
    Published {
        name: "Table I, web server",
        table: "mely-1-web",
        events: 10_000,
        lines: &[Line {
            scheduler: "libasync-smp-ws",
            cells: &[(Cost, 197_000.0, PREDICTED), (Stolen, 20_000.0, GIVEN)],
        }],
        remark: "1,000 events in the fullest queue, as the text has it: 200 colors of 5.",
    },
    Published {
        name: "Tables III and IV, unbalanced",
        table: "mely-3-4-unbalanced",
        events: 50_000,
        lines: &[
            Line {
                scheduler: "libasync-smp",
                cells: &[(Rate, 1_310.0, "fitted"), (Locking, 0.93, PREDICTED)],
            },
            Line {
                scheduler: "libasync-smp-ws",
                cells: &[
                    (Rate, 122.0, PREDICTED),
                    (Locking, 39.73, PREDICTED),
                    (Cost, 28_329.0, PREDICTED),
                    (Stolen, 484.0, PREDICTED),
                ],
            },
            Line {
                scheduler: "mely-2010-no-stealing",
                cells: &[(Rate, 1_265.0, PREDICTED), (Locking, 0.89, PREDICTED)],
            },
            Line {
                scheduler: "mely-2010-base",
                cells: &[
                    (Rate, 1_195.0, PREDICTED),
                    (Locking, 1.42, PREDICTED),
                    (Cost, 2_261.0, PREDICTED),
                    (Stolen, 445.0, PREDICTED),
                ],
            },
            Line {
                scheduler: "mely-2010-time-left",
                cells: &[(Rate, 2_042.0, PREDICTED), (Stolen, 49_987.0, PREDICTED)],
            },
        ],
        remark: "What an event takes to post and to run is fitted to the first cell: `post` and `run` \
                 in the machine's file.",
    },
    Published {
        name: "Table V, penalty",
        table: "mely-5-penalty",
        events: 30_000,
        lines: PENALTY,
        remark: "Neither the arrays' size nor their number is published, so only ratios are \
                 derivable. The misses as printed exceed the machine's cycles. 64 arrays of \
                 64 KiB.",
    },
    Published {
        name: "Table V, penalty, 512 arrays",
        table: "penalty-512",
        events: 33_280,
        lines: PENALTY,
        remark: "The same with longer queues.",
    },
    Published {
        name: "Table VI, cache efficient",
        table: "mely-6-cache-efficient",
        events: 10_000,
        lines: &[
            Line {
                scheduler: "libasync-smp",
                cells: &[(Rate, 1_156.0, "not derivable")],
            },
            Line {
                scheduler: "libasync-smp-ws",
                cells: &[(Ratio, 1_497.0 / 1_156.0, PREDICTED)],
            },
            Line {
                scheduler: "mely-2010-base",
                cells: &[(Ratio, 1_426.0 / 1_156.0, PREDICTED)],
            },
            Line {
                scheduler: "mely-2010-locality",
                cells: &[(Ratio, 1_869.0 / 1_156.0, PREDICTED)],
            },
        ],
        remark: "The arrays' size is not published.",
    },
];

/// All tables, with the sweep.
///
/// # Errors
/// A run that cannot be simulated.
pub fn tables(setup: &Setup) -> Result<String, String> {
    let mut text = String::new();
    for published in &PUBLISHED {
        text += &one(setup, published)?;
    }
    Open::default().set();
    text += "Figures 3, 4, 7 and 8 are of servers behind a network: not derivable from what is \
             simulated here.\n";
    Ok(text)
}

fn one(setup: &Setup, published: &Published) -> Result<String, String> {
    let mut runs: Vec<Vec<Option<Outcome>>> = Vec::new();
    let setup = Setup {
        ns_max: NS_MAX,
        ..setup.clone()
    };
    for choices in SWEEP {
        Open::parse(choices)?.set();
        let run = |line: &Line| {
            let Published { table, events, .. } = *published;
            once(setup.clone(), table, line.scheduler, CORES, events).ok()
        };
        runs.push(published.lines.iter().map(run).collect());
    }
    let mut text = format!(
        "### {}\n\n{}\n\n| scheduler | cell | paper | simulated | | least to most in the sweep |\n\
         |---|---|---|---|---|---|\n",
        published.name, published.remark,
    );
    for (at, line) in published.lines.iter().enumerate() {
        for &(cell, paper, mark) in line.cells {
            let values = runs
                .iter()
                .map(|run| cell.of(run[at].as_ref(), run[0].as_ref()));
            let values: Vec<f64> = values.flatten().collect();
            let Some(&value) = values.first() else {
                continue;
            };
            let least = values.iter().copied().fold(f64::INFINITY, f64::min);
            let most = values.iter().copied().fold(0.0, f64::max);
            let off = value / paper - 1.0;
            let verdict = match mark {
                PREDICTED if most >= 2.0 * least => "predicted; unstable, not reproduced".into(),
                PREDICTED if off.abs() <= 0.15 => "predicted".into(),
                PREDICTED if least <= 1.15 * paper && most >= 0.85 * paper => {
                    format!("predicted, off by {:+.0} %; within the sweep", 100.0 * off)
                }
                PREDICTED => format!("predicted, off by {:+.0} %", 100.0 * off),
                other => other.to_owned(),
            };
            writeln!(
                text,
                "| {} | {} | {} | {} | {verdict} | {} to {} |",
                line.scheduler,
                cell.name(),
                short(paper),
                short(value),
                short(least),
                short(most),
            )
            .expect("a string takes everything");
        }
    }
    text += "\n";
    Ok(text)
}

fn short(value: f64) -> String {
    if value >= 100.0 {
        format!("{value:.0}")
    } else {
        format!("{value:.2}")
    }
}
