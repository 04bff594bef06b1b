#!/usr/bin/env bash
# The tests of the library, of the crates that it is made of and of apps/: unit, integration and doc
# tests, on both event sources, and the loom models. Those of benches/, lab/ and checks/ are steps
# of .ci/run. Needs nothing but cargo. `./test.sh quick` leaves out loom and the second event source.
set -euo pipefail

# Cargo has each test program run by this, `./test.sh --program ROUND PROGRAM ARGUMENT...`, where the
# program's folder is the current one.
program() {
    local round=$1 name
    shift
    name=$(basename "$1")
    # Examples may have the name of a test of theirs.
    case $1 in */examples/*) exec "$@" ;; esac
    case ${name%-*} in
    # Whose tests each say what they run on, often both event sources one after the other, or are
    # simulated. A second round would be the first again. In that one, a test of theirs that goes by
    # the default fails: there is no such event source.
    clients | examples | files | machines | net | properties | simulated)
        if [ "$round" = second ]; then
            echo "${name%-*}: its tests have run on both"
            exit 0
        fi
        export MELY_BACKEND="the-one-that-a-test-of-${name%-*}-has-to-name"
        ;;
    esac
    exec "$@"
}

if [ "${1:-}" = --program ]; then
    shift
    program "$@"
fi

cd "$(dirname "$0")"
tests() {
    local round=$1
    shift
    cargo test --config "target.'cfg(all())'.runner = ['$PWD/test.sh', '--program', '$round']" "$@"
}

echo "== unit, integration and doc tests"
tests first

if [ "${1:-}" = quick ]; then
    exit 0
fi

echo "== integration tests on epoll (above: on io_uring, where the kernel allows it)"
MELY_BACKEND=epoll tests second --tests --examples

echo "== the scheduler under loom"
RUSTFLAGS="--cfg loom" cargo test --profile loom --target-dir target/loom -p mely-loom-tests
