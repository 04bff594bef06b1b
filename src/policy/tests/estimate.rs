//! How means are learned.

use crate::policy::estimate::{believed, differs, nearer};

#[test]
fn a_mean_moves_by_a_part_of_the_difference_rounded_up() {
    for (mean, sample, weight, after) in [
        (800, 1_600, 16, 850),
        (850, 0, 16, 796),
        (800, 784, 16, 799),
        (799, 815, 16, 800),
        (5, 6, 16, 6),
        (6, 5, 16, 5),
        (7, 7, 16, 7),
        (100, 300, 1, 300),
    ] {
        assert_eq!(nearer(mean, sample, weight), after, "{mean} {sample}");
    }
}

#[test]
fn an_absurd_sample_counts_for_eight_times_and_some() {
    for (mean_ns, sample_ns, counts) in [
        (100, 1_600, 1_600),
        (100, 1_601, 1_600),
        (0, 1 << 40, 800),
        (u32::MAX, u64::from(u32::MAX) + 1, u32::MAX),
        (600, 7, 7),
    ] {
        assert_eq!(
            believed(mean_ns, sample_ns),
            counts,
            "{mean_ns} {sample_ns}"
        );
    }
}

#[test]
fn others_are_told_of_more_than_a_sixteenth() {
    for (known_ns, ns, told) in [
        (1_600, 1_700, false),
        (1_600, 1_701, true),
        (1_600, 1_500, false),
        (1_600, 1_499, true),
        (15, 15, false),
        (15, 16, true),
    ] {
        assert_eq!(differs(known_ns, ns), told, "{known_ns} {ns}");
    }
}
