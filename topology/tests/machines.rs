//! Each machine in `fixtures/` is read and compared with what is expected of it.

mod support;

use std::fs;

use mely_topology::{CacheKind, Distance, Topology};
use support::{MACHINES, TempFolder, Tree, assert_valid, fixture_path};

/// With this set to `write` the expectations are written instead of compared. Look at the diff!
const SNAPSHOTS: &str = "MELY_TOPOLOGY_SNAPSHOTS";

#[test]
fn every_machine_has_the_expected_victims() {
    for name in MACHINES {
        let folder = TempFolder::new();
        Tree::of(name).unfold(folder.path());
        let machine = Topology::from_sysfs(folder.path()).unwrap();
        assert_valid(&machine);

        let mut found = format!("{}\n{}", machine.picture(), machine.victim_table());
        if !machine.warnings().is_empty() {
            found.push('\n');
        }
        for warning in machine.warnings() {
            let line = warning
                .to_string()
                .replace(folder.path().to_str().unwrap(), "");
            found.push_str(&format!("warning: {line}\n"));
        }

        let path = fixture_path(&format!("{name}.victims"));
        if std::env::var(SNAPSHOTS).as_deref() == Ok("write") {
            fs::write(&path, &found).unwrap();
        }
        let expected = fs::read_to_string(&path).unwrap();
        assert!(
            found == expected,
            "{} differs; {SNAPSHOTS}=write accepts this:\n{found}",
            path.display()
        );
    }
}

/// The reader of descriptions, and the tree that the same lines make.
#[test]
fn a_description_is_the_tree_that_it_stands_for() {
    for name in Topology::recorded_names() {
        let described = Topology::described(Topology::recorded(name).unwrap()).unwrap();
        assert_eq!(described, Tree::of(name).read(), "{name}");
    }
}

/// How many victims of the first core are at each distance, nearest first.
fn counts(machine: &Topology, thief: usize) -> Vec<(Distance, usize)> {
    let victims = machine.victims(thief);
    let classes = victims.chunk_by(|a, b| a.1 == b.1);
    classes.map(|class| (class[0].1, class.len())).collect()
}

fn cpus(machine: &Topology, thief: usize) -> Vec<u32> {
    machine
        .victims(thief)
        .iter()
        .map(|&(victim, _)| machine.cores()[victim].cpu)
        .collect()
}

// The tests below say by hand, from the specifications, what the files above say in full, so that
// regenerating those cannot make a mistake the expectation.

#[test]
fn two_xeons_of_the_paper() {
    use Distance::*;
    let machine = Tree::of("mely-xeon-e5410").read();
    assert_eq!((machine.packages().len(), machine.nodes().len()), (2, 1));
    for thief in 0..8 {
        let expected = [(SharedL2, 1), (SameNode, 2), (SameMachine, 4)];
        assert_eq!(counts(&machine, thief), expected);
    }
    assert_eq!(cpus(&machine, 0), [4, 2, 6, 1, 3, 5, 7]);
    assert_eq!(cpus(&machine, 2), [6, 0, 4, 3, 5, 7, 1]);
    assert_eq!(cpus(&machine, 7), [3, 5, 1, 6, 0, 2, 4]);
    let l2: Vec<_> = machine
        .caches()
        .iter()
        .filter(|cache| cache.level == 2)
        .collect();
    assert_eq!(l2.len(), 4);
    assert!(
        l2.iter()
            .all(|cache| cache.size_bytes == Some(6 << 20) && cache.cores.len() == 2)
    );
}

#[test]
fn sixteen_amd_cores_of_the_paper() {
    use Distance::*;
    let machine = Tree::of("mely-amd-16").read();
    for thief in 0..16 {
        assert_eq!(counts(&machine, thief), [(SharedL3, 3), (SameMachine, 12)]);
    }
    assert_eq!(
        cpus(&machine, 5),
        [6, 7, 4, 9, 10, 11, 8, 13, 14, 15, 12, 1, 2, 3, 0]
    );
}

#[test]
fn two_epycs_of_64_cores() {
    use Distance::*;
    let machine = Tree::of("epyc-2x64").read();
    assert_eq!(machine.cores().len(), 128);
    for thief in 0..128 {
        let expected = [(SharedL3, 7), (SameNode, 56), (SameMachine, 64)];
        assert_eq!(counts(&machine, thief), expected);
    }
}

#[test]
fn a_hybrid_laptop() {
    use Distance::*;
    let machine = Tree::of("intel-hybrid").read();
    assert_eq!(
        (machine.cores().len(), machine.physical_cores().len()),
        (16, 12)
    );
    assert_eq!(counts(&machine, 0), [(SharedL1, 1), (SharedL3, 14)]);
    assert_eq!(counts(&machine, 8), [(SharedL2, 3), (SharedL3, 12)]);
    assert_eq!(machine.distance(8, 12), SharedL3);
    // Twelve threads: one on each physical core.
    let twelve = machine.take(12).unwrap();
    let taken: Vec<u32> = twelve.cores().iter().map(|core| core.cpu).collect();
    assert_eq!(taken, [0, 2, 4, 6, 8, 9, 10, 11, 12, 13, 14, 15]);
}

#[test]
fn this_kind_of_machine_as_recorded() {
    let machine = Tree::of("build-vm").read();
    assert_eq!(machine.warnings(), []);
    assert_eq!(counts(&machine, 0), [(Distance::SharedL3, 1)]);
    let l1i = machine
        .caches()
        .iter()
        .find(|cache| cache.kind == CacheKind::Instruction)
        .unwrap();
    assert_eq!((l1i.size_bytes, l1i.line_bytes), (Some(32 << 10), Some(64)));
}

#[test]
fn only_caches_with_data_up_to_level_3_bring_cores_nearer() {
    let machine = Tree::parse(
        "online 0-3\n\
         package 0: 0-1\n\
         package 1: 2-3\n\
         node 0: 0-1\n\
         node 1: 2-3\n\
         core: 0-3 by 1\n\
         cache 1 Instruction 32K 64: 0-1; 2-3\n\
         cache 4 Unified 64M 64: 0-3",
    )
    .read();
    assert_eq!(machine.warnings(), []);
    assert_eq!(machine.distance(0, 1), Distance::SameNode);
    assert_eq!(machine.distance(1, 2), Distance::SameMachine);
}

#[test]
fn siblings_are_at_l1_even_where_no_cache_is_known() {
    let machine = Tree::parse("online 0-3\ncore: 0,2; 1,3").read();
    assert_eq!(machine.distance(0, 2), Distance::SharedL1);
    assert_eq!(machine.distance(0, 1), Distance::SameNode);
    assert_eq!(machine.physical_cores().len(), 2);
}

#[test]
fn holes_and_offline_cpus_are_indexed_by_list() {
    let mut tree = Tree::of("epyc-2x64");
    tree.files
        .insert("devices/system/cpu/online".into(), "2-3,7,9,70\n".into());
    let machine = tree.read();
    let numbers: Vec<u32> = machine.cores().iter().map(|core| core.cpu).collect();
    assert_eq!(numbers, [2, 3, 7, 9, 70]);
    assert_eq!(cpus(&machine, 2), [2, 3, 9, 70]);
    assert_eq!(machine.index_of(70), Some(4));
    assert_eq!(machine.index_of(4), None);

    // Without the list, the folders and their switches tell.
    tree.files.remove("devices/system/cpu/online");
    tree.files.retain(|path, _| !path.contains("/cpu5/"));
    tree.files
        .insert("devices/system/cpu/cpu6/online".into(), "0\n".into());
    tree.files
        .insert("devices/system/cpu/cpu7/online".into(), "1\n".into());
    let machine = tree.read();
    assert_eq!(machine.cores().len(), 126);
    assert_eq!((machine.index_of(5), machine.index_of(6)), (None, None));
    assert_eq!(machine.warnings().len(), 1);
    assert!(machine.warnings()[0].path.ends_with("cpu/online"));
}

#[test]
fn a_mask_leaves_its_cpus_and_their_distances() {
    let folder = TempFolder::new();
    Tree::of("epyc-2x64").unfold(folder.path());
    let whole = Topology::from_sysfs(folder.path()).unwrap();
    let mask = "17,42,100-101".parse().unwrap();
    let part = Topology::from_sysfs_masked(folder.path(), &mask).unwrap();
    assert_eq!(part, whole.restrict(&[101, 17, 42, 100]).unwrap());
    assert_valid(&part);
    assert_eq!(part.usable_parallelism(), 4);
    assert_eq!(cpus(&part, 0), [42, 100, 101]);
    assert_eq!(part.distance(2, 3), whole.distance(100, 101));
    // A cache still knows who else is behind it.
    let l3 = &part.caches()[*part.cores()[2].caches.last().unwrap()];
    assert_eq!(
        (l3.shared_cpus.to_string(), l3.cores.len()),
        ("96-103".to_string(), 2)
    );
}

#[test]
fn a_machine_that_hides_everything_warns_within_a_limit() {
    let folder = TempFolder::new();
    fs::create_dir_all(folder.path().join("devices/system/cpu")).unwrap();
    let mask = "0-8191".parse().unwrap();
    let machine = Topology::from_sysfs_masked(folder.path(), &mask).unwrap();
    assert_eq!(machine.cores().len(), 8192);
    assert_eq!(machine.warnings().len(), 65);
    assert!(machine.warnings()[64].reason.starts_with("8129 more"));
}
