//! hwloc and sysfs tell the same about the same machine. Built with feature `hwloc` only.
#![cfg(feature = "hwloc")]

mod support;

use std::process::Command;
use std::{env, fs};

use hwlocality::topology::builder::{TopologyBuilder, TypeFilter};
use hwlocality::topology::export::xml::XMLExportFlags;
use mely_topology::{Distance, Error, Shape, Topology};
use support::{MACHINES, Random, TempFolder, Tree, assert_valid};

fn orders(machine: &Topology) -> Vec<Vec<(usize, Distance)>> {
    (0..machine.cores().len())
        .map(|thief| machine.victims(thief))
        .collect()
}

#[test]
fn this_machine_is_the_same_through_both() {
    let (sysfs, hwloc) = (Topology::detect().unwrap(), Topology::from_hwloc().unwrap());
    assert_valid(&hwloc);
    let cpus = |machine: &Topology| {
        machine
            .cores()
            .iter()
            .map(|core| core.cpu)
            .collect::<Vec<_>>()
    };
    assert_eq!(cpus(&sysfs), cpus(&hwloc));
    assert_eq!(sysfs.usable_parallelism(), hwloc.usable_parallelism());
    assert_eq!(orders(&sysfs), orders(&hwloc));
}

#[test]
fn made_up_machines_are_the_same_through_both() {
    let shape =
        |packages, nodes_per_package, l3_per_node, l2_per_l3, cores_per_l2, threads_per_core| {
            Shape {
                packages,
                nodes_per_package,
                l3_per_node,
                l2_per_l3,
                cores_per_l2,
                threads_per_core,
            }
        };
    for (description, shape) in [
        (
            "pack:2 numa:4 l3:2 l2:8 core:1 pu:2",
            shape(2, 4, 2, 8, 1, 2),
        ),
        (
            "pack:2 numa:1 l3:1 l2:2 core:2 pu:1",
            shape(2, 1, 1, 2, 2, 1),
        ),
        (
            "pack:1 numa:1 l3:4 l2:4 core:1 pu:1",
            shape(1, 1, 4, 4, 1, 1),
        ),
    ] {
        let hwloc = Topology::from_hwloc_synthetic(description).unwrap();
        assert_valid(&hwloc);
        assert_eq!(
            orders(&hwloc),
            orders(&Topology::synthetic(shape).unwrap()),
            "{description}"
        );
    }
}

#[test]
fn the_xeons_of_the_paper_in_one_line() {
    let machine = Topology::from_hwloc_synthetic("pack:2 l2:2 core:2 pu:1").unwrap();
    let distances: Vec<usize> = Distance::ALL
        .map(|wanted| {
            machine
                .victims(0)
                .iter()
                .filter(|&&(_, distance)| distance == wanted)
                .count()
        })
        .into();
    assert_eq!(distances, [0, 0, 1, 0, 2, 0, 4]);
}

#[test]
fn bad_input_is_an_error() {
    for description in ["", "nonsense", "pack:2 core", "pu:0", "pack:\0 2"] {
        let error = Topology::from_hwloc_synthetic(description).unwrap_err();
        assert!(
            matches!(error, Error::Hwloc { .. }),
            "{description:?}: {error}"
        );
    }
    let absurd = Topology::from_hwloc_synthetic("pack:100000 core:100000 pu:2");
    assert_eq!(absurd, Err(Error::TooManyCores));

    let folder = TempFolder::new();
    let path = folder.path().join("machine.xml");
    let reason = || Topology::from_hwloc_xml(&path).unwrap_err().to_string();
    assert!(reason().ends_with("no such file"));
    fs::write(&path, "this is no XML").unwrap();
    assert!(reason().contains("machine.xml"));
    fs::write(&path, [0xff, 0xfe]).unwrap();
    assert!(reason().ends_with("not text"));
}

/// Only damage that hwloc itself survives: it checks its own structures with assertions in C.
#[test]
fn truncated_xml_never_panics() {
    let xml = synthetic_xml("pack:2 l3:2 core:2 pu:2");
    let folder = TempFolder::new();
    let path = folder.path().join("machine.xml");
    fs::write(&path, &xml).unwrap();
    let whole = Topology::from_hwloc_xml(&path).unwrap();
    assert_eq!(
        whole,
        Topology::from_hwloc_synthetic("pack:2 l3:2 core:2 pu:2").unwrap()
    );

    let mut random = Random(7);
    for _ in 0..50 {
        fs::write(&path, &xml[..random.below(xml.len() - 20)]).unwrap();
        assert!(Topology::from_hwloc_xml(&path).is_err());
    }
}

fn synthetic_xml(description: &str) -> String {
    let builder = TopologyBuilder::new().from_synthetic(description).unwrap();
    builder
        .build()
        .unwrap()
        .export_xml(XMLExportFlags::default())
        .unwrap()
        .to_string()
}

const TREE: &str = "HWLOC_FSROOT";
const XML: &str = "MELY_TOPOLOGY_TEST_XML";

/// hwloc reads the same sysfs trees as we do, with code of its own: a judge of our reader.
#[test]
fn hwloc_reads_the_machines_as_we_do() {
    for name in MACHINES
        .into_iter()
        .filter(|&name| name != "broken" && name != "build-vm")
    {
        let folder = TempFolder::new();
        let tree = Tree::of(name);
        tree.unfold(&folder.path().join("sys"));
        let xml = folder.path().join("machine.xml");
        // hwloc takes the tree from an environment variable, so a child process reads it.
        let child = Command::new(env::current_exe().unwrap())
            .args(["--exact", "child_reads_a_tree", "--test-threads=1"])
            .env(TREE, folder.path())
            .env(XML, &xml)
            .output()
            .unwrap();
        assert!(
            child.status.success(),
            "{}",
            String::from_utf8_lossy(&child.stdout)
        );
        let (hwloc, ours) = (Topology::from_hwloc_xml(&xml).unwrap(), tree.read());
        assert_eq!(ours.picture(), hwloc.picture());
        assert_eq!(ours.victim_table(), hwloc.victim_table(), "{name}");
    }
}

/// Not a test by itself: the child of the one above.
#[test]
fn child_reads_a_tree() {
    let Some(path) = env::var_os(XML) else { return };
    let builder = TopologyBuilder::new()
        .with_cpu_cache_type_filter(TypeFilter::KeepAll)
        .unwrap();
    let xml = builder
        .build()
        .unwrap()
        .export_xml(XMLExportFlags::default())
        .unwrap()
        .to_string();
    fs::write(path, xml).unwrap();
}
