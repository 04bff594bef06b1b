//! The command line of the bench.

use super::load::{ROWS, Row, Service};
use super::{peers, posts};
use std::fmt::Display;
use std::path::PathBuf;
use std::str::FromStr;

/// Printed for `--help`.
pub const HELP: &str = "\
Options, after `--`:
  --row A,B         only rows whose name begins with A or B
  --peers A,B       only these; `mely` is measured twice, the second time as a control
  --load X          requests take this share of each core, 0.05 to 0.98
  --service NAME    fixed, exp or bimodal
  --mean-us N       requests compute for so long on average: 20 to 1000
  --connections N   1 to 10000; with --posts, colors
  --skew            a third of the requests by one connection
  --posts           without connections: a foreign thread posts to colors
                    (without --row these six make one row, of the first row's values otherwise;
                    with --row they change each of the rows)
  --cores N         workers; by default as many as there are processors
  --requests N      requests of each run, of which the first tenth is not counted; 20000 by default
  --rounds N        interleaved repetitions; 3 by default
  --chart FILE      measures one row at loads of 0.5 to 0.85, and draws the 99th percentiles as an
                    SVG
  --late            clients that connect while a core is in a handler of 3 s, instead of the table
  --pipeline        three requests in one packet while another handler waits, instead of the table
  --json            one JSON object a line instead of the table
  --help            this";

/// A kind of measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Response times.
    Table,
    /// [`late`](super::late).
    Late,
    /// [`pipeline`](super::pipeline).
    Pipeline,
}

/// The parsed command line.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// The kind of measurement.
    pub mode: Mode,
    /// Of [`Mode::Table`].
    pub rows: Vec<Row>,
    /// Names of servers and schedulers; all if empty.
    pub peers: Vec<String>,
    /// Workers, if that was asked for.
    pub cores: Option<usize>,
    /// Of a run.
    pub requests: usize,
    /// Interleaved repetitions.
    pub rounds: usize,
    /// Where to draw a chart, if anywhere.
    pub chart: Option<PathBuf>,
    /// JSON lines instead of tables.
    pub json: bool,
}

/// Requests of a run.
const REQUESTS: usize = 20_000;
/// Fewer have no 99th percentile.
const REQUESTS_MIN: usize = 20;
const ROUNDS: usize = 3;
/// The loads of a chart.
const CHART_LOADS: [f64; 6] = [0.5, 0.6, 0.7, 0.75, 0.8, 0.85];

/// Options that change rows.
#[derive(Default)]
struct Changes {
    load: Option<f64>,
    service: Option<Service>,
    mean_us: Option<f64>,
    sources: Option<usize>,
    skew: bool,
    posts: bool,
}

impl Changes {
    fn apply(&self, row: Row) -> Row {
        Row {
            load: self.load.unwrap_or(row.load),
            service: self.service.unwrap_or(row.service),
            mean_us: self.mean_us.unwrap_or(row.mean_us),
            sources: self.sources.unwrap_or(row.sources),
            skew: self.skew || row.skew,
            posts: self.posts || row.posts,
        }
    }

    fn are_any(&self) -> bool {
        self.apply(ROWS[0]) != ROWS[0]
            || self.load.is_some()
            || self.service.is_some()
            || self.mean_us.is_some()
            || self.sources.is_some()
    }
}

fn within<T: FromStr + PartialOrd + Display + Copy>(
    option: &str,
    text: &str,
    min: T,
    max: T,
) -> Result<T, String> {
    let number = text.parse().ok();
    let number = number.filter(|number| (min..=max).contains(number));
    number.ok_or_else(|| format!("{option} {text}: not a number from {min} to {max}"))
}

fn list(names: impl IntoIterator<Item = impl Display>) -> String {
    let names: Vec<String> = names.into_iter().map(|name| name.to_string()).collect();
    names.join(", ")
}

/// All names of rows.
pub fn row_names() -> String {
    list(ROWS)
}

/// All names of peers.
pub fn peer_names() -> String {
    let servers = list(peers::PEERS.iter().map(|peer| peer.name));
    format!("{servers}; by posts: {}", list(posts::PEERS))
}

fn rows_of(text: &str) -> Result<Vec<Row>, String> {
    let mut rows = Vec::new();
    for prefix in text.split(',') {
        let mut chosen = ROWS
            .into_iter()
            .filter(|row| !prefix.is_empty() && row.to_string().starts_with(prefix))
            .peekable();
        if chosen.peek().is_none() {
            return Err(format!(
                "--row `{prefix}`: no such row; there are {}",
                row_names()
            ));
        }
        rows.extend(chosen);
    }
    Ok(rows)
}

fn peers_of(text: &str) -> Result<Vec<String>, String> {
    let known = |name: &str| peers::find(name).is_some() || posts::PEERS.contains(&name);
    match text.split(',').find(|&name| !known(name)) {
        Some(unknown) => Err(format!(
            "--peers `{unknown}`: no such peer; there are {}",
            peer_names()
        )),
        None => Ok(text.split(',').map(str::to_owned).collect()),
    }
}

impl Options {
    /// Reads the arguments. None: help was asked for.
    ///
    /// # Errors
    /// What is no option, is out of its range, or selects nothing.
    pub fn from_args(
        arguments: impl IntoIterator<Item = String>,
    ) -> Result<Option<Options>, String> {
        let mut options = Options {
            mode: Mode::Table,
            rows: Vec::new(),
            peers: Vec::new(),
            cores: None,
            requests: REQUESTS,
            rounds: ROUNDS,
            chart: None,
            json: false,
        };
        let mut changes = Changes::default();
        let mut arguments = arguments.into_iter();
        while let Some(argument) = arguments.next() {
            let option = argument.as_str();
            let mut value = || {
                arguments
                    .next()
                    .ok_or_else(|| format!("{option} needs a value"))
            };
            match option {
                // Cargo passes it to every bench.
                "--bench" => {}
                "--row" => options.rows = rows_of(&value()?)?,
                "--peers" => options.peers = peers_of(&value()?)?,
                "--load" => changes.load = Some(within(option, &value()?, 0.05, 0.98)?),
                "--service" => {
                    let name = value()?;
                    let found = Service::find(&name);
                    changes.service = Some(found.ok_or_else(|| {
                        let all = list(Service::ALL.map(Service::name));
                        format!("--service `{name}`: no such service; there are {all}")
                    })?);
                }
                "--mean-us" => {
                    changes.mean_us = Some(within(option, &value()?, 20.0, 1_000.0)?);
                }
                "--connections" => changes.sources = Some(within(option, &value()?, 1, 10_000)?),
                "--skew" => changes.skew = true,
                "--posts" => changes.posts = true,
                "--cores" => options.cores = Some(within(option, &value()?, 1, 1_024)?),
                "--requests" => {
                    options.requests = within(option, &value()?, REQUESTS_MIN, 10_000_000)?;
                }
                "--rounds" => options.rounds = within(option, &value()?, 1, 1_001)?,
                "--chart" => options.chart = Some(value()?.into()),
                "--late" => options.mode = Mode::Late,
                "--pipeline" => options.mode = Mode::Pipeline,
                "--json" => options.json = true,
                "--help" | "-h" => return Ok(None),
                other => return Err(format!("unknown argument: {other}\n{HELP}")),
            }
        }
        if options.rows.is_empty() {
            let one = changes.are_any() || options.chart.is_some();
            options.rows = if one { ROWS[..1].into() } else { ROWS.into() };
        }
        for row in &mut options.rows {
            *row = changes.apply(*row);
        }
        if options.chart.is_some() {
            let [row] = options.rows[..] else {
                return Err("--chart draws one row: choose it by --row".to_owned());
            };
            options.rows = CHART_LOADS.map(|load| Row { load, ..row }).into();
        }
        options.check()?;
        Ok(Some(options))
    }

    /// Refuses a selection that no chosen peer runs.
    fn check(&self) -> Result<(), String> {
        let any = match self.mode {
            Mode::Table => self.rows.iter().any(|row| !self.peers_of(row).is_empty()),
            Mode::Late | Mode::Pipeline => !self.servers().is_empty(),
        };
        match any {
            true => Ok(()),
            false => Err(format!(
                "none of these peers runs that; there are {}",
                peer_names()
            )),
        }
    }

    fn chosen(&self, all: impl Iterator<Item = &'static str>) -> Vec<&'static str> {
        let is_chosen = |name: &str| self.peers.is_empty() || self.peers.iter().any(|p| p == name);
        all.filter(|name| is_chosen(name)).collect()
    }

    /// The servers that are measured.
    pub fn servers(&self) -> Vec<&'static str> {
        self.chosen(peers::PEERS.iter().map(|peer| peer.name))
    }

    /// The peers that are measured in this row.
    pub fn peers_of(&self, row: &Row) -> Vec<&'static str> {
        if row.posts {
            self.chosen(posts::PEERS.iter().copied())
        } else {
            self.servers()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Option<Options>, String> {
        Options::from_args(line.split_whitespace().map(str::to_owned))
    }

    fn options(line: &str) -> Options {
        parse(line).unwrap().unwrap()
    }

    #[test]
    fn reads_options() {
        let all = options("--bench");
        assert_eq!(all.rows, ROWS);
        assert_eq!(
            (all.requests, all.rounds, all.mode),
            (20_000, 3, Mode::Table)
        );
        assert_eq!(all.servers().len(), peers::PEERS.len());
        let line = "--row exp-1000us,posts --peers mely,rayon --cores 1 --requests 100 --rounds 5 \
                    --json";
        let some = options(line);
        assert_eq!(some.rows, [ROWS[0], ROWS[1], ROWS[5]]);
        assert_eq!(some.peers_of(&some.rows[0]), ["mely"]);
        assert_eq!(some.peers_of(&some.rows[2]), ["mely", "rayon"]);
        assert_eq!((some.cores, some.requests, some.rounds), (Some(1), 100, 5));
        assert!(some.json);
        assert_eq!(options("--late").mode, Mode::Late);
        assert_eq!(options("--pipeline").mode, Mode::Pipeline);
        assert_eq!(parse("--help"), Ok(None));
    }

    #[test]
    fn changes_make_a_row_or_change_those_that_are_chosen() {
        let line = "--load 0.5 --service fixed --mean-us 20 --connections 8 --skew";
        let one = options(line);
        let names: Vec<_> = one.rows.iter().map(Row::to_string).collect();
        assert_eq!(names, ["fixed-20us-0.5-8-skew"]);
        let changed = options("--row exp-1000us --mean-us 500 --posts");
        let names: Vec<_> = changed.rows.iter().map(Row::to_string).collect();
        assert_eq!(names, ["posts-exp-500us-0.7", "posts-exp-500us-0.85"]);
        // Also if an option asks for the default.
        assert_eq!(options("--load 0.7").rows, [ROWS[0]]);
    }

    #[test]
    fn a_chart_is_of_one_row_at_several_loads() {
        let chart = options("--chart c.svg --mean-us 200");
        assert_eq!(chart.chart, Some("c.svg".into()));
        let loads: Vec<_> = chart.rows.iter().map(|row| row.load).collect();
        assert_eq!(loads, CHART_LOADS);
        assert!(chart.rows.iter().all(|row| row.mean_us == 200.0));
        assert!(parse("--chart c.svg --row exp-1000us").is_err());
    }

    #[test]
    fn refuses_nonsense_and_empty_selections_with_what_there_is() {
        for line in [
            "--load 0",
            "--load 1",
            "--load x",
            "--load",
            "--service huh",
            "--mean-us 10",
            "--mean-us 1001",
            "--connections 0",
            "--cores 0",
            "--requests 5",
            "--rounds 0",
            "huh",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
        for line in ["--row huh", "--row ,", "--row exp-1000us,huh"] {
            let said = parse(line).unwrap_err();
            assert!(
                said.contains("exp-1000us-0.85, bimodal-1000us-0.6"),
                "{said}"
            );
        }
        for line in [
            "--peers huh",
            "--peers mely,",
            "--late --peers rayon",
            "--row exp --peers rayon",
        ] {
            let said = parse(line).unwrap_err();
            assert!(
                said.contains("shared-epoll; by posts: mely"),
                "{line}: {said}"
            );
        }
    }
}
