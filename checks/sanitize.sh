#!/usr/bin/env bash
# The unsafe code under checkers that see what tests and loom cannot. One layer a call:
#
#   checks/sanitize.sh thread   ThreadSanitizer: data races, in everything the threads of a runtime do
#   checks/sanitize.sh address  AddressSanitizer and LeakSanitizer: memory that is gone, or never goes
#   checks/sanitize.sh miri     Miri: aliasing, provenance, uninitialized memory, leaks; and races, with
#                               stale values read where the memory model allows them
#
# What follows is passed to the test programs: `checks/sanitize.sh thread storm`; names select more, not
# fewer, for Miri, which has a selection.
#
# All need the nightly toolchain, with rust-src and miri; rustup installs what is missing. For
# `thread` the standard library is built with the sanitizer too: else what its locks and channels
# guard looks like races.
#
# Each runs the library's own tests and integration tests that drive the scheduler. Under Miri the
# runtime has a simulated event source, because Miri has no kernel; numbers of events are smaller
# (`cfg!(miri)` in the tests). Runs on a machine (`simulate_on`) are left out: no checker follows a
# thread that changes stacks.
#
# What is excused, and why, stands in .ci/tsan and .ci/lsan.
set -euo pipefail
cd "$(dirname "$0")/.."

layer=${1:-}
[ $# -gt 0 ] && shift
target=${CARGO_TARGET_DIR:-target}

# The nightly toolchain with these components.
nightly() {
    command -v rustup >/dev/null || {
        echo "needs rustup, for a nightly toolchain" >&2
        exit 1
    }
    rustup toolchain list | grep -q ^nightly || rustup toolchain install nightly --profile minimal
    [ $# -eq 0 ] || rustup component add --toolchain nightly "$@" || {
        echo "this nightly lacks one of: $*; another may have it" >&2
        exit 1
    }
    host=$(rustc +nightly -vV | sed -n 's/^host: //p')
}

# Runs `cargo ARGUMENT...` for the library's own tests, and for the integration tests that drive the
# scheduler: those of these programs, but not of these modules.
cargo_test() {
    local failed=0 name programs=() skipped=()
    for name in colors net runtime scheduling simulated tasks; do
        programs+=(--test "$name")
    done
    for name in delays drain framing hyper late planted profile programs seen sharing stages streams \
        visits; do
        skipped+=(--skip "$name::")
    done
    cargo +nightly test "$@" --no-fail-fast -p mely --lib -- "${arguments[@]}" || failed=1
    cargo +nightly test "$@" --no-fail-fast -p mely-tests "${programs[@]}" -- "${skipped[@]}" \
        "${arguments[@]}" || failed=1
    return $failed
}

case $layer in
thread)
    nightly rust-src
    # Not 48 threads that do nothing but read one word: they wait for a lock of the sanitizer's own.
    arguments=(--skip refused_posters "$@")
    RUSTFLAGS="-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer" \
        TSAN_OPTIONS="suppressions=$PWD/.ci/tsan ${TSAN_OPTIONS:-}" \
        cargo_test -Zbuild-std --target "$host" --target-dir "$target/thread"
    ;;
address)
    nightly
    arguments=("$@")
    RUSTFLAGS="-Zsanitizer=address -Cunsafe-allow-abi-mismatch=sanitizer" \
        ASAN_OPTIONS="detect_leaks=1 ${ASAN_OPTIONS:-}" \
        LSAN_OPTIONS="suppressions=$PWD/.ci/lsan ${LSAN_OPTIONS:-}" \
        cargo_test --target "$host" --target-dir "$target/address"
    ;;
miri)
    nightly rust-src miri
    miri() { cargo +nightly miri test --target-dir "$target/miri" -p mely -p mely-tests --no-fail-fast "$@"; }
    # Not the tests of choices: each has a table of its own, which Miri takes minutes to make.
    miri --lib -- event:: shared:: sched:: host::unique io::pool io::buf --skip sched::choices "$@"
    miri --test colors --test runtime --test scheduling -- colored:: panics:: placement:: "$@"
    # Those that need no kernel and are small enough.
    miri --test runtime -- \
        closures_of closures_that beyond_the_limit never_ran gives_the_closure_back "$@"
    # A runtime and a task: some twenty seconds each.
    miri --test tasks -- the_context "$@"
    miri --test scheduling -- storm_base causal poster_inside shutdown_during "$@"
    # Two schedules, and the other of the two models of aliasing.
    MIRIFLAGS="-Zmiri-many-seeds=0..2 -Zmiri-tree-borrows ${MIRIFLAGS:-}" \
        miri --test scheduling -- storm_sixteen "$@"
    ;;
*)
    sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' checks/sanitize.sh
    exit 2
    ;;
esac
