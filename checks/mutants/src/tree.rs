//! The copy of the project that is broken, in `target/mutants`.

use crate::Result;
use crate::operators::{Mutant, find};
use crate::rewrite::{Rewritten, rewrite};
use crate::source::left_out;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// What is broken unless files are named.
pub(crate) const FILES: [&str; 18] = [
    "src/policy",
    "src/event",
    "src/shared",
    "src/sched",
    "src/host",
    "src/runtime",
    "src/net",
    "src/io",
    "src/colored.rs",
    "src/post.rs",
    "src/color.rs",
    "src/clock.rs",
    "src/random.rs",
    "src/sync/lock.rs",
    "src/gate.rs",
    "src/hold.rs",
    "src/ask",
    "src/together",
];

/// Where the function is that asks which mutant runs.
const DOOR: &str = "src/sync.rs";

/// The question, and a table of those that were asked.
const QUESTION: &str = include_str!("question.rs");

/// Files by their path from the root of the project.
pub(crate) type Files = BTreeMap<String, Vec<u8>>;

/// The project's files: of the last commit, or as they lie there.
pub(crate) fn files(root: &Path, as_they_lie: bool) -> Result<Files> {
    let git = |arguments: &[&str]| -> Result<Vec<u8>> {
        let output = Command::new("git")
            .args(arguments)
            .current_dir(root)
            .output()?;
        if !output.status.success() {
            return Err(format!(
                "git {arguments:?}: {}",
                String::from_utf8_lossy(&output.stderr)
            )
            .into());
        }
        Ok(output.stdout)
    };
    if as_they_lie {
        let names = String::from_utf8(git(&["ls-files", "-z", "-co", "--exclude-standard"])?)?;
        let names = names.split('\0').filter(|name| root.join(name).is_file());
        return names
            .map(|name| Ok((name.to_owned(), fs::read(root.join(name))?)))
            .collect();
    }
    // Through a directory, since that is what tar makes.
    let copy = root.join("target/mutants/commit");
    if copy.exists() {
        fs::remove_dir_all(&copy)?;
    }
    fs::create_dir_all(&copy)?;
    let mut archive = Command::new("git")
        .args(["archive", "HEAD"])
        .current_dir(root)
        .stdout(Stdio::piped())
        .spawn()?;
    let from = archive.stdout.take().expect("piped");
    let unpacked = Command::new("tar")
        .arg("-x")
        .current_dir(&copy)
        .stdin(from)
        .status()?;
    if !archive.wait()?.success() || !unpacked.success() {
        return Err("the last commit cannot be unpacked: git archive, tar".into());
    }
    let mut files = Files::new();
    walk(&copy, &mut |path| {
        files.insert(name_of(path, &copy), fs::read(path)?);
        Ok(())
    })?;
    Ok(files)
}

fn walk(directory: &Path, each: &mut dyn FnMut(&Path) -> Result<()>) -> Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            walk(&path, each)?;
        } else {
            each(&path)?;
        }
    }
    Ok(())
}

fn name_of(path: &Path, root: &Path) -> String {
    let name = path.strip_prefix(root).unwrap_or(path);
    name.to_string_lossy().into_owned()
}

/// Whether a file is one of these, or in one of these folders.
pub(crate) fn is_in(file: &str, paths: &[String]) -> bool {
    paths.iter().any(|path| {
        let path = path.trim_end_matches('/');
        file == path
            || file
                .strip_prefix(path)
                .is_some_and(|rest| rest.starts_with('/'))
    })
}

/// All mutants of the project: of the usual files, and of those named besides, so that the numbers
/// are the same whatever is tried.
pub(crate) fn mutants(files: &Files, named: &[String]) -> Result<Vec<Mutant>> {
    let mut paths = FILES.map(str::to_owned).to_vec();
    paths.extend(
        named
            .iter()
            .filter(|path| !is_in(path, &paths))
            .cloned()
            .collect::<Vec<_>>(),
    );
    let mut chosen = BTreeMap::new();
    for (file, content) in files {
        if is_in(file, &paths) && file.ends_with(".rs") {
            let source = std::str::from_utf8(content)?;
            let parsed = syn::parse_file(source).map_err(|error| format!("{file}: {error}"))?;
            chosen.insert(file, (source, parsed));
        }
    }
    let mut tests_only = vec![DOOR.to_owned()];
    for (file, (_, parsed)) in &chosen {
        tests_only.extend(modules_left_out(file, parsed));
    }
    let mut all = Vec::new();
    for (file, (source, parsed)) in &chosen {
        if !is_in(file, &tests_only) {
            all.extend(find(file, source, parsed));
        }
    }
    for (mutant, id) in all.iter_mut().zip(1..) {
        mutant.id = id;
    }
    Ok(all)
}

/// The files and folders of modules that are for tests only.
fn modules_left_out(file: &str, parsed: &syn::File) -> Vec<String> {
    let folder = match file.strip_suffix("/mod.rs") {
        Some(folder) => folder,
        None => file.trim_end_matches(".rs"),
    };
    let modules = parsed.items.iter().filter_map(|item| match item {
        syn::Item::Mod(module) if module.content.is_none() => Some(module),
        _ => None,
    });
    modules
        .filter(|module| left_out(&module.attrs))
        .map(|module| format!("{folder}/{}", module.ident))
        .flat_map(|module| [format!("{module}.rs"), module])
        .collect()
}

/// The copy, with mutants in it.
#[derive(Debug)]
pub(crate) struct Tree {
    pub(crate) path: PathBuf,
    files: Files,
    /// The rewritten files as they are now.
    pub(crate) rewritten: BTreeMap<String, Rewritten>,
}

impl Tree {
    pub(crate) fn new(path: PathBuf, mut files: Files, count: usize) -> Tree {
        let question = QUESTION.replace(
            "const COUNT: usize = 0;",
            &format!("const COUNT: usize = {};", count + 1),
        );
        let door = files.get_mut(DOOR).expect("the door to atomics is there");
        door.extend_from_slice(question.as_bytes());
        Tree {
            path,
            files,
            rewritten: BTreeMap::new(),
        }
    }

    /// Writes the copy with these mutants. A file that stays the same is not touched, for the sake
    /// of cargo.
    pub(crate) fn write<'m>(&mut self, mutants: impl Iterator<Item = &'m Mutant>) -> Result<()> {
        let mut by_file = BTreeMap::<&str, Vec<&Mutant>>::new();
        for mutant in mutants {
            by_file.entry(&mutant.file).or_default().push(mutant);
        }
        self.rewritten.clear();
        for (file, mutants) in by_file {
            let source = std::str::from_utf8(&self.files[file])?;
            let edits = mutants.iter().map(|mutant| (mutant.id, &mutant.edit));
            self.rewritten
                .insert(file.to_owned(), rewrite(source, edits));
        }
        fs::create_dir_all(&self.path)?;
        let mut stale = BTreeSet::new();
        walk(&self.path, &mut |path| {
            stale.insert(name_of(path, &self.path));
            Ok(())
        })?;
        for (file, content) in &self.files {
            let content = match self.rewritten.get(file) {
                Some(rewritten) => rewritten.text.as_bytes(),
                None => content,
            };
            let path = self.path.join(file);
            if !stale.remove(file) || fs::read(&path)? != content {
                fs::create_dir_all(path.parent().expect("in the copy"))?;
                fs::write(&path, content)?;
            }
        }
        for file in stale {
            fs::remove_file(self.path.join(file))?;
        }
        Ok(())
    }

    /// A name for what is tried with what: all code, and the mutants in it.
    pub(crate) fn hash(&self) -> String {
        let mut hasher = DefaultHasher::new();
        for (file, content) in &self.files {
            let is_code = [".rs", ".toml", ".lock"]
                .iter()
                .any(|end| file.ends_with(end));
            if is_code && !file.starts_with("checks/mutants/") {
                (file, content).hash(&mut hasher);
                self.rewritten
                    .get(file)
                    .map(|rewritten| &rewritten.text)
                    .hash(&mut hasher);
            }
        }
        format!("{:016x}", hasher.finish())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_for_tests_are_not_broken() {
        let sources = [
            (
                "src/sched/mod.rs",
                "mod a; #[cfg(test)] mod choices; #[cfg(test)] mod b;",
            ),
            ("src/sched/a.rs", "fn f() { g(); }"),
            ("src/sched/b.rs", "fn f() { g(); }"),
            ("src/sched/choices/colors.rs", "fn f() { g(); }"),
        ];
        let files = sources.map(|(file, source)| (file.to_owned(), source.as_bytes().to_vec()));
        let mutants = mutants(&Files::from(files), &[]).unwrap();
        assert!(mutants.iter().all(|mutant| mutant.file == "src/sched/a.rs"));
        assert!(!mutants.is_empty());
    }
}
