#!/usr/bin/env bash
# `adaptive` where the CPU is short: in a control group with a quota, and beside programs that always
# want the same CPU, against the fixed ways to wait. The program has CPU 0; the software SSD is
# another process, on CPU 1. A table of I/Os per second, the medians of the rounds. Needs root
# (control groups), 2 CPUs. --quick: one short round. MEANTIME=COMMAND: another build of it.
# FORMER=COMMAND: its `auto` and `adaptive` too, in turns with the others.
# ROUNDS, SECONDS_EACH; DEVICES_US: the devices' times; ONLY: a part of the cells' names.
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=${SECONDS_EACH:-3} rounds=${ROUNDS:-4}
case "${1:-}" in
"") ;;
--quick) seconds=2 rounds=1 ;;
*) echo "usage: $0 [--quick]" >&2; exit 2 ;;
esac
[ "$(id -u)" = 0 ] || { echo "bench-shortage: control groups need root" >&2; exit 1; }
meantime=${MEANTIME:-}
if [ -z "$meantime" ]; then
    cargo build --release --locked --quiet --bin meantime
    meantime=target/release/meantime
fi

work=$(mktemp -d "${TMPDIR:-/dev/shm}/meantime-shortage.XXXXXX")
if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
    group=/sys/fs/cgroup/meantime-shortage.$$
    grep -qw cpu /sys/fs/cgroup/cgroup.subtree_control || echo +cpu >/sys/fs/cgroup/cgroup.subtree_control
    quota() { if [ "$1" = max ]; then echo max; else echo "$(($1 * 1000)) 100000"; fi >"$group/cpu.max"; }
else
    group=/sys/fs/cgroup/cpu/meantime-shortage.$$
    quota() { if [ "$1" = max ]; then echo -1; else echo "$(($1 * 1000))"; fi >"$group/cpu.cfs_quota_us"; }
fi
ssd='' others=()
# Whatever happened: nothing is left running, and the control group is gone.
stop_others() {
    [ ${#others[@]} -gt 0 ] || return 0
    kill "${others[@]}" 2>/dev/null || true
    wait "${others[@]}" 2>/dev/null || true
    others=()
}
stop_ssd() {
    if [ -n "$ssd" ]; then kill "$ssd" 2>/dev/null && wait "$ssd" 2>/dev/null || true; fi
    ssd=
}
clean() {
    stop_others
    stop_ssd
    rmdir "$group" 2>/dev/null || true
    rm -rf "$work"
}
trap clean EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
mkdir "$group"

# spin [ON OFF]: wants the CPU always, or in turns of so many seconds.
spin() {
    exec taskset -c 0 python3 -c '
import sys, time
on, off = map(float, sys.argv[1:]) if len(sys.argv) > 1 else (1, 0)
while True:
    until = time.monotonic() + on
    while time.monotonic() < until:
        pass
    if off:
        time.sleep(off)
' "$@"
}

# measure NAME PERCENT COUNT [ON OFF]: appends a line for each device and policy to $work/iops.
measure() {
    local name=$1 percent=$2 count=$3 policy command n
    shift 3
    [[ $name == *"${ONLY:-}"* ]] || return 0
    quota "$percent"
    for policy in ${policies[round % 4]}; do
        for ((n = 0; n < count; n++)); do
            spin "$@" &
            others+=($!)
        done
        command=$meantime
        [[ $policy != former-* ]] || command=$FORMER
        sh -c 'echo $$ >"$1/cgroup.procs"; shift; exec "$@"' sh "$group" \
            taskset -c 0 "$command" bench --device "vfio-user:$work/ssd.sock" --rw randread --bs 4k \
            --cpus-allowed 0 --completion "${policy#former-}" --runtime "$seconds" --json "$work/out.json" \
            >/dev/null 2>"$work/log" || { cat "$work/log" >&2; exit 1; }
        stop_others
        python3 - "$work/out.json" "$name" "$us" "$policy" >>"$work/iops" <<'EOF'
import json, sys
out, name, us, policy = sys.argv[1:]
job = json.load(open(out))["jobs"][0]
cpu = job["usr_cpu"] + job["sys_cpu"]
print(name.replace(" ", "_"), us, policy, job["read"]["iops"], cpu)
EOF
    done
}

policies=(
    "interrupt poll adaptive"
    "adaptive poll interrupt"
    "poll interrupt adaptive"
    "adaptive interrupt poll"
)
if [ -n "${FORMER:-}" ]; then
    policies=(
        "interrupt former-auto adaptive former-adaptive poll"
        "poll former-adaptive adaptive former-auto interrupt"
        "adaptive interrupt former-auto poll former-adaptive"
        "former-adaptive poll former-auto interrupt adaptive"
    )
fi
for ((round = 0; round < rounds; round++)); do
    for us in ${DEVICES_US:-5 20 100}; do
        cat >"$work/model.toml" <<EOF
name = "fixed"
source = "each I/O takes $us µs"
channels = 1
read = [[512, ${us}000]]
write = [[512, ${us}000]]
flush_ns = 1000
trim_ns = 1000
EOF
        taskset -c 1 "$meantime" ssd --socket "$work/ssd.sock" \
            "mem:256M?model=$work/model.toml" >"$work/ssd.log" 2>&1 &
        ssd=$!
        for _ in {1..200}; do [ -S "$work/ssd.sock" ] || sleep 0.05; done
        [ -S "$work/ssd.sock" ] || { cat "$work/ssd.log" >&2; exit 1; }
        measure "alone" max 0
        for percent in 10 20 50; do measure "quota $percent %" "$percent" 0; done
        for count in 1 2 4; do measure "hogs $count" max "$count"; done
        for count in 1 2 4; do measure "hogs $count, 200 ms on and off" max "$count" 0.2 0.2; done
        stop_ssd
    done
done

[ -s "$work/iops" ] || { echo "bench-shortage: no cell has ONLY=${ONLY:-} in its name" >&2; exit 2; }
python3 - "$work/iops" <<'EOF'
import statistics, sys
cells, order = {}, []
for line in open(sys.argv[1]):
    name, us, policy, iops, cpu = line.split()
    key = (name.replace("_", " "), us)
    if key not in order:
        order.append(key)
    cells.setdefault(key, {}).setdefault(policy, []).append((float(iops), float(cpu)))
FIXED = ("interrupt", "poll")
FORMER = [way for way in ("former-auto", "former-adaptive") if any(way in runs for runs in cells.values())]
head = ("CPU", "device", *FIXED, *FORMER, "adaptive", "over the best", "its CPU")
print("| " + " | ".join(head) + " |")
print("|" + "---|" * len(head))
median = statistics.median
kinds = {}
for key in order:
    runs = cells[key]
    rates = {policy: median(iops for iops, _ in of) for policy, of in runs.items()}
    ratio = rates["adaptive"] / max(rates[policy] for policy in (*FIXED, *FORMER))
    kind = "on and off" if "off" in key[0] else key[0].split()[0]
    kinds.setdefault(kind, []).append(ratio)
    cpu = median(cpu for _, cpu in runs["adaptive"])
    shown = " | ".join(f"{rates[p] / 1000:.1f} k" for p in (*FIXED, *FORMER, "adaptive"))
    print(f"| {key[0]} | {key[1]} µs | {shown} | {ratio:.2f} | {cpu:.0f} % |")
for kind, of in kinds.items():
    print(f"\n{kind}: median {median(of):.2f}, least {min(of):.2f}")
EOF
