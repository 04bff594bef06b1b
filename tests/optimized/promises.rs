//! The pages of guarantees name tests that exist, and each guarantee has tests.

use std::collections::BTreeMap;
use std::path::PathBuf;

/// Most guarantees of `docs/promises.md`: as many as a user reads.
const GUARANTEES_MAX: usize = 80;

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn page(name: &str) -> String {
    std::fs::read_to_string(root().join(name)).expect(name)
}

/// The code spans of `text` that name a test: its file, without `.rs`, and its function.
fn named_tests(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let spans = text.split('`').skip(1).step_by(2);
    spans.filter_map(|span| span.split_once(".rs::"))
}

#[test]
fn every_test_that_a_page_names_is_there() {
    let mut named = 0;
    for name in [
        "docs/promises.md",
        "docs/promises-tests.md",
        "docs/checks.md",
        "docs/policy.md",
    ] {
        for (file, test) in named_tests(&page(name)) {
            let path = root().join(format!("{file}.rs"));
            let code = std::fs::read_to_string(&path)
                .unwrap_or_else(|error| panic!("{name} names {}: {error}", path.display()));
            assert!(
                code.contains(&format!("fn {test}(")),
                "{name}: `{file}.rs::{test}` is not there"
            );
            named += 1;
        }
    }
    assert!(named > 50, "only {named} names were found");
}

/// The numbers of the guarantees: `12. ...` at the beginning of a line.
fn guarantees(text: &str) -> Vec<usize> {
    let numbers = text.lines().filter_map(|line| line.split_once(". "));
    numbers
        .filter_map(|(number, _)| number.parse().ok())
        .collect()
}

/// How many tests each row `| 12 | ... |` names.
fn rows(text: &str) -> BTreeMap<usize, usize> {
    let mut rows = BTreeMap::new();
    for line in text.lines().filter(|line| line.starts_with("| ")) {
        let mut cells = line.split('|').map(str::trim).skip(1);
        if let (Some(number), Some(tests)) = (cells.next(), cells.next())
            && let Ok(number) = number.parse::<usize>()
        {
            let before = rows.insert(number, named_tests(tests).count());
            assert_eq!(before, None, "two rows of the number {number}");
        }
    }
    rows
}

#[test]
fn each_guarantee_has_a_number_and_tests() {
    let numbers = guarantees(&page("docs/promises.md"));
    let in_order: Vec<usize> = (1..=numbers.len()).collect();
    assert_eq!(numbers, in_order, "docs/promises.md: numbers have no gaps");
    assert!(
        (50..=GUARANTEES_MAX).contains(&numbers.len()),
        "docs/promises.md: {} guarantees, of at most {GUARANTEES_MAX}",
        numbers.len()
    );
    let rows = rows(&page("docs/promises-tests.md"));
    for number in &numbers {
        let tests = rows.get(number).copied().unwrap_or(0);
        assert!(
            tests > 0,
            "docs/promises-tests.md: no test of guarantee {number}"
        );
    }
    let row_numbers: Vec<usize> = rows.into_keys().collect();
    assert_eq!(
        row_numbers, numbers,
        "docs/promises-tests.md: a row without a guarantee"
    );
}
