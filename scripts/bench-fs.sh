#!/usr/bin/env bash
# Reads of one file in one image: by Meantime, by the kernel's ext4 on a loop device, and by
# fuse2fs, in turns. A table of ratios, with their spread over the rounds. Needs root (mounts).
# --quick: a small image, few and short rounds. MEANTIME=COMMAND: another build of it.
set -euo pipefail
cd "$(dirname "$0")/.."
PATH=$PATH:/usr/sbin:/sbin

rounds=9 seconds=1 megabytes=512
case "${1:-}" in
"") ;;
--quick) rounds=3 seconds=200ms megabytes=64 ;;
*) echo "usage: $0 [--quick]" >&2; exit 2 ;;
esac
[ "$(id -u)" = 0 ] || { echo "bench-fs: mounting needs root" >&2; exit 1; }
scripts/setup.sh fs
meantime=${MEANTIME:-}
if [ -z "$meantime" ]; then
    cargo build --release --locked --quiet --bin meantime
    meantime=target/release/meantime
fi

work=$(mktemp -d "${TMPDIR:-/var/tmp}/meantime-fs.XXXXXX")
kernel=$work/kernel fuse=$work/fuse image=$work/disk.img
# Whatever happened, and however often: nothing stays mounted, and only what is not mounted is
# removed.
clean() {
    local place
    for place in "$fuse" "$kernel"; do
        if mountpoint -q "$place"; then umount "$place" || umount -l "$place" || true; fi
    done
    rm -rf --one-file-system "$work"
}
trap clean EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
mkdir "$kernel" "$fuse" "$work/data"
dd if=/dev/urandom of="$work/data/data" bs=1M count="$megabytes" status=none
truncate -s $((megabytes * 5 / 4 + 64))M "$image"
mkfs.ext4 -q -F -d "$work/data" "$image"
rm "$work/data/data"
sync -f "$image"
mount -o ro,loop "$image" "$kernel"
peers=(kernel)
if [ -c /dev/fuse ] && fuse2fs -o ro,allow_other "$image" "$fuse" 2>"$work/fuse.log"; then
    # It answers from a process of its own, when that has started.
    [ -r "$fuse/data" ] && peers+=(fuse)
else
    echo "bench-fs: no fuse2fs here: $(tail -n 1 "$work/fuse.log" 2>/dev/null)" >&2
fi

# measure WHO KIND CACHED: appends IOPS to $work/KIND.CACHED.WHO.
measure() {
    local who=$1 kind=$2 cached=$3 rw=randread bs=4k wait=interrupt direct=1 device
    if [ "$kind" != random ]; then rw=read bs=$kind; fi
    if [ "$cached" = cached ]; then direct=0; fi
    # Ours is polled; the kernel decides by itself.
    if [ "$who" = meantime ]; then
        wait=poll device=file:$image:/data
    else
        device="kernel:$work/$who/data?engine=preadv2&direct=$direct"
    fi
    {
        echo "[global]"
        echo "completion=$wait"
        if [ "$who" = meantime ]; then printf '%s\n' "direct=$direct" "cache=$((megabytes * 2))m"; fi
        # All of it is in the cache before anything is measured.
        if [ "$cached" = cached ]; then printf '%s\n' "[warm]" rw=read bs=1m "number_ios=$megabytes"; fi
        printf '%s\n' "[measured]" stonewall "rw=$rw" "bs=$bs" "runtime=$seconds" time_based
    } >"$work/job.fio"
    "$meantime" bench "$work/job.fio" --no-control --device "$device" --json "$work/out.json" >/dev/null 2>"$work/error.log" || {
        echo "bench-fs: $who, $kind, $cached: $(tail -n 1 "$work/error.log")" >&2
        return 0
    }
    python3 -c 'import json, sys; print(json.load(open(sys.argv[1]))["jobs"][-1]["read"]["iops"])' "$work/out.json" \
        >>"$work/$kind.$cached.$who"
}

for ((round = 0; round < rounds; round++)); do
    for kind in random 4k 64k 1m; do
        for cached in cached direct; do
            # Small direct reads in order are like those at random.
            [[ $kind.$cached != *4k.direct ]] || continue
            for who in meantime "${peers[@]}"; do measure "$who" "$kind" "$cached"; done
        done
    done
    echo "bench-fs: round $((round + 1)) of $rounds" >&2
done

python3 - "$work" "${peers[@]}" <<'PYTHON'
import os, statistics, sys

work, peers = sys.argv[1], sys.argv[2:]
names = {"kernel": "kernel ext4, loop", "fuse": "fuse2fs"}


def read(kind, cached, who):
    path = os.path.join(work, f"{kind}.{cached}.{who}")
    return [float(line) for line in open(path)] if os.path.exists(path) else []


def shown(bytes, iops):
    return f"{iops * bytes / 2**30:.2f} GiB/s" if bytes else f"{1e6 / iops:.2f} µs"


print(f"{'reads':<22}{'':<9}{'meantime':>14}", *(f"{names[peer]:>20}{'ratio (spread)':>24}" for peer in peers))
kinds = (
    ("random", "4 KiB random", 0),
    ("4k", "4 KiB sequential", 4 << 10),
    ("64k", "64 KiB sequential", 64 << 10),
    ("1m", "1 MiB sequential", 1 << 20),
)
for kind, words, size in kinds:
    for cached in ("cached", "direct"):
        ours = read(kind, cached, "meantime")
        if not ours:
            continue
        row = f"{words:<22}{cached:<9}{shown(size, statistics.median(ours)):>14}"
        for peer in peers:
            theirs = read(kind, cached, peer)
            ratios = [our / their for our, their in zip(ours, theirs)]
            if not ratios:
                row += f"{'–':>21}{'':>24}"
                continue
            ratio = f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
            row += f"{shown(size, statistics.median(theirs)):>21}{ratio:>24}"
        print(row)
print("Ratio: how many times as many reads Meantime does; the median of the rounds, and their least and most.")
PYTHON
