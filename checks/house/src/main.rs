//! The order in mely's house: which module of the library names which, the circles among them,
//! lines of code, and `unsafe` by file.
//!
//! [`names`] is what one file says, [`lines`] how long it is. [`house`] is the whole library and
//! the arrows between its modules; [`circles`] are arrows that lead back to where they began.
//! [`check`] compares all of it with [`list`], which is `house.txt`. [`packages`] are the arrows between
//! packages: none leads from the product to `lab/`.

mod check;
mod circles;
mod house;
mod lines;
mod list;
mod names;
mod packages;
mod public;

use circles::{Layers, circles, closing};
use house::{File, House, Place};
use list::List;
use names::Path;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::Write as _;
use std::process::ExitCode;

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

const HELP: &str = "\
Prints which module of a folder names which, circles, lines of code and unsafe; tests are apart.

  cargo run -p mely-house [-- FOLDER]   src by default; src/sched, ...
  cargo run -p mely-house -- --public   what a user of the library can name
  cargo run -p mely-house -- --check    compares all with checks/house/house.txt, and what a user
                                        can name with checks/house/public.rs.txt

Exit code 1: something is not as house.txt says. Exit code 2: there is nothing to compare.";

fn main() -> ExitCode {
    match work() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}

/// Whether all is as it should be.
fn work() -> Result<bool> {
    let (mut checks, mut lists, mut folder) = (false, false, "src".to_owned());
    let mut options = lexopt::Parser::from_env();
    while let Some(option) = options.next()? {
        match option {
            lexopt::Arg::Long("check") => checks = true,
            lexopt::Arg::Long("public") => lists = true,
            lexopt::Arg::Value(path) => folder = path.to_string_lossy().into_owned(),
            lexopt::Arg::Long("help") => {
                println!("{HELP}");
                return Ok(true);
            }
            _ => return Err(format!("{}\n\n{HELP}", option.unexpected()).into()),
        }
    }
    let root = std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let read = |path: &str| std::fs::read_to_string(root.join(path)).ok();
    let house = House::read(&read)?;
    let public = public::header(&house, &read)?;
    if lists {
        // A reader that has seen enough is no error.
        _ = std::io::stdout().write_all(public.as_bytes());
        return Ok(true);
    }
    let list = std::fs::read_to_string(root.join("checks/house/house.txt"))?;
    let list = List::parse(&list)?;
    if !checks {
        let folder = folder.trim_end_matches('/');
        let report = report(&house, &house.folder(folder)?, &list.layers(folder))?;
        // A reader that has seen enough is no error.
        _ = std::io::stdout().write_all(report.as_bytes());
        return Ok(true);
    }
    let mut deviations = check::deviations(&house, &list)?;
    deviations.extend(packages::deviations(&list, &read)?);
    let listed = std::fs::read_to_string(root.join("checks/house/public.rs.txt"))?;
    deviations.extend(check::public(&public, &listed));
    for deviation in &deviations {
        eprintln!("{deviation}");
    }
    Ok(deviations.is_empty())
}

/// Places in one line.
fn places(places: &BTreeSet<Place>) -> String {
    let places = places.iter().map(Place::to_string);
    places.collect::<Vec<_>>().join(", ")
}

/// What is printed of a folder.
fn report(house: &House, folder: &Path, layers: &Layers) -> Result<String> {
    let mut text = String::new();
    let arrows = house.arrows(folder);
    writeln!(text, "Arrows, with the lines that name a module:")?;
    for module in house.modules(folder) {
        let its = arrows.iter().filter(|((from, _), _)| *from == module);
        let its = its.map(|((_, to), places)| format!("{to} {}", places.len()));
        writeln!(text, "  {module} -> {}", its.collect::<Vec<_>>().join(", "))?;
    }
    for circle in circles(&arrows) {
        let (many, names) = (circle.len(), circle.iter().map(String::as_str));
        let names = names.collect::<Vec<_>>().join(", ");
        writeln!(
            text,
            "\nA circle of {many}: {names}. These arrows close it:"
        )?;
        for ((from, to), its) in closing(&circle, &arrows, layers) {
            writeln!(text, "  {from} -> {to}: {}", places(&its))?;
        }
    }

    let (mut modules, mut folders) = (BTreeMap::<String, usize>::new(), BTreeSet::new());
    let inside = |file: &&File| file.module.starts_with(folder);
    for file in house.files.iter().filter(inside) {
        let module = house.module(&file.module, folder).unwrap_or_default();
        *modules.entry(module).or_default() += file.found.lines.len();
        folders.extend(file.path.rsplit_once('/').map(|(folder, _)| folder));
    }
    writeln!(text, "\nLines of code by module:")?;
    for (module, lines) in modules {
        writeln!(text, "  {module:28}{lines:6}")?;
    }
    writeln!(text, "\nLines of code by folder:")?;
    for folder in folders {
        let lines = house.lines(folder).unwrap_or(0);
        writeln!(text, "  {folder:28}{lines:6}")?;
    }

    writeln!(text, "\nUnsafe blocks, impls and fns:")?;
    for file in house.files.iter().filter(inside) {
        let (path, found) = (&file.path, &file.found);
        let (impls, fns) = (found.unsafe_impls, found.unsafe_fns);
        let blocks = found.unsafe_blocks.len();
        if blocks + impls + fns > 0 {
            writeln!(text, "  {path:28}{blocks:6}{impls:6}{fns:6}")?;
        }
    }
    Ok(text)
}
