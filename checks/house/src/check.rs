//! Compares the house with the list. Each deviation is a sentence with the place and the way out.

use crate::Result;
use crate::circles::{circles, closing, reached};
use crate::house::{Arrows, House};
use crate::list::{Folder, List};
use crate::places;
use std::collections::BTreeSet;

/// All deviations.
pub(crate) fn deviations(house: &House, list: &List) -> Result<Vec<String>> {
    let mut all = Vec::new();
    for folder in &list.folders {
        modules(house, folder, &mut all)?;
        arrows(house, folder, &mut all)?;
    }
    unsafe_blocks(house, list, &mut all);
    Ok(all)
}

/// What a user can name is what is listed: it changes by intent only.
pub(crate) fn public(public: &str, listed: &str) -> Option<String> {
    if public == listed {
        return None;
    }
    let (is, was): (BTreeSet<&str>, BTreeSet<&str>) =
        (public.lines().collect(), listed.lines().collect());
    let new = is.difference(&was).map(|line| format!("  + {line}"));
    let gone = was.difference(&is).map(|line| format!("  - {line}"));
    let lines: Vec<String> = new.chain(gone).collect();
    Some(format!(
        "what a user can name has changed; if it is meant to, \
         `cargo run -p mely-house -- --public > checks/house/public.rs.txt`:\n{}",
        lines.join("\n")
    ))
}

/// Each module is in a layer.
fn modules(house: &House, folder: &Folder, all: &mut Vec<String>) -> Result<()> {
    let path = &folder.path;
    let modules = house.modules(&house.folder(path)?);
    for module in &modules {
        if !folder.layers.contains_key(module) {
            all.push(format!(
                "{path}: module `{module}` is in no layer: add it to one in house.txt"
            ));
        }
    }
    for module in folder.layers.keys() {
        if !modules.contains(module) {
            all.push(format!(
                "{path}: there is no module `{module}`: remove it from its layer in house.txt"
            ));
        }
    }
    Ok(())
}

/// No arrow goes to a higher layer or closes a circle, but for those that are tolerated.
fn arrows(house: &House, folder: &Folder, all: &mut Vec<String>) -> Result<()> {
    let path = &folder.path;
    let arrows = house.arrows(&house.folder(path)?);
    let is_up = |from: &str, to: &str| match (folder.layers.get(from), folder.layers.get(to)) {
        (Some(from), Some(to)) => from < to,
        _ => false,
    };
    let is_tolerated = |from: &str, to: &str| {
        let mut tolerated = folder.tolerated.iter();
        tolerated.any(|entry| entry.from == from && entry.to == to)
    };
    let mut rest = arrows.clone();
    rest.retain(|(from, to), _| !is_tolerated(from, to));
    for ((from, to), places_of) in rest.iter().filter(|((from, to), _)| is_up(from, to)) {
        all.push(format!(
            "{path}: `{from}` names `{to}`, which is in a higher layer, at {}: \
             move what is named to a lower layer, or hand it over from above",
            places(places_of)
        ));
    }
    rest.retain(|(from, to), _| !is_up(from, to));
    for circle in circles(&rest) {
        let names = circle
            .iter()
            .map(|name| format!("`{name}`"))
            .collect::<Vec<_>>();
        let closing = closing(&circle, &rest, &folder.layers);
        let closing = closing
            .iter()
            .map(|((from, to), its)| format!("`{from}` names `{to}` at {}", places(its)));
        all.push(format!(
            "{path}: {} are a circle: {}: turn these around or remove them",
            names.join(", "),
            closing.collect::<Vec<_>>().join("; ")
        ));
    }
    for entry in &folder.tolerated {
        if let Some(why) = stale(&arrows, &entry.from, &entry.to, &is_up) {
            all.push(format!(
                "house.txt:{}: `tolerated: {} {}` is stale: {why}",
                entry.at, entry.from, entry.to
            ));
        }
    }
    Ok(())
}

/// Why an arrow need not be tolerated.
fn stale(
    arrows: &Arrows,
    from: &str,
    to: &str,
    is_up: &dyn Fn(&str, &str) -> bool,
) -> Option<String> {
    if !arrows.contains_key(&(from.to_owned(), to.to_owned())) {
        return Some(format!("`{from}` no longer names `{to}`: remove the line"));
    }
    if !reached(arrows, to).contains(from) {
        let mut why = format!("`{to}` no longer leads back to `{from}`: remove the line");
        if is_up(from, to) {
            why += &format!(", and move `{from}` to a higher layer");
        }
        return Some(why);
    }
    is_up(to, from).then(|| format!("`{to}` is in a lower layer than `{from}`: remove the line"))
}

/// Each file has as many `unsafe` blocks as the list says.
fn unsafe_blocks(house: &House, list: &List, all: &mut Vec<String>) {
    let listed = list.unsafe_blocks.iter().map(|entry| &entry.path);
    let paths = listed.chain(house.files.iter().map(|file| &file.path));
    for path in paths.collect::<BTreeSet<_>>() {
        let file = house.files.iter().find(|file| file.path == *path);
        let lines = file.map_or(&[][..], |file| &file.found.unsafe_blocks);
        let entry = list.unsafe_blocks.iter().find(|entry| entry.path == *path);
        let (count, allowed) = (lines.len(), entry.map_or(0, |entry| entry.count));
        let at = entry.map_or(0, |entry| entry.at);
        if count > allowed {
            let lines = lines.iter().map(usize::to_string).collect::<Vec<_>>();
            all.push(format!(
                "{path} has {count} `unsafe` blocks, {allowed} are allowed (lines {}): do without \
                 the new ones, or write `unsafe {path} {count}` to house.txt",
                lines.join(", ")
            ));
        } else if entry.is_some() && count == 0 {
            all.push(format!(
                "{path} has no `unsafe` block: remove house.txt:{at}"
            ));
        } else if count < allowed {
            all.push(format!(
                "{path} has fewer `unsafe` blocks, {allowed} are allowed: lower house.txt:{at} to \
                 `unsafe {path} {count}`"
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::house::tests::house;

    /// What is wrong by a list with a house of three modules: c names b in two lines, a and b name
    /// each other.
    fn wrong(list: &str) -> Vec<String> {
        let house = house(&[
            ("src/lib.rs", "mod a; mod b; mod c;"),
            ("src/a.rs", "fn f() { crate::b::f() }"),
            (
                "src/b.rs",
                "use crate::a;\nfn f() { unsafe { g() }; unsafe { g() } }",
            ),
            ("src/c.rs", "use crate::b;\nuse crate::b::f;"),
        ]);
        deviations(&house, &List::parse(list).unwrap()).unwrap()
    }

    const FINE: &str = "folder src\nlayer a\nlayer b\nlayer c\nlayer lib\ntolerated: a b\n\
        unsafe src/b.rs 2\n";

    /// The list with something else in it gives exactly these sentences.
    fn assert_wrong(from: &str, to: &str, sentences: &[&str]) {
        assert!(FINE.contains(from));
        assert_eq!(wrong(&FINE.replace(from, to)), sentences);
    }

    #[test]
    fn a_house_as_the_list_says_is_fine() {
        assert_eq!(wrong(FINE), Vec::<String>::new());
    }

    #[test]
    fn arrows_to_higher_layers_are_wrong() {
        let sentence = "src: `a` names `b`, which is in a higher layer, at src/a.rs:1: \
            move what is named to a lower layer, or hand it over from above";
        assert_wrong("tolerated: a b\n", "", &[sentence]);
        let sentence = "src: `c` names `b`, which is in a higher layer, at src/c.rs:1, src/c.rs:2: \
            move what is named to a lower layer, or hand it over from above";
        assert_wrong(
            "layer a\nlayer b\nlayer c",
            "layer c\nlayer a\nlayer b",
            &[sentence],
        );
    }

    #[test]
    fn circles_in_a_layer_are_wrong() {
        let sentence = "src: `a`, `b` are a circle: `a` names `b` at src/a.rs:1: \
            turn these around or remove them";
        let from = "layer a\nlayer b\nlayer c\nlayer lib\ntolerated: a b";
        assert_wrong(from, "layer a b\nlayer c\nlayer lib", &[sentence]);
        assert_wrong(from, "layer a b\nlayer c\nlayer lib\ntolerated: a b", &[]);
    }

    #[test]
    fn folders_have_layers_too() {
        let house = house(&[
            ("src/lib.rs", "mod a;"),
            ("src/a/mod.rs", "mod b; mod c;"),
            ("src/a/b.rs", "use super::c;"),
            ("src/a/c.rs", ""),
        ]);
        let wrong = |list| deviations(&house, &List::parse(list).unwrap()).unwrap();
        let up = "src/a: `b` names `c`, which is in a higher layer, at src/a/b.rs:1: \
            move what is named to a lower layer, or hand it over from above";
        assert_eq!(wrong("folder src/a\nlayer b\nlayer c mod"), [up]);
        assert!(wrong("folder src/a\nlayer c\nlayer b mod").is_empty());
    }

    #[test]
    fn modules_and_layers_fit() {
        let sentence = "src: module `c` is in no layer: add it to one in house.txt";
        assert_wrong("layer c\n", "", &[sentence]);
        let sentence = "src: there is no module `d`: remove it from its layer in house.txt";
        assert_wrong("layer c", "layer c d", &[sentence]);
    }

    #[test]
    fn stale_tolerance_is_wrong() {
        let also = |tolerated: &str, why: &str| {
            let sentence = format!("house.txt:7: `tolerated: {tolerated}` is stale: {why}");
            let to = format!("tolerated: a b\ntolerated: {tolerated}");
            assert_wrong("tolerated: a b", &to, &[&sentence]);
        };
        also("a c", "`a` no longer names `c`: remove the line");
        also("b a", "`a` is in a lower layer than `b`: remove the line");
        also("c b", "`b` no longer leads back to `c`: remove the line");
        let sentence = "house.txt:7: `tolerated: c b` is stale: `b` no longer leads back to `c`: \
            remove the line, and move `c` to a higher layer";
        let to = "layer c\nlayer a\nlayer b\nlayer lib\ntolerated: a b\ntolerated: c b";
        let from = "layer a\nlayer b\nlayer c\nlayer lib\ntolerated: a b";
        assert_wrong(from, to, &[sentence]);
    }

    #[test]
    fn unsafe_blocks_are_as_many_as_the_list_says() {
        let more = |allowed| {
            format!(
                "src/b.rs has 2 `unsafe` blocks, {allowed} are allowed (lines 2, 2): do without \
                 the new ones, or write `unsafe src/b.rs 2` to house.txt"
            )
        };
        assert_wrong("b.rs 2", "b.rs 1", &[&more(1)]);
        assert_wrong("unsafe src/b.rs 2", "", &[&more(0)]);
        let fewer = "src/b.rs has fewer `unsafe` blocks, 3 are allowed: lower house.txt:7 to \
            `unsafe src/b.rs 2`";
        assert_wrong("b.rs 2", "b.rs 3", &[fewer]);
        let none = "src/a.rs has no `unsafe` block: remove house.txt:8";
        assert_wrong("b.rs 2", "b.rs 2\nunsafe src/a.rs 1", &[none]);
        let gone = "src/d.rs has no `unsafe` block: remove house.txt:8";
        assert_wrong("b.rs 2", "b.rs 2\nunsafe src/d.rs 1", &[gone]);
    }
}
