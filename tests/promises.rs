//! The pages of promises name tests that exist.

use std::path::Path;

#[test]
fn every_test_that_a_page_names_is_there() {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = tests.parent().expect("a folder of the repository");
    let mut named = 0;
    for page in ["docs/promises.md", "docs/checks.md", "docs/policy.md"] {
        let text = std::fs::read_to_string(root.join(page)).expect(page);
        for span in text.split('`').skip(1).step_by(2) {
            let Some((file, test)) = span.split_once(".rs::") else {
                continue;
            };
            let file = root.join(format!("{file}.rs"));
            let code = std::fs::read_to_string(&file)
                .unwrap_or_else(|error| panic!("{page} names {}: {error}", file.display()));
            assert!(
                code.contains(&format!("fn {test}(")),
                "{page}: {span} is not there"
            );
            named += 1;
        }
    }
    assert!(named > 50, "only {named} names were found");
}
