//! What holds of every machine: made up, cut down, or damaged.

mod support;

use mely_topology::{CpuList, Distance, Shape, Topology};
use support::{MACHINES, Random, TempFolder, Tree, assert_valid};

/// Every shape with one to three of each part, and no more than 64 cores.
fn shapes() -> Vec<Shape> {
    let mut shapes = Vec::new();
    for code in 0..3_usize.pow(6) {
        let part = |i: u32| code / 3_usize.pow(i) % 3 + 1;
        let shape = Shape {
            packages: part(0),
            nodes_per_package: part(1),
            l3_per_node: part(2),
            l2_per_l3: part(3),
            cores_per_l2: part(4),
            threads_per_core: part(5),
        };
        if (0..6).map(part).product::<usize>() <= 64 {
            shapes.push(shape);
        }
    }
    shapes
}

#[test]
fn every_regular_machine_is_valid() {
    let shapes = shapes();
    assert!(shapes.len() > 300, "{} shapes", shapes.len());
    for shape in shapes {
        assert_valid(&Topology::synthetic(shape).unwrap());
    }
}

/// The thieves' first victims are all the cores, so are their second ones, and so on: no two
/// thieves meet.
fn assert_thieves_never_meet(machine: &Topology) {
    let n = machine.cores().len();
    let orders: Vec<_> = (0..n).map(|thief| machine.victims(thief)).collect();
    for position in 0..n - 1 {
        let mut hit: Vec<usize> = orders.iter().map(|order| order[position].0).collect();
        hit.sort_unstable();
        assert_eq!(
            hit,
            (0..n).collect::<Vec<_>>(),
            "position {position} of\n{machine:?}"
        );
    }
}

#[test]
fn thieves_never_meet_on_regular_machines() {
    let flat = [1, 2, 3, 7, 64].map(|n| Topology::flat(n).unwrap());
    let regular = shapes()
        .into_iter()
        .map(|shape| Topology::synthetic(shape).unwrap());
    for machine in regular.chain(flat) {
        assert_thieves_never_meet(&machine);
    }
}

/// Whatever the numbering, as long as groups are of equal size.
#[test]
fn thieves_never_meet_however_cores_are_numbered() {
    for name in ["mely-xeon-e5410", "mely-amd-16", "epyc-2x64"] {
        assert_thieves_never_meet(&Tree::of(name).read());
    }
    for l3 in [
        "0,4,8; 1,5,9; 2,6,10; 3,7,11",
        "0,7,9; 1,3,11; 2,4,8; 5,6,10",
    ] {
        let machine = Tree::parse(&format!("online 0-11\ncache 3 Unified 8192K 64: {l3}")).read();
        assert_eq!(machine.caches().len(), 4);
        assert_thieves_never_meet(&machine);
    }
}

#[test]
fn equal_cores_start_right_after_themselves() {
    let flat = Topology::flat(5).unwrap();
    for thief in 0..5 {
        let expected: Vec<_> = (1..5)
            .map(|i| ((thief + i) % 5, Distance::SameNode))
            .collect();
        assert_eq!(flat.victims(thief), expected);
    }
}

#[test]
fn subsets_are_valid_and_keep_distances() {
    let mut random = Random(0x5eed);
    for name in MACHINES {
        let whole = Tree::of(name).read();
        for _ in 0..40 {
            let cpus: Vec<u32> = whole
                .cores()
                .iter()
                .map(|core| core.cpu)
                .filter(|_| random.below(3) == 0)
                .collect();
            let Ok(part) = whole.restrict(&cpus) else {
                assert!(cpus.is_empty());
                continue;
            };
            assert_valid(&part);
            let index = |core: usize| whole.index_of(part.cores()[core].cpu).unwrap();
            for a in 0..part.cores().len() {
                for b in 0..part.cores().len() {
                    assert_eq!(part.distance(a, b), whole.distance(index(a), index(b)));
                }
            }
        }
        for n in 1..=whole.cores().len() + 1 {
            let part = whole.take(n).unwrap();
            assert_eq!(part.cores().len(), n.min(whole.cores().len()));
        }
        assert_eq!(whole.take(usize::MAX).unwrap(), whole);
    }
}

#[test]
fn every_distance_has_its_index() {
    for (index, distance) in Distance::ALL.into_iter().enumerate() {
        assert_eq!(distance.index(), index);
    }
    assert!(Distance::ALL.is_sorted());
}

#[test]
fn random_lists_never_panic_and_survive_a_round_trip() {
    let mut random = Random(0xc0105);
    let alphabet = b"0123456789,,--- \n\tx:/+\xff";
    let mut accepted = 0;
    for _ in 0..50_000 {
        let bytes: Vec<u8> = (0..random.below(12))
            .map(|_| alphabet[random.below(alphabet.len())])
            .collect();
        let text = String::from_utf8_lossy(&bytes);
        if let Ok(list) = text.parse::<CpuList>() {
            accepted += 1;
            assert_eq!(list.to_string().parse(), Ok(list.clone()));
            assert_eq!(list.iter().collect::<CpuList>(), list);
        }
    }
    assert!(accepted > 1000, "only {accepted} texts were lists");
}

/// Damages a few files of a tree at a time, in every way that comes to mind, and reads it.
#[test]
fn damaged_trees_never_panic() {
    const SEED: u64 = 0xdead_beef;
    let mut random = Random(SEED);
    for name in ["build-vm", "intel-hybrid", "mely-xeon-e5410", "broken"] {
        let tree = Tree::of(name);
        let folder = TempFolder::new();
        tree.unfold(folder.path());
        let paths: Vec<&String> = tree.files.keys().collect();
        let mut read = 0;
        for _ in 0..250 {
            let mut damaged = Vec::new();
            for _ in 0..=random.below(4) {
                let path = paths[random.below(paths.len())];
                let file = folder.path().join(path);
                match damage(tree.files[path].as_bytes(), &mut random) {
                    Some(content) => std::fs::write(&file, content).unwrap(),
                    None => drop(std::fs::remove_file(&file)),
                }
                damaged.push(path);
            }
            // An error is an answer too; a panic is not.
            if let Ok(topology) = Topology::from_sysfs(folder.path()) {
                read += 1;
                // A huge but well-formed list of CPUs is read; its order is not worth the wait.
                if topology.cores().len() <= 64 {
                    assert_valid(&topology);
                    let _ = (topology.picture(), topology.victim_table());
                }
            }
            for path in damaged {
                std::fs::write(folder.path().join(path), &tree.files[path]).unwrap();
            }
        }
        assert!(
            read > 200,
            "only {read} damaged trees of {name} could be read"
        );
    }
}

/// New content of a file, or `None` to remove it.
fn damage(content: &[u8], random: &mut Random) -> Option<Vec<u8>> {
    const WORDS: [&str; 14] = [
        "",
        "\0",
        "-1",
        "0",
        "0-",
        "-",
        "0-4294967295",
        "0-99",
        "99999999999999999999",
        "1,0",
        "Data",
        "K",
        "18446744073709551615G",
        "\u{fffd}",
    ];
    let mut bytes = content.to_vec();
    match random.below(6) {
        0 => return None,
        1 => bytes = WORDS[random.below(WORDS.len())].into(),
        2 => bytes.truncate(random.below(bytes.len() + 1)),
        3 => bytes = bytes.repeat(random.below(3000)),
        _ => {
            for _ in 0..=random.below(2) {
                let place = random.below(bytes.len() + 1);
                let byte = random.below(256) as u8;
                match bytes.get_mut(place) {
                    Some(old) => *old = byte,
                    None => bytes.push(byte),
                }
            }
        }
    }
    Some(bytes)
}
