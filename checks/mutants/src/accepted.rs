//! `checks/mutants/survivors.txt`: the mutants that no test notices and why that is accepted.
//!
//! An entry is a line that names the mutant as the reports do, or several such lines, and their
//! reason in indented lines below. `#` begins a comment.

use crate::Result;
use crate::operators::Mutant;
use std::collections::BTreeMap;

/// Reasons by the mutants' keys.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Accepted(BTreeMap<String, String>);

impl Accepted {
    pub(crate) fn parse(text: &str) -> Result<Accepted> {
        let mut entries = BTreeMap::<String, String>::new();
        // The last group, and whether its reason has begun.
        let (mut group, mut explained) = (Vec::<String>::new(), false);
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let is_reason = line.starts_with([' ', '\t']);
            let line = line.trim();
            if line.is_empty() {
                continue;
            }
            if is_reason {
                if group.is_empty() {
                    return Err(format!("a reason for nothing: {line}").into());
                }
                explained = true;
                for key in &group {
                    let reason = entries.entry(key.clone()).or_default();
                    reason.push_str(if reason.is_empty() { "" } else { " " });
                    reason.push_str(line);
                }
                continue;
            }
            if std::mem::take(&mut explained) {
                group.clear();
            }
            if entries.insert(line.to_owned(), String::new()).is_some() {
                return Err(format!("accepted twice: {line}").into());
            }
            group.push(line.to_owned());
        }
        match entries
            .iter()
            .find(|(_, reason)| reason.trim_matches('?').is_empty())
        {
            Some((key, _)) => Err(format!("accepted without a reason: {key}").into()),
            None => Ok(Accepted(entries)),
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    pub(crate) fn reason(&self, mutant: &Mutant) -> Option<&str> {
        self.0.get(&mutant.key()).map(String::as_str)
    }

    /// The entries that name none of these mutants.
    pub(crate) fn unknown(&self, mutants: &[Mutant]) -> Vec<&str> {
        let mut left: BTreeMap<_, _> = self.0.iter().collect();
        for mutant in mutants {
            left.remove(&mutant.key());
        }
        left.into_keys().map(String::as_str).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operators::find;

    #[test]
    fn an_entry_names_a_mutant_wherever_its_line_is() {
        let source = "fn f() {\n    g();\n    g();\n}\n";
        let moved = format!("// A comment.\n\n{source}");
        let accepted =
            "# Why\n\na.rs: f: skip `g();` (2)\n    g does nothing\n    the second time\n";
        let accepted = Accepted::parse(accepted).unwrap();
        assert_eq!(accepted.len(), 1);
        for source in [source, &moved] {
            let mutants = find("a.rs", source, &syn::parse_file(source).unwrap());
            let reasons: Vec<_> = mutants
                .iter()
                .map(|mutant| accepted.reason(mutant))
                .collect();
            assert_eq!(
                reasons,
                [None, None, Some("g does nothing the second time")]
            );
            assert!(accepted.unknown(&mutants).is_empty());
        }
        let other = "fn f() { g(); }";
        let other = find("a.rs", other, &syn::parse_file(other).unwrap());
        assert_eq!(accepted.unknown(&other), ["a.rs: f: skip `g();` (2)"]);
    }

    #[test]
    fn several_mutants_may_have_one_reason() {
        let accepted = Accepted::parse("a\nb\n  why\n  so\n\nc\n  other\n").unwrap();
        let reasons: Vec<_> = accepted.0.values().map(String::as_str).collect();
        assert_eq!(reasons, ["why so", "why so", "other"]);
    }

    #[test]
    fn an_entry_has_a_reason_and_a_reason_an_entry() {
        assert!(Accepted::parse("a.rs: f: return\n").is_err());
        assert!(Accepted::parse("a.rs: f: return\n    ???\n").is_err());
        assert!(Accepted::parse("    because\n").is_err());
        assert!(Accepted::parse("a.rs: f: return\n  x\na.rs: f: return\n  y\n").is_err());
    }
}
