#!/usr/bin/env bash
# Writes, fsyncs, names made, found, moved and removed: by Meantime, by the kernel's ext4 on a loop
# device, and by fuse2fs, in turns, each on a fresh image of the same kind in memory. Tables of
# ratios, with their spread over the rounds. Needs root (mounts). --quick: few and short rounds.
set -euo pipefail
cd "$(dirname "$0")/.."
PATH=$PATH:/usr/sbin:/sbin

rounds=9 seconds=1 names=50000
case "${1:-}" in
"") ;;
--quick) rounds=3 seconds=0.2 names=5000 ;;
*) echo "usage: $0 [--quick]" >&2; exit 2 ;;
esac
[ "$(id -u)" = 0 ] || { echo "bench-fs-writes: mounting needs root" >&2; exit 1; }
scripts/setup.sh fs
# Paths of the two programs, if they are built already.
writes=${FS_WRITES:-} lists=${FS_NAMES:-}
if [ -z "$writes" ] || [ -z "$lists" ]; then
    cargo build --release --locked --quiet -p meantime --example fs_writes --example fs_names
    writes=target/release/examples/fs_writes lists=target/release/examples/fs_names
fi

# In memory, so that the disk of this machine is no part of it.
memory=${TMPDIR:-/dev/shm}
work=$(mktemp -d "$memory/meantime-writes.XXXXXX")
place=$work/place image=$work/disk.img
clean() {
    if mountpoint -q "$place"; then umount "$place" || umount -l "$place" || true; fi
    rm -rf --one-file-system "$work"
}
trap clean EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
mkdir "$place"

# measure WHO WHAT SIZE PROGRAM ARGUMENT: appends a JSON object to $work/WHO.WHAT.
measure() {
    local out=$work/$1.$2 program=$4 argument=$5
    rm -f "$image"
    truncate -s "$3" "$image"
    mkfs.ext4 -q -F -E lazy_itable_init=0,lazy_journal_init=0 "$image"
    case $1 in
    meantime) "$program" --device "file:$image?model=null" "$argument" >>"$out" ;;
    kernel)
        mount -o loop "$image" "$place"
        "$program" --dir "$place" "$argument" >>"$out"
        umount "$place"
        ;;
    fuse)
        # It answers from a process of its own, when that has started.
        fuse2fs -o rw "$image" "$place" 2>"$work/fuse.log" && ls "$place" >/dev/null || return 0
        "$program" --dir "$place" "$argument" >>"$out" || true
        umount "$place"
        while pgrep -f "fuse2fs.*$image" >/dev/null; do sleep 0.1; done
        ;;
    esac
}

peers=(meantime kernel)
if [ -c /dev/fuse ] && command -v fuse2fs >/dev/null; then peers+=(fuse); else echo "bench-fs-writes: no fuse2fs here" >&2; fi
for ((round = 0; round < rounds; round++)); do
    for who in "${peers[@]}"; do
        measure "$who" writes 512M "$writes" "$seconds"
        # (fuse2fs looks for a name at all those before it: hours.)
        [ "$who" = fuse ] || measure "$who" names 2G "$lists" "$names"
    done
    echo "bench-fs-writes: round $((round + 1)) of $rounds" >&2
done

python3 - "$work" "${peers[@]:1}" <<'PYTHON'
import json, os, statistics, sys

work, peers = sys.argv[1], sys.argv[2:]
names = {"kernel": "kernel ext4, loop", "fuse": "fuse2fs"}


def read(who, what):
    path = os.path.join(work, f"{who}.{what}")
    return [json.loads(line) for line in open(path)] if os.path.exists(path) else []


def shown(runs, kind):
    rate = statistics.median(run[kind]["rate"] for run in runs)
    # A latency, where each operation was timed.
    latency = [run[kind]["p50_us"] for run in runs if "p50_us" in run[kind]]
    return f"{rate / 1000:.1f} k/s" + (f", {statistics.median(latency):.1f} µs" if latency else "")


def table(title, what):
    ours = read("meantime", what)
    print(f"{title:<22}{'meantime':>24}", *(f"{names[peer]:>24}{'ratio (spread)':>24}" for peer in peers))
    for kind in ours[0]:
        row = f"{kind:<22}{shown(ours, kind):>24}"
        for peer in peers:
            theirs = read(peer, what)
            ratios = [our[kind]["rate"] / their[kind]["rate"] for our, their in zip(ours, theirs)]
            if not ratios:
                row += f"{'–':>25}{'':>24}"
                continue
            ratio = f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
            row += f"{shown(theirs, kind):>25}{ratio:>24}"
        print(row)


table("writes, one thread", "writes")
print()
table("names, one thread", "names")
print("Ratio: how many times as often a second Meantime does it; the median of the rounds, and their least and most.")
PYTHON
