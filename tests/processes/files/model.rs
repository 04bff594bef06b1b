//! The simulated disk against the kernel's file systems: the same operations have the same results.

use super::{Scratch, done, errno};
use crate::common::{Bound, backends, cores};
use mely::fs::{Dir, File, Metadata, OpenOptions};
use mely::net::Backend;
use mely::task::with_cx;
use mely::{Color, Runtime};
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::io;
use std::path::PathBuf;

const STEPS: usize = 600;
const NAMES: [&str; 14] = [
    "a", "b", "c", "d", "d/a", "d/b", "d/e", "d/e/a", "f", "f/a", "d/../a", "../x", "d/..", "",
];

/// Numbers that follow from a seed.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(0x5851_f42d_4c95_7f2d)
            .wrapping_add(0x1405_7b7e_f767_814f);
        (self.0 >> 33) as usize % end
    }

    fn flag(&mut self) -> bool {
        self.below(2) == 0
    }

    fn name(&mut self) -> &'static str {
        NAMES[self.below(NAMES.len())]
    }
}

/// A result without paths and texts.
fn noted<T: Debug>(result: io::Result<T>) -> String {
    match result {
        Ok(value) => format!("{value:?}"),
        Err(error) => format!("{:?} {:?}", error.kind(), errno(&error)),
    }
}

fn known(known: Metadata) -> (bool, u64, u64) {
    match known.is_dir() {
        // Each file system counts these as it likes.
        true => (true, 0, 0),
        false => (false, known.len(), known.links()),
    }
}

async fn listed(dir: &Dir) -> io::Result<Vec<(String, bool)>> {
    let mut all = Vec::new();
    loop {
        let piece = done!(|cx| dir.list(cx))?;
        if piece.is_empty() {
            all.sort();
            return Ok(all);
        }
        let piece = piece.into_iter();
        all.extend(piece.map(|entry| (entry.name().to_str().unwrap().to_owned(), entry.is_dir())));
    }
}

/// Runs operations that a seed decides, and notes their results.
async fn transcript(dir: Dir, seed: u64) -> Vec<String> {
    let mut numbers = Numbers(seed);
    let mut notes = Vec::new();
    let mut files: BTreeMap<usize, File> = BTreeMap::new();
    let mut dirs: BTreeMap<usize, Dir> = BTreeMap::new();
    for step in 0..STEPS {
        let n = &mut numbers;
        let (from, to, slot) = (n.name(), n.name(), n.below(4));
        let here = match n.below(4) {
            0 => dirs.get(&slot).unwrap_or(&dir).clone(),
            _ => dir.clone(),
        };
        let other = dirs.get(&n.below(4)).unwrap_or(&dir).clone();
        let which = n.below(15);
        let note = match which {
            0..=2 => {
                let options = OpenOptions::new()
                    .read(n.flag())
                    .write(n.flag())
                    .append(n.below(4) == 0)
                    .truncate(n.below(4) == 0)
                    .create(n.flag())
                    .create_new(n.below(4) == 0);
                let opened = done!(|cx| here.open_file(cx, from, options));
                let note = noted(opened.as_ref().map(|_| ()).map_err(again));
                // Reads of a directory differ, and are left out.
                if let Ok(file) = opened
                    && done!(|cx| file.metadata(cx)).unwrap().is_file()
                {
                    files.insert(slot, file);
                }
                format!("{options:?} {note}")
            }
            3 => {
                let opened = done!(|cx| here.open_dir(cx, from));
                let note = noted(opened.as_ref().map(|_| ()).map_err(again));
                dirs.extend(opened.ok().map(|opened| (slot, opened)));
                note
            }
            4 => noted(done!(|cx| here.create_dir(cx, from))),
            5 => noted(done!(|cx| here.remove_dir(cx, from))),
            6 => noted(done!(|cx| here.remove_file(cx, from))),
            7 => noted(done!(|cx| here.rename(cx, from, &other, to))),
            8 => noted(done!(|cx| here.hard_link(cx, from, &other, to))),
            9 => noted(done!(|cx| here.metadata(cx, from)).map(known)),
            10 => noted(listed(&here).await),
            _ => match files.get(&slot) {
                None => "no file".to_owned(),
                Some(file) => {
                    let (offset, len) = (n.below(200) as u64, n.below(100));
                    match which {
                        11 => noted(done!(|cx| file.read_at(cx, offset, len))),
                        12 => noted(done!(|cx| file.write_at(cx, offset, vec![step as u8; len]))),
                        13 => noted(done!(|cx| file.append(cx, vec![step as u8; len]))),
                        _ if n.flag() => noted(done!(|cx| file.truncate(cx, offset))),
                        _ => noted(done!(|cx| file.metadata(cx)).map(known)),
                    }
                }
            },
        };
        notes.push(format!("{step}: {which} {from:?} {to:?} {slot}: {note}"));
    }
    notes
}

/// An error that can be noted of one that is borrowed.
fn again(error: &io::Error) -> io::Error {
    match errno(error) {
        Some(errno) => io::Error::new(error.kind(), io::Error::from_raw_os_error(errno)),
        None => error.kind().into(),
    }
}

fn on_kernel(backend: Backend, path: PathBuf, seed: u64) -> Vec<String> {
    let run = cores(2)
        .backend(backend)
        .build()
        .unwrap()
        .run_until(move |cx, finish| {
            cx.spawn(Color::from(1), async move {
                let dir = done!(|cx| Dir::open(cx, path)).unwrap();
                finish.finish(transcript(dir, seed).await);
            });
        });
    run.unwrap()
}

fn simulated(seed: u64) -> Vec<String> {
    let mut simulation = Runtime::builder().cores(2).simulate(seed).unwrap();
    simulation.disk().create_dir("/data/dir").unwrap();
    let run = simulation.run_until(move |cx, finish| {
        cx.spawn(Color::from(1), async move {
            let dir = done!(|cx| Dir::open(cx, "/data/dir")).unwrap();
            finish.finish(transcript(dir, seed).await);
        });
    });
    assert_eq!(simulation.disk().open_count(), 0);
    run.unwrap()
}

#[test]
fn the_simulated_disk_does_what_the_kernels_do() {
    let _bound = Bound::new("the_simulated_disk_does");
    let mut done_well = 0;
    for seed in 0..24 {
        let simulated = simulated(seed);
        for backend in backends() {
            for scratch in Scratch::all() {
                let real = on_kernel(backend.clone(), scratch.0.clone(), seed);
                for (real, simulated) in real.iter().zip(&simulated) {
                    assert_eq!(real, simulated, "seed {seed} in {scratch:?}");
                }
            }
        }
        let well = |note: &&String| note.ends_with(": ()") || note.ends_with(')');
        done_well += simulated.iter().filter(well).count();
    }
    assert!(done_well > 2_000, "{done_well}");
}
