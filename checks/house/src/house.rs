//! The library's files, and the arrows between the modules of one of its folders.
//!
//! An arrow goes from a module to one that it names. A name leads to the module that defines it:
//! `use` is followed in the folder's own file, and in modules outside of the folder. A glob is not
//! followed: what comes by one counts as defined where the glob stands.

use crate::Result;
use crate::names::{Found, Path, find};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Where something stands.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    pub(crate) file: String,
    pub(crate) line: usize,
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.file, self.line)
    }
}

/// Who names whom, and where.
pub(crate) type Arrows = BTreeMap<(String, String), BTreeSet<Place>>;

/// A file of the library.
#[derive(Debug)]
pub(crate) struct File {
    /// From the root of the project.
    pub(crate) path: String,
    pub(crate) module: Path,
    pub(crate) found: Found,
}

/// The library.
#[derive(Debug)]
pub(crate) struct House {
    pub(crate) files: Vec<File>,
    /// The modules that have a file.
    modules: BTreeSet<Path>,
    /// What names stand for; nothing of this crate if the list is empty.
    imports: BTreeMap<Path, Vec<Path>>,
}

impl House {
    /// Follows the declarations of modules from `src/lib.rs` on, as the compiler does. `read` gives
    /// the text of a file if there is one.
    pub(crate) fn read(read: &dyn Fn(&str) -> Option<String>) -> Result<House> {
        let mut files = Vec::<File>::new();
        let mut modules = vec![Path::new()];
        while let Some(module) = modules.pop() {
            let name = module.join("/");
            let mut paths = match name.as_str() {
                "" => vec!["src/lib.rs".to_owned()],
                _ => vec![format!("src/{name}.rs"), format!("src/{name}/mod.rs")],
            };
            paths.retain(|path| read(path).is_some());
            let path = paths.pop().ok_or(format!("no file for module {name:?}"))?;
            let found = find(&read(&path).unwrap_or_default(), module.clone());
            let found = found.map_err(|error| format!("{path}: {error}"))?;
            modules.extend(found.modules.iter().cloned());
            files.push(File {
                path,
                module,
                found,
            });
        }
        files.sort_by(|a, b| a.path.cmp(&b.path));
        let mut imports = BTreeMap::<Path, Vec<Path>>::new();
        for import in files.iter().flat_map(|file| &file.found.imports) {
            let targets = imports.entry(import.name.clone()).or_default();
            targets.extend(import.target.clone());
        }
        Ok(House {
            modules: files.iter().map(|file| file.module.clone()).collect(),
            files,
            imports,
        })
    }

    /// The module of a folder, which has modules in files of their own.
    pub(crate) fn folder(&self, path: &str) -> Result<Path> {
        let names = path.trim_end_matches('/').split('/');
        let module = names.skip(1).map(str::to_owned).collect::<Path>();
        let is_above = |inner: &Path| inner.len() > module.len() && inner.starts_with(&module);
        match path.starts_with("src") && self.modules.iter().any(is_above) {
            true => Ok(module),
            false => Err(format!("{path} is no folder of modules: src, src/sched, ...").into()),
        }
    }

    /// The modules of a folder: those in it, and its own file, `mod` (`lib` at the root).
    pub(crate) fn modules(&self, folder: &Path) -> BTreeSet<String> {
        let files = self.files.iter();
        files
            .filter_map(|file| self.module(&file.module, folder))
            .collect()
    }

    /// The module of a folder that a path is in; none outside of the folder.
    pub(crate) fn module(&self, path: &[String], folder: &Path) -> Option<String> {
        let inner = path.strip_prefix(folder.as_slice())?;
        match inner.first() {
            Some(child) if self.modules.contains(&path[..=folder.len()]) => Some(child.clone()),
            _ if folder.is_empty() => Some("lib".to_owned()),
            _ => Some("mod".to_owned()),
        }
    }

    /// The arrows between the modules of a folder.
    pub(crate) fn arrows(&self, folder: &Path) -> Arrows {
        let mut arrows = Arrows::new();
        for file in &self.files {
            for named in &file.found.named {
                let Some(from) = self.module(&named.by, folder) else {
                    continue;
                };
                let mut to = BTreeSet::new();
                self.follow(&named.path, folder, &mut BTreeSet::new(), &mut to);
                to.remove(&from);
                for to in to {
                    arrows.entry((from.clone(), to)).or_default().insert(Place {
                        file: file.path.clone(),
                        line: named.line,
                    });
                }
            }
        }
        arrows
    }

    /// Adds the modules of a folder that a path leads to.
    fn follow(
        &self,
        path: &[String],
        folder: &Path,
        seen: &mut BTreeSet<Path>,
        to: &mut BTreeSet<String>,
    ) {
        let module = self.module(path, folder);
        let is_child = path.get(..=folder.len());
        let is_child = is_child.is_some_and(|child| self.modules.contains(child));
        if !(module.is_some() && is_child) {
            let is_module = |length: &usize| self.modules.contains(&path[..*length]);
            let name = (1..=path.len()).find(|length| !is_module(length));
            let name = name.map(|length| path.split_at(length));
            let targets = name.and_then(|(name, rest)| Some((name, rest, self.imports.get(name)?)));
            if let Some((name, rest, targets)) = targets {
                if seen.insert(name.to_vec()) {
                    for target in targets {
                        let path = [target.as_slice(), rest].concat();
                        self.follow(&path, folder, seen, to);
                    }
                }
                return;
            }
        }
        to.extend(module);
    }

    /// The lines of code of a file, or of all files in a folder; none if there is no such thing.
    pub(crate) fn lines(&self, path: &str) -> Option<usize> {
        let inside = format!("{}/", path.trim_end_matches('/'));
        let files = self.files.iter();
        let files = files.filter(|file| file.path == path || file.path.starts_with(&inside));
        let lines = files.map(|file| file.found.lines.len());
        lines.fold(None, |sum, lines| Some(sum.unwrap_or(0) + lines))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn house(files: &[(&str, &str)]) -> House {
        let files = files.iter().copied().collect::<BTreeMap<_, _>>();
        House::read(&|path| files.get(path).map(|&text| text.to_owned())).unwrap()
    }

    /// The arrows of a folder, as lines.
    fn arrows(house: &House, folder: &str) -> Vec<String> {
        let arrows = house.arrows(&house.folder(folder).unwrap());
        let lines = arrows.iter().map(|((from, to), places)| {
            let places = places.iter().map(Place::to_string).collect::<Vec<_>>();
            format!("{from} {to} {}", places.join(" "))
        });
        lines.collect()
    }

    const LIB: &str = "mod color; mod net; mod sync; #[cfg(test)] mod tests; mod docs {}
        pub use crate::net::conn::Conn; pub use ext as topology; pub use color::*;
        pub use crate::net as n;";
    const NET: &str = "pub(crate) mod conn; mod timer; pub use self::timer::Timer; pub fn f() {}
        #[cfg(a)] use self::conn::Either; #[cfg(not(a))] use self::timer::Either;";

    #[test]
    fn names_lead_to_the_module_that_defines_them() {
        let house = house(&[
            ("src/lib.rs", LIB),
            (
                "src/color.rs",
                "use crate::Conn;\nfn f(x: crate::topology::T, y: crate::docs::D) {}",
            ),
            (
                "src/sync.rs",
                "use crate::color;\nuse crate::{color::A, color::B};\nuse crate::Gone;",
            ),
            ("src/net/mod.rs", NET),
            (
                "src/net/conn.rs",
                "use super::{Timer, f};\nuse crate::net::Timer;\nfn g() { crate::sync::h() }",
            ),
            (
                "src/net/timer.rs",
                "use crate::Conn;\nuse super::super::color::Color;\nuse super::Either;\n\
                 use crate::n::conn::C;",
            ),
        ]);
        let root = [
            "color lib src/color.rs:2",
            "color net src/color.rs:1",
            "lib color src/lib.rs:2",
            "lib net src/lib.rs:2 src/lib.rs:3",
            "net color src/net/timer.rs:2",
            "net sync src/net/conn.rs:3",
            "sync color src/sync.rs:1 src/sync.rs:2",
            "sync lib src/sync.rs:3",
        ];
        assert_eq!(arrows(&house, "src"), root);
        let net = [
            "conn mod src/net/conn.rs:1",
            "conn timer src/net/conn.rs:1 src/net/conn.rs:2",
            "mod conn src/net/mod.rs:2",
            "mod timer src/net/mod.rs:1 src/net/mod.rs:2",
            "timer conn src/net/timer.rs:1 src/net/timer.rs:3 src/net/timer.rs:4",
        ];
        assert_eq!(arrows(&house, "src/net/"), net);
        assert!(house.folder("src/color").is_err());
    }

    #[test]
    fn re_exports_in_a_round_end() {
        let house = house(&[
            (
                "src/lib.rs",
                "mod a; pub use self::X as Y; pub use self::Y as X;",
            ),
            ("src/a.rs", "use crate::X;"),
        ]);
        assert_eq!(arrows(&house, "src"), Vec::<String>::new());
    }

    #[test]
    fn lines_are_summed_by_folder() {
        let house = house(&[
            ("src/lib.rs", "mod net;"),
            ("src/net/mod.rs", "mod a;\nfn f() {}"),
            ("src/net/a.rs", "fn f() {}\n\n"),
        ]);
        let lines = ["src", "src/net", "src/net/", "src/net/a.rs", "src/ne"];
        assert_eq!(
            lines.map(|path| house.lines(path)),
            [Some(4), Some(3), Some(3), Some(1), None]
        );
    }

    #[test]
    fn a_module_without_a_file_is_an_error() {
        assert!(House::read(&|path| (path == "src/lib.rs").then(|| "mod a;".into())).is_err());
    }
}
