//! The table for people, and JSON lines for programs.

use crate::measure::{Figure, Measured};
use crate::schedulers::Steals;

/// The table's head.
pub fn print_head() {
    println!(
        "{:<19} {:>5} {:>5} {:>6}  {:<17} {:>8} {:>15} {:>8} {:>7} {:>8}  notes",
        "table",
        "cores",
        "bytes",
        "depth",
        "scheduler",
        "ns/event",
        "min..max",
        "CPU ns",
        "ratio",
        "M/s"
    );
}

/// One row, a line for each scheduler.
pub fn print(measured: &Measured) {
    let row = measured.row;
    for (i, figure) in measured.figures.iter().enumerate() {
        let ns = figure.ns;
        let head = match i {
            0 => format!(
                "{:<19} {:>5} {:>5} {:>6}",
                row.table.name,
                row.cores,
                or_dash(row.closure_bytes()),
                or_dash(row.shape.depth),
            ),
            _ => String::new(),
        };
        println!(
            "{head:<38}  {:<17} {:>8.2} {:>15} {:>8.2} {:>7} {:>8.2}  {}",
            figure.scheduler,
            ns.median,
            format!("{:.2}..{:.2}", ns.min, ns.max),
            figure.cpu_ns,
            or_dash(figure.ratio.map(|ratio| format!("{ratio:.2}"))),
            1e3 / ns.median,
            notes(figure),
        );
    }
    for remark in row.table.remarks {
        println!("{:40}{remark}", "");
    }
}

fn or_dash(cell: Option<impl ToString>) -> String {
    cell.map_or_else(|| "-".to_owned(), |cell| cell.to_string())
}

fn notes(figure: &Figure) -> String {
    let mut notes = vec![format!("core {:.2} ns", figure.step_ns.median)];
    // A latency is not made of line transfers.
    if let (Some(line), None) = (figure.line, figure.latency_ns) {
        notes.push(format!(
            "{:.2} line transfers of {:.0} ns",
            line.transfers, line.ns.median
        ));
    }
    if let Some(ratio) = figure.to_beside {
        notes.push(format!("{ratio:.2} times the run beside"));
    }
    if let Some([p50, p99]) = figure.latency_ns {
        let [p50, p99, cpu] = [p50 as f64, p99 as f64, figure.cpu_ns].map(|ns| ns / 1e3);
        notes.push(format!("p50 {p50:.1} us, p99 {p99:.1} us, CPU {cpu:.1} us"));
    }
    notes.extend(
        figure
            .values
            .iter()
            .map(|(name, value)| format!("{} {value:.3}", name.replace('_', " "))),
    );
    if let Some(steals) = figure.steals {
        notes.push(format!("{} steals", steals.won));
        if let Some(cost_ns) = steals.cost_ns() {
            notes.push(format!(
                "of {:.1} colors at {cost_ns} ns bringing {} ns",
                steals.colors as f64 / steals.won as f64,
                steals.stolen.as_nanos() / u128::from(steals.won),
            ));
        }
        notes.push(format!("{} parks", steals.parks));
    }
    notes.join(", ")
}

/// One row as JSON, an object a line.
pub fn print_json(measured: &Measured) {
    for figure in &measured.figures {
        println!("{}", json(measured, figure));
    }
}

fn json(measured: &Measured, figure: &Figure) -> String {
    let ns = figure.ns;
    let mut object = Object::default();
    object.text("table", measured.row.table.name);
    object.text("scheduler", figure.scheduler);
    object.number("cores", measured.row.cores as f64);
    if let Some(bytes) = measured.row.closure_bytes() {
        object.number("closure_bytes", bytes as f64);
    }
    if let Some(depth) = measured.row.shape.depth {
        object.number("depth", f64::from(depth));
    }
    object.number("ns_per_event", ns.median);
    object.number("ns_per_event_min", ns.min);
    object.number("ns_per_event_max", ns.max);
    object.number("spread", (ns.max - ns.min) / ns.median);
    object.number("cpu_ns_per_event", figure.cpu_ns);
    object.number("events_per_second", (1e9 / ns.median).round());
    object.number("events", figure.events as f64);
    if let Some(ratio) = figure.ratio {
        object.number("ratio", ratio);
    }
    object.number("step_ns", figure.step_ns.median);
    if let Some(line) = figure.line {
        object.number("line_transfers", line.transfers);
        object.number("line_transfer_ns", line.ns.median);
        object.number("line_transfer_ns_min", line.ns.min);
        object.number("line_transfer_ns_max", line.ns.max);
    }
    if let Some(ratio) = figure.to_beside {
        object.number("to_beside", ratio);
    }
    if let Some([p50, p99]) = figure.latency_ns {
        object.number("p50_ns", p50 as f64);
        object.number("p99_ns", p99 as f64);
    }
    for (name, value) in &figure.values {
        object.number(name, *value);
    }
    if let Some(steals) = figure.steals {
        object.steals(steals);
    }
    object.end()
}

#[derive(Default)]
struct Object(Vec<String>);

impl Object {
    /// `text` is one of our own names, which need no escapes.
    fn text(&mut self, name: &str, text: &str) {
        self.0.push(format!("\"{name}\":\"{text}\""));
    }

    /// To a thousandth; null for what JSON has no number for.
    fn number(&mut self, name: &str, number: f64) {
        let number = match (number * 1e3).round() / 1e3 {
            n if n.is_finite() => n.to_string(),
            _ => "null".to_owned(),
        };
        self.0.push(format!("\"{name}\":{number}"));
    }

    fn steals(&mut self, steals: Steals) {
        self.number("steals", steals.won as f64);
        self.number("colors_stolen", steals.colors as f64);
        self.number(
            "steal_cost_ns",
            steals.cost_ns().map_or(f64::NAN, |ns| ns as f64),
        );
        self.number("stolen_time_ns", steals.stolen.as_nanos() as f64);
        self.number("parks", steals.parks as f64);
    }

    fn end(self) -> String {
        format!("{{{}}}", self.0.join(","))
    }
}
