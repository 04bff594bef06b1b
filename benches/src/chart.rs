//! The main comparison as an SVG: a panel for each table, for each scheduler a bar, or one for each
//! size of closures, below each other.

use crate::measure::{Figure, Measured};
use crate::shape::DEFAULT_BYTES;
use std::fmt::Write;

/// What is drawn, as far as it was measured.
const TABLES: [&str; 6] = [
    "chain16",
    "hop16",
    "fresh50000",
    "mely-3-4-unbalanced",
    "fan-in64",
    "ping-pong",
];
const COLUMNS: usize = 2;
const PANEL_WIDTH: usize = 420;
const NAME_WIDTH: usize = 130;
/// Of the longest bar.
const BAR_WIDTH: usize = 200;
const ROW_HEIGHT: usize = 20;
const MARGIN: usize = 16;

/// Draws each table with the most cores it was measured on.
pub fn svg(rows: &[Measured]) -> String {
    let panels: Vec<Vec<&Measured>> = TABLES
        .into_iter()
        .filter_map(|name| {
            let as_it_is =
                |of: &&Measured| of.row.table.name == name && of.row.shape.depth.is_none();
            let same = || rows.iter().filter(as_it_is);
            let cores = same().map(|measured| measured.row.cores).max()?;
            Some(same().filter(|of| of.row.cores == cores).collect())
        })
        .collect();
    let most = panels.iter().map(|panel| panel[0].figures.len()).max();
    let panel_height = (most.unwrap_or(0) + 2) * ROW_HEIGHT;
    let width = COLUMNS * PANEL_WIDTH + 2 * MARGIN;
    let height = panels.len().div_ceil(COLUMNS) * panel_height + 2 * MARGIN;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" \
         width=\"{width}\" height=\"{height}\" role=\"img\">\n{STYLE}\n<title>Time per event in \
         nanoseconds: less is better</title>\n\
         <rect class=\"page\" width=\"{width}\" height=\"{height}\"/>\n"
    );
    for (i, sizes) in panels.iter().enumerate() {
        let x = MARGIN + i % COLUMNS * PANEL_WIDTH;
        let y = MARGIN + i / COLUMNS * panel_height;
        panel(&mut svg, sizes, x, y);
    }
    svg + "</svg>\n"
}

/// Light or dark as the reader likes it, on a page of its own: that around it may be the other.
const STYLE: &str = "<style>
.page { fill: #ffffff; }
text { font: 13px system-ui, sans-serif; fill: #24292f; }
.title { font-weight: 600; }
.value { fill: #57606a; }
.bar { fill: #8c959f; }
.mely { fill: #0969da; }
@media (prefers-color-scheme: dark) {
  .page { fill: #0d1117; }
  text { fill: #e6edf3; }
  .value { fill: #9198a1; }
  .bar { fill: #656c76; }
  .mely { fill: #4493f8; }
}
</style>";

/// Of one table, in all sizes of closures that it was measured with.
fn panel(svg: &mut String, sizes: &[&Measured], x: usize, y: usize) {
    let row = sizes[0].row;
    let cores = match row.cores {
        1 => "1 core".to_owned(),
        n => format!("{n} cores"),
    };
    let bytes = |of: &&Measured| {
        of.row
            .shape
            .closure_bytes
            .unwrap_or(DEFAULT_BYTES)
            .to_string()
    };
    let bytes = sizes.iter().map(bytes).collect::<Vec<_>>().join(", ");
    let name = row.table.name;
    let title = format!("{name}, {cores}, {bytes} bytes: ns per event");
    let y = y + ROW_HEIGHT;
    line(
        svg,
        format_args!("<text class=\"title\" x=\"{x}\" y=\"{y}\">{title}</text>"),
    );
    let ns = |figure: &Figure| figure.ns.median;
    let longest = sizes.iter().flat_map(|of| of.figures.iter().map(ns));
    let longest = longest.fold(f64::MIN_POSITIVE, f64::max);
    for (i, figure) in sizes[0].figures.iter().enumerate() {
        let y = y + (i + 1) * ROW_HEIGHT;
        let name = figure.scheduler;
        let same = |of: &&Measured| of.figures.iter().find(|f| f.scheduler == name).map(ns);
        let all: Vec<f64> = sizes.iter().filter_map(same).collect();
        let class = if name.starts_with("mely") {
            "bar mely"
        } else {
            "bar"
        };
        let left = x + NAME_WIDTH;
        let high = (ROW_HEIGHT - 6) / all.len();
        let wide = |ns: f64| (ns / longest * BAR_WIDTH as f64).max(1.0);
        line(svg, format_args!("<text x=\"{x}\" y=\"{y}\">{name}</text>"));
        for (i, &ns) in all.iter().enumerate() {
            let (top, wide) = (y - 12 + i * high, wide(ns));
            line(
                svg,
                format_args!(
                    "<rect class=\"{class}\" x=\"{left}\" y=\"{top}\" width=\"{wide:.1}\" \
                     height=\"{high}\" rx=\"2\"/>"
                ),
            );
        }
        let value = left as f64 + wide(all.iter().copied().fold(0.0, f64::max)) + 6.0;
        let all: Vec<_> = all.iter().map(|ns| format!("{ns:.1}")).collect();
        let all = all.join(", ");
        line(
            svg,
            format_args!("<text class=\"value\" x=\"{value:.1}\" y=\"{y}\">{all}</text>"),
        );
    }
}

fn line(svg: &mut String, element: std::fmt::Arguments<'_>) {
    writeln!(svg, "{element}").expect("a string takes everything");
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whoever has text of one scheme has the background of the same.
    #[test]
    fn text_has_a_background_of_its_own_in_both_schemes() {
        let (light, dark) = STYLE.split_once("@media").expect("two schemes");
        for scheme in [light, dark] {
            for class in [".page {", "text {", ".value {", ".bar {", ".mely {"] {
                assert!(scheme.contains(class), "{class}");
            }
        }
        let page = "<rect class=\"page\" width=\"872\" height=\"32\"/>";
        assert!(svg(&[]).contains(page), "{}", svg(&[]));
    }

    /// What is committed is what this draws, but for the figures.
    #[test]
    fn the_committed_chart_has_this_style() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/comparison.svg");
        let committed = std::fs::read_to_string(path).expect("it is there");
        assert!(committed.contains(STYLE));
        assert!(committed.contains("<rect class=\"page\" width=\"872\" height=\""));
    }
}
