#!/usr/bin/env bash
# The unsafe code under checkers that see what tests and loom cannot. One layer a call:
#
#   ./sanitize.sh thread     ThreadSanitizer: data races, in everything the threads of a runtime do
#   ./sanitize.sh address    AddressSanitizer and LeakSanitizer: memory that is gone, or never goes
#   ./sanitize.sh miri       Miri: aliasing, provenance, uninitialized memory, leaks; and races, with
#                            stale values read where the memory model allows them
#   ./sanitize.sh valgrind   memcheck: branches on uninitialized memory, in the compiled code
#
# What follows is passed to the test programs: `./sanitize.sh thread storm`.
#
# The first three need the nightly toolchain, with rust-src and miri; rustup installs what is missing.
# For `thread` the standard library is built with the sanitizer too: else what its locks and channels
# guard looks like races. The fourth needs valgrind.
#
# Each runs the library's own tests and integration tests that drive the scheduler. Under Miri the
# runtime has a simulated event source, because Miri has no kernel; numbers of events are smaller
# (`cfg!(miri)` in the tests).
#
# What is excused, and why, stands in .ci/tsan and .ci/lsan.
set -euo pipefail
cd "$(dirname "$0")"

layer=${1:-}
[ $# -gt 0 ] && shift
host=$(rustc -vV | sed -n 's/^host: //p')
export RUST_BACKTRACE=1

need() {
    command -v "$1" >/dev/null || { echo "needs $1" >&2; exit 1; }
}

# The nightly toolchain with these components.
nightly() {
    need rustup
    rustup toolchain list | grep -q ^nightly || rustup toolchain install nightly --profile minimal
    [ $# -eq 0 ] || rustup component add --toolchain nightly "$@" || {
        echo "this nightly lacks one of: $*; another may have it" >&2
        exit 1
    }
}

# What drives the scheduler, from the inside and from the outside.
programs=(--lib)
for name in colored limits net panics placement profile shutdown stress timers watch; do
    programs+=(--test "$name")
done

case $layer in
thread)
    nightly rust-src
    RUSTFLAGS="-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer" \
        TSAN_OPTIONS="suppressions=$PWD/.ci/tsan halt_on_error=1 ${TSAN_OPTIONS:-}" \
        cargo +nightly test -Zbuild-std --target "$host" --target-dir target/thread \
        "${programs[@]}" -- "$@"
    ;;
address)
    nightly
    RUSTFLAGS="-Zsanitizer=address -Cunsafe-allow-abi-mismatch=sanitizer" \
        ASAN_OPTIONS="detect_leaks=1 ${ASAN_OPTIONS:-}" \
        LSAN_OPTIONS="suppressions=$PWD/.ci/lsan ${LSAN_OPTIONS:-}" \
        cargo +nightly test --target "$host" --target-dir target/address \
        "${programs[@]}" -- "$@"
    ;;
miri)
    nightly rust-src miri
    cargo +nightly miri test --target-dir target/miri --lib -- color sched "$@"
    cargo +nightly miri test --target-dir target/miri \
        --test colored --test panics --test placement --test stress -- "$@"
    ;;
valgrind)
    need valgrind
    # Fair, because cores spin; epoll, because it knows of few ring calls.
    MELY_BACKEND=epoll cargo test \
        --config "target.'cfg(all())'.runner = 'valgrind --quiet --fair-sched=yes --error-exitcode=9'" \
        --target-dir target/valgrind --lib --test colored --test placement -- "$@"
    ;;
*)
    sed -n '2,/^set/{/^#/s/^# \{0,1\}//p}' "$0"
    exit 2
    ;;
esac
