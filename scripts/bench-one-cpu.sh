#!/usr/bin/env bash
# NVMe/TCP at depth 1 where target and host may use one CPU each: the time of an I/O, and how it
# compares with that where both may use CPUs 0 and 1. The cells of a round follow each other, in
# another order each round; each cell starts a target of its own, so that its first 100 ms count.
#
#   free     both on CPUs 0 and 1          apart    the target on CPU 0, the host on CPU 1
#   together both on CPU 0                 hidden   as together, but the target has no schedstat
#
# NEW=COMMAND: a build of meantime, else one is made; OLD=COMMAND: another to compare with. ROUNDS;
# MS: the time of the long runs; CELLS; POLICY: the host's. --quick: two short rounds. Needs 2 CPUs,
# `hidden` also root (a mount namespace).
set -euo pipefail
cd "$(dirname "$0")/.."

rounds=${ROUNDS:-9} ms=${MS:-2000} policy=${POLICY:-poll}
cells=${CELLS:-free apart together hidden}
case "${1:-}" in
"") ;;
--quick) rounds=2 ms=300 ;;
*) echo "usage: $0 [--quick]" >&2; exit 2 ;;
esac
if [ -z "${NEW:-}" ]; then
    cargo build --release --locked --quiet --bin meantime
    NEW=target/release/meantime
fi
builds=(new)
[ -z "${OLD:-}" ] || builds=(old new)

work=$(mktemp -d "${TMPDIR:-/dev/shm}/meantime-one-cpu.XXXXXX")
target=''
# Whatever happened: nothing is left running.
stop() {
    [ -n "$target" ] || return 0
    kill "$target" 2>/dev/null || true
    wait "$target" 2>/dev/null || true
    target=
}
trap 'stop; rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# No thread finds its folder: an empty one is in its place.
hidden='mount -t tmpfs none "/proc/$$/task" && exec "$@"'

# measure BUILD CELL MS: a line in $work/figures.
measure() {
    local command=$NEW cpus_target=0 cpus_host=0 around=() uri
    [ "$1" = new ] || command=$OLD
    case "$2" in
    free) cpus_target=0,1 cpus_host=0,1 ;;
    apart) cpus_host=1 ;;
    together) ;;
    hidden) around=(unshare -m sh -c "$hidden" sh) ;;
    *) echo "bench-one-cpu: $2 is not a cell" >&2; exit 2 ;;
    esac
    : >"$work/ready"
    taskset -c "$cpus_target" "${around[@]}" "$command" ssd --tcp 127.0.0.1:0 --json mem:64M \
        >"$work/ready" 2>"$work/log" &
    target=$!
    for _ in {1..200}; do [ -s "$work/ready" ] || sleep 0.05; done
    uri=$(python3 -c 'import json, sys
ready = json.loads(sys.stdin.readline())
print("nvme+tcp://%(tcp)s/%(nqn)s" % ready)' <"$work/ready") || { cat "$work/log" >&2; exit 1; }
    taskset -c "$cpus_host" "$command" bench --device "$uri" --rw randread --bs 4k --iodepth 1 \
        --completion "$policy" --runtime "${3}ms" --json "$work/out.json" >/dev/null \
        2>"$work/log" || { cat "$work/log" >&2; exit 1; }
    stop
    python3 - "$work/out.json" "$@" >>"$work/figures" <<'END'
import json, sys
out, build, cell, ms = sys.argv[1:]
read = json.load(open(out))["jobs"][0]["read"]
print(build, cell, ms, 1e6 / read["iops"])
END
}

for ((round = 0; round < rounds; round++)); do
    # Each cell, and each build, is first as often as last.
    order="$cells"
    ((round % 2 == 0)) || order=$(tr ' ' '\n' <<<"$cells" | tac | tr '\n' ' ')
    for length in 100 "$ms"; do
        for cell in $order; do
            for build in "${builds[@]}"; do measure "$build" "$cell" "$length"; done
        done
    done
    builds=($(printf '%s\n' "${builds[@]}" | tac))
done

python3 - "$work/figures" <<'END'
import statistics, sys
runs = {}
for line in open(sys.argv[1]):
    build, cell, ms, each_us = line.split()
    runs.setdefault((int(ms), cell), {}).setdefault(build, []).append(float(each_us))
median = statistics.median
def ratio(ours, theirs):
    of = sorted(a / b for a, b in zip(ours, theirs))
    return f"{median(of):.2f} ({of[0]:.2f}–{of[-1]:.2f})"
print("Of pairs of the same round: the median ratio, the least and the most.")
print("| run, ms | cell | build | µs an I/O | over free's | over old's |")
print("|---|---|---|---|---|---|")
for (ms, cell), builds in sorted(runs.items()):
    for build, of in sorted(builds.items(), reverse=True):
        free, old = runs.get((ms, "free"), {}).get(build), builds.get("old")
        cells = [f"{median(of):.1f}", ratio(of, free) if free and cell != "free" else ""]
        cells += [ratio(of, old) if old and build != "old" else ""]
        print(f"| {ms} | {cell} | {build} | {' | '.join(cells)} |")
END
