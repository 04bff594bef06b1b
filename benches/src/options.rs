//! The command line of the benches.

use crate::measure;
use crate::shape::Shape;
use std::path::PathBuf;
use std::time::Duration;

/// The options of all benches; each bench has some of them.
#[derive(Clone, Debug)]
pub struct Options {
    /// Only tables whose name begins with one of these; all if empty.
    pub tables: Vec<String>,
    /// Only on this many cores.
    pub cores: Option<usize>,
    /// How large closures are, one after the other; none: as the table says.
    pub closures: Vec<Option<usize>>,
    /// How many events wait, one after the other; none: as the table says.
    pub depths: Vec<Option<u32>>,
    /// How long to measure each figure, if that was asked for.
    pub seconds: Option<Duration>,
    /// How many rounds; by default as many as fit the time.
    pub rounds: Option<usize>,
    /// Only these schedulers; all if empty.
    pub schedulers: Vec<String>,
    /// Where to write the chart, if anywhere.
    pub chart: Option<PathBuf>,
    /// JSON lines instead of the table.
    pub json: bool,
}

/// All that a bench may have.
pub const ALL: [&str; 9] = [
    "--table",
    "--cores",
    "--closure",
    "--depth",
    "--seconds",
    "--rounds",
    "--schedulers",
    "--json",
    "--chart",
];

/// Printed for `--help`.
pub const HELP: &str = "\
Options, after `--`:
  --table A,B       only tables whose name begins with A or B
  --cores N         only on N cores
  --closure A,B     closures of 8, 24, 32, 64, 96 or 200 bytes: chain, hop, drawn, cross, fresh,
                    scattered, fan-in, foreign and burst have all of them, 24 by default; the other
                    tables have closures of 16 to 24 bytes and count as 24
  --depth A,B       with about A events waiting, and with B: fan-in, foreign and burst
  --seconds S       how long to measure each figure, in all repetitions together; 1.5 by default.
                    Before each repetition it runs half as long without being measured
  --rounds N        interleaved repetitions of each figure; as many as last half a second, 7 at most
  --schedulers A,B  only these
  --json            one JSON object a line instead of the table
  --chart FILE      also draws the main comparison, as far as it was measured, as an SVG
  --help            this";

impl Options {
    /// How long to measure each figure: what was asked for, or a second.
    pub fn time(&self) -> Duration {
        self.seconds.unwrap_or(Duration::from_secs(1))
    }

    /// How many rounds: what was asked for, or what fits the time.
    pub fn rounds(&self) -> usize {
        let fitting = || measure::repetitions(self.time());
        self.rounds.unwrap_or_else(fitting)
    }

    /// Each size of closures with each depth.
    pub fn shapes(&self) -> Vec<Shape> {
        let of_size = |&closure_bytes| {
            self.depths.iter().map(move |&depth| Shape {
                closure_bytes,
                depth,
            })
        };
        self.closures.iter().flat_map(of_size).collect()
    }

    /// Whether a table of this name was asked for.
    pub fn has(&self, name: &str) -> bool {
        let begins = |prefix: &String| name.starts_with(prefix.as_str());
        self.tables.is_empty() || self.tables.iter().any(begins)
    }

    /// Checks that each `--table` names one of these.
    ///
    /// # Errors
    /// The first that does not.
    pub fn check_tables<'a>(
        &self,
        names: impl Iterator<Item = &'a str> + Clone,
    ) -> Result<(), String> {
        for prefix in &self.tables {
            if !names.clone().any(|name| name.starts_with(prefix.as_str())) {
                let names: Vec<_> = names.collect();
                return Err(format!(
                    "--table: no table begins with `{prefix}`; there are {}",
                    names.join(", ")
                ));
            }
        }
        Ok(())
    }

    /// Reads a bench's arguments; `known` are the options that it has. None: help was asked for.
    ///
    /// # Errors
    /// What cannot be understood.
    pub fn from_args(
        arguments: impl IntoIterator<Item = String>,
        known: &[&str],
    ) -> Result<Option<Options>, String> {
        let mut options = Options {
            tables: Vec::new(),
            cores: None,
            closures: vec![None],
            depths: vec![None],
            seconds: None,
            rounds: None,
            schedulers: Vec::new(),
            chart: None,
            json: false,
        };
        let mut arguments = arguments.into_iter();
        while let Some(argument) = arguments.next() {
            let mut value = || {
                arguments
                    .next()
                    .ok_or_else(|| format!("{argument} needs a value"))
            };
            match argument.as_str() {
                // What cargo passes to every bench.
                "--bench" => {}
                "--help" | "-h" => return Ok(None),
                other if !known.contains(&other) => {
                    return Err(format!("unknown argument: {other}\nTry --help."));
                }
                "--table" => options.tables = list(&argument, &value()?)?,
                "--cores" => {
                    let text = value()?;
                    let cores = text.parse().ok().filter(|&n: &usize| n > 0);
                    options.cores = Some(cores.ok_or(format!("--cores {text}: not a count"))?);
                }
                "--closure" => {
                    let sizes = value()?;
                    let sizes = sizes.split(',').map(Shape::closure_of);
                    options.closures = sizes.collect::<Result<_, _>>()?;
                }
                "--depth" => {
                    let depths = value()?;
                    let depths = depths.split(',').map(Shape::depth_of);
                    options.depths = depths.collect::<Result<_, _>>()?;
                }
                "--seconds" => {
                    let text = value()?;
                    let seconds = text.parse().ok().filter(|&s: &f64| s > 0.0);
                    let seconds = seconds.and_then(|s| Duration::try_from_secs_f64(s).ok());
                    options.seconds = Some(seconds.ok_or(format!("--seconds {text}: not a time"))?);
                }
                "--rounds" => {
                    let text = value()?;
                    let rounds = text.parse().ok().filter(|&n: &usize| n > 0);
                    options.rounds = Some(rounds.ok_or(format!("--rounds {text}: not a count"))?);
                }
                "--schedulers" => {
                    options.schedulers = list(&argument, &value()?)?;
                }
                "--chart" => options.chart = Some(value()?.into()),
                "--json" => options.json = true,
                other => unreachable!("{other} is known"),
            }
        }
        Ok(Some(options))
    }
}

/// Names, which commas separate. An empty one would choose nothing, or all.
fn list(option: &str, text: &str) -> Result<Vec<String>, String> {
    let names: Vec<_> = text.split(',').map(str::to_owned).collect();
    match names.iter().any(String::is_empty) {
        true => Err(format!("{option} {text:?}: an empty name")),
        false => Ok(names),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Option<Options>, String> {
        Options::from_args(line.split_whitespace().map(str::to_owned), &ALL)
    }

    #[test]
    fn reads_options() {
        let options = parse(
            "--bench --table chain --cores 2 --seconds 0.5 --rounds 3 --json --schedulers a,b \
             --chart c.svg",
        );
        let options = options.unwrap().unwrap();
        assert_eq!(options.tables, ["chain"]);
        assert_eq!(options.cores, Some(2));
        assert_eq!(options.time(), Duration::from_millis(500));
        assert_eq!(options.rounds, Some(3));
        assert_eq!(options.chart, Some("c.svg".into()));
        assert_eq!(options.schedulers, ["a", "b"]);
        assert_eq!(options.shapes(), [Shape::default()]);
        for line in [
            "--closure 24,8 --depth 10,1000",
            "--depth 10,1000 --closure 24,8",
        ] {
            let shapes = parse(line).unwrap().unwrap().shapes().into_iter();
            let shapes: Vec<_> = shapes.map(|of| (of.closure_bytes, of.depth)).collect();
            assert_eq!(
                shapes,
                [
                    (None, Some(10)),
                    (None, Some(1_000)),
                    (Some(8), Some(10)),
                    (Some(8), Some(1_000))
                ]
            );
        }
        assert!(options.json);
        assert!(parse("--help").unwrap().is_none());
    }

    #[test]
    fn refuses_nonsense() {
        for line in [
            "--closure 33",
            "--closure 64,",
            "--depth x",
            "--depth 0",
            "--depth 10,",
            "--cores 0",
            "--cores",
            "--rounds 0",
            "--seconds x",
            "--seconds -1",
            "--table a,",
            "--table ,",
            "--schedulers a,,b",
            "huh",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
        let empty = ["--table".to_owned(), String::new()];
        assert!(Options::from_args(empty, &ALL).is_err());
        // An option of other benches.
        let rounds = ["--rounds".to_owned(), "3".to_owned()];
        let refused = Options::from_args(rounds, &["--table"]).unwrap_err();
        assert!(refused.contains("unknown argument: --rounds"), "{refused}");
    }

    #[test]
    fn each_table_that_is_asked_for_exists() {
        let options = parse("--table cha,hop16").unwrap().unwrap();
        assert!(options.has("chain16") && options.has("hop16") && !options.has("hop1000"));
        let names = ["chain1", "chain16", "hop16"];
        options.check_tables(names.into_iter()).unwrap();
        let refused = options.check_tables(["chain1"].into_iter()).unwrap_err();
        assert!(refused.contains("`hop16`; there are chain1"), "{refused}");
        let all = parse("").unwrap().unwrap();
        assert!(all.has("anything") && all.check_tables(names.into_iter()).is_ok());
    }
}
