//! A process that may use part of a machine sees that part.

use std::process::Command;
use std::thread;

use mely_topology::Topology;
use rustix::thread::{CpuSet, sched_setaffinity};

/// Runs `check` on a thread that may only use the last of our CPUs, whose number it is given.
fn on_one_cpu(check: impl FnOnce(u32) + Send + 'static) {
    let cpu = Topology::detect().unwrap().cores().last().unwrap().cpu;
    let pinned = thread::spawn(move || {
        let mut mask = CpuSet::new();
        mask.set(cpu as usize);
        sched_setaffinity(None, &mask).unwrap();
        check(cpu);
    });
    pinned.join().unwrap();
}

#[test]
fn a_pinned_thread_sees_one_core() {
    on_one_cpu(|cpu| {
        let machine = Topology::detect().unwrap();
        assert_eq!(machine.cores().len(), 1);
        assert_eq!(machine.cores()[0].cpu, cpu);
        assert_eq!(machine.usable_parallelism(), 1);
        assert_eq!(machine.victims(0), []);
    });
}

/// The mask is inherited, so the child is what a container's process is.
#[test]
fn a_child_process_sees_the_mask_it_was_given() {
    on_one_cpu(|cpu| {
        let output = Command::new(env!("CARGO_BIN_EXE_mely-topology"))
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success());
        assert!(
            text.starts_with("1 core on 1 physical core, 1 package"),
            "{text}"
        );
        assert!(text.ends_with(&format!("\n{cpu}:\n")), "{text}");
    });
}

#[test]
fn no_more_cores_are_usable_than_there_are() {
    let machine = Topology::detect().unwrap();
    assert!(machine.usable_parallelism() <= machine.cores().len());
    let one = machine.take(1).unwrap();
    assert_eq!((one.cores().len(), one.usable_parallelism()), (1, 1));
}
