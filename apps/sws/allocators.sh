#!/usr/bin/env bash
# The web server with malloc and with TCMalloc (Mely paper, section IV-C), in turn, on one core with
# the injector on the other. Prints medians, and the median of the ratios of neighbors.
# Needs Debian's libgoogle-perftools-dev (.ci/install-tcmalloc). usage: apps/sws/allocators.sh [pairs]
set -euo pipefail
cd "$(dirname "$0")/../.."
pairs=${1:-24}
. benches/rounds.sh

cargo build -q --release -p sws --features tcmalloc
cp target/release/sws "$tmp/tcmalloc"
cargo build -q --release -p sws -p injector
cp target/release/sws "$tmp/malloc"
mkdir "$tmp/site"
target/release/injector files "$tmp/site" --set one >"$tmp/out"

once() { # ALLOCATOR: requests a second, CPU us a request
    start 0 '^listening on ' "$tmp/$1" --cores 1 --root "$tmp/site" --listen 127.0.0.1:0
    json=$(taskset -c 1 target/release/injector --target "$(listening)" --cores 1 --clients 64 \
        --seconds 2 --pid "$server" --json | tail -1)
    stop
    for field in errors requests_per_second server_cpu_us_per_request; do
        sed -n "s/.*\"$field\":\([0-9.e+-]*\).*/\1/p" <<<"$json"
    done | paste -s -d ' '
}

for _ in $(seq "$pairs"); do
    for allocator in malloc tcmalloc; do
        once $allocator >"$tmp/once"
        read -r errors rate cpu <"$tmp/once"
        [ "$errors" = 0 ] || { echo "$errors errors with $allocator" >&2; exit 1; }
        echo "$rate" >>"$tmp/$allocator.rate"
        echo "$cpu" >>"$tmp/$allocator.cpu"
    done
done

for what in rate cpu; do
    ratio=$(paste "$tmp/tcmalloc.$what" "$tmp/malloc.$what" | awk '{ print $1 / $2 }' | median)
    echo "$what: malloc $(median <"$tmp/malloc.$what"), tcmalloc $(median <"$tmp/tcmalloc.$what")," \
        "ratio $ratio"
done
