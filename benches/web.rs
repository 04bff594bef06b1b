//! What a request costs SWS, beside a floor that does nothing but answer, hyper, and nginx when it
//! is installed. `cargo bench -p mely-bench --bench web -- --help`

use mely_bench::machine;
use mely_bench::options::Options;
use mely_bench::web::loads::{Dirs, ROWS, Row};
use mely_bench::web::servers::Programs;
use mely_bench::web::{nginx, table};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

const HELP: &str = "\
Options, after `--`:
  --table A,B    only tables whose name begins with A or B
  --cores N      only tables on N cores
  --seconds S    how long to measure in each repetition; 1 by default
  --json         one JSON object a line instead of the table
  --help         this";

const OPTIONS: [&str; 4] = ["--table", "--cores", "--seconds", "--json"];

fn main() -> ExitCode {
    let options = match Options::from_args(std::env::args().skip(1), &OPTIONS) {
        Ok(Some(options)) => options,
        Ok(None) => {
            let names: Vec<_> = names().collect();
            println!("{HELP}\n\nTables: {}", names.join(", "));
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(2);
        }
    };
    match run(&options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn names() -> impl Iterator<Item = &'static str> + Clone {
    ROWS.iter().map(|row| row.table)
}

fn run(options: &Options) -> Result<(), String> {
    options.check_tables(names())?;
    if machine::cores() < 2 {
        return Err("one core for the server and one for the client: this process has one".into());
    }
    let rows: Vec<Row> = ROWS
        .iter()
        .copied()
        .filter(|row| options.has(row.table))
        .filter(|row| options.cores.is_none_or(|cores| cores == row.cores))
        .collect();
    if rows.is_empty() {
        return Err("no such table on that number of cores".into());
    }
    let programs = programs()?;
    let root = format!("mely-web-{}", std::process::id());
    let dirs = Dirs::new(std::env::temp_dir().join(root), &programs, &rows)?;
    if !options.json {
        println!(
            "Medians of {} interleaved repetitions of {} s, ratios to `minimal`, the worst of errors \
             and starved clients. On one core: the server has the first core and the injector \
             the second. shared: two workers, and the injector on both cores.{}\n",
            table::REPETITIONS,
            options.time().as_secs_f64(),
            if programs.nginx.is_none() {
                " nginx is not installed."
            } else {
                ""
            }
        );
        table::print_head();
    }
    for row in rows {
        table::measure(row, &programs, &dirs, options.time(), options.json)?;
    }
    Ok(())
}

/// This package's programs are built with the bench; those of `apps/` are built here, where cargo
/// put this one.
fn programs() -> Result<Programs, String> {
    let minimal = PathBuf::from(env!("CARGO_BIN_EXE_minimal"));
    let release = minimal.parent().ok_or("no directory of programs")?;
    let target = release.parent().ok_or("no directory of targets")?;
    let built = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["build", "--release"])
        .args(["--package", "sws", "--package", "injector"])
        .arg("--manifest-path")
        .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("../Cargo.toml"))
        .arg("--target-dir")
        .arg(target)
        .status()
        .map_err(|error| format!("cargo: {error}"))?;
    if !built.success() {
        return Err("sws and the injector do not build".into());
    }
    Ok(Programs {
        sws: release.join("sws"),
        injector: release.join("injector"),
        hyper: PathBuf::from(env!("CARGO_BIN_EXE_hyper")),
        nginx: nginx::find(),
        minimal,
    })
}
