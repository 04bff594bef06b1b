//! The page at `/_mely`: the same figures as the summary, while the server runs. It needs nothing
//! from elsewhere and no script; the browser fetches it anew every two seconds.

use std::fmt::{self, Write};

use crate::figures::{Figures, duration, grouped, time, time_or_dash};

const STYLE: &str = "\
:root { color-scheme: light dark; --line: #8884; --mark: #23796c }
body { max-width: 72rem; margin: 0 auto; padding: 2rem 1.5rem; font: 15px/1.5 system-ui, sans-serif }
h1 { font-size: 1.6rem; margin: 0 } h2 { font-size: 1.1rem; margin: 2rem 0 .5rem }
dl { display: flex; flex-wrap: wrap; gap: .4rem 2.2rem; margin: 1.2rem 0 }
dt { opacity: .7 } dd { margin: 0; font-size: 1.3rem; font-variant-numeric: tabular-nums }
.scroll { overflow-x: auto }
table { border-collapse: collapse; font-variant-numeric: tabular-nums }
th, td { text-align: right; padding: .3rem .8rem; border-bottom: 1px solid var(--line); white-space: nowrap }
th:first-child, td:first-child { text-align: left; padding-left: 0 }
meter { width: 6rem; vertical-align: middle }
a { color: var(--mark) }";

/// Renders the page.
pub(crate) fn render(figures: &Figures) -> String {
    let mut page = String::with_capacity(4096 + 1024 * figures.cores.len());
    // Writing to a String cannot fail, so the result is of no interest.
    let _ = write(&mut page, figures);
    page
}

fn write(page: &mut String, figures: &Figures) -> fmt::Result {
    write!(
        page,
        "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta http-equiv=\"refresh\" content=\"2\">\n<title>mely: live figures</title>\n\
         <link rel=\"icon\" href=\"/favicon.svg\">\n<style>\n{STYLE}\n</style>\n\
         <h1>What the cores are doing</h1>\n"
    )?;
    overview(page, figures)?;
    cores(page, figures)?;
    steals(page, figures)?;
    page.write_str("<p>Renewed every two seconds. <a href=\"/\">Back</a></p>\n</html>\n")
}

fn overview(page: &mut String, figures: &Figures) -> fmt::Result {
    let connections = &figures.connections;
    page.write_str("<dl>\n")?;
    for (name, value) in [
        ("up", duration(figures.uptime)),
        ("requests", grouped(figures.requests)),
        (
            "clients now",
            format!("{} of {}", connections.open, connections.open_max),
        ),
        ("accepted", grouped(connections.accepted)),
        ("turned away", grouped(connections.rejected)),
        ("leaving now", grouped(connections.leaving)),
        (
            "stealing",
            if figures.stealing { "on" } else { "off" }.to_owned(),
        ),
        ("median steal", time_or_dash(figures.steal_cost_median_ns)),
        ("time stolen", duration(figures.stolen())),
        ("backend", figures.backend.clone()),
    ] {
        writeln!(
            page,
            "<div><dt>{name}</dt><dd>{}</dd></div>",
            Escaped(&value)
        )?;
    }
    page.write_str("</dl>\n")?;
    if figures.backend_reason.is_empty() {
        return Ok(());
    }
    writeln!(
        page,
        "<p>Why this backend: {}</p>",
        Escaped(&figures.backend_reason)
    )
}

fn cores(page: &mut String, figures: &Figures) -> fmt::Result {
    page.write_str("<h2>Cores</h2>\n<div class=\"scroll\"><table>\n<tr>")?;
    for name in [
        "core",
        "events",
        "share",
        "queued",
        "posts here",
        "posts away",
        "steals",
        "tried",
        "median steal",
        "stolen",
        "parks",
        "wakes",
        "longest handler",
    ] {
        write!(page, "<th>{name}</th>")?;
    }
    page.write_str("</tr>\n")?;
    let busiest = figures
        .cores
        .iter()
        .map(|core| core.events)
        .max()
        .unwrap_or(0)
        .max(1);
    for (index, core) in figures.cores.iter().enumerate() {
        write!(page, "<tr><td>{index} ({})</td>", core.place())?;
        write!(page, "<td>{}</td>", grouped(core.events))?;
        // A picture of the balance between cores, which is what stealing is about.
        let share = core.events as f64 / busiest as f64;
        write!(
            page,
            "<td><meter value=\"{share:.3}\">{:.0} %</meter></td>",
            share * 100.0
        )?;
        for count in [
            core.queued,
            core.posts_local,
            core.posts_remote,
            core.steals_won,
            core.steals_tried,
        ] {
            write!(page, "<td>{}</td>", grouped(count))?;
        }
        write!(page, "<td>{}</td>", time_or_dash(core.steal_cost_median_ns))?;
        write!(page, "<td>{}</td>", duration(core.stolen))?;
        write!(
            page,
            "<td>{}</td><td>{}</td>",
            grouped(core.parks),
            grouped(core.wakes)
        )?;
        writeln!(page, "<td>{}</td></tr>", time(core.handler_max_ns))?;
    }
    page.write_str("</table></div>\n")
}

fn steals(page: &mut String, figures: &Figures) -> fmt::Result {
    if figures.steals.is_empty() {
        return Ok(());
    }
    page.write_str(
        "<h2>Steals by distance</h2>\n<div class=\"scroll\"><table>\n\
         <tr><th>thief and victim share</th><th>won</th><th>tried</th></tr>\n",
    )?;
    for steals in &figures.steals {
        let (won, tried) = (grouped(steals.won), grouped(steals.tried));
        let distance = Escaped(&steals.distance);
        writeln!(
            page,
            "<tr><td>{distance}</td><td>{won}</td><td>{tried}</td></tr>"
        )?;
    }
    page.write_str("</table></div>\n")
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

    #[test]
    fn every_figure_is_on_the_page() {
        let page = render(&sample());
        for expected in [
            "<dd>61.25 s</dd>",
            "<dd>10,000</dd>",
            "<dd>3 of 10000</dd>",
            "<dd>1,000</dd>",
            "<dd>2</dd>",
            "<dd>on</dd>",
            "<dd>850 ns</dd>",
            "<dd>3.00 ms</dd>",
            "<dd>epoll</dd>",
            "<tr><td>1 (cpu 1)</td><td>1,234,567</td><td><meter value=\"1.000\">100 %</meter></td>\
             <td>5</td><td>10</td><td>3</td><td>4</td><td>9</td><td>850 ns</td><td>1.50 ms</td>\
             <td>7</td><td>6</td><td>42.00 us</td></tr>",
            "<tr><td>L3</td><td>8</td><td>18</td></tr>",
        ] {
            assert!(page.contains(expected), "{expected}\n{page}");
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
        assert!(!page.contains("<script") && !page.contains("//"));
    }

    #[test]
    fn an_empty_server_has_a_page() {
        assert!(render(&Figures::default()).ends_with("</html>\n"));
    }
}
