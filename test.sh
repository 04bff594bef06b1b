#!/usr/bin/env bash
# The tests of the library, of the crates that it is made of and of apps/: unit, integration and doc
# tests, on both event sources, and the loom models. Those of benches/, machine/ and checks/ are steps
# of .ci/run. Needs nothing but cargo. `./test.sh quick` leaves out loom and the second event source.
set -euo pipefail
cd "$(dirname "$0")"

echo "== unit, integration and doc tests"
cargo test

if [ "${1:-}" = quick ]; then
    exit 0
fi

echo "== integration tests on epoll (above: on io_uring, where the kernel allows it)"
MELY_BACKEND=epoll cargo test --tests --examples

echo "== the scheduler under loom"
RUSTFLAGS="--cfg loom" cargo test --profile loom --target-dir target/loom -p mely-loom-tests
