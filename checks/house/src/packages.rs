//! The arrows between packages: those of `lab/` name the product, and the product names none of them.
//!
//! The product is every package of the workspace outside of `lab/` and `checks/`.

use crate::Result;
use crate::list::List;

/// A dependency that a manifest names.
#[derive(Debug, PartialEq, Eq)]
struct Dependency {
    name: String,
    dev: bool,
    line: usize,
}

/// The packages that depend on one of `lab/` and may not, and what the list allows in vain.
pub(crate) fn deviations(
    list: &List,
    read: &dyn Fn(&str) -> Option<String>,
) -> Result<Vec<String>> {
    let root = read("Cargo.toml").ok_or("there is no Cargo.toml")?;
    let members = members(&root)?;
    let is_of = |member: &String, folder: &str| member.starts_with(folder);
    let manifest = |member: &str| match member {
        "." => "Cargo.toml".to_owned(),
        member => format!("{member}/Cargo.toml"),
    };
    let text = |member: &str| {
        let path = manifest(member);
        read(&path).ok_or(format!("there is no {path}"))
    };
    let mut of_lab = Vec::new();
    for member in members.iter().filter(|member| is_of(member, "lab/")) {
        let text = text(member)?;
        of_lab.push(name(&text).ok_or(format!("{member}: no name"))?);
    }
    let (mut all, mut used) = (Vec::new(), vec![false; list.reads.len()]);
    let outside = |member: &&String| !is_of(member, "lab/") && !is_of(member, "checks/");
    for member in members.iter().filter(outside) {
        for dependency in dependencies(&text(member)?) {
            let Dependency { name, dev, line } = dependency;
            if !of_lab.contains(&name) {
                continue;
            }
            let mut reads = list.reads.iter();
            let allowed = reads.position(|entry| entry.package == *member && entry.reads == name);
            if let Some(allowed) = allowed.filter(|_| dev) {
                used[allowed] = true;
                continue;
            }
            all.push(format!(
                "{}:{line} names `{name}`, which is of lab/: move to lab/ what needs it, or let \
                 lab/ install a hook",
                manifest(member)
            ));
        }
    }
    for (entry, _) in list.reads.iter().zip(used).filter(|(_, used)| !used) {
        all.push(format!(
            "{} has no dev-dependency `{}`: remove house.txt:{}",
            manifest(&entry.package),
            entry.reads,
            entry.at
        ));
    }
    Ok(all)
}

/// The folders of the workspace's packages.
fn members(root: &str) -> Result<Vec<String>> {
    let (_, rest) = root
        .split_once("\nmembers = [")
        .ok_or("Cargo.toml: no `members`")?;
    let (list, _) = rest.split_once(']').ok_or("Cargo.toml: no end of it")?;
    let quoted = list.split('"').skip(1).step_by(2);
    Ok(quoted.map(str::to_owned).collect())
}

/// The name of a package.
fn name(manifest: &str) -> Option<String> {
    let (_, package) = manifest.split_once("[package]")?;
    let mut lines = package.lines();
    let name = lines.find_map(|line| line.strip_prefix("name = \""))?;
    Some(name.trim_end_matches('"').to_owned())
}

/// What a manifest depends on, on whatever targets.
fn dependencies(manifest: &str) -> Vec<Dependency> {
    let mut all = Vec::new();
    let mut section = "";
    for (at, line) in (1..).zip(manifest.lines()) {
        let code = line.split('#').next().unwrap_or_default().trim();
        if let Some(header) = code.strip_prefix('[') {
            section = header.trim_end_matches(']');
        }
        let Some((before, after)) = section.split_once("dependencies") else {
            continue;
        };
        let dev = before.ends_with("dev-");
        let named = match after.strip_prefix('.') {
            // A section of its own: its header has the name, and a line may rename it.
            Some(name) if code.starts_with('[') => Some(name),
            Some(_) => code.strip_prefix("package"),
            None if code.starts_with('[') => None,
            None => code.split(['=', '.', ' ']).next(),
        };
        let renamed = code.split_once("package = \"").map(|(_, rest)| rest);
        let renamed = renamed.and_then(|rest| rest.split('"').next());
        let names = [named, renamed].into_iter().flatten();
        all.extend(names.map(|name| Dependency {
            name: name.trim_matches(['"', ' ', '=']).to_owned(),
            dev,
            line: at,
        }));
    }
    all.retain(|dependency| !dependency.name.is_empty());
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOT: &str = "[workspace]\nmembers = [\".\", \"tests\", \"lab/a\", \"checks/c\"]\n\
        [package]\nname = \"p\"\n[dependencies]\n";

    /// What is wrong with manifests that say so, by a list.
    fn wrong(root: &str, tests: &str, list: &str) -> Vec<String> {
        let read = |path: &str| match path {
            "Cargo.toml" => Some(format!("{ROOT}{root}")),
            "tests/Cargo.toml" => Some(format!("[package]\nname = \"t\"\n{tests}")),
            "lab/a/Cargo.toml" => Some("[package]\nname = \"lab-a\"\n".to_owned()),
            "checks/c/Cargo.toml" => Some("[dependencies]\nlab-a = \"1\"\n".to_owned()),
            _ => None,
        };
        deviations(&List::parse(list).unwrap(), &read).unwrap()
    }

    #[test]
    fn the_product_names_no_package_of_lab() {
        assert!(wrong("other = \"1\"\n", "", "").is_empty());
        let sentence = "Cargo.toml:6 names `lab-a`, which is of lab/: move to lab/ what needs it, \
            or let lab/ install a hook";
        for line in [
            "lab-a = { path = \"lab/a\", optional = true }",
            "lab-a.path = \"lab/a\"",
            "b = { package = \"lab-a\", path = \"lab/a\" }",
            "[dependencies.lab-a]",
            "[target.'cfg(unix)'.build-dependencies.lab-a]",
        ] {
            assert_eq!(wrong(line, "", ""), [sentence], "{line}");
        }
    }

    #[test]
    fn tests_may_read_if_the_list_says_so() {
        let dev = "[dev-dependencies]\nlab-a = \"1\"\n";
        assert_eq!(wrong("", dev, "").len(), 1);
        assert!(wrong("", dev, "reads tests lab-a").is_empty());
        let no_dev = "[dependencies]\nlab-a = \"1\"\n";
        assert_eq!(wrong("", no_dev, "reads tests lab-a").len(), 2);
        let stale = "tests/Cargo.toml has no dev-dependency `lab-a`: remove house.txt:1";
        assert_eq!(wrong("", "", "reads tests lab-a"), [stale]);
    }
}
