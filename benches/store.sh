#!/usr/bin/env bash
# The store (examples/store) beside redis-server, loaded by redis-benchmark: 50 clients, a million
# keys, pipelines of 1 and 16. With one core the server has the first and the load the second; with
# two both have both. Prints medians of the rounds: requests/s, and the server's CPU in us a request.
# Needs Debian's redis-server and redis-tools. usage: benches/store.sh [rounds]
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${1:-5}
requests=400000
. benches/rounds.sh
cargo build -q --release --example store

begin() { # NAME CPUS: sets port
    if [ "$1" = redis ]; then
        port=7379
        start "$2" 'Ready to accept' \
            redis-server --port $port --save '' --appendonly no --dir "$tmp"
    else
        start "$2" '^listening on ' target/release/examples/store 127.0.0.1:0
        port=$(listening)
        port=${port##*:}
    fi
}

ticks() { awk '{ print $14 + $15 }' "/proc/$server/stat"; }

once() { # NAME CORES COMMAND PIPELINE
    local cpus load before
    [ "$2" = 1 ] && { cpus=0; load=1; } || { cpus=0,1; load=0,1; }
    begin "$1" $cpus
    before=$(ticks)
    taskset -c $load redis-benchmark -h 127.0.0.1 -p "$port" -q -c 50 -n $requests -r 1000000 \
        -P "$4" -t "$3" >"$tmp/load" 2>"$tmp/errors"
    tr '\r' '\n' <"$tmp/load" | sed -n 's/.*: \([0-9.]*\) requests per second.*/\1/p' |
        tail -1 >>"$tmp/$1.$2.$3.$4.rate"
    echo "$(($(ticks) - before)) $requests" | awk '{ print $1 * 10000 / $2 }' \
        >>"$tmp/$1.$2.$3.$4.cpu"
    stop
}

echo '| cores | pipeline | command | redis-server | store | ratio | CPU us: redis-server | store |'
echo '|---|---|---|---|---|---|---|---|'
for cores in 1 2; do
    for pipeline in 1 16; do
        for command in set get incr mset; do
            for _ in $(seq "$rounds"); do
                once redis $cores $command $pipeline
                once store $cores $command $pipeline
            done
            at=$cores.$command.$pipeline
            echo "$cores $pipeline $command $(median <"$tmp/redis.$at.rate")" \
                "$(median <"$tmp/store.$at.rate") $(median <"$tmp/redis.$at.cpu")" \
                "$(median <"$tmp/store.$at.cpu")" |
                awk '{ printf "| %d | %d | %s | %.0f | %.0f | %.2f | %.2f | %.2f |\n", $1, $2, $3, $4, $5, $5 / $4, $6, $7 }'
        done
    done
done
