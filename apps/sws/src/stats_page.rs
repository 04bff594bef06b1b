//! The page at `/_mely`: the same figures as the summary, while the server runs. It needs nothing
//! from elsewhere.
//!
//! Each figure stands in an element of its own, and a script renews its text in place: the page
//! never jumps under a reader who scrolls or selects. Without scripts the page is fetched anew.

use std::collections::BTreeMap;
use std::fmt::{self, Write};

use crate::figures::{DEEPEST, Figures, duration, grouped, mebibytes, percent, time, time_or_dash};

const STYLE: &str = include_str!("builtin/figures.css");
const SCRIPT: &str = include_str!("builtin/figures.js");

/// A figure: the identity of its element, and its text, which is never empty.
type Value = (String, String);

/// A table, a figure a cell.
struct Table {
    /// Names the table's values, and nothing else.
    letter: char,
    title: &'static str,
    /// The first is the rows'. With what the others mean.
    columns: &'static [(&'static str, &'static str)],
    rows: Vec<Row>,
}

struct Row {
    name: String,
    texts: Vec<String>,
}

/// Renders the page.
pub(crate) fn render(figures: &Figures) -> String {
    let mut page = String::with_capacity(8192 + 2048 * figures.cores.len());
    // Writing to a String cannot fail, so the result is of no interest.
    let _ = write(&mut page, figures);
    page
}

/// The texts of all figures on the page, as JSON, by the identities of their elements.
pub(crate) fn values(figures: &Figures) -> String {
    let tables = tables(figures);
    let cells = tables.iter().flat_map(Table::values);
    let overview = overview(figures).into_iter().enumerate();
    let overview = overview.map(|(at, (_, text))| (format!("o{at}"), text));
    let answers = answers(figures).into_iter().map(|(_, value)| value);
    let all: BTreeMap<String, String> = cells.chain(overview).chain(answers).collect();
    serde_json::to_string(&all).expect("texts are JSON")
}

fn write(page: &mut String, figures: &Figures) -> fmt::Result {
    write!(
        page,
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <noscript><meta http-equiv=\"refresh\" content=\"5\"></noscript>\n\
         <title>mely: live figures</title>\n<link rel=\"icon\" href=\"/favicon.svg\">\n\
         <style>\n{STYLE}</style>\n<main>\n<h1>What the cores are doing</h1>\n\
         <dl class=\"figures\">\n"
    )?;
    for (at, (name, text)) in overview(figures).into_iter().enumerate() {
        figure(page, name, &(format!("o{at}"), text))?;
    }
    page.write_str("</dl>\n")?;
    if !figures.backend_reason.is_empty() {
        let reason = Escaped(&figures.backend_reason);
        writeln!(page, "<p>Why this event source: {reason}</p>")?;
    }
    page.write_str("<h2>Answers by status</h2>\n<dl class=\"figures\">\n")?;
    for (name, value) in answers(figures) {
        figure(page, &name, &value)?;
    }
    page.write_str("</dl>\n")?;
    for table in tables(figures) {
        table.write(page)?;
    }
    write!(
        page,
        "<p><span id=\"state\">As of now.</span> <a href=\"/\">Back</a></p>\n</main>\n\
         <script>\n{SCRIPT}</script>\n</html>\n"
    )
}

fn figure(page: &mut String, name: &str, (id, text): &Value) -> fmt::Result {
    let text = Escaped(text);
    writeln!(
        page,
        "<div><dt>{name}</dt><dd id=\"{id}\">{text}</dd></div>"
    )
}

/// Names and texts.
fn overview(figures: &Figures) -> Vec<(&'static str, String)> {
    let connections = &figures.connections;
    let of = |now: u64, max: u64| format!("{} of {}", grouped(now), grouped(max));
    vec![
        ("up", duration(figures.uptime)),
        ("answers", grouped(figures.requests())),
        ("answers in the last second", grouped(figures.last_second)),
        ("clients now", of(connections.open, connections.open_max)),
        ("clients accepted", grouped(connections.accepted)),
        ("turned away (503)", grouped(connections.rejected)),
        (
            "leaving now",
            of(connections.leaving, connections.leaving_max),
        ),
        (
            "open descriptors",
            of(figures.process.descriptors, figures.process.descriptors_max),
        ),
        ("events waiting", grouped(figures.waiting)),
        ("memory (resident)", mebibytes(figures.process.rss_bytes)),
        (
            "stealing",
            if figures.stealing { "on" } else { "off" }.to_owned(),
        ),
        ("event source", figures.backend.clone()),
    ]
}

/// Every status, so that none is missing when it comes.
fn answers(figures: &Figures) -> Vec<(String, Value)> {
    let answers = figures.answers.iter().map(|&(code, count)| {
        let id = format!("a{code}");
        (code.to_string(), (id, grouped(count)))
    });
    answers.collect()
}

fn tables(figures: &Figures) -> [Table; 3] {
    let events = figures.sum(|core| core.events);
    let cores = figures.cores.iter().enumerate().map(|(number, core)| Row {
        name: format!("{number} ({})", core.place()),
        texts: vec![
            grouped(core.events),
            percent(core.events, events),
            grouped(core.queued),
            grouped(core.posts_local),
            grouped(core.posts_remote),
            grouped(core.steals_tried),
            grouped(core.steals_won),
            time_or_dash(core.steal_cost_median_ns),
            duration(core.stolen),
            grouped(core.parks),
            grouped(core.wakes),
            time(core.handler_max_ns),
        ],
    });
    let steals = figures.steals.iter().map(|steals| Row {
        name: steals.distance.clone(),
        texts: vec![
            grouped(steals.tried),
            grouped(steals.won),
            time(steals.color_cost_ns),
        ],
    });
    // Always as many rows: the script renews texts, and does not add rows.
    let depths = (0..DEEPEST).map(|at| Row {
        name: (at + 1).to_string(),
        texts: match figures.deepest.get(at) {
            Some(depth) => vec![
                depth.color.clone(),
                grouped(depth.events),
                depth.core.to_string(),
            ],
            None => vec!["-".to_owned(); 3],
        },
    });
    [
        Table {
            letter: 'c',
            title: "Cores",
            columns: CORE_COLUMNS,
            rows: cores.collect(),
        },
        Table {
            letter: 's',
            title: "Steals by distance",
            columns: STEAL_COLUMNS,
            rows: steals.collect(),
        },
        Table {
            letter: 'd',
            title: "Colors where the most events wait",
            columns: DEPTH_COLUMNS,
            rows: depths.collect(),
        },
    ]
}

const CORE_COLUMNS: &[(&str, &str)] = &[
    ("core", ""),
    ("events", "run so far"),
    ("share", "of the events of all cores"),
    (
        "queued",
        "events in its own queue now; all that wait are above",
    ),
    ("posts kept", "events posted to colors of the same core"),
    ("posts away", "events posted to colors of other cores"),
    ("visits", "to other cores, to steal"),
    ("won", "visits that brought colors"),
    (
        "median visit",
        "half of the visits that brought colors took less than this, for however many colors",
    ),
    (
        "time stolen",
        "what the stolen events were expected to take",
    ),
    ("sleeps", "times it had nothing to do and went to sleep"),
    ("woke", "times it woke another core"),
    (
        "longest handler",
        "the longest time that one event took, of those that were timed",
    ),
];

const DEPTH_COLUMNS: &[(&str, &str)] = &[
    ("place", ""),
    ("color", "a connection has its descriptor as its color"),
    ("events", "that wait in it, the one included that runs"),
    ("on core", "that has the color now"),
];

const STEAL_COLUMNS: &[(&str, &str)] = &[
    ("thief and victim share", ""),
    ("visits", "over this distance"),
    ("won", "visits that brought colors"),
    (
        "cost of a color",
        "what the scheduler expects it to cost to steal one: a moving average of what it did cost. \
         Colors whose events are expected to take less are not stolen",
    ),
];

impl Table {
    fn values(&self) -> impl Iterator<Item = Value> {
        self.rows.iter().enumerate().flat_map(move |(at, row)| {
            let texts = row.texts.iter().enumerate();
            texts.map(move |(column, text)| {
                let id = format!("{}{at}-{column}", self.letter);
                (id, text.clone())
            })
        })
    }

    fn write(&self, page: &mut String) -> fmt::Result {
        if self.rows.is_empty() {
            return Ok(());
        }
        let title = self.title;
        write!(
            page,
            "<h2>{title}</h2>\n\
             <div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{title}\">\
             <table>\n<thead><tr>"
        )?;
        for (name, _) in self.columns {
            write!(page, "<th scope=\"col\">{name}</th>")?;
        }
        page.write_str("</tr></thead>\n<tbody>\n")?;
        let mut values = self.values();
        for row in &self.rows {
            write!(page, "<tr><th scope=\"row\">{}</th>", Escaped(&row.name))?;
            for (id, text) in values.by_ref().take(row.texts.len()) {
                write!(page, "<td id=\"{id}\">{}</td>", Escaped(&text))?;
            }
            page.write_str("</tr>\n")?;
        }
        page.write_str("</tbody></table></div>\n<dl class=\"words\">\n")?;
        for (name, meaning) in &self.columns[1..] {
            writeln!(page, "<dt>{name}</dt><dd>{meaning}</dd>")?;
        }
        page.write_str("</dl>\n")
    }
}

/// Text that HTML takes as text, in elements and in quoted attributes.
struct Escaped<'a>(&'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for character in self.0.chars() {
            match character {
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '&' => f.write_str("&amp;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                other => f.write_char(other)?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figures::sample;
    use std::collections::BTreeSet;

    #[test]
    fn every_figure_is_on_the_page() {
        let page = render(&sample());
        for expected in [
            "<dt>up</dt><dd id=\"o0\">61.25 s<",
            "<dt>answers</dt><dd id=\"o1\">10,000<",
            "<dt>answers in the last second</dt><dd id=\"o2\">7,654<",
            ">3 of 10,000<",
            ">1,000<",
            ">12 of 1,024<",
            "<dt>open descriptors</dt><dd id=\"o7\">45 of 65,536<",
            "<dt>events waiting</dt><dd id=\"o8\">4,321<",
            "<dt>memory (resident)</dt><dd id=\"o9\">12.3 MiB<",
            ">on<",
            ">epoll<",
            "<dt>200</dt><dd id=\"a200\">9,990<",
            "<dt>404</dt><dd id=\"a404\">10<",
            "<dt>503</dt><dd id=\"a503\">0<",
            "<tr><th scope=\"row\">1 (cpu 1)</th><td id=\"c1-0\">1,234,567</td>\
             <td id=\"c1-1\">97.6 %</td><td id=\"c1-2\">5</td><td id=\"c1-3\">10</td>\
             <td id=\"c1-4\">3</td><td id=\"c1-5\">9</td><td id=\"c1-6\">4</td>\
             <td id=\"c1-7\">850 ns</td><td id=\"c1-8\">1.50 ms</td><td id=\"c1-9\">7</td>\
             <td id=\"c1-10\">6</td><td id=\"c1-11\">42.00 us</td></tr>",
            "<tr><th scope=\"row\">L3</th><td id=\"s0-0\">18</td><td id=\"s0-1\">8</td>\
             <td id=\"s0-2\">320 ns</td></tr>",
            "<tr><th scope=\"row\">1</th><td id=\"d0-0\">connection &lt;17&gt;</td>\
             <td id=\"d0-1\">1,200</td><td id=\"d0-2\">1</td></tr>",
            "<tr><th scope=\"row\">4</th><td id=\"d3-0\">-</td>",
        ] {
            assert!(page.contains(expected), "{expected}\n{page}");
        }
    }

    /// The script finds every element, and each has a text to be renewed.
    #[test]
    fn the_values_are_those_of_the_page() {
        let figures = sample();
        let page = render(&figures);
        let values: BTreeMap<String, String> = serde_json::from_str(&values(&figures)).unwrap();
        for (id, text) in &values {
            assert!(!text.is_empty(), "{id}");
            let element = format!(" id=\"{id}\">{}</", Escaped(text));
            assert_eq!(page.matches(&element).count(), 1, "{element}");
        }
        let ids = page.split(" id=\"").skip(1);
        let ids: BTreeSet<&str> = ids.map(|rest| rest.split('"').next().unwrap()).collect();
        let known: BTreeSet<&str> = values.keys().map(String::as_str).collect();
        assert_eq!(ids.difference(&known).collect::<Vec<_>>(), [&"state"]);
    }

    #[test]
    fn every_column_is_explained_and_has_a_figure() {
        let page = render(&sample());
        for table in tables(&sample()) {
            for row in &table.rows {
                assert_eq!(row.texts.len() + 1, table.columns.len());
            }
            for (name, meaning) in &table.columns[1..] {
                assert!(!meaning.is_empty());
                assert!(page.contains(&format!("<dt>{name}</dt><dd>{meaning}</dd>")));
            }
        }
    }

    #[test]
    fn text_from_outside_stays_text() {
        let page = render(&sample());
        assert!(
            page.contains("refused: &lt;EPERM&gt; &amp; &quot;seccomp&quot;</p>"),
            "{page}"
        );
    }

    #[test]
    fn it_needs_nothing_from_elsewhere() {
        let page = render(&sample());
        for elsewhere in ["//", "src=", "@import", "url("] {
            assert!(!page.contains(elsewhere), "{elsewhere}");
        }
        assert_eq!(page.matches("<script>").count(), 1);
        // What a script in a page ends with cannot be in it.
        assert!(!SCRIPT.contains("</"));
    }

    #[test]
    fn an_empty_server_has_a_page() {
        assert!(render(&Figures::default()).ends_with("</html>\n"));
    }
}
