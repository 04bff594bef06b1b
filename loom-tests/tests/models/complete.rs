//! Every fault in mely is asked for, every model has some to find, and the crate's documentation
//! names all of them.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// All Rust files below a directory.
fn sources(dir: &Path) -> String {
    let entries = fs::read_dir(dir).expect("the repository's own directory");
    let paths = entries.map(|entry| entry.expect("readable").path());
    let text = paths.map(|path| match path.extension() {
        _ if path.is_dir() => sources(&path),
        Some(extension) if extension == "rs" => fs::read_to_string(&path).expect("readable"),
        _ => String::new(),
    });
    text.collect()
}

/// The strings that follow directly on each `before` and white space, this many of them each time.
fn strings<const N: usize>(text: &str, before: &str) -> Vec<[String; N]> {
    let calls = text.split(before).skip(1);
    let calls = calls.filter(|rest| rest.trim_start().starts_with('"'));
    let first = |rest: &str| {
        let mut quoted = rest.split('"').skip(1).step_by(2).map(str::to_owned);
        std::array::from_fn(|_| quoted.next().expect("as many strings"))
    };
    calls.map(first).collect()
}

#[test]
fn every_fault_is_found_and_every_model_finds_one() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    // This file is among them, and must not speak of itself.
    let tests = sources(&here.join("tests"));
    let seeded: BTreeSet<String> = strings(&sources(&here.join("../src")), "fault(")
        .into_iter()
        .map(|[fault]| fault)
        .collect();
    let models: BTreeSet<String> = strings(&tests, concat!("        ", "name: "))
        .into_iter()
        .map(|[model]| model)
        .collect();
    let (found_by, found): (BTreeSet<String>, BTreeSet<String>) =
        strings(&tests, concat!("must_", "fail("))
            .into_iter()
            .map(|[model, fault]| (model, fault))
            .unzip();
    assert!(!seeded.is_empty() && !models.is_empty());
    assert_eq!(found, seeded, "faults asked for, and those there are");
    // The models of all pairs have names that a macro makes.
    let (pairs, found_by): (BTreeSet<String>, BTreeSet<String>) =
        (found_by.into_iter()).partition(|model| model.starts_with("pairs::"));
    assert!(!pairs.is_empty(), "pairs with a fault");
    assert_eq!(found_by, models, "models with a fault, and those there are");
    let docs = fs::read_to_string(here.join("src/lib.rs")).expect("readable");
    for name in seeded.iter().chain(&models) {
        assert!(docs.contains(name.as_str()), "not in the table: {name:?}");
    }
}
