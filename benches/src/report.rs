//! The table for people, and JSON lines for programs.

use crate::measure::{Figure, Measured, Spread};

/// The table's head.
pub fn print_head() {
    println!(
        "{:<11} {:>5}  {:<17} {:>8} {:>15} {:>7} {:>8}  notes",
        "table", "cores", "scheduler", "ns/event", "min..max", "ratio", "M/s"
    );
}

/// One row, a line for each scheduler.
pub fn print(measured: &Measured) {
    let row = measured.row;
    for (i, figure) in measured.figures.iter().enumerate() {
        let ns = figure.ns;
        let (table, cores) = match i {
            0 => (row.table, row.cores.to_string()),
            _ => ("", String::new()),
        };
        println!(
            "{table:<11} {cores:>5}  {:<17} {:>8.2} {:>15} {:>7} {:>8.1}  {}",
            figure.scheduler,
            ns.median,
            format!("{:.2}..{:.2}", ns.min, ns.max),
            figure
                .ratio
                .map_or_else(|| "-".to_owned(), |r| format!("{r:.2}")),
            1e3 / ns.median,
            notes(measured, figure, i == 0),
        );
    }
}

fn notes(measured: &Measured, figure: &Figure, first: bool) -> String {
    let mut notes = Vec::new();
    if let (true, Some(Spread { median, min, max })) = (first, measured.line_ns) {
        notes.push(format!("line transfer {median:.0} ns ({min:.0}..{max:.0})"));
    }
    if let Some(steals) = figure.steals {
        notes.push(format!("{} steals", steals.won));
        if let Some(cost_ns) = (steals.cost.as_nanos() as u64).checked_div(steals.won) {
            notes.push(format!(
                "of {:.1} colors at {cost_ns} ns",
                steals.colors as f64 / steals.won as f64
            ));
        }
        notes.push(format!("{} parks", steals.parks));
    }
    notes.join(", ")
}

/// One row as JSON, an object a line.
pub fn print_json(measured: &Measured) {
    let row = measured.row;
    for figure in &measured.figures {
        let ns = figure.ns;
        let mut fields = vec![
            format!("\"table\":\"{}\"", row.table),
            format!("\"scheduler\":\"{}\"", figure.scheduler),
            format!("\"cores\":{}", row.cores),
            format!("\"ns_per_event\":{:.3}", ns.median),
            format!("\"ns_per_event_min\":{:.3}", ns.min),
            format!("\"ns_per_event_max\":{:.3}", ns.max),
            format!("\"events_per_second\":{:.0}", 1e9 / ns.median),
            format!("\"events\":{}", figure.events),
        ];
        if let Some(ratio) = figure.ratio {
            fields.push(format!("\"ratio\":{ratio:.3}"));
        }
        if let Some(line) = measured.line_ns {
            fields.push(format!("\"line_transfer_ns\":{:.1}", line.median));
            fields.push(format!("\"line_transfer_ns_min\":{:.1}", line.min));
            fields.push(format!("\"line_transfer_ns_max\":{:.1}", line.max));
        }
        if let Some(steals) = figure.steals {
            let cost_ns = (steals.cost.as_nanos() as u64)
                .checked_div(steals.won)
                .map_or_else(|| "null".to_owned(), |ns| ns.to_string());
            fields.push(format!("\"steals\":{}", steals.won));
            fields.push(format!("\"colors_stolen\":{}", steals.colors));
            fields.push(format!("\"steal_cost_ns\":{cost_ns}"));
            fields.push(format!("\"stolen_time_ns\":{}", steals.stolen.as_nanos()));
            fields.push(format!("\"parks\":{}", steals.parks));
        }
        println!("{{{}}}", fields.join(","));
    }
}
