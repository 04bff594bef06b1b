//! Which event source the cores have, in words.

use mely::net::Report;
use std::fmt::Write;

/// The event source of all cores, and why it is not the first choice, which is empty if it is.
pub(crate) fn told(reports: &[Report]) -> (String, String) {
    let names: Vec<&str> = reports.iter().map(|report| report.name).collect();
    let refused = reports
        .iter()
        .flat_map(|report| &report.refused)
        .map(String::as_str);
    (name(&names), reason(refused))
}

/// Why a core could not begin.
pub(crate) fn failed(error: &std::io::Error, files_max: u64) -> String {
    let text = error.to_string();
    let what = match text.split_once(": ") {
        // What was tried and why that was not possible, a dozen times the same.
        Some((lead, rest)) if rest.contains("; ") => {
            format!("{lead}: {}", reason(rest.split("; ")))
        }
        _ => text,
    };
    let hint = match what.contains("os error 24)") {
        true => format!(
            "; the limit of open files is {files_max} (ulimit -n, or LimitNOFILE= of a systemd unit)"
        ),
        false => String::new(),
    };
    format!("a core could not begin: {what}{hint}")
}

/// `epoll`; or, if cores differ, `io_uring on 1 core, epoll on 3`.
fn name(names: &[&str]) -> String {
    let mut counted: Vec<(&str, usize)> = Vec::new();
    for &name in names {
        match counted.iter_mut().find(|(known, _)| *known == name) {
            Some((_, count)) => *count += 1,
            None => counted.push((name, 1)),
        }
    }
    if let [(name, _)] = counted[..] {
        return name.to_owned();
    }
    let parts = counted.iter().map(|(name, count)| {
        let plural = if *count == 1 { "" } else { "s" };
        format!("{name} on {count} core{plural}")
    });
    parts.collect::<Vec<_>>().join(", ")
}

/// Each reason once. The runtime tries several ways to set up a ring, `io_uring (...): reason`
/// each, on each core, and mostly all are refused for the same one.
fn reason<'a>(refused: impl Iterator<Item = &'a str>) -> String {
    let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
    for text in refused {
        let (what, why) = text.split_once(": ").unwrap_or((text, ""));
        match reasons.iter_mut().find(|(known, _)| *known == why) {
            Some((_, whats)) if whats.contains(&what) => {}
            Some((_, whats)) => whats.push(what),
            None => reasons.push((why, vec![what])),
        }
    }
    let mut text = String::new();
    for (why, whats) in reasons {
        let what = match whats[..] {
            [what] => what,
            // Whichever way.
            _ => {
                let mut names: Vec<&str> = Vec::new();
                names.extend(whats.iter().filter_map(|what| what.split(" (").next()));
                names.dedup();
                &names.join(" and ")
            }
        };
        let lead = if text.is_empty() { "" } else { "; " };
        let _ = write!(text, "{lead}{what}: {why}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_that_differ_are_told_apart() {
        for (names, expected) in [
            (&["epoll", "epoll"][..], "epoll"),
            (&["io_uring"], "io_uring"),
            (
                &["io_uring", "epoll", "epoll"],
                "io_uring on 1 core, epoll on 2 cores",
            ),
        ] {
            assert_eq!(name(names), expected);
        }
    }

    #[test]
    fn a_reason_is_told_once() {
        let all = ["io_uring (a, b): EPERM: why", "io_uring (c): EPERM: why"];
        let twice = || all.iter().chain(&all).copied();
        assert_eq!(reason(twice()), "io_uring: EPERM: why");
        let differ = ["io_uring (a, b): EINVAL", "io_uring (c): EPERM"];
        assert_eq!(
            reason(differ.into_iter()),
            "io_uring (a, b): EINVAL; io_uring (c): EPERM"
        );
        assert_eq!(reason(std::iter::empty()), "");
    }

    #[test]
    fn a_failure_is_told_in_short_and_with_the_way_out() {
        let failed = |text: &str| super::failed(&std::io::Error::other(text), 6);
        let all = "no event source: io_uring (a): Too many (os error 24); io_uring (b): Too many \
                   (os error 24); epoll: Too many (os error 24)";
        let told = failed(all);
        assert!(
            told.starts_with("a core could not begin: no event source: io_uring and epoll: Too")
        );
        assert_eq!(told.matches("os error 24").count(), 1, "{told}");
        assert!(told.contains("is 6 (ulimit -n"), "{told}");
        let differ = "none: io_uring (a): EPERM; epoll: ENOSYS";
        let expected = "a core could not begin: none: io_uring (a): EPERM; epoll: ENOSYS";
        assert_eq!(failed(differ), expected);
        assert_eq!(failed("EPERM"), "a core could not begin: EPERM");
    }
}
