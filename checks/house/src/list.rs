//! `checks/house/house.txt`: what the house should look like. The file says how it is written.

use crate::Result;
use crate::circles::Layers;

/// Something that is said of a file or a folder, and the line that says it.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) at: usize,
    pub(crate) path: String,
    pub(crate) count: usize,
}

/// An arrow that may close a circle for now.
#[derive(Debug)]
pub(crate) struct Tolerated {
    pub(crate) at: usize,
    pub(crate) from: String,
    pub(crate) to: String,
}

/// The order of the modules of a folder.
#[derive(Debug)]
pub(crate) struct Folder {
    pub(crate) path: String,
    pub(crate) layers: Layers,
    pub(crate) tolerated: Vec<Tolerated>,
}

/// A package outside of `lab/` whose tests may depend on one of it.
#[derive(Debug)]
pub(crate) struct Reads {
    pub(crate) at: usize,
    pub(crate) package: String,
    pub(crate) reads: String,
}

/// The list.
#[derive(Debug, Default)]
pub(crate) struct List {
    pub(crate) folders: Vec<Folder>,
    pub(crate) unsafe_blocks: Vec<Entry>,
    pub(crate) reads: Vec<Reads>,
}

impl List {
    pub(crate) fn parse(text: &str) -> Result<List> {
        let mut list = List::default();
        for (at, line) in (1..).zip(text.lines()) {
            let wrong = |what: &str| format!("house.txt:{at}: {what}: {line}");
            let code = line.split('#').next().unwrap_or_default();
            let words = code.split_whitespace().collect::<Vec<_>>();
            match words[..] {
                [] => {}
                ["folder", path] => list.folders.push(Folder {
                    path: path.to_owned(),
                    layers: Layers::new(),
                    tolerated: Vec::new(),
                }),
                ["layer" | "tolerated:", ..] if list.folders.is_empty() => {
                    return Err(wrong("say of which `folder`, above").into());
                }
                ["layer", ref modules @ ..] => {
                    let layers = &mut list.folders.last_mut().expect("not empty").layers;
                    let layer = layers.values().max().map_or(0, |highest| highest + 1);
                    for module in modules {
                        if layers.insert((*module).to_owned(), layer).is_some() {
                            return Err(wrong(&format!("`{module}` is in a layer already")).into());
                        }
                    }
                }
                ["tolerated:", from, to] => {
                    let folder = list.folders.last_mut().expect("not empty");
                    folder.tolerated.push(Tolerated {
                        at,
                        from: from.to_owned(),
                        to: to.to_owned(),
                    });
                }
                ["reads", package, reads] => list.reads.push(Reads {
                    at,
                    package: package.to_owned(),
                    reads: reads.to_owned(),
                }),
                ["unsafe", path, count] => {
                    let entry = Entry {
                        at,
                        path: path.to_owned(),
                        count: count.parse().map_err(|_| wrong("not a number"))?,
                    };
                    let entries = &mut list.unsafe_blocks;
                    if entries.iter().any(|other| other.path == path) {
                        return Err(wrong("said before").into());
                    }
                    entries.push(entry);
                }
                _ => return Err(wrong("not understood").into()),
            }
        }
        Ok(list)
    }

    /// The layers of a folder; none if the list has none.
    pub(crate) fn layers(&self, folder: &str) -> Layers {
        let folder = self.folders.iter().find(|one| one.path == folder);
        folder.map_or_else(Layers::new, |folder| folder.layers.clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_understood_is_an_error_that_names_the_line() {
        let error = |text| List::parse(text).unwrap_err().to_string();
        assert!(error("# fine\nlayer a").starts_with("house.txt:2: say of which"));
        assert!(error("folder src\nlayer a b\nlayer c a").starts_with("house.txt:3: `a` is in"));
        assert!(error("unsafe src/a.rs x").starts_with("house.txt:1: not a number"));
        assert!(error("unsafe src 1\nunsafe src 2").starts_with("house.txt:2: said before"));
        assert!(error("folder src\ntolerated: a").starts_with("house.txt:2: not understood"));
    }
}
