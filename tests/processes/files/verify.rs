//! A large file that several colors write out of order. As in a verification by fio, each eight
//! bytes tell where they belong, and in which round they were written.

use super::{READ, create, done, in_task, pattern};
use futures::future::join_all;
use mely::Color;
use mely::fs::{Dir, File};
use mely::task::with_cx;
use std::sync::Arc;

/// All pieces begin and end at a multiple of it.
const UNIT: usize = 4 << 10;
/// More than one call of the system reads or writes, and no multiple of that.
const PIECE: usize = 24 * UNIT;
/// Together 32 MiB.
const PIECES: usize = 342;
const COLORS: usize = 5;
/// Operations of a color that are under way together.
const AT_ONCE: usize = 4;

/// The round in which each unit of the file was written last.
type Rounds = Arc<Vec<u64>>;

/// The bytes that the file has to have there.
fn expected(rounds: &Rounds, offset: u64, len: usize) -> Vec<u8> {
    let units = (offset as usize / UNIT..).take(len / UNIT);
    let units = units.map(|unit| pattern(rounds[unit], (unit * UNIT) as u64, UNIT));
    units.collect::<Vec<_>>().concat()
}

/// Runs `f` with the offset of each piece, by several colors, each in an order of its own.
async fn by_colors<F, R>(offsets: &[u64], f: F)
where
    F: Fn(u64) -> R + Clone + Send + Sync + 'static,
    R: Future<Output = ()> + Send,
{
    let tasks = (0..COLORS).map(|color| {
        let its = offsets.iter().skip(color).step_by(COLORS);
        let mut its: Vec<u64> = its.copied().collect();
        its.sort_by_key(|offset| (offset + color as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let f = f.clone();
        let task = async move {
            for some in its.chunks(AT_ONCE) {
                join_all(some.iter().map(|&offset| f(offset))).await;
            }
        };
        with_cx(|cx| cx.spawn(Color::from(100 + color as u64), task))
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }
}

async fn write(file: &File, round: u64, offsets: &[u64]) {
    let file = file.clone();
    let write = move |offset| {
        let file = file.clone();
        async move {
            let bytes = pattern(round, offset, PIECE);
            done!(|cx| file.write_at(cx, offset, bytes)).unwrap();
        }
    };
    by_colors(offsets, write).await;
}

async fn verify(file: &File, rounds: &Rounds, offsets: &[u64]) {
    let (file, rounds) = (file.clone(), Arc::clone(rounds));
    let read = move |offset| {
        let (file, rounds) = (file.clone(), Arc::clone(&rounds));
        async move {
            let bytes = done!(|cx| file.read_at(cx, offset, PIECE)).unwrap();
            assert!(bytes == expected(&rounds, offset, PIECE), "at {offset}");
        }
    };
    by_colors(offsets, read).await;
}

#[test]
fn a_large_file_has_the_bytes_that_were_written_last() {
    in_task("a_large_file", |dir, path| async move {
        let file = create(&dir, "large").await;
        let all: Vec<u64> = (0..PIECES).map(|piece| (piece * PIECE) as u64).collect();
        write(&file, 1, &all).await;
        let mut rounds = vec![1; PIECES * PIECE / UNIT];
        // Each over the border of two pieces, and none over another one of its round.
        for (round, first, shift) in [(2, 0, 7 * UNIT), (3, 1, 17 * UNIT)] {
            let begins = (first..PIECES - 1).step_by(3);
            let some: Vec<u64> = begins.map(|piece| (piece * PIECE + shift) as u64).collect();
            write(&file, round, &some).await;
            for offset in some {
                rounds[offset as usize / UNIT..][..PIECE / UNIT].fill(round);
            }
        }
        let rounds = Arc::new(rounds);
        done!(|cx| file.sync(cx)).unwrap();
        verify(&file, &rounds, &all).await;
        drop((file, dir));

        let again = done!(|cx| Dir::open(cx, &path)).unwrap();
        let file = done!(|cx| again.open_file(cx, "large", READ)).unwrap();
        let len = PIECES * PIECE;
        assert_eq!(done!(|cx| file.metadata(cx)).unwrap().len(), len as u64);
        verify(&file, &rounds, &all).await;
        // Without mely.
        assert!(std::fs::read(path.join("large")).unwrap() == expected(&rounds, 0, len));
    });
}
