//! Interleaved repetitions, medians, the table and the JSON lines.

use super::loads::{Dirs, Row, inject};
use super::servers::{Programs, Server, start};
use crate::measure::Spread;
use serde_json::{Value, json};
use std::time::Duration;

/// Odd: the median is one of them.
pub const REPETITIONS: usize = 5;

/// What the injector said of one server, a value a repetition.
#[derive(Debug)]
struct Figure {
    server: Server,
    said: Vec<Value>,
}

/// The fields that are told, in order, and the table's names of them; all of the injector's.
const FIELDS: [(&str, &str); 8] = [
    ("server_cpu_us_per_request", "cpu us"),
    ("requests_per_second", "req/s"),
    ("latency_p50_us", "p50 us"),
    ("latency_p99_us", "p99 us"),
    ("latency_p999_us", "p99.9 us"),
    ("first_p99_us", "first p99"),
    ("errors", "errors"),
    ("starved", "starved"),
];

/// Those that are told as a multiple of the first server's too.
const RATIOS: [&str; 4] = [
    "server_cpu_us_per_request",
    "requests_per_second",
    "latency_p99_us",
    "first_p99_us",
];

impl Figure {
    fn values(&self, field: &str) -> Vec<f64> {
        // Without responses there is no time per response.
        let value = |said: &Value| said[field].as_f64().unwrap_or(f64::NAN);
        self.said.iter().map(value).collect()
    }

    fn spread(&self, field: &str) -> Spread {
        Spread::of(self.values(field))
    }

    /// The median of the ratios to the repetitions beside.
    fn ratio(&self, base: &Figure, field: &str) -> f64 {
        let pairs = self.values(field).into_iter().zip(base.values(field));
        Spread::of(pairs.map(|(value, base)| value / base).collect()).median
    }

    /// The most of any repetition: none of these may be missed.
    fn worst(&self, field: &str) -> f64 {
        self.spread(field).max
    }
}

/// The table's head.
pub fn print_head() {
    print!("{:<10} {:<17}", "table", "server");
    for (field, name) in FIELDS {
        print!(" {name:>10}");
        if RATIOS.contains(&field) {
            print!(" {:>5}", "ratio");
        }
    }
    println!(" {:>11}", "req/s/core");
}

/// Measures a row, `time` a repetition, and prints it.
///
/// # Errors
/// If a server or the injector fails.
pub fn measure(
    row: Row,
    programs: &Programs,
    dirs: &Dirs,
    time: Duration,
    as_json: bool,
) -> Result<(), String> {
    let mut figures: Vec<Figure> = Vec::new();
    for _ in 0..REPETITIONS {
        for &server in row.servers {
            if server == Server::Nginx && programs.nginx.is_none() {
                continue;
            }
            let running = start(server, programs, &dirs.of(row.files), row.cores)?;
            let said = inject(row, programs, &running, time)
                .map_err(|error| format!("{}, {}: {error}", row.table, server.name()))?;
            match figures.iter_mut().find(|figure| figure.server == server) {
                Some(figure) => figure.said.push(said),
                None => figures.push(Figure {
                    server,
                    said: vec![said],
                }),
            }
        }
    }
    for (index, figure) in figures.iter().enumerate() {
        if as_json {
            println!("{}", line(row, figure, &figures[0]));
        } else {
            let table = if index == 0 { row.table } else { "" };
            print_figure(table, figure, &figures[0]);
        }
    }
    Ok(())
}

/// Requests per second of one core that does nothing else: what its time per request comes to.
fn per_core(cpu_us: f64) -> f64 {
    1e6 / cpu_us
}

fn print_figure(table: &str, figure: &Figure, base: &Figure) {
    print!("{table:<10} {:<17}", figure.server.name());
    for (field, _) in FIELDS {
        let median = figure.spread(field).median;
        match field {
            "errors" | "starved" => print!(" {:>10}", figure.worst(field)),
            "server_cpu_us_per_request" => print!(" {median:>10.3}"),
            _ => print!(" {median:>10.0}"),
        }
        if RATIOS.contains(&field) {
            print!(" {:>5.2}", figure.ratio(base, field));
        }
    }
    let cpu_us = figure.spread("server_cpu_us_per_request").median;
    println!(" {:>11.0}", per_core(cpu_us));
}

fn line(row: Row, figure: &Figure, base: &Figure) -> Value {
    let mut line = json!({
        "table": row.table,
        "server": figure.server.name(),
        "cores": row.cores,
        "clients": row.clients,
    });
    for (field, _) in FIELDS {
        let spread = figure.spread(field);
        line[field] = match field {
            "errors" | "starved" => json!(spread.max),
            _ => json!(spread.median),
        };
        line[format!("{field}_min")] = json!(spread.min);
        line[format!("{field}_max")] = json!(spread.max);
        if RATIOS.contains(&field) {
            line[format!("{field}_ratio")] = json!(figure.ratio(base, field));
        }
    }
    let cpu_us = figure.spread("server_cpu_us_per_request").median;
    line["requests_per_second_per_core"] = json!(per_core(cpu_us));
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_of_the_repetitions_beside() {
        let figure = |server, values: [f64; 3]| Figure {
            server,
            said: values.map(|v| json!({"latency_p99_us": v})).to_vec(),
        };
        let base = figure(Server::Minimal, [10.0, 20.0, 40.0]);
        let sws = figure(Server::Sws, [11.0, 22.0, 400.0]);
        assert_eq!(sws.ratio(&base, "latency_p99_us"), 1.1);
        assert_eq!(sws.spread("latency_p99_us").median, 22.0);
        assert_eq!(sws.worst("latency_p99_us"), 400.0);
    }
}
