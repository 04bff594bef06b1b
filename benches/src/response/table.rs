//! Interleaved repetitions, medians, the table and the JSON lines.

use super::Bench;
use super::generator::Clients;
use super::load::Row;
use super::options::Options;
use super::score::Outcome;
use super::wire::iteration_ns;
use super::{posts, realtime};
use crate::machine;
use crate::measure::Spread;
use serde_json::{Value, json};

/// The peer that is measured a second time, as [`CONTROL`]: two runs of one program differ by the
/// machine's noise.
const CONTROLLED: &str = "mely";
/// The name of the second.
const CONTROL: &str = "mely, again";

/// A peer's runs of a row, one a round.
#[derive(Clone, Debug)]
pub struct Figure {
    /// As in the table.
    pub name: &'static str,
    /// Of each round.
    pub outcomes: Vec<Outcome>,
}

impl Figure {
    /// The values of the rounds that are not void, or of all if all are.
    pub fn spread(&self, value: impl Fn(&Outcome) -> f64) -> Spread {
        let valid = self.outcomes.iter().filter(|outcome| !outcome.is_void);
        let values: Vec<f64> = valid.map(&value).collect();
        Spread::of(match values.is_empty() {
            true => self.outcomes.iter().map(&value).collect(),
            false => values,
        })
    }

    fn void(&self) -> usize {
        self.outcomes
            .iter()
            .filter(|outcome| outcome.is_void)
            .count()
    }
}

/// A row's figures.
#[derive(Clone, Debug)]
pub struct Measured {
    /// Which row.
    pub row: Row,
    /// Of each peer that runs it.
    pub figures: Vec<Figure>,
}

/// A run of a row by a peer.
///
/// # Errors
/// A server that does not start or answers wrongly.
pub fn run(
    bench: &Bench,
    row: &Row,
    peer: &str,
    requests: usize,
    seed: u64,
) -> Result<Outcome, String> {
    let cores = bench.cores;
    if row.posts {
        return posts::spawn(&bench.respond, row, peer, cores, requests, seed);
    }
    let server = bench.start(peer, cores)?;
    let clients = Clients::connect(server.addrs[0], row.sources)?;
    let schedule = row.schedule(cores, requests, seed);
    let spin_ns = realtime::spin_ns(row.gap_ns(cores));
    let pid = server.pids[0];
    let cpu = || machine::cpu_time_of(pid).map_err(|error| format!("process {pid}: {error}"));
    let run = clients.run(&schedule, iteration_ns(), spin_ns, cpu)?;
    Ok(Outcome::of(row, cores, &schedule, &run))
}

/// Measures the rows, and prints each when it is done.
///
/// # Errors
/// As [`run`].
pub fn measure(bench: &Bench, options: &Options) -> Result<Vec<Measured>, String> {
    let mut all = Vec::new();
    for row in &options.rows {
        let mut peers: Vec<_> = options
            .peers_of(row)
            .into_iter()
            .map(|peer| (peer, peer))
            .collect();
        if peers.is_empty() {
            continue;
        }
        if peers.contains(&(CONTROLLED, CONTROLLED)) {
            peers.push((CONTROL, CONTROLLED));
        }
        let figure = |&(name, _): &(&'static str, _)| Figure {
            name,
            outcomes: Vec::new(),
        };
        let mut figures: Vec<Figure> = peers.iter().map(figure).collect();
        for round in 0..options.rounds {
            for (figure, (name, peer)) in figures.iter_mut().zip(&peers) {
                // The same schedule for all peers of a round.
                let outcome = run(bench, row, peer, options.requests, 1 + round as u64);
                let outcome = outcome.map_err(|error| format!("{row}, {name}: {error}"))?;
                figure.outcomes.push(outcome);
            }
        }
        let measured = Measured { row: *row, figures };
        if options.json {
            for figure in &measured.figures {
                println!("{}", line(bench, options, row, figure));
            }
        } else {
            print(&measured);
        }
        all.push(measured);
    }
    Ok(all)
}

/// The table's head.
pub fn print_head() {
    println!(
        "{:<22} {:<20} {:>6} {:>6} {:>6} {:>13} {:>9} {:>9} {:>8} {:>8} {:>6} {:>7} {:>6}  notes",
        "row",
        "peer",
        "mean",
        "p50",
        "p99",
        "p99 min..max",
        "p99 us",
        "max us",
        "CPU us",
        "min..max",
        "CPU x",
        "late us",
        "gen %",
    );
}

fn print(measured: &Measured) {
    for (number, figure) in measured.figures.iter().enumerate() {
        let name = match number {
            0 => measured.row.to_string(),
            _ => String::new(),
        };
        let median = |value: &dyn Fn(&Outcome) -> f64| figure.spread(value).median;
        let ratio = |of: usize| median(&|outcome| outcome.ratios()[of]);
        let p99 = figure.spread(|outcome| outcome.ratios()[2]);
        let cpu = figure.spread(|outcome| outcome.cpu_ns / 1e3);
        println!(
            "{name:<22} {:<20} {:>6.2} {:>6.2} {:>6.2} {:>13} {:>9.0} {:>9.0} {:>8.1} {:>8} {:>6.3} \
             {:>7.1} {:>6.1}  {}",
            figure.name,
            ratio(0),
            ratio(1),
            p99.median,
            format!("{:.2}..{:.2}", p99.min, p99.max),
            median(&|outcome| outcome.responses.p99 / 1e3),
            median(&|outcome| outcome.responses.max / 1e3),
            cpu.median,
            format!("{:.0}..{:.0}", cpu.min, cpu.max),
            median(&Outcome::cpu_ratio),
            median(&|outcome| outcome.late_p99_ns / 1e3),
            median(&|outcome| outcome.generator * 1e2),
            match figure.void() {
                0 => String::new(),
                void => format!("{void} of {} rounds void", figure.outcomes.len()),
            },
        );
    }
}

fn line(bench: &Bench, options: &Options, row: &Row, figure: &Figure) -> Value {
    let mut line = json!({
        "row": row.to_string(),
        "peer": figure.name,
        "cores": bench.cores,
        "load": row.load,
        "service": row.service.name(),
        "service_mean_us": row.mean_us,
        "connections": row.sources,
        "skew": row.skew,
        "posts": row.posts,
        "requests": options.requests,
        "rounds": figure.outcomes.len(),
        "rounds_void": figure.void(),
    });
    type Field = (&'static str, fn(&Outcome) -> f64);
    const FIELDS: [Field; 13] = [
        ("mean_ratio", |of| of.ratios()[0]),
        ("p50_ratio", |of| of.ratios()[1]),
        ("p99_ratio", |of| of.ratios()[2]),
        ("mean_us", |of| of.responses.mean / 1e3),
        ("p50_us", |of| of.responses.p50 / 1e3),
        ("p99_us", |of| of.responses.p99 / 1e3),
        ("max_us", |of| of.responses.max / 1e3),
        ("ideal_mean_us", |of| of.ideal.mean / 1e3),
        ("ideal_p99_us", |of| of.ideal.p99 / 1e3),
        ("cpu_us", |of| of.cpu_ns / 1e3),
        ("cpu_ratio", Outcome::cpu_ratio),
        ("late_p99_us", |of| of.late_p99_ns / 1e3),
        ("generator_share", |of| of.generator),
    ];
    for (name, value) in FIELDS {
        let spread = figure.spread(value);
        line[name] = json!(spread.median);
        line[format!("{name}_min")] = json!(spread.min);
        line[format!("{name}_max")] = json!(spread.max);
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn void_rounds_count_only_if_there_are_no_others() {
        let outcome = |late_p99_ns, is_void| Outcome {
            late_p99_ns,
            is_void,
            ..Outcome::default()
        };
        let late = |outcomes: &[Outcome]| {
            let figure = Figure {
                name: "mely",
                outcomes: outcomes.into(),
            };
            (figure.spread(|of| of.late_p99_ns).median, figure.void())
        };
        let (good, bad) = (outcome(1.0, false), outcome(9.0, true));
        assert_eq!(late(&[bad, good, bad]), (1.0, 2));
        assert_eq!(late(&[bad, bad]), (9.0, 2));
    }
}
