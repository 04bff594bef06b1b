//! ARCHITECTURE.md and its pages name what there is, and leave out no module.

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(file: &str) -> String {
    fs::read_to_string(root().join(file)).unwrap()
}

/// What stands in backticks, but for blocks.
fn quoted(text: &str) -> Vec<&str> {
    let blocks = text.split("```").step_by(2);
    blocks
        .flat_map(|prose| prose.split('`').skip(1).step_by(2))
        .collect()
}

/// The Rust files in a folder and below.
fn files(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap().map(|e| e.unwrap().path());
    let (folders, files): (Vec<_>, Vec<_>) = entries.partition(|path| path.is_dir());
    let mut files: Vec<_> = files
        .into_iter()
        .filter(|path| path.extension().is_some_and(|e| e == "rs"))
        .collect();
    files.extend(folders.iter().flat_map(|folder| self::files(folder)));
    files
}

/// Whether `name` is declared in this code: as a type, a function, a variant or a constant.
fn declares(code: &str, name: &str) -> bool {
    code.lines().any(|line| {
        let words = line.split(|c: char| !c.is_alphanumeric() && c != '_');
        let mut words = words.filter(|word| !word.is_empty()).peekable();
        let variant = words.peek() == Some(&name) && !line.contains('.');
        let keywords = ["fn", "struct", "enum", "trait", "const", "mod", "type"];
        let mut before = "";
        let declared = words.any(|word| {
            let declared = word == name && keywords.contains(&before);
            before = word;
            declared
        });
        variant || declared
    })
}

#[test]
fn what_it_names_is_there() {
    let sources: Vec<(PathBuf, String)> = files(&root().join("src"))
        .into_iter()
        .map(|path| (path.clone(), fs::read_to_string(path).unwrap()))
        .collect();
    let pages = ["ARCHITECTURE.md", "docs/colors.md", "docs/papers.md"].map(read);
    let quoted: Vec<&str> = pages.iter().flat_map(|page| quoted(page)).collect();
    assert!(quoted.len() > 100, "that is not all of it");
    for name in quoted {
        if name.ends_with(".rs") || name.ends_with('/') {
            let places = [
                "",
                "src/event",
                "src/shared",
                "src/shared/queue",
                "src/shared/load",
                "src/shared/remote",
                "src/sched",
                "src/io",
            ];
            let there = |folder: &&str| root().join(folder).join(name).exists();
            assert!(places.iter().any(there), "no file `{name}`");
        } else if let Some((owner, member)) = name.split_once("::") {
            let has_both = |(path, code): &(PathBuf, String)| {
                let by_file = path.file_stem().is_some_and(|stem| stem == owner);
                let by_type = code.contains(&format!("impl {owner}"))
                    || code.contains(&format!(" for {owner}"))
                    || declares(code, owner);
                (by_file || by_type || code.contains(&format!("impl<'a> {owner}")))
                    && declares(code, member)
            };
            assert!(sources.iter().any(has_both), "no `{name}`");
        }
    }
}

#[test]
fn it_leaves_out_no_module() {
    let names_in = |folder: &str, text: String, quote: fn(&str, bool) -> String| {
        for entry in fs::read_dir(root().join(folder)).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_str().unwrap();
            if !["lib.rs", "mod.rs"].contains(&name) {
                let quoted = quote(name, path.is_dir());
                assert!(text.contains(&quoted), "{folder}: {quoted} is left out");
            }
        }
    };
    names_in("src", read("ARCHITECTURE.md"), |name, is_folder| {
        format!("`src/{name}{}`", if is_folder { "/" } else { "" })
    });
    // Tests apart.
    let modules = read("src/sched/mod.rs").replace("mod choices;", "[`choices`]");
    names_in("src/sched", modules, |name, _| {
        format!("[`{}`]", name.trim_end_matches(".rs"))
    });
}
