//! Breaks mely in thousands of places, one at a time, and sees which tests notice.
//!
//! All mutants are in one build, and the variable `MELY_MUTANT` says which one runs: a build for
//! each would take days. See `checks/mutants/README.md`.
//!
//! [`operators`] are the ways to break something; [`rewrite`] puts them into the source and
//! [`tree`] into a copy of the project; [`compile`] leaves out those that do not compile; [`suite`]
//! are the tests and what each of them reaches; [`trial`] is one mutant against them; [`report`]
//! says what survived.

mod accepted;
mod compile;
mod operators;
mod options;
mod process;
mod report;
mod results;
mod rewrite;
mod source;
mod suite;
mod tree;
mod trial;

use accepted::Accepted;
use compile::{ALL_TESTS, Build, Compiling, LOOM, TESTS};
use operators::Mutant;
use options::Options;
use report::Report;
use results::Results;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use suite::{Suite, in_parallel};
use tree::Tree;
use trial::{Verdict, try_mutant};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

fn main() -> ExitCode {
    let options = match Options::parse() {
        Ok(Some(options)) => options,
        Ok(None) => {
            println!("{}", options::HELP);
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            eprintln!("{error}\n\n{}", options::HELP);
            return ExitCode::from(2);
        }
    };
    match work(&options) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::from(2)
        }
    }
}

/// False if something is to be done: a survivor that is not accepted, or an entry that is stale.
fn work(options: &Options) -> Result<bool> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .ancestors()
        .nth(2)
        .expect("this package is in checks/");
    let accepted = fs::read_to_string(root.join("checks/mutants/survivors.txt"))?;
    let accepted = Accepted::parse(&accepted)?;
    let as_they_lie = options.working_tree || options.check || options.list;
    let files = tree::files(root, as_they_lie)?;
    let mutants = tree::mutants(&files, &options.files)?;
    let again = match &options.again {
        Some(file) => Some(fs::read_to_string(file)?),
        None => None,
    };
    let again: Option<BTreeSet<&str>> = again.as_ref().map(|text| text.lines().collect());
    let mut chosen = choose(&mutants, &options.files, again.as_ref())?;
    chosen.retain(|mutant| mutant.id % options.shard.1 == options.shard.0 % options.shard.1);
    if options.list {
        for mutant in chosen {
            println!("{:5} {}", mutant.id, report::place(mutant));
        }
        return Ok(true);
    }
    if options.check {
        let unknown = accepted.unknown(&mutants);
        for entry in &unknown {
            println!("checks/mutants/survivors.txt: no such mutant: {entry}");
        }
        println!(
            "{} survivors are accepted, {} entries name no mutant",
            accepted.len(),
            unknown.len()
        );
        return Ok(unknown.is_empty());
    }
    let work = root.join("target/mutants");
    let mut tree = Tree::new(work.join("tree"), files, mutants.len());
    let dropped = drop_what_does_not_compile(&mutants, &mut tree, &work.join("results"))?;
    let chosen: Vec<&Mutant> = chosen
        .into_iter()
        .filter(|m| !dropped.contains(&m.id))
        .collect();

    let build = if options.sws { &ALL_TESTS } else { &TESTS };
    let tests = try_suite(build, &tree, &chosen, |_| false, options)?;
    let left: Vec<&Mutant> = chosen
        .iter()
        .copied()
        .filter(|m| survived(&tests[&m.id]))
        .collect();
    let mut loom = BTreeMap::new();
    if options.loom && !left.is_empty() {
        // Seeded faults have processes of their own, and each is a whole exploration.
        let left_out = |test: &str| test.contains("finds_");
        loom = try_suite(&LOOM, &tree, &left, left_out, options)?;
    }
    let report = Report {
        mutants: &mutants,
        chosen: &chosen,
        dropped: &dropped,
        accepted: &accepted,
        suites: [&tests, &loom],
    };
    let whole = options.shard.1 == 1 && options.again.is_none();
    report.write(&work.join("survivors.txt"), whole)
}

/// The mutants in these files and folders, all if there are none; of these only those with such a
/// key, if there are keys.
fn choose<'a>(
    mutants: &'a [Mutant],
    files: &[String],
    keys: Option<&BTreeSet<&str>>,
) -> Result<Vec<&'a Mutant>> {
    let has_some = |path: &&String| {
        let path = std::slice::from_ref(*path);
        mutants.iter().any(|mutant| tree::is_in(&mutant.file, path))
    };
    if let Some(path) = files.iter().find(|path| !has_some(path)) {
        return Err(format!("{path}: there is nothing to break").into());
    }
    let is_chosen = |mutant: &&Mutant| {
        (files.is_empty() || tree::is_in(&mutant.file, files))
            && keys.is_none_or(|keys| keys.contains(mutant.key().as_str()))
    };
    let chosen: Vec<&Mutant> = mutants.iter().filter(is_chosen).collect();
    match chosen.is_empty() {
        true => Err("--again: its file names none of these mutants".into()),
        false => Ok(chosen),
    }
}

fn survived(verdict: &Verdict) -> bool {
    matches!(verdict, Verdict::Survived { .. })
}

/// Leaves the tree with the mutants that compile. What was found out for the same tree before is
/// believed.
fn drop_what_does_not_compile(
    mutants: &[Mutant],
    tree: &mut Tree,
    results: &Path,
) -> Result<BTreeSet<u32>> {
    tree.write(mutants.iter())?;
    fs::create_dir_all(results)?;
    let path = results.join(format!("{}.dropped", tree.hash()));
    let known = results::known_dropped(&path);
    let mut compiling = Compiling::new(mutants, known.clone().unwrap_or_default());
    if known.is_none() {
        compiling.settle(tree, &TESTS)?;
        let before = compiling.dropped.len();
        compiling.settle(tree, &LOOM)?;
        println!(
            "{before} mutants do not compile, and {} under loom",
            compiling.dropped.len() - before
        );
        results::keep_dropped(&path, &compiling.dropped)?;
    }
    compiling.write(tree)?;
    Ok(compiling.dropped)
}

/// Tries mutants against the tests of a build, which must pass without any before.
fn try_suite(
    build: &Build,
    tree: &Tree,
    chosen: &[&Mutant],
    left_out: impl Fn(&str) -> bool,
    options: &Options,
) -> Result<BTreeMap<u32, Verdict>> {
    let directory = tree.path.with_file_name("results");
    let name = format!("{}.{}", tree.hash(), build.name);
    let mut results = Results::open(&directory, &name, options.fresh)?;
    let to_do: Vec<&Mutant> = chosen
        .iter()
        .copied()
        .filter(|m| !results.known.contains_key(&m.id))
        .collect();
    println!(
        "{}: {} mutants to try, {} known",
        build.name,
        to_do.len(),
        chosen.len() - to_do.len()
    );
    if to_do.is_empty() {
        return Ok(std::mem::take(&mut results.known));
    }
    let mut suite = Suite::build(build, &tree.path, &options.programs, left_out)?;
    suite.measure(options.jobs)?;
    println!(
        "{}: {} tests pass without a mutant",
        build.name,
        suite.tests.len()
    );
    let left_out = suite.leave_out_longer_than(options.longest);
    if left_out > 0 {
        println!("{}: {left_out} take too long, and are left out", build.name);
    }
    let tried = AtomicUsize::new(0);
    let verdicts = in_parallel(options.jobs, &to_do, |_, mutant| -> Result<_> {
        let verdict = try_mutant(&suite, mutant)?;
        results.add(mutant.id, &verdict)?;
        let tried = tried.fetch_add(1, Ordering::Relaxed) + 1;
        println!("{tried}/{} {}", to_do.len(), report::line(mutant, &verdict));
        Ok(verdict)
    });
    for (mutant, verdict) in to_do.iter().zip(verdicts) {
        results.known.insert(mutant.id, verdict?);
    }
    Ok(results.known)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_chosen_is_there_or_refused() {
        let source = b"fn f() { g(); }".to_vec();
        let files = [("src/sched/a.rs".to_owned(), source)];
        let mutants = tree::mutants(&tree::Files::from(files), &[]).unwrap();
        let choose = |paths: &[&str], keys: Option<&[&str]>| {
            let paths: Vec<_> = paths.iter().map(|&path| path.to_owned()).collect();
            let keys = keys.map(|keys| keys.iter().copied().collect());
            let chosen = super::choose(&mutants, &paths, keys.as_ref());
            chosen
                .map(|chosen| chosen.len())
                .map_err(|error| error.to_string())
        };
        let all = mutants.len();
        assert!(all > 0);
        assert_eq!(choose(&[], None), Ok(all));
        assert_eq!(choose(&["src/sched/"], None), Ok(all));
        assert_eq!(choose(&[], Some(&[&mutants[0].key()])), Ok(1));
        let nothing = choose(&["src/sched", "src/nowhere"], None).unwrap_err();
        assert!(nothing.starts_with("src/nowhere: "), "{nothing}");
        let nothing = choose(&[], Some(&["no such key"])).unwrap_err();
        assert!(nothing.starts_with("--again: "), "{nothing}");
    }
}
