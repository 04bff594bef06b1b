//! Files of machines: those that come with the crate, and what is wrong with others.

use mely_hardware::{Key, Machine, Place};
use mely_topology::Distance;
use proptest::prelude::*;

/// A file that is right.
fn good() -> String {
    Machine::shipped("epyc-2x64").unwrap().to_text()
}

/// With the line that begins with `name` replaced.
fn with(name: &str, line: &str) -> String {
    let text = good();
    let lines = text.lines().map(|its| {
        let is = its.starts_with(&format!("{name} ")) || its.starts_with(&format!("{name} ="));
        if is { line } else { its }
    });
    lines.collect::<Vec<_>>().join("\n")
}

fn error(text: &str) -> String {
    let error = Machine::parse(text).unwrap_err().to_string();
    assert!(!error.contains('\n'), "one sentence: {error}");
    error
}

#[test]
fn what_comes_with_the_crate_is_read_and_written_alike() {
    for name in Machine::shipped_names() {
        let machine = Machine::shipped(name).unwrap();
        assert_eq!(
            Machine::parse(&machine.to_text()).as_ref(),
            Ok(&machine),
            "{name}"
        );
        for (key, number) in machine.numbers() {
            assert!(
                !number.source.is_empty(),
                "{name}: {key} says where it comes from"
            );
        }
    }
    assert_eq!(Machine::shipped("none"), None);
}

#[test]
fn a_missing_number_is_an_error_whichever_it_is() {
    let machine = Machine::shipped("epyc-2x64").unwrap();
    for key in Machine::keys(machine.topology()) {
        let text = good();
        let without = text
            .lines()
            .filter(|line| !line.starts_with(&format!("{key} =")));
        let without: Vec<_> = without.collect();
        assert_eq!(without.len() + 1, text.lines().count(), "{key}");
        let line = without.len();
        let expected = format!("line {line}: `{key}`: the number is missing");
        assert_eq!(error(&without.join("\n")), expected);
    }
}

#[test]
fn bad_numbers_are_said_with_their_line_and_name() {
    for (line, expected) in [
        ("clock = 0 ; x", "`clock`: 0 is not more than 0"),
        ("clock = -3 ; x", "`clock`: -3 is not more than 0"),
        ("clock = NaN ; x", "`clock`: it is no number"),
        ("clock = inf ; x", "`clock`: inf is more than 1000000000"),
        (
            "clock = 1e300 ; x",
            "`clock`: 1e300 is more than 1000000000",
        ),
        ("clock = +3 ; x", "`clock`: \"+3\" is no number"),
        ("clock = three ; x", "`clock`: \"three\" is no number"),
        ("clock = ; x", "`clock`: \"\" is no number"),
        (
            "clock = 3",
            "`clock`: where it comes from is missing: `; measured`, `; assumed` or a source",
        ),
        (
            "clock = 3 ;",
            "`clock`: where it comes from is missing: `; measured`, `; assumed` or a source",
        ),
        ("clocks = 3 ; x", "`clocks`: no number has this name"),
        (
            "clock 3",
            "`clock 3`: an entry is `machine`, `name`, `topology`, or a number: its name, `=`, the amount, `;` and where it comes from",
        ),
    ] {
        let text = with("clock", line);
        let at = 1 + text.lines().position(|its| its == line).unwrap();
        assert_eq!(error(&text), format!("line {at}: {expected}"));
    }
}

#[test]
fn what_does_not_go_together_is_told() {
    for (name, line, expected) in [
        (
            "transfer L3",
            "transfer L3 = 300 ; x",
            "`transfer L3`: what is nearer is dearer than `transfer node`",
        ),
        (
            "rmw itself",
            "rmw itself = 40 ; x",
            "`rmw itself`: what is nearer is dearer than `rmw L3`",
        ),
        (
            "memory hit",
            "memory hit = 12 ; x",
            "`cache 3 hit`: what is nearer is dearer than `memory hit`",
        ),
        (
            "cache 2 row",
            "cache 2 row = 3.9 ; x",
            "`cache 2 row`: what is nearer is dearer than `cache 3 row`",
        ),
        (
            "transfer-row L3",
            "transfer-row L3 = 25.5 ; x",
            "`transfer-row L3`: what is nearer is dearer than `transfer-row node`",
        ),
        (
            "wake sleeper",
            "wake sleeper = 8001 ; x",
            "`wake long-sleeper`: a longer sleep is cheaper than `wake sleeper`",
        ),
        (
            "cache 1 bytes",
            "cache 1 bytes = 48K ; x",
            "`cache 1 bytes`: 49152 bytes, and the topology says 32768",
        ),
        (
            "holders",
            "holders = 3 ; x",
            "`holders`: 3 is neither 1 nor 2",
        ),
    ] {
        let text = with(name, line);
        let said = error(&text);
        let (at, said) = said
            .strip_prefix("line ")
            .unwrap()
            .split_once(": ")
            .unwrap();
        assert_eq!(said, expected);
        let name = expected.split('`').nth(1).unwrap();
        let its = text.lines().nth(at.parse::<usize>().unwrap() - 1).unwrap();
        assert!(its.starts_with(name), "{its} is not {name}");
    }
    let text = format!("{}transfer package = 120 ; x\n", good());
    assert!(error(&text).ends_with("`transfer package`: this topology has no such thing"));
    let text = format!("{}clock = 9 ; x\n", good());
    assert!(error(&text).contains("`clock`: it is there twice, before in line "));
}

/// A machine of the cores of this description.
fn described(topology: &str, sizes: &str) -> String {
    let lines: Vec<String> = topology
        .lines()
        .map(|line| format!("topology {line}"))
        .collect();
    format!("machine 1\nname x\n{}\n{sizes}", lines.join("\n"))
}

#[test]
fn topologies_are_checked() {
    assert_eq!(
        error("machine 1\nname x"),
        "`topology`: the entry is missing"
    );
    assert_eq!(
        error("name x"),
        "`machine`: the entry `machine 1` is missing"
    );
    assert_eq!(error("machine 1"), "`name`: the entry is missing");
    assert_eq!(
        error("machine 2"),
        "line 1: `machine`: version \"2\" of the notation is not known, only 1"
    );
    assert_eq!(
        error("machine 1\nname x\ntopology vax"),
        "line 3: `topology`: \"vax\" is none of mely-xeon-e5410, mely-amd-16, epyc-2x64, \
         intel-hybrid"
    );
    let many = described("online 0-512\ncache 1 Data 32K 64: 0-512 by 1", "");
    assert_eq!(
        error(&many),
        "line 3: `topology`: 513 cores are more than 512"
    );
    let none = described("package 0: 0\nonline 0", "");
    assert_eq!(error(&none), "line 3: `topology`: CPU 0 is not online");
    let bare = described("online 0-1\npackage 0: 0-1", "");
    assert_eq!(
        error(&bare),
        "line 3: `topology`: no cache for data is known of CPU 0"
    );
    let larger = described(
        "online 0\ncache 1 Data ? 64: 0\ncache 2 Unified ? 64: 0",
        "cache 1 bytes = 64K ; x\ncache 2 bytes = 32K ; x",
    );
    let rest = Machine::keys(Machine::parse(&good()).unwrap().topology());
    let rest = rest.iter().filter(|key| {
        let many = matches!(key, Key::Transfer(_) | Key::TransferRow(_) | Key::Holders);
        let far = matches!(key, Key::Hit(Place::FarMemory) | Key::Row(Place::FarMemory));
        let third = matches!(key, Key::Hit(Place::Cache(3)) | Key::Row(Place::Cache(3)));
        let bytes = matches!(key, Key::Bytes(_));
        let rmw = matches!(key, Key::Rmw(distance) if *distance != Distance::SameCore);
        !(many || far || third || bytes || rmw)
    });
    let rest: Vec<String> = rest.map(|key| format!("{key} = 1 ; x")).collect();
    assert_eq!(
        error(&format!("{larger}\n{}", rest.join("\n"))),
        "line 6: `cache 1 bytes`: it is larger than `cache 2 bytes`, in which it lies"
    );
    let fits = larger.replace("64K", "16K");
    assert!(Machine::parse(&format!("{fits}\n{}", rest.join("\n"))).is_ok());
}

#[test]
fn a_part_of_a_machine_and_another_number() {
    let machine = Machine::shipped("epyc-2x64").unwrap();
    let part = machine.take(16).unwrap();
    assert_eq!(part.topology().cores().len(), 16);
    // It has no number of what it has not.
    assert!(
        part.numbers()
            .all(|(key, _)| key != Key::Hit(Place::FarMemory))
    );
    assert_eq!(Machine::parse(&part.to_text()), Ok(part));
    let error = machine.take(129).unwrap_err().to_string();
    assert_eq!(error, "`cores`: 129 are asked for, and it has 128");
    assert_eq!(
        machine.take(0).unwrap_err().to_string(),
        "`cores`: no core is left to run on"
    );
    let other = machine.with(Key::Clock, 7.0, "a sweep").unwrap();
    assert_eq!(other.ns(Key::Clock), 7.0);
    assert!(machine.with(Key::Clock, f64::NAN, "a sweep").is_err());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever is in a file, it is a machine or a sentence.
    #[test]
    fn nothing_panics(
        at in 0usize..60,
        line in prop_oneof![
            "[ -~]{0,30}",
            "(cache|transfer|rmw|memory|topology|clock) ?[1-4]? ?(bytes|hit|L3|node)? ?= ?[0-9.eKMG+-]{0,8} ; x",
            "topology (online|package|node|core|cache)[ :0-9,;-]{0,20}",
        ],
    ) {
        let text = good();
        let lines = text.lines().enumerate().map(|(i, its)| if i == at { line.as_str() } else { its });
        let text: Vec<_> = lines.collect();
        match Machine::parse(&text.join("\n")) {
            Ok(machine) => {
                let again = Machine::parse(&machine.to_text());
                prop_assert_eq!(again, Ok(machine));
            }
            Err(error) => prop_assert!(!error.to_string().contains('\n')),
        }
    }
}
