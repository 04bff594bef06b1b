//! Whatever stands in the files: a topology that says what they say, and no more.
//!
//! `PROPTEST_CASES` says how many trees and lists are tried, `PROPTEST_RNG_SEED` tries others.

mod support;

use std::cell::RefCell;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::test_runner::{Config, RngSeed};
use support::reference::{
    Files, assert_parsed_as_said, assert_read_as_said, put, regular, remove, write,
};
use support::{TempFolder, assert_valid};

/// The same cases on every run, unless the environment asks for others. A failing case becomes a
/// test of its own, not a line in a file.
fn config(cases: u32) -> Config {
    Config {
        cases,
        rng_seed: RngSeed::Fixed(1),
        failure_persistence: None,
        ..Config::default()
    }
}

/// What may stand in a file, and does not in most.
const WORDS: &[&str] = &[
    "",
    "\n",
    "0",
    "1",
    "3",
    "7",
    "9",
    "10",
    "256",
    "-1",
    "+1",
    "-0",
    "007",
    " 1 ",
    "1\n2",
    "0x1",
    "1.5",
    "one",
    "0,4",
    "1,5",
    "0-3",
    "0-6",
    "0-7",
    "4,0",
    "2-2",
    "0-1,4-5",
    "5-1",
    "1,,2",
    ",",
    "-",
    "0-1-2",
    "0-49",
    "0-8192",
    "7-9,12",
    "8191",
    "4294967295",
    "4294967296",
    "18446744073709551616",
    "Data",
    "Unified",
    "Instruction",
    "data",
    "32K",
    "K",
    "1T",
    "+1K",
    "17179869184G",
    "17179869183G",
    "9\u{e9}",
    "\0",
];

/// Names that files and folders may have, whether they ought to or not.
const NAMES: &[&str] = &[
    "devices",
    "devices/system/cpu",
    "devices/system/cpu/cpu007/topology/core_cpus_list",
    "devices/system/cpu/cpu+1/x",
    "devices/system/cpu/cpu12",
    "devices/system/cpu/cpu13/x",
    "devices/system/cpu/cpu4294967295/x",
    "devices/system/cpu/cpufreq/x",
    "devices/system/cpu/cpu0/cache",
    "devices/system/cpu/cpu1",
    "devices/system/cpu/cpu2/topology",
    "devices/system/cpu/cpu2/topology/thread_siblings_list",
    "devices/system/cpu/cpu3/cache/index9/level",
    "devices/system/cpu/cpu3/cache/index00/level",
    "devices/system/node",
    "devices/system/node/node0",
    "devices/system/node/node7/cpulist",
    "devices/system/node/node08/cpulist",
];

#[derive(Clone, Debug)]
enum Edit {
    Write(Vec<u8>),
    Long(usize),
    Folder,
    Remove,
}

fn edits() -> impl Strategy<Value = Vec<(String, Edit)>> {
    let paths: Vec<String> = regular().into_keys().collect();
    let mut others: Vec<String> = NAMES.iter().map(|name| name.to_string()).collect();
    others.push("devices/system/cpu/online".to_owned());
    let path = prop_oneof![3 => select(paths), 1 => select(others)];
    let edit = prop_oneof![
        12 => select(WORDS).prop_map(|word| Edit::Write(word.as_bytes().to_vec())),
        2 => vec(any::<u8>(), 0..20).prop_map(Edit::Write),
        1 => (65_534..65_540_usize).prop_map(Edit::Long),
        1 => Just(Edit::Folder),
        4 => Just(Edit::Remove),
    ];
    vec((path, edit), 0..12)
}

fn edited(edits: Vec<(String, Edit)>) -> Files {
    let mut files = regular();
    for (path, edit) in edits {
        match edit {
            Edit::Write(content) => put(&mut files, &path, Some(&content)),
            // A digit, and white space that is cut off.
            Edit::Long(bytes) => put(
                &mut files,
                &path,
                Some(&[b"1", &vec![b' '; bytes][..]].concat()),
            ),
            Edit::Folder => put(&mut files, &path, None),
            Edit::Remove => remove(&mut files, &path),
        }
    }
    files
}

proptest! {
    #![proptest_config(config(8192))]

    #[test]
    fn a_list_is_what_it_says(
        words in vec(select(&[
            "0", "1", "7", "12", "8191", "8192", "99999999999", "-", ",", ",", " ", "+", "x",
            "\u{663}",
        ][..]), 0..12),
        text in any::<String>(),
    ) {
        assert_parsed_as_said(&words.concat());
        assert_parsed_as_said(&text);
    }

    /// Any set, spelled in any order, with whatever overlaps.
    #[test]
    fn every_set_can_be_spelled(
        ranges in vec((0..300_u32, 0..40_u32), 1..9),
        places in vec(any::<Index>(), 9),
    ) {
        let mut entries = Vec::new();
        for ((first, more), place) in ranges.iter().zip(places) {
            let last = first + more;
            let entry = if *more == 0 { first.to_string() } else { format!("{first}-{last}") };
            entries.insert(place.index(entries.len() + 1), entry);
        }
        let text = entries.join(",");
        let list = text.parse::<mely_topology::CpuList>().unwrap();
        for cpu in 0..400 {
            let mut ranges = ranges.iter().map(|&(first, more)| first..=first + more);
            let expected = ranges.any(|range| range.contains(&cpu));
            prop_assert_eq!(list.contains(cpu), expected, "{} in {}", cpu, text);
        }
        assert_parsed_as_said(&text);
    }
}

#[test]
fn a_tree_is_what_its_files_say() {
    let folder = TempFolder::new();
    // What is on disk, so that each case writes only what differs.
    let on_disk = RefCell::new(Files::new());
    proptest!(config(1024), |(edits in edits())| {
        let files = edited(edits);
        write(folder.path(), &on_disk.borrow(), &files);
        on_disk.replace(files.clone());
        assert_read_as_said(folder.path(), &files);
        // Any order of a thousand cores is right, but not worth the wait.
        if let Ok(topology) = mely_topology::Topology::from_sysfs(folder.path())
            && topology.cores().len() <= 64
        {
            assert_valid(&topology);
            let _ = (topology.picture(), topology.victim_table());
        }
    });
}

/// Found by the above: one of the two was believed, and nobody was told.
#[test]
fn siblings_that_disagree_have_physical_cores_of_their_own() {
    for (path, content) in [
        ("cpu0", ""),
        ("cpu0", "0"),
        ("cpu4", "4"),
        ("cpu4", "0-1,4"),
    ] {
        let mut files = regular();
        let path = format!("devices/system/cpu/{path}/topology/core_cpus_list");
        put(&mut files, &path, Some(content.as_bytes()));
        let folder = TempFolder::new();
        write(folder.path(), &Files::new(), &files);
        let machine = mely_topology::Topology::from_sysfs(folder.path()).unwrap();
        let physical = |core: usize| &machine.physical_cores()[machine.cores()[core].physical];
        assert_eq!(
            (&physical(0).cores[..], &physical(4).cores[..]),
            (&[0][..], &[4][..])
        );
        assert_eq!(physical(1).cores, [1, 5]);
        let warnings: Vec<String> = machine
            .warnings()
            .iter()
            .map(|w| w.reason.clone())
            .collect();
        assert!(
            warnings
                .iter()
                .any(|w| w.contains("do not all name each other")),
            "{warnings:?}"
        );
    }
}

/// Found by the above: the whole list stood in the warning.
#[test]
fn a_warning_about_a_long_list_is_short() {
    let mut files = regular();
    let odd: Vec<String> = (0..4000).map(|cpu| (2 * cpu + 1).to_string()).collect();
    let path = "devices/system/cpu/cpu1/cache/index2/shared_cpu_list";
    put(&mut files, path, Some(odd.join(",").as_bytes()));
    let folder = TempFolder::new();
    write(folder.path(), &Files::new(), &files);
    assert_read_as_said(folder.path(), &files);
}
