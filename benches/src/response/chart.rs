//! The 99th percentiles over the load, as an SVG: a line for each peer.

use super::table::{Figure, Measured};
use std::fmt::Write;

const WIDTH: f64 = 760.0;
const HEIGHT: f64 = 420.0;
/// Around the plot: for the title and the axes.
const MARGIN: f64 = 56.0;
/// Right of the plot: for the names.
const NAMES: f64 = 160.0;
const LINE_HEIGHT: f64 = 18.0;

/// Light or dark as the reader likes it, on a page of its own.
const STYLE: &str = "<style>
.page { fill: #ffffff; }
text { font: 13px system-ui, sans-serif; fill: #24292f; }
.title { font-weight: 600; }
.axis { stroke: #d0d7de; }
.line { fill: none; stroke: #8c959f; stroke-width: 1.5; }
.mely { stroke: #0969da; stroke-width: 2.5; }
@media (prefers-color-scheme: dark) {
  .page { fill: #0d1117; }
  text { fill: #e6edf3; }
  .axis { stroke: #30363d; }
  .line { stroke: #656c76; }
  .mely { stroke: #4493f8; }
}
</style>";

/// A dash pattern for each line but mely's.
const DASHES: [&str; 6] = ["", "6 3", "2 3", "8 3 2 3", "12 4", "1 4"];

fn ratio(figure: &Figure) -> f64 {
    figure.spread(|outcome| outcome.ratios()[2]).median
}

/// Draws rows of several loads: the 99th percentile of each peer as a multiple of the ideal queue's.
pub fn svg(rows: &[Measured]) -> String {
    let loads: Vec<f64> = rows.iter().map(|of| of.row.load).collect();
    let least = loads.iter().copied().fold(f64::INFINITY, f64::min);
    let most = loads.iter().copied().fold(0.0, f64::max);
    let ratios = rows.iter().flat_map(|of| of.figures.iter().map(ratio));
    let top = ratios.fold(1.0, f64::max).ceil() + 1.0;
    let (right, bottom) = (WIDTH - NAMES, HEIGHT - MARGIN);
    let x = |load: f64| MARGIN + (load - least) / (most - least).max(0.01) * (right - MARGIN);
    let y = |ratio: f64| bottom - (ratio - 1.0) / (top - 1.0) * (bottom - MARGIN);
    let of = rows.first().map(|of| of.row);
    let of = of.map_or_else(String::new, |row| {
        let by = if row.posts { "colors" } else { "connections" };
        let (service, mean_us, sources) = (row.service.name(), row.mean_us, row.sources);
        format!(", {service}, {mean_us} us, {sources} {by}")
    });
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
         width=\"{WIDTH}\" height=\"{HEIGHT}\" role=\"img\">\n{STYLE}\n<title>Response time over \
         load: less is better</title>\n\
         <rect class=\"page\" width=\"{WIDTH}\" height=\"{HEIGHT}\"/>\n\
         <text class=\"title\" x=\"{MARGIN}\" y=\"24\">99th percentile of the response time, in \
         multiples of the ideal queue's{of}</text>\n"
    );
    let mut add = |element: String| writeln!(svg, "{element}").expect("a string takes everything");
    let step = ((top - 1.0) / 8.0).ceil() as usize;
    for tick in (1..=top as usize).step_by(step) {
        let (at, text) = (y(tick as f64), MARGIN - 24.0);
        add(format!(
            "<path class=\"axis\" d=\"M{MARGIN} {at:.1}H{right}\"/>\
             <text x=\"{text}\" y=\"{:.1}\">{tick}</text>",
            at + 4.0
        ));
    }
    for &load in &loads {
        let (at, text) = (x(load) - 12.0, bottom + 20.0);
        add(format!("<text x=\"{at:.1}\" y=\"{text}\">{load}</text>"));
    }
    let names = rows.first().map_or(&[][..], |of| &of.figures);
    for (number, figure) in names.iter().enumerate() {
        let its = |of: &Measured| {
            let same = of.figures.iter().find(|other| other.name == figure.name)?;
            Some((x(of.row.load), y(ratio(same))))
        };
        let points: Vec<(f64, f64)> = rows.iter().filter_map(its).collect();
        let words: Vec<String> = points
            .iter()
            .map(|(x, y)| format!("{x:.1},{y:.1}"))
            .collect();
        let (class, dash) = match figure.name {
            "mely" => ("line mely", ""),
            _ => ("line", DASHES[number % DASHES.len()]),
        };
        add(format!(
            "<polyline class=\"{class}\" stroke-dasharray=\"{dash}\" points=\"{}\"/>",
            words.join(" ")
        ));
        // The names in a column, each with a piece of its line.
        let (left, at) = (right + 12.0, MARGIN + number as f64 * LINE_HEIGHT);
        add(format!(
            "<path class=\"{class}\" stroke-dasharray=\"{dash}\" d=\"M{left} {:.1}h28\"/>\
             <text x=\"{}\" y=\"{at:.1}\">{}</text>",
            at - 4.0,
            left + 34.0,
            figure.name
        ));
    }
    svg + "</svg>\n"
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::response::load::{ROWS, Row};
    use crate::response::score::{Outcome, Responses};

    #[test]
    fn each_peer_has_a_line_with_a_point_for_each_load() {
        let figure = |name, p99| Figure {
            name,
            outcomes: vec![Outcome {
                responses: Responses {
                    p99,
                    ..Responses::default()
                },
                ideal: Responses {
                    p99: 1.0,
                    ..Responses::default()
                },
                ..Outcome::default()
            }],
        };
        let rows = [0.5, 0.85].map(|load| Measured {
            row: Row { load, ..ROWS[0] },
            figures: vec![figure("mely", 1.0), figure("tokio", 2.0 * load)],
        });
        let svg = svg(&rows);
        assert_eq!(svg.matches("<polyline").count(), 2);
        // Mely's is on the lowest line, from the left to the right.
        assert!(svg.contains("points=\"56.0,364.0 600.0,364.0\""), "{svg}");
        assert!(svg.contains(">tokio</text>") && svg.contains(">0.85</text>"));
    }
}
