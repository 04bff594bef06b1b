# For scripts that time servers in rounds, which source it: a server and its output, and medians.
# What they keep for a while goes into $tmp. Whatever happens, that and the server go at the end.
tmp=$(mktemp -d)
server=
cleanup() {
    [ -z "$server" ] || kill "$server" 2>/dev/null || true
    rm -rf "$tmp"
}
trap cleanup EXIT

# start CPUS READY COMMAND...: starts a server; its output is $tmp/out. Returns once that has READY.
start() {
    local cpus=$1 ready=$2
    shift 2
    # Before it is started: what the last one said is not to be taken for this one's.
    : >"$tmp/out"
    taskset -c "$cpus" "$@" >"$tmp/out" &
    server=$!
    for _ in $(seq 100); do
        grep -q "$ready" "$tmp/out" && return
        sleep 0.05
    done
    echo "not ready: $*" >&2
    return 1
}

# Stops the server as Ctrl-C does, and fails if it does.
stop() {
    local its=$server
    server=
    kill -INT "$its"
    wait "$its"
}

# Where the server that says so listens.
listening() { sed -n 's/^listening on //p' "$tmp/out"; }

# The median of the lines.
median() { sort -g | awk '{ x[NR] = $1 } END { print (x[int((NR + 1) / 2)] + x[int(NR / 2) + 1]) / 2 }'; }
