//! What is run on two real cores, and on the same two in simulation, to see how far apart they are.
//!
//! The real ones are run by a build without the feature `machine` (the program `measured`), whose
//! lines a build with it reads (`simulate validate`).

/// What is compared of a table.
#[derive(Clone, Copy, Debug)]
pub struct Compared {
    /// As in [`mely_bench::workloads::TABLES`].
    pub table: &'static str,
    /// Events of a run.
    pub events: u64,
    /// The median latency, and not the time per event.
    pub latency: bool,
}

const fn time(table: &'static str, events: u64) -> Compared {
    Compared {
        table,
        events,
        latency: false,
    }
}

/// All of them.
pub const COMPARED: [Compared; 6] = [
    time("mely-3-4-unbalanced", 200_000),
    time("mely-5-penalty", 200_000),
    time("mely-6-cache-efficient", 20_000),
    time("hop16", 400_000),
    time("fan-in64", 300_000),
    Compared {
        latency: true,
        ..time("wake-1ms", 200)
    },
];

/// By whom; those that run a table.
pub const SCHEDULERS: [&str; 11] = [
    "mely",
    "mely-no-stealing",
    "mely-base",
    "mely-locality",
    "mely-time-left",
    "mely-penalty",
    "mely-2010",
    "mely-2010-no-stealing",
    "mely-2010-base",
    "libasync-smp",
    "libasync-smp-ws",
];

/// The number of cores.
pub const CORES: usize = 2;

impl Compared {
    /// What is compared, in ns, of a run that took so long an event, with these latencies.
    pub fn ns(&self, ns_per_event: f64, samples_ns: &[u64]) -> f64 {
        let mut samples = samples_ns.to_vec();
        samples.sort_unstable();
        match samples.get(samples.len() / 2) {
            Some(&median) if self.latency => median as f64,
            _ => ns_per_event,
        }
    }
}

/// A figure of real cores: the median of some runs, and between which two it was.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// Of a table.
    pub table: String,
    /// By a scheduler.
    pub scheduler: String,
    /// The median.
    pub ns: f64,
    /// The least.
    pub least_ns: f64,
    /// The most.
    pub most_ns: f64,
}

impl Figure {
    /// Of some runs.
    ///
    /// # Panics
    /// If there are none.
    pub fn of(table: &str, scheduler: &str, mut runs: Vec<f64>) -> Figure {
        runs.sort_by(f64::total_cmp);
        Figure {
            table: table.to_owned(),
            scheduler: scheduler.to_owned(),
            ns: runs[runs.len() / 2],
            least_ns: runs[0],
            most_ns: runs[runs.len() - 1],
        }
    }

    /// A line.
    pub fn text(&self) -> String {
        let Figure {
            table,
            scheduler,
            ns,
            least_ns,
            most_ns,
        } = self;
        format!("{table} {scheduler} {ns:.2} {least_ns:.2} {most_ns:.2}\n")
    }

    /// Reads lines of [`text`](Self::text), but for those that begin with `#`.
    ///
    /// # Errors
    /// The line that is none.
    pub fn parse_all(text: &str) -> Result<Vec<Figure>, String> {
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        lines
            .map(|line| Figure::parse(line).ok_or_else(|| format!("not a figure: {line:?}")))
            .collect()
    }

    fn parse(line: &str) -> Option<Figure> {
        let words: Vec<&str> = line.split(' ').collect();
        let [table, scheduler, ns, least, most] = words[..] else {
            return None;
        };
        let ns = [ns, least, most].map(|word| word.parse::<f64>().ok().filter(|ns| *ns > 0.0));
        let [Some(ns), Some(least_ns), Some(most_ns)] = ns else {
            return None;
        };
        Some(Figure {
            table: table.to_owned(),
            scheduler: scheduler.to_owned(),
            ns,
            least_ns,
            most_ns,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mely_bench::run::Which;
    use mely_bench::shape::Shape;
    use mely_bench::{rows, schedulers};

    #[test]
    fn figures_are_read_as_they_were_written() {
        let figure = Figure::of("hop16", "mely", vec![9.5, 8.25, 8.5]);
        assert_eq!(
            (figure.ns, figure.least_ns, figure.most_ns),
            (8.5, 8.25, 9.5)
        );
        let text = format!("# here\n{}", figure.text());
        assert_eq!(Figure::parse_all(&text), Ok(vec![figure]));
        assert!(Figure::parse_all("hop16 mely 1 2").is_err());
        assert!(Figure::parse_all("hop16 mely 1 0 2").is_err());
    }

    #[test]
    fn what_is_compared_exists() {
        crate::add_published();
        for compared in COMPARED {
            let workload = rows::workload(compared.table, Which::Itself, Shape::default(), CORES);
            assert!(workload.is_some(), "{}", compared.table);
        }
        for scheduler in SCHEDULERS {
            assert!(schedulers::find(scheduler).is_some(), "{scheduler}");
        }
    }
}
