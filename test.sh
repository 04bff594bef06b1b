#!/usr/bin/env bash
# Every test: unit, integration, doc and loom tests, on both event sources.
# Needs nothing but cargo. `./test.sh quick` leaves out loom and the second event source.
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
